//! Other instances on the same store: one that dies is noticed within a second.
//!
//! Owns when the directory `instances/` is looked at: never, while we are alone in it. Must not
//! know what a dead instance left, but for who keeps us from taking it over.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentd_core::Event;
use agentd_core::store::Recovered;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::platform::changes::Changes;
use crate::platform::instance;

/// While another instance is there, its lock is tried this often: a lock tells nobody when it is
/// given back.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Dead instances of which something could not be taken over, and who has it open.
pub type Behind = BTreeMap<String, BTreeSet<String>>;

/// Others, as the store found them when it was opened.
#[derive(Clone, Default, Debug)]
pub struct Others {
    /// Their end is known already.
    pub dead: BTreeSet<String>,
    /// They had something open. A predecessor may leave, with its file, before the first look.
    pub living: BTreeSet<String>,
}

impl Others {
    /// Those of whom something was taken over are dead.
    #[must_use]
    pub fn new(taken: &[Recovered], living: BTreeSet<String>) -> Self {
        let dead = taken.iter().map(|left| left.instance.clone()).collect();
        Self { dead, living }
    }
}

/// Tells the owner of each instance that is gone, and rings `to_deliver`, until told to stop.
///
/// The dead of `others` are told again, with whoever had it open, for as long as something is left
/// behind that nobody living holds. What the store said counts, not who was seen here: a holder may
/// come and go between two looks, or before the first.
pub async fn watch(
    state_dir: PathBuf,
    own: String,
    others: Others,
    mut behind: watch::Receiver<Behind>,
    inbox: mpsc::Sender<Event>,
    to_deliver: Arc<Notify>,
    stop: CancellationToken,
) {
    let Others {
        mut dead,
        mut living,
    } = others;
    let mut arrivals = Changes::arrivals(&state_dir.join("instances"));
    loop {
        let left = behind.borrow_and_update().clone();
        let place = (state_dir.clone(), own.clone());
        let (known, holders) = (living.clone(), left.values().flatten().cloned().collect());
        // Beside the runtime's thread: the disk may be slow.
        let looking = tokio::task::spawn_blocking(move || look(&place.0, &place.1, known, holders));
        let InstancesSeen { others, alive } = tokio::select! {
            () = stop.cancelled() => return,
            Ok(sight) = looking => sight,
            else => return,
        };
        let now: BTreeSet<String> = others.intersection(&alive).cloned().collect();
        let mut news: BTreeSet<String> = others
            .difference(&now)
            .filter(|other| !dead.contains(*other))
            .cloned()
            .collect();
        news.extend(living.difference(&now).cloned());
        for (instance, holders) in &left {
            let mut gone = holders.difference(&alive).peekable();
            if gone.peek().is_some() {
                news.insert(instance.clone());
                news.extend(gone.cloned());
            }
        }
        if !news.is_empty() {
            // Who is gone may have ended jobs of which somebody is to be told.
            to_deliver.notify_one();
        }
        dead.extend(news.iter().cloned());
        for instance in news {
            if inbox.send(Event::InstanceDied { instance }).await.is_err() {
                return;
            }
        }
        living = now;
        let wait = !living.is_empty() || !left.is_empty();
        tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = behind.changed() => {}
            () = tokio::time::sleep(LOOK_EVERY), if wait => {}
            () = arrivals.next(), if !wait => {}
        }
    }
}

/// What one look sees.
struct InstancesSeen {
    /// Whoever has a file, besides ourselves.
    others: BTreeSet<String>,
    /// Those of them and of the holders that live.
    alive: BTreeSet<String>,
}

