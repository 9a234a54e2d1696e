//! One request to one model, and what comes of it.
//!
//! Owns the words between a turn and any provider. Must not know which crate speaks the wire
//! (`genai.rs` alone does), nor what a failure means (`failover` does).

pub(crate) mod catalog;
pub(crate) mod genai;
pub(crate) mod http;
pub(crate) mod known;
pub(crate) mod provider_error;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::message::{Assistant, Message};
use crate::provider::Target;

/// A future that a trait object can return.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that asks models.
pub(crate) trait ModelClient: Send + Sync {
    /// Asks once: no retry, no other model. Pieces are sent as they come, the whole is returned.
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// Whatever went wrong, with all that is known of it.
    fn ask<'a>(
        &'a self,
        request: &'a Request,
        pieces: &'a mpsc::Sender<Piece>,
    ) -> Boxed<'a, Result<Reply, Box<Failure>>>;
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Whom.
    pub(crate) target: Target,
    /// The system prompt.
    pub(crate) system: Arc<str>,
    /// The conversation; it ends with the user's words or a tool's result.
    pub(crate) messages: Vec<Message>,
    /// The tools on offer.
    pub(crate) tools: Arc<[ToolSpec]>,
    /// How hard to think.
    pub(crate) thinking: Option<Thinking>,
}

/// A tool as a model sees it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ToolSpec {
    /// Its name: letters, digits, `_` and `-`, at most 64 of them.
    pub(crate) name: String,
    /// What it does, for the model.
    pub(crate) description: String,
    /// The JSON schema of its arguments, an object's.
    pub(crate) schema: Value,
}

/// How hard a model thinks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Thinking {
    /// Not at all, where that can be asked.
    Off,
    /// As little as there is.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// A lot.
    High,
    /// As much as there is.
    Max,
}

impl Thinking {
    /// Each, with its name.
    pub(crate) const ALL: &[(&str, Self)] = &[
        ("off", Self::Off),
        ("minimal", Self::Minimal),
        ("low", Self::Low),
        ("medium", Self::Medium),
        ("high", Self::High),
        ("max", Self::Max),
    ];
}

/// A piece of a reply, as it comes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// Of the text.
    Text(String),
    /// Of the reasoning.
    Thinking(String),
}

/// A whole reply.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reply {
    /// What was said.
    pub(crate) message: Assistant,
    /// Why it stopped.
    pub(crate) stop: Stop,
    /// What it took.
    pub(crate) usage: Usage,
    /// In US dollars, where the provider says so itself.
    pub(crate) reported_usd: Option<f64>,
}

/// Why a model stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It was done.
    EndTurn,
    /// It wants tools.
    ToolUse,
    /// It had no more room for output.
    MaxTokens,
    /// The conversation fills its window.
    ContextFull,
    /// It, or its provider, would not: the provider's own word for it, and what was said
    /// instead of an answer.
    Refusal(String),
    /// It didn't say: the reply can't be trusted to be whole.
    Missing,
}

/// Tokens, in the protocol's words; a provider that doesn't count leaves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// All of the input, what was cached included.
    #[serde(rename = "input_tokens")]
    pub(crate) input: u64,
    /// Of these, read from a cache.
    #[serde(rename = "cache_read_tokens")]
    pub(crate) cache_read: u64,
    /// Of these, written to a cache.
    #[serde(rename = "cache_write_tokens")]
    pub(crate) cache_write: u64,
    /// All of the output, reasoning included.
    #[serde(rename = "output_tokens")]
    pub(crate) output: u64,
    /// Of these, reasoning.
    #[serde(rename = "reasoning_tokens")]
    pub(crate) reasoning: u64,
}

/// How a request failed, as facts: `failover` says what they mean.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Failure {
    /// Where it went wrong.
    pub(crate) at: FailedAt,
    /// The provider's own code or type for it, as `insufficient_quota`.
    pub(crate) code: Option<String>,
    /// What it said: without keys, 2 KiB at most.
    pub(crate) text: String,
    /// How long the provider wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
    /// What was used up all the same.
    pub(crate) usage: Usage,
}

/// Where a request went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailedAt {
    /// Nobody listens there.
    Refused,
    /// The connection came to nothing, or broke.
    Transport,
    /// Nothing came for too long.
    TimedOut,
    /// The other side's certificate isn't to be trusted.
    Certificate,
    /// The provider answered with this HTTP status.
    Status(u16),
    /// The provider broke off its own stream with an error.
    Stream,
    /// What came isn't what the wire allows.
    Malformed,
    /// It could not even be asked: the request can't be put into the provider's words.
    Request,
}
