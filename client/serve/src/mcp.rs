//! `/mcp`: the MCP face over HTTP, one request at a time.
//!
//! Owns the transport: what headers have to say, and which answers are streams. Nothing is remembered of
//! a client: what has to be known of it is in the session that it brings, and which question it answers
//! in the name of that. Must not know methods or tools.

use std::convert::Infallible;
use std::io::Cursor;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use agentd_client::key;
use agentd_faces::driver;
use agentd_faces::json_rpc::{self, Failure, METHOD_NOT_FOUND, Message};
use agentd_faces::mcp::{self, Mcp, Settings};
use agentd_protocol::{Code, Id};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, DuplexStream, Lines, ReadBuf};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::app::App;
use crate::body;
use crate::guard::bearer;
use crate::problem::Problem;

/// What the daemon's log and `status` call it.
const NAME: &str = "agentd-mcp";
/// `HeaderMismatch`: what is in front of us may have looked at the header, and we at the body.
const HEADER_MISMATCH: i64 = -32020;
/// What is between us and the reader closes connections on which nothing is said.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// What a client brings that has to be known to ask it something.
const SESSION: &str = "mcp-session-id";
/// Bytes of lines that wait for a reader that is slow.
const UNREAD: usize = 64 * 1024;

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new().route("/mcp", post(asked))
}

/// A line, and no end: whoever asked is there until the answer was read.
struct HeldOpen(Cursor<String>);

impl AsyncRead for HeldOpen {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.0).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() == before => Poll::Pending,
            other => other,
        }
    }
}

/// What a face says to one request. Dropped, it ends: its turns go on without it.
struct Said {
    lines: Lines<BufReader<DuplexStream>>,
    /// None when it has ended.
    face: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Said {
    fn new(app: &App, mut face: Mcp, request: &str) -> Self {
        let options = app.daemon.of_face(NAME);
        let (ours, theirs) = tokio::io::duplex(UNREAD);
        let input = HeldOpen(Cursor::new(as_line(request)));
        let face = async move {
            // A reader that is gone has ended this, too.
            let _left = driver::run(&mut face, &options, input, theirs).await;
        };
        Self {
            lines: BufReader::new(ours).lines(),
            face: Some(Box::pin(face)),
        }
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            let Some(face) = &mut self.face else {
                return self.lines.next_line().await.ok().flatten();
            };
            tokio::select! {
                line = self.lines.next_line() => return line.ok().flatten(),
                () = face => self.face = None,
            }
        }
    }

    /// The answer; what else is said is for streams.
    async fn answer(mut self) -> Option<Value> {
        while let Some(line) = self.next().await {
            if is_answer(&line) {
                return serde_json::from_str(&line).ok();
            }
        }
        None
    }
}

/// A body may have several lines; JSON has none inside its strings.
pub(crate) fn as_line(body: &str) -> String {
    body.replace(['\n', '\r'], " ") + "\n"
}

fn settings() -> Result<Settings, Problem> {
    let nonce = key::random().map_err(|why| Problem::of(Code::Internal, why.to_string()))?;
    Ok(Settings {
        cwd: None,
        answers: false,
        abort_cancelled: false,
        scope: None,
        nonce,
        inside: false,
    })
}

