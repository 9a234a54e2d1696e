//! What a program that called us learns from our exit code.
//!
//! Owns the table from outcomes to codes. Pure; must not know how an outcome came about.

use agentd_protocol::line::Stop;
use agentd_protocol::request::Wait;
use agentd_protocol::{Code, Line};
use serde_json::Value;

use agentd_client::asked::RequestError;
use agentd_client::client::ClientError;
use agentd_client::health::Unwell;
use agentd_client::jobs::Collected;

/// The exit codes of `agentctl`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("exit code {}", *self as u8)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The turn failed.
    Failed = 1,
    /// The command or request was wrong.
    Usage = 2,
    /// Refused; nothing happened.
    Refused = 3,
    /// No daemon, and no fallback.
    Unreachable = 69,
    /// A daemon is there and doesn't answer.
    Hung = 70,
    /// A daemon is there and was stopped, as by SIGSTOP.
    Stopped = 71,
    /// Ask again with the printed key.
    Unknown = 75,
    /// Something has to be configured first.
    Configuration = 78,
    /// The turn, or the wait for it, took too long.
    Timeout = 124,
    /// Ctrl-C.
    Interrupted = 130,
    /// SIGTERM, while a turn of the daemon was shown, which goes on.
    Terminated = 143,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that ended early, and has said why: `?` leaves by it.
impl From<Exit> for std::io::Error {
    fn from(exit: Exit) -> Self {
        Self::other(exit)
    }
}

/// Was the request accepted before it failed?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// No: nothing happened.
    Refused,
    /// Yes: the turn has a final line.
    Accepted,
}

/// The exit code of a final line.
#[must_use]
pub fn of_line(line: &Line) -> Exit {
    match line {
        Line::MessageEnd(end) if matches!(end.stop, Stop::Cancelled | Stop::Refusal) => {
            Exit::Failed
        }
        Line::Error(error) => {
            let job = error.turn.as_ref().and_then(|turn| turn.job);
            of_code(
                error.code,
                if job.is_some() {
                    Stage::Accepted
                } else {
                    Stage::Refused
                },
            )
        }
        _ => Exit::Done,
    }
}

/// The exit code of an error.
#[must_use]
pub const fn of_code(code: Code, stage: Stage) -> Exit {
    match (code, stage) {
        (Code::OutcomeUnknown, _) => Exit::Unknown,
        (Code::Timeout, _) => Exit::Timeout,
        (Code::NoAgent | Code::UnknownAgent | Code::AgentAuth | Code::NoModel, _) => {
            Exit::Configuration
        }
        (Code::Internal | Code::Unknown, _) | (_, Stage::Accepted) => Exit::Failed,
        (Code::NeedsDaemon, Stage::Refused) => Exit::Unreachable,
        (
            Code::FrameTooLong
            | Code::BadUtf8
            | Code::BadJson
            | Code::NotAnObject
            | Code::Truncated
            | Code::UnknownCommand
            | Code::InvalidRequest
            | Code::Ambiguous
            | Code::Unsupported
            | Code::UnknownSession
            | Code::UnknownJob
            | Code::UnknownQuestion
            | Code::UnknownWebhook,
            Stage::Refused,
        ) => Exit::Usage,
        (_, Stage::Refused) => Exit::Refused,
    }
}

/// The exit code of a conversation that failed.
#[must_use]
pub const fn of_client_error(error: &ClientError) -> Exit {
    match error {
        ClientError::Unreachable { .. } => Exit::Unreachable,
        ClientError::Draining | ClientError::TooMany(_) => Exit::Refused,
        ClientError::OneShotFailed { exit: Some(78), .. } => Exit::Configuration,
        // The state can't be written at the moment.
        ClientError::OneShotFailed { exit: Some(74), .. } => Exit::Refused,
        ClientError::OneShotFailed { .. } => Exit::Unreachable,
        // Too long: the only request that can't be written down.
        ClientError::NotWritten(_) => Exit::Usage,
        ClientError::Unknown(_) => Exit::Unknown,
    }
}

/// The exit code of a request without a result.
#[must_use]
pub fn of_request_error(error: &RequestError) -> Exit {
    match error {
        RequestError::Refused(line) => of_code(line.code, Stage::Refused),
        RequestError::Strange(_) => Exit::Failed,
        RequestError::NoAnswer(_) => Exit::Unreachable,
        RequestError::Unknown { .. } => Exit::Unknown,
        RequestError::Client(error) => of_client_error(error),
    }
}

/// The exit code of a daemon that gave no status.
#[must_use]
pub fn of_unwell(unwell: &Unwell) -> Exit {
    match unwell {
        Unwell::Hung { .. } => Exit::Hung,
        Unwell::Stopped { .. } => Exit::Stopped,
        Unwell::Unreached { .. } | Unwell::Lost { .. } => Exit::Unreachable,
        Unwell::Client(error) => of_client_error(error),
        Unwell::Refused(line) => of_code(line.code, Stage::Refused),
        Unwell::There { .. } => match unwell.name() {
            "hung" => Exit::Hung,
            "stopped" => Exit::Stopped,
            "draining" | "full" => Exit::Refused,
            "down" => Exit::Unreachable,
            _ => Exit::Failed,
        },
        Unwell::Strange(_) => Exit::Failed,
    }
}

