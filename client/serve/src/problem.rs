//! What a caller gets instead of an answer: RFC 9457, and which status each of the protocol's codes is.
//!
//! Owns that table. Must not know which request failed.

use agentd_client::asked::RequestError;
use agentd_client::client::ClientError;
use agentd_client::connection::LostError;
use agentd_protocol::Code;
use agentd_protocol::line::ErrorLine;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

/// When to ask again, where nothing better is known.
const RETRY_AFTER: &str = "1";
/// Whoever asks may be a program on another machine.
const START_IT_THERE: &str = "start `agentd` where this is served, as `agentctl start` does";
/// Of RFC 9457.
const KIND: &str = "application/problem+json";

/// Why there is no answer. `code` is for programs, `detail` for people.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// The status in words.
    title: &'static str,
    /// The status.
    pub(crate) status: u16,
    /// A code of the protocol, or one of HTTP's own; it never changes its meaning.
    pub(crate) code: &'static str,
    /// What was found, and what was expected.
    detail: Box<str>,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Box<str>>,
    /// May the same request succeed later?
    retryable: bool,
    #[serde(flatten)]
    names: Box<Names>,
    #[serde(skip)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What few codes name.
#[derive(Clone, Default, Debug, Serialize, JsonSchema)]
struct Names {
    /// The agents that could be meant, of `ambiguous`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<String>,
    /// The outcome is unknown: asked again with these keys, nothing runs twice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    idempotency_keys: Vec<String>,
}

/// What a problem says.
pub(crate) struct Parts {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    /// What was found, what was expected and what to do.
    pub(crate) sentence: String,
    pub(crate) retryable: bool,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            code,
            detail: detail.into().into(),
            hint: None,
            retryable: false,
            names: Box::default(),
            headers: Vec::new(),
        }
    }

    /// Of the protocol.
    pub(crate) fn of(code: Code, detail: impl Into<String>) -> Self {
        let problem = Self::new(status(code), code.name(), detail);
        if code.retryable() {
            problem.later()
        } else {
            problem
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into());
        self
    }

    /// The same request may succeed soon.
    pub(crate) fn later(mut self) -> Self {
        self.retryable = true;
        self.header(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER))
    }

    /// Do clients ask the same again by themselves, after this or because they broke it off?
    pub(crate) fn may_be_asked_again(&self) -> bool {
        let is_late = self.status == StatusCode::REQUEST_TIMEOUT.as_u16();
        self.retryable || is_late || self.code == Code::Truncated.name()
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// With the keys that make asking again safe.
    pub(crate) fn keys(mut self, keys: Vec<String>) -> Self {
        self.names.idempotency_keys = keys;
        self
    }

    /// What it says, for whoever says it in other words.
    pub(crate) fn into_parts(self) -> Parts {
        let sentence = match self.hint {
            Some(hint) => format!("{}; {hint}", self.detail),
            None => self.detail.into(),
        };
        Parts {
            status: self.status,
            code: self.code,
            sentence,
            retryable: self.retryable,
            headers: self.headers,
        }
    }

    /// As a whole answer, where there is no request that it could be the answer of. Nothing follows.
    pub(crate) fn alone(&self) -> Vec<u8> {
        let body = self.body();
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {KIND}\r\nContent-Length: {}\r\n\
             X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n",
            self.status,
            self.title,
            body.len()
        )
        .into_bytes();
        for (name, value) in &self.headers {
            let parts = [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"];
            head.extend(parts.concat());
        }
        [&head, &b"\r\n"[..], &body].concat()
    }

    /// Strings and numbers: it always can be written down.
    fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Nobody serves: nothing happened.
    pub(crate) fn no_daemon(detail: impl Into<String>, hint: Option<String>) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "no-daemon", detail).later();
        problem.hint = hint.map(Into::into);
        problem
    }
}

