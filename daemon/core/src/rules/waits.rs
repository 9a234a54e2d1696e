//! When the time of a turn that waits comes: to start, if it has one, and then to be over.
//!
//! Owns the order of these times, by the clock of this boot, as suspend counts as waiting. They
//! themselves stand in the jobs: a hundred thousand turns may wait. Must not know what happens then.

use std::time::Duration;

use crate::ids::TurnId;
use crate::jobs::job::Job;
use crate::state::State;

/// When something happens to a turn because it waits, in milliseconds since the boot.
const fn comes(job: &Job) -> u64 {
    match job.start {
        Some(start) => start,
        None => job.expires,
    }
}

impl State {
    /// An accepted turn waits from now on. Until then its commit is outstanding, and its time is
    /// looked at when that is answered.
    pub(crate) fn waits(&mut self, turn: TurnId) {
        if let Some(job) = self.jobs.get(&turn) {
            self.times.insert((comes(job), turn));
        }
    }

    /// It waits no more, or another time counts: before that is changed.
    pub(crate) fn waits_no_more(&mut self, turn: TurnId) {
        if let Some(job) = self.jobs.get(&turn) {
            self.times.remove(&(comes(job), turn));
        }
    }

    /// When `Ticked` is to be sent next on the clock that counts suspend, since the machine was
    /// started.
    #[must_use]
    pub fn next_boot_deadline(&self) -> Option<Duration> {
        let (comes, _) = self.times.first()?;
        Some(Duration::from_millis(*comes))
    }

    /// Deals with every turn whose time has come; was there any?
    pub(crate) fn ring_those_who_wait(&mut self) -> bool {
        let now = self.now.boot_ms;
        let mut due = Vec::new();
        while let Some((_, turn)) = self.times.first().filter(|(comes, _)| *comes <= now) {
            due.push(*turn);
            self.times.pop_first();
        }
        for turn in &due {
            if self.jobs.get(turn).is_some_and(|job| job.start.is_some()) {
                self.start_time_came(*turn);
            } else {
                self.expire(*turn);
            }
        }
        !due.is_empty()
    }
}
