//! The end of what a process printed besides protocol.
//!
//! Owns how much is kept. Must not know who prints.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bytes kept of one process: enough for a stack trace.
pub(super) const TAIL: usize = 16 * 1024;

/// What was said before so long a silence is of something else.
const WITHIN: Duration = Duration::from_secs(60);

/// A bounded buffer whose head is dropped.
#[derive(Default, Debug)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    /// The last time that something came.
    last: Option<Instant>,
    /// Turns that it has; of an earlier one nothing is kept.
    turns: usize,
    had_turns: bool,
}

impl Tail {
    /// A turn begins. What was said when there was none is none's.
    pub(super) fn turn_began(&mut self) {
        if self.turns == 0 {
            self.bytes.clear();
        }
        self.turns += 1;
        self.had_turns = true;
    }

    /// A turn is over.
    pub(super) fn turn_ended(&mut self) {
        self.turns = self.turns.saturating_sub(1);
    }

    /// Appends bytes, dropping the oldest beyond [`TAIL`].
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.forget(Instant::now());
        self.last = Some(Instant::now());
        let bytes = &bytes[bytes.len().saturating_sub(TAIL)..];
        let over = (self.bytes.len() + bytes.len()).saturating_sub(TAIL);
        self.bytes.drain(..over);
        self.bytes.extend(bytes);
    }

    /// Appends a line and its end.
    pub(super) fn push_line(&mut self, line: &[u8]) {
        self.push(line);
        self.push(b"\n");
    }

    /// A process that is one turn, or never had any, is quoted whole.
    fn forget(&mut self, now: Instant) {
        let silent = self.last.map(|last| now.saturating_duration_since(last));
        if self.had_turns && silent.is_some_and(|silent| silent > WITHIN) {
            self.bytes.clear();
        }
    }

    /// The text; what isn't UTF-8 (a head cut in two, too) is replaced.
    pub(super) fn text(&mut self) -> String {
        self.forget(Instant::now());
        String::from_utf8_lossy(self.bytes.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_quotes_the_turn_and_nothing_before() {
        let mut tail = Tail::default();
        tail.push_line(b"starting");
        assert_eq!(tail.text(), "starting\n");
        tail.turn_began();
        assert_eq!(tail.text(), "");
        tail.push_line(b"one");
        tail.turn_began();
        tail.turn_ended();
        assert_eq!(tail.text(), "one\n", "two turns at once");
        tail.forget(Instant::now() + WITHIN * 2);
        assert_eq!(tail.text(), "", "it was long silent");
        let mut once = Tail::default();
        once.push_line(b"why");
        once.forget(Instant::now() + WITHIN * 2);
        assert_eq!(once.text(), "why\n", "it is one turn");
    }

    #[test]
    fn tail_keeps_the_end_within_its_limit() {
        let mut tail = Tail::default();
        for round in 0..10_000 {
            tail.push_line(format!("line {round}").as_bytes());
            assert!(tail.bytes.len() <= TAIL);
        }
        assert!(tail.text().ends_with("line 9998\nline 9999\n"));
        tail.push(&[b'x'; 3 * TAIL]);
        assert_eq!(tail.text(), "x".repeat(TAIL));
    }
}
