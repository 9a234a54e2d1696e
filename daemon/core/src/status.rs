//! What `status` says: from counters kept here, whatever any worker, model or disk does.

use std::collections::VecDeque;
use std::time::Duration;

use agentd_protocol::line::{
    DaemonFacts, DaemonState, RpcFacts, StatusAnswer, StoreFacts, WorkerRow,
};

use crate::event::Facts;
use crate::ids::WorkerId;
use crate::job::Phase;
use crate::slot::Slot;
use crate::state::{Served, State};

/// How many durations the percentiles are taken over.
const DURATIONS: usize = 256;

/// Sums since the start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) sends: u64,
    pub(crate) failures: u64,
    pub(crate) restarts: u64,
    pub(crate) finished: u64,
    /// The largest number of an event that is known here.
    pub(crate) last_seq: u64,
    durations: VecDeque<Duration>,
}

impl Counters {
    /// As the store was when it was opened.
    pub(crate) fn at_start(last_seq: u64, ended_jobs: u64) -> Self {
        Self {
            last_seq,
            finished: ended_jobs,
            ..Self::default()
        }
    }

    /// A job ended after running for `took`.
    pub(crate) fn ended(&mut self, took: Option<Duration>) {
        self.finished += 1;
        if let Some(took) = took {
            if self.durations.len() == DURATIONS {
                self.durations.pop_front();
            }
            self.durations.push_back(took);
        }
    }

    fn percentile(&self, percent: usize) -> Option<u64> {
        let mut sorted: Vec<_> = self.durations.iter().collect();
        sorted.sort();
        let index = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
        sorted
            .get(index)
            .map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl State {
    /// How it is, in one sentence.
    #[must_use]
    pub fn details(&self) -> String {
        self.status(false, &Facts::default()).details
    }

    pub(crate) fn status(&self, with_workers: bool, facts: &Facts) -> StatusAnswer {
        let live = self
            .slots
            .values()
            .filter(|slot| slot.pid().is_some())
            .count();
        let in_flight = self.in_flight();
        let state = if !self.mode.starts_turns() {
            DaemonState::Draining
        } else if self.store_trouble.is_some() || self.settings.moved_aside.is_some() {
            DaemonState::Degraded
        } else {
            DaemonState::Ready
        };
        let count =
            |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        let mut details = format!(
            "agentd {} is {}: {} live, {} in flight, {} waiting",
            self.settings.version,
            match state {
                DaemonState::Ready => "ready",
                DaemonState::Degraded => "degraded",
                DaemonState::Draining => "draining",
            },
            count(live, "worker", "workers"),
            count(in_flight, "turn", "turns"),
            self.waiting.len(),
        );
        if let Some(trouble) = &self.store_trouble {
            details.push_str(&format!("; the store can't write: {trouble}"));
        }
        if let Some(aside) = &self.settings.moved_aside {
            details.push_str(&format!(
                "; the store was damaged, what it held is in `{aside}`, and a new one was begun"
            ));
        }
        for session in self
            .sessions
            .values()
            .filter(|session| session.gate.is_some())
        {
            let gate = session.gate.as_deref().unwrap_or_default();
            details.push_str(&format!("; session `{}` is held: {gate}", session.shown()));
        }
        StatusAnswer {
            ok: true,
            details,
            state,
            daemon: DaemonFacts {
                version: self.settings.version.clone(),
                pid: self.settings.pid,
                uptime_s: self.now.mono.as_secs(),
                epoch: self.settings.epoch.clone(),
                rss_bytes: facts.rss_bytes,
            },
            rpc: RpcFacts {
                live: live > 0,
                in_flight: in_flight as u64,
                sends: self.counters.sends,
                failures: self.counters.failures,
                fallbacks: u64::from(self.settings.served != Served::Daemon),
                restarts: self.counters.restarts,
                p50_ms: self.counters.percentile(50),
                p95_ms: self.counters.percentile(95),
            },
            workers: with_workers.then(|| {
                self.slots
                    .iter()
                    .map(|(worker, slot)| self.row(*worker, slot))
                    .collect()
            }),
            store: StoreFacts {
                jobs: self.counters.finished + self.jobs.len() as u64,
                events: self.counters.last_seq,
                bytes: facts.store_bytes,
                wal_bytes: facts.wal_bytes,
            },
            questions: self.questions.count() as u64,
            resumes: self.settings.nested.then_some(true),
        }
    }

    fn row(&self, _worker: WorkerId, slot: &Slot) -> WorkerRow {
        let settling = slot.turns.iter().any(|turn| {
            self.jobs
                .get(turn)
                .is_some_and(|job| matches!(job.phase, Phase::Settling { .. }))
        });
        let health = self
            .health
            .get(&slot.agent)
            .and_then(|health| health.state());
        let sessions = || {
            slot.sessions
                .iter()
                .filter_map(|session| self.sessions.get(session))
        };
        WorkerRow {
            agent: slot.agent.clone(),
            session: sessions().next().and_then(|session| session.name.clone()),
            state: slot.state(settling, health.is_some_and(|broken| broken.permanent)),
            pid: slot.pid(),
            generation: slot.generation.0,
            restarts: slot.restarts,
            last_exit: slot.last_exit.clone(),
            last_error: slot.last_error.clone(),
            uptime_s: slot.pid().map_or(0, |_| {
                self.now.mono.saturating_sub(slot.spawned_at).as_secs()
            }),
            in_flight: slot.turns.len() as u64,
            queued: sessions().map(|session| session.queue.len() as u64).sum(),
            last_ok_at: slot.last_ok_ms.map(rfc3339),
        }
    }
}

/// A time as RFC 3339 in UTC, to the second (days to civil date after Hinnant's `civil_from_days`).
pub fn rfc3339(wall_ms: i64) -> String {
    let seconds = wall_ms.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_827_696_500), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_795_207_443_614), "2026-11-20T20:44:03Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59Z");
    }

    #[test]
    fn percentiles_are_of_the_last_durations() {
        let mut counters = Counters::default();
        assert_eq!(counters.percentile(50), None);
        for ms in 1..=300 {
            counters.ended(Some(Duration::from_millis(ms)));
        }
        assert_eq!(counters.percentile(50), Some(172));
        assert_eq!(counters.percentile(95), Some(288));
    }
}
