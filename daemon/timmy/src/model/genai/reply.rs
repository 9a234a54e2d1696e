//! A reply put together from what `genai` heard and what the frames say.
//!
//! Owns why an answer stopped, in our words. Must not decide what to do about it.

use std::collections::HashSet;

use genai::chat::{ContentPart, StopReason, StreamEnd, Usage as Counted};
use serde_json::{Map, Value};

use super::calls;
use super::frames::Frames;
use crate::message::{Assistant, CallArguments, Thought, ToolCall};
use crate::model::{FailedAt, Failure, Reply, Request, Stop, Usage};
use crate::provider::Wire;
use crate::session::compaction::beginning;

/// Bytes of a refusal's words that are told as its reason.
const MOST_WORDS: usize = 2 * 1024;
/// Reasons to stop that are refusals, besides those that `genai` knows.
const REFUSALS: &[&str] = &[
    "guardrail_intervened",
    "sensitive",
    "safety",
    "content_filtered",
    "recitation",
    "prohibited_content",
];
/// Reasons to stop that are failures of the provider.
const FAILURES: &[&str] = &[
    "error",
    "network_error",
    "insufficient_system_resource",
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "MALFORMED_RESPONSE",
    "TOO_MANY_TOOL_CALLS",
    "OTHER",
    "failed",
    "cancelled",
];

/// What was heard so far.
#[derive(Default, Debug)]
pub(super) struct HeardReply {
    pub(super) text: String,
    pub(super) thinking: String,
}

/// The reply, when the provider has come to an end.
pub(super) fn whole(
    heard: HeardReply,
    end: StreamEnd,
    frames: &mut Frames,
    wire: Wire,
    request: &Request,
) -> Result<Reply, Failure> {
    let usage = usage(end.captured_usage.as_ref(), frames);
    let (thoughts, mut calls) = parts(&heard, end.captured_content, frames, wire);
    let stop = stop(end.captured_stop_reason, frames).map_err(|mut failure| {
        failure.usage = usage;
        failure
    })?;
    let stop = match stop {
        // Some servers end with `stop` after calls: these are what counts.
        Stop::EndTurn if !calls.is_empty() => Stop::ToolUse,
        Stop::EndTurn if heard.text.is_empty() && !frames.refusal.is_empty() => {
            Stop::Refusal("refusal".to_owned())
        }
        stop => stop,
    };
    settle(&mut calls, &stop);
    let (stop, text) = match stop {
        Stop::Refusal(word) if heard.text.is_empty() && !frames.refusal.is_empty() => {
            let words = std::mem::take(&mut frames.refusal);
            let shown = beginning(&words, MOST_WORDS);
            (Stop::Refusal(format!("{word}: {shown}")), words)
        }
        stop => (stop, heard.text),
    };
    Ok(Reply {
        message: Assistant {
            text,
            thoughts,
            calls,
            provider: request.target.provider.id.clone(),
            model: request.target.model.clone(),
        },
        stop,
        usage,
        reported_usd: frames.reported_usd,
    })
}

/// Gemini refuses a prompt with an answer that `genai` takes for an error.
pub(super) fn refused_before(frames: &mut Frames, request: &Request) -> Option<Reply> {
    let reason = frames.blocked.take()?;
    Some(Reply {
        message: Assistant {
            provider: request.target.provider.id.clone(),
            model: request.target.model.clone(),
            ..Assistant::default()
        },
        stop: Stop::Refusal(reason),
        usage: frames.usage,
        reported_usd: None,
    })
}

/// The connection ended, and the provider never said that it was done.
pub(super) fn cut_off(
    heard: HeardReply,
    frames: &mut Frames,
    request: &Request,
) -> Result<Reply, Failure> {
    if let Some(reply) = refused_before(frames, request) {
        return Ok(reply);
    }
    let mut failure = if frames.is_empty() {
        let why = "what came is not an answer in this provider's words; is the base URL right?";
        Failure::at(FailedAt::Malformed, why.to_owned())
    } else {
        let said = heard.text.len() + heard.thinking.len();
        let why = format!("the connection ended before the answer did, after {said} bytes of it");
        Failure::at(FailedAt::Transport, why)
    };
    failure.usage = frames.usage;
    Err(failure)
}

