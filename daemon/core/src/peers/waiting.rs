//! Requests whose answers wait for something to be done.
//!
//! Owns the data of each kind. What they wait for is in the rules.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::Ignored;
use agentd_protocol::{Code, Id, JobId};

use crate::ids::{ConnId, Process, SessionId, TurnId, WorkerId};
use crate::pool::fit::Fit;
use crate::store::Pins;

/// An `abort` that waits until it is known which of its jobs exist, and until the marks of those are
/// durable: what was aborted must not run after a crash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Aborting {
    /// Who hears of it; `None` when that one has gone. The marks are written all the same.
    pub(crate) asker: Option<(ConnId, Option<Id>)>,
    pub(crate) pending: BTreeSet<TurnId>,
    pub(crate) jobs: Vec<JobId>,
    /// For so many of them the mark was asked for.
    pub(crate) asked: usize,
    /// Commits of marks that the store has not answered.
    pub(crate) outstanding: usize,
    /// What the store said to one that it did not take.
    pub(crate) failed: Option<(Code, String)>,
}

impl Aborting {
    /// Does it wait for nothing any more?
    pub(crate) fn is_done(&self) -> bool {
        self.pending.is_empty()
            && self.outstanding == 0
            && (self.asked == self.jobs.len() || self.failed.is_some())
    }
}

/// A `dispatch` whose commit is outstanding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dispatching {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    /// Has each of its jobs a key?
    pub(crate) keyed: bool,
    pub(crate) ignored: Vec<Vec<Ignored>>,
    /// The schedule whose due time it is for.
    pub(crate) schedule: Option<u64>,
}

/// Keys of requests, each with what its request is compared by.
pub(crate) type Keys = VecDeque<(String, String)>;

/// A `dispatch` that is refused, unless the store knows all its keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Redispatched {
    pub(crate) dispatching: Dispatching,
    /// Which of its jobs was refused.
    pub(crate) item: usize,
    pub(crate) rejected: Rejected,
    /// Nobody has asked for these yet.
    pub(crate) keys: Keys,
    /// Who has those before them.
    pub(crate) found: Vec<JobId>,
}

impl Redispatched {
    /// Has each of its jobs a key, and is it not already known who has them?
    pub(crate) fn may_be_known(&self) -> bool {
        self.dispatching.keyed && self.rejected.code != Code::IdempotencyConflict
    }
}

/// A `restart_worker` that waits for its processes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RestartWait {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) slots: BTreeSet<WorkerId>,
}

/// What is asked of an agent itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    Models,
    Commands,
}

impl Wanted {
    /// For sentences.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Commands => "commands",
        }
    }
}

/// A `models` or `commands` that waits for an agent's answer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ModelListing {
    pub(crate) number: u64,
    pub(crate) wanted: Wanted,
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) agent: String,
    /// That whose process is asked, if it has one.
    pub(crate) session: Option<SessionId>,
    /// What its next turn asks for.
    pub(crate) pins: Pins,
    /// What a process is started with if none lives.
    pub(crate) fit: Fit,
    /// So many models were told on pages before.
    pub(crate) after: u64,
    /// Until then.
    pub(crate) until: Duration,
    /// The process that was asked.
    pub(crate) asked: Option<Process>,
    /// The one that was started for it.
    pub(crate) started: Option<WorkerId>,
}
