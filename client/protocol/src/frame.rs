//! The line decoder: bytes in any portions become frames.
//!
//! Owns where a line begins and ends and how long it may be. Must not know JSON, sockets or time.
//! After an over-long line it goes on at the next newline; it never delivers half a line as one.

use crate::limits::FIRST_BUFFER;

/// So much is kept of a line that was too long: what it is stands at its beginning.
const KEPT: usize = 512;

/// One thing found in the byte stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A whole line without its end (`\n`, or `\r\n`).
    Line(Vec<u8>),
    /// A line longer than the limit was skipped. Reported once, when the limit is passed.
    TooLong,
}

/// Splits a byte stream into lines of at most `limit` bytes.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    partial: Vec<u8>,
    skipping: bool,
    /// Of the last line that was too long.
    beginning: Vec<u8>,
}

impl Decoder {
    /// A decoder for lines of at most `limit` bytes, their end not counted.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            partial: Vec::new(),
            skipping: false,
            beginning: Vec::new(),
        }
    }

    /// Takes the next bytes and appends the frames they complete to `out`.
    ///
    /// Blank lines (only spaces, tabs and `\r`) are dropped here: they carry nothing.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<Frame>) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            // Its length is known: it gets that much room, and no more.
            self.extend(&bytes[..end], end, out);
            bytes = &bytes[end + 1..];
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let mut line = std::mem::take(&mut self.partial);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if line.len() > self.limit {
                self.beginning = beginning(&line, &[]);
                out.push(Frame::TooLong);
            } else if !is_blank(&line) {
                out.push(Frame::Line(line));
            }
        }
        // The line goes on: there is more to come.
        self.extend(bytes, FIRST_BUFFER, out);
    }

    /// Adds to the line, for whose first bytes there is made so much `room`.
    fn extend(&mut self, bytes: &[u8], room: usize, out: &mut Vec<Frame>) {
        if self.skipping || bytes.is_empty() {
            return;
        }
        // One more than the limit may be a `\r` that the newline will strip.
        let over = self.partial.len() + bytes.len() > self.limit + 1;
        let surely =
            over || (self.partial.len() + bytes.len() > self.limit && bytes.last() != Some(&b'\r'));
        if surely {
            self.beginning = beginning(&self.partial, bytes);
            // Skipping the rest of it needs no room.
            self.partial = Vec::new();
            self.skipping = true;
            out.push(Frame::TooLong);
            return;
        }
        if self.partial.capacity() == 0 {
            self.partial
                .reserve(bytes.len().max(room.min(self.limit + 1)));
        }
        self.partial.extend_from_slice(bytes);
    }

    /// How the last line began that was too long: some hundred bytes of it.
    #[must_use]
    pub fn skipped(&self) -> &[u8] {
        &self.beginning
    }

    /// How the line begins that has not ended: some hundred bytes of it.
    #[must_use]
    pub fn begun(&self) -> &[u8] {
        &self.partial[..self.partial.len().min(KEPT)]
    }

    /// Bytes of the line that has begun but not ended.
    #[must_use]
    pub const fn partial_len(&self) -> usize {
        self.partial.len()
    }

    /// Bytes that are taken for it.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) const fn capacity(&self) -> usize {
        self.partial.capacity()
    }

    /// Has a line begun that has not ended? True while an over-long line is being skipped, too.
    #[must_use]
    pub const fn in_line(&self) -> bool {
        self.skipping || !self.partial.is_empty()
    }

    /// At the end of input: the bytes of the unterminated last line, if it isn't blank.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        self.skipping = false;
        // The line that was skipped has been told.
        let mut rest = std::mem::take(&mut self.partial);
        if rest.last() == Some(&b'\r') {
            rest.pop();
        }
        (!is_blank(&rest)).then_some(rest)
    }
}

fn beginning(line: &[u8], more: &[u8]) -> Vec<u8> {
    line.iter().chain(more).take(KEPT).copied().collect()
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(limit: usize, chunks: &[&[u8]]) -> (Vec<Frame>, Option<Vec<u8>>) {
        let mut decoder = Decoder::new(limit);
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, &mut out);
        }
        let rest = decoder.finish();
        (out, rest)
    }

    #[test]
    fn frame_of_the_limit_passes_and_no_longer() {
        let line = |n: usize, end: &str| [vec![b'x'; n], end.as_bytes().to_vec()].concat();
        for end in ["\n", "\r\n"] {
            let (frames, _) = all(8, &[&line(8, end)]);
            assert_eq!(frames, [Frame::Line(vec![b'x'; 8])], "{end:?}");
            let (frames, _) = all(8, &[&line(9, end), b"ok\n"]);
            assert_eq!(
                frames,
                [Frame::TooLong, Frame::Line(b"ok".to_vec())],
                "{end:?}"
            );
        }
    }

    #[test]
    fn frame_is_never_blank_and_its_rest_kept() {
        let (frames, rest) = all(80, &[b"\n \t\r\n{}\r\n\n{\"a\":1}"]);
        assert_eq!(frames, [Frame::Line(b"{}".to_vec())]);
        assert_eq!(rest, Some(b"{\"a\":1}".to_vec()));
    }

    #[test]
    fn an_over_long_line_is_not_buffered() {
        let mut decoder = Decoder::new(1000);
        let mut out = Vec::new();
        for _ in 0..10_000 {
            decoder.push(&[b'x'; 100], &mut out);
            assert!(
                decoder.partial.capacity() <= 2 * 1024,
                "{}",
                decoder.partial.capacity()
            );
        }
        assert_eq!(out, [Frame::TooLong]);
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_how_bytes_come(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a'), Just(b' '), any::<u8>()], 0..200),
            cuts in proptest::collection::vec(1usize..20, 0..200),
        ) {
            let whole = all(10, &[&bytes]);
            let mut chunks = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            chunks.push(rest);
            let cut = all(10, &chunks);
            prop_assert_eq!(whole, cut);
        }
    }
}
