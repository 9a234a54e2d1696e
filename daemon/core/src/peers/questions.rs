//! Questions that wait for their answers, and who would answer.
//!
//! Owns the list. Must not know wires, nor when a question is closed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{ConnId, Process, QuestionId, TurnId};
use crate::worker::Asking;

/// What closed a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closed {
    /// Somebody answered.
    Answer,
    /// Nobody did in time.
    Expiry,
    /// Nobody was there.
    Nobody,
    /// The turn ended, or the agent withdrew it.
    Cancel,
    /// The process that asked is gone.
    Exit,
}

impl Closed {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Expiry => "expiry",
            Self::Nobody => "nobody",
            Self::Cancel => "cancel",
            Self::Exit => "exit",
        }
    }
}

/// One that waits for its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    pub(crate) turn: TurnId,
    pub(crate) process: Process,
    pub(crate) asking: Asking,
    pub(crate) expires_at: String,
}

/// All of them, and who would answer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Questions {
    pub(crate) open: BTreeMap<QuestionId, Question>,
    /// The last ones that were closed, and by what.
    pub(crate) closed: VecDeque<(QuestionId, Closed)>,
    /// Connections where somebody answers.
    pub(crate) answerers: BTreeSet<ConnId>,
}

impl Questions {
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// A connection said whether somebody answers there.
    pub(crate) fn answers(&mut self, conn: ConnId, answers: bool) {
        if answers {
            self.answerers.insert(conn);
        } else {
            self.answerers.remove(&conn);
        }
    }

    pub(crate) fn answers_no_more(&mut self, conn: ConnId) {
        self.answerers.remove(&conn);
    }

    pub(crate) fn of_turn(&self, turn: TurnId) -> Vec<QuestionId> {
        let of_turn = self.open.iter().filter(|(_, open)| open.turn == turn);
        of_turn.map(|(question, _)| *question).collect()
    }
}
