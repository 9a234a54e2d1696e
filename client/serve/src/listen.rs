//! Connections: how long each may take, and how they end.
//!
//! Owns HTTP/1 and its limits. Must not know what is asked, nor whose place makes room (`places`).

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Cursor;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::app::App;
use crate::cors;
use crate::gateway::{self, Switching};
use crate::head::{self, LONGEST_HEAD, NoHead};
use crate::log::Log;
use crate::openai;
use crate::peer::{Peer, Peers};
use crate::places::{CONNECTIONS, Permit, Places, RoomFound};
use crate::problem::Problem;

/// Connections at once that are only told that there are too many.
const REFUSED: usize = 64;
/// How long a refusal may take to be read.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);
/// What is under way when this server ends has so long.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// When no connection can be taken: no descriptor is free, mostly.
const PAUSE: Duration = Duration::from_millis(100);

/// How long whoever asks may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// From a connection, or the answer before, to the end of a head.
    head: Duration,
    /// A reader that takes nothing for so long is gone.
    stalled: Duration,
}

pub(crate) const PATIENCE: Patience = Patience {
    head: Duration::from_secs(5),
    stalled: Duration::from_secs(60),
};

/// What each connection needs.
struct Serving {
    patience: Patience,
    app: Arc<App>,
    router: Router,
    log: Arc<Log>,
}

/// Serves until the app is stopping, and what is under way then.
pub(crate) async fn serve(
    listener: TcpListener,
    patience: Patience,
    app: Arc<App>,
    router: Router,
    log: Arc<Log>,
) {
    let server = Arc::new(Serving {
        patience,
        app,
        router,
        log,
    });
    let mut stopping = server.app.stopping.clone();
    let (places, peers) = (Arc::new(Places::default()), Peers::new());
    let refused = Arc::new(Semaphore::new(REFUSED));
    let tracker = TaskTracker::new();
    loop {
        let (stream, there) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    server.log.say(format_args!("cannot accept: {error}"));
                    sleep(PAUSE).await;
                    continue;
                }
            },
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        let here = stream.local_addr();
        let peer = here.map_or(Peer::Host(there.ip()), |here| peers.who(there, here));
        if let Some((place, room)) = places.take(peer) {
            tracker.spawn(connection(Arc::clone(&server), stream, place));
            if room == RoomFound::Made {
                // Whoever has asked already is heard before more come and it would have to leave.
                yield_now().await;
            }
        } else if let Ok(permit) = Arc::clone(&refused).try_acquire_owned() {
            server.app.openai.attempts.refused_unread(None);
            tracker.spawn(async move {
                tell(stream, &too_many()).await;
                drop(permit);
            });
        }
    }
    // From now on the system refuses who comes, rather than keeping them waiting for nobody.
    drop(listener);
    tracker.close();
    let turns = &server.app.openai.tasks;
    turns.close();
    let ended = async {
        tracker.wait().await;
        turns.wait().await;
    };
    let _ended_or_late = timeout(ENDS_WITHIN, ended).await;
    server.log.finish();
}

async fn connection(server: Arc<Serving>, mut stream: TcpStream, place: Permit) {
    prepare(&stream, server.patience);
    let mut stopping = server.app.stopping.clone();
    let read = tokio::select! {
        // A head that is whole counts, even if there is to be room just now.
        biased;
        read = head::read(&mut stream, server.patience.head) => read,
        () = place.displaced() => {
            server.app.openai.attempts.refused_unread(None);
            // Whoever hasn't room for that doesn't hear it.
            let _unsaid = stream.try_write(&too_many().alone());
            return;
        }
        _ = stopping.wait_for(|stopping| *stopping) => return,
    };
    match read {
        Err(NoHead::Nothing) => {}
        Err(NoHead::Refused(problem)) => {
            tokio::select! {
                () = tell(stream, &problem) => {}
                () = place.displaced() => {}
            }
        }
        Ok(head) => {
            place.asked();
            requests(server, stream, head, place).await;
        }
    }
}

