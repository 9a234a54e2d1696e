//! Plays a recorded conversation with an agent against its adapter.
//!
//! Owns what the adapter told and wrote, that it wrote nothing but whole lines that it may write, and
//! the order of a recording. Must not know any wire: what the recording's client wrote is asked of the
//! adapter instead, and what the agent said is fed to it, as its `Recorded` has it.

use std::collections::VecDeque;
use std::path::Path;

use agentd_core::worker::{Failure, Outcome, WorkerCommand, WorkerEvent};
use serde_json::Value;

use crate::adapter::Adapter;

/// A line of a recording.
#[derive(Clone, Debug)]
pub(in crate::adapter) struct Record {
    /// When it was said, in milliseconds; 0 where that wasn't recorded.
    pub(in crate::adapter) at: f64,
    /// Did the recording's client say it?
    pub(in crate::adapter) ours: bool,
    pub(in crate::adapter) value: Value,
}

/// An adapter of which there are recordings.
pub(in crate::adapter) trait Recorded: Adapter + Sized {
    /// What has to be remembered of a conversation to play it.
    type Client: Default;

    /// What a line that was written is called, if it has a name at all.
    fn name(line: &Value) -> Option<&str>;

    /// May this ever be written?
    fn may_write(line: &Value) -> bool;

    /// This was written.
    fn wrote(replay: &mut Replay<Self>, line: Value) {
        replay.wrote.push(line);
    }

    /// This is about to be heard.
    fn hears(replay: &mut Replay<Self>, line: &Value) {
        let _unused = (replay, line);
    }

    /// The recording's client says this; `false` as long as the adapter has to be told something
    /// before.
    fn asks(replay: &mut Replay<Self>, record: &Record) -> bool;

    /// The agent says this.
    fn says(replay: &mut Replay<Self>, record: Record);
}

/// An adapter with what it told and wrote so far, and what is still to be played.
pub(in crate::adapter) struct Replay<A: Recorded> {
    pub(in crate::adapter) adapter: A,
    pub(in crate::adapter) events: Vec<WorkerEvent>,
    pub(in crate::adapter) wrote: Vec<Value>,
    pub(in crate::adapter) records: VecDeque<Record>,
    pub(in crate::adapter) client: A::Client,
}

/// Reads a file below `tests/fixtures`.
pub(in crate::adapter) fn load(file: impl AsRef<Path>) -> VecDeque<Record> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
    let text = std::fs::read_to_string(fixtures.join(file)).unwrap();
    let record = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let ours = match line["dir"].as_str()? {
            ">" | "in" => true,
            "<" | "out" => false,
            _ => return None,
        };
        let said = ["rec", "line", "msg", "raw"].map(|name| line[name].take());
        Some(Record {
            at: line["t"].as_f64().unwrap_or_default(),
            ours,
            value: said.into_iter().find(|said| !said.is_null())?,
        })
    };
    text.lines().filter_map(record).collect()
}

impl<A: Recorded> Replay<A> {
    /// A new process without a recording.
    pub(in crate::adapter) fn new(adapter: A) -> Self {
        Self {
            adapter,
            events: Vec::new(),
            wrote: Vec::new(),
            records: VecDeque::new(),
            client: A::Client::default(),
        }
    }

    pub(in crate::adapter) fn tell(&mut self, command: &WorkerCommand) {
        let mut write = Vec::new();
        self.adapter.encode(command, &mut self.events, &mut write);
        self.took(&write);
    }

    pub(in crate::adapter) fn hear(&mut self, line: &Value) {
        A::hears(self, line);
        self.hear_raw(line.to_string().as_bytes());
    }

    pub(in crate::adapter) fn hear_raw(&mut self, line: &[u8]) {
        let mut write = Vec::new();
        self.adapter.decode(line, &mut self.events, &mut write);
        self.took(&write);
    }

    fn took(&mut self, write: &[u8]) {
        for line in write.split_inclusive(|byte| *byte == b'\n') {
            assert_eq!(line.last(), Some(&b'\n'), "half a line was written");
            let line: Value = serde_json::from_slice(line).unwrap();
            assert!(line.is_object() && A::may_write(&line), "{line}");
            A::wrote(self, line);
        }
    }

    /// Plays one record; `false` when there is none, or it has to wait.
    pub(in crate::adapter) fn step(&mut self) -> bool {
        let Some(record) = self.records.pop_front() else {
            return false;
        };
        if !record.ours {
            A::says(self, record);
        } else if !A::asks(self, &record) {
            self.records.push_front(record);
            return false;
        }
        true
    }

    /// Plays until a record that `fits`, that one included.
    pub(in crate::adapter) fn play_until(&mut self, fits: impl Fn(&Record) -> bool) {
        loop {
            let next = self.records.front().expect("a record that fits").clone();
            assert!(self.step(), "the adapter has not written {}", next.value);
            if fits(&next) {
                return;
            }
        }
    }

    pub(in crate::adapter) fn outcomes(&self) -> Vec<&Outcome> {
        let ended = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Ended { outcome, .. } => Some(&**outcome),
            _ => None,
        });
        ended.collect()
    }

    /// The only one.
    pub(in crate::adapter) fn outcome(&self) -> &Outcome {
        let outcomes = self.outcomes();
        assert_eq!(outcomes.len(), 1, "{:#?}", self.events);
        outcomes[0]
    }

    pub(in crate::adapter) fn failure(&self) -> &Failure {
        self.outcomes()[0].result.as_ref().unwrap_err()
    }

    pub(in crate::adapter) fn count(&self, wanted: impl Fn(&WorkerEvent) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }

    pub(in crate::adapter) fn text(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The names of what was written.
    pub(in crate::adapter) fn written(&self) -> Vec<&str> {
        self.wrote.iter().filter_map(A::name).collect()
    }
}
