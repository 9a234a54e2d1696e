//! Prompts and their turns.
//!
//! Owns which prompt is which turn, what is told of one to whom, and the questions that are open. Must
//! not know what a line looks like to the client (`turn`).

use agentd_client::client::is_draining;
use agentd_client::wire::Received;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::line::{Line, SessionChange, SessionChanged};
use agentd_protocol::request::work::Answer;
use agentd_protocol::request::{Abort, AfterFailure, OnQuestion, Send};
use agentd_protocol::rows::SessionPhase;
use agentd_protocol::{Id, JobId};
use serde_json::{Value, json};

use super::beside::tell_background;
use super::row::is_working;
use super::turn::{End, Event, Happened, Turn};
use super::{
    Asked, BAD_VALUE, BUSY, Begun, Gateway, MISSING, REFUSED, What, event, failure, row, wire,
};
use crate::face::{Outbox, Ticket, job_of};
use crate::json_rpc::{self, Failure, INVALID_PARAMS};

/// What a request has besides its fields.
const ENVELOPE: usize = 256;

impl Gateway {
    /// A prompt: the session's next turn, or behind those that wait.
    pub(super) fn submit(
        &mut self,
        id: &Id,
        session: &str,
        submit: wire::Submit,
        out: &mut Outbox,
    ) -> Begun {
        if submit.truncate_before_user_ordinal.is_some() {
            let why = "what was said can't be taken back: agents remember it. session.branch makes a copy to go on in";
            return Err(Failure::new(BAD_VALUE, why));
        }
        let mut send = self.send(submit.text)?;
        send.session = Some(session.to_owned());
        if let Some(known) = self.sessions.get_mut(session) {
            send.attachments = std::mem::take(&mut known.attachments);
        }
        let length = serde_json::to_string(&send).map_or(0, |line| line.len());
        if length + ENVELOPE > MAX_LINE_IN {
            let why = format!("the prompt has {length} bytes: expected at most {MAX_LINE_IN}");
            return Err(Failure::new(BAD_VALUE, why));
        }
        let what = What::Prompt(id.clone(), session.to_owned(), send.text.clone());
        self.ask("send", &send, what, out);
        Ok(None)
    }

    pub(super) fn send(&mut self, text: String) -> Result<Send, Failure> {
        if text.trim().is_empty() {
            let why = "`text` is blank: expected what to ask";
            return Err(Failure::new(MISSING, why));
        }
        self.made += 1;
        Ok(Send {
            text,
            idempotency_key: Some(format!("tui-{}-{}", self.settings.nonce, self.made)),
            on_question: Some(OnQuestion::Wait),
            must: vec!["on_question".to_owned()],
            after_failure: AfterFailure::Run,
            ..Send::default()
        })
    }

    /// A line that answers a prompt.
    pub(super) fn turn_line(&mut self, ticket: Ticket, line: Received, out: &mut Outbox) {
        match &line.line {
            Some(Line::Accepted(accepted)) => {
                let job = accepted.job;
                let Some(asked) = self.asked.get_mut(&ticket) else {
                    return;
                };
                let mut turn = self.turns.remove(&job).unwrap_or_else(Turn::new);
                turn.is_ours = true;
                match std::mem::replace(&mut asked.what, What::Turn(job)) {
                    What::Prompt(reply, session, text) => {
                        // One whose process comes up waits, too, but for no other turn.
                        let of = Some(session.as_str());
                        let waits = self.turns.values().any(|one| one.session.as_deref() == of);
                        let status = if waits { "queued" } else { "streaming" };
                        out.answer(&reply, &json!({"status": status}));
                        turn.is_promised = !waits;
                        turn.user = text;
                        turn.session = Some(session.clone());
                        if let Some(known) = self.sessions.get_mut(&session) {
                            known.is_empty = false;
                        }
                    }
                    What::Background(reply, session) => {
                        out.answer(&reply, &json!({"task_id": job}));
                        turn.is_background = true;
                        turn.user = session;
                    }
                    _ => {}
                }
                self.turns.insert(job, turn);
            }
            Some(Line::Error(error)) if job_of_error(&line).is_none() => {
                let failure = failure(error);
                return self.refuse_prompt(ticket, &failure, out);
            }
            None if line.ends_turn() => {
                let why = "the daemon's answer was not understood";
                return self.refuse_prompt(ticket, &Failure::new(REFUSED, why), out);
            }
            _ => {}
        }
        if let Some(job) = line.line.as_ref().and_then(job_of) {
            self.feed(job, line, out);
        }
    }

