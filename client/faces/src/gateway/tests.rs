//! The gateway between a client and a daemon that both are played here, line by line. What the client
//! says are the lines of Hermes' own TUI.

mod questions;
mod scene;
mod sessions;

use agentd_client::ClientError;
use serde_json::{Value, json};

use self::scene::{SESSION, Scene, list};
use crate::face::Face as _;
use crate::scripted;

#[test]
fn gateway_id_in_use_runs_nothing() {
    let mut scene = Scene::open();
    let line = json!({"jsonrpc": "2.0", "id": "same", "method": "prompt.submit",
        "params": {"session_id": SESSION, "text": "hello"}});
    scene.line(line.to_string().as_bytes());
    scene.line(line.to_string().as_bytes());
    let refused = scene.said.pop().unwrap();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&Value::Null, &json!(-32600))
    );
    scene.asked("send");
    assert!(scene.asked.iter().all(|ask| ask.kind != "send"));
}

#[test]
fn gateway_greets_before_it_is_asked() {
    let mut scene = Scene::new();
    assert_eq!(scene.face.deadline(), Some(scene.now));
    scene.face.timer(scene.now, &mut scene.out);
    scene.take();
    assert_eq!(
        scene.said.remove(0),
        json!({"jsonrpc": "2.0", "method": "event",
            "params": {"type": "gateway.ready", "payload": {"skin": {}}}})
    );
    assert_eq!(scene.face.deadline(), None);
    // What the TUI asks at its start needs no daemon.
    for (method, params, expected) in [
        (
            "pet.cells",
            json!({"graphics": true, "state": "idle"}),
            json!({"enabled": false}),
        ),
        ("config.get", json!({"key": "full"}), json!({"config": {}})),
        ("config.get", json!({"key": "mtime"}), json!({"mtime": 0})),
        (
            "setup.status",
            json!({}),
            json!({"provider_configured": true}),
        ),
        (
            "input.detect_drop",
            json!({"session_id": "x", "text": "hi"}),
            json!({"matched": false}),
        ),
        (
            "complete.path",
            json!({"word": "./junk\"}]]"}),
            json!({"items": []}),
        ),
        (
            "terminal.resize",
            json!({"session_id": "x", "cols": 90}),
            json!({"cols": 90}),
        ),
    ] {
        scene.call(method, params);
        assert_eq!(scene.result(), expected, "{method}");
    }
    assert!(scene.asked.is_empty());
    scene.call("commands.catalog", json!({}));
    assert!(scene.result()["pairs"].as_array().unwrap().len() > 5);
    assert!(scene.face.is_done() && !scene.face.leaves());
}

#[test]
fn gateway_session_is_made_and_named() {
    let mut scene = Scene::new();
    let params = json!({"cols": 130, "title": "t", "provider": "p", "model": "m", "cwd": "/x"});
    scene.call("session.create", params);
    let made =
        json!({"type": "session.new", "ok": true, "session": SESSION, "agent": "a", "cwd": "/x"});
    let new = scene.answer("session.new", made);
    assert_eq!(new, json!({"session": SESSION, "agent": "a", "cwd": "/x"}));
    let set = json!({"type": "set_model", "ok": true, "session": SESSION, "provider": "p", "model": "m", "thinking": null});
    scene.answer("set_model", set);
    let result = scene.result();
    assert_eq!(
        (&result["session_id"], &result["stored_session_id"]),
        (&json!(SESSION), &json!(SESSION))
    );
    assert_eq!(result["info"]["model"], "p/m");
    assert_eq!(scene.asked("session.title").fields["title"], "t");
    assert_eq!(scene.told().last().unwrap(), "session.info");
    // One that nobody spoke in leaves nothing behind.
    scene.face.client_ended(scene.now, &mut scene.out);
    scene.take();
    assert_eq!(scene.asked("session.close").fields["session"], SESSION);
    assert!(!scene.face.is_done());
}

