//! Plays a recorded conversation with Codex against the adapter.
//!
//! What the recording's client wrote, the adapter has to write, too, with the same parameters; what
//! Codex answered is fed to it with the adapter's own ids.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use agentd_core::attached::Attachments;
use agentd_core::worker::Reply;
use agentd_protocol::JobId;

use super::*;

pub(super) struct Replay {
    pub(super) codex: Codex,
    pub(super) events: Vec<WorkerEvent>,
    /// Everything that was written, in order.
    pub(super) wrote: Vec<Value>,
    pub(super) records: VecDeque<(bool, Value)>,
    /// The adapter's ids by those of the recording.
    ids: BTreeMap<String, Value>,
    /// How much of what was written has been looked at.
    looked: usize,
    turns: u64,
}

pub(super) fn spawn(resume: Option<&str>) -> Spawn {
    Spawn {
        agent: "codex".into(),
        cwd: "/w".into(),
        provider: Some("mock".into()),
        model: Some("mock-1".into()),
        thinking: None,
        toolsets: None,
        session: None,
        resume: resume.map(str::to_owned),
        prompt: None,
    }
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

fn load(name: &str) -> VecDeque<(bool, Value)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/codex/0.169.0")
        .join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            (line["dir"] == ">", line["rec"].take())
        })
        .collect()
}

impl Replay {
    pub(super) fn bare(spawn: &Spawn) -> Self {
        Self {
            codex: Codex::new(spawn),
            events: Vec::new(),
            wrote: Vec::new(),
            records: VecDeque::new(),
            ids: BTreeMap::new(),
            looked: 0,
            turns: 0,
        }
    }

    /// A Codex with the thread `t`, and nothing to play.
    pub(super) fn ready() -> Self {
        let mut replay = Self::bare(&spawn(None));
        replay.tell(&WorkerCommand::Probe);
        replay.reply(&json!({"userAgent": "x"}));
        replay.reply(&json!({"thread": {"id": "t"}, "model": "mock-1", "modelProvider": "mock"}));
        assert_eq!(
            replay.events.pop(),
            Some(WorkerEvent::Ready(agentd_core::worker::Traits::default()))
        );
        replay.wrote.clear();
        replay.looked = 0;
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
        replay.records = load(name);
        replay
    }

    pub(super) fn tell(&mut self, command: &WorkerCommand) {
        let mut write = Vec::new();
        self.codex.encode(command, &mut self.events, &mut write);
        self.took(&write);
    }

    pub(super) fn hear(&mut self, line: &Value) {
        self.hear_raw(line.to_string().as_bytes());
    }

    pub(super) fn hear_raw(&mut self, line: &[u8]) {
        let mut write = Vec::new();
        self.codex.decode(line, &mut self.events, &mut write);
        self.took(&write);
    }

    /// Codex's answer to the last request.
    pub(super) fn reply(&mut self, result: &Value) {
        let id = self.codex.last;
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

    fn took(&mut self, write: &[u8]) {
        for line in write.split_inclusive(|byte| *byte == b'\n') {
            assert_eq!(line.last(), Some(&b'\n'));
            let line: Value = serde_json::from_slice(line).unwrap();
            // No recording has it.
            if line["method"] != "account/read" {
                self.wrote.push(line);
            }
        }
    }

    /// Plays one record; `false` when there is none.
    pub(super) fn step(&mut self) -> bool {
        let Some((ours, mut record)) = self.records.pop_front() else {
            return false;
        };
        if ours {
            self.ask(&record);
        } else {
            if record.get("method").is_none() {
                record["id"] = self.ids[&record["id"].to_string()].clone();
            }
            self.hear(&record);
        }
        true
    }

    fn ask(&mut self, asked: &Value) {
        let params = &asked["params"];
        let text = || params["input"][0]["text"].as_str().unwrap().to_owned();
        let turn = TurnId(self.turns);
        match asked["method"].as_str() {
            Some("initialize") => self.tell(&WorkerCommand::Probe),
            Some("turn/start") => {
                self.turns += 1;
                let mut prompt = prompt(self.turns, &text());
                if let WorkerCommand::Prompt(prompt) = &mut prompt {
                    prompt.thinking = params["effort"].as_str().map(str::to_owned);
                }
                self.tell(&prompt);
            }
            Some("turn/interrupt") => self.tell(&WorkerCommand::Cancel { turn }),
            Some("turn/steer") => {
                let word = params["clientUserMessageId"].as_str().unwrap();
                let word = word.trim_start_matches('w').parse().unwrap();
                self.tell(&WorkerCommand::Steer {
                    turn,
                    word,
                    text: text(),
                });
            }
            Some("thread/compact/start") => self.tell(&WorkerCommand::Compact {
                session: "main".into(),
                instructions: None,
            }),
            // The adapter writes these by itself.
            Some(_) => {}
            None => {
                let reply = match asked["result"]["decision"].as_str() {
                    Some("accept") => Reply::Approved,
                    _ => Reply::Denied,
                };
                self.tell(&WorkerCommand::Answer {
                    question: asked["id"].to_string(),
                    reply,
                });
            }
        }
        self.compare(asked);
    }

    /// The adapter has written just what the recording's client wrote.
    fn compare(&mut self, asked: &Value) {
        let wrote = self.wrote.get(self.looked).cloned();
        let mut wrote = wrote.unwrap_or_else(|| panic!("nothing was written for {asked}"));
        self.looked += 1;
        if asked["method"].is_string() && asked.get("id").is_some() {
            self.ids
                .insert(asked["id"].to_string(), wrote["id"].clone());
            wrote["id"] = asked["id"].clone();
        }
        if asked["method"] == "initialize" {
            wrote["params"]["clientInfo"] = asked["params"]["clientInfo"].clone();
        }
        assert_eq!(&wrote, asked);
    }

    /// Plays up to the prompt with this text.
    pub(super) fn play_before(mut self, text: &str) -> Self {
        let asks = |(ours, record): &(bool, Value)| {
            *ours
                && record["method"] == "turn/start"
                && record["params"]["input"][0]["text"] == text
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
        assert_eq!(self.looked, self.wrote.len(), "{:?}", self.wrote.last());
        self
    }

    pub(super) fn outcomes(&self) -> Vec<&Outcome> {
        let outcomes = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Ended { outcome, .. } => Some(&**outcome),
            _ => None,
        });
        outcomes.collect()
    }

    pub(super) fn count(&self, wanted: impl Fn(&WorkerEvent) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    /// The methods of the requests that were written.
    pub(super) fn methods(&self) -> Vec<&str> {
        let methods = self.wrote.iter().map(|line| line["method"].as_str());
        methods.flatten().collect()
    }
}
