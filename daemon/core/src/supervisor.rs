//! One process slot's life: started, ready, dead, started again.
//!
//! Owns phases, generations, the stop ladder and what a death means. Must not know which session
//! gets which slot.

use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::line::WorkerState;

use crate::agent::Agent;
use crate::backoff::mix;
use crate::effect::{Effect, Rung};
use crate::ids::{Generation, TurnId, WorkerId};
use crate::job::{Ending, Phase};
use crate::limits::{ATTEMPTS, HEALTHY_AFTER, PERMANENT_EXITS, RETIRE_WITHIN, RUNG};
use crate::pool::{Fit, Slot};
use crate::send::per_turn;
use crate::session::SessionId;
use crate::state::{Served, State};
use crate::store::Write;
use crate::timers::Timer;
use crate::worker::{Exit, Failure, Prompt, Traits, WorkerCommand};

/// Where a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotPhase {
    /// Waits for a free place in the spawn rate, or for its turn's *running* mark.
    Planned,
    /// Spawned; the handshake is outstanding.
    Starting { pid: Option<u32> },
    /// Up, and it said so.
    Ready { pid: Option<u32>, since: Duration },
    /// Asked whether it still lives, right before its next turn.
    Probing { pid: Option<u32>, since: Duration },
    /// Making itself ready for a new session.
    Recycling { pid: Option<u32>, since: Duration },
    /// Dead; it starts again later.
    Backoff,
    /// Told to end.
    Stopping {
        pid: Option<u32>,
        rung: Rung,
        then: Then,
    },
    /// Dead, and it stays so until somebody asks or time passes.
    Failed,
}

/// What follows a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// Nothing: the slot is gone.
    Gone,
    /// A new generation.
    Restart,
}

impl SlotPhase {
    pub(crate) const fn pid(&self) -> Option<u32> {
        match self {
            Self::Starting { pid }
            | Self::Ready { pid, .. }
            | Self::Probing { pid, .. }
            | Self::Recycling { pid, .. }
            | Self::Stopping { pid, .. } => *pid,
            Self::Planned | Self::Backoff | Self::Failed => None,
        }
    }

    /// Will a turn bound to it run, now or soon?
    pub(crate) const fn may_serve(&self) -> bool {
        !matches!(self, Self::Stopping { .. } | Self::Failed)
    }

    /// Does it count against the number of processes?
    pub(crate) const fn holds_process(&self) -> bool {
        !matches!(self, Self::Failed)
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        matches!(self, Self::Stopping { .. })
    }

    /// Is it to be spawned when its turn's mark is durable?
    pub(crate) const fn is_spawning_per_turn(&self) -> bool {
        matches!(self, Self::Planned)
    }

    const fn ready_since(&self) -> Option<Duration> {
        match self {
            Self::Ready { since, .. }
            | Self::Probing { since, .. }
            | Self::Recycling { since, .. } => Some(*since),
            _ => None,
        }
    }
}

impl Slot {
    pub(crate) fn new(agent: &Agent, fit: Fit) -> Self {
        Self {
            agent: agent.name.clone(),
            fit,
            phase: SlotPhase::Planned,
            generation: Generation(0),
            restarts: 0,
            last_exit: None,
            last_error: None,
            last_ok_ms: None,
            spawned_at: Duration::ZERO,
            sessions: std::collections::BTreeSet::new(),
            turns: std::collections::BTreeSet::new(),
            capacity: agent.describe.concurrent_sends.max(1),
            one_session: agent.describe.sessions != crate::agent::Sessions::Many,
            resuming: None,
            idle_since: Duration::ZERO,
            retiring: false,
            restart_when_idle: false,
            strays: 0,
        }
    }

    /// As `status` names it.
    pub(crate) fn state(&self, settling: bool, permanent: bool) -> WorkerState {
        match self.phase {
            SlotPhase::Planned | SlotPhase::Starting { .. } => WorkerState::Starting,
            SlotPhase::Ready { .. } if settling => WorkerState::Settling,
            SlotPhase::Ready { .. } if self.turns.is_empty() => WorkerState::Idle,
            SlotPhase::Ready { .. } => WorkerState::Busy,
            SlotPhase::Probing { .. } | SlotPhase::Recycling { .. } => WorkerState::Busy,
            SlotPhase::Backoff => WorkerState::Backoff,
            SlotPhase::Stopping { .. } => WorkerState::Stopping,
            SlotPhase::Failed if permanent => WorkerState::Failed,
            SlotPhase::Failed => WorkerState::CrashLooped,
        }
    }
}

