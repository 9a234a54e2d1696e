//! Turns that end together with many others: each event commits only so many, the rest follows.
//!
//! Owns those whose end is decided and not yet asked for, and how many ends one event has room for.
//! Must not know why they end.

use std::collections::{BTreeSet, VecDeque};

use crate::ids::{Token, TurnId};
use crate::jobs::job::{Ending, Phase};
use crate::limits::{ENDED_AT_ONCE, ENDS_IN_FLIGHT};
use crate::worker::Failure;

/// How a turn is to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// As it was told to.
    Asked(Ending),
    /// With an error.
    Failed(Box<Failure>),
    /// It waited too long.
    Expired,
}

/// Turns that end together with many others.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Slices {
    /// Those that wait for their slice, each with the phase it was in.
    waiting: VecDeque<(TurnId, Phase, Fate)>,
    /// How many commits this event may still end some with: mostly each is one.
    left: usize,
    /// Final lines that the store was asked for and has not answered.
    in_flight: BTreeSet<Token>,
}

impl Slices {
    fn has_room(&self) -> bool {
        self.in_flight.len() + ENDED_AT_ONCE <= ENDS_IN_FLIGHT
    }

    /// A new event: it may end so many.
    pub(crate) fn begin(&mut self) {
        self.left = if self.has_room() { ENDED_AT_ONCE } else { 0 };
    }

    /// May one more end now, with nobody before it?
    pub(crate) fn is_open(&self) -> bool {
        self.left > 0 && self.waiting.is_empty()
    }

    /// One more waits for its slice.
    pub(crate) fn push(&mut self, turn: TurnId, before: Phase, fate: Fate) {
        self.waiting.push_back((turn, before, fate));
    }

    /// The next one that may end with this event.
    pub(crate) fn pop(&mut self) -> Option<(TurnId, Phase, Fate)> {
        (self.left > 0).then(|| self.waiting.pop_front()).flatten()
    }

    /// One has ended, with so many commits; its final line is in this one.
    pub(crate) fn ended(&mut self, commits: usize, last: Option<Token>) {
        // Only its final line is counted: what else it commits is answered before that.
        self.in_flight.extend(last);
        // One that was over already commits nothing, and still costs the event its look.
        self.left = self.left.saturating_sub(commits.max(1));
    }

    /// How many commits this event may still end some with.
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// Does the rest follow with the next event? Otherwise an answer of the store comes first.
    pub(crate) fn goes_on_at_once(&self) -> bool {
        self.has_room() && !self.waiting.is_empty()
    }

    /// The store answered a commit.
    pub(crate) fn stored(&mut self, token: Token) {
        self.in_flight.remove(&token);
    }
}
