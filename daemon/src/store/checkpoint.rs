//! The write-ahead log, written back into the file beside the writer.
//!
//! Owns the thread and its connection. Must not know what is in the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::room::PAGE;
use super::writer::WriterConfig;
use super::{Role, disk, schema};

/// Commits that come closer than this are a burst, which is left alone: two flushes at once take
/// longer than one after the other.
const PAUSE: Duration = Duration::from_millis(100);
/// So many pages (48 MiB) don't wait for the end of a burst.
const MANY: u64 = 12 * 1024;

/// So many pages in the log are worth writing back.
const CHECKPOINT_PAGES: u64 = 1000;
/// From so many pages (64 MiB) on the writer does it itself, if nobody else has nearly done it, so
/// that the log begins anew: beside a writer that never rests nobody gets to its end.
const RESTART_PAGES: u64 = 16 * 1024;
/// With so many pages (128 MiB) nobody may hold the log back any longer.
const MOST_PAGES: u64 = 32 * 1024;
/// Nobody begins to read for so long when the log is to begin anew: reads follow each other without
/// a gap, and the commits of a busy writer come much closer.
const GAP: Duration = Duration::from_millis(100);

/// After so many pages more (1 MiB) it is looked at whether the disk has room for them.
const LOOK_PAGES: u64 = 256;

/// What the writer and whoever writes back know of the log.
#[derive(Default)]
pub(super) struct Log {
    /// How many pages it holds.
    pub(super) pages: AtomicU64,
    /// Is so much of it written back that the writer can begin it anew at little cost?
    pub(super) nearly_written: AtomicBool,
}

/// Writes back when it is told that there is something.
pub(super) struct Checkpoints {
    path: PathBuf,
    log: Arc<Log>,
    /// How many pages it held when the room on the disk was looked at last.
    looked: u64,
    running: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Checkpoints {
    pub(super) const fn new(path: PathBuf, log: Arc<Log>) -> Self {
        Self {
            path,
            log,
            looked: 0,
            running: None,
        }
    }

    /// There is something. Whoever only ever writes little has no thread for it.
    fn wake(&mut self) {
        if self.running.is_none() {
            self.running = self.start();
        }
        if let Some((wake, _)) = &self.running {
            // It is awake if it has not taken the last word.
            let _awake = wake.try_send(());
        }
    }

    /// Has written back what is worth it, and begins the log anew where that is due.
    pub(super) fn after_commit(
        &mut self,
        conn: &Connection,
        config: &WriterConfig,
        is_quiet: bool,
    ) -> Length {
        let pages = self.log.pages.load(Ordering::Relaxed);
        // By `TRUNCATE`, as only that gives the log's room back to the file system.
        if self.disk_is_tight(pages) {
            // Slow, but the store goes on for as long as the file itself has room.
            return match checkpoint(conn, "TRUNCATE") {
                CheckpointEnd::Whole => Length::Good,
                CheckpointEnd::InPart => {
                    // At the next commit: whoever reads has been told to let go by then.
                    self.looked = 0;
                    Length::TooLong
                }
                CheckpointEnd::Failed => Length::Good,
            };
        }
        if pages <= CHECKPOINT_PAGES {
            return Length::Good;
        }
        if config.role == Role::Daemon {
            self.wake();
        } else if is_quiet {
            // A one-shot is gone soon, and a thread for this costs more than it saves.
            let _later = checkpoint(conn, "PASSIVE");
        }
        let nearly_written = self.log.nearly_written.swap(false, Ordering::Relaxed);
        if nearly_written || pages > RESTART_PAGES {
            // When somebody still reads what is in it, the next commit tries again.
            match checkpoint(conn, "RESTART") {
                CheckpointEnd::Whole => config.readers.resume(),
                CheckpointEnd::InPart | CheckpointEnd::Failed if pages > RESTART_PAGES => {
                    config.readers.pause(GAP);
                }
                CheckpointEnd::InPart | CheckpointEnd::Failed => {}
            }
        }
        if pages > MOST_PAGES {
            Length::TooLong
        } else {
            Length::Good
        }
    }

    /// Does the log take room that the file needs?
    fn disk_is_tight(&mut self, pages: u64) -> bool {
        if pages < self.looked {
            self.looked = 0;
        }
        if pages < self.looked + LOOK_PAGES {
            return false;
        }
        self.looked = pages;
        disk::is_tight(&self.path, pages * PAGE)
    }

    fn start(&self) -> Option<(SyncSender<()>, JoinHandle<()>)> {
        let (wake, woken) = sync_channel(1);
        let path = self.path.clone();
        let log = Arc::clone(&self.log);
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || match schema::reopen(&path) {
                Ok(conn) => work(&conn, &woken, &log),
                Err(error) => tracing::warn!(%error, "the log can't be written back beside"),
            });
        match thread {
            Ok(thread) => Some((wake, thread)),
            Err(error) => {
                tracing::warn!(%error, "no thread to write the log back");
                None
            }
        }
    }

