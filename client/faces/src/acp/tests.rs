//! The face between an editor and a daemon that both are played here, line by line.

mod choices;
mod lists;
mod opening;
mod prompts;
mod schema;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

use super::Acp;
use crate::face::{Ask, Face, Outbox};
use crate::scripted;

/// The face, with what it said and asked that nobody looked at yet.
struct Scene {
    face: Acp,
    out: Outbox,
    now: Instant,
    asked: Vec<Ask>,
    /// Questions for slash commands.
    commands: Vec<Ask>,
    said: Vec<Value>,
    /// What was requested under each id.
    methods: BTreeMap<u64, String>,
}

impl Scene {
    fn new() -> Self {
        Self {
            face: Acp::new(None, "n".to_owned()),
            out: Outbox::default(),
            now: Instant::now(),
            asked: Vec::new(),
            commands: Vec::new(),
            said: Vec::new(),
            methods: BTreeMap::new(),
        }
    }

    /// One with a session, whose name is `acp-n-1`.
    fn open() -> Self {
        let mut scene = Self::new();
        scene.request("initialize", json!({"protocolVersion": 1}));
        scene.request("session/new", json!({"cwd": "/w", "mcpServers": []}));
        scene.answer("session.new", made("pi"));
        scene.answer("agents", agents());
        scene.answer("models", models());
        assert_eq!(scene.said.pop().unwrap()["result"]["sessionId"], SESSION);
        scene.said.clear();
        scene
    }

    fn take(&mut self) {
        for ask in self.out.take_daemon() {
            // Of these nothing else depends.
            let aside = ask.kind == "commands";
            let all = if aside {
                &mut self.commands
            } else {
                &mut self.asked
            };
            all.push(ask);
        }
        for line in self.out.take_client() {
            let said: Value = serde_json::from_str(&line).unwrap();
            let method = said["id"].as_u64().and_then(|id| self.methods.get(&id));
            schema::check(&said, method.map(String::as_str));
            self.said.push(said);
        }
    }

    fn hear(&mut self, line: &Value) {
        let line = line.to_string();
        self.face
            .client_line(line.as_bytes(), self.now, &mut self.out);
        self.take();
    }

    /// A request of the client, and its id.
    fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.methods.len() as u64 + 1;
        self.methods.insert(id, method.to_owned());
        self.hear(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.hear(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn prompt(&mut self, text: &str) -> u64 {
        let blocks = json!([{"type": "text", "text": text}]);
        self.request(
            "session/prompt",
            json!({"sessionId": SESSION, "prompt": blocks}),
        )
    }

    /// Takes the oldest request of a type that nobody answered.
    #[track_caller]
    fn asked(&mut self, kind: &str) -> Ask {
        scripted::asked(&mut self.asked, kind)
    }

    fn line(&mut self, to: &Ask, line: Value) {
        let received = scripted::answer(to, line);
        self.face
            .daemon_line(Some(to.ticket), received, self.now, &mut self.out);
        self.take();
    }

    /// Answers the oldest request of a type.
    #[track_caller]
    fn answer(&mut self, kind: &str, line: Value) -> Value {
        let ask = self.asked(kind);
        self.line(&ask, line);
        ask.fields
    }

    fn lose(&mut self) {
        self.face.daemon_lost(self.now, &mut self.out);
        self.asked.clear();
        self.take();
    }

    /// What was said since this was last called, in short.
    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said).iter().map(short).collect()
    }
}

const SESSION: &str = "acp-n-1";

fn short(said: &Value) -> String {
    let update = &said["params"]["update"];
    let words = |values: &[&Value]| {
        let words = values.iter().filter_map(|value| value.as_str());
        words.collect::<Vec<_>>().join(" ")
    };
    if update.is_object() {
        return words(&[
            &update["sessionUpdate"],
            &update["toolCallId"],
            &update["status"],
            &update["content"]["text"],
            &update["content"][0]["content"]["text"],
            &update["title"],
        ]);
    }
    if let Some(method) = said["method"].as_str() {
        return format!(
            "{method} {}",
            words(&[&said["id"], &said["params"]["requestId"]])
        );
    }
    let (error, result) = (&said["error"], &said["result"]);
    match error.is_object() {
        true => format!("{} error {}", said["id"], error["code"]),
        false => format!("{} {}", said["id"], words(&[&result["stopReason"]])),
    }
}

fn made(agent: &str) -> Value {
    json!({"type": "session.new", "ok": true, "session": SESSION, "agent": agent, "cwd": "/w"})
}

fn agents() -> Value {
    let agent = |name: &str, usable: bool| {
        json!({"name": name, "kind": "pi", "command": [], "found": "path", "version": null,
            "logged_in": null, "usable": usable, "why_not": null, "default": false})
    };
    json!({"type": "agents", "ok": true, "agents": [agent("pi", true), agent("gone", false), agent("timmy", true)]})
}

fn models() -> Value {
    json!({"type": "models", "ok": true, "agent": "pi", "models": [
        {"provider": "p", "model": "one", "thinking": ["low", "high"], "context_window": 1000, "default": true},
        {"provider": "p", "model": "two", "default": false},
    ]})
}

fn accepted(job: &str, seq: u64) -> Value {
    json!({"type": "accepted", "seq": seq, "replayed": false, "job": job, "session": SESSION, "agent": "pi", "ignored": []})
}

fn delta(job: &str, offset: u64, text: &str) -> Value {
    json!({"type": "message_delta", "job": job, "message": 0, "offset": offset, "text": text, "native": true})
}

