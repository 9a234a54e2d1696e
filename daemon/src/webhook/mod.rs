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

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use self::post::{Ended, LookUp, Poster};
use crate::config::Endpoints;
use crate::store::{Delivery, Mark, Outcome, Store, Wanted};

/// Requests under way, of all receivers.
const AT_ONCE: usize = 16;
/// And of one host: a slow one doesn't hold up the others, nor is it flooded when it is back.
const PER_HOST: usize = 4;
/// After this a store that can't be written is tried again.
const STORE_AGAIN: Duration = Duration::from_secs(5);
/// The clock and the endpoints are looked at this often: either may be wrong now and right later.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// No clock that is right says less: 2026-11-01, in milliseconds since 1970. A receiver would refuse
/// what is signed before.
const EARLIEST_MS: i64 = 1_793_491_200_000;

/// What deliveries are made with.
pub struct Setting {
    /// Where they are kept.
    pub store: Store,
    /// Rings when there is something to do.
    pub due: Arc<Notify>,
    /// The file of endpoints.
    pub endpoints: PathBuf,
    /// Cancelled when the daemon stops: what is under way is told again by the next one.
    pub stop: CancellationToken,
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").finish_non_exhaustive()
    }
}

/// Starts the thread as soon as there is something to deliver: most daemons never need it.
pub async fn watch(setting: Setting) {
    tokio::select! {
        () = setting.stop.cancelled() => return,
        () = setting.due.notified() => setting.due.notify_one(),
    }
    let thread = std::thread::Builder::new()
        .name("webhooks".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(AT_ONCE)
                .build();
            match runtime {
                Ok(runtime) => {
                    let deliverer = Deliverer::new(setting, Arc::new(wall_ms), post::system());
                    runtime.block_on(deliverer.run());
                    // A look-up may be waiting for ever.
                    runtime.shutdown_background();
                }
                Err(error) => tracing::error!(%error, "webhooks can't be delivered"),
            }
        });
    if let Err(error) = thread {
        tracing::error!(%error, "webhooks can't be delivered until agentd starts again");
    }
}

/// Says milliseconds since 1970.
type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// One that is under way.
struct UnderWay {
    id: String,
    host: String,
    attempts: u32,
    is_test: bool,
}

struct Deliverer {
    setting: Setting,
    clock: Clock,
    poster: Arc<Poster>,
    requests: JoinSet<Ended>,
    under_way: HashMap<Id, UnderWay>,
    /// What is to be noted before anything else is begun.
    marks: Vec<Mark>,
    /// The last trouble that was logged, so that it is logged once.
    trouble: Option<String>,
}

impl Deliverer {
    fn new(setting: Setting, clock: Clock, look_up: LookUp) -> Self {
        Self {
            setting,
            clock,
            poster: Arc::new(Poster::new(look_up)),
            requests: JoinSet::new(),
            under_way: HashMap::new(),
            marks: Vec::new(),
            trouble: None,
        }
    }

    async fn run(mut self) {
        let stop = self.setting.stop.clone();
        let _stopped = stop.run_until_cancelled(self.deliver()).await;
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
                () = self.setting.due.notified() => {}
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
        if !self.marks.is_empty() {
            let marked = self.setting.store.mark(self.marks.clone()).await;
            marked.map_err(|why| (why, STORE_AGAIN))?;
            self.marks.clear();
        }
        let now_ms = (self.clock)();
        if now_ms < EARLIEST_MS {
            let why = "the clock says a time before this version was made; set it right";
            return Err((why.to_owned(), LOOK_AGAIN));
        }
        // Whoever has just added one expects it to count.
        let endpoints = Endpoints::load(&self.setting.endpoints);
        let endpoints = endpoints.map_err(|error| (error.to_string(), LOOK_AGAIN))?;
        loop {
            let room = AT_ONCE.saturating_sub(self.under_way.len());
            if room == 0 {
                return Ok(LOOK_AGAIN);
            }
            let wanted = Wanted {
                now_ms,
                but: self.under_way.values().map(|one| one.id.clone()).collect(),
                busy: self.busy(),
                limit: room,
            };
            let waiting = self.setting.store.due(wanted).await;
            let waiting = waiting.map_err(|why| (why, STORE_AGAIN))?;
            if waiting.due.is_empty() {
                let left = waiting.next_ms.map(|next| next.saturating_sub(now_ms));
                let left = left.and_then(|left| u64::try_from(left).ok());
                return Ok(left.map_or(LOOK_AGAIN, |ms| LOOK_AGAIN.min(Duration::from_millis(ms))));
            }
            // Each round begins at least one, so there are no more than there is room.
            for due in waiting.due {
                if self.count(&due.host) < PER_HOST {
                    self.send(due, &endpoints, now_ms);
                }
            }
        }
    }

    fn count(&self, host: &str) -> usize {
        self.under_way
            .values()
            .filter(|one| one.host == host)
            .count()
    }

    /// Hosts that have as many as they may.
    fn busy(&self) -> Vec<String> {
        let hosts = self.under_way.values().map(|one| &one.host);
        let mut busy: Vec<String> = hosts
            .filter(|host| self.count(host) >= PER_HOST)
            .cloned()
            .collect();
        busy.sort();
        busy.dedup();
        busy
    }

    fn send(&mut self, due: Delivery, endpoints: &Endpoints, now_ms: i64) {
        let one = UnderWay {
            id: due.id.clone(),
            host: due.host.clone(),
            attempts: due.attempts,
            is_test: due.is_test,
        };
        let url = reqwest::Url::parse(&due.url).ok();
        let endpoint = url.and_then(|url| endpoints.of(&url).cloned());
        let poster = Arc::clone(&self.poster);
        let request = self.requests.spawn(async move {
            match endpoint {
                Some(endpoint) => poster.post(&endpoint, due, now_ms).await,
                None => Ended::failed("no endpoint is configured for its URL any more"),
            }
        });
        self.under_way.insert(request.id(), one);
    }

    fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let (task, ended) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Ended::failed("a bug in agentd")),
        };
        let Some(one) = self.under_way.remove(&task) else {
            return;
        };
        failpoint!("before-mark");
        let at_ms = (self.clock)();
        let outcome = schedule::outcome(&one.id, one.attempts + 1, ended.verdict, at_ms);
        let outcome = match outcome {
            // Who tries waits for the answer.
            Outcome::Again(_) if one.is_test => Outcome::Dead,
            outcome => outcome,
        };
        let (webhook, host, why) = (&one.id, &one.host, ended.error.as_deref());
        match outcome {
            Outcome::Delivered => tracing::debug!(webhook, host, "a webhook is delivered"),
            Outcome::Again(_) => tracing::debug!(webhook, host, why, "a webhook is not delivered"),
            Outcome::Dead | Outcome::Gone => tracing::warn!(
                webhook,
                host,
                why,
                "a webhook is given up; `agentctl webhook replay` sends it again"
            ),
        }
        self.marks.push(Mark {
            id: one.id,
            attempts: one.attempts,
            at_ms,
            outcome,
            status: ended.status,
            error: ended.error,
        });
    }
}
