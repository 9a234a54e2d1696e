//! What the store's answers mean.
//!
//! Owns the link between a token and what waits for it. Must not know SQL or files.

use std::collections::BTreeSet;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;

use crate::ids::{ConnId, Token, TurnId};
use crate::jobs::job::Phase;
use crate::jobs::said::Out;
use crate::limits::{DOUBT_WITHIN, FINISH_AGAIN};
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timer;
use crate::state::State;
use crate::store::{Loaded, Stored, Written};
use crate::worker::Failure;

impl State {
    pub(crate) fn stored(&mut self, token: Token, stored: Stored) {
        let Some(awaiting) = self.outbox.committed(token) else {
            return self.outbox.dangling(token);
        };
        self.heard_the_store();
        // Whatever came of it: it is on its way no more, and others may end.
        self.jobs.slices().stored(token);
        if let Awaiting::Event { of: Some(of), .. } = &awaiting {
            self.event_stored(*of);
        }
        match (awaiting, stored) {
            (Awaiting::Accept(batch), stored) => self.accept_stored(batch, stored),
            (Awaiting::Changed { conn, id, changed }, stored) => {
                self.session_changed(conn, id, changed, stored);
            }
            (Awaiting::Delivery { conn, id, of }, stored) => {
                self.delivery_stored(conn, id, of, stored);
            }
            (Awaiting::Schedule { conn, id, kind }, stored) => {
                self.schedule_stored(conn, id, kind, stored);
            }
            (Awaiting::Answered(answered), stored) => {
                let seq = match &stored {
                    Stored::Committed(written) => seq_of(written),
                    _ => None,
                };
                self.answer_stored(token, *answered, seq);
            }
            (Awaiting::Start(turn), Stored::Committed(written)) => {
                self.marked(turn, token, written);
            }
            (Awaiting::Event { turn, .. }, Stored::Committed(written)) => {
                if let Some(seq) = seq_of(&written) {
                    self.counters.saw(seq);
                    self.numbered(turn, token, seq);
                }
            }
            (Awaiting::Finish { turn, held }, Stored::Committed(written)) => {
                self.finish_stored(turn, &held, token, &written);
            }
            (Awaiting::Text { turn, bytes }, stored) => {
                let lost = !matches!(stored, Stored::Committed(_));
                self.text_stored(turn, bytes, lost);
            }
            (Awaiting::Aborted(number), stored) => self.abort_stored(number, stored),
            // The store retries these itself and answers `Committed` in the end. Should it ever give
            // up, nobody is told what became of the job until that is stored.
            (Awaiting::Start(turn) | Awaiting::Event { turn, .. }, _) => self.lost_track(turn),
            (Awaiting::Finish { turn, held }, _) => {
                for turn in held {
                    self.note_lost(turn, token);
                }
                if let Some(job) = found!(self.jobs.get_mut(turn)) {
                    // So that it is ended once more when the store takes something again.
                    job.said.last = None;
                }
                self.lost_track(turn);
            }
            _ => {}
        }
    }

    fn finish_stored(&mut self, turn: TurnId, held: &[TurnId], token: Token, written: &[Written]) {
        let mut numbers = written.iter().filter_map(|written| match written {
            Written::Numbered { seq } => Some(*seq),
            _ => None,
        });
        let last = numbers.next().unwrap_or(0);
        let notes: Vec<u64> = numbers.collect();
        self.counters.saw(last);
        // Their order is that of the numbers: the end of the one that was interrupted, then the
        // notes of those behind it.
        self.finished(turn, token, last);
        for (turn, seq) in held.iter().zip(notes) {
            self.counters.saw(seq);
            self.numbered(*turn, token, seq);
        }
    }

    /// It answers: whoever waits for it has as long as ever again.
    fn heard_the_store(&mut self) {
        self.store_silent = false;
        if self.store_trouble.is_none() {
            self.outbox.clear(Timer::Doubt);
        }
    }

    /// A store that is asked has to answer some time: a disk that hangs says nothing of it.
    pub(crate) fn listen_to_the_store(&mut self) {
        if self.outbox.commits() > 0 {
            let until = self.now.mono + DOUBT_WITHIN;
            self.outbox.set_if_unset(Timer::Doubt, until);
        }
    }

    /// What is wrong with the store, as far as that is known.
    pub(crate) fn wrong_with_the_store(&self) -> Option<String> {
        let silent = || {
            let within = DOUBT_WITHIN.as_secs();
            format!("it has not answered for {within} s: its disk may hang")
        };
        self.store_trouble
            .clone()
            .or_else(|| self.store_silent.then(silent))
    }

