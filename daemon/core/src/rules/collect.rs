//! `collect`: the final lines of jobs, now or when they come.
//!
//! Owns the waiting list and the pages. Must not know how a job ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Telling;
use agentd_protocol::request::{Collect, Wait};
use agentd_protocol::{Body, Code, Id, JobId, limits};

use crate::effect::Progress;
use crate::event::RequestContext;
use crate::ids::ConnId;
use crate::limits::COLLECT_JOBS;
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::Timer;
use crate::peers::collects::Collecting;
use crate::state::State;
use crate::store::{JobRow, JobState, Query};

/// Jobs of another instance are looked at this often: the store tells nobody when they end.
const RECHECK: Duration = Duration::from_secs(1);

impl State {
    pub(crate) fn collect(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        collect: &Collect,
        facts: &RequestContext,
    ) {
        // Named by a worker with several turns, it isn't known whose children it waits for.
        let by = self.parent_of(None, &facts.descent).ok().flatten();
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
        let number = self.outbox.number();
        let mut named = BTreeSet::new();
        let order = collect.jobs.iter().copied();
        // A job that is named twice is told once: its second line would never come.
        let order: Vec<JobId> = order.filter(|job| named.insert(*job)).collect();
        let (here, elsewhere): (BTreeSet<JobId>, BTreeSet<JobId>) =
            named.into_iter().partition(|job| self.jobs.knows(*job));
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
        // Before the store answers: a job that ends meanwhile counts.
        self.peers.collects_mut().insert(number, collecting);
        if elsewhere.is_empty() {
            self.collect_started(number);
        } else {
            self.outbox.load(
                Awaiting::Collect(number),
                Query::Jobs {
                    jobs: elsewhere.into_iter().collect(),
                },
            );
        }
    }

    /// The store said what became of the jobs that aren't in memory.
    pub(crate) fn collect_loaded(&mut self, number: u64, rows: Vec<JobRow>) {
        let was_empty = rows.is_empty();
        for row in rows {
            match row.state {
                JobState::Finished { seq, line } => {
                    self.peers.collects_mut().ended(number, row.job, &line, seq);
                }
                JobState::Queued { .. } | JobState::Running { .. } => {
                    self.peers.collects_mut().wait_for(number, row.job);
                }
            }
        }
        // Its time may be over, or its connection gone, since the store was asked.
        let Some(collecting) = self.peers.collects().get(number) else {
            return;
        };
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
        let elsewhere = pending.find(|job| !self.jobs.knows(**job));
        if let Some(elsewhere) = elsewhere.copied() {
            if was_empty {
                // It was there, and is forgotten.
                return self.collect_unknown(number, elsewhere);
            }
            // An answer may have had room for some of them only.
            self.outbox
                .set(Timer::Recheck(number), self.now.mono + RECHECK);
        }
        if !missing.is_empty() && collecting.bytes >= limits::MAX_LINE_OUT {
            // A page is full: what else there is, the next one tells.
            return self.collect_answer(number);
        }
        if !missing.is_empty() {
            self.outbox
                .load(Awaiting::Collect(number), Query::Jobs { jobs: missing });
            return;
        }
        self.collect_started(number);
    }

    fn collect_unknown(&mut self, number: u64, unknown: JobId) {
        if let Some(Collecting { conn, id, .. }) = self.collect_over(number) {
            let error = format!("there is no job `{unknown}`");
            self.refuse(conn, id, Rejected::new(Code::UnknownJob, error));
        }
    }

    /// Nobody waits there any more: neither do its timers.
    fn collect_over(&mut self, number: u64) -> Option<Collecting> {
        self.outbox.clear(Timer::Collect(number));
        self.outbox.clear(Timer::Recheck(number));
        self.peers.collects_mut().remove(number)
    }

    /// Whoever waited on a connection is gone with it.
    pub(crate) fn collects_nothing(&mut self, conn: ConnId) {
        for number in self.peers.collects().of_conn(conn).collect::<Vec<_>>() {
            let _gone = self.collect_over(number);
        }
    }

