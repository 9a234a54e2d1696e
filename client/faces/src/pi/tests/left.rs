//! A client that comes back to turns which an earlier one left.

use agentd_client::ClientError;
use serde_json::json;

use super::scene::{Scene, facts};
use super::{BEGUN, past};
use crate::face::Face as _;
use crate::pi::Begins;

/// The session `s` with a turn that runs, as `j3`, and one behind it.
fn come_back() -> Scene {
    let mut scene = Scene::new(Begins::Named("s".to_owned()));
    scene.command("get_state", json!({}));
    let mut history = past();
    for (job, state, text) in [("j3", "running", "three"), ("j4", "queued", "four")] {
        let turn = json!({"job": job, "state": state, "accepted_at": "2026-11-27T00:00:00Z",
            "text": text, "messages": [], "final": null});
        history["turns"].as_array_mut().unwrap().push(turn);
    }
    scene.answer("session.history", history);
    let jobs = json!({"type": "jobs", "ok": true, "jobs": []});
    scene.answer("jobs", jobs);
    scene
}

#[test]
fn pi_turn_that_was_left_is_told() {
    let mut scene = come_back();
    let wanted = scene.asked("subscribe");
    assert_eq!(wanted.fields, json!({"jobs": ["j3", "j4"], "after": 0}));
    let state = scene.said.remove(0)["data"].clone();
    for (field, expected) in [
        ("isStreaming", json!(true)),
        ("messageCount", json!(6)),
        ("pendingMessageCount", json!(1)),
    ] {
        assert_eq!(state[field], expected, "{state}");
    }
    assert_eq!(state["model"]["id"], "m");
    assert_eq!(scene.told(), &BEGUN[1..]);
    // Of what was missed, only what is open is asked.
    let missed = [
        json!({"type": "question", "question_id": "j3-q1", "kind": "text", "title": "t"}),
        json!({"type": "question_closed", "question_id": "j3-q1", "by": "answer"}),
        json!({"type": "note", "level": "info", "code": "steered", "text": "left"}),
        json!({"type": "question", "question_id": "j3-q2", "kind": "choice", "title": "t",
            "detail": "d", "options": ["a"], "expires_at": "1970-01-01T00:00:02.007Z"}),
    ];
    for line in missed {
        scene.of("j3", &wanted, line);
    }
    assert_eq!(scene.told(), ["message_start user", "message_end user"]);
    scene.daemon(
        &wanted,
        json!({"type": "live", "seq": scene.seq, "epoch": "e"}),
    );
    let asked = scene.said.remove(0);
    assert_eq!(
        (&asked["id"], &asked["title"]),
        (&json!("j3-q2"), &json!("t\nd"))
    );
    let said = json!({"type": "message_delta", "message": 0, "offset": 0, "text": "so far", "native": true});
    scene.of("j3", &wanted, said);
    scene.command("get_messages", json!({}));
    let mut history = past();
    let row = json!({"job": "j3", "state": "running", "accepted_at": "2026-11-27T00:00:00Z",
        "text": "three", "messages": [{"message": 0, "text": "so far"}], "final": null});
    history["turns"].as_array_mut().unwrap().push(row);
    scene.answer("session.history", history);
    // As in pi, what is being said is none yet.
    assert_eq!(scene.data()["messages"].as_array().unwrap().len(), 8);
    // The one behind it is told next, in the same run; then nothing more.
    let mut end = facts(json!({"stop": "end_turn", "text": "so far"}));
    end["type"] = json!("message_end");
    scene.of("j3", &wanted, end.clone());
    let told = scene.told();
    assert!(!told.contains(&"agent_end".to_owned()), "{told:?}");
    assert_eq!(
        told[told.len() - 4..],
        [
            "queue [] []",
            "turn_start",
            "message_start user",
            "message_end user"
        ]
    );
    end["text"] = json!("vier");
    scene.of("j4", &wanted, end);
    assert_eq!(scene.told().pop().unwrap(), "settled false");
    scene.asked("unsubscribe");
    // Nothing begins by itself after an abort: what waited with the daemon waits here.
    let mut scene = come_back();
    let wanted = scene.asked("subscribe");
    scene.command("abort", json!({}));
    assert_eq!(scene.asked("abort").fields, json!({"job": "j4"}));
    assert_eq!(scene.asked("abort").fields, json!({"job": "j3"}));
    assert_eq!(scene.told().pop().unwrap(), r#"queue [] ["four"]"#);
    let mut end = facts(json!({"stop": "cancelled", "text": ""}));
    end["type"] = json!("message_end");
    scene.of("j4", &wanted, end.clone());
    scene.of("j3", &wanted, end);
    let told = scene.told();
    assert_eq!(told[told.len() - 2..], ["settled true", "abort ok"]);
    scene.command("clear_queue", json!({}));
    assert_eq!(scene.data(), json!({"steering": [], "followUp": ["four"]}));
}

/// What is there isn't known then: nothing is told as if it were empty.
#[test]
fn pi_daemon_that_does_not_answer_is_told() {
    let why = ClientError::Unreachable {
        error: "the daemon doesn't answer".to_owned(),
        hint: Some("look".to_owned()),
    };
    let unreachable = |scene: &mut Scene| {
        scene.face.unreachable(&why, scene.now, &mut scene.out);
        scene.take();
        scene.told()
    };
    let failed = |kind: &str| format!("{kind}: the daemon doesn't answer: look");
    for (begins, asks) in [
        (Begins::Named("s".to_owned()), "session.history"),
        (Begins::Copy("s".to_owned()), "session.fork"),
        (Begins::Latest, "session.list"),
    ] {
        let mut scene = Scene::new(begins);
        for kind in ["get_state", "get_messages"] {
            scene.command(kind, json!({}));
        }
        scene.asked(asks);
        let told = ["get_state", "get_messages"].map(failed);
        assert_eq!(unreachable(&mut scene), told);
        // It is looked for again.
        scene.command("get_messages", json!({}));
        scene.asked(asks);
    }
    let mut scene = Scene::new(Begins::New);
    scene.command("get_available_models", json!({}));
    scene.command("get_commands", json!({}));
    let told = ["get_available_models", "get_commands"].map(failed);
    assert_eq!(unreachable(&mut scene), told);
}

#[test]
fn pi_queue_behind_a_failure_is_told() {
    let told = "what waited behind a turn that failed or was ended is not run, send it again: `first…`, `then`";
    let error = || facts(json!({"code": "interrupted", "error": "agentd died"}));
    let queued = || {
        let mut scene = Scene::running();
        for text in ["first\nand more", "then"] {
            scene.command("follow_up", json!({"message": text}));
        }
        scene
    };
    // The turn failed, was aborted and has not ended, or its client's next prompt is refused.
    let mut failed = queued();
    failed.turn("error", error());
    let mut aborted = queued();
    aborted.command("abort", json!({}));
    let mut refused = queued();
    refused.turn("error", error());
    refused.command("prompt", json!({"message": "on"}));
    for mut scene in [failed, aborted, refused] {
        scene.asked.retain(|ask| ask.kind != "steer");
        scene.said.clear();
        scene.face.client_ended(scene.now, &mut scene.out);
        scene.take();
        if scene.said.is_empty() {
            let full = json!({"type": "error", "code": "queue-full", "error": "full"});
            scene.answer("send", full);
        }
        let notes = scene
            .said
            .iter()
            .filter_map(|said| said["message"].as_str());
        assert_eq!(notes.collect::<Vec<_>>(), [told]);
        assert!(scene.face.is_done());
        assert!(scene.asked.iter().all(|ask| ask.fields["text"] != "then"));
    }
    // What is left and can't be taken is told, too.
    let mut scene = Scene::running();
    scene.command("follow_up", json!({"message": "then"}));
    scene.said.clear();
    scene.face.client_ended(scene.now, &mut scene.out);
    scene.take();
    let left = scene.asked.pop().unwrap();
    assert_eq!(left.fields["text"], "then");
    let full = json!({"type": "error", "code": "queue-full", "error": "full"});
    scene.daemon(&left, full);
    assert_eq!(scene.said[0]["message"], "`then` is not run: full");
}
