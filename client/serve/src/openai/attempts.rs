//! Attempts at one request by clients that ask again, and requests for one session at the same time.
//!
//! Owns that such attempts are taken one after the other, so that a retry finds the job of the one
//! before it, and the memory of what became of them, which is short and may be lost: a retry whose first
//! try isn't known here gets the job of the same request, if there is one. Must not know what is asked.
//!
//! Each first try that was refused lets one retry run, so there are never more turns than requests. One
//! of which nobody knows whether it was taken is asked for again with its own key, until that is known.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use agentd_client::key;
use agentd_faces::openai::failure::Again;
use agentd_protocol::JobId;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock};

use super::Refusal;
use super::asking::Asking;
use super::visits::{Absence, Visitor, Visits};

/// From one attempt to the next: clients that wait longer have given up. OpenAI's own wait 8 s at most,
/// and `Retry-After` is 1 s here.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_secs(60);
/// Most that are remembered, the oldest forgotten first.
const MOST: usize = 4096;

/// What is known of them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Attempts {
    known: Arc<Mutex<Known>>,
    visits: Visits,
}

#[derive(Default, Debug)]
struct Known {
    /// What was refused, the latest last.
    refused: VecDeque<(String, Instant)>,
    /// What may have been taken, and under which key, the latest last.
    unsure: VecDeque<UnsureRequest>,
    /// What was taken, the latest last.
    taken: VecDeque<TakenRequest>,
    /// What was refused without a look at it, the latest last.
    unread: VecDeque<UnreadRequest>,
    /// What is being taken.
    begun: HashMap<String, Weak<RwLock<()>>>,
}

/// A request whose outcome isn't known.
#[derive(Debug)]
struct UnsureRequest {
    request: String,
    key: String,
    at: Instant,
}

/// A request and its turn.
#[derive(Debug)]
struct TakenRequest {
    request: String,
    job: JobId,
    /// When its client had the whole answer.
    told: Option<Instant>,
}

/// A request that may have been the first try of one that comes later.
#[derive(Debug)]
struct UnreadRequest {
    /// Of its body, where it was said: those of another length it was not.
    length: Option<usize>,
    at: Instant,
}

/// A retry.
#[derive(Clone, Copy, Debug)]
struct Retry<'a> {
    request: &'a str,
    /// Of its body.
    length: usize,
    /// Its first try is no older.
    within: Duration,
}

/// What a retry means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meant {
    /// A new turn.
    New,
    /// This one.
    Job(JobId),
    /// That which may have been taken: its key is the attempt's.
    Unsure,
    /// The daemon may know.
    Unknown,
}

/// One attempt, until its turn is taken or refused.
#[derive(Debug)]
pub(super) struct Attempt {
    attempts: Attempts,
    /// Which request, where a retry of it may come.
    request: Option<String>,
    meant: Meant,
    /// Of its turn.
    key: Option<String>,
    began: Instant,
    /// Is its turn found by whoever asks again?
    again: Again,
    /// Does a refusal let its retry run? That of a retry whose first try isn't known doesn't.
    is_new: bool,
    /// Of its body: what is made of that is as large.
    _room: OwnedSemaphorePermit,
    _turn: Option<HeldRequest>,
}

/// Until it is dropped, others wait.
pub(super) type Held = OwnedRwLockWriteGuard<()>;

/// Until an attempt is over, its retries wait.
#[derive(Debug)]
enum HeldRequest {
    /// A first attempt, beside others that say the same.
    First {
        _held: OwnedRwLockReadGuard<()>,
    },
    Retry {
        _held: Held,
    },
}

impl Attempts {
    /// Begins an attempt, once those before it at the same request are taken or refused. Dropped before
    /// that, nothing is lost: it waits for a turn that is its own, or a later attempt's.
    pub(super) async fn begin(
        &self,
        asking: &mut Asking,
        room: OwnedSemaphorePermit,
    ) -> (Attempt, Asker) {
        let request = asking.retries.then(|| asking.request.clone());
        let began = Instant::now();
        let visitor = self
            .visits
            .begin(request.as_deref(), asking.before.is_some());
        let lock = || self.lock(&asking.request);
        let turn = match (asking.before, asking.retries) {
            (Some(_), _) => Some(HeldRequest::Retry {
                _held: lock().write_owned().await,
            }),
            (None, true) => Some(HeldRequest::First {
                _held: lock().read_owned().await,
            }),
            (None, false) => None,
        };
        let (meant, unsure) = match asking.before.filter(|_| asking.retries) {
            Some(within) => {
                let (request, length) = (asking.request.as_str(), asking.length);
                let retry = Retry {
                    request,
                    length,
                    within,
                };
                self.recall(retry, Instant::now())
            }
            None => (Meant::Unknown, None),
        };
        asking.key = asking.key.take().or(unsure).or_else(|| key::random().ok());
        let asker = Asker {
            visitor,
            key: asking.key.clone(),
        };
        let attempt = Attempt {
            attempts: self.clone(),
            request,
            meant,
            key: asking.key.clone(),
            began,
            again: asking.again(),
            is_new: asking.before.is_none() || meant == Meant::New,
            _room: room,
            _turn: turn,
        };
        (attempt, asker)
    }

