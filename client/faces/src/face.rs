//! What a face is: lines of a client and lines of the daemon in, lines to both out.
//!
//! Owns the trait and what a face can ask for. Must not read, write, wait or look at a clock: the
//! driver does, and tells the face what time it is.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use agentd_client::ClientError;
use agentd_client::wire::Received;
use agentd_protocol::line::{Accepted, Context, ErrorLine, Line, TurnFacts};
use agentd_protocol::request::Abort;
use agentd_protocol::{Code, Id, JobId};
use serde::Serialize;
use serde_json::{Value, json};

use crate::json_rpc::{self, Failure, INVALID_REQUEST};

/// A request of a face to the daemon. All lines that answer it carry it, over whatever connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ticket(pub(crate) u64);

/// A translator between a client of another protocol and the daemon.
///
/// Every call may leave something in the [`Outbox`], which the driver carries out in order.
pub trait Face {
    /// A line of the client, without its newline. It may be anything.
    fn client_line(&mut self, line: &[u8], now: Instant, out: &mut Outbox);

    /// A line of the client that was longer than `limit` bytes, and was skipped.
    fn client_line_too_long(&mut self, limit: usize, now: Instant, out: &mut Outbox);

    /// The client says no more. What it was answered may still be read.
    fn client_ended(&mut self, now: Instant, out: &mut Outbox);

    /// A line of the daemon; with a ticket if it answers a request.
    fn daemon_line(
        &mut self,
        ticket: Option<Ticket>,
        line: Received,
        now: Instant,
        out: &mut Outbox,
    );

    /// The connection is lost, with all that wasn't answered on it. What is asked for here goes to the
    /// daemon that comes next, as it may have been accepted; what is asked later to whoever serves.
    fn daemon_lost(&mut self, now: Instant, out: &mut Outbox);

    /// Nobody serves us: what was asked and not answered has not happened, unless it was written
    /// before [`daemon_lost`](Self::daemon_lost).
    fn unreachable(&mut self, why: &ClientError, now: Instant, out: &mut Outbox);

    /// When [`timer`](Self::timer) is to be called.
    fn deadline(&self) -> Option<Instant>;

    /// The deadline has come.
    fn timer(&mut self, now: Instant, out: &mut Outbox);

    /// Somebody ends this program: so does what goes on.
    fn stopped(&mut self, _now: Instant, _out: &mut Outbox) {}

    /// Is nothing left to do, once the client has ended?
    fn is_done(&self) -> bool;

    /// Is the client heard out, though it has not ended?
    fn leaves(&self) -> bool {
        false
    }

    /// Is nothing under way that a connection belongs to?
    fn is_idle(&self) -> bool {
        self.is_done()
    }

    /// Is all that is under way a subscription, which another connection can go on with?
    fn only_follows(&self) -> bool {
        false
    }
}

/// What a face wants carried out.
#[derive(Debug, Default)]
pub struct Outbox {
    last: u64,
    /// Requests of the client, where its protocol is JSON-RPC.
    unanswered: BTreeSet<Id>,
    pub(crate) to_client: Vec<String>,
    pub(crate) to_daemon: Vec<Ask>,
}

/// A request that was not written yet.
#[derive(Debug)]
pub struct Ask {
    /// Its name in the request.
    pub ticket: Ticket,
    /// Its `type`.
    pub kind: &'static str,
    /// Its fields, as a map.
    pub fields: Value,
}

impl Outbox {
    /// Says a line to the client, as JSON. U+2028 and U+2029 are escaped: Node's `readline` takes
    /// them for ends of lines.
    pub fn say(&mut self, message: &impl Serialize) {
        // A type of ours that can't be written as JSON is a bug that a test shows.
        if let Ok(line) = serde_json::to_string(message) {
            let line = line
                .replace('\u{2028}', "\\u2028")
                .replace('\u{2029}', "\\u2029");
            self.to_client.push(line);
        }
    }

    /// Is this a request like any other, so that it may be taken? Not while another one of its id has
    /// no answer: with the id it would be the answer to that one.
    pub(crate) fn takes(&mut self, id: &Id) -> bool {
        let is_new = self.unanswered.insert(id.clone());
        if !is_new {
            let why = format!(
                "the id {} is that of a request without an answer",
                id.as_json()
            );
            let failure = Failure::new(INVALID_REQUEST, why);
            self.say(&json_rpc::error(None, &failure));
        }
        is_new
    }

    /// Answers a request that was taken.
    pub(crate) fn answer(&mut self, id: &Id, result: &impl Serialize) {
        self.forget(id);
        self.say(&json_rpc::answer(id, result));
    }

    /// The other answer.
    pub(crate) fn refuse(&mut self, id: &Id, failure: &Failure) {
        self.forget(id);
        self.say(&json_rpc::error(Some(id), failure));
    }

    /// Nobody waits for its answer.
    pub(crate) fn forget(&mut self, id: &Id) {
        self.unanswered.remove(id);
    }

