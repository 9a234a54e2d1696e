//! What kind of failure it was, by what the provider said.
//!
//! Owns the signals, in the order in which they are trusted. Pure. Must not decide what follows
//! from a class (`policy` does).

use super::Class;
use crate::model::{FailedAt, Failure, Reply, Stop};
use crate::provider::Provider;

/// A reply that is longer says more than no.
const LONGEST_REFUSAL: usize = 400;

/// Codes and words of refusals. Phrases that ordinary answers may have are not among them.
const REFUSAL_CODES: &[&str] = &[
    "content_filter",
    "content_policy_violation",
    "responsibleaipolicyviolation",
    "data_inspection_failed",
    "guardrail_intervened",
    "prohibited_content",
    "refusal",
    "1301",
];
const REFUSAL_WORDS: &[&str] = &[
    "flagged for possible cybersecurity risk",
    "violates our usage policies",
    "violating our usage polic",
    "responsibleaipolicyviolation",
    "content_filter",
    "content exists risk",
    "new_sensitive",
    "considered high risk",
];

const OVERFLOW_CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_context_window_exceeded",
    "context_window_exceeded",
    "1261",
];
/// How houses and servers say that a conversation is too long: each line is one of them.
const OVERFLOW_WORDS: &[&str] = &[
    "maximum context length",
    "exceeds the context window",
    "context length exceeded",
    "context_length_exceeded",
    "prompt is too long",
    "prompt too long",
    "exceed context limit",
    "exceeds the maximum number of tokens",
    "maximum prompt length is",
    "reduce the length of the messages",
    "exceeds the available context size",
    "greater than the context length",
    "exceeds the context length",
    "context window exceeds limit",
    "exceeded model token limit",
    "too large for model with",
    "prompt exceeds max length",
    "longer than the maximum model length",
    "exceeds the model's maximum",
    "input is too long for requested model",
    "input length and `max_tokens` exceed",
    "larger than the maximum context",
    "exceeded max context length",
    "request_too_large",
];
/// Words of limits in time, which may look like the ones above.
const NOT_OVERFLOW: &[&str] = &[
    "tokens per min",
    "(tpm)",
    "rate limit",
    "rate_limit",
    "too many requests",
    "throttl",
];

const BILLING_CODES: &[&str] = &[
    "insufficient_quota",
    "insufficient_credits",
    "insufficient_balance",
    "billing_not_active",
    "billing_error",
    "billing_hard_limit_reached",
    "exceeded_current_quota_error",
    "payment_required",
    "1113",
    "1308",
    "1310",
];
const BILLING_WORDS: &[&str] = &[
    "credit balance",
    "insufficient balance",
    "insufficient credits",
    "insufficient_quota",
    "billing_not_active",
    "check your plan and billing",
    "spending limit",
    "spending-limit",
    "key limit exceeded",
    "out of credits",
    "account is suspended due to insufficient",
];
/// A 402 that says so will pass by itself.
const PASSES: &[&str] = &["try again", "resets", "retry"];

const AUTH_CODES: &[&str] = &[
    "invalid_api_key",
    "authentication_error",
    "invalid_authentication_error",
    "permission_error",
    "permission_denied",
    "unauthenticated",
    KIMI_GATE,
    "api_key_invalid",
];
const AUTH_WORDS: &[&str] = &[
    "incorrect api key",
    "invalid api key",
    "api key not valid",
    "api key expired",
    "no auth credentials",
];
/// What api.kimi.com says to agents that aren't on its list.
const KIMI_GATE: &str = "access_terminated_error";

const NO_MODEL_CODES: &[&str] = &[
    "model_not_found",
    "invalid_model",
    "model_not_available",
    "1211",
];
const NO_MODEL_WORDS: &[&str] = &[
    "model_not_found",
    "model not found",
    "not a valid model",
    "no endpoints found",
    "unknown model",
    "is not found for api version",
    "invalid model",
    "unsupported model",
];

