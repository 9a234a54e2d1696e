//! Rules about what stays: numbers in the store, processes, descriptors, waiting clients.
//!
//! Pure. Must not know how a history is recorded.

use super::Seen;

/// The store's numbers are 1, 2, 3 … up to the last one: accepts, events and ends have each
/// their own, none is missing and none was given twice. And every job has its session.
pub(super) fn numbers_have_no_gaps(seen: &Seen<'_>) -> Vec<String> {
    let history = seen.history;
    let of_jobs = history.jobs.iter().flat_map(|job| {
        let last = job.last.as_ref().map(|last| last.seq);
        std::iter::once(job.seq).chain(last)
    });
    let of_events = history.events.iter().map(|event| event.seq);
    let mut found: Vec<u64> = of_jobs.chain(of_events).collect();
    found.sort_unstable();
    let mut broken = Vec::new();
    for (expected, found) in (1..).zip(&found) {
        if *found != expected {
            broken.push(format!(
                "the store has number {found} where {expected} is due"
            ));
            break;
        }
    }
    let alone = history
        .jobs
        .iter()
        .filter(|job| !history.sessions.contains_key(&job.session));
    broken.extend(alone.map(|job| format!("{} is of a session that isn't there", job.job)));
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

/// Every stored job that has no end is known to the daemon whose it is: nobody else would end it.
pub(super) fn open_jobs_are_known(seen: &Seen<'_>) -> Vec<String> {
    let looks = seen.history.looks.iter();
    let forgotten = looks.filter(|look| look.open.len() > look.known);
    forgotten
        .map(|look| {
            let (open, known) = (look.open.len(), look.known);
            format!("{open} are open, {known} known: {:?}", look.open)
        })
        .collect()
}

/// Nobody reached the deadline of a wait.
pub(super) fn nobody_is_stuck(seen: &Seen<'_>) -> Vec<String> {
    seen.history.stuck.clone()
}