    fn refuse_prompt(&mut self, ticket: Ticket, failure: &Failure, out: &mut Outbox) {
        match self.asked.remove(&ticket).map(|asked| asked.what) {
            Some(What::Prompt(reply, ..) | What::Background(reply, _)) => {
                out.refuse(&reply, failure);
            }
            Some(What::Turn(job)) => self.lose_turn(job, &failure.message, out),
            _ => {}
        }
    }

    /// A line of the subscription.
    pub(super) fn followed_line(&mut self, line: Received, out: &mut Outbox) {
        match &line.line {
            Some(Line::Live { seq, .. }) => {
                self.seq = self.seq.max(Some(*seq));
                self.over = None;
            }
            Some(Line::SessionChanged(change)) => {
                let change = change.clone();
                self.changed(*change, out);
            }
            Some(Line::Error(_)) if is_draining(&line) => {}
            Some(Line::Error(error)) if job_of_error(&line).is_none() => {
                // What came after the last line that was told is forgotten.
                let why = error.error.clone();
                (self.following, self.seq, self.over) = (None, None, None);
                self.lose_turns(&why, out);
                self.losses += 1;
                if self.losses < agentd_client::again::MOST_LOSSES {
                    self.follow(out);
                }
            }
            Some(known) => match job_of(known) {
                Some(job) if self.may_answer_a_prompt(job) => self.held.push((job, line)),
                Some(job) => self.feed(job, line, out),
                None => {}
            },
            None => {}
        }
    }

    /// Is it a turn that nobody knows, while a prompt that may have become it is asked for again?
    fn may_answer_a_prompt(&self, job: JobId) -> bool {
        let asked_again = |asked: &Asked| {
            asked.lost > 0 && matches!(asked.what, What::Prompt(..) | What::Background(..))
        };
        !self.turns.contains_key(&job) && self.asked.values().any(asked_again)
    }

    /// Tells what was held back until such a prompt was answered.
    pub(super) fn release(&mut self, out: &mut Outbox) {
        for (job, line) in std::mem::take(&mut self.held) {
            match self.may_answer_a_prompt(job) {
                true => self.held.push((job, line)),
                false => self.feed(job, line, out),
            }
        }
    }

    /// A line of a turn, from wherever it came.
    fn feed(&mut self, job: JobId, line: Received, out: &mut Outbox) {
        if self.over.as_ref().is_some_and(|over| over.contains(&job)) {
            return;
        }
        let turn = self.turns.entry(job).or_insert_with(Turn::new);
        let mut events = Vec::new();
        let happened = turn.line(job, line, &mut events);
        let told = Some(turn.last_seq()).filter(|seq| *seq > 0);
        self.seq = self.seq.max(told);
        self.tell_of(job, events, out);
        match happened {
            Happened::Nothing => {}
            Happened::Asked(question) => {
                if self.questions.iter().all(|known| known.id != question.id) {
                    self.tell_question(job, question.event(), out);
                    self.questions.push(*question);
                }
            }
            Happened::Closed { question, answer } => {
                self.question_closed(job, &question, answer.as_deref(), out);
            }
            Happened::Ended(end) => self.ended(job, *end, out),
        }
    }

    /// Tells of a turn, if its session is open here.
    pub(super) fn tell_of(&self, job: JobId, events: Vec<Event>, out: &mut Outbox) {
        let turn = self.turns.get(&job).filter(|turn| !turn.is_told);
        let session = turn.and_then(|turn| turn.session.as_deref());
        let Some(session) = session.filter(|name| self.sessions.contains_key(*name)) else {
            return;
        };
        for (kind, payload) in events {
            event(kind, Some(session), payload.as_ref(), out);
        }
    }

    fn question_closed(&mut self, job: JobId, id: &str, answer: Option<&str>, out: &mut Outbox) {
        // Before what the turn says next: clients take the answer to their request for the newer fact.
        let taken = self.asked.values_mut().find(|asked| {
            matches!(&asked.what, What::Answered(_, ids, _)
                if ids.last().is_some_and(|last| last == id) && is_said(&asked.fields, answer))
        });
        if let Some(asked) = taken
            && let What::Answered(reply, ids, done) =
                std::mem::replace(&mut asked.what, What::Nobody)
        {
            self.answer_taken(&reply, &ids, Ok(done), out);
        }
        let Some(at) = self.questions.iter().position(|known| known.id == id) else {
            return;
        };
        let question = self.questions.remove(at);
        if answer.is_none()
            && let Some((kind, payload)) = question.expired()
        {
            self.tell_question(job, (kind, Some(payload)), out);
        }
    }

