//! Plays a recorded conversation with pi against the adapter.
//!
//! What the recording's client asked is asked of the adapter instead; what pi said is fed to it
//! with the adapter's own ids. State requests are answered as pi would: after everything it had
//! said by then, one millisecond later.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use agentd_core::attached::Attachments;
use agentd_core::ids::TurnId;
use agentd_core::worker::Reply;
use agentd_protocol::JobId;

use super::*;

/// Both dialects.
pub(super) const DIALECTS: [&str; 2] = ["pi-0.73.1", "pi-1.5.2"];

/// Every request the adapter may ever write.
const ALLOWED: [&str; 10] = [
    "abort",
    "clear_queue",
    "compact",
    "extension_ui_response",
    "get_state",
    "new_session",
    "prompt",
    "set_model",
    "set_thinking_level",
    "steer",
];

pub(super) struct Record {
    at: f64,
    ours: bool,
    pub(super) value: Value,
}

pub(super) struct Replay {
    pub(super) pi: Pi,
    pub(super) events: Vec<WorkerEvent>,
    pub(super) wrote: Vec<Value>,
    pub(super) records: VecDeque<Record>,
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

pub(super) fn prompt(turn: u64, text: &str) -> WorkerCommand {
    WorkerCommand::Prompt(Box::new(Prompt {
        turn: TurnId(turn),
        job: JobId(1),
        session: "main".into(),
        text: text.into(),
        attachments: Attachments::None,
        provider: None,
        model: None,
        thinking: None,
        fallback_chain: None,
        native: None,
        cwd: "/w".into(),
        toolsets: None,
    }))
}

pub(super) fn load(dialect: &str, number: &str) -> Vec<Record> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/v1")
        .join(dialect);
    let mut files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let starts = |path: &std::path::PathBuf| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(&format!("{number}-"))
    };
    let file = files.find(starts).expect("a recording with this number");
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let records = lines.filter(|line| line["dir"] == "<" || line["dir"] == ">");
    records
        .map(|line| Record {
            at: line["t"].as_f64().unwrap(),
            ours: line["dir"] == ">",
            value: line.get("rec").unwrap_or(&line["raw"]).clone(),
        })
        .collect()
}

impl Replay {
    /// A pi that is ready, and nothing to play yet.
    pub(super) fn ready() -> Self {
        let state = json!({"isStreaming": false, "isCompacting": false});
        let mut replay = Self {
            pi: Pi::default(),
            events: Vec::new(),
            wrote: Vec::new(),
            records: VecDeque::new(),
            open: BTreeMap::new(),
            looks: VecDeque::new(),
            state,
            compacting: false,
            streaming: false,
            ended: true,
            at: 0.0,
            turns: 0,
        };
        replay.tell(&WorkerCommand::Probe);
        replay.settle();
        assert!(matches!(replay.events.pop(), Some(WorkerEvent::Ready(_))));
        replay.wrote.clear();
        replay
    }

