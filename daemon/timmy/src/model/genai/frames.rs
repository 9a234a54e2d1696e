//! What `genai` doesn't tell, read from the frames of an answer as they come.
//!
//! Owns which fields those are: refusals, why an answer stopped or failed, what it cost, tool calls
//! of chat completions, and reasoning that a gateway wants to see again. Nothing else is kept.

use serde_json::{Value, json};

use super::calls::Calls;
use crate::message::ToolCall;
use crate::model::Usage;
use crate::provider::Wire;

/// No model says as much; a longer answer would only fill the memory.
pub(super) const MOST_BYTES: usize = 32 * 1024 * 1024;
/// Reasoning blocks of one reply; more is no model's doing.
const MOST_DETAILS: usize = 1024;
/// Fields of chat completions that are looked into. Most frames have none of them.
const CHAT_FIELDS: &[&str] = &[
    "tool_calls",
    "\"refusal\"",
    "\"cost\"",
    "reasoning_details",
    "cache",
];

/// What was seen in the frames of one answer.
pub(super) struct Frames {
    wire: Wire,
    bytes: usize,
    /// Frames with anything in them.
    count: usize,
    /// What a model said instead of an answer.
    pub(super) refusal: String,
    /// Why, in the provider's own word.
    pub(super) because: Option<String>,
    /// Why the prompt was not even shown to the model.
    pub(super) blocked: Option<String>,
    /// Why a response of OpenAI's stopped short.
    pub(super) incomplete: Option<String>,
    /// Its error.
    pub(super) failed: Option<Value>,
    /// In US dollars, as the provider counts.
    pub(super) reported_usd: Option<f64>,
    /// Tokens, as far as they were told before the end.
    pub(super) usage: Usage,
    calls: Calls,
    details: Vec<Value>,
}

impl Frames {
    pub(super) fn new(wire: Wire) -> Self {
        Self {
            wire,
            bytes: 0,
            count: 0,
            refusal: String::new(),
            because: None,
            blocked: None,
            incomplete: None,
            failed: None,
            reported_usd: None,
            usage: Usage::default(),
            calls: Calls::default(),
            details: Vec::new(),
        }
    }

    /// Looks into the next frame.
    pub(super) fn read(&mut self, event: Option<&str>, data: &str) {
        self.bytes = self.bytes.saturating_add(data.len());
        if data.is_empty() || self.is_too_long() {
            return;
        }
        self.count += 1;
        match self.wire {
            Wire::Anthropic => self.anthropic(event, data),
            Wire::Gemini => self.gemini(data),
            Wire::Responses => self.responses(data),
            Wire::Ollama => {}
            _ => self.chat(data),
        }
    }

    /// Another one came, and somebody else read it.
    pub(super) const fn counted(&mut self) {
        self.count += 1;
    }

    /// How many came.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Has it become longer than an answer can be?
    pub(super) const fn is_too_long(&self) -> bool {
        self.bytes > MOST_BYTES
    }

    /// Did nothing come that looks like an answer?
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The tool calls of chat completions.
    pub(super) fn take_calls(&mut self) -> Vec<ToolCall> {
        self.calls.take()
    }

