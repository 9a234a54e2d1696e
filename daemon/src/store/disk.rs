//! How much room is left where the store lies, and a copy where there is more.
//!
//! Owns when that is so little that the log may not take it: what is in the log needs as much again
//! in the file before the log can begin anew.

use std::fs;
use std::io;
use std::path::Path;

use super::schema::{FILE, beside};

/// What belongs to a store that nobody has open, by the ends of the names.
const PARTS: [&str; 5] = ["", "-wal", ".epoch", ".mark", ".losses"];

/// Copies the store of a directory that nobody has open into another one.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (from.join(FILE), to.join(FILE));
    for part in PARTS {
        match fs::copy(beside(&from, part), beside(&to, part)) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied?),
        }
    }
    Ok(())
}

/// Beside a log and its copy in the file, so much is left to others.
const REST: u64 = 2 * 1024 * 1024;

/// Free bytes of the file system that `path` is on.
///
/// # Errors
///
/// What `statvfs` says.
pub(crate) fn free_bytes(path: &Path) -> nix::Result<u64> {
    let found = nix::sys::statvfs::statvfs(path)?;
    // Not what is free: some blocks are root's only (statvfs(3)).
    let bytes = u128::from(found.blocks_available()) * u128::from(found.fragment_size());
    Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Is there too little room for a log that is so long? Where that can't be known, there is not.
pub(super) fn is_tight(database: &Path, log: u64) -> bool {
    free_bytes(database).is_ok_and(|free| free < needed_beside(log))
}

/// So much has to be free for a log that is so long.
pub(super) const fn needed_beside(log: u64) -> u64 {
    2 * log + REST
}
