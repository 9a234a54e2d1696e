//! Whether every page of the store is what it should be, looked at once a day beside all else.
//!
//! Owns the thread that reads, and when. A table at a time, so that the log can begin anew between
//! them. Must not know what is done about damage: it is told as a loss.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, InterruptHandle};

use super::loss::Loss;
use super::losses;
use super::schema::{is_corrupt, reopen_to_read};

/// From the end of one walk to the next.
const EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// From the start to the first one, when those who waited for the start have what they want.
const FIRST: Duration = Duration::from_secs(5 * 60);

/// The walk that goes on, if one does.
pub(super) struct Verify {
    store: PathBuf,
    give_way: fn(),
    due: Instant,
    running: Option<Running>,
}

struct Running {
    thread: JoinHandle<()>,
    interrupt: InterruptHandle,
    over: Arc<AtomicBool>,
}

impl Verify {
    /// Of the store at `store`; its thread calls `give_way` first.
    pub(super) fn new(store: PathBuf, give_way: fn()) -> Self {
        Self {
            store,
            give_way,
            due: Instant::now() + FIRST,
            running: None,
        }
    }

    /// Begins a walk, if it is time for it. One that was given up is begun again the next time.
    pub(super) fn begin_if_due(&mut self) {
        match &self.running {
            Some(running) if !running.thread.is_finished() => return,
            Some(running) if running.over.load(Ordering::Acquire) => {
                self.due = Instant::now() + EVERY;
            }
            _ => {}
        }
        self.running = None;
        if Instant::now() < self.due {
            return;
        }
        let begun = reopen_to_read(&self.store).map_err(|error| error.to_string());
        let begun = begun.and_then(|conn| self.begin(conn).map_err(|error| error.to_string()));
        match begun {
            Ok(running) => self.running = Some(running),
            Err(why) => tracing::warn!(why, "the store's pages can't be looked at"),
        }
    }

    fn begin(&self, conn: Connection) -> std::io::Result<Running> {
        let interrupt = conn.get_interrupt_handle();
        let over = Arc::<AtomicBool>::default();
        let (is_over, store, give_way) = (Arc::clone(&over), self.store.clone(), self.give_way);
        let thread = std::thread::Builder::new()
            .name("verify".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || {
                give_way();
                match walk(&conn, &store) {
                    Ok(()) => is_over.store(true, Ordering::Release),
                    Err(why) => tracing::debug!(%why, "the store's pages are looked at later"),
                }
            })?;
        Ok(Running {
            thread,
            interrupt,
            over,
        })
    }

    /// Too much is written meanwhile, and the log can't begin anew while it is read.
    pub(super) fn give_up(&self) {
        if let Some(running) = &self.running {
            running.interrupt.interrupt();
        }
    }

    /// Gives up what is not done yet.
    pub(super) fn close(&mut self) {
        self.give_up();
        if let Some(running) = self.running.take()
            && running.thread.join().is_err()
        {
            tracing::error!("the look at the store's pages panicked");
        }
    }
}

/// Looks at all tables and their indexes, and notes the first damage of each walk as a loss.
///
/// # Errors
/// When it was interrupted, or the store can't be read for another reason than damage.
pub(super) fn walk(conn: &Connection, store: &Path) -> rusqlite::Result<()> {
    match damage(conn) {
        Ok(None) => Ok(()),
        Ok(Some(found)) => {
            tell(store, found);
            Ok(())
        }
        Err(error) if is_corrupt(&error) => {
            tell(store, error.to_string());
            Ok(())
        }
        Err(error) => Err(error),
    }
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
