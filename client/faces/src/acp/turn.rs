//! One turn, from the daemon's lines to the editor's updates.
//!
//! Owns what of a turn was told, over all connections, and the names of its messages and calls, which
//! are made from its job. Must not know sessions, nor who asked for the turn.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use agentd_client::again::Heard;
use agentd_client::wire::Received;
use agentd_protocol::line::{
    ErrorLine, Level, Line, MessageEnd, ToolKind, ToolLocation, ToolTrace, TurnFacts,
};
use agentd_protocol::rows::TurnRow;
use agentd_protocol::{Code, Id, JobId};
use serde_json::Value;

use super::question::{self, Question};
use super::tool;
use super::wire::{Chunk, Output, PlanEntry, ToolCall, Update};

/// Output of a running call that is kept, as long as the daemon tells of one that has ended.
const OUTPUT: usize = agentd_protocol::limits::MAX_TOOL_OUTPUT;

/// A turn in flight.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) session: String,
    pub(super) job: JobId,
    /// The prompt that waits for its end; none of a turn that somebody else sent.
    pub(super) reply: Option<Id>,
    /// Did the client cancel it?
    pub(super) cancelled: bool,
    /// Was it held, as the one before it in its session was interrupted?
    pub(super) held: bool,
    heard: Heard,
    /// The user's words, while they weren't shown: those of a turn that somebody else sent.
    prompt: Option<String>,
    calls: BTreeMap<String, Call>,
}

/// A tool call that was announced.
#[derive(Debug, Default)]
struct Call {
    output: String,
    /// Is there output that wasn't told?
    grown: bool,
    ended: bool,
}

/// What a line means besides updates.
#[derive(Debug)]
pub(super) enum Happened {
    /// The agent asks.
    Asked(Box<Question>),
    /// A question is closed, whoever did it.
    Closed {
        question: String,
        /// Was it approved?
        approved: bool,
    },
    /// It waits until somebody says that it may run.
    Held,
    /// It is over.
    Ended(Result<Box<MessageEnd>, Box<ErrorLine>>),
}

impl Turn {
    pub(super) fn new(session: &str, job: JobId, reply: Option<Id>) -> Self {
        let mut heard = Heard::default();
        // Any line may come a second time: after a reconnect, or when a session is loaded.
        heard.told_again();
        Self {
            session: session.to_owned(),
            job,
            reply,
            cancelled: false,
            held: false,
            heard,
            prompt: None,
            calls: BTreeMap::new(),
        }
    }

    /// One that somebody else sent, whose prompt is shown when it begins.
    pub(super) fn of_others(session: &str, job: JobId, prompt: String) -> Self {
        Self {
            prompt: Some(prompt),
            ..Self::new(session, job, None)
        }
    }

    /// The last numbered line that was told.
    pub(super) const fn last_seq(&self) -> u64 {
        self.heard.last_seq()
    }

    /// Is there output that wasn't told?
    pub(super) fn has_grown(&self) -> bool {
        self.calls.values().any(|call| call.grown)
    }

    /// Tells what is new of running calls: each time all of it, as the protocol has it.
    pub(super) fn told_output(&mut self, updates: &mut Vec<Update>) {
        for (id, call) in &mut self.calls {
            if std::mem::take(&mut call.grown) {
                updates.push(Update::ToolCallUpdate(ToolCall {
                    tool_call_id: id.clone(),
                    status: Some("in_progress"),
                    content: Some(vec![Output::text(call.output.clone())]),
                    ..ToolCall::default()
                }));
            }
        }
    }

    /// Tells all of it that there was so far, to a client that shows none of it any more.
    pub(super) fn told_anew(&mut self, row: TurnRow, updates: &mut Vec<Update>) {
        let mut anew = Self::of_others(&self.session, self.job, row.text);
        anew.shown_prompt(updates);
        anew.happened(row.events, updates);
        let job = self.job;
        for row in row.messages {
            let (message, offset) = (row.message, row.offset);
            let thinking = (!row.thinking.is_empty()).then_some(Line::ThinkingDelta {
                job,
                message,
                offset: 0,
                text: row.thinking,
            });
            let text = (!row.text.is_empty()).then_some(Line::MessageDelta {
                job,
                message,
                offset,
                text: row.text,
                native: true,
            });
            let deltas = thinking.iter().chain(&text);
            for delta in deltas.filter_map(|line| serde_json::to_vec(line).ok()) {
                anew.line(Received::parse(&delta), updates);
            }
        }
        (self.heard, self.calls) = (anew.heard, anew.calls);
    }

