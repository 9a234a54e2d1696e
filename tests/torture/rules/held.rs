//! Rules about turns that wait behind an interrupted one.
//!
//! Pure. Must not know how a history is recorded.

use std::collections::BTreeMap;

use super::Seen;
use crate::history::{Hold, Job};

/// After the answer to `session.resume` what it named isn't held any more, whatever happens, unless
/// one more turn of its session was interrupted since.
pub(super) fn resumed_stays_so(seen: &Seen<'_>) -> Vec<String> {
    let mut released: BTreeMap<&str, u64> = BTreeMap::new();
    let mut broken = Vec::new();
    for hold in &seen.history.holds {
        match hold {
            Hold::Released { job, after } => {
                released.insert(job, *after);
            }
            Hold::Held { job, until } => {
                let Some(after) = released.get(job.as_str()) else {
                    continue;
                };
                let session = seen.jobs.get(job.as_str()).map(|job| job.session);
                let since = |other: &&Job| {
                    let end = other.last.as_ref().map_or(0, |last| last.seq);
                    Some(other.session) == session
                        && other.state == "interrupted"
                        && (*after + 1..=*until).contains(&end)
                };
                if !seen.history.jobs.iter().any(|other| since(&other)) {
                    broken.push(format!(
                        "{job} was resumed after {after} and is held at {until}"
                    ));
                }
            }
        }
    }
    broken
}
