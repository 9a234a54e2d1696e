//! Kind `jsonl`: the worker speaks this project's own protocol (PROTOCOL.md part 8).
//!
//! Owns the lines of a worker and the ids of its sends. Must not know processes, time or jobs.

mod models;
mod prompt;
mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentd_core::agent::{Capabilities, Levels, Providers, Reports, Resume, Sessions, SystemText};
use agentd_core::attached::AttachmentSupport;
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::mcp::McpServing;
use agentd_core::toolsets::Toolsets;
use agentd_core::worker::{
    ContextUse, Failure, Json, NOT_JSONL, Outcome, QuestionKind, Steering, Traits, WorkerCommand,
    WorkerEvent,
};
use agentd_protocol::Code;
use agentd_protocol::line::{CostStatus, Level, Stop};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::object::{Object, beginning, put_line, shows};
use super::unknown::Unknown;
use super::{Adapter, Launch, TOO_LONG, tool};

/// Tool calls whose output is counted at once: more are not updated by any sane worker.
const OPEN_CALLS: usize = 256;
/// The id of the `status` request.
const PROBE: &str = "probe";
/// The id of a `compact` request: there is one at a time.
const COMPACT: &str = "compact";
/// Codes of notes that are passed on; any other becomes `worker`.
const NOTES: &[&str] = &[
    "compaction",
    "context-lost",
    "echo",
    "fallback",
    "restart",
    "retry",
];

/// Longest id of a session, as for any other name that is kept: nothing is known of longer ones.
const NATIVE_BYTES: usize = 1024;

/// What the kind can do, if a worker's `status` says so.
#[must_use]
pub const fn describe() -> Capabilities {
    Capabilities {
        sessions: Sessions::Many,
        resume: Resume::InTurn,
        cancels: true,
        recycles: true,
        model_per_turn: true,
        thinking_per_turn: true,
        switches: false,
        models: true,
        providers: Providers::Any,
        thinking: Levels::Any,
        modes: agentd_core::agent::Modes::None,
        toolsets: Toolsets::Own,
        fallback_chain: true,
        system: SystemText::WithTurn,
        history: true,
        mcp: McpServing::WithTurn,
        forks: true,
        steers: false,
        lists_models: true,
        lists_commands: true,
        compacts: false,
        tells: Reports {
            thinking: true,
            tools: true,
            usage: true,
            context: true,
            costs: &[
                CostStatus::Actual,
                CostStatus::Estimated,
                CostStatus::Included,
            ],
            questions: &[
                QuestionKind::Approval,
                QuestionKind::Choice,
                QuestionKind::Text,
                QuestionKind::Secret,
            ],
            stops: Stop::ALL,
        },
        attachments: AttachmentSupport::Files,
        concurrent_sends: 1,
        ready_within: Duration::from_secs(30),
    }
}

/// The command as it is: everything else goes over standard input.
#[must_use]
pub fn launch(command: &[String], _spawn: &Spawn) -> Launch {
    Launch {
        argv: command.to_vec(),
        ..Launch::default()
    }
}

/// One worker's translator.
#[derive(Debug, Default)]
pub struct Jsonl {
    /// Turns in flight, each with its session.
    outstanding: BTreeMap<TurnId, String>,
    /// Turns whose abort may still be refused.
    aborted: BTreeSet<TurnId>,
    /// Bytes of output so far, for workers that don't count them.
    open_calls: BTreeMap<(TurnId, String), u64>,
    one_session: bool,
    /// Words without an answer, oldest first, each with its turn.
    steers: BTreeMap<u64, TurnId>,
    /// Answers to questions so far: each has an id, so that its refusal is no turn's end.
    answers: u64,
    compacting: bool,
    unknown: Unknown,
    /// Was a line of it JSON, or is it told that one was not?
    known: bool,
}

impl Jsonl {
    /// A translator for a new process.
    #[must_use]
    pub fn new(_spawn: &Spawn) -> Self {
        Self::default()
    }

