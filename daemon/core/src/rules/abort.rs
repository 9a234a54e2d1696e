//! `abort`: which jobs are meant, and what is said of them.
//!
//! Owns the choice of targets. How a job is cancelled is in `finish.rs`.

use std::collections::BTreeSet;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::request::{Abort, Decoded};
use agentd_protocol::{Code, Id, JobId, Request};

use crate::event::RequestContext;
use crate::ids::{ConnId, SessionId, TurnId};
use crate::jobs::job::{Job, Phase};
use crate::limits::ENDED_AT_ONCE;
use crate::log::Dangling;
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timer;
use crate::peers::waiting::Aborting;
use crate::sessions::loading::Parked;
use crate::state::State;
use crate::store::{Stored, Write};

impl State {
    pub(crate) fn abort(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        abort: Abort,
        facts: &RequestContext,
    ) {
        let named = (abort.job, abort.session.as_deref());
        if let Some(loading) = self.loading_of(conn, named) {
            let request = Request::Abort(abort);
            return self.wait_for_loading(&loading, conn, id, request, facts);
        }
        let bare = abort.job.is_none() && abort.session.is_none();
        // A client gives its `abort` the id of the send that it means; with a target the id is the
        // request's own.
        let own = id.as_ref().filter(|_| bare);
        let turns = match own.and_then(|id| self.send_under(conn, id)) {
            Some(own) => own.into_iter().collect(),
            None => match self.abort_targets(conn, &abort) {
                Ok(turns) => turns,
                Err(rejected) => return self.refuse(conn, id, rejected),
            },
        };
        // A job that isn't accepted yet may never be: then there is nothing to abort.
        let (pending, live): (BTreeSet<TurnId>, BTreeSet<TurnId>) =
            turns.into_iter().partition(|turn| {
                self.jobs
                    .get(turn)
                    .is_some_and(|job| matches!(job.phase, Phase::Pending { .. }))
            });
        for turn in &pending {
            let job = self.jobs.get_mut(turn);
            if let Some(Phase::Pending { cancelled, .. }) = job.map(|job| &mut job.phase) {
                // Its acceptance is on its way to the store and can't be taken back: it ends when
                // that is answered.
                *cancelled = true;
            }
        }
        let jobs = live
            .into_iter()
            .filter_map(|turn| self.cancel(turn))
            .collect();
        let number = self.outbox.number();
        let aborting = Aborting {
            asker: Some((conn, id)),
            pending,
            jobs,
            asked: 0,
            outstanding: 0,
            failed: None,
        };
        self.peers.abort(number, aborting);
    }

    /// The session that a request means, or may mean, and that the store is asked for just now.
    pub(crate) fn loading_of(
        &self,
        conn: ConnId,
        named: (Option<JobId>, Option<&str>),
    ) -> Option<String> {
        // Who names a job means one that was accepted, so nothing has to be loaded for it.
        let name = match named {
            (Some(_), _) => None,
            (None, Some(session)) => Some(session.to_owned()),
            (None, None) => self.peers.connected(&conn)?.loading.clone(),
        };
        name.filter(|name| self.sessions.is_loading(name))
    }

    /// Lets a request wait behind those for which a session is being loaded.
    pub(crate) fn wait_for_loading(
        &mut self,
        loading: &str,
        conn: ConnId,
        id: Option<Id>,
        request: Request,
        facts: &RequestContext,
    ) {
        if !self.sessions.is_loading(loading) {
            return;
        }
        // There is room: it is small, and what it aborts takes more.
        let decoded = Decoded {
            request,
            ignored: Vec::new(),
        };
        let parked = Parked {
            conn,
            id,
            decoded,
            facts: facts.clone(),
        };
        self.sessions.park(loading, &[], parked);
    }

    /// Asks for marks that were not asked for yet, and answers whoever has them all. Looked at after
    /// every event.
    pub(crate) fn go_on_aborting(&mut self) {
        let mut left = ENDED_AT_ONCE;
        for number in self.peers.aborts() {
            self.mark_aborted(number, &mut left);
            if let Some(done) = self.peers.take_aborted(number) {
                self.answer_abort(done);
            }
        }
    }

    fn mark_aborted(&mut self, number: u64, left: &mut usize) {
        let Some(aborting) = self.peers.aborting(number) else {
            return self.outbox.dangling(Dangling::Request(number));
        };
        let some = aborting.jobs.get(aborting.asked..).unwrap_or_default();
        // One commit of an abort at a time: the marks of a hundred thousand jobs would fill the
        // store's queue.
        if some.is_empty() || aborting.outstanding > 0 || aborting.failed.is_some() {
            return;
        }
        let some = &some[..some.len().min(*left)];
        if some.is_empty() {
            // Others had this event's; these have the next one's.
            return self.outbox.set(Timer::Slice, self.now.mono);
        }
        // Several aborts share what one event may ask for.
        *left -= some.len();
        aborting.asked += some.len();
        aborting.outstanding += 1;
        let marks = some.iter().map(|job| Write::Cancel { job: *job }).collect();
        self.outbox.commit(Awaiting::Aborted(number), marks);
    }

