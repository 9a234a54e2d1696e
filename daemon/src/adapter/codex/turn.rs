//! One turn of Codex: its messages, its open tool calls, its tokens, and what its errors mean.
//!
//! Owns the outcome. Must not know when a turn is over.

use std::collections::BTreeMap;

use agentd_core::ids::TurnId;
use agentd_core::worker::{ContextUse, Failure, Outcome, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::{Stop, Usage};

use super::items::Tool;
use super::shortened;
use super::terminals::Ending;
use crate::adapter::driver::{Out, TurnState, in_flight};
use crate::adapter::object::Object;
use crate::adapter::refusal::{Signs, Status};

/// Tool calls that are followed at once.
pub(super) const OPEN_CALLS: usize = 64;
/// Longest id of a call that is followed, in bytes: Codex's are a few dozen.
const CALL_ID: usize = 256;
/// What is kept of a call for the question about it, in bytes: as much as a question shows.
const ABOUT: usize = 16 * 1024;

/// Codex's names of refusals, as it writes them.
const POLICIES: &[&str] = &["\"cyberPolicy\"", "\"misalignmentPolicyViolation\""];

/// What its errors say where neither a kind nor a status does.
const SIGNS: Signs = Signs {
    overflow: &["context window", "context length", "context_length"],
    rate: &["too many requests", "rate limit", "usage limit", "quota"],
    auth: &[
        "401 unauthorized",
        "not logged in",
        "api key",
        "log in",
        "missing environment variable",
    ],
    status: Status::Ignored,
};

/// A tool call that began and didn't end.
#[derive(Debug)]
struct OpenCall {
    /// Bytes of output so far.
    told: u64,
    /// What it does, where the question about it doesn't say.
    about: String,
    /// The changes of files that it makes, as JSON, where they are short.
    changes: String,
    /// Is it a command?
    command: bool,
}

/// The turn in flight.
#[derive(Debug)]
pub(in crate::adapter) struct Turn {
    /// It begins with `turn/started`.
    pub(super) state: TurnState,
    /// Codex's own name of it.
    pub(super) native: Option<String>,
    /// Was a message begun that holds nothing but thinking so far?
    pub(super) thinks: bool,
    /// Is a message open, and was any of its text streamed?
    pub(super) message: Option<bool>,
    /// Was any of the open thinking streamed?
    pub(super) thought: bool,
    /// The next message takes the place of the one that broke off.
    pub(super) replaces: bool,
    /// The last whole message.
    pub(super) text: Option<String>,
    /// Why the model or its provider would not.
    pub(super) refusal: Option<String>,
    /// Codex ended the turn, and its commands are still to end.
    pub(super) ending: Option<Ending>,
    calls: BTreeMap<String, OpenCall>,
    usage: Option<Usage>,
    context: ContextUse,
}

in_flight!(Turn);

impl Turn {
    pub(super) const fn new(turn: TurnId) -> Self {
        Self {
            state: TurnState::new(turn),
            native: None,
            thinks: false,
            message: None,
            thought: false,
            replaces: false,
            text: None,
            refusal: None,
            ending: None,
            calls: BTreeMap::new(),
            usage: None,
            context: ContextUse {
                tokens: None,
                window: None,
            },
        }
    }

    /// Thinking belongs to the message that follows it: it begins one.
    pub(super) fn thinking_begins(&mut self) -> Option<WorkerEvent> {
        self.thought = false;
        if std::mem::replace(&mut self.thinks, true) {
            return None;
        }
        Some(self.message_started())
    }

    pub(super) fn message_begins(&mut self) -> Option<WorkerEvent> {
        let thinks = std::mem::take(&mut self.thinks);
        let started = (!thinks).then(|| self.message_started());
        self.message = Some(false);
        started
    }

    fn message_started(&mut self) -> WorkerEvent {
        // One that is still open broke off, as Codex stops a message for a steer.
        let open = self.message.take().is_some();
        WorkerEvent::MessageStarted {
            turn: self.state.id,
            replaces_last: std::mem::take(&mut self.replaces) || open,
        }
    }

    /// Codex tries again: what was begun is void.
    pub(super) fn broke_off(&mut self) {
        self.replaces |= self.message.is_some() || self.thinks;
        self.message = None;
        self.thinks = false;
    }

    pub(super) fn call_begins(&mut self, call: &str, kind: &str, tool: &Tool) {
        self.thinks = false;
        if self.calls.len() < OPEN_CALLS && call.len() <= CALL_ID {
            let changes = kind == "fileChange" && tool.input.len() <= ABOUT;
            let begun = OpenCall {
                told: 0,
                about: shortened(&tool.about, ABOUT).into_owned(),
                changes: if changes {
                    tool.input.clone()
                } else {
                    String::new()
                },
                command: kind == "commandExecution",
            };
            self.calls.insert(call.to_owned(), begun);
        }
    }

    /// Where a piece of a call's output begins, among the pieces: what the command said before
    /// Codex listened is only in its end. `None` for a call that isn't followed.
    pub(super) fn more_output(&mut self, call: &str, piece: &str) -> Option<u64> {
        let call = self.calls.get_mut(call)?;
        let offset = call.told;
        call.told = offset.saturating_add(piece.len() as u64);
        Some(offset)
    }

    pub(super) fn call_ended(&mut self, call: &str) {
        self.calls.remove(call);
    }

    /// What an open call does, in words and as JSON.
    pub(super) fn about(&self, call: &str) -> Option<(String, String)> {
        let call = self.calls.get(call)?;
        let about = (call.about.clone(), call.changes.clone());
        (!call.about.is_empty()).then_some(about)
    }

    pub(super) fn is_open(&self, call: &str) -> bool {
        self.calls.contains_key(call)
    }

    pub(super) fn runs_commands(&self) -> bool {
        self.calls.values().any(|call| call.command)
    }

    /// Codex says nothing more of calls that an interrupt cut short, and only later of commands
    /// that go on without the turn.
    pub(super) fn end_calls(&mut self, ok: bool, out: &mut Out<'_>) {
        let output = if ok { "still running" } else { "interrupted" };
        for call in std::mem::take(&mut self.calls).into_keys() {
            out.push(WorkerEvent::ToolEnded {
                turn: self.state.id,
                call,
                ok,
                output: output.to_owned(),
                sandbox: None,
                diff: Vec::new(),
            });
        }
    }

    pub(super) fn count(&mut self, more: Usage) {
        if more != Usage::default() {
            self.usage.get_or_insert_default().add(more);
        }
    }

    /// What Codex says of the context after a request.
    pub(super) fn holds(&mut self, usage: &Object<'_>) {
        let last = usage.object("last");
        let tokens = last.and_then(|last| last.get("totalTokens"));
        self.context = ContextUse::known(tokens, usage.get("modelContextWindow"));
    }

    pub(super) fn outcome(&self, result: Result<Stop, Failure>) -> Outcome {
        let result = match result {
            // What an abort breaks off may fail.
            Err(_) if self.state.is_cancelled() => Ok(Stop::Cancelled),
            result => result,
        };
        let refusal = self.refusal.clone();
        Outcome {
            refusal: refusal.filter(|_| result == Ok(Stop::Refusal)),
            result,
            // Of an open message only a part was said, and the one before it isn't the answer.
            text: self.text.clone().filter(|_| self.message.is_none()),
            usage: self.usage,
            context: self.context,
            ..Outcome::ended(Stop::EndTurn)
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let bytes = |(id, call): (&String, &OpenCall)| id.len() + call.about.len();
        self.calls.iter().map(bytes).sum()
    }
}

/// Codex counts what was cached in the input.
pub(super) fn tokens(usage: &Object<'_>) -> Usage {
    let count = |name| usage.get(name).unwrap_or(0);
    Usage {
        input_tokens: count("inputTokens"),
        output_tokens: count("outputTokens"),
        cache_read_tokens: count("cachedInputTokens"),
        cache_write_tokens: count("cacheWriteInputTokens"),
        reasoning_tokens: count("reasoningOutputTokens"),
    }
}

/// How a failed turn ended: by its kind, by the HTTP status, else by the obvious words.
pub(super) fn failed(error: Option<&Object<'_>>) -> Result<Stop, Failure> {
    let said = error.and_then(|error| error.string("message"));
    let said = said.unwrap_or_default();
    // Codex has no other word for an answer that was cut short.
    if said.contains("max_output_tokens") {
        return Ok(Stop::MaxTokens);
    }
    let info = error.and_then(|error| error.raw("codexErrorInfo"));
    let by_policy = info.is_some_and(|info| POLICIES.contains(&info));
    if by_policy || said.contains("reason: content_filter") {
        return Ok(Stop::Refusal);
    }
    Err(failure(&said, info.and_then(code)))
}

fn code(info: &str) -> Option<Code> {
    if let Ok(kind) = serde_json::from_str::<String>(info) {
        return match kind.as_str() {
            "contextWindowExceeded" => Some(Code::ContextOverflow),
            "usageLimitExceeded" | "rateLimitExceeded" => Some(Code::RateLimit),
            "unauthorized" => Some(Code::AgentAuth),
            "serverOverloaded" | "internalServerError" => Some(Code::AgentFailed),
            _ => None,
        };
    }
    let kinds: BTreeMap<String, BTreeMap<String, serde_json::Value>> =
        serde_json::from_str(info).ok()?;
    let status = kinds.values().find_map(|kind| kind.get("httpStatusCode"));
    match status?.as_u64()? {
        401 | 403 => Some(Code::AgentAuth),
        429 => Some(Code::RateLimit),
        _ => None,
    }
}

/// A failure in Codex's own words.
pub(super) fn failure(said: &str, code: Option<Code>) -> Failure {
    let code = code.unwrap_or_else(|| SIGNS.code(said));
    let said = if said.is_empty() {
        "the turn failed without saying why"
    } else {
        said
    };
    Failure {
        hint: (code == Code::AgentAuth)
            .then(|| "run `codex login`; a key is kept by `codex login --with-api-key`".to_owned()),
        ..Failure::new(code, format!("codex: {said}"))
    }
}