#[test]
fn gateway_turn_is_told_in_its_order() {
    let mut scene = Scene::open();
    scene.told();
    scene.call(
        "prompt.submit",
        json!({"session_id": SESSION, "text": "hello"}),
    );
    let send = scene.accept("j1", true);
    assert_eq!(
        (&send["session"], &send["text"]),
        (&json!(SESSION), &json!("hello"))
    );
    scene.follow(
        "message_start",
        json!({"job": "j1", "message": 0, "role": "assistant"}),
    );
    scene.follow(
        "thinking_delta",
        json!({"job": "j1", "message": 0, "offset": 0, "text": "hm"}),
    );
    scene.delta("j1", 0, 0, "see");
    let start = json!({"job": "j1", "tool_call_id": "c", "name": "bash", "input": {"command": "ls"}, "read_only": true});
    scene.follow("tool_start", start);
    scene.follow(
        "tool_update",
        json!({"job": "j1", "tool_call_id": "c", "offset": 0, "output": "x\n"}),
    );
    let end = json!({"job": "j1", "tool_call_id": "c", "ok": true, "output": "xy", "truncated": false, "duration_ms": 1500});
    scene.follow("tool_end", end);
    let complete = scene.said.last().unwrap()["params"]["payload"].clone();
    assert_eq!(
        (
            &complete["duration_s"],
            &complete["args"],
            &complete["tool_id"]
        ),
        (&json!(1.5), &json!({"command": "ls"}), &json!("j1.c"))
    );
    scene.delta("j1", 1, 0, "done");
    scene.end("j1", "end_turn", "see\n\ndone");
    let last = &scene.said[scene.said.len() - 2]["params"];
    let usage = json!({"model": "p/m", "input": 10, "output": 3, "reasoning": 0, "prompt": 10,
        "completion": 3, "total": 13, "calls": 1, "context_used": 13, "context_max": 100, "context_percent": 13});
    assert_eq!(last["payload"]["usage"], usage);
    assert_eq!(last["session_id"], SESSION);
    let told = [
        r#"result {"status":"streaming"}"#,
        "message.start",
        "reasoning.delta hm",
        "message.delta see",
        "tool.start bash",
        "tool.progress bash",
        "tool.complete bash",
        "message.delta \n\ndone",
        "message.complete see\n\ndone complete",
        "session.info",
    ];
    assert_eq!(scene.told(), told);
}

#[test]
fn gateway_prompt_while_busy_is_the_next_turn() {
    let mut scene = Scene::running();
    scene.call(
        "prompt.submit",
        json!({"session_id": SESSION, "text": "then"}),
    );
    scene.accept("j2", false);
    assert_eq!(scene.result(), json!({"status": "queued"}));
    scene.call("session.interrupt", json!({"session_id": SESSION}));
    let abort = scene.answer(
        "abort",
        json!({"type": "abort", "ok": true, "jobs": ["j1"]}),
    );
    assert_eq!(abort, json!({"session": SESSION, "queued": false}));
    scene.end("j1", "cancelled", "half");
    scene.follow("running", json!({"job": "j2", "attempt": 1}));
    scene.delta("j2", 0, 0, "next");
    let told = [
        r#"result {"status":"interrupted"}"#,
        "message.complete half interrupted",
        "session.info",
        "message.start",
        "message.delta next",
    ];
    assert_eq!(scene.told(), told);
    // A word to it is taken, or handed back: it is never lost in silence.
    scene.call(
        "session.steer",
        json!({"session_id": SESSION, "text": "left"}),
    );
    scene.answer("steer", json!({"type": "steer", "ok": true, "job": "j2"}));
    assert_eq!(scene.result(), json!({"status": "queued", "text": "left"}));
    scene.call(
        "session.steer",
        json!({"session_id": SESSION, "text": "left"}),
    );
    scene.answer(
        "steer",
        json!({"type": "error", "code": "session-idle", "error": "idle"}),
    );
    assert_eq!(
        scene.result(),
        json!({"status": "rejected", "text": "left"})
    );
}

#[test]
fn gateway_model_is_found_among_the_agents() {
    let mut scene = Scene::open();
    for (said, provider, model) in [
        ("m", json!("p"), "m"),
        (
            "openrouter:anthropic/claude",
            json!("openrouter"),
            "anthropic/claude",
        ),
        (
            "anthropic/claude --provider openrouter --session",
            json!("openrouter"),
            "anthropic/claude",
        ),
        ("other/x:y", json!("other"), "x:y"),
        ("z", json!(null), "z"),
    ] {
        for how in ["config.set", "command.dispatch", "slash.exec"] {
            let mut params = json!({"session_id": SESSION});
            match how {
                "config.set" => {
                    (params["key"], params["value"]) = (json!("model"), json!(said));
                    params["confirm_expensive_model"] = json!(false);
                }
                _ => params["command"] = json!(format!("/model {said}")),
            }
            scene.call(how, params);
            let models = json!({"type": "models", "ok": true, "agent": "a", "models": [
                {"provider": "p", "model": "m", "default": true},
                {"provider": "openrouter", "model": "anthropic/claude", "default": false}]});
            scene.answer("models", models);
            let set = json!({"type": "set_model", "ok": true, "session": SESSION, "provider": provider, "model": model, "thinking": null});
            let asked = scene.answer("set_model", set);
            assert_eq!(
                (
                    asked.get("provider").unwrap_or(&json!(null)),
                    &asked["model"]
                ),
                (&provider, &json!(model))
            );
            let result = scene.result();
            assert!(
                result["value"].is_string() || result["output"].is_string(),
                "{result}"
            );
        }
    }
    scene.call(
        "command.dispatch",
        json!({"session_id": SESSION, "name": "review", "arg": "all"}),
    );
    assert_eq!(
        scene.result(),
        json!({"type": "send", "message": "/review all"})
    );
    scene.call("complete.slash", json!({"text": "/rev"}));
    assert_eq!(scene.result()["items"][0]["display"], "/review");
}

