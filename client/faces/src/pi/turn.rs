//! One turn, from the daemon's lines to pi's events.
//!
//! Owns the order of these, and the messages that they are about. Must not know commands, queues or
//! sessions.

use agentd_client::again::Heard;
use agentd_client::wire::Received;
use agentd_protocol::JobId;
use agentd_protocol::limits::MAX_TOOL_OUTPUT;
use agentd_protocol::line::{Level, Line, Stop, TurnFacts};
use agentd_protocol::request::Send;
use serde_json::{Value, json};

use super::message::{self, Named};
use super::queue::Left;
use crate::face::hinted;

/// A turn that was asked for and has no end.
pub(super) struct Turn {
    pub(super) send: Box<Send>,
    pub(super) job: Option<JobId>,
    pub(super) aborted: bool,
    heard: Heard,
    /// Who answers, as messages name it.
    named: Named,
    ms: u64,
    open: Option<Open>,
    /// The last message that ended, with the results of its calls: its turn, in pi's words.
    ended: Option<Value>,
    results: Vec<Value>,
    calls: Vec<Call>,
    any_text: bool,
    /// All messages so far, of which the last line tells once more.
    pub(super) messages: Vec<Value>,
    /// The questions of what was missed, while that is told.
    missed: Option<Vec<Line>>,
    notices: u32,
}

#[derive(Default)]
struct Open {
    content: Vec<Value>,
    /// The part that is being said: its kind, and its text so far.
    part: Option<(Part, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Text,
    Thinking,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
        }
    }
}

struct Call {
    id: String,
    name: String,
    args: Value,
    output: String,
    ended: bool,
}

/// What a line means besides events.
pub(super) enum Happened {
    Nothing,
    Accepted,
    /// The agent asks, or questions are closed.
    Questions(Vec<Line>),
    Ended(End),
}

/// How a turn ended.
pub(super) struct End {
    pub(super) stop: Stop,
    pub(super) error: Option<String>,
    pub(super) facts: Box<TurnFacts>,
}

impl Turn {
    pub(super) fn new(send: Box<Send>, named: Named) -> Self {
        let mut heard = Heard::default();
        // After a reconnect any line may come a second time.
        heard.told_again();
        Self {
            send,
            job: None,
            aborted: false,
            heard,
            named,
            ms: 0,
            open: None,
            ended: None,
            results: Vec::new(),
            calls: Vec::new(),
            any_text: false,
            messages: Vec::new(),
            missed: None,
            notices: 0,
        }
    }

    /// One that an earlier client left: what was missed of it is told first, if it has begun.
    pub(super) fn left(left: Left, named: Named, has_begun: bool) -> Self {
        let send = Send {
            text: left.text,
            ..Send::default()
        };
        Self {
            job: Some(left.job),
            missed: has_begun.then(Vec::new),
            ..Self::new(Box::new(send), named)
        }
    }

    pub(super) const fn is_accepted(&self) -> bool {
        self.job.is_some()
    }

    /// What a line tells that wasn't told before.
    pub(super) fn line(&mut self, line: Received, ms: u64, events: &mut Vec<Value>) -> Happened {
        self.ms = ms;
        if matches!(line.line, Some(Line::Live { .. })) {
            // What was missed is told. Its number is the last one's.
            return Happened::Questions(self.missed.take().unwrap_or_default());
        }
        let Some(line) = self.heard.fresh(line).and_then(|line| line.line) else {
            return Happened::Nothing;
        };
        match line {
            Line::Accepted(accepted) => {
                return match self.job.replace(accepted.job) {
                    None => Happened::Accepted,
                    Some(_) => Happened::Nothing,
                };
            }
            Line::MessageStart { replaces, .. } => {
                // As in pi, whose next try is a message behind the one that failed.
                let (stop, error) = match replaces {
                    Some(_) => ("error", Some("the agent says it anew")),
                    None => ("stop", None),
                };
                self.message_ends(stop, error, &TurnFacts::default(), events);
            }
            Line::MessageDelta { text, .. } => {
                self.any_text = true;
                self.part(Part::Text, &text, events);
            }
            Line::ThinkingDelta { text, .. } => self.part(Part::Thinking, &text, events),
            Line::ToolStart {
                tool_call_id,
                name,
                input,
                ..
            } => self.calls(tool_call_id, name, input, events),
            Line::ToolUpdate {
                tool_call_id,
                offset,
                output,
                ..
            } => self.outputs(&tool_call_id, offset, &output, events),
            Line::ToolEnd {
                tool_call_id,
                ok,
                output,
                duration_ms,
                ..
            } => self.has_result(&tool_call_id, ok, (&output, Some(duration_ms)), events),
            line @ (Line::Question { .. } | Line::QuestionClosed { .. }) => {
                return self.question(line);
            }
            // Our own were told when they were taken.
            Line::Note { code, text, .. } if code == "steered" && self.missed.is_some() => {
                self.whole(message::user(&text, ms), events);
            }
            Line::Note {
                level: Level::Warning,
                text,
                job,
                ..
            } => {
                self.notices += 1;
                let job = job.map(|job| job.to_string()).unwrap_or_default();
                let id = format!("{job}-note-{}", self.notices);
                events.push(message::notice(&id, &text));
            }
            Line::MessageEnd(end) => {
                return Happened::Ended(End {
                    stop: end.stop,
                    error: end.turn.refusal.clone(),
                    facts: Box::new(end.turn),
                });
            }
            Line::Error(error) => {
                let why = hinted(&error);
                return Happened::Ended(End {
                    stop: Stop::EndTurn,
                    error: Some(why),
                    facts: Box::new(error.turn.clone().unwrap_or_default()),
                });
            }
            _ => {}
        }
        Happened::Nothing
    }