impl State {
    /// Starts a slot's next generation, as soon as the spawn rate allows.
    pub(crate) fn start(&mut self, worker: WorkerId) {
        if !self.spawn_allowed() {
            let again = self.now.mono + Duration::from_millis(100);
            if let Some(slot) = self.slots.get_mut(&worker) {
                slot.phase = SlotPhase::Backoff;
                self.timers.set(Timer::Slot(worker), again);
            }
            return;
        }
        let Some(slot) = self.slots.get(&worker) else {
            return;
        };
        let (spawn, resuming) = self.spawn_of(slot);
        let Some(agent) = self.settings.agents.get(&slot.agent) else {
            return;
        };
        let ready_within = agent.describe.ready_within;
        let now = self.now.mono;
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        slot.generation.0 += 1;
        slot.phase = SlotPhase::Starting { pid: None };
        slot.spawned_at = now;
        slot.resuming = resuming;
        slot.retiring = false;
        slot.restart_when_idle = false;
        let generation = slot.generation;
        self.timers.clear(Timer::Retire(worker));
        self.timers.set(Timer::Slot(worker), now + ready_within);
        self.out.push(Effect::Spawn {
            worker,
            generation,
            spawn: Box::new(spawn),
        });
    }

    /// Spawns the process that is one turn.
    pub(crate) fn spawn_for_turn(&mut self, worker: WorkerId, prompt: Prompt) {
        let now = self.now.mono;
        let Some(slot) = self.slots.get(&worker) else {
            return;
        };
        let (mut spawn, _) = self.spawn_of(slot);
        spawn.prompt = Some(Box::new(prompt));
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        slot.phase = SlotPhase::Ready {
            pid: None,
            since: now,
        };
        slot.spawned_at = now;
        let generation = slot.generation;
        self.out.push(Effect::Spawn {
            worker,
            generation,
            spawn: Box::new(spawn),
        });
    }

    fn current(&mut self, worker: WorkerId, generation: Generation) -> Option<&mut Slot> {
        self.slots
            .get_mut(&worker)
            .filter(|slot| slot.generation == generation)
    }

    pub(crate) fn spawned(&mut self, worker: WorkerId, generation: Generation, new: u32) {
        let Some(slot) = self.current(worker, generation) else {
            return;
        };
        match &mut slot.phase {
            SlotPhase::Starting { pid } => {
                *pid = Some(new);
                self.out.push(Effect::Tell {
                    worker,
                    generation,
                    command: WorkerCommand::Probe,
                });
            }
            SlotPhase::Ready { pid, .. } | SlotPhase::Stopping { pid, .. } => *pid = Some(new),
            SlotPhase::Planned
            | SlotPhase::Probing { .. }
            | SlotPhase::Recycling { .. }
            | SlotPhase::Backoff
            | SlotPhase::Failed => {}
        }
    }

    /// The worker answered a probe.
    pub(crate) fn worker_ready(&mut self, worker: WorkerId, traits: Traits) {
        let now = self.now.mono;
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        let (pid, since) = match slot.phase {
            SlotPhase::Starting { pid } => (pid, now),
            SlotPhase::Probing { pid, since } => (pid, since),
            _ => return,
        };
        let first = matches!(slot.phase, SlotPhase::Starting { .. });
        slot.phase = SlotPhase::Ready { pid, since };
        slot.idle_since = now;
        self.timers.clear(Timer::Slot(worker));
        if first {
            if let Some(one) = traits.one_session {
                slot.one_session = one;
            }
            if let Some(most) = traits.concurrent_sends {
                slot.capacity = most.max(1);
            }
            let agent = slot.agent.clone();
            if let Some(session) = slot.resuming
                && let Some(session) = self.sessions.get_mut(&session)
            {
                session.open = true;
                session.health.ready();
            }
            if let Some(health) = self.health.get_mut(&agent) {
                health.ready();
            }
            self.restarted(worker, Ok(()));
        }
        if self
            .slots
            .get(&worker)
            .is_some_and(|slot| slot.turns.is_empty())
        {
            self.arm_idle(worker);
        }
    }

