//! `/api/ws`: the gateway of `agentctl serve gateway` over WebSocket, a message for each of its lines.
//!
//! Owns the transport: how one is asked for, what ends it, and signs of life. Must not know methods or
//! events.

mod half;

use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd_client::client::{Attended, Options};
use agentd_client::key;
use agentd_faces::driver::{self, MAX_CLIENT_LINE};
use agentd_faces::gateway::{Gateway, Settings};
use agentd_protocol::Code;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use futures_util::{FutureExt as _, Sink, SinkExt as _, Stream, StreamExt as _};
use serde::Deserialize;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::time::{MissedTickBehavior, interval};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use self::half::{Counted, Half};
use crate::app::{App, query};
use crate::guard;
use crate::mcp::as_line;
use crate::problem::Problem;

pub(crate) const PATH: &str = "/api/ws";
/// What the daemon's log and `status` call it.
const NAME: &str = "agentd-gateway";
/// What is between us and the client closes connections on which nothing is said; and so often it is
/// looked whether the token still counts.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Bytes of lines that wait for a client that is slow: behind them the daemon merges what it says.
const UNREAD: usize = 64 * 1024;
/// Of a buffer that each connection has from its beginning.
const READ: usize = 16 * 1024;
/// A longer message goes in as many frames.
const PIECE: usize = 1 << 20;
/// Most that waits to be written: a piece, and pongs of a client that reads none.
const UNWRITTEN: usize = 2 * PIECE;
/// The one of WebSocket that there is.
const VERSION: &str = "13";
/// As Hermes closes what shows no token.
const NO_TOKEN: CloseCode = CloseCode::Library(4401);

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new().route(PATH, get(asked))
}

/// What is asked for, in the query: clients are given nothing but an address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the guard has looked at the token")]
struct Wanted {
    token: Option<String>,
    /// Who answers in new sessions; without, the default.
    agent: Option<String>,
    /// Where a new session works; without, where the daemon has it work.
    cwd: Option<String>,
}

/// A request whose connection becomes a WebSocket once it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Switching {
    settings: Settings,
    token: Vec<u8>,
}

async fn asked(request: Request) -> Result<Response, Problem> {
    let wanted: Wanted = query(request.uri())?;
    let mut response = create_response_with_body(&request, Body::empty).map_err(|why| {
        let why = format!("this path is for a WebSocket: {why}");
        let problem = Problem::new(StatusCode::UPGRADE_REQUIRED, "no-websocket", why);
        let websocket = HeaderValue::from_static("websocket");
        let problem = problem.header(header::UPGRADE, websocket);
        // Also where only that was wrong (RFC 6455, 4.2.2).
        let version = HeaderValue::from_static(VERSION);
        problem.header(header::SEC_WEBSOCKET_VERSION, version)
    })?;
    let nonce = key::random().map_err(|why| Problem::of(Code::Internal, why.to_string()))?;
    let settings = Settings {
        agent: wanted.agent,
        here: wanted.cwd,
        nonce,
    };
    let token = guard::shown(request.uri(), request.headers()).unwrap_or_default();
    response
        .extensions_mut()
        .insert(Switching { settings, token });
    Ok(response)
}

