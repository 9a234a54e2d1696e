//! What the clients of a run share: the recording, how far it is, and when to stop.
//!
//! Owns the recording while it grows. Must not know what is right.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::history::{Asked, Conn, Dispatched, Followed, Heard, History};

/// The shared part of a run.
pub(crate) struct Record {
    begun: Instant,
    /// How long anything is waited for that has to come.
    pub(crate) patience: Duration,
    pub(crate) socket: PathBuf,
    history: Mutex<History>,
    grown: Condvar,
    conns: AtomicU64,
    highest: AtomicU64,
    stop: AtomicBool,
    over: AtomicBool,
}

pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    pub(crate) fn new(socket: PathBuf, patience: Duration) -> Self {
        Self {
            begun: Instant::now(),
            patience,
            socket,
            history: Mutex::default(),
            grown: Condvar::new(),
            conns: AtomicU64::new(0),
            highest: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// A number for a new connection.
    pub(crate) fn conn(&self) -> Conn {
        self.conns.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn asked(&self, asked: Asked) {
        held(&self.history).asked.push(asked);
    }

    pub(crate) fn dispatched(&self, dispatched: Dispatched) {
        held(&self.history).dispatched.push(dispatched);
    }

    pub(crate) fn followed(&self, followed: Followed) {
        held(&self.history).followed.push(followed);
    }

    pub(crate) fn heard(&self, conn: Conn, line: Value) {
        let at = self.begun.elapsed();
        if let Some(seq) = line["seq"].as_u64() {
            self.highest.fetch_max(seq, Ordering::SeqCst);
        }
        held(&self.history).heard.push(Heard { at, conn, line });
        self.grown.notify_all();
    }

    pub(crate) fn stuck(&self, who: String) {
        held(&self.history).stuck.push(who);
        self.grown.notify_all();
    }

    /// The highest number that anybody heard so far.
    pub(crate) fn highest(&self) -> u64 {
        self.highest.load(Ordering::SeqCst)
    }

    /// How many lines clients heard so far.
    pub(crate) fn lines(&self) -> usize {
        held(&self.history).heard.len()
    }

    /// Waits until clients heard so many lines in all; false at the deadline.
    pub(crate) fn until_heard(&self, lines: usize, within: Duration) -> bool {
        let history = held(&self.history);
        let waited = self
            .grown
            .wait_timeout_while(history, within, |history| history.heard.len() < lines);
        let (history, _timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        history.heard.len() >= lines
    }

    /// From now on nothing new is asked.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// From now on nobody needs to listen.
    pub(crate) fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut History) -> T) -> T {
        look(&mut held(&self.history))
    }
}

/// Looks again and again until a fact is there; the deadline is the only clock.
pub(crate) fn poll<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > until {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
