//! What `hello` answers.
//!
//! Owns its members. Must not know what is negotiated with them.

use serde::{Deserialize, Serialize};

/// `hello`'s answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct HelloAnswer {
    pub ok: bool,
    pub server: String,
    pub version: String,
    pub protocol: u64,
    pub epoch: String,
    pub pid: u32,
    pub uid: u32,
    pub capabilities: Vec<String>,
    pub limits: HelloLimits,
    /// `daemon` or `oneshot`; not said by versions that don't know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_by: Option<String>,
}

/// The limits a client may want to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct HelloLimits {
    pub line_in: usize,
    pub line_out: usize,
    pub in_flight: usize,
}
