//! A send becomes a job: pending, committed, accepted, or given back without a trace.
//!
//! Owns what a job is made of and what the store's answer to its acceptance means. Several jobs of
//! one `dispatch` are accepted together. Must not know who may send what: that was checked.

use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Accepted, Line, SessionChange, SessionChanged, Telling};
use agentd_protocol::request::Send;
use agentd_protocol::{Code, JobId, request};

use crate::attached::Content;
use crate::effect::{Effect, Progress};
use crate::ids::{FollowId, SessionId, TurnId};
use crate::jobs::job::{Batch, Job, Phase, Waiter};
use crate::json;
use crate::limits::DEFAULT_EXPIRES;
use crate::log::What;
use crate::outbox::awaiting::Awaiting;
use crate::peers::conn::{Follow, FollowState};
use crate::rules::budget;
use crate::rules::fanout::Happened;
use crate::rules::pins::{from_now_on, in_force};
use crate::rules::routes::Route;
use crate::rules::servers::brought;
use crate::rules::session_news::{changed, of_model};
use crate::sessions::session::Repinning;
use crate::state::State;
use crate::store::{Due, Fired, NewJob, Position, Stored, Write, Written};
use crate::terms::Terms;

/// Where a new job comes from and goes to.
pub(crate) struct Placing {
    pub(crate) session: SessionId,
    pub(crate) parent: Option<JobId>,
    /// Of its attachments.
    pub(crate) contents: Vec<Content>,
    /// How long it may wait when it doesn't say.
    pub(crate) expires: Duration,
    /// The due time of a schedule that it is for.
    pub(crate) fired: Option<Arc<Fired>>,
    /// By which route, where it was left to them.
    pub(crate) route: Option<Box<Route>>,
}

impl Placing {
    /// A send's own.
    pub(crate) const fn of_send(
        session: SessionId,
        parent: Option<JobId>,
        contents: Vec<Content>,
    ) -> Self {
        Self {
            session,
            parent,
            contents,
            expires: DEFAULT_EXPIRES,
            fired: None,
            route: None,
        }
    }

    /// The send with what its route says.
    fn by_route(&self, given: Send) -> Box<Send> {
        let mut send = Box::new(given);
        if let Some(route) = &self.route {
            route.complete(&mut send);
            send.routed = Some(route.kept());
        }
        send
    }
}

impl State {
    /// Makes the pending job of a single send and asks for its commit.
    pub(crate) fn accept(&mut self, waiter: Waiter, given: Send, placing: &Placing) {
        let conn = waiter.conn;
        let Some(turn) = self.make_pending(Some(waiter), given, placing) else {
            return;
        };
        if let Some(known) = self.peers.connected_mut(&conn) {
            known.pending.insert(turn);
            known.last_send = Some(turn);
        }
        self.peers.steers_mut().sent_to(conn, placing.session);
        let turns = vec![turn];
        self.ask_to_accept(Batch {
            turns,
            dispatch: None,
        });
    }

