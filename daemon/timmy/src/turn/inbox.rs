//! Steers for a turn in flight.
//!
//! Owns the moment from which on a steer is too late, and that each then hears so: none is ever kept
//! for a later turn. Must not know how a steer reaches the model.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agentd_protocol::Code;
use agentd_protocol::ids::Id;

use crate::line::Line;

/// Steers that wait at once: whoever sends more doesn't wait for answers.
pub(crate) const WAITING: usize = 64;

/// A steer on its way into a turn.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PendingSteer {
    /// Of the request, to be answered.
    pub(crate) id: Option<Id>,
    pub(crate) text: String,
}

/// Why a steer isn't taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unwelcome {
    /// The turn has ended, as good as.
    TooLate,
    /// Too many wait already.
    TooMany,
}

/// The steers that wait; none when the turn takes no more.
pub(crate) struct Inbox(Mutex<Option<Vec<PendingSteer>>>);

impl Default for Inbox {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Inbox {
    fn steers(&self) -> MutexGuard<'_, Option<Vec<PendingSteer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a steer in.
    ///
    /// # Errors
    /// It will never be told.
    pub(crate) fn put(&self, steer: PendingSteer) -> Result<(), Unwelcome> {
        match &mut *self.steers() {
            None => Err(Unwelcome::TooLate),
            Some(steers) if steers.len() >= WAITING => Err(Unwelcome::TooMany),
            Some(steers) => {
                steers.push(steer);
                Ok(())
            }
        }
    }

    /// What came so far.
    pub(crate) fn take(&self) -> Vec<PendingSteer> {
        self.steers()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Takes no more if nothing waits; is it closed?
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut steers = self.steers();
        if steers.as_ref().is_some_and(Vec::is_empty) {
            *steers = None;
        }
        steers.is_none()
    }

    /// Takes no more; these are too late.
    fn close(&self) -> Vec<PendingSteer> {
        self.steers().take().unwrap_or_default()
    }

    /// Takes no more, and says so to whoever waits: the turn is over, or never begins.
    pub(crate) async fn refuse(&self, line: &Line) {
        too_late(self.close(), line).await;
    }
}

/// Answers steers that will never be told.
pub(crate) async fn too_late(steers: Vec<PendingSteer>, line: &Line) {
    for steer in steers {
        let error = "the turn ended before the steer could be told";
        line.refuse(steer.id, Code::SessionIdle, error).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steer(text: &str) -> PendingSteer {
        PendingSteer {
            id: None,
            text: text.to_owned(),
        }
    }

    #[test]
    fn word_is_taken_once_or_refused() {
        let inbox = Inbox::default();
        assert_eq!(inbox.put(steer("a")), Ok(()));
        assert!(!inbox.close_if_empty(), "a steer waits");
        assert_eq!(inbox.take(), [steer("a")]);
        assert_eq!(inbox.take(), []);
        assert!(inbox.close_if_empty());
        assert_eq!(inbox.put(steer("b")), Err(Unwelcome::TooLate));
        assert_eq!((inbox.take(), inbox.close()), (vec![], vec![]));
    }

    #[test]
    fn so_many_words_wait_and_no_more() {
        let inbox = Inbox::default();
        for _ in 0..WAITING {
            assert_eq!(inbox.put(steer("a")), Ok(()));
        }
        assert_eq!(inbox.put(steer("b")), Err(Unwelcome::TooMany));
        assert_eq!(inbox.close().len(), WAITING);
    }
}
