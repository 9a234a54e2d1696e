//! A turn answered: whole, or as it is said.
//!
//! Owns when a stream begins and ends, and what becomes of its turn when nobody reads it any more.
//! Must not know the shape of what is told: a teller does.
//!
//! A client that leaves before its first byte may ask again, and finds the turn. One that closes a stream
//! wants no more of it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agentd_faces::openai::failure::{Again, Failure};
use agentd_protocol::line::{MessageEnd, Stop};
use agentd_protocol::request::Abort;
use agentd_protocol::{JobId, Line};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};

use super::attempts::{Asker, Attempts, Leaver};
use super::plan::{Source, cancelled};
use super::readers::Reading;
use super::refusal::JOB;
use super::turn::{self, Lines, Taken};
use super::{OnLeave, Refusal, jobs};
use crate::app::App;
use crate::guard::bearer;

/// What is between us and the reader closes connections on which nothing is said.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How long a stream begins later at most, so that its turn goes on from what was said before: an agent
/// that has lost it may say so only when it has started. As long as any stream may be silent.
const SETTLES_WITHIN: Duration = SIGN_OF_LIFE;
/// The same of an answer that comes whole: agents start within that. Until then what would be told anew
/// takes the room of other requests.
const SETTLES_AT_LAST: Duration = Duration::from_secs(60);
/// Clients that wait longer for a first word may have given up, as behind a daemon that hung.
const LONG_ASKED: Duration = Duration::from_millis(250);
/// That a connection was closed is noticed within this time.
const NOTICED_WITHIN: Duration = Duration::from_millis(20);
/// Headers of clients that have a name for their turn, and ask again for what they left before its first
/// byte, whenever that is.
const NAMES_ITS_TURN: [&str; 2] = ["idempotency-key", "x-codex-turn-metadata"];
/// Pieces that wait for their reader; then the daemon keeps the rest.
const WAITING: usize = 64;
const SESSION: HeaderName = HeaderName::from_static("x-agentd-session");
const HERMES_SESSION: HeaderName = HeaderName::from_static("x-hermes-session-id");
pub(super) const IGNORED: HeaderName = HeaderName::from_static("x-agentd-ignored");

/// Makes of lines what is told.
pub(super) trait Teller: Send + 'static {
    /// What is told first.
    fn first(&mut self) -> String;
    /// What a line adds.
    fn line(&mut self, line: &Line) -> String;
    /// The rest.
    fn end(&mut self, end: &MessageEnd) -> String;
    /// The rest of what failed.
    fn failed(&mut self, failure: &Failure) -> String;
    /// All of it, for whoever waited.
    fn whole(&mut self, end: &MessageEnd) -> Value;
}

/// What is said of an answer beside it.
pub(super) fn headers(taken: &Taken, ignored: &[String]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut say = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    say(JOB, &taken.job.to_string());
    say(SESSION, &taken.session);
    say(HERMES_SESSION, &taken.session);
    if !ignored.is_empty() {
        say(IGNORED, &ignored.join(", "));
    }
    headers
}

/// Waits for this server's end.
async fn stopped(stops: &mut watch::Receiver<bool>) {
    // It can't go away while there is an app.
    let _said = stops.wait_for(|stops| *stops).await;
}

/// This server ends. Where asking again would run the turn once more, it is told so.
fn stopping(taken: &Taken, again: Again) -> Failure {
    let job = taken.job;
    let why = format!("this server is stopping; the turn goes on as job {job}");
    let failure = match again {
        Again::Later => Failure::later(503, "stopping", why),
        Again::No => Failure::new(424, "stopping", why),
    };
    Failure {
        job: Some(job),
        ..failure
    }
}

/// A turn that ended without a last line that is known.
fn no_end(taken: &Taken) -> Failure {
    let why = "the turn ended with a line that this version does not know";
    Failure {
        job: Some(taken.job),
        ..Failure::new(424, "strange-answer", why)
    }
}

/// Waits for all of it. A client that isn't answered may ask `again`, where that finds the turn.
pub(super) async fn whole<T: Teller>(
    app: Arc<App>,
    (source, again, asker): (
        impl Future<Output = Result<Source, Refusal>> + Send + 'static,
        Again,
        Asker,
    ),
    ignored: &[String],
    teller: impl FnOnce(&Taken) -> T + Send + 'static,
) -> Result<Response, Refusal> {
    let (mut answers, answer) = oneshot::channel();
    let (tasks, ignored) = (app.openai.tasks.clone(), ignored.to_vec());
    tasks.spawn(async move {
        // It is sent whether or not anybody waits for it still: who has left asks again, and finds it.
        let settled = async {
            let (mut taken, mut lines) = turn::begin(&app, source).await?;
            let mut stops = app.stopping.clone();
            tokio::select! {
                settled = lines.settle(&app, &mut taken, SETTLES_AT_LAST) => settled?,
                () = stopped(&mut stops) => return Err(stopping(&taken, again).into()),
            }
            Ok((taken, lines))
        };
        let (taken, lines) = match settled.await {
            Ok(settled) => settled,
            Err(refusal) => {
                let _left = answers.send(Err(refusal));
                return;
            }
        };
        let job = taken.job;
        let _reading = app.openai.readers.begin(job);
        let told = tokio::select! {
            told = waited((&app, again), (taken, lines), &ignored, teller) => told,
            () = answers.closed() => return,
        };
        if answers.send(told).is_ok() {
            app.openai.attempts.told(job);
        }
    });
    let answer = answer.await;
    asker.answered();
    answer.map_err(|_| lost())?
}

