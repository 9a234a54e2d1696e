//! The way to the store's writer: bounded, and without memory for what isn't in it.
//!
//! Owns how many messages may wait there. Must not know what they say. The standard library's bounded
//! channel is an array of all its places, which for this many is half of what an idle daemon's heap is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError, TrySendError};
use std::time::Duration;

/// The end that hands in.
pub(super) struct Sender<T> {
    to: mpsc::Sender<(usize, T)>,
    waiting: Arc<AtomicUsize>,
    most: usize,
}

/// The end that takes out.
pub(super) struct Receiver<T> {
    /// With how many each counts for.
    from: mpsc::Receiver<(usize, T)>,
    waiting: Arc<AtomicUsize>,
}

/// A way on which at most so many wait.
#[expect(clippy::disallowed_methods, reason = "its limit is kept here")]
pub(super) fn inbox<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let (to, from) = mpsc::channel();
    let waiting = Arc::<AtomicUsize>::default();
    let sender = Sender {
        to,
        waiting: Arc::clone(&waiting),
        most,
    };
    (sender, Receiver { from, waiting })
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            to: self.to.clone(),
            waiting: Arc::clone(&self.waiting),
            most: self.most,
        }
    }
}

impl<T> Sender<T> {
    /// Hands something in, if there is room.
    pub(super) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        // Counted before it is in: the other end may take it out at once, and would count below 0.
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(TrySendError::Full(message));
        }
        let sent = self.to.send((1, message));
        sent.map_err(|gone| TrySendError::Disconnected(gone.0.1))
    }

    /// Hands in as many of `several` as there is room for, as one message: the other end, woken by a
    /// first, wouldn't wait for a second that is on its way.
    pub(super) fn try_send_together<U>(
        &self,
        several: &mut VecDeque<U>,
        as_one: impl FnOnce(Vec<U>) -> T,
    ) -> Result<(), mpsc::SendError<T>> {
        let wanted = several.len();
        let before = self.waiting.fetch_add(wanted, Ordering::Relaxed);
        let taken = wanted.min(self.most.saturating_sub(before));
        self.waiting.fetch_sub(wanted - taken, Ordering::Relaxed);
        if taken == 0 {
            return Ok(());
        }
        let sent = self
            .to
            .send((taken, as_one(several.drain(..taken).collect())));
        sent.map_err(|gone| mpsc::SendError(gone.0.1))
    }

    /// Hands in what has to be known however many wait.
    pub(super) fn send(&self, message: T) -> Result<(), mpsc::SendError<T>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = self.to.send((1, message));
        sent.map_err(|gone| mpsc::SendError(gone.0.1))
    }
}

impl<T> Receiver<T> {
    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        self.from.try_recv().map(|one| self.took(one))
    }

    pub(super) fn recv(&self) -> Result<T, mpsc::RecvError> {
        self.from.recv().map(|one| self.took(one))
    }

    pub(super) fn recv_timeout(&self, wait: Duration) -> Result<T, RecvTimeoutError> {
        let one = self.from.recv_timeout(wait)?;
        Ok(self.took(one))
    }

    fn took(&self, (counts, message): (usize, T)) -> T {
        self.waiting.fetch_sub(counts, Ordering::Relaxed);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbox_takes_several_as_one() {
        let (sender, receiver) = inbox(3);
        sender.try_send(vec![1]).unwrap();
        let mut several = VecDeque::from([2, 3, 4]);
        sender.try_send_together(&mut several, |all| all).unwrap();
        assert_eq!(several, [4], "there was room for two");
        sender.try_send_together(&mut several, |all| all).unwrap();
        assert_eq!(several, [4], "there was room");
        assert_eq!(
            (receiver.recv(), receiver.recv()),
            (Ok(vec![1]), Ok(vec![2, 3]))
        );
        sender.try_send_together(&mut several, |all| all).unwrap();
        assert_eq!((several.len(), receiver.try_recv()), (0, Ok(vec![4])));
        drop(receiver);
        several.push_back(5);
        let gone = sender.try_send_together(&mut several, |all| all);
        assert_eq!(gone, Err(mpsc::SendError(vec![5])));
    }

    #[test]
    fn inbox_takes_as_many_as_may_wait() {
        let (sender, receiver) = inbox(2);
        sender.try_send(1).unwrap();
        sender.try_send(2).unwrap();
        assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
        sender.send(4).unwrap();
        assert_eq!(receiver.recv(), Ok(1));
        assert_eq!(sender.try_send(5), Err(TrySendError::Full(5)));
        assert_eq!((receiver.recv(), receiver.try_recv()), (Ok(2), Ok(4)));
        sender.try_send(6).unwrap();
        assert_eq!(receiver.recv_timeout(Duration::ZERO), Ok(6));
        drop(receiver);
        assert_eq!(sender.try_send(7), Err(TrySendError::Disconnected(7)));
    }
}
