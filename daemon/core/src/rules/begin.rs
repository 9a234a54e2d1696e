//! A turn meets its process, and leaves it.
//!
//! Owns the step from *waits* to *runs*: reserved, marked, begun, or given back untouched. Which
//! process it is, `placement.rs` has decided.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Context;
use agentd_protocol::request::Send;

use crate::agent::Resume;
use crate::effect::{Effect, StopStage};
use crate::ids::{Process, SessionId, TurnId, WorkerId};
use crate::jobs::job::{Job, Phase};
use crate::jobs::said::Notice;
use crate::log::What;
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timer;
use crate::pins;
use crate::pool::slot::{Slot, SlotPhase};
use crate::rules::agent_choice::SAY_ITS_PATH;
use crate::rules::beginning::begun;
use crate::rules::turn_timeout::allowed;
use crate::sessions::session::Session;
use crate::state::State;
use crate::store::{Pins, Write};
use crate::worker::{Failure, Prompt, WorkerCommand};

impl State {
    /// Gives a session the place of a process; whoever does so says whether it is there by now.
    pub(crate) fn claim(
        &mut self,
        worker: WorkerId,
        session_id: SessionId,
    ) -> Option<&mut Session> {
        let slot = found!(self.pool.get_mut(worker))?;
        slot.sessions.insert(session_id);
        let revision = slot.fit.revision;
        let session = found!(self.sessions.get_mut(session_id))?;
        session.slot = Some(worker);
        session.revision = Some(revision);
        Some(session)
    }

    /// Binds a turn to a process that has room.
    pub(crate) fn reserve(&mut self, turn: TurnId, worker: WorkerId) -> Option<Process> {
        let session_id = found!(self.jobs.get(turn))?.session;
        let slot = found!(self.pool.get_mut(worker))?;
        // From here on nobody else gets its place, though the mark is still on its way to the
        // store.
        slot.turns.insert(turn);
        slot.has_turn_again(session_id);
        let process = Process {
            worker,
            generation: slot.generation,
        };
        let session = self.claim(worker, session_id)?;
        session.coming = false;
        session.current = Some(turn);
        session.queue.retain(|other| *other != turn);
        self.outbox.clear(Timer::Idle(worker));
        self.outbox.clear(Timer::Unused(session_id));
        self.used(worker);
        Some(process)
    }

    /// Undoes `reserve`: not a byte went to the process.
    pub(crate) fn unplace(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        let Some(process) = job.process() else { return };
        let session_id = job.session;
        // The process may have died before a byte went to it.
        if let Some(slot) = self.pool.get_mut(&process.worker) {
            slot.turns.remove(&turn);
        }
        if let Some(session) = found!(self.sessions.get_mut(session_id))
            && session.current == Some(turn)
        {
            session.current = None;
            // To the front: it was the first, and those behind it are younger.
            session.queue.push_front(turn);
        }
        if let Some(job) = found!(self.jobs.get_mut(turn)) {
            job.phase = match &job.phase {
                Phase::Pending { cancelled, .. } => Phase::Pending {
                    placed: None,
                    cancelled: *cancelled,
                },
                _ => Phase::Queued,
            };
        }
        // Last: it may end the process, and the turn must not be bound to it any more.
        self.slot_freed(process.worker);
    }

    /// The same with a request that was read back, if it could be.
    pub(crate) fn begin_with(
        &mut self,
        turn: TurnId,
        process: Process,
        given: Result<Send, String>,
    ) {
        match given {
            Ok(given) => self.begin(turn, process, given),
            Err(why) => {
                self.unplace(turn);
                let error = format!("the turn's request can't be read back: {why}");
                self.fail(turn, Failure::new(Code::StoreFailed, error));
            }
        }
    }

