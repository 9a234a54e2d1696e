//! How a job ends: exactly once, whatever happens to its worker.
//!
//! Owns the final line and what an end does to the session. Must not know the store's rows.

use std::time::Duration;

use agentd_protocol::line::{
    ErrorLine, Level, Line, Message, MessageEnd, Stop, ToolTrace, TurnFacts,
};
use agentd_protocol::request::AfterFailure;
use agentd_protocol::serde_json::Value;
use agentd_protocol::spoken::span;
use agentd_protocol::webhook::Callback;
use agentd_protocol::{Body, Code, JobId, limits};

use crate::agent::Sessions;
use crate::effect::{Effect, StopStage};
use crate::ids::{Process, SessionId, Token, TurnId};
use crate::jobs::job::{Ending, Job, Phase};
use crate::jobs::said::Out;
use crate::jobs::slices::Fate;
use crate::json;
use crate::limits::{API_CALLS_BYTES, MESSAGES_BYTES, RUNG};
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timer;
use crate::peers::conn::FollowState;
use crate::peers::questions::Closed;
use crate::pool::slot::SlotPhase;
use crate::rules::fanout::Happened;
use crate::rules::followers::telling;
use crate::settings::Served;
use crate::state::State;
use crate::store::{End, Write, Written};
use crate::text::{change_len, escaped_len, head_and_tail, millis};
use crate::worker::{Failure, Json, Outcome, WorkerCommand};

impl State {
    /// Cancels a job; `None` if its final line is already on its way.
    pub(crate) fn cancel(&mut self, turn: TurnId) -> Option<JobId> {
        let job = found!(self.jobs.get_mut(turn))?;
        let number = job.number?;
        match &mut job.phase {
            Phase::Scheduled | Phase::Queued | Phase::Held => {
                self.end_in_turn(turn, Fate::Asked(Ending::Cancelled));
            }
            Phase::Marking { cancelled, .. } | Phase::Pending { cancelled, .. } => {
                *cancelled = true
            }
            Phase::Running { .. } => self.tell_to_end(turn, Ending::Cancelled),
            // It ends for whatever reason already; what it says of that is what its user said last.
            Phase::Settling { ending, .. } => *ending = Ending::Cancelled,
            Phase::Finishing => return None,
        }
        Some(number)
    }

    /// Tells a running turn's worker to end it, or ends the worker.
    pub(crate) fn tell_to_end(&mut self, turn: TurnId, ending: Ending) {
        let job = expected!(self.jobs.get_mut(turn));
        let Phase::Running { process } = job.phase else {
            return;
        };
        let by = match ending {
            Ending::Timeout => Closed::Expiry,
            Ending::Cancelled | Ending::OutputLimit | Ending::Interrupted => Closed::Cancel,
        };
        job.phase = Phase::Settling { process, ending };
        let slot = self.pool.get(&process.worker);
        let describe = slot.map(|slot| slot.describe);
        // From here on it counts how long it takes to settle.
        self.outbox.clear(Timer::Running(turn));
        if describe.is_some_and(|describe| describe.cancels) {
            let command = WorkerCommand::Cancel { turn };
            self.outbox.push(Effect::Tell {
                worker: process.worker,
                generation: process.generation,
                command,
            });
            self.outbox.set(Timer::Settling(turn), self.now.mono + RUNG);
        } else if describe.is_some_and(|describe| describe.sessions == Sessions::PerTurn) {
            // The process is the turn, and hears no command.
            self.stop_slot(process.worker, StopStage::Term);
        } else {
            self.unsettled(turn);
        }
        // After the command to end it: an agent that hears "no" first might begin something else.
        self.close_questions(turn, by);
        self.steers_too_late(turn);
    }

    /// A turn has waited too long.
    pub(crate) fn expire(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        match job.phase {
            Phase::Scheduled | Phase::Queued | Phase::Held => {
                self.end_in_turn(turn, Fate::Expired);
            }
            _ => {}
        }
    }

    /// Ends a turn whose time to wait is over.
    pub(crate) fn expired(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        let waited = span(self.now.mono.saturating_sub(job.accepted_at));
        let error = format!("the turn waited {waited} and its time to wait is over");
        self.fail(turn, Failure::new(Code::Expired, error));
    }

