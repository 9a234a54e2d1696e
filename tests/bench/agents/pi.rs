//! pi 1.5.2 by `--mode rpc`.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Measured, Own, Pipe, words};
use crate::mock_model::MockModel;
use crate::place::Place;

pub(crate) const PI: Measured = Measured {
    name: "pi",
    prepare,
    program: "target/ci/pi/pi-1.5.2/bin/pi",
    rest: Duration::ZERO,
};

fn prepare(program: &Path, place: &Place, model: &MockModel) -> (Own, String) {
    let dir = place.path("pi");
    std::fs::create_dir(&dir).unwrap();
    let models = json!({"providers": {"mock": {
        "baseUrl": model.url, "api": "openai-completions", "apiKey": "none",
        "models": [{"id": "mock-1"}],
    }}});
    std::fs::write(dir.join("models.json"), models.to_string()).unwrap();
    let program = program.to_str().unwrap();
    // Its bundle lacks what it loads extensions with; the older one has it installed.
    let modules = format!(
        "{}/target/ci/pi/pi-0.73.1/node_modules",
        env!("CARGO_MANIFEST_DIR")
    );
    let dir = dir.to_str().unwrap();
    let env = [
        ("PI_CODING_AGENT_DIR", dir),
        ("PI_OFFLINE", "1"),
        ("NODE_PATH", &modules),
    ];
    let model = "--provider mock --model mock-1";
    let own = Own {
        argv: words(program, &format!("{model} --mode rpc")),
        exec_form: Some(words(program, &format!("{model} -p"))),
        env: super::owned(&env),
        open,
        prompt: |_, number, text| {
            json!({"type": "prompt", "id": format!("p{number}"), "message": text}).to_string()
        },
        abort: |_, _| json!({"type": "abort", "id": "a"}).to_string(),
        says: |line| line["assistantMessageEvent"]["type"] == "text_delta",
        ends: |line| line["type"] == "agent_settled",
    };
    let table = super::table(
        "pi",
        &[program, "--mode", "rpc"],
        "provider = \"mock\"\nmodel = \"mock-1\"",
        &env,
    );
    (own, table)
}

fn open(pipe: &mut Pipe) -> String {
    pipe.send(r#"{"type":"get_state","id":"s"}"#);
    pipe.until(|line: &Value| line["id"] == "s");
    String::new()
}
