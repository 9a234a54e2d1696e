//! One turn, from the daemon's lines to the gateway's events.
//!
//! Owns the order of these, and the text so far, for clients that come later. Must not know sessions,
//! nor who asked for the turn.

use std::collections::BTreeMap;

use agentd_client::again::Heard;
use agentd_client::wire::Received;
use agentd_protocol::line::{FileChange, Level, Line, Stop, TurnFacts};
use agentd_protocol::rows::TurnRow;
use agentd_protocol::{Code, JobId};
use serde_json::{Value, json};

use super::question::Question;
use crate::face::hinted;
use crate::title::{short, title};

/// A type and its payload.
pub(super) type Event = (&'static str, Option<Value>);

/// A turn that has no end.
#[derive(Debug)]
pub(super) struct Turn {
    /// None while only its number is known.
    pub(super) session: Option<String>,
    pub(super) user: String,
    /// Did this client ask for it?
    pub(super) is_ours: bool,
    pub(super) is_background: bool,
    /// Was its client told that it runs?
    pub(super) is_promised: bool,
    /// Was all of it told already, as the session's past?
    pub(super) is_told: bool,
    is_started: bool,
    heard: Heard,
    pub(super) text: String,
    message: Option<u32>,
    calls: BTreeMap<String, Call>,
}

#[derive(Debug)]
struct Call {
    name: String,
    input: Value,
}

/// What a line means besides events.
#[derive(Debug)]
pub(super) enum Happened {
    Nothing,
    Asked(Box<Question>),
    /// With what was answered, in a word, if anybody did.
    Closed {
        question: String,
        answer: Option<String>,
    },
    Ended(Box<End>),
}

/// How a turn ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) status: &'static str,
    pub(super) text: String,
    pub(super) error: Option<String>,
    pub(super) facts: TurnFacts,
    pub(super) was_started: bool,
}

impl Turn {
    pub(super) fn new() -> Self {
        let mut heard = Heard::default();
        // Any line may come a second time: after a reconnect, or as the session's past.
        heard.told_again();
        Self {
            session: None,
            user: String::new(),
            is_ours: false,
            is_background: false,
            is_promised: false,
            is_told: false,
            is_started: false,
            heard,
            text: String::new(),
            message: None,
            calls: BTreeMap::new(),
        }
    }

    pub(super) const fn last_seq(&self) -> u64 {
        self.heard.last_seq()
    }

    /// What a line tells that wasn't told before.
    pub(super) fn line(
        &mut self,
        job: JobId,
        received: Received,
        events: &mut Vec<Event>,
    ) -> Happened {
        let Some(line) = self.heard.fresh(received).and_then(|line| line.line) else {
            return Happened::Nothing;
        };
        match line {
            Line::Accepted(accepted) => {
                self.session = Some(accepted.session);
                if accepted.running {
                    self.starts(events);
                }
            }
            Line::Running { .. } | Line::MessageStart { .. } => self.starts(events),
            Line::MessageDelta { message, text, .. } => self.says(message, &text, events),
            Line::ThinkingDelta { text, .. } => {
                self.starts(events);
                events.push(("reasoning.delta", Some(json!({"text": text}))));
            }
            line @ Line::Question { .. } => {
                self.starts(events);
                return match Question::of(line) {
                    Some(question) => Happened::Asked(Box::new(question)),
                    None => Happened::Nothing,
                };
            }
            Line::QuestionClosed {
                question_id,
                by,
                answer,
                ..
            } => {
                return Happened::Closed {
                    question: question_id,
                    answer: answer.filter(|_| by == "answer"),
                };
            }
            Line::Note {
                level: Level::Warning,
                text,
                ..
            } => events.push(("status.update", Some(json!({"kind": "warn", "text": text})))),
            Line::MessageEnd(end) => {
                let status = match end.stop {
                    Stop::Cancelled => "interrupted",
                    _ => "complete",
                };
                let error = end.turn.refusal.clone();
                return self.ends(job, (status, error), end.turn, events);
            }
            Line::Error(error) => {
                if error.code == Code::Interrupted {
                    // It ran, though nobody may have said so before the daemon died.
                    self.starts(events);
                }
                let why = hinted(&error);
                let facts = error.turn.unwrap_or_default();
                return self.ends(job, ("error", Some(why)), facts, events);
            }
            line => self.calls(job, line, events),
        }
        Happened::Nothing
    }