    /// The *running* mark is durable: the first byte may go.
    pub(crate) fn begin(&mut self, turn: TurnId, process: Process, mut given: Send) {
        let current = self
            .pool
            .get(&process.worker)
            .filter(|slot| slot.generation == process.generation);
        let starts_now = current.is_some_and(|slot| slot.phase.is_spawning_per_turn());
        if !starts_now && !current.is_some_and(Slot::is_ready) {
            // It died meanwhile. Nothing was written, so waiting again is safe.
            self.requeue_unstarted(turn);
            return;
        }
        let context = self.context_of(turn, process.worker);
        let Some((context, native)) = self.outbox.expected(turn, context) else {
            return;
        };
        if let Some(failure) = self.unfit(turn, process.worker, context, &given) {
            self.unplace(turn);
            return self.fail(turn, failure);
        }
        if starts_now {
            self.make_native(turn);
        }
        self.count_process(turn, process.worker);
        // Its waiting is over only now: had its process died before its first byte, it would go on.
        self.jobs.waits_no_more(turn);
        let job = expected!(self.jobs.get_mut(turn));
        let session = expected!(self.sessions.get_mut(job.session));
        let since = *job.clock.get_or_insert(self.now.mono);
        let until = since + allowed(job);
        if until <= self.now.mono {
            // It rang while the mark was on its way.
            self.unplace(turn);
            return self.never_ready(turn);
        }
        // From its first byte on the new attempt replaces what the one before it said.
        job.begin_again();
        job.ran = true;
        job.said.context = Some(context);
        job.phase = Phase::Running { process };
        job.said.started_at = Some(self.now.mono);
        job.said.queued_for = self.now.mono.saturating_sub(job.accepted_at);
        job.said.progress_at = self.now.mono;
        session.open = true;
        if let Some(slot) = found!(self.pool.get(process.worker)) {
            session.last = slot.fit.pins().into();
        }
        // For good: a later turn knows no more of what went before, whatever its own context is.
        session.lost |= context == Context::Lost;
        self.outbox.set(Timer::Running(turn), until);
        self.outbox.set(
            Timer::Stalled(turn),
            self.now.mono + crate::limits::STALLED_AFTER,
        );
        let name = session.shown();
        let (begins, notice) = match self.pool.get(&process.worker) {
            // One that has an id is a session that its agent has begun.
            Some(slot) if context != Context::Continued && native.is_none() => {
                begun(session, slot, &mut given)
            }
            _ => (None, None),
        };
        let is_first = session.turns == 0 && job.attempt <= 1;
        let agent = self.settings.agents.get(&session.agent);
        let mode = agent.and_then(|agent| pins::mode_of_turn(agent, &session.pins));
        let prompt = job.prompt(turn, session, native.as_deref(), given, begins);
        let prompt = prompt.map(|prompt| Prompt { mode, ..prompt });
        self.jobs.unclock(turn);
        self.takes_native(process.worker);
        self.note_context(turn, process.worker, context, name);
        if let Some(notice) = notice.filter(|_| is_first) {
            self.note(turn, &notice);
        }
        self.note_overtaken(turn);
        let Some(prompt) = prompt else { return };
        self.log_started(turn);
        if starts_now {
            self.spawn_for_turn(process.worker, prompt);
        } else {
            let command = WorkerCommand::Prompt(Box::new(prompt));
            self.outbox.push(Effect::Tell {
                worker: process.worker,
                generation: process.generation,
                command,
            });
        }
        // Behind the prompt: before it the agent has no turn that they could steer.
        self.tell_steers(turn);
    }

    fn log_started(&mut self, turn: TurnId) {
        if let Some(job) = found!(self.jobs.get(turn)) {
            let started = What::Started {
                attempt: job.attempt,
                queued_ms: crate::text::millis(job.said.queued_for),
            };
            self.log_job(turn, started);
        }
    }

