//! The clock of this boot, by which one process tells another until when something holds.
//!
//! Owns which clock that is: both have to read the same one, whatever the wall clock is set to. Must
//! not know what holds.

use std::time::Duration;

/// Milliseconds since the machine was started, suspend included (on macOS `CLOCK_MONOTONIC` counts
/// it, too).
#[must_use]
pub fn boot_ms() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = nix::time::ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let now = clock.now().map(Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
