//! `dispatch`: several turns in one commit, all or none.
//!
//! Owns the requests that wait for that commit. How one job is made is in `accept.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::request::{Decoded, Send};
use agentd_protocol::rows::DispatchedRow;
use agentd_protocol::work::Dispatch;
use agentd_protocol::{Code, Id, JobId, Request, request};

use crate::attached::Content;
use crate::event::{RequestContext, Routing};
use crate::ids::{ConnId, TurnId};
use crate::jobs::job::Batch;
use crate::log::Dangling;
use crate::outbox::awaiting::Awaiting;
use crate::peers::waiting::{Dispatching, Keys, Redispatched};
use crate::rules::accept::Placing;
use crate::rules::cron::ran;
use crate::settings::Served;
use crate::state::State;
use crate::store::{Keyed, Loaded, Query, Written};

/// Waiting time of a dispatched turn that names none: a day, as nobody waits for its answer.
const EXPIRES: Duration = Duration::from_secs(86_400);

impl State {
    pub(crate) fn dispatch(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        dispatch: Dispatch,
        facts: &RequestContext,
    ) {
        if self.settings.served != Served::Daemon {
            let error = "a one-shot runs one turn and ends: it can't dispatch";
            return self.refuse(conn, id, self.settings.served.needs_daemon(error));
        }
        let names = dispatch.jobs.iter();
        let names: Vec<String> = names.filter_map(|job| job.send.session.clone()).collect();
        let unknown = names.iter().any(|name| !self.sessions.knows(name));
        let decoded = Decoded {
            request: Request::Dispatch(dispatch),
            ignored: Vec::new(),
        };
        if unknown {
            // All of them: one that is known may leave memory while another is looked up.
            let key = format!("dispatch#{}", self.outbox.number());
            self.park_until_loaded(key, names, conn, id, decoded, facts);
        } else {
            self.dispatch_in(conn, id, decoded, facts);
        }
    }

    /// All its sessions are known, or known not to exist.
    pub(crate) fn dispatch_in(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &RequestContext,
    ) {
        if let Some(key) = self.counts_on_pins(&decoded.request) {
            return self.wait_for_pins(key, conn, id, decoded, facts);
        }
        let Request::Dispatch(dispatch) = decoded.request else {
            return;
        };
        let mut jobs = dispatch.jobs.iter();
        let keyed = jobs.all(|job| job.send.idempotency_key.is_some());
        let mut turns = Vec::new();
        let mut ignored = Vec::new();
        let mut refused = None;
        // Of a refused one, and of what is behind it.
        let mut others = Keys::new();
        for (item, job) in dispatch.jobs.into_iter().enumerate() {
            ignored.push(job.ignored);
            // The first refusal is the answer; what is behind it would be undone anyway.
            if refused.is_some() {
                others.extend(key_of(&job.send));
                continue;
            }
            let contents = facts.contents.get(item).cloned().unwrap_or_default();
            let routing = facts.routing.get(item);
            match self.make_dispatched(conn, job.send, (contents, routing), facts) {
                Ok(turn) => turns.push(turn),
                Err((send, rejected)) => {
                    others.extend(key_of(&send));
                    refused = Some((item, rejected));
                }
            }
        }
        let number = self.outbox.number();
        let dispatching = Dispatching {
            conn,
            id,
            keyed,
            ignored,
            schedule: facts.fired.as_ref().map(|fired| fired.schedule),
        };
        self.peers.dispatch(number, dispatching);
        if let Some((item, rejected)) = refused {
            let mut keys = self.keys_of(&turns);
            keys.append(&mut others);
            // None of them was told to the store: taken back, they leave no trace.
            for turn in turns {
                self.drop_pending(turn);
            }
            return self.dispatch_refused(number, item, rejected, keys);
        }
        self.ask_to_accept(Batch {
            turns,
            dispatch: Some(number),
        });
    }

    fn make_dispatched(
        &mut self,
        conn: ConnId,
        send: Send,
        (contents, routing): (Vec<Content>, Option<&Routing>),
        facts: &RequestContext,
    ) -> Result<TurnId, (Box<Send>, Rejected)> {
        let known = send
            .session
            .as_ref()
            .and_then(|name| self.sessions.named(name));
        let placed = self
            .room_for(&send, facts)
            .and_then(|()| self.parent_of(send.parent, &facts.descent))
            .and_then(|parent| Ok((parent, self.session_for(&send, known, routing, facts)?)));
        let (parent, (session, route)) = match placed {
            Ok(placed) => placed,
            Err(rejected) => return Err((Box::new(send), rejected)),
        };
        let placing = Placing {
            expires: EXPIRES,
            fired: facts.fired.clone(),
            route,
            ..Placing::of_send(session, parent, contents)
        };
        // Without a sender: the numbers are the answer, and who wants the ends collects or
        // subscribes.
        let turn = self.make_pending(None, send, &placing);
        let gone = || Rejected::new(Code::Internal, "the session is gone");
        let turn = turn.ok_or_else(|| (Box::default(), gone()));
        if turn.is_err() {
            self.forget_session_if_idle(session);
        }
        debug_assert!(self.peers.contains(conn), "a dead connection asks nothing");
        turn
    }