    /// The process is ready for a new session.
    pub(crate) fn worker_recycled(&mut self, worker: WorkerId) {
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        if let SlotPhase::Recycling { pid, since } = slot.phase {
            slot.phase = SlotPhase::Ready { pid, since };
            slot.idle_since = self.now.mono;
            self.timers.clear(Timer::Slot(worker));
            self.arm_idle(worker);
        }
    }

    pub(crate) fn spawn_failed(
        &mut self,
        worker: WorkerId,
        generation: Generation,
        error: &str,
        permanent: bool,
    ) {
        if self.current(worker, generation).is_none() {
            return;
        }
        let lived = Duration::ZERO;
        self.died(
            worker,
            lived,
            false,
            format!("it could not be started: {error}"),
            "",
            permanent,
        );
    }

    pub(crate) fn worker_stuck(&mut self, worker: WorkerId, generation: Generation, why: &str) {
        let Some(slot) = self.current(worker, generation) else {
            return;
        };
        slot.last_error = Some(why.to_owned());
        if !slot.phase.is_stopping() {
            self.stop_slot(worker, Rung::Kill);
        }
    }

    pub(crate) fn exited(
        &mut self,
        worker: WorkerId,
        generation: Generation,
        exit: Exit,
        tail: &str,
    ) {
        let now = self.now.mono;
        let Some(slot) = self.current(worker, generation) else {
            return;
        };
        slot.last_exit = Some(exit.to_string());
        let was_ready = slot.phase.ready_since().is_some() || slot.phase.is_stopping();
        let lived = now.saturating_sub(slot.phase.ready_since().unwrap_or(slot.spawned_at));
        let agent = slot.agent.clone();
        let asked = match slot.phase {
            SlotPhase::Stopping { then, .. } => Some(then),
            _ => None,
        };
        if self.settings.agents.get(&agent).is_some_and(per_turn) {
            // Its exit is its turn's end, which the adapter has told already.
            self.end_turns(worker, &format!("agent `{agent}` {exit}"), tail);
            return self.drop_slot(worker);
        }
        let Some(then) = asked else {
            let permanent =
                !was_ready && matches!(exit, Exit::Code(code) if PERMANENT_EXITS.contains(&code));
            return self.died(worker, lived, was_ready, exit.to_string(), tail, permanent);
        };
        let stuck = self
            .slots
            .get(&worker)
            .and_then(|slot| slot.last_error.clone());
        let why =
            stuck.unwrap_or_else(|| format!("agent `{agent}` {exit} while it was being stopped"));
        self.end_turns(worker, &why, tail);
        match then {
            Then::Restart if !self.mode.is_stopping() => {
                if let Some(slot) = self.slots.get_mut(&worker) {
                    slot.restarts += 1;
                }
                self.counters.restarts += 1;
                self.close_sessions(worker);
                self.start(worker);
            }
            Then::Restart | Then::Gone => self.drop_slot(worker),
        }
    }

    /// A process died unasked, or never came up.
    fn died(
        &mut self,
        worker: WorkerId,
        lived: Duration,
        was_ready: bool,
        why: String,
        tail: &str,
        permanent: bool,
    ) {
        let now = self.now.mono;
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        let agent = slot.agent.clone();
        let resuming = slot.resuming.take();
        slot.last_error = Some(if tail.is_empty() {
            why.clone()
        } else {
            format!("{why}; it said: {tail}")
        });
        let sessions: Vec<SessionId> = slot.sessions.iter().copied().collect();
        // Deaths before readiness are the agent's; later ones, and those of a resume, the session's.
        let blamed: Vec<SessionId> = if was_ready {
            sessions
        } else {
            resuming.into_iter().collect()
        };
        if blamed.is_empty() {
            let health = self.health.entry(agent.clone()).or_default();
            if permanent {
                health.breaks(now, true, why.clone(), tail);
            } else {
                health.died(now, lived, why.clone(), tail);
            }
        }
        for session in &blamed {
            if let Some(session) = self.sessions.get_mut(session) {
                session.health.died(now, lived, why.clone(), tail);
            }
        }
        self.end_turns(worker, &format!("agent `{agent}` {why}"), tail);
        self.close_sessions(worker);
        self.after_death(worker, lived);
    }

