//! Questions of agents, and what becomes of them in each revision.

use serde_json::{Value, json};

use super::{Played, has, meta};

#[test]
fn mcp_question_is_put_to_the_user() {
    let mut played = Played::new();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "test"}});
    played.says(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
    played.answer();
    played.calls(1, "ask", &json!({"prompt": "hi"}));
    let send = played.request();
    assert_eq!(
        (&send["on_question"], &send["must"]),
        (&json!("wait"), &json!(["on_question"]))
    );
    played.accepts(&send["id"]);
    let question = |n: u64, kind: &str| json!({"type": "question", "id": send["id"], "seq": 5, "job": "j1", "question_id": format!("j1-q{n}"), "kind": kind, "title": "Run it?", "options": ["a"], "expires_at": "2026-01-01T00:00:00Z"});
    played.daemon(&question(1, "approval"));
    let asked = played.answer();
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "timmy (j1) asks: Run it?");
    let accepted = json!({"action": "accept", "content": {"approve": true}});
    played.says(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": accepted}));
    let answer = played.request();
    assert!(
        has(
            &answer,
            &json!({"type": "answer", "question_id": "j1-q1", "approve": true})
        ),
        "{answer}"
    );
    // One that somebody else has answered is taken back.
    played.daemon(&question(2, "choice"));
    let asked = played.answer();
    played.daemon(&json!({"type": "question_closed", "id": send["id"], "seq": 6, "job": "j1", "question_id": "j1-q2", "by": "answer"}));
    assert_eq!(played.answer()["params"]["requestId"], asked["id"]);
    // A form that doesn't fit is no answer, and nobody waits for another one.
    played.daemon(&question(3, "choice"));
    let asked = played.answer();
    let wrong = json!({"action": "accept", "content": {"choice": "b"}});
    played.says(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": wrong}));
    let answer = played.request();
    played.daemon(&json!({"type": "error", "id": answer["id"], "code": "invalid-request", "error": "one of a", "retryable": false}));
    assert_eq!(played.request()["cancel"], true);
    played.ends(&send["id"], "done");
    assert_eq!(
        played.answer()["result"]["structuredContent"]["text"],
        "done"
    );
}

#[test]
fn mcp_question_without_forms_ends_the_wait() {
    for kind in ["approval", "secret"] {
        let mut played = Played::new();
        let elicitation = if kind == "secret" {
            json!({"elicitation": {}})
        } else {
            json!({})
        };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": elicitation});
        played.says(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        played.answer();
        played.calls(1, "ask", &json!({"prompt": "hi"}));
        let send = played.request();
        played.accepts(&send["id"]);
        let mut question = json!({"type": "question", "id": send["id"], "seq": 5, "job": "j1", "question_id": "j1-q1", "kind": kind, "title": "Run it?"});
        // Denied at once: nobody waits.
        played.daemon(&question);
        assert_eq!(played.said, Vec::<Value>::new());
        question["expires_at"] = json!("2026-01-01T00:00:00Z");
        played.daemon(&question);
        let said = played.answer();
        let structured = &said["result"]["structuredContent"];
        assert_eq!(
            (&structured["state"], &structured["question"]["title"]),
            (&json!("waiting"), &json!("Run it?"))
        );
        assert!(
            structured["hint"]
                .as_str()
                .unwrap()
                .contains("agentctl answer j1-q1")
        );
    }
}

#[test]
fn mcp_question_of_2026_is_an_answer() {
    let mut played = Played::new();
    let params = json!({"name": "ask", "arguments": {"prompt": "hi"}, "_meta": meta(&json!({"elicitation": {"form": {}}}))});
    played.says(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
    let send = played.request();
    played.accepts(&send["id"]);
    played.daemon(&json!({"type": "question", "id": send["id"], "seq": 5, "job": "j1", "question_id": "j1-q1", "kind": "approval", "title": "Run it?", "expires_at": "2026-01-01T00:00:00Z"}));
    let said = played.answer();
    let result = &said["result"];
    assert_eq!(result["resultType"], "input_required", "{said}");
    assert_eq!(
        result["inputRequests"]["j1-q1"]["method"],
        "elicitation/create"
    );
    // By a face that knows nothing of it.
    let mut played = Played::with(|settings| settings.nonce = "another".to_owned());
    let mut params = params;
    params["requestState"] = result["requestState"].clone();
    params["inputResponses"] = json!({"j1-q1": {"action": "decline"}});
    played.says(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}));
    let answer = played.request();
    assert!(
        has(
            &answer,
            &json!({"type": "answer", "question_id": "j1-q1", "approve": false})
        ),
        "{answer}"
    );
    played
        .daemon(&json!({"type": "answer", "id": answer["id"], "ok": true, "question_id": "j1-q1"}));
    let again = played.request();
    assert_eq!(again["idempotency_key"], send["idempotency_key"]);
    played.daemon(&json!({"type": "accepted", "id": again["id"], "seq": 1, "replayed": true, "job": "j1", "session": "s1", "agent": "timmy", "ignored": []}));
    // It is told from its beginning, with what was asked then.
    played.daemon(&json!({"type": "question", "id": again["id"], "seq": 5, "job": "j1", "question_id": "j1-q1", "kind": "approval", "title": "Run it?", "expires_at": "2026-01-01T00:00:00Z"}));
    let open = played.request();
    assert!(
        has(&open, &json!({"type": "questions", "session": "s1"})),
        "{open}"
    );
    played.daemon(&json!({"type": "questions", "id": open["id"], "ok": true, "questions": []}));
    assert_eq!(played.said, Vec::<Value>::new());
    played.ends(&again["id"], "denied");
    let said = played.answer();
    assert_eq!(said["result"]["structuredContent"]["text"], "denied");
    assert_eq!(said["result"]["resultType"], "complete");
    for state in [
        "x",
        "{}",
        r#"{"key":"k","job":"j1","question":"j2-q1","kind":"approval"}"#,
    ] {
        params["requestState"] = json!(state);
        played.says(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}));
        assert_eq!(played.answer()["result"]["isError"], true, "{state}");
    }
    assert_eq!(played.asked, Vec::<Value>::new());
}
