//! Who hears what: lines on their way from jobs to connections.
//!
//! Owns order and gaplessness: what a follower can't take now it gets later, from the store.
//! Must not know what the lines mean.

use agentd_protocol::line::Telling;
use agentd_protocol::{Body, JobId, Line};

use crate::conn::{Follow, FollowId, FollowState, Role};
use crate::effect::Progress;
use crate::ids::{ConnId, Token, TurnId};
use crate::job::{Job, Message, Out, Position};
use crate::limits::READER_QUEUE;
use crate::state::State;
use crate::store::{JobRow, JobState, MessageText, Query, TextKind, Write};
use crate::stored::Awaiting;
use crate::text;

/// A delta is cut here: a line must stay far below its limit after escaping.
const DELTA: usize = 64 * 1024;

impl State {
    /// Queues a line of a job behind those before it.
    pub(crate) fn say(&mut self, turn: TurnId, line: &Line) {
        if let Some(job) = self.jobs.get_mut(&turn) {
            job.out.push_back(Out::Plain(line.body()));
            self.flow(turn);
        }
    }

    /// Queues a numbered event of a job; it leaves after its commit.
    pub(crate) fn say_numbered(&mut self, turn: TurnId, line: &Line) {
        let Some(job) = self.jobs.get(&turn).and_then(|job| job.number) else {
            return;
        };
        let body = line.body();
        let write = Write::Event {
            job,
            line: body.clone(),
        };
        let token = self.commit(Awaiting::Event(turn), vec![write]);
        if let Some(job) = self.jobs.get_mut(&turn) {
            job.out.push_back(Out::Numbered { token, body });
        }
    }

    /// The job's text has grown.
    pub(crate) fn say_text(&mut self, turn: TurnId) {
        let Some(job) = self.jobs.get_mut(&turn) else {
            return;
        };
        let position = job.position();
        if let Some(Out::Text(last)) = job.out.back_mut() {
            *last = position;
        } else {
            job.out.push_back(Out::Text(position));
        }
        self.flow(turn);
    }

