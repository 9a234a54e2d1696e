//! What the core asks of the store, and its answers.
//!
//! Owns what is durable and in which portions. Must not know SQL, files or threads.

use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::routed::Routed;
use agentd_protocol::{Body, Code, JobId};

use crate::attached::Content;
use crate::ids::{Generation, Now, WorkerId};
use crate::mcp::{McpServers, Reserving};
use crate::terms::{Terms, Unreadable};

mod asked;
mod schedules;

pub use asked::{
    BackupPlan, JobFilter, Keyed, Loaded, LogLine, Position, Query, SessionFilter, SessionLife,
    SessionOrder, TextPiece,
};
pub use schedules::{Fired, NextDue, Passed, ScheduleWrite};

/// Does somebody wait for a commit?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Yes: commit as soon as the disk allows.
    Waited,
    /// No: it may ride on the next commit, at most 1 s later.
    Lazy,
}

/// One change. All writes of a commit happen together or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// A new job: one row that is its `accepted` event. Answered by [`Written::Accepted`] or
    /// [`Written::Duplicate`].
    Accept(Arc<NewJob>),
    /// The *running* mark, before the turn's first byte goes to a worker; with it the `running`
    /// event. Answered by [`Written::Started`].
    Start {
        /// Which job.
        job: JobId,
        /// On which slot.
        worker: WorkerId,
        /// In which of its spawns.
        generation: Generation,
        /// 1, 2, 3.
        attempt: u32,
        /// The `running` line.
        line: Body,
    },
    /// A marked job whose first byte was not written, or that may run again, waits again.
    Requeue {
        /// Which job.
        job: JobId,
        /// How often it has run: 0 when its first byte was never written.
        attempt: u32,
    },
    /// The *cancelled* mark of an unfinished job: after a crash it is not run again.
    Cancel {
        /// Which job.
        job: JobId,
    },
    /// A numbered event of a job. Answered by [`Written::Numbered`].
    Event {
        /// Whose.
        job: JobId,
        /// The line.
        line: Body,
    },
    /// A piece of the text of a turn in flight, so that it survives a crash.
    Text {
        /// Whose.
        job: JobId,
        /// Message number within the turn.
        message: u32,
        /// Text or thinking.
        kind: TextKind,
        /// Bytes before it.
        offset: u64,
        /// The piece.
        text: String,
    },
    /// The job's end. Answered by [`Written::Numbered`].
    Finish {
        /// Which job.
        job: JobId,
        /// How.
        end: End,
        /// The final line.
        line: Body,
        /// What takes the place of its pieces of text, one per message and kind; without it they
        /// stay.
        texts: Option<Vec<MessageText>>,
    },
    /// Somebody is told of a job's end: in the commit of its [`Write::Finish`], behind it.
    Callback {
        /// Which.
        job: JobId,
        /// Where to.
        url: String,
        /// With the text?
        result: bool,
    },
    /// A delivery goes out again now. Answered by [`Written::Webhook`], without an id if there is
    /// no such delivery.
    Replay {
        /// Its id.
        webhook: String,
    },
    /// A delivery that tells nothing. Answered by [`Written::Webhook`].
    TestCallback {
        /// Where to.
        url: String,
    },
    /// A change of a schedule. Answered by [`Written::Schedule`], without a row if there is none.
    Schedule(Box<ScheduleWrite>),
    /// A waiting job is held, or isn't any more.
    Hold {
        /// Which.
        job: JobId,
        /// Does it wait for `session.resume`?
        held: bool,
    },
    /// A session without a turn. Answered by [`Written::Opened`].
    Open(Box<NewSession>),
    /// A session that has no unfinished jobs is forgotten: its name is free again, its jobs stay.
    Close {
        /// Which.
        session: String,
    },
    /// A session that has no unfinished jobs gets another name. Answered by [`Written::Opened`]; by
    /// [`Written::Done`] when there is no such session.
    Rename {
        /// Which session.
        session: String,
        /// Its name from now on.
        to: String,
    },
    /// What a session is called in lists. Answered by [`Written::Opened`]; by [`Written::Done`] when
    /// there is no such session.
    Title {
        /// Which session.
        session: String,
        /// Its title; `None` when it has none of its own any more.
        title: Option<String>,
    },
    /// The model for turns of a session accepted from now on.
    Model {
        /// Which session.
        session: String,
        /// What they are pinned to.
        pins: Pins,
    },
    /// The agent's own id of a session.
    Native {
        /// Which session.
        session: String,
        /// Its id in the agent's terms; `None` when the agent has not got it any more.
        native: Option<String>,
    },
    /// A session's turns so far are gone from its agent's memory.
    Lost {
        /// Which session.
        session: String,
    },
    /// This instance has the session open no more.
    Release {
        /// Which session.
        session: String,
    },
}

