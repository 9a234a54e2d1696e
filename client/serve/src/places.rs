//! Who may be connected: so many at once, and whoever hasn't asked anything yet makes room.
//!
//! Owns the places, and who showed the token lately. Must not know HTTP.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::peer::Peer;

/// Connections at once: each may hold one of the daemon's.
pub(crate) const CONNECTIONS: usize = 256;
/// Of these, for peers that have shown the token lately: what strangers ask can't fill the rest.
const KEPT: usize = 64;
/// How long a peer that showed the token is known.
const LATELY: Duration = Duration::from_secs(15 * 60);
/// Peers that are known: users of this machine, mostly, or the proxy before it.
const KNOWN: usize = 32;

/// All places.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// In the order in which they came.
    taken: BTreeMap<u64, Taken>,
    next: u64,
    /// Who showed the token, the latest last.
    known: VecDeque<(Peer, Instant)>,
}

#[derive(Debug)]
struct Taken {
    peer: Peer,
    stage: ConnectionStage,
    leave: Arc<Notify>,
}

/// What is known of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionStage {
    /// It has not asked yet, or was refused: it may be closed to make room.
    Silent,
    /// It has asked.
    Asked,
    /// It has shown the token.
    Holder,
}

/// A place: given back when it is dropped.
pub(crate) struct Permit {
    all: Arc<Places>,
    number: u64,
    peer: Peer,
    leave: Arc<Notify>,
}

impl Places {
    /// A place for a connection of `peer`, if there is one or room can be made.
    ///
    /// When places are short, the peer with the most silent connections gives one up, its oldest:
    /// so whoever opens thousands displaces its own. One that was displaced is told so, and counts
    /// no longer.
    pub(crate) fn take(self: &Arc<Self>, peer: Peer) -> Option<(Permit, RoomFound)> {
        let mut table = self.table();
        let now = Instant::now();
        let is_known = table.is_known(peer, now);
        let strangers = table
            .taken
            .values()
            .filter(|one| one.stage != ConnectionStage::Holder);
        let is_free =
            table.taken.len() < CONNECTIONS && (is_known || strangers.count() < CONNECTIONS - KEPT);
        let mut room = RoomFound::Free;
        if !is_free {
            let oldest = table.to_displace(peer, now)?;
            if let Some(taken) = table.taken.remove(&oldest) {
                taken.leave.notify_one();
            }
            room = RoomFound::Made;
        }
        let number = table.next;
        table.next += 1;
        let leave = Arc::new(Notify::new());
        let taken = Taken {
            peer,
            stage: ConnectionStage::Silent,
            leave: Arc::clone(&leave),
        };
        table.taken.insert(number, taken);
        let place = Permit {
            all: Arc::clone(self),
            number,
            peer,
            leave,
        };
        Some((place, room))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a place was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RoomFound {
    /// There was one.
    Free,
    /// Another connection had to leave.
    Made,
}

impl Table {
    fn is_known(&self, peer: Peer, now: Instant) -> bool {
        let lately = |at: Instant| now.saturating_duration_since(at) < LATELY;
        let mut known = self.known.iter();
        known.any(|(one, at)| *one == peer && lately(*at))
    }

    /// The silent connection that `newcomer` may displace: a stranger's before one of a peer that
    /// showed the token, and never such a one for a stranger.
    fn to_displace(&self, newcomer: Peer, now: Instant) -> Option<u64> {
        let mut peers: Vec<(Peer, u64, usize)> = Vec::new();
        let silent = self.taken.iter();
        for (number, taken) in silent.filter(|(_, taken)| taken.stage == ConnectionStage::Silent) {
            match peers.iter_mut().find(|(peer, ..)| *peer == taken.peer) {
                Some((.., count)) => *count += 1,
                None => peers.push((taken.peer, *number, 1)),
            }
        }
        let may_displace_known = self.is_known(newcomer, now);
        let ranked = peers.into_iter().filter_map(|(peer, oldest, count)| {
            let is_known = self.is_known(peer, now);
            (may_displace_known || !is_known).then_some((!is_known, count, oldest))
        });
        // The first of equals: the one that is there longer.
        let most = ranked.max_by_key(|(stranger, count, oldest)| (*stranger, *count, !*oldest));
        most.map(|(.., oldest)| oldest)
    }
}

impl Permit {
    /// It has asked: it stays until it is answered. One that was to leave just then is heard all the
    /// same, and is one more for as long as that takes.
    pub(crate) fn asked(&self) {
        self.reach(&mut self.all.table(), ConnectionStage::Asked);
    }

    /// It has shown the token.
    pub(crate) fn shown(&self) {
        let mut table = self.all.table();
        self.reach(&mut table, ConnectionStage::Holder);
        table.known.retain(|(one, _)| *one != self.peer);
        if table.known.len() >= KNOWN {
            table.known.pop_front();
        }
        table.known.push_back((self.peer, Instant::now()));
    }

    fn reach(&self, table: &mut Table, stage: ConnectionStage) {
        let taken = Taken {
            peer: self.peer,
            stage,
            leave: Arc::clone(&self.leave),
        };
        table.taken.insert(self.number, taken);
    }

    /// Ends when it has to make room.
    pub(crate) async fn displaced(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.all.table().taken.remove(&self.number);
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const OWNER: Peer = Peer::User(1000);
    const STRANGER: Peer = Peer::User(65534);

    fn take(places: &Arc<Places>, peer: Peer) -> Permit {
        places.take(peer).expect("there is room").0
    }

    fn is_displaced(place: &Permit) -> bool {
        place.displaced().now_or_never().is_some()
    }

    #[test]
    fn places_of_whoever_opens_most_make_room() {
        let places = Arc::new(Places::default());
        let first = take(&places, OWNER);
        let mut flood: Vec<Permit> = (0..CONNECTIONS).map(|_| take(&places, STRANGER)).collect();
        let gone = CONNECTIONS + 1 - (CONNECTIONS - KEPT);
        for (number, place) in flood.iter().enumerate() {
            assert_eq!(is_displaced(place), number < gone, "{number}");
        }
        assert!(!is_displaced(&first));
        first.asked();
        // The oldest that is left, one for one.
        let second = take(&places, OWNER);
        assert!(is_displaced(&flood.remove(gone)));
        assert!(!is_displaced(&second));
    }

    #[test]
    fn places_are_kept_for_who_showed_the_token() {
        let places = Arc::new(Places::default());
        let shown = take(&places, OWNER);
        shown.shown();
        let busy: Vec<Permit> = (0..CONNECTIONS - KEPT)
            .map(|_| take(&places, STRANGER))
            .collect();
        busy.iter().for_each(Permit::asked);
        assert!(places.take(STRANGER).is_none());
        // A silent one of the owner's makes no room for a stranger, but for the owner.
        let own: Vec<Permit> = (0..KEPT - 1).map(|_| take(&places, OWNER)).collect();
        assert!(places.take(STRANGER).is_none());
        let (_another, room) = places.take(OWNER).expect("there is room");
        assert_eq!(room, RoomFound::Made);
        assert!(own.first().is_some_and(is_displaced));
        drop(busy);
        assert_eq!(
            places.take(STRANGER).map(|(_, room)| room),
            Some(RoomFound::Free)
        );
    }

    #[test]
    fn places_that_are_all_in_use_are_refused() {
        let places = Arc::new(Places::default());
        let all: Vec<Permit> = (0..CONNECTIONS)
            .map(|_| {
                let place = take(&places, OWNER);
                place.shown();
                place
            })
            .collect();
        assert!(places.take(OWNER).is_none());
        drop(all);
        assert!(places.take(OWNER).is_some());
    }
}
