//! Who reads which turn: of several that read one, as an attempt and its retry do, only the last one who
//! leaves ends it.
//!
//! Owns their count. Must not know why anybody reads, nor what becomes of a turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentd_protocol::JobId;

/// All of them.
#[derive(Clone, Default, Debug)]
pub(super) struct Readers(Arc<Mutex<HashMap<JobId, usize>>>);

/// One of them, until it leaves or is dropped.
#[derive(Debug)]
pub(super) struct Reading {
    readers: Readers,
    job: JobId,
    has_left: bool,
}

impl Readers {
    /// Somebody begins to read a turn.
    pub(super) fn begin(&self, job: JobId) -> Reading {
        *self.counts().entry(job).or_default() += 1;
        Reading {
            readers: self.clone(),
            job,
            has_left: false,
        }
    }

    /// One less. Is nobody there any more?
    fn end(&self, job: JobId) -> bool {
        let mut counts = self.counts();
        let left = counts.get(&job).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => drop(counts.remove(&job)),
            left => drop(counts.insert(job, left)),
        }
        left == 0
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<JobId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Its turn was sent anew, as another one.
    pub(super) fn goes_on(&mut self, job: JobId) {
        if self.job != job {
            *self = self.readers.begin(job);
        }
    }

    /// Leaves. Is nobody there any more who reads it?
    pub(super) fn leaves(mut self) -> bool {
        self.has_left = true;
        self.readers.end(self.job)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.has_left {
            self.readers.end(self.job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_who_leaves_last_is_told_so() {
        let readers = Readers::default();
        let (mut first, second) = (readers.begin(JobId(1)), readers.begin(JobId(1)));
        let other = readers.begin(JobId(2));
        assert!(!second.leaves());
        first.goes_on(JobId(1));
        assert!(first.leaves());
        let mut anew = readers.begin(JobId(1));
        anew.goes_on(JobId(2));
        assert!(!other.leaves());
        drop(anew);
        assert!(readers.counts().is_empty());
    }
}
