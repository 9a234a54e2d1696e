//! What is said to Claude Code beside prompts: words to its run, `/compact`.
//!
//! Owns its queue as far as `command_lifecycle` tells. A word that a run did not take begins another
//! run by itself as soon as the first is over, so the turn stays open for it. Must not know prompts.

use agentd_core::ids::TurnId;
use agentd_core::worker::{Failure, Steering, WorkerEvent};
use agentd_protocol::Code;
use serde_json::json;

use super::Claude;
use super::turn::{Abort, Turn};

/// A word to the turn in flight.
#[derive(Debug)]
struct Word {
    number: u64,
    place: Place,
}

/// Where a word is.
#[derive(Debug)]
enum Place {
    /// With us: the run is not seen yet.
    Held(String),
    /// Written under this id.
    Sent(String),
}

/// A `/compact` that is out.
#[derive(Default, Debug)]
pub(super) struct Compaction {
    /// What went wrong.
    pub(super) error: Option<String>,
    /// Did the agent say that it has compacted?
    pub(super) done: bool,
    pub(super) summary: Option<String>,
}

/// Words and the one compaction.
#[derive(Default, Debug)]
pub(super) struct Words {
    words: Vec<Word>,
    pub(super) compaction: Option<Compaction>,
}

impl Words {
    /// Are some on their way that no run has taken? One that was never written isn't.
    pub(super) fn are_out(&self) -> bool {
        let sent = |word: &Word| matches!(word.place, Place::Sent(_));
        self.words.iter().any(sent)
    }
}

impl Claude {
    pub(super) fn steer(
        &mut self,
        turn: TurnId,
        number: u64,
        text: &str,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let takes = |known: &Turn| known.turn == turn && known.abort == Abort::No;
        if !self.turn.as_ref().is_some_and(takes) {
            return events.push(steered(number, Steering::TooLate));
        }
        let place = Place::Held(text.to_owned());
        self.words.words.push(Word { number, place });
        self.say_words(events, write);
    }

    /// Writes the words that waited for the run to begin.
    pub(super) fn say_words(&mut self, events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>) {
        let runs = |turn: &Turn| turn.begun && turn.abort == Abort::No;
        if !self.turn.as_ref().is_some_and(runs) {
            return;
        }
        if !self.tells {
            // It could not be taken back, and would be given to a later turn.
            for word in std::mem::take(&mut self.words.words) {
                let why = "this Claude Code does not tell what becomes of a word to its run";
                let failure = Failure::new(Code::Unsupported, why);
                events.push(steered(word.number, Steering::Refused(failure)));
            }
            return;
        }
        for at in 0..self.words.words.len() {
            if let Place::Held(text) = &mut self.words.words[at].place {
                let text = std::mem::take(text);
                let id = self.say(&text, write);
                self.words.words[at].place = Place::Sent(id);
            }
        }
    }

    /// The agent told where a message is. Returns whether it was a word of ours.
    pub(super) fn word_moved(
        &mut self,
        id: &str,
        state: &str,
        events: &mut Vec<WorkerEvent>,
    ) -> bool {
        let is = |word: &Word| matches!(&word.place, Place::Sent(sent) if sent == id);
        let Some(at) = self.words.words.iter().position(is) else {
            return false;
        };
        let steering = match state {
            "started" | "completed" => Steering::Taken,
            "cancelled" | "discarded" | "refused" => Steering::TooLate,
            _ => return true,
        };
        let word = self.words.words.remove(at);
        events.push(steered(word.number, steering));
        true
    }

    /// Takes back what no run has taken.
    pub(super) fn drop_words(&mut self, events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>) {
        for word in std::mem::take(&mut self.words.words) {
            if let Place::Sent(id) = word.place {
                let request = json!({"message_uuid": id});
                self.request(request, "cancel_async_message", write);
            }
            events.push(steered(word.number, Steering::TooLate));
        }
    }

    /// The turn is over: a word that is still out may be given to a later one.
    pub(super) fn lose_words(&mut self, events: &mut Vec<WorkerEvent>) {
        if self.words.are_out() {
            let why = "Claude Code may give a word that came too late to the next turn";
            events.push(WorkerEvent::Spoilt { why });
        }
        for word in std::mem::take(&mut self.words.words) {
            events.push(steered(word.number, Steering::TooLate));
        }
    }

    /// Asks the agent to shorten its session.
    pub(super) fn compact(
        &mut self,
        instructions: Option<&str>,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        if self.turn.is_some() || self.words.compaction.is_some() {
            let failure = Failure::new(Code::SessionBusy, "Claude Code is busy");
            return events.push(WorkerEvent::Compacted {
                result: Err(failure),
            });
        }
        let text = match instructions {
            Some(instructions) => format!("/compact {instructions}"),
            None => "/compact".to_owned(),
        };
        self.say(&text, write);
        self.words.compaction = Some(Compaction::default());
    }
}

const fn steered(word: u64, steering: Steering) -> WorkerEvent {
    WorkerEvent::Steered { word, steering }
}
