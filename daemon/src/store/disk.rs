//! How much room is left where the store lies.
//!
//! Owns when that is so little that the log may not take it: what is in the log needs as much again
//! in the file before the log can begin anew.

use std::path::Path;

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
    free_bytes(database).is_ok_and(|free| free < 2 * log + REST)
}
