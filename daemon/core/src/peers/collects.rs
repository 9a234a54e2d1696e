//! Those who wait for the final lines of jobs.
//!
//! Owns who waits for what. Must not know how a job ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentd_protocol::request::Wait;
use agentd_protocol::{Body, Id, JobId, limits};

use crate::ids::ConnId;

/// A `collect` that waits.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Collecting {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    /// The job from inside whose worker it comes.
    pub(crate) by: Option<JobId>,
    pub(crate) order: Vec<JobId>,
    pub(crate) wait: Wait,
    pub(crate) deadline: Option<Duration>,
    /// The final lines with their numbers, without those that no longer fit into the answer: these
    /// are read again for the next one.
    pub(crate) results: BTreeMap<JobId, Option<(Body, u64)>>,
    pub(crate) pending: BTreeSet<JobId>,
    /// Of the lines that are kept.
    pub(crate) bytes: usize,
}

/// All that wait, and who waits for what.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Collects {
    all: BTreeMap<u64, Collecting>,
    /// By the jobs that they wait for.
    of_job: BTreeSet<(JobId, u64)>,
    /// By the jobs from inside whose workers they come.
    by_job: BTreeSet<(JobId, u64)>,
    by_conn: BTreeSet<(ConnId, u64)>,
}

impl Collects {
    pub(crate) fn get(&self, number: u64) -> Option<&Collecting> {
        self.all.get(&number)
    }

    pub(crate) fn insert(&mut self, number: u64, collecting: Collecting) {
        let pending = collecting.pending.iter().map(|job| (*job, number));
        self.of_job.extend(pending);
        self.by_job.extend(collecting.by.map(|job| (job, number)));
        self.by_conn.insert((collecting.conn, number));
        self.all.insert(number, collecting);
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Collecting> {
        let collecting = self.all.remove(&number)?;
        for job in &collecting.pending {
            self.of_job.remove(&(*job, number));
        }
        if let Some(job) = collecting.by {
            self.by_job.remove(&(job, number));
        }
        self.by_conn.remove(&(collecting.conn, number));
        Some(collecting)
    }

    /// Makes one of them wait for a job.
    pub(crate) fn wait_for(&mut self, number: u64, job: JobId) {
        if let Some(collecting) = self.all.get_mut(&number) {
            collecting.pending.insert(job);
            self.of_job.insert((job, number));
        }
    }

    /// A job has ended for one of them.
    pub(crate) fn ended(&mut self, number: u64, job: JobId, line: &Body, seq: u64) {
        if let Some(collecting) = self.all.get_mut(&number) {
            collecting.pending.remove(&job);
            // A thousand long final lines would be in memory for as long as somebody waits for the
            // last one.
            let fits = collecting.bytes < limits::MAX_LINE_OUT;
            let kept = fits.then(|| (line.clone(), seq));
            collecting.bytes += kept.as_ref().map_or(0, |(line, _)| line.as_json().len());
            collecting.results.insert(job, kept);
            self.of_job.remove(&(job, number));
        }
    }

    /// Those that wait for a job.
    pub(crate) fn of_job(&self, job: JobId) -> impl Iterator<Item = u64> {
        let all = self.of_job.range((job, 0)..=(job, u64::MAX));
        all.map(|(_, number)| *number)
    }

    /// Those that come from inside a job's worker.
    pub(crate) fn by_job(&self, job: JobId) -> impl Iterator<Item = &Collecting> {
        let all = self.by_job.range((job, 0)..=(job, u64::MAX));
        all.filter_map(|(_, number)| self.all.get(number))
    }

    /// Those of a connection.
    pub(crate) fn of_conn(&self, conn: ConnId) -> impl Iterator<Item = u64> {
        let all = self.by_conn.range((conn, 0)..=(conn, u64::MAX));
        all.map(|(_, number)| *number)
    }
}
