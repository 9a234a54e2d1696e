//! Prompts: told, cancelled, asked about, and taken up again after a loss.

use std::time::Duration;

use super::*;

fn question(kind: &str) -> Value {
    json!({"type": "question", "seq": 5, "job": "j1", "question_id": "j1-q1", "kind": kind, "title": "May it?",
        "scopes": ["once", "session"], "expires_at": "2026-11-26T00:00:00Z"})
}

fn closed(by: &str, answer: Value) -> Value {
    json!({"type": "question_closed", "seq": 6, "job": "j1", "question_id": "j1-q1", "by": by, "answer": answer})
}

/// A scene with an accepted prompt.
fn running() -> (Scene, u64, Ask) {
    let mut scene = Scene::open();
    let id = scene.prompt("hi");
    let send = scene.asked("send");
    scene.line(&send, accepted("j1", 1));
    scene.told();
    (scene, id, send)
}

#[test]
fn acp_prompt_is_told_in_order_then_answered() {
    let mut scene = Scene::open();
    let id = scene.prompt("hi");
    let send = scene.asked("send");
    assert_eq!(
        send.fields,
        json!({"text": "hi", "session": SESSION, "agent": "pi", "cwd_if_new": "/w", "idempotency_key": "acp-n-2",
            "mode": "queue", "on_question": "wait", "retry": "never", "require_context": false, "must": ["on_question"],
            "after_failure": "hold"})
    );
    scene.line(&send, accepted("j1", 1));
    let thinks =
        json!({"type": "thinking_delta", "job": "j1", "message": 0, "offset": 0, "text": "hm"});
    let starts = json!({"type": "tool_start", "seq": 2, "job": "j1", "tool_call_id": "c1", "name": "bash",
        "input": {"command": "ls"}, "read_only": false});
    let prints = json!({"type": "tool_update", "job": "j1", "tool_call_id": "c1", "offset": 0, "output": "a"});
    let ends = json!({"type": "tool_end", "seq": 3, "job": "j1", "tool_call_id": "c1", "ok": true, "output": "a b",
        "truncated": false, "duration_ms": 1});
    let stray = json!({"type": "tool_end", "seq": 4, "job": "j1", "tool_call_id": "c2", "ok": false, "output": "",
        "truncated": false, "duration_ms": 1});
    let plan = json!({"type": "agent_event", "job": "j1", "kind": "plan",
        "data": [{"content": "x", "priority": "low", "status": "pending"}]});
    let bad_plan = json!({"type": "agent_event", "job": "j1", "kind": "plan",
        "data": [{"content": "x", "priority": "urgent", "status": "pending"}]});
    for line in [thinks, delta("j1", 0, "one"), starts, prints] {
        scene.line(&send, line);
    }
    scene.now = scene.face.deadline().unwrap();
    scene.face.timer(scene.now, &mut scene.out);
    scene.take();
    for line in [ends, stray, plan, bad_plan, ended("j1", 9, "end_turn")] {
        scene.line(&send, line);
    }
    assert_eq!(
        scene.told(),
        [
            "config_option_update".to_owned(),
            "agent_thought_chunk hm".to_owned(),
            "agent_message_chunk one".to_owned(),
            "tool_call j1.c1 in_progress ls".to_owned(),
            "tool_call_update j1.c1 in_progress a".to_owned(),
            "tool_call_update j1.c1 completed a b".to_owned(),
            "tool_call j1.c2 in_progress tool".to_owned(),
            "tool_call_update j1.c2 failed".to_owned(),
            "plan".to_owned(),
            "usage_update".to_owned(),
            format!("{id} end_turn"),
        ]
    );
    // What it is called is known now.
    assert_eq!(
        scene.asked("session.list").fields,
        json!({"session": SESSION})
    );
}

