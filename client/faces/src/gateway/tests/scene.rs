//! The stage of the face's tests: a client and a daemon that are played line by line.
//!
//! Owns the face's ends. Must not know what is expected.

use std::time::Instant;

use serde_json::{Value, json};

use super::super::{Gateway, Settings};
use crate::face::{Ask, Face as _, Outbox};
use crate::scripted;

/// The name of the first session.
pub(super) const SESSION: &str = "tui1-n";

/// The face, with what it said and asked that nobody looked at yet.
pub(super) struct Scene {
    pub(super) face: Gateway,
    pub(super) out: Outbox,
    pub(super) now: Instant,
    pub(super) asked: Vec<Ask>,
    pub(super) said: Vec<Value>,
    seq: u64,
    id: u64,
}

impl Scene {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let settings = Settings {
            agent: Some("a".to_owned()),
            here: Some("/w".to_owned()),
            nonce: "n".to_owned(),
        };
        Self {
            face: Gateway::new(settings, now),
            out: Outbox::default(),
            now,
            asked: Vec::new(),
            said: Vec::new(),
            seq: 0,
            id: 0,
        }
    }

    /// One with a session, of which all that was asked is answered.
    pub(super) fn open() -> Self {
        let mut scene = Self::new();
        scene.call("session.create", json!({"cols": 130}));
        let made = json!({"type": "session.new", "ok": true, "session": SESSION, "agent": "a", "cwd": "/w"});
        scene.answer("session.new", made);
        let models = json!({"type": "models", "ok": true, "agent": "a", "models": [
            {"provider": "p", "model": "m", "default": true},
            {"provider": "openrouter", "model": "anthropic/claude", "default": false}]});
        scene.answer("models", models);
        let commands = json!({"type": "commands", "ok": true, "agent": "a",
            "commands": [{"name": "review", "description": "Reviews"}]});
        scene.answer("commands", commands);
        scene
    }

    /// One whose first prompt runs as `j1`.
    pub(super) fn running() -> Self {
        let mut scene = Self::open();
        scene.call(
            "prompt.submit",
            json!({"session_id": SESSION, "text": "hello"}),
        );
        scene.accept("j1", true);
        scene.told();
        scene
    }

    pub(super) fn take(&mut self) {
        self.asked.extend(self.out.take_daemon());
        for line in self.out.take_client() {
            self.said.push(serde_json::from_str(&line).unwrap());
        }
    }

    pub(super) fn line(&mut self, line: &[u8]) {
        self.face.client_line(line, self.now, &mut self.out);
        self.take();
    }

    pub(super) fn call(&mut self, method: &str, params: Value) {
        self.id += 1;
        let id = format!("r{}", self.id);
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.line(line.to_string().as_bytes());
    }

    #[track_caller]
    pub(super) fn asked(&mut self, kind: &str) -> Ask {
        scripted::asked(&mut self.asked, kind)
    }

    pub(super) fn daemon(&mut self, to: &Ask, line: Value) {
        let received = scripted::answer(to, line);
        self.face
            .daemon_line(Some(to.ticket), received, self.now, &mut self.out);
        self.take();
    }

    #[track_caller]
    pub(super) fn answer(&mut self, kind: &str, line: Value) -> Value {
        let ask = self.asked(kind);
        self.daemon(&ask, line);
        ask.fields
    }

    /// The newest send becomes a job.
    #[track_caller]
    pub(super) fn accept(&mut self, job: &str, running: bool) -> Value {
        self.seq += 1;
        let ask = self.asked("send");
        let session = ask.fields.get("session").cloned();
        let session = session.unwrap_or_else(|| json!("s-1"));
        let accepted = json!({"type": "accepted", "seq": self.seq, "replayed": false, "job": job,
            "session": session, "agent": "a", "ignored": [], "running": running});
        self.daemon(&ask, accepted);
        ask.fields
    }

    /// A line of the subscription.
    #[track_caller]
    pub(super) fn follow(&mut self, kind: &str, mut line: Value) {
        line["type"] = json!(kind);
        let is_text = matches!(
            kind,
            "message_start" | "message_delta" | "thinking_delta" | "tool_update"
        );
        if !is_text && kind != "session_changed" {
            self.seq += 1;
            line["seq"] = json!(self.seq);
        }
        let ask = self.asked("subscribe");
        self.daemon(&ask, line);
        self.asked.insert(0, ask);
    }

    pub(super) fn delta(&mut self, job: &str, message: u32, offset: u64, text: &str) {
        let delta =
            json!({"job": job, "message": message, "offset": offset, "text": text, "native": true});
        self.follow("message_delta", delta);
    }

    #[track_caller]
    pub(super) fn end(&mut self, job: &str, stop: &str, text: &str) {
        let facts = json!({"job": job, "stop": stop, "text": text, "provider": "p", "model": "m",
            "usage": {"input_tokens": 10, "output_tokens": 3}, "context_tokens": 13, "context_window": 100});
        self.follow("message_end", scripted::facts(SESSION, facts));
    }

    /// What was said, in short.
    pub(super) fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said).iter().map(short).collect()
    }

    /// The result that was said last.
    #[track_caller]
    pub(super) fn result(&mut self) -> Value {
        let at = self.said.iter().rposition(|said| said.get("id").is_some());
        let said = self
            .said
            .remove(at.unwrap_or_else(|| panic!("no answer: {:#?}", self.said)));
        assert!(said.get("error").is_none(), "{said}");
        said["result"].clone()
    }
}

fn short(said: &Value) -> String {
    let event = &said["params"];
    let payload = &event["payload"];
    if said["method"] == "event" {
        let words = [
            "text",
            "name",
            "question",
            "command",
            "status",
            "message",
            "request_id",
        ];
        let shown = words.iter().filter_map(|word| payload[word].as_str());
        let shown: Vec<&str> = shown.collect();
        return format!("{} {}", event["type"].as_str().unwrap(), shown.join(" "))
            .trim_end()
            .to_owned();
    }
    match said.get("error") {
        Some(error) => format!("{} {}", error["code"], error["message"].as_str().unwrap()),
        None => format!("result {}", said["result"]),
    }
}

/// A question of the first turn.
pub(super) fn approval(id: &str) -> Value {
    json!({"job": "j1", "question_id": id, "kind": "approval", "title": "may I", "detail": "d",
        "options": [], "data": {"command": "rm x"}, "scopes": ["session"], "expires_at": "2027-01-01T00:00:00Z"})
}

pub(super) fn list(rows: &[Value]) -> Value {
    json!({"type": "session.list", "ok": true, "sessions": rows})
}
