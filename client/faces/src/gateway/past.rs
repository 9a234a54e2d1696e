//! What was said in a session, in the gateway's shapes.
//!
//! Owns the messages that a client draws a session from. Must not know how they are asked for.

use agentd_protocol::line::{Line, TurnFacts};
use agentd_protocol::rows::{JobPhase, TurnRow};
use serde_json::{Value, json};

use crate::face::hinted;
use crate::title::title;

/// Has it no end?
pub(super) const fn is_open(turn: &TurnRow) -> bool {
    turn.last.is_none()
}

/// Does it run?
pub(super) const fn runs(turn: &TurnRow) -> bool {
    is_open(turn) && matches!(turn.state, JobPhase::Running)
}

/// What is known of it, and why it failed.
pub(super) fn facts(turn: &TurnRow) -> (TurnFacts, Option<String>) {
    let last: Option<Line> = turn
        .last
        .as_ref()
        .and_then(|last| serde_json::from_value(last.clone()).ok());
    match last {
        Some(Line::MessageEnd(end)) => (end.turn, None),
        Some(Line::Error(error)) => {
            let why = hinted(&error);
            (error.turn.unwrap_or_default(), Some(why))
        }
        _ => (TurnFacts::default(), None),
    }
}

/// The messages of turns that have ended. Where calls stood between them isn't kept: the last message
/// stands behind them.
pub(super) fn messages(turns: &[TurnRow]) -> Vec<Value> {
    let mut all = Vec::new();
    for turn in turns.iter().filter(|turn| !is_open(turn)) {
        all.push(json!({"role": "user", "text": turn.text}));
        let (facts, error) = facts(turn);
        let mut said: Vec<Value> = turn
            .messages
            .iter()
            .map(|message| {
                let text = match message.truncated {
                    true => format!("{}\n[… `agentctl history` has all of it]", message.text),
                    false => message.text.clone(),
                };
                let mut row = json!({"role": "assistant", "text": text});
                if !message.thinking.is_empty() {
                    row["reasoning"] = json!(message.thinking);
                }
                row
            })
            .collect();
        // A long message is cut, and the final line may have all of it.
        if let ([message], false) = (turn.messages.as_slice(), facts.truncated)
            && message.truncated
            && facts.text.len() > message.text.len()
        {
            said = vec![json!({"role": "assistant", "text": facts.text})];
        }
        if said.is_empty() && !facts.text.is_empty() {
            said.push(json!({"role": "assistant", "text": facts.text}));
        }
        let last = said.pop();
        all.append(&mut said);
        // Questions that nobody could answer are in the trace, too.
        let calls = facts.tool_trace.iter().filter(|one| one.name != "question");
        all.extend(calls.map(|call| {
            json!({"role": "tool", "name": call.name, "context": title(&call.name, &call.input)})
        }));
        all.extend(last);
        if let Some(why) = error {
            all.push(json!({"role": "system", "text": format!("error: {why}")}));
        }
    }
    all
}
