//! What the store's answers mean.
//!
//! Owns the link between a token and what waits for it. Must not know SQL or files.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Accepted, Line, Telling};
use agentd_protocol::{Code, Id, JobId};

use crate::conn::{Follow, FollowId, FollowState, Role};
use crate::effect::{Effect, Progress};
use crate::ids::{ConnId, Token, TurnId};
use crate::job::{Phase, Position, Waiter};
use crate::session::SessionId;
use crate::state::State;
use crate::store::{JobRow, Loaded, MessageText, Query, Stored, Write, Written};

/// What waits for an answer of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Awaiting {
    /// Nothing.
    Nothing,
    /// A send, for its acceptance.
    Accept(TurnId),
    /// A turn, for its *running* mark.
    Start(TurnId),
    /// A numbered event of a job.
    Event(TurnId),
    /// A job's final line.
    Finish(TurnId),
    /// An `abort`, for the marks of the jobs it cancelled.
    Aborted {
        conn: ConnId,
        id: Option<Id>,
        jobs: Vec<JobId>,
    },
    /// Requests on a session that isn't in memory.
    Session(String),
    /// A `collect`, for jobs that aren't in memory.
    Collect(u64),
    /// A send whose key another job has.
    Replay { waiter: Waiter, job: JobId },
    /// A follower that is behind.
    Refill {
        conn: ConnId,
        follow: FollowId,
        texts: Vec<MessageText>,
    },
}

impl State {
    pub(crate) fn stored(&mut self, token: Token, stored: Stored) {
        let Some(awaiting) = self.awaiting.remove(&token) else {
            return;
        };
        match (awaiting, stored) {
            (Awaiting::Accept(turn), stored) => self.accept_stored(turn, stored),
            (Awaiting::Start(turn), Stored::Committed(written)) => {
                self.marked(turn, token, seq_of(&written))
            }
            (Awaiting::Event(turn), Stored::Committed(written)) => {
                if let Some(seq) = seq_of(&written) {
                    self.counters.last_seq = self.counters.last_seq.max(seq);
                    self.numbered(turn, token, seq);
                }
            }
            (Awaiting::Finish(turn), Stored::Committed(written)) => {
                let seq = seq_of(&written).unwrap_or(0);
                self.counters.last_seq = self.counters.last_seq.max(seq);
                self.finished(turn, token, seq);
            }
            // Not even asked: its queue was full.
            (
                awaiting @ (Awaiting::Session(_)
                | Awaiting::Collect(_)
                | Awaiting::Replay { .. }
                | Awaiting::Refill { .. }),
                Stored::Failed { why, .. },
            ) => self.load_answered(awaiting, Loaded::Failed(why)),
            // Should the mark fail, the turns are ended all the same.
            (Awaiting::Aborted { conn, id, jobs }, _) => {
                self.answer(conn, id, &Line::Abort { ok: true, jobs });
            }
            // The store retries these itself and answers `Committed` in the end; if it ever gives
            // up, what became of the job is unknown, and nobody is told otherwise.
            (Awaiting::Start(turn) | Awaiting::Event(turn) | Awaiting::Finish(turn), _) => {
                self.lost_track(turn)
            }
            _ => {}
        }
    }

    fn accept_stored(&mut self, turn: TurnId, stored: Stored) {
        match stored {
            Stored::Committed(written) => match written.into_iter().next() {
                Some(Written::Accepted { job, seq, session }) => {
                    self.accepted(turn, job, seq, session)
                }
                Some(Written::Duplicate { job }) => self.duplicate(turn, job),
                _ => self.not_accepted(
                    turn,
                    Rejected::new(Code::Internal, "the store gave no answer to an accept"),
                ),
            },
            Stored::Conflict { job, .. } => {
                let error =
                    format!("the idempotency key belongs to job {job}, which was another request");
                self.not_accepted(
                    turn,
                    Rejected::new(Code::IdempotencyConflict, error).hint("use a new key"),
                );
            }
            Stored::Leased { pid, .. } => {
                let error = format!("the session is open in another agentd process (pid {pid})");
                let hint = "wait until that process has ended, or use another session";
                self.not_accepted(turn, Rejected::new(Code::SessionBusy, error).hint(hint));
            }
            Stored::Orphaned { instance } => {
                // It is asked for again when what the dead instance left is ours.
                self.unplace(turn);
                self.out.push(Effect::Recover {
                    instance: instance.clone(),
                });
                self.orphaned.entry(instance).or_default().push(turn);
            }
            Stored::Failed { code, why } => {
                let error = format!("the store can't take new work: {why}");
                self.not_accepted(
                    turn,
                    Rejected::new(code, error).hint("nothing was run; ask again later"),
                );
            }
        }
    }

