//! The lines timmy says. Owns how a line is addressed; must not know when one is due.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::ids::Id;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

/// A line on its way out.
pub(crate) struct OutgoingLine {
    /// Its `type`.
    pub(crate) kind: &'static str,
    id: Option<Id>,
    fields: Map<String, Value>,
}

impl OutgoingLine {
    /// A line in answer to `id`; `fields` is a JSON object.
    pub(crate) fn new(kind: &'static str, id: Option<Id>, fields: Value) -> Self {
        let fields = match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        Self { kind, id, fields }
    }

    /// A refusal.
    pub(crate) fn refusal(id: Option<Id>, rejected: &Rejected) -> Self {
        let mut fields = json!({
            "code": rejected.code,
            "error": rejected.error,
            "retryable": rejected.code.retryable(),
        });
        if let Some(hint) = &rejected.hint {
            fields["hint"] = json!(hint);
        }
        Self::new("error", id, fields)
    }

    /// A field that is a string, or nothing.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or("")
    }

    /// The whole line without its newline; the id byte for byte as it came.
    pub(crate) fn render(&self) -> String {
        let mut line = format!(r#"{{"type":"{}""#, self.kind);
        if let Some(id) = &self.id {
            line.push_str(r#","id":"#);
            // Not through a number of ours: 1e400 or 0.10 would come back as something else.
            line.push_str(id.as_json());
        }
        let fields = Value::Object(self.fields.clone()).to_string();
        if fields.len() > "{}".len() {
            line.push(',');
        }
        line.push_str(&fields[1..]);
        line
    }
}

/// Where the lines of one request go.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Echoed on each.
    pub(crate) id: Option<Id>,
    /// To standard output.
    pub(crate) out: mpsc::Sender<OutgoingLine>,
}

impl Line {
    /// Says one line, waiting for a slow reader.
    pub(crate) async fn say(&self, kind: &'static str, fields: Value) {
        // Nobody reads any more: the turn goes on in silence until it is told to leave.
        let _gone = self
            .out
            .send(OutgoingLine::new(kind, self.id.clone(), fields))
            .await;
    }

    /// The request was refused: its final line.
    pub(crate) async fn reject(&self, rejected: &Rejected) {
        let _gone = self
            .out
            .send(OutgoingLine::refusal(self.id.clone(), rejected))
            .await;
    }

    /// Says one line if that needs no waiting; else it is left out.
    pub(crate) fn say_if_room(&self, kind: &'static str, fields: Value) {
        let _full = self
            .out
            .try_send(OutgoingLine::new(kind, self.id.clone(), fields));
    }

    /// Answers another request than the one whose lines these are.
    pub(crate) async fn answer(&self, kind: &'static str, id: Option<Id>) {
        let _gone = self
            .out
            .send(OutgoingLine::new(kind, id, json!({"ok": true})))
            .await;
    }

    /// Refuses another request than the one whose lines these are.
    pub(crate) async fn refuse(&self, id: Option<Id>, code: Code, error: &str) {
        let line = Self {
            id,
            out: self.out.clone(),
        };
        line.reject(&Rejected::new(code, error)).await;
    }

    /// What a person should know.
    pub(crate) async fn note(&self, code: &str, text: &str) {
        let fields = json!({"level": "info", "code": code, "text": text});
        self.say("note", fields).await;
    }

    /// What a person should know because it isn't as it should be.
    pub(crate) async fn warn(&self, code: &str, text: &str) {
        let fields = json!({"level": "warning", "code": code, "text": text});
        self.say("note", fields).await;
    }
}

#[cfg(test)]
mod tests {
    use agentd_protocol::Envelope;

    use super::*;

    #[test]
    fn an_id_is_echoed_as_it_was_written() {
        let id = Envelope::parse(br#"{"type":"ping","id":{"a": 1.0}}"#)
            .unwrap()
            .id;
        let said = OutgoingLine::new("pong", id, json!({}));
        assert_eq!(said.render(), r#"{"type":"pong","id":{"a": 1.0}}"#);
        let said = OutgoingLine::new("note", None, json!({"text": "x"}));
        assert_eq!(said.render(), r#"{"type":"note","text":"x"}"#);
    }
}
