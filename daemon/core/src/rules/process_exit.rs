//! What a process's end means: for its turns, its sessions, its agent.
//!
//! Owns what is ended and started again. Whose fault it is, `pool/crash_blame.rs` says. An end that was asked
//! for is no death.

use std::time::Duration;

use agentd_protocol::Code;

use crate::agent::Warm;
use crate::effect::StopStage;
use crate::event::Fault;
use crate::health::{Cause, mix};
use crate::ids::{Generation, SessionId, TurnId, WorkerId};
use crate::jobs::job::Phase;
use crate::jobs::slices::Fate;
use crate::limits::{DEFAULT_EXPIRES, HEALTHY_AFTER, MISSING_EXITS, PERMANENT_EXITS};
use crate::log::What;
use crate::outbox::timers::Timer;
use crate::peers::questions::Closed;
use crate::pool::crash_blame::{Blame, Death};
use crate::pool::slot::{SlotPhase, Then};
use crate::rules::agent_choice::per_turn;
use crate::settings::Served;
use crate::state::State;
use crate::store::Write;
use crate::worker::{Exit, Failure};

/// The same number everywhere (POSIX, `kill`).
const SIGKILL: i32 = 9;

impl State {
    pub(crate) fn spawn_failed(
        &mut self,
        worker: WorkerId,
        generation: Generation,
        error: &str,
        fault: Fault,
    ) {
        let Some(slot) = self.pool.current(worker, generation) else {
            return;
        };
        let is_one_turn = slot.is_one_turn();
        match fault {
            Fault::Directory => {
                return self.never_began(
                    worker,
                    error,
                    "make it again, or begin a new session elsewhere",
                );
            }
            Fault::Arguments if is_one_turn => {
                return self.never_began(
                    worker,
                    error,
                    "the prompt is an argument of this agent's command: send a shorter one, without NUL; \
                     or leave out `{prompt}` in its `command`, and it comes by standard input",
                );
            }
            Fault::Agent | Fault::Missing | Fault::Short | Fault::Machine | Fault::Arguments => {}
        }
        self.log_worker(
            worker,
            What::NotStarted {
                error: error.to_owned(),
            },
        );
        let death = Death {
            ready_for: None,
            cause: match fault {
                Fault::Machine => Cause::Crash,
                Fault::Missing => Cause::Missing,
                Fault::Short => Cause::Short,
                Fault::Agent | Fault::Directory | Fault::Arguments => Cause::Refusal,
            },
            why: &format!("it could not be started: {error}"),
            tail: "",
        };
        // These may pass by themselves, so the turns wait and nothing counts against the agent yet.
        if death.cause.waits().is_some() {
            return self.missing(worker, &death);
        }
        self.died(worker, &death);
    }

    /// There is no process because of what only its turns asked for: they end, and it counts
    /// against nobody.
    fn never_began(&mut self, worker: WorkerId, error: &str, hint: &str) {
        let slot = expected!(self.pool.get_mut(worker));
        let failure = Failure {
            hint: Some(hint.to_owned()),
            ..Failure::new(Code::InvalidRequest, error)
        };
        let failed = Fate::Failed(Box::new(failure));
        let (agent, cwd) = (slot.agent.clone(), slot.fit.cwd.clone());
        let (sessions, is_one_turn) = (slot.sessions.clone(), slot.is_one_turn());
        let turns = std::mem::take(&mut slot.turns);
        for turn in turns {
            match self.jobs.get(&turn).map(|job| job.phase.clone()) {
                Some(Phase::Settling { ending, .. }) => {
                    self.end_in_turn(turn, Fate::Asked(ending));
                }
                Some(Phase::Running { .. }) => self.end_in_turn(turn, failed.clone()),
                // Not a byte went to it: when the store answers, `begin` sees that it is gone.
                _ => {}
            }
        }
        if !is_one_turn {
            // Who only shared the process works elsewhere, and goes on in another one.
            let there = sessions
                .iter()
                .filter_map(|session| self.sessions.get(session));
            let there = there.filter(|session| session.cwd == cwd);
            let queued = there.flat_map(|session| &session.queue).copied();
            let is_queued = |turn: &TurnId| {
                let job = self.jobs.get(turn);
                job.is_some_and(|job| job.phase == Phase::Queued)
            };
            let queued: Vec<TurnId> = queued.filter(is_queued).collect();
            for turn in queued {
                self.end_in_turn(turn, failed.clone());
            }
            // A spare there would fail in the same way, over and over.
            self.no_spares_in(&agent, &cwd);
        }
        self.restarted(worker, Err(error.to_owned()));
        self.drop_slot(worker);
    }

