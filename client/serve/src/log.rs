//! One line on standard error for each request: its method, path, status and time. Never what was
//! asked or answered, nor the token.
//!
//! Owns the lines that wait. Whoever reads them is never waited for: what has no room is counted
//! and dropped, as a terminal that is stopped would stop this server.

use std::fmt::Display;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use agentd_terminal::output::safe;

/// Lines that wait.
const ROOM: usize = 4096;
/// Lines are written together, so long after the first: waking the thread for each of many requests
/// costs them more than all that is said here.
const TOGETHER: Duration = Duration::from_millis(50);
/// Longest path that is shown, in characters.
const LONGEST_PATH: usize = 200;
/// At the end, for the lines that still wait.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where lines go.
pub(crate) struct Log {
    lines: std::sync::Mutex<Option<SyncSender<String>>>,
    dropped: Arc<AtomicU64>,
    ended: std::sync::Mutex<Receiver<()>>,
}

impl Log {
    pub(crate) fn start() -> Self {
        let (lines, written) = sync_channel::<String>(ROOM);
        let (alive, ended) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let _writing = std::thread::spawn(move || {
            while let Ok(mut lines) = written.recv() {
                std::thread::park_timeout(TOGETHER);
                lines.extend(written.try_iter());
                let mut error = std::io::stderr().lock();
                let _closed = error.write_all(lines.as_bytes());
                let count = counted.swap(0, Ordering::Relaxed);
                if count > 0 {
                    let _closed = writeln!(error, "{count} lines were dropped");
                }
            }
            drop(alive);
        });
        Self {
            lines: std::sync::Mutex::new(Some(lines)),
            dropped,
            ended: std::sync::Mutex::new(ended),
        }
    }

    pub(crate) fn request(&self, method: &str, path: &str, status: u16, took: Duration) {
        let shown: String = path.chars().take(LONGEST_PATH).collect();
        self.say(format_args!(
            "{} {} {status} {} ms",
            safe(method),
            safe(&shown),
            took.as_millis()
        ));
    }

    pub(crate) fn say(&self, line: impl Display) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = lines
            .as_ref()
            .map(|lines| lines.try_send(format!("{line}\n")));
        if !matches!(sent, Some(Ok(()))) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets what waits be written, for a moment.
    pub(crate) fn finish(&self) {
        drop(
            self.lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let _ended_or_late = ended.recv_timeout(LAST_WORDS);
    }
}
