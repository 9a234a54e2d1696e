//! Telling others that a job has ended: the only requests that agentd itself sends over a network.
//!
//! Owns what is under way and how much at once. It runs on a thread of its own, so that nobody waits
//! for a look-up, a handshake or a slow receiver. What is due is in the store, and every attempt is
//! noted there before the next: a delivery is told at least once, under the same id each time. Must
//! not know jobs or sessions.

mod post;
mod schedule;
mod sign;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentd_base::clock::wall_ms;
use tokio::sync::{Notify, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::post::{LookUp, PostResult, Poster};
use self::schedule::Verdict;
use crate::config::Endpoints;
use crate::store::{AttemptOutcome, AttemptRecord, Delivery, Store, Wanted};

/// Requests under way, of all receivers.
const AT_ONCE: usize = 16;
/// And of one host: a slow one doesn't hold up the others, nor is it flooded when it is back.
const PER_HOST: usize = 4;
/// Threads for look-ups, which outlive the request they were for: each name that hangs takes some.
const LOOK_UPS: usize = 64;
/// A host that said when to come back, or can't be reached from here, is left alone until then, but no
/// longer than this: not all of it may have said so.
const LEFT_ALONE_MS: i64 = 5 * 60 * 1000;
/// No clock that is right says less, in milliseconds since 1970: 2026-11-01, before the first version. A
/// machine without a clock of its own begins years before that, and a receiver refuses what is signed then.
const EARLIEST_MS: i64 = 1_793_491_200_000;
/// So far the clock goes back by itself, in milliseconds; further, and it was set.
const SET_BACK_MS: i64 = 60 * 1000;
/// What is under way when the daemon stops may take so long.
const LEAVING: Duration = Duration::from_secs(1);
/// After this a store that can't be written is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(5);
/// The clock and the endpoints are looked at this often: either may be wrong now and right later.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What deliveries are made with.
pub struct DeliveryConfig {
    /// Where they are kept.
    pub store: Store,
    /// Rings when there is something to do.
    pub due: Arc<Notify>,
    /// The file of endpoints.
    pub endpoints: PathBuf,
    /// Cancelled when no more jobs can end: what isn't told soon after is told by the next daemon.
    pub stop: CancellationToken,
}

/// Starts the thread as soon as there is something to deliver: most daemons never need it. Ends with
/// it.
pub async fn watch(config: DeliveryConfig) {
    loop {
        tokio::select! {
            biased;
            // First, so that an end which comes with the stop is still looked at.
            () = config.due.notified() => {}
            () = config.stop.cancelled() => return,
        }
        if is_something_waiting(&config.store).await {
            break;
        }
    }
    // The bell that was just heard is for the thread.
    config.due.notify_one();
    let (running, ended) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new()
        .name("webhooks".to_owned())
        .spawn(move || {
            // Dropped with the thread, even by a panic: that is what `ended` tells.
            let _running = running;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(LOOK_UPS)
                .build();
            match runtime {
                Ok(runtime) => {
                    let deliverer = Deliverer::new(config, Arc::new(wall_ms), post::system());
                    runtime.block_on(deliverer.run());
                    // A look-up may be waiting for ever.
                    runtime.shutdown_background();
                }
                Err(error) => tracing::error!(%error, "webhooks can't be delivered"),
            }
        });
    match thread {
        // It sends nothing: that it has ended is enough.
        Ok(_thread) => drop(ended.await),
        Err(error) => {
            tracing::error!(%error, "webhooks can't be delivered until agentd starts again");
        }
    }
}

/// What can't be known may be.
async fn is_something_waiting(store: &Store) -> bool {
    let wanted = Wanted {
        // One that waits is reason enough.
        each: 1,
        ..Wanted::default()
    };
    let waiting = store.due(wanted).await;
    waiting.map_or(true, |waiting| {
        waiting.next_ms.is_some() || !waiting.due.is_empty()
    })
}

/// Says milliseconds since 1970.
type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// One that is under way.
struct UnderWay {
    id: String,
    host: String,
    attempts: u32,
    created_ms: i64,
    is_test: bool,
}

struct Deliverer {
    config: DeliveryConfig,
    clock: Clock,
    poster: Arc<Poster>,
    requests: JoinSet<PostResult>,
    under_way: HashMap<Id, UnderWay>,
    /// Hosts that gave no answer in time when they were last asked: each gets one request at once.
    slow: HashSet<String>,
    /// Hosts that are left alone, and until when in milliseconds since 1970.
    left_alone: HashMap<String, i64>,
    /// What is to be noted before anything else is begun.
    attempts: Vec<AttemptRecord>,
    /// What the clock said when the store was last asked, in milliseconds since 1970.
    asked_ms: Option<i64>,
    /// The last trouble that was logged, so that it is logged once.
    trouble: Option<String>,
}

impl Deliverer {
    fn new(config: DeliveryConfig, clock: Clock, look_up: LookUp) -> Self {
        Self {
            config,
            clock,
            poster: Arc::new(Poster::new(look_up)),
            requests: JoinSet::new(),
            under_way: HashMap::new(),
            slow: HashSet::new(),
            left_alone: HashMap::new(),
            attempts: Vec::new(),
            asked_ms: None,
            trouble: None,
        }
    }

    async fn run(mut self) {
        let stop = self.config.stop.clone();
        let _stopped = stop.run_until_cancelled(self.deliver()).await;
        let _late = tokio::time::timeout(LEAVING, self.leave()).await;
    }

    /// Tells what ended last, too, as far as receivers answer at once.
    async fn leave(&mut self) {
        while self.begin().await.is_ok() {
            match self.requests.join_next_with_id().await {
                Some(ended) => self.ended(ended),
                None => return,
            }
        }
    }

    async fn deliver(&mut self) {
        loop {
            let wait = match self.begin().await {
                Ok(wait) => {
                    self.trouble = None;
                    wait
                }
                Err((why, again)) => {
                    if self.trouble.as_ref() != Some(&why) {
                        tracing::warn!("webhooks wait: {why}");
                        self.trouble = Some(why);
                    }
                    again
                }
            };
            tokio::select! {
                Some(ended) = self.requests.join_next_with_id() => self.ended(ended),
                () = self.config.due.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            while let Some(ended) = self.requests.try_join_next_with_id() {
                self.ended(ended);
            }
        }
    }

    /// Notes what has ended and begins what is due; says when to look again. An error says why
    /// nothing can be begun, and when to try again.
    async fn begin(&mut self) -> Result<Duration, (String, Duration)> {
        if !self.attempts.is_empty() {
            let recorded = self
                .config
                .store
                .record_attempts(self.attempts.clone())
                .await;
            // Before anything new is sent: one that isn't noted would be due at once, again and
            // again.
            recorded.map_err(|why| (why, STORE_AGAIN))?;
            self.attempts.clear();
        }
        let now_ms = (self.clock)();
        if now_ms < EARLIEST_MS {
            let why = "the clock says a time before agentd was made; set it right";
            return Err((why.to_owned(), LOOK_AGAIN));
        }
        // Whoever has just added one expects it to count.
        let endpoints = Endpoints::load(&self.config.endpoints);
        let endpoints = endpoints.map_err(|error| (error.to_string(), LOOK_AGAIN))?;
        if self.under_way.len() >= AT_ONCE {
            return Ok(LOOK_AGAIN);
        }
        let wanted = Wanted {
            now_ms,
            but: self.under_way.values().map(|one| one.id.clone()).collect(),
            each: PER_HOST,
            set_back: self
                .asked_ms
                .is_none_or(|asked_ms| now_ms < asked_ms.saturating_sub(SET_BACK_MS)),
        };
        let waiting = self.config.store.due(wanted).await;
        let waiting = waiting.map_err(|why| (why, STORE_AGAIN))?;
        self.asked_ms = Some(now_ms);
        // What a clock said that was ahead counts no more.
        self.left_alone
            .retain(|_, until| (now_ms..=now_ms.saturating_add(LEFT_ALONE_MS)).contains(until));
        let mut due = waiting.due;
        while self.under_way.len() < AT_ONCE
            && let Some(place) = self.choose(&due)
        {
            self.send(due.remove(place), &endpoints, now_ms);
        }
        // At `until` itself the host is still left alone.
        let left_alone = self.left_alone.values().min().map(|until| *until + 1);
        let next_ms = waiting.next_ms.into_iter().chain(left_alone).min();
        // What is due and wasn't begun isn't among these: it waits for a place, and the end that
        // makes one wakes this.
        let left = next_ms.map(|next| next.saturating_sub(now_ms));
        let left = left.and_then(|left| u64::try_from(left).ok());
        Ok(left.map_or(LOOK_AGAIN, |ms| LOOK_AGAIN.min(Duration::from_millis(ms))))
    }

    /// Which of these goes next: one to the host with the fewest under way, so that hosts take turns.
    fn choose(&self, due: &[Delivery]) -> Option<usize> {
        let may = due.iter().enumerate().filter(|(_, one)| {
            let most = match self.slow.contains(&one.host) {
                true => 1,
                false => PER_HOST,
            };
            // Who tries wants to see it.
            let is_left_alone = !one.is_test && self.left_alone.contains_key(&one.host);
            self.count(&one.host) < most && !is_left_alone
        });
        may.min_by_key(|(_, one)| self.count(&one.host))
            .map(|(place, _)| place)
    }

    fn count(&self, host: &str) -> usize {
        self.under_way
            .values()
            .filter(|one| one.host == host)
            .count()
    }

    fn send(&mut self, due: Delivery, endpoints: &Endpoints, now_ms: i64) {
        let one = UnderWay {
            id: due.id.clone(),
            host: due.host.clone(),
            attempts: due.attempts,
            created_ms: due.created_ms,
            is_test: due.is_test,
        };
        let url = reqwest::Url::parse(&due.url).ok();
        let endpoint = url.and_then(|url| endpoints.of(&url).cloned());
        let poster = Arc::clone(&self.poster);
        let request = self.requests.spawn(async move {
            match endpoint {
                Some(endpoint) => poster.post(&endpoint, due, now_ms).await,
                None => PostResult::failed("no endpoint is configured for its URL any more"),
            }
        });
        self.under_way.insert(request.id(), one);
    }

    fn ended(&mut self, ended: Result<(Id, PostResult), JoinError>) {
        let (task, ended) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), PostResult::failed("a bug in agentd")),
        };
        let Some(one) = self.under_way.remove(&task) else {
            return;
        };
        // A kill here sends it once more, under the same id: a receiver may see it twice, but never
        // not at all.
        failpoint!("before-mark");
        let at_ms = (self.clock)();
        match ended.late {
            true => self.slow.insert(one.host.clone()),
            false => self.slow.remove(&one.host),
        };
        let not_before = match ended.verdict {
            Verdict::Failed(asked) => asked,
            Verdict::NoNetwork => Some(schedule::WITHOUT_NETWORK),
            Verdict::Delivered | Verdict::Gone => None,
        };
        if let Some(asked) = not_before {
            let asked = i64::try_from(asked.as_millis()).unwrap_or(LEFT_ALONE_MS);
            let until = at_ms.saturating_add(asked.min(LEFT_ALONE_MS));
            self.left_alone.insert(one.host.clone(), until);
        }
        let (made, created_ms) = (one.attempts + 1, one.created_ms);
        // By the clock of its end: the receiver may have taken its time.
        let outcome = schedule::outcome(&one.id, made, ended.verdict, created_ms, at_ms);
        let outcome = match outcome {
            // Who tries waits for the answer.
            AttemptOutcome::Again(_) | AttemptOutcome::Waits(_) if one.is_test => {
                AttemptOutcome::Dead
            }
            outcome => outcome,
        };
        let (webhook, host, why) = (&one.id, &one.host, ended.error.as_deref());
        match outcome {
            AttemptOutcome::Delivered => tracing::debug!(webhook, host, "a webhook is delivered"),
            AttemptOutcome::Again(_) | AttemptOutcome::Waits(_) => {
                tracing::debug!(webhook, host, why, "a webhook is not delivered");
            }
            AttemptOutcome::Dead | AttemptOutcome::Gone => tracing::warn!(
                webhook,
                host,
                why,
                "a webhook is given up; `agentctl webhook replay --dead` sends it again"
            ),
        }
        self.attempts.push(AttemptRecord {
            id: one.id,
            attempts: one.attempts,
            at_ms,
            outcome,
            status: ended.status,
            error: ended.error,
        });
    }
}
