//! Sessions: made, loaded, resumed, closed, and what is chosen in them.

use std::time::Duration;

use agentd_client::ClientError;

use super::*;

pub(super) fn row(turns: u64, state: &str) -> Value {
    let said = (turns > 0).then_some([30, 900]);
    json!({"type": "session.list", "ok": true, "sessions": [{"session": SESSION, "agent": "pi", "cwd": "/w",
        "state": state, "title": "hi", "preview": "", "model": null, "turns": turns,
        "context_tokens": said.map(|[tokens, _]| tokens), "context_window": said.map(|[_, window]| window),
        "created_at": "2026-11-26T00:00:00Z", "last_active_at": "2026-11-26T00:00:00Z"}]})
}

fn history(turns: Value) -> Value {
    json!({"type": "session.history", "ok": true, "session": SESSION, "turns": turns})
}

pub(super) fn set_option(scene: &mut Scene, option: &str, value: &str) -> u64 {
    let params = json!({"sessionId": SESSION, "configId": option, "value": value});
    scene.request("session/set_config_option", params)
}

#[test]
fn acp_new_session_is_made_with_its_choices() {
    let mut scene = Scene::new();
    let meta = json!({"agentd": {"agent": "timmy"}});
    let params = json!({"cwd": "/w", "mcpServers": [], "_meta": meta});
    let id = scene.request("session/new", params);
    let fields = scene.answer("session.new", made("timmy"));
    assert_eq!(
        fields,
        json!({"session": SESSION, "agent": "timmy", "cwd": "/w"})
    );
    assert_eq!(
        scene.answer("models", models()),
        json!({"session": SESSION})
    );
    assert!(scene.said.is_empty(), "the agents are missing");
    scene.answer("agents", agents());
    let said = scene.said.remove(0);
    assert_eq!(said["id"], id);
    let result = &said["result"];
    let ids = |list: &Value, name: &str| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|one| one[name].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        ids(&result["configOptions"], "id"),
        ["agent", "model", "thinking"]
    );
    assert_eq!(
        ids(&result["models"]["availableModels"], "modelId"),
        ["p/one", "p/two"]
    );
    assert_eq!(
        ids(&result["modes"]["availableModes"], "id"),
        ["pi", "timmy"]
    );
    assert_eq!(result["modes"]["currentModeId"], "timmy");
}

#[test]
fn acp_new_session_does_not_wait_for_ever() {
    let mut scene = Scene::new();
    let id = scene.request("session/new", json!({"cwd": "/w"}));
    scene.answer("session.new", made("pi"));
    let mut waits = 0;
    while let Some(at) = scene.face.deadline() {
        assert!(at > scene.now, "a deadline that has passed");
        scene.now = at;
        scene.face.timer(at, &mut scene.out);
        scene.take();
        waits += 1;
    }
    assert_eq!(waits, 2);
    let said = scene.said.remove(0);
    assert_eq!(
        (said["id"].as_u64(), &said["result"]["sessionId"]),
        (Some(id), &json!(SESSION))
    );
    // What comes late is told all the same.
    scene.answer("models", models());
    assert_eq!(scene.told(), ["config_option_update"]);
}

#[test]
fn acp_session_that_cannot_be_made_is_refused() {
    let mut scene = Scene::new();
    let id = scene.request("session/new", json!({"cwd": "/no"}));
    let refused =
        json!({"type": "error", "code": "unknown-agent", "error": "no", "retryable": false});
    scene.answer("session.new", refused);
    assert_eq!(scene.told(), [format!("{id} error -32602")]);
    let id = scene.prompt("hi");
    assert_eq!(scene.told(), [format!("{id} error -32002")]);
}