    /// Starts a dead slot again, keeps it as broken, or lets it go.
    fn after_death(&mut self, worker: WorkerId, lived: Duration) {
        let now = self.now.mono;
        let Some(slot) = self.slots.get(&worker) else {
            return;
        };
        let (agent, generation) = (slot.agent.clone(), slot.generation);
        let sessions: Vec<SessionId> = slot.sessions.iter().copied().collect();
        let mut delay = Duration::ZERO;
        let mut broken = self
            .health
            .get(&agent)
            .is_some_and(|health| health.state().is_some());
        let jitter = mix(self.settings.seed ^ (worker.0 << 20) ^ generation.0);
        let healths = sessions
            .iter()
            .filter_map(|session| self.sessions.get(session).map(|session| &session.health));
        for health in healths.chain(self.health.get(&agent)) {
            broken |= health.state().is_some();
            delay = delay.max(health.delay(jitter));
        }
        if broken {
            let why = self
                .slots
                .get(&worker)
                .and_then(|slot| slot.last_error.clone())
                .unwrap_or_default();
            if let Some(slot) = self.slots.get_mut(&worker) {
                slot.phase = SlotPhase::Failed;
            }
            self.timers.clear(Timer::Slot(worker));
            self.timers
                .set_if_unset(Timer::Breaker, now + crate::limits::BREAKER_RETRY);
            self.restarted(
                worker,
                Err(format!(
                    "the worker of agent `{agent}` does not come up: {why}"
                )),
            );
            return self.fail_waiting(&agent, &sessions);
        }
        let wanted = sessions.iter().any(|session| {
            self.sessions
                .get(session)
                .is_some_and(|session| session.named || !session.queue.is_empty())
        });
        let spare = self
            .settings
            .agents
            .get(&agent)
            .is_some_and(|agent| agent.warm > 0);
        if self.mode.is_stopping()
            || !(wanted || spare || self.restarts_wait_for(worker))
            || self.settings.served != Served::Daemon && !wanted
        {
            return self.drop_slot(worker);
        }
        if let Some(slot) = self.slots.get_mut(&worker) {
            slot.restarts += 1;
            slot.phase = SlotPhase::Backoff;
        }
        self.counters.restarts += 1;
        if lived > HEALTHY_AFTER || delay.is_zero() {
            self.start(worker);
        } else {
            self.timers.set(Timer::Slot(worker), now + delay);
        }
    }

    fn restarts_wait_for(&self, worker: WorkerId) -> bool {
        self.slots
            .get(&worker)
            .is_some_and(|slot| slot.restart_when_idle)
    }

    /// Everything that waits for a broken agent or session ends.
    fn fail_waiting(&mut self, agent: &str, sessions: &[SessionId]) {
        let agent_broken = self
            .health
            .get(agent)
            .is_some_and(|health| health.state().is_some());
        let turns: Vec<(TurnId, SessionId)> = self
            .jobs
            .iter()
            .filter(|(_, job)| matches!(job.phase, Phase::Queued | Phase::Held))
            .filter(|(_, job)| {
                (agent_broken && job.agent == agent) || sessions.contains(&job.session)
            })
            .map(|(turn, job)| (*turn, job.session))
            .collect();
        for (turn, session) in turns {
            if let Some(failure) = self.broken(agent, session) {
                self.fail(turn, failure);
            }
        }
    }

    /// Ends the turns of a process that is gone, each as its state says.
    fn end_turns(&mut self, worker: WorkerId, why: &str, tail: &str) {
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        let stuck = slot.last_error.clone().filter(|_| slot.phase.is_stopping());
        for turn in std::mem::take(&mut slot.turns) {
            let Some(job) = self.jobs.get(&turn) else {
                continue;
            };
            let again =
                job.send.retry == agentd_protocol::request::Retry::Auto && job.attempt < ATTEMPTS;
            match job.phase.clone() {
                // Not a byte went to it: when the store answers, `begin` sees that it is gone.
                Phase::Pending { .. } | Phase::Marking { .. } => {}
                Phase::Settling { ending, .. } => self.end_as_asked(turn, &ending),
                Phase::Running { .. } if again => self.run_again(turn),
                Phase::Running { .. } => {
                    let number = job
                        .number
                        .map(|number| number.to_string())
                        .unwrap_or_default();
                    let code = if stuck.is_some() {
                        Code::WorkerUnresponsive
                    } else {
                        Code::WorkerExited
                    };
                    let said = if tail.trim().is_empty() {
                        String::new()
                    } else {
                        format!("; it said: {}", tail.trim_end())
                    };
                    let failure = Failure {
                        hint: Some(format!(
                            "`agentctl collect {number}` shows what it had done"
                        )),
                        ..Failure::new(code, format!("{why} while running job {number}{said}"))
                    };
                    self.fail(turn, failure);
                }
                Phase::Queued | Phase::Held | Phase::Finishing => {}
            }
        }
    }

