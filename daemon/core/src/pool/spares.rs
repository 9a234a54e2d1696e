//! What is known for the spare processes of one agent, and of the machine that they are on.
//!
//! Owns where it was used last, and what came of its spares. When one is started is in
//! `rules/spare.rs`.

use std::time::Duration;

use crate::limits::{MACHINE_EVERY, MACHINE_HOLDS, SPARE_AGAIN, SPARE_AGAIN_MOST};
use crate::machine::Machine;
use crate::pool::fit::Fit;

/// What is known for the spares of one agent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Spares {
    /// Since when there are fewer than there should be.
    pub(crate) missing: Option<Duration>,
    /// What the process had that served a turn last: it got ready, so spares with it will.
    pub(crate) last: Option<Fit>,
    /// None are started before: the default directory was not there, or they die.
    pub(crate) not_before: Option<Duration>,
    /// When a turn began or ended last.
    pub(crate) used_at: Option<Duration>,
    /// What a process of it took when it was measured last, in bytes.
    pub(crate) bytes: Option<u64>,
    /// How many died one after the other before anybody used them.
    pub(crate) deaths: u32,
    /// Did its last turn fail for want of a login? Whoever gives one wants no process from before that.
    pub(crate) locked_out: bool,
}

impl Spares {
    /// One died before anybody used it: the next one has time.
    pub(crate) fn died(&mut self, now: Duration) {
        let wait = SPARE_AGAIN * 2_u32.saturating_pow(self.deaths.min(16));
        self.deaths = self.deaths.saturating_add(1);
        self.not_before = Some(now + wait.min(SPARE_AGAIN_MOST));
    }

    /// What was held against them counts no more.
    pub(crate) const fn forgive(&mut self) {
        self.deaths = 0;
        self.not_before = None;
    }
}

/// The last look at the machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct MachineLook {
    at: Option<Duration>,
    outstanding: bool,
    seen: Machine,
}

impl MachineLook {
    /// What was seen, if that still says something.
    pub(crate) fn fresh(&self, now: Duration) -> Option<&Machine> {
        let at = self.at?;
        (now.saturating_sub(at) < MACHINE_HOLDS).then_some(&self.seen)
    }

    /// What was seen last.
    pub(crate) fn last(&self) -> Option<&Machine> {
        self.at.map(|_| &self.seen)
    }

    /// When it is to be looked at again.
    pub(crate) fn next(&self) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at + MACHINE_EVERY)
    }

    /// A look is to be taken; is none on its way?
    pub(crate) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.outstanding, true)
    }

    pub(crate) fn end(&mut self, now: Duration, seen: Machine) {
        *self = Self {
            at: Some(now),
            outstanding: false,
            seen,
        };
    }
}