    /// Reasoning in a gateway's own words.
    pub(super) fn take_details(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.details)
    }

    fn chat(&mut self, data: &str) {
        // Looked for as text: to parse every frame twice would cost more than all the rest.
        if !CHAT_FIELDS.iter().any(|field| data.contains(field)) {
            return;
        }
        let Ok(frame) = serde_json::from_str::<Value>(data) else {
            return;
        };
        let delta = &frame["choices"][0]["delta"];
        if let Some(words) = delta["refusal"].as_str() {
            self.refusal.push_str(words);
        }
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            self.calls.add(piece);
        }
        for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
            self.detail(detail);
        }
        let usage = &frame["usage"];
        if let Some(cost) = usage["cost"]
            .as_f64()
            .filter(|cost| cost.is_finite() && *cost >= 0.0)
        {
            self.reported_usd = Some(cost);
        }
        // Moonshot's and DeepSeek's own words for what was read from a cache.
        let cached = usage["cached_tokens"]
            .as_u64()
            .or_else(|| usage["prompt_cache_hit_tokens"].as_u64());
        if let Some(cached) = cached {
            self.usage.cache_read = cached;
        }
    }

    /// A block of reasoning comes in pieces, and has to go back whole and in order.
    fn detail(&mut self, piece: &Value) {
        let Some(fields) = piece.as_object() else {
            return;
        };
        let is_same = |known: &Value| {
            known["type"] == piece["type"]
                && known["index"] == piece["index"]
                && !piece["index"].is_null()
        };
        let Some(known) = self.details.last_mut().filter(|known| is_same(known)) else {
            if self.details.len() < MOST_DETAILS {
                self.details.push(piece.clone());
            }
            return;
        };
        for (name, value) in fields {
            let grows = matches!(name.as_str(), "text" | "summary" | "data");
            match (known[name].as_str(), value.as_str()) {
                (Some(before), Some(more)) if grows => {
                    known[name] = json!(format!("{before}{more}"))
                }
                _ if value.is_null() => {}
                _ => known[name] = value.clone(),
            }
        }
    }

    fn anthropic(&mut self, event: Option<&str>, data: &str) {
        if !matches!(event, Some("message_start" | "message_delta")) {
            return;
        }
        let Ok(frame) = serde_json::from_str::<Value>(data) else {
            return;
        };
        let details = &frame["delta"]["stop_details"];
        let details = if details.is_null() {
            &frame["stop_details"]
        } else {
            details
        };
        if let Some(category) = details["category"].as_str() {
            self.because = Some(category.to_owned());
        }
        if let Some(words) = details["explanation"].as_str() {
            words.clone_into(&mut self.refusal);
        }
        let usage = &frame["message"]["usage"];
        if usage.is_object() {
            let count = |name: &str| usage[name].as_u64().unwrap_or(0);
            let (read, write) = (
                count("cache_read_input_tokens"),
                count("cache_creation_input_tokens"),
            );
            self.usage = Usage {
                input: count("input_tokens")
                    .saturating_add(read)
                    .saturating_add(write),
                cache_read: read,
                cache_write: write,
                ..self.usage
            };
        }
        if let Some(output) = frame["usage"]["output_tokens"].as_u64() {
            self.usage.output = output;
        }
    }

    fn gemini(&mut self, data: &str) {
        if !data.contains("promptFeedback") {
            return;
        }
        let Ok(frame) = serde_json::from_str::<Value>(data) else {
            return;
        };
        if let Some(reason) = frame["promptFeedback"]["blockReason"].as_str() {
            self.blocked = Some(reason.to_owned());
            // A prompt that is refused unseen is counted all the same.
            self.usage.input = frame["usageMetadata"]["promptTokenCount"]
                .as_u64()
                .unwrap_or(0);
        }
    }

    fn responses(&mut self, data: &str) {
        let Some(kind) = [
            "response.refusal.",
            "response.incomplete",
            "response.failed",
        ]
        .into_iter()
        .find(|kind| data.contains(kind)) else {
            return;
        };
        let Ok(frame) = serde_json::from_str::<Value>(data) else {
            return;
        };
        let response = &frame["response"];
        match (kind, frame["type"].as_str().unwrap_or_default()) {
            ("response.refusal.", "response.refusal.delta") => {
                self.refusal
                    .push_str(frame["delta"].as_str().unwrap_or_default());
            }
            ("response.incomplete", "response.incomplete") => {
                let reason = response["incomplete_details"]["reason"].as_str();
                self.incomplete = reason.map(str::to_owned);
            }
            ("response.failed", "response.failed") => {
                self.failed = Some(response["error"].clone());
            }
            _ => {}
        }
    }
}