#[test]
fn acp_tool_is_told_as_the_daemon_does() {
    let (mut scene, _, send) = running();
    let starts = json!({"type": "tool_start", "seq": 2, "job": "j1", "tool_call_id": "c1", "name": "edit", "input": {},
        "read_only": false, "kind": "move", "locations": [{"path": "/a", "line": 3}, {"path": "b"}]});
    let ends = json!({"type": "tool_end", "seq": 3, "job": "j1", "tool_call_id": "c1", "ok": true, "output": "ok",
        "truncated": false, "duration_ms": 1, "diff": [{"path": "/a", "old": "x", "new": "y"}]});
    scene.line(&send, starts);
    scene.line(&send, ends);
    let [.., started, ended] = &scene.said[..] else {
        panic!("{:?}", scene.said);
    };
    let started = &started["params"]["update"];
    assert_eq!(started["kind"], "move");
    assert_eq!(started["locations"], json!([{"path": "/a", "line": 3}]));
    let shown = &ended["params"]["update"]["content"];
    let diff = json!({"type": "diff", "path": "/a", "oldText": "x", "newText": "y"});
    assert_eq!(shown[0], diff);
    assert_eq!(shown[1]["content"]["text"], "ok");
}

#[test]
fn acp_usage_is_told_as_the_protocol_counts() {
    let (mut scene, _, send) = running();
    scene.line(&send, ended("j1", 2, "max_tokens"));
    let [update, answer] = &scene.said[..] else {
        panic!("{:?}", scene.said);
    };
    let cost = json!({"amount": 0.5, "currency": "USD"});
    let used = json!({"sessionUpdate": "usage_update", "used": 42, "size": 900, "cost": cost});
    assert_eq!(update["params"]["update"], used);
    assert_eq!(answer["result"]["stopReason"], "max_tokens");
    assert_eq!(answer["result"]["usage"]["totalTokens"], 9);
}

#[test]
fn acp_prompts_while_busy_are_answered_in_order() {
    let (mut scene, first, send) = running();
    let second = scene.prompt("two");
    let queued = scene.asked("send");
    assert_ne!(
        queued.fields["idempotency_key"],
        send.fields["idempotency_key"]
    );
    scene.line(&queued, accepted("j2", 2));
    scene.line(&send, ended("j1", 3, "end_turn"));
    scene.line(&queued, ended("j2", 4, "end_turn"));
    let told = scene.told();
    let at = |id: u64| {
        told.iter()
            .position(|said| *said == format!("{id} end_turn"))
    };
    assert!(at(first).unwrap() < at(second).unwrap(), "{told:?}");
}

#[test]
fn acp_cancel_ends_every_prompt_of_its_session() {
    let (mut scene, first, send) = running();
    let second = scene.prompt("two");
    let queued = scene.asked("send");
    scene.notify("session/cancel", json!({"sessionId": SESSION}));
    assert_eq!(
        scene.asked("abort").fields["idempotency_key"],
        queued.fields["idempotency_key"]
    );
    assert_eq!(scene.asked("abort").fields["job"], "j1");
    // A second one asks for nothing more.
    scene.notify("session/cancel", json!({"sessionId": SESSION}));
    assert!(scene.asked.is_empty(), "{:?}", scene.asked);
    scene.line(&queued, accepted("j2", 2));
    assert_eq!(scene.asked("abort").fields["job"], "j2");
    // However it ends.
    scene.line(&send, failed("j1", 3, "worker-exited"));
    scene.line(&queued, ended("j2", 4, "cancelled"));
    let told = scene.told();
    assert!(told.contains(&format!("{first} cancelled")), "{told:?}");
    assert!(told.contains(&format!("{second} cancelled")), "{told:?}");
}

#[test]
fn acp_cancel_of_a_request_ends_that_one() {
    let (mut scene, _, _) = running();
    let second = scene.prompt("two");
    let queued = scene.asked("send");
    scene.line(&queued, accepted("j2", 2));
    scene.notify("$/cancel_request", json!({"requestId": second}));
    assert_eq!(scene.asked("abort").fields["job"], "j2");
    assert!(scene.asked.is_empty(), "{:?}", scene.asked);
}

