//! What an agent's error means.
//!
//! Owns the way from a JSON-RPC error to a code. ACP has one of its own, for a missing login; of a
//! provider's refusal only the words are left in most agents.

use agentd_core::worker::Failure;
use agentd_protocol::Code;

use super::{Acp, wire};
use crate::adapter::object::Object;
use crate::adapter::refusal;

/// Longest sentence of an agent's that is passed on, in characters.
const SENTENCE: usize = 4096;
/// What is said of something that isn't there.
const ABSENT: &[&str] = &[
    "not found",
    "no such",
    "unknown session",
    "does not exist",
    "doesn't exist",
    "no longer exists",
    "no conversation found",
    "no rollout found",
    "no session found",
    "no previous sessions found",
    "invalid session identifier",
    "invalid session id",
];
/// What a session is called.
const SESSION: &[&str] = &["session", "conversation", "thread", "resource"];
/// opencode 1.18.33 says no more of a session that isn't there: of other failures it names the error.
const NAMELESS: (&str, &str) = (
    "Internal error: OpenCode service failure",
    r#"{"service":"session"}"#,
);

impl Acp {
    /// An error of this agent's as a failure.
    pub(super) fn failure(&self, error: &Object<'_>) -> Failure {
        let number: i64 = error.get("code").unwrap_or(0);
        let said = sentence(error);
        let code = self.told(error).unwrap_or_else(|| code(number, &said));
        let hint = (code == Code::AgentAuth).then(|| match self.logins.as_slice() {
            [] => "log in with the agent's own program".to_owned(),
            logins => format!("log in with the agent's own program: {}", logins.join(", ")),
        });
        Failure {
            hint,
            ..Failure::new(code, format!("{}: {said}", self.shown()))
        }
    }

    /// What an agentd in the agent's place says of its model's provider. Its other codes are about
    /// its own processes, and would be taken for those of this one.
    fn told(&self, error: &Object<'_>) -> Option<Code> {
        if self.name.as_deref() != Some("agentd") {
            return None;
        }
        let code: Code = error.object("data")?.get("code")?;
        let known = [
            Code::AgentAuth,
            Code::ContextOverflow,
            Code::NoModel,
            Code::RateLimit,
        ];
        known.contains(&code).then_some(code)
    }
}

/// Is the session that was to be reopened not there? Agents have no common word for it. Whatever else
/// went wrong, the session may be intact.
pub(super) fn is_gone(error: &Object<'_>) -> bool {
    let number: i64 = error.get("code").unwrap_or(0);
    let said = sentence(error);
    match code(number, &said) {
        Code::AgentFailed => {}
        _ => return false,
    }
    let nameless = error.string("message").as_deref() == Some(NAMELESS.0)
        && error.raw("data").is_some_and(|data| {
            let bare = data.split_ascii_whitespace().collect::<String>();
            bare == NAMELESS.1
        });
    if number == wire::RESOURCE_NOT_FOUND || nameless {
        return true;
    }
    // Both in one part of the sentence: "could not load the session: /w does not exist" is about `/w`.
    let words = said.to_lowercase();
    let says = |part: &str, signs: &[&str]| signs.iter().any(|sign| part.contains(sign));
    let mut parts = words
        .split([':', ';', '\n'])
        .flat_map(|part| part.split(". "));
    number != wire::METHOD_NOT_FOUND && parts.any(|part| says(part, ABSENT) && says(part, SESSION))
}

/// The message, and what stands beside it where that says more.
fn sentence(error: &Object<'_>) -> String {
    let message = error.string("message").unwrap_or_default();
    let data = error.object("data");
    let beside = ["details", "message", "error"];
    let detail = error.string("data").or_else(|| {
        let data = data?;
        beside.iter().find_map(|name| data.string(name))
    });
    let whole = match detail {
        Some(detail) if !message.contains(&detail) => format!("{message}: {detail}"),
        _ => message,
    };
    match whole.is_empty() {
        true => "it failed without saying why".to_owned(),
        false => whole.chars().take(SENTENCE).collect(),
    }
}

fn code(number: i64, said: &str) -> Code {
    match number {
        wire::AUTH_REQUIRED => Code::AgentAuth,
        // Some agents pass on the provider's status as the error's number.
        _ => refusal::ANY.code(&format!("{number}: {said}")),
    }
}