    /// A line that isn't ours. The first ones of a program tell what it is: a plain script is often added
    /// as this kind, and would be waited for until its turn's time is over.
    fn other(&mut self, bytes: &[u8], events: &mut Vec<WorkerEvent>) {
        let line = beginning(bytes);
        if !line.trim().is_empty() && !std::mem::replace(&mut self.known, true) {
            events.push(WorkerEvent::Noted {
                turn: None,
                level: Level::Warning,
                code: NOT_JSONL,
                text: format!(
                    "the agent printed a line that is no JSON object: `{line}`; a script that reads \
                     its prompt and prints its answer is of `kind = \"exec\"`"
                ),
            });
        }
        events.push(WorkerEvent::Logged { line });
    }

    /// A missing id means the only turn there is.
    fn turn(&self, line: &Object<'_>) -> Option<TurnId> {
        let turn = match line.raw("id") {
            None if self.outstanding.len() == 1 => self.outstanding.keys().next().copied(),
            None => None,
            Some(_) => line
                .string("id")
                .and_then(|id| id.strip_prefix('t')?.parse().ok())
                .map(TurnId),
        };
        turn.filter(|turn| self.outstanding.contains_key(turn))
    }

    fn status(&mut self, line: &Object<'_>) -> WorkerEvent {
        let one_session = match line.string("sessions").as_deref() {
            Some("one") => Some(true),
            Some("many") => Some(false),
            _ => None,
        };
        self.one_session = one_session == Some(true);
        WorkerEvent::Ready(Traits {
            one_session,
            // With 0 no turn would ever begin.
            concurrent_sends: line.get("concurrent_sends").map(|n: u32| n.max(1)),
            cwd_per_turn: line.get("cwd").unwrap_or(false),
            steers: line.get("steer"),
            compacts: line.get("compact"),
            takes: Some(match line.is_true("attachments") {
                true => AttachmentSupport::Files,
                false => AttachmentSupport::Nothing,
            }),
            // Such a turn may be accepted before a process is there to ask: who says nothing can't.
            resumes: Some(line.is_true("resumes")),
            toolsets: Some(line.is_true("toolsets")),
            fallback_chain: Some(line.is_true("fallback_chain")),
            forks: Some(line.is_true("forks")),
            mcp: Some(line.is_true("mcp_servers")),
            system: Some(line.is_true("system")),
            history: Some(line.is_true("history")),
            lists_models: Some(line.is_true("models")),
            lists_commands: Some(line.is_true("commands")),
            // It judges each name itself.
            models: None,
            modes: None,
        })
    }

