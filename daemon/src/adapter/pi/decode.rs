//! pi's records, one by one.
//!
//! Owns what each record means and the idle rule. Only deltas are used for text: the snapshots
//! beside them (`message`, `partial`) may be ahead of them, and are never read.

use std::time::Duration;

use agentd_core::ids::TurnId;
use agentd_core::worker::{
    About, AskedFor, Asking, Outcome, QuestionKind, Reply, Traits, WorkerEvent,
};
use agentd_protocol::line::{Level, Stop};
use serde_json::json;

use super::activity::{Dialect, Run};
use super::models;
use super::steer::put_reply;
use super::turn::{Turn, failure};
use super::{LOOKS, LOOKS_OLD, Pi, Recycle};
use crate::adapter::driver::Out;
use crate::adapter::object::{Object, content};
use crate::adapter::tool::about;

/// pi's own tools that change nothing.
const READ_ONLY: &[&str] = &["find", "grep", "ls", "read"];

/// Longest id of a request that is answered: pi's have 36 characters.
const ID: usize = 256;

/// Parts of a message that are told as a whole, too.
const SILENT: &[&str] = &[
    "done",
    "error",
    "start",
    "text_end",
    "text_start",
    "thinking_end",
    "thinking_start",
    "toolcall_delta",
    "toolcall_end",
    "toolcall_start",
];

/// Why a message ended.
const STOPS: &[&str] = &["", "aborted", "error", "length", "stop", "toolUse"];

/// Parts of a finished message.
const PARTS: &[&str] = &["image", "text", "thinking", "toolCall"];

/// Records that say nothing a turn needs.
const IGNORED: &[&str] = &[
    "bash_execution_update",
    "entry_appended",
    "mcp_servers_change",
    "session_info_changed",
    "summarization_retry_attempt_start",
    "summarization_retry_finished",
    "summarization_retry_scheduled",
    "turn_end",
    "turn_start",
];

/// Decoration of a terminal that isn't there: nobody waits for an answer.
const DECORATION: &[&str] = &["setStatus", "setTitle", "setWidget", "set_editor_text"];

impl Pi {
    pub(super) fn record(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        let kind = Object::parse(bytes).and_then(|record| Some((record.string("type")?, record)));
        let Some((kind, record)) = kind else {
            out.log(bytes);
            return;
        };
        match kind.as_str() {
            "response" => self.response(bytes, &record, out),
            "extension_ui_request" => self.extension(&record, out),
            "extension_error" => {
                let error = record.string("error").unwrap_or_default();
                out.note(
                    self.driver.turn_id(),
                    Level::Warning,
                    "extension",
                    format!("extension: {error}"),
                );
            }
            "queue_update" => self.queue_changed(&record, out),
            "thinking_level_changed" => {
                self.thinking = record.string("level").or(self.thinking.take());
            }
            "agent_start" | "agent_end" | "agent_settled" | "auto_retry_start"
            | "auto_retry_end" | "compaction_start" | "compaction_end" => {
                self.life(&kind, &record, bytes, out);
            }
            "message_start"
            | "message_update"
            | "message_end"
            | "tool_execution_start"
            | "tool_execution_update"
            | "tool_execution_end" => {
                if let Some(turn) = self.driver.turn_id() {
                    self.output(&kind, turn, &record, out);
                }
            }
            known if IGNORED.contains(&known) => {}
            _ => {
                let turn = self.driver.turn_id();
                out.extend(self.driver.unknown.said("pi", &kind, turn));
            }
        }
    }

