//! A backup in the place of the store.
//!
//! Owns what is looked at before, where the store goes that was there, and what becomes of jobs that
//! had no end when the backup was made: nobody knows whether they have run since, so that none of
//! them runs by itself. Must not know who asked, nor that nobody else uses the store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use agentd_core::limits::ATTEMPTS;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::schema::{self, APPLICATION, FILE, beside};
use super::{backup, loss, losses, mark, memory, migrations};

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
    /// Sessions that timmy remembers again, or why it doesn't.
    pub remembered: Result<u64, String>,
}

/// Puts a copy of the backup at `from` in the place of the store in `dir`. Nobody may use either
/// meanwhile. What was lost of the store before counts as accepted.
///
/// # Errors
/// Says why the backup can't be used, or can't be put there. The store is then where it was, unless
/// the last step failed: what was there before is beside it in that case, as the text says.
pub fn restore(dir: &Path, from: &Path) -> Result<Restored, String> {
    let path = dir.join(FILE);
    let partial = beside(&path, ".restoring");
    let shown = from.display();
    let source =
        read_backup(from).map_err(|why| format!("`{shown}` is no backup to use: {why}"))?;
    backup::write_same(&source, &partial)
        .map_err(|why| format!("`{shown}` can't be copied: {why}"))?;
    let prepared = prepare(&partial).map_err(|error| format!("the copy can't be changed: {error}"));
    let (epoch, restored) = prepared.inspect_err(|_| {
        let _stays = fs::remove_file(&partial);
    })?;
    let put = |aside: &Option<PathBuf>| -> io::Result<()> {
        fs::rename(&partial, &path)?;
        // Else the next start tells the store that was here as gone, and this one as older than it
        // was.
        loss::note_epoch(&path, &epoch)?;
        mark::forget(&path)?;
        losses::accept_losses(dir)?;
        backup::sync(dir)?;
        tracing::info!(aside = ?aside, "the store is that of a backup");
        Ok(())
    };
    // All that can be wrong with the backup is known by now, and the store not touched yet.
    let aside = if path.exists() || beside(&path, "-wal").exists() {
        let aside = schema::move_aside(&path, REPLACED);
        Some(aside.map_err(|error| format!("the store that is there can't be moved: {error}"))?)
    } else {
        None
    };
    put(&aside).map_err(|error| match &aside {
        Some(aside) => format!(
            "the copy can't be put there: {error}; what was there is in `{}`",
            aside.display()
        ),
        None => format!("the copy can't be put there: {error}"),
    })?;
    // Last, and without a say in it: a store without what its agent remembers is better than none.
    let remembered = memory::put_back(&path, from);
    Ok(Restored {
        aside,
        remembered,
        ..restored
    })
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

/// Another history, in which nothing goes on by itself; its epoch.
fn prepare(copy: &Path) -> rusqlite::Result<(String, Restored)> {
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
    let jobs = change.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))?;
    let epoch = change.query_row(loss::EPOCH, [], |row| row.get(0))?;
    change.commit()?;
    conn.close().map_err(|(_, error)| error)?;
    backup::sync(copy).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let restored = Restored {
        aside: None,
        jobs: super::columns::nat(jobs),
        held: u64::try_from(held).unwrap_or(u64::MAX),
        interrupted: u64::try_from(interrupted).unwrap_or(u64::MAX),
        remembered: Ok(0),
    };
    Ok((epoch, restored))
}