    /// A line of a turn in flight, as an event; `None` for what says nothing new.
    fn event(&mut self, kind: &str, turn: TurnId, line: &Object<'_>) -> Option<WorkerEvent> {
        Some(match kind {
            "message_start" => WorkerEvent::MessageStarted {
                turn,
                replaces_last: line.raw("replaces").is_some(),
            },
            "message_delta" => WorkerEvent::Text {
                turn,
                text: line.string("text").filter(|text| !text.is_empty())?,
                native: line.raw("native") != Some("false"),
            },
            "thinking_delta" => WorkerEvent::Thinking {
                turn,
                text: line.string("text").filter(|text| !text.is_empty())?,
            },
            "tool_start" => {
                let name = line.string("name").unwrap_or_else(|| "tool".to_owned());
                let input = line.raw("input").unwrap_or("{}").to_owned();
                let read_only = line.is_true("read_only");
                WorkerEvent::ToolStarted {
                    turn,
                    call: line.string("tool_call_id").unwrap_or_default(),
                    about: tool::told(line, &name, &input, read_only),
                    name,
                    input,
                    read_only,
                }
            }
            "tool_update" => self.tool_updated(turn, line),
            "tool_end" => {
                let call = line.string("tool_call_id").unwrap_or_default();
                self.open_calls.remove(&(turn, call.clone()));
                WorkerEvent::ToolEnded {
                    turn,
                    call,
                    ok: line.raw("ok") != Some("false"),
                    output: words(line, "output"),
                    sandbox: line
                        .raw("sandbox")
                        .and_then(|held| serde_json::from_str(held).ok()),
                    diff: tool::told_changes(line),
                }
            }
            "session" => WorkerEvent::SessionOfTurn {
                turn,
                native: line
                    .string("native")
                    .filter(|native| (1..=NATIVE_BYTES).contains(&native.len()))?,
            },
            "question" => questions::asked(turn, line),
            "question_closed" => WorkerEvent::Withdrew {
                question: line.string("question_id")?,
            },
            "note" => noted(turn, line),
            "agent_event" => WorkerEvent::Other {
                turn,
                kind: line.string("kind").unwrap_or_default(),
                data: line.raw("data").unwrap_or("null").to_owned(),
            },
            "message_end" => self.ended(turn, outcome(Ok(stop(line)), line)),
            "error" => self.ended(turn, outcome(Err(failure(line)), line)),
            // The daemon has said so itself: for its sender the turn began before this worker heard
            // of it.
            "accepted" | "running" => return None,
            _ => return self.unknown.said("the worker", kind, Some(turn)),
        })
    }

    /// A worker took a steer, or won't. One that names none means the oldest.
    fn steered(&mut self, line: &Object<'_>, steering: Steering) -> Option<WorkerEvent> {
        let steer = match line.string("id") {
            Some(id) => id.strip_prefix('s')?.parse().ok()?,
            None => *self.steers.keys().next()?,
        };
        self.steers.remove(&steer)?;
        Some(WorkerEvent::Steered { steer, steering })
    }

    fn compacted(&mut self, result: Result<Option<String>, Failure>) -> Option<WorkerEvent> {
        std::mem::take(&mut self.compacting).then_some(WorkerEvent::Compacted { result })
    }

    /// Is it about a request of ours, rather than the end of a turn?
    fn is_refusal(&self, line: &Object<'_>) -> bool {
        match line.string("id") {
            Some(id) => is_ours(&id),
            // Nothing else is asked meanwhile.
            None => self.compacting && self.outstanding.is_empty(),
        }
    }

    /// A refusal of anything but a send.
    fn refused(&mut self, bytes: &[u8], line: &Object<'_>) -> Option<WorkerEvent> {
        let mut failure = failure(line);
        // An older worker doesn't know the command; who asked didn't write it, and would look for a
        // mistake of its own.
        if failure.code == Code::UnknownCommand {
            failure.code = Code::Unsupported;
        }
        let id = line.string("id").unwrap_or_default();
        if let Some(event) = models::refused(&id, &failure) {
            Some(event)
        } else if id == COMPACT || id.is_empty() {
            self.compacted(Err(failure))
        } else if id.starts_with('s') {
            let steering = match failure.code {
                Code::SessionIdle => Steering::TooLate,
                _ => Steering::Refused(failure),
            };
            self.steered(line, steering)
        } else {
            Some(WorkerEvent::Logged {
                line: beginning(bytes),
            })
        }
    }

    fn ended(&mut self, turn: TurnId, outcome: Outcome) -> WorkerEvent {
        self.outstanding.remove(&turn);
        self.aborted.remove(&turn);
        self.steers.retain(|_, of| *of != turn);
        self.open_calls.retain(|(of, _), _| *of != turn);
        WorkerEvent::Ended {
            turn,
            outcome: Box::new(outcome),
        }
    }

