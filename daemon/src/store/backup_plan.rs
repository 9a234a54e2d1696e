//! Copies of the store that are made by themselves.
//!
//! Owns when the next one is due and which of them go; the plan is kept in the store, so that it
//! outlives the daemon. Must not know how a copy is made.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agentd_core::store::BackupPlan;
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};

/// Names of copies begin so, and end so; between them is the time.
const NAME: (&str, &str) = ("agentd-", ".db");
const KEY: &str = "backup_plan";
/// What of a copy lies there unchanged for so long nobody finishes any more.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// The plan, and where its copies are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Planned {
    every_s: u64,
    keep: u32,
    pub(super) dir: PathBuf,
}

impl Planned {
    /// Where `plan` is to be followed.
    pub(super) const fn new(plan: BackupPlan, dir: PathBuf) -> Self {
        let BackupPlan { every_s, keep } = plan;
        Self { every_s, keep, dir }
    }

    /// What the store says.
    pub(super) fn read(conn: &Connection) -> rusqlite::Result<Option<Self>> {
        let text: Option<String> = conn
            .query_row("SELECT value FROM meta WHERE key = ?1", [KEY], |row| {
                row.get(0)
            })
            .optional()?;
        // Of a newer version: none that is known here.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// From now on it goes by this one; by none, if copies are to come no more.
    pub(super) fn write(&self, conn: &Connection) -> rusqlite::Result<()> {
        if self.every_s == 0 {
            conn.execute("DELETE FROM meta WHERE key = ?1", [KEY])?;
            return Ok(());
        }
        let text = serde_json::to_string(self)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        conn.execute(
            "INSERT INTO meta (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [KEY, &text],
        )?;
        Ok(())
    }

    /// Is the last copy as old as that, or from a time that the clock has not come to?
    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        let every = Duration::from_secs(self.every_s);
        let last = copies(&self.dir).pop();
        let made = last.and_then(|last| fs::metadata(last).ok()?.modified().ok());
        made.is_none_or(|made| match now.duration_since(made) {
            Ok(age) => age >= every,
            Err(ahead) => ahead.duration() >= every,
        })
    }

    /// Takes away the oldest, as far as there are more than are kept.
    pub(super) fn thin_out(&self) {
        let copies = copies(&self.dir);
        let kept = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let many = copies.len().saturating_sub(kept);
        for old in copies.iter().take(many) {
            let shown = old.display();
            match fs::remove_file(old) {
                Ok(()) => tracing::info!(copy = %shown, "an old backup is removed"),
                Err(error) => tracing::warn!(%error, copy = %shown, "an old backup stays"),
            }
        }
        for left in unfinished(&self.dir) {
            let shown = left.display();
            match fs::remove_file(&left) {
                Ok(()) => tracing::info!(file = %shown, "what a backup left unfinished is removed"),
                Err(error) => tracing::warn!(%error, file = %shown, "an unfinished backup stays"),
            }
        }
    }
}

/// What copies that were cut off by a crash left: the empty file that kept their name, and the work
/// beside it.
fn unfinished(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_left = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let (whole, work) = name.split_once(".partial").unwrap_or((name, ""));
        let is_work = whole != name && matches!(work, "" | "-journal" | "-wal" | "-shm");
        let Ok(facts) = entry.metadata() else {
            return false;
        };
        let age = facts.modified().ok().and_then(|at| at.elapsed().ok());
        made(OsStr::new(whole)).is_some()
            && (is_work || facts.len() == 0)
            && age.is_some_and(|age| age >= UNFINISHED)
    };
    let left = entries.filter(is_left);
    left.map(|entry| entry.path()).collect()
}

/// The copies with a time for their name, the oldest first. Whatever else is there is somebody's own.
fn copies(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut copies: Vec<((String, u32), PathBuf)> = entries
        // An empty one has only its name so far, or was cut off by a crash.
        .filter(|entry| entry.metadata().is_ok_and(|facts| facts.len() > 0))
        .filter_map(|entry| Some((made(&entry.file_name())?, entry.path())))
        .collect();
    // The number as a number: `-10` comes before `-2` by letters.
    copies.sort();
    copies.into_iter().map(|(_, copy)| copy).collect()
}

/// The time in the name of a copy, and which one of that time it is.
fn made(name: &OsStr) -> Option<(String, u32)> {
    let between = name.to_str()?.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?;
    let (time, number) = match between.split_once('-') {
        Some((time, number)) => (time, number.parse().ok()?),
        None => (between, 1),
    };
    let is_time = time.starts_with(|c: char| c.is_ascii_digit())
        && time
            .bytes()
            .all(|c| c.is_ascii_digit() || b"TZ.".contains(&c));
    is_time.then(|| (time.to_owned(), number))
}
