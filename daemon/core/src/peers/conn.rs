//! One connection as the core sees it: what it asked, what it hears, how far behind it is.
//!
//! Owns windows and positions; must not know bytes or sockets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agentd_protocol::{Id, JobId};

use crate::event::Origin;
use crate::ids::{FollowId, Token, TurnId};
use crate::limits::{ENDED_SENDS, READER_QUEUE};
use crate::peers::lookup::Lookup;
use crate::store::Position;

/// What a connection asked for and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Conn {
    pub(crate) origin: Origin,
    /// What the other side calls itself.
    pub(crate) client: Option<String>,
    pub(crate) follows: BTreeMap<FollowId, Follow>,
    /// Pending sends of it.
    pub(crate) pending: BTreeSet<TurnId>,
    /// Its last send, for an `abort` without a target.
    pub(crate) last_send: Option<TurnId>,
    /// The ids of its last sends that have ended, for an `abort` that crosses their final line.
    pub(crate) ended: VecDeque<Id>,
    /// A session that is being loaded for it: later requests without a target wait, too.
    pub(crate) loading: Option<String>,
    /// Sends without `id`, in order: only the first one's lines leave.
    pub(crate) unnamed: VecDeque<FollowId>,
    pub(crate) subscription: Option<Subscription>,
    pub(crate) window: Window,
    /// Lists that it asked for and that are looked up later, in order.
    pub(crate) lookups: VecDeque<Lookup>,
    /// Is one being looked up?
    pub(crate) looking: bool,
    /// It was told to end, and nothing that comes later goes to it: there is a gap before that.
    pub(crate) is_cut_off: bool,
}

impl Conn {
    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            origin,
            client: None,
            follows: BTreeMap::new(),
            pending: BTreeSet::new(),
            last_send: None,
            ended: VecDeque::new(),
            loading: None,
            unnamed: VecDeque::new(),
            subscription: None,
            window: Window::default(),
            lookups: VecDeque::new(),
            looking: false,
            is_cut_off: false,
        }
    }

    /// Does a job answer a request of this connection? Then its lines come with that one's `id`.
    pub(crate) fn sends(&self, job: JobId) -> bool {
        let told = self.subscription.as_ref().map(|sub| &sub.told);
        self.follows.values().any(|follow| follow.job == job)
            || told.is_some_and(|told| told.values().any(|other| *other == job))
    }

    /// A send of it has its final line.
    pub(crate) fn send_ended(&mut self, id: Option<Id>) {
        if self.ended.len() >= ENDED_SENDS {
            self.ended.pop_front();
        }
        self.ended.extend(id);
    }

    /// Sends of it that have no final line.
    pub(crate) fn in_flight(&self) -> usize {
        self.pending.len() + self.follows.len()
    }
}

/// A sender's place in its job's lines: the final one answers its request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Follow {
    pub(crate) job: JobId,
    pub(crate) id: Option<Id>,
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

/// A subscriber's place in the lines of all jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Subscription {
    /// What the store's answers name it by: the connection may have another one by then.
    pub(crate) number: u64,
    pub(crate) id: Option<Id>,
    pub(crate) session: Option<String>,
    pub(crate) jobs: Option<BTreeSet<JobId>>,
    /// Is it told of sessions, too?
    pub(crate) sessions: bool,
    /// Was it not told of some, as it was behind?
    pub(crate) missed: bool,
    /// Every numbered line that it wants, up to this number, was sent. So the last one that a
    /// reader saw is always a cursor that misses nothing.
    pub(crate) seen: u64,
    /// No earlier job of its session has a line after that: the store needn't look at them again.
    pub(crate) first: JobId,
    pub(crate) stage: Stage,
    pub(crate) place: Place,
    /// Where it is in the text of turns in flight.
    pub(crate) texts: BTreeMap<JobId, Position>,
    /// Jobs whose sender is on this connection and heard the final line, which has this number,
    /// before the subscription came to it.
    pub(crate) told: BTreeMap<u64, JobId>,
}

/// How far the answer to a `subscribe` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Its cursor, if it has one, wasn't compared with the store.
    Asked(Option<u64>),
    /// What came after the cursor is being told.
    History,
    /// `live` was told.
    Answered,
}

/// How a subscriber gets its lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// As they happen.
    Live,
    /// Not now: its queue is full.
    Behind,
    /// From the store, which was asked.
    Loading,
}

impl Subscription {
    pub(crate) fn wants(&self, session: Option<&str>, job: JobId) -> bool {
        let wanted = self.session.as_deref();
        wanted.is_none_or(|wanted| Some(wanted) == session)
            && self.jobs.as_ref().is_none_or(|jobs| jobs.contains(&job))
    }

    /// It is done with everything up to a number.
    pub(crate) fn pass(&mut self, seq: u64) {
        self.seen = self.seen.max(seq);
        let seen = self.seen;
        while let Some(first) = self.told.first_entry().filter(|first| *first.key() <= seen) {
            // Its final line was told to the sender: what the subscription would keep for it is of
            // no use.
            let job = first.remove();
            self.texts.remove(&job);
        }
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
    /// Counts bytes that leave; if a mark must follow them, says how many it stands for.
    pub(crate) fn add(&mut self, bytes: usize) -> Option<usize> {
        self.since_mark += bytes;
        // Two marks for a full queue: with one, a reader would be found to have caught up only when
        // it has taken everything.
        if self.since_mark < READER_QUEUE / 2 {
            return None;
        }
        let marked = std::mem::take(&mut self.since_mark);
        self.marks.push_back(marked);
        Some(marked)
    }

    /// A mark came back: everything before it was written, so many bytes.
    pub(crate) fn mark_returned(&mut self) -> usize {
        self.marks.pop_front().unwrap_or(0)
    }

    /// Bytes whose marks have not come back.
    pub(crate) fn marked(&self) -> usize {
        self.marks.iter().sum()
    }

    /// Bytes that may still be on their way.
    pub(crate) fn outstanding(&self) -> usize {
        self.since_mark + self.marked()
    }
}
