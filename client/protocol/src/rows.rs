//! The rows that lists are made of: jobs, sessions, turns, questions, what turns used.
//!
//! Owns their members. Must not know where they come from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::attachment::Attachment;
use crate::envelope::Ignored;
use crate::ids::JobId;
use crate::line::{ToolKind, ToolLocation};
use crate::routed::Routed;
use crate::usage::{Cost, Usage};

/// How far a job is, in the words of `jobs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum JobPhase {
    Queued,
    Held,
    Running,
    Completed,
    Cancelled,
    Failed,
    Interrupted,
}

/// One job of a `dispatch`'s answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct DispatchedRow {
    pub job: JobId,
    pub session: String,
    pub replayed: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<Ignored>,
}

/// One job of a list.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct JobRow {
    pub job: JobId,
    pub session: String,
    pub agent: String,
    pub state: JobPhase,
    pub attempt: u32,
    /// The beginning of the prompt.
    pub preview: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub parent: Option<JobId>,
    pub accepted_at: String,
    /// Not before.
    pub start_at: Option<String>,
    /// When the turn began that runs.
    pub started_at: Option<String>,
    /// What the turn does that runs, in a few words for people.
    pub doing: Option<String>,
    /// Is it stored as running, and the process that ran it gone? The next daemon decides what
    /// becomes of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_off: bool,
    pub finished_at: Option<String>,
    /// Of a `message_end`.
    pub stop: Option<String>,
    /// Of an `error`.
    pub code: Option<String>,
    /// Why it has this agent, where the routes were asked.
    pub routed: Option<Box<Routed>>,
}

/// What one ended turn used: enough to add up by any of it, and nothing that was said.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct UsageRow {
    pub job: JobId,
    pub accepted_at: String,
    pub agent: String,
    /// A closed one under the name that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    /// `None` where nobody knows.
    pub local: Option<bool>,
    pub state: JobPhase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub usage: Option<Usage>,
    pub cost: Cost,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<UsagePart>,
    pub queued_ms: u64,
    pub duration_ms: u64,
}

/// What another model than the last one used of a turn.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct UsagePart {
    pub provider: String,
    pub model: Option<String>,
    /// `None` where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<bool>,
    pub usage: Usage,
    pub usd: Option<f64>,
}

/// Providers whose models run on the user's own machines, wherever an agent is that doesn't say it
/// itself.
const LOCAL_PROVIDERS: &[&str] = &[
    "gpt4all",
    "jan",
    "llama.cpp",
    "llamacpp",
    "llama-cpp",
    "lm-studio",
    "lmstudio",
    "local",
    "localai",
    "mlx",
    "ollama",
    "sglang",
    "vllm",
];

/// Did a model on the user's own machines answer? As the agent said; else by the provider's name,
/// which says it only of some: behind any other may be a loopback address of the agent's own
/// configuration, and then nobody here knows.
#[must_use]
pub fn is_local(said: Option<bool>, provider: Option<&str>) -> Option<bool> {
    let named = provider.map(str::to_ascii_lowercase);
    let known = named.is_some_and(|name| LOCAL_PROVIDERS.contains(&name.as_str()));
    said.or(known.then_some(true))
}

/// What a session is doing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum SessionPhase {
    #[default]
    Idle,
    Starting,
    Working,
    Waiting,
    Held,
    /// Its name is free; what was said in it can be read.
    Closed,
}

/// One session of a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct SessionRow {
    pub session: String,
    pub agent: String,
    pub cwd: String,
    pub state: SessionPhase,
    /// The beginning of its first prompt.
    pub title: String,
    /// The beginning of its last answer.
    pub preview: String,
    pub model: Option<String>,
    pub turns: u64,
    /// Tokens in its context after the last turn whose agent said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// Tokens that fit into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    pub created_at: String,
    pub last_active_at: String,
    /// Seconds since then, as far as the daemon saw them pass, whatever its clock was set to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<u64>,
    /// Of one that was closed, the name by which its past is read when another one has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_as: Option<String>,
}

impl SessionRow {
    /// The name by which its past is read, whoever has its own by now.
    #[must_use]
    pub fn name(&self) -> &str {
        self.closed_as.as_deref().unwrap_or(&self.session)
    }
}

/// One turn in which something was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct FoundRow {
    pub job: JobId,
    pub session: String,
    pub agent: String,
    pub state: JobPhase,
    pub accepted_at: String,
    /// `prompt` or `answer`: where the excerpt is from.
    pub part: String,
    /// What stands around the first of the words.
    pub excerpt: String,
    /// As that of a session's row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_as: Option<String>,
}

impl FoundRow {
    /// The name by which its session's past is read.
    #[must_use]
    pub fn name(&self) -> &str {
        self.closed_as.as_deref().unwrap_or(&self.session)
    }
}

/// One turn of a session's history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct TurnRow {
    pub job: JobId,
    pub state: JobPhase,
    pub accepted_at: String,
    /// The user's turn.
    pub text: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// What went with it, without its content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    pub messages: Vec<MessageRow>,
    /// The numbered lines between, to whoever asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::held::AnyLine>"))]
    pub events: Vec<Value>,
    /// Are there more than are given here?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub events_truncated: bool,
    /// The final line; `None` while the turn is in flight or waits.
    #[serde(rename = "final")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::held::FinalLine>"))]
    pub last: Option<Value>,
    /// Open ones, of the turn in flight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionRow>,
    /// The send as it was stored, to whoever asks for this one turn; `None` when it is too long for
    /// that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
}

/// One message of a turn, or a piece of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct MessageRow {
    pub message: u32,
    /// Bytes of the message's text before this piece.
    #[serde(default)]
    pub offset: u64,
    pub text: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// Does more text follow than is given here?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What a question is about, for programs.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 4 documents each")]
pub struct QuestionAbout {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_kind: Option<ToolKind>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<ToolLocation>,
    /// Words of `Scope`, or of a later version's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

/// One open question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 4 documents each")]
pub struct QuestionRow {
    pub question_id: String,
    pub job: JobId,
    pub session: String,
    pub kind: String,
    pub title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(default)]
    pub options: Vec<String>,
    #[serde(flatten)]
    pub about: QuestionAbout,
    pub expires_at: String,
}

/// One agent, known or looked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct AgentRow {
    pub name: String,
    pub kind: String,
    pub command: Vec<String>,
    /// `config`, `path`, `place`, `built-in` or `looked-for`.
    pub found: String,
    /// What its program says of itself.
    pub version: Option<String>,
    /// Is somebody logged in? `None` where that can't be seen.
    pub logged_in: Option<bool>,
    /// Why there is no version, or what the program lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How one turn of it is run without agentd, if it has a form for that, with its model filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_shot: Option<Vec<String>>,
    pub usable: bool,
    pub why_not: Option<String>,
    pub default: bool,
}

impl AgentRow {
    /// What somebody has to do before it answers, where its program is there.
    #[must_use]
    pub fn to_do(&self) -> Option<&'static str> {
        agent_to_do(self.found == "built-in", self.logged_in)
    }
}

/// What somebody has to do before an agent whose program is there answers, as far as files and
/// variables say. The built-in one has no login: it is `logged_in` where a model or a key is known.
#[must_use]
pub const fn agent_to_do(built_in: bool, logged_in: Option<bool>) -> Option<&'static str> {
    match (built_in, logged_in) {
        (_, Some(true)) | (false, None) => None,
        (true, _) => Some("needs a model"),
        (false, Some(false)) => Some("log in"),
    }
}
