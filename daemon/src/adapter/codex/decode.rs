//! Codex's lines, one by one.
//!
//! Owns what each response and notification means. Only what belongs to our thread and our turn
//! counts: Codex runs threads of its own for the agents that it starts.

use agentd_core::ids::TurnId;
use agentd_core::worker::{Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::{Level, Stop, Usage};
use serde_json::json;

use super::items::{self, result, tool};
use super::known::{NOTIFICATIONS, TOOLS};
use super::requests::Refused;
use super::steer::message_seen;
use super::turn::{Turn, failed, failure, tokens};
use super::{ACCOUNT, Codex, OpenRequest, Thread, WARNING, WARNINGS, cut};
use crate::adapter::driver::Out;
use crate::adapter::object::Object;
use crate::adapter::unknown::Unknown;

/// What Codex says of a thread that it doesn't have.
const GONE: &[&str] = &[
    "no rollout found",
    "thread not found",
    "conversation not found",
    "invalid session id",
    "invalid thread id",
];

impl Codex {
    pub(super) fn message(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        let Some(line) = Object::parse(bytes) else {
            return out.log(bytes);
        };
        match line.string("method") {
            Some(method) if line.raw("id").is_some() => {
                let turn = self.driver.turn.as_ref();
                let about = |item: &str| turn.and_then(|turn| turn.about(item));
                let taken = self.requests.take(&method, &line, about, out);
                let turn = turn.map(|turn| turn.state.id);
                match taken {
                    Ok(asking) => out.extend(
                        asking
                            .into_iter()
                            .map(|asking| WorkerEvent::Asked { turn, asking }),
                    ),
                    Err(Refused::Twice(withdrawn)) => out.extend(
                        withdrawn
                            .into_iter()
                            .map(|question| WorkerEvent::Withdrew { question }),
                    ),
                    Err(Refused::Unserved) => {
                        out.extend(self.driver.unknown.asked("Codex", &method, turn));
                    }
                }
            }
            Some(method) => match line.object("params") {
                Some(params) => self.notification(&method, &params, bytes, out),
                None => self.heard(&method, out),
            },
            None => self.response(&line, bytes, out),
        }
    }

    fn response(&mut self, line: &Object<'_>, bytes: &[u8], out: &mut Out<'_>) {
        if line.string("id").as_deref() == Some(ACCOUNT) {
            return self.account_read(line, out);
        }
        let id: Option<u64> = line.get("id");
        let Some(asked) = id.and_then(|id| self.asked.remove(&id)) else {
            return out.log(bytes);
        };
        let error = line.raw("error").map(|_| {
            let error = line.object("error");
            let message = error.and_then(|error| error.string("message"));
            message.unwrap_or_else(|| "an error without a message".to_owned())
        });
        let error = error.as_deref();
        match asked {
            OpenRequest::Initialize => match error {
                None => {
                    out.put(&json!({"method": "initialized"}));
                    self.open(out);
                }
                Some(error) => self.unopened(error, out),
            },
            OpenRequest::Open => self.opened(line, error, out),
            OpenRequest::Probe => out.push(WorkerEvent::Ready(Traits::default())),
            OpenRequest::Turn(turn) => self.turn_answered(turn, line, error, out),
            OpenRequest::Steer(steer) => self.steer_answered(steer, error, out),
            OpenRequest::Compact => {
                if let Some(error) = error {
                    self.compact_refused(error, out);
                }
            }
            OpenRequest::Models(number, rows) => {
                self.models_listed((number, rows), line, error, out);
            }
            OpenRequest::Terminals => self.terminals_listed(line, out),
            OpenRequest::Terminate => self.terminated(error, out),
            // The turn's own end follows, or came before.
            OpenRequest::Interrupt => {}
        }
    }

    /// Who is logged in. Without anybody where somebody has to be, a request would be tried again for
    /// minutes, and say something else in the end.
    fn account_read(&mut self, line: &Object<'_>, out: &mut Out<'_>) {
        // An older one doesn't know the question.
        let Some(result) = line.object("result") else {
            return;
        };
        if result.object("account").is_some() || !result.is_true("requiresOpenaiAuth") {
            return;
        }
        let failure = failure("nobody is logged in", Some(Code::AgentAuth));
        self.thread = Thread::Failed(failure.clone());
        if self.driver.turn.is_some() {
            out.push(WorkerEvent::Spoilt {
                why: "nobody is logged in to Codex",
            });
            self.finish(Err(failure), out);
        }
    }

    /// The answer to `thread/start` or `thread/resume`.
    fn opened(&mut self, line: &Object<'_>, error: Option<&str>, out: &mut Out<'_>) {
        // The answer about the account came first: nobody is logged in.
        if let Thread::Failed(_) = self.thread {
            return out.push(WorkerEvent::Ready(Traits::default()));
        }
        let result = line.object("result");
        let thread = result.as_ref().and_then(|result| result.object("thread"));
        let id = thread.and_then(|thread| thread.string("id"));
        match (error, id) {
            (Some(error), _) if self.resume.is_some() && is_gone(error) => {
                self.resume = None;
                // A new thread counts from 0.
                self.total = Some(Usage::default());
                let text =
                    format!("Codex has nothing left of the session's earlier turns: {error}");
                out.note(None, Level::Warning, "context-lost", text);
                self.open(out);
            }
            (None, Some(id)) => {
                let known = |name| result.as_ref().and_then(|result| result.string(name));
                self.model = known("model").or(self.model.take());
                self.provider = known("modelProvider").or(self.provider.take());
                self.thread = Thread::Open(id);
                out.push(WorkerEvent::Ready(Traits::default()));
            }
            (error, _) => self.unopened(error.unwrap_or("a thread without an id"), out),
        }
    }

    /// There is no thread, and no process would have one: the turn says so, rather than a deadline.
    fn unopened(&mut self, error: &str, out: &mut Out<'_>) {
        self.thread = Thread::Failed(failure(error, None));
        out.push(WorkerEvent::Ready(Traits::default()));
    }

    /// The answer to `turn/start`: it may come after the turn's end.
    fn turn_answered(
        &mut self,
        asked: TurnId,
        line: &Object<'_>,
        error: Option<&str>,
        out: &mut Out<'_>,
    ) {
        if self.driver.turn_id() != Some(asked) {
            return;
        }
        if let Some(error) = error {
            return self.finish(Err(failure(error, None)), out);
        }
        let result = line.object("result");
        let turn = result.and_then(|result| result.object("turn"));
        let native = turn.and_then(|turn| turn.string("id"));
        if let (Some(turn), Some(native)) = (&mut self.driver.turn, native)
            // `turn/started` may have come before the answer: then the turn has begun.
            && turn.native.as_ref() != Some(&native)
        {
            turn.native = Some(native);
            turn.state.begun = false;
        }
    }

    fn notification(&mut self, method: &str, params: &Object<'_>, bytes: &[u8], out: &mut Out<'_>) {
        match method {
            "warning" => return self.warn(params.string("message"), out),
            "guardianWarning" => return self.warn(params.string("message"), out),
            "configWarning" => return self.warn(params.string("summary"), out),
            // Of whichever thread: what an agent of Codex's asks is asked, too.
            "serverRequest/resolved" => {
                let questions = self.requests.resolved(params);
                let withdrew = |question| WorkerEvent::Withdrew { question };
                return out.extend(questions.into_iter().map(withdrew));
            }
            _ => {}
        }
        let about = params.string("threadId");
        let thread = match (&self.thread, &about) {
            (Thread::Open(thread), Some(about)) if thread == about => thread.clone(),
            // Of a thread that Codex runs for itself.
            (Thread::Open(_), Some(_)) => return,
            _ => return self.heard(method, out),
        };
        match method {
            "turn/started" => self.turn_started(&thread, params, bytes, out),
            "turn/completed" => self.turn_completed(params, bytes, out),
            "thread/tokenUsage/updated" => self.count(params),
            "thread/closed" => {
                let failure = failure("the thread was closed", None);
                self.thread = Thread::Failed(failure.clone());
                out.push(WorkerEvent::Spoilt {
                    why: "Codex closed its thread",
                });
                self.finish(Err(failure), out);
            }
            _ => {
                let named = params.string("turnId");
                if let Some(turn) = &mut self.driver.turn
                    && named.is_some()
                    && turn.native == named
                {
                    if method == "model/rerouted" {
                        self.model = params.string("toModel").or(self.model.take());
                    }
                    if method == "item/started"
                        && let Some(item) = params.object("item")
                    {
                        message_seen(&item, &mut self.driver.steers, out);
                    }
                    output(turn, method, params, &mut self.driver.unknown, out);
                } else {
                    self.heard(method, out);
                }
            }
        }
    }

    /// What is of no turn here is at least known.
    fn heard(&mut self, method: &str, out: &mut Out<'_>) {
        if !NOTIFICATIONS.contains(&method) {
            let turn = self.driver.turn_id();
            out.extend(self.driver.unknown.said("Codex", method, turn));
        }
    }

    fn turn_started(&mut self, thread: &str, params: &Object<'_>, bytes: &[u8], out: &mut Out<'_>) {
        let native = params.object("turn").and_then(|turn| turn.string("id"));
        let Some(native) = native else { return };
        let ours = |turn: &&mut Turn| turn.native.as_ref().is_none_or(|known| *known == native);
        if let Some(turn) = self.driver.turn.as_mut().filter(ours) {
            turn.native = Some(native);
            turn.state.begun = true;
            // Codex writes a thread down with its first turn, and no earlier.
            if !std::mem::replace(&mut self.named, true) {
                out.push(WorkerEvent::SessionNamed {
                    native: thread.to_owned(),
                });
            }
        } else if !self.compaction_began(&native) {
            out.stray(bytes);
        }
    }

    fn turn_completed(&mut self, params: &Object<'_>, bytes: &[u8], out: &mut Out<'_>) {
        let Some(done) = params.object("turn") else {
            return;
        };
        let native = done.string("id").unwrap_or_default();
        let result = match done.string("status").as_deref() {
            Some("completed") => Ok(Stop::EndTurn),
            Some("interrupted") => Ok(Stop::Cancelled),
            _ => failed(done.object("error").as_ref()),
        };
        // It may be told once more while the turn's commands are still to end.
        let ours = |turn: &Turn| turn.native.as_ref() == Some(&native) && turn.ending.is_none();
        if let Some(turn) = self.driver.turn.as_mut().filter(|turn| ours(turn)) {
            let error = done.object("error");
            turn.refusal = error.and_then(|error| error.string("message"));
            self.end(result, out);
        } else if !self.compacted(&native, result, out) {
            out.stray(bytes);
        }
    }

    /// The thread's tokens so far: a resumed thread repeats those of its last turn first.
    fn count(&mut self, params: &Object<'_>) {
        let Some(usage) = params.object("tokenUsage") else {
            return;
        };
        let read = |name| usage.object(name).map(|counted| tokens(&counted));
        let Some(total) = read("total") else { return };
        let more = match self.total.replace(total) {
            Some(before) => total.since(before),
            None => read("last").unwrap_or_default(),
        };
        let named = params.string("turnId");
        if let Some(turn) = &mut self.driver.turn
            && named.is_some()
            && turn.native == named
        {
            turn.count(more);
            turn.holds(&usage);
        }
    }

    fn warn(&mut self, said: Option<String>, out: &mut Out<'_>) {
        let said = said.unwrap_or_default();
        let text = cut(&said, WARNING);
        if text.is_empty() || self.warned.iter().any(|warned| warned == text) {
            return;
        }
        let Some(turn) = &self.driver.turn else {
            // Each new process says the same of its configuration: no news to each sender, but worth
            // reading where it fails.
            let line = text.to_owned();
            return out.push(WorkerEvent::Logged { line });
        };
        if self.warned.len() >= WARNINGS {
            self.warned.remove(0);
        }
        self.warned.push(text.to_owned());
        out.note(Some(turn.state.id), Level::Warning, "worker", text);
    }
}

fn is_gone(error: &str) -> bool {
    GONE.iter().any(|sign| error.contains(sign))
}

/// What the turn says and does.
fn output(
    turn: &mut Turn,
    method: &str,
    params: &Object<'_>,
    unknown: &mut Unknown,
    out: &mut Out<'_>,
) {
    let name = turn.state.id;
    let delta = || params.string("delta").filter(|delta| !delta.is_empty());
    match method {
        "item/started" | "item/completed" => {
            let Some(item) = params.object("item") else {
                return;
            };
            let kind = item.string("type").unwrap_or_default();
            if method == "item/started" {
                item_started(turn, &kind, &item, unknown, out);
            } else {
                item_completed(turn, &kind, &item, out);
            }
        }
        "item/agentMessage/delta" => {
            if let Some(text) = delta() {
                turn.message = Some(true);
                out.push(WorkerEvent::Text {
                    turn: name,
                    text,
                    native: true,
                });
            }
        }
        "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
            if let Some(text) = delta() {
                turn.thought = true;
                out.push(WorkerEvent::Thinking { turn: name, text });
            }
        }
        "item/reasoning/summaryPartAdded" if turn.thought => {
            // As between the parts of a summary that comes whole.
            let text = "\n\n".to_owned();
            out.push(WorkerEvent::Thinking { turn: name, text });
        }
        "item/commandExecution/outputDelta" => tool_said(turn, params, delta(), out),
        "item/mcpToolCall/progress" => {
            let line = params.string("message").map(|message| message + "\n");
            tool_said(turn, params, line, out);
        }
        "error" if params.is_true("willRetry") => {
            turn.broke_off();
            let error = params.object("error");
            let said = |field| error.as_ref().and_then(|error| error.string(field));
            let said = [said("message"), said("additionalDetails")];
            let said = said.into_iter().flatten().collect::<Vec<_>>().join(": ");
            out.note(Some(name), Level::Warning, "retry", cut(&said, WARNING));
        }
        _ if NOTIFICATIONS.contains(&method) => {}
        _ => out.extend(unknown.said("Codex", method, Some(name))),
    }
}