#[test]
fn acp_failed_prompt_is_an_error() {
    for (code, number) in [
        ("rate-limit", -32603),
        ("agent-auth", -32000),
        ("unsupported", -32602),
    ] {
        let (mut scene, id, send) = running();
        scene.line(&send, failed("j1", 3, code));
        let said = scene.said.pop().unwrap();
        assert_eq!(
            (said["id"].as_u64(), &said["error"]["code"]),
            (Some(id), &json!(number))
        );
        assert_eq!(said["error"]["data"]["code"], code);
        assert_eq!(said["error"]["data"]["job"], "j1");
    }
    let mut scene = Scene::open();
    let id = scene.prompt("hi");
    let refused =
        json!({"type": "error", "code": "queue-full", "error": "full", "retryable": true});
    scene.answer("send", refused);
    assert_eq!(scene.told(), [format!("{id} error -32603")]);
}

#[test]
fn acp_held_prompt_is_given_back() {
    let (mut scene, id, send) = running();
    let held = json!({"type": "note", "seq": 2, "job": "j1", "level": "warning", "code": "held", "text": "held"});
    scene.line(&send, held);
    assert_eq!(scene.asked("abort").fields["job"], "j1");
    scene.line(&send, ended("j1", 3, "cancelled"));
    let said = scene.said.pop().unwrap();
    assert_eq!(
        (said["id"].as_u64(), &said["error"]["data"]["code"]),
        (Some(id), &json!("held"))
    );
}

#[test]
fn acp_question_is_about_an_announced_call() {
    let (mut scene, _, send) = running();
    scene.line(&send, question("approval"));
    let asked = scene.said[1].clone();
    assert_eq!(
        scene.told(),
        [
            "tool_call j1.j1-q1 pending May it?",
            "session/request_permission j1-q1"
        ]
    );
    assert_eq!(asked["params"]["toolCall"]["toolCallId"], "j1.j1-q1");
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "session"}});
    scene.hear(&json!({"jsonrpc": "2.0", "id": "j1-q1", "result": outcome}));
    let answer = json!({"question_id": "j1-q1", "approve": true, "scope": "session"});
    assert_eq!(scene.asked("answer").fields, answer);
    scene.line(&send, closed("answer", json!("approve")));
    assert_eq!(scene.told(), ["tool_call_update j1.j1-q1 completed"]);
    // A second answer is nobody's.
    scene.hear(&json!({"jsonrpc": "2.0", "id": "j1-q1", "result": {}}));
    assert!(scene.asked.is_empty());
}

#[test]
fn acp_question_answered_elsewhere_is_withdrawn() {
    let (mut scene, _, send) = running();
    scene.line(&send, question("approval"));
    scene.told();
    scene.line(&send, closed("expiry", json!(null)));
    assert_eq!(
        scene.told(),
        ["$/cancel_request j1-q1", "tool_call_update j1.j1-q1 failed"]
    );
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "once"}});
    scene.hear(&json!({"jsonrpc": "2.0", "id": "j1-q1", "result": outcome}));
    assert!(scene.asked.is_empty(), "{:?}", scene.asked);
}

#[test]
fn acp_question_of_the_wrong_answer_is_denied() {
    for said in [
        json!({"result": {"outcome": "selected"}}),
        json!({"error": {"code": -32601, "message": "no"}}),
        json!({"result": null}),
    ] {
        let (mut scene, _, send) = running();
        scene.line(&send, question("approval"));
        let mut answer = json!({"jsonrpc": "2.0", "id": "j1-q1"});
        answer
            .as_object_mut()
            .unwrap()
            .extend(said.as_object().unwrap().clone());
        scene.hear(&answer);
        let nobody = json!({"question_id": "j1-q1", "cancel": true});
        assert_eq!(scene.asked("answer").fields, nobody);
    }
    // One that was denied at once is shown to nobody.
    let (mut scene, _, send) = running();
    let mut denied = question("approval");
    denied.as_object_mut().unwrap().remove("expires_at");
    scene.line(&send, denied);
    assert!(scene.said.is_empty() && scene.asked.is_empty());
    // What the client can't be asked holds nobody up.
    let (mut scene, _, send) = running();
    scene.line(&send, question("secret"));
    assert_eq!(scene.asked("answer").fields["cancel"], true);
}

