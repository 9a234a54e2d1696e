//! The fields of the requests, beginning with those of a `send`.
//!
//! Owns what each one may say; which there are, `request_table` says, and how they are read, `decode`.
//! Must not know sessions, agents or state: whether a name exists is for the core to say.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

use crate::attachment::Attachment;
pub use crate::envelope::Ignored;
use crate::ids::JobId;
use crate::routed::Routed;
use crate::webhook::Callback;

/// The fields of a `send` that this version acts on, aliases and `type`/`id` included.
pub const SEND_FIELDS: &[&str] = &[
    "type",
    "id",
    "text",
    "prompt",
    "message",
    "session",
    "agent",
    "provider",
    "model",
    "thinking",
    "fallback_chain",
    "cwd",
    "cwd_if_new",
    "timeout",
    "expires",
    "idempotency_key",
    "mode",
    "stream",
    "retry",
    "require_context",
    "must",
    "include",
    "on_question",
    "toolsets",
    "tools",
    "system",
    "history",
    "mcp_servers",
    "labels",
    "parent",
    "start_at",
    "after_failure",
    "attachments",
    "callback",
    "job",
];

/// `abort`; without a target, this connection's last send, else the only live one.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Abort {
    /// One job.
    pub job: Option<JobId>,
    /// The turn in flight of a session.
    pub session: Option<String>,
    /// With `session`: what waits there, too.
    #[serde(default)]
    pub queued: bool,
    /// The send with this key, whatever else is named, also while whether it was accepted isn't known yet.
    pub idempotency_key: Option<String>,
}

impl Abort {
    /// Of the send with this key. A daemon that doesn't know the field would take the only turn there is,
    /// so a session is named, too, and none has this name.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        Self {
            session: Some(String::new()),
            idempotency_key: Some(key.to_owned()),
            ..Self::default()
        }
    }
}

/// `collect`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Collect {
    /// Which.
    pub jobs: Vec<JobId>,
    /// Seconds to wait; until all are done when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// For all of them or for the first.
    #[serde(default)]
    pub wait: Wait,
}

/// What a `collect` waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Every job.
    #[default]
    All,
    /// At least one.
    Any,
}

/// `subscribe`; without a filter, everything.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Subscribe {
    /// One session.
    pub session: Option<String>,
    /// Some jobs.
    pub jobs: Option<Vec<JobId>>,
    /// A cursor: numbered lines after this one come first; 0 is the beginning.
    pub after: Option<u64>,
    /// The cursor's epoch: of another one, it is refused.
    pub epoch: Option<String>,
    /// What becomes of sessions, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sessions: bool,
}

/// `send`: one user turn. PROTOCOL.md part 4 explains each field.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Send {
    /// Why it has its agent: the daemon's own word, with what it stores. In front of the text, as lists
    /// read how a request begins.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub routed: Option<Box<Routed>>,
    /// The user's turn.
    #[serde(alias = "prompt", alias = "message")]
    pub text: String,
    /// The conversation.
    pub session: Option<String>,
    /// The conversation as the one asked named it: of workers only.
    pub native: Option<String>,
    /// Who answers.
    pub agent: Option<String>,
    /// Pins the model provider.
    pub provider: Option<String>,
    /// Pins the model.
    pub model: Option<String>,
    /// How hard to think, in the agent's words.
    pub thinking: Option<String>,
    /// What to ask when the model fails, in this order; each `provider/model`, or a name that the
    /// agent knows.
    pub fallback_chain: Option<Vec<String>>,
    /// Working directory: absolute, existing.
    pub cwd: Option<String>,
    /// Working directory that counts only if this send makes the session.
    pub cwd_if_new: Option<String>,
    /// Restricts the agent's tools.
    #[serde(default, alias = "tools", skip_serializing_if = "Option::is_none")]
    pub toolsets: Option<Vec<String>>,
    /// What the agent is told before the conversation: only with the send that begins a session.
    pub system: Option<String>,
    /// What was said before elsewhere, oldest first: likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Earlier>,
    /// What its session's agent has besides its own, from this turn on.
    pub mcp_servers: Option<Vec<McpServer>>,
    /// Seconds it may run; 3600 when absent.
    pub timeout: Option<f64>,
    /// Seconds it may wait; 3600 when absent.
    pub expires: Option<f64>,
    /// The same key twice is the same job.
    pub idempotency_key: Option<String>,
    /// When the session is busy.
    #[serde(default)]
    pub mode: Mode,
    /// Send the lines between `accepted` and the final one.
    pub stream: Option<bool>,
    /// Wait for somebody's answer, or deny.
    pub on_question: Option<OnQuestion>,
    /// Run again after a crash?
    #[serde(default)]
    pub retry: Retry,
    /// Refuse rather than run without the session's earlier turns.
    #[serde(default)]
    pub require_context: bool,
    /// Extra members of the final line: `messages`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Fields the sender depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must: Vec<String>,
    /// Free labels, for `jobs`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The job from inside whose worker it comes.
    pub parent: Option<JobId>,
    /// Not before this time, RFC 3339.
    pub start_at: Option<String>,
    /// When a turn before it in the session was interrupted.
    #[serde(default)]
    pub after_failure: AfterFailure,
    /// What goes with the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Who is told of its end.
    pub callback: Option<Callback>,
    /// Towards workers: the job's number.
    pub job: Option<String>,
}

/// What a send's idempotency hash covers, as given: PROTOCOL.md part 7.
///
/// Returns canonical bytes to be hashed; two sends with equal bytes are the same request.
#[must_use]
pub fn hashed(send: &Send) -> String {
    let mut value = serde_json::json!([
        send.text,
        send.session,
        send.agent,
        send.provider,
        send.model,
        send.thinking,
        send.cwd,
        send.toolsets,
        send.retry,
    ]);
    // What later versions added counts only where it is given: keys of before keep their meaning.
    if let Value::Array(all) = &mut value {
        if let Some(chain) = &send.fallback_chain {
            all.push(serde_json::json!({"fallback_chain": chain}));
        }
        if let Some(callback) = &send.callback {
            all.push(serde_json::json!({"callback": callback.url}));
            if callback.result {
                all.push("callback.result".into());
            }
        }
        if let Some(system) = &send.system {
            all.push(serde_json::json!({"system": system}));
        }
        if !send.history.is_empty() {
            all.push(serde_json::json!({"history": send.history}));
        }
        if let Some(servers) = &send.mcp_servers {
            all.push(serde_json::json!({"mcp_servers": servers}));
        }
        if !send.attachments.is_empty() {
            // Not by path or name: the same content, given otherwise, is the same request.
            let content = |of: &Attachment| serde_json::json!([of.mime, of.sha256]);
            all.push(send.attachments.iter().map(content).collect());
        }
    }
    value.to_string()
}

mod beginning;
mod choices;
mod control;
mod copies;
mod decode;
mod mcp_server;
mod send_check;
#[cfg(test)]
mod tests;
pub mod work;

pub use crate::check::{check_session, check_word, unix_ms};
pub use beginning::{Earlier, Speaker};
pub use choices::{AfterFailure, Mode, OnQuestion, Retry};
pub use control::{DaemonStop, Drain, Hello, LogLevel, RestartWorker, Status};
pub use decode::Decoded;
pub use mcp_server::McpServer;
