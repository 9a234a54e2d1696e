//! The database file: where its connection comes from, what its tables are, how it grows older.
//!
//! Owns pragmas, migrations, and what happens to a file that is newer, foreign or broken.
//! Must not know jobs, instances or threads.

use std::fmt::Display;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::StoreError;
use super::loss::{self, Loss};
use super::{damage, losses};

/// The file's name in the state directory.
pub(super) const FILE: &str = "agentd.db";
/// Older ones have a bug that can lose the write-ahead log.
const SQLITE_AT_LEAST: i32 = 3_051_003;
/// Says in the file's header whose it is: `agtd`.
pub(super) const APPLICATION: i32 = 0x6167_7464;
/// Says in the name of a file what it is: a store that was damaged.
pub(super) const MOVED: &str = "corrupt";
/// How long another process's transaction is waited for.
pub(super) const BUSY: Duration = Duration::from_secs(5);
/// Every statement of the store fits, so that none is prepared twice.
const STATEMENTS: usize = 64;
/// A file up to this size, with its log, is checked whole when it was not closed properly: nobody
/// sees that it takes longer. Larger ones are served meanwhile, and looked at soon after (`verify`).
const CHECKED_WHOLE: u64 = 4 * 1024 * 1024;
/// A log up to this size is what a one-shot leaves behind, and no sign of an unclean end: about
/// ten turns.
pub(super) const SHORT_LOG: u64 = 512 * 1024;

/// A connection to the store.
pub(super) struct Ready {
    pub(super) conn: Connection,
    /// What was here before, and is not any more.
    pub(super) loss: Option<Loss>,
    /// It was not closed properly, and nothing may be written to it before it is known to be whole.
    pub(super) unchecked: bool,
}

/// Opens the store in `dir`, making what is missing and moving aside what is broken.
pub(super) fn prepare(dir: &Path, migrations: &[&str]) -> Result<Ready, StoreError> {
    let version = rusqlite::version_number();
    if version < SQLITE_AT_LEAST {
        return Err(StoreError::OldSqlite { version });
    }
    let path = dir.join(FILE);
    let io = |source| StoreError::Io {
        path: path.clone(),
        source,
    };
    let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    // SQLite makes no log before the file has a page, and deletes one beside an empty file.
    let emptied = size(&path) == 0 && size(&beside(&path, "-wal")) > 0;
    make_private(dir, &path).map_err(io)?;
    if emptied {
        return begin_anew(
            dir,
            &"it was emptied or taken away, but for its log",
            migrations,
        );
    }
    refuse_newer(&path, header_version(&path).map_err(io)?, migrations)?;
    match prepare_file(&path, migrations) {
        Err(StoreError::Sqlite { source, .. }) if is_corrupt(&source) => {
            begin_anew(dir, &source, migrations)
        }
        prepared => prepared,
    }
}

/// Moves what is broken aside, and makes a new file.
pub(super) fn begin_anew(
    dir: &Path,
    why: &dyn Display,
    migrations: &[&str],
) -> Result<Ready, StoreError> {
    let path = dir.join(FILE);
    let io = |source| StoreError::Io {
        path: path.clone(),
        source,
    };
    let aside = move_aside(&path, MOVED).map_err(io)?;
    tracing::error!(%why, aside = %aside.display(), "the store was broken and is moved aside");
    let loss = Loss::Moved(aside);
    losses::note(&path, &loss);
    make_private(dir, &path).map_err(io)?;
    let ready = prepare_file(&path, migrations)?;
    Ok(Ready {
        loss: Some(loss),
        ..ready
    })
}

/// Waits until the file is known to be whole, or damaged.
pub(super) type Whole<'a> = Box<dyn FnOnce() -> rusqlite::Result<()> + 'a>;

