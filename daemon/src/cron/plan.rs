//! What becomes of a schedule that is due: sent, left out, or it waits.
//!
//! Pure: the clock, and what the store knows, come in. Must not know how something is sent.

use std::sync::Arc;

use agentd_base::duration;
use agentd_core::store::{Fired, NextDue, Passed};
use agentd_protocol::JobId;
use agentd_protocol::schedule::{Missed, Overlap};

use super::timing::Timing;
use crate::store::DueSchedule;

/// A due time that is acted on later than this was missed, in milliseconds: the machine slept, or its
/// clock was set forward.
const ON_TIME_MS: i64 = 60 * 1000;
/// So many missed due times are made up for one by one.
const MADE_UP: usize = 100;
/// Further ones are counted up to here.
const COUNTED: u64 = 1000;
/// Due times that are told in advance.
const TOLD: usize = 3;
/// No back-off is longer, in milliseconds.
const LONGEST_BACKOFF_MS: i64 = 24 * 60 * 60 * 1000;

/// What becomes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    /// A job is made.
    Send {
        /// Of which due time.
        fired: Arc<Fired>,
        /// That job is cancelled before.
        replaces: Option<JobId>,
    },
    /// Nothing is sent, and that is noted.
    Skip(Fired),
    /// It stays due until the run before has ended.
    Wait,
}

/// The first due time after an instant, and those behind it.
#[must_use]
pub(super) fn next_due(timing: &Timing, after_ms: i64) -> NextDue {
    let due_ms = timing.next_after(after_ms);
    let next = std::iter::successors(due_ms, |due| timing.next_after(*due));
    NextDue {
        due_ms,
        fires_ms: due_ms.map(|due| timing.fires_at(due)),
        upcoming: next.take(TOLD).map(|due| timing.shown(due)).collect(),
    }
}

/// What becomes of a schedule that is due at `now_ms`, where somebody has looked since `since_ms`.
#[must_use]
pub(super) fn decide(row: &DueSchedule, timing: &Timing, now_ms: i64, since_ms: i64) -> Decision {
    let newest = newest(row, timing, now_ms);
    let fires_ms = timing.fires_at(newest);
    let waited = row.spec.overlap == Overlap::Queue;
    let on_time = fires_ms >= since_ms && (waited || now_ms.saturating_sub(fires_ms) <= ON_TIME_MS);
    let due_ms = match row.spec.missed {
        Missed::All => oldest_made_up(row.due_ms, newest, timing),
        Missed::Skip | Missed::Last => newest,
    };
    let fired = |due_ms: i64, passed: Option<Passed>| Fired {
        schedule: row.schedule,
        expected: Some(row.due_ms),
        due_ms,
        late_ms: u64::try_from(now_ms.saturating_sub(timing.fires_at(due_ms))).unwrap_or(0),
        next: next_due(timing, due_ms),
        passed,
    };
    let skip = |why: String| {
        let times = count(row.due_ms, newest, timing) + 1;
        let passed = Passed {
            due_ms: newest,
            times,
            why,
        };
        Decision::Skip(fired(newest, Some(passed)))
    };
    if row.spec.missed == Missed::Skip && !on_time {
        return skip("missed: nobody was there to send it".to_owned());
    }
    if let Some(until) = backs_off_until(row).filter(|until| now_ms < *until) {
        let failures = row.failures;
        let until = timing.shown(until);
        return skip(format!(
            "{failures} runs failed in a row: it waits until {until}"
        ));
    }
    // What is made up for one by one would else be left out, or cancelled, behind the first.
    let is_made_up = row.spec.missed == Missed::All && (due_ms < newest || !on_time);
    match (row.busy, row.spec.overlap) {
        (None, _) | (Some(_), Overlap::Parallel) => {}
        (Some(_), Overlap::Queue) => return Decision::Wait,
        (Some(_), Overlap::Skip | Overlap::Replace) if is_made_up => return Decision::Wait,
        (Some(job), Overlap::Skip) => return skip(format!("the run before goes on: {job}")),
        (Some(_), Overlap::Replace) => {}
    }
    let passed = (row.due_ms < due_ms).then(|| Passed {
        due_ms: timing.last_by(due_ms - 1).unwrap_or(row.due_ms),
        times: count(row.due_ms, due_ms, timing),
        why: "missed: nobody was there to send it".to_owned(),
    });
    Decision::Send {
        fired: Arc::new(fired(due_ms, passed)),
        replaces: row.busy.filter(|_| row.spec.overlap == Overlap::Replace),
    }
}

/// The last due time that is to be acted on by now.
fn newest(row: &DueSchedule, timing: &Timing, now_ms: i64) -> i64 {
    let mut last = timing.last_by(now_ms);
    // The jitter of the very last ones may not be over.
    while let Some(due) = last.filter(|due| *due > row.due_ms) {
        if timing.fires_at(due) <= now_ms {
            return due;
        }
        last = timing.last_by(due - 1);
    }
    row.due_ms
}

/// From where on each is made up for.
fn oldest_made_up(first: i64, newest: i64, timing: &Timing) -> i64 {
    let before = std::iter::successors(Some(newest), |due| timing.last_by(due - 1));
    let mut made_up = before.take_while(|due| *due > first).take(MADE_UP);
    match made_up.by_ref().last() {
        // There are more of them than that.
        Some(oldest) if timing.last_by(oldest - 1).is_some_and(|due| due > first) => oldest,
        _ => first,
    }
}

/// How many due times there are from one on, without the last.
fn count(from: i64, to: i64, timing: &Timing) -> u64 {
    let all = std::iter::successors(Some(from), |due| timing.next_after(*due));
    let before = all.take_while(|due| *due < to);
    before.zip(0..COUNTED).map(|(_, _)| 1).sum()
}

/// Until when nothing is sent after failures.
fn backs_off_until(row: &DueSchedule) -> Option<i64> {
    let (failed_ms, backoff) = (row.failed_ms?, row.spec.backoff.as_ref()?);
    let failures = row.failures.checked_sub(1)?;
    let first = i64::try_from(duration::parse(backoff)?.as_millis()).ok()?;
    let wait = first.saturating_mul(1_i64.checked_shl(failures.min(30)).unwrap_or(i64::MAX));
    Some(failed_ms.saturating_add(wait.min(LONGEST_BACKOFF_MS)))
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
