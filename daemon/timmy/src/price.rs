//! What a request cost, and how sure that is.
//!
//! Owns the order of sources: the provider's own word, the user's prices, servers of this house,
//! plans at a flat rate, the price list of the crate. The list is read when it is first needed.

use genai_prices::{Calculator, PriceRequest, UsageKey};
use serde::{Deserialize, Serialize};

use crate::config::PricePair;
use crate::model::Usage;
use crate::provider::Provider;

/// The day of the price list that comes with the crate. A newer crate needs a newer day.
const LIST_OF: &str = "2026-10-30";
/// Addresses of plans at a flat rate: a request there has no price of its own.
const PLANS: &[&str] = &["https://api.kimi.com/coding", "https://api.z.ai/api/coding"];
/// Names that the price list has for our providers, where they differ.
const NAMES: &[(&str, &str)] = &[
    ("gemini", "google"),
    ("grok", "x-ai"),
    ("moonshot", "moonshotai"),
    ("kimi-coding", "moonshotai"),
];
/// A price is for this many tokens.
const MILLION: f64 = 1e6;

/// What a request cost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// In US dollars, where that is known.
    pub(crate) usd: Option<f64>,
    /// How sure it is.
    pub(crate) status: CostStatus,
    /// Who says so.
    pub(crate) source: CostSource,
    /// Of which day the prices are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) as_of: Option<String>,
}

/// How sure a cost is. Of several together it is the last of these: what a plan pays for adds
/// nothing, and what nobody knows leaves nothing known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CostStatus {
    /// It is paid for by a plan.
    Included,
    /// That is what it cost.
    Actual,
    /// By a price list.
    Estimated,
    /// Nobody knows.
    Unknown,
}

/// Who says what a request cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CostSource {
    /// The provider, with its answer.
    Provider,
    /// Nobody has to: the server is the user's own. Electricity isn't counted.
    Local,
    /// The plan that the key belongs to.
    Plan,
    /// `price` of `[providers.NAME]`.
    Config,
    /// The price list of the crate `genai-prices`.
    List,
    /// Nobody.
    None,
    /// Several of these.
    Mixed,
}

impl Cost {
    fn of(usd: Option<f64>, status: CostStatus, source: CostSource) -> Self {
        Self {
            usd,
            status,
            source,
            as_of: (source == CostSource::List).then(|| LIST_OF.to_owned()),
        }
    }
}

/// What a request cost. Without tokens nothing is known, whatever the prices are.
pub(crate) fn cost(provider: &Provider, model: &str, usage: &Usage, reported: Option<f64>) -> Cost {
    if let Some(usd) = reported {
        return Cost::of(Some(usd), CostStatus::Actual, CostSource::Provider);
    }
    let is_counted = usage.input > 0 || usage.output > 0;
    if let Some(PricePair(input, output)) = provider.price
        && is_counted
    {
        let usd = tokens(usage.input) * input.usd() + tokens(usage.output) * output.usd();
        return Cost::of(
            Some(usd / MILLION),
            CostStatus::Estimated,
            CostSource::Config,
        );
    }
    // Behind the user's own price: who gives one to a server of theirs counts electricity, maybe.
    if provider.local && provider.price.is_none() {
        return Cost::of(Some(0.0), CostStatus::Actual, CostSource::Local);
    }
    if PLANS.iter().any(|plan| provider.base_url.starts_with(plan)) && provider.price.is_none() {
        return Cost::of(None, CostStatus::Included, CostSource::Plan);
    }
    if !is_counted {
        return Cost::of(None, CostStatus::Unknown, CostSource::None);
    }
    match listed(provider, model, usage) {
        Some(usd) => Cost::of(Some(usd), CostStatus::Estimated, CostSource::List),
        None => Cost::of(None, CostStatus::Unknown, CostSource::None),
    }
}

/// Several requests together: the sum of what is known, and as sure as the least sure of them.
pub(crate) fn total(costs: &[Cost]) -> Cost {
    let mut sum: Option<Cost> = None;
    for cost in costs {
        sum = Some(match sum {
            None => cost.clone(),
            Some(sum) => Cost {
                usd: match (sum.usd, cost.usd) {
                    (Some(one), Some(other)) => Some(one + other),
                    (one, other) => one.or(other),
                },
                status: sum.status.max(cost.status),
                source: if sum.source == cost.source {
                    sum.source
                } else {
                    CostSource::Mixed
                },
                as_of: sum.as_of.or_else(|| cost.as_of.clone()),
            },
        });
    }
    sum.unwrap_or_else(|| Cost::of(None, CostStatus::Unknown, CostSource::None))
}

fn listed(provider: &Provider, model: &str, usage: &Usage) -> Option<f64> {
    let mut counted = genai_prices::Usage::new();
    counted.insert(UsageKey::INPUT_TOKENS, tokens(usage.input));
    counted.insert(UsageKey::OUTPUT_TOKENS, tokens(usage.output));
    for (key, count) in [
        (UsageKey::CACHE_READ_TOKENS, usage.cache_read),
        (UsageKey::CACHE_WRITE_TOKENS, usage.cache_write),
    ] {
        if count > 0 {
            counted.insert(key, tokens(count));
        }
    }
    let name = NAMES.iter().find(|(ours, _)| *ours == provider.id);
    let name = name.map_or(provider.id.as_str(), |(_, theirs)| theirs);
    let list = Calculator::bundled();
    let by_name = PriceRequest::new(model, &counted).with_provider_id(name);
    // A provider that the user named differently is known by its address.
    let by_url = PriceRequest::new(model, &counted).with_provider_api_url(&provider.base_url);
    let price = list
        .calculate(&by_name)
        .or_else(|_| list.calculate(&by_url));
    let usd = price.ok()?.total_price;
    (usd.is_finite() && usd >= 0.0).then_some(usd)
}

#[expect(clippy::cast_precision_loss, reason = "nobody uses 2^53 tokens")]
const fn tokens(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
#[path = "price/tests.rs"]
mod tests;