    /// What happened in it before somebody looked.
    pub(super) fn happened(&mut self, events: Vec<Value>, updates: &mut Vec<Update>) {
        for event in events {
            let line = Received::parse(event.to_string().as_bytes());
            if let Some(Happened::Closed { question, approved }) = self.line(line, updates) {
                self.closed(&question, approved, updates);
            }
        }
    }

    /// The user's words, once.
    pub(super) fn shown_prompt(&mut self, updates: &mut Vec<Update>) {
        if let Some(prompt) = self.prompt.take() {
            let id = format!("{}.user", self.job);
            updates.push(Update::UserMessageChunk(Chunk::text(id, prompt)));
        }
    }

    /// What a line of the turn tells that wasn't told before.
    pub(super) fn line(
        &mut self,
        received: Received,
        updates: &mut Vec<Update>,
    ) -> Option<Happened> {
        let line = self.heard.fresh(received)?.line?;
        match line {
            Line::Running { .. } | Line::MessageStart { .. } => self.shown_prompt(updates),
            Line::MessageDelta { message, text, .. } => {
                let id = format!("{}.{message}", self.job);
                updates.push(Update::AgentMessageChunk(Chunk::text(id, text)));
            }
            Line::ThinkingDelta { message, text, .. } => {
                let id = format!("{}.{message}.thought", self.job);
                updates.push(Update::AgentThoughtChunk(Chunk::text(id, text)));
            }
            Line::ToolStart {
                tool_call_id,
                name,
                input,
                kind,
                locations,
                ..
            } => {
                let call = described(&name, input, (kind, &locations));
                self.tell_call(&tool_call_id, call, updates);
            }
            Line::ToolUpdate {
                tool_call_id,
                offset,
                output,
                ..
            } => self.more_output(&tool_call_id, offset, &output, updates),
            Line::ToolEnd {
                tool_call_id,
                ok,
                output,
                diff,
                ..
            } => self.end_call(&tool_call_id, ok, tool::content(&output, &diff), updates),
            Line::Question { .. } => return self.asked(line, updates),
            Line::QuestionClosed {
                question_id,
                answer,
                ..
            } => {
                return Some(Happened::Closed {
                    question: question_id,
                    approved: answer.as_deref() == Some("approve"),
                });
            }
            Line::Note { code, .. } if code == "held" => return Some(Happened::Held),
            Line::Note { code, text, .. } if code == Code::ContextLost.name() => {
                self.shown_prompt(updates);
                updates.push(self.forgot(text));
            }
            Line::Note { level, text, .. } if !text.trim().is_empty() => {
                let severity = match level {
                    Level::Info => "info",
                    Level::Warning => "warning",
                };
                updates.push(Update::Notice {
                    severity,
                    title: text,
                    instead: None,
                });
            }
            Line::AgentEvent { kind, data, .. } if kind == "plan" => {
                // All of it or nothing: a client that can't read a part drops the whole.
                if let Ok(entries) = serde_json::from_value::<Vec<PlanEntry>>(data) {
                    updates.push(Update::Plan { entries });
                }
            }
            Line::MessageEnd(end) => {
                self.ends(&end.turn, updates);
                return Some(Happened::Ended(Ok(end)));
            }
            Line::Error(error) => {
                self.ends(&error.turn.clone().unwrap_or_default(), updates);
                return Some(Happened::Ended(Err(error)));
            }
            _ => {}
        }
        None
    }

    /// What was said before isn't there: nobody is to miss that, whatever the client shows.
    pub(super) fn forgot(&self, title: String) -> Update {
        let said = Chunk::text(format!("{}.note", self.job), format!("[{title}]\n\n"));
        Update::Notice {
            severity: "warning",
            title,
            instead: Some(Box::new(Update::AgentMessageChunk(said))),
        }
    }

    /// The name of a call: agents count them anew in each turn.
    fn call_id(&self, id: &str) -> String {
        format!("{}.{id}", self.job)
    }

    /// Announces a call, or says what is new of one that was announced.
    fn tell_call(&mut self, id: &str, mut call: ToolCall, updates: &mut Vec<Update>) {
        let id = self.call_id(id);
        call.tool_call_id.clone_from(&id);
        let told = match self.calls.entry(id) {
            Entry::Occupied(_) => Update::ToolCallUpdate(call),
            Entry::Vacant(new) => {
                new.insert(Call::default());
                Update::ToolCall(call)
            }
        };
        updates.push(told);
    }

