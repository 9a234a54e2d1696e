//! How long something has waited, whatever was done to the clock meanwhile.
//!
//! Owns the clock that nobody sets, and when it may be asked: within one run of the machine. A
//! machine without a battery says everything in 1970 until it has asked the network for the time.
//! Must not know what waits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use agentd_base::clock::{boot_ms, wall_ms};

/// A moment in the run of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moment {
    /// Which run.
    boot: String,
    /// Milliseconds since its begin, those included for which the machine slept.
    ms: u64,
}

impl Moment {
    /// This one; none where the system doesn't tell runs apart.
    #[must_use]
    pub fn now() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self {
            boot: boot.trim().to_owned(),
            ms: boot_ms(),
        })
    }

    /// The time from here to there, if it was one run.
    fn until(&self, later: &Self) -> Option<Duration> {
        let passed = || Duration::from_millis(later.ms.saturating_sub(self.ms));
        (self.boot == later.boot).then(passed)
    }
}

/// How long it has been since then: by the run of the machine, else by the wall clock, on which
/// what is said to be in the future is new.
#[must_use]
pub fn since(moment: Option<&Moment>, said_at: i64) -> Duration {
    let now = Moment::now();
    let in_one_run = moment
        .zip(now.as_ref())
        .and_then(|(then, now)| then.until(now));
    let by_wall = || u64::try_from(wall_ms().saturating_sub(said_at)).unwrap_or(0);
    in_one_run.unwrap_or_else(|| Duration::from_millis(by_wall()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_was_set_says_nothing_within_runs() {
        let Some(now) = Moment::now() else {
            return;
        };
        let minute = Duration::from_secs(60);
        assert!(since(Some(&now), 0) < minute, "said in 1970");
        let ahead = wall_ms() + 86_400_000;
        let then = Moment {
            ms: now.ms.saturating_sub(90_000),
            ..now.clone()
        };
        assert!(since(Some(&then), ahead) >= minute, "said tomorrow");
        let before = Moment {
            boot: "another".to_owned(),
            ..now
        };
        assert!(since(Some(&before), 0) > minute);
        assert_eq!(since(None, ahead), Duration::ZERO);
    }
}
