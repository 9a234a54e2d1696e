//! The service manager, if one started us: what it is told, and how often.
//!
//! Owns the words to `NOTIFY_SOCKET` and the beat of `WATCHDOG_USEC`. Must not know what is told.
//! Without a service manager all of it does nothing.

use std::path::Path;
use std::time::Duration;

use sd_notify::NotifyState;

/// So many beats fit into the time that the service manager allows between two: one may be late.
const BEATS: u32 = 3;
/// A stop that goes on asks for so much more time with each beat.
const MORE_TIME: Duration = Duration::from_secs(45);
/// Who waits in the socket's queue has the next one started at once, and too many starts end the
/// service for good: twenty of the socket in 2 s, thirty of the service in a minute.
const PAUSE: Duration = Duration::from_secs(3);
/// A service's status is one line on a screen.
const LONGEST_STATUS: usize = 300;

/// How often to beat; nobody listens for it when `None`.
#[must_use]
pub fn beat_every() -> Option<Duration> {
    let within = sd_notify::watchdog_enabled()?;
    Some(within / BEATS).filter(|every| !every.is_zero())
}

/// Serving.
pub fn ready(socket: &Path) {
    let status = format!("serving {}", socket.display());
    tell(&[NotifyState::Ready, NotifyState::Status(shown(&status))]);
}

/// Going down.
pub fn stopping() {
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("stopping: no new turns, running ones may end"),
    ]);
}

/// Alive. Blocks while the service manager reads nothing.
pub fn beat(status: &str, is_stopping: bool) {
    let mut said = vec![NotifyState::Watchdog];
    if is_stopping {
        let micros = u32::try_from(MORE_TIME.as_micros()).unwrap_or(u32::MAX);
        said.push(NotifyState::ExtendTimeoutUsec(micros));
    } else {
        said.push(NotifyState::Status(shown(status)));
    }
    tell(&said);
}

/// Keeps a service that can't be up yet from being started again and again: with room on the disk,
/// or the configuration mended, the next start succeeds.
pub fn pause_before_the_next() {
    if std::env::var_os("LISTEN_FDS").is_some() && std::env::var_os("NOTIFY_SOCKET").is_some() {
        tell(&[NotifyState::Status(
            "can't serve; tried again for whoever connects",
        )]);
        std::thread::park_timeout(PAUSE);
    }
}

/// The first line, as far as it is shown.
fn shown(status: &str) -> &str {
    let line = status.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST_STATUS) {
        Some((end, _)) => line.get(..end).unwrap_or(line),
        None => line,
    }
}

fn tell(said: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(said) {
        tracing::warn!(%error, "the service manager can't be told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line_of_bounded_length() {
        assert_eq!(shown("one\nREADY=1"), "one");
        assert_eq!(shown(&"ä".repeat(400)).chars().count(), LONGEST_STATUS);
        assert_eq!(shown(""), "");
    }
}
