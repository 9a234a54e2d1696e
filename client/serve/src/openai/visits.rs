//! Clients that leave before their answer, and may come back with a retry.
//!
//! Owns who of them is here, so that no turn is ended that somebody still waits for. Must not know what
//! is asked, nor turns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// From one attempt to the next. OpenAI's clients wait 8 s at most.
const COMES_BACK_WITHIN: Duration = Duration::from_secs(10);
/// Most that are remembered, the oldest forgotten first, and none that is here.
const MOST: usize = 4096;

/// All of them.
#[derive(Clone, Default, Debug)]
pub(super) struct Visits(Arc<Shared>);

#[derive(Default, Debug)]
struct Shared {
    known: Mutex<Known>,
    /// Somebody came, left or was answered.
    changed: Notify,
}

#[derive(Default, Debug)]
struct Known {
    /// The latest last.
    visits: VecDeque<Visit>,
    number: u64,
}

#[derive(Debug)]
struct Visit {
    request: String,
    number: u64,
    /// Does it say that it asks again? Else it is another request.
    is_retry: bool,
    state: VisitState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VisitState {
    Here,
    Answered,
    Left(Instant),
}

/// A client with one attempt. Dropped before it is answered, it has left.
#[derive(Debug)]
pub(super) struct Visitor {
    visits: Visits,
    request: Option<String>,
    number: u64,
}

/// One that has left, or will.
#[derive(Clone, Debug)]
pub(super) struct Absence {
    visits: Visits,
    /// As its retries ask, where it would say that they are.
    request: Option<String>,
    number: u64,
}

impl Visits {
    /// Begins one, at this request where its retries would say that they are.
    pub(super) fn begin(&self, request: Option<&str>, is_retry: bool) -> Visitor {
        let mut known = self.known();
        known.number += 1;
        let number = known.number;
        if let Some(request) = request {
            if known.visits.len() >= MOST {
                let mut visits = known.visits.iter();
                let gone = visits.position(|visit| visit.state != VisitState::Here);
                known.visits.remove(gone.unwrap_or_default());
            }
            known.visits.push_back(Visit {
                request: request.to_owned(),
                number,
                is_retry,
                state: VisitState::Here,
            });
        }
        drop(known);
        self.0.changed.notify_waiters();
        Visitor {
            visits: self.clone(),
            request: request.map(str::to_owned),
            number,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        let known = self.0.known.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, number: u64, state: VisitState) {
        let mut known = self.known();
        let at = known
            .visits
            .binary_search_by_key(&number, |visit| visit.number);
        let visit = at.ok().and_then(|at| known.visits.get_mut(at));
        if let Some(visit) = visit.filter(|visit| visit.state == VisitState::Here) {
            visit.state = state;
        }
        drop(known);
        self.0.changed.notify_waiters();
    }
}

impl Visitor {
    /// It was told what came of its attempt, or is being told.
    pub(super) fn answered(&self) {
        self.visits.put(self.number, VisitState::Answered);
    }

    /// What becomes of it should it leave.
    pub(super) fn absence(&self) -> Absence {
        Absence {
            visits: self.visits.clone(),
            request: self.request.clone(),
            number: self.number,
        }
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.visits
            .put(self.number, VisitState::Left(Instant::now()));
    }
}

impl Absence {
    /// Wouldn't it say so if it came back?
    const fn is_for_good(&self) -> bool {
        self.request.is_none()
    }

    /// Is it back already?
    pub(super) fn is_over(&self) -> bool {
        !matches!(self.since(Instant::now()), Since::Nobody(_))
    }

    /// Is it over some time? Waits until nobody can come back any more: not while a retry waits, nor so
    /// soon after one has left, too.
    pub(super) async fn ends(&self) -> bool {
        if self.is_for_good() {
            return false;
        }
        let begun = Instant::now();
        loop {
            let changed = self.visits.0.changed.notified();
            match self.since(begun) {
                Since::Answered => return true,
                Since::Here => changed.await,
                Since::Nobody(left) => {
                    let until = left + COMES_BACK_WITHIN;
                    if timeout_at(until, changed).await.is_err() {
                        return false;
                    }
                }
            }
        }
    }

    /// What came after it, which was noticed then.
    fn since(&self, noticed: Instant) -> Since {
        let known = self.visits.known();
        let mut left = None;
        let mut is_here = false;
        for visit in &known.visits {
            let is_own = visit.number == self.number;
            let is_later = visit.number > self.number && visit.is_retry;
            if Some(&visit.request) != self.request.as_ref() || !is_own && !is_later {
                continue;
            }
            match visit.state {
                VisitState::Answered if is_later => return Since::Answered,
                VisitState::Here if is_later => is_here = true,
                VisitState::Answered | VisitState::Here => {}
                VisitState::Left(at) => left = left.max(Some(at)),
            }
        }
        match is_here {
            true => Since::Here,
            false => Since::Nobody(left.unwrap_or(noticed)),
        }
    }
}

/// What came after a visit.
enum Since {
    /// A later one was answered.
    Answered,
    /// A later one waits.
    Here,
    /// Nobody is there since then.
    Nobody(Instant),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn visit_that_ends_may_be_followed_by_another() {
        let visits = Visits::default();
        let of = Some("r");
        let first = visits.begin(of, false);
        let absence = first.absence();
        drop(first);
        // It counts from then, and neither others nor another request of the same words do.
        let left = Instant::now();
        tokio::time::sleep(COMES_BACK_WITHIN / 2).await;
        let other = visits.begin(Some("other"), true);
        let anew = visits.begin(of, false);
        assert!(!absence.is_over() && !absence.ends().await);
        assert_eq!(left.elapsed(), COMES_BACK_WITHIN);
        drop(anew);
        // However many come, one that waits is not forgotten.
        let waits = visits.begin(of, true);
        for _ in 0..=MOST {
            drop(visits.begin(Some("other"), true));
        }
        assert!(absence.is_over());
        drop(waits);
        // One that leaves without an answer puts it off.
        let second = visits.begin(of, true);
        assert!(absence.is_over());
        let come_and_go = async {
            tokio::time::sleep(COMES_BACK_WITHIN * 2).await;
            drop(second);
            tokio::time::sleep(COMES_BACK_WITHIN / 2).await;
            drop(visits.begin(of, true));
            Instant::now()
        };
        let (is_over, left) = tokio::join!(absence.ends(), come_and_go);
        assert!(!is_over);
        assert_eq!(left.elapsed(), COMES_BACK_WITHIN);
        // One that is answered ends it, though it leaves afterwards.
        let fourth = visits.begin(of, true);
        fourth.answered();
        drop(fourth);
        assert!(absence.is_over() && absence.ends().await);
        drop(other);
        assert!(!visits.begin(None, true).absence().ends().await);
    }
}
