//! `GET /v1/jobs/{id}/events`: the lines of one job, as server-sent events.
//!
//! Owns what an event is called and numbered, and when the stream ends. Must not know what is in a
//! line. A reader that is slow is the daemon's to handle: nothing is kept here.

use std::sync::Arc;
use std::time::Duration;

use agentd_client::asked::RequestError;
use agentd_client::events::Events;
use agentd_client::wire::Received;
use agentd_protocol::request::Subscribe;
use agentd_protocol::{Code, JobId};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde_json::{Map, Value};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::app::App;
use crate::dispatch::{ANSWERS_WITHIN, in_time};
use crate::guard::bearer;
use crate::jobs::{Named, job_of, one_of};
use crate::problem::Problem;

/// What is between us and the reader closes connections on which nothing is said.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Where a reader left off: the number of a line, and the store that it is of.
fn cursor(headers: &HeaderMap) -> Result<(u64, Option<String>), Problem> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok((0, None));
    };
    let text = value.to_str().unwrap_or_default();
    let (seq, epoch) = match text.split_once('.') {
        Some((seq, epoch)) => (seq, Some(epoch.to_owned())),
        None => (text, None),
    };
    let seq = seq.parse().map_err(|_| {
        let why = "`Last-Event-ID` is not the `id` of an event: expected what was sent as one";
        Problem::of(Code::InvalidRequest, why)
    })?;
    Ok((seq, epoch))
}

struct EventReading<F> {
    form: F,
    app: Arc<App>,
    events: Events,
    epoch: String,
    /// Another token ends the streams that were opened with this one.
    token: Vec<u8>,
    signs: Interval,
    first: Option<Received>,
    over: bool,
}

pub(crate) async fn events(
    State(app): State<Arc<App>>,
    job: Named,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    stream(app, job_of(job)?, &headers, event).await
}

/// What a line is in a stream.
pub(crate) trait Form: FnMut(&Received, &str) -> String + Send + 'static {}

impl<F: FnMut(&Received, &str) -> String + Send + 'static> Form for F {}

/// The lines of a job from behind the reader's cursor, in whatever form.
pub(crate) async fn stream(
    app: Arc<App>,
    job: JobId,
    headers: &HeaderMap,
    form: impl Form,
) -> Result<Response, Problem> {
    let (after, epoch) = cursor(headers)?;
    let token = headers.get(header::AUTHORIZATION).and_then(bearer);
    let token = token.unwrap_or_default().to_vec();
    let mut found = one_of(job);
    // First, whether there is such a job; should it end from here on, its stream says so.
    let client = app.daemon.lease().await?;
    app.results(client, &mut found, Duration::ZERO).await?;
    let subscribe = Subscribe {
        session: None,
        jobs: Some(vec![job]),
        after: Some(after),
        epoch,
    };
    // None of those that are kept, nor kept itself: there is always more to be read from it.
    let client = app.daemon.connect().await?;
    let epoch = client.hello.epoch.clone();
    let beginning = async {
        let mut events = client.subscribe(&subscribe).await?;
        let first = events.next().await?;
        Ok((events, first))
    };
    let (events, first) = in_time(ANSWERS_WITHIN, beginning).await?;
    if first.kind == "live" && found.pending.is_empty() {
        // A browser's reader asks again and again until it hears this.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let mut signs = interval(SIGN_OF_LIFE);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one would come at once.
    signs.reset();
    let reading = EventReading {
        form,
        app,
        events,
        epoch,
        token,
        signs,
        first: Some(first),
        over: false,
    };
    let body = Body::from_stream(unfold(reading, |mut reading| async {
        let next = reading.next().await?;
        Some((next, reading))
    }));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, body).into_response())
}

impl<F: Form> EventReading<F> {
    /// The next piece of the stream; an error cuts it off, so that nobody takes it for whole.
    async fn next(&mut self) -> Option<Result<Bytes, RequestError>> {
        if self.over {
            return None;
        }
        let received = match self.first.take() {
            Some(first) => Ok(first),
            None => {
                let mut stopping = self.app.stopping.clone();
                tokio::select! {
                    received = self.events.next() => received,
                    _ = stopping.wait_for(|stopping| *stopping) => return None,
                    _ = self.signs.tick() => return self.sign(),
                }
            }
        };
        match received {
            Ok(received) => {
                let line = received.line.as_ref();
                self.over = line.is_some_and(agentd_protocol::Line::ends_job);
                Some(Ok((self.form)(&received, &self.epoch).into()))
            }
            Err(error) => {
                self.over = true;
                Some(Err(error))
            }
        }
    }

    fn sign(&self) -> Option<Result<Bytes, RequestError>> {
        let counts = self.app.guard.is_token(&self.token).unwrap_or(false);
        counts.then(|| Ok(Bytes::from_static(b":\n\n")))
    }
}

/// A line as an event: its type is its name, its number its id.
fn event(received: &Received, epoch: &str) -> String {
    let mut line: Map<String, Value> = serde_json::from_str(&received.text).unwrap_or_default();
    // The number of our own request.
    line.shift_remove("id");
    let id = line.get("seq").and_then(Value::as_u64);
    let id = id.map(|seq| format!("id: {seq}.{epoch}\n"));
    let kind: String = received
        .kind
        .chars()
        // An end of a line in it would begin another field.
        .filter(|c| c.is_ascii_graphic())
        .collect();
    let line = Value::Object(line);
    format!("event: {kind}\n{}data: {line}\n\n", id.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_has_the_lines_type_and_number() {
        let line = br#"{"type":"note","id":3,"seq":7,"text":"a\nb"}"#;
        let told = event(&Received::parse(line), "e1");
        assert_eq!(
            told,
            "event: note\nid: 7.e1\ndata: {\"type\":\"note\",\"seq\":7,\"text\":\"a\\nb\"}\n\n"
        );
        let told = event(
            &Received::parse(br#"{"type":"message_delta","id":3}"#),
            "e1",
        );
        assert_eq!(
            told,
            "event: message_delta\ndata: {\"type\":\"message_delta\"}\n\n"
        );
    }

    #[test]
    fn cursor_is_what_was_sent_as_id() {
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("last-event-id", text.parse().unwrap());
            cursor(&headers).map_err(|problem| problem.status)
        };
        assert_eq!(cursor(&HeaderMap::new()).unwrap(), (0, None));
        assert_eq!(asked("7.e1"), Ok((7, Some("e1".to_owned()))));
        assert_eq!(asked("7"), Ok((7, None)));
        for wrong in ["", "x", "-1", "7 ", ".e1", "18446744073709551616"] {
            assert_eq!(asked(wrong), Err(422), "{wrong}");
        }
    }
}
