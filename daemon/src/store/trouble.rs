//! What a refusal of SQLite's means: no room, no writing, somebody else's lock.
//!
//! Owns the words for it and the search for who holds the lock. Must not know who reads them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use rusqlite::ErrorCode;

use super::StoreError;
use super::schema::beside;

/// Enough to need a block of the disk.
const PROBE: [u8; 4096] = [0; 4096];

/// The same error, told by what can be done about it.
///
/// The connection that failed must be closed: looking for the holder of a lock gives up this
/// process's own locks on the file.
pub(super) fn explained(error: StoreError) -> StoreError {
    let StoreError::Sqlite { path, source } = error else {
        return error;
    };
    let io = |path, errno: Errno| StoreError::Io {
        path,
        source: errno.into(),
    };
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => io(path, Errno::ENOSPC),
        Some(ErrorCode::ReadOnly) => io(path, Errno::EROFS),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Locked {
            holder: holder(&path),
            path,
        },
        // SQLite doesn't say why it could not make the log beside the file.
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => match probe(&path) {
            Err(source) => StoreError::Io { path, source },
            // With the connection its descriptors went, too.
            Ok(()) => match few_files() {
                Some(source) => StoreError::Io { path, source },
                None => StoreError::Sqlite { path, source },
            },
        },
        _ => StoreError::Sqlite { path, source },
    }
}

/// Did a lock of another process refuse it?
pub(super) fn is_locked(error: &StoreError) -> bool {
    matches!(error, StoreError::Sqlite { source, .. } if matches!(
        source.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    ))
}

/// Is there no room on the disk?
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Why an open store can't be written, for a person.
pub(super) fn words(path: &Path, error: &rusqlite::Error) -> String {
    let shown = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => format!("there is no room on the disk of `{shown}`"),
        Some(ErrorCode::ReadOnly) => format!("`{shown}` can only be read"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("another process keeps `{shown}` locked")
        }
        _ => error.to_string(),
    }
}

/// Is it about what some rows hold, and not about the file?
pub(super) fn is_of_rows(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        None | Some(
            ErrorCode::Unknown
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::TooBig
        )
    )
}

/// A database, its log, its index and one more of each that reads beside: that many descriptors have
/// to be left.
const NEEDED: u64 = 8;

/// What refuses a file when hardly any more may be open.
fn few_files() -> Option<io::Error> {
    let (limit, _hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let open = fs::read_dir("/dev/fd").map_or(limit, |open| open.count() as u64);
    let why = format!(
        "this process may have {limit} files open at once, and needs more; hint: raise the limit \
         (`ulimit -n`, or `LimitNOFILE` of a service)"
    );
    (open + NEEDED > limit).then(|| io::Error::other(why))
}

/// Can a file be made and filled beside the store?
fn probe(path: &Path) -> io::Result<()> {
    let probe = beside(path, &format!(".probe-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).open(&probe);
    let filled = made.and_then(|mut file| file.write_all(&PROBE));
    // If it was never made there is nothing to remove.
    let _gone = fs::remove_file(&probe);
    filled
}

/// Which process has a lock on the file or on its index.
fn holder(path: &Path) -> Option<u32> {
    [path.to_owned(), beside(path, "-shm")]
        .iter()
        .find_map(|file| {
            let file = File::open(file).ok()?;
            let mut lock = libc::flock {
                l_type: libc::F_WRLCK as libc::c_short,
                l_whence: libc::SEEK_SET as libc::c_short,
                l_start: 0,
                l_len: 0,
                l_pid: 0,
            };
            // Locks as SQLite takes them are seen by no other call; this one takes none (fcntl(2)).
            fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
            let is_held = lock.l_type != libc::F_UNLCK as libc::c_short;
            // Of a process that can't be seen from here the number is 0.
            u32::try_from(lock.l_pid)
                .ok()
                .filter(|pid| is_held && *pid > 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;
    use std::path::PathBuf;

    fn refused(path: &Path, code: i32) -> StoreError {
        explained(StoreError::Sqlite {
            path: path.to_owned(),
            source: rusqlite::Error::SqliteFailure(ffi::Error::new(code), None),
        })
    }

    #[test]
    fn trouble_says_what_can_be_done() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentd.db");
        let kind = |code| match refused(&path, code) {
            StoreError::Io { source, .. } => Some(source.kind()),
            _ => None,
        };
        assert_eq!(kind(ffi::SQLITE_FULL), Some(io::ErrorKind::StorageFull));
        assert_eq!(
            kind(ffi::SQLITE_READONLY),
            Some(io::ErrorKind::ReadOnlyFilesystem)
        );
        // Here a file can be made, so that was not it.
        assert_eq!(kind(ffi::SQLITE_CANTOPEN), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let nowhere = PathBuf::from("/nowhere/agentd.db");
        let error = refused(&nowhere, ffi::SQLITE_CANTOPEN);
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
    }

    #[test]
    fn trouble_names_nobody_without_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentd.db");
        fs::write(&path, "").unwrap();
        let error = refused(&path, ffi::SQLITE_BUSY).to_string();
        assert!(
            error.contains("by another process") && error.contains("fuser"),
            "{error}"
        );
    }
}
