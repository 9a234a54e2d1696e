//! What a provider's refusal means, where an agent leaves nothing of it but words.
//!
//! Owns the signs by which it is told. Must not know whose words they are.

use agentd_protocol::Code;

const OVERFLOW: &[&str] = &[
    "context length",
    "context_length",
    "context window",
    "contextoverflow",
    "context overflow",
    "context_overflow",
    "exceeds the maximum number of tokens",
    "prompt is too long",
    "maximum context",
];
const RATE: &[&str] = &[
    "rate limit",
    "rate_limit",
    "resource_exhausted",
    "too many requests",
    "quota",
    "usage limit",
];
const AUTH: &[&str] = &[
    "api key",
    "api_key",
    "unauthorized",
    "authentication",
    "not logged in",
];

/// The code for what was said. A status counts where it stands as a word of its own.
pub(super) fn code(said: &str) -> Code {
    let words = said.to_lowercase();
    let status = |code: &str| {
        let mut parts = words.split(|c: char| !c.is_ascii_alphanumeric());
        parts.any(|word| word == code)
    };
    let says = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    if says(OVERFLOW) {
        Code::ContextOverflow
    } else if status("429") || says(RATE) {
        Code::RateLimit
    } else if status("401") || status("403") || says(AUTH) {
        Code::AgentAuth
    } else {
        Code::AgentFailed
    }
}
