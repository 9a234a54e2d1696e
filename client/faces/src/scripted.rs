//! What the tests of faces have in common where they play the daemon.
//!
//! Owns how what was asked is found and answered. Must not know any face.

use agentd_client::wire::Received;
use serde_json::{Value, json};

use crate::face::Ask;

/// Takes the oldest request of a type that nobody answered.
#[track_caller]
pub(crate) fn asked(asked: &mut Vec<Ask>, kind: &str) -> Ask {
    let at = asked.iter().position(|ask| ask.kind == kind);
    let at = at.unwrap_or_else(|| panic!("no {kind}: {asked:?}"));
    asked.remove(at)
}

/// A line that answers a request.
#[track_caller]
pub(crate) fn answer(to: &Ask, mut line: Value) -> Received {
    line["id"] = json!(to.ticket.0);
    let received = Received::parse(line.to_string().as_bytes());
    assert!(received.line.is_some(), "not a line: {line}");
    received
}

/// The final line of a turn of a session, with `null` for what it doesn't say.
pub(crate) fn facts(session: &str, mut with: Value) -> Value {
    for field in [
        "context",
        "agent",
        "provider",
        "model",
        "thinking",
        "usage",
        "api_calls",
    ] {
        if with.get(field).is_none() {
            with[field] = Value::Null;
        }
    }
    with["session"] = json!(session);
    with
}
