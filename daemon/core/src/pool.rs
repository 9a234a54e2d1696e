//! The process pool: which session gets which process, and when a turn may begin.
//!
//! Owns placement and room. Spares are in `spare.rs`, one slot's life is in `supervisor.rs`; what a turn says is in
//! `turn.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::line::Line;

use crate::agent::{Agent, Resume, Sessions};
use crate::backoff::Health;
use crate::choice::per_turn;
use crate::clock::allowed;
use crate::effect::{Effect, Spawn};
use crate::ids::{TurnId, WorkerId};
use crate::job::{Job, Phase, Process};
use crate::limits::{PROBE_AFTER, PROBE_WITHIN, SPAWNS_PER_SECOND};
use crate::session::SessionId;
use crate::slot::{Fit, Slot, SlotPhase};
use crate::state::State;
use crate::store::Write;
use crate::stored::Awaiting;
use crate::timers::Timer;
use crate::worker::{Failure, WorkerCommand};

/// Where a session's next turn can go.
enum Place {
    /// To this process, now.
    Here(WorkerId),
    /// To this process, as soon as it is ready: nothing else is waited for.
    Soon(WorkerId),
    /// Something must happen first, and will.
    Wait,
    /// The same, and nothing else of its agent finds room before that.
    Full,
    /// Nowhere: it ends.
    Never(Failure),
}

/// How many turns wait for each process that isn't ready, as far as was looked.
type Promised = BTreeMap<WorkerId, u32>;

/// Is there room for one more process, or in one?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Some,
    None,
}

impl State {
    /// Starts what can start: called after every event that may let something start.
    pub(crate) fn schedule(&mut self) {
        if self.mode.starts_turns() {
            let mut seen = BTreeSet::new();
            // Agents for which there is no room at all: thousands may wait for the same one.
            let mut crowded: BTreeSet<String> = BTreeSet::new();
            let mut last: Option<TurnId> = None;
            let mut promised = Promised::default();
            while let Some((turn, session)) = self.waiting.session_after(last) {
                last = Some(turn);
                if !seen.insert(session) {
                    continue;
                }
                if self.waits_in_a_crowd(session, &crowded) {
                    self.clocks_of_stop(session);
                    continue;
                }
                if self.schedule_session(session, &mut promised) == Room::None
                    && let Some(session) = self.sessions.get(&session)
                    && !self.takes_more(&session.agent)
                {
                    crowded.insert(session.agent.clone());
                }
            }
        }
        self.keep_warm();
    }

    /// The turn of a session that would run next.
    fn head(&self, session: SessionId) -> Option<TurnId> {
        let session = self.sessions.get(&session)?;
        if session.current.is_some() || session.gate.is_some() {
            return None;
        }
        let first = session.queue.iter().copied().find(|turn| {
            self.jobs
                .get(turn)
                .is_some_and(|job| job.phase != Phase::Held)
        })?;
        // A pending turn keeps its place: those behind it wait for its answer.
        self.jobs
            .get(&first)
            .filter(|job| job.phase == Phase::Queued)
            .map(|_| first)
    }

    /// Would a look at a session find nothing but what was found for another of its agent? One that
    /// has a process, or deaths behind it, is looked at by itself.
    fn waits_in_a_crowd(&self, session: SessionId, crowded: &BTreeSet<String>) -> bool {
        !crowded.is_empty()
            && self.sessions.get(&session).is_some_and(|session| {
                session.slot.is_none()
                    && session.health == Health::default()
                    && crowded.contains(&session.agent)
            })
    }

    /// Could a process of this agent take one more turn, of whatever kind?
    fn takes_more(&self, agent: &str) -> bool {
        let takes = |slot: &Slot| slot.agent == agent && slot.takes_turns() && slot.has_room();
        self.slots.values().any(takes)
    }

