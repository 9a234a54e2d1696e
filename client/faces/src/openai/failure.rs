//! Why there is no answer, in OpenAI's words.
//!
//! Owns statuses: clients decide by them whether they ask again, and a turn that was accepted must
//! not be asked for again. Must not know which route failed.

use agentd_protocol::line::ErrorLine;
use agentd_protocol::{Code, JobId};
use serde_json::{Value, json};

/// The agent took the turn, and failed: no client asks again by itself (RFC 4918's word for "what it
/// needed failed").
const FAILED: u16 = 424;

/// May the client ask again?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// It would be no use, or run a turn once more.
    No,
    /// Nothing happened, and later it may be possible; or asking again finds the turn.
    Later,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The HTTP status.
    pub status: u16,
    /// For programs: OpenAI's own where there is one, else agentd's.
    pub code: String,
    /// What was found, what was expected and what to do.
    pub message: String,
    /// The field that is wrong.
    pub param: Option<String>,
    /// May the client ask again?
    pub again: Again,
    /// The turn that failed.
    pub job: Option<JobId>,
}

impl Failure {
    /// That nobody asks again.
    pub fn new(status: u16, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.into(),
            message: message.into(),
            param: None,
            again: Again::No,
            job: None,
        }
    }

    /// A field is wrong.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(400, "invalid_value", message)
        }
    }

    /// Nothing has this name.
    pub fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(404, code, message)
    }

    /// Nothing happened: later it may be possible.
    pub fn later(status: u16, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            again: Again::Later,
            ..Self::new(status, code, message)
        }
    }

    /// The same about a field.
    #[must_use]
    pub fn about(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }

    /// The daemon refused: nothing happened.
    #[must_use]
    pub fn refused(line: &ErrorLine) -> Self {
        let message = sentence(line);
        let code = line.code;
        match code {
            Code::UnknownAgent | Code::NoAgent => {
                Self::not_found("model_not_found", message).about("model")
            }
            Code::Ambiguous => {
                let choices = line.choices.join("`, `");
                let message = match choices.as_str() {
                    "" => message,
                    choices => format!("{message}; expected one of `{choices}`"),
                };
                Self::invalid("model", message)
            }
            Code::UnknownSession => Self::not_found("session_not_found", message),
            Code::UnknownJob | Code::UnknownQuestion => Self::not_found("not_found", message),
            Code::Forbidden => Self::new(403, code.name(), message),
            Code::FrameTooLong => Self::new(413, "request_too_large", message),
            Code::QueueFull => Self::later(429, "queue_full", message),
            Code::Draining
            | Code::TooManyConnections
            | Code::NeedsDaemon
            | Code::StoreFailed
            | Code::DiskFull
            | Code::SessionBusy => Self::later(503, code.name(), message),
            // It may have been accepted.
            Code::OutcomeUnknown => Self::new(FAILED, code.name(), message),
            Code::Internal => Self::new(FAILED, code.name(), message),
            other if other.retryable() => Self::later(503, other.name(), message),
            // Clients take 409 for a reason to ask again, so conflicts are wrong requests, too.
            other => Self::new(400, other.name(), message),
        }
    }

    /// A turn that was accepted, and failed.
    #[must_use]
    pub fn ended(line: &ErrorLine) -> Self {
        let message = sentence(line);
        let failure = match line.code {
            Code::ContextOverflow => Self::new(400, "context_length_exceeded", message),
            // Nothing of it ran: asked for like this, it never will.
            Code::InvalidRequest | Code::Unsupported => Self::new(400, line.code.name(), message),
            other => Self::new(FAILED, other.name(), message),
        };
        Self {
            job: line.turn.as_ref().and_then(|turn| turn.job),
            ..failure
        }
    }

    /// What kind of a failure it is, in OpenAI's words.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self.status {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            FAILED => "agent_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// As it is told, also in the middle of a stream.
    #[must_use]
    pub fn body(&self) -> Value {
        let Self {
            message,
            code,
            param,
            ..
        } = self;
        json!({"error": {"message": message, "type": self.kind(), "param": param, "code": code}})
    }
}

/// What happened, and what to do.
fn sentence(line: &ErrorLine) -> String {
    match &line.hint {
        Some(hint) => format!("{}; {hint}", line.error),
        None => line.error.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::line::TurnFacts;

    fn line(code: Code) -> ErrorLine {
        ErrorLine {
            code,
            error: "why".to_owned(),
            hint: None,
            choices: Vec::new(),
            retryable: code.retryable(),
            turn: Some(TurnFacts {
                job: Some(JobId(3)),
                ..TurnFacts::default()
            }),
            seq: None,
            replayed: false,
        }
    }

    /// What OpenAI's own clients, and those made like them, ask again at.
    fn is_asked_again(status: u16) -> bool {
        matches!(status, 408 | 409 | 429 | 500..)
    }

    #[test]
    fn failure_of_an_accepted_turn_is_never_retried() {
        for code in Code::ALL {
            let failure = Failure::ended(&line(*code));
            assert!(!is_asked_again(failure.status), "{code}: {failure:?}");
            assert_eq!((failure.again, failure.job), (Again::No, Some(JobId(3))));
        }
    }

    #[test]
    fn failure_before_acceptance_is_retried_where_useful() {
        for code in Code::ALL {
            let failure = Failure::refused(&line(*code));
            let again = failure.again == Again::Later;
            assert_eq!(is_asked_again(failure.status), again, "{code}: {failure:?}");
            assert_eq!(failure.body()["error"]["message"], "why");
        }
        assert_eq!(Failure::refused(&line(Code::QueueFull)).status, 429);
        assert_eq!(
            Failure::refused(&line(Code::OutcomeUnknown)).again,
            Again::No
        );
    }
}
