//! What a client of OpenAI's API is told instead of an answer.
//!
//! Owns the headers by which it decides whether it asks again. Must not know which request failed.

use agentd_client::asked::RequestError;
use agentd_client::client::ClientError;
use agentd_client::turn::TurnError;
use agentd_faces::openai::failure::{Again, Failure};
use agentd_protocol::{Code, JobId};
use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

/// OpenAI's own clients do as it says.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
pub(super) const JOB: HeaderName = HeaderName::from_static("x-agentd-job");
/// When to ask again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why there is no answer, and what else is said of that.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(super) failure: Failure,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// Of a retry that can't be answered now, though its turn is there.
    pub(super) fn after_job(mut self, job: JobId) -> Self {
        self.failure.job = Some(job);
        self.after(&format!("was accepted as job {job}"))
    }

    /// Of a retry whose earlier attempts aren't known.
    pub(super) fn after_unknown(self) -> Self {
        self.after("may have been accepted: `agentctl jobs` has its job then")
    }

    /// Is it unknown whether the turn was taken?
    pub(super) fn is_unsure(&self) -> bool {
        self.failure.code == Code::OutcomeUnknown.name()
    }

    /// Whoever asks again finds the turn, if it was taken.
    pub(super) fn found_again(mut self) -> Self {
        (self.failure.status, self.failure.again) = (503, Again::Later);
        self.failure
            .message
            .push_str("; a retry of this request runs it once, a new request may run it again");
        self
    }

    /// Whoever asks no more has to know what became of the request.
    fn after(mut self, what: &str) -> Self {
        if self.failure.again == Again::Later {
            let more = format!("; an earlier attempt at this request {what}");
            self.failure.message.push_str(&more);
        }
        self
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            headers: Vec::new(),
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let parts = problem.into_parts();
        let code = match parts.code {
            "unauthorized" => "invalid_api_key",
            code => code,
        };
        let failure = if parts.retryable {
            Failure::later(parts.status, code, parts.sentence)
        } else {
            Failure::new(parts.status, code, parts.sentence)
        };
        Self {
            failure,
            headers: parts.headers,
        }
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(line) => Failure::refused(&line).into(),
            RequestError::Unknown { .. } => unknown(&error).into(),
            RequestError::Client(error) => error.into(),
            error @ (RequestError::Strange(_) | RequestError::NoAnswer(_)) => {
                Problem::from(error).into()
            }
        }
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unknown(_) => unknown(&error).into(),
            ClientError::TooMany(line) => Failure::refused(&line).into(),
            error => Problem::from(error).into(),
        }
    }
}

impl From<TurnError> for Refusal {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Refused(line) => Failure::refused(&line).into(),
            TurnError::Failed(line) => Failure::ended(&line).into(),
            TurnError::Unknown { .. } => unknown(&error).into(),
            TurnError::Strange(_) => Failure::new(424, "strange-answer", error.to_string()).into(),
            TurnError::Client(error) => error.into(),
        }
    }
}

/// It may have been accepted: whoever asks again without a key would run it twice.
fn unknown(error: &impl std::fmt::Display) -> Failure {
    Failure::new(424, Code::OutcomeUnknown.name(), error.to_string())
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { failure, headers } = self;
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let mut response = (status, Json(failure.body())).into_response();
        let all = response.headers_mut();
        let again = match failure.again {
            Again::Later => "true",
            Again::No => "false",
        };
        all.insert(SHOULD_RETRY, HeaderValue::from_static(again));
        if failure.again == Again::Later {
            all.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        let job = failure
            .job
            .map(|job| HeaderValue::from_str(&job.to_string()));
        if let Some(Ok(job)) = job {
            all.insert(JOB, job);
        }
        all.extend(headers);
        response
    }
}
