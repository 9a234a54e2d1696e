//! Prompts and their turns.
//!
//! Owns which prompt is which turn, that each has one answer, how one is cancelled, and the questions
//! that are put to the client. Must not know what a line looks like to an editor (`turn`).

use std::time::Instant;

use agentd_client::client::is_draining;
use agentd_client::wire::Received;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::line::{
    Cost, CostStatus, ErrorLine, Line, MessageEnd, Stop, TurnFacts, Usage,
};
use agentd_protocol::request::{Abort, OnQuestion, Send, Subscribe};
use agentd_protocol::{Id, JobId};
use serde_json::{Value, json};

use super::failure::{self, invalid};
use super::state::{self, Prompt, What};
use super::turn::{Happened, Turn};
use super::wire::{self, CancelRequest, Update};
use super::{Acp, OUTPUT_PAUSE};
use crate::face::{Outbox, Ticket, job_of, made_anew};
use crate::json_rpc::{self, Failure, INTERNAL_ERROR};

/// What a request has besides its fields.
const ENVELOPE: usize = 256;
/// Turns that are followed at once: as many as a subscription takes.
const FOLLOWED: usize = 256;

impl Acp {
    pub(super) fn prompt(
        &mut self,
        id: &Id,
        prompt: wire::Prompt,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let session = prompt.session_id;
        if !self.sessions.contains_key(&session) {
            return Err(failure::unknown_session(&session));
        }
        let asking = super::prompt::asking(prompt.prompt)?;
        let send = Send {
            text: asking.text,
            attachments: asking.attachments,
            session: Some(session.clone()),
            idempotency_key: Some(self.name()),
            on_question: Some(OnQuestion::Wait),
            must: vec!["on_question".to_owned()],
            ..Send::default()
        };
        let prompt = Prompt {
            reply: id.clone(),
            send: Box::new(send),
        };
        match self.sessions.get_mut(&session) {
            Some(known) if known.opening.is_some() => known.waiting.push(prompt),
            Some(_) | None => self.send(&session, prompt, out),
        }
        Ok(())
    }

    /// Sends a prompt to its session, which is made anew should somebody have closed it.
    pub(super) fn send(&mut self, session: &str, prompt: Prompt, out: &mut Outbox) {
        let Prompt { reply, mut send } = prompt;
        if let Some(known) = self.sessions.get(session) {
            send.agent.clone_from(&known.offer.agent);
            send.cwd_if_new = Some(known.cwd.clone());
            send.mcp_servers.clone_from(&known.mcp_servers);
            if known.mcp_servers.is_some() {
                send.must.push("mcp_servers".to_owned());
            }
        }
        let length = serde_json::to_string(&send).map_or(0, |line| line.len());
        if length + ENVELOPE > MAX_LINE_IN {
            let why = format!("the prompt has {length} bytes: expected at most {MAX_LINE_IN}");
            return out.refuse(&reply, &invalid(why));
        }
        let what = What::Prompt {
            session: session.to_owned(),
            reply,
            cancelled: false,
        };
        self.ask("send", &send, what, out);
    }

    /// A line that answers a prompt.
    pub(super) fn turn_line(
        &mut self,
        ticket: Ticket,
        line: Received,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Some(asked) = self.asked.get_mut(&ticket) else {
            return;
        };
        match (&asked.what, &line.line) {
            (
                What::Prompt {
                    session,
                    reply,
                    cancelled,
                },
                Some(Line::Accepted(accepted)),
            ) => {
                let (job, made) = (accepted.job, accepted.made);
                let (session, cancelled) = (session.clone(), *cancelled);
                let mut turn = Turn::new(&session, job, Some(reply.clone()));
                turn.cancelled = cancelled;
                let known = self.sessions.get(&session);
                let is_another = made && known.is_some_and(|known| known.begun);
                let another = is_another.then(|| turn.forgot(made_anew(&session)));
                asked.what = What::Turn(job);
                asked.fields = Value::Null;
                self.turns.insert(job, turn);
                self.tell(&session, another.as_slice(), out);
                if cancelled {
                    self.abort(job, out);
                }
                self.begins(&session, out);
                if made {
                    self.set_again(&session, out);
                }
            }
            (What::Prompt { .. }, _) => {
                if !is_draining(&line)
                    && line.ends_turn()
                    && let Some(asked) = self.asked.remove(&ticket)
                {
                    self.answered(asked, line, now, out);
                }
                return;
            }
            _ => {}
        }
        if let Some(job) = line.line.as_ref().and_then(job_of) {
            self.feed(job, line, now, out);
        }
    }

