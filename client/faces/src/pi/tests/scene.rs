//! The stage of the face's tests: a client and a daemon that are played line by line.
//!
//! Owns the face's ends. Must not know what is expected.

use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::{Value, json};

use super::super::{Begins, Pi, Settings};
use crate::face::{Ask, Face as _, Outbox};
use crate::fuzzing::pi_settings;
use crate::scripted;

/// The face, with what it said and asked that nobody looked at yet.
pub(super) struct Scene {
    pub(super) face: Pi,
    pub(super) out: Outbox,
    pub(super) now: Instant,
    pub(super) asked: Vec<Ask>,
    pub(super) said: Vec<Value>,
    pub(super) seq: u64,
    pub(super) id: u64,
}

pub(super) const SESSION: &str = "pi-n-1";

impl Scene {
    pub(super) fn new(begins: Begins) -> Self {
        let settings = Settings {
            agent: Some("a".to_owned()),
            here: Some("/w".to_owned()),
            nonce: "n".to_owned(),
            clock: || UNIX_EPOCH + Duration::from_millis(7),
            ..pi_settings(begins)
        };
        Self {
            face: Pi::new(settings),
            out: Outbox::default(),
            now: Instant::now(),
            asked: Vec::new(),
            said: Vec::new(),
            seq: 0,
            id: 0,
        }
    }

    /// One whose first prompt runs as `j1`.
    pub(super) fn running() -> Self {
        let mut scene = Self::new(Begins::New);
        scene.command("prompt", json!({"message": "hello"}));
        scene.accept("j1");
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

    pub(super) fn command(&mut self, kind: &str, mut fields: Value) {
        self.id += 1;
        fields["type"] = json!(kind);
        fields["id"] = json!(format!("req_{}", self.id));
        self.line(fields.to_string().as_bytes());
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

    #[track_caller]
    pub(super) fn accept(&mut self, job: &str) -> Value {
        self.seq += 1;
        let accepted = json!({"type": "accepted", "seq": self.seq, "replayed": false, "job": job,
            "session": SESSION, "agent": "a", "ignored": [], "running": true});
        let ask = self.asked("send");
        self.daemon(&ask, accepted);
        let fields = ask.fields.clone();
        self.asked.insert(0, ask);
        fields
    }

    #[track_caller]
    pub(super) fn turn(&mut self, kind: &str, mut line: Value) {
        line["type"] = json!(kind);
        line["job"] = json!("j1");
        if !matches!(
            kind,
            "message_start" | "message_delta" | "thinking_delta" | "tool_update"
        ) {
            self.seq += 1;
            line["seq"] = json!(self.seq);
        }
        let ask = self.asked("send");
        self.daemon(&ask, line);
        if !matches!(kind, "message_end" | "error") {
            self.asked.insert(0, ask);
        }
    }

    /// A numbered line of any job.
    pub(super) fn of(&mut self, job: &str, to: &Ask, mut line: Value) {
        self.seq += 1;
        line["job"] = json!(job);
        if line["type"] != "message_delta" {
            line["seq"] = json!(self.seq);
        }
        self.daemon(to, line);
    }

    pub(super) fn delta(&mut self, message: u32, offset: u64, text: &str) {
        let delta = json!({"message": message, "offset": offset, "text": text, "native": true});
        self.turn("message_delta", delta);
    }

    #[track_caller]
    pub(super) fn end(&mut self, stop: &str, text: &str) {
        self.turn("message_end", facts(json!({"stop": stop, "text": text})));
    }

    pub(super) fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said).iter().map(short).collect()
    }

    #[track_caller]
    pub(super) fn data(&mut self) -> Value {
        let last = self.said.pop().unwrap();
        assert_eq!(last["success"], true, "{last}");
        self.said.clear();
        last["data"].clone()
    }
}

pub(super) fn facts(with: Value) -> Value {
    scripted::facts(SESSION, with)
}

fn short(said: &Value) -> String {
    let kind = said["type"].as_str().unwrap();
    let update = &said["assistantMessageEvent"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match kind {
        "message_update" => format!("{} {}", word(&update["type"]), word(&update["delta"])),
        "message_start" | "message_end" => {
            let message = &said["message"];
            let stop = word(&message["stopReason"]);
            format!("{kind} {} {stop}", word(&message["role"]))
        }
        "response" => match said["success"] == true {
            true => format!("{} ok", word(&said["command"])),
            false => format!("{}: {}", word(&said["command"]), word(&said["error"])),
        },
        "queue_update" => format!("queue {} {}", said["steering"], said["followUp"]),
        "agent_settled" => format!("settled {}", said["aborted"]),
        _ => kind.to_owned(),
    }
    .trim_end()
    .to_owned()
}
