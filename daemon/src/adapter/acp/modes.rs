//! Modes: which are offered, how one is set, and what is made of one that the agent takes by itself.

use serde_json::json;

use super::replay::{Replay, spawn};
use super::*;
use crate::adapter::testing::{models, turn};
use agentd_core::agent::Consent;
use agentd_core::worker::{ModePin, WorkerCommand};

/// Modes whose ids say nothing of what they are.
fn numbered() -> Value {
    json!({"sessionId": "s1", "modes": {"currentModeId": "1", "availableModes": [
        {"id": "1", "name": "Ask"}, {"id": "2", "name": "YOLO"},
        {"id": "3", "name": "All", "description": "Auto-approves all tools"},
        {"id": "4", "name": "Edits", "description": "Auto-approves edit tools"}]}})
}

/// A session of the older kind of modes, and one whose modes are an option.
fn both() -> [Value; 2] {
    let old = json!({"currentModeId": "ask", "availableModes": [
        {"id": "ask", "name": "Ask", "description": "Asks"}, {"id": "plan", "name": "plan"}, {"id": ""}]});
    let option = json!([{"id": "m", "category": "mode", "currentValue": "ask", "options": [
        {"value": "ask", "name": "Ask", "description": "Asks"}, {"value": "plan", "name": "plan"}]}]);
    [
        json!({"sessionId": "s1", "modes": old}),
        json!({"sessionId": "s1", "configOptions": option}),
    ]
}

fn opened(session: &Value) -> Replay {
    let mut replay = Replay::begun(None);
    replay.initialized(true);
    replay.answer(session);
    replay.wrote.clear();
    replay
}

fn in_mode(number: u64, mode: &str) -> WorkerCommand {
    wants(number, mode, Consent::Asked)
}

fn wants(number: u64, mode: &str, consent: Consent) -> WorkerCommand {
    WorkerCommand::Prompt(Box::new(Prompt {
        mode: Some(ModePin {
            id: mode.to_owned(),
            consent,
        }),
        ..turn(number, "x")
    }))
}

fn changed(replay: &Replay) -> Vec<&str> {
    let events = replay.events.iter();
    let modes = events.filter_map(|event| match event {
        WorkerEvent::ModeChanged { mode } => Some(mode.id.as_str()),
        _ => None,
    });
    modes.collect()
}

#[test]
fn mode_is_listed_and_set_either_way() {
    for (session, method, params) in [
        (
            &both()[0],
            "session/set_mode",
            json!({"sessionId": "s1", "modeId": "plan"}),
        ),
        (
            &both()[1],
            "session/set_config_option",
            json!({"sessionId": "s1", "configId": "m", "value": "plan"}),
        ),
    ] {
        let mut replay = opened(session);
        let offered = replay.events.iter().find_map(|event| match event {
            WorkerEvent::Ready(traits) => traits.modes.clone(),
            _ => None,
        });
        let ids: Vec<String> = offered.unwrap().into_iter().map(|row| row.id).collect();
        assert_eq!(ids, ["ask", "plan"]);
        replay.tell(&models(7));
        let Some(WorkerEvent::Models {
            result: Ok(list), ..
        }) = replay.events.pop()
        else {
            panic!("no list");
        };
        assert_eq!(list.mode.as_deref(), Some("ask"));
        let told: Vec<_> = list
            .modes
            .iter()
            .map(|row| (&*row.id, row.label.as_deref()))
            .collect();
        assert_eq!(told, [("ask", Some("Ask")), ("plan", None)]);
        assert_eq!(list.modes[0].description.as_deref(), Some("Asks"));
        replay.tell(&in_mode(1, "plan"));
        assert_eq!(replay.wrote[0]["params"], params);
        // Some tell of it before they answer, some behind it.
        let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"});
        let told = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": update}});
        replay.hear(&told);
        replay.answer(&json!({}));
        replay.hear(&told);
        assert_eq!(replay.written(), [method, "session/prompt"]);
        replay.answer(&json!({"stopReason": "end_turn"}));
        assert_eq!(changed(&replay), [""; 0]);
        // It has it by now; and one that isn't offered is refused with those that are.
        replay.wrote.clear();
        replay.tell(&in_mode(2, "plan"));
        replay.answer(&json!({"stopReason": "end_turn"}));
        assert_eq!(replay.written(), ["session/prompt"]);
        replay.tell(&in_mode(3, "nonsense"));
        let failure = replay
            .outcomes()
            .last()
            .unwrap()
            .result
            .clone()
            .unwrap_err();
        assert_eq!(failure.code, Code::Unsupported);
        let said = "offers no mode `nonsense`; it offers ask, plan";
        assert!(failure.error.contains(said), "{}", failure.error);
    }
}

