//! The one thread that writes: group commit, retries, and the doubt after a failed `COMMIT`.
//!
//! Owns the queue of commands and the connection. Must not know what a write does.

mod displaced;
mod retry;
mod upkeep;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agentd_core::Event;
use agentd_core::limits::{TEXT_FLUSH_AFTER, TEXT_STORED_WITHIN};
use agentd_core::store::{Loaded, Query};
use agentd_protocol::Code;
use rusqlite::Connection;
use rusqlite::hooks::Wal;
use tokio::sync::Notify;

use self::displaced::Rescue;
use super::backup::Backups;
use super::checkpoint::{Checkpoints, Log};
use super::guard::Guard;
use super::inbox::Receiver;
use super::mark::RunningMark;
use super::queue::{
    BATCH, HEAVY, batch_len, delivers, is_lazy, only_releases, refusal, schedules, weight,
};
use super::readers::{Commits, Readers};
use super::reserve::Reserve;
use super::room::{self, Room};
use super::transaction::{Attempt, InDoubt, attempt, is_doubtful};
use super::verify::Verify;
use super::{
    Alive, Answer, Answers, COMMANDS, Fault, Keep, Moment, Role, StoreCommand, WriterMessage,
};
use super::{losses, schema, trouble, webhooks};

/// A commit that nobody waits for rides on the next one, at most this late: with the time that the
/// core keeps text back, and a sync, it is within what is promised for text.
const LAZY: Duration = Duration::from_millis(50);
const _: () = assert!(
    TEXT_FLUSH_AFTER.as_millis() + LAZY.as_millis() < TEXT_STORED_WITHIN.as_millis(),
    "text is on the disk when that is promised"
);
/// So long a retry waits for whoever has the file locked: others wait for what is behind it, and a
/// stop for all of it.
const RETRY_WAITS: Duration = Duration::from_millis(250);
/// When a store is looked through for the first time, at the latest.
const FIRST_PRUNE: Duration = Duration::from_secs(30);
/// Between two slices of what is forgotten.
const PRUNE_PAUSE: Duration = Duration::from_millis(50);

/// With what a writer works.
pub(super) struct WriterConfig {
    pub(super) path: PathBuf,
    pub(super) ours: String,
    pub(super) role: Role,
    pub(super) boot: Option<String>,
    pub(super) boot_ms: fn() -> u64,
    pub(super) keep: Option<Keep>,
    pub(super) alive: Arc<Alive>,
    pub(super) answer: Arc<Answer>,
    /// Rung after a commit that holds something to deliver.
    pub(super) to_deliver: Arc<Notify>,
    /// Rung when a schedule may be due at another time than before.
    pub(super) scheduled: Arc<Notify>,
    /// Told how far this is.
    pub(super) commits: Arc<Commits>,
    pub(super) readers: Readers,
    /// Looks at the file's pages, and is told of damage.
    pub(super) verify: Verify,
    /// Says whether a directory answers.
    pub(super) answers: fn(&Path) -> bool,
    pub(super) closing: Arc<AtomicBool>,
    pub(super) fault: Fault,
}

/// Why nothing can be written at the moment.
struct Trouble {
    code: Code,
    why: String,
    again: Instant,
}

/// Was a command carried out?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Yes,
    No,
}

#[derive(PartialEq, Eq)]
enum Gathered {
    Open,
    Closing,
}

