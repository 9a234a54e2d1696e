//! A backup in the place of the store, while nobody uses it.
//!
//! Owns that nobody else has the store meanwhile. Must not know what a backup is, nor who asked.

use std::io;
use std::path::Path;

use crate::platform::instance;
use crate::platform::lock::{Lock, LockError};
use crate::platform::paths::{self, PathError, Paths};
use crate::store;
pub use crate::store::Restored;

/// Why the store stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A daemon has it.
    #[error(
        "a daemon (pid {pid}) has the store open; hint: `agentctl stop` ends it, or `agentctl \
         service stop` its service"
    )]
    Daemon {
        /// Its process.
        pid: u32,
    },
    /// A run without a daemon has it.
    #[error("a run without the daemon has the store open; hint: wait for its end")]
    OneShot,
    /// The state directory can't be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Who has it can't be seen.
    #[error("the instances of agentd can't be listed: {0}")]
    Instances(#[source] io::Error),
    /// It can't be locked.
    #[error(transparent)]
    Lock(LockError),
    /// The backup can't be used, or can't be put there.
    #[error("{0}")]
    Backup(String),
}

/// Puts a copy of the backup at `from` there.
///
/// # Errors
/// Says who has the store, or what else is in the way.
pub fn restore(paths: &Paths, from: &Path) -> Result<Restored, RestoreError> {
    let state = &paths.state;
    paths::private_dir(state)?;
    // Held to the end: no daemon starts meanwhile.
    let _lock = match Lock::take(&state.join("daemon.lock"), &paths.socket) {
        Ok(lock) => lock,
        Err(LockError::Held { pid, .. }) => return Err(RestoreError::Daemon { pid }),
        Err(error) => return Err(RestoreError::Lock(error)),
    };
    let is_alive = |id: &String| instance::liveness(state, id) != instance::Life::Dead;
    let instances = instance::instances(state).map_err(RestoreError::Instances)?;
    if instances.iter().any(is_alive) {
        return Err(RestoreError::OneShot);
    }
    store::restore(state, from).map_err(RestoreError::Backup)
}
