//! A copy of a store where it can be written, for whoever reads what is stored where it can't.
//!
//! Owns where the copy lies, and that it goes. Must not know who reads, nor what.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::store;

/// A disk in memory, where the usual place for temporary files is as full as the state's.
const IN_MEMORY: &str = "/dev/shm";

/// The directory with the copy, which goes with this.
pub(super) struct Copied {
    dir: PathBuf,
}

impl Copied {
    /// Copies the store of this directory. Nobody writes it meanwhile: nobody can.
    ///
    /// # Errors
    /// Why there is no room for it anywhere.
    pub(super) fn of(state: &Path) -> io::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = [Some(std::env::temp_dir()), runtime, Some(IN_MEMORY.into())];
        let mut first = None;
        for place in places.into_iter().flatten() {
            match Self::within(&place, state) {
                Ok(copied) => return Ok(copied),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    fn within(place: &Path, state: &Path) -> io::Result<Self> {
        let dir = place.join(format!("agentd-past-{}", std::process::id()));
        // One that is there is somebody else's.
        DirBuilder::new().mode(0o700).create(&dir)?;
        let copied = Self { dir };
        store::copy(state, &copied.dir)?;
        Ok(copied)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // What stays lies in a directory for such things.
        let _stays = fs::remove_dir_all(&self.dir);
    }
}
