//! Tool calls put together from the pieces that chat completions send.
//!
//! Owns which piece belongs to which call. `genai` would make room for as many calls as the highest
//! index says, and needs an index that some servers leave out.

use serde_json::Value;

use crate::message::{CallArguments, ToolCall};

/// More calls in one reply are no model's doing.
const MOST_CALLS: usize = 256;

/// Calls that are being told.
#[derive(Default, Debug)]
pub(super) struct Calls {
    drafts: Vec<Draft>,
}

#[derive(Default, Debug)]
struct Draft {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// Adds the next piece.
    pub(super) fn add(&mut self, piece: &Value) {
        let text = |value: &Value| {
            value
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let function = &piece["function"];
        let (index, id, name) = (
            piece["index"].as_u64(),
            text(&piece["id"]),
            text(&function["name"]),
        );
        let at = match self.place(index, id.as_deref(), name.is_some()) {
            Some(at) => at,
            None if self.drafts.len() >= MOST_CALLS => return,
            None => {
                self.drafts.push(Draft {
                    index,
                    ..Draft::default()
                });
                self.drafts.len() - 1
            }
        };
        let draft = &mut self.drafts[at];
        if draft.id.is_empty() {
            draft.id = id.unwrap_or_default();
        }
        if draft.name.is_empty() {
            draft.name = name.unwrap_or_default();
        }
        match &function["arguments"] {
            Value::String(part) => draft.arguments.push_str(part),
            Value::Null => {}
            // Some servers send the object itself.
            whole => draft.arguments.push_str(&whole.to_string()),
        }
    }

    /// Where a piece goes on. One that names a tool under an id of its own begins a call.
    fn place(&self, index: Option<u64>, id: Option<&str>, is_named: bool) -> Option<usize> {
        let begins = |draft: &Draft| {
            is_named && !draft.name.is_empty() && id.is_some_and(|id| draft.id != id)
        };
        let found = match (index, id) {
            (Some(_), _) => self.drafts.iter().rposition(|draft| draft.index == index),
            (None, Some(id)) => self.drafts.iter().rposition(|draft| draft.id == id),
            (None, None) if is_named => None,
            // A piece that says nothing of where it belongs goes on with the last call.
            (None, None) => self.drafts.len().checked_sub(1),
        };
        found.filter(|at| !begins(&self.drafts[*at]))
    }

    /// The calls, as far as they came.
    pub(super) fn take(&mut self) -> Vec<ToolCall> {
        let drafts = std::mem::take(&mut self.drafts);
        let call = |draft: Draft| ToolCall {
            id: draft.id,
            name: draft.name,
            arguments: told(draft.arguments),
            signatures: Vec::new(),
        };
        drafts.into_iter().map(call).collect()
    }
}

/// Arguments as they were written: an object, or something that is never run.
fn told(text: String) -> CallArguments {
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => CallArguments::Object(map),
        _ => CallArguments::Malformed(text),
    }
}

/// Arguments that `genai` has read already: text is what it couldn't read, or text in quotes, and
/// is not read once more.
pub(super) fn read(value: Value) -> CallArguments {
    match value {
        Value::Object(map) => CallArguments::Object(map),
        Value::String(text) => CallArguments::Malformed(text),
        Value::Null => CallArguments::Malformed(String::new()),
        other => CallArguments::Malformed(other.to_string()),
    }
}
