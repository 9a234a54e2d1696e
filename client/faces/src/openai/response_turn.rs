//! A turn's lines as the events of a response, and as its output.
//!
//! Owns the order of events: helpers of clients throw where a part was not announced. Must not know
//! where the lines come from: a turn that runs and one that is read again give the same output.

use agentd_protocol::line::{MessageEnd, Stop, ToolTrace};
use agentd_protocol::rows::TurnRow;
use agentd_protocol::{Code, Line};
use serde_json::{Value, json};

use super::aside;
use super::chat_reply::beside;
use super::failure::Failure;
use super::response::{Progress, ResponseHead, progress_of};
use super::response_items::{Call, ItemState, message, reasoning, summary_part, text_part};

/// What the lines of one turn have said.
#[derive(Debug)]
pub struct ResponseTurn {
    head: ResponseHead,
    progress: Progress,
    told: Told,
    /// Number of the next event.
    number: u64,
    output: Vec<Value>,
    open: Option<OpenText>,
    calls: Vec<(usize, Call)>,
    /// What is told beside its own members.
    aside: Option<Value>,
    stream: String,
}

/// Are events wanted?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// As they come.
    Events,
    /// The output only.
    Output,
}

/// A text that may go on.
#[derive(Debug)]
struct OpenText {
    index: usize,
    id: String,
    kind: TextKind,
    message: u32,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TextKind {
    Said,
    Thought,
}

impl ResponseTurn {
    /// Of a job that was accepted.
    #[must_use]
    pub const fn new(head: ResponseHead, told: Told) -> Self {
        Self {
            head,
            progress: Progress::Running,
            told,
            number: 0,
            output: Vec::new(),
            open: None,
            calls: Vec::new(),
            aside: None,
            stream: String::new(),
        }
    }

    /// The response as it is now.
    #[must_use]
    pub fn object(&self) -> Value {
        let mut object = self.head.object(&self.progress, &self.output);
        if let Some(aside) = &self.aside {
            object["agentd"] = aside.clone();
        }
        object
    }

    /// The first events.
    pub fn first(&mut self) -> String {
        let response = self.object();
        self.emit("response.created", json!({"response": response}));
        self.emit("response.in_progress", json!({"response": response}));
        std::mem::take(&mut self.stream)
    }

    /// The events of a line that isn't the last one.
    pub fn line(&mut self, line: &Line) -> String {
        match line {
            Line::MessageStart {
                replaces: Some(_), ..
            } => self.close(ItemState::Incomplete),
            Line::MessageDelta { message, text, .. } => self.say(TextKind::Said, *message, text),
            Line::ThinkingDelta { message, text, .. } => {
                self.say(TextKind::Thought, *message, text);
            }
            Line::ToolStart {
                tool_call_id,
                name,
                input,
                ..
            } => self.call(tool_call_id, name, input),
            Line::Note { code, .. } if code == Code::ContextLost.name() => {
                self.aside = beside(line);
            }
            Line::ToolEnd {
                tool_call_id,
                ok,
                output,
                ..
            } => {
                let state = if *ok {
                    ItemState::Done
                } else {
                    ItemState::Failed
                };
                self.called(tool_call_id, state, output);
            }
            _ => {}
        }
        std::mem::take(&mut self.stream)
    }

    /// The last events of a turn that is done.
    pub fn end(&mut self, end: &MessageEnd) -> String {
        let is_message = |item: &Value| item["type"] == "message";
        let is_said = self
            .open
            .as_ref()
            .is_some_and(|open| open.kind == TextKind::Said)
            || self.output.iter().any(is_message);
        if !is_said && !end.turn.text.is_empty() {
            self.say(TextKind::Said, 0, &end.turn.text);
        }
        let state = match end.stop {
            Stop::EndTurn => ItemState::Done,
            _ => ItemState::Incomplete,
        };
        self.aside = self.aside.take().or_else(|| aside(&end.turn));
        self.over(Progress::Ended(end.stop, end.turn.usage), state)
    }

    /// The last events of a turn that failed.
    pub fn failed(&mut self, failure: &Failure) -> String {
        self.over(Progress::Failed(failure.clone()), ItemState::Incomplete)
    }