    /// A call of which nothing was heard is announced first: clients drop what they don't know.
    fn announced(&mut self, id: &str, updates: &mut Vec<Update>) -> &mut Call {
        let whole = self.call_id(id);
        if !self.calls.contains_key(&whole) {
            let call = described("tool", Value::Null, (ToolKind::Other, &[]));
            self.tell_call(id, call, updates);
        }
        self.calls.entry(whole).or_default()
    }

    fn more_output(&mut self, id: &str, offset: u64, output: &str, updates: &mut Vec<Update>) {
        let call = self.announced(id, updates);
        let follows = call.output.len() as u64 == offset;
        if follows && call.output.len() + output.len() <= OUTPUT {
            call.output.push_str(output);
            call.grown = true;
        }
    }

    fn end_call(&mut self, id: &str, ok: bool, content: Vec<Output>, updates: &mut Vec<Update>) {
        let call = self.announced(id, updates);
        call.ended = true;
        call.grown = false;
        call.output = String::new();
        updates.push(Update::ToolCallUpdate(ToolCall {
            tool_call_id: self.call_id(id),
            status: Some(if ok { "completed" } else { "failed" }),
            content: Some(content),
            ..ToolCall::default()
        }));
    }

    /// A question is about a call: where the agent names none, it is one itself.
    fn asked(&mut self, line: Line, updates: &mut Vec<Update>) -> Option<Happened> {
        let mut question = Question::of(line)?;
        if !question.is_open {
            // It was denied at once: nobody has to be shown it.
            return None;
        }
        let id = question.call.clone().unwrap_or(question.id.clone());
        let known = self.calls.contains_key(&self.call_id(&id));
        let call = question::call(&question, known);
        self.tell_call(&id, call, updates);
        question.call = Some(self.call_id(&id));
        Some(Happened::Asked(Box::new(question)))
    }

    /// A question that is a call of its own ends with its answer.
    pub(super) fn closed(&mut self, question: &str, approved: bool, updates: &mut Vec<Update>) {
        let id = self.call_id(question);
        if self.calls.get(&id).is_some_and(|call| !call.ended) {
            self.end_call(question, approved, Vec::new(), updates);
        }
    }

    /// What was never told of its calls is told now, and what didn't end is over.
    fn ends(&mut self, facts: &TurnFacts, updates: &mut Vec<Update>) {
        self.shown_prompt(updates);
        for call in facts.tool_trace.iter().filter(|call| is_a_call(call)) {
            let id = self.call_id(&call.tool_call_id);
            if self.calls.get(&id).is_some_and(|call| call.ended) {
                continue;
            }
            if !self.calls.contains_key(&id) {
                let about = (call.kind, &*call.locations);
                let shown = described(&call.name, call.input.clone(), about);
                self.tell_call(&call.tool_call_id, shown, updates);
            }
            let ok = call.ok.unwrap_or(false);
            let content = tool::content(&call.output, &call.diff);
            self.end_call(&call.tool_call_id, ok, content, updates);
        }
        for (id, call) in &mut self.calls {
            if !std::mem::replace(&mut call.ended, true) {
                updates.push(Update::ToolCallUpdate(ToolCall {
                    tool_call_id: id.clone(),
                    status: Some("failed"),
                    ..ToolCall::default()
                }));
            }
        }
    }
}

/// Questions that nobody could answer are in the trace, too.
fn is_a_call(call: &ToolTrace) -> bool {
    call.name != "question"
}

/// A call as it is announced.
pub(super) fn described(
    name: &str,
    input: Value,
    (kind, locations): (ToolKind, &[ToolLocation]),
) -> ToolCall {
    ToolCall {
        tool_call_id: String::new(),
        title: Some(tool::title(name, &input)),
        name: Some(name.to_owned()),
        kind: Some(kind.name()),
        status: Some("in_progress"),
        content: None,
        locations: Some(tool::locations(locations)),
        raw_input: Some(input).filter(|input| !input.is_null()),
    }
}

/// The calls of a turn that has ended, of its trace: each with its end.
pub(super) fn past_calls(job: JobId, trace: &[ToolTrace], updates: &mut Vec<Update>) {
    let mut turn = Turn::new("", job, None);
    let facts = TurnFacts {
        tool_trace: trace.to_vec(),
        ..TurnFacts::default()
    };
    turn.ends(&facts, updates);
}
