//! The requests about the daemon itself.
//!
//! Owns their fields. Must not know what the daemon does then.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::check::check_seconds;
use crate::envelope::{Checked, Rejected};

/// `hello`.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Hello {
    /// The caller's name, for the log.
    pub client: Option<String>,
    /// The caller's version.
    pub version: Option<String>,
    /// The protocol it speaks; 1 when absent.
    pub protocol: Option<u64>,
    /// Is somebody here who answers questions?
    #[serde(default)]
    pub answers: bool,
}

/// `status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// List the workers, too.
    #[serde(default = "yes")]
    pub workers: bool,
}

/// `restart_worker`.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RestartWorker {
    /// All processes of an agent.
    pub agent: Option<String>,
    /// The process of a session.
    pub session: Option<String>,
    /// Don't wait for running turns.
    #[serde(default)]
    pub now: bool,
}

/// `drain`.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drain {
    /// Seconds to wait for running turns; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<f64>,
    /// Lasts until nothing more can be asked over the connection, unless that asked for a stop, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub while_connected: bool,
}

impl Checked for Drain {
    fn check(&self) -> Result<(), Rejected> {
        check_seconds("deadline", self.deadline)
    }
}

/// `daemon.stop`.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonStop {
    /// Seconds that running turns get; 30 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<f64>,
    /// Another daemon follows at once: clients wait for it.
    #[serde(default)]
    pub restart: bool,
}

impl Checked for DaemonStop {
    fn check(&self) -> Result<(), Rejected> {
        check_seconds("deadline", self.deadline)
    }
}

/// `log_level`; without a level it only asks.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLevel {
    /// A level, or directives as in `info,agentd_daemon::store=debug`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

const fn yes() -> bool {
    true
}