    fn ended(&mut self, job: JobId, end: End, out: &mut Outbox) {
        let closed = self
            .questions
            .extract_if(.., |question| question.job == job);
        for question in closed.collect::<Vec<_>>() {
            if let Some((kind, payload)) = question.expired() {
                self.tell_question(job, (kind, Some(payload)), out);
            }
        }
        self.asked
            .retain(|_, asked| !matches!(asked.what, What::Turn(of) if of == job));
        let said = || match &end.error {
            Some(why) => format!("error: {why}"),
            None => end.text.clone(),
        };
        for asked in self.asked.values_mut() {
            match &mut asked.what {
                What::Past(opening) => opening.ended.push(job),
                What::Beside(_, ended) => ended.push((job, said())),
                _ => {}
            }
        }
        let Some(turn) = self.turns.remove(&job) else {
            return;
        };
        if let Some(over) = &mut self.over {
            over.insert(job);
        }
        if turn.is_background {
            // Its session was kept in place of the prompt.
            return tell_background(&turn.user, job, &said(), out);
        }
        let Some((name, session)) = turn
            .session
            .and_then(|name| Some((name.clone(), self.sessions.get_mut(&name)?)))
        else {
            return;
        };
        session.count(&end.facts);
        let of = Some(name.as_str());
        let goes_on = self.turns.values().any(|one| one.session.as_deref() == of);
        if is_working(session.state) && !goes_on {
            // A daemon that died doesn't say so.
            session.state = SessionPhase::Idle;
        }
        let usage = row::usage(session);
        if turn.is_told {
            return;
        }
        if !end.was_started {
            let why = end.error.as_deref().unwrap_or("it was cancelled");
            let text = format!("a prompt that waited was not run: {why}");
            let note = json!({"kind": "warn", "text": text});
            return event("status.update", Some(&name), Some(&note), out);
        }
        let text = match (end.error, end.text.is_empty()) {
            (None, _) => end.text,
            (Some(why), true) => format!("error: {why}"),
            (Some(why), false) => format!("{}\n\nerror: {why}", end.text),
        };
        let complete = json!({"text": text, "status": end.status, "usage": usage});
        event("message.complete", Some(&name), Some(&complete), out);
        self.tell_info(&name, out);
    }

    fn lose_turn(&mut self, job: JobId, why: &str, out: &mut Outbox) {
        self.questions.retain(|question| question.job != job);
        let message =
            format!("what became of the turn is not known here, /resume shows it later: {why}");
        let events = vec![("error", Some(json!({"message": message})))];
        self.tell_of(job, events, out);
        self.turns.remove(&job);
    }

    /// Nobody tells any more what becomes of them.
    pub(super) fn lose_turns(&mut self, why: &str, out: &mut Outbox) {
        for job in self.turns.keys().copied().collect::<Vec<_>>() {
            self.lose_turn(job, why, out);
        }
    }

