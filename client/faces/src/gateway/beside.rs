//! Turns beside sessions: `prompt.background`.
//!
//! Owns how they are begun and found again, and what is told of their end and of what they ask. A label says beside which
//! session each is, so the next gateway tells it, too. Must not know the lines of a turn.

use agentd_protocol::request::work::Jobs;
use agentd_protocol::rows::{JobPhase, JobRow, QuestionRow};
use agentd_protocol::{Id, JobId};
use serde_json::{Value, json};

use super::question::Question;
use super::turn::{Event, Turn};
use super::{Begun, Gateway, What, event};
use crate::face::Outbox;

/// The label, with the session's name.
const BESIDE: &str = "hermes-session";
/// Turns beside a session that are looked for: those that were begun last.
const MOST_BESIDE: usize = 100;

impl Gateway {
    /// A turn beside the session, with its agent and directory.
    pub(super) fn background(
        &mut self,
        id: &Id,
        session: &str,
        text: String,
        out: &mut Outbox,
    ) -> Begun {
        let mut send = self.send(text)?;
        if let Some(known) = self.sessions.get(session) {
            send.agent = Some(known.agent.clone());
            send.cwd = Some(known.cwd.clone());
            if known.model.is_some() {
                send.provider.clone_from(&known.provider);
                send.model.clone_from(&known.model);
            }
        }
        send.labels.insert(BESIDE.to_owned(), session.to_owned());
        let what = What::Background(id.clone(), session.to_owned());
        self.ask("send", &send, what, out);
        Ok(None)
    }

    /// Looks for turns that another gateway began beside a session.
    pub(super) fn look_beside(&mut self, session: &str, out: &mut Outbox) {
        let wanted = Jobs {
            label: Some(format!("{BESIDE}={session}")),
            limit: Some(MOST_BESIDE),
            ..Jobs::default()
        };
        let what = What::Beside(session.to_owned(), Vec::new());
        self.ask("jobs", &wanted, what, out);
    }

    pub(super) fn have_beside(
        &mut self,
        session: &str,
        ended: &[(JobId, String)],
        rows: &[JobRow],
        out: &mut Outbox,
    ) {
        let mut runs = false;
        for row in rows {
            if let Some((job, text)) = ended.iter().find(|(job, _)| *job == row.job) {
                tell_background(session, *job, text, out);
            } else if matches!(
                row.state,
                JobPhase::Queued | JobPhase::Held | JobPhase::Running
            ) {
                let turn = self.turns.entry(row.job).or_insert_with(Turn::new);
                turn.is_background = true;
                session.clone_into(&mut turn.user);
                runs = true;
            }
        }
        if runs {
            // What was asked before this gateway was there.
            self.ask("questions", &json!({}), What::Questions, out);
        }
    }

    /// What turns beside sessions ask, as far as nobody was told of it here.
    pub(super) fn have_questions(&mut self, rows: Vec<QuestionRow>, out: &mut Outbox) {
        let is_beside = |row: &QuestionRow| {
            let turn = self.turns.get(&row.job);
            turn.is_some_and(|turn| turn.is_background)
        };
        for row in rows.into_iter().filter(is_beside).collect::<Vec<_>>() {
            self.questions.retain(|one| one.id != row.question_id);
            let question = Question::listed(row);
            self.tell_question(question.job, question.event(), out);
            self.questions.push(question);
        }
    }

    /// Is what this turn asks put in that session? Nobody looks at the own one of a turn beside it.
    pub(super) fn asks_in(&self, job: JobId, session: &str) -> bool {
        self.turns.get(&job).is_some_and(|turn| {
            turn.session.as_deref() == Some(session) || turn.is_background && turn.user == session
        })
    }

    /// Tells of what a turn asks, wherever it is put.
    pub(super) fn tell_question(&self, job: JobId, told: Event, out: &mut Outbox) {
        let (kind, payload) = &told;
        if let Some(turn) = self.turns.get(&job)
            && turn.is_background
            && self.sessions.contains_key(&turn.user)
        {
            event(kind, Some(&turn.user), payload.as_ref(), out);
        }
        self.tell_of(job, vec![told], out);
    }

    /// Ends what was begun beside sessions.
    pub(super) fn stop_background(&mut self, out: &mut Outbox) -> Value {
        let jobs = self.turns.iter().filter(|(_, turn)| turn.is_background);
        let jobs: Vec<JobId> = jobs.map(|(job, _)| *job).collect();
        for job in &jobs {
            self.ask("abort", &json!({"job": job}), What::Nobody, out);
        }
        json!({"killed": jobs.len()})
    }
}

/// The end of a turn beside a session.
pub(super) fn tell_background(session: &str, job: JobId, text: &str, out: &mut Outbox) {
    let payload = json!({"task_id": job, "text": text});
    event("background.complete", Some(session), Some(&payload), out);
}
