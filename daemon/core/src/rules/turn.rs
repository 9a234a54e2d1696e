//! What a worker says becomes what a job says.
//!
//! Owns the limits of a turn's output and the order of its lines. Must not know wires: adapters
//! have translated already.

use agentd_protocol::line::{Context, Cost, FileChange, Level, Line, Sandbox, Stop, ToolTrace};
use agentd_protocol::{Code, JobId, limits};

use crate::ids::{Generation, Process, SessionId, TurnId, WorkerId};
use crate::jobs::job::{Ending, Phase};
use crate::jobs::said::Notice;
use crate::json;
use crate::limits::{
    EVENT_BYTES, OUTPUT_PER_TURN, STALLED_AFTER, TEXT_FLUSH_AFTER, TEXT_ON_ITS_WAY,
};
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timer;
use crate::state::State;
use crate::store::{TextKind, Write};
use crate::text::head_and_tail;
use crate::worker::{NOT_JSONL, Outcome, ToolAbout, WorkerEvent};

impl State {
    pub(crate) fn worker_said(
        &mut self,
        worker: WorkerId,
        generation: Generation,
        mut event: WorkerEvent,
    ) {
        // An older generation has no say any more.
        if self
            .pool
            .get(&worker)
            .is_none_or(|slot| slot.generation != generation)
        {
            return;
        }
        // Before anything is kept of it: each line that it gets into keeps its limit by that.
        let left_out = event.cut();
        match event {
            WorkerEvent::Ready(traits) => self.worker_ready(worker, traits),
            WorkerEvent::Recycled => self.worker_recycled(worker),
            WorkerEvent::Switched(has_them) => self.worker_switched(worker, has_them),
            WorkerEvent::SessionNamed { native } => self.session_named(worker, &native),
            WorkerEvent::ModeChanged { mode } => self.mode_changed(worker, mode),
            WorkerEvent::Logged { .. } => {}
            WorkerEvent::Stray { .. } => self.strayed(worker),
            WorkerEvent::Noted {
                turn,
                level,
                code,
                text,
            } => {
                if turn.is_none() && code == Code::ContextLost.name() {
                    self.resume_failed(worker);
                }
                let notice = Notice {
                    level,
                    code: code.to_owned(),
                    text,
                };
                if turn.is_none() && notice.code == NOT_JSONL {
                    self.note_waiting(worker, &notice);
                }
                // What is said of the process is said to all that it serves.
                let turns = turn.map_or_else(|| self.turns_of(worker), |turn| vec![turn]);
                for turn in turns {
                    if let Some(turn) = self.of_worker(worker, turn) {
                        // An agent that notes without end is ended like one that talks without end.
                        self.count_output(turn, notice.text.len());
                        if !self.is_over_its_limit(turn) {
                            self.note(turn, &notice);
                        }
                    }
                }
            }
            WorkerEvent::Asked { turn, asking } => self.asked(worker, turn, asking),
            WorkerEvent::Withdrew { question } => self.withdrew(worker, &question),
            WorkerEvent::Steered { steer, steering } => self.steered(worker, steer, steering),
            WorkerEvent::Models { number, result } => self.models_told(worker, number, result),
            WorkerEvent::Commands { number, result } => self.commands_told(worker, number, result),
            WorkerEvent::Compacted { result } => self.compacted(worker, result),
            // Its sessions go on in a new process before their next turn.
            WorkerEvent::Spoilt { why } => self.spoilt(worker, why),
            WorkerEvent::MessageStarted { turn, .. }
            | WorkerEvent::Text { turn, .. }
            | WorkerEvent::Thinking { turn, .. }
            | WorkerEvent::ToolStarted { turn, .. }
            | WorkerEvent::ToolUpdated { turn, .. }
            | WorkerEvent::ToolEnded { turn, .. }
            | WorkerEvent::SessionOfTurn { turn, .. }
            | WorkerEvent::Skipped { turn, .. }
            | WorkerEvent::Other { turn, .. }
            | WorkerEvent::Ended { turn, .. } => match self.of_worker(worker, turn) {
                Some(turn) => self.turn_said(turn, event, left_out),
                None => self.strayed(worker),
            },
        }
    }

