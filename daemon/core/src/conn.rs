//! One connection as the core sees it: what it asked, what it follows, how far behind it is.
//!
//! Owns windows and positions; must not know bytes or sockets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agentd_protocol::{Id, JobId};

use crate::event::Origin;
use crate::ids::{Token, TurnId};
use crate::job::Position;
use crate::limits::READER_QUEUE;

/// What a connection asked for and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Conn {
    pub(crate) origin: Origin,
    pub(crate) follows: BTreeMap<FollowId, Follow>,
    /// Pending sends of it.
    pub(crate) pending: BTreeSet<TurnId>,
    /// Its last send, for an `abort` without a target.
    pub(crate) last_send: Option<TurnId>,
    /// A session that is being loaded for it: later requests without a target wait, too.
    pub(crate) loading: Option<String>,
    /// Sends without `id`, in order: only the first one's lines leave.
    pub(crate) unnamed: VecDeque<FollowId>,
    pub(crate) subscription: Option<Subscription>,
    pub(crate) window: Window,
}

impl Conn {
    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            origin,
            follows: BTreeMap::new(),
            pending: BTreeSet::new(),
            last_send: None,
            loading: None,
            unnamed: VecDeque::new(),
            subscription: None,
            window: Window::default(),
        }
    }

    /// Sends of it that have no final line.
    pub(crate) fn in_flight(&self) -> usize {
        self.pending.len()
            + self
                .follows
                .values()
                .filter(|follow| follow.role == Role::Sender)
                .count()
    }
}

/// One place in one job's lines; a connection may have several in the same job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FollowId(pub(crate) u64);

/// Who follows a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Who sent it: the final line answers the request.
    Sender,
    /// Who subscribed.
    Subscriber,
}

/// One connection's place in one job's lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Follow {
    pub(crate) job: JobId,
    pub(crate) id: Option<Id>,
    pub(crate) role: Role,
    /// Are the lines between `accepted` and the final one wanted?
    pub(crate) stream: bool,
    pub(crate) replay: bool,
    /// The last numbered line it has.
    pub(crate) seq: u64,
    pub(crate) position: Position,
    pub(crate) state: FollowState,
}

/// How a follower gets its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FollowState {
    /// As they happen.
    Live,
    /// Not now: its queue is full, or an earlier send's lines go first.
    Behind,
    /// From the store.
    Refilling(Token),
}

/// Which lines a subscriber wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Subscription {
    pub(crate) id: Option<Id>,
    pub(crate) session: Option<String>,
    pub(crate) jobs: Option<BTreeSet<JobId>>,
}

impl Subscription {
    pub(crate) fn wants(&self, session: Option<&str>, job: JobId) -> bool {
        self.session
            .as_deref()
            .is_none_or(|wanted| Some(wanted) == session)
            && self.jobs.as_ref().is_none_or(|jobs| jobs.contains(&job))
    }
}

/// Bytes on their way to a reader, known from marks that come back.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Window {
    since_mark: usize,
    marks: VecDeque<usize>,
    /// The reader gets nothing unasked until it caught up.
    pub(crate) behind: bool,
}

impl Window {
    /// Counts bytes that leave; says whether a mark must follow them.
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        self.since_mark += bytes;
        if self.since_mark < READER_QUEUE / 2 {
            return false;
        }
        self.marks.push_back(std::mem::take(&mut self.since_mark));
        true
    }

    /// A mark came back: everything before it was written.
    pub(crate) fn mark_returned(&mut self) {
        self.marks.pop_front();
    }

    /// Bytes that may still be on their way.
    pub(crate) fn outstanding(&self) -> usize {
        self.since_mark + self.marks.iter().sum::<usize>()
    }
}
