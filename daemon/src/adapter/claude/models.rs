//! The models and slash commands that Claude Code lists when it is greeted.
//!
//! Owns what its list means, and how much of it each process keeps.

use agentd_core::agent::Mode;
use agentd_core::worker::{CommandList, Failure, ModelList};
use agentd_protocol::Code;
use agentd_protocol::models::{ModeRow, ModelRow};

use crate::adapter::object::{Object, elements};
use crate::adapter::{MOST_MODELS, commands};

/// Longer lists are not kept, in bytes: each process has one, of some 2 KiB.
const KEPT: usize = 64 * 1024;
/// Its word for the model that its user's plan or settings choose.
const DEFAULT: &str = "default";

/// What is kept of them.
pub(super) fn kept(models: &str) -> Option<Box<str>> {
    (models.len() <= KEPT).then(|| models.into())
}

/// What was kept, as rows, with the pinned one as the default, though it may not be among them.
pub(super) fn listed(kept: Option<&str>, pinned: Option<&str>) -> Result<ModelList, Failure> {
    let Some(kept) = kept else {
        let why = "this Claude Code did not say which models it has when it was greeted";
        return Err(Failure::new(Code::Unsupported, why));
    };
    let default = pinned.unwrap_or(DEFAULT);
    let models = elements(kept).into_iter().take(MOST_MODELS);
    let mut rows: Vec<ModelRow> = models.filter_map(|model| row(&model, default)).collect();
    if let Some(pinned) = pinned.filter(|_| !rows.iter().any(|row| row.default)) {
        let pinned = ModelRow {
            default: true,
            ..ModelRow::named(pinned)
        };
        rows.insert(0, pinned);
    }
    Ok(ModelList {
        rows,
        ..ModelList::default()
    })
}

/// The slash commands that were kept, as rows.
pub(super) fn commands(kept: Option<&str>) -> Result<CommandList, Failure> {
    let Some(kept) = kept else {
        let why = "this Claude Code did not say which commands it has when it was greeted";
        return Err(Failure::new(Code::Unsupported, why));
    };
    let hint = |row: &Object<'_>| row.string("argumentHint");
    Ok(commands::listed(elements(kept), hint))
}

/// A mode as people read it.
pub(super) fn mode(mode: &Mode) -> ModeRow {
    ModeRow {
        description: Some(mode.description.to_owned()),
        ..ModeRow::named(mode.id)
    }
}

fn row(model: &Object<'_>, default: &str) -> Option<ModelRow> {
    let name = model.string("value")?;
    let efforts: Option<Vec<String>> = model.get("supportedEffortLevels");
    let off = model
        .is_true("supportsThinkingOff")
        .then(|| "off".to_owned());
    Some(ModelRow {
        default: name == default,
        model: name,
        label: model.string("displayName"),
        thinking: efforts.map(|efforts| off.into_iter().chain(efforts).collect()),
        ..ModelRow::default()
    })
}

#[cfg(test)]
mod tests {
    use agentd_core::store::Pins;
    use agentd_core::worker::{WorkerCommand, WorkerEvent};
    use serde_json::{Value, json};

    use super::super::replay::Replay;
    use super::*;
    use crate::adapter::testing::models;

    fn told(replay: &mut Replay) -> Result<ModelList, Failure> {
        replay.tell(&models(7));
        match replay.events.pop() {
            Some(WorkerEvent::Models { number: 7, result }) => result,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn models_are_those_of_the_greeting() {
        let mut replay = Replay::of("models");
        replay.tell(&WorkerCommand::Probe);
        replay.play();
        let list = told(&mut replay).unwrap();
        let names: Vec<&str> = list.rows.iter().map(|row| row.model.as_str()).collect();
        assert_eq!(names, ["default", "opus", "fable", "sonnet", "haiku"]);
        assert!(list.rows[0].default && !list.rows[1].default);
        assert_eq!(list.rows[1].label.as_deref(), Some("Opus"));
        let levels = ["low", "medium", "high", "xhigh", "max"];
        assert_eq!(list.rows[1].thinking.as_deref().unwrap(), levels);
        // One that is pinned is in force, whether it is listed or not.
        for (pinned, at) in [("opus", 1), ("mock-1", 0)] {
            let pins = Box::new(Pins {
                model: Some(pinned.to_owned()),
                ..Pins::default()
            });
            replay.tell(&WorkerCommand::Models { number: 8, pins });
            let Some(WorkerEvent::Models {
                number: 8,
                result: Ok(list),
            }) = replay.events.pop()
            else {
                panic!("no list");
            };
            let defaults: Vec<usize> = (0..list.rows.len())
                .filter(|at| list.rows[*at].default)
                .collect();
            assert_eq!(defaults, [at], "{pinned}");
            assert_eq!(list.rows[at].model, pinned);
        }
        // Asked again whether it is there, it may say less.
        replay.tell(&WorkerCommand::Probe);
        let id = replay.wrote.last().unwrap()["request_id"].clone();
        let greet = json!({"name": "greet", "description": "Greets", "argumentHint": "whom"});
        greets(
            &mut replay,
            &id,
            &json!({"commands": [greet, {"name": ""}, 7]}),
        );
        assert_eq!(told(&mut replay).unwrap(), list);
        let mut commands = || {
            replay.tell(&WorkerCommand::Commands { number: 9 });
            match replay.events.pop() {
                Some(WorkerEvent::Commands { number: 9, result }) => result,
                other => panic!("{other:?}"),
            }
        };
        let rows = commands().unwrap().rows;
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].name.as_str(), rows[0].hint.as_deref()),
            ("greet", Some("whom"))
        );
        let mut silent = Replay::bare();
        silent.tell(&WorkerCommand::Commands { number: 9 });
        assert!(matches!(
            silent.events.pop(),
            Some(WorkerEvent::Commands { result: Err(_), .. })
        ));
    }

    fn greets(replay: &mut Replay, id: &Value, answer: &Value) {
        let response = json!({"subtype": "success", "request_id": id, "response": answer});
        replay.hear(&json!({"type": "control_response", "response": response}));
    }

    #[test]
    fn models_nobody_told_or_can_read_are_none() {
        for (told_of, rows) in [
            (json!(null), None),
            (json!("x".repeat(KEPT)), None),
            (json!({"value": "x"}), Some(0)),
            (
                json!([7, {"displayName": "x"}, {"value": "y", "supportedEffortLevels": 1}]),
                Some(1),
            ),
        ] {
            let mut replay = Replay::bare();
            replay.tell(&WorkerCommand::Probe);
            let id = replay.wrote[0]["request_id"].clone();
            greets(&mut replay, &id, &json!({"models": told_of}));
            let told = told(&mut replay).ok().map(|list| list.rows.len());
            assert_eq!(told, rows);
        }
    }
}