/// The same process has it in flight, and has told of it before.
#[test]
fn acp_own_turn_is_told_anew_when_loaded() {
    let mut scene = Scene::open();
    let id = scene.prompt("hi");
    let send = scene.asked("send");
    scene.line(&send, accepted("j1", 1));
    scene.line(&send, delta("j1", 0, "so far"));
    scene.told();
    let open = json!({"sessionId": SESSION, "cwd": "/w", "mcpServers": []});
    scene.request("session/load", open);
    scene.answer("session.list", row(0, "working"));
    scene.answer("models", models());
    let tool = json!({"type": "tool_start", "seq": 2, "job": "j1", "tool_call_id": "c1", "name": "bash",
        "input": {"command": "ls"}, "read_only": false});
    let runs = json!({"job": "j1", "state": "running", "accepted_at": "", "text": "hi", "events": [tool],
        "messages": [{"message": 0, "text": "so far, and"}]});
    // Said while it is looked up, and in what is found already.
    scene.line(&send, delta("j1", 6, ", and"));
    scene.line(&send, tool.clone());
    scene.answer("session.history", history(json!([runs])));
    scene.line(&send, delta("j1", 11, " on"));
    scene.line(&send, ended("j1", 3, "end_turn"));
    let told = scene.told();
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    assert_eq!(
        told[..4],
        [
            "user_message_chunk hi",
            "tool_call j1.c1 in_progress ls",
            "agent_message_chunk so far, and",
            told[3],
        ]
    );
    let texts = told
        .iter()
        .filter(|one| one.starts_with("agent_message_chunk"));
    assert_eq!(
        texts.copied().collect::<Vec<_>>(),
        ["agent_message_chunk so far, and", "agent_message_chunk  on"]
    );
    assert!(
        told.contains(&format!("{id} end_turn").as_str()),
        "{told:?}"
    );
}

/// It ends before the daemon hears that its lines are wanted.
#[test]
fn acp_turn_that_ends_while_loaded_is_told() {
    let mut scene = Scene::new();
    let open = json!({"sessionId": SESSION, "cwd": "/w", "mcpServers": []});
    scene.request("session/load", open);
    scene.answer("session.list", row(0, "working"));
    scene.answer("agents", agents());
    scene.answer("models", models());
    let runs =
        json!({"job": "j1", "state": "running", "accepted_at": "", "text": "one", "messages": []});
    scene.answer("session.history", history(json!([runs])));
    let subscribe = scene.asked("subscribe");
    assert_eq!(subscribe.fields, json!({"jobs": ["j1"], "after": 0}));
    scene.told();
    scene.line(&subscribe, delta("j1", 0, "first"));
    scene.line(&subscribe, ended("j1", 3, "end_turn"));
    scene.line(&subscribe, json!({"type": "live", "seq": 3, "epoch": "e"}));
    assert_eq!(scene.told()[0], "agent_message_chunk first");
}

