//! Which turns wait for a process: the oldest of each session first.
//!
//! Owns that order, so that finding what may start costs as much as there are sessions, not turns.
//! Must not know why a turn waits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use crate::ids::TurnId;
use crate::session::SessionId;

/// A set of turns, with the first one of each session.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Waiting {
    turns: BTreeMap<TurnId, SessionId>,
    of: BTreeMap<SessionId, BTreeSet<TurnId>>,
    heads: BTreeMap<TurnId, SessionId>,
}

impl Waiting {
    pub(crate) fn insert(&mut self, turn: TurnId, session: SessionId) {
        self.turns.insert(turn, session);
        self.change(session, |turns| {
            turns.insert(turn);
        });
    }

    pub(crate) fn remove(&mut self, turn: TurnId) {
        if let Some(session) = self.turns.remove(&turn) {
            self.change(session, |turns| {
                turns.remove(&turn);
            });
        }
    }

    fn change(&mut self, session: SessionId, change: impl FnOnce(&mut BTreeSet<TurnId>)) {
        let turns = self.of.entry(session).or_default();
        let before = turns.first().copied();
        change(turns);
        let after = turns.first().copied();
        if turns.is_empty() {
            self.of.remove(&session);
        }
        if before != after {
            before.map(|head| self.heads.remove(&head));
            after.map(|head| self.heads.insert(head, session));
        }
    }

    /// The first session whose oldest turn is younger than this one.
    pub(crate) fn session_after(&self, turn: Option<TurnId>) -> Option<(TurnId, SessionId)> {
        let after = turn.map_or(Unbounded, Excluded);
        let mut heads = self.heads.range((after, Unbounded));
        heads.next().map(|(turn, session)| (*turn, *session))
    }

    /// The oldest turn of each session.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (&TurnId, &SessionId)> {
        self.heads.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.turns.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_its_turn_by_its_oldest_one() {
        let mut waiting = Waiting::default();
        for (turn, session) in [(4, 1), (2, 2), (3, 1), (5, 2), (6, 3)] {
            waiting.insert(TurnId(turn), SessionId(session));
        }
        let order = |waiting: &Waiting| {
            let mut found = Vec::new();
            while let Some((turn, session)) =
                waiting.session_after(found.last().map(|(turn, _)| TurnId(*turn)))
            {
                found.push((turn.0, session.0));
            }
            found
        };
        assert_eq!(order(&waiting), [(2, 2), (3, 1), (6, 3)]);
        for gone in [2, 3, 6, 6] {
            waiting.remove(TurnId(gone));
        }
        assert_eq!(order(&waiting), [(4, 1), (5, 2)]);
        assert_eq!(waiting.len(), 2);
    }
}
