//! What goes wrong: the daemon, the client, what it says, and agents that ask themselves.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::Client;
use crate::support::{AGENTCTL, Daemon, Place, kill, wait_for};

/// A turn that runs until somebody opens the gate, by a client that waits for it.
fn begin(place: &Place, client: &mut Client, session: &str) -> u64 {
    let gate = place.path("gate");
    let prompt = format!("chaos:say half;wait-file {};say  whole", gate.display());
    let id = client.calls(
        "ask",
        &json!({"prompt": prompt, "agent": "chaos", "session": session}),
    );
    loop {
        let told = client.next();
        let told = told["params"]["message"].as_str().unwrap();
        if !told.contains("waits") {
            return id;
        }
    }
}

fn jobs(daemon: &Daemon) -> Vec<Value> {
    daemon.ask(r#"{"type":"jobs"}"#)[0]["jobs"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn mcp_daemon_killed_amid_an_ask_is_told() {
    let daemon = Daemon::start();
    let mut client = Client::new(&daemon.place);
    let id = begin(&daemon.place, &mut client, "main");
    let daemon = daemon.kill().start();
    let answer = client.answer(id);
    // Its key finds it: it runs no second time.
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "{answer:#}");
    assert_eq!(
        result["structuredContent"]["state"], "interrupted",
        "{answer:#}"
    );
    let all = jobs(&daemon);
    assert_eq!(
        (all.len(), &all[0]["state"]),
        (1, &json!("interrupted")),
        "{all:#?}"
    );
    // And the face goes on with the daemon that came.
    std::fs::write(daemon.path("gate"), "").unwrap();
    let next = client.call("ask", &json!({"prompt": "next", "session": "next"}));
    assert_eq!(next["text"], "next");
}

#[test]
fn mcp_daemon_gone_is_told_with_the_job() {
    let daemon = Daemon::start();
    let mut client = Client::new(&daemon.place);
    let id = begin(&daemon.place, &mut client, "main");
    // What may have been accepted is run by nobody else.
    let _place = daemon.kill();
    let answer = client.answer(id);
    let structured = &answer["result"]["structuredContent"];
    assert_eq!(
        (&structured["code"], &structured["job"]),
        (&json!("outcome-unknown"), &json!("j1")),
        "{answer:#}"
    );
    assert!(
        structured["hint"].as_str().unwrap().contains("collect"),
        "{answer:#}"
    );
}

#[test]
fn mcp_client_that_vanishes_cancels_nothing() {
    let daemon = Daemon::start();
    let mut client = Client::new(&daemon.place);
    begin(&daemon.place, &mut client, "main");
    kill(client.pid(), Signal::SIGKILL);
    drop(client);
    let mut other = Client::new(&daemon.place);
    std::fs::write(daemon.path("gate"), "").unwrap();
    let done = other.call("collect", &json!({"jobs": ["j1"]}));
    assert_eq!(done["results"][0]["text"], "half whole", "{done:#}");
}

#[test]
fn mcp_two_clients_share_a_session_in_turn() {
    let daemon = Daemon::start();
    let (mut one, mut two) = (Client::new(&daemon.place), Client::new(&daemon.place));
    let first = begin(&daemon.place, &mut one, "shared");
    let second = two.calls(
        "ask",
        &json!({"prompt": "chaos:say second", "agent": "chaos", "session": "shared"}),
    );
    assert!(
        two.next()["params"]["message"]
            .as_str()
            .unwrap()
            .contains("waits")
    );
    std::fs::write(daemon.path("gate"), "").unwrap();
    let text = |answer: Value| answer["result"]["structuredContent"]["text"].clone();
    assert_eq!(text(one.answer(first)), "half whole");
    assert_eq!(text(two.answer(second)), "second");
}

