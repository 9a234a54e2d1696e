//! Names of things inside the daemon. Plain numbers; nothing here outlives the process, except
//! what `agentd-protocol` names.

use std::time::Duration;

use agentd_protocol::JobId;

/// One connection, numbered by the shell in the order of accepting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// One process slot. It keeps its number when its process is replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub u64);

/// Which spawn of a slot. What arrives with an older one is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// One turn handed to a worker: the name by which core and adapter speak of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TurnId(pub u64);

/// What an answer of the store refers to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// The clocks, read by the owner for each event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now {
    /// Since the daemon started; never goes back, counts suspend where the system's clock does.
    pub mono: Duration,
    /// Milliseconds since the machine was started, suspend included; never goes back.
    pub boot_ms: u64,
    /// Milliseconds since 1970; may jump.
    pub wall_ms: i64,
}

/// A resident session, by a number of this process: an unnamed one has no name before its commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct SessionId(pub(crate) u64);

/// One place in one job's lines; a connection may have several in the same job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FollowId(pub(crate) u64);

/// A question by its place among its job's, written `"j41-q1"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct QuestionId {
    pub(crate) job: JobId,
    pub(crate) number: u64,
}

impl QuestionId {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (job, number) = text.split_once("-q")?;
        let id = Self {
            job: job.parse().ok()?,
            number: number.parse().ok()?,
        };
        (id.to_string() == text).then_some(id)
    }
}

impl std::fmt::Display for QuestionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-q{}", self.job, self.number)
    }
}

/// A slot's process: both numbers, so that a replaced one is never meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Process {
    pub(crate) worker: WorkerId,
    pub(crate) generation: Generation,
}
