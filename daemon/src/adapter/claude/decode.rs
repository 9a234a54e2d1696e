//! Claude Code's lines, one by one.
//!
//! Owns what each line means and which turn it is of. A run may begin that nobody asked for; its
//! lines are nobody's.

use agentd_core::worker::{Failure, Outcome, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::Level;

use super::models;
use super::steer::Compaction;
use super::{Claude, GONE, cancelled, ended, questions};
use crate::adapter::driver::Out;
use crate::adapter::object::{Object, content};
use crate::adapter::tool;

/// Its tools that change nothing.
const READ_ONLY: &[&str] = &["Glob", "Grep", "LS", "NotebookRead", "Read"];
/// Lines that say nothing a turn needs.
const IGNORED: &[&str] = &[
    "auth_status",
    "conversation_reset",
    "keep_alive",
    "prompt_suggestion",
    "rate_limit_event",
    "tool_progress",
    "tool_use_summary",
];
/// Parts of a streamed message that are told as a whole, too, or need nobody.
const STREAMED: &[&str] = &["content_block_start", "content_block_stop", "error", "ping"];
/// What a block's pieces are of: its text, its thinking, or what comes as a whole, too.
const DELTAS: &[&str] = &[
    "citations_delta",
    "compaction_delta",
    "input_json_delta",
    "signature_delta",
    "text_delta",
    "thinking_delta",
];
/// Why the model stopped, where a result says it.
const STOPS: &[&str] = &[
    "",
    "compaction",
    "end_turn",
    "max_tokens",
    "model_context_window_exceeded",
    "pause_turn",
    "refusal",
    "stop_sequence",
    "tool_use",
];
/// Blocks of a message that are neither a call nor a result.
const BLOCKS: &[&str] = &[
    "compaction",
    "container_upload",
    "document",
    "fallback",
    "image",
    "mcp_tool_listing",
    "redacted_thinking",
    "search_result",
    "text",
    "thinking",
    "tool_reference",
];

impl Claude {
    pub(super) fn said(&mut self, bytes: &[u8], out: &mut Out<'_>) {
        let kind = Object::parse(bytes).and_then(|line| Some((line.string("type")?, line)));
        let Some((kind, line)) = kind else {
            return out.log(bytes);
        };
        match kind.as_str() {
            "control_response" => self.response(bytes, &line, out),
            "control_request" => self.asked(bytes, &line, out),
            "control_cancel_request" => {
                let id = line.string("request_id").unwrap_or_default();
                self.questions.withdrawn(&id, out);
            }
            "command_lifecycle" => self.moved(&line, out),
            "system" => self.system(&line, out),
            "stream_event" | "assistant" | "user" => self.output(&kind, bytes, &line, out),
            "result" => self.result(bytes, &line, out),
            known if IGNORED.contains(&known) => {}
            _ => self.not_understood(&kind, out),
        }
    }

    /// Is there a turn, and does what is said now belong to it?
    fn is_ours(&self) -> bool {
        // One that doesn't tell where its messages are begins with them: all it says is the turn's.
        let ours = |turn: &super::Turn| !turn.queued && (turn.started || !self.tells);
        self.driver.turn.as_ref().is_some_and(ours)
    }

    /// The same; what is said shows that its run has begun.
    pub(super) fn begin(&mut self) -> bool {
        let ours = self.is_ours() && self.driver.compaction.is_none();
        if let Some(turn) = self.driver.turn.as_mut().filter(|_| ours) {
            turn.state.begun = true;
        }
        ours
    }

    fn response(&mut self, bytes: &[u8], line: &Object<'_>, out: &mut Out<'_>) {
        let Some(response) = line.object("response") else {
            return out.log(bytes);
        };
        let id = response.string("request_id");
        let failed = response.string("subtype").as_deref() == Some("error");
        let switched = self.switch.answered(id.as_deref(), !failed);
        out.extend(switched.map(WorkerEvent::Switched));
        if id.is_some() && id == self.probe {
            self.probe = None;
            self.resumed = false;
            let told = response.object("response");
            let mode = told
                .as_ref()
                .and_then(|told| told.string("current_permission_mode"));
            self.works_in(mode, out);
            let models = told.as_ref().and_then(|told| told.raw("models"));
            // An answer to a later question need not repeat them.
            self.models = models.and_then(models::kept).or(self.models.take());
            let commands = told.as_ref().and_then(|told| told.raw("commands"));
            self.commands = commands.and_then(models::kept).or(self.commands.take());
            let account = told.and_then(|told| told.object("account"));
            if let Some(account) = account {
                let key = account.string("apiKeySource");
                let has_key = key.is_some_and(|key| key != "none");
                // With a key it pays by tokens, whatever plan its user has besides.
                self.is_flat = !has_key && account.string("subscriptionType").is_some();
            }
            // An error is an answer, too: it is there.
            self.bring_servers(out);
        } else if self.servers.are_named(id.as_deref()) {
            self.servers_taken(&response, out);
        } else if failed {
            out.log(bytes);
        }
    }

    fn asked(&mut self, bytes: &[u8], line: &Object<'_>, out: &mut Out<'_>) {
        let request = line.object("request");
        let (Some(id), Some(request)) = (line.string("request_id"), request) else {
            return out.log(bytes);
        };
        let kind = request.string("subtype").unwrap_or_default();
        if kind == "can_use_tool" {
            let ours = self.begin();
            let turn = self
                .driver
                .turn
                .as_ref()
                .filter(|_| ours)
                .map(|turn| turn.state.id);
            self.questions.asked(&id, &request, turn, out);
        } else {
            // Without an answer it would wait for ever.
            questions::put_refusal(&id, &kind, out);
            let turn = self.driver.turn.as_ref().filter(|_| self.is_ours());
            let turn = turn.map(|turn| turn.state.id);
            out.extend(self.driver.unknown.asked("Claude Code", &kind, turn));
        }
    }

    /// The agent tells where a message of ours is.
    fn moved(&mut self, line: &Object<'_>, out: &mut Out<'_>) {
        let id = line.string("command_uuid").unwrap_or_default();
        let state = line.string("state").unwrap_or_default();
        let lost = matches!(state.as_str(), "cancelled" | "discarded" | "refused");
        let Some(turn) = self.driver.turn.as_mut() else {
            return;
        };
        if turn.id == id {
            self.tells = true;
            match state.as_str() {
                // Told late of one that runs, it would take its lines for somebody else's.
                "queued" => turn.queued = !turn.started,
                "started" => (turn.queued, turn.started) = (false, true),
                _ if lost && !turn.state.begun => {
                    let outcome = if turn.state.is_cancelled() {
                        cancelled()
                    } else {
                        let error = "Claude Code did not take the prompt";
                        Outcome::failed(Failure::new(Code::AgentFailed, error))
                    };
                    self.finish(outcome, out);
                }
                _ => {}
            }
            return;
        }
        let is_word = self.steer_moved(&id, &state, out);
        // The run that was to follow does not come.
        if is_word
            && lost
            && !self.has_steers_out()
            && let Some(turn) = self.driver.turn.as_mut().filter(|turn| !turn.state.begun)
            && let Some(outcome) = turn.last.take()
        {
            self.finish(outcome, out);
        }
    }

    /// What a run says and does.
    fn output(&mut self, kind: &str, bytes: &[u8], line: &Object<'_>, out: &mut Out<'_>) {
        if let Some(compaction) = &mut self.driver.compaction {
            return summarise(compaction, kind, line);
        }
        if !self.begin() {
            // What it repeats of our own words is no sign of a run that nobody asked for.
            if kind != "user" {
                out.stray(bytes);
            }
            return;
        }
        // A subagent's words are for the agent, not for its user; what it does is told.
        let is_own = line.raw("parent_tool_use_id").is_none();
        match kind {
            "stream_event" if is_own => self.streamed(line, out),
            "stream_event" => {}
            _ => {
                let Some(message) = line.object("message") else {
                    return;
                };
                if kind == "assistant" && is_own {
                    self.message(line, &message, out);
                }
                self.tools(&message, out);
            }
        }
    }

    fn streamed(&mut self, line: &Object<'_>, out: &mut Out<'_>) {
        let (Some(turn), Some(event)) = (&mut self.driver.turn, line.object("event")) else {
            return;
        };
        let name = turn.state.id;
        match event.string("type").as_deref() {
            Some("message_start") => {
                let Some(message) = event.object("message") else {
                    return;
                };
                turn.call_started(&message);
                turn.said = message.string("id");
                turn.streamed = true;
                out.push(WorkerEvent::MessageStarted {
                    turn: name,
                    replaces_last: std::mem::replace(&mut turn.open, true),
                });
            }
            Some("content_block_delta") => {
                let Some(delta) = event.object("delta") else {
                    return;
                };
                let (text, thinking) = pieces(&delta);
                out.extend(text.map(|text| WorkerEvent::Text {
                    turn: name,
                    text,
                    native: true,
                }));
                out.extend(thinking.map(|text| WorkerEvent::Thinking { turn: name, text }));
                let kind = delta.string("type").unwrap_or_default();
                if !DELTAS.contains(&kind.as_str()) {
                    self.not_understood(&format!("content_block_delta {kind}"), out);
                }
            }
            Some("message_delta") => {
                if let Some(usage) = event.object("usage") {
                    turn.call_used(&usage);
                }
            }
            Some("message_stop") => {
                turn.open = false;
                turn.call_ended();
            }
            Some(known) if STREAMED.contains(&known) => {}
            other => {
                let kind = format!("stream_event {}", other.unwrap_or("without a type"));
                self.not_understood(&kind, out);
            }
        }
    }

    /// A finished block of a message: news only where it was not streamed.
    fn message(&mut self, line: &Object<'_>, message: &Object<'_>, out: &mut Out<'_>) {
        let Some(turn) = &mut self.driver.turn else {
            return;
        };
        if let Some(error) = line.string("error") {
            // Its text is that of the error, which the result repeats.
            turn.error = Some(error);
            return;
        }
        let id = message.string("id");
        if id != turn.said {
            turn.said = id;
            turn.streamed = false;
            out.push(WorkerEvent::MessageStarted {
                turn: turn.state.id,
                replaces_last: std::mem::take(&mut turn.open),
            });
        }
        // All of it was told piece by piece.
        if turn.streamed {
            return;
        }
        for block in message.objects("content") {
            let (text, thinking) = pieces(&block);
            let turn = turn.state.id;
            out.extend(text.map(|text| WorkerEvent::Text {
                turn,
                text,
                native: false,
            }));
            out.extend(thinking.map(|text| WorkerEvent::Thinking { turn, text }));
        }
    }

    /// Calls that begin, and results.
    fn tools(&mut self, message: &Object<'_>, out: &mut Out<'_>) {
        let Some(turn) = self.driver.turn.as_ref().map(|turn| turn.state.id) else {
            return;
        };
        for block in message.objects("content") {
            let kind = block.string("type").unwrap_or_default();
            // `server_tool_use` and `mcp_tool_use` are calls, too, and so with their results.
            if kind.ends_with("tool_use") {
                let name = block.string("name").unwrap_or_else(|| "tool".to_owned());
                let read_only = READ_ONLY.contains(&name.as_str());
                let input = block.raw("input").unwrap_or("{}").to_owned();
                out.push(WorkerEvent::ToolStarted {
                    turn,
                    call: block.string("id").unwrap_or_default(),
                    about: tool::about(&name, &input, read_only),
                    name,
                    input,
                    read_only,
                });
            } else if kind.ends_with("tool_result") {
                out.push(WorkerEvent::ToolEnded {
                    turn,
                    call: block.string("tool_use_id").unwrap_or_default(),
                    ok: !block.is_true("is_error"),
                    output: content(&block),
                    sandbox: None,
                    diff: Vec::new(),
                });
            } else if !BLOCKS.contains(&kind.as_str()) {
                self.not_understood(&format!("block {kind}"), out);
            }
        }
    }

    /// A run is over.
    fn result(&mut self, bytes: &[u8], line: &Object<'_>, out: &mut Out<'_>) {
        let total: Option<f64> = line.get("total_cost_usd");
        let spent = total
            .filter(|usd| usd.is_finite() && *usd >= 0.0)
            .map(|usd| {
                // It counts from the start of the process, and anew after `/clear`.
                let before = std::mem::replace(&mut self.spent, usd);
                if usd >= before { usd - before } else { usd }
            });
        let errors: Vec<String> = line.get("errors").unwrap_or_default();
        if self.resumed && errors.iter().any(|error| error.starts_with(GONE)) {
            return self.lost_session(out);
        }
        if !self.is_ours() || self.driver.turn.as_ref().is_some_and(|turn| !turn.started) {
            // It was written first.
            if let Some(compaction) = self.driver.compaction.take() {
                return compacted(compaction, line, out);
            }
        }
        let ours = self.is_ours();
        let is_flat = self.is_flat;
        let Some(turn) = self.driver.turn.as_mut().filter(|_| ours) else {
            return out.stray(bytes);
        };
        turn.count(line, spent);
        let stop = line.string("stop_reason").unwrap_or_default();
        if !STOPS.contains(&stop.as_str()) {
            let turn = Some(turn.state.id);
            let kind = format!("stop_reason {stop}");
            out.extend(self.driver.unknown.said("Claude Code", &kind, turn));
        }
        let outcome = turn.outcome(line, is_flat);
        if self.tells && self.has_steers_out() && self.keep_open(&outcome, out) {
            return;
        }
        self.finish(outcome, out);
    }

    /// A steer is in the agent's queue, and another run follows for it.
    fn keep_open(&mut self, outcome: &Outcome, out: &mut Out<'_>) -> bool {
        let Some(turn) = self
            .driver
            .turn
            .as_mut()
            .filter(|turn| !turn.state.is_cancelled())
        else {
            return false;
        };
        // What was never written can't follow.
        if !turn.state.begun {
            return false;
        }
        // An abort waits until the next run is seen: before, it would do nothing.
        turn.state.begun = false;
        turn.open = false;
        turn.error = None;
        turn.last = Some(outcome.clone());
        // They were about what the run was to do.
        self.questions.deny_all(out);
        if let Err(failure) = &outcome.result {
            let text = failure.error.clone();
            self.note(Level::Warning, "worker", text, out);
        }
        true
    }

    /// Ends the turn in flight.
    pub(super) fn finish(&mut self, outcome: Outcome, out: &mut Out<'_>) {
        // No answer finds its question any more, and the agent may still wait for one.
        self.questions.deny_all(out);
        self.lose_steers(out);
        if let Some(turn) = self.driver.turn.take() {
            out.push(ended(turn.state.id, outcome));
        }
    }

    pub(super) fn not_understood(&mut self, kind: &str, out: &mut Out<'_>) {
        let turn = self.driver.turn.as_ref().filter(|_| self.is_ours());
        let turn = turn.map(|turn| turn.state.id);
        out.extend(self.driver.unknown.said("Claude Code", kind, turn));
    }

    /// The session that was to be reopened isn't there; the process leaves by itself.
    pub(super) fn lost_session(&mut self, out: &mut Out<'_>) {
        self.resumed = false;
        let text = "Claude Code has nothing left of the session's earlier turns".to_owned();
        self.note(Level::Warning, "context-lost", text, out);
    }

    pub(super) fn note(&self, level: Level, code: &'static str, text: String, out: &mut Out<'_>) {
        let turn = self.driver.turn.as_ref().filter(|_| self.is_ours());
        out.note(turn.map(|turn| turn.state.id), level, code, text);
    }
}

/// The message that takes the place of what was compacted.
fn summarise(compaction: &mut Compaction, kind: &str, line: &Object<'_>) {
    if kind == "user" && compaction.done && compaction.summary.is_none() {
        let message = line.object("message");
        compaction.summary = message.and_then(|message| message.string("content"));
    }
}

/// What is said and what is thought in a piece of a message.
fn pieces(of: &Object<'_>) -> (Option<String>, Option<String>) {
    let piece = |field| of.string(field).filter(|piece: &String| !piece.is_empty());
    (piece("text"), piece("thinking"))
}

fn compacted(compaction: Compaction, line: &Object<'_>, out: &mut Out<'_>) {
    let error = compaction.error.or_else(|| {
        let said = || line.string("result").filter(|said| !said.is_empty());
        let failed = line.is_true("is_error") || !compaction.done;
        failed.then(|| said().unwrap_or_else(|| "it did not compact".to_owned()))
    });
    let result = match error {
        None => Ok(compaction.summary),
        Some(error) => Err(Failure::new(Code::AgentFailed, format!("claude: {error}"))),
    };
    out.push(WorkerEvent::Compacted { result });
}