    /// Somebody did something with a session.
    fn changed(&mut self, change: SessionChanged, out: &mut Outbox) {
        let was = change
            .was
            .filter(|_| change.change == SessionChange::Renamed);
        let Some(name) = was.clone().or(change.session) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&name) else {
            return;
        };
        match change.change {
            SessionChange::Titled => {
                session.title = change.title.unwrap_or_default();
                let titled = json!({"session_id": name, "title": session.title});
                event("session.title", Some(&name), Some(&titled), out);
            }
            SessionChange::Model => {
                (session.provider, session.model) = (change.provider, change.model);
                session.thinking = change.thinking;
                self.tell_info(&name, out);
            }
            SessionChange::State => {
                session.state = change.state.unwrap_or_default();
                self.tell_info(&name, out);
            }
            SessionChange::Closed | SessionChange::Renamed => {
                self.sessions.remove(&name);
                let text = match was {
                    Some(_) => "the session has another name now: /resume finds it",
                    None => "the session was closed elsewhere: /new begins another one",
                };
                let note = json!({"kind": "warn", "text": text});
                event("status.update", Some(&name), Some(&note), out);
            }
            _ => {}
        }
    }

    /// Ends the turn that runs; what waits behind it is the next.
    pub(super) fn interrupt(&mut self, id: &Id, session: &str, out: &mut Outbox) -> Begun {
        let abort = Abort {
            session: Some(session.to_owned()),
            ..Abort::default()
        };
        let done = json!({"status": "interrupted"});
        self.ask("abort", &abort, What::Interrupted(id.clone(), done), out);
        Ok(None)
    }

    /// Ends the turns of a session that this client asked for.
    pub(super) fn abort_own(&mut self, session: &str, out: &mut Outbox) {
        let own = self.turns.iter().filter(|(_, turn)| {
            turn.is_ours && !turn.is_background && turn.session.as_deref() == Some(session)
        });
        for job in own.map(|(job, _)| *job).collect::<Vec<_>>() {
            self.ask("abort", &json!({"job": job}), What::Nobody, out);
        }
    }

    /// The oldest approval that is open in the session, or all of them.
    pub(super) fn approve(
        &mut self,
        id: &Id,
        session: &str,
        approval: &wire::Approval,
        out: &mut Outbox,
    ) -> Begun {
        let open = self
            .questions
            .iter()
            .filter(|question| question.is_approval() && self.asks_in(question.job, session));
        let most = match approval.all {
            Some(true) => usize::MAX,
            Some(false) | None => 1,
        };
        let choice = approval.choice.as_deref().unwrap_or("deny");
        let answers = open.take(most).map(|question| question.approve(choice));
        let mut answers: Vec<Answer> = answers.collect::<Result<_, _>>()?;
        let done = json!({"resolved": answers.len()});
        let ids = answers.iter().map(|answer| answer.question_id.clone());
        let ids: Vec<String> = ids.collect();
        let Some(last) = answers.pop() else {
            return Ok(Some(done));
        };
        for answer in answers {
            self.ask("answer", &answer, What::Nobody, out);
        }
        self.ask("answer", &last, What::Answered(id.clone(), ids, done), out);
        Ok(None)
    }

    /// An answer to anything else. One that is late is an error, or `expired` where secrets are asked.
    pub(super) fn respond(&mut self, call: &super::Call, out: &mut Outbox) -> Begun {
        let said: wire::Response = json_rpc::params(call.params.clone())?;
        let meant =
            |question: &&super::Question| question.id == said.request_id && !question.is_approval();
        let Some(question) = self.questions.iter().find(meant) else {
            return match call.method.as_str() {
                "sudo.respond" | "secret.respond" => Ok(Some(json!({"status": "expired"}))),
                _ => {
                    let why = "no pending request of this `request_id`: it was answered, or its time is over";
                    Err(Failure::new(BUSY, why))
                }
            };
        };
        let ids = vec![question.id.clone()];
        let answer = question.answer(said);
        let what = What::Answered(call.id.clone(), ids, json!({"status": "ok"}));
        self.ask("answer", &answer, what, out);
        Ok(None)
    }

    /// An answer was taken, or not: then the question is put once more.
    pub(super) fn answer_taken(
        &mut self,
        reply: &Id,
        ids: &[String],
        result: Result<Value, Failure>,
        out: &mut Outbox,
    ) {
        match result {
            Ok(done) => {
                self.questions
                    .retain(|question| !ids.contains(&question.id));
                out.answer(reply, &done);
            }
            Err(failure) => {
                out.refuse(reply, &failure);
                let open: Vec<_> = self
                    .questions
                    .iter()
                    .filter(|one| ids.contains(&one.id))
                    .collect();
                for question in open {
                    self.tell_question(question.job, question.event(), out);
                }
            }
        }
    }
}

/// Is it this answer that counted?
fn is_said(said: &Value, answer: Option<&str>) -> bool {
    match answer {
        Some("approve") => said["approve"] == true,
        Some("deny") => said["approve"] == false,
        Some(word @ ("choice" | "text" | "cancel")) => said.get(word).is_some(),
        _ => false,
    }
}

/// The job of an error that ends one.
fn job_of_error(line: &Received) -> Option<JobId> {
    match &line.line {
        Some(Line::Error(error)) => error.turn.as_ref()?.job,
        _ => None,
    }
}

/// Params that aren't as they should be, in our own words.
pub(super) fn invalid(why: impl Into<String>) -> Failure {
    Failure::new(INVALID_PARAMS, why)
}
