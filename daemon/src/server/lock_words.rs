//! What the lock file says the daemon does, written beside the owner.
//!
//! Owns the order of its words. Must not know why it does it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::platform::lock::{Doing, Lock};

/// What the lock file is to say, and who writes it: beside the owner, as the disk may be slow.
#[derive(Clone, Debug)]
pub(super) struct Says {
    lock: Arc<Mutex<Lock>>,
    doing: Arc<Mutex<Doing>>,
}

impl Says {
    pub(super) fn new(lock: Lock) -> Self {
        Self {
            lock: Arc::new(Mutex::new(lock)),
            doing: Arc::new(Mutex::new(Doing::Starting)),
        }
    }

    /// What is waited for hangs up when it is written.
    pub(super) fn say(&self, doing: Doing) -> std::sync::mpsc::Receiver<()> {
        fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
            mutex.lock().unwrap_or_else(PoisonError::into_inner)
        }
        *locked(&self.doing) = doing;
        let says = self.clone();
        let (written, waits) = std::sync::mpsc::sync_channel(1);
        tokio::task::spawn_blocking(move || {
            let mut lock = locked(&says.lock);
            // The last word counts, whoever comes first.
            let doing = *locked(&says.doing);
            if let Err(error) = lock.say(doing) {
                tracing::warn!(%error, ?doing, "the lock file does not say what the daemon does");
            }
            drop(written);
        });
        waits
    }
}
