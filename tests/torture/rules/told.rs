//! Rules about webhooks: who is told of a job's end.
//!
//! Pure. Must not know how a history is recorded.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Seen;
use crate::history::{Job, Told};

/// Each job with a callback is told at least once, always under the same id, which no other job has,
/// and always as it ended. Nothing else is told.
pub(super) fn ends_are_told(seen: &Seen<'_>) -> Vec<String> {
    let mut told: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
    for one in &seen.history.told {
        told.entry(&one.job).or_default().push(one);
    }
    let mut broken = Vec::new();
    let mut whose: BTreeMap<&str, &str> = BTreeMap::new();
    for (job, all) in &told {
        if !seen.jobs.get(job).is_some_and(|job| calls_back(job)) {
            broken.push(format!("somebody was told of {job}, which has no callback"));
        }
        let ids: BTreeSet<&str> = all.iter().map(|one| one.id.as_str()).collect();
        if ids.len() > 1 {
            broken.push(format!("{job} was told under {ids:?}"));
        }
        for id in ids {
            if let Some(other) = whose.insert(id, job) {
                broken.push(format!("{other} and {job} were told under {id}"));
            }
        }
    }
    for job in seen.history.jobs.iter().filter(|job| calls_back(job)) {
        let all = told.get(&*job.job).map_or(&[][..], Vec::as_slice);
        if all.is_empty() {
            broken.push(format!("nobody was told of {}", job.job));
        }
        let end = job.last.as_ref().map(|last| last.seq);
        let wrong = |one: &&&Told| Some(one.seq) != end || one.state != job.state;
        if let Some(one) = all.iter().find(wrong) {
            let state = &job.state;
            broken.push(format!("stored is {state} with {end:?}, told is {one:?}"));
        }
    }
    broken
}

pub(crate) fn calls_back(job: &Job) -> bool {
    let request: Value = serde_json::from_str(&job.request).unwrap_or(Value::Null);
    request["callback"]["url"].is_string()
}
