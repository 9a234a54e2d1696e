//! The items of a response's output.
//!
//! Owns their shapes. Tools of the agent are `mcp_call`s: clients take these for done, where they would
//! run a `function_call` themselves.

use serde_json::{Value, json};

/// How far an item is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ItemState {
    /// More of it comes.
    Begun,
    /// It is whole.
    Done,
    /// It was abandoned.
    Incomplete,
    /// A call that failed.
    Failed,
}

impl ItemState {
    const fn name(self) -> &'static str {
        match self {
            Self::Begun => "in_progress",
            Self::Done => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}

/// What is said.
pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// What is thought.
pub(super) fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// A message; without text it has no part yet.
pub(super) fn message(id: &str, state: ItemState, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.map(text_part).into_iter().collect();
    json!({"id": id, "type": "message", "status": state.name(), "role": "assistant", "content": content})
}

/// What was thought.
pub(super) fn reasoning(id: &str, state: ItemState, text: Option<&str>) -> Value {
    let summary: Vec<Value> = text.map(summary_part).into_iter().collect();
    json!({"id": id, "type": "reasoning", "status": state.name(), "summary": summary})
}

/// Why a call failed, as OpenAI's own clients read it.
fn call_error(said: &str) -> Value {
    let content = json!([{"type": "text", "text": said}]);
    json!({"type": "mcp_tool_execution_error", "content": content})
}

/// A call of a tool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) id: String,
    /// What it is called among the turn's lines.
    pub(super) tool_call_id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

impl Call {
    pub(super) fn item(&self, agent: &str, state: ItemState, said: Option<&str>) -> Value {
        let (output, error) = match state {
            ItemState::Failed => (None, said.map(call_error)),
            _ => (said, None),
        };
        let arguments = match state {
            ItemState::Begun => "",
            _ => self.arguments.as_str(),
        };
        json!({
            "id": self.id, "type": "mcp_call", "server_label": agent, "name": self.name,
            "arguments": arguments, "output": output, "error": error,
            "status": state.name(), "approval_request_id": null,
        })
    }
}
