//! Sessions that are shown and listed.

use serde_json::{Value, json};

use super::scene::{SESSION, Scene, approval, list};
use crate::scripted;

fn row(state: &str) -> Value {
    json!({"session": "s", "agent": "a", "cwd": "/w", "state": state, "title": "one", "preview": "eins",
        "model": "m", "turns": 2, "created_at": "1970-01-01T00:00:02.500Z", "last_active_at": "1970-01-01T00:00:03Z"})
}

fn past(last: Option<Value>) -> Value {
    let mut done = scripted::facts(
        "s",
        json!({"stop": "end_turn", "text": "eins", "job": "j1", "model": "m",
        "usage": {"input_tokens": 10, "output_tokens": 3},
        "tool_trace": [{"tool_call_id": "c", "name": "bash", "input": {"command": "ls"}, "ok": true, "output": "", "truncated": false}]}),
    );
    done["type"] = json!("message_end");
    let turn = |job: &str, state: &str, text: &str, said: &str, last: Option<Value>| {
        let mut row = json!({"job": job, "state": state, "accepted_at": "2026-11-27T00:00:00Z", "text": text,
            "messages": [{"message": 0, "text": said}], "final": last});
        if last.is_none() {
            row["questions"] = json!([approval("q1")]);
            row["questions"][0]["job"] = json!(job);
            row["questions"][0]["session"] = json!("s");
        }
        row
    };
    let waits = json!({"job": "j9", "state": "queued", "accepted_at": "2026-11-27T00:00:00Z",
        "text": "drei", "messages": [], "final": null});
    let state = if last.is_some() {
        "completed"
    } else {
        "running"
    };
    let second = turn("j2", state, "two", "zw", last);
    json!({"type": "session.history", "ok": true, "session": "s",
        "turns": [turn("j1", "completed", "one", "eins", Some(done)), second, waits]})
}

#[test]
fn gateway_activate_hydrates_and_asks_again() {
    // Another process had it: nothing of it is known here.
    let mut scene = Scene::open();
    scene.told();
    scene.delta("j2", 0, 0, "zwe");
    assert_eq!(scene.told(), [""; 0]);
    scene.call("session.activate", json!({"session_id": "s"}));
    scene.answer("session.list", list(&[row("waiting")]));
    scene.answer("session.history", past(None));
    let result = scene.said.remove(0)["result"].clone();
    let messages = json!([{"role": "user", "text": "one"},
        {"role": "tool", "name": "bash", "context": "ls"}, {"role": "assistant", "text": "eins"}]);
    assert_eq!(result["messages"], messages);
    // What was told of it since stands in for what the past has.
    assert_eq!(
        result["inflight"],
        json!({"user": "two", "assistant": "zwe", "streaming": true})
    );
    assert_eq!(
        (&result["status"], &result["running"], &result["queued"]),
        (&json!("waiting"), &json!(true), &json!({"user": "drei"}))
    );
    assert_eq!(
        (&result["started_at"], &result["info"]["usage"]["total"]),
        (&json!(2.5), &json!(13))
    );
    assert_eq!(scene.told(), ["approval.request rm x q1"]);
    // Once more when the client says that it shows the session: it may have dropped that.
    let current = json!({"current_session_id": "s"});
    for expected in [&["session.info", "approval.request rm x q1"][..], &[]] {
        scene.call("session.active_list", current.clone());
        assert_eq!(scene.told(), expected);
    }
    scene.delta("j2", 0, 2, "ei");
    assert_eq!(scene.told(), ["message.delta i"]);
    scene.call(
        "approval.respond",
        json!({"session_id": "s", "choice": "once"}),
    );
    assert_eq!(scene.asked("answer").fields["question_id"], "q1");
}

