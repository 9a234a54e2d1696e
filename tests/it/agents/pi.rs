//! pi in both of its dialects.

use serde_json::json;

use super::{Asks, Can, Driven, Scene, Turns, text};
use crate::mock_model::MockModel;
use crate::support::{DEADLINE, Place};

fn installed() -> Vec<Driven> {
    let driven = |program: std::path::PathBuf| Driven {
        label: program.display().to_string(),
        configure,
        can: Can {
            turns: Turns::InOneProcess,
            tool: Some("bash"),
            asks: Asks::Never,
            denied: "",
            errors: &[
                (401, "agent-auth"),
                (429, "rate-limit"),
                (500, "agent-failed"),
            ],
            overflow: Some("context-overflow"),
            keeps_young: true,
            told: &[],
            stops: &[("[[full]]", "max_tokens"), ("[[refuse=finish]]", "refusal")],
            attached: &["pixel.png"],
            hears_of_tools: "tides_low_water",
            models: [(Some("mock"), "mock-1"), (Some("mock"), "mock-2")],
            switches: !program.ends_with("pi-0.73.1/bin/pi"),
            mode: None,
            beside: None,
            tries_again: &[],
            refusal_lasts: None,
            patience: DEADLINE,
        },
        program,
    };
    crate::pi::installed().into_iter().map(driven).collect()
}

fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
    let dir = place.path("pi");
    std::fs::create_dir(&dir).unwrap();
    let models = json!({"providers": {"mock": {
        "baseUrl": model.url, "api": "openai-completions", "apiKey": "none",
        "models": [
            {"id": "mock-1", "input": ["text", "image"]},
            {"id": "mock-2", "input": ["text", "image"]},
        ],
    }}});
    std::fs::write(dir.join("models.json"), models.to_string()).unwrap();
    // The newer one's bundle also lacks what it resizes pictures with.
    let settings = json!({
        "retry": {"enabled": false, "provider": {"maxRetries": 0}},
        "images": {"autoResize": false},
    });
    std::fs::write(dir.join("settings.json"), settings.to_string()).unwrap();
    let program = &driven.program;
    // The newer one's bundle lacks what it loads extensions with; the older one has it installed.
    let installed = program.ancestors().nth(3).unwrap();
    let modules = installed.join("pi-0.73.1/node_modules");
    let cache = installed.join("cache");
    format!(
        "[agents.it]\nkind = \"pi\"\ncommand = [{program:?}, \"--mode\", \"rpc\"]\nprovider = \"mock\"\nmodel = \"mock-1\"\nenv = {{ PI_CODING_AGENT_DIR = {dir:?}, PI_OFFLINE = \"1\", NODE_PATH = {modules:?}, NODE_COMPILE_CACHE = {cache:?} }}\n"
    )
}

suite!();

#[test]
fn chats_in_hermes_interface() {
    installed().iter().for_each(crate::gateway_tui::chats);
}

/// Never an agent without tools for a name that it hasn't got.
pub fn refuses_bogus(scene: &Scene) {
    let line = json!({"prompt": "one", "session": "bogus", "toolsets": ["terminal", "bogus"]});
    let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
    assert_eq!(last["code"], "unsupported", "{last:#}");
    let error = last["error"].as_str().unwrap();
    assert!(
        error.contains("`bogus`") && error.contains("`file`"),
        "{error}"
    );
}

#[test]
fn only_the_tools_of_the_session_are_offered() {
    for driven in installed() {
        let (two, seed) = (["grep", "read"], ["terminal", "file"]);
        let all = ["bash", "edit", "find", "grep", "ls", "read", "write"];
        for (session, toolsets, expected) in [
            ("two", &two[..], &two[..]),
            ("none", &[], &[]),
            ("seed", &seed, &all),
        ] {
            let scene = Scene::of(&driven, "");
            let line = json!({"prompt": "one", "session": session, "toolsets": toolsets});
            let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
            assert_eq!(text(&driven, &last), "echo: one");
            let mut tools = scene.model.asked().pop().unwrap().tools;
            tools.sort();
            assert_eq!(tools, expected, "{}", driven.label);
        }
        refuses_bogus(&Scene::of(&driven, ""));
    }
}

/// The model can't think.
#[test]
fn the_thinking_level_that_counts_is_told() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let line = r#"{"type":"send","text":"one","session":"main","thinking":"max"}"#;
        let lines = scene.daemon.ask(line);
        let last = lines.last().unwrap();
        assert_eq!(text(&driven, last), "echo: one");
        assert_eq!(last["thinking"], "off", "{}: {last:#}", driven.label);
        let noted = lines
            .iter()
            .any(|line| line["type"] == "note" && line["text"].as_str().unwrap().contains("`max`"));
        assert!(noted, "{}: {lines:#?}", driven.label);
    }
}

#[test]
fn provider_missing_fails_its_own_turn_only() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        scene.ask("one");
        let line = json!({"prompt": "bad", "session": "main", "provider": "nope", "model": "x"});
        let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
        assert_eq!(last["code"], "worker-start-failed", "{last:#}");
        let said = last["error"].as_str().unwrap();
        for part in ["`provider` `nope`", "Unknown provider"] {
            assert!(said.contains(part), "{}: {said}", driven.label);
        }
        let status = scene.daemon.ask(r#"{"type":"status"}"#).remove(0);
        assert_eq!(status["rpc"]["restarts"], 0, "{status:#}");
        let next = scene.ask("two [[recall]]");
        assert!(text(&driven, &next).contains("one"), "{next:#}");
        assert_eq!(next["context"], "continued", "{next:#}");
    }
}
