//! The scheduler held against a walk over everything, for tests: what is kept at hand is what the
//! walk finds, and no turn waits that could start.
//!
//! Owns that walk. Must not change anything; the daemon never calls it.

use crate::agent::{Agent, Warm};
use crate::ids::{SessionId, TurnId, WorkerId};
use crate::indexes::lanes::Lane;
use crate::indexes::{Indexes, needs_its_own};
use crate::outbox::timers::Timer;
use crate::pool::fit::Fit;
use crate::pool::slot::{Slot, SlotPhase};
use crate::rules::agent_choice::per_turn;
use crate::state::State;

impl State {
    /// What is wrong, if anything is.
    #[doc(hidden)]
    #[must_use]
    pub fn audit(&self) -> Option<String> {
        let wrong = self.wrong_indexes().or_else(|| self.wrong_spares());
        wrong.or_else(|| self.waits_in_vain())
    }

    /// How often a turn was looked at so far, whether it could start.
    #[doc(hidden)]
    #[must_use]
    pub const fn looked(&self) -> u64 {
        self.looked
    }

    fn wrong_indexes(&self) -> Option<String> {
        let mut all = Indexes::default();
        for (turn, job) in self.jobs.iter() {
            all.put_turn(turn, Some(job));
        }
        for (session, known) in self.sessions.iter() {
            all.put_session(session, Some(known), self.next_of(session));
        }
        (all != self.indexes).then(|| format!("{:#?}\nshould be {all:#?}", self.indexes))
    }

    /// Never more than one spare that nobody configured, and none where they are forbidden.
    fn wrong_spares(&self) -> Option<String> {
        let is_of = |name: &str| {
            let spares = self.pool.slots();
            let spares = spares.filter(|slot| slot.agent == name && slot.is_spare_to_be());
            spares.count()
        };
        let wrong = |agent: &&Agent| match agent.warm {
            Warm::WhenUsed => is_of(&agent.name) > 1,
            Warm::Always(most) => is_of(&agent.name) > most as usize,
        };
        let agent = self.settings.agents.values().find(wrong)?;
        let (has, name) = (is_of(&agent.name), &agent.name);
        Some(format!("{name} has {has} spares with {:?}", agent.warm))
    }

    fn waits_in_vain(&self) -> Option<String> {
        if !self.mode.starts_turns() || self.outbox.is_set(Timer::Schedule) {
            return None;
        }
        let mut homeless = 0;
        for (session, (turn, lane)) in self.indexes.lanes().all() {
            let found = match lane {
                Lane::Held(worker) => self.vainly_held(*worker, *session, *turn),
                Lane::Free(_) => self.vainly_free(*session, *turn, &mut homeless),
            };
            if let Some(why) = found {
                return Some(format!("{turn:?} of {session:?} waits, but {why}"));
            }
        }
        let over = self.processes() - self.settings.max_workers.min(self.processes());
        let leaves = self.pool.slots().filter(|slot| slot.phase.leaves());
        let idle = |(worker, slot): (WorkerId, &Slot)| {
            slot.turns.is_empty() && slot.is_ready() && !self.pool.is_compacting(worker)
        };
        (homeless > leaves.count().saturating_sub(over) && self.pool.iter().any(idle))
            .then(|| format!("{homeless} turns wait for room that an idle process has"))
    }

    fn vainly_held(&self, worker: WorkerId, session: SessionId, turn: TurnId) -> Option<String> {
        let (known, job) = (self.sessions.get(&session)?, self.jobs.get(&turn)?);
        let Some(slot) = self.pool.get(&worker) else {
            return Some(format!("{worker:?} is gone"));
        };
        let agent = self.settings.agents.get(&slot.agent)?;
        let serves = slot.serves(&Fit::of(agent, known, job));
        // An older turn for which it has to be free is not overtaken. Its sessions may have come to it
        // when it could do more, before it died.
        let lane = Lane::Held(worker);
        let older = self.indexes.lanes().next_in(&lane, None);
        let stands = older
            .filter(|older| older.turn < turn)
            .is_some_and(|older| {
                let session = self.sessions.get(&older.session);
                let known = session.zip(self.jobs.get(&older.turn));
                known.is_some_and(|(session, job)| !slot.serves(&Fit::of(agent, session, job)))
            });
        let takes = self.takes_now(worker, slot) && (serves && !stands || slot.turns.is_empty());
        (takes || slot.phase == SlotPhase::Failed).then(|| format!("{slot:?} could take it"))
    }

    fn vainly_free(
        &self,
        session: SessionId,
        turn: TurnId,
        homeless: &mut usize,
    ) -> Option<String> {
        let (known, job) = (self.sessions.get(&session)?, self.jobs.get(&turn)?);
        let Some(agent) = self.settings.agents.get(&known.agent) else {
            // Those that need a process are looked at when there is room for one.
            return (!self.is_full()).then(|| "its agent is gone".to_owned());
        };
        let fit = Fit::of(agent, known, job);
        if !per_turn(agent) {
            let own = needs_its_own(agent, known);
            let fits = |slot: &Slot| !own && slot.agent == agent.name && slot.serves(&fit);
            let free = |slot: &Slot| fits(slot) && slot.room() > 0;
            let asked = |slot: &Slot| free(slot) && slot.phase.is_probing();
            let asks = self.pool.slots().any(asked);
            let now = |(worker, slot): &(WorkerId, &Slot)| {
                let at_once = !asks || !slot.is_asked_first(self.now.mono);
                at_once && free(slot) && self.takes_now(*worker, slot)
            };
            if let Some((_, slot)) = self.pool.iter().find(now) {
                return Some(format!("{slot:?} could take it"));
            }
            if asks {
                return None;
            }
        }
        if let Some(coming) = known.slot {
            return self.vainly_held(coming, session, turn);
        }
        let health = self.pool.health(&known.agent);
        if health.is_some_and(|health| health.next_look(self.now.mono).is_some()) {
            return None;
        }
        if self.awaits_first_process(agent, &fit).is_some() {
            return None;
        }
        let own = needs_its_own(agent, known);
        if !own && self.no_extra_before(&known.agent, &fit).is_some() {
            return None;
        }
        if per_turn(agent) && self.now.mono < self.pool.next_spawn() {
            return None;
        }
        if self.is_full() {
            *homeless += 1;
            return None;
        }
        Some("there is room for a process".to_owned())
    }

    fn takes_now(&self, worker: WorkerId, slot: &Slot) -> bool {
        slot.is_ready() && slot.has_room() && slot.takes_turns() && !self.pool.is_compacting(worker)
    }
}
