//! What `status` says: from counters kept here, whatever any worker, model or disk does.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{
    CrashRow, DaemonFacts, DaemonState, Line, RpcFacts, StatusAnswer, StoreFacts, WorkerRow,
};
use agentd_protocol::request::LogLevel;
use agentd_protocol::{Code, Id};

use crate::backoff::Cause;
use crate::effect::Effect;
use crate::event::RequestContext;
use crate::ids::{ConnId, TurnId, WorkerId};
use crate::job::Phase;
use crate::slot::Slot;
use crate::state::{Served, State};

/// How many durations the percentiles are taken over.
const DURATIONS: usize = 256;
/// The same for one process slot.
const DURATIONS_OF_SLOT: usize = 64;
/// Names of clients that are counted apart; anybody may call itself anything.
const CLIENTS: usize = 32;
/// Bytes of such a name.
const CLIENT_NAME: usize = 64;
/// Crashes that are told, each with so many bytes of its error.
const CRASHES: usize = 8;
const CRASH_BYTES: usize = 512;
/// Who came when all names were taken, or has none.
const OTHER_CLIENT: &str = "other";

/// The durations of the last turns.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Durations(VecDeque<Duration>);

impl Durations {
    fn push(&mut self, took: Duration, most: usize) {
        if self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back(took);
    }

    fn percentile_ms(&self, percent: usize) -> Option<u64> {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort();
        let index = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
        sorted.get(index).map(|duration| millis(**duration))
    }
}

/// The turns that ended in one process slot.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tally {
    ended: u64,
    failures: u64,
    durations: Durations,
}

impl Tally {
    /// A turn failed, and ended.
    pub(crate) fn failed(&mut self, took: Option<Duration>) {
        self.failures += 1;
        self.ended(took);
    }

    /// A turn ended after running for `took`.
    pub(crate) fn ended(&mut self, took: Option<Duration>) {
        self.ended += 1;
        if let Some(took) = took {
            self.durations.push(took, DURATIONS_OF_SLOT);
        }
    }
}

/// A duration as it is told.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Sums since the start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) sends: u64,
    pub(crate) failures: u64,
    pub(crate) restarts: u64,
    crashes: u64,
    last_crashes: VecDeque<CrashRow>,
    /// Turns that began in a process that was there already, and those for which one was started.
    pub(crate) pool_hits: u64,
    pub(crate) pool_misses: u64,
    pub(crate) finished: u64,
    /// The largest number of an event that is known here.
    pub(crate) last_seq: u64,
    durations: Durations,
    /// Turns that ran to an end since the start, and for how long in all.
    ran: u64,
    ran_ms: u64,
    /// New jobs by what their client calls itself.
    clients: BTreeMap<String, u64>,
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
            self.ran += 1;
            self.ran_ms = self.ran_ms.saturating_add(millis(took));
            self.durations.push(took, DURATIONS);
        }
    }

    /// So many new jobs came from a client of this name.
    pub(crate) fn sent_by(&mut self, client: Option<&str>, jobs: u64) {
        let name = client
            .filter(|name| !name.is_empty() && name.len() <= CLIENT_NAME)
            .filter(|name| self.clients.len() < CLIENTS || self.clients.contains_key(*name))
            .unwrap_or(OTHER_CLIENT);
        match self.clients.get_mut(name) {
            Some(count) => *count += jobs,
            None if jobs > 0 => drop(self.clients.insert(name.to_owned(), jobs)),
            None => {}
        }
    }
}

impl State {
    /// How it is, in one sentence.
    #[must_use]
    pub fn details(&self) -> String {
        self.status(false, &RequestContext::default()).details
    }

