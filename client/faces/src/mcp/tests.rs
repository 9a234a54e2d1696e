//! Conversations of real clients, and what bad ones say.
//!
//! A recording has lines of four kinds: `c>` and `c<` are the client's and ours, `d<` and `d>` what the
//! daemon is asked and says. What we say is given by the members that matter.

mod questions;
mod schema;

use std::time::{Duration, Instant};

use agentd_client::ClientError;
use agentd_client::wire::Received;
use serde_json::{Value, json};

use super::{Mcp, Settings};
use crate::face::{Face as _, Outbox, Ticket};

const RECORDINGS: &[(&str, &str)] = &[
    (
        "Claude Code, 2026-07-28",
        include_str!("recordings/claude-code-2026-07-28.txt"),
    ),
    (
        "Claude Code, 2025-11-25",
        include_str!("recordings/claude-code-2025-11-25.txt"),
    ),
    (
        "Codex, 2025-06-18",
        include_str!("recordings/codex-2025-06-18.txt"),
    ),
    (
        "Python SDK, 2026-07-28",
        include_str!("recordings/python-sdk-2.3-2026-07-28.txt"),
    ),
    (
        "Inspector, 2025-11-25",
        include_str!("recordings/inspector-2025-11-25.txt"),
    ),
];

/// A face between a client and a daemon that are both us.
struct Played {
    face: Mcp,
    out: Outbox,
    now: Instant,
    /// Said to the client and not looked at.
    said: Vec<Value>,
    /// Asked of the daemon and not looked at.
    asked: Vec<Value>,
}

impl Played {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(set: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            cwd: Some("/here".into()),
            answers: false,
            abort_cancelled: false,
            scope: Some("4711".to_owned()),
            nonce: "nonce".to_owned(),
            inside: false,
        };
        set(&mut settings);
        Self {
            face: Mcp::new(settings),
            out: Outbox::default(),
            now: Instant::now(),
            said: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn looked(&mut self) {
        for line in self.out.take_client() {
            self.said.push(serde_json::from_str(&line).unwrap());
        }
        for ask in self.out.take_daemon() {
            let mut fields = ask.fields;
            fields["type"] = json!(ask.kind);
            fields["id"] = json!(ask.ticket.0);
            self.asked.push(fields);
        }
    }

    fn client(&mut self, line: &str) {
        self.face
            .client_line(line.as_bytes(), self.now, &mut self.out);
        self.looked();
    }

    fn says(&mut self, message: &Value) {
        self.client(&message.to_string());
    }

    /// A call of 2025-11-25, or of what was initialized.
    fn calls(&mut self, id: u64, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.says(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    fn daemon(&mut self, line: &Value) {
        let received = Received::parse(line.to_string().as_bytes());
        assert!(received.line.is_some(), "{line}");
        let ticket = line["id"].as_u64().map(Ticket);
        self.face
            .daemon_line(ticket, received, self.now, &mut self.out);
        self.looked();
    }

    fn later(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.face.timer(self.now, &mut self.out);
        self.looked();
    }

    fn lost(&mut self) {
        self.face.daemon_lost(self.now, &mut self.out);
        self.looked();
    }

    /// The only thing that was said.
    fn answer(&mut self) -> Value {
        assert_eq!(self.said.len(), 1, "{:#?}", self.said);
        self.said.remove(0)
    }

    /// The only thing that was asked.
    fn request(&mut self) -> Value {
        assert_eq!(self.asked.len(), 1, "{:#?}", self.asked);
        self.asked.remove(0)
    }

    fn accepts(&mut self, ticket: &Value) {
        self.daemon(&json!({
            "type": "accepted", "id": ticket, "seq": 1, "replayed": false, "job": "j1", "session": "s1",
            "agent": "timmy", "ignored": [], "running": true,
        }));
    }

    fn ends(&mut self, ticket: &Value, text: &str) {
        self.daemon(&json!({
            "type": "message_end", "id": ticket, "stop": "end_turn", "job": "j1", "session": "s1",
            "agent": "timmy", "text": text,
        }));
    }
}

/// Is all of it there?
fn has(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => expected
            .iter()
            .all(|(name, value)| found.get(name).is_some_and(|found| has(found, value))),
        (Value::Array(found), Value::Array(expected)) => {
            found.len() >= expected.len() && found.iter().zip(expected).all(|(f, e)| has(f, e))
        }
        (found, expected) => found == expected,
    }
}

fn is_error(said: &Value, code: i64) -> bool {
    said["error"]["code"] == code && said["error"]["message"].is_string()
}

/// What 2026-07-28 says with each request.
fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

#[test]
fn mcp_clients_are_served_as_they_were_recorded() {
    for (client, recording) in RECORDINGS {
        let mut played = Played::new();
        for line in recording.lines().filter(|line| !line.starts_with('#')) {
            let (kind, text) = line.split_once(' ').unwrap();
            let value: Value = serde_json::from_str(text).unwrap();
            let found = match kind {
                "c>" => {
                    played.client(text);
                    continue;
                }
                "d>" => {
                    played.daemon(&value);
                    continue;
                }
                "c<" => &mut played.said,
                "d<" => &mut played.asked,
                _ => panic!("{client}: {line}"),
            };
            assert!(!found.is_empty(), "{client}: nothing came: {line}");
            let found = found.remove(0);
            assert!(has(&found, &value), "{client}: {line}\nfound {found:#}");
        }
        assert_eq!((played.said, played.asked), (vec![], vec![]), "{client}");
    }
}

#[test]
fn mcp_bad_lines_are_answered_and_survived() {
    let mut played = Played::new();
    for (line, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/run"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, -32602),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"ask"}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":[1]}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"answer","arguments":{}}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":[]}}"#,
            -32602,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#, -32602),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"x"}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{"cursor":"x"}}"#,
            -32602,
        ),
    ] {
        played.client(line);
        let said = played.answer();
        assert!(is_error(&said, code), "{line}: {said}");
    }
    for line in [
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/unheard-of","params":[1]}"#,
    ] {
        played.client(line);
        assert_eq!(played.said, Vec::<Value>::new(), "{line}");
    }
    played
        .face
        .client_line_too_long(7, played.now, &mut played.out);
    played.looked();
    assert!(is_error(&played.answer(), -32600));
    played.client(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    assert_eq!(
        played.answer(),
        json!({"jsonrpc": "2.0", "id": "p", "result": {}})
    );
    assert_eq!(played.asked, Vec::<Value>::new());
}

