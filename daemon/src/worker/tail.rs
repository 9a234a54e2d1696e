//! The end of what a process printed besides protocol.
//!
//! Owns how much is kept. Must not know who prints.

use std::collections::VecDeque;

/// Bytes kept of one process: enough for a stack trace.
pub(super) const TAIL: usize = 16 * 1024;

/// A bounded buffer whose head is dropped.
#[derive(Default, Debug)]
pub(super) struct Tail(VecDeque<u8>);

impl Tail {
    /// Appends bytes, dropping the oldest beyond [`TAIL`].
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(TAIL)..];
        let over = (self.0.len() + bytes.len()).saturating_sub(TAIL);
        self.0.drain(..over);
        self.0.extend(bytes);
    }

    /// Appends a line and its end.
    pub(super) fn push_line(&mut self, line: &[u8]) {
        self.push(line);
        self.push(b"\n");
    }

    /// The text; what isn't UTF-8 (a head cut in two, too) is replaced.
    pub(super) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.0.make_contiguous()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_keeps_the_end_and_nothing_beyond_its_limit() {
        let mut tail = Tail::default();
        for round in 0..10_000 {
            tail.push_line(format!("line {round}").as_bytes());
            assert!(tail.0.len() <= TAIL);
        }
        assert!(tail.text().ends_with("line 9998\nline 9999\n"));
        tail.push(&[b'x'; 3 * TAIL]);
        assert_eq!(tail.text(), "x".repeat(TAIL));
    }
}
