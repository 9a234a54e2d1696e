//! Sums since the start, for `status`.
//!
//! Owns the counting. Must not know why anything happened.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use agentd_protocol::line::CrashRow;

use crate::text::millis;

/// How many durations the percentiles are taken over.
const DURATIONS: usize = 256;

/// The same for one process slot.
const DURATIONS_OF_SLOT: usize = 64;

/// Names of clients that are counted apart; anybody may call itself anything.
const CLIENTS: usize = 32;

/// Bytes of such a name.
const CLIENT_NAME: usize = 64;

/// Who came when all names were taken, or has none.
const OTHER_CLIENT: &str = "other";

/// Crashes that are told, each with so many bytes of its error.
const CRASHES: usize = 8;
const CRASH_BYTES: usize = 512;

/// The durations of the last turns.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Durations(VecDeque<Duration>);

impl Durations {
    fn push(&mut self, took: Duration, most: usize) {
        if self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back(took);
    }

    pub(crate) fn percentile_ms(&self, percent: usize) -> Option<u64> {
        // At most `DURATIONS` of them, and only when somebody asks for the status: no sum is kept
        // at hand.
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort();
        let index = (sorted.len() * percent).div_ceil(100).checked_sub(1)?;
        sorted.get(index).map(|duration| millis(**duration))
    }
}

/// The turns that ended in one process slot.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) ended: u64,
    pub(crate) failures: u64,
    pub(crate) durations: Durations,
}

impl Tally {
    /// A turn failed, and ended.
    pub(crate) fn failed(&mut self, took: Option<Duration>) {
        self.failures += 1;
        self.ended(took);
    }

    /// A turn ended after running for `took`.
    pub(crate) fn ended(&mut self, took: Option<Duration>) {
        self.ended += 1;
        if let Some(took) = took {
            self.durations.push(took, DURATIONS_OF_SLOT);
        }
    }
}

/// Sums since the start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) sends: u64,
    pub(crate) failures: u64,
    pub(crate) restarts: u64,
    pub(crate) crashes: u64,
    pub(crate) last_crashes: VecDeque<CrashRow>,
    /// Turns that began in a process that was there already, and those for which one was started.
    pub(crate) pool_hits: u64,
    pub(crate) pool_misses: u64,
    pub(crate) finished: u64,
    /// The largest number of an event that is known here.
    last_seq: u64,
    pub(crate) durations: Durations,
    /// Turns that ran to an end since the start, and for how long in all.
    pub(crate) ran: u64,
    pub(crate) ran_ms: u64,
    /// New jobs by what their client calls itself.
    pub(crate) clients: BTreeMap<String, u64>,
}

impl Counters {
    /// As the store was when it was opened.
    pub(crate) fn at_start(last_seq: u64, ended_jobs: u64) -> Self {
        Self {
            last_seq,
            finished: ended_jobs,
            ..Self::default()
        }
    }

    /// The largest number of an event that is known here.
    pub(crate) const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// An event with this number is durable.
    pub(crate) fn saw(&mut self, seq: u64) {
        self.last_seq = self.last_seq.max(seq);
    }

    /// A process died unasked, never came up, or hangs.
    pub(crate) fn crashed(&mut self, mut crash: CrashRow) {
        crash
            .error
            .truncate(crash.error.floor_char_boundary(CRASH_BYTES));
        self.crashes += 1;
        self.last_crashes.push_front(crash);
        self.last_crashes.truncate(CRASHES);
    }

    /// A job ended after running for `took`.
    pub(crate) fn ended(&mut self, took: Option<Duration>) {
        self.finished += 1;
        if let Some(took) = took {
            self.ran += 1;
            self.ran_ms = self.ran_ms.saturating_add(millis(took));
            self.durations.push(took, DURATIONS);
        }
    }

    /// So many new jobs came from a client of this name.
    pub(crate) fn sent_by(&mut self, client: Option<&str>, jobs: u64) {
        let name = client
            .filter(|name| !name.is_empty() && name.len() <= CLIENT_NAME)
            .filter(|name| self.clients.len() < CLIENTS || self.clients.contains_key(*name))
            .unwrap_or(OTHER_CLIENT);
        match self.clients.get_mut(name) {
            Some(count) => *count += jobs,
            None if jobs > 0 => drop(self.clients.insert(name.to_owned(), jobs)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_last_durations() {
        let mut counters = Counters::default();
        assert_eq!(counters.durations.percentile_ms(50), None);
        for ms in 1..=300 {
            counters.ended(Some(Duration::from_millis(ms)));
        }
        assert_eq!(counters.durations.percentile_ms(50), Some(172));
        assert_eq!(counters.durations.percentile_ms(95), Some(288));
    }

    #[test]
    fn clients_are_counted_by_bounded_names() {
        let mut counters = Counters::default();
        for n in 0..100 {
            counters.sent_by(Some(&format!("client {n}")), 1);
        }
        counters.sent_by(Some("client 0"), 2);
        counters.sent_by(Some("client 1"), 0);
        counters.sent_by(Some(&"x".repeat(CLIENT_NAME + 1)), 1);
        counters.sent_by(None, 1);
        assert_eq!(counters.clients.len(), CLIENTS + 1);
        assert_eq!(counters.clients["client 0"], 3);
        assert_eq!(counters.clients[OTHER_CLIENT], 100 - 32 + 2);
    }

    #[test]
    fn slot_counts_its_turns_and_its_failures() {
        let mut tally = Tally::default();
        tally.ended(Some(Duration::from_millis(5)));
        tally.failed(None);
        for _ in 0..200 {
            tally.ended(Some(Duration::from_millis(7)));
        }
        assert_eq!((tally.ended, tally.failures), (202, 1));
        assert_eq!(tally.durations.percentile_ms(50), Some(7));
        assert_eq!(tally.durations.0.len(), DURATIONS_OF_SLOT);
    }
}