    /// Waits until no other turn is on its way to this session: where it goes on would change between
    /// the look and the send.
    pub(super) async fn alone_in(&self, session: &str) -> Held {
        self.lock(&format!("session {session}")).write_owned().await
    }

    /// Its client had the whole answer.
    pub(super) fn told(&self, job: JobId) {
        let now = Instant::now();
        let mut known = self.known();
        let of_job = known.taken.iter_mut().filter(|taken| taken.job == job);
        of_job.for_each(|taken| taken.told = Some(now));
    }

    /// Something was refused without a look at it, whose client asks again; of this length, if it said so.
    pub(crate) fn refused_unread(&self, length: Option<usize>) {
        let at = Instant::now();
        push(&mut self.known().unread, UnreadRequest { length, at });
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self, what: &str) -> Arc<RwLock<()>> {
        let mut known = self.known();
        known.begun.retain(|_, lock| lock.strong_count() > 0);
        let found = known.begun.get(what).and_then(Weak::upgrade);
        found.unwrap_or_else(|| {
            let lock = Arc::default();
            known.begun.insert(what.to_owned(), Arc::downgrade(&lock));
            lock
        })
    }

    /// Was its first try refused, or did its client have an answer long before? Then it is a new request.
    /// With the key of one that may have been taken.
    fn recall(&self, retry: Retry<'_>, now: Instant) -> (Meant, Option<String>) {
        if self.forget(retry.request, now) {
            return (Meant::New, None);
        }
        match self.take_unsure(retry.request, now) {
            // The latest of them: forgotten when a later one is taken.
            Some(key) => (Meant::Unsure, Some(key)),
            None => (self.recall_taken(retry, now), None),
        }
    }

    fn take_unsure(&self, request: &str, now: Instant) -> Option<String> {
        let unsure = &mut self.known().unsure;
        unsure.retain(|one| now.saturating_duration_since(one.at) < ASKED_AGAIN_WITHIN);
        let found = unsure.iter().rposition(|one| one.request == request)?;
        unsure.remove(found).map(|one| one.key)
    }

    fn recall_taken(&self, retry: Retry<'_>, now: Instant) -> Meant {
        let known = self.known();
        let mut taken = known.taken.iter().rev();
        match taken.find(|taken| taken.request == retry.request) {
            None => Meant::Unknown,
            Some(TakenRequest { job, told, .. }) => {
                let since = |at| now.saturating_duration_since(at);
                // Sent again after its answer, its first try is what wasn't read.
                let was_unread = |told| {
                    known.unread.iter().any(|unread| {
                        unread.at > told
                            && since(unread.at) < ASKED_AGAIN_WITHIN
                            && unread.length.is_none_or(|length| length == retry.length)
                    })
                };
                match told {
                    Some(told) if since(*told) >= retry.within || was_unread(*told) => Meant::New,
                    Some(_) | None => Meant::Job(*job),
                }
            }
        }
    }

