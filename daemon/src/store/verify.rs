//! Whether every page of the store is what it should be, looked at once a day beside all else, and
//! at once when a read has found what can't be.
//!
//! Owns the thread that looks, and when. A table at a time, so that the log can begin anew between
//! them. Must not know what is done about damage: it is told as a loss.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agentd_core::store::{Loaded, Query};
use rusqlite::{Connection, InterruptHandle};

use super::loss::Loss;
use super::schema::{is_corrupt, reopen_to_read};
use super::{Liveness, damage, losses, read};

/// From the end of one walk to the next.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// From the start to the first one, when those who waited for the start have what they want.
const FIRST: Duration = Duration::from_secs(30);
/// The same of a small file, which is read in a moment.
const FIRST_OF_SMALL: Duration = Duration::from_secs(1);
/// A file up to this size is small.
const SMALL: u64 = 4 * 1024 * 1024;
/// From a walk that was given up, or couldn't begin, to the next try; and from one that was begun for
/// a read to the next one that is.
const AGAIN: Duration = Duration::from_secs(60);
/// Reads that found damage are logged, each once, and no more than so many: whoever asks again finds
/// the same again.
const LOGGED: usize = 16;

/// A handle to the walks; cheap to clone.
#[derive(Clone)]
pub(super) struct Verify {
    shared: Arc<Shared>,
}

struct Shared {
    store: PathBuf,
    give_way: fn(),
    state: Mutex<State>,
}

struct State {
    due: Instant,
    running: Option<Running>,
    /// What a read has found, until a walk has said what else there is.
    suspicion: Option<String>,
    /// When a read had a walk begun.
    suspected: Option<Instant>,
    logged: Vec<String>,
    closed: bool,
}

struct Running {
    thread: JoinHandle<()>,
    interrupt: InterruptHandle,
}

impl Verify {
    /// Of the store at `store`; the thread that looks calls `give_way` first.
    pub(super) fn new(store: PathBuf, give_way: fn()) -> Self {
        let size = std::fs::metadata(&store).map_or(0, |file| file.len());
        let first = if size <= SMALL { FIRST_OF_SMALL } else { FIRST };
        let state = State {
            due: Instant::now() + first,
            running: None,
            suspicion: None,
            suspected: None,
            logged: Vec::new(),
            closed: false,
        };
        let shared = Shared {
            store,
            give_way,
            state: Mutex::new(state),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// When the next walk is to begin; `None` while one goes on.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = self.lock();
        (!state.is_walking()).then_some(state.due)
    }

    /// Begins a walk, if it is time for it.
    pub(super) fn begin_if_due(&self) {
        let mut state = self.lock();
        if Instant::now() >= state.due {
            self.begin(&mut state);
        }
    }

    /// Answers a question. What can't be read because the file is damaged is told so, and logged, and
    /// has the whole file looked at.
    pub(super) fn load(
        &self,
        conn: &Connection,
        query: &Query,
        alive: &dyn Fn(&str) -> Liveness,
    ) -> Loaded {
        read::ask(conn, query, alive).unwrap_or_else(|error| match self.suspect(&error) {
            Some(words) => Loaded::Failed(words),
            None => Loaded::Failed(error.to_string()),
        })
    }

    /// Is that damage? Then the whole file is looked at, and these are the words for it.
    pub(super) fn suspect(&self, error: &rusqlite::Error) -> Option<String> {
        let found = damage::found(error)?;
        let words = damage::words(&found);
        let mut state = self.lock();
        if state.logged.len() < LOGGED && !state.logged.contains(&found) {
            tracing::warn!(found, "a read found that the store is damaged");
            state.logged.push(found.clone());
        }
        let is_new = state.suspected.is_none_or(|when| when.elapsed() >= AGAIN);
        if is_new {
            state.suspected = Some(Instant::now());
            state.suspicion = Some(found);
            self.begin(&mut state);
        }
        Some(words)
    }

    fn begin(&self, state: &mut State) {
        if state.closed || state.is_walking() {
            return;
        }
        // For one that doesn't come to its end; `over` puts it a day ahead.
        state.due = Instant::now() + AGAIN;
        let begun = reopen_to_read(&self.shared.store).map_err(|error| error.to_string());
        let begun = begun.and_then(|conn| self.walk(conn).map_err(|error| error.to_string()));
        match begun {
            Ok(running) => state.running = Some(running),
            Err(why) => tracing::warn!(why, "the store's pages can't be looked at"),
        }
    }

    fn walk(&self, conn: Connection) -> std::io::Result<Running> {
        let interrupt = conn.get_interrupt_handle();
        let verify = self.clone();
        let thread = std::thread::Builder::new()
            .name("verify".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || {
                (verify.shared.give_way)();
                match walk(&conn, &verify.shared.store) {
                    Ok(state) => verify.over(state),
                    Err(why) => tracing::debug!(%why, "the store's pages are looked at later"),
                }
            })?;
        Ok(Running { thread, interrupt })
    }

    fn over(&self, pages: Pages) {
        let mut state = self.lock();
        state.due = Instant::now() + EVERY;
        let suspicion = state.suspicion.take();
        drop(state);
        if let (Pages::Sound, Some(found)) = (pages, suspicion) {
            // Each page is one of SQLite's, and still not what was written.
            tell(&self.shared.store, found);
        }
    }

    /// Too much is written meanwhile, and the log can't begin anew while it is read.
    pub(super) fn give_up(&self) {
        if let Some(running) = &self.lock().running {
            running.interrupt.interrupt();
        }
    }

    /// Gives up what is not done yet.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let running = state.running.take();
        drop(state);
        let Some(running) = running else { return };
        running.interrupt.interrupt();
        if running.thread.join().is_err() {
            tracing::error!("the look at the store's pages panicked");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        // What is behind it is right between any two statements.
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_walking(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| !running.thread.is_finished())
    }
}

/// What a walk says of them all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pages {
    Sound,
    Damaged,
}

/// Looks at all tables and their indexes, and notes the first damage of each walk as a loss.
///
/// # Errors
/// When it was interrupted, or the store can't be read for another reason than damage.
pub(super) fn walk(conn: &Connection, store: &Path) -> rusqlite::Result<Pages> {
    let found = match damage(conn) {
        Ok(None) => return Ok(Pages::Sound),
        Ok(Some(found)) => found,
        Err(error) if is_corrupt(&error) => error.to_string(),
        Err(error) => return Err(error),
    };
    tell(store, found);
    Ok(Pages::Damaged)
}

fn tell(store: &Path, found: String) {
    tracing::error!(found, "the store is damaged");
    losses::note(store, &Loss::Damaged { found });
}

fn damage(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let tables = conn
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<Vec<String>, _>>()?;
    for table in tables {
        let found: String = conn.query_row(
            "SELECT integrity_check FROM pragma_integrity_check(?1)",
            [&table],
            |row| row.get(0),
        )?;
        if found != "ok" {
            return Ok(Some(found.lines().next().unwrap_or_default().to_owned()));
        }
    }
    Ok(None)
}