    /// What begins and ends runs.
    fn life(&mut self, kind: &str, record: &Object<'_>, bytes: &[u8], out: &mut Out<'_>) {
        match kind {
            "agent_start" => {
                self.activity.run_is(Run::Going);
                self.confirm = None;
                match &mut self.driver.turn {
                    Some(turn) => turn.state.begun = true,
                    None => out.stray(bytes),
                }
            }
            "agent_end" => {
                // The field came with `agent_settled`: such a pi tells itself when it is over.
                if record.raw("willRetry").is_some() {
                    self.speaks(Dialect::Settles);
                }
                if !self.settles() {
                    self.look(out);
                }
            }
            "agent_settled" => {
                self.speaks(Dialect::Settles);
                self.activity.retries_no_more();
                if self.is_known() {
                    self.kept(out);
                    self.over(out);
                } else {
                    self.look(out);
                }
            }
            "auto_retry_start" => {
                self.activity.retries();
                self.confirm = None;
                let (attempt, most) = (record.raw("attempt"), record.raw("maxAttempts"));
                let text = format!(
                    "attempt {} of {} after: {}",
                    attempt.unwrap_or("?"),
                    most.unwrap_or("?"),
                    record.string("errorMessage").unwrap_or_default()
                );
                out.note(self.driver.turn_id(), Level::Warning, "retry", text);
            }
            "auto_retry_end" => {
                self.activity.retries_no_more();
                if !record.is_true("success") && !self.settles() {
                    self.look(out);
                }
            }
            "compaction_start" => {
                self.activity.compacts();
                self.confirm = None;
                let reason = record.string("reason").unwrap_or_default();
                let text = format!("pi compacts its context ({reason})");
                out.note(self.driver.turn_id(), Level::Info, "compaction", text);
            }
            _ => {
                self.activity.compacts_no_more();
                if record.is_true("willRetry") {
                    self.activity.retries();
                }
                if let Some(error) = record.string("errorMessage") {
                    let text = format!("compaction failed: {error}");
                    out.note(self.driver.turn_id(), Level::Warning, "compaction", text);
                }
                if !self.settles() && self.activity.run() == Run::Going {
                    self.look(out);
                }
            }
        }
    }

    fn response(&mut self, bytes: &[u8], record: &Object<'_>, out: &mut Out<'_>) {
        let id = record.string("id");
        if let Some(id) = &id
            && self.steer_answered(id, bytes, record, out)
        {
            return;
        }
        let is = |asked: Option<&String>| id.is_some() && asked == id.as_ref();
        let turn = self.driver.turn.as_ref();
        let (named, asked) = match &self.recycle {
            Recycle::Naming(id) => (Some(id), None),
            Recycle::Asked(id) => (None, Some(id)),
            Recycle::No | Recycle::Wanted => (None, None),
        };
        let aborted = turn.and_then(|turn| turn.abort.as_ref());
        if is(turn.map(|turn| &turn.id)) {
            self.prompt_answered(record, out);
        } else if is(aborted) {
            // It is answered when pi is idle, whatever was announced before.
            self.activity.retries_no_more();
            self.activity.compacts_no_more();
            self.look(out);
        } else if is(self.probe.as_ref()) {
            self.probe = None;
            self.state(record, out);
            self.reopened(record, out);
            out.push(WorkerEvent::Ready(Traits::default()));
        } else if let Some(number) = id.as_deref().and_then(models::asked) {
            out.models(number, self.listed(record));
        } else if let Some(number) = id.as_deref().and_then(models::commands_asked) {
            out.commands(number, models::commands(record));
        } else if is(self.confirm.as_ref()) {
            self.confirm = None;
            self.confirmed(record, out);
        } else if self
            .switch
            .as_ref()
            .is_some_and(|switch| switch.waits_for(id.as_deref()))
        {
            self.switched(record, out);
        } else if is(asked) {
            self.renewed(bytes, record, out);
        } else if is(named) {
            self.recycle = Recycle::No;
            self.state(record, out);
            out.push(WorkerEvent::Recycled);
        } else if id.is_none() || !record.is_true("success") {
            // Old versions answer what they don't know without an id: nobody's, but worth reading.
            out.log(bytes);
        }
    }

    fn prompt_answered(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let Some(turn) = &mut self.driver.turn else {
            return;
        };
        if !record.is_true("success") {
            // Of one whose run has begun pi says by `agent_end` how it went.
            if !turn.state.begun {
                let error = record.string("error").unwrap_or_default();
                let outcome = match turn.state.is_cancelled() {
                    false => Outcome::failed(failure(&error)),
                    true => Outcome::ended(Stop::Cancelled),
                };
                self.run_over(out);
                self.finish(Some(outcome), out);
            }
            return;
        }
        let disposition = record
            .object("data")
            .and_then(|data| data.string("disposition"));
        turn.handled = disposition.as_deref() == Some("handled");
        let may_be_over = match disposition {
            Some(_) => turn.handled,
            None => turn.slash && !turn.state.begun,
        };
        if disposition.is_some() {
            self.speaks(Dialect::Disposes);
        }
        if may_be_over {
            self.look(out);
        }
    }

