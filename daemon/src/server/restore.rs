//! A backup in the place of the store, while nobody uses it.
//!
//! Owns that nobody else has the store meanwhile. Must not know what a backup is, nor who asked.

use std::path::Path;

use crate::platform::instance;
use crate::platform::lock::{Lock, LockError};
use crate::platform::paths::{self, Paths};
use crate::store;
pub use crate::store::Restored;

/// Why the store stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Somebody uses it.
    #[error("{0}")]
    Held(String),
    /// The store or the backup can't be used.
    #[error("{0}")]
    Failed(String),
}

/// Puts a copy of the backup at `from` there.
///
/// # Errors
/// Says who has the store, or what else is in the way.
pub fn restore(paths: &Paths, from: &Path) -> Result<Restored, RestoreError> {
    let state = &paths.state;
    paths::private_dir(state).map_err(failed)?;
    // Held to the end: no daemon starts meanwhile.
    let _lock = match Lock::take(&state.join("daemon.lock"), &paths.socket) {
        Ok(lock) => lock,
        Err(LockError::Held { pid, .. }) => {
            return Err(RestoreError::Held(format!(
                "a daemon (pid {pid}) has the store open; hint: `agentctl stop` ends it, or \
                 `agentctl service stop` its service"
            )));
        }
        Err(error) => return Err(failed(error)),
    };
    let is_alive = |id: &String| instance::liveness(state, id) != instance::Life::Dead;
    let unseen = |error| failed(format!("the instances of agentd can't be listed: {error}"));
    let instances = instance::instances(state).map_err(unseen)?;
    if instances.iter().any(is_alive) {
        let why = "a run without the daemon has the store open; hint: wait for its end";
        return Err(RestoreError::Held(why.to_owned()));
    }
    store::restore(state, from).map_err(failed)
}

fn failed(why: impl ToString) -> RestoreError {
    RestoreError::Failed(why.to_string())
}
