//! Prompts: told, queued, cancelled, asked about.

use serde_json::{Value, json};

use super::editor::Editor;
use crate::support::Daemon;

/// An editor whose sessions have the agent that does what it is told.
fn with_chaos(daemon: &Daemon) -> Editor {
    Editor::start(&daemon.place, &["--agent", "chaos"])
}

#[test]
fn acp_editor_has_a_turn_with_a_tool() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    let prompt = editor.prompt(&session, "say [[tool ls]] it");
    let answer = editor.answer(prompt);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer:#}");
    assert_eq!(editor.text(&session, "agent_message_chunk"), "say it");
    let updates: Vec<&Value> = editor
        .heard
        .iter()
        .map(|line| &line["params"]["update"])
        .collect();
    let call = updates
        .iter()
        .find(|update| update["sessionUpdate"] == "tool_call")
        .unwrap();
    let end = updates
        .iter()
        .find(|update| update["status"] == "completed")
        .unwrap();
    assert_eq!(call["toolCallId"], end["toolCallId"]);
    assert_eq!(end["content"][0]["content"]["text"], "echo");
    // Its first prompt is what it is called.
    let title = editor.update("session_info_update");
    assert!(
        title["title"].as_str().unwrap().starts_with("say"),
        "{title}"
    );
}

#[test]
fn acp_answers_of_a_session_keep_order() {
    let daemon = Daemon::start();
    let mut editor = with_chaos(&daemon);
    let (one, other) = (editor.open(&daemon.place), editor.open(&daemon.place));
    let gate = daemon.path("gate");
    let first = editor.prompt(
        &one,
        &format!("chaos:say first;wait-file {}", gate.display()),
    );
    let second = editor.prompt(&one, "second");
    // Another session doesn't wait for it.
    let beside = editor.prompt(&other, "beside");
    assert_eq!(editor.answer(beside)["result"]["stopReason"], "end_turn");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(editor.answer(second)["result"]["stopReason"], "end_turn");
    let answers = editor
        .heard
        .iter()
        .filter(|line| line["result"]["stopReason"].is_string());
    let order: Vec<u64> = answers.map(|line| line["id"].as_u64().unwrap()).collect();
    assert_eq!(order, [beside, first, second]);
    assert_eq!(editor.text(&one, "agent_message_chunk"), "firstsecond");
}

#[test]
fn acp_cancel_ends_what_runs_and_waits() {
    let daemon = Daemon::start();
    let mut editor = with_chaos(&daemon);
    let session = editor.open(&daemon.place);
    let runs = editor.prompt(&session, "chaos:say half;sleep-ms 600000");
    editor.update("agent_message_chunk");
    let waits = editor.prompt(&session, "chaos:say never");
    editor.notify("session/cancel", &json!({"sessionId": session}));
    for prompt in [runs, waits] {
        let answer = editor.answer(prompt);
        assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer:#}");
    }
    let jobs = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
    let states: Vec<&str> = jobs["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["cancelled", "cancelled"]);
    let next = editor.prompt(&session, "next");
    assert_eq!(editor.answer(next)["result"]["stopReason"], "end_turn");
}

#[test]
fn acp_editor_answers_what_agents_ask() {
    let daemon = Daemon::start();
    let mut editor = with_chaos(&daemon);
    let session = editor.open(&daemon.place);
    for (kind, option, said) in [
        ("approval", "once", "approve=true"),
        ("approval", "reject", "approve=false"),
        (
            "approval session",
            "session",
            r#"approve=truescope="session""#,
        ),
        ("choice", "1", r#"choice="right""#),
        ("approval", "nonsense", "approve=false"),
    ] {
        let before = editor.text(&session, "agent_message_chunk");
        let prompt = editor.prompt(&session, &format!("chaos:ask {kind}"));
        let asked = editor.until("a question", |line| {
            line["method"] == "session/request_permission"
        });
        let call = &asked["params"]["toolCall"]["toolCallId"];
        let announced = |line: &Value| line["params"]["update"]["toolCallId"] == *call;
        assert!(editor.heard.iter().any(announced), "{asked:#}");
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        editor.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}));
        assert_eq!(editor.answer(prompt)["result"]["stopReason"], "end_turn");
        let told = editor.text(&session, "agent_message_chunk");
        assert_eq!(told.strip_prefix(&before), Some(said), "{kind} {option}");
    }
    // Somebody else is faster.
    let prompt = editor.prompt(&session, "chaos:ask approval");
    let asked = editor.until("a question", |line| {
        line["method"] == "session/request_permission"
    });
    let answer = json!({"type": "answer", "question_id": asked["id"], "approve": true});
    daemon.ask(&answer.to_string());
    let withdrawn = editor.until("its end", |line| line["method"] == "$/cancel_request");
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(editor.answer(prompt)["result"]["stopReason"], "end_turn");
}

#[test]
fn acp_failed_prompt_says_why() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    for (code, number) in [("rate-limit", -32603), ("agent-auth", -32000)] {
        let prompt = editor.prompt(&session, &format!("x [[error={code}]]"));
        let error = &editor.answer(prompt)["error"];
        assert_eq!(
            (&error["code"], &error["data"]["code"]),
            (&json!(number), &json!(code)),
            "{error:#}"
        );
    }
}

#[test]
fn acp_prompt_brings_pictures_and_context() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let prompt = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "mimeType": "image/png", "data": pixel},
        {"type": "resource_link", "uri": "file:///w/a.rs", "name": "a.rs"},
        {"type": "resource", "resource": {"uri": "file:///w/b.rs", "text": "inside", "mimeType": "text/x-rust"}},
    ]);
    let id = editor.request(
        "session/prompt",
        &json!({"sessionId": session, "prompt": prompt}),
    );
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let said = editor.text(&session, "agent_message_chunk");
    for part in [
        "look file:///w/a.rs file:///w/b.rs",
        "inside",
        "[attachment: image/png, 70 bytes]",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let lie = json!([{"type": "text", "text": "x"}, {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}]);
    let refused = editor.ask(
        "session/prompt",
        &json!({"sessionId": session, "prompt": lie}),
    );
    assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
}
