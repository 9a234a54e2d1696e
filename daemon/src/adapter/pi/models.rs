//! The models that pi has keys for, as it lists them.
//!
//! Owns what its list means. Which levels a model has pi doesn't say: that is its own rule, of both
//! dialects.

use std::collections::BTreeMap;

use agentd_core::worker::{Failure, ModelList};
use agentd_protocol::Code;
use agentd_protocol::models::ModelRow;
use serde_json::{Value, json};

use super::{LEVELS, Pi};
use crate::adapter::MOST_MODELS;
use crate::adapter::object::Object;

/// Which question it is stands in its id: nothing is remembered of one that pi never answers.
const ASKED: &str = "models-";
/// Levels that a model has only if its map names them.
const MAPPED: &[&str] = &["xhigh", "max"];

/// The question for them.
pub(super) fn request(number: u64) -> Value {
    json!({"type": "get_available_models", "id": format!("{ASKED}{number}")})
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
        Ok(ModelList { rows, note })
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