/// Who ended a connection, and what the client is told of it.
enum Ended {
    /// The client, or the way to it.
    ByClient,
    By(CloseCode, &'static str),
}

/// Serves one client until it leaves, says what isn't taken, or this server ends. Gives the stream
/// back, for what may still come.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    read: Bytes,
    app: &App,
    switching: Switching,
) -> Option<S> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ)
        .max_write_buffer_size(UNWRITTEN)
        .max_message_size(Some(MAX_CLIENT_LINE))
        .max_frame_size(Some(MAX_CLIENT_LINE));
    let half = Half::default();
    let stream = Counted {
        stream,
        half: half.clone(),
        room: Arc::clone(&app.room),
    };
    let socket =
        WebSocketStream::from_partially_read(stream, read.into(), Role::Server, Some(config)).await;
    let (mut to_client, mut from_client) = socket.split();
    let (to_face, input) = tokio::io::duplex(UNREAD);
    let (output, from_face) = tokio::io::duplex(UNREAD);
    let mut lines = BufReader::new(from_face).lines();
    let options = Options {
        attended: Attended::Yes,
        ..app.daemon.of_face(NAME)
    };
    let mut face = Gateway::new(switching.settings, Instant::now());
    let mut face = pin!(driver::run(&mut face, &options, input, output).fuse());
    let ended = {
        let mut hearing = pin!(hear(&mut from_client, to_face, &half));
        let mut stopping = app.stopping.clone();
        let mut signs = interval(SIGN_OF_LIFE);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one would come at once.
        signs.reset();
        loop {
            let said = tokio::select! {
                ended = &mut hearing => break ended,
                line = lines.next_line() => match line {
                    Ok(Some(line)) => Some(line),
                    Ok(None) | Err(_) => break Ended::ByClient,
                },
                // Its lines end by that.
                _left = &mut face => continue,
                _ = stopping.wait_for(|stopping| *stopping) => {
                    break Ended::By(CloseCode::Away, "this server ends");
                }
                _ = signs.tick() => match app.guard.is_token(&switching.token) {
                    Ok(true) => None,
                    Ok(false) | Err(_) => {
                        break Ended::By(NO_TOKEN, "the token is not this server's any more");
                    }
                },
            };
            let told = match said {
                Some(line) => say(&mut to_client, line).await,
                None => to_client.send(Message::Ping(Bytes::new())).await,
            };
            if told.is_err() {
                break Ended::ByClient;
            }
        }
    };
    if let Ended::By(code, reason) = ended {
        let reason = reason.into();
        let close = Message::Close(Some(CloseFrame { code, reason }));
        // Whoever is gone doesn't hear it.
        let _unheard = to_client.send(close).await;
    }
    // What was handed in is waited for until it is accepted; nobody hears what is said meanwhile.
    while let Some(_unheard) = tokio::select! {
        line = lines.next_line() => line.ok().flatten(),
        _left = &mut face => Some(String::new()),
    } {}
    let socket = to_client.reunite(from_client).ok()?;
    Some(socket.into_inner().stream)
}

/// Says a line. Whoever reads slowly has no more of it waiting here than a piece.
async fn say(
    to_client: &mut (impl Sink<Message, Error = Error> + Unpin),
    line: String,
) -> Result<(), Error> {
    let mut rest = Bytes::from(line);
    let mut kind = Data::Text;
    loop {
        let piece = rest.split_to(rest.len().min(PIECE));
        let is_last = rest.is_empty();
        let frame = Frame::message(piece, OpCode::Data(kind), is_last);
        to_client.send(Message::Frame(frame)).await?;
        if is_last {
            return Ok(());
        }
        kind = Data::Continue;
    }
}