fn item_started(
    turn: &mut Turn,
    kind: &str,
    item: &Object<'_>,
    unknown: &mut Unknown,
    out: &mut Out<'_>,
) {
    match kind {
        "agentMessage" => out.extend(turn.message_begins()),
        "reasoning" => out.extend(turn.thinking_begins()),
        "contextCompaction" => {
            let text = "Codex compacts its context";
            out.note(Some(turn.state.id), Level::Info, "compaction", text);
        }
        _ => {
            let Some(tool) = tool(kind, item) else { return };
            if !TOOLS.contains(&kind) {
                out.extend(unknown.said("Codex", &format!("item {kind}"), Some(turn.state.id)));
            }
            let call = item.string("id").unwrap_or_default();
            turn.call_begins(&call, kind, &tool);
            let about = items::described(kind, &tool);
            out.push(WorkerEvent::ToolStarted {
                turn: turn.state.id,
                call,
                name: tool.name,
                input: tool.input,
                read_only: tool.read_only,
                about,
            });
        }
    }
}

fn item_completed(turn: &mut Turn, kind: &str, item: &Object<'_>, out: &mut Out<'_>) {
    let name = turn.state.id;
    match kind {
        "agentMessage" => {
            let text = item.string("text").unwrap_or_default();
            if turn.message.is_none() {
                out.extend(turn.message_begins());
            }
            if turn.message.take() == Some(false) && !text.is_empty() {
                out.push(WorkerEvent::Text {
                    turn: name,
                    text: text.clone(),
                    native: false,
                });
            }
            turn.text = Some(text);
        }
        "reasoning" => {
            let summary: Vec<String> = item.get("summary").unwrap_or_default();
            if !std::mem::take(&mut turn.thought) && !summary.is_empty() {
                let text = summary.join("\n\n");
                out.push(WorkerEvent::Thinking { turn: name, text });
            }
        }
        _ if tool(kind, item).is_some() => {
            let call = item.string("id").unwrap_or_default();
            turn.call_ended(&call);
            let (ok, output) = result(kind, item);
            out.push(WorkerEvent::ToolEnded {
                turn: name,
                call,
                ok,
                output,
                sandbox: None,
                // What it was told with when it began may have been a part of it.
                diff: items::changed(kind, item)
                    .filter(|_| ok)
                    .unwrap_or_default(),
            });
        }
        _ => {}
    }
}

/// A piece of a tool's output.
fn tool_said(turn: &mut Turn, params: &Object<'_>, piece: Option<String>, out: &mut Out<'_>) {
    let call = params.string("itemId").unwrap_or_default();
    let Some(output) = piece else { return };
    if let Some(offset) = turn.more_output(&call, &output) {
        out.push(WorkerEvent::ToolUpdated {
            turn: turn.state.id,
            call,
            offset,
            output,
        });
    }
}