#[test]
fn gateway_end_during_hydration_is_not_lost() {
    let mut scene = Scene::open();
    scene.call("session.resume", json!({"session_id": "one", "cols": 80}));
    // By its title.
    scene.answer("session.list", list(&[]));
    scene.answer("session.list", list(&[row("working")]));
    scene.told();
    let late = scene.asked("session.history");
    let mut end = scripted::facts(
        "s",
        json!({"stop": "end_turn", "text": "zwei", "job": "j2"}),
    );
    end["type"] = json!("message_end");
    scene.follow("message_end", end.clone());
    scene.daemon(&late, past(None));
    assert_eq!(scene.told(), [""; 0]);
    let mut whole = past(Some(end));
    whole["turns"].as_array_mut().unwrap().pop();
    scene.answer("session.history", whole);
    let result = scene.result();
    // Whatever was so when the session was looked for.
    assert_eq!(
        (&result["running"], &result["status"]),
        (&json!(false), &json!("idle"))
    );
    assert_eq!(result["messages"][4]["text"], "zw");
    assert_eq!(
        (&result["resumed"], result.get("inflight")),
        (&json!("s"), None)
    );
}

#[test]
fn gateway_lists_each_session_once() {
    let mut scene = Scene::open();
    let mut own = row("idle");
    (own["session"], own["turns"]) = (json!(SESSION), json!(0));
    let mut done = row("idle");
    done["session"] = json!("old");
    let rows = [row("waiting"), done, own];
    scene.call(
        "session.active_list",
        json!({"current_session_id": SESSION}),
    );
    scene.answer("session.list", list(&rows));
    let result = scene.result();
    let shown: Vec<_> = (result["sessions"].as_array().unwrap().iter())
        .map(|row| {
            format!(
                "{} {} {} {}",
                row["id"], row["session_key"], row["status"], row["current"]
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            r#""s" "s" "waiting" false"#,
            r#""tui1-n" "tui1-n" "idle" true"#
        ]
    );
    // By the same names: a client knows which it has.
    scene.call("session.list", json!({"limit": 200}));
    assert_eq!(scene.answer("session.list", list(&rows))["limit"], 200);
    let result = scene.result();
    let ids: Vec<_> = (result["sessions"].as_array().unwrap().iter())
        .map(|row| row["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["s", "old", SESSION]);
    scene.call("session.most_recent", json!({}));
    scene.answer("session.list", list(&rows));
    assert_eq!(scene.result()["session_id"], "s");
}

#[test]
fn gateway_background_is_told_by_the_next_one() {
    let mut scene = Scene::new();
    scene.call("session.resume", json!({"session_id": "s", "cols": 80}));
    scene.answer("session.list", list(&[row("idle")]));
    let none =
        json!({"type": "session.history", "ok": true, "session": "s", "agent": "a", "turns": []});
    scene.answer("session.history", none);
    let job = |job: &str, state: &str| {
        json!({"job": job, "session": "s-1", "agent": "a", "state": state, "attempt": 1,
            "preview": "aside", "accepted_at": "2026-01-01T00:00:00Z"})
    };
    scene.told();
    // One ends before the list of them is there, which doesn't say so yet.
    let looked = scene.asked("jobs");
    assert_eq!(looked.fields["label"], "hermes-session=s");
    scene.end("j8", "end_turn", "first");
    let rows = json!([
        job("j7", "running"),
        job("j8", "running"),
        job("j6", "completed")
    ]);
    scene.daemon(&looked, json!({"type": "jobs", "ok": true, "jobs": rows}));
    assert_eq!(scene.told(), ["background.complete first"]);
    let asks = |job: &str| {
        let mut row = approval(&format!("{job}-q1"));
        (row["job"], row["session"]) = (json!(job), json!("s-1"));
        row
    };
    let open = json!([asks("j7"), asks("j9")]);
    scene.answer(
        "questions",
        json!({"type": "questions", "ok": true, "questions": open}),
    );
    let asked = scene.said.pop().unwrap();
    assert_eq!(asked["params"]["session_id"], "s");
    assert_eq!(asked["params"]["payload"]["request_id"], "j7-q1");
    assert_eq!(scene.told(), Vec::<String>::new());
    scene.end("j7", "end_turn", "second");
    assert_eq!(scene.told(), ["background.complete second"]);
    scene.call("process.stop", json!({}));
    assert_eq!(scene.result(), json!({"killed": 0}));
}