#[test]
fn acp_id_in_use_runs_nothing() {
    let (mut scene, id, send) = running();
    let params = json!({"sessionId": SESSION, "prompt": [{"type": "text", "text": "two"}]});
    let again = json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params});
    scene.hear(&again);
    assert_eq!(scene.told(), ["null error -32600"]);
    assert!(scene.asked.is_empty());
    scene.line(&send, ended("j1", 2, "end_turn"));
    scene.told();
    // It has its answer: then its id is as good as any.
    scene.hear(&again);
    scene.asked("send");
}

#[test]
fn acp_forgotten_turns_are_told_to_everybody() {
    let (mut scene, _, send) = running();
    let note = json!({"type": "note", "seq": 2, "job": "j1", "level": "warning",
        "code": "context-lost", "text": "gone"});
    scene.line(&send, note.clone());
    assert_eq!(scene.told(), ["agent_message_chunk [gone]\n\n"]);
    scene.line(&send, ended("j1", 3, "end_turn"));
    scene.told();
    // Another one in the place of the session that the client spoke in.
    scene.prompt("on");
    let send = scene.asked("send");
    assert_eq!(send.fields["agent"], "pi");
    let mut anew = accepted("j2", 4);
    anew["made"] = json!(true);
    scene.line(&send, anew);
    let told = scene.told();
    assert!(
        told[0].starts_with("agent_message_chunk [the session"),
        "{told:?}"
    );
}

#[test]
fn acp_notices_go_to_who_shows_them() {
    let note = json!({"type": "note", "seq": 2, "job": "j1", "level": "warning", "code": "x", "text": "mind"});
    let (mut scene, _, send) = running();
    scene.line(&send, note.clone());
    assert!(scene.told().is_empty());
    let can = json!({"session": {"notices": {}}});
    scene.request(
        "initialize",
        json!({"protocolVersion": 1, "clientCapabilities": can}),
    );
    scene.told();
    let mut note = note;
    note["seq"] = json!(3);
    scene.line(&send, note);
    assert_eq!(scene.told(), ["notice mind"]);
}

#[test]
fn acp_prompt_without_an_answer_is_asked_again() {
    let mut scene = Scene::open();
    scene.prompt("hi");
    let first = scene.asked("send");
    // The one that stops has not taken it: the next one is asked.
    let draining =
        json!({"type": "error", "code": "draining", "error": "stopping", "retryable": true});
    scene.line(&first, draining);
    assert!(scene.said.is_empty());
    scene.lose();
    let again = scene.asked("send");
    assert_eq!(again.fields, first.fields);
    assert_ne!(again.ticket, first.ticket);
    scene.line(&again, accepted("j1", 1));
    scene.lose();
    assert!(
        scene.asked.iter().all(|ask| ask.kind != "send"),
        "{:?}",
        scene.asked
    );
}

#[test]
fn acp_turn_is_taken_up_after_a_loss() {
    let (mut scene, id, send) = running();
    scene.line(&send, delta("j1", 0, "one "));
    scene.told();
    scene.lose();
    let subscribe = scene.asked("subscribe");
    assert_eq!(subscribe.fields, json!({"jobs": ["j1"], "after": 1}));
    scene.line(&subscribe, json!({"type": "live", "seq": 1, "epoch": "e"}));
    scene.line(&subscribe, delta("j1", 0, "one two"));
    scene.line(&subscribe, failed("j1", 2, "interrupted"));
    let told = scene.told();
    assert_eq!(told[0], "agent_message_chunk two");
    assert_eq!(told.last(), Some(&format!("{id} error -32010")));
}

