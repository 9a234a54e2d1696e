//! The process pool: which session gets which process, and when a turn may begin.
//!
//! Owns placement. Who is asked first is in `schedule.rs`, who makes room in `room.rs`, whether one
//! more process is started beside a living one in `extra_process.rs`; spares are in `spare.rs`, one slot's
//! life is in `supervisor.rs`; what a turn says is in `turn.rs`.

use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::line::Line;

use crate::agent::{Agent, Resume, Sessions};
use crate::effect::{Effect, Spawn};
use crate::ids::{Process, SessionId, TurnId, WorkerId};
use crate::indexes::needs_its_own;
use crate::jobs::job::Phase;
use crate::jobs::said::Out;
use crate::limits::{PROBE_WITHIN, RUNG, SAYS_WITHIN};
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timer;
use crate::pool::fit::Fit;
use crate::pool::slot::{Slot, SlotPhase};
use crate::rare::Rare;
use crate::rules::agent_choice::per_turn;
use crate::rules::room::{Room, Wants};
use crate::rules::schedule::Pass;
use crate::sessions::session::Session;
use crate::settings::Served;
use crate::state::State;
use crate::store::Write;
use crate::worker::{Failure, WorkerCommand};

/// Where a session's next turn can go.
pub(crate) enum Placement {
    /// To this process, now.
    Here(WorkerId),
    /// To this process, as soon as it is ready: nothing else is waited for.
    Soon(WorkerId),
    /// To a new one, when one that ends has left it its room.
    Coming,
    /// Something must happen first, and will. So it is for those that wait for the same.
    Wait,
    /// What it waits for is something else now.
    Changed,
    /// Nowhere: it ends.
    Never(Failure),
}

impl State {
    /// Binds a turn to a process and asks for its *running* mark.
    pub(crate) fn mark(&mut self, turn: TurnId, worker: WorkerId) {
        let Some(process) = self.reserve(turn, worker) else {
            return;
        };
        let job = expected!(self.jobs.get_mut(turn));
        let Some(number) = job.number else { return };
        // Counted with the mark: after a crash a turn found marked has begun, as far as anybody
        // knows.
        job.attempt += 1;
        let line = Line::Running {
            job: number,
            attempt: job.attempt,
        }
        .body();
        let write = Write::Start {
            job: number,
            worker: process.worker,
            generation: process.generation,
            attempt: job.attempt,
            line: line.clone(),
        };
        job.phase = Phase::Marking {
            process,
            cancelled: false,
        };
        let token = self.outbox.commit(Awaiting::Start(turn), vec![write]);
        job.out.push_back(Out::Numbered { token, body: line });
    }

    /// For a send that has just arrived: an idle process that can take it with its acceptance.
    pub(crate) fn place_at_once(&mut self, turn: TurnId) -> Option<Process> {
        let job = found!(self.jobs.get(turn))?;
        let session_id = job.session;
        let session = found!(self.sessions.get(session_id))?;
        // It is in its session's queue already, and nothing else may be.
        let alone = session.queue.len() == 1 && session.current.is_none() && session.gate.is_none();
        let phase = self.jobs.get(&turn).map(|job| &job.phase);
        let cancelled = matches!(
            phase,
            Some(Phase::Pending {
                cancelled: true,
                ..
            })
        );
        if !alone || cancelled || !self.mode.starts_turns() {
            return None;
        }
        // Older turns of its agent that wait for a process go first.
        let behind = session.slot.is_none() && self.indexes.lanes().any_free(&session.agent);
        if behind {
            return None;
        }
        let Placement::Here(worker) = self.place(session_id, turn, &mut Pass::default()) else {
            return None;
        };
        let process = self.reserve(turn, worker)?;
        let job = self.jobs.get_mut(&turn)?;
        job.attempt = 1;
        job.phase = Phase::Pending {
            placed: Some(process),
            cancelled: false,
        };
        Some(process)
    }

