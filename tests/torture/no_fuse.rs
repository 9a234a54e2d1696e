//! Where there is no FUSE: nothing hangs.
//!
//! Owns the names of `tests/fuse.rs`, so that a run is the same without it. Must not know why.

use std::path::Path;

/// See `tests/fuse.rs`.
pub(crate) const ACCESS: u32 = 34;
/// See `tests/fuse.rs`.
pub(crate) const ANYTHING: u32 = u32::MAX;

/// There is none.
pub(crate) enum FileSystem {}

impl FileSystem {
    pub(crate) fn new() -> Option<Self> {
        None
    }

    pub(crate) fn ignore(&self, _what: u32) {
        match *self {}
    }

    pub(crate) fn path(&self, _name: &str) -> String {
        match *self {}
    }
}

/// Nothing is mounted.
pub(crate) fn mount(_what: &str, _at: &Path, _kind: &str, _options: &str, _flags: u64) -> bool {
    false
}

/// There are no mounts of our own.
pub(crate) fn alone() -> bool {
    false
}
