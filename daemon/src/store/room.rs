//! Room in the write-ahead log, written before it is needed.
//!
//! Owns when the log's file grows ahead of what is in it, and by how much. Must not know what is in
//! the log.
//!
//! A sync of a file that has just grown waits for its length and its blocks, too, and on a file
//! system with a journal for what all others have changed. Where a log was that long before, a sync
//! writes the data and nothing else. Pages of zeros are no pages of a log for SQLite: their salt is
//! not that of its header.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{disk, schema};

/// The writer has nothing to do for this long before it makes room.
pub(super) const REST: Duration = Duration::from_millis(2);
/// With so much room there is enough: about twenty turns.
const ENOUGH: u64 = 1024 * 1024;
/// With less than this, more is made.
const SHORT: u64 = ENOUGH / 2;
/// Made at once: about as much as a disk takes while it syncs, since a commit may have to wait.
const PIECE: usize = 128 * 1024;
/// A page in the log, with its header, in bytes; the log's own header is less than another one.
pub(super) const PAGE: u64 = 4096 + 24;

/// The log's file, and how much of it was written ahead.
pub(super) struct Room {
    log: PathBuf,
    /// How long the file was when it was last looked at.
    length: u64,
    /// Is more room being made, up to what is enough?
    making: bool,
    /// With so many pages none could be made: when there are others, it is tried again.
    refused: Option<u64>,
}

impl Room {
    /// Nothing is known of the log of this database yet.
    pub(super) fn of(database: &Path) -> Self {
        Self {
            log: schema::beside(database, "-wal"),
            length: 0,
            making: true,
            refused: None,
        }
    }

    /// Is there less than there should be, of a log of so many pages?
    pub(super) const fn is_short(&self, pages: u64) -> bool {
        let room = if self.making { ENOUGH } else { SHORT };
        self.length < wanted(pages, room) && !matches!(self.refused, Some(then) if then == pages)
    }

    /// Makes a piece, unless somebody else is writing.
    pub(super) fn make(&mut self, conn: &Connection, pages: u64) {
        // Its sync would make durable what was committed before.
        wrong!("sync-rarely", return self.refused = Some(pages));
        let made = schema::at_once(conn, || {
            // Whoever has this lock is the only one to write the log or to cut it off.
            let alone = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
            let made = self.grow(pages);
            alone.rollback()?;
            Ok(made)
        });
        let why = match made {
            Ok(Ok(())) => return,
            Ok(Err(refused)) => refused.to_string(),
            // Somebody else writes, for one.
            Err(error) => error.to_string(),
        };
        // The log grows with what is written, as it would have done.
        tracing::debug!(why, "no room is made in the write-ahead log");
        self.refused = Some(pages);
    }

    fn grow(&mut self, pages: u64) -> std::io::Result<()> {
        let mut log = OpenOptions::new().write(true).open(&self.log)?;
        self.length = log.seek(SeekFrom::End(0))?;
        if disk::is_tight(&self.log, self.length + ENOUGH) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        if self.is_short(pages) {
            log.write_all(&[0; PIECE])?;
            // Now, while nobody waits: left to the next commit, that would wait for it.
            log.sync_data()?;
            self.length += PIECE as u64;
        }
        self.making = self.length < wanted(pages, ENOUGH);
        Ok(())
    }
}

/// How long the file has to be for a log of so many pages and some room.
const fn wanted(pages: u64, room: u64) -> u64 {
    (pages + 1) * PAGE + room
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database with a log of some pages, and how many.
    fn database(dir: &Path) -> (Connection, PathBuf, u64) {
        let path = dir.join(schema::FILE);
        std::fs::write(&path, []).unwrap();
        let conn = schema::reopen(&path).unwrap();
        conn.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
            .unwrap();
        let log = std::fs::metadata(schema::beside(&path, "-wal")).unwrap();
        (conn, path, log.len() / PAGE)
    }

    #[test]
    fn room_is_made_and_used_in_pieces() {
        let dir = tempfile::TempDir::new().unwrap();
        let (conn, path, mut pages) = database(dir.path());
        let mut room = Room::of(&path);
        let mut pieces = 0;
        while room.is_short(pages) {
            room.make(&conn, pages);
            pieces += 1;
            assert!(pieces < 100, "it never ends");
        }
        assert_eq!(pieces, ENOUGH / PIECE as u64 + 1);
        let length = || std::fs::metadata(&room.log).unwrap().len();
        let before = length();
        while !room.is_short(pages) {
            conn.execute("INSERT INTO t VALUES (zeroblob(3000))", [])
                .unwrap();
            pages += 2;
            assert_eq!(length(), before);
        }
        assert!(pages * PAGE > before - ENOUGH, "{pages} {before}");
        drop(conn);
    }

    #[test]
    fn room_is_found_behind_an_unknown_writers_log() {
        let dir = tempfile::TempDir::new().unwrap();
        let (conn, path, pages) = database(dir.path());
        Room::of(&path).make(&conn, pages);
        conn.execute("INSERT INTO t VALUES (2)", []).unwrap();
        let copy = dir.path().join("after.db");
        for end in ["", "-wal"] {
            let (from, to) = (schema::beside(&path, end), schema::beside(&copy, end));
            std::fs::copy(from, to).unwrap();
        }
        let after = schema::reopen(&copy).unwrap();
        let sum = |conn: &Connection| -> i64 {
            conn.query_row("SELECT sum(x) FROM t", [], |row| row.get(0))
                .unwrap()
        };
        assert_eq!((sum(&conn), sum(&after)), (3, 3));
        after.execute("INSERT INTO t VALUES (4)", []).unwrap();
        assert_eq!(sum(&after), 7);
    }

    #[test]
    fn room_is_not_made_beside_another_writer() {
        let dir = tempfile::TempDir::new().unwrap();
        let (conn, path, pages) = database(dir.path());
        let other = schema::reopen(&path).unwrap();
        let mut room = Room::of(&path);
        let length = std::fs::metadata(&room.log).unwrap().len();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        room.make(&conn, pages);
        assert_eq!(std::fs::metadata(&room.log).unwrap().len(), length);
        assert!(!room.is_short(pages), "an idle daemon would try for ever");
        other.execute_batch("ROLLBACK").unwrap();
        assert!(room.is_short(pages + 1));
        room.make(&conn, pages + 1);
        assert!(std::fs::metadata(&room.log).unwrap().len() > length);
    }
}