    pub(crate) fn store_health(&mut self, trouble: Option<String>) {
        match &trouble {
            Some(_) => {
                let until = self.now.mono + DOUBT_WITHIN;
                // From when the trouble began: another message of it doesn't put off who waits.
                self.outbox.set_if_unset(Timer::Doubt, until);
            }
            None => {
                self.outbox.clear(Timer::Doubt);
                // What waited for it may start.
                self.outbox.set(Timer::Schedule, self.now.mono);
            }
        }
        self.store_trouble = trouble;
    }

    /// The store still can't say whether it has what it was given: whoever waits for that alone is
    /// cut off, since what became of it is unknown. It may be found later, by its key. Nothing became
    /// of what waits for its session to be looked up, and is refused. Who has a job that is accepted,
    /// or only looks something up, waits.
    pub(crate) fn in_doubt(&mut self) {
        self.store_silent = self.store_trouble.is_none() && self.outbox.commits() > 0;
        let Some(trouble) = self.wrong_with_the_store() else {
            return;
        };
        self.aborts_in_doubt(&trouble);
        let looked_up = self
            .outbox
            .awaiting()
            .filter_map(|awaiting| match awaiting {
                Awaiting::Sessions(key) => Some(key.clone()),
                _ => None,
            });
        for key in looked_up.collect::<Vec<_>>() {
            self.sessions_loaded(&key, Err(trouble.clone()));
        }
        self.pins_in_doubt(&trouble);
        // Who comes later waits as long.
        self.outbox.set(Timer::Doubt, self.now.mono + DOUBT_WITHIN);
        let pending = self.indexes.pending().iter();
        let pending = pending.filter_map(|turn| self.jobs.get(turn)?.sender.as_ref());
        let mut waiting: BTreeSet<ConnId> = pending.map(|waiter| waiter.conn).collect();
        waiting.extend(self.peers.dispatches().map(|asked| asked.conn));
        waiting.extend(
            self.outbox
                .awaiting()
                .filter_map(|awaiting| match awaiting {
                    Awaiting::Changed { conn, .. }
                    | Awaiting::Delivery { conn, .. }
                    | Awaiting::Schedule { conn, .. } => Some(*conn),
                    _ => None,
                }),
        );
        let follows = |conn: &ConnId| {
            let known = self.peers.connected(conn);
            known.is_some_and(|known| !known.follows.is_empty())
        };
        // Its job is stored and goes on: cutting it off would take what it still hears.
        waiting.retain(|conn| !follows(conn));
        self.tell_the_keyless(&waiting, &trouble);
        for conn in waiting {
            self.cut_off(conn);
        }
    }

    /// Whoever is cut off without a key to ask again with is told why before.
    fn tell_the_keyless(&mut self, cut_off: &BTreeSet<ConnId>, trouble: &str) {
        let changes = self
            .outbox
            .awaiting()
            .filter_map(|awaiting| match awaiting {
                Awaiting::Changed { conn, id, .. }
                | Awaiting::Delivery { conn, id, .. }
                | Awaiting::Schedule { conn, id, .. } => Some((*conn, id.clone())),
                _ => None,
            });
        let sends = self.indexes.pending().iter().filter_map(|turn| {
            let job = self.jobs.get(turn)?;
            let sender = job.sender.as_ref()?;
            let keyless = job.accept.as_ref()?.key.is_none();
            keyless.then(|| (sender.conn, sender.id.clone()))
        });
        let dispatches = self.peers.dispatches().filter(|asked| !asked.keyed);
        let dispatches = dispatches.map(|asked| (asked.conn, asked.id.clone()));
        let mut asked: Vec<_> = changes.chain(sends).chain(dispatches).collect();
        asked.retain(|(conn, _)| cut_off.contains(conn));
        for (conn, id) in asked {
            let error = format!("whether it was done isn't known: {trouble}");
            let hint =
                "it may still be, when the store answers; look then, and ask again if it wasn't";
            let rejected = Rejected::new(Code::OutcomeUnknown, error).hint(hint);
            self.refuse(conn, id, rejected);
        }
    }

    /// The store did not take something of a job, though it must: its followers are cut off without
    /// an answer, and it is ended as soon as the store takes that. Until then it stays known, and
    /// nothing of its session starts.
    pub(crate) fn lost_track(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        let mut conns: Vec<_> = job.followers.iter().map(|(conn, _)| *conn).collect();
        conns.extend(job.number.iter().flat_map(|job| self.collectors_of(*job)));
        conns.sort_unstable();
        conns.dedup();
        let (session, process) = (job.session, job.process());
        for conn in conns {
            self.cut_off(conn);
        }
        self.cut_off_subscribers(turn);
        if self
            .jobs
            .get(&turn)
            .is_some_and(|job| job.said.last.is_some())
        {
            // Its end is on its way.
            return;
        }
        self.clear_timers(turn);
        self.forget_questions(turn);
        self.steers_too_late(turn);
        if let Some(job) = found!(self.jobs.get_mut(turn)) {
            job.phase = Phase::Finishing;
            // What waits behind the commit that was lost can't be told in order any more.
            job.out.clear();
        }
        if let Some(known) = found!(self.sessions.get_mut(session)) {
            known.queue.retain(|other| *other != turn);
            // It keeps its session from starting another turn until its end is stored.
            known.current.get_or_insert(turn);
        }
        let again = self.now.mono + FINISH_AGAIN;
        self.outbox.set(Timer::Unfinished(turn), again);
        // Its process may have died while the turn's mark was on its way.
        if let Some(process) = process
            && let Some(slot) = self.pool.get_mut(&process.worker)
        {
            slot.turns.remove(&turn);
            // A turn that runs with nobody to hear it must not go on.
            self.retire(process.worker);
        }
    }

