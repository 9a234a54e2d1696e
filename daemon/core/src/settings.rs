//! What stays the same while the daemon runs.
//!
//! Owns the settings; must not know what is made of them.

use std::collections::BTreeMap;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::LeftFacts;

use crate::agent::Agent;

/// What stays the same while the daemon runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The agents by name.
    pub agents: BTreeMap<String, Agent>,
    /// Who answers when nobody is named.
    pub default_agent: Option<String>,
    /// Default working directory.
    pub home: String,
    /// Of this program.
    pub version: String,
    /// Of this process.
    pub pid: u32,
    /// Of this process.
    pub uid: u32,
    /// Of the store.
    pub epoch: String,
    /// The last number of the store when it was opened.
    pub last_seq: u64,
    /// Jobs of the store then, the unfinished ones left out.
    pub ended_jobs: u64,
    /// What the store held before and doesn't any more, in words, until somebody accepts it.
    pub losses: Vec<String>,
    /// What is wrong with the copies that are made by themselves, in words.
    pub backups_lack: Option<String>,
    /// Which schedules agentd has paused, in words; `None` when none is.
    pub schedules_paused: Option<String>,
    /// What the daemon before left, if it was cut off.
    pub before: Option<LeftFacts>,
    /// Runs without a daemon that the store has seen when it was opened.
    pub fallbacks: u64,
    /// How far the wall clock was ahead of the boot's at least, by what the store has of this boot.
    pub wall_ahead: Option<i64>,
    /// Is this the daemon, or a run without one?
    pub served: Served,
    /// Does its socket outlive it?
    pub socket: Socket,
    /// Is it a worker of another agentd?
    pub nested: bool,
    /// In how many runs of others it runs: a run without a daemon knows nobody's jobs but its own.
    pub around: usize,
    /// Processes at most.
    pub max_workers: usize,
    /// Bytes that spares nobody configured may take together; without it, what `limits` says.
    pub spare_memory: Option<u64>,
    /// Makes restart delays of several daemons differ.
    pub seed: u64,
    /// What was looked for, for the error when no agent is there.
    pub looked_for: String,
}

impl Settings {
    /// Takes what is said of an agent now: the revision of its configuration is the one that it had.
    pub(crate) fn put_agent(&mut self, mut agent: Agent) {
        let known = self.agents.get(&agent.name);
        agent.revision = known.map_or(0, |known| known.revision);
        self.agents.insert(agent.name.clone(), agent);
    }
}

/// Which kind of process this is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Served {
    /// The daemon.
    Daemon,
    /// One run, because there was no daemon.
    OneShot {
        /// Why there was none, as the client found.
        reason: Option<String>,
    },
}

/// What becomes of the socket when the daemon goes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Socket {
    /// It goes with it: whoever connects is told.
    Ours,
    /// It stays: whoever connects waits for the next daemon.
    Stays,
}

impl Served {
    /// The refusal of what only the daemon does, which may run without an answer.
    pub(crate) fn needs_daemon(&self, error: &str) -> Rejected {
        let start = "`agentctl start` starts the daemon";
        let hint = match self {
            Self::OneShot {
                reason: Some(reason),
            } => format!("{reason}; `agentctl status` says how the daemon is, {start}"),
            Self::OneShot { reason: None } | Self::Daemon => start.to_owned(),
        };
        Rejected::new(Code::NeedsDaemon, error).hint(hint)
    }

    /// As it stands on the wire.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::OneShot { .. } => "oneshot",
        }
    }
}
