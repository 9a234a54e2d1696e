//! A session from its beginning, with what is being said in it.
//!
//! Owns how the past and the turns in flight are put together: each word is told once. Must not know
//! what a message looks like (`past`).

use agentd_protocol::Id;
use agentd_protocol::line::Line;
use agentd_protocol::request::work::SessionHistory;
use agentd_protocol::rows::{JobPhase, SessionPhase, SessionRow, TurnRow};
use serde_json::json;

use super::question::Question;
use super::row::{is_working, seconds, status};
use super::turn::Turn;
use super::{Begun, Gateway, Opening, Session, What, event, past};
use crate::face::Outbox;
use crate::json_rpc::Failure;

impl Gateway {
    /// Shows it from its beginning.
    pub(super) fn show(
        &mut self,
        reply: Id,
        row: SessionRow,
        resumes: bool,
        out: &mut Outbox,
    ) -> Begun {
        let opening = Opening {
            reply,
            session: row.session.clone(),
            resumes,
            row,
            turns: Vec::new(),
            ended: Vec::new(),
        };
        self.ask_past(Box::new(opening), None, out);
        Ok(None)
    }

    fn ask_past(&mut self, opening: Box<Opening>, after: Option<u64>, out: &mut Outbox) {
        let wanted = history(&opening.session, after);
        self.ask("session.history", &wanted, What::Past(opening), out);
    }

    pub(super) fn have_past(
        &mut self,
        mut opening: Box<Opening>,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        match result {
            Ok(Line::SessionHistory { turns, next, .. }) => {
                opening.turns.extend(turns);
                if next.is_some() {
                    return self.ask_past(opening, next, out);
                }
            }
            Ok(_) => return,
            Err(failure) => return out.refuse(&opening.reply, &failure),
        }
        let ended = |turn: &TurnRow| past::is_open(turn) && opening.ended.contains(&turn.job);
        if opening.turns.iter().any(ended) {
            // Its end was told meanwhile: now the past has it, too.
            opening.turns.clear();
            opening.ended.clear();
            return self.ask_past(opening, None, out);
        }
        self.shown(*opening, out);
    }

    /// All of it, what is being said among it; then what isn't part of the answer.
    fn shown(&mut self, opening: Opening, out: &mut Outbox) {
        let Opening {
            reply,
            session: name,
            resumes,
            row,
            turns,
            ..
        } = opening;
        let is_new = !self.sessions.contains_key(&name);
        let session = self
            .sessions
            .entry(name.clone())
            .or_insert_with(|| Session::of(&row));
        // The row may be older than the turns.
        let is_due = |turn: &TurnRow| past::is_open(turn) && turn.state != JobPhase::Held;
        let state = match turns.iter().any(is_due) {
            false => SessionPhase::Idle,
            true if is_working(row.state) => row.state,
            true => SessionPhase::Working,
        };
        (session.state, session.title) = (state, row.title.clone());
        (session.used, session.turns) = Default::default();
        session.is_looked_at = false;
        for turn in turns.iter().filter(|turn| !past::is_open(turn)) {
            session.count(&past::facts(turn).0);
        }
        let messages = past::messages(&turns);
        let mut shown = json!({"session_id": name, "session_key": name, "message_count": messages.len(),
            "messages": messages, "info": self.info(&name), "status": status(state),
            "running": is_working(state), "started_at": seconds(&row.created_at)});
        if resumes {
            shown["resumed"] = json!(name);
        }
        let mut waiting = Vec::new();
        let mut events = Vec::new();
        for turn in turns {
            if !past::is_open(&turn) {
                if let Some(told) = self.turns.get_mut(&turn.job) {
                    told.is_told = true;
                }
                continue;
            }
            let known = self.turns.entry(turn.job).or_insert_with(Turn::new);
            known.session = Some(name.clone());
            if past::runs(&turn) {
                known.catch_up(&turn);
                shown["inflight"] =
                    json!({"user": turn.text, "assistant": known.text, "streaming": true});
                events.extend(known.running_calls(turn.job));
            } else {
                known.user.clone_from(&turn.text);
                if turn.state == JobPhase::Queued {
                    waiting.push(turn.text);
                }
            }
            for question in turn.questions.into_iter().map(Question::listed) {
                events.push(question.event());
                self.questions.retain(|one| one.id != question.id);
                self.questions.push(question);
            }
        }
        if !waiting.is_empty() {
            shown["queued"] = json!({"user": waiting.join("\n\n")});
        }
        out.answer(&reply, &shown);
        for (kind, payload) in events {
            event(kind, Some(&name), payload.as_ref(), out);
        }
        if is_new {
            self.learn(&name, out);
            self.look_beside(&name, out);
        }
    }

    /// The client says which session is its current one. The TUI drops what it is told of any other, and
    /// an event that it reads together with the answer that shows a session is still of another.
    pub(super) fn looks_at(&mut self, name: &str, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(name) else {
            return;
        };
        if std::mem::replace(&mut session.is_looked_at, true) {
            return;
        }
        self.tell_info(name, out);
        for question in &self.questions {
            if self.asks_in(question.job, name) {
                let (kind, payload) = question.event();
                event(kind, Some(name), payload.as_ref(), out);
            }
        }
    }

    pub(super) fn ask_history(&mut self, id: Id, session: &str, out: &mut Outbox) -> Begun {
        let what = What::History(id, Vec::new());
        self.ask("session.history", &history(session, None), what, out);
        Ok(None)
    }

    pub(super) fn have_history(
        &mut self,
        reply: Id,
        mut all: Vec<TurnRow>,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        match result {
            Ok(Line::SessionHistory {
                session,
                turns,
                next,
                ..
            }) => {
                all.extend(turns);
                if next.is_some() {
                    let wanted = history(&session, next);
                    return self.ask("session.history", &wanted, What::History(reply, all), out);
                }
                let messages = past::messages(&all);
                let count = messages.len();
                out.answer(&reply, &json!({"count": count, "messages": messages}));
            }
            Ok(_) => {}
            Err(failure) => out.refuse(&reply, &failure),
        }
    }
}

fn history(session: &str, after: Option<u64>) -> SessionHistory {
    SessionHistory {
        session: session.to_owned(),
        job: None,
        message: None,
        after,
        limit: None,
        events: false,
    }
}