    /// A whole recording.
    pub(super) fn of(dialect: &str, number: &str) -> Self {
        let mut replay = Self::ready();
        replay.records = load(dialect, number).into();
        let state = |record: &&Record| !record.ours && record.value["command"] == "get_state";
        if let Some(state) = replay.records.iter().find(state) {
            replay.state = state.value["data"].clone();
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

    pub(super) fn tell(&mut self, command: &WorkerCommand) {
        let mut write = Vec::new();
        self.pi.encode(command, &mut self.events, &mut write);
        self.took(&write);
    }

    pub(super) fn hear(&mut self, record: &Value) {
        match record["type"].as_str().unwrap_or("") {
            "agent_start" => (self.streaming, self.ended) = (true, false),
            "agent_end" => {
                self.ended = true;
                self.streaming &= record["willRetry"].is_boolean();
            }
            "agent_settled" => self.streaming &= !self.ended,
            "compaction_start" => self.compacting = true,
            "compaction_end" => self.compacting = false,
            _ => {}
        }
        self.hear_raw(record.to_string().as_bytes());
    }

    pub(super) fn hear_raw(&mut self, line: &[u8]) {
        let mut write = Vec::new();
        self.pi.decode(line, &mut self.events, &mut write);
        self.took(&write);
    }

    /// Checks what the adapter wrote and remembers it.
    fn took(&mut self, write: &[u8]) {
        for line in write.split_inclusive(|byte| *byte == b'\n') {
            assert_eq!(line.last(), Some(&b'\n'));
            let value: Value = serde_json::from_slice(line).unwrap();
            let kind = value["type"]
                .as_str()
                .expect("an object with a type")
                .to_owned();
            assert!(ALLOWED.contains(&kind.as_str()), "{value}");
            if kind == "get_state" {
                self.looks.push_back((value["id"].clone(), self.at + 1.0));
            } else {
                self.open
                    .entry(kind)
                    .or_default()
                    .push_back(value["id"].clone());
                self.wrote.push(value);
            }
        }
    }

    fn answer_looks(&mut self, until: f64) {
        while self.looks.front().is_some_and(|(_, due)| *due < until) {
            self.answer_one_look();
        }
    }

    /// Answers the oldest question about the state.
    pub(super) fn answer_one_look(&mut self) {
        let (id, due) = self.looks.pop_front().expect("a look");
        self.at = self.at.max(due);
        let mut data = self.state.clone();
        data["isStreaming"] = json!(self.streaming);
        data["isCompacting"] = json!(self.compacting);
        let answer = json!({"id": id, "type": "response", "command": "get_state", "success": true, "data": data});
        self.hear_raw(answer.to_string().as_bytes());
    }

    /// Lets pi answer everything about its state.
    pub(super) fn settle(&mut self) {
        self.answer_looks(f64::INFINITY);
    }

    /// Plays one record; `false` when there is none.
    pub(super) fn step(&mut self) -> bool {
        let Some(record) = self.records.pop_front() else {
            return false;
        };
        self.answer_looks(record.at);
        self.at = record.at;
        if record.ours {
            self.ask(&record.value);
        } else {
            self.feed(record.value);
        }
        true
    }

    fn ask(&mut self, asked: &Value) {
        match asked["type"].as_str() {
            Some("prompt") => {
                self.turns += 1;
                self.tell(&prompt(self.turns, asked["message"].as_str().unwrap()));
            }
            Some("abort") => self.tell(&WorkerCommand::Cancel {
                turn: TurnId(self.turns),
            }),
            Some("new_session") => self.tell(&WorkerCommand::Recycle),
            Some("extension_ui_response") => {
                let question = asked["id"].as_str().unwrap().to_owned();
                let value = asked["value"].as_str().unwrap_or("").to_owned();
                let reply = match (&asked["confirmed"], &asked["cancelled"]) {
                    (Value::Bool(true), _) => Reply::Approved,
                    (Value::Bool(false), _) => Reply::Denied,
                    (_, Value::Bool(true)) => Reply::Cancelled,
                    _ => Reply::Chosen(value),
                };
                self.tell(&WorkerCommand::Answer { question, reply });
            }
            _ => {}
        }
    }

    fn feed(&mut self, mut said: Value) {
        if said["type"] == "response" {
            let command = said["command"].as_str().unwrap_or("").to_owned();
            if command == "get_state" {
                self.state = said["data"].clone();
                return;
            }
            if let Some(id) = self.open.get_mut(&command).and_then(VecDeque::pop_front) {
                said["id"] = id;
            }
        }
        self.hear(&said);
    }

    pub(super) fn play_until(&mut self, kind: &str) {
        while self
            .records
            .front()
            .is_some_and(|record| record.value["type"] != kind)
        {
            self.step();
        }
        assert!(self.step(), "the recording has a {kind}");
    }

    pub(super) fn play(mut self) -> Self {
        while self.step() {}
        self.settle();
        self
    }

    pub(super) fn text(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    pub(super) fn outcomes(&self) -> Vec<&Outcome> {
        let outcomes = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Ended { outcome, .. } => Some(&**outcome),
            _ => None,
        });
        outcomes.collect()
    }

    pub(super) fn outcome(&self) -> &Outcome {
        let outcomes = self.outcomes();
        assert_eq!(outcomes.len(), 1, "{:?}", self.events);
        outcomes[0]
    }

    pub(super) fn count(&self, wanted: impl Fn(&WorkerEvent) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    pub(super) fn kinds_written(&self) -> Vec<&str> {
        self.wrote
            .iter()
            .map(|value| value["type"].as_str().unwrap())
            .collect()
    }
}