#[test]
fn mcp_wrong_arguments_are_told_to_the_model() {
    let mut played = Played::new();
    for (tool, arguments, why) in [
        ("ask", json!({}), "prompt"),
        ("ask", json!({"prompt": 5}), "expected a string"),
        (
            "ask",
            json!({"prompt": "x", "wait_s": -1}),
            "`wait_s` is -1",
        ),
        (
            "ask",
            json!({"prompt": "x", "wait_s": 1e9}),
            "expected 0 to 3600",
        ),
        ("ask", json!({"prompt": "x", "sesion": "y"}), "`sesion`"),
        ("dispatch", json!({"jobs": "x"}), "expected a sequence"),
        ("collect", json!({"jobs": ["7"]}), "`7` is not a job"),
        ("collect", json!({"jobs": [7]}), "expected a string"),
        ("agents", json!({"x": 1}), "no argument `x`"),
        ("history", json!({"session": "s", "job": "x"}), "not a job"),
    ] {
        played.calls(1, tool, &arguments);
        let said = played.answer();
        let result = &said["result"];
        assert_eq!(result["isError"], true, "{said}");
        assert_eq!(result["structuredContent"]["code"], "invalid-request");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(why), "{tool} {arguments}: {text}");
    }
    assert_eq!(played.asked, Vec::<Value>::new());
}

#[test]
fn mcp_ask_returns_while_its_job_goes_on() {
    let mut played = Played::new();
    played.calls(
        1,
        "ask",
        &json!({"prompt": "hi", "wait_s": 5, "cwd": "sub"}),
    );
    let send = played.request();
    assert_eq!(send["cwd"], "/here/sub", "{send}");
    assert_eq!(send.get("on_question"), None, "{send}");
    // However little time there is, whether it was accepted is waited for.
    played.later(6);
    assert_eq!(played.said, Vec::<Value>::new());
    played.accepts(&send["id"]);
    let said = played.answer();
    let structured = &said["result"]["structuredContent"];
    assert!(
        has(
            structured,
            &json!({"state": "running", "job": "j1", "session": "s1"})
        ),
        "{said}"
    );
    assert!(structured["hint"].as_str().unwrap().contains("collect"));
    // What is still said of it is nobody's.
    played.ends(&send["id"], "late");
    assert_eq!(played.said, Vec::<Value>::new());
}

