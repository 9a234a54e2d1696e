//! What the store is asked, and what it answers.
//!
//! Owns the questions and how much one answer holds. Must not know SQL.

use agentd_protocol::sums::By;
use agentd_protocol::webhook::DeliveryState;
use agentd_protocol::work::JobPhase;
use agentd_protocol::{Body, JobId, rows};

use super::{JobRow, SessionRow, TextKind};

/// How often the store is copied by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupPlan {
    /// In seconds; 0 is never.
    pub every_s: u64,
    /// So many copies are kept.
    pub keep: u32,
}

/// A question to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query {
    /// Some sessions: answered by [`Loaded::Sessions`], unknown ones left out.
    Sessions {
        /// Their names.
        names: Vec<String>,
    },
    /// Some jobs, newest first. Answered by [`Loaded::JobList`].
    JobList {
        /// Which.
        filter: JobFilter,
        /// At most so many.
        limit: usize,
    },
    /// What ended turns used, newest first. Answered by [`Loaded::Line`].
    Usage {
        /// Accepted no earlier, milliseconds since 1970.
        since: Option<i64>,
        /// With a smaller number.
        before: Option<JobId>,
        /// Added up by this, if that is quick.
        by: Option<By>,
        /// Only in this session, a closed one, too, while no other one has its name.
        session: Option<String>,
    },
    /// Some deliveries, newest first. Answered by [`Loaded::Webhooks`].
    Webhooks {
        /// So far.
        state: Option<DeliveryState>,
        /// Only this one.
        webhook: Option<String>,
        /// Only those with a smaller place.
        before: Option<u64>,
        /// At most so many.
        limit: usize,
    },
    /// Schedules, in the order they were made. Answered by [`Loaded::Line`].
    Schedules {
        /// Only this one, by id or name.
        which: Option<String>,
        /// Only those with a larger number.
        after: u64,
        /// At most so many.
        limit: usize,
    },
    /// What became of a schedule's due times, newest first. Answered by [`Loaded::Line`].
    ScheduleRuns {
        /// By id or name.
        which: String,
        /// Only those with a smaller place.
        before: Option<u64>,
        /// At most so many.
        limit: usize,
    },
    /// Sessions, in the order they were made. Answered by [`Loaded::SessionList`].
    SessionList {
        /// Which.
        filter: SessionFilter,
        /// Only those with a larger place.
        after: u64,
        /// At most so many.
        limit: usize,
    },
    /// Turns with all these words in the prompt or the answer, newest first. Answered by
    /// [`Loaded::Line`].
    Search {
        /// In small letters.
        words: Vec<String>,
        /// Of one session.
        session: Option<String>,
        /// With a smaller number.
        before: Option<JobId>,
        /// At most so many.
        limit: usize,
    },
    /// The turns of a session, oldest first. Answered by [`Loaded::History`].
    History {
        /// Of which session.
        session: String,
        /// Only this one.
        job: Option<JobId>,
        /// Only those with a larger number.
        after: u64,
        /// At most so many.
        limit: usize,
        /// With what happened besides?
        events: bool,
    },
    /// A piece of one message. Answered by [`Loaded::Message`].
    Message {
        /// Of which session.
        session: String,
        /// Of which job.
        job: JobId,
        /// Which message of it.
        message: u32,
        /// Bytes before the piece.
        after: u64,
    },
    /// Numbered lines of all jobs in their order. Answered by [`Loaded::Log`].
    Log {
        /// Only larger numbers.
        after: u64,
        /// Of one session.
        session: Option<String>,
        /// Of some jobs.
        jobs: Option<Vec<JobId>>,
        /// No earlier job of that session has a line after that number.
        first: JobId,
        /// How far the texts of jobs are known whose final lines are not.
        texts: Vec<(JobId, Position)>,
    },
    /// A copy of the whole store. Answered by [`Loaded::Backup`], in its own time.
    Backup {
        /// Where to; a name with the time, beside the store, when absent.
        path: Option<String>,
        /// From now on by itself, in the directory `path`.
        plan: Option<BackupPlan>,
    },
    /// Everything stored. Answered by [`Loaded::Line`].
    Export {
        /// The `next` of the page before.
        after: u64,
        /// Of one session; answered by [`Loaded::Sessions`], without any, when there is none.
        session: Option<String>,
    },
    /// Who has a key? Answered by [`Loaded::Key`].
    Key {
        /// The key.
        key: String,
        /// What its hash would cover.
        hashed: String,
    },
    /// Was a question ever asked by a job that is kept? Answered by [`Loaded::Asked`].
    Asked {
        /// By which.
        job: JobId,
        /// Its name.
        question: String,
    },
    /// Some jobs: answered by [`Loaded::Jobs`], in the order asked, unknown ones left out.
    Jobs {
        /// Which.
        jobs: Vec<JobId>,
    },
    /// The numbered events of a job after a number (`accepted` and the final line left out), at
    /// most 256 KiB of them, and behind the last one a portion of its stored text: answered by
    /// [`Loaded::Events`].
    Events {
        /// Whose.
        job: JobId,
        /// Only larger numbers.
        after: u64,
        /// Where the text begins that is wanted, if it is.
        from: Option<Position>,
    },
}