    /// A line of a turn that is followed by its number.
    pub(super) fn followed_line(&mut self, line: Received, now: Instant, out: &mut Outbox) {
        match &line.line {
            Some(Line::Error(_)) if is_draining(&line) => {}
            Some(Line::Error(error)) if !line.line.as_ref().is_some_and(Line::ends_job) => {
                // What came after the last line that was told is forgotten.
                let failure = failure::outcome_unknown(&error.error);
                self.following = None;
                for job in self.followed() {
                    let session = self.turns.get(&job).map(|turn| turn.session.clone());
                    self.lose_turn(job, &failure, out);
                    self.feed_kept(&session.unwrap_or_default(), now, out);
                }
            }
            Some(known) => {
                if let Some(job) = job_of(known) {
                    self.feed(job, line, now, out);
                }
            }
            None => {}
        }
    }

    /// Turns that no request of this connection tells of.
    fn followed(&self) -> Vec<JobId> {
        let asked = self.asked.values().filter_map(|asked| match asked.what {
            What::Turn(job) => Some(job),
            _ => None,
        });
        let asked: Vec<JobId> = asked.collect();
        let jobs = self.turns.keys().copied();
        let followed = jobs.filter(|job| !asked.contains(job));
        followed.take(FOLLOWED).collect()
    }

    /// Subscribes to what no request tells of: from the last line on that was told.
    pub(super) fn follow(&mut self, out: &mut Outbox) {
        let jobs = self.followed();
        if jobs.is_empty() {
            return;
        }
        if self.following.take().is_some() {
            self.ask("unsubscribe", &json!({}), What::Nobody, out);
        }
        let told = jobs.iter().filter_map(|job| self.turns.get(job));
        let after = told.map(Turn::last_seq).filter(|seq| *seq > 0).min();
        let wanted = Subscribe {
            jobs: Some(jobs),
            // One may have ended since it was looked at: without a cursor its end would never be told.
            after: Some(after.unwrap_or(0)),
            ..Subscribe::default()
        };
        self.following = Some(out.ask("subscribe", &wanted));
    }

    /// A line of a turn, from wherever it came.
    pub(super) fn feed(&mut self, job: JobId, line: Received, now: Instant, out: &mut Outbox) {
        let Some(session) = self.turns.get(&job).map(|turn| turn.session.clone()) else {
            return;
        };
        let is_behind = self.is_behind_another(job, &session);
        if let Some(known) = self.sessions.get_mut(&session)
            && (known.opening.is_some() || is_behind)
        {
            // What was said before comes first.
            return known.kept.push((job, line));
        }
        let Some(turn) = self.turns.get_mut(&job) else {
            return;
        };
        let mut updates = Vec::new();
        let mode = mode_of(&line);
        let happened = turn.line(line, &mut updates);
        if turn.has_grown() {
            self.output_at.get_or_insert(now + OUTPUT_PAUSE);
        }
        self.tell(&session, &updates, out);
        if let Some(mode) = mode {
            self.changes_mode(&session, mode, out);
        }
        match happened {
            None => {}
            Some(Happened::Asked(question)) => self.put(job, &question, out),
            Some(Happened::Closed { question, approved }) => {
                self.close_question(job, &question, approved, out);
            }
            Some(Happened::Held) => {
                // Nobody says here that it may run: it is given back.
                if let Some(turn) = self.turns.get_mut(&job).filter(|turn| turn.reply.is_some()) {
                    turn.held = true;
                    self.abort(job, out);
                }
            }
            Some(Happened::Ended(result)) => {
                self.end(job, result, out);
                self.feed_kept(&session, now, out);
            }
        }
    }

    /// Is a turn of the session before this one followed, and not at its end? Its lines come by another
    /// way, and may be later than those of the next.
    fn is_behind_another(&self, job: JobId, session: &str) -> bool {
        let is_before = |other: &JobId| {
            let turn = self.turns.get(other);
            *other < job && turn.is_some_and(|turn| turn.session == session)
        };
        self.turns.len() > 1 && self.followed().iter().any(is_before)
    }

    /// What waited for the end of the turn before.
    fn feed_kept(&mut self, session: &str, now: Instant, out: &mut Outbox) {
        let known = self.sessions.get_mut(session);
        let Some(known) = known.filter(|known| known.opening.is_none()) else {
            return;
        };
        for (job, line) in std::mem::take(&mut known.kept) {
            self.feed(job, line, now, out);
        }
    }