#[test]
fn mcp_text_so_far_ends_the_wait() {
    let mut played = Played::new();
    played.calls(1, "ask", &json!({"prompt": "hi"}));
    let send = played.request();
    played.accepts(&send["id"]);
    let delta = json!({"type": "message_delta", "id": send["id"], "job": "j1", "message": 0, "offset": 0, "text": "half", "native": true});
    played.daemon(&delta);
    played.later(44);
    assert_eq!(played.said, Vec::<Value>::new());
    played.later(1);
    assert_eq!(
        played.answer()["result"]["structuredContent"]["text"],
        "half"
    );
}

#[test]
fn mcp_daemon_lost_is_asked_again_by_key() {
    let mut played = Played::new();
    played.calls(1, "ask", &json!({"prompt": "hi"}));
    let first = played.request();
    played.accepts(&first["id"]);
    played.lost();
    let second = played.request();
    assert_ne!(first["id"], second["id"]);
    assert_eq!(first["idempotency_key"], second["idempotency_key"]);
    played.ends(&first["id"], "of another connection");
    assert_eq!(played.said, Vec::<Value>::new());
    played.ends(&second["id"], "hi");
    assert_eq!(played.answer()["result"]["structuredContent"]["text"], "hi");
    // A word to a turn may have been taken.
    played.calls(2, "steer", &json!({"job": "j1", "text": "left"}));
    played.request();
    played.lost();
    assert_eq!(
        played.answer()["result"]["structuredContent"]["code"],
        "outcome-unknown"
    );
    assert_eq!(played.asked, Vec::<Value>::new());
}

/// A model that took it for a failure would ask again.
#[test]
fn mcp_lost_call_may_have_been_accepted() {
    let gone = ClientError::Unreachable {
        error: "no daemon is running".to_owned(),
        hint: None,
    };
    let jobs = json!({"jobs": [{"prompt": "hi"}]});
    for (tool, arguments, lost, state) in [
        ("ask", json!({"prompt": "hi"}), true, "unknown"),
        ("dispatch", jobs.clone(), true, "unknown"),
        ("agents", json!({}), true, "failed"),
        ("dispatch", jobs, false, "failed"),
    ] {
        let mut played = Played::new();
        played.calls(1, tool, &arguments);
        played.request();
        if lost {
            played.lost();
            played.request();
        }
        played.face.unreachable(&gone, played.now, &mut played.out);
        played.looked();
        let said = played.answer();
        let told = &said["result"]["structuredContent"];
        assert_eq!(told["state"], state, "{tool}: {told}");
    }
}

#[test]
fn mcp_task_tells_unknown_from_wrong() {
    for (code, number) in [("outcome-unknown", -32603), ("unknown-agent", -32602)] {
        let mut played = Played::new();
        let params = json!({"name": "ask", "arguments": {"prompt": "hi"}, "task": {}});
        played.says(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
        let asked = played.request();
        assert_eq!(asked["type"], "dispatch");
        played.daemon(&json!({"type": "error", "id": asked["id"], "code": code, "error": "no"}));
        let said = played.answer();
        assert!(is_error(&said, number), "{said}");
    }
}

#[test]
fn mcp_daemon_that_stops_is_asked_again() {
    let mut played = Played::new();
    played.calls(1, "ask", &json!({"prompt": "hi"}));
    played.calls(2, "agents", &json!({}));
    let asked: Vec<Value> = played.asked.drain(..).collect();
    for one in &asked {
        played.daemon(&json!({"type": "error", "id": one["id"], "code": "draining", "error": "stopping", "retryable": true}));
    }
    assert_eq!(played.said, Vec::<Value>::new());
    played.lost();
    let again: Vec<&Value> = played.asked.iter().map(|one| &one["type"]).collect();
    assert_eq!(again, ["send", "agents"]);
}

#[test]
fn mcp_nobody_serves_is_told_to_the_model() {
    let mut played = Played::new();
    played.calls(1, "ask", &json!({"prompt": "hi"}));
    let gone = ClientError::Unreachable {
        error: "no daemon is running".to_owned(),
        hint: None,
    };
    played.face.unreachable(&gone, played.now, &mut played.out);
    played.looked();
    let said = played.answer();
    assert_eq!(said["result"]["isError"], true);
    let text = said["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("no daemon is running") && text.contains("agentctl start"),
        "{text}"
    );
    assert!(played.face.is_done());
}

#[test]
fn mcp_cancelled_call_is_silent() {
    for (abort, session, expected) in [
        (false, None, None),
        (true, None, Some("j1")),
        (true, Some("s"), None),
    ] {
        let mut played = Played::with(|settings| settings.abort_cancelled = abort);
        let mut arguments = json!({"prompt": "hi"});
        if let Some(session) = session {
            arguments["session"] = json!(session);
        }
        played.calls(7, "ask", &arguments);
        let send = played.request();
        played.accepts(&send["id"]);
        played.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"timeout"}}"#);
        played.ends(&send["id"], "hi");
        assert_eq!(played.said, Vec::<Value>::new());
        let aborted = played.asked.first().map(|one| one["job"].clone());
        assert_eq!(aborted, expected.map(|job| json!(job)));
        assert!(played.face.is_done());
    }
}