/// A place in a turn's text: messages begun, and bytes of the last one. Of each message what was
/// thought comes before its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Position {
    /// Messages begun.
    pub messages: usize,
    /// Bytes of the last one's text.
    pub text: usize,
    /// Bytes of what was thought for it.
    pub thinking: usize,
}

/// A piece of one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextPiece {
    /// Message number within the turn.
    pub message: u32,
    /// Text or thinking.
    pub kind: TextKind,
    /// Bytes before it.
    pub at: usize,
    /// The piece; empty where a message is.
    pub text: String,
}

impl Query {
    /// Must the answer hold what was ordered before it, committed or not? The others are answered
    /// from what is committed, which is all that anybody was told.
    #[must_use]
    pub const fn waits_for_writes(&self) -> bool {
        matches!(
            self,
            Self::Sessions { .. } | Self::Key { .. } | Self::Backup { .. }
        )
    }

    /// Must the answer come after those of all commits that it holds? Then no line is told twice.
    #[must_use]
    pub const fn follows_commits(&self) -> bool {
        matches!(self, Self::Log { .. } | Self::Events { .. })
    }
}

/// Which sessions a list is of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SessionFilter {
    /// The one of this name, else the one that was closed last.
    pub name: Option<String>,
    /// Of one agent.
    pub agent: Option<String>,
    /// In this directory.
    pub cwd: Option<String>,
    /// Without an unfinished turn, and used no later, milliseconds since 1970.
    pub idle_since: Option<i64>,
    /// In which order.
    pub order: SessionOrder,
    /// Those that are there, or those that were.
    pub life: SessionLife,
}

/// Is a session there, or was it closed?
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SessionLife {
    /// There; of a name, else the one that was closed last.
    #[default]
    Open,
    /// Closed.
    Closed,
}

/// In which order sessions are listed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SessionOrder {
    /// As they were made.
    #[default]
    Made,
    /// The one that was used last first, without a second page.
    LastUsed,
}

/// Which jobs a list is of.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct JobFilter {
    /// Of one session.
    pub session: Option<String>,
    /// Of one agent.
    pub agent: Option<String>,
    /// So far.
    pub state: Option<JobPhase>,
    /// With a label of this key, and this value if there is one.
    pub label: Option<(String, Option<String>)>,
    /// Sent from inside this job's worker.
    pub parent: Option<JobId>,
    /// Accepted no earlier, milliseconds since 1970.
    pub since: Option<i64>,
    /// With a smaller number.
    pub before: Option<JobId>,
}

/// A numbered line of some job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// Its number.
    pub seq: u64,
    /// Whose.
    pub job: JobId,
    /// The line.
    pub body: Body,
    /// Of a final line: what is left of the job's text, which comes before it.
    pub texts: Vec<TextPiece>,
}

/// An answer of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Loaded {
    /// The sessions that exist.
    Sessions(Vec<SessionRow>),
    /// A page of jobs.
    JobList {
        /// Newest first.
        jobs: Vec<rows::JobRow>,
        /// Are there more?
        more: bool,
    },
    /// The line that answers the question, made where it was read: it is passed on as it is.
    Line(Body),
    /// A page of deliveries.
    Webhooks {
        /// Newest first, one JSON object each.
        deliveries: Vec<String>,
        /// Where the next page begins; `None` at the end.
        next: Option<u64>,
    },
    /// A page of sessions, as far as the store knows them: none of them works or waits.
    SessionList {
        /// Each with its place.
        sessions: Vec<(u64, rows::SessionRow)>,
        /// Are there more?
        more: bool,
    },
    /// A page of turns; `None` when there is no such session.
    History {
        /// Oldest first.
        turns: Option<Vec<rows::TurnRow>>,
        /// Are there more?
        more: bool,
    },
    /// A piece of a message, if there is such a message.
    Message(Option<rows::MessageRow>),
    /// A page of the log.
    Log {
        /// Ascending.
        lines: Vec<LogLine>,
        /// Does another page follow?
        more: bool,
        /// The highest number there is, of any job.
        last: u64,
        /// Everything after this number is there; what was before may have been pruned.
        oldest: u64,
        /// No earlier job of that session has a line after these.
        first: JobId,
        /// Behind the lines: a portion of the text of the job whose final line is the next one.
        portion: Option<(JobId, Vec<TextPiece>)>,
    },
    /// The copy is there.
    Backup {
        /// Where.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// Who has the key.
    Key(Keyed),
    /// Was it?
    Asked(bool),
    /// The jobs that exist.
    Jobs(Vec<JobRow>),
    /// A page of a job's events.
    Events {
        /// Number and line, ascending.
        events: Vec<(u64, Body)>,
        /// Does another page follow?
        more: bool,
        /// A portion of the job's text; only on the last page.
        texts: Vec<TextPiece>,
        /// Is that all of it?
        whole: bool,
    },
    /// What was asked for can't be done, now or later.
    Refused(String),
    /// It could not be read.
    Failed(String),
}

/// Who has an idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keyed {
    /// Nobody.
    Free,
    /// A job that is the same request.
    Same {
        /// Which.
        job: JobId,
    },
    /// A job that is another request.
    Other {
        /// Which.
        job: JobId,
    },
}