    /// Makes a pending job: it has its place in the queue, and nobody hears of it yet.
    pub(crate) fn make_pending(
        &mut self,
        sender: Option<Waiter>,
        given: Send,
        placing: &Placing,
    ) -> Option<TurnId> {
        let turn = TurnId(self.outbox.number());
        let now = self.now;
        // Without a key nothing is ever compared with it.
        let hashed = (given.idempotency_key.as_ref()).map(|_key| request::hashed(&given));
        let depth = placing.parent.map_or(0, |parent| self.depth(parent)) + 1;
        let session = found!(self.sessions.get_mut(placing.session))?;
        let agent = self.settings.agents.get(&session.agent)?;
        let mut send = placing.by_route(given);
        // What is on its way is of the same dispatch: others wait for it. There a job has the pins of
        // the one before it, as if it said them itself.
        let before = session.repinning.and_then(|before| match before {
            Repinning::Send(turn) => self.jobs.get(&turn)?.accept.as_ref()?.repins.as_deref(),
            Repinning::SetModel => None,
        });
        let before = before.unwrap_or(&session.pins);
        let pins = in_force(&send, before, agent);
        let to = from_now_on(&send, before);
        let same = to == *before && to == *session.pins;
        let repins = (!same).then(|| Box::new(to));
        if repins.is_some() {
            session.repinning = Some(Repinning::Send(turn));
        }
        (send.provider, send.model, send.thinking) = (pins.provider, pins.model, pins.thinking);
        send.parent = placing.parent;
        let system: Option<Arc<str>> = send.system.as_deref().map(Into::into);
        if system.is_some() {
            // Of the process that is looked for before this one is stored, too.
            session.system.clone_from(&system);
        }
        let reserves = brought(session, &mut send);
        let wait = (send.expires).map_or(placing.expires, Duration::from_secs_f64);
        let start = send
            .start_at
            .as_deref()
            .and_then(request::unix_ms)
            .filter(|start| *start > now.wall_ms)
            .map(|start| Due::at_wall(now, start));
        // Waiting begins when it could start.
        let expires = Due::after(
            crate::ids::Now {
                wall_ms: start.map_or(now.wall_ms, |start| start.wall_ms),
                boot_ms: start.map_or(now.boot_ms, |start| start.boot_ms(now)),
                ..now
            },
            wait,
        );
        let new = NewJob {
            session: session.name.clone(),
            agent: session.agent.clone(),
            cwd: session.cwd.clone(),
            real_cwd: session.real_cwd.as_deref().map(str::to_owned),
            toolsets: session.toolsets.as_ref().map(json::text),
            system,
            reserves,
            request: json::text(&send),
            contents: placing.contents.clone(),
            key: send.idempotency_key.clone(),
            hashed: hashed.unwrap_or_default(),
            expires,
            start,
            labels: (!send.labels.is_empty()).then(|| json::text(&send.labels)),
            parent: placing.parent,
            fired: placing.fired.clone(),
            running: None,
            repins,
            at: now.wall_ms,
        };
        // What many sends say alike is in memory once.
        let (terms, bytes) = self.jobs.share(Arc::new(Terms::of(&send)));
        let mut job = Job::new(placing.session, terms, now.mono, expires.boot_ms(now));
        job.weight = budget::of_waiting(bytes) + budget::until_stored(&new);
        job.given = Some(send);
        job.phase = Phase::Pending {
            placed: None,
            cancelled: false,
        };
        job.start = start.map(|start| start.boot_ms(now));
        job.accept = Some(Arc::new(new));
        job.sender = sender.map(Box::new);
        job.depth = depth;
        // One for later would keep its session's queue from going on.
        if start.is_none() {
            session.queue.push_back(turn);
        }
        self.put_job(turn, job);
        self.counters.sends += 1;
        Some(turn)
    }

    /// Asks the store for pending jobs; a single one with its *running* mark if a process is free.
    pub(crate) fn ask_to_accept(&mut self, batch: Batch) {
        let mut writes = Vec::new();
        for turn in &batch.turns {
            // Turns of a dispatch are accepted all or none: a process that was reserved for one
            // would wait for the others.
            let placed = if batch.dispatch.is_none() {
                self.place_at_once(*turn)
            } else {
                None
            };
            if placed.is_none()
                && let Some(job) = self.outbox.expected(*turn, self.jobs.get_mut(turn))
            {
                // Its text waits in the store from here on, not in memory.
                job.given = None;
            }
            let Some(new) = self.jobs.get(turn).and_then(|job| job.accept.as_ref()) else {
                continue;
            };
            let new = match placed.map(|process| (process.worker, process.generation)) {
                None => Arc::clone(new),
                running => Arc::new(NewJob {
                    running,
                    ..NewJob::clone(new)
                }),
            };
            writes.push(Write::Accept(new));
        }
        self.outbox.commit(Awaiting::Accept(batch), writes);
    }

