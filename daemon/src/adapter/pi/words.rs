//! What is said to pi beside prompts: words to its run, answers to its dialogs, `compact`.
//!
//! Owns pi's steering queue as far as its reports tell: a word is taken when it has left that
//! queue for the run, and what is left at the run's end is removed before anything else. Must not
//! know when a turn is over.

use agentd_core::ids::TurnId;
use agentd_core::worker::{Failure, Reply, Steering, WorkerEvent};
use agentd_protocol::Code;
use serde_json::{Value, json};

use super::turn::{Abort, failure};
use super::{Pi, Recycle};
use crate::adapter::object::{Object, beginning, put_line};

/// A word to the turn in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Word {
    number: u64,
    place: Place,
}

/// Where a word is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// With us: before `agent_start` pi would keep it for the next prompt.
    Held(String),
    /// Written under this id, and not seen in pi's queue.
    Sent(String),
    /// In pi's queue.
    Queued(String),
}

/// Words and the one compaction.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Words {
    words: Vec<Word>,
    /// Length of pi's queue, as last reported.
    queued: usize,
    /// Has pi words that its run didn't take?
    left: bool,
    /// The `clear_queue` that is out.
    clearing: Option<String>,
    /// The `compact` that is out.
    compact: Option<String>,
}

impl Words {
    /// Must prompts wait?
    pub(super) const fn are_busy(&self) -> bool {
        self.clearing.is_some() || self.compact.is_some()
    }

    fn take(&mut self, id: &str) -> Option<&mut Word> {
        self.words.iter_mut().find(|word| match &word.place {
            Place::Sent(sent) | Place::Queued(sent) => sent == id,
            Place::Held(_) => false,
        })
    }
}

impl Pi {
    pub(super) fn steer(
        &mut self,
        turn: TurnId,
        number: u64,
        text: &str,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let waits = self
            .waiting
            .as_ref()
            .is_some_and(|prompt| prompt.turn == turn);
        if !waits && self.turn.as_ref().is_none_or(|known| known.turn != turn) {
            return events.push(too_late(number));
        }
        let place = Place::Held(text.to_owned());
        self.words.words.push(Word { number, place });
        self.say_words(write);
    }

    /// Writes the words that waited for the run to begin.
    pub(super) fn say_words(&mut self, write: &mut Vec<u8>) {
        let runs = |turn: &super::Turn| turn.started && turn.abort == Abort::No;
        if !self.turn.as_ref().is_some_and(runs) {
            return;
        }
        for at in 0..self.words.words.len() {
            if let Place::Held(text) = &self.words.words[at].place {
                let fields = json!({"message": text});
                let id = self.request("steer", fields, write);
                self.words.words[at].place = Place::Sent(id);
            }
        }
    }

    /// Is a response one to a word, to `clear_queue` or to `compact`? Then it is dealt with.
    pub(super) fn word_answered(
        &mut self,
        id: &str,
        bytes: &[u8],
        record: &Object<'_>,
        events: &mut Vec<WorkerEvent>,
    ) -> bool {
        let success = record.is_true("success");
        let error = record.string("error").unwrap_or_default();
        if self.words.clearing.as_deref() == Some(id) {
            self.words.clearing = None;
            self.words.queued = 0;
            if !success {
                events.push(WorkerEvent::Logged {
                    line: beginning(bytes),
                });
                events.push(spoilt());
            }
            self.finish(None, events);
            return true;
        }
        if self.words.compact.as_deref() == Some(id) {
            self.words.compact = None;
            self.compacting = false;
            let data = record.object("data");
            let summary = data.and_then(|data| data.string("summary"));
            let result = if success {
                Ok(summary)
            } else {
                Err(failure(&error))
            };
            events.push(WorkerEvent::Compacted { result });
            return true;
        }
        let Some(word) = self.words.take(id) else {
            return false;
        };
        let number = word.number;
        let data = record.object("data");
        let disposition = data.and_then(|data| data.string("disposition"));
        let handled = disposition.as_deref() == Some("handled");
        if success && !handled {
            // It is in the queue, whether that was reported before or comes after.
            return true;
        }
        let steering = if success {
            Steering::Taken
        } else {
            Steering::Refused(failure(&error))
        };
        self.words.words.retain(|word| word.number != number);
        events.push(WorkerEvent::Steered {
            word: number,
            steering,
        });
        true
    }

    /// pi told how its queue stands: what it had before and hasn't now, its run has taken.
    pub(super) fn queue_changed(&mut self, record: &Object<'_>, events: &mut Vec<WorkerEvent>) {
        let steering: Option<Vec<Value>> = record.get("steering");
        let queued = steering.map_or(0, |steering| steering.len());
        let before = std::mem::replace(&mut self.words.queued, queued);
        let words = &mut self.words.words;
        if queued > before {
            let sent = words.iter_mut().filter_map(|word| match &word.place {
                Place::Sent(id) => Some((id.clone(), word)),
                Place::Held(_) | Place::Queued(_) => None,
            });
            for (id, word) in sent.take(queued - before) {
                word.place = Place::Queued(id);
            }
            return;
        }
        for _ in queued..before {
            let first = |word: &Word| matches!(word.place, Place::Queued(_));
            if let Some(at) = words.iter().position(first) {
                let word = words.remove(at).number;
                let steering = Steering::Taken;
                events.push(WorkerEvent::Steered { word, steering });
            }
        }
    }

    /// The run is over: what it has not taken is too late. Returns whether the turn must stay open
    /// until pi's queue is empty.
    pub(super) fn run_over(&mut self, events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>) -> bool {
        for word in std::mem::take(&mut self.words.words) {
            self.words.left |= !matches!(word.place, Place::Held(_));
            events.push(too_late(word.number));
        }
        self.words.left |= self.words.queued > 0;
        if !std::mem::take(&mut self.words.left) {
            return false;
        }
        if self.settles {
            self.words.clearing = Some(self.request("clear_queue", json!({}), write));
            return true;
        }
        // The old dialect can't: the next prompt would bring the word along.
        self.words.queued = 0;
        events.push(spoilt());
        false
    }

    /// Asks pi to shorten its session; in the middle of a run that would end the run unseen.
    pub(super) fn compact(
        &mut self,
        instructions: Option<&str>,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let busy = self.turn.is_some() || self.waiting.is_some() || self.running;
        if busy || self.compacting || self.words.are_busy() || self.recycle != Recycle::No {
            let failure = Failure::new(Code::SessionBusy, "pi is busy");
            let result = Err(failure);
            return events.push(WorkerEvent::Compacted { result });
        }
        let fields = match instructions {
            Some(instructions) => json!({"customInstructions": instructions}),
            None => json!({}),
        };
        self.words.compact = Some(self.request("compact", fields, write));
    }
}

/// What became of a dialog.
pub(super) fn put_reply(question: &str, reply: &Reply, write: &mut Vec<u8>) {
    let mut line = json!({"type": "extension_ui_response", "id": question});
    let (name, value) = match reply {
        Reply::Approved => ("confirmed", json!(true)),
        Reply::Denied => ("confirmed", json!(false)),
        Reply::Chosen(option) => ("value", json!(option)),
        Reply::Text(text) => ("value", json!(text)),
        Reply::Cancelled => ("cancelled", json!(true)),
    };
    line[name] = value;
    put_line(write, &line);
}

const fn too_late(word: u64) -> WorkerEvent {
    WorkerEvent::Steered {
        word,
        steering: Steering::TooLate,
    }
}

const fn spoilt() -> WorkerEvent {
    WorkerEvent::Spoilt {
        why: "pi kept a word that came too late and would give it to the next turn",
    }
}
