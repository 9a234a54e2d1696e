//! What went wrong, from the errors of `genai` and those inside them.
//!
//! Owns where a request failed. Must not know what that means (`failover` does).

use std::error::Error as StdError;
use std::time::SystemTime;

use genai::webc::StreamTimeout;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::frames::Frames;
use crate::model::http::chain;
use crate::model::provider_error::{self, ErrorDetails};
use crate::model::{FailedAt, Failure, Usage};

impl Failure {
    /// A failure of which only the place and the words are known.
    pub(crate) fn at(at: FailedAt, text: String) -> Self {
        Self {
            at,
            code: None,
            text,
            retry_after: None,
            usage: Usage::default(),
        }
    }

    fn told(at: FailedAt, told: ErrorDetails) -> Self {
        Self {
            at,
            code: told.code,
            text: told.text,
            retry_after: told.retry_after,
            usage: Usage::default(),
        }
    }

    /// The same, fit to be shown.
    pub(super) fn without(mut self, key: Option<&str>) -> Self {
        self.text = provider_error::shown(&self.text, key);
        self.code = self.code.map(|code| provider_error::shown(&code, key));
        self
    }
}

/// Reads an error of `genai`.
pub(super) fn of(error: genai::Error, frames: &Frames) -> Failure {
    let mut failure = match error {
        // What happens on the wire is wrapped, and the wrapping says nothing.
        genai::Error::WebStream { error, .. } => inside(error),
        http @ genai::Error::HttpError { .. } => status(http),
        genai::Error::ChatResponse { body, .. } => of_stream(&body),
        genai::Error::StreamParse { serde_error, .. } => match &frames.failed {
            // The crate stumbles over what the frame says, and tells only that it did.
            Some(error) => of_stream(error),
            None => malformed(&serde_error),
        },
        genai::Error::SerdeJson(error) => malformed(&error),
        genai::Error::JsonValueExt(error) => malformed(&error),
        genai::Error::InvalidJsonResponseElement { info } => Failure::at(
            FailedAt::Malformed,
            format!("the answer can't be read: {info}"),
        ),
        other => Failure::at(FailedAt::Request, other.to_string()),
    };
    failure.usage = frames.usage;
    failure
}

/// What a provider says in the middle of its answer.
pub(super) fn of_stream(error: &serde_json::Value) -> Failure {
    Failure::told(FailedAt::Stream, provider_error::error(error))
}

/// Nothing came.
pub(super) fn never_began() -> Failure {
    let why = "the provider didn't begin to answer in time";
    Failure::at(FailedAt::TimedOut, why.to_owned())
}

/// Nothing more came.
pub(super) fn stopped() -> Failure {
    let why = "the provider stopped in the middle of its answer";
    Failure::at(FailedAt::TimedOut, why.to_owned())
}

/// Too much came.
pub(super) fn too_long() -> Failure {
    let why = "the answer is longer than 32 MiB, which no model says";
    Failure::at(FailedAt::Malformed, why.to_owned())
}

pub(super) fn malformed(error: &dyn StdError) -> Failure {
    let why = format!("the answer can't be read: {}", chain(error));
    Failure::at(FailedAt::Malformed, why)
}

/// Nothing more can be read of an answer.
pub(super) fn broken(error: std::io::Error) -> Failure {
    match error.into_inner() {
        Some(error) => inside(error),
        None => stopped(),
    }
}

fn inside(error: genai::BoxError) -> Failure {
    let error = match error.downcast::<genai::Error>() {
        Ok(error) => return status(*error),
        Err(error) => error,
    };
    let error = match error.downcast::<reqwest::Error>() {
        // Its URL may hold a password.
        Ok(error) => return transport(&error.without_url()),
        Err(error) => error,
    };
    match error.downcast_ref::<StreamTimeout>() {
        Some(StreamTimeout::Headers) => never_began(),
        Some(StreamTimeout::Read) => stopped(),
        None => malformed(&*error),
    }
}

fn status(error: genai::Error) -> Failure {
    let genai::Error::HttpError {
        status,
        body,
        headers,
        ..
    } = error
    else {
        return Failure::at(FailedAt::Request, error.to_string());
    };
    answered(status, &headers, &body)
}

/// An answer whose status is a failure.
pub(super) fn answered(status: StatusCode, headers: &HeaderMap, body: &str) -> Failure {
    let mut told = provider_error::body(body);
    if told.text.is_empty() {
        told.text = status.to_string();
    }
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let wait = provider_error::header_wait(header, SystemTime::now());
    // A header is made for programs; a time within the words may be rounded.
    told.retry_after = wait.or(told.retry_after);
    Failure::told(FailedAt::Status(status.as_u16()), told)
}

pub(super) fn transport(error: &reqwest::Error) -> Failure {
    let at = if has_bad_certificate(error) {
        FailedAt::Certificate
    } else if is_refused(error) {
        FailedAt::Refused
    } else if error.is_timeout() {
        FailedAt::TimedOut
    } else if error.is_builder() {
        FailedAt::Request
    } else {
        FailedAt::Transport
    };
    Failure::at(at, chain(error))
}

/// The causes of an error, those inside of I/O errors too, which `source` passes over.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    let mut found = vec![error];
    let mut at = 0;
    while let Some(&next) = found.get(at) {
        let inner = next
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        match inner {
            Some(inner) => found.push(inner),
            None => found.extend(next.source()),
        }
        at += 1;
    }
    found
}

fn has_bad_certificate(error: &reqwest::Error) -> bool {
    causes(error).iter().any(|cause| {
        matches!(
            cause.downcast_ref::<rustls::Error>(),
            Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
        )
    })
}

fn is_refused(error: &reqwest::Error) -> bool {
    causes(error).iter().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    })
}
