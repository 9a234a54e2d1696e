//! An editor that lies: each line has its answer, and the next one is served.

use serde_json::{Value, json};

use super::editor::Editor;
use crate::support::Daemon;

/// Values of every type, one of which is wrong wherever it stands.
fn wrong() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(""),
        json!("x".repeat(300)),
        json!([]),
        json!([[]]),
        json!({}),
        json!({"a": {}}),
    ]
}

#[test]
fn acp_wrong_types_in_every_field_are_answered() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    let cwd = daemon.path("home");
    let requests = [
        (
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": {}}),
        ),
        (
            "session/new",
            json!({"cwd": "/no/such/directory", "mcpServers": [], "_meta": {"agentd": {"agent": "nobody"}}}),
        ),
        (
            "session/load",
            json!({"sessionId": "none", "cwd": cwd, "mcpServers": []}),
        ),
        (
            "session/resume",
            json!({"sessionId": "none", "cwd": cwd, "mcpServers": []}),
        ),
        ("session/list", json!({"cwd": cwd, "cursor": null})),
        (
            "session/prompt",
            json!({"sessionId": "none", "prompt": [{"type": "text", "text": "x"}]}),
        ),
        (
            "session/set_config_option",
            json!({"sessionId": session, "configId": "model", "value": "none"}),
        ),
        (
            "session/set_model",
            json!({"sessionId": session, "modelId": "none"}),
        ),
        (
            "session/set_mode",
            json!({"sessionId": session, "modeId": "none"}),
        ),
        ("session/close", json!({"sessionId": "none"})),
        ("session/delete", json!({"sessionId": "none"})),
        ("authenticate", json!({"methodId": "none"})),
    ];
    let mut asked = Vec::new();
    for (method, params) in &requests {
        for value in wrong() {
            asked.push(editor.request(method, &value));
            for field in params.as_object().unwrap().keys() {
                let mut changed = params.clone();
                changed[field] = value.clone();
                asked.push(editor.request(method, &changed));
                changed.as_object_mut().unwrap().remove(field);
                asked.push(editor.request(method, &changed));
            }
        }
    }
    for block in wrong() {
        let kinds = "text image audio resource resource_link video";
        for kind in kinds.split(' ') {
            let block = json!([{"type": kind, "text": block, "data": block, "mimeType": block, "uri": block, "resource": block}]);
            let id = editor.request(
                "session/prompt",
                &json!({"sessionId": session, "prompt": block}),
            );
            asked.push(id);
        }
    }
    for id in asked {
        let answer = editor.answer(id);
        assert!(
            answer["error"].is_object() != answer["result"].is_object(),
            "{answer:#}"
        );
    }
    serves(&mut editor, &session);
}

#[test]
fn acp_lines_that_are_nothing_are_answered() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    for line in [
        &b"nonsense"[..],
        b"{",
        b"[]",
        b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}]",
        b"\"text\"",
        b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"}",
        b"{\"id\":null}",
        b"\xff\xfe",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"x\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\ud800\"}",
    ] {
        editor.write(line);
        editor.write(b"\n");
        let answer = editor.until("an error", |line| line["error"].is_object());
        assert!(
            [-32700, -32600]
                .map(|code| json!(code))
                .contains(&answer["error"]["code"]),
            "{answer:#}"
        );
    }
    editor.write(b"\n  \n\r\n");
    // Blocks of a line may come as slowly as they like.
    let id =
        json!({"jsonrpc": "2.0", "id": "slow", "method": "session/list", "params": {}}).to_string();
    for byte in id.bytes() {
        editor.write(&[byte]);
    }
    editor.write(b"\r\n");
    editor.until("the answer to `slow`", |line| {
        line["id"] == "slow" && line["result"].is_object()
    });
    serves(&mut editor, &session);
}

#[test]
fn acp_prompt_too_large_is_refused() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    let long = "x".repeat(17 * 1024 * 1024);
    let prompt = editor.prompt(&session, &long);
    assert_eq!(editor.answer(prompt)["error"]["code"], -32602);
    editor.write("y".repeat(34 * 1024 * 1024).as_bytes());
    editor.write(b"\n");
    editor.until("an error", |line| line["error"]["code"] == -32600);
    serves(&mut editor, &session);
}

#[track_caller]
fn serves(editor: &mut Editor, session: &str) {
    let prompt = editor.prompt(session, "still there");
    let answer = editor.answer(prompt);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer:#}");
    assert!(
        editor
            .text(session, "agent_message_chunk")
            .ends_with("still there")
    );
}