/// A turn that is cancelled takes a moment to end.
#[test]
fn acp_deleted_session_waits_for_its_turns() {
    let (mut scene, id, send) = running();
    let deleted = scene.request("session/delete", json!({"sessionId": SESSION}));
    let busy = json!({"type": "error", "code": "session-busy", "error": "1 unfinished turn", "retryable": true});
    scene.answer("session.close", busy);
    scene.line(&send, ended("j1", 2, "cancelled"));
    let told = scene.told();
    assert!(told.contains(&format!("{id} cancelled")), "{told:?}");
    assert!(!told.contains(&format!("{deleted} ")), "{told:?}");
    scene.now = scene.face.deadline().unwrap();
    scene.face.timer(scene.now, &mut scene.out);
    scene.take();
    scene.answer(
        "session.close",
        json!({"type": "session.close", "ok": true, "session": SESSION}),
    );
    assert_eq!(scene.told(), [format!("{deleted} ")]);
}

#[test]
fn acp_cancel_of_an_unknown_outcome_says_so() {
    let (mut scene, _, _) = running();
    let id = scene.prompt("two");
    scene.notify("session/cancel", json!({"sessionId": SESSION}));
    let unknown = json!({"type": "error", "code": "outcome-unknown", "error": "who knows", "retryable": true});
    scene.answer("send", unknown);
    let said = scene.said.pop().unwrap();
    assert_eq!(
        (said["id"].as_u64(), &said["error"]["data"]["code"]),
        (Some(id), &json!("outcome-unknown"))
    );
    assert_eq!(said["error"]["data"]["retryable"], false);
}

#[test]
fn acp_turn_whose_lines_are_gone_is_lost() {
    let (mut scene, id, _) = running();
    scene.lose();
    let invalid = json!({"type": "error", "code": "cursor-expired", "error": "forgotten", "retryable": false});
    scene.answer("subscribe", invalid);
    let said = scene.said.pop().unwrap();
    assert_eq!(
        (said["id"].as_u64(), &said["error"]["data"]["code"]),
        (Some(id), &json!("outcome-unknown"))
    );
}

#[test]
fn acp_daemon_that_keeps_dying_is_given_up() {
    let (mut scene, id, _) = running();
    let waiting = scene.prompt("two");
    for _ in 0..6 {
        scene.lose();
    }
    let told = scene.told();
    assert!(told.contains(&format!("{id} error -32010")), "{told:?}");
    assert!(
        told.contains(&format!("{waiting} error -32010")),
        "{told:?}"
    );
    assert!(scene.asked.is_empty(), "{:?}", scene.asked);
}

#[test]
fn acp_output_is_told_whole_and_seldom() {
    let (mut scene, _, send) = running();
    let starts = json!({"type": "tool_start", "seq": 2, "job": "j1", "tool_call_id": "c1", "name": "bash", "input": {}, "read_only": false});
    scene.line(&send, starts);
    scene.told();
    let first = scene.now;
    for (offset, output) in [(0, "a"), (1, "b"), (9, "lost"), (2, "c")] {
        scene.now += Duration::from_millis(1);
        let more = json!({"type": "tool_update", "job": "j1", "tool_call_id": "c1", "offset": offset, "output": output});
        scene.line(&send, more);
    }
    assert!(scene.told().is_empty());
    let at = scene.face.deadline().unwrap();
    assert_eq!(at, first + Duration::from_millis(101));
    scene.face.timer(at, &mut scene.out);
    scene.take();
    assert_eq!(scene.told(), ["tool_call_update j1.c1 in_progress abc"]);
    assert_eq!(scene.face.deadline(), None);
}