    pub(super) fn tell_output(&mut self, out: &mut Outbox) {
        let mut told = Vec::new();
        for turn in self.turns.values_mut().filter(|turn| turn.has_grown()) {
            let mut updates = Vec::new();
            turn.told_output(&mut updates);
            told.push((turn.session.clone(), updates));
        }
        for (session, updates) in told {
            self.tell(&session, &updates, out);
        }
    }

    /// The final line of a turn: its prompt is answered, behind all else that is told of it.
    fn end(
        &mut self,
        job: JobId,
        result: Result<Box<MessageEnd>, Box<ErrorLine>>,
        out: &mut Outbox,
    ) {
        let Some(turn) = self.turns.remove(&job) else {
            return;
        };
        self.asked
            .retain(|_, asked| !matches!(asked.what, What::Turn(ended) if ended == job));
        self.withdraw(job, out);
        match &result {
            Ok(end) => self.count(&turn.session, &end.turn, out),
            Err(error) => {
                let facts = error.turn.clone().unwrap_or_default();
                self.count(&turn.session, &facts, out);
            }
        }
        if let Some(reply) = &turn.reply {
            match result {
                _ if turn.held => out.refuse(reply, &held()),
                Ok(end) => say_ended(reply, end.stop, end.turn.usage, out),
                // The protocol has a cancelled prompt end so, whatever went wrong meanwhile.
                Err(_) if turn.cancelled => say_cancelled(reply, out),
                Err(error) => out.refuse(reply, &failure::of(&error)),
            }
        }
        let known = self.sessions.get_mut(&turn.session);
        if known.is_some_and(|known| !std::mem::replace(&mut known.commands_known, true)) {
            self.look_for_commands(&turn.session, out);
        }
        self.look_for_title(&turn.session, out);
    }

    /// What a turn has used.
    fn count(&mut self, session: &str, facts: &TurnFacts, out: &mut Outbox) {
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        known.spent = known
            .spent
            .and_then(|spent| Some(spent + usd(&facts.cost)?));
        self.tell_use(session, facts.context_tokens, facts.context_window, out);
    }

    /// What the session has used: told where both numbers are known, as the protocol wants both.
    pub(super) fn tell_use(
        &mut self,
        session: &str,
        used: Option<u64>,
        size: Option<u64>,
        out: &mut Outbox,
    ) {
        let (Some(used), Some(size)) = (used, size) else {
            return;
        };
        let spent = self.sessions.get(session).and_then(|known| known.spent);
        let cost = spent.map(|amount| wire::Cost {
            amount,
            currency: "USD",
        });
        self.tell(session, &[Update::UsageUpdate { used, size, cost }], out);
    }

    /// Nobody tells any more what becomes of a turn.
    pub(super) fn lose_turn(&mut self, job: JobId, failure: &Failure, out: &mut Outbox) {
        if let Some(turn) = self.turns.remove(&job) {
            self.withdraw(job, out);
            if let Some(reply) = &turn.reply {
                out.refuse(reply, failure);
            }
        }
    }

    pub(super) fn lose_turns(&mut self, failure: &Failure, out: &mut Outbox) {
        for job in self.turns.keys().copied().collect::<Vec<_>>() {
            self.lose_turn(job, failure, out);
        }
    }

    fn abort(&mut self, job: JobId, out: &mut Outbox) {
        let abort = Abort {
            job: Some(job),
            ..Abort::default()
        };
        self.ask("abort", &abort, What::Nobody, out);
    }

    /// Ends what is asked in a session: prompts that wait, that are on their way, and turns, also those
    /// of others that are shown here. With a `reply`, only that prompt.
    pub(super) fn cancel(&mut self, session: &str, reply: Option<&str>, out: &mut Outbox) {
        let meant = |of: &Id| reply.is_none_or(|reply| of.as_json() == reply);
        if let Some(known) = self.sessions.get_mut(session) {
            for prompt in known.waiting.extract_if(.., |prompt| meant(&prompt.reply)) {
                say_cancelled(&prompt.reply, out);
            }
        }
        let mut keys = Vec::new();
        for asked in self.asked.values_mut() {
            if let What::Prompt {
                session: of,
                reply,
                cancelled,
            } = &mut asked.what
                && of == session
                && meant(reply)
                && !std::mem::replace(cancelled, true)
            {
                keys.extend(asked.fields["idempotency_key"].as_str().map(str::to_owned));
            }
        }
        // Their connection may be gone before they are accepted.
        for key in keys {
            self.ask("abort", &Abort::of_key(&key), What::Nobody, out);
        }
        let mut jobs = Vec::new();
        for turn in self.turns.values_mut() {
            let wanted = match &turn.reply {
                Some(of) => meant(of),
                None => reply.is_none(),
            };
            if wanted && turn.session == session && !turn.cancelled {
                turn.cancelled = true;
                jobs.push(turn.job);
            }
        }
        for job in jobs {
            self.abort(job, out);
        }
    }