    pub(crate) fn is_per_turn(&self, agent: &str) -> bool {
        self.settings.agents.get(agent).is_some_and(per_turn)
    }

    pub(crate) fn worker_stuck(&mut self, worker: WorkerId, generation: Generation, why: &str) {
        let Some(slot) = self.pool.current(worker, generation) else {
            return;
        };
        // It never came up, which counts as its death.
        if matches!(slot.phase, SlotPhase::Starting { .. }) {
            return self.unready(worker, why);
        }
        slot.last_error = Some(why.to_owned());
        let stops = slot.phase.is_stopping();
        self.note_crash(worker, why);
        self.log_worker(worker, What::Unresponsive);
        if !stops {
            // It doesn't read: what asks it to end would not be heard.
            self.stop_slot(worker, StopStage::Kill);
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
        let Some(slot) = self.pool.current(worker, generation) else {
            return;
        };
        slot.last_exit = Some(exit.to_string());
        let since = slot.phase.ready_since();
        let ready_for = since.map(|since| now.saturating_sub(since));
        let agent = slot.agent.clone();
        let asked = match slot.phase {
            SlotPhase::Stopping { then, .. } => Some(then),
            _ => None,
        };
        let per_turn = slot.is_one_turn();
        let gone = What::Gone {
            exit,
            asked: asked.is_some() || per_turn,
        };
        self.log_worker(worker, gone);
        if per_turn {
            if let Exit::Signal(_) = exit
                && asked.is_none()
            {
                self.note_crash(worker, &exit.to_string());
            }
            // Its exit is its turn's end, which the adapter has told already.
            self.end_turns(worker, &format!("agent `{agent}` {exit}"), tail);
            return self.drop_slot(worker);
        }
        let Some(then) = asked else {
            return self.exited_unasked(worker, exit, ready_for, tail);
        };
        // Why it was ended, which says more than how it ended.
        let stuck = self
            .pool
            .get(&worker)
            .and_then(|slot| slot.last_error.clone());
        let why =
            stuck.unwrap_or_else(|| format!("agent `{agent}` {exit} while it was being stopped"));
        self.end_turns(worker, &why, tail);
        match then {
            Then::Restart if !self.mode.is_stopping() => {
                if let Some(slot) = found!(self.pool.get_mut(worker)) {
                    slot.restarts += 1;
                }
                self.counters.restarts += 1;
                // Before it starts again: its next process reopens what is left in it.
                self.close_sessions(worker);
                self.start(worker);
            }
            Then::Refused => match self.pins_at_first(worker) {
                Some(asked) => self.pins_refused(worker, &asked, &why, tail),
                None => self.drop_slot(worker),
            },
            Then::Death => {
                self.close_sessions(worker);
                // It was counted when its time to get ready was over.
                self.after_death(worker, Duration::ZERO);
            }
            Then::Restart | Then::Gone => self.drop_slot(worker),
        }
    }

    /// A process that nobody had told to end.
    fn exited_unasked(
        &mut self,
        worker: WorkerId,
        exit: Exit,
        ready_for: Option<Duration>,
        tail: &str,
    ) {
        let pins = self.pins_at_first(worker);
        let missing = matches!(exit, Exit::Code(code) if MISSING_EXITS.contains(&code))
            && ready_for.is_none();
        // Neither says anything of what it was asked for: it left well, or the machine
        // had no room for it.
        let own = !missing && !matches!(exit, Exit::Code(0) | Exit::Signal(SIGKILL));
        if let Some(asked) = pins.filter(|_| own) {
            return self.pins_refused(worker, &asked, &exit.to_string(), tail);
        }
        let refuses = matches!(exit, Exit::Code(code) if PERMANENT_EXITS.contains(&code));
        let death = Death {
            ready_for,
            cause: if missing {
                Cause::Missing
            } else if ready_for.is_none() && refuses {
                Cause::Refusal
            } else {
                Cause::Crash
            },
            why: &exit.to_string(),
            tail,
        };
        if missing {
            return self.missing(worker, &death);
        }
        self.died(worker, &death);
    }

    /// A process died unasked, or never came up.
    pub(crate) fn died(&mut self, worker: WorkerId, death: &Death<'_>) {
        let slot = expected!(self.pool.get_mut(worker));
        let Death { why, tail, .. } = *death;
        let agent = slot.agent.clone();
        let error = if tail.is_empty() {
            why.to_owned()
        } else {
            format!("{why}; it said: {tail}")
        };
        slot.last_error = Some(error.clone());
        self.note_crash(worker, &error);
        if self.is_automatic_spare(worker) {
            return self.spare_died(worker);
        }
        // Before its sessions are let go: it may be one of theirs.
        let blame = self.count_death(worker, death);
        self.end_turns(worker, &format!("agent `{agent}` {why}"), tail);
        self.close_sessions(worker);
        // It isn't started again by itself: its turns go to the process that it failed beside.
        if blame == Blame::Extra {
            self.restarted(worker, Err(error));
            return self.drop_slot(worker);
        }
        self.after_death(worker, death.ready_for.unwrap_or_default());
    }

    /// Starts a dead slot again, keeps it as broken, or lets it go: a process that is one turn has
    /// nothing to do any more.
    pub(crate) fn after_death(&mut self, worker: WorkerId, lived: Duration) {
        let now = self.now.mono;
        let slot = expected!(self.pool.get(worker));
        let (agent, generation) = (slot.agent.clone(), slot.generation);
        let sessions: Vec<SessionId> = slot.sessions.iter().copied().collect();
        let mut delay = Duration::ZERO;
        let mut broken = self
            .pool
            .health(&agent)
            .is_some_and(|health| health.state().is_some());
        let jitter = mix(self.settings.seed ^ (worker.0 << 20) ^ generation.0);
        let healths = sessions
            .iter()
            .filter_map(|session| Some(&*self.sessions.get(session)?.health));
        // The worst of them: a session that keeps killing its process waits longer than its agent
        // has to.
        for health in healths.chain(self.pool.health(&agent)) {
            broken |= health.state().is_some();
            delay = delay.max(health.delay(jitter));
        }
        if broken {
            let why = self
                .pool
                .get(&worker)
                .and_then(|slot| slot.last_error.clone())
                .unwrap_or_default();
            if let Some(slot) = found!(self.pool.get_mut(worker)) {
                slot.phase = SlotPhase::Failed;
            }
            for session in &sessions {
                let known = self.sessions.get_mut(session);
                if let Some(known) = self.outbox.expected(*session, known) {
                    known.coming = false;
                }
            }
            // It is shown until it may be tried again.
            let until = now + crate::limits::BREAKER_RETRY;
            self.outbox.set(Timer::Slot(worker), until);
            self.outbox.set_if_unset(Timer::Breaker, until);
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
            .is_some_and(|agent| matches!(agent.warm, Warm::Always(1..)));
        if self.mode.is_stopping()
            || self.is_per_turn(&agent)
            || !(wanted || spare || self.restarts_wait_for(worker))
            // A run without the daemon ends with its turn.
            || self.settings.served != Served::Daemon && !wanted
        {
            return self.drop_slot(worker);
        }
        if let Some(slot) = found!(self.pool.get_mut(worker)) {
            slot.restarts += 1;
            slot.phase = SlotPhase::Backoff;
        }
        self.counters.restarts += 1;
        // After a healthy life it was no loop.
        if lived > HEALTHY_AFTER || delay.is_zero() {
            self.start(worker);
        } else {
            self.outbox.set(Timer::Slot(worker), now + delay);
        }
    }

    pub(crate) fn restarts_wait_for(&self, worker: WorkerId) -> bool {
        self.pool
            .get(&worker)
            .is_some_and(|slot| slot.restart_when_idle)
    }

    /// Everything that waits for a broken agent or session ends.
    pub(crate) fn fail_waiting(&mut self, agent: &str, sessions: &[SessionId]) {
        let agent_broken = self
            .pool
            .health(agent)
            .is_some_and(|health| health.state().is_some());
        let turns: Vec<(TurnId, SessionId)> = self
            .jobs
            .iter()
            .filter(|(_, job)| matches!(job.phase, Phase::Queued | Phase::Held))
            .filter(|(_, job)| {
                (agent_broken
                    && self.agent_of(job.session) == agent
                    // Who has a process hears nothing of it.
                    && !self.has_process_for(agent, Some(job.session)))
                    || sessions.contains(&job.session)
            })
            .map(|(turn, job)| (turn, job.session))
            .collect();
        for (turn, session) in turns {
            if let Some(failure) = self.broken(agent, session) {
                self.end_in_turn(turn, Fate::Failed(Box::new(failure)));
            }
        }
    }

    /// Ends the turns of a process that is gone, each as its state says.
    pub(crate) fn end_turns(&mut self, worker: WorkerId, why: &str, tail: &str) {
        self.compact_failed(worker, why);
        let slot = expected!(self.pool.get_mut(worker));
        let stuck = slot.last_error.clone().filter(|_| slot.phase.is_stopping());
        for turn in std::mem::take(&mut slot.turns) {
            let Some(job) = found!(self.jobs.get(turn)) else {
                continue;
            };
            let again = job.may_run_again();
            match job.phase.clone() {
                // Not a byte went to it: when the store answers, `begin` sees that it is gone.
                Phase::Pending { .. } | Phase::Marking { .. } => {}
                Phase::Settling { ending, .. } => self.end_in_turn(turn, Fate::Asked(ending)),
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
                        hint: Some(format!("what it had done is kept with {number}")),
                        ..Failure::new(code, format!("{why} while running job {number}{said}"))
                    };
                    self.end_in_turn(turn, Fate::Failed(Box::new(failure)));
                }
                Phase::Scheduled | Phase::Queued | Phase::Held | Phase::Finishing => {}
            }
        }
    }

