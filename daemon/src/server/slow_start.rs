//! A start that takes long: whoever reads the log learns what it waits for.
//!
//! Owns the thread that looks at the time, as the one that starts may hang in the disk. Must not know
//! what a start does.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// A start that takes longer is told of.
const TOLD_AFTER: Duration = Duration::from_secs(10);

/// The start goes on until this is dropped.
pub(super) struct Starting {
    _over: SyncSender<()>,
}

/// From now on.
pub(super) fn watch(state: &Path) -> Starting {
    let (over, told) = sync_channel(1);
    let state = state.to_owned();
    let watching = std::thread::Builder::new().spawn(move || {
        if told.recv_timeout(TOLD_AFTER) == Err(RecvTimeoutError::Timeout) {
            let (within, state) = (TOLD_AFTER.as_secs(), state.display());
            tracing::warn!(
                "still starting after {within} s: the store in `{state}` is large, another process \
                 keeps it locked, or its disk hangs"
            );
        }
    });
    if let Err(error) = watching {
        tracing::debug!(%error, "nobody tells of a start that takes long");
    }
    Starting { _over: over }
}
