//! Questions of agents, as forms of a client.
//!
//! Owns both directions: the form that a question becomes, and the answer that a form is. A secret
//! never goes through a form. Must not know who asks, nor when.

use agentd_protocol::rows::{QuestionAbout, QuestionRow};
use agentd_protocol::{Id, JobId};
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How a question is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Approval,
    Choice,
    Text,
}

/// A question that is open.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Question {
    pub(super) id: String,
    pub(super) job: JobId,
    pub(super) title: String,
    detail: Option<String>,
    options: Vec<String>,
    scopes: Vec<String>,
    /// None of a secret, and of one that this version doesn't know.
    kind: Option<Kind>,
    /// As it was asked.
    word: String,
}

impl Question {
    /// One of a turn's own lines.
    pub(super) fn new(
        job: JobId,
        id: String,
        word: String,
        (title, detail): (String, Option<String>),
        options: Vec<String>,
        about: QuestionAbout,
    ) -> Self {
        let kind = match word.as_str() {
            "approval" => Some(Kind::Approval),
            "choice" if !options.is_empty() => Some(Kind::Choice),
            "text" => Some(Kind::Text),
            _ => None,
        };
        Self {
            id,
            job,
            title,
            detail,
            options,
            scopes: about.scopes,
            kind,
            word,
        }
    }

    /// One of a list.
    pub(super) fn of_row(row: QuestionRow) -> Self {
        let said = (row.title, row.detail);
        Self::new(
            row.job,
            row.question_id,
            row.kind,
            said,
            row.options,
            row.about,
        )
    }

    /// How it can be put to a client's user.
    pub(super) const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// What the request is called by which it is put to a client's user. `another` tells two of one
    /// question apart.
    pub(super) fn name(&self, another: &str) -> Option<Id> {
        let word = &self.word;
        self.kind
            .map(|_| Id::text(&format!("{}.{word}.{another}", self.id)))
    }

    /// For a model that reads it.
    pub(super) fn told(&self) -> Value {
        json!({
            "question_id": self.id,
            "kind": self.word,
            "title": self.title,
            "detail": self.detail,
            "options": self.options,
        })
    }

    /// What a client is asked; none of a secret.
    pub(super) fn form(&self, agent: &str) -> Option<Value> {
        let mut message = format!("{agent} ({}) asks: {}", self.job, shown(&self.title));
        if let Some(detail) = &self.detail {
            message.push('\n');
            message.push_str(&shown(detail));
        }
        let (name, field) = match self.kind? {
            // Further than once is only offered where the agent has it.
            Kind::Approval if self.scopes.iter().any(|scope| scope != "once") => {
                let yes = self.scopes.iter().map(String::as_str);
                let answers: Vec<&str> = std::iter::once("no").chain(yes).collect();
                (
                    "allow",
                    json!({"type": "string", "title": "Allow it?", "enum": answers}),
                )
            }
            Kind::Approval => ("approve", json!({"type": "boolean", "title": "Allow it?"})),
            Kind::Choice => (
                "choice",
                json!({"type": "string", "title": "Which?", "enum": self.options}),
            ),
            Kind::Text => ("text", json!({"type": "string", "title": "Answer"})),
        };
        let schema = json!({"type": "object", "properties": {name: field}, "required": [name]});
        Some(json!({"mode": "form", "message": message, "requestedSchema": schema}))
    }
}

/// What is asked by a request of this name: its answer may come to a face that never asked.
pub(super) fn named(name: &Id) -> Option<(String, Kind)> {
    let name: String = serde_json::from_str(name.as_json()).ok()?;
    let mut parts = name.split('.');
    let (question, word) = (parts.next()?, parts.next()?);
    let kind = Kind::deserialize(word.into_deserializer());
    let kind: Result<Kind, serde::de::value::Error> = kind;
    Some((question.to_owned(), kind.ok()?))
}

/// The fields of `answer` that a filled form is, whatever a client has put into it.
pub(super) fn answer(question_id: &str, kind: Option<Kind>, form: &Value) -> Value {
    let content = &form["content"];
    let cancelled = || json!({"question_id": question_id, "cancel": true});
    let told = |name: &str, value: &Value| json!({"question_id": question_id, name: value});
    match form["action"].as_str() {
        Some("accept") => {}
        // Somebody has said no.
        Some("decline") if kind == Some(Kind::Approval) => return told("approve", &json!(false)),
        _ => return cancelled(),
    }
    if let Some(word) = content["allow"].as_str() {
        return match word {
            "no" => told("approve", &json!(false)),
            scope => json!({"question_id": question_id, "approve": true, "scope": scope}),
        };
    }
    let strings = ["choice", "text"].into_iter();
    let mut given = strings.filter(|name| content[*name].is_string());
    match (content["approve"].as_bool(), given.next()) {
        (Some(approve), _) => told("approve", &json!(approve)),
        (None, Some(name)) => told(name, &content[name]),
        (None, None) => cancelled(),
    }
}

