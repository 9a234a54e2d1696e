//! Time in which this process did not run: it was stopped, looked at by a debugger, or its machine
//! was.
//!
//! Owns how such a gap is told from a deadline that passed, and what time those have anew that could
//! not be heard. Must not know what a deadline is for.

use std::time::Duration;

/// Who looks at a deadline so long after it could not look: a busy machine is late by less.
const LATE: Duration = Duration::from_secs(1);

/// What others said in the gap is in a pipe or a socket by now: it is read in this time.
const ANEW: Duration = Duration::from_secs(2);

/// What is left of a deadline that passed so long ago without being looked at; none if somebody could.
#[must_use]
pub fn left_after(overdue: Duration) -> Option<Duration> {
    (overdue > LATE).then_some(ANEW)
}