    /// Starts a session's next turn if it can; says whether there was room to try.
    fn schedule_session(&mut self, session: SessionId, promised: &mut Promised) -> Room {
        let Some(turn) = self.head(session) else {
            return Room::Some;
        };
        let late = |job: &Job| job.expires <= self.now.boot_ms;
        if self.jobs.get(&turn).is_some_and(|job| late(job)) {
            self.expire(turn);
            return Room::Some;
        }
        let is_over = |job: &Job| {
            job.clock
                .is_some_and(|since| since + allowed(job) <= self.now.mono)
        };
        if self.jobs.get(&turn).is_some_and(|job| is_over(job)) {
            // It rang while its mark was on its way to a process that is gone.
            self.never_ready(turn);
            return Room::Some;
        }
        match self.place(session, turn) {
            Place::Full => {
                self.clock_stops(turn);
                return Room::None;
            }
            // Several may wait for one process, which is there for the first of them.
            Place::Soon(worker) if self.promise(worker, promised) => self.clock_runs(turn),
            Place::Soon(_) | Place::Wait => self.clock_stops(turn),
            Place::Never(failure) => self.fail(turn, failure),
            Place::Here(worker) => self.mark(turn, worker),
        }
        Room::Some
    }

    /// Has a process that isn't ready room for one more of those that wait for it?
    fn promise(&self, worker: WorkerId, promised: &mut Promised) -> bool {
        let Some(slot) = self.slots.get(&worker) else {
            return false;
        };
        let taken = promised.entry(worker).or_default();
        *taken += 1;
        *taken <= slot.capacity
    }

    /// Binds a turn to a process and asks for its *running* mark.
    fn mark(&mut self, turn: TurnId, worker: WorkerId) {
        let Some(process) = self.reserve(turn, worker) else {
            return;
        };
        let Some(job) = self.jobs.get_mut(&turn) else {
            return;
        };
        let Some(number) = job.number else { return };
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
        let token = self.commit(Awaiting::Start(turn), vec![write]);
        if let Some(job) = self.jobs.get_mut(&turn) {
            job.out
                .push_back(crate::job::Out::Numbered { token, body: line });
        }
    }

