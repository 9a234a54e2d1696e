//! One run over standard input and output, without a daemon.
//!
//! Owns when it ends: at the end of input, when everything asked is answered. Must not know the
//! socket: the same core and the same store, another byte stream.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use agentd_core::event::Origin;
use agentd_core::ids::ConnId;
use agentd_core::{Event, Served, Socket};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::platform::paths::{self, Paths};
use crate::server::daemon::DaemonError;
use crate::server::owner::Arrival;
use crate::server::peer;
use crate::server::shell::{Plan, Shell};
use crate::server::stdio;

/// How often it is looked whether anybody still reads, once the input has ended.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// What the end of input means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtEnd {
    /// Finish what was asked.
    Finish,
    /// Cancel it and leave: nobody wants the results.
    Cancel,
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
) -> Result<(), DaemonError> {
    paths::private_dir(&paths.state)?;
    let plan = Plan {
        state_dir: paths.state,
        socket: Some(paths.socket),
        served: Served::OneShot { reason },
        stays: Socket::Ours,
        nested: at_end == AtEnd::Cancel,
        config,
        file_limit: None,
        lock: None,
        started: Instant::now(),
    };
    let shell = Shell::start(plan)?;
    let conn = ConnId(1);
    let (orders, receiver) = mpsc::channel(peer::ORDERS);
    let arrival = Arrival {
        conn,
        origin: Origin::Stdio,
        orders,
    };
    // There is room: it is the only one.
    let _room = shell.arrivals.try_send(arrival);
    let config = shell.peer_config(None);
    let inbox = shell.inbox.clone();
    let lost = (at_end == AtEnd::Cancel).then(|| inbox.clone());
    let (ended, at_its_end) = oneshot::channel();
    shell
        .tracker
        .spawn(tell_when_unread(conn, at_its_end, inbox.clone()));
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Signals)?;
    shell.tracker.spawn(async move {
        let ended = Some(ended);
        let input = Watched { inner: stdio::input(), lost, ended };
        let output = stdio::output();
        tokio::select! {
            () = peer::serve(conn, Origin::Stdio, input, output, inbox.clone(), receiver, config) => {}
            _signal = terminate.recv() => {}
        }
        let _gone = inbox.send(Event::StopAsked).await;
    });
    let (owner, rest) = shell.into_parts();
    let store = owner.run().await;
    rest.finish(store).await;
    stdio::hang_up();
    Ok(())
}

/// Tells the owner when the input has ended and nobody reads the output either.
async fn tell_when_unread(
    conn: ConnId,
    at_its_end: oneshot::Receiver<()>,
    inbox: mpsc::Sender<Event>,
) {
    if at_its_end.await.is_err() {
        return;
    }
    while !stdio::is_unread() {
        tokio::select! {
            () = tokio::time::sleep(LOOKS_EVERY) => {}
            () = inbox.closed() => return,
        }
    }
    // Without an owner there is nobody to tell.
    let _gone = inbox.send(Event::ReaderLeft { conn }).await;
}

/// A reader that tells of its end.
struct Watched<R> {
    inner: R,
    lost: Option<mpsc::Sender<Event>>,
    ended: Option<oneshot::Sender<()>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let ended = match &polled {
            Poll::Ready(Ok(())) => buf.filled().len() == before && buf.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if ended && let Some(at_its_end) = self.ended.take() {
            // Nobody listens when the run is over.
            let _over = at_its_end.send(());
        }
        if ended && let Some(lost) = self.lost.take() {
            // With its inbox full the owner is stopping or will see the connection end.
            let _full = lost.try_send(Event::InputLost);
        }
        polled
    }
}
