//! Answers to what agents ask, and the list of what is open.
//!
//! Owns which answer fits which kind and that the first one wins. How long a question waits, and
//! what closes it otherwise, is in `questions.rs`.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::rows::QuestionRow;
use agentd_protocol::work::{Answer, Questions as Listing, Scope};
use agentd_protocol::{Code, Id, JobId, limits};

use crate::ids::{ConnId, QuestionId, Token};
use crate::jobs::said::Out;
use crate::outbox::awaiting::{Answered, Awaiting};
use crate::peers::lookup::Asked;
use crate::peers::questions::Closed;
use crate::rules::questions::{about, closed_line, tool_of};
use crate::state::State;
use crate::store::{Query, Write};
use crate::worker::{Asking, QuestionKind, Reply};

impl State {
    pub(crate) fn questions(&mut self, conn: ConnId, id: Option<Id>, asked: &Listing) {
        let mut room = limits::MAX_TEXT;
        let mut truncated = false;
        let mut questions = Vec::new();
        for (question, _) in self.peers.questions().iter() {
            let Some(row) = self.question_row(question) else {
                continue;
            };
            if asked
                .session
                .as_ref()
                .is_some_and(|only| *only != row.session)
            {
                continue;
            }
            let size = crate::json::text(&row).len();
            if size > room {
                truncated = true;
                break;
            }
            room -= size;
            questions.push(row);
        }
        let line = Line::Questions {
            ok: true,
            questions,
            truncated,
        };
        self.answer(conn, id, &line);
    }

    fn question_row(&self, question: QuestionId) -> Option<QuestionRow> {
        let open = self.peers.questions().get(question)?;
        let job = self.jobs.get(&open.turn)?;
        let session = self.sessions.get(&job.session)?;
        Some(QuestionRow {
            question_id: question.to_string(),
            job: question.job,
            session: session.shown(),
            kind: open.asking.kind.name().to_owned(),
            title: open.asking.title.clone(),
            detail: open.asking.detail.clone(),
            options: open.asking.options.clone(),
            about: about(&open.asking, tool_of(job, &open.asking)),
            expires_at: open.expires_at.clone(),
        })
    }

    /// The open questions of a job.
    pub(crate) fn questions_of(&self, job: JobId) -> Vec<QuestionRow> {
        let of_job = self
            .peers
            .questions()
            .iter()
            .map(|(question, _)| question)
            .filter(|open| open.job == job);
        of_job
            .filter_map(|question| self.question_row(question))
            .collect()
    }

    /// The first answer that fits is the answer.
    pub(crate) fn answer_question(&mut self, conn: ConnId, id: Option<Id>, answer: Answer) {
        let Some(question) = QuestionId::parse(&answer.question_id) else {
            return self.refuse(conn, id, unknown_question(&answer.question_id));
        };
        let Some(open) = self.peers.questions().get(question) else {
            return self.answered_late(conn, id, question);
        };
        // That it was dismissed is told, although the agent hears a no.
        let dismissed = answer.cancel;
        let reply = match fitting(&open.asking, answer) {
            Ok(reply) => reply,
            Err(rejected) => return self.refuse(conn, id, rejected),
        };
        // Taken before the commit: a second answer that comes meanwhile is late.
        let Some(open) = self.take(question, Closed::Answer) else {
            return;
        };
        let word = if dismissed { "cancel" } else { word(&reply) };
        let scope = match reply {
            Reply::ApprovedFor(lasting) => Some(lasting),
            _ => None,
        };
        let answered = Answered {
            turn: open.turn,
            conn,
            id,
            question,
            process: open.process,
            native: open.asking.question,
            reply,
        };
        let body = closed_line(question, Closed::Answer, Some(word), scope).body();
        let write = Write::Event {
            job: question.job,
            line: body.clone(),
        };
        // The agent acts on it, and must not before it is on the disk who allowed that.
        let token = self
            .outbox
            .commit(Awaiting::Answered(Box::new(answered)), vec![write]);
        if let Some(job) = found!(self.jobs.get_mut(open.turn)) {
            job.out.push_back(Out::Numbered { token, body });
        }
    }

    /// Nobody waits for the answer. What isn't known here any more the store knows.
    fn answered_late(&mut self, conn: ConnId, id: Option<Id>, question: QuestionId) {
        let text = question.to_string();
        if let Some(by) = self.peers.questions().closed_by(question) {
            let error = format!("the question `{text}` is closed, by {}", by.name());
            return self.refuse(conn, id, Rejected::new(Code::AlreadyAnswered, error));
        }
        let job = question.job;
        let query = Query::Asked {
            job,
            question: text.clone(),
        };
        self.look_up(conn, id, Asked::Question(text), query);
    }

