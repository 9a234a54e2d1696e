//! Questions that wait for their answers, and who would answer.
//!
//! Owns the list. Must not know wires, nor when a question is closed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agentd_protocol::work::Silence;

use crate::ids::{ConnId, Process, QuestionId, TurnId};
use crate::limits::QUESTIONS_CLOSED;
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

    /// Why nobody answered; `None` where somebody did.
    pub(crate) const fn silence(self) -> Option<Silence> {
        match self {
            Self::Answer => None,
            Self::Expiry => Some(Silence::Expiry),
            Self::Nobody => Some(Silence::Nobody),
            Self::Cancel | Self::Exit => Some(Silence::Cancel),
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
    pub(crate) asked_at: Duration,
}

/// All of them, and who would answer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Questions {
    open: BTreeMap<QuestionId, Question>,
    /// The last ones that were closed, and by what.
    closed: VecDeque<(QuestionId, Closed)>,
    /// Connections where somebody answers.
    answerers: BTreeSet<ConnId>,
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

    /// Where somebody answers.
    pub(crate) fn answerers(&self) -> impl Iterator<Item = &ConnId> {
        self.answerers.iter()
    }

    pub(crate) fn get(&self, question: QuestionId) -> Option<&Question> {
        self.open.get(&question)
    }

    /// The open ones, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (QuestionId, &Question)> {
        self.open.iter().map(|(question, open)| (*question, open))
    }

    pub(crate) fn insert(&mut self, question: QuestionId, open: Question) {
        self.open.insert(question, open);
    }

    /// Closes one that is open, and remembers by what.
    pub(crate) fn close(&mut self, question: QuestionId, by: Closed) -> Option<Question> {
        let open = self.open.remove(&question)?;
        self.closed.push_back((question, by));
        // Of older ones the store knows whether they were ever asked.
        if self.closed.len() > QUESTIONS_CLOSED {
            self.closed.pop_front();
        }
        Some(open)
    }

    /// What closed one, if that was lately.
    pub(crate) fn closed_by(&self, question: QuestionId) -> Option<Closed> {
        let mut closed = self.closed.iter();
        let found = closed.find(|(closed, _)| *closed == question);
        found.map(|(_, by)| *by)
    }

    pub(crate) fn of_turn(&self, turn: TurnId) -> Vec<QuestionId> {
        let of_turn = self.open.iter().filter(|(_, open)| open.turn == turn);
        of_turn.map(|(question, _)| *question).collect()
    }
}
