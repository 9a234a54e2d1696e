//! What the daemon says of itself: the answers to `hello` and `status`.
//!
//! Owns their members. Must not know where the numbers come from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// `status`'s answer.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct StatusAnswer {
    pub ok: bool,
    pub details: String,
    pub state: DaemonState,
    pub daemon: DaemonFacts,
    pub rpc: RpcFacts,
    pub workers: Option<Vec<WorkerRow>>,
    pub store: StoreFacts,
    pub memory: Option<MemoryFacts>,
    pub spares: Option<SpareFacts>,
    pub questions: u64,
    /// A worker only: can its sessions be reopened?
    pub resumes: Option<bool>,
}

/// Of the daemon as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum DaemonState {
    Ready,
    Degraded,
    Draining,
}

/// The process.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct DaemonFacts {
    pub version: String,
    pub pid: u32,
    pub uptime_s: u64,
    pub epoch: String,
    #[serialize_always]
    pub rss_bytes: Option<u64>,
    pub open_files: Option<u64>,
    pub file_limit: Option<u64>,
    pub log: Option<LogFacts>,
    pub config: Option<ConfigFacts>,
    pub before: Option<LeftFacts>,
}

/// What the daemon before left running, if it ended without saying so.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftFacts {
    /// Turns that were interrupted.
    pub interrupted: u64,
    /// Turns that run again.
    pub again: u64,
}

impl std::fmt::Display for LeftFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { interrupted, again } = *self;
        f.write_str("the daemon before ended without saying so")?;
        let were = |n| if n == 1 { "turn was" } else { "turns were" };
        let mut so_far = ": ";
        if interrupted > 0 {
            let were = were(interrupted);
            write!(
                f,
                ": {interrupted} {were} interrupted (`agentctl jobs --state interrupted`)"
            )?;
            so_far = ", ";
        }
        match again {
            0 => Ok(()),
            1 => write!(f, "{so_far}1 turn runs again"),
            _ => write!(f, "{so_far}{again} turns run again"),
        }
    }
}

/// Which configuration counts.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConfigFacts {
    /// The path of `config.toml`.
    pub file: String,
    /// When the one that counts was read.
    pub since: String,
    /// Why the newest one does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What of it counts only when the daemon is started anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs_restart: Vec<String>,
}

/// How the daemon logs.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogFacts {
    /// Directives as in `info,agentd_daemon::store=debug`.
    pub level: String,
    /// `journal`, `stderr`, or the file's path.
    pub to: String,
}

/// Counters since the start.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct RpcFacts {
    /// Does at least one worker live?
    pub live: bool,
    pub in_flight: u64,
    pub sends: u64,
    pub failures: u64,
    pub fallbacks: u64,
    pub restarts: u64,
    /// Processes of agents that died unasked, never came up, or hung.
    #[serde(default)]
    pub crashes: u64,
    /// The last of them, latest first: their slots may be gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_crashes: Vec<CrashRow>,
    pub p50_ms: Option<u64>,
    pub p95_ms: Option<u64>,
    /// Turns that wait.
    #[serde(default)]
    pub queued: u64,
    /// Turns whose time to start has not come.
    #[serde(default)]
    pub scheduled: u64,
    /// Turns that ran to their end.
    #[serde(default)]
    pub turns: u64,
    /// Milliseconds they ran, in all.
    #[serde(default)]
    pub turns_ms: u64,
    /// Turns that began in a process that was there already.
    #[serde(default)]
    pub pool_hits: u64,
    /// Turns for which a process had to be started.
    #[serde(default)]
    pub pool_misses: u64,
    /// New jobs by what their client calls itself in `hello`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub clients: BTreeMap<String, u64>,
}

/// A process that died unasked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct CrashRow {
    pub at: String,
    pub worker: u64,
    pub agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub error: String,
}

/// One process slot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct WorkerRow {
    #[serde(default)]
    pub worker: u64,
    pub agent: String,
    pub session: Option<String>,
    pub state: WorkerState,
    pub pid: Option<u32>,
    pub generation: u64,
    pub restarts: u64,
    pub last_exit: Option<String>,
    pub last_error: Option<String>,
    pub uptime_s: u64,
    pub in_flight: u64,
    pub queued: u64,
    pub last_ok_at: Option<String>,
    /// Was it started before anybody asked for it, and not used yet?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spare: bool,
    #[serde(default)]
    pub live: bool,
    #[serde(default)]
    pub turns: u64,
    #[serde(default)]
    pub failures: u64,
    pub p50_ms: Option<u64>,
    pub p95_ms: Option<u64>,
}

/// Of a process slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum WorkerState {
    Starting,
    Idle,
    Busy,
    Settling,
    Backoff,
    Stopping,
    CrashLooped,
    Failed,
}

/// The store's size.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct StoreFacts {
    pub jobs: u64,
    #[serde(default)]
    pub open: u64,
    pub events: u64,
    pub bytes: u64,
    pub wal_bytes: u64,
}

/// Processes that were started before anybody asked for them, though none are configured.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpareFacts {
    /// How many there are.
    pub processes: u64,
    /// What they take together, as measured last, and may take.
    pub memory: Budget,
    /// Why there are none now, or not as many as agents are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
}

/// Memory that is held for others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryFacts {
    /// By turns that wait.
    pub queued: Budget,
    /// By requests that wait until their sessions are known.
    pub parked: Budget,
    /// By lines that their readers have not taken.
    #[serde(default)]
    pub unsent: Budget,
    /// By attachments that are not in the store yet.
    #[serde(default)]
    pub attached: Budget,
}

impl MemoryFacts {
    /// All of them, by their names.
    #[must_use]
    pub fn budgets(&self) -> Vec<(&'static str, Budget)> {
        vec![
            ("queued", self.queued),
            ("parked", self.parked),
            ("unsent", self.unsent),
            ("attached", self.attached),
        ]
    }
}

/// Bytes that are held, and how many may be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct Budget {
    pub bytes: u64,
    pub limit: u64,
}
