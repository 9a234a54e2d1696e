//! What a connection is to be told and hasn't taken yet.
//!
//! Owns how much that may be, and where the marks are. Must not know what the lines say.

use std::collections::VecDeque;
use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::platform::memory;

/// Unwritten bytes before no more commands are taken and nothing is read.
const UNWRITTEN: usize = 256 * 1024;
/// A buffer up to this size is kept for the next line.
const KEPT: usize = 1024;

#[derive(Default, Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How many of `bytes` were taken.
    at: usize,
    /// How many were taken ever.
    written: u64,
    /// Where everything before a mark ends.
    marks: VecDeque<u64>,
    unflushed: bool,
    /// When something was taken last.
    wrote_at: Option<Instant>,
    broken: bool,
}

impl Output {
    /// Appends a line and its end.
    pub(super) fn push(&mut self, line: &str) {
        if self.broken {
            return;
        }
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.push(b'\n');
    }

    /// Remembers this place.
    pub(super) fn mark(&mut self) {
        self.marks.push_back(self.written + self.left() as u64);
    }

    /// Was everything before the oldest mark written?
    pub(super) fn caught_up(&self) -> bool {
        self.marks.front().is_some_and(|mark| *mark <= self.written)
    }

    pub(super) fn told_caught_up(&mut self) {
        self.marks.pop_front();
    }

    const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) const fn has_room(&self) -> bool {
        self.left() < UNWRITTEN
    }

    /// Is there something to write or to flush?
    pub(super) const fn busy(&self) -> bool {
        self.left() > 0 || self.unflushed
    }

    pub(super) const fn wrote_at(&self) -> Option<Instant> {
        self.wrote_at
    }

    /// The other side takes nothing any more.
    pub(super) const fn broken(&self) -> bool {
        self.broken
    }

    /// Writes or flushes once. Can be dropped without losing anything.
    pub(super) async fn write<W: AsyncWrite + Unpin>(&self, writer: &mut W) -> io::Result<usize> {
        if self.left() > 0 {
            match writer.write(&self.bytes[self.at..]).await {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                other => other,
            }
        } else {
            writer.flush().await.map(|()| 0)
        }
    }

    /// What [`Output::write`] gave.
    pub(super) fn wrote(&mut self, written: io::Result<usize>) {
        match written {
            // Nothing was left to write, so this was the flush.
            Ok(0) => self.unflushed = false,
            Ok(taken) => {
                self.at += taken;
                self.wrote_at = Some(Instant::now());
                self.written += taken as u64;
                self.unflushed = true;
                if self.left() == 0 {
                    self.at = 0;
                    memory::let_go(self.bytes.len());
                    self.bytes.clear();
                    self.bytes.shrink_to(KEPT);
                }
            }
            Err(_) => {
                // Marks are reached: there is no backlog any more.
                self.written += self.left() as u64;
                self.bytes = Vec::new();
                self.at = 0;
                self.unflushed = false;
                self.broken = true;
            }
        }
    }
}