    /// The store answered for some marks of an `abort`.
    pub(crate) fn abort_stored(&mut self, number: u64, stored: Stored) {
        let Some(aborting) = self.peers.aborting(number) else {
            return self.outbox.dangling(Dangling::Request(number));
        };
        aborting.outstanding -= 1;
        match stored {
            Stored::Committed(_) => {}
            Stored::Failed { code, why } => aborting.failed = Some((code, why)),
            other => {
                let why = format!("it gave another's answer to a mark: {other:?}");
                aborting.failed = Some((Code::StoreFailed, why));
            }
        }
    }

    /// The store takes nothing for now: whoever waits for its marks is told that it is not known
    /// when they will be durable.
    pub(crate) fn aborts_in_doubt(&mut self, trouble: &str) {
        let waits = |aborting: &&mut Aborting| aborting.outstanding > 0;
        let waiting = self.peers.all_aborting().filter(waits);
        let told: Vec<_> = waiting
            .filter_map(|aborting| Some((aborting.asker.take()?, aborting.jobs.len())))
            .collect();
        for ((conn, id), jobs) in told {
            let error = format!(
                "{jobs} jobs are being ended, but the store has not taken yet that they were \
                 aborted: {trouble}"
            );
            let hint = "it will, as soon as it can; after a crash before that they may run";
            self.refuse(conn, id, Rejected::new(Code::StoreFailed, error).hint(hint));
        }
    }

    fn answer_abort(&mut self, done: Aborting) {
        let Aborting {
            asker: Some((conn, id)),
            jobs,
            failed,
            ..
        } = done
        else {
            return;
        };
        let Some((code, why)) = failed else {
            return self.answer(conn, id, &Line::Abort { ok: true, jobs });
        };
        let error = format!(
            "{} jobs are being ended, but the store did not take that they were aborted: {why}",
            jobs.len()
        );
        let hint = "abort them again: one that has no final line yet may run after a crash";
        self.refuse(conn, id, Rejected::new(code, error).hint(hint));
    }

    /// The send that this connection made under an id: its `abort` may be under the same. Without a
    /// turn, if that one ends just now, or has: it means no other.
    fn send_under(&self, conn: ConnId, id: &Id) -> Option<Option<TurnId>> {
        let known = self.peers.connected(&conn)?;
        let follows = known.follows.values();
        let followed = follows.filter(|follow| follow.id.as_ref() == Some(id));
        let turns = followed.filter_map(|follow| self.jobs.numbered(follow.job));
        let pending = known.pending.iter().copied();
        let is_its = |turn: &TurnId| {
            let sender = self.jobs.get(turn).and_then(|job| job.sender.as_ref());
            sender.is_some_and(|sender| sender.id.as_ref() == Some(id))
        };
        let Some(turn) = turns.chain(pending.filter(is_its)).next() else {
            // The final line and the abort crossed. Taken as bare it would end another turn of the
            // connection.
            return known.ended.contains(id).then_some(None);
        };
        let live = |job: &Job| job.phase != Phase::Finishing;
        Some(self.jobs.get(&turn).is_some_and(live).then_some(turn))
    }

    /// Turns of a session whose time to start has not come.
    fn scheduled_in(&self, session: SessionId) -> impl Iterator<Item = TurnId> {
        self.jobs
            .iter()
            .filter(move |(_, job)| job.session == session && job.phase == Phase::Scheduled)
            .map(|(turn, _)| turn)
    }

    pub(crate) fn abort_targets(
        &self,
        conn: ConnId,
        abort: &Abort,
    ) -> Result<Vec<TurnId>, Rejected> {
        let live = |turn: &TurnId| {
            self.jobs
                .get(turn)
                .is_some_and(|job| job.phase != Phase::Finishing)
        };
        if let Some(job) = abort.job {
            // A job that isn't in memory has ended, or never was: neither can be aborted.
            return Ok(self.jobs.numbered(job).filter(live).into_iter().collect());
        }
        if let Some(session) = &abort.session {
            let named = self.sessions.named(session);
            let Some((id, session)) = named.and_then(|id| Some((id, self.sessions.get(&id)?)))
            else {
                return Ok(Vec::new());
            };
            let mut turns: Vec<_> = session.current.into_iter().filter(live).collect();
            if abort.queued {
                turns.extend(session.queue.iter().copied());
                // They stand in no queue before their time.
                turns.extend(self.scheduled_in(id));
            } else if turns.is_empty() {
                turns.extend(session.queue.front().copied());
            }
            return Ok(turns);
        }
        if let Some(last) = self.peers.connected(&conn).and_then(|conn| conn.last_send) {
            return Ok(Some(last).into_iter().filter(live).collect());
        }
        let mut all = self
            .jobs
            .iter()
            .filter(|(_, job)| job.phase != Phase::Finishing);
        match (all.next(), all.next()) {
            // Guessing would end the wrong one, which can't be undone.
            (Some(_), Some(_)) => {
                let jobs: Vec<_> = self
                    .jobs
                    .numbers()
                    .map(|(job, _)| job.to_string())
                    .collect();
                let error = format!("{} jobs are live: {}", self.jobs.len(), jobs.join(", "));
                Err(Rejected::new(Code::Ambiguous, error).hint("name one with `job` or `session`"))
            }
            (one, _) => Ok(one.into_iter().map(|(turn, _)| turn).collect()),
        }
    }
}
