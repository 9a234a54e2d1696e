//! The models that Codex lists, page by page.
//!
//! Owns what its list means. It is that of OpenAI's models, whichever provider the thread has: the
//! model that is in force is told besides.

use agentd_core::worker::{Failure, ModelList};
use agentd_protocol::Code;
use agentd_protocol::models::ModelRow;
use serde_json::json;

use super::{Codex, OpenRequest};
use crate::adapter::MOST_MODELS;
use crate::adapter::driver::Out;
use crate::adapter::object::Object;

impl Codex {
    /// Asks for the page behind a cursor.
    pub(super) fn list_models(
        &mut self,
        (number, before): (u64, Vec<ModelRow>),
        cursor: Option<&str>,
        out: &mut Out<'_>,
    ) {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
        self.request(
            OpenRequest::Models(number, before),
            "model/list",
            &params,
            out,
        );
    }

    /// A page came.
    pub(super) fn models_listed(
        &mut self,
        (number, mut rows): (u64, Vec<ModelRow>),
        line: &Object<'_>,
        error: Option<&str>,
        out: &mut Out<'_>,
    ) {
        if let Some(error) = error {
            return out.models(number, Err(Failure::new(Code::AgentFailed, error)));
        }
        let Some(page) = line
            .object("result")
            .filter(|page| page.raw("data").is_some())
        else {
            let error = "Codex answered with no list of models";
            return out.models(number, Err(Failure::new(Code::AgentFailed, error)));
        };
        let before = rows.len();
        let models = page.objects("data");
        rows.extend(models.iter().filter_map(row).take(MOST_MODELS - before));
        let cursor = page.string("nextCursor");
        // A page without any would be followed by others for ever.
        let more = cursor.filter(|_| rows.len() > before && rows.len() < MOST_MODELS);
        match more {
            Some(cursor) => self.list_models((number, rows), Some(&cursor), out),
            None => out.models(number, Ok(self.with_own(rows))),
        }
    }

    /// With the thread's own model as the default, and first if it isn't one of them.
    fn with_own(&self, mut rows: Vec<ModelRow>) -> ModelList {
        if let Some(own) = &self.model {
            for row in &mut rows {
                row.default = row.model == *own;
            }
            if !rows.iter().any(|row| row.default) {
                let own = ModelRow {
                    provider: self.provider.clone(),
                    default: true,
                    ..ModelRow::named(own)
                };
                rows.insert(0, own);
            }
        }
        ModelList {
            rows,
            ..ModelList::default()
        }
    }
}

fn row(model: &Object<'_>) -> Option<ModelRow> {
    let efforts = model.raw("supportedReasoningEfforts").map(|_| {
        let efforts = model.objects("supportedReasoningEfforts").into_iter();
        efforts
            .filter_map(|effort| effort.string("reasoningEffort"))
            .collect()
    });
    Some(ModelRow {
        model: model.string("model").or_else(|| model.string("id"))?,
        label: model.string("displayName"),
        thinking: efforts,
        input: model.get("inputModalities"),
        default: model.is_true("isDefault"),
        ..ModelRow::default()
    })
}

#[cfg(test)]
mod tests {
    use agentd_core::worker::WorkerEvent;
    use serde_json::Value;

    use super::super::replay::Replay;
    use super::*;
    use crate::adapter::testing;

    fn told(replay: &Replay) -> Option<Result<ModelList, Failure>> {
        match replay.events.last() {
            Some(WorkerEvent::Models { number: 7, result }) => Some(result.clone()),
            _ => None,
        }
    }

    fn answers(replay: &mut Replay, mut said: Value) {
        let asked = replay.wrote.last().unwrap();
        assert_eq!(asked["method"], "model/list");
        said["id"] = asked["id"].clone();
        replay.hear(&said);
    }

    #[test]
    fn models_come_page_by_page_with_own_first() {
        let recorded = testing::load("codex/0.169.0/models.jsonl");
        let [asked, told_then] = [&recorded[0].value, &recorded[1].value];
        let models = told_then["result"]["data"].as_array().unwrap();
        let (first, rest) = models.split_at(2);
        let mut replay = Replay::ready();
        replay.tell(&testing::models(7));
        let params = |replay: &Replay| replay.wrote.last().unwrap()["params"].clone();
        assert_eq!(params(&replay), asked["params"]);
        // All are in one page as recorded; it may well be more.
        answers(
            &mut replay,
            json!({"result": {"data": first, "nextCursor": "2"}}),
        );
        assert_eq!(told(&replay), None);
        assert_eq!(params(&replay), json!({"cursor": "2"}));
        answers(
            &mut replay,
            json!({"result": {"data": rest, "nextCursor": null}}),
        );
        let list = told(&replay).unwrap().unwrap();
        assert_eq!(list.rows.len(), models.len() + 1);
        let names: Vec<&str> = list.rows.iter().map(|row| row.model.as_str()).collect();
        assert_eq!(names[..3], ["mock-1", "gpt-6.1-sol", "gpt-6-astra"]);
        let defaults = list.rows.iter().filter(|row| row.default).count();
        assert_eq!((list.rows[0].default, defaults), (true, 1));
        assert_eq!(list.rows[0].provider.as_deref(), Some("mock"));
        let sol = &list.rows[1];
        assert_eq!(sol.label.as_deref(), Some("GPT-6.1-Sol"));
        let levels = ["low", "medium", "high", "xhigh", "max", "ultra"];
        assert_eq!(sol.thinking.as_deref().unwrap(), levels);
        assert_eq!(sol.input.as_deref().unwrap(), ["text", "image"]);
    }

    #[test]
    fn models_without_end_or_sense_have_one() {
        for (said, expected) in [
            (json!({"error": {"message": "no"}}), Err("no")),
            (
                json!({"result": {}}),
                Err("Codex answered with no list of models"),
            ),
            (json!({"result": {"data": [], "nextCursor": "1"}}), Ok(1)),
            (
                json!({"result": {"data": [7, {"model": 7}], "nextCursor": "1"}}),
                Ok(1),
            ),
            (
                json!({"result": {"data": vec![json!({"id": "x"}); 20_000], "nextCursor": "1"}}),
                Ok(MOST_MODELS + 1),
            ),
        ] {
            let mut replay = Replay::ready();
            replay.tell(&testing::models(7));
            answers(&mut replay, said);
            let told = told(&replay).expect("an answer");
            let told = told.as_ref().map(|list| list.rows.len());
            assert_eq!(told.map_err(|why| why.error.as_str()), expected);
        }
    }
}
