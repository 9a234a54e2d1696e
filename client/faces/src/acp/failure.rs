//! The daemon's errors as those of JSON-RPC.
//!
//! Owns which number stands for which code. What went wrong is always in `data`, in the daemon's own
//! words. Must not know which request failed.

use agentd_client::ClientError;
use agentd_protocol::Code;
use agentd_protocol::line::ErrorLine;
use serde_json::{Map, Value, json};

use super::wire::{AUTH_REQUIRED, OUTCOME_UNKNOWN, RESOURCE_NOT_FOUND};
use crate::face;
use crate::json_rpc::{self, Failure, INTERNAL_ERROR, INVALID_PARAMS};

/// The error of a turn, or of a request.
pub(super) fn of(error: &ErrorLine) -> Failure {
    let error = face::keyless(error);
    let number = match error.code {
        Code::UnknownSession => RESOURCE_NOT_FOUND,
        Code::AgentAuth => AUTH_REQUIRED,
        // What an interrupted turn had done may have taken effect.
        Code::OutcomeUnknown | Code::Interrupted => OUTCOME_UNKNOWN,
        code => json_rpc::refused(code),
    };
    let mut data = Map::new();
    data.insert("code".to_owned(), json!(error.code));
    data.insert("retryable".to_owned(), json!(error.retryable));
    if let Some(hint) = &error.hint {
        data.insert("hint".to_owned(), json!(hint));
    }
    if !error.choices.is_empty() {
        data.insert("choices".to_owned(), json!(error.choices));
    }
    if let Some(job) = error.turn.as_ref().and_then(|turn| turn.job) {
        data.insert("job".to_owned(), json!(job));
    }
    // Editors show the message alone, and these have to be acted on.
    let message = match (&error.hint, error.code) {
        (Some(hint), Code::AgentAuth) => format!("{}: {hint}", error.error),
        (_, Code::UnknownAgent) if !error.choices.is_empty() => {
            let choices = error.choices.join(", ");
            format!("{}: there are {choices}", error.error)
        }
        _ => error.error.clone(),
    };
    Failure {
        code: number,
        message,
        data: Some(Value::Object(data)),
    }
}

/// Of a session that this connection has not opened.
pub(super) fn unknown_session(session: &str) -> Failure {
    let shown: String = session.chars().take(200).collect();
    let message = format!(
        "there is no session `{shown}` here: make one by session/new, or open it by session/load"
    );
    Failure {
        data: Some(json!({"code": Code::UnknownSession, "retryable": false, "sessionId": shown})),
        ..Failure::new(RESOURCE_NOT_FOUND, message)
    }
}

/// Nobody serves us, and nothing has happened.
pub(super) fn unreachable(why: &ClientError) -> Failure {
    let hint = match why {
        ClientError::Unreachable { hint, .. } => hint.clone(),
        ClientError::TooMany(_)
        | ClientError::Draining
        | ClientError::OneShotFailed { .. }
        | ClientError::NotWritten(_)
        | ClientError::Unknown(_) => None,
    };
    Failure {
        data: Some(json!({"code": "unreachable", "retryable": true, "hint": hint})),
        ..Failure::new(INTERNAL_ERROR, face::sentence(why))
    }
}

/// Nobody answers any more.
pub(super) fn gone(why: &str) -> Failure {
    Failure {
        data: Some(json!({"code": "unreachable", "retryable": true})),
        ..Failure::new(INTERNAL_ERROR, why)
    }
}

/// A turn that was accepted, or may have been, and of which nobody tells any more.
pub(super) fn outcome_unknown(why: &str) -> Failure {
    let message = format!(
        "{why}, and what became of the prompt is not known: session/load shows it when the daemon is back"
    );
    Failure {
        data: Some(json!({"code": Code::OutcomeUnknown, "retryable": false})),
        ..Failure::new(OUTCOME_UNKNOWN, message)
    }
}

/// May the turn run all the same?
pub(super) fn is_unknown(failure: &Failure) -> bool {
    let code = failure.data.as_ref().map(|data| &data["code"]);
    code.is_some_and(|code| code == Code::OutcomeUnknown.name())
}

/// A field that can't be what it is.
pub(super) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(INVALID_PARAMS, message)
}

/// Is it the daemon's error of this code?
pub(super) fn is_code(failure: &Failure, code: Code) -> bool {
    let data = failure.data.as_ref();
    data.is_some_and(|data| data["code"] == json!(code))
}

/// Directories are whole paths, as the protocol has it.
pub(super) fn check_directory(field: &str, path: &str) -> Result<(), Failure> {
    match path.starts_with('/') {
        true => Ok(()),
        false => {
            let shown: String = path.chars().take(200).collect();
            Err(invalid(format!(
                "`{field}` is `{shown}`: expected an absolute path"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acp_failure_says_what_to_do() {
        let error: ErrorLine = serde_json::from_value(json!({"code": "agent-auth",
            "error": "nobody is logged in", "hint": "run `pi login`", "retryable": false, "job": "j4", "session": "s",
            "context": null, "agent": null, "provider": null, "model": null, "thinking": null, "usage": null, "api_calls": null}))
        .unwrap();
        let failure = of(&error);
        assert_eq!(failure.code, -32000);
        assert_eq!(failure.message, "nobody is logged in: run `pi login`");
        let data = json!({"code": "agent-auth", "retryable": false, "hint": "run `pi login`", "job": "j4"});
        assert_eq!(failure.data, Some(data));
        let error = json!({"code": "unknown-agent", "error": "there is no agent `x`", "choices": ["pi", "timmy"]});
        let failure = of(&serde_json::from_value(error).unwrap());
        assert_eq!(
            failure.message,
            "there is no agent `x`: there are pi, timmy"
        );
    }

    #[test]
    fn acp_failure_numbers_are_the_protocols() {
        for (code, number) in [
            ("unknown-session", -32002),
            ("unsupported", -32602),
            ("rate-limit", -32603),
            // acpx sends a prompt again at an internal error, which may run twice then.
            ("outcome-unknown", -32010),
            ("interrupted", -32010),
            ("from-the-future", -32603),
        ] {
            let error = json!({"code": code, "error": "no"});
            assert_eq!(of(&serde_json::from_value(error).unwrap()).code, number);
        }
    }
}