    /// Finds a process for a session's next turn, or makes room for one.
    pub(crate) fn place(
        &mut self,
        session_id: SessionId,
        turn: TurnId,
        pass: &mut Pass,
    ) -> Placement {
        let session = found!(self.sessions.get(session_id));
        let job = found!(self.jobs.get(turn));
        let (Some(session), Some(job)) = (session, job) else {
            return Placement::Wait;
        };
        let Some(agent) = self.settings.agents.get(&session.agent).cloned() else {
            let error = format!("the agent `{}` is not configured any more", session.agent);
            return Placement::Never(Failure::new(Code::UnknownAgent, error));
        };
        let fit = Fit::of(&agent, session, job);
        let own = needs_its_own(&agent, session);
        let leased = session.leased;
        if let Some(worker) = session.slot {
            let ready = |other| self.pool.get(&other).is_some_and(Slot::is_ready);
            if session.coming {
                let other = self.shareable(&agent, &fit, own, pass);
                if other.is_some_and(ready) {
                    self.go_elsewhere(worker, session_id);
                    return Placement::Changed;
                }
                pass.only_comes = other.is_none();
            }
            return self.place_bound(worker, session_id, &fit);
        }
        // The session's fault comes first: a healthy process of its agent would fare alike with it.
        if let Some(failure) = self.broken_session(&agent.name, session_id) {
            return Placement::Never(failure);
        }
        if !per_turn(&agent)
            && let Some(worker) = self.shareable(&agent, &fit, own, pass)
        {
            return self.place_here(worker);
        }
        // Only who needs a new process is told that none comes up.
        let lives = self.lives_for(&agent, &fit, own);
        if !lives && let Some(failure) = self.broken_agent(&agent.name) {
            return Placement::Never(failure);
        }
        let held = self.no_extra_before(&agent.name, &fit);
        if let Some(at) = held.filter(|_| !own) {
            self.outbox.set_no_later(Timer::Look, at);
            // What lives will take the turn; otherwise the one that is in the way may go.
            if !lives {
                self.leave_to_others(&agent.name);
            }
            return Placement::Wait;
        }
        let health = self.pool.health(&agent.name);
        if let Some(at) = health.and_then(|health| health.next_look(self.now.mono)) {
            self.outbox.set_no_later(Timer::Breaker, at);
            return Placement::Wait;
        }
        if !leased && !per_turn(&agent) {
            // Its acceptance takes the lease; then the session may be opened in a process.
            if !own && matches!(self.settings.served, Served::OneShot { .. }) {
                self.start_ahead(&agent, fit);
            }
            return Placement::Wait;
        }
        self.place_in_one_that_comes(&agent, (session_id, turn), fit, own, pass)
    }

    /// A process that is on its way to be ready, or a new one.
    fn place_in_one_that_comes(
        &mut self,
        agent: &Agent,
        (session_id, turn): (SessionId, TurnId),
        fit: Fit,
        own: bool,
        pass: &mut Pass,
    ) -> Placement {
        let any = !own && !per_turn(agent);
        // One that has room for more sessions than wait for it need not be started a second time.
        if any && let Some(worker) = self.unclaimed(agent, &fit) {
            self.claim_coming(worker, session_id, true);
            return Placement::Soon(worker);
        }
        if let Some(until) = self.awaits_first_process(agent, &fit) {
            if until < Duration::MAX {
                self.outbox.set_no_later(Timer::Look, until);
            }
            return Placement::Wait;
        }
        if per_turn(agent) && !self.spawn_allowed() {
            // Nobody makes room for what can't be started yet.
            return Placement::Wait;
        }
        let wants = Wants {
            agent,
            fit: &fit,
            own,
        };
        match self.make_room(turn, &wants, pass) {
            Room::Some => {}
            Room::Coming => return Placement::Coming,
            Room::None => return Placement::Wait,
        }
        if per_turn(agent) {
            // Counted now, as it is spawned only when its turn's mark is durable: more than the
            // rate allows would be on their way by then.
            self.pool.spawns(self.now.mono);
        }
        self.tries_extra(&agent.name);
        let worker = self.add_slot(agent, fit);
        self.claim_coming(worker, session_id, any);
        if per_turn(agent) {
            return Placement::Here(worker);
        }
        self.start(worker);
        Placement::Soon(worker)
    }

    /// Starts a process that is nobody's yet, while the store takes the turn that will need it: who
    /// runs once waits for both. A daemon doesn't, as many a send only asks for what has ended.
    fn start_ahead(&mut self, agent: &Agent, fit: Fit) {
        let comes = self.unclaimed(agent, &fit).is_some();
        if comes || self.is_full() || self.awaits_first_process(agent, &fit).is_some() {
            return;
        }
        self.tries_extra(&agent.name);
        let worker = self.add_slot(agent, fit);
        self.start(worker);
    }

    /// A slot for a new process, which will be as the others of its agent are.
    pub(crate) fn add_slot(&mut self, agent: &Agent, fit: Fit) -> WorkerId {
        let worker = WorkerId(self.outbox.number());
        let mut slot = Slot::new(agent, fit);
        if let Some(reach) = self.pool.reach(&agent.name) {
            // Else the turns that it will take wait in another lane than the one that it is looked
            // for in.
            slot.expects(*reach);
        }
        self.pool.insert(worker, slot);
        worker
    }

    /// Gives a session a process that comes up; for now, if any other would do as well.
    fn claim_coming(&mut self, worker: WorkerId, session_id: SessionId, for_now: bool) {
        if let Some(session) = self.claim(worker, session_id) {
            session.coming = for_now;
            session.open = false;
        }
    }