const RATE_CODES: &[&str] = &[
    "rate_limit_exceeded",
    "rate_limit_error",
    "rate_limit_reached_error",
    "resource_exhausted",
    "too_many_requests",
    "tokens",
    "requests",
];

const OVERLOAD_CODES: &[&str] = &[
    "overloaded_error",
    "engine_overloaded_error",
    "server_overloaded",
    "insufficient_system_resource",
    "unavailable",
    "1305",
];
const OVERLOAD_WORDS: &[&str] = &["overloaded", "at capacity", "high demand"];

/// Codes of answers that make no sense, told by the provider itself.
const MALFORMED_CODES: &[&str] = &[
    "malformed_function_call",
    "malformed_response",
    "unexpected_tool_call",
    "too_many_tool_calls",
];

/// What kind of failure it was.
pub(crate) fn classify(provider: &Provider, failure: &Failure) -> Class {
    match failure.at {
        // A server of the user's own hasn't been started; one of a house is away for a moment.
        FailedAt::Refused if provider.local => Class::NotConfigured,
        FailedAt::Refused | FailedAt::TimedOut | FailedAt::Transport => Class::Timeout,
        FailedAt::Certificate => Class::Certificate,
        FailedAt::Malformed => Class::MalformedResponse,
        FailedAt::Request => Class::BadRequest,
        FailedAt::Status(status) => told(Some(status), failure),
        FailedAt::Stream => {
            // Gateways put the status they got into the code.
            let code = failure.code.as_deref().and_then(|code| code.parse().ok());
            told(code.filter(|code| (400..600).contains(code)), failure)
        }
    }
}

/// What a provider says, in lower case.
struct Signals {
    status: Option<u16>,
    code: String,
    text: String,
}

impl Signals {
    fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.text.contains(word))
    }

    fn is(&self, codes: &[&str]) -> bool {
        codes.contains(&self.code.as_str())
    }

    fn status_in(&self, statuses: &[u16]) -> bool {
        self.status.is_some_and(|status| statuses.contains(&status))
    }
}

/// Does a class fit?
type Check = fn(&Signals) -> bool;

/// The checks, from the top: the first that fits counts.
fn told(status: Option<u16>, failure: &Failure) -> Class {
    let signals = Signals {
        status,
        code: failure.code.as_deref().unwrap_or_default().to_lowercase(),
        text: failure.text.to_lowercase(),
    };
    // A refusal may come with the status of anything, and words of length with that of a limit:
    // what says most is looked for first.
    let checks: [(Class, Check); 10] = [
        (Class::Refusal, is_refusal),
        (Class::ContextOverflow, is_overflow),
        (Class::Billing, is_billing),
        (Class::Auth, is_auth),
        (Class::ModelNotFound, is_model_not_found),
        (Class::Overloaded, is_overloaded),
        (Class::RateLimit, is_rate_limit),
        (Class::MalformedResponse, |said| said.is(MALFORMED_CODES)),
        (Class::Timeout, |said| said.status_in(&[408])),
        (Class::ServerError, is_server_error),
    ];
    let found = checks.into_iter().find(|(_, fits)| fits(&signals));
    match (found, signals.status) {
        (Some((class, _)), _) => class,
        // Nothing says that it is the model that isn't there.
        (None, Some(404)) => Class::Unknown,
        (None, Some(400..500)) => Class::BadRequest,
        // Some gateways answer 500 to what they don't take: it would be refused again.
        (None, Some(500..600)) if signals.is(&["invalid_request_error"]) => Class::BadRequest,
        // It began to answer, so key, model and request were taken.
        (None, None) if failure.at == FailedAt::Stream => Class::ServerError,
        _ => Class::Unknown,
    }
}

fn is_refusal(said: &Signals) -> bool {
    said.is(REFUSAL_CODES) || said.says(REFUSAL_WORDS)
}

fn is_overflow(said: &Signals) -> bool {
    let is_limit_in_time = said.is(RATE_CODES) || said.says(NOT_OVERFLOW);
    said.is(OVERFLOW_CODES)
        || (!is_limit_in_time && (said.says(OVERFLOW_WORDS) || said.status_in(&[413])))
}