/// A connection on which something is asked.
struct Asking {
    place: Permit,
    /// What it becomes behind its last answer.
    switching: OnceLock<Switching>,
}

/// Answers what a connection asks, which began with `head`.
async fn requests(server: Arc<Serving>, stream: TcpStream, head: Vec<u8>, place: Permit) {
    let patience = server.patience;
    let mut stopping = server.app.stopping.clone();
    let (reads, writes) = stream.into_split();
    let stream = tokio::io::join(Cursor::new(head).chain(reads), writes);
    let app = Arc::clone(&server.app);
    let state = Arc::new(Asking {
        place,
        switching: OnceLock::new(),
    });
    let asked = Arc::clone(&state);
    let service = service_fn(move |request| {
        Box::pin(answer(Arc::clone(&server), Arc::clone(&asked), request))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let ended = tokio::select! {
        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => Some(ended),
        _ = stopping.wait_for(|stopping| *stopping) => None,
    };
    let Some(ended) = ended else {
        Pin::new(&mut connection).graceful_shutdown();
        // Whoever left, or said what isn't HTTP, was told so or doesn't hear it.
        let _broken = connection.await;
        return;
    };
    if ended.is_err() {
        return;
    }
    let parts = connection.into_parts();
    let mut stream = parts.io.into_inner();
    if let Some(switching) = state.switching.get() {
        let Some(left) = gateway::serve(stream, parts.read_buf, &app, switching.clone()).await
        else {
            return;
        };
        stream = left;
    }
    tokio::select! {
        () = lingers(&mut stream) => {}
        () = state.place.displaced() => {}
    }
}

/// Says that nothing follows, and reads what still comes: an answer before the end of a body would be
/// lost with the rest of it, and whoever sends that would see a broken pipe.
async fn lingers(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let reading = async {
        stream.shutdown().await?;
        let mut rest = vec![0; 64 * 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _gone_or_late = timeout(REFUSED_WITHIN, reading).await;
}

fn prepare(stream: &TcpStream, patience: Patience) {
    // Neither matters enough to refuse the connection.
    // Or an event would wait until the one before it is acknowledged.
    let _slower = stream.set_nodelay(true);
    let millis = u32::try_from(patience.stalled.as_millis()).unwrap_or(u32::MAX);
    #[cfg(target_os = "linux")]
    {
        use nix::sys::socket::{setsockopt, sockopt::TcpUserTimeout};
        // What is written and not acknowledged for so long ends the connection (`tcp(7)`).
        let _longer = setsockopt(stream, TcpUserTimeout, &millis);
    }
    #[cfg(not(target_os = "linux"))]
    let _kept_for_ever = millis;
}

async fn answer(
    server: Arc<Serving>,
    asking: Arc<Asking>,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let begun = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (head, body) = request.into_parts();
    let checked = head::check(&head).and_then(|()| server.app.guard.check(&head));
    let page = server.app.guard.page(&head.headers);
    let is_preflight = cors::is_preflight(&method, &head.headers);
    // Who has not shown the token keeps no connection.
    let is_stranger = checked.is_err() || is_preflight || path == "/health";
    if !is_stranger {
        asking.place.shown();
    }
    let mut response = match checked {
        Err(problem) => openai::shaped(&path, problem),
        Ok(()) if is_preflight => cors::preflight(&head.headers),
        Ok(()) => {
            let request = Request::from_parts(head, Body::new(body));
            server.router.clone().oneshot(request).await?
        }
    };
    if let Some(switching) = response.extensions_mut().remove() {
        // One connection switches once.
        let _first = asking.switching.set(switching);
    }
    let headers = response.headers_mut();
    openai::name_answer(&path, headers);
    if let Some(page) = page {
        cors::allow(headers, page);
    }
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    // What agents say is for no cache.
    let no_store = HeaderValue::from_static("no-store");
    headers.insert(header::CACHE_CONTROL, no_store);
    if is_stranger {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // Whoever looks whether we are here looks every few seconds.
    if path != "/health" {
        let status = response.status().as_u16();
        server
            .log
            .request(method.as_str(), &path, status, begun.elapsed());
    }
    Ok(response)
}

fn too_many() -> Problem {
    let why = format!("{CONNECTIONS} connections are open, the limit");
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-connections", why);
    problem.later()
}

/// Says this, whatever is asked, and that nothing follows.
async fn tell(mut stream: TcpStream, problem: &Problem) {
    let said = problem.alone();
    let telling = timeout(REFUSED_WITHIN, stream.write_all(&said));
    if let Ok(Ok(())) = telling.await {
        lingers(&mut stream).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;

    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::daemon::Daemon;
    use crate::guard::Guard;

    /// Every wait of these tests ends here.
    const DEADLINE: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(300);

    /// Says when nobody makes an answer any more.
    struct Made(mpsc::Sender<()>);

    impl Drop for Made {
        fn drop(&mut self) {
            let _said = self.0.try_send(());
        }
    }

    /// Serves an answer without an end and a short one; gives a connection over which this was asked
    /// for, and what says that nobody makes the endless one any more.
    async fn asked(path: &str, patience: Patience) -> (TcpStream, mpsc::Receiver<()>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let token = agentd_client::token::ensure(&file).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let (over, ended) = mpsc::channel(1);
        let endless = move || {
            let made = Made(over.clone());
            let pieces = stream::unfold(made, |made| async {
                Some((io::Result::Ok(vec![0_u8; 64 * 1024]), made))
            });
            std::future::ready(Body::from_stream(pieces))
        };
        let router = Router::new()
            .route("/v1/endless", get(endless))
            .route("/v1/short", get(|| async { "short" }));
        let (never, stopping) = watch::channel(false);
        let log = Arc::new(Log::start());
        let app = Arc::new(App {
            daemon: Daemon::new(None),
            openai: openai::Settings::of(&file, openai::OnLeave::Cancel, BTreeMap::new()),
            guard: Guard::new(at, &[], &[], file, Arc::clone(&log)),
            room: Arc::new(Semaphore::new(1)),
            stopping,
            document: String::new(),
        });
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                serve(listener, patience, app, router, log).await;
            });
            drop((never, dir));
        });
        let mut stream = TcpStream::connect(at).await.unwrap();
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        (stream, ended)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn reader_that_takes_nothing_is_cut_off() {
        let patience = Patience {
            stalled: SHORT,
            ..PATIENCE
        };
        let (stalls, mut ended) = asked("/v1/endless", patience).await;
        let (mut reads, mut going_on) = asked("/v1/endless", patience).await;
        let mut piece = vec![0; 256 * 1024];
        let over = timeout(DEADLINE, async {
            loop {
                tokio::select! {
                    over = ended.recv() => return over,
                    read = reads.read(&mut piece) => assert!(read.unwrap() > 0),
                }
            }
        });
        assert_eq!(over.await.expect("it is given up"), Some(()));
        assert!(going_on.try_recv().is_err());
        drop(stalls);
    }

    #[tokio::test]
    async fn connection_is_closed_when_nothing_more_is_asked() {
        let patience = Patience {
            head: SHORT,
            ..PATIENCE
        };
        let (stream, _ended) = asked("/v1/short", patience).await;
        let mut stream = BufReader::new(stream);
        let mut said = String::new();
        while !said.ends_with("\r\n\r\n") {
            stream.read_line(&mut said).await.unwrap();
        }
        assert!(
            !said.to_ascii_lowercase().contains("connection: close"),
            "{said}"
        );
        let answered = Instant::now();
        let mut body = String::new();
        let end = timeout(DEADLINE, stream.read_to_string(&mut body)).await;
        end.expect("it is closed").unwrap();
        assert_eq!(body, "short");
        assert!(answered.elapsed() >= SHORT / 2, "{:?}", answered.elapsed());
    }
}
