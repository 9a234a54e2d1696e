//! What a provider's refusal means, where an agent leaves nothing of it but words.
//!
//! Owns how it is told, and the signs of agents that pass on what any provider says; one whose words
//! are known has signs of its own. Must not know who said it.

use agentd_protocol::Code;

/// By which words failures are told apart: the first list that has one of them counts.
pub(super) struct Signs {
    /// The conversation is too long.
    pub(super) overflow: &'static [&'static str],
    /// Too much was asked for, or all that was paid for is used up.
    pub(super) rate: &'static [&'static str],
    /// Nobody is logged in, or a key is wrong.
    pub(super) auth: &'static [&'static str],
    /// Does it pass on a provider's status?
    pub(super) status: Status,
}

/// HTTP's status among the words.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// It counts where it stands as a word of its own: a number has many reasons to hold 429.
    Counts,
    /// It says nothing.
    Ignored,
}

/// What any provider may say.
pub(super) const ANY: Signs = Signs {
    overflow: &[
        "context length",
        "context_length",
        "context window",
        "contextoverflow",
        "context overflow",
        "context_overflow",
        "exceeds the maximum number of tokens",
        "prompt is too long",
        "maximum context",
    ],
    rate: &[
        "rate limit",
        "rate_limit",
        "resource_exhausted",
        "too many requests",
        "quota",
        "usage limit",
    ],
    auth: &[
        "api key",
        "api_key",
        "unauthorized",
        "authentication",
        "not logged in",
    ],
    status: Status::Counts,
};

impl Signs {
    /// The code for what was said.
    pub(super) fn code(&self, said: &str) -> Code {
        let words = said.to_lowercase();
        let says = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
        let status = |code: &str| {
            let mut parts = words.split(|c: char| !c.is_ascii_alphanumeric());
            self.status == Status::Counts && parts.any(|word| word == code)
        };
        if says(self.overflow) {
            Code::ContextOverflow
        } else if status("429") || says(self.rate) {
            Code::RateLimit
        } else if status("401") || status("403") || says(self.auth) {
            Code::AgentAuth
        } else {
            Code::AgentFailed
        }
    }
}
