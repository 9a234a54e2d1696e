//! One run: from the daemon's lines to the host's events.
//!
//! Owns what of it was told, over all connections, its time limits, and that it has one end. Must not
//! know who else runs, nor how a line is written.

use std::time::{Duration, Instant};

use agentd_client::again::Heard;
use agentd_client::wire::Received;
use agentd_protocol::line::{ErrorLine, Level, Line, MessageEnd, Stop, TurnFacts};
use agentd_protocol::{Code, JobId};
use serde_json::{Value, json};

use super::request::{Failure, Stage, Wanted};
use super::told::{Event, TOOL_CALLS, Told};
use crate::face;

/// A run that has no end yet.
pub(super) struct Run {
    pub(super) request_id: Option<Value>,
    /// As the host has it; as the daemon made it, once it did.
    pub(super) session_id: Option<String>,
    pub(super) wanted: Box<Wanted>,
    /// Does its session have turns?
    pub(super) resumed: bool,
    pub(super) job: Option<JobId>,
    pub(super) losses: u32,
    /// Is it to end before it is done, and why?
    pub(super) ends: Option<Why>,
    heard: Heard,
    told: Told,
    calls: Vec<Call>,
    /// The next call's place among those of its message.
    index: usize,
    /// When the model has been silent for too long, and what is said then.
    pub(super) limit: Option<(Instant, Duration)>,
}

struct Call {
    id: String,
    name: String,
    ended: bool,
}

/// Why a run is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// The host wants it.
    Interrupted,
    /// Nothing came from the model for so long.
    Silent(Duration),
}

impl Run {
    pub(super) fn new(
        request_id: Option<Value>,
        session_id: Option<String>,
        wanted: Box<Wanted>,
    ) -> Self {
        let mut heard = Heard::default();
        // After a reconnect any line may come a second time.
        heard.told_again();
        Self {
            request_id,
            session_id,
            told: Told::new(wanted.form),
            wanted,
            resumed: false,
            job: None,
            losses: 0,
            ends: None,
            heard,
            calls: Vec::new(),
            index: 0,
            limit: None,
        }
    }

    /// What a line tells that wasn't told before. True when it was the last one.
    pub(super) fn line(&mut self, line: Received, now: Instant, events: &mut Vec<Event>) -> bool {
        let Some(line) = self.heard.fresh(line).and_then(|line| line.line) else {
            return false;
        };
        match line {
            Line::Accepted(accepted) => self.begins(accepted.running, now, events),
            Line::Running { .. } => self.waits_for_model(now),
            Line::MessageStart { replaces, .. } => {
                if replaces.is_some() {
                    self.told.is_replaced(events);
                }
                self.index = 0;
                self.told.begins(events);
            }
            Line::MessageDelta { text, native, .. } => {
                self.index = 0;
                self.told.text(&text, native, events);
                self.goes_on(now);
            }
            Line::ThinkingDelta { text, .. } => {
                self.told.thought(&text, events);
                self.goes_on(now);
            }
            Line::ToolStart {
                tool_call_id,
                name,
                input,
                ..
            } => self.calls(tool_call_id, name, &input, events),
            Line::ToolEnd {
                tool_call_id,
                ok,
                output,
                duration_ms,
                ..
            } => {
                self.has_result(&tool_call_id, ok, (&output, Some(duration_ms)), events);
                if self.calls.iter().all(|call| call.ended) {
                    self.waits_for_model(now);
                }
            }
            Line::Note {
                level: Level::Warning,
                text,
                ..
            } => events.push(("note", json!({"message": text}))),
            Line::MessageEnd(end) => {
                self.done(&end, events);
                return true;
            }
            Line::Error(error) => {
                self.failed(&error, events);
                return true;
            }
            _ => {}
        }
        false
    }

    fn begins(&mut self, running: bool, now: Instant, events: &mut Vec<Event>) {
        let started = json!({
            "user_message": self.wanted.send.text,
            "max_iterations": null,
            "resumed": self.resumed,
        });
        events.push(("session", json!({})));
        events.push(("conversation_start", started));
        if let Some(most) = self.wanted.max_iterations {
            let note =
                format!("`max_iterations` {most} is not heeded: agents have their own limits");
            events.push(("note", json!({"message": note})));
        }
        if running {
            self.waits_for_model(now);
        }
    }

    fn waits_for_model(&mut self, now: Instant) {
        self.limit = self.wanted.first_chunk.map(|limit| (now + limit, limit));
    }

    fn goes_on(&mut self, now: Instant) {
        self.limit = self.wanted.between_chunks.map(|limit| (now + limit, limit));
    }

    fn calls(&mut self, id: String, name: String, input: &Value, events: &mut Vec<Event>) {
        // What a tool takes is its own time.
        self.limit = None;
        self.told.ends(TOOL_CALLS, events);
        let called = json!({
            "tool_call_id": id,
            "name": name,
            "arguments": input,
            "index": self.index,
        });
        events.push(("tool_start", called));
        self.index += 1;
        let ended = false;
        self.calls.push(Call { id, name, ended });
    }

    fn has_result(
        &mut self,
        id: &str,
        ok: bool,
        (output, ms): (&str, Option<u64>),
        events: &mut Vec<Event>,
    ) {
        let known = self
            .calls
            .iter_mut()
            .find(|call| call.id == id && !call.ended);
        let Some(call) = known else {
            return;
        };
        call.ended = true;
        let result = json!({
            "tool_call_id": id,
            "name": call.name,
            "ok": ok,
            "duration_ms": ms,
            "content": output,
        });
        events.push(("tool_result", result));
    }

