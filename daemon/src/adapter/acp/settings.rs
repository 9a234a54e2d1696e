//! Models and levels that change between turns, and counters that begin anew.

use serde_json::json;

use super::replay::{Replay, pinned, spawn};
use super::*;
use crate::adapter::testing::{cancel, models, prompt, servers_of_today};
use agentd_core::worker::WorkerCommand;

#[test]
fn setting_of_a_cancelled_turn_fails_no_other() {
    let mut replay = Replay::begun(None);
    replay.initialized(true);
    replay.answer(
        &json!({"sessionId": "s1", "models": {"currentModelId": "a", "availableModels": []}}),
    );
    replay.tell(&pinned(1, "", "two", "low"));
    assert_eq!(replay.written().last(), Some(&"session/set_model"));
    replay.tell(&cancel(1));
    // One that is never answered must not keep every later turn waiting, nor the next one.
    let [
        ..,
        WorkerEvent::Spoilt { .. },
        WorkerEvent::Ended {
            turn: TurnId(1), ..
        },
    ] = &replay.events[..]
    else {
        panic!("{:?}", replay.events);
    };
    replay.tell(&prompt(2, "x"));
    replay.refuse(-32602, "unknown model");
    assert_eq!(replay.written().last(), Some(&"session/prompt"));
    replay.answer(&json!({"stopReason": "end_turn"}));
    let results: Vec<_> = replay
        .outcomes()
        .iter()
        .map(|one| one.result.clone())
        .collect();
    assert_eq!(results, [Ok(Stop::Cancelled), Ok(Stop::EndTurn)]);
}

/// A session of models that each have their own thinking levels.
fn levels(model: &str, level: &str, levels: &[&str]) -> Value {
    let levels: Vec<Value> = levels.iter().map(|level| json!({"value": level})).collect();
    json!({"sessionId": "s1", "configOptions": [
        {"id": "m", "category": "model", "currentValue": model, "options": [{"value": "one"}, {"value": "two"}]},
        {"id": "t", "category": "thought_level", "currentValue": level, "options": levels},
    ]})
}

#[test]
fn level_not_given_is_the_one_at_first() {
    let mut replay = Replay::begun(None);
    replay.initialized(true);
    replay.answer(&levels("one", "low", &["low", "high"]));
    replay.wrote.clear();
    replay.tell(&pinned(1, "", "one", "high"));
    replay.answer(&json!({}));
    replay.answer(&json!({"stopReason": "end_turn"}));
    replay.wrote.clear();
    replay.tell(&prompt(2, "x"));
    assert_eq!(
        replay.wrote[0]["params"],
        json!({"sessionId": "s1", "configId": "t", "value": "low"})
    );
    replay.answer(&json!({}));
    assert_eq!(
        replay.written(),
        ["session/set_config_option", "session/prompt"]
    );
}

#[test]
fn level_is_chosen_from_its_models_offer() {
    let mut replay = Replay::begun(None);
    replay.initialized(true);
    replay.answer(&levels("one", "low", &["low", "high"]));
    replay.wrote.clear();
    replay.tell(&pinned(1, "", "two", "max"));
    replay.answer(&levels("two", "default", &["default", "max"]));
    assert_eq!(replay.wrote[1]["params"]["value"], "max");
    replay.answer(&json!({}));
    replay.answer(&json!({"stopReason": "end_turn"}));
    // The usual level is one of the usual model: both are set again.
    replay.wrote.clear();
    replay.tell(&prompt(2, "x"));
    assert_eq!(replay.wrote[0]["params"]["value"], "one");
    replay.answer(&levels("one", "high", &["low", "high"]));
    assert_eq!(replay.wrote[1]["params"]["value"], "low");
    replay.answer(&json!({}));
    assert_eq!(replay.written().last(), Some(&"session/prompt"));
    let noted = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { .. });
    assert!(!replay.events.iter().any(noted), "{:?}", replay.events);
}

