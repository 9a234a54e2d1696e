//! What several threads share.
//!
//! Owns what is taken for what a thread left that panicked: each of our values is whole between two
//! statements. Must not know what is shared.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value, while nobody else has it.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