    /// A turn that had begun waits once more, for as long as a new one would at most.
    pub(crate) fn wait_afresh(&mut self, turn: TurnId) {
        // By the old time, before that changes.
        self.jobs.waits_no_more(turn);
        if let Some(job) = found!(self.jobs.get_mut(turn)) {
            let until = Duration::from_millis(self.now.boot_ms) + DEFAULT_EXPIRES;
            job.expires = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        }
        self.jobs.waits(turn);
    }

    /// A turn that may run again waits again, with what it said so far marked as replaced.
    pub(crate) fn run_again(&mut self, turn: TurnId) {
        self.close_questions(turn, Closed::Exit);
        self.steers_too_late(turn);
        let job = expected!(self.jobs.get_mut(turn));
        job.restart();
        job.phase = Phase::Queued;
        let (session, number, attempt) = (job.session, job.number, job.attempt);
        for timer in [
            Timer::Running(turn),
            Timer::Stalled(turn),
            Timer::Settling(turn),
        ] {
            self.outbox.clear(timer);
        }
        if let Some(session) = found!(self.sessions.get_mut(session)) {
            session.current = None;
            // It keeps its place before those that came after it.
            session.queue.push_front(turn);
        }
        self.wait_afresh(turn);
        if let Some(job) = number {
            self.outbox.tell_later(Write::Requeue { job, attempt });
        }
    }

