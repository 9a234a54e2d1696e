//! pi's face between a client and a daemon that both are played here, line by line.

mod left;
mod scene;

use serde_json::{Value, json};

use self::scene::{SESSION, Scene, facts};
use super::Begins;
use crate::face::Face as _;

const BEGUN: [&str; 5] = [
    "prompt ok",
    "agent_start",
    "turn_start",
    "message_start user",
    "message_end user",
];

/// Whoever closes it meanwhile has the next prompt make it: with no more tools than before.
#[test]
fn pi_session_of_ours_keeps_agent_and_tools() {
    let mut scene = Scene::new(Begins::New);
    scene.face.settings.toolsets = Some(vec!["file-read".to_owned()]);
    for job in ["j1", "j2"] {
        scene.command("prompt", json!({"message": "hello"}));
        let send = scene.accept(job);
        assert_eq!(
            (&send["agent"], &send["toolsets"]),
            (&json!("a"), &json!(["file-read"]))
        );
        scene.end("end_turn", "");
    }
}

#[test]
fn pi_turn_is_told_in_pis_order() {
    let mut scene = Scene::new(Begins::New);
    scene.command("prompt", json!({"message": "hello"}));
    let send = scene.accept("j1");
    assert_eq!(
        (&send["session"], &send["cwd_if_new"]),
        (&json!(SESSION), &json!("/w"))
    );
    assert_eq!(scene.said[0]["data"], json!({"disposition": "started"}));
    assert_eq!(scene.told(), BEGUN);
    scene.turn("message_start", json!({"message": 0, "role": "assistant"}));
    scene.turn(
        "thinking_delta",
        json!({"message": 0, "offset": 0, "text": "hm"}),
    );
    scene.delta(0, 0, "see");
    let start = json!({"tool_call_id": "c", "name": "ls", "input": {"a": 1}, "read_only": true});
    scene.turn("tool_start", start);
    let update = |line: &&Value| line["type"] == "message_update";
    let update = scene.said.iter().find(update).unwrap();
    assert_eq!(update["usage"]["totalTokens"], 0);
    scene.turn(
        "tool_update",
        json!({"tool_call_id": "c", "offset": 0, "output": "x"}),
    );
    let end = json!({"tool_call_id": "c", "ok": true, "output": "xy", "truncated": false, "duration_ms": 3});
    scene.turn("tool_end", end);
    scene.turn("message_start", json!({"message": 1, "role": "assistant"}));
    scene.delta(1, 0, "done");
    scene.end("end_turn", "done");
    let messages = scene
        .said
        .iter()
        .find(|line| line["type"] == "agent_end")
        .unwrap()["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    assert_eq!(messages, ["user", "assistant", "toolResult", "assistant"]);
    let told = [
        "message_start assistant pending",
        "thinking_start",
        "thinking_delta hm",
        "thinking_end",
        "text_start",
        "text_delta see",
        "text_end",
        "toolcall_start",
        r#"toolcall_delta {"a":1}"#,
        "toolcall_end",
        "message_end assistant toolUse",
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_end",
        "message_start toolResult",
        "message_end toolResult",
        "turn_end",
        "turn_start",
        "message_start assistant pending",
        "text_start",
        "text_delta done",
        "text_end",
        "message_end assistant stop",
        "turn_end",
        "agent_end",
        "settled false",
    ];
    assert_eq!(scene.told(), told);
}

#[test]
fn pi_answer_begun_anew_ends_the_first() {
    let mut scene = Scene::running();
    scene.turn("message_start", json!({"message": 0, "role": "assistant"}));
    scene.delta(0, 0, "no");
    scene.told();
    let anew = json!({"message": 1, "role": "assistant", "replaces": 0});
    scene.turn("message_start", anew);
    assert_eq!(scene.told(), ["text_end", "message_end assistant error"]);
}

#[test]
fn pi_queues_go_in_their_modes() {
    let mut scene = Scene::running();
    scene.command("prompt", json!({"message": "more"}));
    assert!(scene.told()[0].contains("already processing"));
    scene.command("steer", json!({"message": "left"}));
    scene.command(
        "prompt",
        json!({"message": "then", "streamingBehavior": "followUp"}),
    );
    scene.command("follow_up", json!({"message": "last"}));
    let told = [
        r#"queue ["left"] []"#,
        "steer ok",
        r#"queue ["left"] ["then"]"#,
        "prompt ok",
        r#"queue ["left"] ["then","last"]"#,
        "follow_up ok",
    ];
    assert_eq!(scene.told(), told);
    assert_eq!(
        scene.answer("steer", json!({"type": "steer", "ok": true, "job": "j1"}))["job"],
        "j1"
    );
    assert_eq!(
        scene.told(),
        [
            "message_start user",
            "message_end user",
            r#"queue [] ["then","last"]"#
        ]
    );
    scene.command("set_follow_up_mode", json!({"mode": "all"}));
    scene.end("end_turn", "x");
    // The run goes on: no end of it between.
    let told = scene.told();
    assert!(!told.contains(&"agent_end".to_owned()), "{told:?}");
    assert_eq!(scene.accept("j2")["text"], "then\n\nlast");
    assert_eq!(scene.told(), &BEGUN[2..]);
    // An agent that can't be steered is told it next.
    scene.command("steer", json!({"message": "right"}));
    scene.answer(
        "steer",
        json!({"type": "error", "code": "unsupported", "error": "no"}),
    );
    assert_eq!(scene.told().pop().unwrap(), r#"queue [] ["right"]"#);
    scene.command("clear_queue", json!({}));
    assert_eq!(scene.data(), json!({"steering": [], "followUp": ["right"]}));
    // What waits when the client leaves waits with the daemon, which says when it has it.
    scene.command("follow_up", json!({"message": "alone"}));
    scene.face.client_ended(scene.now, &mut scene.out);
    scene.take();
    let left = scene.asked.pop().unwrap();
    assert_eq!(left.fields["text"], "alone");
    assert!(!scene.face.is_done());
    scene.daemon(
        &left,
        json!({"type": "accepted", "seq": 99, "replayed": false, "job": "j3",
        "session": SESSION, "agent": "a", "ignored": [], "running": false}),
    );
    assert!(scene.face.is_done() && !scene.face.leaves());
}

#[test]
fn pi_abort_is_answered_when_it_has_ended() {
    let mut scene = Scene::running();
    scene.command("abort", json!({}));
    assert_eq!(scene.told(), [""; 0]);
    assert_eq!(scene.asked("abort").fields, json!({"job": "j1"}));
    scene.command("new_session", json!({}));
    scene.end("cancelled", "");
    let told = [
        "message_start assistant pending",
        "message_end assistant aborted",
        "turn_end",
        "agent_end",
        "settled true",
        "abort ok",
        "new_session ok",
    ];
    assert_eq!(scene.told(), told);
    scene.command("get_state", json!({}));
    let state = scene.data();
    assert_ne!(state["sessionId"], SESSION);
    assert_eq!(
        (&state["messageCount"], &state["isStreaming"]),
        (&json!(0), &json!(false))
    );
}

#[test]
fn pi_questions_are_its_dialogs() {
    let mut scene = Scene::running();
    for (kind, method, given, answer) in [
        (
            "approval",
            "confirm",
            json!({"confirmed": true}),
            json!({"approve": true}),
        ),
        (
            "choice",
            "select",
            json!({"value": "b"}),
            json!({"choice": "b"}),
        ),
        (
            "text",
            "input",
            json!({"value": "me"}),
            json!({"text": "me"}),
        ),
        (
            "text",
            "input",
            json!({"cancelled": true}),
            json!({"cancel": true}),
        ),
    ] {
        let id = format!("j1-q{}", scene.seq);
        let asks = json!({"question_id": id, "kind": kind, "title": "t", "detail": "d",
            "options": ["a", "b"], "expires_at": "1970-01-01T00:00:02.007Z"});
        scene.turn("question", asks);
        let request = scene.said.pop().unwrap();
        assert_eq!(
            (&request["method"], &request["timeout"]),
            (&json!(method), &json!(2000))
        );
        let mut response = given;
        response["type"] = json!("extension_ui_response");
        response["id"] = request["id"].clone();
        scene.line(response.to_string().as_bytes());
        let mut expected = answer;
        expected["question_id"] = json!(id);
        assert_eq!(scene.asked("answer").fields, expected);
        // A second one is late.
        scene.line(response.to_string().as_bytes());
        assert!(scene.asked.iter().all(|ask| ask.kind != "answer"));
    }
}

fn past() -> Value {
    let last = |text: &str| {
        let mut line = facts(
            json!({"stop": "end_turn", "text": text, "job": "j1", "model": "m",
            "provider": "p", "usage": {"input_tokens": 10, "output_tokens": 3, "cache_read_tokens": 4}}),
        );
        line["type"] = json!("message_end");
        line
    };
    let turn = |job: &str, text: &str, said: &str| {
        json!({"job": job, "state": "completed", "accepted_at": "2026-11-27T00:00:00Z", "text": text,
        "messages": [{"message": 0, "text": said}], "final": last(said), "events": [
            {"type": "note", "job": job, "level": "info", "code": "steered", "text": "left"},
        ]})
    };
    json!({"type": "session.history", "ok": true, "session": "s",
        "turns": [turn("j1", "one", "eins"), turn("j2", "two", "zwei")]})
}

#[test]
fn pi_session_is_found_and_left() {
    let mut scene = Scene::new(Begins::Named("/state/pi-sessions/s.jsonl".to_owned()));
    scene.command("get_state", json!({}));
    assert_eq!(
        scene.answer("session.history", past()),
        json!({"session": "s", "events": true})
    );
    let state = scene.data();
    assert_eq!(state["sessionFile"], "/state/pi-sessions/s.jsonl");
    assert_eq!(
        (&state["sessionId"], &state["messageCount"]),
        (&json!("s"), &json!(6))
    );
    scene.command("get_session_stats", json!({}));
    scene.answer("session.history", past());
    let stats = scene.data();
    let tokens = json!({"input": 12, "output": 6, "cacheRead": 8, "cacheWrite": 0, "total": 26});
    assert_eq!(
        (&stats["tokens"], &stats["totalMessages"]),
        (&tokens, &json!(6))
    );
    scene.command("get_last_assistant_text", json!({}));
    scene.answer("session.history", past());
    assert_eq!(scene.data(), json!({"text": "zwei"}));
    scene.command("get_entries", json!({"since": "j1.0"}));
    scene.answer("session.history", past());
    let entries = scene.data();
    assert_eq!(
        (&entries["entries"][0]["id"], &entries["leafId"]),
        (&json!("j2"), &json!("j2.0"))
    );
    assert_eq!(entries["entries"][1]["message"]["role"], "user");
    assert_eq!(
        entries["entries"][1]["message"]["content"][0]["text"],
        "left"
    );
    // Another one begins with what was said before.
    scene.command("fork", json!({"entryId": "j2"}));
    scene.answer("session.history", past());
    assert_eq!(scene.data(), json!({"text": "two", "cancelled": false}));
    scene.command("prompt", json!({"message": "zwo"}));
    let send = scene.asked("send");
    let history = json!([{"role": "user", "text": "one"}, {"role": "assistant", "text": "eins"}]);
    assert_eq!(send.fields["history"], history);
    scene.daemon(
        &send,
        json!({"type": "error", "code": "no-agent", "error": "none"}),
    );
    scene.command("switch_session", json!({"sessionPath": "/elsewhere/x y"}));
    assert!(
        scene
            .told()
            .pop()
            .unwrap()
            .starts_with("switch_session: there is no session")
    );
}

#[test]
fn pi_names_of_older_clients_are_served() {
    let mut scene = Scene::running();
    scene.command("queue_message", json!({"message": "then"}));
    scene.command("set_queue_mode", json!({"mode": "all"}));
    scene.command("prompt", json!({"message": "x", "attachments": [{}]}));
    let told = scene.told();
    assert_eq!(
        told[..3],
        [
            r#"queue [] ["then"]"#,
            "queue_message ok",
            "set_queue_mode ok"
        ]
    );
    assert!(told[3].contains("send pictures as `images`"), "{told:?}");
    scene.command("reset", json!({}));
    scene.end("cancelled", "");
    assert_eq!(scene.told().pop().unwrap(), "reset ok");
    // What waited was of the session that was left.
    scene.command("get_state", json!({}));
    let state = scene.data();
    assert_eq!(state["pendingMessageCount"], 0);
    assert_eq!(
        (&state["steeringMode"], &state["followUpMode"]),
        (&json!("all"), &json!("all"))
    );
    scene.command("clone", json!({}));
    assert!(scene.told()[0].starts_with("clone: Cannot clone session"));
    scene.command("get_branch_messages", json!({}));
    assert_eq!(scene.data(), json!({"messages": []}));
}

#[test]
fn pi_pictures_wait_in_the_queue() {
    let mut scene = Scene::running();
    let picture = json!([{"type": "image", "data": "aGk=", "mimeType": "image/png"}]);
    scene.command("follow_up", json!({"message": "last"}));
    // A turn that runs takes words alone.
    scene.command("steer", json!({"message": "look", "images": picture}));
    assert_eq!(scene.told().pop().unwrap(), "steer ok");
    assert!(scene.asked.iter().all(|ask| ask.kind != "steer"));
    scene.end("end_turn", "x");
    let next = scene.accept("j2");
    assert_eq!(next["text"], "look");
    assert_eq!(
        next["attachments"],
        json!([{"mime": "image/png", "data": "aGk="}])
    );
}

#[test]
fn pi_first_session_is_of_agentd() {
    let mut scene = Scene::new(Begins::Named("/home/me/.pi/x y.jsonl".to_owned()));
    scene.command("get_state", json!({}));
    let notice = scene.said.remove(0);
    assert_eq!(notice["method"], "notify");
    assert!(
        notice["message"]
            .as_str()
            .unwrap()
            .contains("is no session of agentd"),
        "{notice}"
    );
    assert_eq!(scene.data()["sessionId"], SESSION);
    let mut scene = Scene::new(Begins::Copy("s".to_owned()));
    scene.command("get_state", json!({}));
    let copied = json!({"type": "session.fork", "ok": true, "session": SESSION, "from": "s",
        "agent": "a", "cwd": "/w"});
    let wanted = scene.answer("session.fork", copied);
    assert_eq!(wanted, json!({"session": "s", "to": SESSION}));
    scene.answer("session.history", past());
    assert_eq!(scene.data()["messageCount"], 6);
    // What is known of it goes to the daemon.
    scene.command("set_session_name", json!({"name": "n"}));
    let titled = json!({"type": "session.title", "ok": true, "session": SESSION, "title": "n"});
    scene.answer("session.title", titled);
    scene.command("compact", json!({"customInstructions": "short"}));
    // Who ends what goes on is answered when nothing does.
    scene.command("abort", json!({}));
    let compacted = json!({"type": "compact", "ok": true, "session": SESSION, "summary": "s"});
    let wanted = scene.answer("compact", compacted);
    assert_eq!(wanted["instructions"], "short");
    let told = [
        "session_info_changed",
        "set_session_name ok",
        "compaction_start",
        "compaction_end",
        "compact ok",
        "abort ok",
    ];
    assert_eq!(scene.told(), told);
}

#[test]
fn pi_models_are_the_agents() {
    let mut scene = Scene::new(Begins::New);
    let models = json!({"type": "models", "ok": true, "agent": "a", "models": [
        {"provider": "p", "model": "m", "thinking": ["low", "high"], "default": true},
        {"provider": "p", "model": "n", "default": false}]});
    scene.command("get_available_models", json!({}));
    assert_eq!(scene.answer("models", models), json!({"agent": "a"}));
    assert_eq!(scene.data()["models"][1]["id"], "n");
    scene.command("cycle_thinking_level", json!({}));
    assert_eq!(scene.said[0]["type"], "thinking_level_changed");
    assert_eq!(scene.data(), json!({"level": "low"}));
    scene.command("cycle_model", json!({}));
    assert_eq!(scene.data()["model"]["id"], "n");
    scene.command("set_model", json!({"provider": "p", "modelId": "none"}));
    assert_eq!(scene.told(), ["set_model: Model not found: p/none"]);
    scene.command("prompt", json!({"message": "x"}));
    let send = scene.asked("send").fields;
    assert_eq!(
        (&send["provider"], &send["model"], &send["thinking"]),
        (&json!("p"), &json!("n"), &json!("low"))
    );
}

#[test]
fn pi_refuses_what_it_can_not_do() {
    let mut scene = Scene::new(Begins::New);
    for (line, why) in [
        ("nonsense", "parse: Failed to parse command"),
        (
            "null",
            "parse: Failed to parse command: the line is not an object",
        ),
        ("{}", "undefined: Unknown command: undefined"),
        (r#"{"type":7}"#, "7: Unknown command: 7"),
        (
            r#"{"type":"send","text":"x"}"#,
            "send: this is a line of agentd's own",
        ),
        (r#"{"type":"prompt"}"#, "prompt: `message` is needed"),
        (
            r#"{"type":"prompt","message":"x","images":7}"#,
            "prompt: `images` is a list",
        ),
        (
            r#"{"type":"bash","command":"ls"}"#,
            "bash: agentd runs no commands",
        ),
        (
            r#"{"type":"set_steering_mode","mode":"x"}"#,
            "set_steering_mode: `mode` is needed",
        ),
        (
            r#"{"type":"set_thinking_level","level":"-x"}"#,
            "set_thinking_level: `level` must be 1 to 256 bytes",
        ),
        (r#"{"type":"compact"}"#, "compact: Nothing to compact"),
        (
            r#"{"type":"fork","entryId":"j9"}"#,
            "fork: Invalid entry ID",
        ),
        (
            r#"{"type":"set_session_name","name":""}"#,
            "set_session_name: Session name cannot be empty",
        ),
    ] {
        scene.line(line.as_bytes());
        let told = scene.told();
        assert!(
            told.len() == 1 && told[0].starts_with(why),
            "{line}: {told:?}"
        );
    }
    scene.line(br#"{"type":"get_state","id":{"a":[1]}}"#);
    assert_eq!(scene.said[0]["id"], json!({"a": [1]}));
    // A prompt that the daemon refuses leaves no run.
    scene.told();
    scene.command("prompt", json!({"message": "x"}));
    scene.answer(
        "send",
        json!({"type": "error", "code": "no-agent", "error": "none"}),
    );
    assert_eq!(scene.told(), ["prompt: none"]);
    assert!(scene.face.is_idle());
}
