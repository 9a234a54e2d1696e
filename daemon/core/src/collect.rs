//! `collect`: the final lines of jobs, now or when they come.
//!
//! Owns the waiting list and the pages. Must not know how a job ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Line, Telling};
use agentd_protocol::request::{Collect, Wait};
use agentd_protocol::serde_json::Value;
use agentd_protocol::{Body, Code, Id, JobId, limits};

use crate::event::Facts;
use crate::ids::ConnId;
use crate::limits::COLLECT_JOBS;
use crate::state::State;
use crate::store::{JobRow, JobState, Query};
use crate::stored::Awaiting;
use crate::timers::Timer;

/// A `collect` that waits.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Collecting {
    pub(crate) conn: ConnId,
    id: Option<Id>,
    /// The job from inside whose worker it comes.
    by: Option<JobId>,
    order: Vec<JobId>,
    wait: Wait,
    deadline: Option<Duration>,
    results: BTreeMap<JobId, Value>,
    pending: BTreeSet<JobId>,
    /// Of the results so far.
    bytes: usize,
}

/// Jobs of another instance are looked at this often: the store tells nobody when they end.
const RECHECK: Duration = Duration::from_secs(1);

impl State {
    pub(crate) fn collect(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        collect: &Collect,
        facts: &Facts,
    ) {
        // Named by a worker with several turns, it isn't known whose children it waits for.
        let by = self.parent_of(None, &facts.ancestry).ok().flatten();
        if collect.jobs.len() > COLLECT_JOBS {
            let error = format!(
                "`jobs` has {} entries, the limit is {COLLECT_JOBS}",
                collect.jobs.len()
            );
            return self.refuse(conn, id, Rejected::new(Code::InvalidRequest, error));
        }
        let deadline = collect
            .timeout
            .map(|seconds| self.now.mono + Duration::from_secs_f64(seconds));
        let number = self.number();
        let mut named = BTreeSet::new();
        let order = collect.jobs.iter().copied();
        let order: Vec<JobId> = order.filter(|job| named.insert(*job)).collect();
        let (here, elsewhere): (BTreeSet<JobId>, BTreeSet<JobId>) = named
            .into_iter()
            .partition(|job| self.numbers.contains_key(job));
        let collecting = Collecting {
            conn,
            id,
            by,
            order,
            wait: collect.wait,
            deadline,
            results: BTreeMap::new(),
            pending: here,
            bytes: 0,
        };
        self.collecting.insert(number, collecting);
        if elsewhere.is_empty() {
            self.collect_started(number);
        } else {
            self.load(
                Awaiting::Collect(number),
                Query::Jobs {
                    jobs: elsewhere.into_iter().collect(),
                },
            );
        }
    }

    /// The store said what became of the jobs that aren't in memory.
    pub(crate) fn collect_loaded(&mut self, number: u64, rows: Vec<JobRow>) {
        let Some(collecting) = self.collecting.get_mut(&number) else {
            return;
        };
        let was_empty = rows.is_empty();
        for row in rows {
            match row.state {
                JobState::Finished { seq, line } => {
                    collecting.pending.remove(&row.job);
                    collecting.bytes += line.as_json().len();
                    collecting.results.insert(row.job, result(&line, seq));
                }
                JobState::Queued { .. } | JobState::Running { .. } => {
                    collecting.pending.insert(row.job);
                }
            }
        }
        let missing: Vec<JobId> = collecting
            .order
            .iter()
            .filter(|job| {
                !collecting.results.contains_key(job) && !collecting.pending.contains(job)
            })
            .copied()
            .collect();
        if let (Some(unknown), true) = (missing.first(), was_empty) {
            let unknown = *unknown;
            return self.collect_unknown(number, unknown);
        }
        let mut pending = collecting.pending.iter();
        let elsewhere = pending.find(|job| !self.numbers.contains_key(job));
        if let Some(elsewhere) = elsewhere.copied() {
            if was_empty {
                // It was there, and is forgotten.
                return self.collect_unknown(number, elsewhere);
            }
            // An answer may have had room for some of them only.
            self.timers
                .set(Timer::Recheck(number), self.now.mono + RECHECK);
        }
        if !missing.is_empty() && collecting.bytes >= limits::MAX_LINE_OUT {
            // A page is full: what else there is, the next one tells.
            return self.collect_answer(number);
        }
        if !missing.is_empty() {
            self.load(Awaiting::Collect(number), Query::Jobs { jobs: missing });
            return;
        }
        self.collect_started(number);
    }