/// Reads beside the check of a file that needs one, as each takes as long as the other. `work` asks
/// before it writes.
pub(super) fn beside_check<T>(
    ready: &mut Ready,
    path: &Path,
    work: impl FnOnce(&mut Connection, Whole<'_>) -> T,
) -> T {
    let unchecked = ready.unchecked;
    std::thread::scope(|scope| {
        let check = std::thread::Builder::new().name("check".to_owned());
        let checking = unchecked.then(|| check.spawn_scoped(scope, || check_apart(path)));
        let whole = || match checking {
            None => Ok(()),
            Some(Ok(thread)) => {
                let checked = thread.join();
                checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            Some(Err(_no_thread)) => check_apart(path),
        };
        work(&mut ready.conn, Box::new(whole))
    })
}

/// Reads the whole file, on a connection of its own.
fn check_apart(path: &Path) -> rusqlite::Result<()> {
    check_whole(&reopen_to_read(path)?)
}

/// Does that find anything? What else can't be done is no reason to take a file away.
pub(super) fn is_damaged(path: &Path) -> bool {
    check_apart(path).is_err_and(|error| is_corrupt(&error))
}

/// Opens the file again, without looking at its schema.
pub(super) fn reopen(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    tune(&conn)?;
    Ok(conn)
}

/// A connection that can't change anything, for work beside the writer.
pub(super) fn reopen_to_read(path: &Path) -> rusqlite::Result<Connection> {
    // SQLite would wait for whoever writes into a pipe.
    refuse_others(path).map_err(io_error)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update(None, "cache_size", -512)?;
    Ok(conn)
}

/// The store in `dir` as seen from outside, while somebody has it open: to look at one that nobody has
/// would make files beside it.
pub(super) fn beside_its_writer(dir: &Path) -> rusqlite::Result<Option<Connection>> {
    let path = dir.join(FILE);
    match beside(&path, "-shm").exists() {
        true => reopen_to_read(&path).map(Some),
        false => Ok(None),
    }
}

/// Does something without waiting for what others have locked.
pub(super) fn at_once<T>(
    conn: &Connection,
    work: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let done = conn.busy_timeout(Duration::ZERO).and_then(|()| work());
    if let Err(error) = conn.busy_timeout(BUSY) {
        tracing::warn!(%error, "how long others are waited for can't be set");
    }
    done
}

fn prepare_file(path: &Path, migrations: &[&str]) -> Result<Ready, StoreError> {
    let sqlite = |source| StoreError::Sqlite {
        path: path.to_owned(),
        source,
    };
    // The log's size is looked at before the connection makes one.
    let log = fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    conn.busy_timeout(BUSY).map_err(sqlite)?;
    // The header in the file may be older than the one in the log.
    let found = version_of(&conn).map_err(sqlite)?;
    if let Err(newer) = refuse_newer(path, found, migrations) {
        // The last one to close writes the log back, and what is newer is left as it is.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(sqlite)?;
        return Err(newer);
    }
    let loss = loss::of_log(&conn, path).unwrap_or_else(|error| {
        tracing::warn!(%error, "whether the store's log is whole can't be seen");
        None
    });
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(sqlite)?;
    let application: i32 = conn
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .map_err(sqlite)?;
    if tables > 0 && application != APPLICATION {
        return Err(StoreError::Foreign {
            path: path.to_owned(),
        });
    }
    tune(&conn).map_err(sqlite)?;
    let size = fs::metadata(path).map_or(0, |file| file.len());
    let unchecked = log >= SHORT_LOG && size.saturating_add(log) <= CHECKED_WHOLE;
    let is_current = found as usize == migrations.len();
    if unchecked && !is_current {
        check_whole(&conn).map_err(sqlite)?;
    }
    migrate(&conn, path, migrations)?;
    Ok(Ready {
        conn,
        loss,
        unchecked: unchecked && is_current,
    })
}

fn tune(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    wrong!(
        "sync-rarely",
        conn.pragma_update(None, "synchronous", "NORMAL")?
    );
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    // In mapped pages an error of the disk, or a file that was cut, is a SIGBUS and no error
    // (SQLite, "Memory-Mapped I/O").
    conn.pragma_update(None, "mmap_size", 0)?;
    // In KiB: the store writes and forgets, so a small cache does.
    conn.pragma_update(None, "cache_size", -512)?;
    // The writer checkpoints when nobody waits.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    if cfg!(target_os = "macos") {
        // There `fsync` doesn't flush the drive.
        conn.pragma_update(None, "fullfsync", true)?;
        conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    }
    Ok(())
}

/// Makes a file of an older version, or an empty one, a file of this version.
///
/// A thread of its own does it, on a connection of its own: with both goes the memory that it took,
/// which a daemon would otherwise keep for ever (0.6 MB for an empty file).
fn migrate(conn: &Connection, path: &Path, migrations: &[&str]) -> Result<(), StoreError> {
    let sqlite = |source| StoreError::Sqlite {
        path: path.to_owned(),
        source,
    };
    if version_of(conn).map_err(sqlite)? as usize == migrations.len() {
        return Ok(());
    }
    let stepping = || {
        let mut conn = reopen(path).map_err(sqlite)?;
        // Rebuilding a table must not take what refers to it along, and inside the transaction it
        // is too late to say so.
        conn.pragma_update(None, "foreign_keys", false)
            .map_err(sqlite)?;
        step_up(&mut conn, path, migrations)
    };
    std::thread::scope(|scope| {
        let stepped = scope.spawn(stepping).join();
        stepped.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn step_up(conn: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), StoreError> {
    let sqlite = |source| StoreError::Sqlite {
        path: path.to_owned(),
        source,
    };
    let before = version_of(conn).map_err(sqlite)?;
    let last = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    if before == last {
        return Ok(());
    }
    let adds = |version| super::migrations::ADDED_TO.contains(&version);
    if before > 0 && !(before as usize + 1..=migrations.len()).all(adds) {
        // Before the transaction, as `VACUUM` can't be in one.
        let backup = free_name(path, &format!("backup-v{before}"));
        conn.execute("VACUUM INTO ?1", [backup.to_string_lossy()])
            .map_err(sqlite)?;
        fs::set_permissions(&backup, fs::Permissions::from_mode(0o600)).map_err(|source| {
            StoreError::Io {
                path: backup.clone(),
                source,
            }
        })?;
        tracing::info!(backup = %backup.display(), from = before, to = last, "migrating the store");
    }
    let step = conn
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(sqlite)?;
    // Another process may have been faster.
    let now = version_of(&step).map_err(sqlite)?;
    for migration in migrations.iter().skip(now as usize) {
        step.execute_batch(migration).map_err(sqlite)?;
    }
    step.pragma_update(None, "application_id", APPLICATION)
        .map_err(sqlite)?;
    // A newer program may have come further meanwhile.
    step.pragma_update(None, "user_version", last.max(now))
        .map_err(sqlite)?;
    failpoint!("before-commit-migration");
    step.commit().map_err(sqlite)?;
    failpoint!("after-commit-migration");
    Ok(())
}

fn check_whole(conn: &Connection) -> rusqlite::Result<()> {
    // Not `integrity_check`, which holds indexes against their tables and takes much longer:
    // somebody waits for this start, and `verify` does so soon after.
    let found: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    Err(damage::corrupt(found))
}

fn version_of(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn refuse_newer(path: &Path, found: u32, migrations: &[&str]) -> Result<(), StoreError> {
    if found as usize > migrations.len() {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found,
            known: migrations.len(),
        });
    }
    Ok(())
}

/// `user_version` as it stands in the file, so that a newer file isn't even opened.
pub(super) fn header_version(path: &Path) -> std::io::Result<u32> {
    let mut header = [0; 64];
    let mut file = open_file(path)?;
    match file.read_exact(&mut header) {
        Ok(()) if header.starts_with(b"SQLite format 3\0") => {
            let [.., a, b, c, d] = header;
            Ok(u32::from_be_bytes([a, b, c, d]))
        }
        // Empty or broken: SQLite will say which.
        Ok(()) => Ok(0),
        Err(short) if short.kind() == std::io::ErrorKind::UnexpectedEof => Ok(0),
        Err(error) => Err(error),
    }
}

/// Opens a file to read it. Nobody is waited for at the other end of a pipe in its place.
pub(super) fn open_file(path: &Path) -> std::io::Result<fs::File> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    expect_file(path, &file.metadata()?)?;
    Ok(file)
}

fn expect_file(path: &Path, found: &fs::Metadata) -> std::io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    let error = format!("`{}` is no file", path.display());
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, error))
}

