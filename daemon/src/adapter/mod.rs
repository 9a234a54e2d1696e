//! Translation between the core's words and one agent's wire.
//!
//! Owns what every translator is. Sans-I/O: bytes in, events and bytes out.
//! Must not know processes, sessions, timers or the store.

pub mod acp;
mod attached;
pub mod claude;
pub mod codex;
mod driver;
pub mod exec;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod jsonl;
mod kind;
mod object;
pub mod pi;
mod refusal;
mod steer_queue;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
mod unknown;

pub use kind::Kind;

use agentd_core::ids::TurnId;
use agentd_core::worker::{Exit, Outcome, WorkerCommand, WorkerEvent};
use serde_json::Value;

/// What a turn ends with whose last line was too long.
const TOO_LONG: &str = "the agent's last line was longer than 16 MiB and was skipped";

/// The end of a turn.
fn ended(turn: TurnId, outcome: Outcome) -> WorkerEvent {
    WorkerEvent::Ended {
        turn,
        outcome: Box::new(outcome),
    }
}

/// The beginning of a text, cut between characters.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// A command line and what is fed to it at once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Launch {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables of the adapter's own, besides the agent's.
    pub env: Vec<(String, String)>,
    /// Written to standard input, which is then closed; `None` keeps it open for commands.
    pub stdin: Option<Vec<u8>>,
}

/// How standard output is cut before it is decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// In lines of at most 16 MiB; longer ones are skipped with a note.
    Lines,
    /// As it comes, in portions of any size.
    Raw,
}

/// One process's translator. No input makes it panic or grow without bound.
pub trait Adapter: Send {
    /// How standard output is cut.
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    /// Translates a line (or a portion) from the worker into events, appended to `events`.
    /// Bytes that the worker must get in return are appended to `write`.
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>);

    /// Translates a command into bytes for the worker, appended to `write`. What can be answered
    /// without the worker is appended to `events`.
    fn encode(
        &mut self,
        command: &WorkerCommand,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    );

    /// What a line that was too long is taken for, where its beginning shows that a turn waits for
    /// it: otherwise that would have no end.
    fn instead_of(&self, beginning: &[u8]) -> Option<Value> {
        let _unused = beginning;
        None
    }

    /// The process is gone and everything it printed was decoded. Only a kind whose exit is the
    /// turn's end has something to say; `tail` is the end of its standard error.
    fn exited(&mut self, exit: Exit, tail: &str, events: &mut Vec<WorkerEvent>) {
        let _unused = (exit, tail, events);
    }
}
