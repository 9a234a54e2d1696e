//! The requests about the daemon itself.
//!
//! Owns their fields. Must not know what the daemon does then.

use serde::{Deserialize, Serialize};

/// `hello`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The caller's name, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The caller's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The protocol it speaks; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u64>,
    /// Is somebody here who answers questions?
    #[serde(default)]
    pub answers: bool,
}

/// `status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// List the workers, too.
    #[serde(default = "yes")]
    pub workers: bool,
}

/// `restart_worker`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RestartWorker {
    /// All processes of an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The process of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Don't wait for running turns.
    #[serde(default)]
    pub now: bool,
}

/// `drain`.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Drain {
    /// Seconds to wait for running turns; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<f64>,
    /// Lasts until nothing more can be asked over the connection, unless that asked for a stop, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub while_connected: bool,
}

/// `daemon.stop`.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct DaemonStop {
    /// Seconds that running turns get; 30 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<f64>,
    /// Another daemon follows at once: clients wait for it.
    #[serde(default)]
    pub restart: bool,
}

/// `log_level`; without a level it only asks.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct LogLevel {
    /// A level, or directives as in `info,agentd_daemon::store=debug`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

const fn yes() -> bool {
    true
}
