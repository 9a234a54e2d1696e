//! What a turn used, as each of OpenAI's APIs counts it.
//!
//! Owns the members. What an agent doesn't count is 0: clients add it up.

use agentd_protocol::line::Usage;
use serde_json::{Value, json};

/// Of a chat completion.
#[must_use]
pub fn chat(usage: Option<Usage>) -> Value {
    let usage = usage.unwrap_or_default();
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    })
}

/// Of a response.
#[must_use]
pub fn response(usage: Option<Usage>) -> Value {
    let usage = usage.unwrap_or_default();
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

/// Of a run.
#[must_use]
pub fn run(usage: Option<Usage>) -> Value {
    let usage = usage.unwrap_or_default();
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}