fn ended(job: &str, seq: u64, stop: &str) -> Value {
    json!({"type": "message_end", "seq": seq, "replayed": false, "stop": stop, "job": job, "session": SESSION,
        "text": "", "context": "new", "agent": "pi", "provider": "p", "model": "one", "thinking": null,
        "usage": {"input_tokens": 7, "output_tokens": 2}, "cost": {"usd": 0.5, "status": "actual"},
        "context_tokens": 42, "context_window": 900, "api_calls": [], "tool_trace": []})
}

fn failed(job: &str, seq: u64, code: &str) -> Value {
    let mut line = ended(job, seq, "end_turn");
    line["type"] = json!("error");
    line["code"] = json!(code);
    line["error"] = json!("it went wrong");
    line
}

#[test]
fn acp_initialize_offers_what_works() {
    let mut scene = Scene::new();
    // A later version is answered by the one that is spoken here.
    scene.request(
        "initialize",
        json!({"protocolVersion": 2, "clientCapabilities": {"fs": 5}}),
    );
    let said = scene.said.pop().unwrap();
    assert_eq!(said["result"]["protocolVersion"], 1);
    assert_eq!(said["result"]["authMethods"], json!([]));
    let can = &said["result"]["agentCapabilities"];
    assert_eq!(can["loadSession"], true);
    assert_eq!(
        can["sessionCapabilities"],
        json!({"list": {}, "resume": {}, "close": {}, "delete": {}, "fork": {}, "title": {}})
    );
    // It is answered without the daemon.
    assert!(scene.asked.is_empty());
}

fn bad_sessions() -> Vec<(&'static str, Value, i64)> {
    vec![
        ("initialize", json!({"protocolVersion": "1"}), -32602),
        ("initialize", json!({}), -32602),
        ("authenticate", json!({"methodId": "x"}), -32602),
        ("session/new", json!({"cwd": 5, "mcpServers": []}), -32602),
        ("session/new", json!({"cwd": "w", "mcpServers": []}), -32602),
        (
            "session/new",
            json!({"cwd": "/w", "mcpServers": [{"name": "files", "args": [], "env": []}]}),
            -32602,
        ),
        (
            "session/new",
            json!({"cwd": "/w", "mcpServers": [], "additionalDirectories": ["/x"]}),
            -32602,
        ),
        (
            "session/load",
            json!({"cwd": "/w", "mcpServers": []}),
            -32602,
        ),
        (
            "session/load",
            json!({"sessionId": "a b", "cwd": "/w", "mcpServers": []}),
            -32002,
        ),
        (
            "session/resume",
            json!({"sessionId": 5, "cwd": "/w"}),
            -32602,
        ),
        (
            "session/fork",
            json!({"sessionId": "a b", "cwd": "/w"}),
            -32002,
        ),
        ("session/set_title", json!({"sessionId": "x"}), -32602),
        ("session/list", json!({"cursor": "x"}), -32602),
        ("session/list", json!({"cwd": "w"}), -32602),
    ]
}

fn bad_prompts() -> Vec<(&'static str, Value, i64)> {
    vec![
        (
            "session/prompt",
            json!({"sessionId": "nope", "prompt": [{"type": "text", "text": "x"}]}),
            -32002,
        ),
        (
            "session/prompt",
            json!({"sessionId": SESSION, "prompt": "x"}),
            -32602,
        ),
        (
            "session/prompt",
            json!({"sessionId": SESSION, "prompt": [{"type": "video"}]}),
            -32602,
        ),
        (
            "session/prompt",
            json!({"sessionId": SESSION, "prompt": [{"type": "text"}]}),
            -32602,
        ),
        (
            "session/set_config_option",
            json!({"sessionId": SESSION, "configId": "model", "value": true}),
            -32602,
        ),
        (
            "session/set_config_option",
            json!({"sessionId": SESSION, "configId": "x", "value": "y"}),
            -32602,
        ),
        (
            "session/set_mode",
            json!({"sessionId": "nope", "modeId": "pi"}),
            -32002,
        ),
        (
            "session/set_model",
            json!({"sessionId": SESSION, "modelId": "nope"}),
            -32602,
        ),
        ("session/close", json!({"sessionId": "a b"}), -32002),
        ("session/nonsense", json!({}), -32601),
        ("_x/y", json!([1]), -32601),
        ("session/prompt", json!([1]), -32602),
    ]
}

#[test]
fn acp_bad_requests_are_answered_at_once() {
    let mut scene = Scene::open();
    for (method, params, code) in bad_sessions().into_iter().chain(bad_prompts()) {
        let id = scene.request(method, params.clone());
        let said = scene
            .said
            .pop()
            .unwrap_or_else(|| panic!("{method} {params}"));
        assert_eq!(said["id"], id, "{said}");
        assert_eq!(said["error"]["code"], code, "{method} {params}: {said}");
        assert!(scene.said.is_empty() && scene.asked.is_empty(), "{method}");
    }
    for line in [&b"{"[..], b"[1]", b"\xff", b"7"] {
        scene.face.client_line(line, scene.now, &mut scene.out);
        scene.take();
        let said = scene.said.pop().unwrap();
        assert_eq!(said["id"], Value::Null, "{said}");
    }
    // Nobody is told what is wrong with a notification, and a blank line is none.
    scene.notify("session/cancel", json!({"sessionId": 5}));
    scene.notify("session/cancel", json!({"sessionId": "nope"}));
    scene.notify("$/unheard", json!(null));
    scene.hear(&json!({"jsonrpc": "2.0", "id": "j9-q1", "result": {}}));
    scene.face.client_line(b"  ", scene.now, &mut scene.out);
    scene.take();
    assert!(scene.said.is_empty() && scene.asked.is_empty());
}

#[test]
fn acp_line_too_long_is_answered_without_id() {
    let mut scene = Scene::new();
    scene
        .face
        .client_line_too_long(10, scene.now, &mut scene.out);
    scene.take();
    assert_eq!(scene.told(), ["null error -32600"]);
}
