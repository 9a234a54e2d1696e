//! The indexes over jobs and sessions are brought up to date: after each event, for what that changed.
//!
//! Owns what is in them. Must not decide anything by it.

use std::sync::Arc;

use crate::agent::{Agent, Sessions};
use crate::ids::{SessionId, TurnId, WorkerId};
use crate::indexes::lanes::{Lane, Need};
use crate::indexes::{needs_its_own, waits};
use crate::jobs::job::{Job, Phase};
use crate::pool::fit::Fit;
use crate::pool::slot::Slot;
use crate::sessions::session::Session;
use crate::state::State;

impl State {
    /// Brings the indexes up to date.
    pub(crate) fn update_indexes(&mut self) {
        for turn in self.jobs.take_changed() {
            let job = self.jobs.get(&turn);
            if let Some(job) = job.filter(|job| waits(job)) {
                // What its session waits for may be another turn now. One that runs changes nothing
                // there, and does so all the time.
                self.sessions.touch(job.session);
            }
            self.indexes.put_turn(turn, job);
        }
        for session in self.sessions.take_changed() {
            let next = self.next_of(session);
            let known = self.sessions.get(&session);
            self.indexes.put_session(session, known, next);
            self.tell_state(session);
        }
    }

    /// The turn of a session that would run next, and what it waits for.
    pub(crate) fn next_of(&self, id: SessionId) -> Option<(TurnId, Lane)> {
        let session = self.sessions.get(&id)?;
        let turn = self.head(session)?;
        let lane = match session.slot {
            // One that only comes up for it doesn't bind it: whichever process is free first takes
            // it.
            Some(worker) if !session.coming => Lane::Held(worker),
            _ => Lane::Free(Arc::new(self.need(session, self.jobs.get(&turn)?))),
        };
        Some((turn, lane))
    }

    /// The turn of a session that would run next.
    fn head(&self, session: &Session) -> Option<TurnId> {
        if session.current.is_some() || session.gate.is_some() {
            return None;
        }
        let phase = |turn: &TurnId| self.jobs.get(turn).map(|job| &job.phase);
        let mut queue = session.queue.iter();
        let first = queue.find(|turn| phase(turn).is_some_and(|phase| *phase != Phase::Held))?;
        // A pending turn keeps its place: those behind it wait for its answer.
        (phase(first) == Some(&Phase::Queued)).then_some(*first)
    }

    fn need(&self, session: &Session, job: &Job) -> Need {
        let agent = self.settings.agents.get(&session.agent);
        // Where each turn is a process nothing has to fit.
        let lasting = agent.filter(|agent| agent.describe.sessions != Sessions::PerTurn);
        Need {
            agent: session.agent.clone(),
            fit: lasting.map(|agent| self.rest_of(agent, Fit::of(agent, session, job))),
            own: lasting.is_some_and(|agent| needs_its_own(agent, session)),
        }
    }

    fn rest_of(&self, agent: &Agent, fit: Fit) -> Fit {
        let reach = self.pool.reach(&agent.name);
        reach.copied().unwrap_or_default().rest(fit)
    }

    /// The lane of those that a process could take without being started for them.
    pub(crate) fn lane_of(&self, slot: &Slot) -> Option<Lane> {
        let agent = self.settings.agents.get(&slot.agent)?;
        let need = Need {
            agent: slot.agent.clone(),
            fit: Some(self.rest_of(agent, slot.fit.clone())),
            own: false,
        };
        Some(Lane::Free(Arc::new(need)))
    }

    /// A process said what it takes: the next one of its agent will, too.
    pub(crate) fn has_said(&mut self, slot: WorkerId) {
        let slot = expected!(self.pool.get(slot));
        let (agent, one_session, turns) = (slot.agent.clone(), slot.one_session, slot.capacity);
        let known = self.pool.reach_of(&agent);
        (known.one_session, known.turns) = (one_session, turns);
        self.reaches(&agent);
    }

    /// The processes of an agent that have said what they take may be others now.
    pub(crate) fn reaches(&mut self, agent: &str) {
        let Some(known) = self.pool.reach(agent) else {
            return;
        };
        let has_said = |slot: &&Slot| slot.agent == agent && slot.phase.ready_since().is_some();
        let slots = || self.pool.slots().filter(has_said);
        if slots().next().is_none() {
            // A next one is expected to be as the last one was.
            return;
        }
        let cwd = slots().all(|slot| slot.cwd_per_turn);
        let toolsets = slots().all(|slot| slot.toolsets_per_turn);
        if (known.cwd, known.toolsets) != (cwd, toolsets) {
            let known = self.pool.reach_of(agent);
            (known.cwd, known.toolsets) = (cwd, toolsets);
            for session in self.indexes.lanes().sessions_of(agent) {
                // Their lanes are named by what processes take, which is another now.
                self.sessions.touch(session);
            }
        }
    }

    /// Could a process take turns of other lanes than its own, as not all of its agent can?
    pub(crate) fn takes_more_than_others(&self, slot: &Slot) -> bool {
        let reach = self.pool.reach(&slot.agent);
        let reach = reach.copied().unwrap_or_default();
        slot.cwd_per_turn && !reach.cwd || slot.toolsets_per_turn && !reach.toolsets
    }
}