    /// What was never told of its calls is told now; what didn't end never will.
    fn tools_end(&mut self, facts: &TurnFacts, events: &mut Vec<Event>) {
        // Questions that nobody could answer are in the trace, too.
        for called in facts.tool_trace.iter().filter(|one| one.name != "question") {
            let (id, ok) = (&called.tool_call_id, called.ok);
            if !self.calls.iter().any(|call| call.id == *id) {
                self.calls(id.clone(), called.name.clone(), &called.input, events);
            }
            if let Some(ok) = ok {
                let output = (&*called.output, called.duration_ms);
                self.has_result(id, ok, output, events);
            }
        }
        for call in self.calls.drain(..).filter(|call| !call.ended) {
            let skipped = json!({
                "tool_call_id": call.id,
                "name": call.name,
                "reason": "interrupted",
            });
            events.push(("tool_skipped", skipped));
        }
    }

    fn done(&mut self, end: &MessageEnd, events: &mut Vec<Event>) {
        let facts = &end.turn;
        let reason = match end.stop {
            Stop::EndTurn => "stop",
            Stop::MaxTokens => "length",
            Stop::MaxTurnRequests => "max_iterations",
            Stop::Refusal => "content_filter",
            Stop::Cancelled => "interrupted",
        };
        self.tools_end(facts, events);
        self.told.completed(&facts.text, events);
        self.told.ends(reason, events);
        let failure = match (end.stop, self.ends) {
            (Stop::Cancelled, Some(Why::Silent(limit))) => Some(Failure {
                stage: Stage::Api,
                message: format!(
                    "Nothing came from the model for {} ms, so the run was ended.",
                    limit.as_millis()
                ),
                retryable: true,
            }),
            (Stop::Refusal, _) => Some(Failure {
                stage: Stage::Api,
                message: facts
                    .refusal
                    .clone()
                    .unwrap_or_else(|| "The model refused.".to_owned()),
                retryable: false,
            }),
            _ => None,
        };
        let interrupted = end.stop == Stop::Cancelled && failure.is_none();
        let ended = End {
            completed: end.stop == Stop::EndTurn,
            interrupted,
            failed: failure.is_some(),
        };
        if let Some(failure) = &failure {
            events.push(error(failure));
        }
        ended.told(facts, self.told.last(), events);
    }

    /// It was interrupted before it was sent.
    pub(super) fn never_begins(&self, events: &mut Vec<Event>) {
        let ended = End {
            completed: false,
            interrupted: true,
            failed: false,
        };
        ended.told(&TurnFacts::default(), self.told.last(), events);
    }

    /// It failed, or was never accepted.
    fn failed(&mut self, line: &ErrorLine, events: &mut Vec<Event>) {
        let facts = line.turn.clone().unwrap_or_default();
        self.fails(&failure(line), &facts, events);
    }

    /// The same without a word of the daemon.
    pub(super) fn fails(&mut self, why: &Failure, facts: &TurnFacts, events: &mut Vec<Event>) {
        if !self.heard.is_accepted() {
            return events.push(error(why));
        }
        self.tools_end(facts, events);
        self.told.completed(&facts.text, events);
        self.told.ends("error", events);
        events.push(error(why));
        let ended = End {
            completed: false,
            interrupted: false,
            failed: true,
        };
        ended.told(facts, self.told.last(), events);
    }
}

/// How a run ended.
struct End {
    completed: bool,
    interrupted: bool,
    failed: bool,
}

impl End {
    fn told(&self, facts: &TurnFacts, last: &str, events: &mut Vec<Event>) {
        let text = match facts.text.is_empty() {
            true => last,
            false => &facts.text,
        };
        let present = !text.is_empty();
        // Of an agent that doesn't say it nobody knows how often it asked its model.
        let api_calls = facts.api_calls.as_ref().map(Vec::len);
        let partial = !self.completed && present;
        events.push((
            "conversation_end",
            json!({
                "api_calls": api_calls,
                "completed": self.completed,
                "interrupted": self.interrupted,
                "final_response_present": present,
                "partial": partial,
                "failed": self.failed,
            }),
        ));
        events.push((
            "final",
            json!({
                "text": (present || self.completed).then_some(text),
                "api_calls": api_calls,
                "completed": self.completed,
                "partial": partial,
                "interrupted": self.interrupted,
            }),
        ));
    }
}

pub(super) fn error(failure: &Failure) -> Event {
    let told = json!({
        "stage": failure.stage.name(),
        "message": failure.message,
        "retryable": failure.retryable,
    });
    ("error", told)
}

/// A refusal, or how a job failed.
pub(super) fn failure(line: &ErrorLine) -> Failure {
    let line = face::keyless(line);
    let has_job = line.turn.as_ref().is_some_and(|turn| turn.job.is_some());
    let stage = match line.code {
        Code::RateLimit
        | Code::AgentAuth
        | Code::NoModel
        | Code::ContextOverflow
        | Code::OutputLimit => Stage::Api,
        Code::AgentFailed | Code::Timeout | Code::ContextLost => Stage::Conversation,
        Code::InvalidRequest
        | Code::Unsupported
        | Code::UnknownAgent
        | Code::NoAgent
        | Code::Ambiguous
        | Code::SessionBusy
        | Code::SessionConflict
        | Code::Forbidden => Stage::Validation,
        _ => Stage::Run,
    };
    let message = match (line.code, &line.hint) {
        (Code::SessionBusy, _) if !has_job => BUSY.to_owned(),
        (Code::Ambiguous, _) if !line.choices.is_empty() => format!(
            "{}: start the bridge with `--agent` and one of {}",
            line.error,
            line.choices.join(", ")
        ),
        (_, Some(hint)) => format!("{}: {hint}", line.error),
        (_, None) => line.error.clone(),
    };
    Failure {
        stage,
        message,
        retryable: line.retryable,
    }
}

/// Said of a second run.
pub(super) const BUSY: &str = "A run is already active for this session_id.";
