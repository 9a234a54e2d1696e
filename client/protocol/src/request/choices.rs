//! The words that a send chooses from.
//!
//! Owns their names. Must not know what they lead to.

use serde::{Deserialize, Serialize};

/// What a send does when its session is busy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Wait in the session's queue.
    #[default]
    Queue,
    /// Refuse with `session-busy`.
    Reject,
}

/// May the daemon run the turn again after a crash?
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Retry {
    /// No: the turn ends as `interrupted` or `worker-exited`.
    #[default]
    Never,
    /// Yes, at least once, at most three attempts in all.
    Auto,
}

/// What happens to a waiting turn when one before it in the session was interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum AfterFailure {
    /// It is held until `session.resume`.
    #[default]
    Hold,
    /// It runs all the same.
    Run,
}

/// What happens to a question of the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnQuestion {
    /// It waits for an answer until its deadline.
    Wait,
    /// It is denied at once.
    Deny,
}
