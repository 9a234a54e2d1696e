//! The error codes: stable, kebab-case, for programs.
//!
//! Owns the closed list. What each means is in PROTOCOL.md, which a test compares with this file.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($variant:ident $name:literal $retryable:literal,)*) => {
        /// Why a request or a job failed.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = concat!("`", $name, "`")] #[serde(rename = $name)] $variant,)*
            /// A code this version doesn't know, from a newer peer.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl Code {
            /// Every code that this version can send.
            pub const ALL: &[Code] = &[$(Code::$variant),*];

            /// The name on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* Code::Unknown => "unknown" }
            }

            /// May the same request succeed later, unchanged?
            #[must_use]
            pub const fn retryable(self) -> bool {
                // Nobody knows that asking again would help.
                match self { $(Code::$variant => $retryable,)* Code::Unknown => false }
            }
        }
    };
}

codes! {
    FrameTooLong "frame-too-long" false,
    BadUtf8 "bad-utf8" false,
    BadJson "bad-json" false,
    NotAnObject "not-an-object" false,
    Truncated "truncated" false,
    UnknownCommand "unknown-command" false,
    InvalidRequest "invalid-request" false,
    Ambiguous "ambiguous" false,
    UnknownAgent "unknown-agent" false,
    NoAgent "no-agent" false,
    UnknownSession "unknown-session" false,
    UnknownJob "unknown-job" false,
    UnknownQuestion "unknown-question" false,
    UnknownWebhook "unknown-webhook" false,
    AlreadyAnswered "already-answered" false,
    SessionBusy "session-busy" true,
    SessionIdle "session-idle" false,
    SessionConflict "session-conflict" false,
    QueueFull "queue-full" true,
    OutcomeUnknown "outcome-unknown" true,
    TooManyConnections "too-many-connections" true,
    Draining "draining" true,
    IdempotencyConflict "idempotency-conflict" false,
    Unsupported "unsupported" false,
    Forbidden "forbidden" false,
    ContextLost "context-lost" false,
    AgentFailed "agent-failed" false,
    AgentAuth "agent-auth" false,
    NoModel "no-model" false,
    RateLimit "rate-limit" true,
    ContextOverflow "context-overflow" false,
    OutputLimit "output-limit" false,
    WorkerStartFailed "worker-start-failed" false,
    WorkerExited "worker-exited" false,
    WorkerUnresponsive "worker-unresponsive" false,
    CrashLooped "crash-looped" false,
    Interrupted "interrupted" false,
    Timeout "timeout" false,
    Expired "expired" true,
    DiskFull "disk-full" true,
    StoreFailed "store-failed" true,
    NeedsDaemon "needs-daemon" false,
    CursorExpired "cursor-expired" false,
    CursorInvalid "cursor-invalid" false,
    Internal "internal" false,
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_from_a_newer_peer_is_unknown() {
        assert_eq!(
            serde_json::from_str::<Code>("\"from-the-future\"").unwrap(),
            Code::Unknown
        );
        for code in Code::ALL {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{}\"", code.name()));
            assert_eq!(serde_json::from_str::<Code>(&json).unwrap(), *code);
        }
    }
}
