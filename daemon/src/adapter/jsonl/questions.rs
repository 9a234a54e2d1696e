//! What a worker asks its user, and what it hears of it.
//!
//! Owns these lines both ways. Must not know who answers.

use agentd_core::ids::TurnId;
use agentd_core::worker::{About, AskedFor, Asking, Lasting, QuestionKind, Reply, WorkerEvent};
use agentd_protocol::request::unix_ms;
use serde_json::{Value, json};

use super::words;
use crate::adapter::object::Object;

/// A worker asks.
pub(super) fn asked(turn: TurnId, line: &Object<'_>) -> WorkerEvent {
    let until = line.string("expires_at");
    let until = until.as_deref().and_then(unix_ms);
    WorkerEvent::Asked {
        turn: Some(turn),
        asking: Asking {
            question: line.string("question_id").unwrap_or_default(),
            kind: match line.string("kind").as_deref() {
                Some("approval") => QuestionKind::Approval,
                Some("choice") => QuestionKind::Choice,
                Some("secret") => QuestionKind::Secret,
                _ => QuestionKind::Text,
            },
            title: words(line, "title"),
            detail: line.string("detail"),
            options: line.get("options").unwrap_or_default(),
            limit: until.map(AskedFor::Until),
            about: about(line),
        },
    }
}

/// What a question of a worker is about, in this protocol's own words.
fn about(line: &Object<'_>) -> About {
    let scopes: Vec<Value> = line.get("scopes").unwrap_or_default();
    let offers = |lasting: &Lasting| scopes.contains(&json!(lasting.scope()));
    let lasting = [Lasting::Session, Lasting::Always];
    About {
        call: line.string("tool_call_id"),
        data: line.raw("data").map(str::to_owned),
        lasting: lasting.into_iter().filter(offers).collect(),
    }
}

/// What became of a question, in the words of an `answer`.
pub(super) fn answer(number: u64, question: &str, reply: &Reply) -> Value {
    let mut line = json!({"type": "answer", "id": format!("q{number}"), "question_id": question});
    let (name, value) = match reply {
        Reply::Approved => ("approve", json!(true)),
        Reply::ApprovedFor(lasting) => {
            line["scope"] = json!(lasting.scope());
            ("approve", json!(true))
        }
        Reply::Denied => ("approve", json!(false)),
        Reply::Unanswered(why) => {
            line["by"] = json!(why);
            ("approve", json!(false))
        }
        Reply::Chosen(option) => ("choice", json!(option)),
        Reply::Text(text) => ("text", json!(text)),
        Reply::Cancelled => ("cancel", json!(true)),
    };
    line[name] = value;
    line
}

#[cfg(test)]
mod tests {
    use agentd_core::worker::WorkerCommand;

    use super::super::tests::{hear, tell, with};
    use super::*;

    #[test]
    fn question_of_a_worker_says_its_subject() {
        let mut jsonl = with(&[7]);
        for (fields, expected) in [
            (
                json!({"tool_call_id": "c1", "data": {"command": "ls"}, "scopes": ["once", "always", "later", 7]}),
                About {
                    call: Some("c1".to_owned()),
                    data: Some(r#"{"command":"ls"}"#.to_owned()),
                    lasting: vec![Lasting::Always],
                },
            ),
            (
                json!({"tool_call_id": 1, "scopes": "session"}),
                About::default(),
            ),
        ] {
            let mut line = json!({"type": "question", "id": "t7", "question_id": "q", "kind": "approval", "title": "t"});
            for (name, value) in fields.as_object().unwrap() {
                line[name] = value.clone();
            }
            let Some(WorkerEvent::Asked { asking, .. }) = hear(&mut jsonl, &line.to_string()).pop()
            else {
                panic!("not asked");
            };
            assert_eq!(asking.about, expected, "{fields}");
        }
    }

    #[test]
    fn answer_for_longer_has_its_scope() {
        let reply = Reply::ApprovedFor(Lasting::Session);
        let question = "q".to_owned();
        let (_, written) = tell(&mut with(&[7]), WorkerCommand::Answer { question, reply });
        let line: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(
            (&line["approve"], &line["scope"]),
            (&json!(true), &json!("session"))
        );
    }
}
