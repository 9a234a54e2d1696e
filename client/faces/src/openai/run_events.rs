//! A run's lines as its events.
//!
//! Owns what each event says. Must not know their numbers: those are the lines' own.

use std::collections::BTreeMap;

use agentd_protocol::{JobId, Line};
use serde_json::{Map, Value, json};

use super::Named;
use super::failure::Failure;
use super::run::{choices, ended, put_aside};

/// Longest preview of what a tool is called with.
const LONGEST_PREVIEW: usize = 200;
/// Longest text that is thought, as it is told.
const LONGEST_THOUGHT: usize = 256 * 1024;

/// What has to be known of lines before.
#[derive(Debug)]
pub struct RunEvents {
    id: String,
    tools: BTreeMap<String, String>,
    thought: String,
}

impl RunEvents {
    /// Of a job.
    #[must_use]
    pub fn new(job: JobId) -> Self {
        Self {
            id: Named::Run.id(job),
            tools: BTreeMap::new(),
            thought: String::new(),
        }
    }

    /// The events of a line, at a time in seconds since 1970.
    pub fn line(&mut self, line: &Line, now: f64) -> Vec<Value> {
        let mut events = Vec::new();
        if let Line::ThinkingDelta { text, .. } = line {
            if self.thought.len() < LONGEST_THOUGHT {
                self.thought.push_str(text);
            }
            return events;
        }
        let said = self.said(line);
        if !self.thought.is_empty() && said.is_some() {
            let text = std::mem::take(&mut self.thought);
            events.push(json!({"event": "reasoning.available", "text": text}));
        }
        events.extend(said);
        events
            .into_iter()
            .map(|event| self.addressed(event, now))
            .collect()
    }

    fn addressed(&self, event: Value, now: f64) -> Value {
        let Value::Object(mut event) = event else {
            return event;
        };
        let mut whole = Map::new();
        let name = event.shift_remove("event").unwrap_or_default();
        whole.insert("event".to_owned(), name);
        whole.insert("run_id".to_owned(), self.id.as_str().into());
        whole.insert("timestamp".to_owned(), now.into());
        whole.extend(event);
        Value::Object(whole)
    }

    fn said(&mut self, line: &Line) -> Option<Value> {
        Some(match line {
            Line::MessageDelta { text, .. } => json!({"event": "message.delta", "delta": text}),
            Line::ToolStart {
                tool_call_id,
                name,
                input,
                ..
            } => {
                self.tools.insert(tool_call_id.clone(), name.clone());
                let preview = preview(input);
                json!({"event": "tool.started", "tool": name, "tool_call_id": tool_call_id, "preview": preview})
            }
            Line::ToolEnd {
                tool_call_id,
                ok,
                duration_ms,
                ..
            } => {
                let tool = self.tools.remove(tool_call_id);
                let duration = std::time::Duration::from_millis(*duration_ms).as_secs_f64();
                json!({"event": "tool.completed", "tool": tool, "tool_call_id": tool_call_id, "duration": duration, "error": !ok})
            }
            Line::Question {
                question_id,
                kind,
                title,
                detail,
                options,
                about,
                expires_at,
                ..
            } => {
                let command = about.data.as_ref().and_then(|data| data.get("command"));
                let can_always = about.scopes.iter().any(|scope| scope == "always");
                json!({
                    "event": "approval.request", "question_id": question_id, "kind": kind,
                    "command": command.cloned().or_else(|| detail.clone().map(Value::String)),
                    "description": title, "allow_permanent": can_always,
                    "choices": choices(kind, options, &about.scopes), "expires_at": expires_at,
                })
            }
            Line::QuestionClosed {
                question_id,
                by,
                answer,
                scope,
                ..
            } => {
                let choice = scope.as_ref().or(answer.as_ref()).unwrap_or(by);
                let resolved = u8::from(by == "answer");
                json!({"event": "approval.responded", "question_id": question_id, "choice": choice, "resolved": resolved})
            }
            Line::MessageEnd(end) => ended(end),
            Line::Error(error) => {
                let failure = Failure::ended(error);
                let mut event =
                    json!({"event": "run.failed", "error": failure.message, "code": failure.code});
                error
                    .turn
                    .iter()
                    .for_each(|turn| put_aside(turn, &mut event));
                event
            }
            _ => return None,
        })
    }
}

/// What a tool is called with, for people.
fn preview(input: &Value) -> String {
    let one = input.as_object().and_then(|fields| {
        let words = ["command", "path", "file_path", "query", "url", "pattern"];
        words.iter().find_map(|word| fields.get(*word)?.as_str())
    });
    let mut text = one.map_or_else(|| input.to_string(), str::to_owned);
    text.truncate(text.floor_char_boundary(LONGEST_PREVIEW));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_events_tell_a_turn() {
        let lines = [
            r#"{"type":"accepted","job":"j2","session":"s","agent":"pi"}"#,
            r#"{"type":"thinking_delta","job":"j2","message":0,"offset":0,"text":"h"}"#,
            r#"{"type":"thinking_delta","job":"j2","message":0,"offset":1,"text":"m"}"#,
            r#"{"type":"message_delta","job":"j2","message":0,"offset":0,"text":"a","native":true}"#,
            r#"{"type":"tool_start","job":"j2","tool_call_id":"c","name":"bash","input":{"command":"ls"},"read_only":true}"#,
            r#"{"type":"question","job":"j2","question_id":"j2-q1","kind":"approval","title":"may I?","options":[],"scopes":["once","always"],"data":{"command":"ls"}}"#,
            r#"{"type":"question_closed","job":"j2","question_id":"j2-q1","by":"answer","answer":"approve","scope":"always"}"#,
            r#"{"type":"tool_end","job":"j2","tool_call_id":"c","ok":true,"output":"","truncated":false,"duration_ms":1500}"#,
            r#"{"type":"message_end","stop":"end_turn","job":"j2","session":"s","text":"a"}"#,
        ];
        let mut events = RunEvents::new(JobId(2));
        let told: Vec<Value> = lines
            .iter()
            .flat_map(|line| events.line(&serde_json::from_str(line).unwrap(), 1.5))
            .collect();
        assert_eq!(
            told[0],
            json!({"event": "reasoning.available", "run_id": "run_j2", "timestamp": 1.5, "text": "hm"})
        );
        let names: Vec<&str> = told
            .iter()
            .map(|event| event["event"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "reasoning.available",
                "message.delta",
                "tool.started",
                "approval.request",
                "approval.responded",
                "tool.completed",
                "run.completed"
            ]
        );
        assert_eq!(told[2]["preview"], "ls");
        assert_eq!(told[3]["choices"], json!(["once", "always", "deny"]));
        assert_eq!(told[4]["choice"], "always");
        assert_eq!(
            (&told[5]["tool"], &told[5]["duration"]),
            (&json!("bash"), &json!(1.5))
        );
        assert_eq!(told[6]["output"], "a");
        let failed = r#"{"type":"error","code":"rate-limit","error":"slow","job":"j2"}"#;
        let told = events.line(&serde_json::from_str(failed).unwrap(), 2.0);
        assert_eq!(
            (&told[0]["event"], &told[0]["code"]),
            (&json!("run.failed"), &json!("rate-limit"))
        );
    }
}