#[test]
fn mode_that_asks_for_nothing_is_not_set() {
    let mut replay = opened(&numbered());
    for (number, mode) in [(1, "2"), (2, "3")] {
        replay.tell(&in_mode(number, mode));
        assert_eq!(replay.written(), [""; 0], "{mode}");
        let outcomes = replay.outcomes();
        let failure = outcomes.last().unwrap().result.as_ref().unwrap_err();
        assert_eq!(failure.code, Code::Forbidden, "{mode}");
        let said = format!("in its mode `{mode}` the agent `it` asks for nothing it does");
        assert_eq!(failure.error, said);
        let hint = failure.hint.as_deref().unwrap();
        assert!(hint.contains("[agents.it]"), "{hint}");
    }
    replay.tell(&in_mode(3, "4"));
    replay.answer(&json!({}));
    replay.answer(&json!({"stopReason": "end_turn"}));
    // The configuration names it.
    replay.tell(&wants(4, "2", Consent::Skipped));
    replay.answer(&json!({}));
    let settled = ["session/set_mode", "session/prompt"];
    assert_eq!(replay.written(), [settled, settled].concat());
}

#[test]
fn mode_that_the_agent_takes_is_told() {
    let [old, option] = both();
    let mut later = option.clone();
    later["configOptions"][0]["currentValue"] = json!("plan");
    later["sessionUpdate"] = json!("config_option_update");
    let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": "plan"});
    for (session, update) in [(old, update), (option, later)] {
        let mut replay = opened(&session);
        let told = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": update}});
        // Twice is once; between turns, too.
        replay.hear(&told);
        replay.hear(&told);
        assert_eq!(changed(&replay), ["plan"]);
        let stray = |event: &WorkerEvent| matches!(event, WorkerEvent::Stray { .. });
        assert!(!replay.events.iter().any(stray), "{:?}", replay.events);
        // In a turn those who watch it hear of it, too, whichever way it is told.
        replay.tell(&crate::adapter::testing::prompt(1, "x"));
        let text = told.to_string().replace("plan", "ask");
        replay.hear(&serde_json::from_str::<Value>(&text).unwrap());
        let heard = replay.events.iter().find_map(|event| match event {
            WorkerEvent::Other { kind, data, .. } => Some((kind.as_str(), data.as_str())),
            _ => None,
        });
        assert_eq!(heard, Some(("current_mode_update", r#""ask""#)));
    }
}

#[test]
fn modes_are_those_that_real_agents_offer() {
    for (file, mode, ids) in [
        ("opencode-1.18.33.jsonl", "build", &["build", "plan"][..]),
        (
            "hermes-0.19.0.jsonl",
            "default",
            &["default", "accept_edits", "dont_ask"],
        ),
        (
            "gemini-0.61.0.jsonl",
            "default",
            &["default", "autoEdit", "yolo", "plan"],
        ),
    ] {
        let replay = Replay::of(file).remove(0);
        let offered = replay.adapter.offer.modes();
        let offered: Vec<&str> = offered.iter().map(|row| &*row.id).collect();
        assert_eq!(offered, ids, "{file}");
        assert_eq!(replay.adapter.usual_mode.as_deref(), Some(mode), "{file}");
    }
    let none = Replay::new(Acp::new(&spawn(None)));
    assert!(none.adapter.offer.modes().is_empty());
}