/// Does nobody wait any more for a turn that ends then? This server's own end is no reason.
async fn is_gone(app: &App, leaver: &Leaver) -> bool {
    let mut stops = app.stopping.clone();
    tokio::select! {
        is_over = leaver.absence.ends() => !is_over,
        () = stopped(&mut stops) => false,
    }
}

/// Ends a turn whose reader has left, where nobody else reads it.
async fn leave(app: &App, reading: Reading, job: JobId) {
    if reading.leaves() {
        jobs::cancel_left(app, jobs::abort_of(job)).await;
    }
}

/// Waits until nobody waits any more for an answer that begins: for ever where its turn goes on then.
async fn left_for_good<T>(app: &App, begins: &mut oneshot::Sender<T>, ends_early: Option<&Leaver>) {
    begins.closed().await;
    if let Some(leaver) = ends_early
        && is_gone(app, leaver).await
    {
        return;
    }
    std::future::pending().await
}

/// This server's own fault.
pub(super) fn lost() -> Failure {
    Failure::new(424, "internal", "this server lost the request")
}

async fn waited<T: Teller>(
    (app, again): (&App, Again),
    (taken, mut lines): (Taken, Lines<'_>),
    ignored: &[String],
    teller: impl FnOnce(&Taken) -> T,
) -> Result<Response, Refusal> {
    let mut stops = app.stopping.clone();
    let mut teller = teller(&taken);
    let is_found = lines.is_found();
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = stopped(&mut stops) => return Err(stopping(&taken, again).into()),
        };
        let line = line.map_err(|mut refusal| {
            refusal.failure.job = Some(taken.job);
            match again {
                Again::Later if refusal.is_unsure() => refusal.found_again(),
                Again::Later | Again::No => refusal,
            }
        })?;
        match line {
            Some(Line::MessageEnd(end)) if is_found && end.stop == Stop::Cancelled => {
                return Err(cancelled(taken.job).into());
            }
            Some(Line::MessageEnd(end)) => {
                let headers = headers(&taken, ignored);
                return Ok((headers, Json(teller.whole(&end))).into_response());
            }
            Some(line) => drop(teller.line(&line)),
            None => return Err(no_end(&taken).into()),
        }
    }
}

/// Who reads a stream.
pub(super) struct Reader {
    app: Arc<App>,
    told: mpsc::Sender<Bytes>,
    /// Who ends its turn by leaving.
    cancels: Option<Leaver>,
    /// Does it ask for an answer, rather than look at one?
    asks: bool,
    /// Another token ends the streams that were opened with this one.
    token: Vec<u8>,
}

/// Why a stream is over before its end was told.
enum Cut {
    /// Nobody reads it.
    Left,
    /// It ends with this.
    Failed(Failure),
}

