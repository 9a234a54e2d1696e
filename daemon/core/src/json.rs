//! Small JSON values that the core keeps as text. Total: what isn't JSON becomes nothing.

use agentd_protocol::request::{McpServer, Send};
use agentd_protocol::serde_json;
use agentd_protocol::serde_json::Value;

/// A list of strings from its JSON text.
pub(crate) fn strings(text: &str) -> Option<Vec<String>> {
    serde_json::from_str(text).ok()
}

/// MCP servers from their JSON text.
pub(crate) fn servers(text: &str) -> Option<Vec<McpServer>> {
    serde_json::from_str(text).ok()
}

/// A stored request as it was accepted.
pub(crate) fn read_back(request: &str) -> Result<Send, String> {
    serde_json::from_str(request).map_err(|why| why.to_string())
}

/// The JSON text of anything of ours.
pub(crate) fn text<T: agentd_protocol::serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A value from its text; text that isn't JSON becomes a string.
pub(crate) fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
