//! Deaths are counted against whoever is at fault.
//!
//! Owns the counting; the rule whose fault one is, is in `pool/crash_blame.rs`. What follows from a death is
//! in `process_exit.rs`.

use crate::health::{Cause, Health};
use crate::ids::WorkerId;
use crate::pool::crash_blame::{Blame, Death, blame, missed};
use crate::pool::fit::Fit;
use crate::rare::Rare;
use crate::state::State;

impl State {
    /// What came of an agent's processes so far says nothing of the next ones.
    pub(crate) fn forget_deaths(&mut self, agent: &str) {
        self.pool.forget_deaths(agent);
        if let Some(spares) = self.pool.spares(agent) {
            spares.forgive();
        }
        // Also what only single sessions are blamed for: it was the same program.
        let of_it = self.sessions.values_mut();
        for session in of_it.filter(|session| session.agent == agent) {
            session.health = Rare::default();
        }
    }

    /// Counts a process's death against whoever is at fault; returns who that is.
    pub(crate) fn count_death(&mut self, worker: WorkerId, death: &Death<'_>) -> Blame {
        let now = self.now.mono;
        // Only of one that never came up: what dies in its turns shows a fault of its own, whoever
        // lives beside it.
        let beside = death.ready_for.is_none() && self.is_extra(worker);
        let Some(slot) = self.pool.get_mut(&worker) else {
            self.outbox.dangling(worker);
            return Blame::Agent;
        };
        let agent = self.settings.agents.get(&slot.agent);
        let usual = agent.map(|agent| Fit::usual(agent, &slot.fit.cwd));
        let blame = match death.cause {
            // Whatever it was to be started for.
            Cause::Missing | Cause::Short => Blame::Agent,
            Cause::Crash | Cause::Refusal if beside => Blame::Extra,
            Cause::Crash | Cause::Refusal => blame(slot, death.ready_for.is_some(), usual.as_ref()),
        };
        slot.resuming = None;
        let name = slot.agent.clone();
        let lives = self.has_ready_beside(worker, &name);
        let why = || death.why.to_owned();
        let count = |health: &mut Health| match death.cause {
            Cause::Crash => health.died(now, death.ready_for, why(), death.tail),
            Cause::Refusal => health.breaks(now, Cause::Refusal, why(), death.tail),
            Cause::Missing | Cause::Short => missed(health, now, death, lives),
        };
        match &blame {
            Blame::Agent => count(self.pool.health_of(name)),
            Blame::Extra => count(self.pool.extra_of(name)),
            Blame::Sessions(at_fault) => {
                for session in at_fault {
                    let known = self.sessions.get_mut(session);
                    if let Some(session) = self.outbox.expected(*session, known) {
                        count(&mut session.health);
                    }
                }
            }
        }
        blame
    }

    /// Is a process of this agent ready, besides this one?
    pub(crate) fn has_ready_beside(&self, worker: WorkerId, agent: &str) -> bool {
        let mut slots = self.pool.iter();
        slots.any(|(other, slot)| {
            other != worker && slot.agent == agent && slot.phase.ready_since().is_some()
        })
    }
}
