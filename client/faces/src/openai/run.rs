//! Runs: a turn that is started, looked at, answered and stopped.
//!
//! Owns the shapes of Hermes' API server, which clients of runs know. Must not know how a job is
//! found.

use agentd_protocol::line::{MessageEnd, Stop, TurnFacts};
use agentd_protocol::rows::{JobPhase, JobRow, QuestionRow};
use agentd_protocol::work::{Answer, Private, Scope};
use agentd_protocol::{JobId, Line};
use serde_json::{Value, json};

use super::conversation::{Conversation, Said, messages};
use super::failure::Failure;
use super::fields::Fields;
use super::model::ModelName;
use super::response_request::{input, previous_job};
use super::{MODEL, Named, aside, usage};

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRequest {
    /// Who is to answer.
    pub model: ModelName,
    /// What was said.
    pub conversation: Conversation,
    /// The session that it goes on in.
    pub session: Option<String>,
    /// The response or run that it goes on from.
    pub previous: Option<JobId>,
    /// Fields that nothing was made of.
    pub ignored: Vec<String>,
}

impl RunRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// When a field that counts is wrong.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let mut fields = Fields::of(text)?;
        let model = ModelName::read(fields.take("model")?)?;
        let mut ignored = Vec::new();
        let said = input(&mut fields, &mut ignored)?;
        let instructions = fields.take::<String>("instructions")?;
        let mut all: Vec<Said> = instructions.iter().map(Said::by_system).collect();
        all.extend(messages(&mut fields, "conversation_history")?.unwrap_or_default());
        all.extend(said);
        let conversation = Conversation::of(all, "input")?;
        let previous = fields.take::<String>("previous_response_id")?;
        let previous = previous.map(|id| previous_job(&id)).transpose()?;
        let session = fields.take("session_id")?;
        ignored.extend(fields.ignored());
        Ok(Self {
            model,
            conversation,
            session,
            previous,
            ignored,
        })
    }
}

/// A job as a run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The job.
    pub row: &'a JobRow,
    /// Its last line, if it has one.
    pub last: Option<&'a Line>,
    /// Does it wait for an answer?
    pub asks: bool,
    /// When it was accepted, and when it changed last, in seconds since 1970.
    pub times: (f64, f64),
}

impl Run<'_> {
    /// As it is now.
    #[must_use]
    pub fn object(&self) -> Value {
        let row = self.row;
        let (status, event) = match row.state {
            _ if self.asks => ("waiting_for_approval", Some("approval.request")),
            JobPhase::Queued | JobPhase::Held => ("queued", None),
            JobPhase::Running => ("running", None),
            JobPhase::Completed => ("completed", Some("run.completed")),
            JobPhase::Cancelled => ("cancelled", Some("run.cancelled")),
            JobPhase::Failed | JobPhase::Interrupted => ("failed", Some("run.failed")),
        };
        let mut object = json!({
            "object": "hermes.run", "run_id": Named::Run.id(row.job), "status": status,
            "created_at": self.times.0, "updated_at": self.times.1, "session_id": row.session,
            "model": row.labels.get(MODEL).unwrap_or(&row.agent), "last_event": event,
        });
        match self.last {
            Some(Line::MessageEnd(end)) => {
                put_aside(&end.turn, &mut object);
                put_stop(end.stop, &mut object);
                object["output"] = end.turn.text.as_str().into();
                object["usage"] = usage::run(end.turn.usage);
            }
            Some(Line::Error(error)) => {
                error
                    .turn
                    .iter()
                    .for_each(|turn| put_aside(turn, &mut object));
                let failure = Failure::ended(error);
                object["error"] = failure.message.as_str().into();
                object["error_code"] = failure.code.into();
            }
            _ => {}
        }
        object
    }
}

/// The end of a run, in its own words.
pub(super) fn ended(end: &MessageEnd) -> Value {
    let mut event = match end.stop {
        Stop::Cancelled => json!({"event": "run.cancelled"}),
        _ => {
            json!({"event": "run.completed", "output": end.turn.text, "usage": usage::run(end.turn.usage)})
        }
    };
    put_aside(&end.turn, &mut event);
    put_stop(end.stop, &mut event);
    event
}

/// Why its text isn't all. Of one that was cancelled its status says so.
fn put_stop(stop: Stop, told: &mut Value) {
    if !matches!(stop, Stop::EndTurn | Stop::Cancelled) {
        told["agentd"]["stop"] = json!(stop);
    }
}

/// What a run and its last event tell beside what is Hermes'.
pub(super) fn put_aside(turn: &TurnFacts, told: &mut Value) {
    if let Some(aside) = aside(turn) {
        told["agentd"] = aside;
    }
}

/// What can be answered to a question.
pub(super) fn choices(kind: &str, options: &[String], scopes: &[String]) -> Vec<String> {
    match kind {
        "approval" => {
            let mut choices = scopes.to_vec();
            if choices.is_empty() {
                choices.push(Scope::Once.name().to_owned());
            }
            choices.push("deny".to_owned());
            choices
        }
        _ => options.to_vec(),
    }
}