    fn remember(&self, request: &str, answer: Result<JobId, &Refusal>, now: Instant) {
        match answer {
            Err(refusal) if refusal.failure.again == Again::Later => {
                push(&mut self.known().refused, (request.to_owned(), now));
            }
            Ok(job) => {
                // Whoever asks again now means this one.
                self.forget(request, now);
                let request = request.to_owned();
                let told = None;
                push(&mut self.known().taken, TakenRequest { request, job, told });
            }
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

fn push<T>(kept: &mut VecDeque<T>, one: T) {
    if kept.len() == MOST {
        kept.pop_front();
    }
    kept.push_back(one);
}

impl Attempt {
    /// What this one means.
    pub(super) const fn meant(&self) -> Meant {
        self.meant
    }

    /// Was this job taken for another one?
    pub(super) fn is_of_another(&self, job: JobId) -> bool {
        let known = self.attempts.known();
        known.taken.iter().any(|taken| taken.job == job)
    }

    /// Its turn was taken: its retries find that.
    pub(super) fn taken(self, job: JobId) {
        let Some(request) = &self.request else {
            return;
        };
        self.attempts.remember(request, Ok(job), Instant::now());
        if self.is_new {
            // What was unknown before this one was asked is not what its retries mean.
            let is_before = |one: &UnsureRequest| one.request == *request && one.at < self.began;
            self.attempts.known().unsure.retain(|one| !is_before(one));
        }
    }

    /// What came of a request, which may be no attempt at anything: a turn, or a refusal.
    pub(super) fn settled<T>(
        attempt: Option<Self>,
        answer: Result<T, Refusal>,
        job: impl FnOnce(&T) -> JobId,
    ) -> Result<T, Refusal> {
        let Some(attempt) = attempt else {
            return answer;
        };
        match answer {
            Ok(turn) => {
                attempt.taken(job(&turn));
                Ok(turn)
            }
            Err(refusal) => Err(attempt.refused(refusal)),
        }
    }

    /// It was refused; gives what its client is told.
    pub(super) fn refused(self, refusal: Refusal) -> Refusal {
        let is_unsure = refusal.is_unsure();
        let refusal = match self.again {
            Again::Later if is_unsure => refusal.found_again(),
            Again::Later | Again::No => refusal,
        };
        let Some(request) = &self.request else {
            return refusal;
        };
        if (is_unsure || self.meant == Meant::Unsure)
            && let Some(key) = &self.key
        {
            let (request, key, at) = (request.clone(), key.clone(), Instant::now());
            let unsure = UnsureRequest { request, key, at };
            push(&mut self.attempts.known().unsure, unsure);
        }
        if is_unsure {
            return refusal;
        }
        if self.is_new {
            let now = Instant::now();
            self.attempts.remember(request, Err(&refusal), now);
            return refusal;
        }
        match self.meant {
            Meant::Job(job) => refusal.after_job(job),
            Meant::New | Meant::Unsure | Meant::Unknown => refusal.after_unknown(),
        }
    }
}

/// Whoever made an attempt. Dropped before it is answered, it has left.
#[derive(Debug)]
pub(super) struct Asker {
    visitor: Visitor,
    key: Option<String>,
}

impl Asker {
    /// It was told what came of its attempt, or is being told.
    pub(super) fn answered(&self) {
        self.visitor.answered();
    }

    /// Whoever ends its turn by leaving.
    pub(super) fn leaver(&self) -> Leaver {
        Leaver {
            absence: self.visitor.absence(),
            key: self.key.clone(),
        }
    }
}

/// Ends its turn by leaving, unless it comes back.
#[derive(Clone, Debug)]
pub(super) struct Leaver {
    pub(super) absence: Absence,
    /// Of the turn.
    pub(super) key: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_faces::openai::failure::Failure;
    use axum::http::HeaderMap;
    use tokio::sync::Semaphore;

    /// Of a client that waits ten minutes for its answer.
    const RETRY: Retry<'_> = Retry {
        request: "r",
        length: 7,
        within: Duration::from_secs(600),
    };

    #[test]
    fn retry_of_what_was_refused_is_new() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let later = Refusal::from(Failure::later(503, "queue-full", "full"));
        let meant = |now| attempts.recall(RETRY, now).0;
        assert_eq!(meant(now), Meant::Unknown);
        attempts.remember("r", Err(&later), now);
        assert_eq!(meant(now), Meant::New);
        assert_eq!(meant(now), Meant::Unknown, "one retry for one refusal");
        let no = Refusal::from(Failure::new(424, "outcome-unknown", "lost"));
        attempts.remember("r", Err(&no), now);
        assert_eq!(meant(now), Meant::Unknown);
        attempts.remember("r", Err(&later), now);
        assert_eq!(meant(now + ASKED_AGAIN_WITHIN), Meant::Unknown);
        attempts.remember("r", Err(&later), now);
        attempts.remember("r", Ok(JobId(1)), now);
        assert_eq!(meant(now), Meant::Job(JobId(1)), "another one was taken");
    }

    #[tokio::test]
    async fn retry_that_is_refused_tells_of_earlier() {
        let attempts = Attempts::default();
        let told = async |count: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-stainless-retry-count", count.parse().unwrap());
            let mut asking = Asking::read(&headers, "/v1/responses", "{}").unwrap();
            let room = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
            let (attempt, _asker) = attempts.begin(&mut asking, room).await;
            let refusal = attempt.refused(Failure::later(503, "no-daemon", "away").into());
            (asking.request, refusal.failure.message, refusal.failure.job)
        };
        let (request, message, _) = told("0").await;
        assert_eq!(message, "away");
        // It was refused, so nothing was accepted; and once more.
        assert_eq!(told("1").await.1, "away");
        attempts.forget(&request, Instant::now());
        let (_, message, job) = told("2").await;
        assert!(message.contains("may have been accepted"), "{message}");
        assert_eq!(job, None);
        attempts.remember(&request, Ok(JobId(7)), Instant::now());
        let (_, message, job) = told("3").await;
        assert!(message.ends_with("was accepted as job j7"), "{message}");
        assert_eq!(job, Some(JobId(7)));
    }

