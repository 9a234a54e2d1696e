//! Processes that are started beside a living one of their agent.
//!
//! Owns when one more is tried, and that nobody's turn ends because it did not come up: what lives
//! takes them in time. A program may allow one instance only, or its machine no further one.

use std::time::Duration;

use crate::agent::Agent;
use crate::backoff::mix;
use crate::ids::WorkerId;
use crate::session::SessionId;
use crate::slot::{Fit, Slot};
use crate::state::State;

impl State {
    /// Is there a process that will take a turn, though it may have no room just now?
    pub(crate) fn lives_for(&self, agent: &Agent, fit: &Fit, own: bool) -> bool {
        !own && self
            .slots
            .values()
            .any(|slot| self.will_take(slot, &agent.name, fit))
    }

    /// Does one live that will take what this one was started for?
    pub(crate) fn lives_beside(&self, worker: WorkerId) -> bool {
        let Some(of) = self.slots.get(&worker) else {
            return false;
        };
        let mut others = self.slots.iter().filter(|(other, _)| **other != worker);
        of.resuming.is_none() && others.any(|(_, slot)| self.will_take(slot, &of.agent, &of.fit))
    }

    fn will_take(&self, slot: &Slot, agent: &str, fit: &Fit) -> bool {
        let named = |session: &SessionId| self.sessions.get(session).is_some_and(|one| one.named);
        // Sessions that nobody named leave their process with their last turn.
        let gets_free = slot.describe.recycles && !slot.sessions.iter().any(named);
        slot.agent == agent
            && slot.phase.ready_since().is_some()
            && !slot.is_one_turn()
            && slot.takes_turns()
            && (!slot.one_session || gets_free)
            && slot.serves(fit)
    }

    /// Until when no further process of an agent is started, as the last ones did not come up.
    pub(crate) fn no_further_before(&self, agent: &str) -> Option<Duration> {
        let jitter = mix(self.settings.seed);
        self.further.get(agent)?.held_until(self.now.mono, jitter)
    }

    /// One more is started now.
    pub(crate) fn tries_further(&mut self, agent: &Agent, fit: &Fit, own: bool) {
        let now = self.now.mono;
        if self.lives_for(agent, fit, own)
            && let Some(health) = self.further.get_mut(&agent.name)
        {
            // A breaker that has been open for long enough lets one through.
            health.broken(now);
        }
    }

    /// A further process came up.
    pub(crate) fn further_is_ready(&mut self, worker: WorkerId) {
        if self.lives_beside(worker)
            && let Some(slot) = self.slots.get(&worker)
        {
            self.further.remove(&slot.agent);
        }
    }

    /// It did not: whoever waited for it waits for those that live.
    pub(crate) fn leave_further(&mut self, worker: WorkerId) {
        let Some(slot) = self.slots.get(&worker) else {
            return;
        };
        for session in slot.sessions.clone() {
            self.unbind(worker, session);
        }
    }
}
