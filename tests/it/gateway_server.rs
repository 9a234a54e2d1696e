//! `agentctl serve gateway` from a client's side, with a real daemon and real agents behind it.

use serde_json::{Value, json};

use crate::acp_server::editor::Editor;
use crate::mock_model::MockModel;
use crate::support::{Daemon, wait_for};
use crate::timmy;

/// A client that was greeted.
fn client(daemon: &Daemon, agent: &str) -> Editor {
    let mut client = Editor::of(&daemon.place, &["gateway", "--agent", agent]);
    event(&mut client, "gateway.ready");
    client
}

#[track_caller]
fn ask(client: &mut Editor, method: &str, params: Value) -> Value {
    let answer = client.ask(method, &params);
    assert!(
        answer.get("error").is_none(),
        "{method} {params}: {answer:#}"
    );
    answer["result"].clone()
}

#[track_caller]
fn create(client: &mut Editor) -> String {
    let made = ask(client, "session.create", json!({"cols": 100}));
    made["session_id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn submit(client: &mut Editor, session: &str, text: &str) -> Value {
    let params = json!({"session_id": session, "text": text});
    ask(client, "prompt.submit", params)
}

/// The payload of the next event of a type.
#[track_caller]
fn event(client: &mut Editor, kind: &str) -> Value {
    let said = client.until(kind, |line| line["params"]["type"] == kind);
    said["params"]["payload"].clone()
}

/// A session of a working day: talk, a tool, a prompt too early, an end of a turn, a look from another
/// process.
#[test]
fn gateway_serves_a_day_of_the_tui() {
    let daemon = Daemon::start();
    let mut client = client(&daemon, "chaos");
    let session = create(&mut client);
    assert_eq!(
        submit(&mut client, &session, "chaos:say one;tool ro")["status"],
        "streaming"
    );
    event(&mut client, "message.start");
    assert_eq!(event(&mut client, "message.delta")["text"], "one");
    event(&mut client, "tool.start");
    event(&mut client, "tool.complete");
    let complete = event(&mut client, "message.complete");
    assert_eq!(
        (&complete["text"], &complete["status"]),
        (&json!("one"), &json!("complete"))
    );
    // What is said while a turn runs is the next one, also when that one is interrupted.
    submit(&mut client, &session, "chaos:say half;sleep-ms 600000");
    event(&mut client, "message.delta");
    assert_eq!(
        submit(&mut client, &session, "chaos:say then")["status"],
        "queued"
    );
    ask(
        &mut client,
        "session.interrupt",
        json!({"session_id": session}),
    );
    let complete = event(&mut client, "message.complete");
    assert_eq!(
        (&complete["text"], &complete["status"]),
        (&json!("half"), &json!("interrupted"))
    );
    assert_eq!(event(&mut client, "message.complete")["text"], "then");
    // No session twice; the names lead back.
    let listed = ask(&mut client, "session.list", json!({"limit": 200}));
    assert_eq!(
        listed["sessions"].as_array().unwrap().len(),
        1,
        "{listed:#}"
    );
    assert_eq!(client.leave().0, Some(0));
    let mut second = self::client(&daemon, "chaos");
    let resumed = ask(
        &mut second,
        "session.resume",
        json!({"session_id": session, "cols": 80}),
    );
    assert_eq!(
        resumed["messages"].as_array().unwrap().last().unwrap()["text"],
        "then"
    );
    let usage = ask(&mut second, "session.usage", json!({"session_id": session}));
    assert_eq!(usage["calls"], 3, "{usage}");
}

/// What waits for somebody is seen, and answered from another process.
#[test]
fn gateway_question_is_asked_of_whoever_looks() {
    let daemon = Daemon::start();
    let mut client = client(&daemon, "chaos");
    let session = create(&mut client);
    submit(&mut client, &session, "chaos:tool ro");
    event(&mut client, "message.complete");
    // It asks leave, and the switcher shows that somebody is needed.
    submit(&mut client, &session, "chaos:ask approval session");
    event(&mut client, "approval.request");
    let row = |client: &mut Editor| {
        let current = json!({"current_session_id": session});
        ask(client, "session.active_list", current)["sessions"][0].clone()
    };
    let waits = row(&mut client);
    assert_eq!(
        (&waits["id"], &waits["status"], &waits["current"]),
        (&json!(session), &json!("waiting"), &json!(true))
    );
    // Another process finds the question, and its answer counts.
    let mut second = self::client(&daemon, "chaos");
    let shown = ask(
        &mut second,
        "session.activate",
        json!({"session_id": session}),
    );
    assert_eq!(
        shown["messages"][1],
        json!({"role": "tool", "name": "look", "context": "look"})
    );
    assert_eq!(shown["inflight"]["user"], "chaos:ask approval session");
    let asked = event(&mut second, "approval.request");
    assert_eq!(asked["choices"], json!(["once", "session", "deny"]));
    let choice = json!({"session_id": session, "choice": "session"});
    assert_eq!(
        ask(&mut second, "approval.respond", choice.clone())["resolved"],
        1
    );
    event(&mut second, "message.complete");
    event(&mut client, "message.complete");
    assert_eq!(ask(&mut client, "approval.respond", choice)["resolved"], 0);
}

/// The built-in agent, with a model of its own.
#[test]
fn gateway_model_of_a_session_is_set() {
    let model = MockModel::start();
    let daemon = timmy::daemon(&model, "");
    let mut client = client(&daemon, "timmy");
    let session = create(&mut client);
    submit(&mut client, &session, "[[bash=echo hi]]");
    let called = event(&mut client, "tool.complete");
    assert!(
        called["result"]["output"].as_str().unwrap().contains("hi"),
        "{called}"
    );
    let complete = event(&mut client, "message.complete");
    assert_eq!(complete["usage"]["model"], "mock/m1", "{complete}");
    let set = json!({"session_id": session, "key": "model", "value": "mock/m2", "confirm_expensive_model": false});
    assert_eq!(ask(&mut client, "config.set", set)["value"], "mock/m2");
    submit(&mut client, &session, "hello");
    let complete = event(&mut client, "message.complete");
    assert_eq!(
        (&complete["text"], &complete["usage"]["model"]),
        (&json!("echo: hello"), &json!("mock/m2"))
    );
    let branch = ask(
        &mut client,
        "session.branch",
        json!({"session_id": session, "name": "other"}),
    );
    assert_eq!(branch["title"], "other");
    let copy = branch["session_id"].as_str().unwrap().to_owned();
    submit(&mut client, &copy, "[[recall]]");
    let complete = event(&mut client, "message.complete");
    assert!(
        complete["text"].as_str().unwrap().contains("hello"),
        "{complete}"
    );
}

#[test]
fn gateway_daemon_killed_under_a_turn_is_told() {
    let daemon = Daemon::start();
    let mut client = client(&daemon, "chaos");
    let session = create(&mut client);
    submit(&mut client, &session, "chaos:say half;sleep-ms 600000");
    event(&mut client, "message.delta");
    let daemon = daemon.kill().start();
    let complete = event(&mut client, "message.complete");
    assert_eq!(complete["status"], "error");
    assert!(
        complete["text"]
            .as_str()
            .unwrap()
            .starts_with("half\n\nerror: "),
        "{complete}"
    );
    submit(&mut client, &session, "chaos:say on");
    assert_eq!(event(&mut client, "message.complete")["text"], "on");
    drop(daemon);
}

/// A turn goes on without the client, and what was never begun is not kept.
#[test]
fn gateway_client_that_leaves_ends_no_turn() {
    let daemon = Daemon::start();
    let mut first = client(&daemon, "chaos");
    let empty = create(&mut first);
    let session = create(&mut first);
    let gate = daemon.path("gate");
    submit(
        &mut first,
        &session,
        &format!("chaos:say on;wait-file {}", gate.display()),
    );
    event(&mut first, "message.delta");
    submit(&mut first, &session, "chaos:say after");
    crate::support::kill(first.child.0.id(), nix::sys::signal::Signal::SIGTERM);
    let status = wait_for("it leaves, with its input open", || {
        first.child.0.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(143));
    let rows = daemon.ask(r#"{"type":"session.list"}"#).remove(0);
    let names: Vec<_> = rows["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["session"])
        .collect();
    assert_eq!(names, [&json!(session)], "not {empty}");
    let mut next = client(&daemon, "chaos");
    let shown = ask(&mut next, "session.resume", json!({"session_id": session}));
    assert_eq!(
        (&shown["inflight"]["assistant"], &shown["queued"]["user"]),
        (&json!("on"), &json!("chaos:say after"))
    );
    std::fs::write(&gate, "").unwrap();
    assert_eq!(event(&mut next, "message.complete")["text"], "on");
    assert_eq!(event(&mut next, "message.complete")["text"], "after");
}

/// A client that lies: each request has its answer, and the next one is served.
#[test]
fn gateway_wrong_types_in_every_field_are_answered() {
    let daemon = Daemon::start();
    let mut client = client(&daemon, "chaos");
    let session = create(&mut client);
    let fields = [
        ("session.create", "cols"),
        ("session.create", "cwd"),
        ("session.create", "title"),
        ("session.create", "messages"),
        ("session.list", "limit"),
        ("session.active_list", "current_session_id"),
        ("session.activate", "session_id"),
        ("session.resume", "lazy"),
        ("session.title", "title"),
        ("session.steer", "text"),
        ("session.branch", "name"),
        ("session.compress", "focus_topic"),
        ("session.delete", "session_id"),
        ("prompt.submit", "text"),
        ("prompt.submit", "truncate_before_user_ordinal"),
        ("prompt.background", "text"),
        ("approval.respond", "choice"),
        ("approval.respond", "all"),
        ("clarify.respond", "request_id"),
        ("sudo.respond", "password"),
        ("secret.respond", "value"),
        ("config.set", "key"),
        ("config.set", "value"),
        ("config.get", "key"),
        ("command.dispatch", "name"),
        ("slash.exec", "command"),
        ("complete.slash", "text"),
        ("terminal.resize", "cols"),
        ("image.attach", "path"),
        ("input.detect_drop", "text"),
        ("subagent.interrupt", "subagent_id"),
        ("reload.mcp", "session_id"),
        ("cli.exec", "argv"),
        ("model.options", "session_id"),
    ];
    for (method, field) in fields {
        for value in [json!([[]]), json!({"a": {}})] {
            let mut params = json!({"session_id": session, "request_id": "q", "key": "model"});
            params[field] = value.clone();
            let answer = client.ask(method, &params);
            assert_eq!(
                answer["error"]["code"], -32602,
                "{method} {params}: {answer}"
            );
        }
    }
    for params in [json!([1]), json!("x"), json!(7)] {
        let answer = client.ask("prompt.submit", &params);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    for (line, code) in [
        (&b"\xff\n"[..], -32700),
        (b"nonsense\n", -32700),
        (b"[]\n", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"z\",\"method\":7}\n", -32600),
    ] {
        client.write(line);
        client.until("a refusal", |said| said["error"]["code"] == code);
    }
    submit(&mut client, &session, "chaos:say on");
    assert_eq!(event(&mut client, "message.complete")["text"], "on");
    assert_eq!(client.leave().0, Some(0));
}