    /// What was asked and closed while nobody was here is no question any more.
    fn question(&mut self, line: Line) -> Happened {
        let Some(missed) = &mut self.missed else {
            return Happened::Questions(vec![line]);
        };
        match line {
            Line::QuestionClosed { question_id, .. } => missed.retain(
                |one| !matches!(one, Line::Question { question_id: of, .. } if *of == question_id),
            ),
            line => missed.push(line),
        }
        Happened::Nothing
    }

    /// The user's words, which begin a turn or steer it.
    pub(super) fn user(&mut self, text: &str, ms: u64, events: &mut Vec<Value>) {
        self.ms = ms;
        let message = message::user(text, ms);
        self.whole(message, events);
    }

    /// A message that has no parts.
    fn whole(&mut self, message: Value, events: &mut Vec<Value>) {
        events.push(json!({"type": "message_start", "message": message}));
        events.push(json!({"type": "message_end", "message": message}));
        self.messages.push(message);
    }

    fn opened(&mut self, events: &mut Vec<Value>) -> &mut Open {
        if self.open.is_none() {
            if self.calls.iter().all(|call| call.ended) && self.turn_ends(events) {
                events.push(json!({"type": "turn_start"}));
            }
            let begun = message::assistant(
                Vec::new(),
                &self.named,
                &TurnFacts::default(),
                ("pending", None),
                self.ms,
            );
            events.push(json!({"type": "message_start", "message": begun}));
        }
        self.open.get_or_insert_default()
    }

    fn part(&mut self, kind: Part, text: &str, events: &mut Vec<Value>) {
        let open = self.opened(events);
        if open.part.as_ref().is_some_and(|(of, _)| *of != kind) {
            open.part_ends(events);
        }
        let (at, name) = (open.content.len(), kind.name());
        if open.part.is_none() {
            events.push(update(
                json!({"type": format!("{name}_start"), "contentIndex": at}),
            ));
        }
        let (_, so_far) = open.part.get_or_insert_with(|| (kind, String::new()));
        so_far.push_str(text);
        events.push(update(
            json!({"type": format!("{name}_delta"), "contentIndex": at, "delta": text}),
        ));
    }

    fn calls(&mut self, id: String, name: String, args: Value, events: &mut Vec<Value>) {
        let open = self.opened(events);
        open.part_ends(events);
        let at = open.content.len();
        let call = json!({"type": "toolCall", "id": id, "name": name, "arguments": args});
        for event in [
            json!({"type": "toolcall_start", "contentIndex": at, "id": id, "toolName": name}),
            json!({"type": "toolcall_delta", "contentIndex": at, "delta": args.to_string()}),
            json!({"type": "toolcall_end", "contentIndex": at, "toolCall": call}),
        ] {
            events.push(update(event));
        }
        open.content.push(call);
        self.message_ends("toolUse", None, &TurnFacts::default(), events);
        events.push(
            json!({"type": "tool_execution_start", "toolCallId": id, "toolName": name, "args": args}),
        );
        let (output, ended) = (String::new(), false);
        self.calls.push(Call {
            id,
            name,
            args,
            output,
            ended,
        });
    }

