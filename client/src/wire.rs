//! Requests as lines and lines as answers.
//!
//! Owns the client's side of encoding and decoding. Must not know where lines come from or go to.

use agentd_protocol::{Id, Line};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A request's fields with its `type` and `id`.
#[derive(Serialize)]
struct Outgoing<'a, I, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<I>,
    #[serde(flatten)]
    fields: &'a T,
}

/// A request without fields.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Nothing {}

/// One request as a line, its newline included.
///
/// # Errors
/// When `fields` isn't a struct or a map.
pub fn encode(kind: &str, id: u64, fields: &impl Serialize) -> serde_json::Result<String> {
    let mut line = encode_as(kind, Some(id), fields)?;
    line.push('\n');
    Ok(line)
}

/// The same under whatever `id`, or none, and without its newline.
pub(crate) fn encode_as(
    kind: &str,
    id: Option<impl Serialize>,
    fields: &impl Serialize,
) -> serde_json::Result<String> {
    serde_json::to_string(&Outgoing { kind, id, fields })
}

/// A line from the daemon: its text, and what of it we know.
#[derive(Clone, Debug)]
pub struct Received {
    /// As it came, without its newline.
    pub text: String,
    /// The `id` it answers.
    pub id: Option<Id>,
    /// Its `type`, empty when it has none.
    pub kind: String,
    /// The typed line; none for a type or shape that this version doesn't know.
    pub line: Option<Line>,
}

#[derive(Default, Deserialize)]
struct LineHead<'a> {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(
        borrow,
        default,
        deserialize_with = "agentd_protocol::envelope::present"
    )]
    id: Option<&'a RawValue>,
}

impl Received {
    /// Reads a line. Whatever it is, its text is kept.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let head: LineHead<'_> = serde_json::from_str(&text).unwrap_or_default();
        let id = head.id.map(Id::from_raw);
        let kind = head.kind;
        let line = serde_json::from_str(&text).ok();
        Self {
            text,
            id,
            kind,
            line,
        }
    }

    /// Does it answer this request?
    #[must_use]
    pub fn answers(&self, id: u64) -> bool {
        self.id
            .as_ref()
            .is_some_and(|found| found.as_json() == id.to_string())
    }

    /// Is it the last line of a turn? What this version doesn't know isn't: a newer daemon may say
    /// more on the way.
    #[must_use]
    pub fn ends_turn(&self) -> bool {
        matches!(self.kind.as_str(), "message_end" | "error")
    }

    /// Is it the last line of its request? A line of a running turn isn't, nor is a note.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(
            self.kind.as_str(),
            "accepted"
                | "running"
                | "message_start"
                | "message_delta"
                | "thinking_delta"
                | "tool_start"
                | "tool_update"
                | "tool_end"
                | "question"
                | "question_closed"
                | "note"
                | "agent_event"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::request::Send;

    #[test]
    fn request_is_its_type_id_and_fields() {
        assert_eq!(
            encode("ping", 3, &Nothing {}).unwrap(),
            "{\"type\":\"ping\",\"id\":3}\n"
        );
        let send = Send {
            text: "hi".to_owned(),
            ..Send::default()
        };
        let line = encode("send", 1, &send).unwrap();
        let start = r#"{"type":"send","id":1,"text":"hi""#;
        assert!(line.starts_with(start) && line.ends_with("}\n"), "{line}");
    }

    #[test]
    fn line_that_is_unknown_keeps_text_and_id() {
        let received = Received::parse(br#"{"type":"plan","id":7,"x":1}"#);
        assert!(received.answers(7) && received.line.is_none());
        let null = Received::parse(br#"{"type":"pong","id":null}"#);
        assert_eq!(null.id.as_ref().map(Id::as_json), Some("null"));
        assert_eq!(null.line, Some(Line::Pong));
        assert_eq!(Received::parse(b"\xff").text, "\u{fffd}");
    }
}