    /// The *running* mark of a turn is durable.
    /// A turn's *running* mark is durable, and its request is here again.
    pub(crate) fn marked(&mut self, turn: TurnId, token: Token, written: Vec<Written>) {
        let started = written.into_iter().find_map(|written| match written {
            Written::Started { seq, request } => Some((seq, request)),
            _ => None,
        });
        let request = started.map(|(seq, request)| {
            self.counters.saw(seq);
            self.numbered(turn, token, seq);
            request
        });
        let job = expected!(self.jobs.get(turn));
        let Phase::Marking { process, cancelled } = job.phase else {
            return;
        };
        // It was aborted while its mark was on its way: no byte has gone, so it ends as if it had
        // waited.
        if cancelled {
            self.unplace(turn);
            self.end_as_asked(turn, &Ending::Cancelled);
            return;
        }
        let given = json::read_back(&request.unwrap_or_default());
        self.begin_with(turn, process, given);
    }

    pub(crate) fn complete(&mut self, turn: TurnId, stop: Stop, outcome: Outcome) {
        let turn_facts = self.facts(turn, outcome);
        let Some(turn_facts) = self.outbox.expected(turn, turn_facts) else {
            return;
        };
        let end = if stop == Stop::Cancelled {
            End::Cancelled
        } else {
            if let Some(agent) = &turn_facts.agent {
                self.locked_out(agent, false);
            }
            End::Completed
        };
        let line = MessageEnd {
            stop,
            turn: turn_facts,
            seq: None,
            replayed: false,
        };
        self.finish(turn, end, Line::MessageEnd(Box::new(line)));
    }

    pub(crate) fn fail(&mut self, turn: TurnId, failure: Failure) {
        let outcome = Outcome::failed(failure.clone());
        self.fail_with(turn, failure, outcome);
    }

    pub(crate) fn fail_with(&mut self, turn: TurnId, failure: Failure, outcome: Outcome) {
        let turn_facts = self.facts(turn, outcome);
        let Some(turn_facts) = self.outbox.expected(turn, turn_facts) else {
            return;
        };
        let locked_out = (failure.code == Code::AgentAuth)
            .then(|| turn_facts.agent.clone())
            .flatten();
        if matches!(
            failure.code,
            Code::InvalidRequest | Code::Unsupported | Code::WorkerStartFailed
        ) {
            self.unpin(turn);
        }
        let end = match failure.code {
            // What it did may be half done: those behind it wait until somebody has looked.
            Code::Interrupted | Code::WorkerExited | Code::WorkerUnresponsive => End::Interrupted,
            _ => End::Failed,
        };
        let line = ErrorLine {
            code: failure.code,
            error: head_and_tail(failure.error, limits::MAX_TOOL_OUTPUT).0,
            hint: failure.hint,
            choices: Vec::new(),
            retryable: failure.code.retryable(),
            turn: Some(turn_facts),
            seq: None,
            replayed: false,
        };
        self.counters.failures += 1;
        self.finish(turn, end, Line::Error(Box::new(line)));
        if let Some(agent) = locked_out {
            self.locked_out(&agent, true);
        }
    }

    /// Ends a turn that was told to end: as it was told, with what it had said.
    pub(crate) fn end_as_asked_with(&mut self, turn: TurnId, ending: &Ending, outcome: Outcome) {
        let (code, error) = match ending {
            Ending::Cancelled => return self.complete(turn, Stop::Cancelled, outcome),
            Ending::Timeout => (Code::Timeout, self.took_too_long(turn)),
            Ending::OutputLimit => (
                Code::OutputLimit,
                "the turn said more than 64 MiB and was ended".to_owned(),
            ),
            // As after its death: the next daemon finds it waiting.
            Ending::Interrupted if self.next_daemon_runs(turn) => return self.run_again(turn),
            Ending::Interrupted => (
                Code::Interrupted,
                "the daemon stopped while the turn ran".to_owned(),
            ),
        };
        self.fail_with(turn, Failure::new(code, error), outcome);
    }

