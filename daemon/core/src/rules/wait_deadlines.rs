//! When the time of a turn that waits comes: to start, if it has one, and then to be over.
//!
//! Owns what is asked of the shell's clock. The times and their order are the jobs'. Must not know what
//! happens then.

use std::time::Duration;

use crate::state::State;

impl State {
    /// When `Ticked` is to be sent next on the clock that counts suspend, since the machine was
    /// started.
    #[must_use]
    pub fn next_boot_deadline(&self) -> Option<Duration> {
        self.jobs.next_time().map(Duration::from_millis)
    }

    /// Deals with every turn whose time has come; was there any?
    pub(crate) fn ring_those_who_wait(&mut self) -> bool {
        let due = self.jobs.take_due(self.now.boot_ms);
        for turn in &due {
            // Its time to start comes first; from then on the time to wait is the next one.
            if self.jobs.get(turn).is_some_and(|job| job.start.is_some()) {
                self.start_time_came(*turn);
            } else {
                self.expire(*turn);
            }
        }
        !due.is_empty()
    }
}
