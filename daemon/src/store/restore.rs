//! A backup in the place of the store.
//!
//! Owns what is looked at before, where the store goes that was there, and what becomes of jobs that
//! had no end when the backup was made: nobody knows whether they have run since, so that none of
//! them runs by itself. Must not know who asked, nor that nobody else uses the store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agentd_base::replace::{PRIVATE, replace};
use agentd_core::limits::ATTEMPTS;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::backup_plan::Planned;
use super::reserve::ROOM;
use super::schema::{self, APPLICATION, FILE, beside};
use super::{backup, disk, loss, losses, mark, memory, migrations};

/// Says in the name of a file what it is: a store in whose place a backup was put.
pub(super) const REPLACED: &str = "replaced";

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Where the store is that was there.
    pub aside: Option<PathBuf>,
    /// Jobs that are there now.
    pub jobs: u64,
    /// Those of them that were waiting, and are held.
    pub held: u64,
    /// Those that were running, and will be interrupted.
    pub interrupted: u64,
    /// Schedules that were active, and are paused.
    pub schedules: u64,
    /// Sessions that timmy remembers again.
    pub remembered: u64,
    /// The command that takes up the plan of copies that was in the backup, and isn't followed here.
    pub plan: Option<String>,
}

/// Puts a copy of the backup at `from` in the place of the store in `dir`, and gives timmy its
/// sessions back: both or neither. Nobody may use either meanwhile. What was lost of the store before
/// counts as accepted.
///
/// # Errors
/// Says why the backup can't be used, or can't be put there. The store and timmy's sessions are then
/// as they were, unless the text says where they are.
pub fn restore(dir: &Path, from: &Path) -> Result<Restored, String> {
    let path = dir.join(FILE);
    let partial = beside(&path, ".restoring");
    let shown = from.display();
    let source =
        read_backup(from).map_err(|why| format!("`{shown}` is no backup to use: {why}"))?;
    let size = fs::metadata(from).map_or(0, |backup| backup.len());
    // One that a kill left takes room.
    let _gone = fs::remove_file(&partial);
    expect_room(dir, size)?;
    let put = || {
        backup::write_same(&source, &partial)
            .map_err(|why| format!("`{shown}` can't be copied: {why}"))?;
        let (epoch, mut restored) = prepare(&partial, Planned::of(&path))
            .map_err(|error| format!("the copy can't be changed: {error}"))?;
        let mut before = Before::of(&path);
        // All that can be wrong with the backup is known by now, and the store not touched yet.
        let put_back = memory::put_back(&path, from, || {
            // What a daemon needs to come up may be what timmy's sessions have taken.
            expect_room(dir, 0)?;
            before.replace_by(&partial, &epoch)
        });
        match put_back {
            Ok(remembered) => restored.remembered = remembered,
            Err(why) => return Err(before.put_back(why)),
        }
        tracing::info!(aside = ?before.aside, "the store is that of a backup");
        restored.aside = before.aside;
        Ok(restored)
    };
    put().inspect_err(|_| {
        let _gone = fs::remove_file(&partial);
    })
}

/// Is there room for so many bytes, and for what a daemon needs to come up afterwards?
fn expect_room(dir: &Path, bytes: u64) -> Result<(), String> {
    let needed = bytes + disk::needed_beside(ROOM);
    // Where that can't be known, it is tried.
    let free = disk::free_bytes(dir).unwrap_or(u64::MAX);
    match needed.checked_sub(free) {
        None | Some(0) => Ok(()),
        Some(missing) => Err(format!(
            "{missing} bytes are missing in `{}`: {free} are free, and the copy and a daemon need \
             {needed}; the store stays as it was; hint: make room there",
            dir.display()
        )),
    }
}

/// What a store has beside it that says what it is.
const NOTES: [&str; 3] = [".epoch", ".mark", ".losses"];

/// What was there before, until the backup and all that belongs to it is in its place.
struct Before {
    path: PathBuf,
    aside: Option<PathBuf>,
    is_replaced: bool,
    notes: [Option<Vec<u8>>; 3],
}