/// Tells it as it is said. The turn ends when its asker leaves, if it `cancels` it so.
pub(super) async fn streamed<T: Teller>(
    app: Arc<App>,
    asked: &HeaderMap,
    (source, cancels, asker): (
        impl Future<Output = Result<Source, Refusal>> + Send + 'static,
        OnLeave,
        Option<Asker>,
    ),
    ignored: &[String],
    teller: impl FnOnce(&Taken) -> T + Send + 'static,
) -> Result<Response, Refusal> {
    let (told, telling) = mpsc::channel(WAITING);
    let (mut begins, begun) = oneshot::channel();
    let asked_at = Instant::now();
    // Whoever asks again finds the turn, told anew if need be. Others have stopped it by leaving.
    let has_name = NAMES_ITS_TURN.iter().any(|name| asked.contains_key(*name));
    let cancels = asker.as_ref().filter(|_| cancels == OnLeave::Cancel);
    let cancels = cancels.map(Asker::leaver);
    let ends_early = cancels.clone().filter(|_| !has_name);
    let token = asked.get(header::AUTHORIZATION).and_then(bearer);
    let reader = Reader {
        app: Arc::clone(&app),
        told,
        cancels,
        asks: asker.is_some(),
        token: token.unwrap_or_default().to_vec(),
    };
    let (tasks, attempts) = (app.openai.tasks.clone(), app.openai.attempts.clone());
    tasks.spawn(async move {
        let (mut taken, mut lines) = match turn::begin(&app, source).await {
            Ok(begun) => begun,
            Err(refusal) => {
                let is_unsure = refusal.is_unsure();
                let has_left = begins.send(Err(refusal)).is_err();
                if let Some(leaver) = ends_early.filter(|_| is_unsure && has_left)
                    && is_gone(&app, &leaver).await
                    && let Some(key) = &leaver.key
                {
                    jobs::cancel_left(&app, Abort::of_key(key)).await;
                }
                return;
            }
        };
        let mut reading = app.openai.readers.begin(taken.job);
        let settled = tokio::select! {
            settled = lines.settle(&app, &mut taken, SETTLES_WITHIN) => settled,
            () = left_for_good(&app, &mut begins, ends_early.as_ref()) => {
                drop(lines);
                leave(&app, reading, taken.job).await;
                return;
            }
        };
        reading.goes_on(taken.job);
        if let Err(refusal) = settled {
            let _left = begins.send(Err(refusal));
            return;
        }
        if asked_at.elapsed() > LONG_ASKED {
            // Its client may have given up just now, and its retry be on its way.
            let _here = timeout(NOTICED_WITHIN, begins.closed()).await;
        }
        if begins.send(Ok(taken.clone())).is_ok() {
            reader.tell((&taken, reading), lines, teller(&taken)).await;
        } else if let Some(leaver) = ends_early
            && is_gone(&app, &leaver).await
        {
            drop(lines);
            leave(&app, reading, taken.job).await;
        }
    });
    let taken = begun.await;
    if let Some(asker) = &asker {
        asker.answered();
    }
    let taken = taken.map_err(|_| lost())??;
    let body = unread(telling, (attempts, taken.job));
    let kind = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers(&taken, ignored), kind, body).into_response())
}

/// What is told, as its reader takes it. Taken to its end, its client was told the turn.
fn unread(telling: mpsc::Receiver<Bytes>, (attempts, job): (Attempts, JobId)) -> Body {
    Body::from_stream(stream::unfold(
        (telling, attempts),
        move |(mut telling, attempts)| async move {
            let mut pieces = Vec::new();
            if telling.recv_many(&mut pieces, WAITING).await == 0 {
                attempts.told(job);
                return None;
            }
            let piece = match pieces.as_slice() {
                [one] => one.clone(),
                several => several.concat().into(),
            };
            Some((
                Ok::<Bytes, std::convert::Infallible>(piece),
                (telling, attempts),
            ))
        },
    ))
}

impl Reader {
    async fn tell(
        self,
        (taken, reading): (&Taken, Reading),
        mut lines: Lines<'_>,
        mut teller: impl Teller,
    ) {
        let mut signs = interval(SIGN_OF_LIFE);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one would come at once.
        signs.reset();
        let mut piece = teller.first();
        let is_found = self.asks && lines.is_found();
        let cut = loop {
            if !piece.is_empty() && self.told.send(piece.into()).await.is_err() {
                break Cut::Left;
            }
            match self.next(taken, &mut lines, &mut signs).await {
                Ok(Line::MessageEnd(end)) if is_found && end.stop == Stop::Cancelled => {
                    break Cut::Failed(cancelled(taken.job));
                }
                Ok(Line::MessageEnd(end)) => {
                    let _left = self.told.send(teller.end(&end).into()).await;
                    return;
                }
                Ok(line) => piece = teller.line(&line),
                Err(cut) => break cut,
            }
        };
        match cut {
            Cut::Failed(failure) => {
                let _left = self.told.send(teller.failed(&failure).into()).await;
            }
            Cut::Left => {
                drop(lines);
                let Some(leaver) = self.cancels else {
                    return;
                };
                if !leaver.absence.is_over() {
                    leave(&self.app, reading, taken.job).await;
                }
            }
        }
    }

    /// The next line, and until then signs of life.
    async fn next(
        &self,
        taken: &Taken,
        lines: &mut Lines<'_>,
        signs: &mut Interval,
    ) -> Result<Line, Cut> {
        let mut stops = self.app.stopping.clone();
        // Kept over signs of life: a line that is being read isn't lost.
        let mut next = pin!(lines.next());
        loop {
            tokio::select! {
                line = &mut next => return match line {
                    Ok(Some(line)) => Ok(line),
                    Ok(None) => Err(Cut::Failed(no_end(taken))),
                    Err(refusal) => Err(Cut::Failed(refusal.failure)),
                },
                () = self.told.closed() => return Err(Cut::Left),
                () = stopped(&mut stops) => return Err(Cut::Failed(stopping(taken, Again::No))),
                _ = signs.tick() => {
                    if !self.app.guard.is_token(&self.token).unwrap_or(false) {
                        let why = "the token is not this server's any more";
                        return Err(Cut::Failed(Failure::new(401, "invalid_api_key", why)));
                    }
                    if self.told.send(Bytes::from_static(b": keep-alive\n\n")).await.is_err() {
                        return Err(Cut::Left);
                    }
                }
            }
        }
    }
}
