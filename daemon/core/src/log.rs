//! What the log is told: what became of jobs and processes, by their names and numbers.
//!
//! Owns which events are worth a line, their words and their weight. There is no place for a
//! prompt, an answer, a tool's input or what a process printed: those are nobody's but the user's.

use std::fmt;
use std::panic::Location;

use agentd_protocol::line::Stop;
use agentd_protocol::{Code, JobId};

use crate::ids::{Generation, SessionId, Token, TurnId, WorkerId};
use crate::worker::Exit;

/// How much an entry matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    /// Something is broken, or was lost.
    Warning,
    /// What happens anyway.
    Info,
    /// For whoever looks for a fault.
    Debug,
}

/// What is known by name of what happened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct About {
    /// The job.
    pub job: Option<JobId>,
    /// Its session.
    pub session: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The process slot, and which of its processes.
    pub worker: Option<(WorkerId, Generation)>,
}

/// One line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Of what.
    pub about: About,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A job is on the disk.
    Accepted,
    /// Its first byte goes to a worker.
    Started {
        /// 1, 2, 3.
        attempt: u32,
        /// Milliseconds it waited.
        queued_ms: u64,
    },
    /// It has its final line.
    Ended {
        /// How, when it didn't fail.
        stop: Option<Stop>,
        /// Why it failed.
        code: Option<Code>,
        /// Milliseconds it ran.
        took_ms: u64,
    },
    /// A process said that it is up.
    Ready,
    /// A process is gone.
    Gone {
        /// How.
        exit: Exit,
        /// Did anybody want that?
        asked: bool,
    },
    /// No process came of a spawn.
    NotStarted {
        /// What the system said.
        error: String,
    },
    /// A process doesn't answer, or takes nothing, and is ended.
    Unresponsive,
    /// Something is named that isn't there, though it must be: a mistake of the core, which goes on
    /// without it.
    Dangling {
        /// Which.
        id: Dangling,
        /// Who named it.
        at: &'static Location<'static>,
    },
}

/// A name of something that isn't there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dangling {
    /// A job, by the core's own key.
    Job(u64),
    /// A session, likewise.
    Session(u64),
    /// A process slot.
    Worker(u64),
    /// A request that waits.
    Request(u64),
    /// What waits for an answer of the store.
    Answer(u64),
}

impl From<Token> for Dangling {
    fn from(token: Token) -> Self {
        Self::Answer(token.0)
    }
}

impl From<TurnId> for Dangling {
    fn from(turn: TurnId) -> Self {
        Self::Job(turn.0)
    }
}

impl From<SessionId> for Dangling {
    fn from(session: SessionId) -> Self {
        Self::Session(session.0)
    }
}

impl From<WorkerId> for Dangling {
    fn from(worker: WorkerId) -> Self {
        Self::Worker(worker.0)
    }
}

impl fmt::Display for Dangling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(key) => write!(f, "job with the key {key}"),
            Self::Session(key) => write!(f, "session with the key {key}"),
            Self::Worker(worker) => write!(f, "worker {worker}"),
            Self::Request(number) => write!(f, "request with the number {number}"),
            Self::Answer(token) => write!(f, "question to the store with the number {token}"),
        }
    }
}

impl Entry {
    /// How much it matters.
    #[must_use]
    pub const fn weight(&self) -> Weight {
        match self.what {
            What::Accepted | What::Ready => Weight::Debug,
            What::Started { .. } | What::Gone { asked: true, .. } => Weight::Info,
            What::Ended { code, .. } if code.is_none() => Weight::Info,
            What::Ended { .. }
            | What::Gone { .. }
            | What::NotStarted { .. }
            | What::Unresponsive
            | What::Dangling { .. } => Weight::Warning,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("job accepted"),
            Self::Started { attempt, queued_ms } => {
                write!(
                    f,
                    "job started after {queued_ms} ms of waiting, attempt {attempt}"
                )
            }
            Self::Ended {
                code: Some(code),
                took_ms,
                ..
            } => write!(f, "job failed after {took_ms} ms: {code}"),
            Self::Ended { stop, took_ms, .. } => {
                let how = match stop {
                    None | Some(Stop::EndTurn) => "done",
                    Some(Stop::MaxTokens) => "ended at its limit of tokens",
                    Some(Stop::MaxTurnRequests) => "ended at its limit of requests",
                    Some(Stop::Refusal) => "refused by the model",
                    Some(Stop::Cancelled) => "cancelled",
                };
                write!(f, "job {how} after {took_ms} ms")
            }
            Self::Ready => f.write_str("worker ready"),
            Self::Gone { exit, asked: true } => write!(f, "worker ended: it {exit}"),
            Self::Gone { exit, asked: false } => write!(f, "worker died: it {exit}"),
            Self::NotStarted { error } => write!(f, "worker could not be started: {error:?}"),
            Self::Unresponsive => f.write_str("worker does not answer and is ended"),
            Self::Dangling { id, at } => {
                write!(
                    f,
                    "a bug in agentd: there is no {id} (at {at}); please report it"
                )
            }
        }
    }
}