    pub(crate) fn status(&self, with_workers: bool, facts: &RequestContext) -> StatusAnswer {
        let live = self
            .slots
            .values()
            .filter(|slot| slot.pid().is_some())
            .count();
        let in_flight = self.derived.in_flight.len();
        let state = if !self.mode.starts_turns() {
            DaemonState::Draining
        } else if self.store_trouble.is_some() || !self.settings.losses.is_empty() {
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
            self.waiting(),
        );
        if let Some(trouble) = &self.store_trouble {
            details.push_str(&format!("; the store can't write: {trouble}"));
        }
        for loss in &self.settings.losses {
            details.push_str(&format!("; {loss}"));
        }
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        let gated = self.derived.gated.iter();
        let gates = gated.filter_map(|session| self.sessions.get(session)?.gate.as_ref());
        for gate in gates {
            *held.entry(&gate.why).or_default() += 1;
        }
        for (why, sessions) in held {
            let sessions = match sessions {
                1 => "1 session is".to_owned(),
                some => format!("{some} sessions are"),
            };
            details.push_str(&format!("; {sessions} held: {why}"));
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
                open_files: facts.open_files.map(|(open, _)| open),
                file_limit: facts.open_files.map(|(_, limit)| limit),
                log: facts.log.clone().and_then(Result::ok),
            },
            rpc: self.rpc(live, in_flight),
            workers: with_workers.then(|| {
                self.slots
                    .iter()
                    .map(|(worker, slot)| self.row(*worker, slot))
                    .collect()
            }),
            store: StoreFacts {
                jobs: self.counters.finished + self.numbers.len() as u64,
                open: self.numbers.len() as u64,
                events: self.counters.last_seq,
                bytes: facts.store_bytes,
                wal_bytes: facts.wal_bytes,
            },
            memory: Some(self.memory(facts.attached)),
            questions: self.questions.count() as u64,
            resumes: self.settings.nested.then_some(true),
        }
    }

    /// Turns that have a place in the queue of their session.
    fn waiting(&self) -> usize {
        let ends = self.derived.in_flight.iter();
        let unscheduled =
            |turn: &&TurnId| self.jobs.get(turn).is_some_and(|job| job.start.is_none());
        self.jobs.len() - self.scheduled - ends.filter(unscheduled).count()
    }

    fn rpc(&self, live: usize, in_flight: usize) -> RpcFacts {
        RpcFacts {
            live: live > 0,
            in_flight: in_flight as u64,
            sends: self.counters.sends,
            failures: self.counters.failures,
            fallbacks: self.settings.fallbacks + u64::from(self.settings.served != Served::Daemon),
            restarts: self.counters.restarts,
            crashes: self.counters.crashes,
            last_crashes: self.counters.last_crashes.iter().cloned().collect(),
            p50_ms: self.counters.durations.percentile_ms(50),
            p95_ms: self.counters.durations.percentile_ms(95),
            queued: self.waiting() as u64,
            scheduled: self.scheduled as u64,
            turns: self.counters.ran,
            turns_ms: self.counters.ran_ms,
            pool_hits: self.counters.pool_hits,
            pool_misses: self.counters.pool_misses,
            clients: self.counters.clients.clone(),
        }
    }

    /// A process died unasked, never came up, or hangs: its slot may go, this is kept.
    pub(crate) fn note_crash(&mut self, worker: WorkerId, why: &str) {
        let Some(slot) = self.slots.get(&worker) else {
            return;
        };
        let session = slot.sessions.iter().next();
        let session = session.and_then(|session| self.sessions.get(session));
        let end = why.floor_char_boundary(CRASH_BYTES);
        let crash = CrashRow {
            at: rfc3339(self.now.wall_ms),
            worker: worker.0,
            agent: slot.agent.clone(),
            session: session.map(|session| session.shown()),
            error: why.get(..end).unwrap_or(why).to_owned(),
        };
        self.counters.crashes += 1;
        self.counters.last_crashes.push_front(crash);
        self.counters.last_crashes.truncate(CRASHES);
    }

    fn row(&self, worker: WorkerId, slot: &Slot) -> WorkerRow {
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
            worker: worker.0,
            agent: slot.agent.clone(),
            session: sessions().next().and_then(|session| session.name.clone()),
            state: slot.state(
                settling,
                health.is_some_and(|broken| broken.cause != Cause::Crash),
            ),
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
            live: slot.pid().is_some(),
            turns: slot.tally.ended,
            failures: slot.tally.failures,
            p50_ms: slot.tally.durations.percentile_ms(50),
            p95_ms: slot.tally.durations.percentile_ms(95),
        }
    }

    /// How much is logged, from now on or so far: the shell has read what was given.
    pub(crate) fn log_level(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        asked: &LogLevel,
        facts: &RequestContext,
    ) {
        let log = match &facts.log {
            Some(Ok(log)) => log.clone(),
            Some(Err(error)) => {
                let hint = "a level is error, warn, info, debug, trace or off; \
                            a list is as `info,agentd_daemon::store=debug`";
                let rejected = Rejected::new(Code::InvalidRequest, error.clone()).hint(hint);
                return self.refuse(conn, id, rejected);
            }
            None => {
                let rejected = Rejected::new(Code::Unsupported, "this process has no log");
                return self.refuse(conn, id, rejected);
            }
        };
        if asked.level.is_some() {
            self.out.push(Effect::SetLogLevel(log.level.clone()));
        }
        self.answer(conn, id, &Line::LogLevel { ok: true, log });
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
        assert_eq!(counters.durations.percentile_ms(50), None);
        for ms in 1..=300 {
            counters.ended(Some(Duration::from_millis(ms)));
        }
        assert_eq!(counters.durations.percentile_ms(50), Some(172));
        assert_eq!(counters.durations.percentile_ms(95), Some(288));
    }

    #[test]
    fn clients_are_counted_by_name_and_the_names_are_bounded() {
        let mut counters = Counters::default();
        for n in 0..100 {
            counters.sent_by(Some(&format!("client {n}")), 1);
        }
        counters.sent_by(Some("client 0"), 2);
        counters.sent_by(Some("client 1"), 0);
        counters.sent_by(Some(&"x".repeat(CLIENT_NAME + 1)), 1);
        counters.sent_by(None, 1);
        assert_eq!(counters.clients.len(), CLIENTS + 1);
        assert_eq!(counters.clients["client 0"], 3);
        assert_eq!(counters.clients[OTHER_CLIENT], 100 - 32 + 2);
    }

    #[test]
    fn a_slot_counts_its_turns_and_those_that_failed() {
        let mut tally = Tally::default();
        tally.ended(Some(Duration::from_millis(5)));
        tally.failed(None);
        for _ in 0..200 {
            tally.ended(Some(Duration::from_millis(7)));
        }
        assert_eq!((tally.ended, tally.failures), (202, 1));
        assert_eq!(tally.durations.percentile_ms(50), Some(7));
        assert_eq!(tally.durations.0.len(), DURATIONS_OF_SLOT);
    }
}
