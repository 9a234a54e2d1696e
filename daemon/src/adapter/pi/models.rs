//! The models that pi has keys for, and its slash commands, as it lists them.
//!
//! Owns what its list means. Which levels a model has pi doesn't say: that is its own rule, of both
//! dialects.

use std::collections::BTreeMap;

use agentd_core::worker::{CommandList, Failure, ModelList};
use agentd_protocol::Code;
use agentd_protocol::models::ModelRow;
use serde_json::{Value, json};

use super::{LEVELS, Pi};
use crate::adapter::object::Object;
use crate::adapter::{MOST_MODELS, commands};

/// Which question it is stands in its id: nothing is remembered of one that pi never answers.
const ASKED: &str = "models-";
/// The same for slash commands.
const ASKED_COMMANDS: &str = "commands-";
/// Levels that a model has only if its map names them.
const MAPPED: &[&str] = &["xhigh", "max"];

/// The question for them.
pub(super) fn request(number: u64) -> Value {
    json!({"type": "get_available_models", "id": format!("{ASKED}{number}")})
}

/// The question for its slash commands.
pub(super) fn commands_request(number: u64) -> Value {
    json!({"type": "get_commands", "id": format!("{ASKED_COMMANDS}{number}")})
}

/// The number of the question for commands that has this id.
pub(super) fn commands_asked(id: &str) -> Option<u64> {
    id.strip_prefix(ASKED_COMMANDS)?.parse().ok()
}

/// The answer to `get_commands`: extensions', prompts and skills. Those of its terminal aren't among
/// them, and do nothing here.
pub(super) fn commands(record: &Object<'_>) -> Result<CommandList, Failure> {
    let data = record.object("data").filter(|_| record.is_true("success"));
    match data.filter(|data| data.raw("commands").is_some()) {
        Some(data) => Ok(commands::listed(data.objects("commands"), |_| None)),
        None => {
            let error = record.string("error");
            let error = error.unwrap_or_else(|| "pi lists no commands".to_owned());
            Err(Failure::new(Code::AgentFailed, error))
        }
    }
}

/// The number of the question that has this id.
pub(super) fn asked(id: &str) -> Option<u64> {
    id.strip_prefix(ASKED)?.parse().ok()
}

impl Pi {
    /// The answer to `get_available_models`.
    pub(super) fn listed(&self, record: &Object<'_>) -> Result<ModelList, Failure> {
        let data = record.object("data").filter(|_| record.is_true("success"));
        let Some(data) = data.filter(|data| data.raw("models").is_some()) else {
            let error = record.string("error");
            let error = error.unwrap_or_else(|| "pi lists no models".to_owned());
            return Err(Failure::new(Code::AgentFailed, error));
        };
        let models = data.objects("models").into_iter().take(MOST_MODELS);
        let row = |model: Object<'_>| self.model_row(&model);
        let rows: Vec<ModelRow> = models.filter_map(row).collect();
        let note = rows.is_empty().then(|| {
            "pi lists no models: it has no key, and nobody is logged in to a provider".to_owned()
        });
        Ok(ModelList {
            rows,
            note,
            ..ModelList::default()
        })
    }

    fn model_row(&self, model: &Object<'_>) -> Option<ModelRow> {
        let (id, provider) = (model.string("id")?, model.string("provider"));
        Some(ModelRow {
            default: self.model.as_ref() == Some(&id) && self.provider == provider,
            provider,
            model: id,
            label: model.string("name"),
            thinking: Some(levels(model)),
            input: model.get("input"),
            context_window: model.get("contextWindow"),
        })
    }
}

