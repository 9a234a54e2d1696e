//! Processes that are started beside another one of their agent, which lives or is about to leave.
//!
//! Owns when one more is tried, and that nobody's turn ends because it did not come up: what lives
//! takes them in time, or they wait until it is gone. A program may allow one instance only, or its
//! machine no other one.

use std::time::Duration;

use crate::agent::{Agent, Sessions};
use crate::health::mix;
use crate::ids::{SessionId, WorkerId};
use crate::pool::fit::Fit;
use crate::pool::slot::Slot;
use crate::state::State;

impl State {
    /// Is there a process that will take a turn, though it may have no room just now?
    pub(crate) fn lives_for(&self, agent: &Agent, fit: &Fit, own: bool) -> bool {
        !own && self
            .pool
            .slots()
            .any(|slot| self.will_take(slot, &agent.name, fit))
    }

    /// Has an agent another process, which may be why one with this fit does not come up? It takes
    /// the turn, or is gone in time: it leaves already, or holds nothing that would be lost with it.
    pub(crate) fn has_another(&self, agent: &str, fit: &Fit, than: Option<WorkerId>) -> bool {
        self.pool.iter().any(|(worker, slot)| {
            let is_ready = slot.phase.ready_since().is_some();
            let is_shared = slot.describe.sessions == Sessions::Many;
            Some(worker) != than
                && slot.agent == agent
                && !slot.is_one_turn()
                && (slot.phase.is_stopping()
                    || self.will_take(slot, agent, fit)
                    || is_ready && is_shared && !self.is_memory(slot))
        })
    }

    /// Was this one started beside another one of its agent? What a session brings to its process is
    /// the session's own fault.
    pub(crate) fn is_extra(&self, worker: WorkerId) -> bool {
        let slot = self.pool.get(&worker);
        slot.is_some_and(|slot| {
            slot.resuming.is_none() && self.has_another(&slot.agent, &slot.fit, Some(worker))
        })
    }

    /// A process is gone that others may have failed beside: the next one is judged by itself.
    pub(crate) fn may_be_alone(&mut self, agent: &str) {
        let there = |slot: &Slot| slot.phase.ready_since().is_some() || slot.phase.is_stopping();
        let is_there = |slot: &Slot| slot.agent == agent && there(slot);
        if !self.pool.slots().any(is_there) {
            self.pool.forget_extra(agent);
        }
    }

    pub(crate) fn will_take(&self, slot: &Slot, agent: &str, fit: &Fit) -> bool {
        let named = |session: &SessionId| self.sessions.get(session).is_some_and(|one| one.named);
        // Sessions that nobody named leave their process with their last turn. They are looked at
        // last, and where it counts: there may be hundreds.
        let gets_free = || slot.describe.recycles && !slot.sessions.iter().any(named);
        slot.agent == agent
            && slot.phase.ready_since().is_some()
            && !slot.is_one_turn()
            && slot.takes_turns()
            && slot.serves(fit)
            && (!slot.one_session || gets_free())
    }

    /// Until when no extra process of an agent is started, as the last ones did not come up.
    pub(crate) fn no_extra_before(&self, agent: &str, fit: &Fit) -> Option<Duration> {
        let jitter = mix(self.settings.seed);
        let until = self.pool.extra(agent)?.held_until(self.now.mono, jitter);
        // Alone it is tried as a first one: what failed beside others says nothing of it.
        until.filter(|_| self.has_another(agent, fit, None))
    }

    /// Ends what others of its agent may fail beside, once it is idle: an older turn waits that it
    /// can't take.
    pub(crate) fn leave_to_others(&mut self, agent: &str) {
        // One that holds no memory: what ends with it can be opened again.
        let idle = self.pool.iter().find(|(worker, slot)| {
            slot.agent == agent
                && slot.is_ready()
                && slot.turns.is_empty()
                && !self.is_memory(slot)
                && !self.pool.is_compacting(*worker)
        });
        if let Some(worker) = idle.map(|(worker, _)| worker) {
            self.retire(worker);
        }
    }

    /// One more is started now.
    pub(crate) fn tries_extra(&mut self, agent: &str) {
        let now = self.now.mono;
        if let Some(health) = self.pool.extra_mut(agent) {
            // A breaker that has been open for long enough lets one through.
            health.broken(now);
        }
    }

    /// An extra process came up.
    pub(crate) fn extra_is_ready(&mut self, worker: WorkerId) {
        if self.is_extra(worker)
            && let Some(slot) = self.pool.get(&worker)
        {
            let agent = slot.agent.clone();
            self.pool.forget_extra(&agent);
        }
    }

    /// It did not: whoever waited for it waits for those that live.
    pub(crate) fn leave_extra(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get(worker));
        for session in slot.sessions.clone() {
            self.unbind(worker, session);
        }
    }
}
