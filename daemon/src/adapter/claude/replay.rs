//! Plays a recorded conversation with Claude Code against the adapter.
//!
//! What the recording's client wrote stands where the adapter must have written the same kind of
//! line by then; what the agent said is fed to it with the adapter's own ids.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use agentd_core::attached::Attachments;
use agentd_core::ids::TurnId;
use agentd_core::worker::Reply;
use agentd_protocol::JobId;

use super::*;

pub(super) struct Replay {
    pub(super) claude: Claude,
    pub(super) events: Vec<WorkerEvent>,
    pub(super) wrote: Vec<Value>,
    records: VecDeque<(bool, Value)>,
    /// Lines that were written and not compared yet.
    unread: VecDeque<Value>,
    /// The recording's ids, and the adapter's in their place.
    ids: BTreeMap<String, String>,
}

pub(super) fn spawn() -> Spawn {
    Spawn {
        agent: "claude".into(),
        cwd: "/work".into(),
        provider: None,
        model: None,
        thinking: None,
        toolsets: None,
        session: None,
        resume: None,
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
        cwd: "/work".into(),
        toolsets: None,
    }))
}

pub(super) fn steer(word: u64) -> WorkerCommand {
    WorkerCommand::Steer {
        turn: TurnId(1),
        word,
        text: "WORD".into(),
    }
}

pub(super) fn answer(question: &str, reply: Reply) -> WorkerCommand {
    let question = question.to_owned();
    WorkerCommand::Answer { question, reply }
}

pub(super) const CANCEL: WorkerCommand = WorkerCommand::Cancel { turn: TurnId(1) };

impl Replay {
    /// A new process and a recording that is not begun.
    pub(super) fn of(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/claude");
        let text = std::fs::read_to_string(folder.join(format!("{name}.jsonl"))).unwrap();
        let record = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            (value["dir"] == "in", value["line"].clone())
        };
        Self {
            records: text.lines().map(record).collect(),
            ..Self::bare()
        }
    }

    /// A process without a recording.
    pub(super) fn bare() -> Self {
        Self {
            claude: Claude::new(&spawn()),
            events: Vec::new(),
            wrote: Vec::new(),
            records: VecDeque::new(),
            unread: VecDeque::new(),
            ids: BTreeMap::new(),
        }
    }

    /// A recording up to its first prompt, which is told as turn 1.
    pub(super) fn turn(name: &str) -> Self {
        let mut replay = Self::of(name);
        replay.tell(&WorkerCommand::Probe);
        replay.play();
        let text = replay.records[0].1["message"]["content"].clone();
        replay.events.clear();
        replay.tell(&prompt(1, text.as_str().unwrap()));
        replay
    }

    pub(super) fn tell(&mut self, command: &WorkerCommand) {
        let mut write = Vec::new();
        self.claude.encode(command, &mut self.events, &mut write);
        self.written(&write);
    }

    pub(super) fn hear(&mut self, line: &Value) {
        self.hear_raw(line.to_string().as_bytes());
    }

    pub(super) fn hear_raw(&mut self, line: &[u8]) {
        let mut write = Vec::new();
        self.claude.decode(line, &mut self.events, &mut write);
        self.written(&write);
    }

    /// Every line is an object that the wire knows.
    fn written(&mut self, write: &[u8]) {
        assert!(write.is_empty() || write.ends_with(b"\n"));
        for line in write
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let value: Value = serde_json::from_slice(line).unwrap();
            let known = ["control_request", "control_response", "user"];
            assert!(known.contains(&value["type"].as_str().unwrap()), "{value}");
            self.wrote.push(value.clone());
            self.unread.push_back(value);
        }
    }

    /// Feeds what the agent said until the recording's client says what the adapter hasn't said.
    pub(super) fn play(&mut self) {
        while self.step() {}
    }

    /// Feeds lines until one that is `fits`, that one included.
    pub(super) fn play_until(&mut self, fits: impl Fn(&Value) -> bool) {
        loop {
            let next = self.records.front().expect("a line that fits").clone();
            assert!(self.step(), "the adapter has not written {}", next.1);
            if !next.0 && fits(&next.1) {
                return;
            }
        }
    }

    fn step(&mut self) -> bool {
        let Some((ours, recorded)) = self.records.front().cloned() else {
            return false;
        };
        if !ours {
            self.records.pop_front();
            let mut text = recorded.to_string();
            for (theirs, own) in &self.ids {
                text = text.replace(&format!("\"{theirs}\""), &format!("\"{own}\""));
            }
            self.hear_raw(text.as_bytes());
            return true;
        }
        let Some(written) = self.unread.pop_front() else {
            return false;
        };
        self.records.pop_front();
        assert_eq!(written["type"], recorded["type"], "{written} {recorded}");
        assert_eq!(
            written["request"]["subtype"], recorded["request"]["subtype"],
            "{written}"
        );
        for name in ["uuid", "request_id"] {
            if let (Some(theirs), Some(own)) = (recorded[name].as_str(), written[name].as_str()) {
                self.ids.insert(theirs.to_owned(), own.to_owned());
            }
        }
        true
    }

    pub(super) fn outcomes(&self) -> Vec<(u64, &Outcome)> {
        let ends = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Ended { turn, outcome } => Some((turn.0, &**outcome)),
            _ => None,
        });
        ends.collect()
    }

    /// The only one.
    pub(super) fn outcome(&self) -> &Outcome {
        let outcomes = self.outcomes();
        assert_eq!(outcomes.len(), 1, "{:#?}", self.events);
        outcomes[0].1
    }

    pub(super) fn count(&self, wanted: impl Fn(&WorkerEvent) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    pub(super) fn text(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// What was written, by its kind.
    pub(super) fn kinds(&self) -> Vec<&str> {
        self.wrote
            .iter()
            .map(|value| {
                let subtype = value["request"]["subtype"].as_str();
                subtype.unwrap_or_else(|| value["type"].as_str().unwrap())
            })
            .collect()
    }
}
