//! What agents ask, as editors ask it, and what is answered there.
//!
//! Owns the options of a permission, the form of an elicitation, and the way back of an answer. Must
//! not know when one is asked.

use agentd_protocol::line::{FileChange, Line, ToolKind};
use agentd_protocol::rows::{QuestionAbout, QuestionRow};
use serde_json::{Map, Value, json};

use super::tool;
use super::wire::{
    ElicitationAnswer, Output, PermissionAnswer, PermissionOption, PermissionOutcome,
    RequestPermission, ToolCall,
};
use crate::json_rpc::Failure;

/// The field of a form.
const FIELD: &str = "answer";

/// A question of an agent.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) id: String,
    kind: String,
    title: String,
    detail: Option<String>,
    options: Vec<String>,
    about: QuestionAbout,
    /// Does anybody's answer count?
    pub(super) is_open: bool,
    /// The call that it is about: as the agent names it, and once it was announced, as it was.
    pub(super) call: Option<String>,
}

/// How a question is put to the client.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) method: &'static str,
    pub(super) params: Value,
    pub(super) answers: Answers,
}

/// How what the client says is understood.
#[derive(Clone, Debug)]
pub(super) enum Answers {
    /// By yes or no, as far as the option's name says.
    Approval,
    /// By the place of an option.
    Choice(Vec<String>),
    /// By a form.
    Form { is_choice: bool },
}

impl Question {
    /// Of the daemon's line.
    pub(super) fn of(line: Line) -> Option<Self> {
        let Line::Question {
            question_id,
            kind,
            title,
            detail,
            options,
            about,
            expires_at,
            ..
        } = line
        else {
            return None;
        };
        Some(Self {
            id: question_id,
            kind,
            title,
            detail,
            options,
            is_open: expires_at.is_some(),
            call: about.tool_call_id.clone(),
            about: *about,
        })
    }

    /// The line that an open question of a list was told by.
    pub(super) fn line(row: QuestionRow) -> Line {
        Line::Question {
            job: row.job,
            question_id: row.question_id,
            kind: row.kind,
            title: row.title,
            detail: row.detail,
            options: row.options,
            about: Box::new(row.about),
            expires_at: Some(row.expires_at),
        }
    }

    /// How it is put to a client, one with forms or without; nothing if it can't be.
    pub(super) fn put(&self, session: &str, has_forms: bool) -> Option<Put> {
        match self.kind.as_str() {
            "approval" => Some(self.permission(session, self.approvals(), Answers::Approval)),
            "choice" if !has_forms => {
                let options = self.options.iter().enumerate();
                let shown = options.map(|(place, name)| PermissionOption {
                    option_id: place.to_string(),
                    name: name.clone(),
                    kind: "allow_once",
                });
                let answers = Answers::Choice(self.options.clone());
                Some(self.permission(session, shown.collect(), answers))
            }
            "choice" | "text" if has_forms => Some(self.form(session)),
            // A secret has no place in what a client may keep.
            _ => None,
        }
    }

    fn approvals(&self) -> Vec<PermissionOption> {
        let option = |id: &str, name: &str, kind| PermissionOption {
            option_id: id.to_owned(),
            name: name.to_owned(),
            kind,
        };
        let offers = |scope: &str| self.about.scopes.iter().any(|found| found == scope);
        let mut options = vec![option("once", "Allow once", "allow_once")];
        if offers("session") {
            options.push(option("session", "Allow for this session", "allow_always"));
        }
        if offers("always") {
            options.push(option("always", "Always allow", "allow_always"));
        }
        options.push(option("reject", "Reject", "reject_once"));
        options
    }

    fn permission(&self, session: &str, options: Vec<PermissionOption>, answers: Answers) -> Put {
        let params = RequestPermission {
            session_id: session.to_owned(),
            tool_call: ToolCall {
                tool_call_id: self.call.clone().unwrap_or_default(),
                title: Some(tool::short(&self.title)),
                content: Some(self.content()),
                raw_input: self.input(),
                ..ToolCall::default()
            },
            options,
        };
        Put {
            method: "session/request_permission",
            params: json!(params),
            answers,
        }
    }