/// Something else than a file there is an error; nothing there is none.
pub(super) fn refuse_others(path: &Path) -> std::io::Result<()> {
    fs::metadata(path).map_or(Ok(()), |found| expect_file(path, &found))
}

/// All of a small file.
pub(super) fn text_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open_file(path)?.read_to_end(&mut text)?;
    Ok(text)
}

/// SQLite gives the log and the index the mode of the database.
fn make_private(dir: &Path, path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)?;
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        // Nobody is waited for at the other end of a pipe.
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let found = file.metadata()?;
    expect_file(path, &found)?;
    if found.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

pub(super) fn is_corrupt(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

pub(super) fn move_aside(path: &Path, why: &str) -> std::io::Result<PathBuf> {
    let aside = free_name(path, why);
    rename_all(path, &aside)?;
    Ok(aside)
}

/// Another name for a store with its log.
pub(super) fn rename_all(path: &Path, to: &Path) -> std::io::Result<()> {
    // The database first: after a kill in between, the next start finds a log without it, and moves
    // that as well.
    for end in ["", "-wal", "-shm"] {
        match fs::rename(beside(path, end), beside(to, end)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _moved_or_missing => {}
        }
    }
    Ok(())
}

/// A name beside the file that says why and when: another one of this second may be there, of a
/// process that was killed over it.
pub(super) fn free_name(path: &Path, why: &str) -> PathBuf {
    let mut second = unix_seconds();
    loop {
        let name = beside(path, &format!(".{why}-{second}"));
        if !name.exists() {
            return name;
        }
        second += 1;
    }
}

/// Takes a file away, if it is there.
pub(super) fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _gone => Ok(()),
    }
}

/// What went wrong with a file, where SQLite's errors are told.
pub(super) fn io_error(error: std::io::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

/// The path with something appended to its name.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
