//! What agents ask.

use serde_json::json;

use super::scene::{SESSION, Scene, approval};

#[test]
fn gateway_questions_are_asked_and_answered() {
    let mut scene = Scene::running();
    for id in ["q1", "q2"] {
        scene.follow("question", approval(id));
    }
    let asked = scene.said[0]["params"]["payload"].clone();
    assert_eq!(
        (
            &asked["command"],
            &asked["choices"],
            &asked["allow_permanent"]
        ),
        (
            &json!("rm x"),
            &json!(["once", "session", "deny"]),
            &json!(false)
        )
    );
    // As the TUI answers: the oldest.
    for (choice, expected) in [
        (
            "session",
            json!({"question_id": "q1", "approve": true, "scope": "session"}),
        ),
        ("deny", json!({"question_id": "q2", "approve": false})),
    ] {
        scene.call(
            "approval.respond",
            json!({"choice": choice, "session_id": SESSION}),
        );
        let done = json!({"type": "answer", "ok": true, "question_id": expected["question_id"]});
        assert_eq!(scene.answer("answer", done), expected);
        assert_eq!(scene.result(), json!({"resolved": 1}));
    }
    scene.call(
        "approval.respond",
        json!({"choice": "once", "session_id": SESSION}),
    );
    assert_eq!(scene.result(), json!({"resolved": 0}));
    // The turn may go on before the daemon's own answer.
    scene.follow("question", approval("q5"));
    scene.told();
    let once = json!({"choice": "once", "session_id": SESSION});
    scene.call("approval.respond", once);
    let closed = json!({"job": "j1", "question_id": "q5", "by": "answer", "answer": "approve"});
    scene.follow("question_closed", closed);
    scene.delta("j1", 0, 0, "so");
    let done = json!({"type": "answer", "ok": true, "question_id": "q5"});
    scene.answer("answer", done);
    assert_eq!(
        scene.told(),
        [r#"result {"resolved":1}"#, "message.delta so"]
    );
}

#[test]
fn gateway_choices_and_secrets_are_answered() {
    let mut scene = Scene::running();
    let mut choice = approval("q3");
    (choice["kind"], choice["options"]) = (json!("choice"), json!(["a", "b"]));
    scene.follow("question", choice);
    let asked = &scene.said.pop().unwrap()["params"];
    assert_eq!(
        (&asked["type"], &asked["payload"]["choices"]),
        (&json!("clarify.request"), &json!(["a", "b"]))
    );
    // One that isn't taken is asked once more.
    for (answer, expected, line) in [
        (
            "c",
            json!({"question_id": "q3", "choice": "c"}),
            json!({"type": "error", "code": "invalid-request", "error": "no"}),
        ),
        (
            "b",
            json!({"question_id": "q3", "choice": "b"}),
            json!({"type": "answer", "ok": true, "question_id": "q3"}),
        ),
    ] {
        scene.told();
        scene.call(
            "clarify.respond",
            json!({"request_id": "q3", "answer": answer}),
        );
        assert_eq!(scene.answer("answer", line), expected);
    }
    assert_eq!(scene.told(), [r#"result {"status":"ok"}"#]);
    scene.call(
        "clarify.respond",
        json!({"request_id": "q3", "answer": "b"}),
    );
    assert!(scene.told()[0].starts_with("4009 no pending"));
    scene.call("sudo.respond", json!({"request_id": "q3", "password": "b"}));
    assert_eq!(scene.result(), json!({"status": "expired"}));
    let mut secret = approval("q4");
    secret["kind"] = json!("secret");
    scene.follow("question", secret);
    scene.call("secret.respond", json!({"request_id": "q4", "value": ""}));
    assert_eq!(
        scene.asked("answer").fields,
        json!({"question_id": "q4", "cancel": true})
    );
    scene.follow(
        "question_closed",
        json!({"job": "j1", "question_id": "q4", "by": "expiry"}),
    );
    assert_eq!(scene.told().pop().unwrap(), "secret.expire q4");
}

/// Nobody looks at the session of such a turn: it asks in the one that it was begun in.
#[test]
fn gateway_background_asks_where_it_was_begun() {
    let mut scene = Scene::open();
    let aside = json!({"session_id": SESSION, "text": "aside"});
    scene.call("prompt.background", aside);
    scene.accept("j1", true);
    scene.told();
    for id in ["q1", "q2"] {
        scene.follow("question", approval(id));
    }
    assert_eq!(scene.said[0]["params"]["session_id"], SESSION);
    assert_eq!(scene.told().len(), 2);
    // The TUI may have dropped them.
    scene.call(
        "session.active_list",
        json!({"current_session_id": SESSION}),
    );
    let asked_again = |line: &String| line.starts_with("approval.request");
    assert_eq!(
        scene.told().iter().filter(|line| asked_again(line)).count(),
        2
    );
    let all = json!({"choice": "once", "session_id": SESSION, "all": true});
    scene.call("approval.respond", all);
    for id in ["q1", "q2"] {
        let done = json!({"type": "answer", "ok": true, "question_id": id});
        assert_eq!(scene.answer("answer", done)["question_id"], id);
    }
    assert_eq!(scene.result(), json!({"resolved": 2}));
    let mut secret = approval("q3");
    secret["kind"] = json!("secret");
    scene.follow("question", secret);
    let closed = json!({"job": "j1", "question_id": "q3", "by": "expiry"});
    scene.follow("question_closed", closed);
    assert_eq!(scene.told(), ["secret.request q3", "secret.expire q3"]);
}