    /// Who waits for a job?
    pub(crate) fn collectors_of(&self, job: JobId) -> Vec<ConnId> {
        let waiting = self.peers.collects().of_job(job);
        let waiting = waiting.filter_map(|number| self.peers.collects().get(number));
        waiting.map(|collecting| collecting.conn).collect()
    }

    /// Does a job wait for nothing but jobs that it made itself?
    pub(crate) fn waits_for_children(&self, job: JobId) -> bool {
        if self.indexes.has_children(job) {
            return true;
        }
        let mut of_it = self.peers.collects().by_job(job);
        of_it.any(|collecting| {
            collecting.pending.iter().any(|pending| {
                let child = self.jobs.by_number(*pending);
                child.is_some_and(|child| child.terms.parent == Some(job))
            })
        })
    }

    /// Asks the store for jobs that another instance runs.
    pub(crate) fn collect_again(&mut self, number: u64) {
        let Some(collecting) = self.peers.collects().get(number) else {
            return;
        };
        let here = |job: &&JobId| self.jobs.knows(**job);
        let jobs: Vec<JobId> = collecting
            .pending
            .iter()
            .filter(|job| !here(job))
            .copied()
            .collect();
        if !jobs.is_empty() {
            self.outbox
                .load(Awaiting::Collect(number), Query::Jobs { jobs });
        }
    }

    /// The store can't say what became of the jobs.
    pub(crate) fn collect_failed(&mut self, number: u64, why: &str) {
        if let Some(collecting) = self.collect_over(number) {
            let error = format!("the jobs can't be read: {why}");
            let rejected = Rejected::new(Code::StoreFailed, error);
            self.refuse(collecting.conn, collecting.id, rejected);
        }
    }

    pub(crate) fn collect_started(&mut self, number: u64) {
        if let Some(deadline) = self
            .peers
            .collects()
            .get(number)
            .and_then(|collecting| collecting.deadline)
        {
            self.outbox.set(Timer::Collect(number), deadline);
        }
        self.collect_done(number);
    }

    /// A job ended: whoever collects it hears of it.
    pub(crate) fn collected(&mut self, job: JobId, line: &Body, seq: u64) {
        // All of them get the line first: an answer takes a collect out of the list that is walked.
        let waiting: Vec<u64> = self.peers.collects().of_job(job).collect();
        for number in &waiting {
            self.peers.collects_mut().ended(*number, job, line, seq);
        }
        for number in waiting {
            self.collect_done(number);
        }
    }

    pub(crate) fn collect_done(&mut self, number: u64) {
        let Some(collecting) = self.peers.collects().get(number) else {
            return;
        };
        let enough = match collecting.wait {
            // Those that the store is being asked for are not among the pending ones yet.
            Wait::All => collecting.results.len() == collecting.order.len(),
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
        for number in self.peers.collects().of_conn(conn).collect::<Vec<_>>() {
            self.collect_answer(number);
        }
    }

    pub(crate) fn collect_answer(&mut self, number: u64) {
        let Some(mut collecting) = self.collect_over(number) else {
            return;
        };
        // It may have waited for an hour, while its reader stopped to read.
        if let Err(full) = self.room_for_a_page() {
            return self.refuse(collecting.conn, collecting.id, full);
        }
        let mut results = Vec::new();
        let mut pending = Vec::new();
        // The rest of the line besides the results: the numbers of all jobs that it leaves out.
        let mut room = limits::MAX_LINE_OUT - 16 * 1024;
        for job in collecting.order {
            match collecting.results.remove(&job).flatten() {
                Some((line, seq)) => {
                    let result = line.render(None, Some(seq), Telling::First);
                    if result.len() > room {
                        // The next page: asked for again, it comes first.
                        pending.push(job);
                        continue;
                    }
                    room -= result.len();
                    results.push(result);
                }
                None => pending.push(job),
            }
        }
        let pending = crate::json::text(&pending);
        let page = Body::of_rows("collect", "results", &results, Some(("pending", &pending)));
        let (conn, id) = (collecting.conn, collecting.id);
        self.send(conn, &page, id, None, Telling::First, Progress::Answered);
    }
}
