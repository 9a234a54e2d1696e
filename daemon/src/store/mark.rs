//! How far the store had come, beside it: a store that hasn't come as far has lost something.
//!
//! Owns the file with the highest number that was ever durable. Must not know what is numbered.
//!
//! The number is written after the commit that has it, and never synced: what a power cut takes of
//! it makes it lower, which says nothing. So a log that was taken away, or an older copy of the
//! store in its place, shows at the next start, whoever put it there.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::loss::Loss;
use super::losses;
use super::schema::{beside, remove};

fn place(database: &Path) -> PathBuf {
    beside(database, ".mark")
}

/// The file, while a daemon has the store.
pub(super) struct RunningMark {
    file: Option<File>,
    epoch: String,
    reached: u64,
}

impl RunningMark {
    /// Of a store that has come so far.
    pub(super) fn of(database: &Path, epoch: &str, last_seq: u64) -> Self {
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600);
        // A pipe in its place holds up nobody.
        let file = options
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
            .open(place(database));
        let file = file.inspect_err(|error| {
            tracing::warn!(%error, "how far the store has come can't be noted beside it");
        });
        let mark = Self {
            file: file.ok(),
            epoch: epoch.to_owned(),
            reached: last_seq,
        };
        mark.write();
        mark
    }

    /// A commit with this number is durable.
    pub(super) fn reaches(&mut self, last_seq: u64) {
        if last_seq > self.reached {
            self.reached = last_seq;
            self.write();
        }
    }

    fn write(&self) {
        if let Some(file) = &self.file {
            // Without it, less is noticed.
            let _unknown = file.write_all_at(line(&self.epoch, self.reached).as_bytes(), 0);
        }
    }
}

/// Always as long, so that it is written over.
fn line(epoch: &str, seq: u64) -> String {
    format!("{epoch} {seq:020}\n")
}

fn read(database: &Path) -> Option<(String, u64)> {
    let path = place(database);
    let is_file = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
    let text = is_file.then(|| fs::read_to_string(&path).ok()).flatten()?;
    let (epoch, seq) = text.lines().next()?.split_once(' ')?;
    Some((epoch.to_owned(), seq.parse().ok()?))
}

/// What had been reached before a store was opened, of the same one.
pub(super) struct Before(Option<(String, u64)>);

impl Before {
    /// Read before the store is: others may be writing.
    pub(super) fn of(database: &Path) -> Self {
        Self(read(database))
    }

    /// Is the store an older one than it was? That is noted, once.
    pub(super) fn lost(self, database: &Path, epoch: &str, last_seq: u64) -> Option<Loss> {
        let (of, reached) = self.0?;
        if of != epoch || reached <= last_seq {
            return None;
        }
        let loss = Loss::Older {
            has: last_seq,
            had: reached,
        };
        losses::note(database, &loss);
        // The mark goes back with the store, or each start would find the same loss again.
        drop(RunningMark::of(database, epoch, last_seq));
        Some(loss)
    }
}

/// A store was put there by somebody who knows.
pub(super) fn forget(database: &Path) -> io::Result<()> {
    remove(&place(database))
}