    /// Everything that is known of a turn.
    fn facts(&self, turn: TurnId, outcome: Outcome) -> Option<TurnFacts> {
        let job = self.jobs.get(&turn)?;
        let (text, truncated) = head_and_tail(job.answer().to_owned(), limits::MAX_TEXT);
        let (tool_trace, tool_trace_truncated) = tool_trace(job);
        let (served_by, fallback_reason) = match &self.settings.served {
            Served::Daemon => ("daemon", None),
            Served::OneShot { reason } => ("oneshot", reason.clone()),
        };
        let pins = job.terms.pins();
        Some(TurnFacts {
            job: job.number,
            session: self
                .sessions
                .get(&job.session)
                .and_then(|session| session.name.clone()),
            context_tokens: outcome.context.tokens,
            context_window: outcome.context.window,
            text,
            truncated,
            refusal: outcome
                .refusal
                .map(|said| head_and_tail(said, limits::MAX_TOOL_OUTPUT).0),
            suspected_refusal: outcome.suspected_refusal,
            context: job.said.context,
            agent: Some(self.agent_of(job.session)),
            provider: outcome.provider.or(pins.provider),
            model: outcome.model.or(pins.model),
            local: outcome.local,
            thinking: outcome.thinking.or(pins.thinking),
            usage: outcome.usage,
            cost: outcome.cost,
            api_calls: outcome.api_calls.map(|calls| api_calls(&calls)),
            soul_sha256: outcome.soul_sha256,
            tool_trace,
            tool_trace_truncated,
            attempt: job.attempt,
            queued_ms: millis(if job.said.started_at.is_some() {
                job.said.queued_for
            } else {
                self.now.mono.saturating_sub(job.accepted_at)
            }),
            duration_ms: millis(
                job.said
                    .started_at
                    .map_or(Duration::ZERO, |at| self.now.mono.saturating_sub(at)),
            ),
            served_by: served_by.to_owned(),
            fallback_reason,
            messages: job.terms.wants_messages().then(|| messages(job)),
        })
    }

    /// Commits the final line and frees the session for its next turn.
    fn finish(&mut self, turn: TurnId, end: End, line: Line) {
        let by = match end {
            End::Interrupted => Closed::Exit,
            End::Completed | End::Cancelled | End::Failed => Closed::Cancel,
        };
        self.close_questions(turn, by);
        self.steers_too_late(turn);
        let job = expected!(self.jobs.get_mut(turn));
        let Some(number) = job.number.filter(|_| job.phase != Phase::Finishing) else {
            return;
        };
        let body = line.body();
        let (mut writes, texts) = job.last_writes(number);
        let ran = job.ran;
        let session_id = job.session;
        let took = job
            .said
            .started_at
            .map(|at| self.now.mono.saturating_sub(at));
        let worker = job.process().map(|process| process.worker);
        // While the job still has its process, by which the log names it.
        self.log_end(turn, &line, millis(took.unwrap_or_default()));
        let slot = worker.map(|worker| (worker, self.pool.get_mut(&worker)));
        if let Some(slot) = slot.and_then(|(worker, slot)| self.outbox.expected(worker, slot)) {
            match line {
                Line::Error(_) => slot.tally.failed(took),
                _ => slot.tally.ended(took),
            }
        }
        let job = expected!(self.jobs.get_mut(turn));
        job.phase = Phase::Finishing;
        job.said.last = Some(body.clone());
        // In the commit of the end: whoever is told of an end finds it, and none is forgotten by a
        // crash.
        let callback = job.terms.callback.clone();
        self.clear_timers(turn);
        self.counters.ended(took);
        writes.push(Write::Finish {
            job: number,
            end,
            line: body,
            texts,
        });
        writes.extend(callback.map(|Callback { url, result }| Write::Callback {
            job: number,
            url,
            result,
        }));
        let held = match end {
            End::Interrupted => self.to_hold(session_id, turn),
            End::Completed | End::Cancelled | End::Failed => Vec::new(),
        };
        // Held and told so in one commit: after a crash between the two they would run, or be held
        // in silence.
        let notes: Vec<(TurnId, JobId, Body)> = held
            .iter()
            .filter_map(|turn| {
                let job = self.jobs.get(turn)?.number?;
                Some((*turn, job, held_note(job, number)))
            })
            .collect();
        for (_, job, line) in &notes {
            let (job, held, line) = (*job, true, line.clone());
            writes.push(Write::Hold { job, held });
            writes.push(Write::Event { job, line });
        }
        let held = notes.iter().map(|(turn, ..)| *turn).collect();
        let token = self.outbox.commit(Awaiting::Finish { turn, held }, writes);
        for (turn, _, body) in notes {
            if let Some(job) = found!(self.jobs.get_mut(turn)) {
                job.phase = Phase::Held;
                job.out.push_back(Out::Numbered { token, body });
            }
        }
        let session = expected!(self.sessions.get_mut(session_id));
        // One that never began left nothing in the agent's memory.
        session.turns += u64::from(ran);
        // The next one may start now, though the end is not durable yet: the store writes in order.
        session.queue.retain(|other| *other != turn);
        if session.current == Some(turn) {
            session.current = None;
        }
    }

