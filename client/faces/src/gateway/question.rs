//! What agents ask, as the gateway asks it, and what is answered there.
//!
//! Owns the requests' payloads and the way back of an answer. Must not know when one is asked.

use agentd_protocol::JobId;
use agentd_protocol::line::Line;
use agentd_protocol::request::work::{Answer, Private, Scope};
use agentd_protocol::rows::{QuestionAbout, QuestionRow};
use serde_json::{Value, json};

use super::turn::Event;
use super::{BAD_VALUE, wire};
use crate::json_rpc::Failure;

/// One that nobody answered.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) id: String,
    pub(super) job: JobId,
    pub(super) kind: String,
    title: String,
    detail: Option<String>,
    options: Vec<String>,
    about: QuestionAbout,
}

impl Question {
    /// Of the daemon's line; nothing if it was denied at once.
    pub(super) fn of(line: Line) -> Option<Self> {
        match line {
            Line::Question {
                job,
                question_id: id,
                kind,
                title,
                detail,
                options,
                about,
                expires_at: Some(_),
            } => Some(Self {
                id,
                job,
                kind,
                title,
                detail,
                options,
                about: *about,
            }),
            _ => None,
        }
    }

    /// Of a list.
    pub(super) fn listed(row: QuestionRow) -> Self {
        Self {
            id: row.question_id,
            job: row.job,
            kind: row.kind,
            title: row.title,
            detail: row.detail,
            options: row.options,
            about: row.about,
        }
    }

    pub(super) fn is_approval(&self) -> bool {
        self.kind == "approval"
    }

    /// How it is put to the client.
    pub(super) fn event(&self) -> Event {
        let question = match &self.detail {
            Some(detail) if !self.is_approval() => format!("{}\n{detail}", self.title),
            _ => self.title.clone(),
        };
        match self.kind.as_str() {
            "approval" => {
                let mut choices = vec!["once"];
                choices.extend(
                    ["session", "always"]
                        .into_iter()
                        .filter(|one| self.offers(one)),
                );
                choices.push("deny");
                let request = json!({"command": self.command(), "description": question,
                    "pattern_key": question, "pattern_keys": [question], "choices": choices,
                    "allow_permanent": self.offers("always"), "request_id": self.id});
                ("approval.request", Some(request))
            }
            "secret" => {
                let request = json!({"request_id": self.id, "prompt": question, "env_var": "",
                    "metadata": {}});
                ("secret.request", Some(request))
            }
            _ => {
                let choices = Some(&self.options).filter(|options| !options.is_empty());
                let request =
                    json!({"request_id": self.id, "question": question, "choices": choices});
                ("clarify.request", Some(request))
            }
        }
    }

    fn offers(&self, scope: &str) -> bool {
        self.about.scopes.iter().any(|offered| offered == scope)
    }

    /// What would be done.
    fn command(&self) -> String {
        let data = self.about.data.as_ref();
        let command = data.and_then(|data| data.get("command")?.as_str());
        command.map_or_else(|| self.detail.clone().unwrap_or_default(), str::to_owned)
    }

    /// A choice of the client's for an approval.
    pub(super) fn approve(&self, choice: &str) -> Result<Answer, Failure> {
        let mut answer = Answer::to(self.id.clone());
        answer.approve = Some(choice != "deny");
        answer.scope = match choice {
            "once" | "deny" => None,
            "session" if self.offers("session") => Some(Scope::Session),
            "always" if self.offers("always") => Some(Scope::Always),
            _ => {
                let why = format!(
                    "`choice` is `{choice}`: expected one of the `choices` of its approval.request"
                );
                return Err(Failure::new(BAD_VALUE, why));
            }
        };
        Ok(answer)
    }

    /// A text of the client's for anything else; nothing is no answer.
    pub(super) fn answer(&self, said: wire::Response) -> Answer {
        let mut answer = Answer::to(self.id.clone());
        let Private(text) = said.answer;
        match self.kind.as_str() {
            _ if text.is_empty() => answer.cancel = true,
            "choice" => answer.choice = Some(text),
            _ => answer.text = Some(Private(text)),
        }
        answer
    }

    /// What tells that nobody has to answer it any more, where there is a word for that.
    pub(super) fn expired(&self) -> Option<(&'static str, Value)> {
        let payload = json!({"request_id": self.id});
        (self.kind == "secret").then_some(("secret.expire", payload))
    }
}