    fn calls(&mut self, job: JobId, line: Line, events: &mut Vec<Event>) {
        match line {
            Line::ToolStart {
                tool_call_id,
                name,
                input,
                ..
            } => {
                self.starts(events);
                let call = Call { name, input };
                events.push(call.begun(job, &tool_call_id));
                self.calls.insert(tool_call_id, call);
            }
            Line::ToolUpdate {
                tool_call_id,
                output,
                ..
            } => {
                let row = output.lines().rev().find(|row| !row.trim().is_empty());
                if let (Some(call), Some(row)) = (self.calls.get(&tool_call_id), row) {
                    let progress = json!({"tool_id": id(job, &tool_call_id), "name": call.name,
                        "preview": short(row)});
                    events.push(("tool.progress", Some(progress)));
                }
            }
            Line::ToolEnd {
                tool_call_id,
                ok,
                output,
                duration_ms,
                diff,
                ..
            } => self.call_ends(
                job,
                &tool_call_id,
                (ok, &output, duration_ms, &diff),
                events,
            ),
            _ => {}
        }
    }

    fn starts(&mut self, events: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.is_started, true) {
            events.push(("message.start", None));
        }
    }

    fn says(&mut self, message: u32, text: &str, events: &mut Vec<Event>) {
        self.starts(events);
        let begins = self.message.replace(message) != Some(message);
        let text = match begins && !self.text.is_empty() {
            true => format!("\n\n{text}"),
            false => text.to_owned(),
        };
        self.text.push_str(&text);
        events.push(("message.delta", Some(json!({"text": text}))));
    }

    fn call_ends(
        &mut self,
        job: JobId,
        call_id: &str,
        (ok, output, ms, diff): (bool, &str, u64, &[FileChange]),
        events: &mut Vec<Event>,
    ) {
        let call = self.calls.remove(call_id);
        let (name, input) = call.map_or_else(
            || ("tool".to_owned(), Value::Null),
            |call| (call.name, call.input),
        );
        let mut ended = json!({"tool_id": id(job, call_id), "name": name, "args": input,
            "result": {"output": output, "ok": ok}, "duration_s": ms as f64 / 1000.0});
        if !ok {
            ended["error"] = json!(short(output));
        }
        let changes: Vec<String> = diff.iter().map(change).collect();
        if !changes.is_empty() {
            ended["inline_diff"] = json!(changes.join("\n"));
        }
        events.push(("tool.complete", Some(ended)));
    }

    fn ends(
        &mut self,
        job: JobId,
        (status, error): (&'static str, Option<String>),
        facts: TurnFacts,
        events: &mut Vec<Event>,
    ) -> Happened {
        if self.is_promised {
            self.starts(events);
        }
        for call in self.calls.keys().cloned().collect::<Vec<_>>() {
            self.call_ends(job, &call, (false, "interrupted", 0, &[]), events);
        }
        // What was said of it is whole; its final line may be cut.
        let text = match facts.text.is_empty() || facts.truncated {
            true => std::mem::take(&mut self.text),
            false => facts.text.clone(),
        };
        Happened::Ended(Box::new(End {
            status,
            text,
            error,
            facts,
            was_started: self.is_started,
        }))
    }

    /// What the past says of it, as far as it wasn't heard.
    pub(super) fn catch_up(&mut self, row: &TurnRow) {
        self.user.clone_from(&row.text);
        self.is_started = true;
        for message in &row.messages {
            let delta = Line::MessageDelta {
                job: row.job,
                message: message.message,
                offset: message.offset,
                text: message.text.clone(),
                native: true,
            };
            if let Ok(line) = serde_json::to_vec(&delta) {
                self.line(row.job, Received::parse(&line), &mut Vec::new());
            }
        }
    }

    /// The calls that run, for a client that shows none of them.
    pub(super) fn running_calls(&self, job: JobId) -> impl Iterator<Item = Event> {
        self.calls
            .iter()
            .map(move |(call_id, call)| call.begun(job, call_id))
    }
}

impl Call {
    fn begun(&self, job: JobId, call_id: &str) -> Event {
        let begun = json!({"tool_id": id(job, call_id), "name": self.name,
            "context": title(&self.name, &self.input)});
        ("tool.start", Some(begun))
    }
}

/// The name of a call: agents count them anew in each turn.
fn id(job: JobId, call_id: &str) -> String {
    format!("{job}.{call_id}")
}

/// What was changed in a file, as people read it.
fn change(change: &FileChange) -> String {
    let path = &change.path;
    let lines = |sign: char, text: &Option<String>| {
        let lines = text.iter().flat_map(|text| text.lines());
        lines
            .map(|line| format!("{sign}{line}\n"))
            .collect::<String>()
    };
    match &change.diff {
        Some(diff) => format!("--- {path}\n+++ {path}\n{diff}"),
        None => format!(
            "--- {path}\n+++ {path}\n{}{}",
            lines('-', &change.old),
            lines('+', &change.new)
        ),
    }
}
