//! OpenClaw, by its command for one turn: a process for each, which starts another in a session of
//! the system's own.
//!
//! `packaging/ci/install-openclaw.sh` puts it where these tests look.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::{Asks, Can, Driven, Scene, Turns, is_wanted};
use crate::mock_model::MockModel;
use crate::support::{Place, skipped};

fn installed() -> Vec<Driven> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/openclaw");
    let dir = std::env::var_os("AGENTD_TEST_OPENCLAW_DIR").map_or_else(default, PathBuf::from);
    let program = dir.join("bin/openclaw");
    if !program.is_file() {
        if is_wanted("openclaw") {
            let program = program.display();
            skipped(&format!("{program} (packaging/ci/install-openclaw.sh)"));
        }
        return Vec::new();
    }
    vec![Driven {
        label: program.display().to_string(),
        program,
        configure,
        can: Can {
            turns: Turns::InOneEach,
            // It prints what it did when it did all of it.
            tool: None,
            asks: Asks::Never,
            denied: "",
            errors: &[(401, "agent-auth")],
            overflow: Some("context-overflow"),
            keeps_young: true,
            told: &[],
            stops: &[],
            attached: &[],
            hears_of_tools: "tides_low_water",
            models: [(None, "mock-1"), (None, "mock-2")],
            // Its state belongs to one process at a time; with its gateway both run.
            switches: false,
            mode: None,
            beside: Some("agent-failed"),
            // Up to ten times, each after a longer while.
            tries_again: &[429],
            // For a minute it doesn't try a key that was refused.
            refusal_lasts: Some("agent-auth"),
            // Its start takes seven seconds of both cores, and minutes beside other work.
            patience: Duration::from_secs(300),
        },
    }]
}

fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
    let one = |id: &str| json!({"id": id, "name": id, "contextWindow": 200_000, "maxTokens": 4096});
    let mock = json!({
        "baseUrl": model.url, "apiKey": "none", "api": "openai-completions",
        "models": [one("mock-1"), one("mock-2")],
    });
    let workspace = place.path("workspace");
    let settings = json!({
        "models": {"providers": {"mock": mock}},
        "agents": {"defaults": {"model": {"primary": "mock/mock-1"}, "workspace": workspace}},
    });
    let file = place.path("openclaw.json");
    std::fs::write(&file, settings.to_string()).unwrap();
    let (program, state) = (&driven.program, place.path("openclaw"));
    // As it is found by itself, but for `--local`: no gateway of its own runs here.
    format!(
        "[agents.it]\nkind = \"exec\"\noutput = \"openclaw\"\nmodel = \"mock-1\"\ncommand = [{program:?}, \
         \"agent\", \"--local\", \"--json\", \"--session-id\", \"{{session}}\", \"--model={{model}}\", \
         \"--message\", \"{{prompt}}\"]\nenv = {{ OPENCLAW_STATE_DIR = {state:?}, \
         OPENCLAW_CONFIG_PATH = {file:?} }}\n"
    )
}

suite!();

#[test]
fn answer_has_its_model_provider_and_tokens() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let last = scene.ask("hello");
        assert_eq!(last["text"], "echo: hello", "{last:#}");
        assert_eq!(
            (&last["provider"], &last["model"]),
            (&json!("mock"), &json!("mock-1")),
            "{last:#}"
        );
        let usage = &last["usage"];
        assert_eq!(
            (
                &usage["input_tokens"],
                &usage["cache_read_tokens"],
                &usage["output_tokens"],
            ),
            (&json!(12), &json!(5), &json!(3)),
            "{last:#}"
        );
    }
}
