//! Agents by the Agent Client Protocol: Gemini CLI, opencode, Hermes, and Claude Code by its adapter.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Measured, Own, Pipe, words};
use crate::mock_model::MockModel;
use crate::place::Place;

/// What works on after its turns is done with it by then: opencode for up to a quarter of a second.
const AFTER_TURN: Duration = Duration::from_millis(300);

pub(crate) const GEMINI: Measured = Measured {
    name: "gemini",
    prepare: gemini,
    program: "target/ci/acp/gemini/bin/gemini",
    rest: Duration::ZERO,
};

pub(crate) const OPENCODE: Measured = Measured {
    name: "opencode",
    prepare: opencode,
    program: "target/ci/acp/opencode/bin/opencode",
    rest: AFTER_TURN,
};

pub(crate) const HERMES: Measured = Measured {
    name: "hermes",
    prepare: hermes,
    program: "target/ci/acp/hermes/bin/hermes",
    rest: Duration::ZERO,
};

pub(crate) const CLAUDE: Measured = Measured {
    name: "claude-agent-acp",
    prepare: claude,
    program: "target/ci/acp/claude-agent-acp/bin/claude-agent-acp",
    rest: AFTER_TURN,
};

/// Writes a file with the agent's settings below a home of its own, and returns the home.
fn home(place: &Place, file: &str, settings: &str) -> String {
    let home = place.path("agent");
    let file = home.join(file);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, settings).unwrap();
    home.to_str().unwrap().to_owned()
}

fn gemini(program: &Path, place: &Place, model: &MockModel) -> (Own, String) {
    let settings = json!({
        "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": 1},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    });
    let home = home(place, ".gemini/settings.json", &settings.to_string());
    let cache = program.ancestors().nth(3).unwrap().join("cache");
    let env = [
        ("HOME", home.as_str()),
        ("GEMINI_API_KEY", "none"),
        ("GOOGLE_GEMINI_BASE_URL", model.base.as_str()),
        ("GEMINI_CLI_NO_RELAUNCH", "true"),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
        ("NODE_COMPILE_CACHE", cache.to_str().unwrap()),
    ];
    let (program, model) = (program.to_str().unwrap(), "--model gemini-2.5-flash");
    let exec_form = words(program, &format!("{model} -p"));
    let own = own(
        words(program, &format!("--acp {model}")),
        Some(exec_form),
        &env,
    );
    let keys = "model = \"gemini-2.5-flash\"";
    (own, super::table("acp", &[program, "--acp"], keys, &env))
}

fn opencode(program: &Path, place: &Place, model: &MockModel) -> (Own, String) {
    let mock = json!({
        "npm": "@ai-sdk/openai-compatible",
        "name": "mock",
        "options": {"baseURL": model.url, "apiKey": "none"},
        "models": {"mock-1": {"name": "mock-1"}},
    });
    let settings = json!({
        "autoupdate": false,
        "share": "disabled",
        "enabled_providers": ["mock"],
        "model": "mock/mock-1",
        "small_model": "mock/mock-1",
        "provider": {"mock": mock},
    });
    let file = ".config/opencode/opencode.json";
    let home = home(place, file, &settings.to_string());
    let env = [
        ("HOME", home.as_str()),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
    ];
    let program = program.to_str().unwrap();
    let own = own(words(program, "acp"), Some(words(program, "run --")), &env);
    let keys = "provider = \"mock\"\nmodel = \"mock-1\"";
    (own, super::table("acp", &[program, "acp"], keys, &env))
}

fn hermes(program: &Path, place: &Place, model: &MockModel) -> (Own, String) {
    let settings = format!(
        "model:\n  default: mock-1\n  provider: custom\n  base_url: {}\n  api_key: none\n",
        model.url
    );
    let home = home(place, "config.yaml", &settings);
    let env = [("HOME", home.as_str()), ("HERMES_HOME", home.as_str())];
    let program = program.to_str().unwrap();
    let own = own(words(program, "acp"), Some(words(program, "-z")), &env);
    (own, super::table("acp", &[program, "acp"], "", &env))
}

/// It has no exec form.
fn claude(program: &Path, place: &Place, model: &MockModel) -> (Own, String) {
    let home = home(place, ".claude/settings.json", "{}");
    let env = [
        ("HOME", home.as_str()),
        ("ANTHROPIC_BASE_URL", model.base.as_str()),
        ("ANTHROPIC_API_KEY", "none"),
        ("CLAUDE_CODE_MAX_RETRIES", "0"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ];
    let program = program.to_str().unwrap();
    let own = own(words(program, ""), None, &env);
    (own, super::table("acp", &[program], "", &env))
}

pub(super) fn own(argv: Vec<String>, exec_form: Option<Vec<String>>, env: &[(&str, &str)]) -> Own {
    Own {
        argv,
        exec_form,
        env: super::owned(env),
        open,
        prompt: |session, number, text| {
            let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
            json!({"jsonrpc": "2.0", "id": number + 10, "method": "session/prompt", "params": params})
                .to_string()
        },
        abort: |session, _| {
            json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
                .to_string()
        },
        says: |line| line["params"]["update"]["sessionUpdate"] == "agent_message_chunk",
        ends: |line| !line["result"]["stopReason"].is_null(),
    }
}

pub(super) fn open(pipe: &mut Pipe) -> String {
    let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    pipe.send(&hello.to_string());
    pipe.until(|line: &Value| line["id"] == 1);
    let params = json!({"cwd": std::env::temp_dir(), "mcpServers": []});
    let new = json!({"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": params});
    pipe.send(&new.to_string());
    let opened = pipe.until(|line: &Value| line["id"] == 2);
    opened["result"]["sessionId"].as_str().unwrap().to_owned()
}
