//! Copies of the store that are made by themselves.
//!
//! Owns when the next one is due and which of them go; the plan is kept in the store, so that it
//! outlives the daemon. Must not know how a copy is made.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agentd_base::duration::written;
use agentd_base::replace::{PRIVATE, replace};
use agentd_base::trusted::typed;
use agentd_core::store::BackupPlan;
use agentd_protocol::spoken::span;
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};

use super::schema::{FILE, beside, remove, reopen_to_read, text_of};

/// Names of copies begin so, and end so; between them is the time.
const NAME: (&str, &str) = ("agentd-", ".db");
/// The end of one that lacks something.
const LACKS: &str = ".without-timmy.db";
const KEY: &str = "backup_plan";

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
            return Self::forget(conn);
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

    /// No copy is made by itself.
    pub(super) fn forget(conn: &Connection) -> rusqlite::Result<()> {
        conn.execute("DELETE FROM meta WHERE key = ?1", [KEY])?;
        Ok(())
    }

    /// What the store at `path` says, if there is one that can be read.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Self::read(&reopen_to_read(path).ok()?).ok().flatten()
    }

    /// What somebody types to have it.
    pub(super) fn command(&self) -> String {
        let every = written(Duration::from_secs(self.every_s)).replace(' ', "");
        let (keep, dir) = (self.keep, typed(&self.dir));
        format!("agentctl backup --every {every} --keep {keep} {dir}")
    }

    /// Is the last copy as old as that, or from a time that the clock has not come to?
    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        let every = Duration::from_secs(self.every_s);
        self.last()
            .is_none_or(|(_, made)| match now.duration_since(made) {
                Ok(age) => age >= every,
                Err(ahead) => ahead.duration() >= every,
            })
    }

    /// The last copy, and when it was made.
    fn last(&self) -> Option<(PathBuf, SystemTime)> {
        let (_, last) = copies(&self.dir).pop()?;
        let made = fs::metadata(&last).ok()?.modified().ok()?;
        Some((last, made))
    }

    /// In words: when the last copy was made, and when the next one comes.
    fn told(&self, now: SystemTime) -> String {
        let every = Duration::from_secs(self.every_s);
        let last = self.last();
        let age = last
            .as_ref()
            .and_then(|(_, made)| now.duration_since(*made).ok());
        let last = match (&last, age) {
            (Some((last, _)), Some(age)) => {
                format!("the last is `{}`, {} old", last.display(), span(age))
            }
            (Some((last, _)), None) => format!("the last is `{}`, of the future", last.display()),
            (None, _) => format!("there is none in `{}` yet", self.dir.display()),
        };
        let next = match age.and_then(|age| every.checked_sub(age)) {
            Some(left) if !self.is_due(now) => format!("due in {}", span(left)),
            _ => "made within minutes while a daemon runs".to_owned(),
        };
        let (every, keep) = (span(every), self.keep);
        format!("each {every}, {keep} are kept: {last}, the next is {next}")
    }

    /// Takes away the oldest, as far as there are more than are kept.
    pub(super) fn thin_out(&self) {
        let copies = copies(&self.dir);
        let kept = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let (mut newer, mut newer_whole) = (0, 0);
        for (name, copy) in copies.iter().rev() {
            // One that lacks something pushes out no whole one.
            let before = if name.is_whole { newer_whole } else { newer };
            newer += 1;
            newer_whole += usize::from(name.is_whole);
            if before < kept {
                continue;
            }
            let shown = copy.display();
            match fs::remove_file(copy) {
                Ok(()) => tracing::info!(copy = %shown, "an old backup is removed"),
                Err(error) => tracing::warn!(%error, copy = %shown, "an old backup stays"),
            }
        }
    }
}

/// What ends the name of a copy that isn't whole yet.
pub(super) const PARTIAL: &str = ".partial";