    /// Counts whether a turn begins in a process that was there already, or one was started for it.
    fn count_process(&mut self, turn: TurnId, worker: WorkerId) {
        let job = found!(self.jobs.get(turn));
        let slot = found!(self.pool.get_mut(worker));
        let (Some(job), Some(slot)) = (job, slot) else {
            return;
        };
        let was_there = match slot.phase {
            SlotPhase::Ready { since, .. } => slot.served || since < job.accepted_at,
            _ => false,
        };
        slot.served = true;
        // None is ever there for a process of one turn.
        if slot.is_one_turn() {
            return;
        }
        if was_there {
            self.counters.pool_hits += 1;
        } else {
            self.counters.pool_misses += 1;
        }
    }

    /// What a turn will know of its session's earlier ones, and the id by which the agent reopens
    /// it.
    fn context_of(&self, turn: TurnId, worker: WorkerId) -> Option<(Context, Option<String>)> {
        let session = self.sessions.get(&self.jobs.get(&turn)?.session)?;
        let slot = self.pool.get(&worker)?;
        let by_id = slot.reopens_in_turns();
        let native = session.reopened_by().filter(|_| by_id).map(str::to_owned);
        let remembers = slot.describe.resume != Resume::Stateless;
        // What an agent without memory never had it can't lose; one that was run in another form
        // had it.
        let context = if session.turns == 0 || !remembers && session.reopened_by().is_none() {
            Context::New
        } else if !remembers {
            Context::Lost
        } else if slot.phase.is_spawning_per_turn() && session.native.is_some()
            || session.open
            || native.is_some()
        {
            Context::Continued
        } else {
            Context::Lost
        };
        Some((context, native))
    }

    /// What a turn knows of its session's earlier ones, where that isn't all.
    fn note_context(&mut self, turn: TurnId, worker: WorkerId, context: Context, name: String) {
        match context {
            Context::Lost => self.lost_context(turn, worker, name),
            Context::New => self.note_forgetful(turn, worker),
            Context::Continued => {}
        }
    }

    /// Who goes on with an agent without memory is told so, once in a session.
    fn note_forgetful(&mut self, turn: TurnId, worker: WorkerId) {
        let job = expected!(self.jobs.get(turn));
        let session = expected!(self.sessions.get(job.session));
        let slot = expected!(self.pool.get(worker));
        let is_second = session.turns == 1 && job.attempt <= 1;
        if is_second && slot.describe.resume == Resume::Stateless {
            let text = format!(
                "the agent `{}` remembers no turns: this one knows nothing of the one before it",
                slot.agent
            );
            self.note(turn, &Notice::info("no-memory", text));
        }
    }

    /// A new turn runs ahead of those that are held, which its sender may not know of.
    fn note_overtaken(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        let session = expected!(self.sessions.get(job.session));
        // Of the oldest alone: thousands may wait behind this one.
        let older = session.queue.iter().take_while(|older| **older < turn);
        let is_held = |older: &&Job| matches!(older.phase, Phase::Held);
        let mut held = older
            .filter_map(|older| self.jobs.get(older))
            .filter(is_held);
        let Some(oldest) = held.next().and_then(|held| held.number) else {
            return;
        };
        if job.attempt <= 1 {
            let (stay, them) = match held.count() {
                0 => ("stays".to_owned(), "it"),
                more => (format!("and {more} more of the session stay"), "them"),
            };
            let text = format!(
                "{oldest} {stay} held behind an interrupted turn, and this one runs ahead of {them}"
            );
            // Not `held`: that one says of its own turn.
            self.note(turn, &Notice::warning("overtakes", text));
        }
    }

    /// A turn begins without its session's earlier ones.
    fn lost_context(&mut self, turn: TurnId, worker: WorkerId, session: String) {
        let slot = self.pool.get(&worker);
        let why = match slot.filter(|slot| !slot.resumes) {
            Some(slot) => format!(
                "the agent `{}` remembers them in its process alone, and that is gone",
                slot.agent
            ),
            None => "what held them is gone".to_owned(),
        };
        let text = format!("the session `{session}` goes on without its earlier turns: {why}");
        self.outbox.write_lazily(Write::Lost { session });
        self.forget_if_without_memory(turn, worker);
        self.note(turn, &Notice::of(Code::ContextLost, text));
    }