/// What the client says, as lines, until it is to be heard no longer.
async fn hear(
    from_client: &mut (impl Stream<Item = Result<Message, Error>> + Unpin),
    mut to_face: DuplexStream,
    half: &Half,
) -> Ended {
    loop {
        let text = match from_client.next().await {
            Some(Ok(Message::Text(text))) => text,
            // The next look answers it: a ping, or a close, behind which there is nothing.
            Some(Ok(Message::Ping(data) | Message::Pong(data))) => {
                half.is_less(data.len());
                continue;
            }
            Some(Ok(Message::Close(_))) => continue,
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => {
                return Ended::By(CloseCode::Unsupported, "expected text, not bytes");
            }
            Some(Err(Error::Capacity(_))) => {
                return Ended::By(CloseCode::Size, "a message is longer than 32 MiB");
            }
            Some(Err(Error::Utf8(_))) => {
                return Ended::By(CloseCode::Invalid, "a text is not UTF-8");
            }
            Some(Err(Error::Protocol(_))) => {
                return Ended::By(CloseCode::Protocol, "that is no WebSocket frame");
            }
            Some(Err(Error::Io(why))) if why.kind() == ErrorKind::OutOfMemory => {
                let reason = "what others ask takes all the room there is: say it again later";
                return Ended::By(CloseCode::Again, reason);
            }
            Some(Err(Error::Io(why))) if why.kind() == ErrorKind::TimedOut => {
                return Ended::By(CloseCode::Policy, "a message was not whole within 60 s");
            }
            Some(Err(_)) | None => return Ended::ByClient,
        };
        if to_face.write_all(as_line(&text).as_bytes()).await.is_err() {
            return Ended::ByClient;
        }
        half.is_over();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use agentd_client::token;
    use tokio::sync::{Semaphore, watch};

    use super::*;
    use crate::daemon::Daemon;
    use crate::guard::Guard;
    use crate::log::Log;
    use crate::openai;

    #[test]
    fn gateway_message_limit_is_what_is_told() {
        assert_eq!(MAX_CLIENT_LINE, 32 << 20);
    }

    type Client = WebSocketStream<DuplexStream>;

    /// A server with so many KiB of room, its token's file, and what would stop it.
    fn app(dir: &Path, kib: usize) -> (App, PathBuf, watch::Sender<bool>) {
        let file = dir.join("token");
        token::ensure(&file).unwrap();
        let at = "127.0.0.1:7878".parse().unwrap();
        let (stop, stopping) = watch::channel(false);
        let app = App {
            daemon: Daemon::new(Some(dir.join("none"))),
            openai: openai::Settings::of(&file, openai::OnLeave::Cancel, BTreeMap::new()),
            guard: Guard::new(at, &[], &[], file.clone(), Arc::new(Log::start())),
            room: Arc::new(Semaphore::new(kib)),
            stopping,
            document: String::new(),
        };
        (app, file, stop)
    }

    /// A client that was greeted talks while it is served.
    async fn with_client(app: &App, token: &Path, talks: impl AsyncFnOnce(Client)) {
        let settings = Settings {
            agent: None,
            here: None,
            nonce: "nonce".to_owned(),
        };
        let token = std::fs::read_to_string(token).unwrap().trim().into();
        let (theirs, ours) = tokio::io::duplex(1024);
        // Whoever still writes then is told that nobody reads it.
        let served = async {
            drop(serve(ours, Bytes::new(), app, Switching { settings, token }).await);
        };
        let client = async {
            let mut client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
            let ready = client.next().await.unwrap().unwrap();
            assert!(ready.into_text().unwrap().contains("gateway.ready"));
            talks(client).await;
        };
        tokio::join!(served, client);
    }

    async fn closed(client: &mut Client) -> CloseCode {
        let closed = async {
            loop {
                if let Message::Close(close) = client.next().await.unwrap().unwrap() {
                    return close.unwrap().code;
                }
            }
        };
        let closed = tokio::time::timeout(3 * half::WITHIN, closed).await;
        closed.expect("it is closed")
    }

    /// The beginning of a message that has no end; it may find nobody who reads it to its end.
    async fn begin(client: &mut Client, bytes: usize) {
        let piece = Bytes::from(vec![b'x'; bytes]);
        let frame = Frame::message(piece, OpCode::Data(Data::Text), false);
        let _unread = client.send(Message::Frame(frame)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn gateway_socket_ends_with_its_token() {
        let dir = tempfile::tempdir().unwrap();
        let (app, file, _never) = app(dir.path(), 1);
        let begun = tokio::time::Instant::now();
        with_client(&app, &file, async |mut client| {
            // A sign of life, while the token counts.
            assert_eq!(
                client.next().await.unwrap().unwrap(),
                Message::Ping(Bytes::new())
            );
            assert_eq!(begun.elapsed(), SIGN_OF_LIFE);
            token::renew(&file).unwrap();
            assert_eq!(closed(&mut client).await, NO_TOKEN);
            assert_eq!(begun.elapsed(), 2 * SIGN_OF_LIFE);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn gateway_half_messages_share_the_room() {
        let dir = tempfile::tempdir().unwrap();
        let (app, file, _never) = app(dir.path(), 200);
        let free = || app.room.available_permits();
        with_client(&app, &file, async |mut first| {
            begin(&mut first, 192 * 1024).await;
            // What was said is read in the order it was said.
            first.send(Message::Ping(Bytes::new())).await.unwrap();
            while !first.next().await.unwrap().unwrap().is_pong() {}
            let left = free();
            assert!(left < 200 - 128 + 2, "{left} KiB are left");
            with_client(&app, &file, async |mut second| {
                // A small one goes through, and a larger one finds no room.
                second.send(Message::text("{}")).await.unwrap();
                assert!(second.next().await.unwrap().unwrap().is_text());
                begin(&mut second, 192 * 1024).await;
                assert_eq!(closed(&mut second).await, CloseCode::Again);
            })
            .await;
            assert_eq!(free(), left);
            let rest = Frame::message(Bytes::new(), OpCode::Data(Data::Continue), true);
            first.send(Message::Frame(rest)).await.unwrap();
            let told = first.next().await.unwrap().unwrap();
            assert!(told.into_text().unwrap().contains("-32700"));
            assert_eq!(free(), 200);
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn gateway_message_has_to_become_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (app, file, _never) = app(dir.path(), 1);
        with_client(&app, &file, async |mut client| {
            // Signs of life are no message.
            client.send(Message::Ping(Bytes::new())).await.unwrap();
            tokio::time::sleep(2 * half::WITHIN).await;
            let begun = tokio::time::Instant::now();
            begin(&mut client, 1).await;
            assert_eq!(closed(&mut client).await, CloseCode::Policy);
            assert_eq!(begun.elapsed(), half::WITHIN);
        })
        .await;
    }
}
