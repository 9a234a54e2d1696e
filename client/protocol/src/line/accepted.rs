//! The first line of a job.

use serde::{Deserialize, Serialize};

use crate::envelope::Ignored;
use crate::ids::JobId;
use crate::routed::Routed;

/// `accepted`: the send survives power loss from here on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 4 documents each")]
pub struct Accepted {
    pub job: JobId,
    pub session: String,
    pub agent: String,
    #[serde(default, skip_serializing)]
    pub seq: Option<u64>,
    #[serde(default, skip_serializing)]
    pub replayed: bool,
    #[serde(default)]
    pub ignored: Vec<Ignored>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// Does the daemon start no turns at the moment?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drained: bool,
    /// Was there no session of the name that it gave, so that it made one?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
    /// Why it has this agent, where the routes were asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed: Option<Box<Routed>>,
}
