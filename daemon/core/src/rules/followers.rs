//! Who hears what: lines on their way from jobs to connections.
//!
//! Owns order and gaplessness: what a follower can't take now it gets later, from the store.
//! Must not know what the lines mean.

use agentd_protocol::line::Telling;
use agentd_protocol::{Body, JobId, Line};

use crate::effect::Progress;
use crate::ids::{ConnId, FollowId, Token, TurnId};
use crate::jobs::delta::Spoken;
use crate::jobs::job::Job;
use crate::jobs::said::Out;
use crate::limits::READER_QUEUE;
use crate::outbox::awaiting::Awaiting;
use crate::peers::conn::{Follow, FollowState, Place};
use crate::rules::fanout::Happened;
use crate::state::State;
use crate::store::{JobRow, JobState, Position, Query, TextPiece, Write};

/// Who reads a job's text: each keeps its own place in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// Who sent the job.
    Sender(FollowId),
    /// The connection's subscription.
    Subscriber(JobId),
}

impl State {
    /// Queues a line of a job behind those before it.
    pub(crate) fn say(&mut self, turn: TurnId, line: &Line) {
        if let Some(job) = found!(self.jobs.get_mut(turn)) {
            job.out.push_back(Out::Plain(line.body()));
            self.flow(turn);
        }
    }

    /// Queues a numbered event of a job; it leaves after its commit.
    pub(crate) fn say_numbered(&mut self, turn: TurnId, line: &Line) {
        // The text before it is durable when it is.
        self.flush_some_text(turn, usize::MAX);
        let job = expected!(self.jobs.get_mut(turn));
        let Some(number) = job.number else { return };
        let of = job.process();
        let body = line.body();
        let write = Write::Event {
            job: number,
            line: body.clone(),
        };
        let token = self
            .outbox
            .commit(Awaiting::Event { turn, of }, vec![write]);
        // It stands in its place among the lines from now on, and lets none behind it leave before
        // its commit.
        job.out.push_back(Out::Numbered { token, body });
        self.event_unstored(of);
    }

