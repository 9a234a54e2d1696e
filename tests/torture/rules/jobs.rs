//! Rules about jobs: kept, ended once, run once, answered with what is theirs.
//!
//! Pure. Must not know how a history is recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::Seen;
use crate::history::{Asked, Heard, Job, Retry};

/// A turn with `retry:"auto"` is tried so often at most.
const ATTEMPTS: usize = 3;
const ENDS: &[&str] = &["completed", "cancelled", "failed", "interrupted"];

/// After `accepted` the job is in the store, whatever happened, with the key it came with.
pub(super) fn accepted_is_stored(seen: &Seen<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (asked, lines) in seen.answers() {
        for heard in lines.iter().filter(|heard| heard.kind() == "accepted") {
            let Some(job) = heard.job() else {
                broken.push(format!("`accepted` without a job: {}", shown(heard)));
                continue;
            };
            match seen.jobs.get(job) {
                None => broken.push(format!("{job} is not stored: {}", shown(heard))),
                Some(stored)
                    if stored.key != asked.key
                        || !stored.request.contains(&format!("<{}>", asked.nonce)) =>
                {
                    broken.push(format!("{job} is stored as {stored:?}: {}", shown(heard)));
                }
                Some(_) => {}
            }
        }
    }
    broken
}

/// Whoever asks again with the same key hears of the same job.
pub(super) fn a_key_is_one_job(seen: &Seen<'_>) -> Vec<String> {
    let mut jobs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (asked, lines) in seen.answers() {
        let told = lines.iter().filter_map(|heard| heard.job());
        if let Some(key) = &asked.key {
            jobs.entry(key).or_default().extend(told);
        }
    }
    for job in &seen.history.jobs {
        if let Some(key) = &job.key {
            jobs.entry(key).or_default().insert(&job.job);
        }
    }
    let several = jobs.into_iter().filter(|(_, jobs)| jobs.len() > 1);
    several
        .map(|(key, jobs)| format!("the key {key} is {jobs:?}"))
        .collect()
}

/// In the store, and as often as it is told: the end is one, and always the same.
pub(super) fn one_end(seen: &Seen<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for job in &seen.history.jobs {
        if !ENDS.contains(&job.state.as_str()) || job.last.is_none() {
            broken.push(format!("{} has no end: {job:?}", job.job));
        }
    }
    for lines in seen.streams.values() {
        let finals: Vec<_> = lines.iter().filter(|heard| heard.is_final()).collect();
        let per_job = finals.iter().filter_map(|heard| heard.job());
        if per_job.clone().count() > per_job.collect::<BTreeSet<_>>().len() {
            broken.push(format!("ended twice on one connection: {finals:?}"));
        }
        for heard in finals {
            let stored = heard.job().and_then(|job| seen.jobs.get(job));
            if stored.is_some_and(|stored| !is_end_of(&heard.line, stored)) {
                broken.push(format!("told {}, but stored is {stored:?}", shown(heard)));
            }
        }
    }
    for line in &seen.history.collected {
        let stored = line["job"].as_str().and_then(|job| seen.jobs.get(job));
        if stored.is_none_or(|stored| !is_end_of(line, stored)) {
            broken.push(format!("collected {line}, but stored is {stored:?}"));
        }
    }
    broken
}

fn is_end_of(line: &serde_json::Value, stored: &Job) -> bool {
    stored.last.as_ref().is_some_and(|last| {
        line["seq"].as_u64() == Some(last.seq)
            && ["type", "stop", "code", "text"]
                .iter()
                .all(|member| line[*member] == last.line[*member])
    })
}

/// What a turn did outside, it did once; a completed one did it.
pub(super) fn effects_happen_once(seen: &Seen<'_>) -> Vec<String> {
    let history = seen.history;
    let sent = history.asked.iter();
    let sent = sent.map(|asked| (asked.nonce.as_str(), asked.retry));
    let items = history.dispatched.iter().flat_map(|asked| &asked.items);
    let handed_in = items.map(|item| (item.nonce.as_str(), item.retry));
    let retries: BTreeMap<&str, Retry> = sent.chain(handed_in).collect();
    let mut done: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for effect in &seen.history.effects {
        *done
            .entry(&effect.nonce)
            .or_default()
            .entry(&effect.job)
            .or_default() += 1;
    }
    let mut broken = Vec::new();
    for (nonce, jobs) in &done {
        let most = match retries.get(nonce) {
            Some(Retry::Auto) => ATTEMPTS,
            Some(Retry::Never) | None => 1,
        };
        if jobs.len() > 1 || jobs.values().any(|times| *times > most) {
            broken.push(format!(
                "{nonce} took effect in {jobs:?}, at most {most} allowed"
            ));
        }
    }
    for job in seen
        .history
        .jobs
        .iter()
        .filter(|job| job.state == "completed")
    {
        let nonce = nonces(&job.request).into_iter().next();
        if nonce.is_some_and(|nonce| !done.contains_key(nonce)) {
            broken.push(format!("{} completed without its effect: {job:?}", job.job));
        }
    }
    broken
}

