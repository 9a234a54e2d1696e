//! The words of the Agent Client Protocol, version 1, that an agent reads and writes.
//!
//! Owns their shapes, as the protocol's schema has them. Must not know the daemon.

use agentd_protocol::commands::CommandRow;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

/// The version that is spoken here, whatever the client asks for.
pub(super) const VERSION: u16 = 1;
/// The agent wants its user to log in.
pub(super) const AUTH_REQUIRED: i64 = -32000;
/// What is asked for isn't there.
pub(super) const RESOURCE_NOT_FOUND: i64 = -32002;
/// Nobody knows whether the prompt runs, or what it has done: no internal error, at which clients send it
/// again. One of the numbers that are free for servers (JSON-RPC 2.0, 5.1).
pub(super) const OUTCOME_UNKNOWN: i64 = -32010;

/// `initialize`. The version is read to be refused when it isn't one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialize {
    #[serde(rename = "protocolVersion")]
    pub(super) _version: u16,
    #[serde(default)]
    pub(super) client_capabilities: Value,
}

/// `session/new`; with a `session_id`, `session/load` and `session/resume`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OpenSession {
    pub(super) session_id: Option<String>,
    pub(super) cwd: String,
    pub(super) mcp_servers: Option<Vec<Value>>,
    pub(super) additional_directories: Option<Vec<String>>,
    #[serde(default, rename = "_meta")]
    pub(super) meta: Value,
}

/// `session/close`, `session/delete`, `session/cancel`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfSession {
    pub(super) session_id: String,
}

/// `session/list`.
#[derive(Deserialize)]
pub(super) struct ListSessions {
    pub(super) cwd: Option<String>,
    pub(super) cursor: Option<String>,
}

/// `session/prompt`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prompt {
    pub(super) session_id: String,
    pub(super) prompt: Vec<Block>,
}

/// One piece of a prompt.
#[derive(Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum Block {
    Text { text: String },
    Image { mime_type: String, data: String },
    Audio {},
    ResourceLink { uri: String },
    Resource { resource: Resource },
}

/// What a prompt brings along.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resource {
    pub(super) uri: String,
    pub(super) mime_type: Option<String>,
    pub(super) text: Option<String>,
    pub(super) blob: Option<String>,
}

/// `session/set_config_option`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetOption {
    pub(super) session_id: String,
    pub(super) config_id: String,
    pub(super) value: String,
}

/// `session/set_model`, of clients from before options.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetModel {
    pub(super) session_id: String,
    pub(super) model_id: String,
}

/// `session/set_mode`, likewise.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetMode {
    pub(super) session_id: String,
    pub(super) mode_id: String,
}

/// `session/set_title`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetTitle {
    pub(super) session_id: String,
    pub(super) title: String,
}

/// `$/cancel_request`.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CancelRequest {
    pub(super) request_id: Value,
}

/// The answer to `session/new`, `session/load` and `session/resume`: with both ways to choose.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Opened {
    pub(super) session_id: Option<String>,
    pub(super) config_options: Option<Vec<ConfigOption>>,
    pub(super) models: Option<Models>,
    pub(super) modes: Option<Modes>,
}

/// Something to choose.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigOption {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) category: &'static str,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) current_value: String,
    pub(super) options: Vec<Choice>,
}

/// One of its values.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) name: String,
}

/// Models as they were offered before options.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Models {
    pub(super) available_models: Vec<Model>,
    pub(super) current_model_id: String,
}

/// One of them.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Model {
    pub(super) model_id: String,
    pub(super) name: String,
}

/// Modes as they were offered before options.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Modes {
    pub(super) available_modes: Vec<Mode>,
    pub(super) current_mode_id: String,
}

/// One of them.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Mode {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
}

/// One session of a list.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionInfo {
    pub(super) session_id: String,
    pub(super) cwd: String,
    pub(super) title: Option<String>,
    pub(super) updated_at: String,
}

/// The answer to `session/prompt`.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ended {
    pub(super) stop_reason: agentd_protocol::line::Stop,
    pub(super) usage: Option<Usage>,
}