    /// The commit is done: whoever asked learns the numbers.
    pub(crate) fn dispatched(&mut self, number: u64, written: &[(TurnId, Option<Written>)]) {
        let Some(dispatching) = self.peers.dispatched(number) else {
            return self.outbox.dangling(Dangling::Request(number));
        };
        let rows = written.iter().zip(dispatching.ignored);
        let rows = rows.filter_map(|((_, written), ignored)| match written {
            Some(Written::Accepted { job, session, .. }) => Some(DispatchedRow {
                job: *job,
                session: session.clone(),
                replayed: false,
                ignored,
            }),
            Some(Written::Duplicate { job, session }) => Some(DispatchedRow {
                job: *job,
                session: session.clone(),
                replayed: true,
                ignored,
            }),
            _ => None,
        });
        let line = answer(dispatching.schedule, rows.collect());
        self.answer(dispatching.conn, dispatching.id, &line);
    }

    /// The keys of pending jobs, as far as they have one.
    pub(crate) fn keys_of(&self, turns: &[TurnId]) -> Keys {
        let keys = turns.iter().filter_map(|turn| self.pending_key(*turn));
        keys.collect()
    }

    /// The key of a pending job, and what its request is compared by.
    pub(crate) fn pending_key(&self, turn: TurnId) -> Option<(String, String)> {
        let new = self.jobs.get(&turn)?.accept.as_ref()?;
        Some((new.key.clone()?, new.hashed.clone()))
    }

    /// Nothing was accepted now, because of one of the jobs: but all of them may have been, when they
    /// were asked with the same keys before.
    pub(crate) fn dispatch_refused(
        &mut self,
        number: u64,
        item: usize,
        rejected: Rejected,
        mut keys: Keys,
    ) {
        let Some(dispatching) = self.peers.dispatched(number) else {
            return self.outbox.dangling(Dangling::Request(number));
        };
        let first = keys.pop_front();
        let again = Redispatched {
            dispatching,
            item,
            rejected,
            keys,
            found: Vec::new(),
        };
        match first.filter(|_| again.may_be_known() && !self.store_silent) {
            Some(key) => self.look_for_dispatched(again, key),
            None => self.none_dispatched(again),
        }
    }

    fn look_for_dispatched(&mut self, again: Redispatched, (key, hashed): (String, String)) {
        let awaiting = Awaiting::Redispatched(Box::new(again));
        self.outbox.load(awaiting, Query::Key { key, hashed });
    }

    /// The store says who has a key, or, when it has said so of all of them, which jobs those are.
    pub(crate) fn redispatched(&mut self, mut again: Redispatched, loaded: Loaded) {
        match loaded {
            Loaded::Key(Keyed::Same { job }) => {
                again.found.push(job);
                match again.keys.pop_front() {
                    Some(key) => self.look_for_dispatched(again, key),
                    None => {
                        let jobs = again.found.clone();
                        let awaiting = Awaiting::Redispatched(Box::new(again));
                        self.outbox.load(awaiting, Query::Jobs { jobs });
                    }
                }
            }
            Loaded::Jobs(rows) if rows.len() == again.found.len() => {
                let sessions: BTreeMap<JobId, String> =
                    rows.into_iter().map(|row| (row.job, row.session)).collect();
                let Dispatching {
                    conn,
                    id,
                    ignored,
                    schedule,
                    ..
                } = again.dispatching;
                let rows = again.found.into_iter().zip(ignored);
                let rows = rows.map(|(job, ignored)| DispatchedRow {
                    job,
                    session: sessions.get(&job).cloned().unwrap_or_default(),
                    replayed: true,
                    ignored,
                });
                self.answer(conn, id, &answer(schedule, rows.collect()));
            }
            _ => self.none_dispatched(again),
        }
    }

    /// While the store says nothing, it isn't known what was accepted before.
    fn none_dispatched(&mut self, again: Redispatched) {
        let Redispatched {
            dispatching,
            item,
            rejected,
            ..
        } = again;
        let (fate, code) = match rejected.code {
            Code::OutcomeUnknown | Code::StoreFailed if self.store_silent => {
                ("it can't say what was accepted", Code::OutcomeUnknown)
            }
            code => ("none was accepted", code),
        };
        let error = match dispatching.schedule {
            Some(_) => rejected.error,
            None => format!("`jobs[{item}]`: {}; {fate}", rejected.error),
        };
        let rejected = Rejected {
            error,
            code,
            ..rejected
        };
        self.refuse(dispatching.conn, dispatching.id, rejected);
    }
}

/// The numbers, to whoever asked for several or for the run of a schedule.
fn answer(schedule: Option<u64>, mut jobs: Vec<DispatchedRow>) -> Line {
    match (schedule, jobs.pop()) {
        (Some(schedule), Some(row)) => ran(schedule, row.job, row.session),
        (_, last) => {
            jobs.extend(last);
            Line::Dispatch { ok: true, jobs }
        }
    }
}

/// The key of a send, and what its request is compared by.
fn key_of(send: &Send) -> Option<(String, String)> {
    Some((send.idempotency_key.clone()?, request::hashed(send)))
}
