//! What a tool returns.
//!
//! Owns the shapes of results, and how much of a text is told. Clients give their model
//! `structuredContent` and nothing else where it is there, so all of an answer is in it; `content` has
//! the same for others. Must not know requests.

use agentd_protocol::line::{ErrorLine, MessageEnd, Stop, TurnFacts};
use agentd_protocol::rows::JobPhase;
use agentd_protocol::{Code, Line};
use serde_json::{Map, Value, json};

use crate::face::lost;

/// Bytes of an answer that are told; some 25,000 tokens, which clients take of a tool at most.
const LONGEST_TEXT: usize = 96 * 1024;

/// What came of a call, before it is written in the words of a revision.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Outcome {
    pub(super) structured: Map<String, Value>,
    pub(super) text: String,
    pub(super) is_error: bool,
}

impl Outcome {
    /// Lists and the like: the text is the same as JSON.
    pub(super) fn of(structured: Value) -> Self {
        Self {
            text: structured.to_string(),
            structured: map(structured),
            is_error: false,
        }
    }

    /// A sentence for the model.
    pub(super) fn refusal(code: &str, error: &str, hint: Option<&str>) -> Self {
        let mut structured = json!({"state": "failed", "code": code, "error": error});
        if let Some(hint) = hint {
            structured["hint"] = json!(hint);
        }
        Self {
            structured: map(structured),
            text: sentence(error, hint),
            is_error: true,
        }
    }

    /// Nobody knows whether it was done.
    pub(super) fn unknown(error: &str, hint: &str) -> Self {
        let mut outcome = Self::refusal(Code::OutcomeUnknown.name(), error, Some(hint));
        outcome.structured["state"] = json!("unknown");
        outcome
    }

    /// Arguments that aren't what the tool takes: for the model, which says it again.
    pub(super) fn wrong(why: &str) -> Self {
        Self::refusal(Code::InvalidRequest.name(), why, None)
    }

    /// What a daemon refused.
    pub(super) fn refused(error: &ErrorLine, inside: bool) -> Self {
        let hint = error.hint.as_deref().or_else(|| {
            // Nobody else is told of levels.
            (inside && error.code == Code::Forbidden)
                .then_some("this already runs inside a job of agentd: do the work here instead")
        });
        let mut outcome = Self::refusal(error.code.name(), &error.error, hint);
        if !error.choices.is_empty() {
            outcome
                .structured
                .insert("choices".to_owned(), json!(error.choices));
            outcome
                .text
                .push_str(&format!(" One of: {}", error.choices.join(", ")));
        }
        outcome
    }

    /// The end of a turn; none of another line.
    pub(super) fn ended(line: &Line) -> Option<Self> {
        match line {
            Line::MessageEnd(end) => Some(Self::completed(end).with(lost(&end.turn))),
            Line::Error(error) => {
                let turn = error.turn.as_ref()?;
                Some(Self::failed(error, turn).with(lost(turn)))
            }
            _ => None,
        }
    }

    fn completed(end: &MessageEnd) -> Self {
        let state = match end.stop {
            Stop::Cancelled => JobPhase::Cancelled,
            Stop::EndTurn | Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal => {
                JobPhase::Completed
            }
        };
        let mut structured = facts(&end.turn, state);
        structured.insert("stop".to_owned(), json!(end.stop));
        let refused = end.turn.refusal.as_deref();
        if let Some(refusal) = refused {
            structured.insert("error".to_owned(), json!(refusal));
        }
        let said = cut(&end.turn.text).0;
        let text = match (said.is_empty(), refused, end.stop) {
            (true, Some(refusal), _) => refusal.to_owned(),
            (true, None, Stop::Cancelled) => "The job was cancelled.".to_owned(),
            _ => said.to_owned(),
        };
        Self {
            structured,
            text,
            is_error: false,
        }
    }

    fn failed(error: &ErrorLine, turn: &TurnFacts) -> Self {
        let state = match error.code {
            Code::Interrupted => JobPhase::Interrupted,
            _ => JobPhase::Failed,
        };
        let mut structured = facts(turn, state);
        structured.insert("code".to_owned(), json!(error.code));
        structured.insert("error".to_owned(), json!(error.error));
        if let Some(hint) = &error.hint {
            structured.insert("hint".to_owned(), json!(hint));
        }
        let mut text = sentence(&error.error, error.hint.as_deref());
        if !turn.text.is_empty() {
            text.push_str(&format!("\n\nIt had said: {}", cut(&turn.text).0));
        }
        Self {
            structured,
            text,
            is_error: true,
        }
    }

