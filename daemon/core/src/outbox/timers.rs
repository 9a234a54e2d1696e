//! The deadlines of the core: each timer has at most one.
//!
//! Owns their order. Must not know what happens when one passes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::{QuestionId, SessionId, TurnId, WorkerId};

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// A question has waited too long. Before `Running`, as the turn's deadline ends it, too.
    Question(QuestionId),
    /// A turn has run too long.
    Running(TurnId),
    /// A cancelled turn has not settled.
    Settling(TurnId),
    /// A turn may have made no progress for long.
    Stalled(TurnId),
    /// A turn's text is to be committed.
    Flush(TurnId),
    /// A slot's current phase has a deadline.
    Slot(WorkerId),
    /// A slot may have been idle for long.
    Idle(WorkerId),
    /// A process of many sessions may hold one that nobody uses.
    Unused(SessionId),
    /// A process that takes no new turns must go.
    Retire(WorkerId),
    /// Spawns held back by the spawn rate may go on.
    SpawnRate,
    /// More turns are to be looked at than one event had room for.
    Schedule,
    /// What turns wait for has a time: they are looked at again.
    Look,
    /// Which agents there are is looked for again.
    Agents,
    /// A spare process may be started, although a turn goes on.
    Spare,
    /// The machine is looked at again, as there are spares or should be.
    Machine,
    /// A broken agent or session may be probed.
    Breaker,
    /// A `collect` looks again at jobs of other instances.
    Recheck(u64),
    /// A `collect` has waited long enough.
    Collect(u64),
    /// The store has been in trouble for so long that nobody should wait for it any more.
    Doubt,
    /// An agent shortens its memory for too long.
    Compact(WorkerId),
    /// `models` has waited long enough.
    Models(u64),
    /// `drain` has waited long enough.
    Drain,
    /// Whoever was let in had time: the stop begins.
    Leave,
    /// The daemon must stop now.
    Stop,
    /// More of those that end together may end.
    Slice,
    /// A turn of which the store could not take something is ended.
    Unfinished(TurnId),
}

/// A set of deadlines.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Timers {
    at: BTreeMap<Timer, Duration>,
    order: BTreeSet<(Duration, Timer)>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Duration) {
        // A timer has one place in the order: the old one would ring, too.
        if let Some(old) = self.at.insert(timer, at) {
            self.order.remove(&(old, timer));
        }
        self.order.insert((at, timer));
    }

    /// Sets a timer that isn't set yet.
    pub(crate) fn set_if_unset(&mut self, timer: Timer, at: Duration) {
        if !self.is_set(timer) {
            self.set(timer, at);
        }
    }

    /// Sets a timer that isn't set, or for later.
    pub(crate) fn set_no_later(&mut self, timer: Timer, at: Duration) {
        if self.at.get(&timer).is_none_or(|set| *set > at) {
            self.set(timer, at);
        }
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        if let Some(old) = self.at.remove(&timer) {
            self.order.remove(&(old, timer));
        }
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.at.contains_key(&timer)
    }

    pub(crate) fn next(&self) -> Option<Duration> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the first timer that is due.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<Timer> {
        let (at, timer) = *self.order.first().filter(|(at, _)| *at <= now)?;
        self.order.remove(&(at, timer));
        self.at.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_set_again_fires_at_its_last_time() {
        let s = Duration::from_secs;
        let mut timers = Timers::default();
        timers.set(Timer::Stop, s(1));
        timers.set(Timer::Stop, s(3));
        timers.set(Timer::Drain, s(2));
        assert_eq!(timers.next(), Some(s(2)));
        assert_eq!(timers.pop(s(1)), None);
        assert_eq!(timers.pop(s(9)), Some(Timer::Drain));
        assert_eq!(timers.pop(s(9)), Some(Timer::Stop));
        assert_eq!(timers.pop(s(9)), None);
    }
}