/// What waited when an abort of it was answered with `ok` is cancelled, and did nothing.
pub(super) fn aborted_never_runs(seen: &Seen<'_>) -> Vec<String> {
    let effects = seen.history.effects.iter();
    let ran: BTreeSet<&str> = effects.map(|effect| effect.job.as_str()).collect();
    let aborted = seen.history.aborted.iter();
    let wrong = aborted.filter(|job| {
        let stored = seen.jobs.get(job.as_str());
        ran.contains(job.as_str()) || stored.is_none_or(|stored| stored.state != "cancelled")
    });
    wrong
        .map(|job| {
            format!(
                "{job} was aborted, and is {:?}",
                seen.jobs.get(job.as_str())
            )
        })
        .collect()
}

/// Every answer has the nonce of its prompt and no other, and one job.
pub(super) fn answers_belong_to_their_job(seen: &Seen<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (asked, lines) in seen.answers() {
        let jobs: BTreeSet<_> = lines.iter().filter_map(|heard| heard.job()).collect();
        if jobs.len() > 1 {
            broken.push(format!("{} was answered under {jobs:?}", asked.nonce));
        }
        for heard in lines {
            if !is_answer_to(&heard.line, &asked.nonce) {
                broken.push(format!("to {}: {}", asked.nonce, shown(heard)));
            }
        }
    }
    // What came by subscription, or was collected.
    let others = seen.history.heard.iter().map(|heard| &heard.line);
    for line in others.chain(&seen.history.collected) {
        let stored = line["job"].as_str().and_then(|job| seen.jobs.get(job));
        let nonce = stored.and_then(|job| nonces(&job.request).into_iter().next());
        if nonce.is_some_and(|nonce| !is_answer_to(line, nonce)) {
            broken.push(format!("under {}: {line}", line["job"]));
        }
    }
    broken
}

fn is_answer_to(line: &serde_json::Value, nonce: &str) -> bool {
    let text = line["text"].as_str().unwrap_or("");
    let completed = line["type"] == "message_end" && line["stop"] == "end_turn";
    let said = nonces(text);
    said.iter().all(|other| *other == nonce) && (!completed || !said.is_empty())
}

/// At the end every request that wasn't refused has heard its final line on some connection.
pub(super) fn all_is_answered(seen: &Seen<'_>) -> Vec<String> {
    let mut answered: BTreeMap<&str, bool> = BTreeMap::new();
    for (asked, lines) in seen.answers() {
        // A refusal has no job.
        let done = lines
            .iter()
            .any(|heard| heard.is_final() || heard.kind() == "error" && heard.job().is_none());
        *answered.entry(&asked.nonce).or_default() |= done;
    }
    let keyed = |asked: &&Asked| asked.key.is_some();
    let open: BTreeSet<&str> = seen
        .history
        .asked
        .iter()
        .filter(keyed)
        .map(|asked| asked.nonce.as_str())
        .filter(|nonce| !answered.get(nonce).copied().unwrap_or(false))
        .collect();
    let collected: BTreeSet<&str> = seen
        .history
        .collected
        .iter()
        .filter_map(|line| line["job"].as_str())
        .collect();
    let missing = seen
        .history
        .jobs
        .iter()
        .filter(|job| !collected.contains(job.job.as_str()));
    open.into_iter()
        .map(|nonce| format!("{nonce} was never answered"))
        .chain(missing.map(|job| format!("{} was not collected", job.job)))
        .collect()
}

/// The nonces in a text: `<1-2>`.
fn nonces(text: &str) -> Vec<&str> {
    let parts = text.split('<').skip(1);
    parts
        .filter_map(|part| {
            let (nonce, _) = part.split_once('>')?;
            let known = nonce.starts_with(|c: char| c.is_ascii_digit());
            known.then_some(nonce)
        })
        .collect()
}

pub(super) fn shown(heard: &Heard) -> String {
    format!(
        "connection {} at {:?}: {}",
        heard.conn, heard.at, heard.line
    )
}