/// Tokens of a turn: what was cached is part of the input, and what was thought of the output.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    pub(super) total_tokens: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) thought_tokens: u64,
    pub(super) cached_read_tokens: u64,
    pub(super) cached_write_tokens: u64,
}

/// `session/update`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Notification<'a> {
    pub(super) session_id: &'a str,
    pub(super) update: &'a Update,
}

/// What is told of a session.
#[expect(clippy::enum_variant_names, reason = "the names are the protocol's")]
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(
    tag = "sessionUpdate",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum Update {
    UserMessageChunk(Chunk),
    AgentMessageChunk(Chunk),
    AgentThoughtChunk(Chunk),
    ToolCall(ToolCall),
    ToolCallUpdate(ToolCall),
    Plan {
        entries: Vec<PlanEntry>,
    },
    ConfigOptionUpdate {
        config_options: Vec<ConfigOption>,
    },
    CurrentModeUpdate {
        current_mode_id: String,
    },
    AvailableCommandsUpdate {
        available_commands: Vec<Command>,
    },
    SessionInfoUpdate {
        title: String,
        updated_at: String,
    },
    UsageUpdate {
        used: u64,
        size: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<Cost>,
    },
    Notice {
        severity: &'static str,
        title: String,
        /// What clients that show no notices are told in its place.
        #[serde(skip)]
        instead: Option<Box<Self>>,
    },
}

/// A slash command of the agent.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Command {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) input: Option<CommandInput>,
}

/// What may stand behind its name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct CommandInput {
    pub(super) hint: String,
}

impl From<CommandRow> for Command {
    fn from(row: CommandRow) -> Self {
        Self {
            name: row.name,
            description: row.description.unwrap_or_default(),
            input: row.hint.map(|hint| CommandInput { hint }),
        }
    }
}

/// A piece of a message.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Chunk {
    pub(super) message_id: String,
    pub(super) content: Content,
}

/// What it says.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum Content {
    Text {
        text: String,
    },
    ResourceLink {
        uri: String,
        name: String,
        mime_type: Option<String>,
    },
}

impl Content {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

impl Chunk {
    pub(super) fn text(message_id: String, text: impl Into<String>) -> Self {
        Self {
            message_id,
            content: Content::text(text),
        }
    }
}

/// A tool call, or what is new of one.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCall {
    pub(super) tool_call_id: String,
    pub(super) title: Option<String>,
    pub(super) name: Option<String>,
    pub(super) kind: Option<&'static str>,
    pub(super) status: Option<&'static str>,
    pub(super) content: Option<Vec<Output>>,
    pub(super) locations: Option<Vec<Location>>,
    pub(super) raw_input: Option<Value>,
}

/// What a tool call shows.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum Output {
    Content {
        content: Content,
    },
    Diff {
        path: String,
        old_text: Option<String>,
        new_text: String,
    },
}

impl Output {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Content {
            content: Content::text(text),
        }
    }
}

/// A file that a tool call is about.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Location {
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u32>,
}

/// One entry of a plan.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub(super) struct PlanEntry {
    pub(super) content: String,
    pub(super) priority: Priority,
    pub(super) status: Stage,
}

/// How much it matters.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Priority {
    High,
    Medium,
    Low,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Pending,
    InProgress,
    Completed,
}

/// What the session has cost.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) amount: f64,
    pub(super) currency: &'static str,
}

/// `session/request_permission`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestPermission {
    pub(super) session_id: String,
    pub(super) tool_call: ToolCall,
    pub(super) options: Vec<PermissionOption>,
}

/// One answer that it takes.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PermissionOption {
    pub(super) option_id: String,
    pub(super) name: String,
    pub(super) kind: &'static str,
}

/// The answer to it.
#[derive(Deserialize)]
pub(super) struct PermissionAnswer {
    pub(super) outcome: PermissionOutcome,
}

/// What was chosen.
#[derive(Deserialize)]
#[serde(
    tag = "outcome",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum PermissionOutcome {
    Selected { option_id: String },
    Cancelled,
}

/// The answer to `elicitation/create`.
#[derive(Deserialize)]
pub(super) struct ElicitationAnswer {
    pub(super) action: String,
    #[serde(default)]
    pub(super) content: Value,
}
