//! What `status` says of spares and of the configuration.
//!
//! Owns these lines; a line that isn't there is nothing. Must not know the others.

use agentd_protocol::line::StatusAnswer;

use super::{safe, size};

/// Spares that nobody configured, with a newline before them.
pub(super) fn spares(answer: &StatusAnswer) -> String {
    let Some(spares) = &answer.spares else {
        return String::new();
    };
    let (some, memory) = (spares.processes, spares.memory);
    match &spares.held {
        None if some == 0 => String::new(),
        None => format!(
            "\nspares   {some}, {} of {}",
            size(memory.bytes),
            size(memory.limit)
        ),
        Some(why) => format!("\nspares   {some}; {}", safe(why)),
    }
}

/// Which configuration counts, where that isn't simply the newest, with a newline before it.
pub(super) fn config(answer: &StatusAnswer) -> String {
    let Some(config) = &answer.daemon.config else {
        return String::new();
    };
    let since = safe(&config.since);
    let mut shown = format!("\nconfig   as read at {since}");
    if let Some(why) = &config.refused {
        shown.push_str(&format!("; the newest does not count: {}", safe(why)));
    }
    if !config.needs_restart.is_empty() {
        let keys = config.needs_restart.join("`, `");
        shown.push_str(&format!("; `{}` needs a restart", safe(&keys)));
    }
    shown
}