#[test]
fn acp_load_tells_all_before_it_answers() {
    let mut scene = Scene::new();
    let id = scene.request(
        "session/load",
        json!({"sessionId": SESSION, "cwd": "/w", "mcpServers": []}),
    );
    let waits = scene.prompt("next");
    scene.answer("session.list", row(2, "working"));
    scene.answer("agents", agents());
    scene.answer("models", models());
    let over = json!({"job": "j1", "state": "completed", "accepted_at": "", "text": "one",
        "messages": [{"message": 0, "text": "first"}], "final": ended("j1", 3, "end_turn")});
    let mut page = history(json!([over]));
    page["next"] = json!(1);
    assert_eq!(scene.answer("session.history", page)["events"], true);
    let tool = json!({"type": "tool_start", "seq": 6, "job": "j2", "tool_call_id": "c1", "name": "bash",
        "input": {"command": "ls"}, "read_only": false});
    let open = json!({"question_id": "j2-q1", "job": "j2", "session": SESSION, "kind": "approval", "title": "May it?",
        "tool_call_id": "c1", "expires_at": "2026-11-26T00:00:00Z"});
    let runs = json!({"job": "j2", "state": "running", "accepted_at": "", "text": "two", "events": [tool],
        "messages": [{"message": 0, "text": "sec"}], "questions": [open]});
    let queued =
        json!({"job": "j3", "state": "queued", "accepted_at": "", "text": "three", "messages": []});
    assert_eq!(
        scene.answer("session.history", history(json!([runs, queued])))["after"],
        1
    );
    assert_eq!(
        scene.told(),
        [
            "user_message_chunk one".to_owned(),
            "agent_message_chunk first".to_owned(),
            "user_message_chunk two".to_owned(),
            "tool_call j2.c1 in_progress ls".to_owned(),
            "usage_update".to_owned(),
            format!("{id} "),
            "tool_call_update j2.c1 pending".to_owned(),
            "session/request_permission j2-q1".to_owned(),
        ]
    );
    let subscribe = scene.asked("subscribe");
    assert_eq!(subscribe.fields, json!({"jobs": ["j2", "j3"], "after": 6}));
    assert_eq!(scene.asked("send").fields["text"], "next", "{waits}");
    scene.line(&subscribe, json!({"type": "live", "seq": 6, "epoch": "e"}));
    scene.line(&subscribe, delta("j2", 0, "second"));
    scene.line(&subscribe, ended("j2", 7, "end_turn"));
    scene.line(
        &subscribe,
        json!({"type": "running", "seq": 8, "job": "j3", "attempt": 1}),
    );
    assert_eq!(
        scene.told(),
        [
            "agent_message_chunk second",
            "tool_call_update j2.c1 failed",
            "$/cancel_request j2-q1",
            "usage_update",
            "user_message_chunk three",
        ]
    );
    // A cancel reaches its own prompt, which isn't accepted yet, and what others sent.
    scene.notify("session/cancel", json!({"sessionId": SESSION}));
    assert!(scene.asked("abort").fields["idempotency_key"].is_string());
    assert_eq!(scene.asked("abort").fields["job"], "j3");
}

#[test]
fn acp_own_turn_is_told_behind_one_followed() {
    let mut scene = Scene::new();
    let params = json!({"sessionId": SESSION, "cwd": "/w", "mcpServers": []});
    scene.request("session/load", params);
    scene.answer("session.list", row(1, "working"));
    scene.answer("agents", agents());
    scene.answer("models", models());
    let runs =
        json!({"job": "j1", "state": "running", "accepted_at": "", "text": "one", "messages": []});
    scene.answer("session.history", history(json!([runs])));
    let id = scene.prompt("two");
    let (subscribe, send) = (scene.asked("subscribe"), scene.asked("send"));
    scene.told();
    // They come by two ways, of which the second may be faster.
    for line in [
        accepted("j2", 2),
        delta("j2", 0, "second"),
        ended("j2", 4, "end_turn"),
    ] {
        scene.line(&send, line);
    }
    assert!(scene.told().is_empty());
    scene.line(&subscribe, delta("j1", 0, "first"));
    scene.line(&subscribe, ended("j1", 3, "end_turn"));
    assert_eq!(
        scene.told(),
        [
            "agent_message_chunk first".to_owned(),
            "usage_update".to_owned(),
            "agent_message_chunk second".to_owned(),
            "usage_update".to_owned(),
            format!("{id} end_turn"),
        ]
    );
}

#[test]
fn acp_resume_tells_only_what_is_in_flight() {
    let mut scene = Scene::new();
    let id = scene.request("session/resume", json!({"sessionId": SESSION, "cwd": "/w"}));
    scene.answer("session.list", row(2, "working"));
    scene.answer("agents", agents());
    scene.answer("models", models());
    let job = |job: &str, state: &str| json!({"job": job, "session": SESSION, "agent": "pi", "state": state, "attempt": 1, "preview": "", "accepted_at": ""});
    let jobs = json!([job("j2", "running"), job("j1", "completed")]);
    scene.answer("jobs", json!({"type": "jobs", "ok": true, "jobs": jobs}));
    assert!(scene.said.is_empty(), "the turn in flight is missing");
    let runs =
        json!({"job": "j2", "state": "running", "accepted_at": "", "text": "two", "messages": []});
    assert_eq!(
        scene.answer("session.history", history(json!([runs])))["job"],
        "j2"
    );
    assert_eq!(
        scene.told(),
        [
            "user_message_chunk two".to_owned(),
            "usage_update".to_owned(),
            format!("{id} ")
        ]
    );
    assert_eq!(
        scene.asked("subscribe").fields,
        json!({"jobs": ["j2"], "after": 0})
    );
}