    /// A numbered event of a job is committed.
    pub(crate) fn numbered(&mut self, turn: TurnId, token: Token, seq: u64) {
        let Some(job) = self.jobs.get_mut(&turn) else {
            return;
        };
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
            let Some(job) = self.jobs.get_mut(&turn) else {
                return;
            };
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
                    job.delivered = position;
                    self.deliver_text(turn);
                }
                Some(Out::Numbered { .. }) | None => return,
            }
        }
    }

    fn deliver(&mut self, turn: TurnId, body: &Body, seq: Option<u64>) {
        let Some(job) = self.jobs.get(&turn) else {
            return;
        };
        for (conn, follow_id) in job.followers.clone() {
            let Some(follow) = self.follow_mut(conn, follow_id) else {
                continue;
            };
            if follow.state != FollowState::Live {
                continue;
            }
            if let Some(seq) = seq {
                follow.seq = seq;
            }
            if follow.stream {
                let id = follow.id.clone();
                self.send(conn, body, id, seq, Telling::First, Progress::More);
                self.check_window(conn);
            }
        }
    }

    fn deliver_text(&mut self, turn: TurnId) {
        let Some(job) = self.jobs.get(&turn) else {
            return;
        };
        let followers: Vec<_> = job.followers.iter().copied().collect();
        // Followers mostly stand at the same place: the lines are made once for them.
        let mut made: Option<(Position, Vec<Body>)> = None;
        for (conn, follow_id) in followers {
            let Some(job) = self.jobs.get(&turn) else {
                return;
            };
            let Some(follow) = self
                .conns
                .get(&conn)
                .and_then(|conn| conn.follows.get(&follow_id))
            else {
                continue;
            };
            if follow.state != FollowState::Live || !follow.stream {
                continue;
            }
            let from = follow.position;
            let bodies = match made.take() {
                Some((same, bodies)) if same == from => bodies,
                _ => text_lines(job, from),
            };
            self.send_text(conn, follow_id, turn, &bodies);
            made = Some((from, bodies));
        }
    }

    fn send_text(&mut self, conn: ConnId, follow_id: FollowId, turn: TurnId, bodies: &[Body]) {
        let Some(delivered) = self.jobs.get(&turn).map(|job| job.delivered) else {
            return;
        };
        let Some(follow) = self.follow_mut(conn, follow_id) else {
            return;
        };
        follow.position = delivered;
        let id = follow.id.clone();
        for body in bodies {
            self.send(conn, body, id.clone(), None, Telling::First, Progress::More);
        }
        self.check_window(conn);
    }

    /// A reader that lies too far behind gets nothing unasked until it caught up.
    fn check_window(&mut self, conn: ConnId) {
        let Some(known) = self.conns.get_mut(&conn) else {
            return;
        };
        if known.window.behind || known.window.outstanding() <= READER_QUEUE {
            return;
        }
        known.window.behind = true;
        for follow in known.follows.values_mut() {
            if follow.state == FollowState::Live {
                follow.state = FollowState::Behind;
            }
        }
    }

    pub(crate) fn caught_up(&mut self, conn: ConnId) {
        let Some(known) = self.conns.get_mut(&conn) else {
            return;
        };
        known.window.mark_returned();
        if known.window.behind && known.window.outstanding() <= READER_QUEUE / 2 {
            known.window.behind = false;
            let follows: Vec<_> = known.follows.keys().copied().collect();
            for follow_id in follows {
                self.resume(conn, follow_id);
            }
        }
    }

    pub(crate) fn follow_mut(&mut self, conn: ConnId, follow: FollowId) -> Option<&mut Follow> {
        self.conns.get_mut(&conn)?.follows.get_mut(&follow)
    }

    /// Adds a follower that stands at the job's beginning; call `resume` when it may get lines.
    pub(crate) fn follow(&mut self, conn: ConnId, follow: Follow) -> Option<FollowId> {
        let follow_id = FollowId(self.number());
        let known = self.conns.get_mut(&conn)?;
        if follow.role == Role::Sender && follow.id.is_none() {
            known.unnamed.push_back(follow_id);
        }
        let job = follow.job;
        known.follows.insert(follow_id, follow);
        if let Some(job) = self
            .numbers
            .get(&job)
            .and_then(|turn| self.jobs.get_mut(turn))
        {
            job.followers.insert((conn, follow_id));
        }
        Some(follow_id)
    }

    /// Gives a follower that is behind what it misses, from the store where need be.
    pub(crate) fn resume(&mut self, conn: ConnId, follow_id: FollowId) {
        let Some(known) = self.conns.get_mut(&conn) else {
            return;
        };
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
        let turn = self.numbers.get(&job_id).copied();
        let job = turn.and_then(|turn| self.jobs.get(&turn));
        let events = Query::Events { job: job_id, after };
        let missing = match job {
            Some(job) if stream && after < job.seq => Some(events),
            Some(_) => None,
            None if stream => Some(events),
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
    fn refill(&mut self, conn: ConnId, follow: FollowId, query: Query, texts: Vec<MessageText>) {
        let token = self.load(
            Awaiting::Refill {
                conn,
                follow,
                texts,
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
            let bodies = text_lines(job, from);
            self.send_text(conn, follow_id, turn, &bodies);
        }
    }

    fn set_follow_state(&mut self, conn: ConnId, follow: FollowId, state: FollowState) {
        if let Some(follow) = self.follow_mut(conn, follow) {
            follow.state = state;
        }
    }

    /// A page of a follower's missed events came from the store.
    pub(crate) fn refilled(
        &mut self,
        (conn, follow_id): (ConnId, FollowId),
        events: Vec<(u64, Body)>,
        more: bool,
        texts: Vec<MessageText>,
    ) {
        let Some(follow) = self.follow_mut(conn, follow_id) else {
            return;
        };
        let (job, id, telling) = (follow.job, follow.id.clone(), telling(follow));
        for (seq, body) in events {
            if let Some(follow) = self.follow_mut(conn, follow_id) {
                follow.seq = seq;
            }
            self.send(conn, &body, id.clone(), Some(seq), telling, Progress::More);
        }
        self.check_window(conn);
        self.set_follow_state(conn, follow_id, FollowState::Behind);
        if more || self.numbers.contains_key(&job) {
            self.resume(conn, follow_id);
            return;
        }
        // The job is over: its text is complete in the store, and its final line is next.
        self.refill(conn, follow_id, Query::Jobs { jobs: vec![job] }, texts);
    }

    /// The final line of a job that is over came from the store.
    pub(crate) fn refilled_final(
        &mut self,
        (conn, follow_id): (ConnId, FollowId),
        row: Option<JobRow>,
        texts: &[MessageText],
    ) {
        let Some(follow) = self.follow_mut(conn, follow_id) else {
            return;
        };
        let (job, from, stream) = (follow.job, follow.position, follow.stream);
        let (id, telling) = (follow.id.clone(), telling(follow));
        match row.map(|row| row.state) {
            Some(JobState::Finished { seq, line }) => {
                for body in if stream {
                    stored_lines(job, texts, from)
                } else {
                    Vec::new()
                } {
                    self.send(conn, &body, id.clone(), None, telling, Progress::More);
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
        let Some(known) = self.conns.get_mut(&conn) else {
            return;
        };
        let Some(follow) = known.follows.remove(&follow_id) else {
            return;
        };
        known.unnamed.retain(|other| *other != follow_id);
        let next = known.unnamed.front().copied();
        let progress = match follow.role {
            Role::Sender => Progress::Answered,
            Role::Subscriber => Progress::More,
        };
        self.unfollow(conn, follow_id, follow.job);
        self.send(conn, body, follow.id, Some(seq), telling, progress);
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

/// The lines from one place in a job's text to what left.
fn text_lines(job: &Job, from: Position) -> Vec<Body> {
    let Some(number) = job.number else {
        return Vec::new();
    };
    lines_between(number, &job.messages, from, job.delivered)
}

/// The lines from one place to the end of a finished job's text.
fn stored_lines(job: JobId, texts: &[MessageText], from: Position) -> Vec<Body> {
    let count = texts
        .iter()
        .map(|text| text.message as usize + 1)
        .max()
        .unwrap_or(0);
    let mut messages = vec![Message::default(); count];
    for stored in texts {
        let message = &mut messages[stored.message as usize];
        match stored.kind {
            TextKind::Text => message.text.clone_from(&stored.text),
            TextKind::Thinking => message.thinking.clone_from(&stored.text),
        }
    }
    let to = Position {
        messages: count,
        text: usize::MAX,
        thinking: usize::MAX,
    };
    lines_between(job, &messages, from, to)
}

fn lines_between(job: JobId, messages: &[Message], from: Position, to: Position) -> Vec<Body> {
    let mut lines = Vec::new();
    let first = from.messages.saturating_sub(1);
    for (index, message) in messages.iter().enumerate().take(to.messages).skip(first) {
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        if index >= from.messages {
            let role = "assistant".to_owned();
            lines.push(
                Line::MessageStart {
                    job,
                    message: number,
                    role,
                    replaces: message.replaces,
                }
                .body(),
            );
        }
        let continued = index + 1 == from.messages;
        let last = index + 1 == to.messages;
        let span = |len: usize, from: usize, to: usize| {
            let start = if continued { from.min(len) } else { 0 };
            start..(if last { to.min(len) } else { len }).max(start)
        };
        let thinking = span(message.thinking.len(), from.thinking, to.thinking);
        for (offset, text) in pieces(&message.thinking, thinking) {
            lines.push(
                Line::ThinkingDelta {
                    job,
                    message: number,
                    offset,
                    text,
                }
                .body(),
            );
        }
        let text = span(message.text.len(), from.text, to.text);
        for (offset, text) in pieces(&message.text, text) {
            lines.push(
                Line::MessageDelta {
                    job,
                    message: number,
                    offset,
                    text,
                    native: message.native,
                }
                .body(),
            );
        }
    }
    lines
}

/// Cuts a span of text at character boundaries.
fn pieces(text: &str, span: std::ops::Range<usize>) -> Vec<(u64, String)> {
    let mut pieces = Vec::new();
    let mut start = text::floor(text, span.start);
    let end = text::floor(text, span.end);
    while start < end {
        let stop = text::floor(text, (start + DELTA).min(end));
        pieces.push((start as u64, text[start..stop].to_owned()));
        start = stop;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(from: Position, to: Position) -> Vec<String> {
        let message = |text: &str, thinking: &str| Message {
            text: text.to_owned(),
            thinking: thinking.to_owned(),
            native: true,
            ..Message::default()
        };
        let messages = [message("hello", "hm"), message("wörld", "")];
        lines_between(JobId(1), &messages, from, to)
            .iter()
            .map(|body| {
                body.as_json()
                    .replace(r#""job":"j1","#, "")
                    .replace(r#","native":true"#, "")
            })
            .collect()
    }

    #[test]
    fn a_follower_gets_just_what_lies_between_its_place_and_the_end() {
        let at = |messages, text, thinking| Position {
            messages,
            text,
            thinking,
        };
        assert_eq!(
            shown(at(0, 0, 0), at(2, 3, 0)),
            [
                r#"{"type":"message_start","message":0,"role":"assistant"}"#,
                r#"{"type":"thinking_delta","message":0,"offset":0,"text":"hm"}"#,
                r#"{"type":"message_delta","message":0,"offset":0,"text":"hello"}"#,
                r#"{"type":"message_start","message":1,"role":"assistant"}"#,
                r#"{"type":"message_delta","message":1,"offset":0,"text":"wö"}"#,
            ]
        );
        assert_eq!(
            shown(at(1, 2, 2), at(2, 6, 0)),
            [
                r#"{"type":"message_delta","message":0,"offset":2,"text":"llo"}"#,
                r#"{"type":"message_start","message":1,"role":"assistant"}"#,
                r#"{"type":"message_delta","message":1,"offset":0,"text":"wörld"}"#,
            ]
        );
        assert!(shown(at(2, 6, 0), at(2, 6, 0)).is_empty());
    }
}
