//! Gemini CLI by the Agent Client Protocol.

use std::path::Path;

use serde_json::{Value, json};

use super::{Measured, Own, Pipe, words};
use crate::mock_model::MockModel;
use crate::place::Place;

pub(crate) const GEMINI: Measured = Measured {
    name: "gemini",
    prepare,
    program: "target/ci/acp/gemini/bin/gemini",
};

fn prepare(program: &Path, place: &Place, model: &MockModel) -> (Own, String) {
    let home = place.path("gemini");
    std::fs::create_dir_all(home.join(".gemini")).unwrap();
    let settings = json!({
        "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": 1},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    });
    std::fs::write(home.join(".gemini/settings.json"), settings.to_string()).unwrap();
    let cache = program.ancestors().nth(3).unwrap().join("cache");
    let env = [
        ("HOME", home.to_str().unwrap()),
        ("GEMINI_API_KEY", "none"),
        ("GOOGLE_GEMINI_BASE_URL", model.base.as_str()),
        ("GEMINI_CLI_NO_RELAUNCH", "true"),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
        ("NODE_COMPILE_CACHE", cache.to_str().unwrap()),
    ];
    let program = program.to_str().unwrap();
    let own = Own {
        argv: words(program, "--acp --model gemini-2.5-flash"),
        one_shot: words(program, "--model gemini-2.5-flash -p"),
        env: env
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
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
    };
    let table = super::table(
        "acp",
        &[program, "--acp"],
        "model = \"gemini-2.5-flash\"",
        &env,
    );
    (own, table)
}

fn open(pipe: &mut Pipe) -> String {
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
