//! The models and slash commands that a worker lists.
//!
//! Owns the question and how leniently its answer is read. Must not know which models there are.

use agentd_core::store::Pins;
use agentd_core::worker::{Failure, ModelList, WorkerEvent};
use agentd_protocol::models::ModelRow;
use serde_json::{Value, json};

use crate::adapter::object::Object;
use crate::adapter::{MOST_MODELS, commands, cut};

/// Before the number of the question, in its id.
const ASKED: &str = "m";
/// The same for slash commands.
const ASKED_COMMANDS: &str = "c";
/// Longest note that is passed on, in bytes.
const NOTE: usize = 1024;

/// The question, with what a turn is told that names no model.
pub(super) fn request(number: u64, pins: &Pins) -> Value {
    let mut line = json!({"type": "models", "id": format!("{ASKED}{number}")});
    for (name, pin) in [("provider", &pins.provider), ("model", &pins.model)] {
        if let Some(pin) = pin {
            line[name] = json!(pin);
        }
    }
    line
}

/// A question of ours that has this id is refused.
pub(super) fn refused(id: &str, failure: &Failure) -> Option<WorkerEvent> {
    if let Some(number) = asked(id) {
        let result = Err(failure.clone());
        return Some(WorkerEvent::Models { number, result });
    }
    let (number, result) = (commands_asked(id)?, Err(failure.clone()));
    Some(WorkerEvent::Commands { number, result })
}

/// The number of the question that has this id.
fn asked(id: &str) -> Option<u64> {
    id.strip_prefix(ASKED)?.parse().ok()
}

/// The question for slash commands.
pub(super) fn commands_request(number: u64) -> Value {
    json!({"type": "commands", "id": format!("{ASKED_COMMANDS}{number}")})
}

/// The number of the question for commands that has this id.
fn commands_asked(id: &str) -> Option<u64> {
    id.strip_prefix(ASKED_COMMANDS)?.parse().ok()
}

/// Its answer, if it is one to a question of ours.
pub(super) fn commands(line: &Object<'_>) -> Option<WorkerEvent> {
    let number = commands_asked(&line.string("id")?)?;
    let rows = line.objects("commands");
    let mut list = commands::listed(rows, |row| row.string("hint"));
    list.note = line.string("note").map(|note| cut(&note, NOTE).to_owned());
    let result = Ok(list);
    Some(WorkerEvent::Commands { number, result })
}

/// An answer, if it is one to a question of ours. A row that can't be read is left out.
pub(super) fn listed(line: &Object<'_>) -> Option<WorkerEvent> {
    let number = asked(&line.string("id")?)?;
    let row = |row: Object<'_>| {
        let names = |name| row.get::<Vec<String>>(name);
        Some(ModelRow {
            provider: row.string("provider"),
            model: row.string("model")?,
            label: row.string("label"),
            thinking: names("thinking"),
            input: names("input"),
            context_window: row.get("context_window"),
            default: row.is_true("default"),
        })
    };
    let rows = line.objects("models").into_iter().filter_map(row);
    let note = line.string("note");
    let list = ModelList {
        rows: rows.take(MOST_MODELS).collect(),
        note: note.map(|note| cut(&note, NOTE).to_owned()),
        ..ModelList::default()
    };
    let result = Ok(list);
    Some(WorkerEvent::Models { number, result })
}

#[cfg(test)]
mod tests {
    use agentd_core::worker::WorkerCommand;
    use agentd_protocol::Code;

    use super::super::tests::{hear, tell, with};
    use super::*;

    fn told(line: &Value) -> Option<WorkerEvent> {
        hear(&mut with(&[]), &line.to_string()).pop()
    }

    #[test]
    fn models_are_asked_for_with_what_is_pinned() {
        let pins = Box::new(Pins {
            provider: Some("echo".to_owned()),
            ..Pins::default()
        });
        let (_, written) = tell(&mut with(&[]), WorkerCommand::Models { number: 4, pins });
        let expected = json!({"type": "models", "id": "m4", "provider": "echo"});
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), expected);
    }

    #[test]
    fn models_of_a_worker_are_read_leniently() {
        let models = json!([
            {"provider": "p", "model": "m", "label": "M", "thinking": ["low"], "input": ["text"],
             "context_window": 7, "default": true},
            {"model": "n", "thinking": 1, "input": "text", "context_window": -1, "default": "yes"},
            {"provider": "p"},
            7,
        ]);
        let line =
            json!({"type": "models", "id": "m4", "models": models, "note": "x".repeat(9_999)});
        let Some(WorkerEvent::Models {
            number: 4,
            result: Ok(list),
        }) = told(&line)
        else {
            panic!("no list");
        };
        let whole = ModelRow {
            provider: Some("p".to_owned()),
            label: Some("M".to_owned()),
            thinking: Some(vec!["low".to_owned()]),
            input: Some(vec!["text".to_owned()]),
            context_window: Some(7),
            default: true,
            ..ModelRow::named("m")
        };
        assert_eq!(list.rows, [whole, ModelRow::named("n")]);
        assert_eq!(list.note.unwrap().len(), NOTE);
    }

    #[test]
    fn models_refused_or_unasked_are_told_as_such() {
        let line = json!({"type": "error", "id": "m4", "code": "unknown-command", "error": "no"});
        let Some(WorkerEvent::Models {
            number: 4,
            result: Err(failure),
        }) = told(&line)
        else {
            panic!("no failure");
        };
        assert_eq!(failure.code, Code::Unsupported);
        for id in [json!("4"), json!("mx"), json!(4), json!(null)] {
            assert_eq!(
                told(&json!({"type": "models", "id": id, "models": []})),
                None
            );
        }
    }
}
