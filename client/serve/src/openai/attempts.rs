//! Attempts at one request by clients that say no more of a retry than that it is one.
//!
//! Owns that such attempts are taken one after the other, so that a retry finds the job of the one
//! before it, and the memory of what was refused, which is short and may be lost: a retry whose first
//! try isn't known here gets the job of the same request, if there is one. Must not know what is asked.
//!
//! Each first try that was refused lets one retry run, so there are never more turns than requests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use agentd_faces::openai::failure::Again;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard, OwnedSemaphorePermit};

use super::Refusal;
use super::asking::Asking;

/// From one attempt to the next: clients that wait longer have given up.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// Most that are remembered, the oldest forgotten first.
const MOST: usize = 256;

/// What is known of them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Attempts(Arc<Mutex<Known>>);

#[derive(Default, Debug)]
struct Known {
    /// What was refused, the latest last.
    refused: VecDeque<(String, Instant)>,
    /// What is being taken.
    begun: HashMap<String, Weak<Lock<()>>>,
}

/// One attempt, until its turn is taken or refused.
#[derive(Debug)]
pub(super) struct Attempt {
    attempts: Attempts,
    /// Which request, where a retry of it may come.
    request: Option<String>,
    /// Of its body: what is made of that is as large.
    _room: OwnedSemaphorePermit,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Attempts {
    /// Begins an attempt, once those before it at the same request are taken or refused.
    pub(super) async fn begin(&self, asking: &mut Asking, room: OwnedSemaphorePermit) -> Attempt {
        let turn = match asking.retries {
            true => Some(self.lock_of(&asking.request).lock_owned().await),
            false => None,
        };
        self.recall(asking, Instant::now());
        let is_first = asking.retries && asking.before.is_none();
        Attempt {
            attempts: self.clone(),
            request: is_first.then(|| asking.request.clone()),
            _room: room,
            _turn: turn,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_of(&self, request: &str) -> Arc<Lock<()>> {
        let mut known = self.known();
        known.begun.retain(|_, lock| lock.strong_count() > 0);
        let found = known.begun.get(request).and_then(Weak::upgrade);
        found.unwrap_or_else(|| {
            let lock = Arc::default();
            known
                .begun
                .insert(request.to_owned(), Arc::downgrade(&lock));
            lock
        })
    }

    /// Was its first try refused? Then it is a new request.
    fn recall(&self, asking: &mut Asking, now: Instant) {
        if asking.retries && asking.before.is_some() && self.forget(&asking.request, now) {
            asking.before = None;
        }
    }

    /// What became of a request that wasn't asked before.
    fn remember<T>(&self, request: &str, answer: &Result<T, Refusal>, now: Instant) {
        match answer {
            Err(refusal) if refusal.failure.again == Again::Later => {
                let mut known = self.known();
                if known.refused.len() == MOST {
                    known.refused.pop_front();
                }
                known.refused.push_back((request.to_owned(), now));
            }
            // Whoever asks again now means this one.
            Ok(_) => drop(self.forget(request, now)),
            Err(_) => {}
        }
    }

    fn forget(&self, request: &str, now: Instant) -> bool {
        let refused = &mut self.known().refused;
        refused.retain(|(_, at)| now.saturating_duration_since(*at) < ASKED_AGAIN_WITHIN);
        let found = refused.iter().position(|(one, _)| one == request);
        found.and_then(|at| refused.remove(at)).is_some()
    }
}

impl Attempt {
    /// It was taken, or refused.
    pub(super) fn ended<T>(self, answer: &Result<T, Refusal>) {
        if let Some(request) = &self.request {
            self.attempts.remember(request, answer, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_faces::openai::failure::Failure;
    use axum::http::{HeaderMap, HeaderValue};

    fn asking(count: &'static str) -> Asking {
        let mut headers = HeaderMap::new();
        let count = HeaderValue::from_static(count);
        headers.insert("x-stainless-retry-count", count);
        Asking::read(&headers, "/v1/responses", "{}").unwrap()
    }

    #[test]
    fn retry_of_what_was_refused_is_new() {
        let (refused, now) = (Attempts::default(), Instant::now());
        let later = || Err::<(), Refusal>(Failure::later(503, "queue-full", "full").into());
        let is_new = |now| {
            let mut asking = asking("1");
            refused.recall(&mut asking, now);
            (asking.before.is_none(), asking)
        };
        assert!(!is_new(now).0);
        let request = asking("0").request;
        refused.remember(&request, &later(), now);
        assert!(is_new(now).0);
        assert!(!is_new(now).0, "one retry for one refusal");
        let no = Failure::new(424, "outcome-unknown", "lost");
        refused.remember(&request, &Err::<(), Refusal>(no.into()), now);
        assert!(!is_new(now).0);
        refused.remember(&request, &later(), now);
        refused.remember(&request, &Ok(()), now);
        assert!(!is_new(now).0, "another one was taken");
        refused.remember(&request, &later(), now);
        assert!(!is_new(now + ASKED_AGAIN_WITHIN).0);
    }
}
