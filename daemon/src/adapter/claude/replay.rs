//! How recorded conversations with Claude Code are played.
//!
//! What the recording's client wrote stands where the adapter must have written the same kind of
//! line by then; what the agent said is fed to it with the adapter's own ids.

use agentd_core::worker::WorkerCommand;

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::adapter::testing::{self, Record, Recorded, prompt, spawn};

pub(super) type Replay = testing::Replay<Claude>;

#[derive(Default)]
pub(in crate::adapter) struct Client {
    /// Lines that were written and not compared yet.
    unread: VecDeque<Value>,
    /// The recording's ids, and the adapter's in their place.
    ids: BTreeMap<String, String>,
}

pub(super) const CANCEL: WorkerCommand = WorkerCommand::Cancel { turn: TurnId(1) };

/// A word as it was recorded.
pub(super) fn steer(word: u64) -> WorkerCommand {
    testing::steer(word, "WORD")
}

impl Recorded for Claude {
    type Client = Client;

    /// Control requests by what they ask.
    fn name(line: &Value) -> Option<&str> {
        let subtype = line["request"]["subtype"].as_str();
        subtype.or_else(|| line["type"].as_str())
    }

    fn may_write(line: &Value) -> bool {
        let known = ["control_request", "control_response", "user"];
        known.iter().any(|kind| line["type"] == *kind)
    }

    fn wrote(replay: &mut Replay, line: Value) {
        replay.wrote.push(line.clone());
        replay.client.unread.push_back(line);
    }

    fn asks(replay: &mut Replay, record: &Record) -> bool {
        let Some(written) = replay.client.unread.pop_front() else {
            return false;
        };
        let recorded = &record.value;
        assert_eq!(written["type"], recorded["type"], "{written} {recorded}");
        assert_eq!(
            written["request"]["subtype"], recorded["request"]["subtype"],
            "{written}"
        );
        for name in ["uuid", "request_id"] {
            if let (Some(theirs), Some(own)) = (recorded[name].as_str(), written[name].as_str()) {
                let ids = &mut replay.client.ids;
                ids.insert(theirs.to_owned(), own.to_owned());
            }
        }
        true
    }

    fn says(replay: &mut Replay, record: Record) {
        let mut text = record.value.to_string();
        for (theirs, own) in &replay.client.ids {
            text = text.replace(&format!("\"{theirs}\""), &format!("\"{own}\""));
        }
        replay.hear_raw(text.as_bytes());
    }
}

impl Replay {
    /// A process without a recording.
    pub(super) fn bare() -> Self {
        Self::new(Claude::new(&spawn()))
    }

    /// A new process and a recording that is not begun.
    pub(super) fn of(name: &str) -> Self {
        let mut replay = Self::bare();
        replay.records = testing::load(format!("claude/{name}.jsonl"));
        replay
    }

    /// A recording up to its first prompt, which is told as turn 1.
    pub(super) fn turn(name: &str) -> Self {
        let mut replay = Self::of(name);
        replay.tell(&WorkerCommand::Probe);
        replay.play();
        let text = replay.records[0].value["message"]["content"].clone();
        replay.events.clear();
        replay.tell(&prompt(1, text.as_str().unwrap()));
        replay
    }

    /// Feeds what the agent said until the recording's client says what the adapter hasn't said.
    pub(super) fn play(&mut self) {
        while self.step() {}
    }
}