impl From<&ErrorLine> for Problem {
    fn from(line: &ErrorLine) -> Self {
        let mut problem = Self::of(line.code, line.error.clone());
        problem.hint = line.hint.as_deref().map(Into::into);
        problem.names.choices.clone_from(&line.choices);
        problem
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unreachable { error, hint } => {
                let hint = hint.unwrap_or_else(|| START_IT_THERE.to_owned());
                Self::no_daemon(error, Some(hint))
            }
            ClientError::Draining => Self::of(Code::Draining, error.to_string()),
            ClientError::TooMany(line) => Self::from(&*line),
            ClientError::OneShotFailed { error, .. } => Self::no_daemon(error, None),
            // All that is asked here has its keys already: only what is too long isn't written.
            ClientError::NotWritten(error) => Self::of(Code::FrameTooLong, error.to_string()),
            ClientError::Unknown(lost) => Self::of(Code::OutcomeUnknown, lost.to_string()),
        }
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(line) => Self::from(&*line),
            RequestError::Strange(_) => {
                Self::new(StatusCode::BAD_GATEWAY, "strange-answer", error.to_string())
            }
            RequestError::NoAnswer(LostError::Late(_)) => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "no-answer", error.to_string()).later()
            }
            RequestError::NoAnswer(lost) => Self::no_daemon(lost.to_string(), None),
            RequestError::Unknown { ref keys, .. } => {
                let keys = keys.clone();
                Self::of(Code::OutcomeUnknown, error.to_string()).keys(keys)
            }
            RequestError::Client(error) => Self::from(error),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = std::mem::take(&mut self.headers);
        let mut response = (status, self.body()).into_response();
        let kind = HeaderValue::from_static(KIND);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response.headers_mut().extend(headers);
        response
    }
}

/// The status of a refusal. What isn't in the table was understood, and refused.
pub(crate) fn status(code: Code) -> StatusCode {
    let otherwise = match code.retryable() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::UNPROCESSABLE_ENTITY,
    };
    listed(code).unwrap_or(otherwise)
}

/// The table. Codes that a turn ends with are results, and have no status.
fn listed(code: Code) -> Option<StatusCode> {
    Some(match code {
        Code::BadUtf8 | Code::BadJson | Code::NotAnObject | Code::Truncated => {
            StatusCode::BAD_REQUEST
        }
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::UnknownSession | Code::UnknownJob | Code::UnknownQuestion => StatusCode::NOT_FOUND,
        Code::AlreadyAnswered
        | Code::SessionBusy
        | Code::SessionIdle
        | Code::SessionConflict
        | Code::ContextLost
        | Code::CursorInvalid => StatusCode::CONFLICT,
        Code::CursorExpired => StatusCode::GONE,
        Code::FrameTooLong => StatusCode::PAYLOAD_TOO_LARGE,
        Code::InvalidRequest
        | Code::Ambiguous
        | Code::UnknownAgent
        | Code::NoAgent
        | Code::IdempotencyConflict
        | Code::UnknownWebhook
        | Code::Unsupported => StatusCode::UNPROCESSABLE_ENTITY,
        Code::QueueFull => StatusCode::TOO_MANY_REQUESTS,
        Code::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        Code::TooManyConnections | Code::Draining | Code::NeedsDaemon | Code::StoreFailed => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::OutcomeUnknown => StatusCode::GATEWAY_TIMEOUT,
        Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_documentation_is_this_one() {
        let text = include_str!("../README.md");
        let documented = |code: &str| {
            let cell = format!("`{code}`");
            let row = text.lines().find(|line| {
                line.strip_prefix("| ").is_some_and(|rest| {
                    rest.split_once('|')
                        .is_some_and(|(_, codes)| codes.contains(&cell))
                })
            });
            row.and_then(|row| row.get(2..5)?.parse::<u16>().ok())
        };
        for code in Code::ALL {
            let expected = listed(*code).map(|status| status.as_u16());
            assert_eq!(documented(code.name()), expected, "{code}");
        }
    }

    #[test]
    fn problem_of_an_unknown_outcome_names_the_keys() {
        let lost = RequestError::Unknown {
            lost: LostError::Ended,
            keys: vec!["k".to_owned()],
        };
        let problem = Problem::from(lost);
        assert_eq!((problem.status, problem.retryable), (504, true));
        assert_eq!(problem.names.idempotency_keys, ["k"]);
    }
}