#[test]
fn acp_load_of_a_closed_session_is_refused() {
    for state in ["closed", "other"] {
        let mut scene = Scene::new();
        let id = scene.request(
            "session/load",
            json!({"sessionId": SESSION, "cwd": "/w", "mcpServers": []}),
        );
        let mut found = row(2, "closed");
        if state == "other" {
            found["sessions"] = json!([]);
        }
        scene.answer("session.list", found);
        assert_eq!(scene.told(), [format!("{id} error -32002")]);
    }
}

#[test]
fn acp_fork_is_a_session_of_its_own() {
    let mut scene = Scene::open();
    let id = scene.request("session/fork", json!({"sessionId": "mine", "cwd": "/w"}));
    let copy = json!({"type": "session.fork", "ok": true, "session": "acp-n-2", "from": "mine", "agent": "pi", "cwd": "/w"});
    let fields = scene.answer("session.fork", copy);
    assert_eq!(fields, json!({"session": "mine", "to": "acp-n-2"}));
    scene.answer("models", models());
    let said = scene.said.remove(0);
    assert_eq!(
        (&said["id"], &said["result"]["sessionId"]),
        (&json!(id), &json!("acp-n-2"))
    );
    // It has the agent of the other one.
    let params = json!({"sessionId": "acp-n-2", "configId": "agent", "value": "timmy"});
    scene.request("session/set_config_option", params);
    assert_eq!(scene.said.remove(0)["error"]["code"], -32602);
    let id = scene.request("session/fork", json!({"sessionId": "mine", "cwd": "/w"}));
    let refused =
        json!({"type": "error", "code": "unsupported", "error": "can't", "retryable": false});
    scene.answer("session.fork", refused);
    assert_eq!(scene.told(), [format!("{id} error -32602")]);
}

#[test]
fn acp_title_is_the_daemons() {
    let mut scene = Scene::open();
    let id = scene.request(
        "session/set_title",
        json!({"sessionId": SESSION, "title": "new"}),
    );
    let titled = json!({"type": "session.title", "ok": true, "session": SESSION, "title": "new"});
    let fields = scene.answer("session.title", titled);
    assert_eq!(fields, json!({"session": SESSION, "title": "new"}));
    assert_eq!(scene.told(), [format!("{id} ")]);
}

#[test]
fn acp_agent_changes_until_the_first_turn() {
    let mut scene = Scene::open();
    let id = set_option(&mut scene, "agent", "timmy");
    assert_eq!(
        scene.answer(
            "session.close",
            json!({"type": "session.close", "ok": true, "session": SESSION})
        ),
        json!({"session": SESSION})
    );
    let fields = scene.answer("session.new", made("timmy"));
    assert_eq!(
        fields,
        json!({"session": SESSION, "agent": "timmy", "cwd": "/w"})
    );
    scene.answer("models", models());
    let said = scene.said.pop().unwrap();
    assert_eq!(said["id"], id);
    assert_eq!(said["result"]["configOptions"][0]["currentValue"], "timmy");
    scene.told();
    scene.prompt("hi");
    let send = scene.asked("send");
    assert_eq!(send.fields["agent"], "timmy");
    scene.line(&send, accepted("j1", 1));
    let agents = &scene.said[0]["params"]["update"]["configOptions"][0]["options"];
    assert_eq!(agents.as_array().map(Vec::len), Some(1), "{agents}");
    assert_eq!(scene.told(), ["config_option_update"]);
    let id = set_option(&mut scene, "agent", "pi");
    let said = scene.said.remove(0);
    assert_eq!(
        (said["id"].as_u64(), &said["error"]["code"]),
        (Some(id), &json!(-32602))
    );
    assert!(
        said["error"]["message"]
            .as_str()
            .unwrap()
            .contains("new session"),
        "{said}"
    );
}

