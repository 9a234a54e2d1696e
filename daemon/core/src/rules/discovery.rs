//! Agents that are looked for again: those that came, those that are away for a moment.
//!
//! Owns when a look is asked for and who waits for it. Where programs are, the shell knows.

use agentd_protocol::line::Level;
use agentd_protocol::request::{Decoded, Send};
use agentd_protocol::routed::AUTO;
use agentd_protocol::{Id, Request};

use crate::agent::{Agent, Found};
use crate::effect::Effect;
use crate::event::RequestContext;
use crate::health::{Cause, Health};
use crate::ids::{ConnId, SessionId, TurnId, WorkerId};
use crate::jobs::job::Phase;
use crate::jobs::said::Notice;
use crate::outbox::timers::Timer;
use crate::pool::crash_blame::{Death, missed};
use crate::sessions::loading::Parked;
use crate::state::State;

/// Under this key requests wait for a look, in the order sent.
const WAITING: &str = "agents#";

impl State {
    /// Asks for a look, unless one is on its way or was just taken.
    pub(crate) fn look_for_agents(&mut self) {
        if !self.pool.is_looking() && self.pool.next_look() <= self.now.mono {
            self.pool.looks();
            self.outbox.push(Effect::LookForAgents);
        }
    }

    /// Does a request name an agent that can't be used as far as is known? Whoever has just mended
    /// that is told so by the next look.
    pub(crate) fn needs_a_look(&self, request: &Request, facts: &RequestContext) -> bool {
        // Who has waited for a look may wait for other things, and come here again.
        if facts.has_looked || self.pool.has_looked_at(self.now.mono) {
            return false;
        }
        let unknown = |agent: &str| {
            let known = self.settings.agents.get(agent);
            // One that died at each start may have been mended.
            let health = self.pool.health(agent).and_then(Health::state);
            health.is_some() || known.is_none_or(|agent| agent.usable.is_err())
        };
        let nobody = || {
            let chosen = self.settings.default_agent.as_deref();
            let chosen = chosen.filter(|chosen| *chosen != AUTO);
            chosen.map_or_else(|| self.nobody_answers() || self.is_out_of_login(), unknown)
        };
        let of_send = |send: &Send| {
            let session = send
                .session
                .as_ref()
                .and_then(|name| self.sessions.named(name));
            let session = session.and_then(|session| self.sessions.get(&session));
            match session
                .map(|session| &session.agent)
                .or(send.agent.as_ref())
            {
                Some(agent) if agent != AUTO => unknown(agent),
                // A rule whose agent can't be used is passed over.
                Some(_) | None => nobody(),
            }
        };
        match request {
            Request::Send(send) => of_send(send),
            Request::Dispatch(dispatch) => dispatch.jobs.iter().any(|job| of_send(&job.send)),
            Request::SessionNew(new) => new.agent.as_deref().map_or_else(nobody, unknown),
            Request::Models(asked) if asked.session.is_none() => {
                asked.agent.as_deref().map_or_else(nobody, unknown)
            }
            Request::Commands(asked) if asked.session.is_none() => {
                asked.agent.as_deref().map_or_else(nobody, unknown)
            }
            Request::RestartWorker(restart) => restart.agent.as_deref().is_some_and(unknown),
            _ => false,
        }
    }

    /// Are all that somebody installed logged out, as far as the last look saw?
    fn is_out_of_login(&self) -> bool {
        let agents = self.settings.agents.values();
        let usable = agents.filter(|agent| agent.usable.is_ok());
        let mut installed = usable
            .filter(|agent| agent.found != Found::BuiltIn)
            .peekable();
        installed.peek().is_some() && installed.all(|agent| agent.logged_in == Some(false))
    }

    fn nobody_answers(&self) -> bool {
        self.settings
            .agents
            .values()
            .all(|agent| agent.usable.is_err())
    }

    /// Lets a request wait for a look.
    pub(crate) fn park_until_looked(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &RequestContext,
    ) {
        if let Err(rejected) = self.room_to_park(&decoded.request) {
            return self.refuse(conn, id, rejected);
        }
        self.look_for_agents();
        if !self.pool.is_looking() {
            // One that was just taken may have come too early.
            let at = self.pool.next_look();
            self.outbox.set_if_unset(Timer::Agents, at);
        }
        if let Some(known) = self.peers.connected_mut(&conn) {
            known.loading = Some(WAITING.to_owned());
        }
        let parked = Parked {
            conn,
            id,
            decoded,
            facts: facts.clone(),
        };
        self.sessions.park(WAITING, &[], parked);
    }