    #[tokio::test]
    async fn retry_of_what_is_unknown_keeps_its_key() {
        let attempts = Attempts::default();
        let unknown = || Refusal::from(Failure::new(424, "outcome-unknown", "who knows"));
        let begin = async |count: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-stainless-retry-count", count.parse().unwrap());
            let mut asking = Asking::read(&headers, "/v1/responses", "{}").unwrap();
            let room = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
            (
                attempts.begin(&mut asking, room).await.0,
                asking.key.unwrap(),
            )
        };
        let (first, key) = begin("0").await;
        let told = first.refused(unknown()).failure;
        assert_eq!((told.status, told.again), (503, Again::Later));
        // Refused for another reason it is as unknown as before.
        let draining = || Refusal::from(Failure::later(503, "draining", "ends"));
        for refusal in [unknown(), draining(), unknown()] {
            let (again, its) = begin("1").await;
            assert_eq!((again.meant(), its == key), (Meant::Unsure, true));
            assert_eq!(again.refused(refusal).failure.again, Again::Later);
        }
        let (again, its) = begin("2").await;
        assert_eq!(its, key);
        again.taken(JobId(1));
        let (again, its) = begin("3").await;
        assert_eq!((again.meant(), its == key), (Meant::Job(JobId(1)), false));
        // Another one that says the same has its own, and what was unknown before it is not its retry's.
        drop(again);
        let (unsure, old) = begin("0").await;
        assert!(old != key);
        drop(unsure.refused(unknown()));
        let (next, its) = begin("0").await;
        assert!(its != old);
        next.taken(JobId(2));
        assert_eq!(begin("1").await.0.meant(), Meant::Job(JobId(2)));
        // Of two that began before either was unknown each keeps its own.
        let (one, its_key) = begin("0").await;
        let (other, others_key) = begin("0").await;
        drop((one.refused(unknown()), other.refused(unknown())));
        let (again, its) = begin("1").await;
        assert_eq!((again.meant(), its == others_key), (Meant::Unsure, true));
        again.taken(JobId(3));
        let (again, its) = begin("1").await;
        assert_eq!((again.meant(), its == its_key), (Meant::Unsure, true));
    }

    #[test]
    fn retry_long_after_an_answer_is_new() {
        let attempts = Attempts::default();
        let meant = |after| attempts.recall(RETRY, Instant::now() + after).0;
        attempts.remember("r", Ok(JobId(1)), Instant::now());
        let long = RETRY.within;
        assert_eq!(meant(long), Meant::Job(JobId(1)), "nobody had an answer");
        attempts.told(JobId(1));
        let lost = long - Duration::from_secs(1);
        assert_eq!(meant(lost), Meant::Job(JobId(1)), "or lost it");
        assert_eq!(meant(long), Meant::New);
        attempts.refused_unread(Some(8));
        assert_eq!(meant(Duration::ZERO), Meant::Job(JobId(1)), "another's");
        for length in [Some(7), None] {
            attempts.told(JobId(1));
            attempts.refused_unread(length);
            assert_eq!(meant(Duration::ZERO), Meant::New);
        }
        attempts.told(JobId(1));
        assert_eq!(
            meant(Duration::ZERO),
            Meant::Job(JobId(1)),
            "that was before"
        );
        for other in 2..=MOST {
            attempts.remember("s", Ok(JobId(other as u64)), Instant::now());
        }
        assert_eq!(meant(long), Meant::New);
        attempts.remember("s", Ok(JobId(1000)), Instant::now());
        assert_eq!(meant(long), Meant::Unknown, "forgotten");
    }
}
