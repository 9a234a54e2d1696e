//! What `status` says: from counters kept here, whatever any worker, model or disk does.

use std::collections::BTreeMap;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{
    CrashRow, DaemonFacts, DaemonState, Line, RpcFacts, StatusAnswer, StoreFacts, WorkerRow,
};
use agentd_protocol::request::LogLevel;
use agentd_protocol::{Code, Id};

use crate::effect::Effect;
use crate::event::RequestContext;
use crate::health::Cause;
use crate::ids::{ConnId, TurnId, WorkerId};
use crate::jobs::job::Phase;
use crate::pool::slot::Slot;
use crate::settings::Served;
use crate::state::State;
use crate::text::rfc3339;

impl State {
    /// How it is, in one sentence.
    #[must_use]
    pub fn details(&self) -> String {
        self.status(false, &RequestContext::default()).details
    }

    pub(crate) fn status(&self, with_workers: bool, facts: &RequestContext) -> StatusAnswer {
        let live = self
            .pool
            .slots()
            .filter(|slot| slot.pid().is_some())
            .count();
        let in_flight = self.indexes.in_flight().len();
        let state = if !self.mode.starts_turns() {
            DaemonState::Draining
        } else if self.wrong_with_the_store().is_some() || !self.settings.losses.is_empty() {
            DaemonState::Degraded
        } else {
            DaemonState::Ready
        };
        let details = self.sentence(state, live, facts);
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
                config: facts.config.clone(),
                before: self.settings.before,
            },
            rpc: self.rpc(live, in_flight),
            workers: with_workers.then(|| {
                self.pool
                    .iter()
                    .map(|(worker, slot)| self.row(worker, slot))
                    .collect()
            }),
            store: StoreFacts {
                // Not asked of the store: a status answers while the disk hangs.
                jobs: self.counters.finished + self.jobs.numbers().len() as u64,
                open: self.jobs.numbers().len() as u64,
                events: self.counters.last_seq(),
                bytes: facts.store_bytes,
                wal_bytes: facts.wal_bytes,
            },
            memory: Some(self.memory(facts.attached)),
            spares: Some(self.spare_facts()),
            questions: self.peers.questions().count() as u64,
            resumes: self.settings.nested.then_some(true),
        }
    }

    /// How it is, for people.
    fn sentence(&self, state: DaemonState, live: usize, facts: &RequestContext) -> String {
        let in_flight = self.indexes.in_flight().len();
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
        if let Some(trouble) = self.wrong_with_the_store() {
            details.push_str(&format!("; the store can't write: {trouble}"));
        }
        let config = facts.config.as_ref();
        if let Some(refused) = config.and_then(|config| config.refused.as_ref()) {
            details.push_str(&format!(
                "; the newest configuration does not count: {refused}"
            ));
        }
        let lacks = self.settings.backups_lack.iter();
        for loss in self.settings.losses.iter().chain(lacks) {
            details.push_str(&format!("; {loss}"));
        }
        if let Some(paused) = &self.settings.schedules_paused {
            details.push_str(&format!("; a schedule is paused: {paused}"));
        }
        // Counted by their reason: a dead daemon may have left thousands.
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        let gated = self.indexes.gated().iter();
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
        details
    }

    /// Turns that have a place in the queue of their session.
    fn waiting(&self) -> usize {
        let ends = self.indexes.in_flight().iter();
        let unscheduled =
            |turn: &&TurnId| self.jobs.get(turn).is_some_and(|job| job.start.is_none());
        self.jobs.len() - self.jobs.scheduled() - ends.filter(unscheduled).count()
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
            scheduled: self.jobs.scheduled() as u64,
            turns: self.counters.ran,
            turns_ms: self.counters.ran_ms,
            pool_hits: self.counters.pool_hits,
            pool_misses: self.counters.pool_misses,
            clients: self.counters.clients.clone(),
        }
    }

    /// A process died unasked, never came up, or hangs: its slot may go, this is kept.
    pub(crate) fn note_crash(&mut self, worker: WorkerId, why: &str) {
        let slot = expected!(self.pool.get(worker));
        let session = slot.held().next();
        let session = session.and_then(|session| self.sessions.get(&session));
        let crash = CrashRow {
            at: rfc3339(self.now.wall_ms),
            worker: worker.0,
            agent: slot.agent.clone(),
            session: session.map(|session| session.shown()),
            error: why.to_owned(),
        };
        self.counters.crashed(crash);
    }

    fn row(&self, worker: WorkerId, slot: &Slot) -> WorkerRow {
        let settling = slot.turns.iter().any(|turn| {
            self.jobs
                .get(turn)
                .is_some_and(|job| matches!(job.phase, Phase::Settling { .. }))
        });
        let health = self
            .pool
            .health(&slot.agent)
            .and_then(|health| health.state());
        let sessions = || {
            slot.sessions
                .iter()
                .filter_map(|session| self.sessions.get(session))
        };
        let running = slot.turns.first().and_then(|turn| self.jobs.get(turn));
        let session = running.and_then(|job| self.sessions.get(&job.session));
        let session = session.or_else(|| sessions().next());
        WorkerRow {
            worker: worker.0,
            agent: slot.agent.clone(),
            session: session.and_then(|session| session.name.clone()),
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
            spare: slot.is_unused_spare(),
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
            self.outbox.push(Effect::SetLogLevel(log.level.clone()));
        }
        self.answer(conn, id, &Line::LogLevel { ok: true, log });
    }
}
