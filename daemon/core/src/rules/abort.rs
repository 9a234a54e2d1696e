//! `abort`: what is marked as ended, and what is said of it.
//!
//! Owns the marks that a crash must find. Which turns are meant is in `targets.rs`, how a job is
//! cancelled in `finish.rs`.

use std::collections::BTreeSet;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::request::Abort;
use agentd_protocol::{Code, Id, Request};

use crate::event::RequestContext;
use crate::ids::{ConnId, TurnId};
use crate::jobs::job::{Job, Phase};
use crate::limits::ENDED_AT_ONCE;
use crate::log::Dangling;
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timer;
use crate::peers::waiting::Aborting;
use crate::rules::targets::Target;
use crate::state::State;
use crate::store::{Keyed, Loaded, Query, Stored, Write};

impl State {
    pub(crate) fn abort(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        abort: Abort,
        facts: &RequestContext,
    ) {
        let target = match &abort.idempotency_key {
            Some(key) => Target::Key(key),
            None => Target::new(abort.job, abort.session.as_deref()),
        };
        if let Some(loading) = self.loading_of(conn, target) {
            let request = Request::Abort(abort);
            return self.wait_for_loading(&loading, conn, id, request, facts);
        }
        // A client gives its `abort` the id of the send that it means; with a target the id is the
        // request's own.
        let own = id.as_ref().filter(|_| target == Target::Own);
        let turns = match own.and_then(|id| self.send_under(conn, id)) {
            Some(own) => own.into_iter().collect(),
            None => match self.turns_meant(conn, target, abort.queued) {
                Ok(turns) => turns,
                Err(rejected) => return self.refuse(conn, id, rejected),
            },
        };
        if let (Target::Key(key), true) = (target, turns.is_empty()) {
            // Its job may be there.
            let query = Query::Key {
                key: key.to_owned(),
                hashed: String::new(),
            };
            self.outbox.load(Awaiting::AbortUnder { conn, id }, query);
            return;
        }
        self.abort_turns(conn, id, turns);
    }

    /// The store knows whose key it is, or can't say.
    pub(crate) fn abort_under(&mut self, conn: ConnId, id: Option<Id>, loaded: Loaded) {
        let job = match loaded {
            Loaded::Key(Keyed::Same { job } | Keyed::Other { job }) => Some(job),
            Loaded::Key(Keyed::Free) => None,
            _ => {
                let error = "the store can't say whose key it is; ask again";
                return self.refuse(conn, id, Rejected::new(Code::StoreFailed, error));
            }
        };
        let turns = job.and_then(|job| self.jobs.numbered(job));
        self.abort_turns(conn, id, turns.into_iter().collect());
    }

    fn abort_turns(&mut self, conn: ConnId, id: Option<Id>, turns: Vec<TurnId>) {
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
        self.keys_in_doubt(trouble);
        let waits =
            |aborting: &&mut Aborting| aborting.outstanding > 0 || !aborting.pending.is_empty();
        let waiting = self.peers.all_aborting().filter(waits);
        let told: Vec<_> = waiting
            .filter_map(|aborting| {
                let jobs = aborting.jobs.len() + aborting.pending.len();
                Some((aborting.asker.take()?, jobs))
            })
            .collect();
        for ((conn, id), jobs) in told {
            let error = format!(
                "{jobs} jobs are being ended, but the store has not taken yet that they were \
                 aborted: {trouble}"
            );
            let hint = "it will, as soon as it can; after a crash before that they may run";
            self.refuse(
                conn,
                id,
                Rejected::new(Code::OutcomeUnknown, error).hint(hint),
            );
        }
    }

    /// Whose key it is, the store says when nobody waits for that any more.
    fn keys_in_doubt(&mut self, trouble: &str) {
        let is_asked = |awaiting: &Awaiting| matches!(awaiting, Awaiting::AbortUnder { .. });
        for awaiting in self.outbox.wait_no_more(is_asked) {
            if let Awaiting::AbortUnder { conn, id } = awaiting {
                let error = format!("the store can't say whose key it is: {trouble}");
                self.refuse(conn, id, Rejected::new(Code::OutcomeUnknown, error));
            }
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
}