    /// Turns behind an interrupted one wait until somebody looked, but for those that said they
    /// needn't.
    fn to_hold(&self, session: SessionId, interrupted: TurnId) -> Vec<TurnId> {
        let queue = self.sessions.get(&session).map(|session| &session.queue);
        let waits = |turn: &&TurnId| {
            let job = self.jobs.get(turn);
            **turn != interrupted
                && job.is_some_and(|job| {
                    job.phase == Phase::Queued && job.terms.after_failure == AfterFailure::Hold
                })
        };
        queue.into_iter().flatten().filter(waits).copied().collect()
    }

    /// The final line is durable: everybody who can take it gets it now.
    pub(crate) fn finished(&mut self, turn: TurnId, _token: Token, seq: u64) {
        let job = expected!(self.jobs.get(turn));
        let (Some(number), Some(body)) = (job.number, job.said.last.clone()) else {
            return;
        };
        let session = job.session;
        // A copy: each of them goes with its final line.
        let followers: Vec<_> = job.followers.iter().copied().collect();
        // While the job is in memory: what a subscriber lacks of its text is taken from there.
        self.publish(turn, &body, seq, Happened::AtTheEnd);
        self.remove_job(turn);
        for (conn, follow_id) in followers {
            let live = self
                .follow_mut(conn, follow_id)
                .filter(|follow| follow.state == FollowState::Live);
            if let Some(telling) = live.map(|follow| telling(follow)) {
                self.finish_follow(conn, follow_id, &body, seq, telling);
            } else {
                self.resume(conn, follow_id);
            }
        }
        self.collected(number, &body, seq);
        // The job may have been the last thing that kept it in memory.
        self.forget_session_if_idle(session);
    }

    pub(crate) fn clear_timers(&mut self, turn: TurnId) {
        self.jobs.unclock(turn);
        self.jobs.waits_no_more(turn);
        for timer in [
            Timer::Running(turn),
            Timer::Settling(turn),
            Timer::Stalled(turn),
            Timer::Flush(turn),
            Timer::Unfinished(turn),
        ] {
            self.outbox.clear(timer);
        }
    }

    pub(crate) fn remove_job(&mut self, turn: TurnId) {
        self.clear_timers(turn);
        self.forget_questions(turn);
        self.steers_too_late(turn);
        let _job = self.take_job(turn);
    }

    /// A worker has ended a turn: it is free for the next one.
    pub(crate) fn let_go(&mut self, turn: TurnId, process: Process) {
        let Some(session_id) = self.jobs.get(&turn).map(|job| job.session) else {
            return self.outbox.dangling(turn);
        };
        let session = expected!(self.sessions.get(session_id));
        if !session.named && session.queue.is_empty() {
            // Mostly no second turn follows one that named no session: others get its process.
            if !self.lingers(process.worker, session_id) {
                self.give_up(session_id, process);
            }
        } else if let Some(idle_for) = self.may_be_unused(session_id) {
            let until = self.now.mono + idle_for;
            self.outbox.set(Timer::Unused(session_id), until);
        }
        self.slot_freed(process.worker);
    }

    /// After how much time a session leaves the process that it shares: it is reopened by its id
    /// with its next turn, in whichever process.
    fn may_be_unused(&self, session: SessionId) -> Option<Duration> {
        let known = self.sessions.get(&session)?;
        let slot = self.pool.get(&known.slot?)?;
        let agent = self.settings.agents.get(&slot.agent)?;
        let idle = known.queue.is_empty() && known.current.is_none() && !known.closing;
        // Only what can be reopened in any process may leave one that others keep alive.
        let shared = !slot.one_session && slot.reopens_in_turns() && known.native.is_some();
        (idle && shared).then_some(agent.idle_timeout)
    }

    /// A session may have had no turn for long, in a process that others keep alive.
    pub(crate) fn session_unused(&mut self, session: SessionId) {
        let Some(idle_for) = self.may_be_unused(session) else {
            return;
        };
        let worker = self.sessions.get(&session).and_then(|known| known.slot);
        match worker {
            Some(worker) if self.pool.is_compacting(worker) => {
                let again = self.now.mono + idle_for;
                self.outbox.set(Timer::Unused(session), again);
            }
            Some(worker) => self.unbind(worker, session),
            None => {}
        }
    }

