//! OpenAI's API before the daemon: chat completions, responses, runs, models.
//!
//! Owns its routes, and what its clients are told instead of a problem. What requests and lines mean
//! in OpenAI's words, `agentd_faces::openai` knows; who may ask, the guard.

mod answer;
mod asking;
mod attempts;
mod chat;
mod deleted;
pub(crate) mod document;
mod jobs;
mod models;
mod plan;
mod read_again;
mod readers;
mod refusal;
mod responses;
mod routes;
mod run_events;
mod runs;
mod session;
mod turn;
mod visits;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentd_client::key;
use agentd_protocol::request::unix_ms;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::body::{self, BodyText};
use crate::problem::Problem;
pub(crate) use models::Settings;
pub(crate) use refusal::Refusal;
pub(crate) use routes::router;

/// Sent back with each answer, as OpenAI does.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What becomes of a turn whose stream is closed by whoever reads it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnLeave {
    /// It is cancelled: somebody pressed stop.
    #[default]
    Cancel,
    /// It goes on.
    GoOn,
}

/// Reads what is asked. A retry of what is refused here is a request of its own.
async fn read(app: &App, headers: &HeaderMap, body: Body) -> Result<BodyText, Refusal> {
    let read = body::read(headers, body, &app.room).await;
    if let Err(problem) = &read
        && problem.may_be_asked_again()
    {
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        app.openai.attempts.refused_unread(length);
    }
    Ok(read?)
}

/// The first parts of paths that are OpenAI's, served here or not.
const PATHS: &[&str] = &[
    "assistants",
    "audio",
    "batches",
    "capabilities",
    "chat",
    "completions",
    "conversations",
    "embeddings",
    "files",
    "fine_tuning",
    "images",
    "models",
    "moderations",
    "realtime",
    "responses",
    "runs",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
];

/// Do clients of OpenAI's API ask this?
pub(crate) fn is_path(path: &str) -> bool {
    let first = path.strip_prefix("/v1/").map(|rest| rest.split('/').next());
    first
        .flatten()
        .is_some_and(|first| PATHS.binary_search(&first).is_ok())
}

/// A problem as whoever asks this path reads it.
pub(crate) fn shaped(path: &str, problem: Problem) -> Response {
    if is_path(path) {
        Refusal::from(problem).into_response()
    } else {
        problem.into_response()
    }
}

/// Names an answer, for reports of whoever got it.
pub(crate) fn name_answer(path: &str, headers: &mut HeaderMap) {
    if !is_path(path) {
        return;
    }
    let id = key::random().map(|id| HeaderValue::from_str(&format!("req_{id}")));
    if let Ok(Ok(id)) = id {
        headers.insert(REQUEST_ID, id);
    }
}

/// A time of the daemon's, since 1970.
fn at(time: &str) -> Duration {
    let millis = unix_ms(time).and_then(|millis| u64::try_from(millis).ok());
    Duration::from_millis(millis.unwrap_or_default())
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openai_paths_are_whole_words() {
        assert!(PATHS.is_sorted());
        for path in [
            "/v1/models",
            "/v1/models/a/b",
            "/v1/chat/completions",
            "/v1/embeddings",
        ] {
            assert!(is_path(path), "{path}");
        }
        for path in [
            "/v1/jobs",
            "/v1/dispatch",
            "/v1/modelsx",
            "/models",
            "/v1/",
            "/health",
        ] {
            assert!(!is_path(path), "{path}");
        }
    }
}
