//! What waits for an answer of the store.
//!
//! Owns the data; what the answers mean is in `rules/commit_results.rs`.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::{Id, JobId, RequestKind};

use crate::ids::{ConnId, FollowId, Process, QuestionId, SessionId, TurnId};
use crate::jobs::job::{Batch, Waiter};
use crate::peers::lookup::Asked;
use crate::peers::waiting::Redispatched;
use crate::store::{Pins, TextPiece};
use crate::worker::Reply;

/// What waits for an answer of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Awaiting {
    /// Nothing.
    Nothing,
    /// One send, or all of a `dispatch`, for their acceptance.
    Accept(Batch),
    /// A turn, for its *running* mark.
    Start(TurnId),
    /// A numbered event of a job, and the process that it came from, if it came from one.
    Event { turn: TurnId, of: Option<Process> },
    /// A piece of a turn's text.
    Text { turn: TurnId, bytes: usize },
    /// A job's final line, and the notes of those that it holds back.
    Finish { turn: TurnId, held: Vec<TurnId> },
    /// An `abort`, for some marks of the jobs it cancelled.
    Aborted(u64),
    /// Requests on sessions that aren't in memory.
    Sessions(String),
    /// An answer to a question, for the line that says so.
    Answered(Box<Answered>),
    /// A `steer` to a job that isn't in memory.
    Steer {
        conn: ConnId,
        id: Option<Id>,
        job: JobId,
    },
    /// An `abort` of the send with a key.
    AbortUnder { conn: ConnId, id: Option<Id> },
    /// A request that changes a session.
    Changed {
        conn: ConnId,
        id: Option<Id>,
        changed: Changed,
    },
    /// A request that sends a delivery.
    Delivery {
        conn: ConnId,
        id: Option<Id>,
        of: Delivering,
    },
    /// A request that changes a schedule.
    Schedule {
        conn: ConnId,
        id: Option<Id>,
        kind: RequestKind,
    },
    /// A request for a list.
    Asked {
        conn: ConnId,
        id: Option<Id>,
        asked: Asked,
    },
    /// A send that is refused unless its key is known.
    Key { waiter: Waiter, rejected: Rejected },
    /// A `dispatch` that is refused unless its keys are known.
    Redispatched(Box<Redispatched>),
    /// A `collect`, for jobs that aren't in memory.
    Collect(u64),
    /// A send whose key another job has.
    Replay { waiter: Waiter, job: JobId },
    /// A follower that is behind.
    Refill {
        conn: ConnId,
        follow: FollowId,
        texts: Vec<TextPiece>,
        /// Was the job over when the store was asked? Then nothing came after the answer.
        over: bool,
    },
    /// A subscription, for a page of the log.
    Log { conn: ConnId, number: u64 },
}

/// An answer whose `question_closed` is being committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answered {
    pub(crate) turn: TurnId,
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) question: QuestionId,
    pub(crate) process: Process,
    pub(crate) native: String,
    pub(crate) reply: Reply,
}

/// What a commit does to a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Changed {
    /// It is made.
    New { agent: String, cwd: String },
    /// It is made as a copy of another one.
    Forked {
        from: String,
        agent: String,
        cwd: String,
    },
    /// It is forgotten.
    Closed { session: String },
    /// It has another name.
    Renamed { session: SessionId, was: String },
    /// It is called so in lists.
    Titled {
        session: String,
        title: Option<String>,
    },
    /// Its held turns wait like others.
    Resumed { session: String, jobs: Vec<JobId> },
    /// Its turns get another model.
    Model { session: String, pins: Pins },
}

/// Which request sends a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Delivering {
    /// Again.
    Replay { webhook: String },
    /// For a try.
    Test,
}