#[test]
fn gateway_background_is_told_at_its_end() {
    let mut scene = Scene::open();
    scene.call(
        "prompt.background",
        json!({"session_id": SESSION, "text": "aside"}),
    );
    let send = scene.accept("j7", true);
    assert_eq!(
        (send.get("session"), &send["agent"], &send["cwd"]),
        (None, &json!("a"), &json!("/w"))
    );
    assert_eq!(scene.result(), json!({"task_id": "j7"}));
    scene.told();
    scene.delta("j7", 0, 0, "well");
    scene.end("j7", "end_turn", "well");
    assert_eq!(scene.told(), ["background.complete well"]);
}

/// Each method that the table says is refused is so, in a sentence.
#[test]
fn gateway_table_names_what_is_refused() {
    let table = include_str!("../../README.md");
    let row = table
        .lines()
        .find(|row| row.starts_with("| `session.undo`"));
    let methods = row.unwrap().split(" | ").next().unwrap().split('`');
    let methods: Vec<_> = methods.filter(|word| word.contains('.')).collect();
    assert!(methods.len() > 30, "{methods:?}");
    let mut scene = Scene::open();
    scene.told();
    for method in methods {
        let method = method.replace('*', "x");
        scene.call(&method, json!({}));
        let told = scene.told();
        let expected = format!("-32601 `{method}` is not served: ");
        assert!(
            told.len() == 1 && told[0].starts_with(&expected),
            "{told:?}"
        );
    }
}

#[test]
fn gateway_refuses_in_a_sentence() {
    let mut scene = Scene::open();
    scene.told();
    for (method, params, why) in [
        (
            "prompt.submit",
            json!({"session_id": SESSION, "text": " "}),
            "4004 `text` is blank",
        ),
        (
            "prompt.submit",
            json!({"session_id": SESSION, "text": "x", "truncate_before_user_ordinal": 1}),
            "4002 what was said",
        ),
        (
            "session.create",
            json!({"messages": [{"role": "user"}]}),
            "-32602 `messages` can't",
        ),
        (
            "session.undo",
            json!({"session_id": SESSION}),
            "-32601 `session.undo` is not served: ",
        ),
        (
            "shell.exec",
            json!({"command": "ls"}),
            "-32601 `shell.exec` is not served: agentd runs no commands",
        ),
        (
            "spawn_tree.load",
            json!({"path": "x"}),
            "-32601 `spawn_tree.load` is not served: ",
        ),
        ("nonsense", json!({}), "-32601 unknown method: nonsense"),
        (
            "config.set",
            json!({"key": "yolo", "value": "1"}),
            "4002 what an agent may do",
        ),
        (
            "command.dispatch",
            json!({"name": "moa", "session_id": SESSION}),
            "4018 /moa is no command",
        ),
        (
            "session.activate",
            json!({"session_id": "a b"}),
            "4001 session not found",
        ),
        (
            "prompt.submit",
            json!([1]),
            "-32602 `params` is not an object",
        ),
    ] {
        scene.call(method, params);
        let told = scene.told();
        assert!(
            told.len() == 1 && told[0].starts_with(why),
            "{method}: {told:?}"
        );
    }
    scene.call("cli.exec", json!({"argv": ["config"]}));
    assert_eq!(scene.result()["blocked"], true);
    // A session that isn't there.
    scene.call("prompt.submit", json!({"session_id": "none", "text": "x"}));
    scene.answer("session.list", list(&[]));
    assert!(scene.told()[0].starts_with("4001 session not found: there is no `none`"));
}

#[test]
fn gateway_goes_on_with_the_next_daemon() {
    let mut scene = Scene::running();
    scene.delta("j1", 0, 0, "ha");
    scene.call(
        "prompt.submit",
        json!({"session_id": SESSION, "text": "more"}),
    );
    let first = scene.asked("send");
    scene.face.daemon_lost(scene.now, &mut scene.out);
    scene.asked.clear();
    scene.take();
    let subscribe = scene.asked("subscribe");
    assert_eq!(subscribe.fields, json!({"after": 1, "sessions": true}));
    let again = scene.asked("send");
    assert_eq!(
        again.fields["idempotency_key"],
        first.fields["idempotency_key"]
    );
    scene.asked.insert(0, subscribe);
    scene.told();
    let error = scripted::facts(
        SESSION,
        json!({"job": "j1", "code": "interrupted", "error": "the daemon ended"}),
    );
    scene.follow("error", error);
    assert_eq!(
        scene.told(),
        [
            "message.complete ha\n\nerror: the daemon ended error",
            "session.info"
        ]
    );
}