    /// That a question was answered is durable: now the agent hears the answer.
    pub(crate) fn answer_stored(&mut self, token: Token, answered: Answered, seq: Option<u64>) {
        let Answered {
            turn,
            conn,
            id,
            question,
            process,
            native,
            reply,
        } = answered;
        let Some(seq) = seq else {
            let error = "the store can't take the answer: the agent was not told";
            self.refuse(conn, id, Rejected::new(Code::StoreFailed, error));
            return self.lost_track(turn);
        };
        self.counters.saw(seq);
        self.numbered(turn, token, seq);
        let line = Line::Answer {
            ok: true,
            question_id: question.to_string(),
        };
        self.answer(conn, id, &line);
        self.reply(process, native, reply);
    }
}

/// What was answered, in a word: never a text.
const fn word(reply: &Reply) -> &'static str {
    match reply {
        Reply::Approved | Reply::ApprovedFor(_) => "approve",
        Reply::Denied => "deny",
        Reply::Unanswered(why) => why.name(),
        Reply::Chosen(_) => "choice",
        Reply::Text(_) => "text",
        Reply::Cancelled => "cancel",
    }
}

/// The answer in the kind's own form, or what was expected.
fn fitting(asking: &Asking, answer: Answer) -> Result<Reply, Rejected> {
    let Answer {
        approve,
        scope,
        choice,
        text,
        cancel,
        question_id,
        by,
    } = answer;
    let expected = match (asking.kind, approve, choice, text) {
        // Whoever dismisses a question gives the answer that changes nothing.
        (QuestionKind::Approval, None, None, None) if cancel => return Ok(Reply::Denied),
        (_, None, None, None) if cancel => return Ok(Reply::Cancelled),
        (QuestionKind::Approval, Some(true), None, None) => {
            match yes(asking, scope.unwrap_or(Scope::Once)) {
                Some(reply) => return Ok(reply),
                None => scopes(asking),
            }
        }
        (QuestionKind::Approval, Some(false), None, None) => {
            // A daemon in front of this one says that nobody said it.
            return Ok(by.map_or(Reply::Denied, Reply::Unanswered));
        }
        (QuestionKind::Choice, None, Some(choice), None) if asking.options.contains(&choice) => {
            return Ok(Reply::Chosen(choice));
        }
        (QuestionKind::Text | QuestionKind::Secret, None, None, Some(text)) => {
            return Ok(Reply::Text(text));
        }
        (QuestionKind::Approval, ..) => "`approve`, true or false".to_owned(),
        (QuestionKind::Choice, ..) => {
            let options = asking.options.iter().map(|option| format!("`{option}`"));
            let options: Vec<String> = options.collect();
            format!("`choice`, one of {}", options.join(", "))
        }
        (QuestionKind::Text | QuestionKind::Secret, ..) => "`text`".to_owned(),
    };
    let kind = asking.kind.name();
    let error = format!("the question `{question_id}` is of kind `{kind}`: expected {expected}");
    Err(Rejected::new(Code::InvalidRequest, error))
}

/// A yes that goes so far, if it can.
fn yes(asking: &Asking, scope: Scope) -> Option<Reply> {
    let mut lasting = asking.about.lasting.iter().copied();
    match scope {
        Scope::Once => Some(Reply::Approved),
        further => lasting
            .find(|lasting| lasting.scope() == further)
            .map(Reply::ApprovedFor),
    }
}

fn scopes(asking: &Asking) -> String {
    let scopes = about(asking, None).scopes;
    let scopes: Vec<String> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
    format!("`scope`, one of {}", scopes.join(", "))
}

/// Of a question that was asked once.
pub(crate) fn closed(question: &str) -> Rejected {
    let error = format!("the question `{question}` is closed");
    Rejected::new(Code::AlreadyAnswered, error)
}

pub(crate) fn unknown_question(text: &str) -> Rejected {
    // It is somebody else's text: a line must not grow with it.
    let shown: String = text.chars().take(64).collect();
    Rejected::new(
        Code::UnknownQuestion,
        format!("there is no question `{shown}`"),
    )
    .hint("`questions` lists those that are open")
}