impl Before {
    fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            aside: None,
            is_replaced: false,
            notes: NOTES.map(|note| schema::text_of(&beside(path, note)).ok()),
        }
    }

    fn replace_by(&mut self, partial: &Path, epoch: &str) -> Result<(), String> {
        let path = &self.path;
        if path.exists() || beside(path, "-wal").exists() {
            let aside = schema::move_aside(path, REPLACED);
            self.aside = Some(
                aside
                    .map_err(|error| format!("the store that is there can't be moved: {error}"))?,
            );
        }
        self.is_replaced = true;
        let dir = path.parent().unwrap_or(Path::new("/"));
        let put = || -> io::Result<()> {
            fs::rename(partial, path)?;
            // Else the next start tells the store that was here as gone, and this one as older than
            // it was.
            loss::note_epoch(path, epoch)?;
            mark::forget(path)?;
            losses::accept_losses(dir)?;
            backup::sync(dir)
        };
        put().map_err(|error| format!("the copy can't be put there: {error}"))
    }

    /// Puts it where it was, and says why, or that it can't.
    fn put_back(self, why: String) -> String {
        if !self.is_replaced {
            return why;
        }
        let path = &self.path;
        let back = || -> io::Result<()> {
            ["", "-wal", "-shm"]
                .iter()
                .try_for_each(|end| schema::remove(&beside(path, end)))?;
            if let Some(aside) = &self.aside {
                schema::rename_all(aside, path)?;
            }
            for (note, text) in NOTES.iter().zip(&self.notes) {
                let note = beside(path, note);
                match text {
                    Some(text) => replace(&note, text, PRIVATE)?,
                    None => schema::remove(&note)?,
                }
            }
            backup::sync(path.parent().unwrap_or(Path::new("/")))
        };
        match (back(), &self.aside) {
            (Ok(()), _) => format!("{why}; the store stays as it was"),
            (Err(error), None) => format!("{why}; what is there now is no whole store: {error}"),
            (Err(error), Some(aside)) => format!(
                "{why}; what was there is in `{}`, and can't be put back: {error}",
                aside.display()
            ),
        }
    }
}

/// Opens a backup that is whole and ours.
fn read_backup(from: &Path) -> Result<Connection, String> {
    let told = |error: rusqlite::Error| error.to_string();
    let size = fs::metadata(from).map_err(|error| error.to_string())?.len();
    if size == 0 {
        return Err("it is empty".to_owned());
    }
    let conn = schema::reopen_to_read(from).map_err(told)?;
    let number = |pragma| conn.query_row(pragma, [], |row| row.get::<_, i32>(0));
    if number("PRAGMA application_id").map_err(told)? != APPLICATION {
        return Err("it is a database of another program".to_owned());
    }
    let version = number("PRAGMA user_version").map_err(told)?;
    let known = migrations::known().len();
    if usize::try_from(version).map_or(true, |version| version == 0 || version > known) {
        return Err(format!(
            "another agentd wrote it: its tables are of form {version}, this one reads 1 to {known}"
        ));
    }
    let found: String = conn
        .query_row("PRAGMA integrity_check(3)", [], |row| row.get(0))
        .map_err(told)?;
    if found != "ok" {
        return Err(format!("it is damaged: {found}"));
    }
    Ok(conn)
}

/// Another history, in which nothing goes on by itself, and the copies are those of `ours`; its epoch.
fn prepare(copy: &Path, ours: Option<Planned>) -> rusqlite::Result<(String, Restored)> {
    backup::another_history(copy)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(copy, flags)?;
    memory::take_out(&conn)?;
    let change = conn.transaction()?;
    let interrupted = change.execute(
        // It was tried as often as anything is: what interrupted it doesn't run again.
        "UPDATE jobs SET attempt = ?1 WHERE final_seq IS NULL AND state = 'running'",
        [ATTEMPTS],
    )?;
    // Columns that an older backup doesn't have came with the version that can hold jobs.
    let can_hold = "SELECT 1 FROM pragma_table_info('jobs') WHERE name = 'held'";
    let can_hold: Option<i32> = change
        .query_row(can_hold, [], |row| row.get(0))
        .optional()?;
    let waiting = match can_hold {
        Some(_) => {
            "UPDATE jobs SET held = 1, start_at = NULL, start_boot = NULL
             WHERE final_seq IS NULL AND state = 'queued'"
        }
        // That version can't hold anything: better not run than run twice.
        None => "UPDATE jobs SET cancelled = 1 WHERE final_seq IS NULL AND state = 'queued'",
    };
    let held = change.execute(waiting, [])?;
    // Which due times were sent since isn't known. Older backups have no schedules.
    let has_schedules = "SELECT 1 FROM pragma_table_info('schedules') WHERE name = 'state'";
    let has_schedules: Option<i32> = change
        .query_row(has_schedules, [], |row| row.get(0))
        .optional()?;
    let schedules = match has_schedules {
        None => 0,
        Some(_) => change.execute(
            "UPDATE schedules SET revision = revision + 1, state = 'paused',
                why = 'it comes from a backup: what was sent since is not known'
             WHERE state = 'active'",
            [],
        )?,
    };
    let jobs = change.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))?;
    let epoch = change.query_row(loss::EPOCH, [], |row| row.get(0))?;
    // A plan is of the machine: its directory, and the copies in it that go, are there.
    let theirs = Planned::read(&change)?;
    let plan = match ours {
        Some(ours) => {
            ours.write(&change)?;
            None
        }
        None => {
            Planned::forget(&change)?;
            theirs
        }
    };
    change.commit()?;
    conn.close().map_err(|(_, error)| error)?;
    backup::sync(copy).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let restored = Restored {
        aside: None,
        jobs: super::columns::nat(jobs),
        held: u64::try_from(held).unwrap_or(u64::MAX),
        interrupted: u64::try_from(interrupted).unwrap_or(u64::MAX),
        schedules: u64::try_from(schedules).unwrap_or(u64::MAX),
        remembered: 0,
        plan: plan.map(|plan| plan.command()),
    };
    Ok((epoch, restored))
}
