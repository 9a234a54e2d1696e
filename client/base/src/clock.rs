//! The clocks that programs tell each other: that of this boot, by which one process tells another
//! until when something holds, and the wall clock.
//!
//! Owns which clock that is: both have to read the same one. Must not know what holds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the machine was started, suspend included (on macOS `CLOCK_MONOTONIC` counts
/// it, too), whatever the wall clock is set to.
#[must_use]
pub fn boot_ms() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = nix::time::ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let now = clock.now().map(Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Milliseconds since 1970 by the wall clock; none before that.
#[must_use]
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