#[test]
fn mcp_agents_that_ask_themselves_end() {
    let place = Place::new("");
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask", "arguments": {"prompt": "deeper", "agent": "deep"}}});
    std::fs::write(place.path("ask"), format!("{ask}\n")).unwrap();
    let script = format!(
        "{AGENTCTL} --socket {} serve mcp < {}",
        place.socket().display(),
        place.path("ask").display()
    );
    place.configure(&format!(
        "default_agent = \"deep\"\n[agents.deep]\nkind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", {script:?}]\n"
    ));
    let daemon = place.start();
    let mut client = Client::new(&daemon.place);
    let done = client.call("ask", &json!({"prompt": "deeper"}));
    let text = done["text"].as_str().unwrap();
    assert!(text.contains("levels are the limit"), "{done:#}");
    assert!(text.contains("already runs inside a job"), "{done:#}");
    let all = jobs(&daemon);
    let parents = all.iter().filter(|row| row.get("parent").is_some()).count();
    assert_eq!((all.len(), parents), (3, 2), "{all:#?}");
}

/// Every value of a message in the place of every other, one at a time.
fn bent(message: &Value) -> Vec<Value> {
    let wrong = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("\u{0}"),
        json!([]),
        json!([{}]),
        json!({}),
        json!({"a": {"b": []}}),
    ];
    let mut all = Vec::new();
    let mut paths = vec![String::new()];
    while let Some(path) = paths.pop() {
        let here = message.pointer(&path).unwrap();
        if let Value::Object(members) = here {
            let escaped = |name: &String| name.replace('~', "~0").replace('/', "~1");
            paths.extend(
                members
                    .keys()
                    .map(|name| format!("{path}/{}", escaped(name))),
            );
        }
        // Without its id nobody could wait for the answer.
        if path.is_empty() || path == "/id" {
            continue;
        }
        for value in &wrong {
            let mut one = message.clone();
            *one.pointer_mut(&path).unwrap() = value.clone();
            all.push(one);
        }
    }
    all
}

#[test]
fn mcp_wrong_types_anywhere_are_answered() {
    let daemon = Daemon::start();
    let mut client = Client::bare(&daemon.place, &["--answers"]);
    let meta = json!({"progressToken": 1, "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "x"}, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}});
    let call = |tool: &str, arguments: Value| {
        (
            "tools/call",
            json!({"name": tool, "arguments": arguments, "_meta": meta}),
        )
    };
    let asks = [
        (
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {"form": {}}, "roots": {}}, "clientInfo": {"name": "x", "version": "1"}}),
        ),
        ("tools/list", json!({"_meta": meta})),
        call(
            "ask",
            json!({"prompt": "hi", "agent": "timmy", "session": "s", "provider": "echo", "model": "scripted", "cwd": "/tmp", "wait_s": 5}),
        ),
        (
            "tools/call",
            json!({"name": "ask", "arguments": {"prompt": "hi"}, "task": {"ttl": 5}, "requestState": "{}", "inputResponses": {"x": {}}, "_meta": {"claudecode/toolUseId": "t", "callId": "c", "threadId": "t"}}),
        ),
        call("dispatch", json!({"jobs": [{"prompt": "hi"}]})),
        call("collect", json!({"jobs": ["j1"], "wait_s": 0, "any": true})),
        call("steer", json!({"job": "j1", "text": "x"})),
        call("cancel", json!({"job": "j1"})),
        call(
            "sessions",
            json!({"agent": "timmy", "cwd": "/tmp", "limit": 1}),
        ),
        call(
            "jobs",
            json!({"session": "s", "agent": "timmy", "state": "running", "limit": 1}),
        ),
        call("history", json!({"session": "s", "job": "j1", "after": 0})),
        call("questions", json!({"session": "s"})),
        call("answer", json!({"question_id": "j1-q1", "approve": true})),
        ("tasks/get", json!({"taskId": "j1", "_meta": meta})),
        (
            "tasks/update",
            json!({"taskId": "j1", "inputResponses": {"j1-q1": {"action": "accept"}}, "_meta": meta}),
        ),
        ("tasks/cancel", json!({"taskId": "j1"})),
        ("tasks/list", json!({"cursor": "j9"})),
    ];
    let mut count = 0;
    for (method, params) in asks {
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params});
        for mut one in bent(&message) {
            count += 1;
            one["id"] = json!(count);
            client.says(&one);
            let answer = client.answer(count);
            let failed = answer.get("error").is_some();
            assert_ne!(failed, answer.get("result").is_some(), "{one}\n{answer}");
        }
    }
    assert!(count > 700, "{count}");
    client.says(&json!({"jsonrpc": "2.0", "id": "last", "method": "ping"}));
    wait_for("the face still answers", || {
        (client.next()["id"] == "last").then_some(())
    });
}
