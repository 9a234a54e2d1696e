//! The way to the store's writer: bounded, and without memory for what isn't in it.
//!
//! Owns how many messages may wait there. Must not know what they say. The standard library's bounded
//! channel is an array of all its places, which for this many is half of what an idle daemon's heap is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError, TrySendError};
use std::time::Duration;

/// The end that hands in.
pub(super) struct Sender<T> {
    to: mpsc::Sender<T>,
    waiting: Arc<AtomicUsize>,
    most: usize,
}

/// The end that takes out.
pub(super) struct Receiver<T> {
    from: mpsc::Receiver<T>,
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
        let sent = self.to.send(message);
        sent.map_err(|gone| TrySendError::Disconnected(gone.0))
    }

    /// Hands in what has to be known however many wait.
    pub(super) fn send(&self, message: T) -> Result<(), mpsc::SendError<T>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.to.send(message)
    }
}

impl<T> Receiver<T> {
    pub(super) fn try_recv(&self) -> Result<T, TryRecvError> {
        self.from.try_recv().inspect(|_| self.took())
    }

    pub(super) fn recv(&self) -> Result<T, mpsc::RecvError> {
        self.from.recv().inspect(|_| self.took())
    }

    pub(super) fn recv_timeout(&self, wait: Duration) -> Result<T, RecvTimeoutError> {
        self.from.recv_timeout(wait).inspect(|_| self.took())
    }

    fn took(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