/// Takes away what copies left that were killed: that of `partial`, and of those beside it that got
/// their names by their time. What is locked somebody is at work on.
pub(super) fn remove_unfinished(partial: &Path) {
    let dir = partial.parent().unwrap_or(Path::new("/"));
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_left = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let of_time = name.to_str().and_then(|name| name.split_once(PARTIAL));
        let is_ours = of_time.is_some_and(|(whole, work)| {
            let is_work = matches!(work, "" | "-journal" | "-wal" | "-shm");
            is_work && whole.starts_with(NAME.0) && whole.ends_with(NAME.1)
        });
        is_ours && entry.file_type().is_ok_and(|kind| kind.is_file())
    };
    let others = entries.filter(is_left).map(|entry| entry.path());
    for left in others.chain([partial.to_owned()]) {
        let free = fs::File::open(&left).is_ok_and(|file| file.try_lock().is_ok());
        if !free {
            continue;
        }
        let shown = left.display();
        match fs::remove_file(&left) {
            Ok(()) => tracing::info!(file = %shown, "what a backup left unfinished is removed"),
            Err(error) => tracing::warn!(%error, file = %shown, "an unfinished backup stays"),
        }
    }
}

/// The name of a copy that lacks what timmy remembers, instead of `path`.
pub(super) fn incomplete(path: &Path) -> PathBuf {
    path.with_extension(&LACKS[1..])
}

/// What is wrong with the copies of a plan, in words, until there is one with which nothing is.
fn noted(store: &Path) -> PathBuf {
    beside(store, ".backups")
}

/// Keeps it for the next start, and for whoever looks from outside.
pub(super) fn note(store: &Path, lacks: Option<&str>) -> io::Result<()> {
    match lacks {
        None => remove(&noted(store)),
        Some(lacks) => replace(&noted(store), lacks.as_bytes(), PRIVATE),
    }
}

/// What is noted; nothing where that can't be read.
pub fn backups_lack(dir: &Path) -> Option<String> {
    let text = text_of(&noted(&dir.join(FILE))).ok()?;
    String::from_utf8(text).ok()
}

/// When a copy was made, by its name, and what it is.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    time: String,
    /// Which one of that time.
    number: u32,
    is_whole: bool,
}

/// What is to be told of the copies that the store of a directory has made by themselves, if it has.
#[must_use]
pub fn backups_planned(dir: &Path) -> Option<String> {
    let store = dir.join(FILE);
    // Without a daemon none comes, and a look would leave files beside the store.
    let planned = beside(&store, "-shm").exists().then(|| Planned::of(&store));
    Some(planned??.told(SystemTime::now()))
}

/// The copies with a time for their name, the oldest first. Whatever else is there is somebody's own.
fn copies(dir: &Path) -> Vec<(Name, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut copies: Vec<(Name, PathBuf)> = entries
        // An empty one was cut off by a crash, of a version that gave it its name before it was whole.
        .filter(|entry| {
            let found = entry.metadata();
            found.is_ok_and(|found| found.is_file() && found.len() > 0)
        })
        .filter_map(|entry| Some((made(&entry.file_name())?, entry.path())))
        .collect();
    // The number as a number: `-10` comes before `-2` by letters.
    copies.sort();
    copies
}

fn made(name: &OsStr) -> Option<Name> {
    let between = name.to_str()?.strip_prefix(NAME.0)?;
    let (between, is_whole) = match between.strip_suffix(LACKS) {
        Some(between) => (between, false),
        None => (between.strip_suffix(NAME.1)?, true),
    };
    let (time, number) = match between.split_once('-') {
        Some((time, number)) => (time, number.parse().ok()?),
        None => (between, 1),
    };
    // With a `T`: without one it is what `agentctl backup` calls its own.
    let is_time = time.starts_with(|c: char| c.is_ascii_digit())
        && time.contains('T')
        && time
            .bytes()
            .all(|c| c.is_ascii_digit() || b"TZ.".contains(&c));
    is_time.then(|| Name {
        time: time.to_owned(),
        number,
        is_whole,
    })
}
