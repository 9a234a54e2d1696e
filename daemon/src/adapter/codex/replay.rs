//! How recorded conversations with Codex are played.
//!
//! What the recording's client wrote, the adapter has to write, too, with the same parameters; what
//! Codex answered is fed to it with the adapter's own ids.

use std::collections::BTreeMap;

use agentd_core::worker::{Reply, Traits, WorkerCommand};

use super::*;
use crate::adapter::testing::{self, Record, Recorded, answer, cancel, compact, prompt, steer};

pub(super) type Replay = testing::Replay<Codex>;

#[derive(Default)]
pub(in crate::adapter) struct Client {
    /// The adapter's ids by those of the recording.
    ids: BTreeMap<String, Value>,
    /// How much of what was written has been looked at.
    looked: usize,
    turns: u64,
}

pub(super) fn spawn(resume: Option<&str>) -> Spawn {
    Spawn {
        provider: Some("mock".into()),
        model: Some("mock-1".into()),
        resume: resume.map(str::to_owned),
        ..testing::spawn()
    }
}

impl Recorded for Codex {
    type Client = Client;

    fn name(line: &Value) -> Option<&str> {
        line["method"].as_str()
    }

    fn may_write(line: &Value) -> bool {
        line.get("id").is_some() || line["method"] == "initialized"
    }

    fn wrote(replay: &mut Replay, line: Value) {
        // No recording has it.
        if line["method"] != "account/read" {
            replay.wrote.push(line);
        }
    }

    fn asks(replay: &mut Replay, record: &Record) -> bool {
        let asked = &record.value;
        let params = &asked["params"];
        let text = || params["input"][0]["text"].as_str().unwrap();
        match asked["method"].as_str() {
            Some("initialize") => replay.tell(&WorkerCommand::Probe),
            Some("turn/start") => {
                replay.client.turns += 1;
                let thinking = params["effort"].as_str().map(str::to_owned);
                let prompt = Prompt {
                    thinking,
                    ..testing::turn(replay.client.turns, text())
                };
                replay.tell(&WorkerCommand::Prompt(Box::new(prompt)));
            }
            Some("turn/interrupt") => replay.tell(&cancel(replay.client.turns)),
            Some("turn/steer") => {
                let word = params["clientUserMessageId"].as_str().unwrap();
                let mut steer = steer(word.trim_start_matches('w').parse().unwrap(), text());
                if let WorkerCommand::Steer { turn, .. } = &mut steer {
                    *turn = TurnId(replay.client.turns);
                }
                replay.tell(&steer);
            }
            Some("thread/compact/start") => replay.tell(&compact(None)),
            // The adapter writes these by itself.
            Some(_) => {}
            None => {
                let reply = match asked["result"]["decision"].as_str() {
                    Some("accept") => Reply::Approved,
                    _ => Reply::Denied,
                };
                replay.tell(&answer(&asked["id"].to_string(), reply));
            }
        }
        replay.compare(asked);
        true
    }

    fn says(replay: &mut Replay, record: Record) {
        let mut said = record.value;
        if said.get("method").is_none() {
            said["id"] = replay.client.ids[&said["id"].to_string()].clone();
        }
        replay.hear(&said);
    }
}

impl Replay {
    pub(super) fn bare(spawn: &Spawn) -> Self {
        Self::new(Codex::new(spawn))
    }

    /// A Codex with the thread `t`, and nothing to play.
    pub(super) fn ready() -> Self {
        let mut replay = Self::bare(&spawn(None));
        replay.tell(&WorkerCommand::Probe);
        replay.reply(&json!({"userAgent": "x"}));
        replay.reply(&json!({"thread": {"id": "t"}, "model": "mock-1", "modelProvider": "mock"}));
        let ready = WorkerEvent::Ready(Traits::default());
        assert_eq!(replay.events.pop(), Some(ready));
        replay.wrote.clear();
        replay
    }

    /// The same with turn 1 begun, which Codex calls `n1`.
    pub(super) fn running() -> Self {
        let mut replay = Self::ready();
        replay.begin(1, "x");
        replay
    }

    pub(super) fn begin(&mut self, turn: u64, text: &str) {
        self.tell(&prompt(turn, text));
        self.reply(&json!({"turn": {"id": format!("n{turn}"), "status": "inProgress"}}));
        self.note("turn/started", &json!({"turn": {"id": format!("n{turn}")}}));
    }

    /// A recording, to be played from its handshake on.
    pub(super) fn of(name: &str, resume: Option<&str>) -> Self {
        let mut replay = Self::bare(&spawn(resume));
        replay.records = testing::load(format!("codex/0.169.0/{name}.jsonl"));
        replay
    }

    /// Codex's answer to the last request.
    pub(super) fn reply(&mut self, result: &Value) {
        let id = self.adapter.last;
        self.hear(&json!({"id": id, "result": result}));
    }

    /// A notification about thread `t` and turn `n1`, unless it says otherwise.
    pub(super) fn note(&mut self, method: &str, params: &Value) {
        let mut all = json!({"threadId": "t", "turnId": "n1"});
        for (name, value) in params.as_object().unwrap() {
            all[name] = value.clone();
        }
        self.hear(&json!({"method": method, "params": all}));
    }

    /// The adapter has written just what the recording's client wrote.
    fn compare(&mut self, asked: &Value) {
        let wrote = self.wrote.get(self.client.looked).cloned();
        let mut wrote = wrote.unwrap_or_else(|| panic!("nothing was written for {asked}"));
        self.client.looked += 1;
        if asked["method"].is_string() && asked.get("id").is_some() {
            let ids = &mut self.client.ids;
            ids.insert(asked["id"].to_string(), wrote["id"].clone());
            wrote["id"] = asked["id"].clone();
        }
        if asked["method"] == "initialize" {
            wrote["params"]["clientInfo"] = asked["params"]["clientInfo"].clone();
        }
        assert_eq!(&wrote, asked);
    }

    /// Plays up to the prompt with this text.
    pub(super) fn play_before(mut self, text: &str) -> Self {
        let asks = |record: &Record| {
            record.ours
                && record.value["method"] == "turn/start"
                && record.value["params"]["input"][0]["text"] == text
        };
        while self.records.front().is_some_and(|record| !asks(record)) {
            self.step();
        }
        assert!(
            !self.records.is_empty(),
            "the recording has a prompt {text}"
        );
        self
    }

    pub(super) fn play(mut self) -> Self {
        while self.step() {}
        let looked = self.client.looked;
        assert_eq!(looked, self.wrote.len(), "{:?}", self.wrote.last());
        self
    }
}