    /// Ends the round and the thread.
    pub(super) fn close(&mut self) {
        if let Some((wake, thread)) = self.running.take() {
            drop(wake);
            if thread.join().is_err() {
                tracing::error!("writing the log back panicked");
            }
        }
    }
}

/// Of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Good,
    /// Nobody may hold it back any longer.
    TooLong,
}

/// A full disk is told once, not at each commit for as long as it is full.
#[derive(Default)]
struct ToldTrouble {
    told: bool,
}

impl ToldTrouble {
    fn news<E>(&mut self, error: Option<E>) -> Option<E> {
        let told = std::mem::replace(&mut self.told, error.is_some());
        error.filter(|_| !told)
    }
}

fn work(conn: &Connection, woken: &Receiver<()>, log: &Log) {
    let mut trouble = ToldTrouble::default();
    let mut written = 0;
    while woken.recv().is_ok() {
        loop {
            let held = log.pages.load(Ordering::Relaxed);
            if held < written {
                // It began anew.
                written = 0;
            }
            match woken.recv_timeout(PAUSE) {
                // Somebody commits right now: it is left alone until it pauses.
                Ok(()) if held - written < MANY => continue,
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                // Closing: what is left in the log is as durable there.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // `PASSIVE` waits for nobody, and nobody for it: who commits meanwhile goes on
            // (sqlite3_wal_checkpoint_v2).
            let round = write_back(conn, "PASSIVE");
            if let Some(error) = trouble.news(round.as_ref().err()) {
                warn(error);
            }
            let Ok(round) = round else { break };
            written = round.written;
            if written >= MANY {
                log.nearly_written.store(true, Ordering::Relaxed);
            }
            if round.left == 0 {
                break;
            }
        }
    }
}

/// Writes the log back into the file, as far as it can without waiting for anybody.
pub(super) fn checkpoint(conn: &Connection, mode: &str) -> CheckpointEnd {
    match write_back(conn, mode) {
        Ok(round) if !round.was_busy => CheckpointEnd::Whole,
        Ok(_hindered) => CheckpointEnd::InPart,
        Err(error) => {
            warn(&error);
            CheckpointEnd::Failed
        }
    }
}

/// Was all done that was to be done?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckpointEnd {
    Whole,
    /// Somebody reads what is in the log, or writes back beside.
    InPart,
    /// Nobody is to wait for, and that was logged: the file has no room for it, say.
    Failed,
}

fn warn(error: &rusqlite::Error) {
    tracing::warn!(%error, "the write-ahead log can't be written back");
}

/// How far a log was written back, in pages.
struct Round {
    was_busy: bool,
    written: u64,
    left: u64,
}

fn write_back(conn: &Connection, mode: &str) -> rusqlite::Result<Round> {
    let done = schema::at_once(conn, || {
        conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
            <(_, i64, i64)>::try_from(row)
        })
    });
    let (busy, pages, written): (i64, _, _) = done?;
    let count = |pages| u64::try_from(pages).unwrap_or(0);
    Ok(Round {
        was_busy: busy != 0,
        written: count(written),
        left: count(pages - written),
    })
}

#[cfg(test)]
mod tests {
    use super::ToldTrouble;

    #[test]
    fn trouble_is_told_once_until_it_is_over() {
        let mut trouble = ToldTrouble::default();
        let told =
            [None, Some(1), Some(2), Some(3), None, Some(4)].map(|error| trouble.news(error));
        assert_eq!(told, [None, Some(1), None, None, None, Some(4)]);
    }
}