/// The thread's state.
pub(super) struct Writer {
    config: WriterConfig,
    /// `None` after an error that may have spoilt it.
    conn: Option<Connection>,
    received: Receiver<WriterMessage>,
    /// In the order of their tokens; what is retained in trouble comes first.
    queue: VecDeque<StoreCommand>,
    /// Bytes of text in it.
    weight: usize,
    /// When the first of the queue's lazy commits has to go.
    lazy_until: Option<Instant>,
    trouble: Option<Trouble>,
    doubt: Option<InDoubt>,
    log: Arc<Log>,
    checkpoints: Checkpoints,
    room: Room,
    reserve: Reserve,
    guard: Guard,
    /// A daemon's.
    mark: Option<RunningMark>,
    rescue: Rescue,
    /// What was told of losses.
    losses: Vec<String>,
    stamps: i64,
    backups: Backups,
    /// When to look for what is to be forgotten.
    prune_at: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        config: WriterConfig,
        conn: Connection,
        received: Receiver<WriterMessage>,
        mark: Option<RunningMark>,
    ) -> Self {
        let backups = Backups::new(
            config.path.clone(),
            Arc::clone(&config.answer),
            config.answers,
        );
        // Coming up has enough to do.
        let first = |keep: Keep| Instant::now() + keep.every.min(FIRST_PRUNE);
        let log = Arc::<Log>::default();
        let checkpoints = Checkpoints::new(config.path.clone(), Arc::clone(&log));
        Self {
            prune_at: config.keep.map(first),
            room: Room::of(&config.path),
            reserve: Reserve::of(&config.path),
            guard: Guard::of(&config.path),
            mark,
            rescue: Rescue::default(),
            losses: losses::of(&config.path).unwrap_or_default(),
            config,
            backups,
            checkpoints,
            conn: Some(conn),
            received,
            queue: VecDeque::new(),
            weight: 0,
            lazy_until: None,
            trouble: None,
            doubt: None,
            log,
            stamps: 0,
        }
    }

    /// Works in a thread of its own.
    pub(super) fn spawn(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name("store".to_owned())
            // No recursion here; SQLite needs some 100 KiB at most.
            .stack_size(512 * 1024)
            .spawn(move || self.run())
    }

    /// Works until the last handle is gone or says close.
    fn run(mut self) {
        self.conn = self.conn.take().map(|conn| self.counted(conn));
        if self.config.role == Role::Daemon {
            self.reserve.take();
        }
        while self.gather() == Gathered::Open {
            self.work();
            if self.doubt.is_none() {
                self.config.commits.told();
            }
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.again = Instant::now();
        }
        // What is tried from here on is tried for the last time.
        self.release_without_a_sync();
        while !self.queue.is_empty() {
            let before = self.queue.len();
            // No other commit comes that it could ride on.
            self.lazy_until = Some(Instant::now());
            self.work();
            if self.trouble.is_some() && self.queue.len() >= before {
                tracing::error!(
                    commands = before,
                    "the store is closed with commands not written"
                );
                break;
            }
        }
        // All other connections before this one: the last to close writes the log back.
        self.backups.close();
        self.config.verify.close();
        self.checkpoints.close();
        self.leave_the_log();
    }

    /// A one-shot that has only sessions to give back lets somebody else's sync make that durable:
    /// others see it at once, and if a power cut takes it back, they find a dead instance.
    fn release_without_a_sync(&self) {
        if let (Role::OneShot, Some(conn)) = (self.config.role, &self.conn)
            && self.queue.iter().all(only_releases)
        {
            // Otherwise it is synced: slower, no less right.
            let _synced = conn.pragma_update(None, "synchronous", "NORMAL");
        }
    }

    /// The last connection to close writes the log back and removes it, which costs a one-shot as
    /// much as its turn. It leaves a short log to whoever comes next: what is in it is durable.
    fn leave_the_log(&self) {
        let Some(conn) = self
            .conn
            .as_ref()
            .filter(|_| self.config.role == Role::OneShot)
        else {
            return;
        };
        let log = schema::beside(&self.config.path, "-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() < schema::SHORT_LOG) {
            let keep = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            // Otherwise it is written back: slower, no less right.
            let _kept = conn.set_db_config(keep, true);
        }
    }

    /// Waits for something to do, then takes what is there. What is kept has a limit: the rest stays.
    fn gather(&mut self) -> Gathered {
        let mut wait = true;
        for _ in 0..BATCH {
            if self.queue.len() >= COMMANDS {
                if let Some(trouble) = &self.trouble {
                    if self.config.closing.load(Ordering::Relaxed) {
                        return Gathered::Closing;
                    }
                    // What there is no room for stays with whoever sends it, and in its order.
                    let again = trouble.again.saturating_duration_since(Instant::now());
                    std::thread::park_timeout(again);
                }
                break;
            }
            let message = if wait && !self.is_due() {
                match self.wait() {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Gathered::Closing,
                }
            } else {
                match self.received.try_recv() {
                    Ok(message) => message,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Gathered::Closing,
                }
            };
            wait = false;
            match message {
                WriterMessage::Commands(commands) => {
                    commands.into_iter().for_each(|command| self.take(command));
                }
                // Whoever no longer waits needs none.
                WriterMessage::Beat(heard) => drop(heard.send(())),
                WriterMessage::Look => self.look(),
                WriterMessage::Keep(keep) => {
                    self.config.keep = self.config.keep.map(|_before| keep);
                }
                WriterMessage::Due(wanted, answer) => {
                    let due = self.beside(|conn| webhooks::due(conn, &wanted));
                    let _gone = answer.send(due);
                }
                WriterMessage::Schedules(work) => self.on_schedules(work),
                WriterMessage::Attempts(attempts, answer) => {
                    let recorded = self.beside(|conn| webhooks::record_attempts(conn, &attempts));
                    let _gone = answer.send(recorded);
                }
                WriterMessage::Close => return Gathered::Closing,
            }
        }
        Gathered::Open
    }

    /// Does something for whoever delivers, in a transaction of its own. It doesn't wait for the
    /// commands of the queue, nor do they for more than that.
    fn beside<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, String> {
        let (Some(conn), None) = (&self.conn, &self.trouble) else {
            return Err("the store can't be written at the moment".to_owned());
        };
        let done = (self.config.fault)(Moment::BeforeBegin, conn).and_then(|()| work(conn));
        let is_over = conn.is_autocommit();
        done.map_err(|error| {
            if is_over && trouble::is_of_rows(&error) {
                // Nobody else needs these rows.
                return error.to_string();
            }
            if is_doubtful(&error) {
                // What may be in the file is found there, or it is done again.
                self.conn = None;
            }
            self.note_trouble(&error);
            error.to_string()
        })
    }

    fn wait(&self) -> Result<WriterMessage, RecvTimeoutError> {
        let until = match &self.trouble {
            Some(trouble) => Some(trouble.again),
            None => {
                let room = self.room_is_short().then(|| Instant::now() + room::REST);
                let verify = self.config.keep.and_then(|_| self.config.verify.due());
                let times = [self.lazy_until, self.prune_at, verify, room];
                times.into_iter().flatten().min()
            }
        };
        match until {
            Some(until) => self
                .received
                .recv_timeout(until.saturating_duration_since(Instant::now())),
            None => self
                .received
                .recv()
                .map_err(|_gone| RecvTimeoutError::Disconnected),
        }
    }

    /// Is there something that should be written now?
    fn is_due(&self) -> bool {
        let now = Instant::now();
        match &self.trouble {
            Some(trouble) => trouble.again <= now,
            None => {
                self.queue.len() >= BATCH
                    || self.weight >= HEAVY
                    || self.lazy_until.is_some_and(|until| until <= now)
                    || self.queue.iter().any(|command| !is_lazy(command))
            }
        }
    }

    fn take(&mut self, command: StoreCommand) {
        if self.trouble.is_some() && self.begin_backup(&command) == Taken::Yes {
            return;
        }
        if let Some(trouble) = &self.trouble {
            if let Some(refusal) = refusal(&command, trouble.code, &trouble.why) {
                (self.config.answer)(refusal.into());
                return;
            }
            if let Some(loaded) = self.look_up_in(trouble, &command, &self.queue) {
                return (self.config.answer)(loaded.into());
            }
        }
        if is_lazy(&command) && self.lazy_until.is_none() {
            self.lazy_until = Some(Instant::now() + LAZY);
        }
        self.weight += weight(&command);
        self.queue.push_back(command);
    }

    fn work(&mut self) {
        if !self.is_due() {
            self.make_room();
            return self.prune();
        }
        let displaced = self.is_displaced();
        if self.conn.is_none() || self.doubt.is_some() {
            if displaced {
                return;
            }
            if let Err(error) = self.reopen() {
                return self.fail(&error);
            }
            if let Some(doubt) = self.doubt.take() {
                return self.resolve(doubt);
            }
        }
        if displaced && self.queue.is_empty() {
            return self.rescue();
        }
        self.forget_on_a_full_disk();
        if self.queue.is_empty() && self.trouble.is_some() {
            return match self.probe() {
                Ok(()) => self.recover(),
                Err(error) => self.fail(&error),
            };
        }
        let mut commands = batch_len(&self.queue);
        let mut attempted = self.attempt(commands);
        if let Some(Attempt::Failed(error)) = &attempted
            && self.log_makes_room(error)
        {
            attempted = self.attempt(commands);
        }
        if let Some(Attempt::Failed(error)) = &attempted
            && trouble::is_full(error)
        {
            // New work has no part in what is kept for what was accepted before.
            self.fail(error);
            if self.queue.is_empty() || !self.reserve.let_go() {
                return;
            }
            commands = batch_len(&self.queue);
            attempted = self.attempt(commands);
        }
        let Some(attempted) = attempted else { return };
        match attempted {
            // It is as durable as the files that are open, and follows into the copy of them.
            Attempt::Committed { answers, .. } if displaced => {
                self.done(commands, answers);
                self.rescue.lacks_some();
                self.rescue();
            }
            Attempt::Committed { answers, last_seq } => {
                self.recover();
                if let Some(mark) = &mut self.mark {
                    mark.reaches(last_seq);
                }
                self.done(commands, answers);
                self.write_back();
            }
            Attempt::Failed(error) => self.fail(&error),
            Attempt::Doubtful { error, doubt } => {
                tracing::error!(%error, "a COMMIT neither worked nor failed");
                self.doubt = Some(doubt);
                self.conn = None;
                // Looked at right away, then once per retry.
                match self.reopen() {
                    Ok(()) => {
                        if let Some(doubt) = self.doubt.take() {
                            self.note_trouble(&error);
                            self.resolve(doubt);
                        }
                    }
                    Err(again) => self.fail(&again),
                }
            }
        }
    }

    /// Tries to write the first `commands` of the queue; `None` while the store is not open.
    fn attempt(&mut self, commands: usize) -> Option<Attempt> {
        let conn = self.conn.as_ref()?;
        self.config.commits.begin();
        Some(attempt(
            conn,
            &mut self.config,
            &self.queue,
            commands,
            &mut self.stamps,
        ))
    }

    /// Answers the first `commands` of the queue, which are durable.
    fn done(&mut self, commands: usize, answers: Vec<Event>) {
        let done: Vec<StoreCommand> = self.queue.drain(..commands).collect();
        self.weight -= done.iter().map(weight).sum::<usize>();
        self.lazy_until = self
            .queue
            .iter()
            .any(is_lazy)
            .then(|| Instant::now() + LAZY);
        let is_backup = |command: &&StoreCommand| {
            let query = match command {
                StoreCommand::Load { query, .. } => Some(query),
                _ => None,
            };
            matches!(query, Some(Query::Backup { .. }))
        };
        if done.iter().any(schedules) {
            self.config.scheduled.notify_one();
        }
        if done.iter().any(delivers) {
            self.config.to_deliver.notify_one();
        }
        // Begun behind this commit, so that they hold all that was ordered before them.
        let backups: Vec<StoreCommand> = done.iter().filter(is_backup).cloned().collect();
        // Answered only now, when it is durable; whoever reads waits for this, too (`Commits`).
        (self.config.answer)(Answers {
            events: answers,
            spent: done,
        });
        for command in backups {
            let _begun = self.begin_backup(&command);
        }
    }

    /// If that is what is ordered.
    fn begin_backup(&mut self, command: &StoreCommand) -> Taken {
        let StoreCommand::Load {
            token,
            query: Query::Backup { path, plan },
        } = command
        else {
            return Taken::No;
        };
        if let (Some(_), Some(trouble)) = (plan, &self.trouble) {
            let why = format!("the store can't keep when to copy it: {}", trouble.why);
            let loaded = Loaded::Failed(why);
            let token = *token;
            (self.config.answer)(Event::Loaded { token, loaded }.into());
            return Taken::Yes;
        }
        self.backups.begin(*token, path.as_deref(), *plan);
        Taken::Yes
    }

    /// A fresh connection, and a log that holds nothing that could come or go by itself.
    fn reopen(&mut self) -> rusqlite::Result<()> {
        self.conn = None;
        let conn = schema::reopen(&self.config.path)?;
        (self.config.fault)(Moment::BeforeBegin, &conn)?;
        // Whoever reads keeps the log from being written back to its end.
        self.config.readers.pause(schema::BUSY);
        let busy = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        self.config.readers.resume();
        let busy: i64 = busy?;
        if busy != 0 {
            let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            return Err(rusqlite::Error::SqliteFailure(busy, None));
        }
        self.log.pages.store(0, Ordering::Relaxed);
        self.room = Room::of(&self.config.path);
        self.conn = Some(self.counted(conn));
        self.guard.reopened();
        if self.trouble.is_some() {
            self.wait_for_others(RETRY_WAITS);
        }
        Ok(())
    }

    /// From now on it is known how long the log is after a commit of this connection.
    fn counted(&self, mut conn: Connection) -> Connection {
        let log = Arc::clone(&self.log);
        let counts = conn.wal_hook(Some(move |_: &mut Wal, pages| {
            log.pages
                .store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }));
        if let Err(error) = counts {
            tracing::error!(%error, "the log's length is not known");
        }
        conn
    }

    /// The log is settled: either the rows are there or they never will be.
    fn resolve(&mut self, doubt: InDoubt) {
        let there = match (&self.conn, doubt.witness) {
            (Some(conn), Some(witness)) => witness.is_there(conn, &self.config.ours),
            // Without a numbered row everything in it may as well be written again.
            (Some(_), None) => Ok(false),
            (None, _) => Err(rusqlite::Error::InvalidQuery),
        };
        match there {
            Ok(true) => {
                self.recover();
                self.done(doubt.commands, doubt.answers);
            }
            // It isn't there and won't come any more: tried again it can't be there twice.
            Ok(false) => {
                let lost = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
                self.fail(&rusqlite::Error::SqliteFailure(lost, None));
            }
            Err(error) => {
                self.doubt = Some(doubt);
                self.conn = None;
                self.fail(&error);
            }
        }
    }
}
