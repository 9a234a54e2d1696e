//! What a turn used, and what that cost.
//!
//! Owns their members and how usages are counted together. Must not know any price.

use serde::{Deserialize, Serialize};

/// No turn uses more tokens: a thousand requests that fill the largest context of today, ten times over.
pub const MOST_TOKENS: u64 = 10_000_000_000;
/// A turn that is said to have cost more didn't.
pub const MOST_USD: f64 = 1e6;

/// Tokens of a turn. What was cached is part of the input and reasoning of the output, as in
/// OpenTelemetry's conventions for generative AI.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    /// All of the input.
    pub input_tokens: u64,
    /// All of the output.
    pub output_tokens: u64,
    /// Of the input, what was read from a cache.
    pub cache_read_tokens: u64,
    /// Of the input, what was written to a cache.
    pub cache_write_tokens: u64,
    /// Of the output, what was thought.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Can a turn have used so much?
    #[must_use]
    pub fn is_credible(&self) -> bool {
        let counts = [
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
            self.reasoning_tokens,
        ];
        counts.iter().all(|count| *count <= MOST_TOKENS)
    }

    /// The same, from whoever counts the input without what was cached.
    #[must_use]
    pub const fn cached_apart(mut self) -> Self {
        self.input_tokens = (self.input_tokens)
            .saturating_add(self.cache_read_tokens)
            .saturating_add(self.cache_write_tokens);
        self
    }

    /// What came since `before`, from counters; all of it if they began anew.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        let more = |field: fn(&Self) -> u64| field(&self).checked_sub(field(&before));
        let difference = || {
            Some(Self {
                input_tokens: more(|usage| usage.input_tokens)?,
                output_tokens: more(|usage| usage.output_tokens)?,
                cache_read_tokens: more(|usage| usage.cache_read_tokens)?,
                cache_write_tokens: more(|usage| usage.cache_write_tokens)?,
                reasoning_tokens: more(|usage| usage.reasoning_tokens)?,
            })
        };
        // One that is smaller than before is enough: they began anew together.
        difference().unwrap_or(self)
    }

    /// Both together.
    pub const fn add(&mut self, more: Self) {
        self.input_tokens = self.input_tokens.saturating_add(more.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(more.output_tokens);
        self.cache_read_tokens = (self.cache_read_tokens).saturating_add(more.cache_read_tokens);
        self.cache_write_tokens = (self.cache_write_tokens).saturating_add(more.cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(more.reasoning_tokens);
    }
}

/// What a turn cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cost {
    /// US dollars; `None` unless the status is `actual` or `estimated`.
    pub usd: Option<f64>,
    /// `actual`, `estimated`, `included` or `unknown`.
    pub status: CostStatus,
    /// Who says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Cost {
    /// Can a turn have cost so much, as far as dollars are told?
    #[must_use]
    pub fn is_credible(&self) -> bool {
        self.usd.is_none_or(is_usd)
    }
}

/// Dollars that a turn can have cost.
pub(crate) fn is_usd(usd: f64) -> bool {
    (0.0..MOST_USD).contains(&usd)
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            usd: None,
            status: CostStatus::Unknown,
            source: None,
        }
    }
}

/// How far a cost can be believed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CostStatus {
    /// The agent reported it.
    Actual,
    /// Usage times a price table.
    Estimated,
    /// Part of a flat plan.
    Included,
    /// Nobody said.
    #[default]
    Unknown,
}
