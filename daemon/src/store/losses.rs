//! What was lost of the store, until somebody says that they know.
//!
//! Owns the list beside the store: a line for each loss, in words. It is on the disk before what
//! was lost can't be told any more, and outlives every start; the database says the same, so that
//! a list that is gone isn't one that was accepted. Must not know how a loss is found.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use super::loss::Loss;
use super::schema::{self, FILE};
use super::trouble;

/// More is not told: each is a sentence, and whoever breaks a store that often knows it.
const MOST: usize = 16;

fn list(database: &Path) -> PathBuf {
    schema::beside(database, ".losses")
}

/// As it is noted.
fn line_of(loss: &Loss) -> String {
    loss.to_string().replace('\n', " ")
}

/// Adds one, in whatever process finds it.
pub(super) fn note(database: &Path, loss: &Loss) {
    let line = line_of(loss);
    if let Err(error) = add(database, &line) {
        tracing::error!(%error, line, "what was lost of the store can't be noted");
    }
}

fn add(database: &Path, line: &str) -> io::Result<()> {
    let known = of(database)?;
    if known.len() >= MOST || known.iter().any(|known| known == line) {
        return Ok(());
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(list(database))?;
    file.write_all(format!("{line}\n").as_bytes())?;
    file.sync_all()?;
    // Its name as well, as the list may be new.
    match database.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Takes one back that turned out to be none.
pub(super) fn forget(database: &Path, loss: &Loss) {
    let line = line_of(loss);
    let without = || -> io::Result<()> {
        let known = of(database)?;
        if !known.contains(&line) {
            return Ok(());
        }
        let left: Vec<String> = known.into_iter().filter(|known| *known != line).collect();
        // Killed before it is written again, the database still tells what is to be in it.
        fs::remove_file(list(database))?;
        left.iter().try_for_each(|line| add(database, line))
    };
    if let Err(error) = without() {
        tracing::warn!(%error, line, "what was not lost of the store stays noted");
    }
}

/// All that nobody has accepted yet, the oldest first.
pub(super) fn of(database: &Path) -> io::Result<Vec<String>> {
    match schema::text_of(&list(database)) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            Ok(text.lines().take(MOST).map(str::to_owned).collect())
        }
        Err(none) if none.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// In the database: what was noted of it, so that a list that was cut or taken away isn't taken for
/// one that was accepted.
const KEPT: &str = "losses";

/// Brings the list and what the database says of it together: all that either has is told.
pub(super) fn settle(conn: &mut Connection, database: &Path) {
    let differ = |conn: &Connection| {
        let (noted, kept) = (of(database).map_err(schema::io_error)?, kept(conn)?);
        Ok::<_, rusqlite::Error>((noted.join("\n") != kept).then_some((noted, kept)))
    };
    let settled = differ(conn).and_then(|found| match found {
        None => Ok(()),
        Some(_) => {
            // Whoever accepts them takes them out of both while nobody else writes.
            let change = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if let Some((noted, kept)) = differ(&change)? {
                settle_with(&change, database, noted, &kept)?;
            }
            change.commit()
        }
    });
    if let Err(error) = settled {
        tracing::warn!(%error, "what was lost of the store can't be noted in it");
    }
}

fn settle_with(
    conn: &Connection,
    database: &Path,
    mut noted: Vec<String>,
    kept: &str,
) -> rusqlite::Result<()> {
    for line in kept.lines().filter(|line| !line.is_empty()) {
        if noted.len() < MOST && !noted.iter().any(|noted| noted == line) {
            tracing::warn!(
                line,
                "a loss was taken out of its list, and nobody accepted it"
            );
            add(database, line).map_err(schema::io_error)?;
            noted.push(line.to_owned());
        }
    }
    conn.execute(
        "INSERT OR REPLACE INTO meta VALUES (?1, ?2)",
        [KEPT, noted.join("\n").as_str()],
    )?;
    Ok(())
}

fn kept(conn: &Connection) -> rusqlite::Result<String> {
    let kept = "SELECT coalesce((SELECT value FROM meta WHERE key = ?1), '')";
    conn.query_row(kept, [KEPT], |row| row.get(0))
}

/// The database, if it tells losses.
fn telling(database: &Path) -> io::Result<Option<Connection>> {
    let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    // What was emptied is left as it is, and what a newer version wrote.
    if size(database) == 0
        || schema::header_version(database)? as usize > super::migrations::known().len()
    {
        return Ok(None);
    }
    let has_log = size(&schema::beside(database, "-wal")) > 0;
    match schema::reopen_to_read(database).and_then(|conn| kept(&conn)) {
        Ok(kept) if kept.is_empty() => return Ok(None),
        Ok(_) => {}
        // One that can't be read, or is another program's, tells none.
        Err(error) if schema::is_corrupt(&error) || trouble::is_of_rows(&error) => return Ok(None),
        Err(error) => return Err(io::Error::other(error)),
    }
    let opened = schema::reopen(database).and_then(|conn| {
        // It is left to whoever serves, who looks whether it is whole.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
        Ok(conn)
    });
    opened.map(Some).map_err(io::Error::other)
}

/// The same for a start, which tells what it found itself even where that can't be noted.
pub(super) fn beside(database: &Path, found: Option<&Loss>) -> Vec<String> {
    of(database).unwrap_or_else(|error| {
        tracing::warn!(%error, "what was lost of the store before can't be read");
        found.iter().map(ToString::to_string).collect()
    })
}

/// What was lost of the store in a directory and isn't accepted yet, the oldest first.
///
/// # Errors
/// When the list is there and can't be read.
pub fn losses(dir: &Path) -> io::Result<Vec<String>> {
    of(&dir.join(FILE))
}

/// Forgets what was lost: somebody has seen it. A daemon that runs notices. Gives what it was.
///
/// # Errors
/// When the list can't be read or taken away, or the database can't be told.
pub fn accept_losses(dir: &Path) -> io::Result<Vec<String>> {
    let database = dir.join(FILE);
    let accepted = of(&database)?;
    let Some(mut conn) = telling(&database)? else {
        schema::remove(&list(&database))?;
        return Ok(accepted);
    };
    let change = conn.transaction_with_behavior(TransactionBehavior::Immediate);
    let change = change.map_err(io::Error::other)?;
    // The list goes within the transaction: killed before its end, the database still tells them
    // all.
    let told = change.execute("DELETE FROM meta WHERE key = ?1", [KEPT]);
    told.map_err(io::Error::other)?;
    schema::remove(&list(&database))?;
    change.commit().map_err(io::Error::other)?;
    Ok(accepted)
}