fn levels(model: &Object<'_>) -> Vec<String> {
    let map: BTreeMap<String, Value> = model.get("thinkingLevelMap").unwrap_or_default();
    let thinks = model.is_true("reasoning");
    let has = |level: &&&str| match map.get(**level) {
        _ if !thinks => **level == "off",
        Some(mapped) => !mapped.is_null(),
        None => !MAPPED.contains(*level),
    };
    LEVELS
        .iter()
        .filter(has)
        .map(|level| (*level).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use agentd_core::worker::{WorkerCommand, WorkerEvent};

    use super::super::replay::{DIALECTS, Replay, load};
    use super::*;
    use crate::adapter::testing::models;

    fn told(replay: &Replay) -> Result<ModelList, Failure> {
        match replay.events.last() {
            Some(WorkerEvent::Models { number: 7, result }) => result.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// pi's answer to the request for its models.
    fn answers(replay: &mut Replay, mut said: Value) {
        said["id"] = replay.wrote.last().unwrap()["id"].clone();
        replay.hear(&said);
    }

    #[test]
    fn models_of_both_dialects_are_read() {
        for dialect in DIALECTS {
            let mut replay = Replay::of(dialect, "01");
            replay.tell(&WorkerCommand::Probe);
            replay.settle();
            replay.tell(&models(7));
            let recorded = load(dialect, "01")
                .into_iter()
                .find(|record| !record.ours && record.value["command"] == "get_available_models");
            answers(&mut replay, recorded.unwrap().value);
            let list = told(&replay).unwrap();
            let [one, two] = &list.rows[..] else {
                panic!("{list:?}");
            };
            let levels = ["off", "minimal", "low", "medium", "high"];
            let expected = ModelRow {
                provider: Some("mock".to_owned()),
                model: "mock-1".to_owned(),
                label: Some("Mock One".to_owned()),
                thinking: Some(vec!["off".to_owned()]),
                input: Some(vec!["text".to_owned()]),
                context_window: Some(128_000),
                default: true,
            };
            assert_eq!(*one, expected, "{dialect}");
            assert_eq!(two.thinking.as_deref().unwrap(), levels);
            assert!(!two.default && list.note.is_none());
        }
    }

    #[test]
    fn models_levels_are_those_of_pis_rule() {
        for (model, expected) in [
            (
                json!({"reasoning": false, "thinkingLevelMap": {"max": "x"}}),
                "off",
            ),
            (
                json!({"reasoning": true, "thinkingLevelMap": {"off": null, "xhigh": "x"}}),
                "minimal low medium high xhigh",
            ),
            (
                json!({"reasoning": true, "thinkingLevelMap": 7}),
                "off minimal low medium high",
            ),
        ] {
            let text = model.to_string();
            let levels = levels(&Object::parse(text.as_bytes()).unwrap());
            assert_eq!(levels.join(" "), expected);
        }
    }

    #[test]
    fn commands_of_both_dialects_are_read() {
        for dialect in DIALECTS {
            let mut replay = Replay::ready();
            replay.tell(&WorkerCommand::Commands { number: 7 });
            let recorded = load(dialect, "25")
                .into_iter()
                .find(|record| !record.ours && record.value["command"] == "get_commands");
            answers(&mut replay, recorded.unwrap().value);
            let Some(WorkerEvent::Commands { number: 7, result }) = replay.events.pop() else {
                panic!("no list");
            };
            let first = result.unwrap().rows.remove(0);
            assert_eq!(first.name, "rpc-input");
            assert!(first.description.unwrap().starts_with("Prompt for text"));
            replay.tell(&WorkerCommand::Commands { number: 8 });
            answers(
                &mut replay,
                json!({"type": "response", "success": false, "error": "no"}),
            );
            let refused = replay.events.pop();
            let refused = matches!(refused, Some(WorkerEvent::Commands { number: 8, result: Err(why) }) if why.error == "no");
            assert!(refused);
        }
    }

    #[test]
    fn models_that_are_no_list_are_an_error() {
        for (said, error) in [
            (json!({"success": false, "error": "no"}), "no"),
            (json!({"success": true}), "pi lists no models"),
            (json!({"success": true, "data": {}}), "pi lists no models"),
        ] {
            let mut replay = Replay::ready();
            replay.tell(&models(7));
            let mut said = said;
            said["type"] = json!("response");
            answers(&mut replay, said);
            assert_eq!(told(&replay).unwrap_err().error, error);
        }
        let mut replay = Replay::ready();
        replay.tell(&models(7));
        let odd =
            json!([7, {"id": 7}, {"name": "x"}, {"id": "m", "input": "x", "contextWindow": "y"}]);
        answers(
            &mut replay,
            json!({"type": "response", "success": true, "data": {"models": odd}}),
        );
        let list = told(&replay).unwrap();
        assert_eq!(list.rows.len(), 1, "{list:?}");
        assert_eq!(
            (&list.rows[0].input, list.rows[0].context_window),
            (&None, None)
        );
        replay.tell(&models(7));
        answers(
            &mut replay,
            json!({"type": "response", "success": true, "data": {"models": []}}),
        );
        assert!(told(&replay).unwrap().note.unwrap().contains("no key"));
    }
}