#[test]
fn gateway_prompt_over_a_death_ends_once() {
    let end = || {
        let end = json!({"job": "j1", "code": "interrupted", "error": "agentd died"});
        scripted::facts(SESSION, end)
    };
    let told = [
        r#"result {"status":"streaming"}"#,
        "message.start",
        "message.complete error: agentd died error",
        "session.info",
    ];
    let begun = || {
        let mut scene = Scene::open();
        let working = json!({"session": SESSION, "change": "state", "state": "working"});
        scene.follow("session_changed", working);
        scene.told();
        scene.call(
            "prompt.submit",
            json!({"session_id": SESSION, "text": "hello"}),
        );
        scene
    };
    let lost = |scene: &mut Scene| {
        scene.face.daemon_lost(scene.now, &mut scene.out);
        scene.asked.clear();
        scene.take();
    };
    // It was accepted, and nothing said that it runs.
    let mut scene = begun();
    scene.accept("j1", false);
    lost(&mut scene);
    scene.follow("error", end());
    assert_eq!(
        scene.said.last().unwrap()["params"]["payload"]["running"],
        false
    );
    assert_eq!(scene.told(), told);
    // Nothing came back: the subscription may tell of it before the send does, or after it.
    let accepted = json!({"seq": 1, "replayed": false, "job": "j1", "session": SESSION,
        "agent": "a", "ignored": [], "running": false});
    let mut scene = begun();
    lost(&mut scene);
    scene.follow("accepted", accepted.clone());
    scene.follow("error", end());
    assert_eq!(scene.told(), [""; 0]);
    let send = scene.asked("send");
    let line = |kind: &str, mut line: Value| {
        line["type"] = json!(kind);
        line
    };
    scene.daemon(&send, line("accepted", accepted.clone()));
    assert_eq!(scene.told(), told);
    let mut scene = begun();
    lost(&mut scene);
    let send = scene.asked("send");
    scene.daemon(&send, line("accepted", accepted.clone()));
    scene.daemon(&send, line("error", end()));
    scene.follow("accepted", accepted);
    scene.follow("error", end());
    assert_eq!(scene.told(), told);
}

#[test]
fn gateway_daemon_that_is_gone_is_told() {
    let mut scene = Scene::running();
    scene.call("session.usage", json!({"session_id": SESSION}));
    let why = ClientError::Draining;
    scene.face.unreachable(&why, scene.now, &mut scene.out);
    scene.take();
    let told = scene.told();
    assert!(
        told[0].starts_with("error what became of the turn is not known here"),
        "{told:?}"
    );
    assert!(told.len() == 2 && told[1].starts_with("5000 "), "{told:?}");
    // The next request looks for one again.
    scene.asked.clear();
    scene.call("session.list", json!({}));
    scene.asked("subscribe");
    scene.asked("session.list");
}

#[test]
fn gateway_keeps_what_is_for_later() {
    let mut scene = Scene::open();
    scene.call("config.set", json!({"key": "busy", "value": "queue"}));
    scene.call("config.get", json!({"key": "busy"}));
    assert_eq!(scene.result(), json!({"value": "queue"}));
    scene.call(
        "image.attach",
        json!({"session_id": SESSION, "path": "a.png"}),
    );
    assert!(
        scene
            .told()
            .pop()
            .unwrap()
            .starts_with("4004 `path` is `a.png`")
    );
    scene.call(
        "image.attach",
        json!({"session_id": SESSION, "path": "/a.png"}),
    );
    assert_eq!(scene.result()["count"], 1);
    for expected in [json!([{"path": "/a.png"}]), json!(null)] {
        scene.call(
            "prompt.submit",
            json!({"session_id": SESSION, "text": "see"}),
        );
        let send = scene.asked("send").fields;
        assert_eq!(send.get("attachments").unwrap_or(&json!(null)), &expected);
    }
    scene.call(
        "prompt.background",
        json!({"session_id": SESSION, "text": "aside"}),
    );
    scene.accept("j7", true);
    scene.call("process.stop", json!({}));
    assert_eq!(scene.result(), json!({"killed": 1}));
    assert_eq!(scene.asked("abort").fields, json!({"job": "j7"}));
}