    pub(crate) fn accept_stored(&mut self, batch: Batch, stored: Stored) {
        match stored {
            Stored::Committed(written) => self.batch_accepted(&batch, written),
            Stored::Conflict { item, job } => {
                self.not_accepted(&batch, item, crate::rules::replay::conflict(job));
            }
            Stored::Leased { item, pid, .. } => {
                let error = format!("the session is open in another agentd process (pid {pid})");
                let hint = "wait until that process has ended, or use another session";
                let rejected = Rejected::new(Code::SessionBusy, error).hint(hint);
                self.not_accepted(&batch, item, rejected);
            }
            Stored::Orphaned { instance } => {
                // It is asked for again when what the dead instance left is ours.
                for turn in &batch.turns {
                    self.unplace(*turn);
                    self.holds_up(*turn);
                }
                self.outbox.push(Effect::Recover {
                    instance: instance.clone(),
                });
                self.jobs.orphan(instance, batch);
            }
            Stored::Superseded => {
                let error = "the schedule's due time is over, or the schedule was changed";
                self.not_accepted(&batch, 0, Rejected::new(Code::InvalidRequest, error));
            }
            Stored::Taken => {
                let error = "the store gave another's answer to an accept";
                self.not_accepted(&batch, 0, Rejected::new(Code::Internal, error));
            }
            Stored::Failed { code, why } => {
                let error = format!("the store can't take new work: {why}");
                let hint = match code {
                    Code::DiskFull => "nothing was run; free some space and ask again",
                    _ => "nothing was run; `status` says when the store is well again",
                };
                let rejected = Rejected::new(code, error).hint(hint);
                self.not_accepted(&batch, 0, rejected);
            }
        }
    }

    fn batch_accepted(&mut self, batch: &Batch, written: Vec<Written>) {
        let answers: Vec<(TurnId, Option<Written>)> = {
            let mut written = written.into_iter();
            let turns = batch.turns.iter();
            turns.map(|turn| (*turn, written.next())).collect()
        };
        // Before the answers: these take the senders out of the jobs.
        self.count_client(batch, &answers);
        if let Some(dispatch) = batch.dispatch {
            self.dispatched(dispatch, &answers);
        }
        for (turn, written) in answers {
            match written {
                Some(Written::Accepted { job, seq, session }) => {
                    self.accepted(turn, job, seq, session);
                }
                Some(Written::Duplicate { job, .. }) => {
                    if let Some(waiter) = self.drop_pending(turn) {
                        self.replay_job(waiter, job);
                    }
                }
                _ => {
                    // An answer that has no place for it: the others of the batch keep theirs.
                    let alone = Batch {
                        turns: vec![turn],
                        dispatch: None,
                    };
                    let error = "the store gave no answer to an accept";
                    self.not_accepted(&alone, 0, Rejected::new(Code::Internal, error));
                }
            }
        }
    }

    /// Counts new jobs for whoever asked for them.
    fn count_client(&mut self, batch: &Batch, answers: &[(TurnId, Option<Written>)]) {
        let is_new = |written: &Option<Written>| matches!(written, Some(Written::Accepted { .. }));
        let new = answers
            .iter()
            .filter(|(_, written)| is_new(written))
            .count();
        let conn = match (batch.dispatch, batch.turns.first()) {
            (Some(dispatch), _) => self.peers.dispatcher(dispatch),
            (None, turn) => turn
                .and_then(|turn| self.jobs.get(turn)?.sender.as_ref())
                .map(|sender| sender.conn),
        };
        let conn = conn.and_then(|conn| self.peers.connected(&conn));
        let client = conn.and_then(|conn| conn.client.as_deref());
        self.counters.sent_by(client, new as u64);
    }