    /// A turn that this process has and that has begun; anything else a worker can't speak for.
    pub(crate) fn of_worker(&self, worker: WorkerId, turn: TurnId) -> Option<TurnId> {
        let job = self.jobs.get(&turn)?;
        // Nothing is heard of a turn before its first byte has gone: that would be of another.
        let process = job.process().filter(|_| job.began())?;
        let generation = self.pool.get(&worker)?.generation;
        (process == Process { worker, generation }).then_some(turn)
    }

    /// The agent has not got the session that its process was to reopen.
    fn resume_failed(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get_mut(worker));
        // It may have been closed meanwhile.
        if let Some(session) = slot.resuming.take()
            && let Some(session) = self.sessions.get_mut(&session)
        {
            session.open = false;
            // Kept, its next process would be told to reopen what isn't there once more.
            session.native = None;
            session.forks = None;
        }
    }

    fn turns_of(&self, worker: WorkerId) -> Vec<TurnId> {
        self.pool
            .get(&worker)
            .map_or_else(Vec::new, |slot| slot.turns.iter().copied().collect())
    }

    fn strayed(&mut self, worker: WorkerId) {
        if let Some(slot) = found!(self.pool.get_mut(worker)) {
            slot.strays += 1;
        }
    }

    fn session_named(&mut self, worker: WorkerId, native: &str) {
        let slot = expected!(self.pool.get_mut(worker));
        let mut sessions = slot.sessions.iter().copied();
        let session = match (sessions.next(), sessions.next()) {
            // Of a process of many it isn't known which one is meant: those name it with their turns.
            (Some(_), Some(_)) => return,
            (session, _) => session,
        };
        let known = session.and_then(|session| self.sessions.get(&session));
        let Some(session) = session.filter(|_| known.is_some_and(|known| !known.coming)) else {
            // Whoever waits for one that comes may get another: the session is that of the first turn.
            slot.native = Some(native.to_owned());
            return;
        };
        // It rides on the turn's next commit, which is its first numbered event at the latest.
        if let Some(write) = self.renamed(session, Some(native)) {
            self.outbox.write_lazily(write);
        }
    }

    /// A process has named its session before anybody's turn began there: now it is whose it is. Not
    /// only with the turn's end, as an agent may write it down from the first prompt on.
    pub(crate) fn takes_native(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get_mut(worker));
        if let Some(native) = slot.native.take() {
            self.session_named(worker, &native);
        }
    }

    /// Notes the agent's own id of a session, or that it has none any more; returns what is to be
    /// written of it.
    pub(crate) fn renamed(&mut self, session: SessionId, native: Option<&str>) -> Option<Write> {
        let known = found!(self.sessions.get_mut(session))?;
        if known.native.as_deref() == native {
            return None;
        }
        known.native = native.map(str::to_owned);
        known.forks = None;
        let native = known.native.clone();
        let session = known.name.clone()?;
        Some(Write::Native { session, native })
    }

    /// An agent of many sessions named the one of a turn: until that is stored, it can't be
    /// reopened, so it doesn't wait for the turn's next commit.
    fn session_of_turn(&mut self, turn: TurnId, native: &str) {
        let job = found!(self.jobs.get(turn));
        let session = job.map(|job| job.session);
        if let Some(write) = session.and_then(|session| self.renamed(session, Some(native))) {
            self.outbox.commit(Awaiting::Nothing, vec![write]);
        }
    }

    /// The agent has not got the session of a turn: the next one begins it anew, and says so.
    fn session_lost(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get_mut(turn));
        job.said.context = Some(Context::Lost);
        let session = job.session;
        if let Some(known) = found!(self.sessions.get_mut(session)) {
            known.open = false;
        }
        if let Some(write) = self.renamed(session, None) {
            self.outbox.write_lazily(write);
        }
    }

    /// Counts what a turn says against its limit. Is it still to be kept?
    fn keeps_saying(&mut self, turn: TurnId, event: &WorkerEvent, left_out: usize) -> bool {
        let now = self.now.mono;
        let Some(job) = self.jobs.get_mut(&turn) else {
            self.outbox.dangling(turn);
            return false;
        };
        job.said.progress_at = now;
        job.said.stalled = false;
        let merged = matches!(
            event,
            WorkerEvent::Text { .. } | WorkerEvent::Thinking { .. } | WorkerEvent::Ended { .. }
        );
        // Text comes in pieces of a few bytes, which are told together.
        let each = if merged { 0 } else { EVENT_BYTES };
        job.said.bytes = job.said.bytes.saturating_add(each + left_out);
        !is_output(event) || !self.is_over_its_limit(turn)
    }

    fn turn_said(&mut self, turn: TurnId, event: WorkerEvent, left_out: usize) {
        if !self.keeps_saying(turn, &event, left_out) {
            // It is told to end, and nobody keeps or hears what it goes on to say.
            return self.check_output(turn);
        }
        let job = expected!(self.jobs.get_mut(turn));
        let Some(number) = job.number else { return };
        match event {
            WorkerEvent::MessageStarted { replaces_last, .. } => {
                job.begin_message(replaces_last, true);
                self.say_text(turn);
            }
            WorkerEvent::Text { text, native, .. } => {
                self.spoke(turn, TextKind::Text, &text, native)
            }
            WorkerEvent::Thinking { text, .. } => self.spoke(turn, TextKind::Thinking, &text, true),
            WorkerEvent::ToolStarted {
                call,
                name,
                input,
                read_only,
                about,
                ..
            } => {
                self.tool_started(turn, number, (call, name), &input, (read_only, about));
            }
            WorkerEvent::ToolUpdated {
                call,
                offset,
                output,
                ..
            } => {
                job.said.bytes = job.said.bytes.saturating_add(output.len());
                let (output, _) = head_and_tail(output, limits::MAX_TOOL_OUTPUT);
                self.say(
                    turn,
                    &Line::ToolUpdate {
                        job: number,
                        tool_call_id: call,
                        offset,
                        output,
                    },
                );
            }
            WorkerEvent::ToolEnded {
                call,
                ok,
                output,
                sandbox,
                diff,
                ..
            } => self.tool_ended(turn, number, call, (ok, output), (sandbox, diff)),
            WorkerEvent::Other { kind, data, .. } => {
                job.said.bytes = job.said.bytes.saturating_add(data.len());
                if data.len() <= limits::MAX_TEXT {
                    self.say(
                        turn,
                        &Line::AgentEvent {
                            job: number,
                            kind,
                            data: json::value(&data),
                        },
                    );
                }
            }
            WorkerEvent::SessionOfTurn { native, .. } => {
                job.said.bytes = job.said.bytes.saturating_add(native.len());
                self.session_of_turn(turn, &native);
            }
            WorkerEvent::Skipped { bytes, .. } => {
                job.said.bytes = job.said.bytes.saturating_add(bytes)
            }
            WorkerEvent::Ended { outcome, .. } => self.turn_ended(turn, *outcome),
            _ => {}
        }
        self.check_output(turn);
    }

    fn spoke(&mut self, turn: TurnId, kind: TextKind, text: &str, native: bool) {
        let job = expected!(self.jobs.get_mut(turn));
        job.append(kind, text, native);
        // A commit for each piece would be one for each token.
        if job.flush_due() {
            self.flush_text(turn);
        } else {
            self.outbox
                .set_if_unset(Timer::Flush(turn), self.now.mono + TEXT_FLUSH_AFTER);
        }
        self.text_unstored(turn);
        self.say_text(turn);
    }

    /// Commits the text so far, for whoever comes after a crash; what the store has no time for
    /// follows when it answers.
    pub(crate) fn flush_text(&mut self, turn: TurnId) {
        if self.outbox.store_is_behind() {
            // It stays in the turn.
            let again = self.now.mono + TEXT_FLUSH_AFTER;
            return self.outbox.set(Timer::Flush(turn), again);
        }
        let on_its_way = self.jobs.get(&turn).map(|job| job.said.text_on_its_way);
        self.flush_some_text(
            turn,
            TEXT_ON_ITS_WAY.saturating_sub(on_its_way.unwrap_or(0)),
        );
    }

    /// The store has this much of a turn's text, or gave it up.
    pub(crate) fn text_stored(&mut self, turn: TurnId, bytes: usize, lost: bool) {
        let job = expected!(self.jobs.get_mut(turn));
        // Its end then writes all of the text, instead of what is missing.
        job.said.text_lost |= lost;
        // Before this answer is taken off: only a turn that had reached the limit has text that
        // waits for it.
        let waits = job.said.text_on_its_way >= TEXT_ON_ITS_WAY;
        job.said.text_on_its_way = job.said.text_on_its_way.saturating_sub(bytes);
        let process = job.process();
        if waits {
            self.flush_text(turn);
        }
        self.read_again(process);
    }

    pub(crate) fn flush_some_text(&mut self, turn: TurnId, most: usize) {
        self.outbox.clear(Timer::Flush(turn));
        let job = expected!(self.jobs.get_mut(turn));
        let Some(number) = job.number.filter(|_| job.phase != Phase::Finishing) else {
            return;
        };
        let unstored = job.said.text_unstored;
        let writes = job.text_writes(number, most);
        if !writes.is_empty() {
            let bytes = unstored - job.said.text_unstored;
            job.said.text_on_its_way += bytes;
            self.outbox
                .commit_lazily(Awaiting::Text { turn, bytes }, writes);
        }
    }

    fn tool_started(
        &mut self,
        turn: TurnId,
        number: JobId,
        (call, name): (String, String),
        input: &str,
        (read_only, about): (bool, ToolAbout),
    ) {
        let now = self.now.mono;
        let job = expected!(self.jobs.get_mut(turn));
        let changed: usize = about.diff.iter().map(FileChange::bytes).sum();
        let said = input.len() + name.len() + changed;
        job.said.bytes = job.said.bytes.saturating_add(said);
        let (input, truncated) = if input.len() > limits::MAX_TOOL_OUTPUT {
            (
                agentd_protocol::serde_json::Value::String(
                    head_and_tail(input.to_owned(), limits::MAX_TOOL_OUTPUT).0,
                ),
                true,
            )
        } else {
            (json::value(input), false)
        };
        let trace = ToolTrace {
            tool_call_id: call.clone(),
            name: name.clone(),
            input: input.clone(),
            ok: None,
            output: String::new(),
            truncated,
            duration_ms: None,
            sandbox: None,
            kind: about.kind,
            locations: about.locations.clone(),
            diff: about.diff,
        };
        job.said.tools.push((trace, now));
        self.say_numbered(
            turn,
            &Line::ToolStart {
                job: number,
                tool_call_id: call,
                name,
                input,
                read_only,
                kind: about.kind,
                locations: about.locations,
            },
        );
    }

    fn tool_ended(
        &mut self,
        turn: TurnId,
        number: JobId,
        call: String,
        (ok, output): (bool, String),
        (sandbox, mut diff): (Option<Sandbox>, Vec<FileChange>),
    ) {
        let now = self.now.mono;
        let job = expected!(self.jobs.get_mut(turn));
        let changed: usize = diff.iter().map(FileChange::bytes).sum();
        job.said.bytes = job.said.bytes.saturating_add(output.len() + changed);
        let (output, truncated) = head_and_tail(output, limits::MAX_TOOL_OUTPUT);
        let mut duration_ms = 0;
        if let Some((trace, started)) = job
            .said
            .tools
            .iter_mut()
            .rev()
            .find(|(trace, _)| trace.tool_call_id == call)
        {
            duration_ms =
                u64::try_from(now.saturating_sub(*started).as_millis()).unwrap_or(u64::MAX);
            trace.ok = Some(ok);
            trace.output.clone_from(&output);
            trace.truncated |= truncated;
            trace.duration_ms = Some(duration_ms);
            trace.sandbox = sandbox;
            // A call that failed changed nothing that is known.
            if diff.is_empty() && ok {
                diff.clone_from(&trace.diff);
            }
            trace.diff.clone_from(&diff);
        }
        self.say_numbered(
            turn,
            &Line::ToolEnd {
                job: number,
                tool_call_id: call,
                ok,
                output,
                truncated,
                duration_ms,
                sandbox,
                diff,
            },
        );
    }

    pub(crate) fn note(&mut self, turn: TurnId, notice: &Notice) {
        let job = found!(self.jobs.get(turn));
        let Some(number) = job.and_then(|job| job.number) else {
            return;
        };
        let (text, _) = head_and_tail(notice.text.clone(), limits::MAX_TOOL_OUTPUT);
        let line = Line::Note {
            job: Some(number),
            level: notice.level,
            code: notice.code.clone(),
            text,
        };
        self.say_numbered(turn, &line);
    }

    /// What no turn can have used or cost isn't known then, and a note says so.
    fn credible(&mut self, turn: TurnId, mut outcome: Outcome) -> Outcome {
        let told = outcome.usage.take_if(|usage| !usage.is_credible());
        if told.is_some() || !outcome.cost.is_credible() {
            outcome.cost = Cost::default();
            let text = "the agent says that the turn used or cost what no turn does: not counted";
            self.note(turn, &Notice::warning("usage-not-credible", text));
        }
        outcome
    }

    /// The worker itself says that a turn is over, and how.
    fn turn_ended(&mut self, turn: TurnId, outcome: Outcome) {
        let outcome = self.credible(turn, outcome);
        let job = expected!(self.jobs.get_mut(turn));
        let Some(process) = job.process() else { return };
        // An agent that streams nothing gives its text at the end; and what it says last counts, should
        // a piece of what it streamed not have arrived.
        if let Some(text) = &outcome.text
            && text.trim() != job.answer().trim()
            && !text.is_empty()
        {
            if let Some(rest) = text.strip_prefix(job.answer()) {
                let rest = rest.to_owned();
                job.append(TextKind::Text, &rest, false);
            } else {
                job.begin_message(true, false);
                job.append(TextKind::Text, text, false);
            }
            self.say_text(turn);
        }
        let ending = match self.jobs.get(&turn).map(|job| job.phase.clone()) {
            Some(Phase::Settling { ending, .. }) => Some(ending),
            _ => None,
        };
        let wall_ms = self.now.wall_ms;
        if let Some(slot) = found!(self.pool.get_mut(process.worker)) {
            slot.turns.remove(&turn);
            if outcome.result.is_ok() {
                slot.last_ok_ms = Some(wall_ms);
                if !std::mem::replace(&mut slot.proven, true) {
                    self.pool.spawn_proven();
                }
            }
        }
        match (ending, outcome.result.clone()) {
            // What somebody asked for is what is told, however the agent says that it ended.
            (Some(ending), _) => self.end_as_asked_with(turn, &ending, outcome),
            (None, Ok(stop)) => self.complete(turn, stop, outcome),
            (None, Err(failure)) => {
                if failure.code == Code::ContextLost {
                    // Before the turn fails: its final line says what it knew of its session.
                    self.session_lost(turn);
                }
                self.fail_with(turn, failure, outcome);
            }
        }
        // Behind its end, which frees its session: whether that leaves the process depends on it.
        self.let_go(turn, process);
    }

    /// Ends a turn that was told to end, without the worker saying so.
    pub(crate) fn end_as_asked(&mut self, turn: TurnId, ending: &Ending) {
        self.end_as_asked_with(turn, ending, Outcome::ended(Stop::Cancelled));
    }

    /// Counts what a turn puts out besides text and tools.
    pub(crate) fn count_output(&mut self, turn: TurnId, bytes: usize) {
        if let Some(job) = found!(self.jobs.get_mut(turn)) {
            job.said.bytes = job.said.bytes.saturating_add(bytes + EVENT_BYTES);
        }
        self.check_output(turn);
    }

    fn is_over_its_limit(&self, turn: TurnId) -> bool {
        let job = self.jobs.get(&turn);
        job.is_some_and(|job| job.said.bytes > OUTPUT_PER_TURN)
    }

    fn check_output(&mut self, turn: TurnId) {
        if self.is_over_its_limit(turn) {
            self.tell_to_end(turn, Ending::OutputLimit);
        }
    }

    /// A turn may have made no progress for long.
    pub(crate) fn stalled(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get_mut(turn));
        if !matches!(job.phase, Phase::Running { .. }) {
            return;
        }
        let silent = self.now.mono.saturating_sub(job.said.progress_at);
        // The timer isn't moved with each piece of text: when it rings, it is seen how long ago the
        // last one was.
        let mut again = job.said.progress_at + STALLED_AFTER;
        if silent >= STALLED_AFTER {
            again = self.now.mono + STALLED_AFTER;
            if !std::mem::replace(&mut job.said.stalled, true) {
                let text = format!("no progress for {} min", silent.as_secs() / 60);
                self.note(
                    turn,
                    &Notice {
                        level: Level::Warning,
                        code: "stalled".to_owned(),
                        text,
                    },
                );
            }
        }
        self.outbox.set(Timer::Stalled(turn), again);
    }
}

/// Is it what a turn puts out, rather than how it is?
const fn is_output(event: &WorkerEvent) -> bool {
    !matches!(
        event,
        WorkerEvent::Ended { .. } | WorkerEvent::SessionOfTurn { .. }
    )
}
