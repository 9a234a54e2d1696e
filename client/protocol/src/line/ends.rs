//! The final lines of a job, and refusals.
//!
//! Owns what both kinds have besides the facts of a turn. Must not know who reads them.

use serde::{Deserialize, Serialize};

use super::TurnFacts;
use crate::code::Code;

/// Why a turn ended, in the words of the Agent Client Protocol.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Stop {
    #[default]
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
}

impl Stop {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::EndTurn,
        Self::MaxTokens,
        Self::MaxTurnRequests,
        Self::Refusal,
        Self::Cancelled,
    ];
}

/// One of the messages that a final line lists.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    /// `assistant`, or `user` for what steered the turn.
    pub role: String,
    /// Its text.
    pub content: String,
}

/// `message_end`: the turn is done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessageEnd {
    /// Why it ended.
    #[serde(default)]
    pub stop: Stop,
    /// Everything else.
    #[serde(flatten)]
    pub turn: TurnFacts,
    /// Put in when the line is addressed.
    #[serde(default, skip_serializing)]
    pub seq: Option<u64>,
    /// Put in when the line is addressed.
    #[serde(default, skip_serializing)]
    pub replayed: bool,
}

/// `error`: a refusal, or how a job failed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorLine {
    /// For programs.
    #[serde(default = "unknown_code")]
    pub code: Code,
    /// The sentence.
    pub error: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What could be meant, of an `ambiguous` send: names of agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// May the same request succeed later?
    #[serde(default)]
    pub retryable: bool,
    /// What is known of the turn, where there was one.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnFacts>,
    /// Put in when the line is addressed.
    #[serde(default, skip_serializing)]
    pub seq: Option<u64>,
    /// Put in when the line is addressed.
    #[serde(default, skip_serializing)]
    pub replayed: bool,
}

const fn unknown_code() -> Code {
    Code::Unknown
}
