//! A look at the store from outside, for `doctor`.
//!
//! Changes nothing in it. Must not know what is done about what is found.

use std::path::{Path, PathBuf};

pub use super::backup_plan::{backups_lack, backups_planned};
use super::loss::{COPIED, RESCUED};
use super::migrations;
use super::restore::REPLACED;
use super::schema::{FILE, MOVED, header_version, reopen_to_read};

/// Older versions of SQLite may damage a write-ahead log when several connections begin it anew.
const SAFE_SQLITE: i32 = 3_051_003;

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspected {
    /// The version of SQLite that is built in.
    pub sqlite: &'static str,
    /// Is it one without known damage?
    pub sqlite_is_safe: bool,
    /// The version of the tables; none when there is no store yet.
    pub tables: Option<u32>,
    /// The version that this program knows.
    pub known: usize,
    /// What is kept of stores and logs that were damaged.
    pub kept: Vec<PathBuf>,
}

/// Looks at the file's header.
///
/// # Errors
/// When it can't be read.
pub fn inspect(dir: &Path) -> std::io::Result<Inspected> {
    let tables = match header_version(&dir.join(FILE)) {
        Ok(version) => Some(version),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(Inspected {
        sqlite: rusqlite::version(),
        sqlite_is_safe: rusqlite::version_number() >= SAFE_SQLITE,
        tables,
        known: migrations::known().len(),
        kept: kept(dir)?,
    })
}

fn kept(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = [
        format!("{FILE}.{MOVED}-"),
        format!("{FILE}.{RESCUED}-"),
        format!("{FILE}.{REPLACED}-"),
        format!("{FILE}-wal.{COPIED}-"),
    ];
    let mut kept = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let shown = name.to_string_lossy();
        // A file's own log goes with it.
        let is_part = shown.ends_with("-wal") || shown.ends_with("-shm");
        if !is_part && names.iter().any(|start| shown.starts_with(start)) {
            kept.push(dir.join(&name));
        }
    }
    kept.sort();
    Ok(kept)
}

/// Reads the whole store; a daemon may go on writing meanwhile.
///
/// # Errors
/// Says what is broken, or why it can't be read.
pub fn check_whole(dir: &Path) -> Result<(), String> {
    let read = || {
        let conn = reopen_to_read(&dir.join(FILE))?;
        conn.query_row("PRAGMA integrity_check(5)", [], |row| row.get(0))
    };
    match read() {
        Ok(found) if found == "ok" => Ok(()),
        Ok(broken) => Err::<(), String>(broken),
        Err(error) => Err(error.to_string()),
    }
}
