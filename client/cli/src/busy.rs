//! What is seen of something that takes its time: the spinner, and what is done.
//!
//! Owns when it is shown: after a second, and not beside what is printed. Must not know how it
//! looks, nor what is done.

use std::future::Future;
use std::time::{Duration, Instant};

use super::spinner::Spinner;

/// What ends before this shows nothing.
const AFTER: Duration = Duration::from_secs(1);
/// A line that moves, without being a cost.
const STEP: Duration = Duration::from_millis(100);

/// Something that may take its time.
pub(super) struct Busy {
    begun: Instant,
    spinner: Option<Spinner>,
}

impl Busy {
    pub(super) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            spinner: Spinner::of_terminal(),
        }
    }

    /// Nobody looks at it beside what is printed there.
    pub(super) fn unless(mut self, is_printing: bool) -> Self {
        self.spinner = self.spinner.filter(|_| !is_printing);
        self
    }

    /// Waits for something, and says what goes on meanwhile.
    pub(super) async fn during<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            match tokio::time::timeout(STEP, &mut work).await {
                Ok(done) => return done,
                Err(_not_yet) => {}
            }
            let waited = self.begun.elapsed();
            if let Some(spinner) = &mut self.spinner
                && waited >= AFTER
            {
                spinner.draw(what, waited);
            }
        }
    }
}
