//! Sessions that outlive the chaos worker: one file each.
//!
//! Owns their ids and what is in the files. Must not know scripts.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

/// The directory that `--resumes` names.
#[derive(Debug)]
pub(crate) struct Memory(pub(crate) PathBuf);

impl Memory {
    /// Opens the session of that id, or makes one: its id, and its turns with this one. `None`
    /// when there is no such session.
    pub(crate) fn turn(&self, native: Option<&str>) -> Option<(String, u64)> {
        let native = native.map_or_else(|| self.free(), str::to_owned);
        let mut file = OpenOptions::new()
            .append(true)
            .open(self.0.join(&native))
            .ok()?;
        file.write_all(b".").and_then(|()| file.sync_all()).ok()?;
        Some((native, file.metadata().ok()?.len()))
    }

    fn free(&self) -> String {
        (1..)
            .map(|number| format!("native-{number}"))
            .find(|name| File::create_new(self.0.join(name)).is_ok())
            .unwrap_or_default()
    }
}