    fn collect_unknown(&mut self, number: u64, unknown: JobId) {
        self.timers.clear(Timer::Collect(number));
        if let Some(Collecting { conn, id, .. }) = self.collecting.remove(&number) {
            let error = format!("there is no job `{unknown}`");
            self.refuse(conn, id, Rejected::new(Code::UnknownJob, error));
        }
    }

    /// Who waits for a job?
    pub(crate) fn collectors_of(&self, job: JobId) -> Vec<ConnId> {
        let waits = |collecting: &&Collecting| collecting.pending.contains(&job);
        let collecting = self.collecting.values().filter(waits);
        collecting.map(|collecting| collecting.conn).collect()
    }

    /// Does a job wait for nothing but jobs that it made itself?
    pub(crate) fn waits_for_children(&self, job: JobId) -> bool {
        let of_it = |collecting: &&Collecting| collecting.by == Some(job);
        self.collecting.values().filter(of_it).any(|collecting| {
            collecting.pending.iter().any(|pending| {
                let turn = self.numbers.get(pending);
                let child = turn.and_then(|turn| self.jobs.get(turn));
                child.is_some_and(|child| child.terms.parent == Some(job))
            })
        })
    }

    /// Asks the store for jobs that another instance runs.
    pub(crate) fn collect_again(&mut self, number: u64) {
        let Some(collecting) = self.collecting.get(&number) else {
            return;
        };
        let here = |job: &&JobId| self.numbers.contains_key(job);
        let jobs: Vec<JobId> = collecting
            .pending
            .iter()
            .filter(|job| !here(job))
            .copied()
            .collect();
        if !jobs.is_empty() {
            self.load(Awaiting::Collect(number), Query::Jobs { jobs });
        }
    }

    /// The store can't say what became of the jobs.
    pub(crate) fn collect_failed(&mut self, number: u64, why: &str) {
        if let Some(collecting) = self.collecting.remove(&number) {
            let error = format!("the jobs can't be read: {why}");
            let rejected = Rejected::new(Code::StoreFailed, error);
            self.refuse(collecting.conn, collecting.id, rejected);
        }
    }

    pub(crate) fn collect_started(&mut self, number: u64) {
        if let Some(deadline) = self
            .collecting
            .get(&number)
            .and_then(|collecting| collecting.deadline)
        {
            self.timers.set(Timer::Collect(number), deadline);
        }
        self.collect_done(number);
    }

    /// A job ended: whoever collects it hears of it.
    pub(crate) fn collected(&mut self, job: JobId, line: &Body, seq: u64) {
        let mut waiting = Vec::new();
        for (number, collecting) in &mut self.collecting {
            if collecting.pending.remove(&job) {
                collecting.results.insert(job, result(line, seq));
                waiting.push(*number);
            }
        }
        for number in waiting {
            self.collect_done(number);
        }
    }

    pub(crate) fn collect_done(&mut self, number: u64) {
        let Some(collecting) = self.collecting.get(&number) else {
            return;
        };
        let enough = match collecting.wait {
            Wait::All => collecting.pending.is_empty(),
            Wait::Any => !collecting.results.is_empty(),
        };
        if enough
            || collecting
                .deadline
                .is_some_and(|deadline| deadline <= self.now.mono)
        {
            self.collect_answer(number);
        }
    }

    pub(crate) fn collect_timeout(&mut self, number: u64) {
        self.collect_answer(number);
    }

    /// Nobody reads what is collected there: it ends with what there is.
    pub(crate) fn collect_no_more(&mut self, conn: ConnId) {
        let its = self.collecting.iter();
        let its = its.filter(|(_, collecting)| collecting.conn == conn);
        let its: Vec<u64> = its.map(|(number, _)| *number).collect();
        for number in its {
            self.collect_answer(number);
        }
    }

    pub(crate) fn collect_answer(&mut self, number: u64) {
        self.timers.clear(Timer::Collect(number));
        self.timers.clear(Timer::Recheck(number));
        let Some(mut collecting) = self.collecting.remove(&number) else {
            return;
        };
        let mut results = Vec::new();
        let mut pending = Vec::new();
        let mut room = limits::MAX_LINE_OUT - 16 * 1024;
        for job in collecting.order {
            match collecting.results.remove(&job) {
                Some(result) => {
                    let size = result.to_string().len();
                    if size > room {
                        // The next page: asked for again, it comes first.
                        pending.push(job);
                        continue;
                    }
                    room -= size;
                    results.push(result);
                }
                None => pending.push(job),
            }
        }
        self.answer(
            collecting.conn,
            collecting.id,
            &Line::Collect {
                ok: true,
                results,
                pending,
            },
        );
    }
}

fn result(line: &Body, seq: u64) -> Value {
    crate::json::value(&line.render(None, Some(seq), Telling::Replay))
}
