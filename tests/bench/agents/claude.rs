//! Claude Code by stream-json.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Measured, Own, Pipe, words};
use crate::mock_model::MockModel;
use crate::place::Place;

pub(crate) const CLAUDE: Measured = Measured {
    name: "claude",
    prepare,
    program: "target/ci/claude/claude-2.1.329/bin/claude",
    rest: Duration::ZERO,
};

fn prepare(program: &Path, place: &Place, model: &MockModel) -> (Own, String) {
    let dir = place.path("claude");
    std::fs::create_dir(&dir).unwrap();
    let (program, dir) = (program.to_str().unwrap(), dir.to_str().unwrap());
    let env = [
        ("ANTHROPIC_BASE_URL", model.base.as_str()),
        ("ANTHROPIC_API_KEY", "none"),
        ("CLAUDE_CONFIG_DIR", dir),
        ("HOME", dir),
        ("CLAUDE_CODE_MAX_RETRIES", "0"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
        ("CLAUDE_CODE_DISABLE_CRON", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ];
    let both_ways = "-p --verbose --include-partial-messages --input-format stream-json \
                     --output-format stream-json --permission-prompt-tool stdio --model mock-1";
    let own = Own {
        argv: words(program, both_ways),
        exec_form: Some(words(program, "-p --model mock-1")),
        env: super::owned(&env),
        open,
        prompt: |_, _, text| {
            json!({"type": "user", "message": {"role": "user", "content": text}}).to_string()
        },
        abort: |_, _| {
            json!({"type": "control_request", "request_id": "a", "request": {"subtype": "interrupt"}})
                .to_string()
        },
        says: |line| line["event"]["delta"]["type"] == "text_delta",
        ends: |line| line["type"] == "result",
    };
    (
        own,
        super::table("claude", &[program], "model = \"mock-1\"", &env),
    )
}

fn open(pipe: &mut Pipe) -> String {
    let asked =
        json!({"type": "control_request", "request_id": "i", "request": {"subtype": "initialize"}});
    pipe.send(&asked.to_string());
    pipe.until(|line: &Value| line["type"] == "control_response");
    String::new()
}