    /// A turn that may run again waits again, with what it said so far marked as replaced.
    fn run_again(&mut self, turn: TurnId) {
        let Some(job) = self.jobs.get_mut(&turn) else {
            return;
        };
        job.restart();
        job.phase = Phase::Queued;
        let (session, number) = (job.session, job.number);
        for timer in [
            Timer::Running(turn),
            Timer::Stalled(turn),
            Timer::Settling(turn),
        ] {
            self.timers.clear(timer);
        }
        if let Some(session) = self.sessions.get_mut(&session) {
            session.current = None;
            session.queue.push_front(turn);
        }
        self.waiting.insert(turn);
        if let Some(job) = number {
            self.write_lazily(Write::Requeue { job });
        }
    }

    /// The sessions of a dead process have no memory in it any more.
    fn close_sessions(&mut self, worker: WorkerId) {
        let Some(slot) = self.slots.get(&worker) else {
            return;
        };
        for session in slot.sessions.clone() {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.open = false;
            }
        }
        // A process of many sessions comes up for whoever still waits or was named.
        let gone: Vec<SessionId> = slot
            .sessions
            .iter()
            .copied()
            .filter(|session| {
                self.sessions.get(session).is_none_or(|known| {
                    !known.named && known.queue.is_empty() && known.current.is_none()
                })
            })
            .collect();
        for session in gone {
            self.unbind(worker, session);
        }
    }

    /// A session lets its process go.
    pub(crate) fn unbind(&mut self, worker: WorkerId, session: SessionId) {
        if let Some(slot) = self.slots.get_mut(&worker) {
            slot.sessions.remove(&session);
        }
        if let Some(session) = self.sessions.get_mut(&session)
            && session.slot == Some(worker)
        {
            session.slot = None;
            session.open = false;
        }
        self.forget_session_if_idle(session);
    }

    /// Removes a slot that has no process.
    pub(crate) fn drop_slot(&mut self, worker: WorkerId) {
        let Some(slot) = self.slots.remove(&worker) else {
            return;
        };
        for timer in [
            Timer::Slot(worker),
            Timer::Idle(worker),
            Timer::Retire(worker),
        ] {
            self.timers.clear(timer);
        }
        for session in slot.sessions {
            if let Some(known) = self.sessions.get_mut(&session)
                && known.slot == Some(worker)
            {
                known.slot = None;
                known.open = false;
            }
            self.forget_session_if_idle(session);
        }
        self.restarted(worker, Ok(()));
    }

    /// The deadline of a slot's phase has passed.
    pub(crate) fn slot_deadline(&mut self, worker: WorkerId) {
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        match slot.phase {
            SlotPhase::Backoff => self.start(worker),
            SlotPhase::Starting { .. } => {
                slot.last_error = Some("it did not get ready in time".to_owned());
                self.stop_slot(worker, Rung::Kill);
                // It never got ready: that is a death, not a stop that somebody asked for.
                self.unready(worker);
            }
            SlotPhase::Probing { .. } => {
                slot.last_error = Some("it was idle and did not answer when asked".to_owned());
                self.restart_slot(worker, true);
                self.climb(worker, Rung::Kill);
            }
            SlotPhase::Recycling { .. } => {
                slot.last_error = Some("it did not open a new session in time".to_owned());
                self.stop_slot(worker, Rung::Ask);
            }
            SlotPhase::Stopping { rung, .. } => match rung {
                Rung::Ask => self.climb(worker, Rung::Term),
                Rung::Term | Rung::Kill => self.climb(worker, Rung::Kill),
            },
            SlotPhase::Planned | SlotPhase::Ready { .. } | SlotPhase::Failed => {}
        }
    }

    /// Counts a process that missed its readiness as dead; its exit is awaited all the same.
    fn unready(&mut self, worker: WorkerId) {
        let now = self.now.mono;
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        let (agent, resuming) = (slot.agent.clone(), slot.resuming.take());
        let why = slot.last_error.clone().unwrap_or_default();
        let lived = now.saturating_sub(slot.spawned_at);
        match resuming.and_then(|session| self.sessions.get_mut(&session)) {
            Some(session) => session.health.died(now, lived, why, ""),
            None => self
                .health
                .entry(agent.clone())
                .or_default()
                .died(now, lived, why, ""),
        }
        let sessions: Vec<_> = self
            .slots
            .get(&worker)
            .map(|slot| slot.sessions.iter().copied().collect())
            .unwrap_or_default();
        self.fail_waiting(&agent, &sessions);
    }

    /// Begins to end a process; an earlier rung of a stop under way is never gone back to.
    pub(crate) fn stop_slot(&mut self, worker: WorkerId, rung: Rung) {
        self.end_slot(worker, rung, Then::Gone);
    }

    fn end_slot(&mut self, worker: WorkerId, rung: Rung, then: Then) {
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        let pid = match slot.phase {
            SlotPhase::Planned | SlotPhase::Backoff | SlotPhase::Failed => {
                return match then {
                    Then::Gone => self.drop_slot(worker),
                    Then::Restart => self.start(worker),
                };
            }
            SlotPhase::Stopping {
                rung: now,
                then: before,
                pid,
            } => {
                // What was to be restarted may still be told to go, not the reverse.
                let then = if before == Then::Gone {
                    Then::Gone
                } else {
                    then
                };
                slot.phase = SlotPhase::Stopping {
                    pid,
                    rung: now,
                    then,
                };
                if rung_of(rung) > rung_of(now) {
                    self.climb(worker, rung);
                }
                return;
            }
            SlotPhase::Starting { pid }
            | SlotPhase::Ready { pid, .. }
            | SlotPhase::Probing { pid, .. }
            | SlotPhase::Recycling { pid, .. } => pid,
        };
        slot.phase = SlotPhase::Stopping { pid, rung, then };
        self.timers.clear(Timer::Idle(worker));
        self.timers.clear(Timer::Retire(worker));
        self.climb(worker, rung);
    }

    /// Takes the next rung of the stop ladder.
    pub(crate) fn climb(&mut self, worker: WorkerId, next: Rung) {
        let at = self.now.mono + RUNG;
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        let SlotPhase::Stopping { rung, .. } = &mut slot.phase else {
            return;
        };
        *rung = next;
        let generation = slot.generation;
        self.timers.set(Timer::Slot(worker), at);
        self.out.push(Effect::End {
            worker,
            generation,
            rung: next,
        });
    }

    /// No new turns; it goes when the last one ended, or after `RETIRE_WITHIN`.
    pub(crate) fn retire(&mut self, worker: WorkerId) {
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        slot.retiring = true;
        if slot.turns.is_empty() {
            self.stop_slot(worker, Rung::Ask);
        } else {
            self.timers
                .set_if_unset(Timer::Retire(worker), self.now.mono + RETIRE_WITHIN);
        }
    }

    pub(crate) fn retire_now(&mut self, worker: WorkerId) {
        self.stop_slot(worker, Rung::Ask);
    }

    /// Replaces a slot's process, at once or when its turns ended.
    pub(crate) fn restart_slot(&mut self, worker: WorkerId, now: bool) {
        let Some(slot) = self.slots.get_mut(&worker) else {
            return;
        };
        if now || slot.turns.is_empty() {
            self.end_slot(worker, Rung::Ask, Then::Restart);
        } else {
            slot.restart_when_idle = true;
        }
    }

    /// A turn's worker did not settle: its process must go.
    pub(crate) fn unsettled(&mut self, turn: TurnId) {
        let Some(job) = self.jobs.get(&turn) else {
            return;
        };
        let Phase::Settling { process, ending } = job.phase.clone() else {
            return;
        };
        let alone = self
            .slots
            .get(&process.worker)
            .is_none_or(|slot| slot.turns.len() <= 1);
        if alone || ending == Ending::Interrupted {
            self.end_slot(process.worker, Rung::Ask, Then::Restart);
        } else {
            self.retire(process.worker);
        }
    }
}

const fn rung_of(rung: Rung) -> u8 {
    match rung {
        Rung::Ask => 0,
        Rung::Term => 1,
        Rung::Kill => 2,
    }
}
