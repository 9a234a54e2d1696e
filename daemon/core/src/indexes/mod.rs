//! Indexes over jobs and sessions: what follows from them, kept at hand so that no event walks over
//! all of them.
//!
//! Owns nothing that is true by itself: `rules/indexing.rs` brings them up to date after each event,
//! for what that event changed. Must not decide anything by them.

pub(crate) mod lanes;

use std::collections::{BTreeMap, BTreeSet};

use agentd_protocol::JobId;

use crate::agent::{Agent, Resume, Sessions};
use crate::ids::{SessionId, TurnId};
use crate::indexes::lanes::{Lane, Lanes};
use crate::jobs::job::{Job, Phase};
use crate::sessions::session::Session;

/// All of them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Indexes {
    /// The next turn of each session that has one.
    lanes: Lanes,
    /// Turns that a worker has or is about to get, and those whose final line is on its way.
    in_flight: BTreeSet<TurnId>,
    /// Turns that aren't accepted yet.
    pending: BTreeSet<TurnId>,
    /// Sessions that wait for what a dead instance left.
    gated: BTreeSet<SessionId>,
    /// Turns that a job handed in and somebody waits for.
    children: Children,
}

impl Indexes {
    /// A turn has become what it is: gone, if there is no job.
    pub(crate) fn put_turn(&mut self, turn: TurnId, job: Option<&Job>) {
        let pending = job.is_some_and(|job| matches!(job.phase, Phase::Pending { .. }));
        keep(&mut self.in_flight, turn, job.is_some_and(is_in_flight));
        keep(&mut self.pending, turn, pending);
        self.children.put(turn, job);
    }

    /// A session has become what it is, and this is its next turn, if it has one.
    pub(crate) fn put_session(
        &mut self,
        session: SessionId,
        known: Option<&Session>,
        next: Option<(TurnId, Lane)>,
    ) {
        let gated = known.is_some_and(|known| known.gate.is_some());
        keep(&mut self.gated, session, gated);
        self.lanes.put(session, next);
    }

    pub(crate) const fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    pub(crate) const fn in_flight(&self) -> &BTreeSet<TurnId> {
        &self.in_flight
    }

    pub(crate) const fn pending(&self) -> &BTreeSet<TurnId> {
        &self.pending
    }

    pub(crate) const fn gated(&self) -> &BTreeSet<SessionId> {
        &self.gated
    }

    /// Does anybody wait for a turn that this job handed in?
    pub(crate) fn has_children(&self, job: JobId) -> bool {
        self.children.any_of(job)
    }
}

/// Turns without an end that other jobs handed in, while their lines are followed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Children {
    parents: BTreeMap<TurnId, JobId>,
    of: BTreeSet<(JobId, TurnId)>,
}

impl Children {
    fn put(&mut self, turn: TurnId, job: Option<&Job>) {
        // A child whose lines nobody follows keeps its parent from nothing: that one goes on
        // working.
        let followed = |job: &&Job| !job.followers.is_empty() && job.phase != Phase::Finishing;
        let parent = job.filter(followed).and_then(|job| job.terms.parent);
        if let Some(before) = self.parents.remove(&turn) {
            self.of.remove(&(before, turn));
        }
        if let Some(parent) = parent {
            self.parents.insert(turn, parent);
            self.of.insert((parent, turn));
        }
    }

    fn any_of(&self, job: JobId) -> bool {
        let all = (job, TurnId(0))..=(job, TurnId(u64::MAX));
        self.of.range(all).next().is_some()
    }
}

/// Is it to be resumed in a process that is started for it?
pub(crate) fn needs_its_own(agent: &Agent, session: &Session) -> bool {
    agent.describe.sessions == Sessions::One
        && agent.describe.resume == Resume::Native
        && session.turns > 0
        && session.reopened_by().is_some()
}

fn is_in_flight(job: &Job) -> bool {
    job.process().is_some() || job.phase == Phase::Finishing
}

pub(crate) fn waits(job: &Job) -> bool {
    matches!(
        job.phase,
        Phase::Pending { .. } | Phase::Queued | Phase::Held
    )
}

fn keep<K: Ord>(set: &mut BTreeSet<K>, key: K, is_in: bool) {
    if is_in {
        set.insert(key);
    } else {
        set.remove(&key);
    }
}