/// The exit code of results that were collected.
#[must_use]
pub fn of_collected(collected: &Collected, wait: Wait) -> Exit {
    let failed = |line: &Value| {
        let is = |member: &str, word: &str| line.get(member).and_then(Value::as_str) == Some(word);
        // As for `send`: what was cancelled or refused isn't what was asked for.
        is("type", "error") || is("stop", "cancelled") || is("stop", "refusal")
    };
    let enough = match wait {
        Wait::All => collected.pending.is_empty(),
        Wait::Any => !collected.results.is_empty(),
    };
    if collected.results.iter().any(failed) {
        Exit::Failed
    } else if enough {
        Exit::Done
    } else {
        Exit::Timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_is_known_for_each_error_code() {
        use Exit::{
            Configuration as C, Failed as F, Refused as R, Timeout as T, Unknown as X,
            Unreachable as D, Usage as U,
        };
        let table = [
            (Code::InvalidRequest, U, F),
            (Code::UnknownCommand, U, F),
            (Code::Ambiguous, U, F),
            (Code::Unsupported, U, F),
            (Code::UnknownJob, U, F),
            (Code::FrameTooLong, U, F),
            (Code::SessionBusy, R, F),
            (Code::SessionIdle, R, F),
            (Code::SessionConflict, R, F),
            (Code::QueueFull, R, F),
            (Code::TooManyConnections, R, F),
            (Code::Draining, R, F),
            (Code::IdempotencyConflict, R, F),
            (Code::Forbidden, R, F),
            (Code::ContextLost, R, F),
            (Code::CrashLooped, R, F),
            (Code::WorkerStartFailed, R, F),
            (Code::DiskFull, R, F),
            (Code::StoreFailed, R, F),
            (Code::NeedsDaemon, D, F),
            (Code::NoAgent, C, C),
            (Code::UnknownAgent, C, C),
            (Code::AgentAuth, C, C),
            (Code::NoModel, C, C),
            (Code::Timeout, T, T),
            (Code::OutcomeUnknown, X, X),
            (Code::AgentFailed, R, F),
            (Code::RateLimit, R, F),
            (Code::WorkerExited, R, F),
            (Code::Interrupted, R, F),
            (Code::Expired, R, F),
            (Code::Internal, F, F),
            (Code::Unknown, F, F),
        ];
        for (code, refused, accepted) in table {
            assert_eq!(of_code(code, Stage::Refused), refused, "{code}");
            assert_eq!(of_code(code, Stage::Accepted), accepted, "{code}");
        }
    }

    #[test]
    fn exit_of_an_unready_one_shot_says_why() {
        for (code, exit) in [
            (Some(74), Exit::Refused),
            (Some(78), Exit::Configuration),
            (Some(1), Exit::Unreachable),
            (None, Exit::Unreachable),
        ] {
            let error = "x".to_owned();
            let failed = ClientError::OneShotFailed {
                error,
                exit: code,
                told: false,
                why: None,
            };
            assert_eq!(of_client_error(&failed), exit, "{code:?}");
        }
    }

    #[test]
    fn exit_of_a_cancelled_or_refused_turn_fails() {
        let line = |json: &str| serde_json::from_str::<Line>(json).unwrap();
        let exit = |json: &str| of_line(&line(json));
        assert_eq!(
            exit(r#"{"type":"message_end","job":"j1","stop":"end_turn"}"#),
            Exit::Done
        );
        assert_eq!(
            exit(r#"{"type":"message_end","job":"j1","stop":"max_tokens"}"#),
            Exit::Done
        );
        assert_eq!(
            exit(r#"{"type":"message_end","job":"j1","stop":"cancelled"}"#),
            Exit::Failed
        );
        assert_eq!(
            exit(r#"{"type":"message_end","job":"j1","stop":"refusal"}"#),
            Exit::Failed
        );
        assert_eq!(
            exit(r#"{"type":"error","code":"session-busy","error":"x"}"#),
            Exit::Refused
        );
        assert_eq!(
            exit(r#"{"type":"error","code":"worker-exited","error":"x","job":"j1"}"#),
            Exit::Failed
        );
    }

    #[test]
    fn exit_of_results_is_1_or_124() {
        let done = serde_json::json!({"type": "message_end", "job": "j1"});
        let failed = serde_json::json!({"type": "error", "job": "j2"});
        let exit = |results: &[&Value], pending: &[u64], wait| {
            let collected = Collected {
                results: results.iter().map(|result| (*result).clone()).collect(),
                pending: pending
                    .iter()
                    .map(|job| agentd_protocol::JobId(*job))
                    .collect(),
            };
            of_collected(&collected, wait)
        };
        assert_eq!(exit(&[&done], &[], Wait::All), Exit::Done);
        assert_eq!(exit(&[&done, &failed], &[], Wait::All), Exit::Failed);
        assert_eq!(exit(&[&done], &[3], Wait::All), Exit::Timeout);
        assert_eq!(exit(&[&failed], &[3], Wait::All), Exit::Failed);
        assert_eq!(exit(&[&done], &[3], Wait::Any), Exit::Done);
        assert_eq!(exit(&[], &[3], Wait::Any), Exit::Timeout);
        for stop in ["cancelled", "refusal"] {
            let stopped = serde_json::json!({"type": "message_end", "job": "j1", "stop": stop});
            assert_eq!(exit(&[&done, &stopped], &[], Wait::All), Exit::Failed);
        }
    }
}