    /// The job's text has grown.
    pub(crate) fn say_text(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get_mut(turn));
        let position = job.position();
        // Pieces behind which nothing else was said are one: a model says a few characters at a
        // time.
        if let Some(Out::Text(last)) = job.out.back_mut() {
            *last = position;
        } else {
            job.out.push_back(Out::Text(position));
        }
        self.flow(turn);
    }

    /// A numbered event of a job is committed.
    pub(crate) fn numbered(&mut self, turn: TurnId, token: Token, seq: u64) {
        let job = expected!(self.jobs.get_mut(turn));
        for out in &mut job.out {
            if let Out::Numbered {
                token: waiting,
                body,
            } = out
                && *waiting == token
            {
                *out = Out::Committed {
                    seq,
                    body: body.clone(),
                };
                break;
            }
        }
        self.flow(turn);
    }

    /// Lets everything leave that waits for no commit.
    fn flow(&mut self, turn: TurnId) {
        loop {
            let job = expected!(self.jobs.get_mut(turn));
            match job.out.front() {
                None | Some(Out::Numbered { .. }) => return,
                Some(Out::Committed { .. } | Out::Plain(_) | Out::Text(_)) => {}
            }
            match job.out.pop_front() {
                Some(Out::Committed { seq, body }) => {
                    job.seq = seq;
                    self.deliver(turn, &body, Some(seq));
                }
                Some(Out::Plain(body)) => self.deliver(turn, &body, None),
                Some(Out::Text(position)) => {
                    job.said.delivered = position;
                    self.deliver_text(turn);
                }
                Some(Out::Numbered { .. }) | None => return,
            }
        }
    }

    fn deliver(&mut self, turn: TurnId, body: &Body, seq: Option<u64>) {
        let job = expected!(self.jobs.get(turn));
        // A copy: a follower that falls behind is changed while the others are told.
        for (conn, follow_id) in job.followers.clone() {
            let Some(follow) = self.follow_mut(conn, follow_id) else {
                continue;
            };
            if follow.state != FollowState::Live {
                continue;
            }
            if let Some(seq) = seq {
                // Also where lines in between aren't wanted: it is where a refill would begin.
                follow.seq = seq;
            }
            if follow.stream {
                let id = follow.id.clone();
                self.send(conn, body, id, seq, Telling::First, Progress::More);
                self.check_window(conn);
            }
        }
        match seq {
            Some(seq) => self.publish(turn, body, seq, Happened::Meanwhile),
            None => self.publish_unnumbered(turn, body),
        }
    }

    fn deliver_text(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        let Some(number) = job.number else { return };
        let mut readers = Vec::new();
        for (conn, follow_id) in &job.followers {
            let follow = self
                .peers
                .connected(conn)
                .and_then(|c| c.follows.get(follow_id));
            if let Some(follow) = follow
                && follow.state == FollowState::Live
                && follow.stream
            {
                readers.push((*conn, Reader::Sender(*follow_id), follow.position));
            }
        }
        for (conn, position) in self.listeners(turn) {
            readers.push((conn, Reader::Subscriber(number), position));
        }
        // Readers mostly stand at the same place: the lines are made once for them.
        let mut made: Option<(Position, Spoken)> = None;
        for (conn, reader, from) in readers {
            let spoken = match made.take() {
                Some((same, spoken)) if same == from => spoken,
                _ => match self.jobs.get(&turn) {
                    Some(job) => spoken_since(job, from),
                    None => return,
                },
            };
            self.send_spoken(conn, reader, &spoken, Telling::First);
            made = Some((from, spoken));
        }
    }

    /// Sends a portion of text. A portion that isn't the whole is more than a reader's queue holds,
    /// so that the reader is behind afterwards.
    pub(crate) fn send_spoken(
        &mut self,
        conn: ConnId,
        reader: Reader,
        spoken: &Spoken,
        telling: Telling,
    ) {
        let Some((_, reached)) = spoken.lines.last() else {
            return;
        };
        let Some(known) = self.peers.connected_mut(&conn) else {
            return;
        };
        let id = match reader {
            Reader::Sender(follow_id) => {
                let Some(follow) = known.follows.get_mut(&follow_id) else {
                    return;
                };
                follow.position = *reached;
                follow.id.clone()
            }
            Reader::Subscriber(job) => {
                let Some(subscription) = &mut known.subscription else {
                    return;
                };
                subscription.texts.insert(job, *reached);
                subscription.id.clone()
            }
        };
        for (body, _) in &spoken.lines {
            self.send(conn, body, id.clone(), None, telling, Progress::More);
        }
        self.check_window(conn);
    }

    /// A reader that lies too far behind gets nothing unasked until it caught up.
    pub(crate) fn check_window(&mut self, conn: ConnId) {
        let Some(known) = self.peers.connected_mut(&conn) else {
            return;
        };
        if known.window.behind || known.window.outstanding() <= READER_QUEUE {
            return;
        }
        // It gets nothing from here on: a reader that has stopped must not take memory from others.
        known.window.behind = true;
        for follow in known.follows.values_mut() {
            if follow.state == FollowState::Live {
                follow.state = FollowState::Behind;
            }
        }
        if let Some(subscription) = &mut known.subscription
            && subscription.place == Place::Live
        {
            subscription.place = Place::Behind;
        }
    }

    pub(crate) fn caught_up(&mut self, conn: ConnId) {
        self.peers.mark_returned(conn);
        // A list that waited for the reader, too.
        self.look_next(conn);
        let Some(known) = self.peers.connected_mut(&conn) else {
            return;
        };
        // Half: at the limit itself it would fall behind again with the next line.
        if known.window.behind && known.window.outstanding() <= READER_QUEUE / 2 {
            known.window.behind = false;
            let follows: Vec<_> = known.follows.keys().copied().collect();
            for follow_id in follows {
                self.resume(conn, follow_id);
            }
            self.resume_subscription(conn);
        }
    }

    /// A follower, if it is still there: it goes with its connection, or with the final line.
    pub(crate) fn follow_mut(&mut self, conn: ConnId, follow: FollowId) -> Option<&mut Follow> {
        self.peers.connected_mut(&conn)?.follows.get_mut(&follow)
    }

    /// Adds a follower that stands at the job's beginning; call `resume` when it may get lines.
    pub(crate) fn follow(&mut self, conn: ConnId, follow: Follow) -> Option<FollowId> {
        let follow_id = FollowId(self.outbox.number());
        let known = self.peers.connected_mut(&conn)?;
        // Without an id lines can't be told apart, so such sends are answered one after the other.
        if follow.id.is_none() {
            known.unnamed.push_back(follow_id);
        }
        let job = follow.job;
        known.follows.insert(follow_id, follow);
        if let Some(job) = self.jobs.by_number_mut(job) {
            job.followers.insert((conn, follow_id));
        }
        Some(follow_id)
    }

    /// Gives a follower that is behind what it misses, from the store where need be.
    pub(crate) fn resume(&mut self, conn: ConnId, follow_id: FollowId) {
        let Some(known) = self.peers.connected_mut(&conn) else {
            return;
        };
        // Another send without an id goes before it.
        let blocked = known
            .unnamed
            .iter()
            .position(|first| *first == follow_id)
            .is_some_and(|place| place > 0);
        let Some(follow) = known.follows.get_mut(&follow_id) else {
            return;
        };
        if follow.state != FollowState::Behind || known.window.behind || blocked {
            return;
        }
        let (job_id, after, stream) = (follow.job, follow.seq, follow.stream);
        let position = follow.position;
        let turn = self.jobs.numbered(job_id);
        let job = turn.and_then(|turn| self.jobs.get(&turn));
        let events = |from| Query::Events {
            job: job_id,
            after,
            from,
        };
        let missing = match job {
            Some(job) if stream && after < job.seq => Some(events(None)),
            Some(_) => None,
            // The job is over, so its text is complete.
            None if stream => Some(events(Some(position))),
            None => Some(Query::Jobs { jobs: vec![job_id] }),
        };
        if let Some(query) = missing {
            return self.refill(conn, follow_id, query, Vec::new());
        }
        if let Some(follow) = self.follow_mut(conn, follow_id) {
            follow.state = FollowState::Live;
        }
        if stream && let Some(turn) = turn {
            self.send_missed_text(conn, follow_id, turn);
        }
    }

    /// Asks the store for a follower; `texts` are kept for its answer.
    fn refill(&mut self, conn: ConnId, follow: FollowId, query: Query, texts: Vec<TextPiece>) {
        let job = self.follow_mut(conn, follow).map(|follow| follow.job);
        // Asked before the store is: what a job says while that reads would be missed otherwise.
        let over = job.is_some_and(|job| !self.jobs.knows(job));
        let token = self.outbox.load(
            Awaiting::Refill {
                conn,
                follow,
                texts,
                over,
            },
            query,
        );
        self.set_follow_state(conn, follow, FollowState::Refilling(token));
    }

    fn send_missed_text(&mut self, conn: ConnId, follow_id: FollowId, turn: TurnId) {
        let from = self
            .follow_mut(conn, follow_id)
            .map(|follow| follow.position);
        if let (Some(from), Some(job)) = (from, self.jobs.get(&turn)) {
            let spoken = spoken_since(job, from);
            self.send_spoken(conn, Reader::Sender(follow_id), &spoken, Telling::First);
        }
    }

    fn set_follow_state(&mut self, conn: ConnId, follow: FollowId, state: FollowState) {
        if let Some(follow) = self.follow_mut(conn, follow) {
            follow.state = state;
        }
    }

    /// A page of a follower's missed events came from the store, or a portion of its job's text.
    pub(crate) fn refilled(
        &mut self,
        (conn, follow_id): (ConnId, FollowId),
        events: Vec<(u64, Body)>,
        more: bool,
        (texts, whole): (Vec<TextPiece>, bool),
    ) {
        let Some(follow) = self.follow_mut(conn, follow_id) else {
            return;
        };
        let (job, id, telling) = (follow.job, follow.id.clone(), telling(follow));
        let from = follow.position;
        for (seq, body) in events {
            if let Some(follow) = self.follow_mut(conn, follow_id) {
                follow.seq = seq;
            }
            self.send(conn, &body, id.clone(), Some(seq), telling, Progress::More);
        }
        self.check_window(conn);
        self.set_follow_state(conn, follow_id, FollowState::Behind);
        if more {
            // Or what came while the store was read.
            self.resume(conn, follow_id);
            return;
        }
        if !whole {
            let spoken = Spoken::of_stored(job, &texts, from);
            self.send_spoken(conn, Reader::Sender(follow_id), &spoken, telling);
            // The rest when it has read this.
            return self.resume(conn, follow_id);
        }
        // What is left of the text is sent with the final line, which is next.
        self.refill(conn, follow_id, Query::Jobs { jobs: vec![job] }, texts);
    }

    /// The final line of a job that is over came from the store.
    pub(crate) fn refilled_final(
        &mut self,
        (conn, follow_id): (ConnId, FollowId),
        row: Option<JobRow>,
        texts: &[TextPiece],
    ) {
        let Some(follow) = self.follow_mut(conn, follow_id) else {
            return;
        };
        let (job, from, stream) = (follow.job, follow.position, follow.stream);
        let telling = telling(follow);
        match row.map(|row| row.state) {
            Some(JobState::Finished { seq, line }) => {
                if stream {
                    let spoken = Spoken::of_stored(job, texts, from);
                    self.send_spoken(conn, Reader::Sender(follow_id), &spoken, telling);
                }
                self.finish_follow(conn, follow_id, &line, seq, telling);
            }
            // Pruned meanwhile, or another process has it: what became of it is unknown here.
            Some(JobState::Queued { .. } | JobState::Running { .. }) | None => {
                self.cut_off(conn);
            }
        }
    }

    /// Sends a follower the final line and forgets it; the connection's next unnamed send goes on.
    pub(crate) fn finish_follow(
        &mut self,
        conn: ConnId,
        follow_id: FollowId,
        body: &Body,
        seq: u64,
        telling: Telling,
    ) {
        let Some(known) = self.peers.connected_mut(&conn) else {
            return;
        };
        let Some(follow) = known.follows.remove(&follow_id) else {
            return;
        };
        known.unnamed.retain(|other| *other != follow_id);
        known.send_ended(follow.id.clone());
        let next = known.unnamed.front().copied();
        if let Some(subscription) = &mut known.subscription
            && subscription.seen < seq
        {
            // Its subscription comes to this line later, and must not tell it a second time.
            subscription.told.insert(seq, follow.job);
        }
        self.unfollow(conn, follow_id, follow.job);
        let answered = Progress::Answered;
        self.send(conn, body, follow.id, Some(seq), telling, answered);
        self.check_window(conn);
        if let Some(next) = next {
            self.resume(conn, next);
        }
    }
}

pub(crate) const fn telling(follow: &Follow) -> Telling {
    if follow.replay {
        Telling::Replay
    } else {
        Telling::First
    }
}

/// A portion of what a job has said since a place.
pub(crate) fn spoken_since(job: &Job, from: Position) -> Spoken {
    let Some(number) = job.number else {
        return Spoken::default();
    };
    Spoken::between(
        number,
        &job.said.messages,
        (from, job.said.delivered),
        READER_QUEUE,
    )
}