    /// The agent's own id of a session is of no use to a form of it that has no memory: that was
    /// said now.
    fn forget_if_without_memory(&mut self, turn: TurnId, worker: WorkerId) {
        let slot = self.pool.get(&worker);
        let forgets = slot.is_some_and(|slot| slot.describe.resume == Resume::Stateless);
        let session = self.jobs.get(&turn).map(|job| job.session);
        if let Some(session) = session.filter(|_| forgets)
            && let Some(write) = self.renamed(session, None)
        {
            self.outbox.write_lazily(write);
        }
    }

    /// Names the session of a turn to an agent that keeps sessions by names that it is given: by one
    /// that it has never heard, as the session's own may have been another's before.
    fn make_native(&mut self, turn: TurnId) {
        let job = found!(self.jobs.get(turn));
        let Some((job, number)) = job.and_then(|job| Some((job, job.number?))) else {
            return;
        };
        let session = job.session;
        let keeps = self.sessions.get(&session).is_some_and(|known| {
            let agent = self.settings.agents.get(&known.agent);
            known.native.is_none()
                && agent.is_some_and(|agent| agent.describe.resume == Resume::Native)
        });
        if keeps {
            let native = format!("agentd-{}-{number}", self.settings.epoch);
            if let Some(write) = self.renamed(session, Some(&native)) {
                // Now, and not with its next event: a turn that fails is gone on with by it, too.
                self.outbox.commit(Awaiting::Nothing, vec![write]);
            }
        }
    }

    /// An agent without memory has no earlier turns, ever: no job is made to find that out.
    pub(crate) fn remembers(&self, session: &Session, send: &Send) -> Result<(), Rejected> {
        let agent = self.settings.agents.get(&session.agent);
        let forgets = agent.is_some_and(|agent| agent.describe.resume == Resume::Stateless);
        if !send.require_context || session.turns == 0 || !forgets {
            return Ok(());
        }
        let failure = context_lost(session, REMEMBERS_NONE);
        Err(Rejected::new(failure.code, failure.error).hint(GO_ON))
    }

    /// Why a turn can't begin in a process that is ready for it. Nothing that was asked for is
    /// left out in silence.
    fn unfit(
        &self,
        turn: TurnId,
        worker: WorkerId,
        context: Context,
        given: &Send,
    ) -> Option<Failure> {
        let job = self.jobs.get(&turn)?;
        let session = self.sessions.get(&job.session)?;
        let slot = self.pool.get(&worker)?;
        if job.terms.require_context {
            if session.lost || context == Context::Lost {
                return Some(context_lost(
                    session,
                    "lost its earlier turns with a process",
                ));
            }
            // An agent without memory has none of them, ever.
            if context == Context::New && session.turns > 0 {
                return Some(context_lost(session, REMEMBERS_NONE));
            }
        }
        // The agent may be run in another form than when the turn was accepted.
        let agent = self.settings.agents.get(&slot.agent)?;
        if slot.is_one_turn()
            && let Err(refused) = pins::check(
                agent,
                &Pins {
                    mode: session.pins.mode.clone(),
                    ..job.terms.pins()
                },
            )
        {
            return Some(Failure {
                hint: refused.hint,
                ..Failure::new(refused.code, refused.error)
            });
        }
        // What its agent takes was known from its kind when the turn was accepted; the process says
        // it for itself.
        if let Some(error) = slot.takes.refuses(&slot.agent, &given.attachments) {
            return Some(Failure {
                hint: Some(SAY_ITS_PATH.to_owned()),
                ..Failure::new(Code::Unsupported, error)
            });
        }
        let lacks = if session.toolsets.is_some() && !slot.toolsets {
            "`toolsets` was given, but the agent can't restrict its tools"
        } else if given.fallback_chain.is_some() && !slot.fallback_chain {
            "`fallback_chain` was given, but the agent takes none"
        } else if !session.mcp_servers.is_empty() && !slot.mcp {
            "`mcp_servers` was given, but the agent takes none"
        } else if session.is_copied() && !slot.forks {
            "the session is a copy of another one, and the agent can't open it"
        } else {
            return None;
        };
        let error = format!("{lacks} (`{}`)", slot.agent);
        Some(Failure::new(Code::Unsupported, error))
    }

