//! What `status` answers.
//!
//! Owns its members. Must not know where the numbers come from.

use serde::{Deserialize, Serialize};

/// `status`'s answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct StatusAnswer {
    pub ok: bool,
    pub details: String,
    pub state: DaemonState,
    pub daemon: DaemonFacts,
    pub rpc: RpcFacts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Vec<WorkerRow>>,
    pub store: StoreFacts,
    pub questions: u64,
    /// A worker only: can its sessions be reopened?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<bool>,
}

/// Of the daemon as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum DaemonState {
    Ready,
    Degraded,
    Draining,
}

/// The process.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct DaemonFacts {
    pub version: String,
    pub pid: u32,
    pub uptime_s: u64,
    pub epoch: String,
    pub rss_bytes: Option<u64>,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct RpcFacts {
    /// Does at least one worker live?
    pub live: bool,
    pub in_flight: u64,
    pub sends: u64,
    pub failures: u64,
    pub fallbacks: u64,
    pub restarts: u64,
    pub p50_ms: Option<u64>,
    pub p95_ms: Option<u64>,
}

/// One process slot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct WorkerRow {
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
}

/// Of a process slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct StoreFacts {
    pub jobs: u64,
    pub events: u64,
    pub bytes: u64,
    pub wal_bytes: u64,
}
