//! What a turn came to, as the protocol's final line has it.
//!
//! Owns its schema only: results are passed on as the daemon gives them.

use agentd_protocol::line::{Stop, TurnFacts};
use schemars::JsonSchema;
use serde::Serialize;

/// How a turn ended.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "it is written down only")]
pub(crate) enum Kind {
    /// It is done; `stop` says how.
    MessageEnd,
    /// It failed; `code` and `error` say why.
    Error,
}

/// The final line of a turn. A client ignores members that it doesn't know.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Final {
    #[serde(rename = "type")]
    kind: Kind,
    /// Of a `message_end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<Stop>,
    /// Of an `error`: a code of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// Of an `error`: a sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Of an `error`: what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Of an `error`: may another try, with another key, succeed later?
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(flatten)]
    turn: TurnFacts,
}