    /// For a send that has just arrived: an idle process that can take it with its acceptance.
    pub(crate) fn place_at_once(&mut self, turn: TurnId) -> Option<Process> {
        let session_id = self.jobs.get(&turn)?.session;
        let session = self.sessions.get(&session_id)?;
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
        let Place::Here(worker) = self.place(session_id, turn) else {
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
    fn place(&mut self, session_id: SessionId, turn: TurnId) -> Place {
        let (Some(session), Some(job)) = (self.sessions.get(&session_id), self.jobs.get(&turn))
        else {
            return Place::Wait;
        };
        let Some(agent) = self.settings.agents.get(&session.agent).cloned() else {
            let error = format!("the agent `{}` is not configured any more", session.agent);
            return Place::Never(Failure::new(Code::UnknownAgent, error));
        };
        let fit = Fit::of(&agent, session, job);
        let bound = session.slot;
        if let Some(worker) = bound {
            return self.place_bound(worker, session_id, &fit);
        }
        if let Some(failure) = self.broken(&agent.name, session_id) {
            return Place::Never(failure);
        }
        let resumes = self
            .sessions
            .get(&session_id)
            .is_some_and(|session| session.turns > 0 && session.native.is_some())
            && agent.describe.resume == Resume::Native;
        if !per_turn(&agent)
            && let Some(worker) = self.shareable(&agent, &fit, resumes)
        {
            return match self.place_here(worker) {
                Place::Wait if self.is_full() => Place::Full,
                place => place,
            };
        }
        if !self.is_leased(session_id) && !per_turn(&agent) {
            // Its acceptance takes the lease; then a process is started.
            return Place::Wait;
        }
        if !self.make_room() {
            return Place::Full;
        }
        if per_turn(&agent) && !self.spawn_allowed() {
            return Place::Wait;
        }
        let worker = WorkerId(self.number());
        self.slots.insert(worker, Slot::new(&agent, fit));
        if let Some(slot) = self.slots.get_mut(&worker) {
            slot.sessions.insert(session_id);
        }
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.slot = Some(worker);
            session.open = false;
        }
        if per_turn(&agent) {
            return Place::Here(worker);
        }
        self.start(worker);
        Place::Soon(worker)
    }

    fn place_bound(&mut self, worker: WorkerId, session: SessionId, fit: &Fit) -> Place {
        let Some(slot) = self.slots.get(&worker) else {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.slot = None;
                session.open = false;
            }
            return Place::Wait;
        };
        if let SlotPhase::Failed = slot.phase {
            if !slot.serves(fit) {
                // Its pins were changed since: what came of the others says nothing of these.
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.health.reset();
                }
                self.drop_slot(worker);
                return Place::Wait;
            }
            let agent = slot.agent.clone();
            // It stays for `status` and for a restart, until it may be tried again.
            if let Some(failure) = self.broken(&agent, session) {
                return Place::Never(failure);
            }
            self.drop_slot(worker);
            return Place::Wait;
        }
        let unused = slot.turns.is_empty() && !self.compacting.contains_key(&worker);
        if !slot.serves(fit) && unused && slot.takes_turns() {
            // Other pins than the process was started with: it makes way for one that has them.
            self.retire(worker);
            return Place::Soon(worker);
        }
        self.place_here(worker)
    }

    fn place_here(&mut self, worker: WorkerId) -> Place {
        let now = self.now.mono;
        if self.compacting.contains_key(&worker) {
            return Place::Wait;
        }
        let Some(slot) = self.slots.get_mut(&worker) else {
            return Place::Wait;
        };
        let (pid, since) = match slot.phase {
            SlotPhase::Ready { pid, since } => (pid, since),
            SlotPhase::Failed => return Place::Wait,
            _ => return Place::Soon(worker),
        };
        if !slot.has_room() || !slot.takes_turns() {
            return Place::Wait;
        }
        if slot.turns.is_empty() && now.saturating_sub(slot.idle_since) > PROBE_AFTER {
            slot.phase = SlotPhase::Probing { pid, since };
            let generation = slot.generation;
            self.timers.clear(Timer::Idle(worker));
            self.timers.set(Timer::Slot(worker), now + PROBE_WITHIN);
            self.out.push(Effect::Tell {
                worker,
                generation,
                command: WorkerCommand::Probe,
            });
            return Place::Soon(worker);
        }
        Place::Here(worker)
    }

    /// Is the session this instance's, and nobody else's? One that isn't stored yet can't be
    /// anybody else's.
    fn is_leased(&self, session: SessionId) -> bool {
        self.sessions
            .get(&session)
            .is_some_and(|session| session.leased)
    }

    /// A process that can take one more session; one that is starting or being asked counts.
    fn shareable(&self, agent: &Agent, fit: &Fit, resumes: bool) -> Option<WorkerId> {
        let fitting = self.slots.iter().filter(|(_, slot)| {
            slot.agent == agent.name
                && slot.serves(fit)
                && slot.takes_turns()
                && slot.phase.may_serve()
        });
        if agent.describe.sessions == Sessions::Many {
            let (one, many): (Vec<_>, Vec<_>) = fitting.partition(|(_, slot)| slot.one_session);
            let free = many
                .iter()
                .filter(|(_, slot)| slot.has_room())
                .min_by_key(|(_, slot)| slot.turns.len());
            let spare = one.iter().find(|(_, slot)| slot.sessions.is_empty());
            // With none free, one more is started, as long as there may be more.
            return free
                .or(spare)
                .or_else(|| many.first().filter(|_| self.is_full()))
                .map(|(worker, _)| **worker);
        }
        // A session that is to be resumed needs a process started for it.
        let mut spares =
            fitting.filter(|(_, slot)| slot.sessions.is_empty() && slot.is_ready() && !resumes);
        spares.next().map(|(worker, _)| *worker)
    }

    /// Are there as many processes as there may be?
    pub(crate) fn is_full(&self) -> bool {
        let live = self
            .slots
            .values()
            .filter(|slot| slot.phase.holds_process() && !self.delegates(slot));
        live.count() >= self.settings.max_workers
    }

    /// Does a process only wait for jobs of its own jobs? It must not keep them from running.
    fn delegates(&self, slot: &Slot) -> bool {
        let waits = |turn: &TurnId| {
            let number = self.jobs.get(turn).and_then(|job| job.number);
            number.is_some_and(|number| self.waits_for_children(number))
        };
        !self.collecting.is_empty() && !slot.turns.is_empty() && slot.turns.iter().all(waits)
    }

    /// Is there room for one more process? Ends an idle one if not.
    fn make_room(&mut self) -> bool {
        if !self.is_full() {
            return true;
        }
        if self.slots.values().any(|slot| slot.phase.is_stopping()) {
            return false;
        }
        // Longest idle first; memories that can't be resumed go last.
        let idle = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.turns.is_empty() && slot.is_ready() && !self.wanted(slot))
            .filter(|(worker, _)| !self.compacting.contains_key(worker));
        let victim = idle
            .min_by_key(|(_, slot)| (self.is_memory(slot), slot.idle_since))
            .map(|(worker, _)| *worker);
        if let Some(worker) = victim {
            self.retire(worker);
        }
        false
    }

    /// Does one of its sessions wait for it?
    fn wanted(&self, slot: &Slot) -> bool {
        slot.sessions
            .iter()
            .any(|session| self.head(*session).is_some())
    }

    pub(crate) fn broken(&mut self, agent: &str, session: SessionId) -> Option<Failure> {
        let now = self.now.mono;
        let of_session = self
            .sessions
            .get_mut(&session)
            .and_then(|session| session.health.broken(now).cloned());
        let of_agent = self
            .health
            .get_mut(agent)
            .and_then(|health| health.broken(now).cloned());
        let broken = of_session.or(of_agent)?;
        Some(broken.failure(&format!("agent `{agent}`")))
    }

    /// May one more process be started in this second?
    pub(crate) fn spawn_allowed(&mut self) -> bool {
        let now = self.now.mono;
        while self
            .spawned
            .front()
            .is_some_and(|at| now.saturating_sub(*at) >= Duration::from_secs(1))
        {
            self.spawned.pop_front();
        }
        if let Some(first) = self
            .spawned
            .front()
            .filter(|_| self.spawned.len() >= SPAWNS_PER_SECOND)
        {
            self.timers
                .set(Timer::SpawnRate, *first + Duration::from_secs(1));
            return false;
        }
        self.spawned.push_back(now);
        true
    }

    /// What a slot's process is started with.
    pub(crate) fn spawn_of(&self, slot: &Slot) -> (Spawn, Option<SessionId>) {
        let session_id = slot
            .sessions
            .iter()
            .next()
            .copied()
            .filter(|_| slot.sessions.len() == 1);
        let session = session_id.and_then(|session| self.sessions.get(&session));
        let native = slot.describe.resume == Resume::Native;
        let resume = session
            .and_then(|session| session.native.clone())
            .filter(|_| native);
        let resuming = session_id.filter(|_| resume.is_some());
        let spawn = Spawn {
            agent: slot.agent.clone(),
            cwd: slot.fit.cwd.clone(),
            provider: slot.fit.provider.clone(),
            model: slot.fit.model.clone(),
            thinking: slot.fit.thinking.clone(),
            toolsets: slot.fit.toolsets.clone(),
            session: session.and_then(|session| session.name.clone()),
            resume,
            prompt: None,
        };
        (spawn, resuming)
    }
}