    /// Ends a turn of which the store did not take something.
    pub(crate) fn finish_again(&mut self, turn: TurnId) {
        let job = found!(self.jobs.get_mut(turn));
        let Some(job) = job.filter(|job| job.said.last.is_none()) else {
            return;
        };
        // `fail` does nothing for a turn that is ending.
        job.phase = Phase::Queued;
        let error = "the store did not take what became of the turn; what it did may have taken \
                     effect";
        self.fail(turn, Failure::new(Code::StoreFailed, error));
    }

    /// A note of a job was not stored: what is behind it goes on.
    fn note_lost(&mut self, turn: TurnId, token: Token) {
        if let Some(job) = found!(self.jobs.get_mut(turn)) {
            let is_it = |out: &Out| matches!(out, Out::Numbered { token: of, .. } if *of == token);
            job.out.retain(|out| !is_it(out));
        }
    }

    pub(crate) fn loaded(&mut self, token: Token, loaded: Loaded) {
        match self.outbox.loaded(token) {
            Some(awaiting) => self.load_answered(awaiting, loaded),
            None => self.outbox.dangling(token),
        }
    }

    fn load_answered(&mut self, awaiting: Awaiting, loaded: Loaded) {
        match (awaiting, loaded) {
            (Awaiting::Sessions(key), Loaded::Sessions(rows)) => {
                self.sessions_loaded(&key, Ok(rows));
            }
            (Awaiting::Sessions(key), Loaded::Failed(why)) => {
                self.sessions_loaded(&key, Err(why));
            }
            (Awaiting::Asked { conn, id, asked }, loaded) => {
                self.found(conn, id, asked, loaded);
            }
            (Awaiting::Key { waiter, rejected }, Loaded::Key(keyed)) => {
                self.key_loaded(waiter, rejected, keyed);
            }
            // What stood against it stands; whether its key is known is not.
            (Awaiting::Key { waiter, rejected }, _) => {
                self.refuse(waiter.conn, waiter.id, rejected);
            }
            (Awaiting::AbortUnder { conn, id }, loaded) => self.abort_under(conn, id, loaded),
            (Awaiting::Redispatched(again), loaded) => self.redispatched(*again, loaded),
            (Awaiting::Steer { conn, id, job }, Loaded::Jobs(rows)) => {
                self.steer_elsewhere(conn, id, job, rows.first());
            }
            (Awaiting::Steer { conn, id, .. }, _) => {
                let error = "the store can't say which job is meant; ask again";
                self.refuse(conn, id, Rejected::new(Code::StoreFailed, error));
            }
            (Awaiting::Collect(number), Loaded::Jobs(rows)) => self.collect_loaded(number, rows),
            (Awaiting::Collect(number), Loaded::Failed(why)) => self.collect_failed(number, &why),
            (Awaiting::Replay { waiter, job }, Loaded::Jobs(rows)) => {
                self.replay(&waiter, job, rows.into_iter().next())
            }
            (Awaiting::Replay { waiter, job }, _) => self.replay(&waiter, job, None),
            (
                Awaiting::Refill {
                    conn, follow, over, ..
                },
                Loaded::Events {
                    events,
                    more,
                    texts,
                    whole,
                },
            ) => {
                let more = more || !over;
                self.refilled((conn, follow), events, more, (texts, whole));
            }
            (
                Awaiting::Refill {
                    conn,
                    follow,
                    texts,
                    ..
                },
                Loaded::Jobs(rows),
            ) => {
                self.refilled_final((conn, follow), rows.into_iter().next(), &texts);
            }
            (Awaiting::Refill { conn, .. }, Loaded::Failed(_)) => self.cut_off(conn),
            (Awaiting::Log { conn, number }, loaded) => self.log_loaded(conn, number, loaded),
            _ => {}
        }
    }
}

fn seq_of(written: &[Written]) -> Option<u64> {
    written.iter().find_map(|written| match written {
        Written::Numbered { seq } => Some(*seq),
        Written::Started { .. }
        | Written::Accepted { .. }
        | Written::Duplicate { .. }
        | Written::Opened { .. }
        | Written::Webhook { .. }
        | Written::Schedule { .. }
        | Written::Done => None,
    })
}
