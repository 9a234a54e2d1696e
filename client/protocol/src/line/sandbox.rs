//! What held a tool's command, in `tool_end` and in the trace of tools.
//!
//! Owns the words. Must not know what enforces them.

use serde::{Deserialize, Serialize};

/// What a tool's command could reach, as the agent that ran it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sandbox {
    /// `granted` ones, or `all` of the user's.
    pub files: Reach,
    /// `none`, or `all` of it.
    pub network: Reach,
    /// Which processes its signals reach: its `own`, `none`, or `all` of the user's.
    pub signals: Reach,
    /// Which it could make: `none`, those of the `network`, or `all`.
    pub sockets: Reach,
    /// Which processes it saw, with their arguments: its `own`, or `all`.
    #[serde(default = "Reach::unsaid")]
    pub processes: Reach,
}

/// How far a sandbox lets a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Nowhere.
    None,
    /// To what is its own.
    Own,
    /// To what it was given.
    Granted,
    /// To what the network needs.
    Network,
    /// As far as its user.
    All,
    /// A word that this version doesn't know.
    #[serde(other)]
    Unknown,
}

impl Reach {
    /// Of what says nothing: an agent older than the field.
    const fn unsaid() -> Self {
        Self::Unknown
    }
}
