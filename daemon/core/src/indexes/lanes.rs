//! Which turns could run next, in lanes of those that wait for the same: the next one of each
//! session.
//!
//! Owns their order, so that what an event makes possible is found at the heads of a few lanes,
//! however many wait behind them. Must not know why a turn waits.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Unbounded};
use std::sync::Arc;

use crate::ids::{SessionId, TurnId, WorkerId};
use crate::pool::fit::Fit;

/// What a session that no process holds needs of one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Need {
    pub(crate) agent: String,
    /// Without what a process takes with each turn; nothing where each turn is a process.
    pub(crate) fit: Option<Fit>,
    /// It has to be started for its session.
    pub(crate) own: bool,
}

/// What the turns of a lane wait for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Lane {
    /// The process that holds their sessions.
    Held(WorkerId),
    /// Any process, one that is there or a new one.
    Free(Arc<Need>),
}

/// The next turn of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Next {
    pub(crate) turn: TurnId,
    pub(crate) session: SessionId,
}

/// The lanes. Turns are numbered in the order of acceptance.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Lanes {
    of: BTreeMap<SessionId, (TurnId, Lane)>,
    lanes: BTreeMap<Lane, BTreeMap<TurnId, SessionId>>,
    /// The oldest of each lane for which a process may be started.
    heads: BTreeMap<TurnId, Lane>,
}

impl Lanes {
    /// A session's next turn is this one, and waits in this lane; or it has none.
    pub(crate) fn put(&mut self, session: SessionId, next: Option<(TurnId, Lane)>) {
        // Most events touch a session without changing what it waits for.
        if self.of.get(&session) == next.as_ref() {
            return;
        }
        if let Some((turn, lane)) = self.of.remove(&session) {
            self.change(&lane, |turns| {
                turns.remove(&turn);
            });
        }
        if let Some((turn, lane)) = next {
            let lane = self.shared(lane);
            self.change(&lane, |turns| {
                turns.insert(turn, session);
            });
            self.of.insert(session, (turn, lane));
        }
    }

    /// The same lane, with the need that is there already.
    fn shared(&self, lane: Lane) -> Lane {
        let known = self.lanes.get_key_value(&lane);
        // A hundred thousand that wait for the same hold one description of it.
        known.map_or(lane, |(known, _)| known.clone())
    }

    fn change(&mut self, lane: &Lane, change: impl FnOnce(&mut BTreeMap<TurnId, SessionId>)) {
        let turns = self.lanes.entry(lane.clone()).or_default();
        let head = |turns: &BTreeMap<TurnId, SessionId>| turns.keys().next().copied();
        let before = head(turns);
        change(turns);
        let after = head(turns);
        if turns.is_empty() {
            self.lanes.remove(lane);
        }
        // Who waits for the process that holds its session is found by that process, and never
        // starts another one.
        if before != after && matches!(lane, Lane::Free(_)) {
            before.map(|head| self.heads.remove(&head));
            after.map(|head| self.heads.insert(head, lane.clone()));
        }
    }

    /// The oldest of a lane that is younger than this one.
    pub(crate) fn next_in(&self, lane: &Lane, after: Option<TurnId>) -> Option<Next> {
        self.in_lane(lane, after.map_or(Unbounded, Excluded)).next()
    }

    /// All of a lane that are younger than this one, oldest first.
    pub(crate) fn behind(&self, lane: &Lane, turn: TurnId) -> impl Iterator<Item = Next> {
        self.in_lane(lane, Excluded(turn))
    }

    fn in_lane(&self, lane: &Lane, from: Bound<TurnId>) -> impl Iterator<Item = Next> {
        let turns = self.lanes.get(lane).into_iter();
        let turns = turns.flat_map(move |turns| turns.range((from, Unbounded)));
        turns.map(|(turn, session)| Next {
            turn: *turn,
            session: *session,
        })
    }

    /// The first lane for any process whose oldest turn is younger than this one.
    pub(crate) fn lane_after(&self, turn: Option<TurnId>) -> Option<(TurnId, &Lane)> {
        let after = turn.map_or(Unbounded, Excluded);
        let mut heads = self.heads.range((after, Unbounded));
        heads.next().map(|(turn, lane)| (*turn, lane))
    }

    pub(crate) fn is_empty(&self, lane: &Lane) -> bool {
        !self.lanes.contains_key(lane)
    }

    /// Does any turn of an agent wait for a process that may be started?
    pub(crate) fn any_free(&self, agent: &str) -> bool {
        self.free_of(agent).next().is_some()
    }

    /// The lanes of turns that any process of an agent could take.
    pub(crate) fn free_of(&self, agent: &str) -> impl Iterator<Item = &Lane> {
        // The smallest that an agent's lanes can be: `None` and `false` come before all else, so
        // the range begins with its first.
        let first = Lane::Free(Arc::new(Need {
            agent: agent.to_owned(),
            fit: None,
            own: false,
        }));
        self.lanes
            .range(first..)
            .map(|(lane, _)| lane)
            .take_while(move |lane| matches!(lane, Lane::Free(need) if need.agent == agent))
    }

    /// The sessions that wait for any process of an agent.
    pub(crate) fn sessions_of(&self, agent: &str) -> Vec<SessionId> {
        let turns = self.free_of(agent).filter_map(|lane| self.lanes.get(lane));
        turns.flat_map(BTreeMap::values).copied().collect()
    }

    /// Where each session waits.
    pub(crate) const fn all(&self) -> &BTreeMap<SessionId, (TurnId, Lane)> {
        &self.of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(cwd: &str) -> Lane {
        let fit = Fit {
            cwd: cwd.to_owned(),
            toolsets: None,
            provider: None,
            model: None,
            thinking: None,
            mode: None,
            system: None,
            mcp_servers: crate::mcp::McpServers::default(),
            revision: 0,
        };
        Lane::Free(Arc::new(Need {
            agent: "a".to_owned(),
            fit: Some(fit),
            own: false,
        }))
    }

    fn heads(lanes: &Lanes) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some((turn, _)) = lanes.lane_after(found.last().map(|turn| TurnId(*turn))) {
            found.push(turn.0);
        }
        found
    }

    #[test]
    fn lanes_are_in_order_of_their_oldest_turns() {
        let mut lanes = Lanes::default();
        let held = Lane::Held(WorkerId(7));
        for (turn, session, lane) in [
            (4, 1, free("/x")),
            (2, 2, free("/y")),
            (3, 3, free("/x")),
            (1, 4, held.clone()),
        ] {
            lanes.put(SessionId(session), Some((TurnId(turn), lane)));
        }
        assert_eq!(heads(&lanes), [2, 3], "who holds a process needs no other");
        let first = lanes.next_in(&free("/x"), None).unwrap();
        assert_eq!((first.turn, first.session), (TurnId(3), SessionId(3)));
        let second = lanes.next_in(&free("/x"), Some(TurnId(3))).unwrap();
        assert_eq!(second.session, SessionId(1));
        assert!(lanes.any_free("a") && !lanes.any_free("") && !lanes.any_free("b"));
        assert_eq!(lanes.sessions_of("a").len(), 3);
        lanes.put(SessionId(3), Some((TurnId(9), held.clone())));
        lanes.put(SessionId(2), None);
        assert_eq!(heads(&lanes), [4]);
        assert_eq!(
            lanes.next_in(&held, Some(TurnId(1))).unwrap().turn,
            TurnId(9)
        );
        for session in 1..=4 {
            lanes.put(SessionId(session), None);
        }
        assert_eq!(lanes, Lanes::default(), "nothing is left behind");
    }
}