/// Model, provider, thinking level and mode; what is `None` is the agent's own.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pins {
    /// The model provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The thinking level.
    pub thinking: Option<String>,
    /// The agent's own way of working; no send names one.
    pub mode: Option<String>,
}

/// A session to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewSession {
    /// Its name; the store makes one when absent.
    pub name: Option<String>,
    /// Whose it is.
    pub agent: String,
    /// Its working directory.
    pub cwd: String,
    /// Where that leads, if it is elsewhere.
    pub real_cwd: Option<String>,
    /// Its tool restriction, as a JSON array.
    pub toolsets: Option<String>,
    /// What its agent is told before the conversation.
    pub system: Option<String>,
    /// What that has besides its own.
    pub mcp_servers: McpServers,
    /// Where it begins with what another one has.
    pub fork: Option<Box<Fork>>,
    /// Wall clock, milliseconds since 1970.
    pub at: i64,
}

/// What a session has from the one that it is forked from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fork {
    /// That one's name: it has its title, too.
    pub from: String,
    /// The agent's own id of that one.
    pub native: String,
    /// Turns that the agent remembers.
    pub turns: u64,
    /// What its turns are pinned to.
    pub pins: Pins,
}

/// A time in the future, by two clocks: which one counts depends on whether the machine was
/// restarted since.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Due {
    /// Milliseconds since 1970; may jump.
    pub wall_ms: i64,
    /// Milliseconds since this boot, suspend included; `None` when it was written in another boot.
    pub boot_ms: Option<u64>,
}

impl Due {
    /// `wait` from now.
    #[must_use]
    pub fn after(now: Now, wait: Duration) -> Self {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Self {
            wall_ms: now
                .wall_ms
                .saturating_add(i64::try_from(wait).unwrap_or(i64::MAX)),
            boot_ms: Some(now.boot_ms.saturating_add(wait)),
        }
    }

    /// A time by the wall clock, as it stands now.
    #[must_use]
    pub fn at_wall(now: Now, wall_ms: i64) -> Self {
        let wait = u64::try_from(wall_ms.saturating_sub(now.wall_ms)).unwrap_or(0);
        Self {
            wall_ms,
            boot_ms: Some(now.boot_ms.saturating_add(wait)),
        }
    }

    /// On the clock of this boot. Of another boot only the wall clock is left to go by.
    #[must_use]
    pub fn boot_ms(self, now: Now) -> u64 {
        self.boot_ms
            .or(Self::at_wall(now, self.wall_ms).boot_ms)
            .unwrap_or(0)
    }
}

/// A job to be accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewJob {
    /// The session, or `None` for a new unnamed one: then the store names it `s` and the job's
    /// number, or the next free name.
    pub session: Option<String>,
    /// The session's fixed facts: inserted when the session isn't there yet.
    pub agent: String,
    /// Working directory of the session.
    pub cwd: String,
    /// Where that leads, if it is elsewhere.
    pub real_cwd: Option<String>,
    /// Tool restriction of the session, as a JSON array.
    pub toolsets: Option<String>,
    /// What the session's agent is told from now on before the conversation; `None` leaves it as it is.
    pub system: Option<Arc<str>>,
    /// What that has besides its own from now on, where that is something else.
    pub reserves: Option<Box<Reserving>>,
    /// The send as JSON, with everything resolved that acceptance resolves.
    pub request: String,
    /// The contents of its attachments, in the order in which the request names them.
    pub contents: Vec<Content>,
    /// At most one job has it.
    pub key: Option<String>,
    /// What the key's hash covers.
    pub hashed: String,
    /// When waiting ends.
    pub expires: Due,
    /// Not to be started before.
    pub start: Option<Due>,
    /// Free labels, a JSON object.
    pub labels: Option<String>,
    /// From inside whose worker it came.
    pub parent: Option<JobId>,
    /// The due time of a schedule that it is for.
    pub fired: Option<Arc<Fired>>,
    /// The *running* mark, when an idle worker was there at once.
    pub running: Option<(WorkerId, Generation)>,
    /// What its session's turns are pinned to from this one on, where that is something else.
    pub repins: Option<Box<Pins>>,
    /// Wall clock of the acceptance, milliseconds since 1970.
    pub at: i64,
}

/// Text or thinking.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TextKind {
    /// The answer.
    Text,
    /// What the model thought.
    Thinking,
}

/// One message's whole text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageText {
    /// Message number within the turn.
    pub message: u32,
    /// Text or thinking.
    pub kind: TextKind,
    /// All of it.
    pub text: String,
}

/// How a job ended, as the store sorts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// `message_end`, not cancelled.
    Completed,
    /// `message_end` with `cancelled`.
    Cancelled,
    /// `error`.
    Failed,
    /// `error` `interrupted` or `worker-exited`: what waits behind it is held.
    Interrupted,
}