    /// A session that nobody named gives up its process at its final line.
    fn give_up(&mut self, session: SessionId, process: Process) {
        let slot = expected!(self.pool.get_mut(process.worker));
        let describe = slot.describe;
        if describe.sessions == Sessions::PerTurn {
            return;
        }
        let one_session = slot.one_session;
        let SlotPhase::Ready { pid, since } = slot.phase else {
            return;
        };
        // Cheaper than a new process, which takes a core for a second.
        if describe.sessions == Sessions::One && describe.recycles && !slot.retiring {
            slot.phase = SlotPhase::Recycling { pid, since };
            self.outbox
                .set(Timer::Slot(process.worker), self.now.mono + RUNG);
            let command = WorkerCommand::Recycle;
            self.outbox.push(Effect::Tell {
                worker: process.worker,
                generation: process.generation,
                command,
            });
        } else if one_session {
            slot.retiring = true;
        }
        self.unbind(process.worker, session);
    }

    /// A session without jobs and process leaves memory; its lease is given back.
    pub(crate) fn forget_session_if_idle(&mut self, session: SessionId) {
        let known = self.sessions.get(&session);
        if !known.is_some_and(|known| known.is_idle() && known.jobs == 0) {
            return;
        }
        let Some(known) = self.sessions.remove(session) else {
            return;
        };
        self.outbox.clear(Timer::Unused(session));
        if let Some(name) = known.name {
            // Nobody waits for it, and thousands may leave at once.
            self.outbox.tell_later(Write::Release { session: name });
        }
    }
}

/// What a turn says that waits behind an interrupted one.
fn held_note(job: JobId, interrupted: JobId) -> Body {
    let line = Line::Note {
        job: Some(job),
        level: Level::Warning,
        code: "held".to_owned(),
        text: format!("held: {interrupted}, before it in the session, was interrupted"),
    };
    line.body()
}

fn tool_trace(job: &Job) -> (Vec<ToolTrace>, bool) {
    let mut room = limits::MAX_TOOL_TRACE;
    let mut cut = false;
    let mut traces = Vec::new();
    for (trace, _) in &job.said.tools {
        let locations = trace.locations.iter();
        let locations = locations.map(|one| 30 + escaped_len(&one.path));
        // The names of a trace's fields and its numbers take about so much.
        let size = 180
            + locations.sum::<usize>()
            + trace.diff.iter().map(change_len).sum::<usize>()
            + escaped_len(&trace.output)
            + escaped_len(&trace.input.to_string())
            + escaped_len(&trace.tool_call_id)
            + escaped_len(&trace.name);
        if size > room {
            cut = true;
            continue;
        }
        room -= size;
        let mut trace = trace.clone();
        if trace.ok.is_none() {
            // What it was to change nobody has said that it did.
            trace.diff = Vec::new();
        }
        traces.push(trace);
    }
    (traces, cut)
}

/// The first of them, as many as have room.
fn api_calls(calls: &[Json]) -> Vec<Value> {
    let mut room = API_CALLS_BYTES;
    let fits = |call: &&Json| {
        room = room.saturating_sub(call.len() + 1);
        room > 0
    };
    // An agent in a loop calls its model without end: the first calls say what it was.
    let kept = calls.iter().take(256).take_while(fits);
    kept.map(|call| json::value(call)).collect()
}

/// What a message takes in a final line besides its text.
const MESSAGE_FRAME: usize = 40;

/// What was said in the turn, by whom, in order: as much as has room.
fn messages(job: &Job) -> Vec<Message> {
    let mut room = MESSAGES_BYTES;
    let mut kept = Vec::new();
    let mut keep = |role: &str, text: &str| {
        if room == 0 {
            return;
        }
        let (content, _) = head_and_tail(text.to_owned(), room);
        room = room.saturating_sub(MESSAGE_FRAME + escaped_len(&content));
        let role = role.to_owned();
        kept.push(Message { role, content });
    };
    let mut steers = job.said.steered.iter().peekable();
    for (number, message) in job.said.messages.iter().enumerate() {
        while let Some((_, steer)) = steers.next_if(|(before, _)| *before <= number) {
            keep("user", steer);
        }
        if !message.replaced {
            keep("assistant", &message.text);
        }
    }
    steers.for_each(|(_, steer)| keep("user", steer));
    kept
}