    /// A fresh look at the state: is the turn over?
    fn confirmed(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let data = record.object("data");
        let says = |field| data.as_ref().is_some_and(|data| data.is_true(field));
        if says("isStreaming") || says("isCompacting") || self.activity.goes_on() {
            return;
        }
        let needed = match &self.driver.turn {
            // Its run is still to come: pi is idle as before it.
            Some(turn) if !turn.state.begun && !turn.handled && !turn.slash => return,
            Some(turn) if !turn.state.begun && !turn.handled => LOOKS,
            _ if !self.settles() => LOOKS_OLD,
            _ => 1,
        };
        self.looks += 1;
        if self.looks < needed {
            return self.look_again(out);
        }
        if self.is_held_up() {
            // The turn ends when pi's queue is empty.
            return;
        }
        if self.driver.turn.is_some() {
            self.kept(out);
        }
        self.state(record, out);
        self.over(out);
    }

    /// It told more than an older one would.
    fn speaks(&mut self, dialect: Dialect) {
        self.dialect = self.dialect.max(dialect);
    }

    /// Does this pi say `agent_settled`?
    pub(super) fn settles(&self) -> bool {
        self.dialect >= Dialect::Settles
    }

    /// Its session's file is there from the first turn on: it was named before, and counts now.
    fn kept(&mut self, out: &mut Out<'_>) {
        if !std::mem::replace(&mut self.kept, true) {
            let native = self.named.clone();
            out.extend(native.map(|native| WorkerEvent::SessionNamed { native }));
        }
    }

    /// Is there nothing that a look at the state would add? pi is idle when it says that it settled,
    /// unless it was interfered with; its session's file is known since it was ready. A command of an
    /// extension may have begun another session.
    fn is_known(&self) -> bool {
        let plain = |turn: &Turn| turn.state.begun && !turn.state.is_cancelled() && !turn.slash;
        self.driver.turn.as_ref().is_some_and(plain)
            && self.named.is_some()
            && !self.activity.is_compacting()
            && !self.is_held_up()
    }

    /// pi is idle.
    fn over(&mut self, out: &mut Out<'_>) {
        self.activity.run_is(Run::None);
        if !self.run_over(out) {
            self.finish(None, out);
        }
    }

    /// The answer to `new_session`.
    fn renewed(&mut self, bytes: &[u8], record: &Object<'_>, out: &mut Out<'_>) {
        let data = record.object("data");
        let refused = data.is_some_and(|data| data.is_true("cancelled"));
        if refused || !record.is_true("success") {
            self.recycle = Recycle::No;
            out.log(bytes);
        } else {
            self.named = None;
            self.kept = false;
            self.recycle = Recycle::Naming(self.request("get_state", json!({}), out));
        }
    }

    /// pi opens a file that isn't there as an empty session and says nothing.
    fn reopened(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let messages: Option<u64> = record
            .object("data")
            .and_then(|data| data.get("messageCount"));
        if std::mem::take(&mut self.resumed) && messages == Some(0) {
            let text = "pi has nothing left of the session's earlier turns";
            out.note(
                self.driver.turn_id(),
                Level::Warning,
                "context-lost",
                text.to_owned(),
            );
        }
    }

    /// Takes over what `get_state` says.
    pub(super) fn state(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let Some(data) = record.object("data") else {
            return;
        };
        if let Some(model) = data.object("model") {
            let known = |field| model.string(field).filter(|value| value != "unknown");
            self.provider = known("provider");
            self.model = known("id");
            self.window = model.get("contextWindow");
        }
        self.thinking = data.string("thinkingLevel").or(self.thinking.take());
        let file = data.string("sessionFile");
        if file.is_some() && file != self.named {
            self.named = file;
            out.extend(
                self.named
                    .clone()
                    .map(|native| WorkerEvent::SessionNamed { native }),
            );
        }
    }