/// Whoever can't look knows of nobody's end: then the others are those `known`. Blocks.
fn look(
    state_dir: &Path,
    own: &str,
    known: BTreeSet<String>,
    holders: BTreeSet<String>,
) -> InstancesSeen {
    let names = instance::instances(state_dir).map(BTreeSet::from_iter);
    let mut others = names.unwrap_or(known);
    others.remove(own);
    let lives = |other: &&String| instance::liveness(state_dir, other) != instance::Life::Dead;
    let alive = others.union(&holders).filter(lives).cloned().collect();
    InstancesSeen { others, alive }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::instance::Instance;

    #[tokio::test]
    async fn dead_instance_is_told_once_and_living_never() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Instance::create(dir.path()).expect("our file");
        let (inbox, mut events) = mpsc::channel(8);
        let stop = CancellationToken::new();
        let watching = watch(
            dir.path().to_owned(),
            own.id().to_owned(),
            Others::default(),
            watch::channel(Behind::new()).1,
            inbox,
            Arc::default(),
            stop.clone(),
        );
        let watched = async {
            let living = Instance::create(dir.path()).expect("another");
            // A file whose lock nobody holds is what a killed process leaves.
            std::fs::write(dir.path().join("instances").join("9-9-dead"), "9\n").expect("a file");
            let told = tokio::time::timeout(Duration::from_secs(10), events.recv()).await;
            let died = Event::InstanceDied {
                instance: "9-9-dead".to_owned(),
            };
            assert_eq!(told.expect("in time"), Some(died));
            let again = tokio::time::timeout(LOOK_EVERY * 2, events.recv()).await;
            assert!(again.is_err(), "{again:?}");
            drop(living);
            stop.cancel();
        };
        tokio::join!(watching, watched);
    }

    #[tokio::test(start_paused = true)]
    async fn dead_instance_is_told_that_left_unseen() {
        // It lived when the store was opened, and took its file along.
        let others = Others {
            living: BTreeSet::from(["9-9-left".to_owned()]),
            ..Others::default()
        };
        let (_store, nothing) = watch::channel(Behind::new());
        assert_eq!(told(others, nothing, 2).await, ["9-9-left"]);
    }

    #[tokio::test(start_paused = true)]
    async fn dead_instance_is_not_told_while_unseen() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Instance::create(dir.path()).expect("our file");
        let living = Instance::create(dir.path()).expect("another");
        let (inbox, mut events) = mpsc::channel(8);
        let stop = CancellationToken::new();
        let watching = watch(
            dir.path().to_owned(),
            own.id().to_owned(),
            Others::default(),
            watch::channel(Behind::new()).1,
            inbox,
            Arc::default(),
            stop.clone(),
        );
        let watched = async {
            // Between two looks: for a moment the directory is not there, and then who lives is gone.
            tokio::time::sleep(LOOK_EVERY * 5 / 2).await;
            // A directory that can't be read, for root, too.
            let (there, aside) = (dir.path().join("instances"), dir.path().join("aside"));
            std::fs::rename(&there, &aside).expect("moved");
            std::fs::write(&there, "").expect("a file");
            tokio::time::sleep(LOOK_EVERY * 3).await;
            assert!(events.try_recv().is_err(), "a living one was told dead");
            std::fs::remove_file(&there).expect("removed");
            std::fs::rename(&aside, &there).expect("moved back");
            let id = living.id().to_owned();
            drop(living);
            tokio::time::sleep(LOOK_EVERY * 2).await;
            let died = Event::InstanceDied { instance: id };
            assert_eq!(events.try_recv().ok(), Some(died), "and then it is");
            stop.cancel();
        };
        tokio::join!(watching, watched);
    }

    /// What `watch` tells before it has looked `looks` times, all with nobody else there.
    async fn told(others: Others, behind: watch::Receiver<Behind>, looks: u32) -> Vec<String> {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Instance::create(dir.path()).expect("our file");
        let (inbox, mut events) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let watching = watch(
            dir.path().to_owned(),
            own.id().to_owned(),
            others,
            behind,
            inbox,
            Arc::default(),
            stop.clone(),
        );
        let after = LOOK_EVERY * looks - LOOK_EVERY / 2;
        let _stopped = tokio::time::timeout(after, watching).await;
        std::iter::from_fn(|| events.try_recv().ok())
            .map(|event| match event {
                Event::InstanceDied { instance } => instance,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn one_is_dead() -> Others {
        Others {
            dead: BTreeSet::from(["left".to_owned()]),
            ..Others::default()
        }
    }

    fn behind(left: &str, holder: &str) -> Behind {
        Behind::from([(left.to_owned(), BTreeSet::from([holder.to_owned()]))])
    }

    #[tokio::test(start_paused = true)]
    async fn dead_holders_leftovers_are_told_until_taken() {
        let (_store, left) = watch::channel(behind("left", "never-seen"));
        assert_eq!(
            told(one_is_dead(), left, 2).await,
            ["left", "never-seen", "left", "never-seen"]
        );
        let (_store, nothing) = watch::channel(Behind::new());
        assert!(told(one_is_dead(), nothing, 2).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn living_holders_leftovers_are_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = Instance::create(dir.path()).expect("our file");
        let living = Instance::create(dir.path()).expect("another");
        let (store, left) = watch::channel(behind("left", living.id()));
        let (inbox, mut events) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let watching = watch(
            dir.path().to_owned(),
            own.id().to_owned(),
            one_is_dead(),
            left,
            inbox,
            Arc::default(),
            stop.clone(),
        );
        let watched = async {
            tokio::time::sleep(LOOK_EVERY * 3).await;
            assert!(events.try_recv().is_err(), "a living holder was disturbed");
            store.send_replace(behind("left", "came-and-went"));
            let mut said = Vec::new();
            for _ in 0..2 {
                let event = tokio::time::timeout(LOOK_EVERY / 2, events.recv()).await;
                said.push(event.expect("at once"));
            }
            let died = |instance: &str| {
                let instance = instance.to_owned();
                Some(Event::InstanceDied { instance })
            };
            assert_eq!(said, [died("came-and-went"), died("left")]);
            stop.cancel();
        };
        tokio::join!(watching, watched);
        drop(living);
    }
}