    /// All of the output so far, each time, as pi has it.
    fn outputs(&mut self, id: &str, offset: u64, more: &str, events: &mut Vec<Value>) {
        let Some(call) = self.calls.iter_mut().find(|call| call.id == id) else {
            return;
        };
        let follows = call.output.len() as u64 == offset;
        if follows && call.output.len() + more.len() <= MAX_TOOL_OUTPUT {
            call.output.push_str(more);
            events.push(json!({"type": "tool_execution_update", "toolCallId": id,
                "toolName": call.name, "args": call.args,
                "partialResult": {"content": [message::text(&call.output)], "details": {}}}));
        }
    }

    fn has_result(
        &mut self,
        id: &str,
        ok: bool,
        (output, duration): (&str, Option<u64>),
        events: &mut Vec<Value>,
    ) {
        let known = self
            .calls
            .iter_mut()
            .find(|call| call.id == id && !call.ended);
        let Some(call) = known else {
            return;
        };
        call.ended = true;
        let content = json!([message::text(output)]);
        let mut ended = json!({"type": "tool_execution_end", "toolCallId": id, "toolName": call.name,
            "result": {"content": content, "details": {}}, "isError": !ok});
        if let Some(ms) = duration {
            ended["durationMs"] = json!(ms);
        }
        events.push(ended);
        let result = message::tool_result((id, &call.name), output, ok, self.ms);
        self.results.push(result.clone());
        self.whole(result, events);
    }

    fn message_ends(
        &mut self,
        stop: &str,
        error: Option<&str>,
        facts: &TurnFacts,
        events: &mut Vec<Value>,
    ) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        open.part_ends(events);
        let (named, ms) = (&self.named, self.ms);
        let message = message::assistant(open.content, named, facts, (stop, error), ms);
        events.push(json!({"type": "message_end", "message": message}));
        self.messages.push(message.clone());
        self.ended = Some(message);
    }

    /// A turn in pi's words: a message, and the results of what it calls.
    fn turn_ends(&mut self, events: &mut Vec<Value>) -> bool {
        let Some(message) = self.ended.take() else {
            return false;
        };
        let results = std::mem::take(&mut self.results);
        events.push(json!({"type": "turn_end", "message": message, "toolResults": results}));
        true
    }

    /// Its last line: what was never told is told now.
    pub(super) fn ends(&mut self, end: &End, named: Named, events: &mut Vec<Value>) {
        self.named = named;
        // Questions that nobody could answer are in the trace, too.
        for called in end
            .facts
            .tool_trace
            .iter()
            .filter(|one| one.name != "question")
        {
            if !self.calls.iter().any(|call| call.id == called.tool_call_id) {
                let (id, name) = (called.tool_call_id.clone(), called.name.clone());
                self.calls(id, name, called.input.clone(), events);
            }
            let output = (&*called.output, called.duration_ms);
            self.has_result(
                &called.tool_call_id,
                called.ok.unwrap_or(false),
                output,
                events,
            );
        }
        for id in self.open_calls() {
            self.has_result(&id, false, ("interrupted", None), events);
        }
        if !self.any_text && !end.facts.text.is_empty() {
            self.part(Part::Text, &end.facts.text, events);
        }
        let stop = message::stop_reason(end.stop, end.error.as_deref());
        if stop != "stop" || end.error.is_some() || self.ended.is_none() {
            self.opened(events);
        }
        self.message_ends(stop, end.error.as_deref(), &end.facts, events);
        self.turn_ends(events);
    }

    fn open_calls(&self) -> Vec<String> {
        let open = self.calls.iter().filter(|call| !call.ended);
        open.map(|call| call.id.clone()).collect()
    }
}

impl Open {
    fn part_ends(&mut self, events: &mut Vec<Value>) {
        let Some((kind, text)) = self.part.take() else {
            return;
        };
        let name = kind.name();
        events.push(update(json!({
            "type": format!("{name}_end"), "contentIndex": self.content.len(), "content": text,
        })));
        let mut part = json!({"type": name});
        part[name] = json!(text);
        self.content.push(part);
    }
}

/// What was used is known at the message's end.
fn update(event: Value) -> Value {
    json!({"type": "message_update", "usage": message::usage(&TurnFacts::default()),
        "assistantMessageEvent": event})
}