/// How a commit ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored {
    /// It is durable. One answer per write, in order.
    Committed(Vec<Written>),
    /// The key of this write belongs to a job with another hash; nothing was written.
    Conflict {
        /// Index of the write.
        item: usize,
        /// The job that has the key.
        job: JobId,
    },
    /// The session of this write is open in a living instance; nothing was written.
    Leased {
        /// Index of the write.
        item: usize,
        /// Which instance.
        instance: String,
        /// Its process.
        pid: u32,
    },
    /// The name that a session or schedule is to have is taken, or the one to be closed has unfinished jobs;
    /// nothing was written.
    Taken,
    /// The schedule of this write is another one than it was: its due time is over, or somebody
    /// changed it; nothing was written.
    Superseded,
    /// The session of this write was open in an instance that is dead and not recovered yet;
    /// nothing was written.
    Orphaned {
        /// Which instance.
        instance: String,
    },
    /// Nothing was written.
    Failed {
        /// `disk-full` or `store-failed`.
        code: Code,
        /// What the system said.
        why: String,
    },
}

/// What became of one write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Written {
    /// A new job.
    Accepted {
        /// Its number.
        job: JobId,
        /// Of its `accepted`.
        seq: u64,
        /// Its session, named by now.
        session: String,
    },
    /// A session has this name from now on.
    Opened {
        /// Its name.
        session: String,
    },
    /// The key and hash are those of this job; nothing was inserted.
    Duplicate {
        /// Which.
        job: JobId,
        /// Its session.
        session: String,
    },
    /// The event's number.
    Numbered {
        /// Of the event.
        seq: u64,
    },
    /// A job is marked as running.
    Started {
        /// Of its `running` event.
        seq: u64,
        /// The send as it was accepted: what its worker is told isn't in memory while it waits.
        request: String,
    },
    /// A delivery.
    Webhook {
        /// Its id, if there is one.
        id: Option<String>,
    },
    /// A schedule as it is now, or was when it was removed.
    Schedule {
        /// A [`agentd_protocol::schedule::ScheduleRow`] as JSON.
        row: Option<String>,
    },
    /// Written; it has no number.
    Done,
}

/// A stored session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRow {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub agent: String,
    /// Its working directory.
    pub cwd: String,
    /// Where that led when it was made, if it was elsewhere.
    pub real_cwd: Option<String>,
    /// Its tool restriction, as a JSON array.
    pub toolsets: Option<String>,
    /// What its agent is told before the conversation.
    pub system: Option<String>,
    /// What that has besides its own.
    pub mcp_servers: McpServers,
    /// Did a user name it?
    pub named: bool,
    /// The agent's own id.
    pub native: Option<String>,
    /// The agent's own id of the session that it begins as a copy of, until it has one of its own.
    pub forks: Option<String>,
    /// Turns that ran, successful or not.
    pub turns: u64,
    /// The model set for it.
    pub pins: Pins,
    /// Did it ever lose turns?
    pub lost: bool,
}

/// A stored job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRow {
    /// Its number.
    pub job: JobId,
    /// Of its `accepted`.
    pub seq: u64,
    /// Its session.
    pub session: String,
    /// Its agent.
    pub agent: String,
    /// Was it marked as cancelled?
    pub cancelled: bool,
    /// How far it is.
    pub state: JobState,
    /// Why it has its agent, where the routes were asked.
    pub routed: Option<Box<Routed>>,
}

/// How far a stored job is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Waits.
    Queued {
        /// When waiting ends.
        expires: Due,
        /// Not to be started before.
        start: Option<Due>,
        /// Does it wait for `session.resume`?
        held: bool,
        /// How often it was started.
        attempt: u32,
    },
    /// Was started and has no end.
    Running {
        /// How often it was started.
        attempt: u32,
    },
    /// Has its final line.
    Finished {
        /// Of the final line.
        seq: u64,
        /// The final line.
        line: Body,
    },
}

/// What a dead instance left behind, ours from now on.
#[derive(Clone, PartialEq, Debug)]
pub struct Recovered {
    /// The dead instance.
    pub instance: String,
    /// Its sessions.
    pub sessions: Vec<SessionRow>,
    /// Its queued and running jobs, with what the running ones had said.
    pub jobs: Vec<LeftJob>,
    /// Other instances that have sessions of its jobs open: those jobs stay behind until then.
    pub holders: Vec<String>,
    /// The last number that was given out, whoever did: its last ones nobody has told.
    pub last_seq: u64,
}

/// A job that a dead instance left unfinished.
#[derive(Clone, PartialEq, Debug)]
pub struct LeftJob {
    /// How far it was.
    pub row: JobRow,
    /// What it goes by.
    pub terms: Result<Arc<Terms>, Unreadable>,
    /// What it had said.
    pub so_far: SoFar,
}

/// What a turn had said when its daemon died.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SoFar {
    /// Its text.
    pub texts: Vec<MessageText>,
    /// Its numbered events, ascending.
    pub events: Vec<(u64, Body)>,
}