    /// A look is over: what it found counts from now on, and who waited for it goes on.
    pub(crate) fn agents_found(&mut self, agents: Vec<Agent>, looked_for: String) {
        self.pool.looked(self.now.mono);
        self.settings.looked_for = looked_for;
        let was_out = |agent: &&Agent| {
            let known = self.settings.agents.get(&agent.name);
            known.is_some_and(|known| known.logged_in == Some(false))
        };
        let is_in = |agent: &&Agent| agent.logged_in != Some(false);
        let came_in = agents.iter().filter(is_in).filter(was_out);
        let came_in: Vec<String> = came_in.map(|agent| agent.name.clone()).collect();
        for agent in agents {
            // What is found now is another program, or the same one mended: it is tried without its
            // past.
            self.forget_deaths(&agent.name);
            // Nothing is taken out: an agent whose program is away for a moment is still one, with
            // turns that wait.
            self.settings.put_agent(agent);
        }
        // Those that started before look for no login again.
        self.renew_all(&came_in);
        let Some(waited) = self.sessions.unpark(WAITING) else {
            return;
        };
        self.peers.loaded(WAITING);
        for mut parked in waited.parked {
            parked.facts.has_looked = true;
            self.request(parked.conn, parked.id, parked.decoded, &parked.facts);
        }
    }

    /// A process could not be started for a reason that may pass: its program isn't there, or the
    /// machine has no room for it. For a while its turns wait, and it is tried again; then they end.
    pub(crate) fn missing(&mut self, worker: WorkerId, death: &Death<'_>) {
        let now = self.now.mono;
        if death.cause == Cause::Missing {
            self.look_for_agents();
        }
        // Who asked for the process hears it at once.
        if self.peers.awaits_restart(worker) {
            self.restarted(worker, Err(death.why.to_owned()));
        }
        let slot = expected!(self.pool.get(worker));
        let (agent, is_one_turn) = (slot.agent.clone(), slot.is_one_turn());
        let turns: Vec<TurnId> = slot.turns.iter().copied().collect();
        let lives = self.has_ready_beside(worker, &agent);
        let health = self.pool.health_of(agent.clone());
        let is_new = !health.is_missing(now);
        if !is_one_turn {
            if is_new {
                self.note_missing(worker, death);
            }
            return self.died(worker, death);
        }
        missed(health, now, death, lives);
        let broken = health.state();
        let gives_up = broken.map(|broken| broken.failure(&format!("agent `{agent}`")));
        for turn in turns {
            match self.jobs.get(&turn).map(|job| job.phase.clone()) {
                Some(Phase::Settling { ending, .. }) => self.end_as_asked(turn, &ending),
                // No process had it, so waiting again is safe.
                Some(Phase::Running { .. }) => {
                    if let Some(failure) = &gives_up {
                        self.fail(turn, failure.clone());
                        continue;
                    }
                    if let Some(job) = found!(self.jobs.get_mut(turn)) {
                        job.attempt = job.attempt.saturating_sub(1);
                    }
                    self.run_again(turn);
                    if is_new {
                        self.note(turn, &notice(death));
                    }
                }
                // When the store answers, `begin` sees that its process is gone.
                _ => {}
            }
        }
        // It was there for its turn alone, which waits for another one now.
        self.drop_slot(worker);
        if gives_up.is_some() {
            self.fail_waiting(&agent, &[]);
        }
    }

    /// The next turn of each session that waits for a process says what it waits for.
    fn note_missing(&mut self, worker: WorkerId, death: &Death<'_>) {
        let slot = expected!(self.pool.get(worker));
        let sessions: Vec<SessionId> = slot.sessions.iter().copied().collect();
        for turn in self.first_waiting(&sessions) {
            self.note(turn, &notice(death));
        }
    }

    /// The turns that begin next in these sessions.
    pub(crate) fn first_waiting(&self, sessions: &[SessionId]) -> Vec<TurnId> {
        let next = |id: &SessionId| {
            let turn = *self.sessions.get(id)?.queue.front()?;
            let waits = (self.jobs.get(&turn)).is_some_and(|job| job.phase == Phase::Queued);
            waits.then_some(turn)
        };
        sessions.iter().filter_map(next).collect()
    }

    /// Is a process there that may serve a session, so that none need be started?
    pub(crate) fn has_process_for(&self, agent: &str, session: Option<SessionId>) -> bool {
        let session = session.and_then(|session| self.sessions.get(&session));
        let bound = session.and_then(|session| self.pool.get(&session.slot?));
        if let Some(slot) = bound {
            return slot.phase.ready_since().is_some();
        }
        let resumes =
            session.is_some_and(|session| session.turns > 0 && session.reopened_by().is_some());
        let mut slots = self.pool.slots();
        slots.any(|slot| {
            slot.agent == agent
                && slot.phase.ready_since().is_some()
                && !slot.is_one_turn()
                && slot.takes_turns()
                && (!slot.one_session || slot.sessions.is_empty() && !resumes)
        })
    }
}

fn notice(death: &Death<'_>) -> Notice {
    let seconds = death.cause.waits().unwrap_or_default().as_secs();
    let code = match death.cause {
        Cause::Short => "machine-short",
        _ => "agent-missing",
    };
    Notice {
        level: Level::Warning,
        code: code.to_owned(),
        text: format!("{}; it is tried again for {seconds} s", death.why),
    }
}
