//! What a client has said of a message that isn't whole yet.
//!
//! Owns the room that it takes, and how long it may stay so. Must not know frames.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

use crate::body;

/// From its first byte to its last: twice that of a body, as it may be twice as long.
pub(super) const WITHIN: Duration = Duration::from_secs(60);
/// What surrounds what a client's ping or pong says.
const CONTROL: usize = 6;

/// What there is of it.
#[derive(Default)]
struct Taken {
    bytes: usize,
    room: Option<OwnedSemaphorePermit>,
    late: Option<Pin<Box<Sleep>>>,
}

/// A message on its way. All who have it mean the same one.
#[derive(Clone, Default)]
pub(super) struct Half(Arc<Mutex<Taken>>);

impl Half {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is whole, and what became of it is somebody else's.
    pub(super) fn is_over(&self) {
        *self.taken() = Taken::default();
    }

    /// So many bytes of what came were a ping's or a pong's.
    pub(super) fn is_less(&self, control: usize) {
        let mut taken = self.taken();
        taken.bytes = taken.bytes.saturating_sub(control + CONTROL);
        if taken.bytes == 0 {
            *taken = Taken::default();
        }
    }
}

/// A client's bytes, as long as there is room for the message that they are of. An error of the kind
/// `OutOfMemory` is that there is none, one of `TimedOut` that it took too long.
pub(super) struct Counted<S> {
    pub(super) stream: S,
    pub(super) half: Half,
    pub(super) room: Arc<Semaphore>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let half = self.half.clone();
        let mut taken = half.taken();
        if let Some(late) = &mut taken.late
            && late.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        taken.bytes += buf.filled().len() - before;
        taken.late.get_or_insert_with(|| Box::pin(sleep(WITHIN)));
        let room = match taken.room.take() {
            Some(room) => Ok(room),
            None => body::room_for(0, &self.room),
        };
        let more = room.and_then(|mut room| {
            let kib = body::kib(taken.bytes).saturating_sub(room.num_permits());
            room.merge(body::room_for(kib, &self.room)?);
            Ok(room)
        });
        taken.room = Some(more.map_err(|_full| io::ErrorKind::OutOfMemory)?);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