    fn tool_updated(&mut self, turn: TurnId, line: &Object<'_>) -> WorkerEvent {
        let call = line.string("tool_call_id").unwrap_or_default();
        let output = words(line, "output");
        let key = (turn, call.clone());
        let counted = self.open_calls.get(&key).copied().unwrap_or(0);
        let offset: u64 = line.get("offset").unwrap_or(counted);
        if self.open_calls.contains_key(&key) || self.open_calls.len() < OPEN_CALLS {
            let end = offset.saturating_add(output.len() as u64);
            self.open_calls.insert(key, end);
        }
        WorkerEvent::ToolUpdated {
            turn,
            call,
            offset,
            output,
        }
    }
}

impl Adapter for Jsonl {
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<WorkerEvent>, _write: &mut Vec<u8>) {
        let Some(line) = Object::parse(bytes) else {
            return self.other(bytes, events);
        };
        self.known = true;
        let kind = line.string("type").unwrap_or_default();
        match kind.as_str() {
            "status" if line.raw("ok") != Some("false") => events.push(self.status(&line)),
            // Answers to an abort say nothing: the turn's own final line does.
            "abort" | "answer" | "pong" | "hello" => {}
            "steer" => events.extend(self.steered(&line, Steering::Taken)),
            "compact" => events.extend(self.compacted(Ok(line.string("summary")))),
            "models" => events.extend(models::listed(&line)),
            "commands" => events.extend(models::commands(&line)),
            "error" if self.is_refusal(&line) => {
                events.extend(self.refused(bytes, &line));
            }
            "" | "status" => events.push(WorkerEvent::Logged {
                line: beginning(bytes),
            }),
            _ => match self.turn(&line) {
                // The abort carries the send's id, and so does its refusal: no final line.
                Some(turn) if kind == "error" && refuses(&line) && self.aborted.remove(&turn) => {
                    events.push(WorkerEvent::Logged {
                        line: beginning(bytes),
                    });
                }
                Some(turn) => events.extend(self.event(&kind, turn, &line)),
                None => events.push(WorkerEvent::Stray {
                    line: beginning(bytes),
                }),
            },
        }
    }

    fn instead_of(&self, beginning: &[u8]) -> Option<Value> {
        let last = ["message_end", "error"].map(|kind| shows(beginning, "type", &json!(kind)));
        if !last.contains(&true) {
            return None;
        }
        let mut turns = self.outstanding.keys();
        let named = turns.find(|turn| shows(beginning, "id", &json!(id(**turn))));
        let turn = match named {
            Some(turn) => turn,
            None => self
                .outstanding
                .keys()
                .next()
                .filter(|_| self.outstanding.len() == 1)?,
        };
        Some(
            json!({"type": "error", "id": id(*turn), "code": Code::AgentFailed, "error": TOO_LONG}),
        )
    }

    fn encode(
        &mut self,
        command: &WorkerCommand,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        match command {
            WorkerCommand::Probe => put_line(write, &json!({"type": "status", "id": PROBE})),
            WorkerCommand::Prompt(prompt) => {
                let session = prompt.session.clone();
                self.outstanding.insert(prompt.turn, session);
                put_line(write, &prompt::send(prompt));
            }
            WorkerCommand::Cancel { turn } => {
                if self.outstanding.contains_key(turn) {
                    // Before the answer, as both carry the send's id: a refusal of the abort is not
                    // the turn's end.
                    self.aborted.insert(*turn);
                    put_line(write, &json!({"type": "abort", "id": id(*turn)}));
                }
            }
            // Sessions are named in each send; a worker with one session can't forget it.
            WorkerCommand::Recycle => {
                if !self.one_session {
                    events.push(WorkerEvent::Recycled);
                }
            }
            // Everything goes with each turn.
            WorkerCommand::Switch(_) => {}
            WorkerCommand::Answer { question, reply } => {
                self.answers += 1;
                put_line(write, &questions::answer(self.answers, question, reply));
            }
            WorkerCommand::Steer { turn, steer, text } => {
                if let Some(session) = self.outstanding.get(turn) {
                    self.steers.insert(*steer, *turn);
                    let id = format!("s{steer}");
                    let line = json!({"type": "steer", "id": id, "session": session, "text": text});
                    put_line(write, &line);
                } else {
                    events.push(WorkerEvent::Steered {
                        steer: *steer,
                        steering: Steering::TooLate,
                    });
                }
            }
            WorkerCommand::Models { number, pins } => {
                put_line(write, &models::request(*number, pins));
            }
            WorkerCommand::Commands { number } => {
                put_line(write, &models::commands_request(*number))
            }
            WorkerCommand::Compact {
                session,
                instructions,
            } => {
                self.compacting = true;
                let mut line = json!({"type": "compact", "id": COMPACT, "session": session});
                if let Some(instructions) = instructions {
                    line["instructions"] = json!(instructions);
                }
                put_line(write, &line);
            }
        }
    }
}

