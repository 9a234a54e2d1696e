//! What `status` says of spares and of the configuration.
//!
//! Owns these facts; one that isn't there is nothing. Must not know the others.

use std::fmt::Write as _;

use agentd_protocol::line::StatusAnswer;

use super::{safe, size};

/// Spares that nobody configured.
pub(super) fn spares(answer: &StatusAnswer) -> Option<String> {
    let spares = answer.spares.as_ref()?;
    let (some, memory) = (spares.processes, spares.memory);
    match &spares.held {
        None if some == 0 => None,
        None => Some(format!(
            "{some}, {} of {}",
            size(memory.bytes),
            size(memory.limit)
        )),
        Some(why) => Some(format!("{some}; {}", safe(why))),
    }
}

/// Which configuration counts, where that isn't simply the newest.
pub(super) fn config(answer: &StatusAnswer) -> Option<String> {
    let config = answer.daemon.config.as_ref()?;
    let mut shown = format!("as read at {}", safe(&config.since));
    if let Some(why) = &config.refused {
        let _infallible = write!(shown, "; the newest does not count: {}", safe(why));
    }
    if !config.needs_restart.is_empty() {
        let keys = config.needs_restart.join("`, `");
        let _infallible = write!(shown, "; `{}` needs a restart", safe(&keys));
    }
    Some(shown)
}
