//! OpenClaw, a process for each turn: what agentd adds to it.
//!
//! Its turns take seconds of both cores, and nothing of it is warm between them.

use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::{Pair, RUNS, words};
use crate::mock_model::MockModel;
use crate::place::{AGENTCTL, Place, ms};
use crate::report::{Figure, Limit};

pub(super) const NAME: &str = "openclaw";
pub(super) const PROGRAM: &str = "target/ci/openclaw/bin/openclaw";

/// `agentctl send` beside its own command, run by run.
pub(super) fn of(program: &Path, repetitions: usize) -> Figure {
    let model = MockModel::start();
    let place = Place::new();
    let program = program.to_str().unwrap();
    let settings = place.path("openclaw.json");
    std::fs::write(&settings, settings_of(&place, &model)).unwrap();
    let state = place.path("openclaw");
    let env = [
        ("OPENCLAW_CONFIG_PATH", settings.to_str().unwrap()),
        ("OPENCLAW_STATE_DIR", state.to_str().unwrap()),
    ];
    let turn = |session: &str, prompt: &str| {
        let turn = format!("agent --local --json --session-id {session} --message {prompt}");
        words(program, &turn)
    };
    let through = turn("{session}", "{prompt}");
    let through: Vec<&str> = through.iter().map(String::as_str).collect();
    let table = super::table("exec", &through, "output = \"openclaw\"", &env);
    place.configure(&format!("default_agent = \"it\"\n{table}"));
    let daemon = place.daemon();
    let mut pair = Pair::default();
    // The first ones lay out its state.
    for run in 0..=repetitions * RUNS {
        let argv = turn("own", "hello");
        let argv: Vec<&str> = argv.iter().skip(1).map(String::as_str).collect();
        let mut own = place.command(program, &argv);
        let begun = Instant::now();
        let status = own.envs(env).status().unwrap();
        let control = ms(begun.elapsed());
        assert!(status.success(), "{own:?}: {status}");
        let words = ["send", "--session", "bench", "hello"];
        let ours = ms(place.run(AGENTCTL, &words, 0));
        if run > 0 {
            pair.control.push(control);
            pair.ours.push(ours);
        }
    }
    daemon.stop();
    Figure {
        name: "agent-once",
        unit: "ms",
        control: pair.control,
        ours: pair.ours,
        // What agentd adds is far less than one run of it differs from the next.
        limit: Limit::Ratio(1.1),
        aside: format!("{NAME}: `agentctl send`, a process for each turn; control: its own"),
    }
}

fn settings_of(place: &Place, model: &MockModel) -> String {
    let one =
        json!({"id": "mock-1", "name": "mock-1", "contextWindow": 200_000, "maxTokens": 4096});
    let mock = json!({
        "baseUrl": model.url, "apiKey": "none", "api": "openai-completions", "models": [one],
    });
    let defaults = json!({
        "model": {"primary": "mock/mock-1"}, "workspace": place.path("workspace"),
    });
    json!({"models": {"providers": {"mock": mock}}, "agents": {"defaults": defaults}}).to_string()
}