#[test]
fn counters_that_begin_anew_are_taken_whole() {
    let mut replay = Replay::begun(None);
    replay.answer(&json!({"protocolVersion": 1, "agentInfo": {"name": "hermes-agent"}}));
    replay.answer(&json!({"sessionId": "s1"}));
    for (turn, (input, output), expected) in [
        (1, (100, 10), (100, 10)),
        (2, (150, 30), (50, 20)),
        // The agent was rebuilt: more of one than before, less of the other.
        (3, (160, 5), (160, 5)),
        (4, (170, 6), (10, 1)),
    ] {
        replay.tell(&prompt(turn, "x"));
        let usage = json!({"inputTokens": input, "outputTokens": output});
        replay.answer(&json!({"stopReason": "end_turn", "usage": usage}));
        let usage = replay.outcomes().last().unwrap().usage.unwrap();
        let told = (usage.input_tokens, usage.output_tokens);
        assert_eq!(told, expected, "turn {turn}");
    }
}

#[test]
fn model_not_listed_is_refused_with_the_list() {
    for (listed, provider, model) in [
        ("p/one", "p", "new"),
        ("p/one", "p", "p/new"),
        ("p/one", "", "nonsense"),
    ] {
        let mut replay = Replay::begun(None);
        replay.initialized(true);
        replay.answer(&json!({"sessionId": "s1", "models": {"currentModelId": listed, "availableModels": [{"modelId": listed}]}}));
        let ready = replay.events.iter().find_map(|event| match event {
            WorkerEvent::Ready(traits) => traits.models.clone(),
            _ => None,
        });
        assert_eq!(ready, Some(vec![listed.to_owned()]));
        replay.tell(&pinned(1, provider, model, ""));
        let failure = replay.failure();
        assert_eq!(failure.code, Code::Unsupported);
        let said = format!("offers no model `{model}`; it offers {listed}");
        assert!(failure.error.contains(&said), "{}", failure.error);
        assert!(!replay.written().contains(&"session/set_model"));
    }
}

#[test]
fn model_beyond_a_partial_list_is_let_through() {
    for (listed, provider, model, value) in
        [("one", "", "two", "two"), ("p:one", "p", "new", "p:new")]
    {
        let mut replay = Replay::begun(None);
        replay.initialized(true);
        replay.answer(&json!({"sessionId": "s1", "models": {"currentModelId": listed, "availableModels": [{"modelId": listed}]}}));
        replay.tell(&pinned(1, provider, model, ""));
        let last = replay.wrote.last().unwrap();
        assert_eq!(last["params"]["modelId"], value);
    }
}

/// The models that are told of an agent as it was recorded.
fn listed(file: &str) -> ModelList {
    told(&mut Replay::of(file).remove(0))
}

/// Those that are told now.
fn told(replay: &mut Replay) -> ModelList {
    replay.tell(&models(7));
    match replay.events.pop() {
        Some(WorkerEvent::Models {
            result: Ok(list), ..
        }) => list,
        other => panic!("{other:?}"),
    }
}

#[test]
fn models_are_those_that_real_agents_offer() {
    for (file, expected) in [
        (
            "opencode-1.18.33.jsonl",
            &[
                (Some("mock"), "mock-1", true),
                (Some("mock"), "mock-2", false),
            ][..],
        ),
        (
            "hermes-0.19.0.jsonl",
            &[
                (None, "custom:mock-model", true),
                (None, "custom:mock-1", false),
            ],
        ),
        (
            "gemini-0.61.0.jsonl",
            &[
                (None, "gemini-2.5-flash", true),
                (None, "auto", false),
                (None, "gemini-3.1-pro-preview-customtools", false),
            ],
        ),
    ] {
        let list = listed(file);
        let rows: Vec<_> = list
            .rows
            .iter()
            .map(|row| (row.provider.as_deref(), row.model.as_str(), row.default))
            .collect();
        assert_eq!(rows, expected, "{file}");
        assert_eq!(list.note, None);
    }
    let labels = listed("gemini-0.61.0.jsonl").rows;
    assert_eq!(labels[1].label.as_deref(), Some("Auto"));
    // What says no more than the name is none.
    let plain = listed("opencode-1.18.33.jsonl").rows;
    assert_eq!(plain[0].label, None);
}