    /// What a run says and does.
    fn output(&mut self, kind: &str, name: TurnId, record: &Object<'_>, out: &mut Out<'_>) {
        let Some(turn) = &mut self.driver.turn else {
            return;
        };
        match kind {
            "message_start" | "message_end" => {
                let Some(message) = record.object("message") else {
                    return;
                };
                if message.string("role").as_deref() != Some("assistant") {
                    return;
                }
                if kind == "message_start" {
                    turn.streamed = false;
                    let replaces_last = std::mem::take(&mut turn.replaces);
                    out.push(WorkerEvent::MessageStarted {
                        turn: name,
                        replaces_last,
                    });
                } else {
                    out.extend(turn.message(&message).map(|text| WorkerEvent::Text {
                        turn: name,
                        text,
                        native: false,
                    }));
                    let stop = message.string("stopReason").unwrap_or_default();
                    if !STOPS.contains(&stop.as_str()) {
                        let kind = format!("stopReason {stop}");
                        out.extend(self.driver.unknown.said("pi", &kind, Some(name)));
                    }
                    for part in message.objects("content") {
                        let kind = part.string("type").unwrap_or_default();
                        if !PARTS.contains(&kind.as_str()) {
                            let kind = format!("content {kind}");
                            out.extend(self.driver.unknown.said("pi", &kind, Some(name)));
                        }
                    }
                }
            }
            "message_update" => {
                let Some(update) = record.object("assistantMessageEvent") else {
                    return;
                };
                let delta = || update.string("delta").filter(|delta| !delta.is_empty());
                match update.string("type").as_deref() {
                    Some("text_delta") => {
                        turn.streamed = true;
                        out.extend(delta().map(|text| WorkerEvent::Text {
                            turn: name,
                            text,
                            native: true,
                        }));
                    }
                    Some("thinking_delta") => {
                        out.extend(delta().map(|text| WorkerEvent::Thinking { turn: name, text }))
                    }
                    Some(other) if !SILENT.contains(&other) => {
                        let kind = format!("message_update {other}");
                        out.extend(self.driver.unknown.said("pi", &kind, Some(name)));
                    }
                    _ => {}
                }
            }
            _ => self.tool(kind, name, record, out),
        }
    }

    fn tool(&mut self, kind: &str, name: TurnId, record: &Object<'_>, out: &mut Out<'_>) {
        let Some(turn) = &mut self.driver.turn else {
            return;
        };
        let call = record.string("toolCallId").unwrap_or_default();
        let output = |field| record.object(field).map(|result| content(&result));
        match kind {
            "tool_execution_start" => {
                let tool = record
                    .string("toolName")
                    .unwrap_or_else(|| "tool".to_owned());
                let read_only = READ_ONLY.contains(&tool.as_str());
                let input = record.raw("args").unwrap_or("{}").to_owned();
                out.push(WorkerEvent::ToolStarted {
                    turn: name,
                    call,
                    about: about(&tool, &input, read_only),
                    name: tool,
                    input,
                    read_only,
                });
            }
            "tool_execution_update" => {
                let more = output("partialResult").and_then(|text| turn.more_output(&call, text));
                out.extend(more.map(|(offset, output)| WorkerEvent::ToolUpdated {
                    turn: name,
                    call,
                    offset,
                    output,
                }));
            }
            _ => {
                turn.call_ended(&call);
                out.push(WorkerEvent::ToolEnded {
                    turn: name,
                    call,
                    ok: !record.is_true("isError"),
                    output: output("result").unwrap_or_default(),
                    sandbox: None,
                    diff: Vec::new(),
                });
            }
        }
    }

    fn extension(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let text = |field| record.string(field);
        let method = text("method").unwrap_or_default();
        let (kind, detail) = match method.as_str() {
            "select" => (QuestionKind::Choice, None),
            "confirm" => (QuestionKind::Approval, text("message")),
            "input" => (QuestionKind::Text, text("placeholder")),
            "editor" => (QuestionKind::Text, text("prefill")),
            "notify" => {
                let level = match text("notifyType").as_deref() {
                    Some("warning" | "error") => Level::Warning,
                    _ => Level::Info,
                };
                let message = text("message").unwrap_or_default();
                out.note(self.driver.turn_id(), level, "extension", message);
                return;
            }
            known if DECORATION.contains(&known) => return,
            _ => {
                // It may wait for an answer, and the turn for it.
                if let Some(id) = text("id").filter(|id| id.len() <= ID) {
                    put_reply(&id, &Reply::Cancelled, out);
                }
                let turn = self.driver.turn_id();
                let kind = format!("extension_ui_request {method}");
                return out.extend(self.driver.unknown.asked("pi", &kind, turn));
            }
        };
        // When that has passed pi goes on by itself, and says nothing of it.
        let wait = record.get("timeout").map(Duration::from_millis);
        let wait = wait.filter(|wait| !wait.is_zero());
        out.push(WorkerEvent::Asked {
            turn: self.driver.turn_id(),
            asking: Asking {
                question: text("id").unwrap_or_default(),
                kind,
                title: text("title").unwrap_or_default(),
                detail,
                options: record.get("options").unwrap_or_default(),
                limit: wait.map(AskedFor::Within),
                about: About::default(),
            },
        });
    }
}