    /// A turn whose mark is durable but of which nothing was written waits again.
    pub(crate) fn requeue_unstarted(&mut self, turn: TurnId) {
        self.unplace(turn);
        let job = expected!(self.jobs.get_mut(turn));
        job.phase = Phase::Queued;
        // No agent had it: it doesn't count among its attempts.
        job.attempt = job.attempt.saturating_sub(1);
        let (number, attempt) = (job.number, job.attempt);
        // It may have rung meanwhile.
        self.jobs.waits(turn);
        if let Some(job) = number {
            self.outbox.tell_later(Write::Requeue { job, attempt });
        }
    }

    /// A process has one turn less: is it idle, unneeded, or due to go?
    pub(crate) fn slot_freed(&mut self, worker: WorkerId) {
        let Some(slot) = self.pool.get_mut(&worker) else {
            // It went with its last turn.
            return;
        };
        if !slot.turns.is_empty() {
            return;
        }
        slot.idle_since = self.now.mono;
        let per_turn = slot.phase.is_spawning_per_turn();
        self.was_used(worker);
        let Some(slot) = self.pool.get_mut(&worker) else {
            return;
        };
        if per_turn {
            // Never started: there is nothing to stop.
            self.drop_slot(worker);
            return;
        }
        if slot.retiring {
            self.stop_slot(worker, StopStage::Ask);
        } else if slot.restart_when_idle {
            self.restart_slot(worker, true);
        } else {
            self.arm_idle(worker);
        }
    }

    pub(crate) fn arm_idle(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get(worker));
        if let Some(agent) = self.settings.agents.get(&slot.agent) {
            self.outbox
                .set(Timer::Idle(worker), self.now.mono + agent.idle_timeout);
        }
    }

    /// A process has been idle for its agent's `idle_timeout`.
    pub(crate) fn slot_idle(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get(worker));
        let Some(agent) = self.settings.agents.get(&slot.agent) else {
            return;
        };
        if !slot.turns.is_empty() || !slot.is_ready() || self.pool.is_compacting(worker) {
            return;
        }
        // It is idle by its purpose.
        let is_spare = self.is_kept_spare(worker, slot, agent);
        if is_spare {
            return self.spare_stays(worker);
        }
        if !self.is_memory(slot) {
            self.retire(worker);
        }
    }

    /// Would the earlier turns of some session be lost with the process?
    pub(crate) fn is_memory(&self, slot: &Slot) -> bool {
        let mut sessions = slot.held().filter_map(|id| self.sessions.get(&id));
        sessions
            .any(|session| session.turns > 0 && !(slot.resumes && can_be_reopened(slot, session)))
    }
}

/// Does the agent know the session by an id of its own? One that is reopened when its process starts
/// is asked for it then.
pub(crate) fn can_be_reopened(slot: &Slot, session: &Session) -> bool {
    session.reopened_by().is_some() || !slot.reopens_in_turns()
}

const GO_ON: &str = "send without `require_context` to go on without them, or in a new session";
const REMEMBERS_NONE: &str = "has an agent that remembers no turns";

/// What a turn is told that can't do without its session's earlier ones.
fn context_lost(session: &Session, why: &str) -> Failure {
    let name = session.shown();
    Failure {
        hint: Some(GO_ON.to_owned()),
        ..Failure::new(Code::ContextLost, format!("the session `{name}` {why}"))
    }
}