    fn accepted(&mut self, turn: TurnId, number: JobId, seq: u64, session_name: String) {
        self.counters.saw(seq);
        let job = expected!(self.jobs.get_mut(turn));
        let Phase::Pending { placed, cancelled } = job.phase.clone() else {
            return;
        };
        let new = job.accept.take();
        let given = job.given.take();
        // One that is not to start yet waits outside its session's queue.
        match (placed, job.start) {
            (Some(_), _) => {}
            (None, Some(_)) => job.phase = Phase::Scheduled,
            (None, None) => job.phase = Phase::Queued,
        }
        (job.accepted_seq, job.seq) = (seq, seq);
        let (session, sender) = (job.session, job.sender.take());
        let repins = new.as_ref().and_then(|new| new.repins.as_deref().cloned());
        let named = self.settings.nested && job.terms.native.is_none();
        let routed = job.terms.routed.clone();
        // Under its number from here on, before anybody is told of it: an `abort` may name it at
        // once.
        self.jobs.accepted(turn, number);
        if let Some(new) = &new {
            self.jobs.lighter(turn, budget::until_stored(new));
        }
        self.sessions.name(session, &session_name);
        let (mut made, mut is_named) = (false, false);
        if let Some(known) = found!(self.sessions.get_mut(session)) {
            known.leased = true;
            is_named = known.named;
            made = !std::mem::replace(&mut known.stored, true);
            let with = made.then(|| (known.agent.clone(), known.cwd.clone()));
            self.session_accepted(&session_name, with, new.as_deref());
        }
        self.pinned(turn, repins);
        if placed.is_none() {
            self.jobs.waits(turn);
        }
        let accepted = Accepted {
            job: number,
            session: session_name,
            agent: self.agent_of(session),
            seq: None,
            replayed: false,
            ignored: sender
                .as_ref()
                .map(|sender| sender.ignored.clone())
                .unwrap_or_default(),
            running: placed.is_some(),
            drained: false,
            made: made && is_named,
            routed,
        };
        if let Some(waiter) = sender {
            if let Some(known) = self.peers.connected_mut(&waiter.conn) {
                known.pending.remove(&turn);
            }
            self.sender_follows(&waiter, accepted.clone(), seq, Telling::First);
            if named {
                let (conn, native) = (waiter.conn, accepted.session.clone());
                let line = Line::Session { native };
                let (telling, progress) = (Telling::First, Progress::More);
                self.send(conn, &line.body(), waiter.id, None, telling, progress);
            }
        }
        // The sender first: what it subscribed to itself leaves out the jobs that it follows.
        self.tell_subscribers(turn, accepted, seq);
        self.log_job(turn, What::Accepted);
        if cancelled {
            self.unplace(turn);
            if let Some(job) = found!(self.jobs.get_mut(turn)) {
                job.phase = Phase::Queued;
            }
            // As one that waits, so that it ends by the same way as any other, with a final line.
            let cancelled = self.cancel(turn);
            self.peers.abort_resolved(turn, cancelled);
        } else if let Some(process) = placed {
            // It is not at hand when its first try was before a takeover.
            let given = given.map_or_else(
                || json::read_back(new.as_ref().map_or("", |new| &new.request)),
                |given| Ok(*given),
            );
            self.begin_with(turn, process, given);
        }
    }

    /// Tells what a send makes of its session: it is there, or has another model from now on.
    fn session_accepted(
        &mut self,
        session: &str,
        made: Option<(String, String)>,
        new: Option<&NewJob>,
    ) {
        if let Some((agent, cwd)) = made {
            let made = SessionChanged {
                agent: Some(agent),
                cwd: Some(cwd),
                ..changed(SessionChange::Made)
            };
            self.session_is(session, made);
        }
        if let Some(pins) = new.and_then(|new| new.repins.as_ref()) {
            self.session_is(session, of_model(pins));
        }
    }

