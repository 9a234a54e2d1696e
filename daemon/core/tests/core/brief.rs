//! What the world does for each event and line, kept cheap: tests say hundreds of MiB.
//!
//! Owns shortened descriptions, and the last large line that was read.

use std::fmt::{Debug, Write as _};

use agentd_protocol::serde_json::{self, Value};

/// So much of an event is shown where something breaks.
const SHOWN: usize = 500;
/// Lines from here on are compared with the one before them first.
const LARGE: usize = 64 * 1024;

struct Cut(String);

impl std::fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0
            .extend(text.chars().take(SHOWN.saturating_sub(self.0.len())));
        // An error ends the formatting of what isn't shown.
        if self.0.len() < SHOWN {
            Ok(())
        } else {
            Err(std::fmt::Error)
        }
    }
}

/// The beginning of how a value is shown.
pub fn shown(value: &impl Debug) -> String {
    let mut cut = Cut(String::new());
    let _is_whole = write!(cut, "{value:?}");
    cut.0
}

/// Reads lines; one large line that goes to many readers is read once.
#[derive(Default)]
pub struct LineReader {
    last: Option<(String, Value)>,
}

impl LineReader {
    pub fn read(&mut self, line: &str) -> Value {
        if let Some((_, value)) = self.last.as_ref().filter(|(last, _)| last == line) {
            return value.clone();
        }
        let value: Value = serde_json::from_str(line).unwrap();
        if line.len() >= LARGE {
            self.last = Some((line.to_owned(), value.clone()));
        }
        value
    }
}
