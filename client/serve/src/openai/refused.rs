//! Requests that were refused for now: what comes again of them was never run.
//!
//! Owns the memory of that, which is short and may be lost: a retry whose first try isn't known here
//! gets the job of the same request, if there is one. Must not know what is asked.
//!
//! A client without keys says nothing but that it asks again. Each first try that was refused lets one
//! retry run, so there are never more turns than requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentd_faces::openai::failure::Again;

use super::Refusal;
use super::asking::Asking;

/// From one attempt to the next: clients that wait longer have given up.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// Most that are remembered, the oldest forgotten first.
const MOST: usize = 256;

/// What was refused, the latest last.
#[derive(Clone, Default, Debug)]
pub(crate) struct Refused(Arc<Mutex<VecDeque<(String, Instant)>>>);

impl Refused {
    /// Was its first try refused? Then it is a new request.
    pub(super) fn recall(&self, asking: &mut Asking, now: Instant) {
        if asking.retries && asking.before.is_some() && self.forget(&asking.request, now) {
            asking.before = None;
        }
    }

    /// Answers a request, and remembers what became of it.
    pub(super) async fn keep<T>(
        &self,
        asking: &Asking,
        answer: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let answer = answer.await;
        self.remember(asking, &answer, Instant::now());
        answer
    }

    /// What became of a request that wasn't asked before.
    fn remember<T>(&self, asking: &Asking, answer: &Result<T, Refusal>, now: Instant) {
        if !asking.retries || asking.before.is_some() {
            return;
        }
        match answer {
            Err(refusal) if refusal.failure.again == Again::Later => {
                let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if refused.len() == MOST {
                    refused.pop_front();
                }
                refused.push_back((asking.request.clone(), now));
            }
            // Whoever asks again now means this one.
            Ok(_) => drop(self.forget(&asking.request, now)),
            Err(_) => {}
        }
    }

    fn forget(&self, request: &str, now: Instant) -> bool {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|(_, at)| now.saturating_duration_since(*at) < ASKED_AGAIN_WITHIN);
        let found = refused.iter().position(|(one, _)| one == request);
        found.and_then(|at| refused.remove(at)).is_some()
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
        let (refused, now) = (Refused::default(), Instant::now());
        let later = || Err::<(), Refusal>(Failure::later(503, "queue-full", "full").into());
        let is_new = |now| {
            let mut asking = asking("1");
            refused.recall(&mut asking, now);
            (asking.before.is_none(), asking)
        };
        assert!(!is_new(now).0);
        refused.remember(&asking("0"), &later(), now);
        let (new, again) = is_new(now);
        assert!(new);
        assert!(!is_new(now).0, "one retry for one refusal");
        refused.remember(&again, &later(), now);
        assert!(is_new(now).0, "refused once more");
        // A retry of what may have run, and what can't be asked again.
        refused.remember(&asking("1"), &later(), now);
        let no = Failure::new(424, "outcome-unknown", "lost");
        refused.remember(&asking("0"), &Err::<(), Refusal>(no.into()), now);
        assert!(!is_new(now).0);
        refused.remember(&asking("0"), &later(), now);
        refused.remember(&asking("0"), &Ok(()), now);
        assert!(!is_new(now).0, "another one was taken");
        refused.remember(&asking("0"), &later(), now);
        assert!(!is_new(now + ASKED_AGAIN_WITHIN).0);
    }
}