    /// With something to know besides.
    pub(super) fn with(mut self, note: Option<String>) -> Self {
        if let Some(note) = note {
            self.text.push_str(&format!("\n\nNote: {note}"));
            let notes = self.structured.entry("notes").or_insert(json!([]));
            notes
                .as_array_mut()
                .into_iter()
                .for_each(|notes| notes.push(json!(note)));
        }
        self
    }

    /// As an answer to `tools/call`.
    pub(super) fn result(self) -> Value {
        json!({
            "content": [{"type": "text", "text": self.text}],
            "structuredContent": self.structured,
            "isError": self.is_error,
        })
    }
}

fn facts(turn: &TurnFacts, state: JobPhase) -> Map<String, Value> {
    let (text, was_cut) = cut(&turn.text);
    let mut facts = map(json!({"state": state, "text": text}));
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            facts.insert(name.to_owned(), value);
        }
    };
    put("job", turn.job.map(|job| json!(job)));
    put(
        "session",
        turn.session.as_ref().map(|session| json!(session)),
    );
    put("agent", turn.agent.as_ref().map(|agent| json!(agent)));
    put("model", turn.model.as_ref().map(|model| json!(model)));
    put("cost_usd", turn.cost.usd.map(|usd| json!(usd)));
    let usage = turn.usage.as_ref();
    put(
        "usage",
        usage.map(|usage| {
            json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens})
        }),
    );
    put(
        "truncated",
        (was_cut || turn.truncated).then_some(json!(true)),
    );
    facts
}

/// As much of an answer as is told, and whether that is less than all of it.
fn cut(text: &str) -> (&str, bool) {
    let end = text.floor_char_boundary(LONGEST_TEXT);
    (text.get(..end).unwrap_or(text), end < text.len())
}

fn sentence(error: &str, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{error}: {hint}"),
        None => error.to_owned(),
    }
}

pub(super) fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: Value) -> Line {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn mcp_answer_is_in_the_structured_content() {
        let end = line(json!({
            "type": "message_end", "stop": "end_turn", "job": "j7", "session": "s", "agent": "timmy",
            "text": "hi", "model": "m", "usage": {"input_tokens": 3, "output_tokens": 1},
            "cost": {"usd": 0.5, "status": "actual"},
        }));
        let result = Outcome::ended(&end).unwrap().result();
        assert_eq!(
            result["structuredContent"],
            json!({
                "state": "completed", "text": "hi", "job": "j7", "session": "s", "agent": "timmy", "model": "m",
                "cost_usd": 0.5, "usage": {"input_tokens": 3, "output_tokens": 1}, "stop": "end_turn",
            })
        );
        assert_eq!(result["content"], json!([{"type": "text", "text": "hi"}]));
        assert_eq!(result["isError"], false);
    }

    #[test]
    fn mcp_failed_turn_is_an_error_in_words() {
        let error = line(json!({
            "type": "error", "code": "interrupted", "error": "it died", "hint": "again", "retryable": false,
            "job": "j7", "session": "s", "text": "half",
        }));
        let outcome = Outcome::ended(&error).unwrap();
        assert!(outcome.is_error);
        assert_eq!(outcome.structured["state"], "interrupted");
        assert_eq!(outcome.text, "it died: again\n\nIt had said: half");
        assert_eq!(Outcome::ended(&Line::Pong), None);
    }

    #[test]
    fn mcp_long_answer_is_cut_and_says_so() {
        let text = "é".repeat(LONGEST_TEXT);
        let end = line(json!({"type": "message_end", "job": "j7", "session": "s", "text": text}));
        let outcome = Outcome::ended(&end).unwrap();
        assert_eq!(outcome.structured["truncated"], true);
        assert_eq!(outcome.text.len(), LONGEST_TEXT);
    }

    #[test]
    fn mcp_refusal_inside_a_job_says_so() {
        let Line::Error(error) = line(
            json!({"type": "error", "code": "forbidden", "error": "levels", "retryable": false}),
        ) else {
            panic!()
        };
        assert_eq!(Outcome::refused(&error, false).text, "levels");
        assert!(Outcome::refused(&error, true).text.contains("inside a job"));
    }
}