/// Is it the answer to a request, rather than the end of a turn that began?
fn refuses(line: &Object<'_>) -> bool {
    matches!(
        line.get("code"),
        Some(Code::UnknownCommand | Code::InvalidRequest | Code::Unsupported | Code::SessionIdle)
    )
}

fn id(turn: TurnId) -> String {
    format!("t{}", turn.0)
}

/// Is it the id of a request of ours that isn't a send?
fn is_ours(id: &str) -> bool {
    let numbered = id.strip_prefix(['q', 's', 'm', 'c']).unwrap_or_default();
    let numbered = !numbered.is_empty() && numbered.bytes().all(|byte| byte.is_ascii_digit());
    numbered || id == PROBE || id == COMPACT
}

/// A string as it is, anything else as JSON text.
fn words(line: &Object<'_>, name: &str) -> String {
    line.string(name)
        .or_else(|| line.raw(name).map(str::to_owned))
        .unwrap_or_default()
}

fn noted(turn: TurnId, line: &Object<'_>) -> WorkerEvent {
    let code = line.string("code").unwrap_or_default();
    WorkerEvent::Noted {
        turn: Some(turn),
        level: line.get("level").unwrap_or(Level::Info),
        code: NOTES
            .iter()
            .find(|known| **known == code)
            .unwrap_or(&"worker"),
        text: words(line, "text"),
    }
}

fn stop(line: &Object<'_>) -> Stop {
    line.get("stop").unwrap_or(Stop::EndTurn)
}

fn failure(line: &Object<'_>) -> Failure {
    let code = line.get("code").unwrap_or(Code::Unknown);
    let error = words(line, "error");
    Failure {
        // A newer worker's code, which says nothing to this daemon's clients.
        code: if code == Code::Unknown {
            Code::AgentFailed
        } else {
            code
        },
        error: if error.is_empty() {
            "the agent reported an error without saying which".to_owned()
        } else {
            error
        },
        hint: line.string("hint"),
    }
}

fn outcome(result: Result<Stop, Failure>, line: &Object<'_>) -> Outcome {
    let api_calls: Option<Vec<Box<RawValue>>> = line.get("api_calls");
    Outcome {
        result,
        text: line.string("text"),
        provider: line.string("provider"),
        model: line.string("model"),
        thinking: line.string("thinking"),
        local: line.get("local"),
        usage: line.get("usage"),
        context: ContextUse::known(line.get("context_tokens"), line.get("context_window")),
        cost: line.get("cost").unwrap_or_default(),
        api_calls: api_calls.map(|calls| {
            let calls = calls.iter().map(|call| call.get());
            calls
                .filter(|call| call.starts_with('{'))
                .map(Json::from)
                .collect()
        }),
        refusal: line.string("refusal"),
        suspected_refusal: line.is_true("suspected_refusal"),
        soul_sha256: line.string("soul_sha256").filter(|sum| is_sha256(sum)),
    }
}

/// Is it 64 digits of base 16?
fn is_sha256(sum: &str) -> bool {
    sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod plain;
#[cfg(test)]
mod sandbox;
#[cfg(test)]
mod steering;
#[cfg(test)]
mod tests;
