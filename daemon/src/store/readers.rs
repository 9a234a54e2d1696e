//! Reads beside the writer: lists, histories, pages of the log.
//!
//! Owns the threads that read, their connections, which can't write, and for how long a read may
//! go on. An answer is told after those of all commits that it may hold. Must not know what is
//! asked for.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use agentd_base::shared::lock;
use agentd_core::Event;
use agentd_core::ids::Token;
use agentd_core::store::{Loaded, Query};
use rusqlite::{Connection, InterruptHandle};

use super::verify::Verify;
use super::{Alive, Answer, NotTaken, schema, trouble};

/// Threads that read: a page of a subscriber doesn't wait for somebody's long list.
const READERS: usize = 2;
/// Threads that may hang in the disk besides, so that whoever hangs takes nobody's place.
const HANGING: usize = 2;
/// Reads that may wait: more than all connections of a busy daemon ask at once.
pub(super) const READS: usize = 1024;
/// A commit that a read may hold is told within this, or the read is given up.
const LOOK: Duration = Duration::from_secs(1);
/// A read that holds the log back is given up after this, once the log is too long.
const BRIEF: Duration = Duration::from_secs(1);
/// How long closing waits for reads that were interrupted.
const CLOSING: Duration = Duration::from_secs(1);

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From the question to its answer.
    pub(super) answer: Duration,
    /// A thread and its connection wait this long for the next question.
    pub(super) idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // As long as anybody who waits for the store waits.
            answer: Duration::from_secs(10),
            idle: Duration::from_secs(5),
        }
    }
}

/// How far the writer is, for those who read what it commits.
#[derive(Default, Debug)]
pub(super) struct Commits {
    begun: AtomicU64,
    told: Mutex<u64>,
    more_told: Condvar,
}

impl Commits {
    /// A transaction begins, whose outcome nobody knows yet.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Whoever waits for the transactions so far has an answer.
    pub(super) fn told(&self) {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut told = lock(&self.told);
        if *told < begun {
            *told = begun;
            self.more_told.notify_all();
        }
    }