#[test]
fn models_levels_are_of_the_one_in_force() {
    let mut replay = Replay::begun(None);
    replay.initialized(true);
    replay.answer(&levels("one", "low", &["low", "high"]));
    let list = told(&mut replay);
    let levels: Vec<_> = list.rows.iter().map(|row| row.thinking.clone()).collect();
    assert_eq!(
        levels,
        [Some(vec!["low".to_owned(), "high".to_owned()]), None]
    );
}

#[test]
fn models_nobody_offers_are_none_and_say_why() {
    let mut replay = Replay::ready();
    let list = told(&mut replay);
    assert!(list.rows.is_empty());
    assert!(list.note.unwrap().contains("offers no choice of models"));
    let mut broken = Replay::begun(None);
    broken.refuse(-32000, "Authentication required");
    broken.tell(&models(7));
    let Some(WorkerEvent::Models {
        result: Err(failure),
        ..
    }) = broken.events.pop()
    else {
        panic!("no failure");
    };
    assert_eq!(failure.code, Code::AgentAuth);
}

#[test]
fn failure_of_an_agentd_keeps_its_code() {
    for (name, data, expected) in [
        (
            "agentd",
            json!({"code": "context-overflow"}),
            Code::ContextOverflow,
        ),
        (
            "agentd",
            json!({"code": "worker-exited"}),
            Code::AgentFailed,
        ),
        ("agentd", json!({"code": 5}), Code::AgentFailed),
        (
            "another",
            json!({"code": "context-overflow"}),
            Code::AgentFailed,
        ),
    ] {
        let mut replay = Replay::begun(None);
        let info = json!({"name": name});
        replay.answer(&json!({"protocolVersion": 1, "agentInfo": info}));
        replay.answer(&json!({"sessionId": "s1"}));
        replay.tell(&prompt(1, "x"));
        let error = json!({"code": -32603, "message": "no", "data": data});
        let id = replay.last_id();
        replay.hear(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        let failed = replay.outcomes()[0].result.clone().unwrap_err();
        assert_eq!(failed.code, expected, "{name}: {error}");
    }
}

/// Hermes 0.19.0 lists the model in force under its provider, and builds the session anew to set one.
#[test]
fn model_in_force_under_its_provider_stays() {
    let mut replay = Replay::new(Acp::new(&Spawn {
        mcp_servers: servers_of_today(),
        ..spawn(None)
    }));
    replay.tell(&WorkerCommand::Probe);
    let can = json!({"mcpCapabilities": {"http": true}});
    replay.answer(&json!({"protocolVersion": 1, "agentInfo": {"name": "hermes-agent"}, "agentCapabilities": can}));
    let listed = json!([{"modelId": "custom:m:1", "name": "m:1"}]);
    replay.answer(&json!({"sessionId": "s1", "models": {"currentModelId": "custom:m:1", "availableModels": listed}}));
    replay.wrote.clear();
    replay.tell(&pinned(1, "", "m:1", ""));
    assert_eq!(replay.written(), ["session/prompt"]);
    replay.answer(&json!({"stopReason": "end_turn"}));
    let noted = |replay: &Replay| {
        let noted = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { text, .. } if text.contains("MCP servers"));
        replay.events.iter().any(noted)
    };
    assert!(!noted(&replay), "{:?}", replay.events);
    replay.wrote.clear();
    replay.tell(&pinned(2, "", "other", ""));
    replay.answer(&json!({}));
    assert_eq!(replay.written(), ["session/set_model", "session/prompt"]);
    assert!(noted(&replay), "{:?}", replay.events);
}