    /// The client wants no answer to a request: a prompt is cancelled, anything else has one soon.
    pub(super) fn cancel_request(&mut self, reply: &str, out: &mut Outbox) {
        for session in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.cancel(&session, Some(reply), out);
        }
    }

    /// Puts a question to the client. What it can't be asked nobody else is kept waiting for.
    fn put(&mut self, job: JobId, question: &super::question::Question, out: &mut Outbox) {
        let Some(turn) = self.turns.get(&job).filter(|turn| !turn.cancelled) else {
            return;
        };
        if self.ends_at.is_some() || self.puts.contains_key(&question.id) {
            return;
        }
        let session = turn.session.clone();
        let open = self.sessions.contains_key(&session);
        let put = question.put(&session, self.client.forms).filter(|_| open);
        let Some(put) = put else {
            let nobody = json!({"question_id": question.id, "cancel": true});
            return self.ask("answer", &nobody, What::Nobody, out);
        };
        let id = request_id(&question.id);
        out.say(&json_rpc::request(&id, put.method, &put.params));
        let answers = put.answers;
        self.puts
            .insert(question.id.clone(), state::Put { job, answers });
    }

    /// The client's answer to a question. One that comes late is nobody's.
    pub(super) fn client_answered(
        &mut self,
        id: &Id,
        result: Result<Value, Failure>,
        out: &mut Outbox,
    ) {
        let name: Option<String> = serde_json::from_str(id.as_json()).ok();
        let Some((name, put)) = name.and_then(|name| self.puts.remove_entry(&name)) else {
            return;
        };
        let answer = put.answers.understood(&name, result);
        self.ask("answer", &answer, What::Nobody, out);
    }

    fn close_question(&mut self, job: JobId, question: &str, approved: bool, out: &mut Outbox) {
        if self.puts.remove(question).is_some() {
            say_withdrawn(question, out);
        }
        let Some(turn) = self.turns.get_mut(&job) else {
            return;
        };
        let mut updates = Vec::new();
        turn.closed(question, approved, &mut updates);
        let session = turn.session.clone();
        self.tell(&session, &updates, out);
    }

    /// Nobody is asked any more about a turn that has ended.
    fn withdraw(&mut self, job: JobId, out: &mut Outbox) {
        let open = self.puts.iter().filter(|(_, put)| put.job == job);
        for question in open.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.puts.remove(&question);
            say_withdrawn(&question, out);
        }
    }
}

/// The id of the request that puts a question: its own.
fn request_id(question: &str) -> Id {
    let json = json!(question).to_string();
    // A string as JSON is JSON.
    serde_json::value::RawValue::from_string(json)
        .map_or_else(|_| Id::number(0), |raw| Id::from_raw(&raw))
}

fn say_withdrawn(question: &str, out: &mut Outbox) {
    let of = CancelRequest {
        request_id: json!(question),
    };
    out.say(&json_rpc::notification("$/cancel_request", &of));
}

pub(super) fn say_cancelled(reply: &Id, out: &mut Outbox) {
    say_ended(reply, Stop::Cancelled, None, out);
}

fn say_ended(reply: &Id, stop: Stop, usage: Option<Usage>, out: &mut Outbox) {
    let usage = usage.map(|usage| wire::Usage {
        total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        thought_tokens: usage.reasoning_tokens,
        cached_read_tokens: usage.cache_read_tokens,
        cached_write_tokens: usage.cache_write_tokens,
    });
    let ended = wire::Ended {
        stop_reason: stop,
        usage,
    };
    out.answer(reply, &ended);
}

/// A prompt behind one that was interrupted: it wasn't run on what that may have left half done.
fn held() -> Failure {
    let why = "the prompt before this one was interrupted, so this one was not run: send it again if it still holds";
    Failure {
        data: Some(json!({"code": "held", "retryable": true})),
        ..Failure::new(INTERNAL_ERROR, why)
    }
}

/// What a turn has cost; `None` where nobody knows.
fn usd(cost: &Cost) -> Option<f64> {
    match cost.status {
        CostStatus::Included => Some(0.0),
        CostStatus::Unknown => None,
        _ => cost.usd,
    }
}

/// The mode that an agent took by itself, if a line says so.
fn mode_of(received: &Received) -> Option<String> {
    match &received.line {
        Some(Line::AgentEvent { kind, data, .. }) if kind == "current_mode_update" => {
            data.as_str().map(str::to_owned)
        }
        _ => None,
    }
}
