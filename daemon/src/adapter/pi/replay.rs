//! How recorded conversations with pi are played.
//!
//! What pi said is fed to the adapter with the adapter's own ids. State requests are answered as pi
//! would: after everything it had said by then, one millisecond later.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use agentd_core::worker::{Reply, WorkerCommand};

use super::*;
use crate::adapter::testing::{self, Record, Recorded, answer, cancel, prompt, spawn};

pub(super) type Replay = testing::Replay<Pi>;

/// Both dialects.
pub(super) const DIALECTS: [&str; 2] = ["pi-0.73.1", "pi-1.5.2"];

/// Every request the adapter may ever write.
const ALLOWED: [&str; 12] = [
    "abort",
    "clear_queue",
    "compact",
    "extension_ui_response",
    "get_available_models",
    "get_commands",
    "get_state",
    "new_session",
    "prompt",
    "set_model",
    "set_thinking_level",
    "steer",
];

/// What pi knows of itself.
pub(in crate::adapter) struct Client {
    /// Requests without an answer so far, by type.
    open: BTreeMap<String, VecDeque<Value>>,
    looks: VecDeque<(Value, f64)>,
    pub(super) state: Value,
    pub(super) compacting: bool,
    streaming: bool,
    ended: bool,
    at: f64,
    turns: u64,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            looks: VecDeque::new(),
            state: json!({"isStreaming": false, "isCompacting": false}),
            compacting: false,
            streaming: false,
            ended: true,
            at: 0.0,
            turns: 0,
        }
    }
}

pub(super) fn load(dialect: &str, number: &str) -> VecDeque<Record> {
    let folder = Path::new("v1").join(dialect);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
    let files = std::fs::read_dir(fixtures.join(&folder)).unwrap();
    let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let name = names.find(|name| name.starts_with(&format!("{number}-")));
    testing::load(folder.join(name.expect("a recording with this number")))
}

impl Recorded for Pi {
    type Client = Client;

    fn name(line: &Value) -> Option<&str> {
        line["type"].as_str()
    }

    fn may_write(line: &Value) -> bool {
        Self::name(line).is_some_and(|kind| ALLOWED.contains(&kind))
    }

    fn wrote(replay: &mut Replay, line: Value) {
        let (kind, id) = (
            line["type"].as_str().unwrap().to_owned(),
            line["id"].clone(),
        );
        let client = &mut replay.client;
        if kind == "get_state" {
            client.looks.push_back((id, client.at + 1.0));
        } else {
            client.open.entry(kind).or_default().push_back(id);
            replay.wrote.push(line);
        }
    }

    fn hears(replay: &mut Replay, record: &Value) {
        let pi = &mut replay.client;
        match record["type"].as_str().unwrap_or("") {
            "agent_start" => (pi.streaming, pi.ended) = (true, false),
            "agent_end" => {
                pi.ended = true;
                pi.streaming &= record["willRetry"].is_boolean();
            }
            "agent_settled" => pi.streaming &= !pi.ended,
            "compaction_start" => pi.compacting = true,
            "compaction_end" => pi.compacting = false,
            _ => {}
        }
    }

    fn asks(replay: &mut Replay, record: &Record) -> bool {
        replay.time_is(record.at);
        let asked = &record.value;
        match asked["type"].as_str() {
            Some("prompt") => {
                replay.client.turns += 1;
                let text = asked["message"].as_str().unwrap();
                replay.tell(&prompt(replay.client.turns, text));
            }
            Some("abort") => replay.tell(&cancel(replay.client.turns)),
            Some("new_session") => replay.tell(&WorkerCommand::Recycle),
            Some("extension_ui_response") => {
                let value = asked["value"].as_str().unwrap_or("").to_owned();
                let reply = match (&asked["confirmed"], &asked["cancelled"]) {
                    (Value::Bool(true), _) => Reply::Approved,
                    (Value::Bool(false), _) => Reply::Denied,
                    (_, Value::Bool(true)) => Reply::Cancelled,
                    _ => Reply::Chosen(value),
                };
                replay.tell(&answer(asked["id"].as_str().unwrap(), reply));
            }
            _ => {}
        }
        true
    }

    fn says(replay: &mut Replay, record: Record) {
        replay.time_is(record.at);
        let mut said = record.value;
        if said["type"] == "response" {
            let command = said["command"].as_str().unwrap_or("").to_owned();
            if command == "get_state" {
                replay.client.state = said["data"].clone();
                return;
            }
            let open = replay.client.open.get_mut(&command);
            if let Some(id) = open.and_then(VecDeque::pop_front) {
                said["id"] = id;
            }
        }
        replay.hear(&said);
    }
}

impl Replay {
    /// A pi that is ready, and nothing to play yet.
    pub(super) fn ready() -> Self {
        let mut replay = Self::new(Pi::new(&spawn()));
        replay.tell(&WorkerCommand::Probe);
        replay.settle();
        assert!(matches!(replay.events.pop(), Some(WorkerEvent::Ready(_))));
        replay.wrote.clear();
        replay
    }

    /// A whole recording.
    pub(super) fn of(dialect: &str, number: &str) -> Self {
        let mut replay = Self::ready();
        replay.records = load(dialect, number);
        let state = |record: &&Record| !record.ours && record.value["command"] == "get_state";
        if let Some(state) = replay.records.iter().find(state) {
            replay.client.state = state.value["data"].clone();
        }
        replay
    }

    /// The recording of one prompt only, up to the next one.
    pub(super) fn turn(dialect: &str, number: &str, nth: usize) -> Self {
        let mut replay = Self::of(dialect, number);
        let mut prompts = 0;
        replay.records.retain(|record| {
            prompts += usize::from(record.ours && record.value["type"] == "prompt");
            prompts == nth
        });
        replay
    }

    /// Lets pi answer what it would have by then.
    fn time_is(&mut self, at: f64) {
        while self.client.looks.front().is_some_and(|(_, due)| *due < at) {
            self.answer_one_look();
        }
        self.client.at = at;
    }

    /// Answers the oldest question about the state.
    pub(super) fn answer_one_look(&mut self) {
        let client = &mut self.client;
        let (id, due) = client.looks.pop_front().expect("a look");
        client.at = client.at.max(due);
        let mut data = client.state.clone();
        data["isStreaming"] = json!(client.streaming);
        data["isCompacting"] = json!(client.compacting);
        let answer = json!({"id": id, "type": "response", "command": "get_state", "success": true, "data": data});
        self.hear_raw(answer.to_string().as_bytes());
    }

    /// Lets pi answer everything about its state.
    pub(super) fn settle(&mut self) {
        while !self.client.looks.is_empty() {
            self.answer_one_look();
        }
    }

    /// Plays up to a record of this type, that one included.
    pub(super) fn play_to(&mut self, kind: &str) {
        self.play_until(|record| record.value["type"] == kind);
    }

    pub(super) fn play(mut self) -> Self {
        while self.step() {}
        self.settle();
        self
    }
}
