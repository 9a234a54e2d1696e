//! A line that is serialised once and addressed to many.
//!
//! Owns how `id`, `seq` and `replayed` are put into it. Must not know its members.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::ids::Id;

/// Is a line told as it happens, or again?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Telling {
    /// For the first time.
    First,
    /// To somebody who asked with a known key, or collects.
    Replay,
}

/// A serialised line that has no addressee yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    json: Arc<str>,
    replayable: bool,
}

impl Body {
    pub(super) fn new(json: &str, replayable: bool) -> Self {
        Self {
            json: Arc::from(json),
            replayable,
        }
    }

    /// Takes an `accepted` or a final line back from the store.
    ///
    /// `json` must be what [`Body::as_json`] gave.
    #[must_use]
    pub fn stored(json: &str) -> Self {
        Self {
            json: Arc::from(json),
            replayable: true,
        }
    }

    /// Takes a numbered event between the two back from the store: it has no `replayed`.
    ///
    /// `json` must be what [`Body::as_json`] gave.
    #[must_use]
    pub fn stored_event(json: &str) -> Self {
        Self {
            json: Arc::from(json),
            replayable: false,
        }
    }

    /// The answer with a list whose rows are JSON objects already, and one more member, in JSON too.
    #[must_use]
    pub fn of_rows(kind: &str, list: &str, rows: &[String], more: Option<(&str, &str)>) -> Self {
        let len = rows.iter().map(|row| row.len() + 1).sum::<usize>();
        let mut json = String::with_capacity(len + 128);
        let _infallible = write!(json, r#"{{"type":"{kind}","ok":true,"{list}":["#);
        // As text: most of such an answer is its rows, which would be read and written once more.
        for (place, row) in rows.iter().enumerate() {
            if place > 0 {
                json.push(',');
            }
            json.push_str(row);
        }
        json.push(']');
        let _infallible = more.map(|(name, value)| write!(json, r#","{name}":{value}"#));
        json.push('}');
        Self::stored_event(&json)
    }

    /// The object without `id`, `seq` and `replayed`.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.json
    }

    /// The whole line without its newline: `id`, `seq` and `replayed` follow `type`.
    #[must_use]
    pub fn render(&self, id: Option<&Id>, seq: Option<u64>, telling: Telling) -> String {
        // `"type":"…"` comes first, and no type contains a comma or a brace.
        let at = self.json.find([',', '}']).unwrap_or(self.json.len());
        let (head, tail) = self.json.split_at(at);
        let mut line = String::with_capacity(self.json.len() + 64);
        line.push_str(head);
        let _infallible = id.map(|id| write!(line, r#","id":{}"#, id.as_json()));
        let _infallible = seq.map(|seq| write!(line, r#","seq":{seq}"#));
        if self.replayable {
            let _infallible = write!(line, r#","replayed":{}"#, telling == Telling::Replay);
        }
        line.push_str(tail);
        line
    }
}
