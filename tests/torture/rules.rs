//! What has to hold of every run, rule by rule.
//!
//! Owns the rules: pure functions over a recorded [`History`]. Must not know how it was recorded;
//! `rules/tests.rs` shows of each rule that it sees what it is for.

mod dispatched;
mod held;
mod jobs;
mod rest;
mod streams;
pub(crate) mod subscriptions;
#[cfg(test)]
mod tests;
pub(crate) mod told;

use std::collections::BTreeMap;

use crate::history::{Asked, Conn, Heard, History, Job};

/// A rule that doesn't hold, and by what that is seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Broken {
    pub(crate) rule: &'static str,
    pub(crate) evidence: String,
}

/// What one rule found wrong.
type Rule = fn(&Seen<'_>) -> Vec<String>;

/// Every rule with its name.
pub(crate) const RULES: &[(&str, Rule)] = &[
    ("an accepted job is stored", jobs::accepted_is_stored),
    ("a key is one job", jobs::a_key_is_one_job),
    ("a job has exactly one end", jobs::one_end),
    ("a side effect happens once", jobs::effects_happen_once),
    (
        "an answer belongs to its job",
        jobs::answers_belong_to_their_job,
    ),
    ("what was asked is answered", jobs::all_is_answered),
    ("a stream has no gap and no repetition", streams::no_gap),
    (
        "a subscription misses nothing",
        subscriptions::subscriptions_miss_nothing,
    ),
    ("a cursor holds", subscriptions::cursors_hold),
    ("a dispatch is all or none", dispatched::all_or_none),
    (
        "a dispatch is found by its keys",
        dispatched::keys_find_the_jobs,
    ),
    ("text by offsets is the final text", streams::text_adds_up),
    ("what was resumed stays so", held::resumed_stays_so),
    ("an end is told, under one id", told::ends_are_told),
    (
        "the store's numbers have no gaps",
        rest::numbers_have_no_gaps,
    ),
    ("no process is left", rest::no_process_is_left),
    (
        "descriptors return to their number",
        rest::descriptors_return,
    ),
    ("what was aborted never runs", jobs::aborted_never_runs),
    ("every open job is known", rest::open_jobs_are_known),
    ("nobody waits in vain", rest::nobody_is_stuck),
];

/// Looks at a history with every rule; also says how many single facts were looked at.
pub(crate) fn check(history: &History) -> (Vec<Broken>, usize) {
    let seen = Seen::of(history);
    let broken = RULES
        .iter()
        .flat_map(|(rule, look)| {
            look(&seen)
                .into_iter()
                .map(|evidence| Broken { rule, evidence })
        })
        .collect();
    let facts = history.heard.len()
        + history.jobs.len()
        + history.events.len()
        + history.effects.len()
        + history.collected.len()
        + history.told.len();
    (broken, facts)
}

/// A history with what several rules look up in it.
pub(crate) struct Seen<'a> {
    pub(crate) history: &'a History,
    pub(crate) jobs: BTreeMap<&'a str, &'a Job>,
    pub(crate) asked: BTreeMap<(Conn, u64), &'a Asked>,
    /// The lines that answer one request, in order.
    pub(crate) streams: BTreeMap<(Conn, u64), Vec<&'a Heard>>,
}

impl<'a> Seen<'a> {
    fn of(history: &'a History) -> Self {
        let mut streams: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for heard in &history.heard {
            if let Some(id) = heard.id() {
                streams.entry((heard.conn, id)).or_default().push(heard);
            }
        }
        Self {
            history,
            jobs: history
                .jobs
                .iter()
                .map(|job| (job.job.as_str(), job))
                .collect(),
            asked: history
                .asked
                .iter()
                .map(|asked| ((asked.conn, asked.id), asked))
                .collect(),
            streams,
        }
    }

    /// The answers to sends, each with what was asked.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&'a Asked, &[&'a Heard])> {
        self.streams
            .iter()
            .filter_map(|(place, lines)| Some((*self.asked.get(place)?, lines.as_slice())))
    }

    /// The numbers of a job's stored lines, its first and its last included.
    pub(crate) fn numbers_of(&self) -> BTreeMap<&'a str, Vec<u64>> {
        let mut numbers: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for job in &self.history.jobs {
            let of_job = numbers.entry(&job.job).or_default();
            of_job.push(job.seq);
            of_job.extend(job.last.as_ref().map(|last| last.seq));
        }
        for event in &self.history.events {
            numbers.entry(&event.job).or_default().push(event.seq);
        }
        numbers
            .values_mut()
            .for_each(|of_job| of_job.sort_unstable());
        numbers
    }
}
