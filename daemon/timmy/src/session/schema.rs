//! Opening the file that sessions are kept in.
//!
//! Owns its permissions, its settings and its versions. Must not know what is in the tables.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::rows::{APPLICATION, MIGRATIONS};
use super::store::{StoreError, failed};

/// How long another process may hold the file.
const BUSY: Duration = Duration::from_secs(10);
/// To read a log as long as this takes little beside a turn: some 15 of them, 100 pages of 4 KiB.
const LONG_LOG: u64 = 100 * 4120;

/// A file that only its user can read.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    let file = options.open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Opens the file, makes its tables, and sees that nobody else can read it.
pub(super) fn prepare(directory: &Path) -> Result<Connection, StoreError> {
    let file = directory.join("timmy.db");
    let io = |why: io::Error| StoreError::Failed(file.clone(), why.to_string());
    let sqlite = |why: rusqlite::Error| failed(directory, &why);
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(directory).map_err(io)?;
    std::fs::set_permissions(directory, Permissions::from_mode(0o700)).map_err(io)?;
    // Before SQLite opens it: its log and index get the mode of the database.
    private(&file).map_err(io)?;
    // Without `CREATE`: it is there by now, with its mode.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(&file, flags).map_err(sqlite)?;
    tune(&conn).map_err(sqlite)?;
    migrate(&mut conn).map_err(|why| match why {
        Wrong::Sqlite(why) => sqlite(why),
        Wrong::Foreign(why) => StoreError::Failed(file.clone(), why),
    })?;
    shorten(&conn, &directory.join("timmy.db-wal")).map_err(sqlite)?;
    Ok(conn)
}

fn tune(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    // The file may come from elsewhere: its views and triggers may call nothing that has an effect.
    conn.pragma_update(None, "trusted_schema", false)?;
    // In KiB: what is read is read once.
    conn.pragma_update(None, "cache_size", -512)?;
    // In pages of 4 KiB; a process that opens the file shortens the log before it is as long.
    conn.pragma_update(None, "wal_autocheckpoint", 200)?;
    // A process that answers one prompt leaves its log behind: to write it back takes as long.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}

/// Begins a log anew that has become long: who opens it reads all of it, and can't know what of it is
/// written back already.
fn shorten(conn: &Connection, log: &Path) -> rusqlite::Result<()> {
    if !std::fs::metadata(log).is_ok_and(|log| log.len() > LONG_LOG) {
        return Ok(());
    }
    conn.busy_timeout(Duration::ZERO)?;
    // Whom another process hinders, or the disk, leaves it to the next one.
    let _later = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    conn.busy_timeout(BUSY)
}

/// Why a file isn't ours to use.
enum Wrong {
    Sqlite(rusqlite::Error),
    Foreign(String),
}

impl From<rusqlite::Error> for Wrong {
    fn from(why: rusqlite::Error) -> Self {
        Self::Sqlite(why)
    }
}

fn migrate(conn: &mut Connection) -> Result<(), Wrong> {
    let whose = |conn: &Connection| -> rusqlite::Result<(usize, i32, i64)> {
        let version: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let application = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let tables = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        Ok((version as usize, application, tables))
    };
    // Mostly so, and then nobody waits for the right to write.
    let (version, application, _) = whose(conn)?;
    if (version, application) == (MIGRATIONS.len(), APPLICATION) {
        return Ok(());
    }
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it while this one waited.
    let (version, application, tables) = whose(&transaction)?;
    if tables > 0 && application != APPLICATION {
        let why = "it is another program's file; move it away";
        return Err(Wrong::Foreign(why.to_owned()));
    }
    let Some(scripts) = MIGRATIONS.get(version..) else {
        let known = MIGRATIONS.len();
        let why = format!(
            "a newer timmy wrote it: its tables are of form {version}, this one reads up to {known}; \
             use a newer timmy"
        );
        return Err(Wrong::Foreign(why));
    };
    for script in scripts {
        transaction.execute_batch(script)?;
    }
    transaction.pragma_update(
        None,
        "user_version",
        i64::try_from(MIGRATIONS.len()).unwrap_or(0),
    )?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.commit()?;
    Ok(())
}