/// Why it stopped. A reason that isn't one is the provider's failure.
fn stop(reason: Option<StopReason>, frames: &mut Frames) -> Result<Stop, Failure> {
    let Some(reason) = reason else {
        return Ok(Stop::Missing);
    };
    let raw = reason.raw().to_owned();
    let refused = |word: String, frames: &Frames| {
        let word = frames
            .because
            .as_ref()
            .map_or(word.clone(), |why| format!("{word}: {why}"));
        Stop::Refusal(word)
    };
    Ok(match reason {
        StopReason::MaxTokens(_) => match raw.as_str() {
            "model_context_window_exceeded" | "model_length" => Stop::ContextFull,
            "incomplete" => match frames.incomplete.take().as_deref() {
                Some("content_filter") => refused("content_filter".to_owned(), frames),
                _ => Stop::MaxTokens,
            },
            _ => Stop::MaxTokens,
        },
        StopReason::ContentFilter(_) => refused(raw, frames),
        StopReason::ToolCall(_) => Stop::ToolUse,
        StopReason::Completed(_) | StopReason::StopSequence(_) => Stop::EndTurn,
        _ if REFUSALS.contains(&raw.as_str()) => refused(raw, frames),
        _ if FAILURES.contains(&raw.as_str()) => {
            let why = format!("the provider gave its answer up with `{raw}`");
            return Err(Failure {
                code: Some(raw),
                ..Failure::at(FailedAt::Stream, why)
            });
        }
        // Something that only its makers know: it did stop.
        _ => Stop::EndTurn,
    })
}

/// Thoughts and calls, in order.
fn parts(
    heard: &HeardReply,
    content: Option<genai::chat::MessageContent>,
    frames: &mut Frames,
    wire: Wire,
) -> (Vec<Thought>, Vec<ToolCall>) {
    let is_chat = wire.is_chat();
    let mut thoughts: Vec<Thought> = Vec::new();
    let mut calls = if is_chat {
        frames.take_calls()
    } else {
        Vec::new()
    };
    for part in content.into_iter().flatten() {
        match part {
            ContentPart::ThoughtSignature(signature) => thoughts.push(Thought {
                signature: Some(signature),
                ..Thought::default()
            }),
            // Anthropic's: the text of the signature before it.
            ContentPart::ReasoningContent(text) => match thoughts.last_mut() {
                Some(thought) if thought.text.is_none() => thought.text = Some(text),
                _ => thoughts.push(Thought {
                    text: Some(text),
                    ..Thought::default()
                }),
            },
            ContentPart::Custom(custom) => thoughts.push(Thought {
                native: Some(custom.data),
                ..Thought::default()
            }),
            ContentPart::ToolCall(call) if !is_chat => calls.push(ToolCall {
                id: call.call_id,
                name: call.fn_name,
                arguments: calls::read(call.fn_arguments),
                // Others sign their thoughts, and `genai` repeats that here.
                signatures: match wire {
                    Wire::Gemini => call.thought_signatures.unwrap_or_default(),
                    _ => Vec::new(),
                },
            }),
            _ => {}
        }
    }
    // A signature that a call carries is not a thought of its own.
    let carried: HashSet<&String> = calls.iter().flat_map(|call| &call.signatures).collect();
    thoughts.retain(|thought| {
        thought
            .signature
            .as_ref()
            .is_none_or(|one| !carried.contains(one))
    });
    let is_told = thoughts.iter().any(|thought| thought.text.is_some());
    if !is_told && !heard.thinking.is_empty() {
        thoughts.insert(
            0,
            Thought {
                text: Some(heard.thinking.clone()),
                ..Thought::default()
            },
        );
    }
    let native = |detail: Value| Thought {
        native: Some(detail),
        ..Thought::default()
    };
    thoughts.extend(frames.take_details().into_iter().map(native));
    (thoughts, calls)
}

/// Gives each call an id of its own, and an empty object to calls that were told nothing: to those
/// that were cut short, nothing is not an object.
fn settle(calls: &mut [ToolCall], stop: &Stop) {
    let mut used: HashSet<String> = HashSet::new();
    for (at, call) in calls.iter_mut().enumerate() {
        if matches!(&call.arguments, CallArguments::Malformed(text) if text.trim().is_empty())
            && !matches!(stop, Stop::MaxTokens | Stop::ContextFull)
        {
            call.arguments = CallArguments::Object(Map::new());
        }
        if call.id.is_empty() {
            call.id = format!("call_{at}");
        }
        let mut number = at;
        while used.contains(&call.id) {
            // Gemini's calls have no ids: these are `genai`'s, which it knows again by their form.
            call.id = match call
                .id
                .strip_prefix("call#")
                .and_then(|id| id.rsplit_once('#'))
            {
                Some((name, _)) => format!("call#{name}#{number}"),
                None => format!("{}_{number}", call.id),
            };
            number += 1;
        }
        used.insert(call.id.clone());
    }
}

fn usage(counted: Option<&Counted>, frames: &Frames) -> Usage {
    let Some(counted) = counted else {
        return frames.usage;
    };
    let number = |count: Option<i32>| {
        count
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or(0)
    };
    let input = counted.prompt_tokens_details.as_ref();
    let output = counted.completion_tokens_details.as_ref();
    let read = number(input.and_then(|details| details.cached_tokens));
    let reasoning = number(output.and_then(|details| details.reasoning_tokens));
    Usage {
        input: number(counted.prompt_tokens),
        cache_read: if read == 0 {
            frames.usage.cache_read
        } else {
            read
        },
        cache_write: number(input.and_then(|details| details.cache_creation_tokens)),
        // A provider that counts reasoning only still used it up.
        output: number(counted.completion_tokens).max(reasoning),
        reasoning,
    }
}