    fn over(&mut self, progress: Progress, state: ItemState) -> String {
        self.close(state);
        for (index, call) in std::mem::take(&mut self.calls) {
            self.finish_call(index, &call, ItemState::Incomplete, None);
        }
        let kind = progress.event();
        self.progress = progress;
        if self.told == Told::Events {
            let response = self.object();
            self.emit(kind, json!({"response": response}));
        }
        std::mem::take(&mut self.stream)
    }

    fn emit(&mut self, kind: &str, mut event: Value) {
        if self.told == Told::Output {
            return;
        }
        if let Value::Object(event) = &mut event {
            event.insert("type".to_owned(), kind.into());
            event.insert("sequence_number".to_owned(), self.number.into());
        }
        self.number += 1;
        self.stream += &format!("event: {kind}\ndata: {event}\n\n");
    }

    fn id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}_{index}", self.head.job)
    }

    fn added(&mut self, item: Value) -> usize {
        let index = self.output.len();
        self.emit(
            "response.output_item.added",
            json!({"output_index": index, "item": item}),
        );
        self.output.push(item);
        index
    }

    fn done(&mut self, index: usize, item: Value) {
        self.emit(
            "response.output_item.done",
            json!({"output_index": index, "item": item}),
        );
        if let Some(place) = self.output.get_mut(index) {
            *place = item;
        }
    }

    fn say(&mut self, kind: TextKind, of: u32, text: &str) {
        let goes_on = |open: &OpenText| open.kind == kind && open.message == of;
        if !self.open.as_ref().is_some_and(goes_on) {
            self.close(ItemState::Done);
            let index = self.output.len();
            let (id, item): (String, Value) = match kind {
                TextKind::Said => {
                    let id = self.id("msg", index);
                    let item = message(&id, ItemState::Begun, None);
                    (id, item)
                }
                TextKind::Thought => {
                    let id = self.id("rs", index);
                    let item = reasoning(&id, ItemState::Begun, None);
                    (id, item)
                }
            };
            self.added(item);
            let (event, part) = match kind {
                TextKind::Said => ("response.content_part.added", text_part("")),
                TextKind::Thought => ("response.reasoning_summary_part.added", summary_part("")),
            };
            self.emit(event, of_part(kind, &id, index, "part", part));
            self.open = Some(OpenText {
                index,
                id,
                kind,
                message: of,
                text: String::new(),
            });
        }
        let Some(open) = &mut self.open else {
            return;
        };
        open.text.push_str(text);
        if self.told == Told::Events {
            let event = match kind {
                TextKind::Said => "response.output_text.delta",
                TextKind::Thought => "response.reasoning_summary_text.delta",
            };
            let delta = of_part(kind, &open.id, open.index, "delta", text.into());
            self.emit(event, delta);
        }
    }

    fn close(&mut self, state: ItemState) {
        let Some(open) = self.open.take() else {
            return;
        };
        let OpenText {
            index,
            id,
            kind,
            text,
            ..
        } = open;
        let (text_done, part_done, part, item) = match kind {
            TextKind::Said => (
                "response.output_text.done",
                "response.content_part.done",
                text_part(&text),
                message(&id, state, Some(&text)),
            ),
            TextKind::Thought => (
                "response.reasoning_summary_text.done",
                "response.reasoning_summary_part.done",
                summary_part(&text),
                reasoning(&id, state, Some(&text)),
            ),
        };
        self.emit(text_done, of_part(kind, &id, index, "text", text.into()));
        self.emit(part_done, of_part(kind, &id, index, "part", part));
        self.done(index, item);
    }

    fn call(&mut self, tool_call_id: &str, name: &str, input: &Value) {
        self.close(ItemState::Done);
        let index = self.output.len();
        let call = Call {
            id: self.id("mcp", index),
            tool_call_id: tool_call_id.to_owned(),
            name: name.to_owned(),
            arguments: input.to_string(),
        };
        let item = call.item(&self.head.agent, ItemState::Begun, None);
        self.added(item);
        let place = |more: &str, value: &str| {
            let mut event = json!({"item_id": call.id, "output_index": index});
            if !more.is_empty() {
                event[more] = value.into();
            }
            event
        };
        self.emit("response.mcp_call.in_progress", place("", ""));
        let arguments = &call.arguments;
        self.emit(
            "response.mcp_call_arguments.delta",
            place("delta", arguments),
        );
        self.emit(
            "response.mcp_call_arguments.done",
            place("arguments", arguments),
        );
        self.calls.push((index, call));
    }

    fn called(&mut self, tool_call_id: &str, state: ItemState, output: &str) {
        let is_it = |(_, call): &(usize, Call)| call.tool_call_id == tool_call_id;
        if let Some(at) = self.calls.iter().position(is_it) {
            let (index, call) = self.calls.remove(at);
            self.finish_call(index, &call, state, Some(output));
        }
    }

    fn finish_call(&mut self, index: usize, call: &Call, state: ItemState, output: Option<&str>) {
        let event = match state {
            ItemState::Done => "response.mcp_call.completed",
            _ => "response.mcp_call.failed",
        };
        self.emit(event, json!({"item_id": call.id, "output_index": index}));
        let item = call.item(&self.head.agent, state, output);
        self.done(index, item);
    }
}

