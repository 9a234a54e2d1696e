//! What timmy remembers of its sessions, in copies of the store.
//!
//! Owns the tables of a copy that hold it, and how it goes back: sessions that timmy has lost come
//! back, and those that it has are left as they are, which may be newer. Must not know what is in a
//! message. timmy's own code has the tables' meaning; here they are columns by their names.

use std::fmt::Display;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentd_base::clock::wall_ms;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior};

use super::schema::{beside, refuse_others, reopen_to_read};

/// "timm": what timmy's file says that it is.
const APPLICATION: i32 = 0x7469_6d6d;
/// How long timmy may hold its file.
const BUSY: Duration = Duration::from_secs(10);
/// A copy holds timmy's tables in these, and is none of them.
const TABLES: [&str; 3] = ["timmy_form", "timmy_sessions", "timmy_messages"];

/// timmy's file, beside the store.
pub(super) fn file_of(store: &Path) -> PathBuf {
    store.with_file_name("timmy").join("timmy.db")
}

/// Adds what timmy remembers to a copy of the store at `store`; nothing if timmy has no file.
pub(super) fn add(store: &Path, copy: &Connection) -> rusqlite::Result<()> {
    let file = file_of(store);
    if !file.exists() {
        return Ok(());
    }
    // A file of its own, so that what it is, and that it answers, is known before it is attached.
    let whose: i32 =
        reopen_to_read(&file)?.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if APPLICATION != whose {
        return Ok(());
    }
    copy.busy_timeout(BUSY)?;
    copy.pragma_update(None, "trusted_schema", false)?;
    copy.execute("ATTACH ?1 AS timmy", [file.to_string_lossy()])?;
    let added = add_tables(copy);
    if added.is_err() && !copy.is_autocommit() {
        copy.execute_batch("ROLLBACK")?;
    }
    copy.execute_batch("DETACH timmy")?;
    added
}

/// All of one moment, and nothing if it isn't all.
fn add_tables(copy: &Connection) -> rusqlite::Result<()> {
    copy.execute_batch("BEGIN")?;
    // First a table of timmy's: from then on the rest is of that moment, too.
    copy.execute_batch("CREATE TABLE timmy_sessions AS SELECT * FROM timmy.sessions")?;
    let form: i64 = copy.query_row("PRAGMA timmy.user_version", [], |row| row.get(0))?;
    copy.execute_batch(&format!(
        "CREATE TABLE timmy_messages AS SELECT * FROM timmy.messages;
         CREATE TABLE timmy_form AS SELECT sql, {form} AS version FROM timmy.sqlite_schema
             WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid;
         COMMIT;"
    ))
}

/// Takes it out of a copy that becomes the store.
pub(super) fn take_out(copy: &Connection) -> rusqlite::Result<()> {
    if !holds_any(copy)? {
        return Ok(());
    }
    for table in TABLES {
        copy.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    // Else what it took stays in the file of the store.
    copy.execute_batch("VACUUM")
}

/// Gives timmy, beside the store at `store`, the sessions of the backup at `from` that it hasn't, if
/// `put` has put that store there; how many.
pub(super) fn put_back(
    store: &Path,
    from: &Path,
    put: impl FnOnce() -> Result<(), String>,
) -> Result<u64, String> {
    let told = |error: rusqlite::Error| error.to_string();
    let backup = reopen_to_read(from).map_err(told)?;
    if !holds_any(&backup).map_err(told)? {
        return put().map(|()| 0);
    }
    let file = file_of(store);
    let was_there = file.exists();
    let failed = |what: &str, error: &dyn Display| {
        format!(
            "timmy's sessions can't be put back: can't {what} `{}`: {error}; hint: move that file \
             away and restore again",
            file.display()
        )
    };
    private(&file).map_err(|error| failed("make", &error))?;
    let merged = merge(&file, from, put, &|error| failed("add to", &error));
    if merged.is_err() && !was_there {
        // Empty, but for what SQLite has beside it.
        for end in ["", "-wal", "-shm"] {
            let _left = fs::remove_file(beside(&file, end));
        }
    }
    merged
}

fn holds_any(copy: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM main.sqlite_schema WHERE name = 'timmy_messages'";
    let found: Option<i32> = copy.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(found.is_some())
}

/// The file, with the mode that timmy gives it.
fn private(file: &Path) -> io::Result<()> {
    refuse_others(file)?;
    if let Some(dir) = file.parent() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir)?;
    }
    let mut options = fs::OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(file)?;
    Ok(())
}