    fn form(&self, session: &str) -> Put {
        let is_choice = self.kind == "choice";
        let mut field = json!({"type": "string", "title": tool::short(&self.title)});
        if is_choice {
            field["enum"] = json!(self.options);
        }
        let message = match &self.detail {
            Some(detail) => format!("{}\n\n{detail}", self.title),
            None => self.title.clone(),
        };
        let params = json!({
            "sessionId": session,
            "toolCallId": self.call,
            "mode": "form",
            "message": message,
            "requestedSchema": {"type": "object", "properties": {FIELD: field}, "required": [FIELD]},
        });
        Put {
            method: "elicitation/create",
            params,
            answers: Answers::Form { is_choice },
        }
    }

    /// All that somebody has to see who answers.
    fn content(&self) -> Vec<Output> {
        let mut content = Vec::new();
        // What a row has no room for is not left out.
        if tool::short(&self.title) != self.title {
            content.push(Output::text(self.title.clone()));
        }
        content.extend(self.detail.clone().map(Output::text));
        let changes = self.about.data.as_ref().and_then(|data| data.get("diff"));
        let changes = changes.and_then(Value::as_array);
        let read = |change: &Value| serde_json::from_value::<FileChange>(change.clone()).ok();
        let changes = changes.into_iter().flatten().filter_map(read);
        content.extend(changes.filter_map(|one| tool::change(&one)));
        content
    }

    /// Of a call that the agent says no more of.
    fn kind(&self) -> ToolKind {
        let has = |field| {
            self.about
                .data
                .as_ref()
                .is_some_and(|data| data.get(field).is_some())
        };
        match (has("diff"), has("command")) {
            (true, _) => ToolKind::Edit,
            (false, true) => ToolKind::Execute,
            (false, false) => ToolKind::Other,
        }
    }

    /// What the call would do: `data` without the changes, which are shown as such.
    fn input(&self) -> Option<Value> {
        let mut data = self.about.data.clone()?;
        let fields: &mut Map<String, Value> = data.as_object_mut()?;
        fields.remove("diff");
        (!fields.is_empty()).then_some(data)
    }
}

/// The call that a question is about, which waits for the answer. One that is known keeps its name.
pub(super) fn call(question: &Question, known: bool) -> ToolCall {
    let title = tool::short(&question.title);
    ToolCall {
        title: (!known).then_some(title),
        kind: (!known).then(|| question.kind().name()),
        status: Some("pending"),
        raw_input: question.input().filter(|_| !known),
        ..ToolCall::default()
    }
}

impl Answers {
    /// The fields of `answer` for what the client said. Whatever isn't one of the answers offered is
    /// nobody's answer.
    pub(super) fn understood(&self, question: &str, said: Result<Value, Failure>) -> Value {
        let nobody = json!({"question_id": question, "cancel": true});
        let Ok(said) = said else {
            return nobody;
        };
        let fields = match self {
            Self::Approval => option(said).and_then(|id| match id.as_str() {
                "once" => Some(json!({"approve": true})),
                "session" | "always" => Some(json!({"approve": true, "scope": id})),
                "reject" => Some(json!({"approve": false})),
                _ => None,
            }),
            Self::Choice(options) => option(said).and_then(|id| {
                let place: usize = id.parse().ok()?;
                Some(json!({"choice": options.get(place)?}))
            }),
            Self::Form { is_choice } => {
                let answer: Option<ElicitationAnswer> = serde_json::from_value(said).ok();
                answer
                    .filter(|said| said.action == "accept")
                    .and_then(|said| {
                        let text = said.content.get(FIELD)?.as_str()?;
                        Some(match is_choice {
                            true => json!({"choice": text}),
                            false => json!({"text": text}),
                        })
                    })
            }
        };
        match fields {
            Some(mut fields) => {
                fields["question_id"] = json!(question);
                fields
            }
            None => nobody,
        }
    }
}

