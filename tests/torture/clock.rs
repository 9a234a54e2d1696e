//! The wall clock of the daemons of a run, which jumps.
//!
//! Owns the file that `clock.c` reads. Must not know when it jumps, nor how far.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The source of the library, which is preloaded into the daemon.
pub(crate) const SOURCE: &str = include_str!("clock.c");

/// A clock that can be set.
pub(crate) struct Clock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl Clock {
    /// One that is right.
    pub(crate) fn new(library: &Path, path: PathBuf) -> Self {
        let file = File::create(&path).expect("a file");
        let clock = Self {
            library: library.to_owned(),
            path,
            file,
        };
        clock.jump(0);
        clock
    }

    /// From now on it is so many seconds ahead.
    pub(crate) fn jump(&self, seconds: i64) {
        self.file
            .write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("eight bytes");
    }

    /// What a daemon is started with, besides other libraries that are preloaded.
    pub(crate) fn variables(&self, preloaded: Option<&OsString>) -> Vec<(&'static str, OsString)> {
        let mut libraries = preloaded.cloned().unwrap_or_default();
        if !libraries.is_empty() {
            libraries.push(":");
        }
        libraries.push(&self.library);
        vec![
            ("LD_PRELOAD", libraries),
            ("CLOCK_JUMP", self.path.clone().into()),
        ]
    }
}