fn is_billing(said: &Signals) -> bool {
    // Google says the same about a minute and about money, and means the minute.
    let is_minute = said.is(&["resource_exhausted"]);
    let is_402 = said.status_in(&[402]) && !said.says(PASSES);
    is_402 || said.is(BILLING_CODES) || (!is_minute && said.says(BILLING_WORDS))
}

fn is_auth(said: &Signals) -> bool {
    said.status_in(&[401, 403]) || said.is(AUTH_CODES) || said.says(AUTH_WORDS)
}

fn is_model_not_found(said: &Signals) -> bool {
    let may = said
        .status
        .is_none_or(|status| matches!(status, 400 | 404 | 422));
    let names_it = said.text.contains("model")
        && ["not found", "does not exist", "doesn't exist", "not exist"]
            .iter()
            .any(|words| said.text.contains(words));
    // Anthropic's text is only `model: NAME`.
    let is_anthropics = said.is(&["not_found_error"]) && said.text.starts_with("model:");
    may && (said.is(NO_MODEL_CODES) || said.says(NO_MODEL_WORDS) || names_it || is_anthropics)
}

fn is_overloaded(said: &Signals) -> bool {
    let may = said
        .status
        .is_none_or(|status| status == 429 || status >= 500);
    said.status_in(&[503, 529]) || (may && (said.is(OVERLOAD_CODES) || said.says(OVERLOAD_WORDS)))
}

fn is_rate_limit(said: &Signals) -> bool {
    // A 402 that comes here says that it passes.
    said.status_in(&[429, 402]) || said.is(RATE_CODES)
}

fn is_server_error(said: &Signals) -> bool {
    let is_fault = said.status_in(&[500, 502, 504]) || matches!(said.status, Some(520..=527));
    is_fault && !said.is(&["invalid_request_error"])
}

/// What is wrong with a reply that came: nothing, mostly.
pub(crate) fn classify_reply(reply: &Reply) -> Option<Class> {
    let is_empty = reply.message.text.trim().is_empty() && reply.message.calls.is_empty();
    match &reply.stop {
        Stop::Refusal(_) => Some(Class::Refusal),
        Stop::ContextFull => Some(Class::ContextOverflow),
        Stop::Missing => Some(Class::MalformedResponse),
        Stop::ToolUse if reply.message.calls.is_empty() => Some(Class::MalformedResponse),
        Stop::EndTurn | Stop::ToolUse | Stop::MaxTokens => {
            is_empty.then_some(Class::MalformedResponse)
        }
    }
}

/// Does a text look like a refusal? A guess, to be told and never to be acted upon.
pub(crate) fn suspected_refusal(text: &str, has_calls: bool) -> bool {
    // Models write either apostrophe.
    let text = text.trim().replace('’', "'").to_lowercase();
    if has_calls || text.chars().count() > LONGEST_REFUSAL {
        return false;
    }
    let what = |start: &str| {
        let rest = text.strip_prefix(start);
        rest.is_some_and(|rest| rest.starts_with("help with") || rest.starts_with("assist with"))
    };
    text.starts_with("i'm sorry, but i can't")
        || ["i can't ", "i'm unable to ", "i cannot "]
            .into_iter()
            .any(what)
}

/// What the user can do about it, where that isn't plain from the provider's words.
pub(crate) fn hint(provider: &Provider, failure: &Failure) -> Option<&'static str> {
    match classify(provider, failure) {
        Class::Auth if failure.code.as_deref() == Some(KIMI_GATE) => Some(
            "this key's plan admits only the agents on Kimi's list; use a Moonshot key, or run Kimi through Claude Code or Kimi CLI as an agent",
        ),
        Class::Certificate => Some(
            "the certificate isn't trusted; if a proxy here signs its own, name its CA bundle in SSL_CERT_FILE",
        ),
        Class::NotConfigured if failure.at == FailedAt::Refused => {
            Some("nobody listens there; is the model server running?")
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "class/tests.rs"]
mod tests;