fn merge(
    file: &Path,
    from: &Path,
    put: impl FnOnce() -> Result<(), String>,
    failed: &dyn Fn(rusqlite::Error) -> String,
) -> Result<u64, String> {
    let mut conn = open_both(file, from).map_err(failed)?;
    let change = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    let added = make_tables(&change).and_then(|()| add_missing(&change));
    let added = added.map_err(failed)?;
    // Nothing of this counts before it is committed, and a store can be put back.
    put()?;
    change.commit().map_err(failed)?;
    Ok(added)
}

fn open_both(file: &Path, from: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags)?;
    conn.busy_timeout(BUSY)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.execute("ATTACH ?1 AS backup", [from.to_string_lossy()])?;
    Ok(conn)
}

/// In a file that is empty, those that the backup's had.
fn make_tables(change: &Transaction<'_>) -> rusqlite::Result<()> {
    let tables: i64 = change.query_row("SELECT count(*) FROM main.sqlite_schema", [], |row| {
        row.get(0)
    })?;
    if tables > 0 {
        return Ok(());
    }
    let rows: Vec<(String, i64)> = change
        .prepare("SELECT sql, version FROM backup.timmy_form")?
        .query_map([], |row| row.try_into())?
        .collect::<rusqlite::Result<_>>()?;
    for (sql, _version) in &rows {
        // A backup may come from elsewhere: it makes tables here, and does nothing else.
        if sql.starts_with("CREATE TABLE ") || sql.starts_with("CREATE INDEX ") {
            change.execute(sql, [])?;
        }
    }
    change.pragma_update(None, "user_version", rows.first().map_or(0, |row| row.1))?;
    change.pragma_update(None, "application_id", APPLICATION)
}

fn add_missing(change: &Transaction<'_>) -> rusqlite::Result<u64> {
    let columns: Vec<String> = change
        .prepare("SELECT name FROM pragma_table_info('timmy_sessions', 'backup')")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let columns: Vec<String> = columns
        .into_iter()
        .filter(|name| name != "id")
        .map(|name| format!("\"{}\"", name.replace('"', "\"\"")))
        .collect();
    let values: Vec<&str> = columns
        .iter()
        .map(|name| match name.as_str() {
            // A person gave that name to another one since.
            "\"name\"" => "iif(name IN (SELECT name FROM main.sessions), NULL, name)",
            // As long unused as when the backup was made: else an old one were forgotten at once.
            "\"used_at\"" => "used_at + ?1 - (SELECT max(used_at) FROM backup.timmy_sessions)",
            name => name,
        })
        .collect();
    change.execute_batch(
        "CREATE TEMP TABLE missing AS SELECT id, native FROM backup.timmy_sessions
         WHERE native NOT IN (SELECT native FROM main.sessions)",
    )?;
    let added = change.execute(
        &format!(
            "INSERT INTO main.sessions ({}) SELECT {} FROM backup.timmy_sessions
             WHERE id IN (SELECT id FROM temp.missing)",
            columns.join(", "),
            values.join(", ")
        ),
        [wall_ms()],
    )?;
    change.execute(
        "INSERT INTO main.messages (session, at, message)
         SELECT here.id, there.at, there.message FROM backup.timmy_messages AS there
         JOIN temp.missing ON missing.id = there.session
         JOIN main.sessions AS here ON here.native = missing.native",
        [],
    )?;
    Ok(u64::try_from(added).unwrap_or(u64::MAX))
}
