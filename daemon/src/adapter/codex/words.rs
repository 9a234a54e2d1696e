//! What is said to Codex beside prompts: words to its turn, and `thread/compact/start`.
//!
//! Owns the words that Codex has and the turn hasn't: one is taken when it comes back as a user's
//! message of the turn, and what hasn't by the turn's end is too late (Codex drops it, as was seen).
//! Must not know when a turn is over.

use agentd_core::ids::TurnId;
use agentd_core::worker::{Failure, Steering, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::Stop;
use serde_json::json;

use super::turn::{Abort, failure};
use super::{Asked, Codex, Thread};
use crate::adapter::object::Object;

/// A word to the turn in flight.
#[derive(Debug)]
struct Word {
    number: u64,
    /// Its text, until it is written: before `turn/started` it would be refused.
    held: Option<String>,
}

/// The one compaction.
#[derive(Debug)]
struct Compaction {
    /// Codex's turn that does it, once that has begun.
    turn: Option<String>,
}

/// Words and the one compaction.
#[derive(Default, Debug)]
pub(super) struct Words {
    words: Vec<Word>,
    compaction: Option<Compaction>,
}

impl Words {
    /// Must prompts wait?
    pub(super) const fn are_compacting(&self) -> bool {
        self.compaction.is_some()
    }

    /// The turn has a word; `false` if it isn't one of ours that is open.
    fn close(&mut self, number: u64, steering: Steering, events: &mut Vec<WorkerEvent>) {
        let before = self.words.len();
        self.words.retain(|word| word.number != number);
        if self.words.len() < before {
            events.push(WorkerEvent::Steered {
                word: number,
                steering,
            });
        }
    }

    /// A user's message of the turn: is it a word?
    pub(super) fn seen(&mut self, item: &Object<'_>, events: &mut Vec<WorkerEvent>) {
        let client = item.string("clientId").unwrap_or_default();
        if let Some(number) = client.strip_prefix('w').and_then(|word| word.parse().ok()) {
            self.close(number, Steering::Taken, events);
        }
    }

    /// What the turn hasn't taken is too late.
    pub(super) fn turn_over(&mut self, events: &mut Vec<WorkerEvent>) {
        for word in std::mem::take(&mut self.words) {
            events.push(too_late(word.number));
        }
    }

    /// A turn began that isn't the prompt's: is it the compaction's?
    pub(super) fn began(&mut self, native: &str) -> bool {
        match &mut self.compaction {
            Some(Compaction { turn: turn @ None }) => {
                *turn = Some(native.to_owned());
                true
            }
            _ => false,
        }
    }

    /// A turn ended that isn't the prompt's: is it the compaction's?
    pub(super) fn compacted(
        &mut self,
        native: &str,
        result: Result<Stop, Failure>,
        events: &mut Vec<WorkerEvent>,
    ) -> bool {
        let mine = |compaction: &mut Compaction| compaction.turn.as_deref() == Some(native);
        if self.compaction.take_if(mine).is_none() {
            return false;
        }
        let result = match result {
            Ok(Stop::Cancelled) => Err(Failure::new(
                Code::AgentFailed,
                "codex: the compaction was interrupted",
            )),
            Ok(_) => Ok(None),
            Err(failure) => Err(failure),
        };
        events.push(WorkerEvent::Compacted { result });
        true
    }
}

impl Codex {
    pub(super) fn steer(
        &mut self,
        turn: TurnId,
        number: u64,
        text: &str,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let waits = self.waiting.as_ref().map(|prompt| prompt.turn) == Some(turn);
        let runs = self.turn.as_ref().map(|known| known.turn) == Some(turn);
        if !waits && !runs {
            return events.push(too_late(number));
        }
        let held = Some(text.to_owned());
        self.words.words.push(Word { number, held });
        self.say_words(write);
    }

    /// Writes the words that waited for the turn to begin.
    pub(super) fn say_words(&mut self, write: &mut Vec<u8>) {
        let (Some(turn), Thread::Open(thread)) = (&self.turn, &self.thread) else {
            return;
        };
        if !turn.started || turn.abort != Abort::No {
            return;
        }
        let (native, thread) = (turn.native.clone(), thread.clone());
        for at in 0..self.words.words.len() {
            let word = &mut self.words.words[at];
            let number = word.number;
            if let Some(text) = word.held.take() {
                let params = json!({
                    "threadId": thread,
                    "expectedTurnId": native,
                    "clientUserMessageId": format!("w{number}"),
                    "input": [{"type": "text", "text": text}],
                });
                self.request(Asked::Steer(number), "turn/steer", &params, write);
            }
        }
    }

    /// The answer to `turn/steer`: a word that was received is not taken yet.
    pub(super) fn steer_answered(
        &mut self,
        number: u64,
        error: Option<&str>,
        events: &mut Vec<WorkerEvent>,
    ) {
        if let Some(error) = error {
            let steering = if error.contains("no active turn") {
                Steering::TooLate
            } else {
                Steering::Refused(failure(error, None))
            };
            self.words.close(number, steering, events);
        }
    }

    /// Asks Codex to shorten its thread.
    pub(super) fn compact(
        &mut self,
        instructed: bool,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let mut refuse = |code, why: &str| {
            let result = Err(Failure::new(code, why));
            events.push(WorkerEvent::Compacted { result });
        };
        let Thread::Open(thread) = &self.thread else {
            return refuse(Code::SessionIdle, "codex has no thread open");
        };
        if self.turn.is_some() || self.waiting.is_some() || self.words.are_compacting() {
            return refuse(Code::SessionBusy, "codex is busy");
        }
        if instructed {
            return refuse(
                Code::Unsupported,
                "codex takes no instructions for a compaction",
            );
        }
        let params = json!({"threadId": thread});
        self.words.compaction = Some(Compaction { turn: None });
        self.request(Asked::Compact, "thread/compact/start", &params, write);
    }

    /// `thread/compact/start` was refused.
    pub(super) fn compact_refused(&mut self, error: &str, events: &mut Vec<WorkerEvent>) {
        if self.words.compaction.take().is_some() {
            let result = Err(failure(error, None));
            events.push(WorkerEvent::Compacted { result });
        }
    }
}

const fn too_late(word: u64) -> WorkerEvent {
    WorkerEvent::Steered {
        word,
        steering: Steering::TooLate,
    }
}