/// An event about the one part of an item.
fn of_part(kind: TextKind, id: &str, index: usize, name: &str, value: Value) -> Value {
    let part = match kind {
        TextKind::Said => "content_index",
        TextKind::Thought => "summary_index",
    };
    let mut event = json!({"item_id": id, "output_index": index});
    if let Value::Object(event) = &mut event {
        event.insert(part.to_owned(), 0.into());
        event.insert(name.to_owned(), value);
        if kind == TextKind::Said && matches!(name, "delta" | "text") {
            event.insert("logprobs".to_owned(), json!([]));
        }
    }
    event
}

/// A response as it is kept: what its turn said, thought and did. Where its tools came in between
/// isn't kept: they stand before the last message.
#[must_use]
pub fn kept(head: ResponseHead, row: &TurnRow) -> Value {
    let mut turn = ResponseTurn::new(head, Told::Output);
    let last: Option<Line> = row
        .last
        .as_ref()
        .and_then(|last| serde_json::from_value(last.clone()).ok());
    let count = row.messages.len();
    for (number, said) in row.messages.iter().enumerate() {
        if number + 1 == count {
            turn.tools(row, last.as_ref());
        }
        if !said.thinking.is_empty() {
            turn.say(TextKind::Thought, said.message, &said.thinking);
        }
        if !said.text.is_empty() {
            turn.say(TextKind::Said, said.message, &said.text);
        }
    }
    if count == 0 {
        turn.tools(row, last.as_ref());
    }
    match &last {
        Some(Line::MessageEnd(end)) => drop(turn.end(end)),
        Some(Line::Error(error)) => {
            turn.aside = error.turn.as_ref().and_then(aside);
            drop(turn.failed(&Failure::ended(error)));
        }
        _ => {
            turn.close(ItemState::Begun);
            turn.progress = progress_of(row.state);
        }
    }
    turn.object()
}

impl ResponseTurn {
    /// The tools of a turn that is kept.
    fn tools(&mut self, row: &TurnRow, last: Option<&Line>) {
        let trace: &[ToolTrace] = match last {
            Some(Line::MessageEnd(end)) => &end.turn.tool_trace,
            Some(Line::Error(error)) => error
                .turn
                .as_ref()
                .map_or(&[][..], |turn| turn.tool_trace.as_slice()),
            _ => &[],
        };
        if trace.is_empty() {
            for event in &row.events {
                if let Ok(line) = serde_json::from_value::<Line>(event.clone()) {
                    drop(self.line(&line));
                }
            }
        }
        for tool in trace.iter().filter(|tool| tool.name != "question") {
            self.call(&tool.tool_call_id, &tool.name, &tool.input);
            if let Some(ok) = tool.ok {
                let state = if ok {
                    ItemState::Done
                } else {
                    ItemState::Failed
                };
                self.called(&tool.tool_call_id, state, &tool.output);
            }
        }
    }
}

#[cfg(test)]
mod tests;
