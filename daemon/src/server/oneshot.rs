//! One run over standard input and output, without a daemon.
//!
//! Owns when it ends: at the end of input, or when nobody reads the output, when everything asked is
//! answered. Must not know the socket: the same core and the same store, another byte stream.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use agentd_core::event::Origin;
use agentd_core::ids::ConnId;
use agentd_core::{Event, Served, Socket};
use agentd_protocol::envelope::Rejected;
use agentd_protocol::{Code, Request};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::config::Config;
use crate::platform::paths::{self, Paths};
use crate::platform::signals::{AtHangup, Stops};
use crate::server::copied::Copied;
use crate::server::daemon::{DaemonError, Unwritable};
use crate::server::owner::Arrival;
use crate::server::peer::{self, Known};
use crate::server::runtime::{Runtime, StartOptions};
use crate::server::stdio;

/// How often it is looked whether anybody still reads.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// What the end of input means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtEnd {
    /// Finish what was asked.
    Finish,
    /// Cancel it and leave: nobody wants the results.
    Cancel,
}

/// What may be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Anything.
    Anything,
    /// What is stored: it is read where it can't be written, too.
    Stored,
    /// The same, from a copy: which agents there are isn't known, so nothing is to go on with them.
    Copied,
}

/// Serves standard input until it ends and everything asked is answered.
///
/// # Errors
/// When the state directory or the store can't be used.
pub async fn run(
    paths: Paths,
    config: Config,
    reason: Option<String>,
    at_end: AtEnd,
    asked: Asked,
) -> Result<(), DaemonError> {
    let options = |state: &Path| StartOptions {
        state_dir: state.to_owned(),
        socket: Some(paths.socket.clone()),
        served: Served::OneShot {
            reason: reason.clone(),
        },
        stays: Socket::Ours,
        nested: at_end == AtEnd::Cancel,
        config: config.clone(),
        reload: None,
        file_limit: None,
        lock: None,
        started: Instant::now(),
    };
    // It goes when all is over.
    let (runtime, _copied) = start(&paths.state, options, asked)?;
    let conn = ConnId(1);
    let (commands, receiver) = mpsc::channel(peer::COMMANDS);
    let arrival = Arrival {
        conn,
        origin: Origin::Stdio,
        commands,
    };
    // There is room: it is the only one.
    let _room = runtime.arrivals.try_send(arrival);
    let mut config = runtime.peer_config(None);
    if asked != Asked::Anything {
        config.facts = reading(config.facts);
    }
    let inbox = runtime.inbox.clone();
    let lost = (at_end == AtEnd::Cancel).then(|| inbox.clone());
    let unread = CancellationToken::new();
    let watch = tell_when_unread(conn, unread.clone(), inbox.clone());
    runtime.tracker.spawn(watch);
    let mut stops = Stops::listen(AtHangup::Stop).map_err(DaemonError::Signals)?;
    runtime.tracker.spawn(async move {
        let unread = Box::pin(unread.cancelled_owned());
        let input = Watched { inner: stdio::input(), unread, lost };
        let output = stdio::output();
        tokio::select! {
            () = peer::serve(conn, Origin::Stdio, input, output, inbox.clone(), receiver, config) => {}
            () = stops.next() => {}
        }
        let _gone = inbox.send(Event::StopAsked).await;
    });
    let (owner, teardown) = runtime.into_parts();
    let store = owner.run().await;
    teardown.finish(store).await;
    stdio::hang_up();
    Ok(())
}

/// Where the state can't be written, what is stored is read from a copy.
fn start(
    state: &Path,
    options: impl Fn(&Path) -> StartOptions,
    asked: Asked,
) -> Result<(Runtime, Option<Copied>), DaemonError> {
    if asked == Asked::Copied {
        let copied = Copied::of(state).map_err(|source| DaemonError::Copy {
            state: state.to_owned(),
            source,
        })?;
        let runtime = Runtime::start(options(copied.dir()))?;
        return Ok((runtime, Some(copied)));
    }
    let there = || {
        paths::private_dir(state)?;
        Ok::<_, DaemonError>(Runtime::start(options(state))?)
    };
    let error = match there() {
        Ok(runtime) => return Ok((runtime, None)),
        Err(error) => error,
    };
    let passes = matches!(
        error.unwritable(),
        Some(Unwritable::Full | Unwritable::ReadOnly)
    );
    if asked != Asked::Stored || !passes {
        return Err(error);
    }
    // Without room for it what was wrong first is the reason.
    let Ok(copied) = Copied::of(state) else {
        return Err(error);
    };
    let runtime = Runtime::start(options(copied.dir()))?;
    Ok((runtime, Some(copied)))
}

/// Nothing is changed that may be a copy, but a copy of it is made where somebody says.
fn reading(facts: Facts) -> Facts {
    Arc::new(move |request| {
        let copies = matches!(request, Request::Backup(backup)
            if backup.every.is_none() && backup.path.is_some());
        if copies || !request.kind().rules().effect.changes() {
            return facts(request);
        }
        let error = "this run only reads what is stored";
        let rejected = Rejected::new(Code::InvalidRequest, error);
        Known::Soon(Box::pin(std::future::ready(Err(rejected))))
    })
}

type Facts = Arc<dyn Fn(&Request) -> Known + Send + Sync>;

/// Tells the owner, and ends the input, when nobody reads the output. The input may not end by itself:
/// another process may have inherited its other end.
async fn tell_when_unread(conn: ConnId, unread: CancellationToken, inbox: mpsc::Sender<Event>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOKS_EVERY) => {}
            () = inbox.closed() => return,
        }
        if stdio::is_unread() {
            break;
        }
    }
    unread.cancel();
    // Without an owner there is nobody to tell.
    let _gone = inbox.send(Event::ReaderLeft { conn }).await;
}

/// A reader that ends when nobody reads the answers, too, and tells of its end.
struct Watched<R> {
    inner: R,
    unread: Pin<Box<WaitForCancellationFutureOwned>>,
    lost: Option<mpsc::Sender<Event>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let mut polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if polled.is_pending() && self.unread.as_mut().poll(cx).is_ready() {
            polled = Poll::Ready(Ok(()));
        }
        let ended = match &polled {
            Poll::Ready(Ok(())) => buf.filled().len() == before && buf.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if ended && let Some(lost) = self.lost.take() {
            // With its inbox full the owner is stopping or will see the connection end.
            let _full = lost.try_send(Event::InputLost);
        }
        polled
    }
}