/// Clients cancel at any moment, and the disk may be slow.
#[test]
fn mcp_call_cancelled_before_acceptance_is_aborted() {
    for abort in [false, true] {
        let mut played = Played::with(|settings| settings.abort_cancelled = abort);
        played.calls(7, "ask", &json!({"prompt": "hi"}));
        let send = played.request();
        played.client(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        );
        assert_eq!(played.face.is_done(), !abort);
        played.accepts(&send["id"]);
        let aborted = |at: usize, by: &str| played.asked.get(at).map(|one| one[by].clone());
        let key = abort.then(|| send["idempotency_key"].clone());
        assert_eq!(aborted(0, "idempotency_key"), key);
        assert_eq!(aborted(1, "job"), abort.then(|| json!("j1")));
        played.ends(&send["id"], "hi");
        assert_eq!(played.said, Vec::<Value>::new());
        assert!(played.face.is_done());
    }
}

#[test]
fn mcp_tool_use_answered_is_another_job() {
    let mut played = Played::new();
    let mut keys = Vec::new();
    for id in 1..=3 {
        let meta = json!({"claudecode/toolUseId": "toolu_1"});
        let params = json!({"name": "ask", "arguments": {"prompt": "hi"}, "_meta": meta});
        played.says(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
        let send = played.request();
        keys.push(send["idempotency_key"].clone());
        if id == 2 {
            played.ends(&send["id"], "hi");
            played.answer();
        }
    }
    // Asked again before there was an answer it is the same.
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[1], keys[2]);
}

#[test]
fn mcp_id_in_use_runs_nothing() {
    let mut played = Played::new();
    played.calls(1, "ask", &json!({"prompt": "hi"}));
    let send = played.request();
    played.calls(1, "ask", &json!({"prompt": "hi"}));
    let refused = played.answer();
    assert!(is_error(&refused, -32600), "{refused}");
    assert_eq!(refused["id"], Value::Null);
    assert_eq!(played.asked, Vec::<Value>::new());
    played.accepts(&send["id"]);
    played.ends(&send["id"], "hi");
    assert_eq!(played.answer()["id"], 1);
}

#[test]
fn mcp_client_that_left_has_a_minute() {
    let mut played = Played::new();
    played.calls(1, "ask", &json!({"prompt": "hi", "wait_s": 600}));
    played.face.client_ended(played.now, &mut played.out);
    assert!(!played.face.is_done());
    played.later(60);
    assert_eq!(
        played.answer()["result"]["structuredContent"]["code"],
        "ended"
    );
    assert!(played.face.is_done());
}

#[test]
fn mcp_prompt_too_long_is_refused() {
    let mut played = Played::new();
    let long = "x".repeat(16 * 1024 * 1024);
    for (tool, arguments) in [
        ("ask", json!({"prompt": long})),
        ("dispatch", json!({"jobs": [{"prompt": long}]})),
        ("steer", json!({"job": "j1", "text": long})),
    ] {
        played.calls(1, tool, &arguments);
        let text = played.answer()["result"]["content"][0]["text"].to_string();
        assert!(text.contains("the limit is 16777216"), "{text}");
    }
    assert_eq!(played.asked, Vec::<Value>::new());
}