/// What a screen doesn't show, or obeys, spelt out.
fn shown(text: &str) -> String {
    let hides = |c: char| {
        c != '\n'
            && c != '\t'
            && (c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'))
    };
    let spelt = |c: char| match hides(c) {
        true => c.escape_unicode().to_string(),
        false => c.to_string(),
    };
    text.chars().map(spelt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(word: &str, options: &[&str], scopes: &[&str]) -> Question {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let about = QuestionAbout {
            scopes: owned(scopes),
            ..QuestionAbout::default()
        };
        let said = ("run it?".to_owned(), Some("rm \u{202e}x".to_owned()));
        Question::new(
            JobId(1),
            "j1-q1".to_owned(),
            word.to_owned(),
            said,
            owned(options),
            about,
        )
    }

    #[test]
    fn mcp_question_becomes_a_form() {
        let property = |question: Question| {
            let form = question.form("timmy").unwrap();
            assert_eq!(form["message"], "timmy (j1) asks: run it?\nrm \\u{202e}x");
            form["requestedSchema"]["properties"].clone()
        };
        let approve = json!({"approve": {"type": "boolean", "title": "Allow it?"}});
        assert_eq!(property(question("approval", &[], &["once"])), approve);
        assert_eq!(property(question("approval", &[], &[])), approve);
        let allow = property(question("approval", &[], &["once", "session"]));
        assert_eq!(allow["allow"]["enum"], json!(["no", "once", "session"]));
        let choice = property(question("choice", &["a", "b"], &[]));
        assert_eq!(choice["choice"]["enum"], json!(["a", "b"]));
        assert_eq!(
            property(question("text", &[], &[]))["text"]["type"],
            "string"
        );
        assert_eq!(question("secret", &[], &[]).form("timmy"), None);
        assert_eq!(question("choice", &[], &[]).form("timmy"), None);
        let name = question("choice", &["a"], &[]).name("x-1").unwrap();
        assert_eq!(named(&name), Some(("j1-q1".to_owned(), Kind::Choice)));
        for other in ["", "j1-q1", "j1-q1.secret.x-1", "j1-q1."] {
            assert_eq!(named(&Id::text(other)), None, "{other}");
        }
        assert_eq!(named(&Id::number(1)), None);
    }

    #[test]
    fn mcp_form_is_an_answer_whatever_it_has() {
        let said = |kind: Kind, form: Value| answer("q", Some(kind), &form);
        let accept = |content: Value| json!({"action": "accept", "content": content});
        let cancel = json!({"question_id": "q", "cancel": true});
        let no = json!({"question_id": "q", "approve": false});
        for (kind, form, expected) in [
            (
                Kind::Approval,
                accept(json!({"approve": true})),
                json!({"question_id": "q", "approve": true}),
            ),
            (
                Kind::Approval,
                accept(json!({"approve": false})),
                no.clone(),
            ),
            (Kind::Approval, accept(json!({"allow": "no"})), no.clone()),
            (
                Kind::Approval,
                accept(json!({"allow": "session"})),
                json!({"question_id": "q", "approve": true, "scope": "session"}),
            ),
            (
                Kind::Approval,
                accept(json!({"approve": "yes"})),
                cancel.clone(),
            ),
            (Kind::Approval, json!({"action": "decline"}), no),
            (Kind::Choice, json!({"action": "decline"}), cancel.clone()),
            (
                Kind::Choice,
                accept(json!({"choice": "a"})),
                json!({"question_id": "q", "choice": "a"}),
            ),
            (
                Kind::Text,
                accept(json!({"text": ""})),
                json!({"question_id": "q", "text": ""}),
            ),
            (Kind::Text, accept(json!(null)), cancel.clone()),
            (Kind::Text, json!({"action": "cancel"}), cancel.clone()),
            (Kind::Text, json!([1]), cancel.clone()),
            (Kind::Text, json!("x"), cancel),
        ] {
            assert_eq!(said(kind, form.clone()), expected, "{form}");
        }
    }
}