/// The option that was selected.
fn option(said: Value) -> Option<String> {
    let answer: PermissionAnswer = serde_json::from_value(said).ok()?;
    match answer.outcome {
        PermissionOutcome::Selected { option_id } => Some(option_id),
        PermissionOutcome::Cancelled => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(line: Value) -> Question {
        Question::of(serde_json::from_value(line).unwrap()).unwrap()
    }

    fn approval() -> Question {
        question(
            json!({"type": "question", "job": "j1", "question_id": "j1-q1", "kind": "approval",
            "title": "Run it?", "detail": "ls\n-l", "scopes": ["once", "session", "later"], "tool_call_id": "c1",
            "data": {"command": "ls", "diff": [{"path": "/a", "old": "x", "new": "y"}, {"path": "/b"}]},
            "expires_at": "2026-11-26T00:00:00Z"}),
        )
    }

    #[test]
    fn acp_permission_offers_each_scope_there_is() {
        let put = approval().put("s", true).unwrap();
        assert_eq!(put.method, "session/request_permission");
        let ids: Vec<&str> = put.params["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|option| option["optionId"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["once", "session", "reject"]);
        let call = &put.params["toolCall"];
        assert_eq!(call["rawInput"], json!({"command": "ls"}));
        let content = json!([
            {"type": "content", "content": {"type": "text", "text": "ls\n-l"}},
            {"type": "diff", "path": "/a", "oldText": "x", "newText": "y"},
        ]);
        assert_eq!(call["content"], content);
    }

    #[test]
    fn acp_permission_answer_is_one_of_those_offered() {
        let selected = |id: &str| Ok(json!({"outcome": {"outcome": "selected", "optionId": id}}));
        let cancel = json!({"question_id": "q", "cancel": true});
        for (said, expected) in [
            (
                selected("once"),
                json!({"question_id": "q", "approve": true}),
            ),
            (
                selected("session"),
                json!({"question_id": "q", "approve": true, "scope": "session"}),
            ),
            (
                selected("reject"),
                json!({"question_id": "q", "approve": false}),
            ),
            (selected("maybe"), cancel.clone()),
            (
                Ok(json!({"outcome": {"outcome": "cancelled"}})),
                cancel.clone(),
            ),
            (Ok(json!({"outcome": "selected"})), cancel.clone()),
            (Ok(json!(null)), cancel.clone()),
            (Err(Failure::new(-32601, "no")), cancel.clone()),
        ] {
            assert_eq!(Answers::Approval.understood("q", said), expected);
        }
        let choice = Answers::Choice(vec!["left".to_owned(), "right".to_owned()]);
        let right = json!({"question_id": "q", "choice": "right"});
        assert_eq!(choice.understood("q", selected("1")), right);
        assert_eq!(choice.understood("q", selected("2")), cancel);
    }

    #[test]
    fn acp_question_is_a_form_where_offered() {
        let asked = |kind: &str| {
            question(
                json!({"type": "question", "job": "j1", "question_id": "q", "kind": kind, "title": "Which?",
                "options": ["a", "b"], "expires_at": "2026-11-26T00:00:00Z"}),
            )
        };
        let put = asked("choice").put("s", true).unwrap();
        assert_eq!(put.method, "elicitation/create");
        assert_eq!(
            put.params["requestedSchema"]["properties"]["answer"]["enum"],
            json!(["a", "b"])
        );
        let said = json!({"action": "accept", "content": {"answer": "b"}});
        let chosen = json!({"question_id": "q", "choice": "b"});
        assert_eq!(put.answers.understood("q", Ok(said)), chosen);
        let cancel = json!({"question_id": "q", "cancel": true});
        let declined = json!({"action": "decline"});
        assert_eq!(put.answers.understood("q", Ok(declined)), cancel);
        let put = asked("choice").put("s", false).unwrap();
        assert_eq!(put.method, "session/request_permission");
        assert!(asked("text").put("s", true).is_some() && asked("text").put("s", false).is_none());
        assert!(asked("secret").put("s", true).is_none());
    }
}