#[test]
fn acp_mode_of_older_clients_is_the_agent() {
    let mut scene = Scene::open();
    let id = scene.request(
        "session/set_mode",
        json!({"sessionId": SESSION, "modeId": "timmy"}),
    );
    let closed = json!({"type": "session.close", "ok": true, "session": SESSION});
    scene.answer("session.close", closed);
    scene.answer("session.new", made("timmy"));
    scene.answer("models", models());
    let mode = &scene.said[1]["params"]["update"];
    assert_eq!(
        (&mode["sessionUpdate"], &mode["currentModeId"]),
        (&json!("current_mode_update"), &json!("timmy"))
    );
    assert_eq!(
        scene.said[2],
        json!({"jsonrpc": "2.0", "id": id, "result": {}})
    );
}

#[test]
fn acp_agent_that_cannot_start_leaves_the_session() {
    let mut scene = Scene::open();
    let id = set_option(&mut scene, "agent", "timmy");
    scene.answer(
        "session.close",
        json!({"type": "session.close", "ok": true, "session": SESSION}),
    );
    let refused = json!({"type": "error", "code": "no-agent", "error": "no", "retryable": false});
    scene.answer("session.new", refused);
    assert_eq!(scene.told(), [format!("{id} error -32602")]);
    // It is there again, as it was.
    assert_eq!(scene.answer("session.new", made("pi"))["agent"], "pi");
    scene.prompt("hi");
    assert_eq!(scene.asked("send").fields["agent"], "pi");
}

#[test]
fn acp_model_is_set_for_later_turns() {
    let mut scene = Scene::open();
    let set = |model: &str, thinking: Value| json!({"type": "set_model", "ok": true, "session": SESSION, "provider": "p", "model": model, "thinking": thinking});
    set_option(&mut scene, "thinking", "high");
    let fields = scene.answer("set_model", set("one", json!("high")));
    assert_eq!(
        fields,
        json!({"session": SESSION, "provider": "p", "model": "one", "thinking": "high"})
    );
    let said = scene.said.pop().unwrap();
    assert_eq!(said["result"]["configOptions"][2]["currentValue"], "high");
    scene.told();
    // The older way.
    let id = scene.request(
        "session/set_model",
        json!({"sessionId": SESSION, "modelId": "p/two"}),
    );
    scene.answer("set_model", set("two", json!("high")));
    let update = &scene.said[0]["params"]["update"];
    assert_eq!(update["configOptions"][1]["currentValue"], "p/two");
    assert_eq!(
        scene.said[1],
        json!({"jsonrpc": "2.0", "id": id, "result": {}})
    );
    scene.told();
    let id = set_option(&mut scene, "model", "p/one");
    let refused =
        json!({"type": "error", "code": "unsupported", "error": "not now", "retryable": false});
    scene.answer("set_model", refused);
    assert_eq!(
        scene.told(),
        [
            "config_option_update".to_owned(),
            format!("{id} error -32602")
        ]
    );
}

#[test]
fn acp_close_ends_work_and_keeps_the_session() {
    let mut scene = Scene::open();
    let prompt = scene.prompt("hi");
    let send = scene.asked("send");
    scene.line(&send, accepted("j1", 1));
    scene.told();
    let id = scene.request("session/close", json!({"sessionId": SESSION}));
    assert_eq!(scene.told(), [format!("{id} ")]);
    assert_eq!(scene.asked("abort").fields["job"], "j1");
    scene.line(&send, delta("j1", 0, "late"));
    scene.line(&send, ended("j1", 2, "cancelled"));
    assert_eq!(scene.told(), [format!("{prompt} cancelled")]);
    assert!(scene.asked.iter().all(|ask| ask.kind != "session.close"));
    let id = scene.request("session/delete", json!({"sessionId": SESSION}));
    scene.answer(
        "session.close",
        json!({"type": "session.close", "ok": true, "session": SESSION}),
    );
    assert_eq!(scene.told(), [format!("{id} ")]);
}