    /// Another process is ready before the one that comes up for a session, which is there for the
    /// next one; if it was not even started, nobody needs it.
    fn go_elsewhere(&mut self, worker: WorkerId, session: SessionId) {
        self.unbind(worker, session);
        let slot = self.pool.get(&worker);
        if slot.is_some_and(|slot| slot.sessions.is_empty() && !slot.phase.has_process()) {
            self.drop_slot(worker);
        }
    }

    /// A process that is on its way to be ready, with room for one more session than those that
    /// wait for it.
    fn unclaimed(&self, agent: &Agent, fit: &Fit) -> Option<WorkerId> {
        let has_turns = |session: &&SessionId| {
            let known = self.sessions.get(session);
            known.is_some_and(|known| !known.queue.is_empty())
        };
        let mut coming = self.pool.iter().filter(|(_, slot)| {
            let starts = matches!(slot.phase, SlotPhase::Starting { .. });
            // One that died holds the memory of sessions: it is started again at any rate.
            let comes = starts || !slot.one_session && slot.phase.comes();
            slot.agent == agent.name
                && comes
                && slot.takes_turns()
                && slot.serves(fit)
                && slot.sessions.iter().filter(has_turns).count() < slot.at_once()
        });
        coming.next().map(|(worker, _)| worker)
    }

    /// Until when the first process of an agent is waited for: what it says decides whether others
    /// need another one. There is no second before that, and no third while both are silent.
    pub(crate) fn awaits_first_process(&self, agent: &Agent, fit: &Fit) -> Option<Duration> {
        let known = self.pool.reach(&agent.name).is_some();
        if known || agent.describe.sessions != Sessions::Many {
            return None;
        }
        let mut coming = self
            .pool
            .slots()
            .filter(|slot| slot.agent == agent.name && slot.phase.comes() && slot.serves(fit));
        let until = coming.next()?.spawned_at + SAYS_WITHIN;
        let until = coming.next().map_or(until, |_second| Duration::MAX);
        (until > self.now.mono).then_some(until)
    }

    fn place_bound(&mut self, worker: WorkerId, session: SessionId, fit: &Fit) -> Placement {
        let Some(slot) = self.pool.get(&worker) else {
            self.outbox.dangling(worker);
            if let Some(known) = found!(self.sessions.get_mut(session)) {
                known.has_left();
            }
            return Placement::Changed;
        };
        if let SlotPhase::Failed = slot.phase {
            let agent = slot.agent.clone();
            if !slot.serves(fit) {
                // Its pins were changed since: what came of the others says nothing of these.
                if let Some(known) = found!(self.sessions.get_mut(session)) {
                    known.health = Rare::default();
                }
            } else if let Some(failure) = self.broken(&agent, session) {
                // It stays for `status` and for a restart, until it may be tried again.
                return Placement::Never(failure);
            }
            self.drop_slot(worker);
            return Placement::Changed;
        }
        // One that leaves is waited for as well: its session is open in it until it is gone.
        if slot.serves(fit) || !slot.takes_turns() {
            return self.place_here(worker);
        }
        if !slot.turns.is_empty() || self.pool.is_compacting(worker) {
            return Placement::Wait;
        }
        if matches!(slot.phase, SlotPhase::Recycling { .. }) || self.switch(worker, fit) {
            return Placement::Soon(worker);
        }
        // Other pins than the process has: it makes way for one that has them.
        self.retire(worker);
        if self.pool.contains(worker) {
            Placement::Soon(worker)
        } else {
            Placement::Changed
        }
    }

    /// Asks an idle process to take other pins, if that is all it lacks and it may be able to.
    fn switch(&mut self, worker: WorkerId, fit: &Fit) -> bool {
        let Some(slot) = self.pool.get_mut(&worker) else {
            self.outbox.dangling(worker);
            return false;
        };
        let SlotPhase::Ready { pid, since } = slot.phase else {
            return false;
        };
        let pins = fit.pins();
        let rest = Fit {
            provider: pins.provider.clone(),
            model: pins.model.clone(),
            thinking: pins.thinking.clone(),
            mode: pins.mode.clone(),
            ..slot.fit.clone()
        };
        if !slot.describe.switches || rest != *fit {
            return false;
        }
        // From now on, and not with its answer: one that can't is replaced, and its next one is
        // started so.
        slot.fit = rest;
        slot.phase = SlotPhase::Recycling { pid, since };
        let generation = slot.generation;
        self.outbox.clear(Timer::Idle(worker));
        self.outbox.set(Timer::Slot(worker), self.now.mono + RUNG);
        self.outbox.push(Effect::Tell {
            worker,
            generation,
            command: WorkerCommand::Switch(Box::new(pins)),
        });
        true
    }