    /// Asks the daemon.
    pub fn ask(&mut self, kind: &'static str, fields: &impl Serialize) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        let fields = serde_json::to_value(fields).unwrap_or_default();
        self.to_daemon.push(Ask {
            ticket,
            kind,
            fields,
        });
        ticket
    }

    /// Has a turn end: by its job, or by the key of its send, whose connection may be gone before it is
    /// accepted.
    pub(crate) fn abort(&mut self, job: Option<JobId>, key: Option<&str>) {
        if let Some(job) = job {
            self.ask("abort", &json!({"job": job}));
        } else if let Some(key) = key {
            self.ask("abort", &Abort::of_key(key));
        }
    }

    /// What was said to the client since this was last called, for tests and other drivers.
    pub fn take_client(&mut self) -> Vec<String> {
        std::mem::take(&mut self.to_client)
    }

    /// What was asked of the daemon since this was last called.
    pub fn take_daemon(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.to_daemon)
    }
}

/// What a client is told that has no key: whoever asks again with another one runs it twice.
pub(crate) fn keyless(error: &ErrorLine) -> Cow<'_, ErrorLine> {
    if error.code != Code::OutcomeUnknown {
        return Cow::Borrowed(error);
    }
    let hint = "it may run yet: look before you ask again".to_owned();
    Cow::Owned(ErrorLine {
        retryable: false,
        hint: Some(hint),
        ..error.clone()
    })
}

/// The sessions of a client that are remembered: those that it spoke in last.
const REMEMBERED: usize = 256;

/// Who answers in the sessions that a client spoke in. One that somebody closes or renames meanwhile is
/// made anew by the next send to it: its agent stays the same, and that it is another one is said.
#[derive(Default, Debug)]
pub(crate) struct Spoken(VecDeque<(String, String)>);

impl Spoken {
    /// Who answered in it.
    pub(crate) fn agent(&self, session: &str) -> Option<&String> {
        let of_session = |(name, _): &&(String, String)| name == session;
        self.0.iter().find(of_session).map(|(_, agent)| agent)
    }

    /// This agent answers in it.
    pub(crate) fn know(&mut self, session: &str, agent: &str) {
        self.0.retain(|(name, _)| name != session);
        self.0.push_back((session.to_owned(), agent.to_owned()));
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
    }

    /// A send was accepted: what the client is told, if its session isn't the one that it spoke in.
    pub(crate) fn accepted(&mut self, accepted: &Accepted) -> Option<String> {
        let session = &accepted.session;
        let was_there = self.agent(session).is_some();
        self.know(session, &accepted.agent);
        (was_there && accepted.made).then(|| made_anew(session))
    }
}

/// What whoever spoke in a session is told of another one in its place.
pub(crate) fn made_anew(session: &str) -> String {
    format!(
        "the session `{session}` was closed or renamed elsewhere: this one of its name is new, and knows \
         nothing of what was said before"
    )
}

/// What is told of a turn whose agent had lost those before it, where the note itself isn't at hand.
pub(crate) fn lost(turn: &TurnFacts) -> Option<String> {
    let session = turn.session.as_deref().unwrap_or_default();
    (turn.context == Some(Context::Lost)).then(|| {
        format!(
            "the session `{session}` goes on without its earlier turns: the agent doesn't have them \
             any more"
        )
    })
}

/// Why nobody serves, and what to do about it, for clients that show one sentence.
pub(crate) fn sentence(why: &ClientError) -> String {
    match why {
        ClientError::Unreachable {
            hint: Some(hint), ..
        }
        | ClientError::OneShotFailed {
            why: Some(hint), ..
        } => format!("{why}: {hint}"),
        _ => why.to_string(),
    }
}

/// An error of the daemon and what to do about it, for the same clients.
pub(crate) fn hinted(error: &ErrorLine) -> String {
    let error = keyless(error);
    match &error.hint {
        Some(hint) => format!("{}: {hint}", error.error),
        None => error.error.clone(),
    }
}

/// The job that a line is about.
pub(crate) fn job_of(line: &Line) -> Option<JobId> {
    match line {
        Line::Accepted(accepted) => Some(accepted.job),
        Line::Running { job, .. }
        | Line::MessageStart { job, .. }
        | Line::MessageDelta { job, .. }
        | Line::ThinkingDelta { job, .. }
        | Line::ToolStart { job, .. }
        | Line::ToolUpdate { job, .. }
        | Line::ToolEnd { job, .. }
        | Line::Question { job, .. }
        | Line::QuestionClosed { job, .. }
        | Line::AgentEvent { job, .. } => Some(*job),
        Line::Note { job, .. } => *job,
        Line::MessageEnd(end) => end.turn.job,
        Line::Error(error) => error.turn.as_ref()?.job,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spoken_sessions_are_few_and_the_last() {
        let mut spoken = Spoken::default();
        for number in 0..=REMEMBERED {
            spoken.know(&format!("s{number}"), "pi");
        }
        spoken.know("s1", "claude");
        assert_eq!(spoken.0.len(), REMEMBERED);
        assert_eq!(spoken.agent("s0"), None);
        assert_eq!(spoken.agent("s1").map(String::as_str), Some("claude"));
    }
}