    fn accepted(&mut self, turn: TurnId, number: JobId, seq: u64, session_name: String) {
        self.counters.last_seq = self.counters.last_seq.max(seq);
        let Some(job) = self.jobs.get_mut(&turn) else {
            return;
        };
        let Phase::Pending { placed, cancelled } = job.phase.clone() else {
            return;
        };
        job.number = Some(number);
        job.accept = None;
        if placed.is_none() {
            job.phase = Phase::Queued;
        }
        (job.accepted_seq, job.seq) = (seq, seq);
        let (session, sender) = (job.session, job.sender.take());
        let agent = job.agent.clone();
        self.numbers.insert(number, turn);
        self.name_session(session, &session_name);
        if let Some(known) = self.sessions.get_mut(&session) {
            known.leased = true;
        }
        let accepted = Accepted {
            job: number,
            session: session_name,
            agent,
            seq: None,
            replayed: false,
            ignored: sender
                .as_ref()
                .map(|sender| sender.ignored.clone())
                .unwrap_or_default(),
            running: placed.is_some(),
        };
        let subscribers: Vec<_> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.subscription.is_some())
            .map(|(conn, _)| *conn)
            .collect();
        if let Some(waiter) = sender {
            if let Some(known) = self.conns.get_mut(&waiter.conn) {
                known.pending.remove(&turn);
            }
            self.sender_follows(&waiter, accepted.clone(), seq, Telling::First);
        }
        let body = Line::Accepted(accepted).body();
        for conn in subscribers {
            if self.let_subscriber_follow(conn, turn) {
                let id = self
                    .conns
                    .get(&conn)
                    .and_then(|conn| conn.subscription.as_ref()?.id.clone());
                self.send(conn, &body, id, Some(seq), Telling::First, Progress::More);
            }
        }
        if cancelled {
            self.unplace(turn);
            if let Some(job) = self.jobs.get_mut(&turn) {
                job.phase = Phase::Queued;
            }
            let cancelled = self.cancel(turn);
            self.abort_resolved(turn, cancelled);
        } else if let Some(process) = placed {
            self.begin(turn, process);
        }
    }

    /// The sender gets `accepted` and follows its job from here.
    fn sender_follows(
        &mut self,
        waiter: &Waiter,
        accepted: Accepted,
        seq: u64,
        telling: Telling,
    ) -> Option<FollowId> {
        let known = self.conns.get_mut(&waiter.conn)?;
        let job = accepted.job;
        let follow = Follow {
            job,
            id: waiter.id.clone(),
            role: Role::Sender,
            stream: waiter.stream,
            replay: telling == Telling::Replay,
            seq,
            position: Position::default(),
            state: FollowState::Behind,
        };
        // A subscriber that sends hears of its own job once.
        known
            .follows
            .retain(|_, follow| follow.job != job || follow.role == Role::Sender);
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

    /// The key is another job's, with the same request: the sender hears that job from its
    /// beginning.
    fn duplicate(&mut self, turn: TurnId, number: JobId) {
        let Some(waiter) = self.drop_pending(turn) else {
            return;
        };
        if let Some(job) = self
            .numbers
            .get(&number)
            .and_then(|turn| self.jobs.get(turn))
        {
            let session = self
                .sessions
                .get(&job.session)
                .map(crate::session::Session::shown)
                .unwrap_or_default();
            let accepted = Accepted {
                job: number,
                session,
                agent: job.agent.clone(),
                seq: None,
                replayed: true,
                ignored: waiter.ignored.clone(),
                running: job.began(),
            };
            let seq = job.accepted_seq;
            self.sender_follows(&waiter, accepted, seq, Telling::Replay);
            return;
        }
        let awaiting = Awaiting::Replay {
            waiter,
            job: number,
        };
        self.load(awaiting, Query::Jobs { jobs: vec![number] });
    }

    fn replay(&mut self, waiter: &Waiter, number: JobId, row: Option<JobRow>) {
        if !self.conns.contains_key(&waiter.conn) {
            return;
        }
        let Some(row) = row else {
            let error = format!("job {number} has the key but can't be read");
            return self.refuse(
                waiter.conn,
                waiter.id.clone(),
                Rejected::new(Code::StoreFailed, error),
            );
        };
        if !self.numbers.contains_key(&number)
            && !matches!(row.state, crate::store::JobState::Finished { .. })
        {
            let error = format!("job {number} has the key and runs in another agentd process");
            let rejected =
                Rejected::new(Code::SessionBusy, error).hint("ask again when it has ended");
            return self.refuse(waiter.conn, waiter.id.clone(), rejected);
        }
        let accepted = Accepted {
            job: number,
            session: row.session,
            agent: row.agent,
            seq: None,
            replayed: true,
            ignored: waiter.ignored.clone(),
            running: false,
        };
        self.sender_follows(waiter, accepted, row.seq, Telling::Replay);
    }

    fn not_accepted(&mut self, turn: TurnId, rejected: Rejected) {
        if let Some(waiter) = self.drop_pending(turn) {
            self.refuse(waiter.conn, waiter.id, rejected);
        }
    }

    /// Gives back everything a pending send held; whoever aborted it is answered.
    fn drop_pending(&mut self, turn: TurnId) -> Option<Waiter> {
        self.unplace(turn);
        let mut job = self.jobs.remove(&turn)?;
        self.waiting.remove(&turn);
        self.timers.clear(crate::timers::Timer::Expiry(turn));
        if let Some(session) = self.sessions.get_mut(&job.session) {
            session.queue.retain(|other| *other != turn);
        }
        self.give_back_unleased(job.session);
        self.forget_session_if_idle(job.session);
        self.abort_resolved(turn, None);
        let waiter = job.sender.take()?;
        if let Some(conn) = self.conns.get_mut(&waiter.conn) {
            conn.pending.remove(&turn);
        }
        Some(waiter)
    }

    /// A session that was never ours leaves memory with the send that asked for it: what is known
    /// of it may be out of date, and its process is another instance's.
    fn give_back_unleased(&mut self, session: SessionId) {
        let Some(known) = self.sessions.get(&session) else {
            return;
        };
        if known.leased || !known.queue.is_empty() || known.current.is_some() {
            return;
        }
        if let Some(worker) = known.slot {
            self.unbind(worker, session);
        }
    }

    /// What became of a job can't be known any more: its followers are cut off without an answer.
    fn lost_track(&mut self, turn: TurnId) {
        let Some(job) = self.jobs.get(&turn) else {
            return;
        };
        let mut conns: Vec<_> = job.followers.iter().map(|(conn, _)| *conn).collect();
        conns.dedup();
        let (session, process) = (job.session, job.process());
        for conn in conns {
            self.cut_off(conn);
        }
        if let Some(known) = self.sessions.get_mut(&session) {
            known.queue.retain(|other| *other != turn);
            if known.current == Some(turn) {
                known.current = None;
            }
        }
        self.remove_job(turn);
        if let Some(process) = process {
            if let Some(slot) = self.slots.get_mut(&process.worker) {
                slot.turns.remove(&turn);
            }
            // A turn that runs with nobody to hear it must not go on.
            self.retire(process.worker);
        }
        self.forget_session_if_idle(session);
    }

    pub(crate) fn loaded(&mut self, token: Token, loaded: Loaded) {
        if let Some(awaiting) = self.awaiting.remove(&token) {
            self.load_answered(awaiting, loaded);
        }
    }

    fn load_answered(&mut self, awaiting: Awaiting, loaded: Loaded) {
        match (awaiting, loaded) {
            (Awaiting::Session(name), Loaded::Session(row)) => self.session_loaded(&name, Ok(row)),
            (Awaiting::Session(name), Loaded::Failed(why)) => self.session_loaded(&name, Err(why)),
            (Awaiting::Collect(number), Loaded::Jobs(rows)) => self.collect_loaded(number, rows),
            (Awaiting::Collect(number), Loaded::Failed(why)) => self.collect_failed(number, &why),
            (Awaiting::Replay { waiter, job }, Loaded::Jobs(rows)) => {
                self.replay(&waiter, job, rows.into_iter().next())
            }
            (Awaiting::Replay { waiter, job }, _) => self.replay(&waiter, job, None),
            (
                Awaiting::Refill { conn, follow, .. },
                Loaded::Events {
                    events,
                    more,
                    texts,
                },
            ) => {
                self.refilled((conn, follow), events, more, texts);
            }
            (
                Awaiting::Refill {
                    conn,
                    follow,
                    texts,
                },
                Loaded::Jobs(rows),
            ) => {
                self.refilled_final((conn, follow), rows.into_iter().next(), &texts);
            }
            (Awaiting::Refill { conn, .. }, Loaded::Failed(_)) => self.cut_off(conn),
            _ => {}
        }
    }

    /// Writes that nobody waits for.
    pub(crate) fn write_lazily(&mut self, write: Write) {
        self.commit_lazily(vec![write]);
    }
}

fn seq_of(written: &[Written]) -> Option<u64> {
    written.iter().find_map(|written| match written {
        Written::Numbered { seq } => Some(*seq),
        Written::Accepted { .. } | Written::Duplicate { .. } | Written::Done => None,
    })
}