#[test]
fn acp_session_lost_while_made_is_found() {
    let mut scene = Scene::new();
    let id = scene.request("session/new", json!({"cwd": "/w"}));
    scene.lose();
    let taken = json!({"type": "error", "code": "session-conflict", "error": "it is there", "retryable": false});
    assert_eq!(scene.answer("session.new", taken)["session"], SESSION);
    scene.answer("session.list", row(0, "idle"));
    scene.answer("models", models());
    scene.answer("agents", agents());
    let said = scene.said.remove(0);
    assert_eq!(
        (said["id"].as_u64(), &said["result"]["sessionId"]),
        (Some(id), &json!(SESSION))
    );
}

#[test]
fn acp_nobody_serves_is_an_answer() {
    let mut scene = Scene::open();
    let ids = [
        scene.request("session/new", json!({"cwd": "/w"})),
        scene.prompt("hi"),
        scene.request("session/list", json!({})),
    ];
    let why = ClientError::Unreachable {
        error: "no daemon".to_owned(),
        hint: Some("start it".to_owned()),
    };
    scene.face.unreachable(&why, scene.now, &mut scene.out);
    scene.take();
    for (id, said) in ids.into_iter().zip(&scene.said) {
        assert_eq!(said["id"], id, "{said}");
        assert_eq!(said["error"]["data"]["code"], "unreachable");
        assert_eq!(said["error"]["data"]["hint"], "start it");
    }
    assert_eq!(scene.said.len(), 3);
    scene.asked.clear();
    scene.told();
    // The session is open still.
    scene.prompt("again");
    assert_eq!(scene.asked("send").fields["text"], "again");
}

#[test]
fn acp_end_of_input_leaves_accepted_turns_alone() {
    let mut scene = Scene::open();
    scene.prompt("hi");
    scene.face.client_ended(scene.now, &mut scene.out);
    assert!(!scene.face.is_done(), "the prompt was not accepted");
    let send = scene.asked("send");
    scene.line(&send, accepted("j1", 1));
    assert!(scene.face.is_done());
    assert!(scene.asked.is_empty(), "{:?}", scene.asked);
    let mut stuck = Scene::open();
    stuck.prompt("hi");
    stuck.face.client_ended(stuck.now, &mut stuck.out);
    stuck.now += Duration::from_secs(10);
    assert_eq!(stuck.face.deadline(), Some(stuck.now));
    stuck.face.timer(stuck.now, &mut stuck.out);
    assert!(stuck.face.is_done() && stuck.face.deadline().is_none());
}

#[test]
fn acp_commands_are_told_when_they_change() {
    let mut scene = Scene::open();
    let told = |scene: &mut Scene, commands: Value| {
        let ask = scene.commands.remove(0);
        assert_eq!(ask.fields, json!({"session": SESSION}));
        let line = json!({"type": "commands", "ok": true, "agent": "pi", "commands": commands});
        scene.line(&ask, line);
    };
    told(&mut scene, json!([]));
    assert!(scene.said.is_empty());
    // Some agents tell them only in their first turn.
    scene.prompt("hi");
    let send = scene.asked("send");
    scene.line(&send, accepted("j1", 1));
    scene.line(&send, ended("j1", 2, "end_turn"));
    scene.said.clear();
    let plan = json!({"name": "plan", "description": "d", "hint": "what"});
    told(&mut scene, json!([plan, {"name": "go"}]));
    let shown = json!([{"name": "plan", "description": "d", "input": {"hint": "what"}},
        {"name": "go", "description": ""}]);
    let update = &scene.said[0]["params"]["update"];
    assert_eq!(update["sessionUpdate"], "available_commands_update");
    assert_eq!(update["availableCommands"], shown);
    scene.prompt("again");
    let send = scene.asked("send");
    scene.line(&send, accepted("j2", 3));
    scene.line(&send, ended("j2", 4, "end_turn"));
    assert!(scene.commands.is_empty());
}