    /// The sessions of a dead process have no memory in it any more.
    pub(crate) fn close_sessions(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get(worker));
        for session in slot.sessions.clone() {
            if let Some(session) = found!(self.sessions.get_mut(session)) {
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

    /// Ends a process that never got ready: that is a death, not a stop that somebody asked for. It
    /// counts at once, though the exit is awaited; where only what its turns asked for may be at
    /// fault, they end with the end of what it printed.
    pub(crate) fn unready(&mut self, worker: WorkerId, why: &str) {
        let pins = self.pins_at_first(worker);
        let slot = expected!(self.pool.get_mut(worker));
        slot.last_error = Some(why.to_owned());
        let (agent, sessions) = (slot.agent.clone(), slot.sessions.clone());
        self.log_worker(worker, What::Unresponsive);
        if self.is_automatic_spare(worker) {
            return self.spare_hangs(worker);
        }
        // What it prints while it ends may say why: the turns wait for that.
        if pins.is_some() {
            return self.end_slot(worker, StopStage::Kill, Then::Refused);
        }
        let death = Death {
            ready_for: None,
            cause: Cause::Crash,
            why,
            tail: "",
        };
        if self.count_death(worker, &death) == Blame::Extra {
            self.restarted(worker, Err(why.to_owned()));
            self.end_slot(worker, StopStage::Kill, Then::Gone);
            return self.leave_extra(worker);
        }
        self.end_slot(worker, StopStage::Kill, Then::Death);
        let sessions: Vec<SessionId> = sessions.into_iter().collect();
        // Now, and not with its exit: that may take another five seconds.
        self.fail_waiting(&agent, &sessions);
    }
}
