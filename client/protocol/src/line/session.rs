//! What becomes of a session, for subscribers.
//!
//! Owns the names of the changes. Must not know when they happen.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::rows::SessionPhase;

/// `session_changed`: a session was made, or is otherwise than it was. It has no number.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 6 documents each")]
pub struct SessionChanged {
    /// Which; none of `missed`.
    pub session: Option<String>,
    /// What is otherwise.
    pub change: SessionChange,
    pub agent: Option<String>,
    pub cwd: Option<String>,
    /// Whose copy it is.
    pub from: Option<String>,
    pub title: Option<String>,
    /// As it was called.
    pub was: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub thinking: Option<String>,
    pub mode: Option<String>,
    pub state: Option<SessionPhase>,
}

/// What is otherwise with a session.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SessionChange {
    /// It is there: by `session.new`, `session.fork`, or its first send.
    Made,
    /// It has another title.
    Titled,
    /// It has another name.
    Renamed,
    /// Its turns from now on have another model.
    Model,
    /// It does something else.
    State,
    /// Its name is free.
    Closed,
    /// The reader was behind: what changed meanwhile isn't told.
    #[default]
    Missed,
    /// Of a later version.
    #[serde(other)]
    Other,
}
