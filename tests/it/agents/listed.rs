//! Which models an agent says it has.
//!
//! Owns that scenario of the suite.

use serde_json::{Value, json};

use super::{Driven, Scene};

/// The model that is configured is in its list, as the default, and the list changes nothing: a turn
/// goes on beside it. An agent that can't say it says so.
pub(super) fn lists_its_models(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let label = &driven.label;
    let listed = scene.daemon.ask(r#"{"type":"models"}"#).remove(0);
    if !scene.kind.describe(&[]).lists_models {
        assert_eq!(listed["code"], "unsupported", "{label}: {listed:#}");
        return;
    }
    assert_eq!(listed["agent"], "it", "{label}: {listed:#}");
    let rows = listed["models"].as_array().expect("a list");
    let defaults: Vec<&Value> = rows.iter().filter(|row| row["default"] == true).collect();
    let [default] = defaults[..] else {
        panic!("{label}: not one default: {listed:#}");
    };
    let model = default["model"].as_str().unwrap();
    let configured = driven.can.models[0].1;
    assert!(model.contains(configured), "{label}: {default:#}");
    // It was started for the question, and takes the turn.
    let pid = scene.pid();
    let first = scene.ask("[[deltas=1]]");
    assert_eq!(first["type"], "message_end", "{label}: {first:#}");
    assert_eq!(scene.pid(), pid, "{label}: another process");
    let of_session = json!({"type": "models", "session": "main"}).to_string();
    let again = scene.daemon.ask(&of_session).remove(0);
    let names = |line: &Value| -> Vec<Value> {
        let rows = line["models"].as_array().expect("a list").iter();
        rows.map(|row| row["model"].clone()).collect()
    };
    assert_eq!(names(&again), names(&listed), "{label}: {again:#}");
    // Of kind `jsonl` each worker says itself whether it lists any.
    let commands = json!({"type": "commands", "session": "main"}).to_string();
    let commands = scene.daemon.ask(&commands).remove(0);
    if scene.kind.describe(&[]).lists_commands && scene.kind.name() != "jsonl" {
        assert!(commands["commands"].is_array(), "{label}: {commands:#}");
    } else {
        assert_eq!(commands["code"], "unsupported", "{label}: {commands:#}");
    }
    scene.was_understood(driven);
}