    fn tell_subscribers(&mut self, turn: TurnId, accepted: Accepted, seq: u64) {
        // What was ignored and made concerns who asked: it isn't stored, and history hasn't got it either.
        let body = Line::Accepted(Accepted {
            ignored: Vec::new(),
            made: false,
            ..accepted
        })
        .body();
        self.publish(turn, &body, seq, Happened::Meanwhile);
    }

    /// A job's time to start has come: it takes its place in the queue.
    pub(crate) fn start_time_came(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get_mut(turn));
        if job.phase != Phase::Scheduled {
            return;
        }
        job.phase = Phase::Queued;
        if let Some(session) = found!(self.sessions.get_mut(job.session)) {
            session.queue.push_back(turn);
        }
        self.jobs.starts(turn);
        self.jobs.waits(turn);
    }

    /// The sender gets `accepted` and follows its job from here.
    pub(crate) fn sender_follows(
        &mut self,
        waiter: &Waiter,
        mut accepted: Accepted,
        seq: u64,
        telling: Telling,
    ) -> Option<FollowId> {
        let job = accepted.job;
        let follow = Follow {
            job,
            id: waiter.id.clone(),
            stream: waiter.stream,
            replay: telling == Telling::Replay,
            seq,
            position: Position::default(),
            // `resume` decides how it goes on: another unnamed send may be before it.
            state: FollowState::Behind,
        };
        // Only who waits has to know that nothing starts now.
        accepted.drained = !accepted.running && self.mode.is_draining();
        let body = Line::Accepted(accepted).body();
        self.send(
            waiter.conn,
            &body,
            waiter.id.clone(),
            Some(seq),
            telling,
            Progress::More,
        );
        let follow_id = self.follow(waiter.conn, follow)?;
        self.resume(waiter.conn, follow_id);
        Some(follow_id)
    }

    /// None of a batch was accepted, because of one of them.
    fn not_accepted(&mut self, batch: &Batch, item: usize, rejected: Rejected) {
        let keys = self.keys_of(&batch.turns);
        for turn in &batch.turns {
            let key = self.pending_key(*turn);
            let Some(waiter) = self.drop_pending(*turn) else {
                continue;
            };
            match key {
                // What can't be written can be read: its key may be that of a job.
                Some((key, hashed)) if rejected.code != Code::IdempotencyConflict => {
                    self.look_for_key(waiter, key, hashed, rejected.clone());
                }
                _ => self.refuse(waiter.conn, waiter.id, rejected.clone()),
            }
        }
        if let Some(dispatch) = batch.dispatch {
            self.dispatch_refused(dispatch, item, rejected, keys);
        }
    }

    /// Gives back everything a pending send held; whoever aborted it is answered.
    pub(crate) fn drop_pending(&mut self, turn: TurnId) -> Option<Waiter> {
        self.unplace(turn);
        self.clear_timers(turn);
        let mut job = self.take_job(turn)?;
        if let Some(session) = found!(self.sessions.get_mut(job.session)) {
            session.queue.retain(|other| *other != turn);
        }
        self.sessions.settles(job.session, Repinning::Send(turn));
        self.never_begun(&job);
        // Before it is looked at whether the session is idle: a process bound to it would keep it.
        self.give_back_unleased(job.session);
        self.forget_session_if_idle(job.session);
        self.peers.abort_resolved(turn, None);
        let waiter = *job.sender.take()?;
        if let Some(conn) = self.peers.connected_mut(&waiter.conn) {
            conn.pending.remove(&turn);
        }
        Some(waiter)
    }

    /// A session that was never ours leaves memory with the send that asked for it: what is known
    /// of it may be out of date, and its process is another instance's.
    fn give_back_unleased(&mut self, session: SessionId) {
        let known = expected!(self.sessions.get(session));
        if known.leased || !known.queue.is_empty() || known.current.is_some() {
            return;
        }
        if let Some(worker) = known.slot {
            self.unbind(worker, session);
        }
    }
}