    fn place_here(&mut self, worker: WorkerId) -> Placement {
        let now = self.now.mono;
        if self.pool.is_compacting(worker) {
            return Placement::Wait;
        }
        let Some(slot) = self.pool.get_mut(&worker) else {
            self.outbox.dangling(worker);
            return Placement::Wait;
        };
        let (pid, since) = match slot.phase {
            SlotPhase::Ready { pid, since } => (pid, since),
            SlotPhase::Failed => return Placement::Wait,
            _ => return Placement::Soon(worker),
        };
        if !slot.has_room() || !slot.takes_turns() {
            return Placement::Wait;
        }
        // A process may have gone deaf, or its machine slept; its turn would find out by hanging.
        if slot.is_asked_first(now) {
            slot.phase = SlotPhase::Probing { pid, since };
            let generation = slot.generation;
            self.outbox.clear(Timer::Idle(worker));
            self.outbox.set(Timer::Slot(worker), now + PROBE_WITHIN);
            self.outbox.push(Effect::Tell {
                worker,
                generation,
                command: WorkerCommand::Probe,
            });
            return Placement::Soon(worker);
        }
        Placement::Here(worker)
    }

    /// A process that can take one more session; one that is being asked whether it lives counts
    /// for as many as it has room for. A session that is to be resumed needs one started for it.
    pub(crate) fn shareable(
        &self,
        agent: &Agent,
        fit: &Fit,
        own: bool,
        pass: &Pass,
    ) -> Option<WorkerId> {
        let there = self.pool.iter().filter(|(worker, slot)| {
            slot.agent == agent.name
                && (slot.is_ready() || slot.phase.is_probing())
                && slot.takes_turns()
                && slot.serves(fit)
                && !self.pool.is_compacting(*worker)
                && pass.promised(*worker) < slot.room()
        });
        there
            .filter(|_| !own)
            .min_by_key(|(_, slot)| {
                // One that is being asked answers before one that has yet to be asked.
                let asked = slot.phase.is_probing();
                let waits = !asked && slot.is_asked_first(self.now.mono);
                // Then one of many sessions, so that those of one stay free, and of those the least
                // busy.
                (waits, asked, slot.one_session, slot.turns.len())
            })
            .map(|(worker, _)| worker)
    }

    pub(crate) fn broken(&mut self, agent: &str, session: SessionId) -> Option<Failure> {
        let of_session = self.broken_session(agent, session);
        of_session.or_else(|| self.broken_agent(agent))
    }

    fn broken_session(&mut self, agent: &str, session: SessionId) -> Option<Failure> {
        let session = found!(self.sessions.get_mut(session))?;
        let broken = session.health.other()?.broken(self.now.mono)?;
        Some(broken.failure(&format!("agent `{agent}`")))
    }

    /// Why no process of an agent is started now.
    pub(crate) fn broken_agent(&mut self, agent: &str) -> Option<Failure> {
        let broken = self.pool.health_mut(agent)?.broken(self.now.mono)?;
        Some(broken.failure(&format!("agent `{agent}`")))
    }

    /// May one more process be started now?
    pub(crate) fn spawn_allowed(&mut self) -> bool {
        let next = self.pool.next_spawn();
        if self.now.mono < next {
            self.outbox.set(Timer::SpawnRate, next);
            return false;
        }
        true
    }

    /// What a slot's process is started with.
    pub(crate) fn spawn_of(&self, slot: &Slot) -> (Spawn, Option<SessionId>) {
        let session_id = slot
            .sessions
            .iter()
            .next()
            .copied()
            // One of many sessions reopens none at its start.
            .filter(|_| slot.sessions.len() == 1);
        let session = session_id.and_then(|session| self.sessions.get(&session));
        let native = slot.describe.resume == Resume::Native;
        let resume = session
            .and_then(|session| session.reopened_by())
            .filter(|_| native)
            .map(str::to_owned);
        let forks = resume.is_some() && session.is_some_and(Session::is_copied);
        let resuming = session_id.filter(|_| resume.is_some());
        let spawn = Spawn {
            agent: slot.agent.clone(),
            cwd: slot.fit.cwd.clone(),
            provider: slot.fit.provider.clone(),
            model: slot.fit.model.clone(),
            thinking: slot.fit.thinking.clone(),
            mode: slot.fit.mode.clone(),
            toolsets: slot.fit.toolsets.clone(),
            system: slot.fit.system.clone(),
            mcp_servers: slot.fit.mcp_servers.clone(),
            session: session.and_then(|session| session.name.clone()),
            resume,
            forks,
            prompt: None,
        };
        (spawn, resuming)
    }
}