    /// Were they told in time?
    fn wait(&self, begun: u64, until: Instant) -> bool {
        let mut told = lock(&self.told);
        while *told < begun {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.more_told.wait_timeout(told, left);
            told = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Is called before each read; in a test it may take its time.
pub(super) type BeforeRead = Box<dyn Fn() + Send + Sync>;

/// With what is read.
pub(super) struct ReaderConfig {
    pub(super) path: PathBuf,
    pub(super) answer: Arc<Answer>,
    pub(super) commits: Arc<Commits>,
    pub(super) limits: Limits,
    pub(super) give_way: fn(),
    /// Told of damage.
    pub(super) verify: Verify,
    /// Says whether an instance lives.
    pub(super) alive: Arc<Alive>,
    pub(super) before: BeforeRead,
}

/// Who reads what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// A thread of ours.
    Readers,
    /// Not even a thread can be had.
    Nobody,
}

/// A handle to those who read; cheap to clone.
#[derive(Clone)]
pub(super) struct Readers {
    shared: Arc<ReadersShared>,
}

struct ReadersShared {
    config: ReaderConfig,
    state: Mutex<ReadersState>,
    /// There is something to read, or nothing more to wait for.
    work: Condvar,
    /// A thread has left.
    left: Condvar,
    /// Wakes whoever looks for late reads before its time.
    watch: Condvar,
}

#[derive(Default)]
struct ReadersState {
    waiting: VecDeque<QueuedQuery>,
    reading: Vec<RunningRead>,
    /// Those that nobody waits for any more included.
    threads: usize,
    /// Of them, those that wait for something to read.
    idle: usize,
    /// Of them, those whose read was given up and that didn't come back yet.
    hanging: usize,
    is_watched: bool,
    closing: bool,
    /// The log begins anew as soon as nobody reads it.
    paused_until: Option<Instant>,
    reads: u64,
    /// Whoever waits is not given up before: something was read not long ago.
    moving_until: Option<Instant>,
}

struct QueuedQuery {
    token: Token,
    query: Query,
    until: Instant,
}

struct RunningRead {
    number: u64,
    token: Token,
    since: Instant,
    until: Instant,
    interrupt: Option<InterruptHandle>,
}

impl Readers {
    pub(super) fn new(config: ReaderConfig) -> Self {
        let shared = ReadersShared {
            config,
            state: Mutex::default(),
            work: Condvar::new(),
            left: Condvar::new(),
            watch: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Takes a question, without waiting, if there is anybody to read.
    pub(super) fn submit(&self, token: Token, query: Query) -> Result<By, NotTaken> {
        let mut state = lock(&self.shared.state);
        if state.closing {
            return Err(NotTaken::Closed);
        }
        if state.waiting.len() >= READS {
            return Err(NotTaken::Full);
        }
        let until = Instant::now() + self.shared.config.limits.answer;
        state.waiting.push_back(QueuedQuery {
            token,
            query,
            until,
        });
        self.shared.staff(&mut state);
        if state.threads == 0 {
            // Nobody will come for it: the writer reads it instead.
            state.waiting.pop_back();
            return Ok(By::Nobody);
        }
        drop(state);
        self.shared.work.notify_one();
        Ok(By::Readers)
    }

    /// Nobody begins to read for so long: the log can't begin anew while somebody reads it.
    pub(super) fn pause(&self, time: Duration) {
        lock(&self.shared.state).paused_until = Some(Instant::now() + time);
    }

    /// The log has begun anew.
    pub(super) fn resume(&self) {
        let paused = lock(&self.shared.state).paused_until.take();
        if paused.is_some() {
            self.shared.work.notify_all();
        }
    }

    /// Too much is written meanwhile: long reads are interrupted, which hold the log back.
    pub(super) fn give_up(&self) {
        let state = lock(&self.shared.state);
        let long = |read: &&RunningRead| read.since.elapsed() > BRIEF;
        for read in state.reading.iter().filter(long) {
            read.interrupt.as_ref().map(InterruptHandle::interrupt);
        }
    }

    /// Ends what is being read; nobody waits for the answers.
    pub(super) fn close(&self) {
        let mut state = lock(&self.shared.state);
        state.closing = true;
        state.waiting.clear();
        for read in &state.reading {
            read.interrupt.as_ref().map(InterruptHandle::interrupt);
        }
        self.shared.work.notify_all();
        self.shared.watch.notify_all();
        let until = Instant::now() + CLOSING;
        while state.threads > state.hanging {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("the store is closed while somebody reads it");
                return;
            }
            let waited = self.shared.left.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        lock(&self.shared.state).threads
    }
}

impl ReadersShared {
    /// Sees to it that somebody reads what waits, and that somebody looks after them.
    fn staff(self: &Arc<Self>, state: &mut ReadersState) {
        let at_work = state.threads - state.hanging;
        let most = state.threads >= READERS + HANGING;
        if state.waiting.len() > state.idle && at_work < READERS && !most {
            let shared = Arc::clone(self);
            let reader = thread::Builder::new()
                .name("reader".to_owned())
                // As the writer's.
                .stack_size(512 * 1024)
                .spawn(move || shared.run());
            match reader {
                // Nobody joins it: one that hangs in the disk would be waited for.
                Ok(_detached) => state.threads += 1,
                Err(error) => tracing::warn!(%error, "no thread to read the store"),
            }
        }
        if !state.is_watched && state.threads > 0 {
            let shared = Arc::clone(self);
            let watch = thread::Builder::new()
                .name("reads".to_owned())
                .stack_size(128 * 1024)
                .spawn(move || shared.watch());
            match watch {
                Ok(_detached) => state.is_watched = true,
                Err(error) => tracing::warn!(%error, "no thread to look for late reads"),
            }
        }
    }

    /// Tells those whose read is late, until there is nobody to look after.
    fn watch(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            let late = state.take_late(now);
            if !late.is_empty() {
                self.staff(&mut state);
                drop(state);
                for token in late {
                    self.tell(token, Loaded::Failed(self.too_late()));
                }
                state = lock(&self.state);
                continue;
            }
            if state.closing || (state.threads <= state.hanging && state.waiting.is_empty()) {
                state.is_watched = false;
                return;
            }
            let next = state.next_late().map_or(LOOK, |late| late - now);
            let waited = self.watch.wait_timeout(state, next.min(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn too_late(&self) -> String {
        format!(
            "the store was not read within {} s: its disk hangs, or too much was asked for; \
             ask for less, or look at the disk of `{}`",
            self.config.limits.answer.as_secs_f64(),
            self.config.path.display()
        )
    }

    fn tell(&self, token: Token, loaded: Loaded) {
        (self.config.answer)(Event::Loaded { token, loaded }.into());
    }

    /// Reads until nobody asks any more.
    fn run(&self) {
        // Whoever waits for a commit doesn't wait for somebody's long list.
        (self.config.give_way)();
        let mut conn = None;
        while let Some((number, asked)) = self.next() {
            (self.config.before)();
            let loaded = self.read(&mut conn, number, &asked);
            let mut state = lock(&self.state);
            let place = state.reading.iter().position(|read| read.number == number);
            match place {
                Some(place) => {
                    state.reading.swap_remove(place);
                    state.moving_until = Some(Instant::now() + self.config.limits.answer);
                    drop(state);
                    self.tell(asked.token, loaded);
                }
                // Whoever waited was told that it took too long.
                None => state.hanging -= 1,
            }
        }
        drop(conn);
        lock(&self.state).threads -= 1;
        self.left.notify_all();
    }

    /// Waits for something to read.
    fn next(&self) -> Option<(u64, QueuedQuery)> {
        let mut state = lock(&self.state);
        let idle_until = Instant::now() + self.config.limits.idle;
        loop {
            // One that hung and came back may be one too many: its place was taken meanwhile.
            if state.closing || state.threads - state.hanging > READERS {
                return None;
            }
            let now = Instant::now();
            let paused = state.paused_until.filter(|until| *until > now);
            if paused.is_none()
                && let Some(mut asked) = state.waiting.pop_front()
            {
                // From here on it is the disk's time and not that of whoever was before it.
                asked.until = now + self.config.limits.answer;
                state.reads += 1;
                let number = state.reads;
                state.reading.push(RunningRead {
                    number,
                    token: asked.token,
                    since: now,
                    until: asked.until,
                    interrupt: None,
                });
                return Some((number, asked));
            }
            if state.waiting.is_empty() && now >= idle_until {
                return None;
            }
            let until = paused.filter(|_| !state.waiting.is_empty());
            let until = until.unwrap_or(idle_until);
            state.idle += 1;
            let waited = self.work.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
        }
    }

    fn read(&self, kept: &mut Option<Connection>, number: u64, asked: &QueuedQuery) -> Loaded {
        let conn = match kept.take().map_or_else(|| self.open(), Ok) {
            Ok(conn) => conn,
            Err(error) => return Loaded::Failed(self.words(&error)),
        };
        if let Some(read) = lock(&self.state).read_mut(number) {
            read.interrupt = Some(conn.get_interrupt_handle());
        }
        match self.read_with(&conn, asked) {
            Ok(Loaded::Failed(why)) => Loaded::Failed(why),
            Ok(loaded) => {
                // Kept only when it worked: after an error the file is opened anew, which may be
                // another one by now.
                *kept = Some(conn);
                loaded
            }
            Err(error) => Loaded::Failed(self.words(&error)),
        }
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let conn = schema::reopen_to_read(&self.config.path)?;
        conn.set_prepared_statement_cache_capacity(32);
        Ok(conn)
    }

    fn words(&self, error: &rusqlite::Error) -> String {
        let damage = self.config.verify.suspect(error);
        damage.unwrap_or_else(|| trouble::words(&self.config.path, error))
    }

    /// All of an answer is of one moment.
    fn read_with(&self, conn: &Connection, asked: &QueuedQuery) -> rusqlite::Result<Loaded> {
        conn.prepare_cached("BEGIN")?.execute([])?;
        // From here on it is decided what is seen.
        conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM meta)")?
            .query_row([], |row| row.get::<_, bool>(0))?;
        // After the moment is fixed: any commit that is seen had begun by now, so none is told too
        // late.
        let begun = self.config.commits.begun.load(Ordering::SeqCst);
        let alive = &*self.config.alive;
        let loaded = self.config.verify.load(conn, &asked.query, alive);
        conn.prepare_cached("COMMIT")?.execute([])?;
        if asked.query.follows_commits() && !self.config.commits.wait(begun, asked.until) {
            return Ok(Loaded::Failed(self.too_late()));
        }
        Ok(loaded)
    }
}

impl ReadersState {
    fn read_mut(&mut self, number: u64) -> Option<&mut RunningRead> {
        self.reading.iter_mut().find(|read| read.number == number)
    }

    /// Gives up what should have been answered by now.
    fn take_late(&mut self, now: Instant) -> Vec<Token> {
        let mut late = Vec::new();
        while self.next_given_up().is_some_and(|until| until <= now) {
            late.extend(self.waiting.pop_front().map(|asked| asked.token));
        }
        for read in self.reading.extract_if(.., |read| read.until <= now) {
            read.interrupt.as_ref().map(InterruptHandle::interrupt);
            late.push(read.token);
            self.hanging += 1;
        }
        late
    }

    /// When the next one is late.
    fn next_late(&self) -> Option<Instant> {
        let reading = self.reading.iter().map(|read| read.until);
        self.next_given_up().into_iter().chain(reading).min()
    }

    /// When the first of those that wait is given up.
    fn next_given_up(&self) -> Option<Instant> {
        let asked = self.waiting.front()?;
        self.moving_until.max(Some(asked.until))
    }
}
