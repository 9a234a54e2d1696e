//! The jobs: sends from their acceptance to their final lines.
//!
//! Owns the map, the jobs' numbers, when the time of one that waits comes, and what is counted over
//! all. Must not know processes, connections or the store's answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentd_protocol::JobId;

use crate::ids::TurnId;
use crate::jobs::job::{Batch, Job};
use crate::jobs::slices::Slices;
use crate::terms::{SharedTerms, Terms};
use crate::tracked::Tracked;

pub(crate) mod delta;
pub(crate) mod job;
pub(crate) mod said;
pub(crate) mod slices;

/// All that are in memory: from when they are asked for until their final line is durable.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Jobs {
    /// Boxed: the tree would move them about, and has room for twice as many.
    all: Tracked<TurnId, Box<Job>>,
    /// Those that are accepted.
    numbers: BTreeMap<JobId, TurnId>,
    /// How many have a time to start that has not come.
    scheduled: usize,
    /// Bytes that they hold.
    weight: usize,
    /// Those that wait and whose time runs already: their process is being made ready.
    clocked: BTreeSet<TurnId>,
    /// When the times of those that wait come, by the clock of this boot, as suspend counts as
    /// waiting: to start, if there is one, and then to be over. They themselves stand in the jobs: a
    /// hundred thousand may wait.
    times: BTreeSet<(u64, TurnId)>,
    slices: Slices,
    /// Pending ones whose session a dead instance had, by that instance.
    orphaned: BTreeMap<String, Vec<Batch>>,
    terms: SharedTerms,
}

/// When something happens to a job because it waits, in milliseconds since the boot.
const fn comes(job: &Job) -> u64 {
    match job.start {
        Some(start) => start,
        None => job.expires,
    }
}

impl Jobs {
    pub(crate) fn get(&self, turn: &TurnId) -> Option<&Job> {
        self.all.get(turn).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, turn: &TurnId) -> Option<&mut Job> {
        self.all.get_mut(turn).map(Box::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TurnId, &Job)> {
        self.all.iter().map(|(turn, job)| (*turn, &**job))
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// A job is in memory from now on.
    pub(crate) fn insert(&mut self, turn: TurnId, job: Job) {
        self.weight += job.weight;
        self.scheduled += usize::from(job.start.is_some());
        // One that was taken over has its number already; a new one gets it with its acceptance.
        self.numbers.extend(job.number.map(|number| (number, turn)));
        self.all.insert(turn, Box::new(job));
    }

    /// A job leaves memory.
    pub(crate) fn remove(&mut self, turn: TurnId) -> Option<Box<Job>> {
        // The place among the times is found by the job's own times, so before it is gone.
        self.waits_no_more(turn);
        self.clocked.remove(&turn);
        let job = self.all.remove(&turn)?;
        self.weight = self.weight.saturating_sub(job.weight);
        self.scheduled -= usize::from(job.start.is_some());
        if let Some(number) = job.number {
            self.numbers.remove(&number);
        }
        Some(job)
    }

    /// A job is accepted, under this number.
    pub(crate) fn accepted(&mut self, turn: TurnId, number: JobId) {
        if let Some(job) = self.all.get_mut(&turn) {
            job.number = Some(number);
            self.numbers.insert(number, turn);
        }
    }

    /// The key of an accepted job. Every stored one of this instance is here, until its final line is
    /// durable; of others there is none.
    pub(crate) fn numbered(&self, number: JobId) -> Option<TurnId> {
        self.numbers.get(&number).copied()
    }

    pub(crate) fn by_number(&self, number: JobId) -> Option<&Job> {
        self.get(self.numbers.get(&number)?)
    }

    pub(crate) fn by_number_mut(&mut self, number: JobId) -> Option<&mut Job> {
        let turn = *self.numbers.get(&number)?;
        self.get_mut(&turn)
    }

    pub(crate) fn knows(&self, number: JobId) -> bool {
        self.numbers.contains_key(&number)
    }

    /// The accepted ones, in the order of acceptance.
    pub(crate) fn numbers(&self) -> impl ExactSizeIterator<Item = (JobId, TurnId)> {
        self.numbers.iter().map(|(number, turn)| (*number, *turn))
    }

    /// How many wait for their time to start.
    pub(crate) const fn scheduled(&self) -> usize {
        self.scheduled
    }

    /// A job's time to start has come: it waits like others. Its time was taken already.
    pub(crate) fn starts(&mut self, turn: TurnId) {
        if let Some(job) = self.all.get_mut(&turn) {
            self.scheduled -= usize::from(job.start.take().is_some());
        }
    }

    /// Bytes that all hold.
    pub(crate) const fn weight(&self) -> usize {
        self.weight
    }

    /// A job takes less memory from now on.
    pub(crate) fn lighter(&mut self, turn: TurnId, bytes: usize) {
        if let Some(job) = self.all.get_mut(&turn) {
            job.weight = job.weight.saturating_sub(bytes);
            self.weight = self.weight.saturating_sub(bytes);
        }
    }

    /// An accepted job waits from now on. Until then its commit is outstanding, and its time is looked
    /// at when that is answered.
    pub(crate) fn waits(&mut self, turn: TurnId) {
        if let Some(job) = self.all.get(&turn) {
            self.times.insert((comes(job), turn));
        }
    }

    /// It waits no more, or another time counts: before that is changed.
    pub(crate) fn waits_no_more(&mut self, turn: TurnId) {
        if let Some(job) = self.all.get(&turn) {
            self.times.remove(&(comes(job), turn));
        }
    }

    /// When the next of those times comes.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.times.first().map(|(comes, _)| *comes)
    }

    /// Takes those whose time has come.
    pub(crate) fn take_due(&mut self, now: u64) -> Vec<TurnId> {
        let mut due = Vec::new();
        while let Some((_, turn)) = self.times.first().filter(|(comes, _)| *comes <= now) {
            due.push(*turn);
            self.times.pop_first();
        }
        due
    }

    /// The time of one that waits runs from now on.
    pub(crate) fn clock(&mut self, turn: TurnId) {
        self.clocked.insert(turn);
    }

    /// It waits no more, or for something else; did its time run?
    pub(crate) fn unclock(&mut self, turn: TurnId) -> bool {
        self.clocked.remove(&turn)
    }

    /// Those that wait and whose time runs.
    pub(crate) const fn clocked(&self) -> &BTreeSet<TurnId> {
        &self.clocked
    }

    /// Those that end together with many others.
    pub(crate) const fn slices(&mut self) -> &mut Slices {
        &mut self.slices
    }

    /// These wait for what a dead instance left.
    pub(crate) fn orphan(&mut self, instance: String, batch: Batch) {
        self.orphaned.entry(instance).or_default().push(batch);
    }

    /// Those that waited for what this instance left.
    pub(crate) fn adopted(&mut self, instance: &str) -> Vec<Batch> {
        self.orphaned.remove(instance).unwrap_or_default()
    }

    /// Terms that are in memory once, if they were among the last ones; and the bytes that they took
    /// anew.
    pub(crate) fn share(&mut self, terms: Arc<Terms>) -> (Arc<Terms>, usize) {
        self.terms.share(terms)
    }

    /// What may have changed since this was asked last, each once.
    pub(crate) fn take_changed(&mut self) -> Vec<TurnId> {
        self.all.take_changed()
    }
}
