//! What we say, read by the types of the protocol's own Rust library.

use rmcp::model::{
    CallToolRequest, CallToolResult, CreateTaskResult, DiscoverResult, ElicitRequest,
    GetTaskResult, InitializeResult, InputRequiredResult, ListToolsResult, ProgressNotification,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Played, meta};

/// Reads it, and gives it as the library writes it: all of it was understood.
fn understood<T: DeserializeOwned + Serialize>(said: &Value) -> Value {
    let read: T =
        serde_json::from_value(said.clone()).unwrap_or_else(|why| panic!("{why}: {said:#}"));
    serde_json::to_value(read).unwrap()
}

fn same<T: DeserializeOwned + Serialize>(said: &Value) {
    assert_eq!(understood::<T>(said), *said);
}

/// A client of 2025-11-25 with everything.
fn initialized(played: &mut Played) -> Value {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "x", "version": "1"}});
    played.says(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
    played.answer()["result"].clone()
}

#[test]
fn mcp_answers_have_published_types() {
    let mut played = Played::new();
    let begun = initialized(&mut played);
    let known = understood::<InitializeResult>(&begun);
    // Tasks of this revision are more than the library knows.
    for name in ["protocolVersion", "serverInfo", "instructions"] {
        assert_eq!(known[name], begun[name]);
    }
    played.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let list = played.answer()["result"].clone();
    let known = understood::<ListToolsResult>(&list);
    for (known, said) in known["tools"]
        .as_array()
        .unwrap()
        .iter()
        .zip(list["tools"].as_array().unwrap())
    {
        for name in [
            "name",
            "title",
            "description",
            "inputSchema",
            "outputSchema",
            "annotations",
        ] {
            assert_eq!(known[name], said[name], "{said:#}");
        }
    }
    let params =
        json!({"name": "ask", "arguments": {"prompt": "hi"}, "_meta": {"progressToken": 7}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    understood::<CallToolRequest>(&json!({"method": "tools/call", "params": params}));
    played.says(&call);
    let send = played.request();
    played.accepts(&send["id"]);
    let mut told = played.answer();
    told.as_object_mut().unwrap().shift_remove("jsonrpc");
    // Its numbers are floats.
    let known = understood::<ProgressNotification>(&told);
    assert_eq!(known["params"]["message"], told["params"]["message"]);
    played.daemon(&json!({"type": "question", "id": send["id"], "seq": 5, "job": "j1", "question_id": "j1-q1", "kind": "choice", "title": "Which?", "options": ["a"], "expires_at": "2026-01-01T00:00:00Z"}));
    let mut asked = played.said.pop().unwrap();
    played.said.clear();
    for name in ["jsonrpc", "id"] {
        asked.as_object_mut().unwrap().shift_remove(name);
    }
    same::<ElicitRequest>(&asked);
    played.ends(&send["id"], "hi");
    understood::<CallToolResult>(&played.answer()["result"]);
}

#[test]
fn mcp_answers_of_2026_have_published_types() {
    let mut played = Played::new();
    let all = meta(
        &json!({"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}),
    );
    let ask = |played: &mut Played, method: &str, mut params: Value| {
        params["_meta"] = all.clone();
        played.says(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
    };
    ask(&mut played, "server/discover", json!({}));
    let found = played.answer()["result"].clone();
    let known = understood::<DiscoverResult>(&found);
    assert_eq!(known["supportedVersions"], found["supportedVersions"]);
    assert_eq!(known["capabilities"], found["capabilities"]);
    ask(
        &mut played,
        "tools/call",
        json!({"name": "ask", "arguments": {"prompt": "hi", "wait_s": 0}}),
    );
    let send = played.request();
    played.accepts(&send["id"]);
    // The time was over before.
    let row = played.request();
    let job = json!({"job": "j1", "session": "s1", "agent": "timmy", "state": "running", "attempt": 1, "preview": "hi", "accepted_at": "2026-01-01T00:00:00Z"});
    played.daemon(&json!({"type": "jobs", "id": row["id"], "ok": true, "jobs": [job]}));
    same::<CreateTaskResult>(&played.answer()["result"]);
    ask(&mut played, "tasks/get", json!({"taskId": "j1"}));
    let row = played.request();
    played.daemon(&json!({"type": "jobs", "id": row["id"], "ok": true, "jobs": [job]}));
    let questions = played.request();
    let question = json!({"question_id": "j1-q1", "job": "j1", "session": "s1", "kind": "approval", "title": "Run it?", "expires_at": "2026-01-01T00:00:00Z"});
    played.daemon(
        &json!({"type": "questions", "id": questions["id"], "ok": true, "questions": [question]}),
    );
    same::<GetTaskResult>(&played.answer()["result"]);
    ask(
        &mut played,
        "tools/call",
        json!({"name": "ask", "arguments": {"prompt": "hi"}}),
    );
    let send = played.request();
    played.accepts(&send["id"]);
    played.daemon(&json!({"type": "question", "id": send["id"], "seq": 5, "job": "j1", "question_id": "j1-q1", "kind": "approval", "title": "Run it?", "expires_at": "2026-01-01T00:00:00Z"}));
    same::<InputRequiredResult>(&played.answer()["result"]);
}
