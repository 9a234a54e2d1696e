//! Rules about what stays: numbers in the store, processes, descriptors, waiting clients.
//!
//! Pure. Must not know how a history is recorded.

use std::collections::BTreeMap;

use super::Seen;

/// A session's own numbers are 1, 2, 3 … up to the last one that was given out.
pub(super) fn session_numbers(seen: &Seen<'_>) -> Vec<String> {
    let mut numbers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for job in &seen.history.jobs {
        let of_session = numbers.entry(job.session).or_default();
        of_session.push(job.session_seq);
        of_session.extend(job.last.as_ref().map(|last| last.session_seq));
    }
    for event in &seen.history.events {
        if let Some(job) = seen.jobs.get(event.job.as_str()) {
            numbers
                .entry(job.session)
                .or_default()
                .push(event.session_seq);
        }
    }
    let mut broken = Vec::new();
    for session in &seen.history.sessions {
        let mut found = numbers.remove(&session.id).unwrap_or_default();
        found.sort_unstable();
        if !found.iter().copied().eq(1..=session.last_seq) {
            broken.push(format!(
                "the session {} gave out {} and has {found:?}",
                session.name, session.last_seq
            ));
        }
    }
    let orphans = numbers.into_keys();
    broken.extend(orphans.map(|id| format!("there is no session {id}, but it has jobs")));
    broken
}

/// When everything is over, no process of the run is there.
pub(super) fn no_process_is_left(seen: &Seen<'_>) -> Vec<String> {
    seen.history.left.clone()
}

/// An idle daemon has the descriptors it had before its first client, and those of its workers.
pub(super) fn descriptors_return(seen: &Seen<'_>) -> Vec<String> {
    let more = seen
        .history
        .descriptors
        .iter()
        .filter(|found| found.idle > found.base + found.allowed);
    more.map(|found| {
        let (base, idle) = (found.base + found.allowed, found.idle);
        format!("{}: {idle} open, {base} expected", found.kind)
    })
    .collect()
}

/// Nobody reached the deadline of a wait.
pub(super) fn nobody_is_stuck(seen: &Seen<'_>) -> Vec<String> {
    seen.history.stuck.clone()
}