/// The answer to a run's question.
///
/// # Errors
/// When it isn't one of those that the question has.
pub fn answer(choice: &str, question: &QuestionRow) -> Result<Answer, Failure> {
    let mut answer = Answer::to(question.question_id.clone());
    let choices = choices(&question.kind, &question.options, &question.about.scopes);
    match question.kind.as_str() {
        "approval" => {
            // Hermes has these names, too.
            let choice = match choice {
                "approve" | "allow" => "once",
                other => other,
            };
            if !choices.iter().any(|one| one == choice) {
                return Err(not_a_choice(choice, &choices));
            }
            answer.approve = Some(choice != "deny");
            let scope = Scope::ALL.iter().find(|scope| scope.name() == choice);
            answer.scope = scope.copied().filter(|scope| *scope != Scope::Once);
        }
        "choice" if choice == "deny" && !choices.iter().any(|one| one == choice) => {
            answer.cancel = true;
        }
        "choice" if choices.iter().any(|one| one == choice) => {
            answer.choice = Some(choice.to_owned());
        }
        "choice" => return Err(not_a_choice(choice, &choices)),
        // Of a text or a secret.
        _ => answer.text = Some(Private(choice.to_owned())),
    }
    Ok(answer)
}

fn not_a_choice(choice: &str, choices: &[String]) -> Failure {
    let shown: String = choice
        .chars()
        .filter(|c| !c.is_control())
        .take(64)
        .collect();
    let why = format!(
        "`choice` is `{shown}`: expected one of `{}`",
        choices.join("`, `")
    );
    Failure {
        code: "invalid_approval_choice".to_owned(),
        ..Failure::invalid("choice", why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: &str, options: &[&str], scopes: &[&str]) -> QuestionRow {
        serde_json::from_value(json!({
            "question_id": "j1-q1", "job": "j1", "session": "s", "kind": kind, "title": "t",
            "options": options, "scopes": scopes, "expires_at": "",
        }))
        .unwrap()
    }

    #[test]
    fn run_answers_are_those_that_the_agent_offers() {
        let all = question("approval", &[], &["once", "session", "always"]);
        let given = |choice| answer(choice, &all).map(|answer| (answer.approve, answer.scope));
        assert_eq!(given("once"), Ok((Some(true), None)));
        assert_eq!(given("allow"), Ok((Some(true), None)));
        assert_eq!(given("session"), Ok((Some(true), Some(Scope::Session))));
        assert_eq!(given("deny"), Ok((Some(false), None)));
        assert_eq!(
            given("perhaps").unwrap_err().code,
            "invalid_approval_choice"
        );
        let once = question("approval", &[], &[]);
        assert_eq!(answer("always", &once).unwrap_err().status, 400);
        let choice = question("choice", &["left", "right"], &[]);
        assert_eq!(
            answer("left", &choice).unwrap().choice.as_deref(),
            Some("left")
        );
        assert!(answer("deny", &choice).unwrap().cancel);
        assert_eq!(answer("up", &choice).unwrap_err().status, 400);
        assert_eq!(
            answer("x", &question("text", &[], &[])).unwrap().text,
            Some(Private("x".to_owned()))
        );
    }

    #[test]
    fn run_request_names_the_field_that_is_wrong() {
        let asked = RunRequest::read(
            r#"{"input":"c","instructions":"i","session_id":"s","conversation_history":
                [{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#,
        )
        .unwrap();
        assert_eq!(
            (asked.conversation.past.len(), asked.session.as_deref()),
            (2, Some("s"))
        );
        for (body, param) in [
            ("{}", "input"),
            (r#"{"input":5}"#, "input"),
            (r#"{"input":"a","session_id":5}"#, "session_id"),
            (
                r#"{"input":"a","conversation_history":"x"}"#,
                "conversation_history",
            ),
            (
                r#"{"input":"a","previous_response_id":"x"}"#,
                "previous_response_id",
            ),
        ] {
            let failure = RunRequest::read(body).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some(param), "{body}");
        }
    }

    #[test]
    fn run_object_says_how_it_is() {
        let row = |state: &str| -> JobRow {
            serde_json::from_value(json!({
                "job": "j3", "session": "s", "agent": "pi", "state": state, "attempt": 1,
                "preview": "", "accepted_at": "",
            }))
            .unwrap()
        };
        let end: Line = serde_json::from_value(json!({
            "type": "message_end", "job": "j3", "session": "s", "text": "do", "stop": "max_tokens",
        }))
        .unwrap();
        for (state, last, asks, status) in [
            ("queued", None, false, "queued"),
            ("running", None, false, "running"),
            ("running", None, true, "waiting_for_approval"),
            ("completed", Some(&end), false, "completed"),
            ("interrupted", None, false, "failed"),
        ] {
            let row = row(state);
            let times = (1.0, 2.0);
            let object = Run {
                row: &row,
                last,
                asks,
                times,
            }
            .object();
            assert_eq!(
                (&object["status"], &object["run_id"]),
                (&json!(status), &json!("run_j3"))
            );
            assert_eq!(object.get("output").is_some(), last.is_some());
            let stop = last.map(|_| json!("max_tokens"));
            assert_eq!(object.pointer("/agentd/stop"), stop.as_ref());
        }
    }
}