async fn asked(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let text = match body::read(&headers, body, &app.room).await {
        Ok(read) => read.text,
        Err(problem) if [Code::BadJson.name(), Code::BadUtf8.name()].contains(&problem.code) => {
            let failure = Failure::new(json_rpc::PARSE_ERROR, "the body is not JSON");
            return Ok(refused(StatusCode::BAD_REQUEST, None, &failure));
        }
        Err(problem) => return Err(problem),
    };
    let session = headers
        .get(SESSION)
        .map(|value| value.to_str().unwrap_or_default());
    let (id, method, params) = match Message::parse(text.as_bytes()) {
        Message::Request { id, method, params } => (id, method, params),
        // To a question, whether the stream that put it is still there or not.
        Message::Response { .. } if session.is_some() => {
            let options = app.daemon.of_face(NAME);
            let input = Cursor::new(as_line(&text));
            let mut face = Mcp::new(settings()?);
            // Nothing is said to it: it isn't a request.
            let _told = driver::run(&mut face, &options, input, tokio::io::sink()).await;
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        // Nothing was asked of whoever has no session.
        Message::Response { id, .. } => {
            let why = "an answer without the header `Mcp-Session-Id` is nobody's: bring the one that `initialize` gave, and answer again";
            let failure = Failure::new(json_rpc::INVALID_REQUEST, why);
            return Ok(refused(StatusCode::BAD_REQUEST, Some(&id), &failure));
        }
        // Whoever cancels a request closes its connection.
        Message::Notification { .. } => return Ok(StatusCode::ACCEPTED.into_response()),
        Message::Invalid { id, failure } => {
            return Ok(refused(StatusCode::BAD_REQUEST, id.as_ref(), &failure));
        }
    };
    if let Err(failure) = check(&headers, &method, &params) {
        return Ok(refused(StatusCode::BAD_REQUEST, Some(&id), &failure));
    }
    let waits = matches!(method.as_str(), "tools/call" | "tasks/result");
    let streams = waits && accepts_stream(&headers);
    let settings = settings()?;
    let begun = (method == "initialize").then(|| mcp::session(&params, &settings.nonce));
    let of_session = |session| Mcp::of_session(settings.clone(), session);
    let is_by_itself = begun.is_some() || mcp::is_stateless(&params);
    let face = match session.filter(|_| !is_by_itself).map(of_session) {
        Some(None) => {
            let why = "there is no such session: `initialize` begins one";
            let failure = Failure::new(json_rpc::INVALID_REQUEST, why);
            return Ok(refused(StatusCode::NOT_FOUND, Some(&id), &failure));
        }
        // Where there is no stream to ask on, nothing is asked.
        Some(Some(face)) if streams || !waits => face,
        Some(Some(_)) | None => Mcp::new(settings.clone()),
    };
    let said = Said::new(&app, face, &text);
    if streams {
        return Ok(streamed(app, said, &headers));
    }
    let Some(answer) = said.answer().await else {
        return Err(Problem::of(Code::Internal, "there was no answer"));
    };
    let status = match answer["error"]["code"].as_i64() {
        // So a method that isn't there is told from a page that isn't.
        Some(METHOD_NOT_FOUND) if mcp::is_stateless(&params) => StatusCode::NOT_FOUND,
        Some(mcp::UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    };
    let session = begun.flatten().filter(|_| answer["error"].is_null());
    let session = session.map(|session| [(SESSION, session)]);
    Ok((status, session, axum::Json(answer)).into_response())
}

/// Is it what a request waits for? All else that a face says has a method.
fn is_answer(line: &str) -> bool {
    #[derive(Deserialize)]
    struct Line {
        method: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Line>(line).is_ok_and(|line| line.method.is_none())
}

/// What is said in headers is what the body says.
fn check(headers: &HeaderMap, method: &str, params: &Value) -> Result<(), Failure> {
    let said = |name: &str| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    let version = said("mcp-protocol-version");
    if let Some(version) = version
        && !mcp::VERSIONS.contains(&version)
    {
        let data = json!({"supported": mcp::VERSIONS, "requested": version});
        return Err(Failure {
            data: Some(data),
            ..Failure::new(mcp::UNSUPPORTED_VERSION, "Unsupported protocol version")
        });
    }
    let differs = |name: &str| {
        let why = format!("`{name}` is not what the body says");
        Err(Failure::new(HEADER_MISMATCH, why))
    };
    let own = mcp::own_version(params);
    if own.is_some() || version == Some(mcp::VERSIONS[0]) {
        if own != version {
            return differs("MCP-Protocol-Version");
        }
        if said("mcp-method") != Some(method) {
            return differs("Mcp-Method");
        }
        if method == "tools/call" && said("mcp-name") != params["name"].as_str() {
            return differs("Mcp-Name");
        }
    }
    Ok(())
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/event-stream"))
}

fn refused(status: StatusCode, id: Option<&Id>, failure: &Failure) -> Response {
    (status, axum::Json(json_rpc::error(id, failure))).into_response()
}

/// What a stream needs while it lasts.
struct Reading {
    app: Arc<App>,
    said: Said,
    is_over: bool,
    /// Another token ends the streams that were opened with this one.
    token: Vec<u8>,
    signs: Interval,
}

fn streamed(app: Arc<App>, said: Said, headers: &HeaderMap) -> Response {
    let token = headers.get(header::AUTHORIZATION).and_then(bearer);
    let mut signs = interval(SIGN_OF_LIFE);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one would come at once.
    signs.reset();
    let reading = Reading {
        app,
        said,
        is_over: false,
        token: token.unwrap_or_default().to_vec(),
        signs,
    };
    let body = Body::from_stream(stream::unfold(reading, |mut reading| async {
        let next = reading.next().await?;
        Some((Ok::<_, Infallible>(next), reading))
    }));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, [("x-accel-buffering", "no")], body).into_response()
}

impl Reading {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut stopping = self.app.stopping.clone();
        tokio::select! {
            line = self.said.next() => {
                let line = line?;
                self.is_over = is_answer(&line);
                Some(format!("event: message\ndata: {line}\n\n").into())
            }
            _ = stopping.wait_for(|stopping| *stopping) => None,
            _ = self.signs.tick() => {
                let counts = self.app.guard.is_token(&self.token).unwrap_or(false);
                counts.then(|| Bytes::from_static(b":\n\n"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_headers_say_what_the_body_says() {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
        let call = json!({"name": "ask", "_meta": meta});
        let checked = |headers: &[(&'static str, &'static str)], params: &Value| {
            let headers = headers.iter().map(|(name, value)| {
                let name = axum::http::HeaderName::from_static(name);
                (name, axum::http::HeaderValue::from_static(value))
            });
            let found = check(&headers.collect(), "tools/call", params);
            found.map_err(|failure| failure.code)
        };
        let all = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "ask"),
        ];
        assert_eq!(checked(&all, &call), Ok(()));
        for left_out in 0..all.len() {
            let mut some = all.to_vec();
            some.remove(left_out);
            assert_eq!(checked(&some, &call), Err(HEADER_MISMATCH), "{some:?}");
        }
        let other = [all[0], all[1], ("mcp-name", "dispatch")];
        assert_eq!(checked(&other, &call), Err(HEADER_MISMATCH));
        // The revisions before say less.
        let old = json!({"name": "ask"});
        assert_eq!(checked(&[], &old), Ok(()));
        assert_eq!(
            checked(&[("mcp-protocol-version", "2025-06-18")], &old),
            Ok(())
        );
        assert_eq!(
            checked(&[("mcp-protocol-version", "2026-07-28")], &old),
            Err(HEADER_MISMATCH)
        );
        assert_eq!(
            checked(&[("mcp-protocol-version", "1900-01-01")], &old),
            Err(mcp::UNSUPPORTED_VERSION)
        );
    }
}
