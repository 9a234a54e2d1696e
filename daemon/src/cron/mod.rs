//! Schedules: what is sent by itself, and when.
//!
//! Owns when that is (`timing`), what becomes of a due time (`plan`), and the one task that acts on it.
//! What is due is in the store; a due time and its job are one commit there, so that whoever is killed
//! in between leaves both or neither. Must not know jobs, sessions or agents: what is sent goes the way
//! of any other send.

mod clock;
mod plan;
pub mod prepare;
pub mod timing;

use std::pin::Pin;
use std::sync::Arc;

use agentd_base::clock::wall_ms;
use agentd_core::event::Scheduling;
use agentd_core::store::Fired;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::schedule::ScheduleId;
use agentd_protocol::{Code, JobId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::clock::WallTimer;
use self::plan::Decision;
use self::timing::Timing;
use crate::store::{DueSchedule, Store, Unsent};

/// Due times that are sent together: one sync does for all of them.
const TOGETHER: usize = 64;
/// What can't be sent now, as the disk is full or the daemon is about to stop, is tried again after so
/// long, in milliseconds.
const AGAIN_MS: i64 = 5000;

/// What is to be sent for a due time.
pub struct Firing {
    /// What.
    pub scheduling: Scheduling,
    /// That job is cancelled before.
    pub replaces: Option<JobId>,
}

/// What became of it; `None` when nobody knows.
pub type Sent = Option<Result<JobId, Rejected>>;

/// Sends what is due, all together; answers in the same order.
pub type Sender =
    Arc<dyn Fn(Vec<Firing>) -> Pin<Box<dyn Future<Output = Vec<Sent>> + Send>> + Send + Sync>;

/// Tells in words which schedules agentd has paused; `None` when none is.
pub type Teller =
    Box<dyn Fn(Option<String>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What schedules are served with.
pub struct CronConfig {
    /// Where they are kept.
    pub store: Store,
    /// Rings when one may be due at another time than before.
    pub scheduled: Arc<Notify>,
    /// How something is sent.
    pub send: Sender,
    /// Is told which ones agentd has paused, when that changes.
    pub paused: Teller,
    /// Cancelled when nothing is to be sent any more.
    pub stop: CancellationToken,
}

/// Sends what is due, from the first schedule on: where there is none this only waits for one.
pub async fn watch(config: CronConfig) {
    // What was due before was missed.
    let since_ms = wall_ms();
    let stop = config.stop.clone();
    let scheduled = Arc::clone(&config.scheduled);
    let mut timer = WallTimer::default();
    let mut part = Part {
        config,
        since_ms,
        paused: None,
    };
    let mut next_ms = None;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = scheduled.notified() => {}
            () = timer.wait(next_ms) => {}
        }
        // A clock that was set back makes nothing that comes then missed.
        part.since_ms = part.since_ms.min(wall_ms());
        next_ms = match part.act().await {
            Ok(next_ms) => next_ms,
            Err(why) => {
                tracing::warn!("schedules wait: {why}");
                Some(wall_ms().saturating_add(AGAIN_MS))
            }
        };
    }
}

struct Part {
    config: CronConfig,
    since_ms: i64,
    /// As it was told last.
    paused: Option<(String, u64)>,
}

/// What one look at the store came to.
#[derive(Default)]
struct Look {
    /// Was anything done, so that more may be due?
    acted: bool,
    /// Is something left that can't be sent now?
    again: bool,
    next_ms: Option<i64>,
}

impl Part {
    /// Acts on everything that is due; says when more will be.
    async fn act(&mut self) -> Result<Option<i64>, String> {
        loop {
            let look = self.look().await?;
            if !look.acted || look.again || self.config.stop.is_cancelled() {
                let again = look.again.then(|| wall_ms().saturating_add(AGAIN_MS));
                return Ok(look.next_ms.into_iter().chain(again).min());
            }
        }
    }

    async fn look(&mut self) -> Result<Look, String> {
        let (mut look, mut after) = (Look::default(), None);
        loop {
            let now_ms = wall_ms();
            let page = self.config.store.due_schedules(now_ms, after, TOGETHER);
            let page = page.await?;
            look.next_ms = page.next_ms;
            self.tell_paused(page.paused).await;
            self.act_on(page.due, now_ms, &mut look).await?;
            after = page.more;
            if after.is_none() || self.config.stop.is_cancelled() {
                return Ok(look);
            }
        }
    }

    async fn tell_paused(&mut self, paused: Option<(String, u64)>) {
        if paused != self.paused {
            let told = paused.as_ref().map(|(first, count)| match count {
                0 | 1 => first.clone(),
                more => format!("{first}; and {} more", more - 1),
            });
            (self.config.paused)(told).await;
            self.paused = paused;
        }
    }

    async fn act_on(
        &self,
        due: Vec<DueSchedule>,
        now_ms: i64,
        look: &mut Look,
    ) -> Result<(), String> {
        let (mut firings, mut of) = (Vec::new(), Vec::new());
        for row in due {
            let timing = match Timing::of(&row.spec, row.anchor_ms) {
                Ok(timing) => timing,
                // As its time zone is gone from the machine.
                Err(why) => {
                    self.config.store.pause_schedule(row.schedule, why).await?;
                    continue;
                }
            };
            match plan::decide(&row, &timing, now_ms, self.since_ms) {
                Decision::Send { fired, replaces } => {
                    firings.push(Firing {
                        scheduling: prepare::due(&row.spec, &fired),
                        replaces,
                    });
                    of.push(fired);
                }
                Decision::Skip(fired) => look.acted |= self.record(fired, Unsent::Skipped).await?,
                Decision::Wait => {}
            }
        }
        if firings.is_empty() {
            return Ok(());
        }
        failpoint!("before-fire");
        let sent = (self.config.send)(firings).await;
        failpoint!("after-fire");
        for (fired, sent) in of.into_iter().zip(sent) {
            self.sent(&fired, sent, look).await?;
        }
        Ok(())
    }

    async fn sent(&self, fired: &Fired, sent: Sent, look: &mut Look) -> Result<(), String> {
        let schedule = ScheduleId(fired.schedule);
        match sent {
            Some(Ok(job)) => {
                tracing::debug!(%schedule, %job, late_ms = fired.late_ms, "a schedule was due");
                // Mostly it is noted, in the job's commit; not where the job was there before.
                let _noted = self.record(fired.clone(), Unsent::Job(job)).await?;
                look.acted = true;
            }
            Some(Err(rejected)) if may_pass(rejected.code) => look.again = true,
            Some(Err(rejected)) => {
                let why = rejected.error;
                tracing::warn!(%schedule, why, "what a schedule sends was refused");
                look.acted |= self.record(fired.clone(), Unsent::Refused { why }).await?;
            }
            None => look.again = true,
        }
        Ok(())
    }

    async fn record(&self, fired: Fired, unsent: Unsent) -> Result<bool, String> {
        self.config.store.record_due(fired, unsent, wall_ms()).await
    }
}

/// May the same be taken in a while, without anybody doing anything about it?
const fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::Draining
            | Code::QueueFull
            | Code::SessionBusy
            | Code::StoreFailed
            | Code::DiskFull
            | Code::OutcomeUnknown
    )
}

/// The refusal of a name that no schedule has.
#[must_use]
pub fn unknown(which: &str) -> Rejected {
    // It is somebody else's text, and may be long.
    let shown: String = which.chars().take(64).collect();
    let error = format!("there is no schedule `{shown}`");
    Rejected::new(Code::InvalidRequest, error).hint("`cron.list` shows them")
}
