//! What a connection has sent: whole lines, the line that has begun, and whether more can come.
//!
//! Owns the bounds of what is buffered, this connection's and everybody's. Must not know requests.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::ready;

use agentd_protocol::envelope::id_at_beginning;
use agentd_protocol::frame::Frame;
use agentd_protocol::limits::{MAX_LINE_IN, MAX_PARTIAL};
use agentd_protocol::{Decoder, Id};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

/// Bytes taken at once, by all connections of a thread through the same buffer: an idle connection
/// has none of its own.
const PORTION: usize = 16 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PORTION]);
}

/// Reads once and shows the bytes to `take`; gives the number of bytes, 0 at the end.
pub(super) async fn read<R: AsyncRead + Unpin, T>(
    reader: &mut R,
    mut take: impl FnMut(&[u8]) -> T,
) -> io::Result<usize> {
    poll_fn(|cx| {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *reader).poll_read(cx, &mut buffer))?;
            take(buffer.filled());
            std::task::Poll::Ready(Ok(buffer.filled().len()))
        })
    })
    .await
}

/// One thing that came in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Item {
    /// A whole line.
    Line(Vec<u8>),
    /// The input ended without ending its last line.
    Last(Vec<u8>),
    /// A line over the limit was skipped. Its `id`, where that stood at its beginning.
    TooLong(Option<Id>),
    /// A line was skipped because others that aren't over either take all room. Its `id`, likewise.
    NoRoom(Option<Id>),
}

/// Does anything still come in?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    Open,
    /// It is read and dropped.
    Stopped,
    Ended,
}

pub(super) struct Input {
    decoder: Decoder,
    items: VecDeque<Item>,
    /// The rest of a line that had no room among all unfinished lines.
    skipping: bool,
    flow: Flow,
    opened: Instant,
    last_byte: Instant,
    began: Option<Instant>,
    any_line: bool,
    shared: Arc<AtomicUsize>,
    counted: usize,
}

impl Input {
    pub(super) fn new(shared: Arc<AtomicUsize>) -> Self {
        let now = Instant::now();
        Self {
            decoder: Decoder::new(MAX_LINE_IN),
            items: VecDeque::new(),
            skipping: false,
            flow: Flow::Open,
            opened: now,
            last_byte: now,
            began: None,
            any_line: false,
            shared,
            counted: 0,
        }
    }

    /// Reads once. Can be dropped without losing anything.
    pub(super) async fn read<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> io::Result<usize> {
        read(reader, |bytes| self.take(bytes)).await
    }

    /// What reading gave: the end, perhaps. A broken stream has ended.
    pub(super) fn heard(&mut self, read: io::Result<usize>) {
        if matches!(read, Ok(1..)) {
            return;
        }
        if self.flow == Flow::Open
            && let Some(rest) = self.decoder.finish()
        {
            self.any_line = true;
            self.items.push_back(Item::Last(rest));
        }
        self.flow = Flow::Ended;
        self.forget_partial();
    }

    fn take(&mut self, mut bytes: &[u8]) {
        if bytes.is_empty() || self.flow != Flow::Open {
            return;
        }
        self.last_byte = Instant::now();
        if self.skipping {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                return;
            };
            self.skipping = false;
            bytes = &bytes[end + 1..];
        }
        let mut frames = Vec::new();
        self.decoder.push(bytes, &mut frames);
        // An empty line is no frame, and ends what began all the same.
        if !frames.is_empty() || bytes.contains(&b'\n') {
            self.began = None;
        }
        self.any_line |= !frames.is_empty();
        for frame in frames {
            self.items.push_back(match frame {
                Frame::Line(line) => Item::Line(line),
                Frame::TooLong => Item::TooLong(id_at_beginning(self.decoder.skipped())),
            });
        }
        self.count();
        if !self.in_line() {
            self.began = None;
        } else if self.began.is_none() {
            self.began = Some(self.last_byte);
        }
    }

    fn count(&mut self) {
        let now = self.decoder.partial_len();
        let all = if now >= self.counted {
            let more = now - self.counted;
            self.shared.fetch_add(more, Ordering::Relaxed) + more
        } else {
            let less = self.counted - now;
            self.shared.fetch_sub(less, Ordering::Relaxed) - less
        };
        let grew = now > self.counted;
        self.counted = now;
        // Only who makes it more is cut off: the others may hold nearly nothing.
        if grew && all > MAX_PARTIAL {
            let id = id_at_beginning(self.decoder.begun());
            self.forget_partial();
            self.skipping = true;
            // Although it is skipped: who sent it isn't one that never says anything.
            self.any_line = true;
            self.items.push_back(Item::NoRoom(id));
        }
    }

    fn forget_partial(&mut self) {
        self.decoder = Decoder::new(MAX_LINE_IN);
        self.skipping = false;
        self.began = None;
        self.shared.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = 0;
    }

    /// From now on input is dropped.
    pub(super) fn stop(&mut self) {
        if self.flow == Flow::Open {
            self.flow = Flow::Stopped;
        }
        self.forget_partial();
    }

    pub(super) const fn stopped(&self) -> bool {
        matches!(self.flow, Flow::Stopped)
    }

    pub(super) const fn ended(&self) -> bool {
        matches!(self.flow, Flow::Ended)
    }

    /// Should the stream be read now? Not while lines wait.
    pub(super) fn wants_more(&self) -> bool {
        !self.ended() && self.items.is_empty()
    }

    pub(super) fn has_items(&self) -> bool {
        !self.items.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Item> {
        let item = self.items.pop_front();
        if self.items.is_empty() {
            // An idle connection keeps no room for lines.
            self.items = VecDeque::new();
        }
        item
    }

    /// Is there a line that has begun but not ended?
    pub(super) const fn in_line(&self) -> bool {
        self.skipping || self.decoder.in_line()
    }

    /// Since when?
    pub(super) const fn began(&self) -> Option<Instant> {
        self.began
    }

    /// From when on its time counts.
    pub(super) const fn began_at(&mut self, when: Instant) {
        self.began = Some(when);
    }

    pub(super) const fn any_line(&self) -> bool {
        self.any_line
    }

    pub(super) const fn opened(&self) -> Instant {
        self.opened
    }

    pub(super) const fn last_byte(&self) -> Instant {
        self.last_byte
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.forget_partial();
    }
}
