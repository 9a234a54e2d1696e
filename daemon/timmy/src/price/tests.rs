//! Where a price comes from, and how sure it is.

use super::*;
use crate::config::Config;
use crate::provider::table;

fn provider(name: &str) -> Provider {
    table::resolve(name, &Config::default(), &|_| None).unwrap()
}

const USED: Usage = Usage {
    input: 100_000,
    cache_read: 64_000,
    cache_write: 0,
    output: 10_000,
    reasoning: 0,
};

fn of(name: &str, model: &str) -> Cost {
    cost(&provider(name), model, &USED, None)
}

#[test]
fn hosted_models_are_priced_by_the_list() {
    for (name, model, usd) in [
        ("moonshot", "kimi-k2.5", 0.0580),
        ("gemini", "gemini-2.5-flash", 0.0377),
        ("groq", "llama-3.3-70b-versatile", 0.0669),
        ("grok", "grok-3-mini-fast", 0.0712),
        ("openrouter", "openai/gpt-4.1-mini", 0.0368),
    ] {
        let cost = of(name, model);
        let found = cost
            .usd
            .unwrap_or_else(|| panic!("{name}/{model}: {cost:?}"));
        assert!((found - usd).abs() < 0.0001, "{name}/{model}: {found}");
        assert_eq!(
            (cost.status, cost.source),
            (CostStatus::Estimated, CostSource::List)
        );
        assert_eq!(cost.as_of.as_deref(), Some(LIST_OF));
    }
}

#[test]
fn the_providers_own_word_comes_first() {
    let provider = provider("openrouter");
    let cost = cost(&provider, "openai/gpt-4.1-mini", &USED, Some(0.5));
    assert_eq!(cost.usd, Some(0.5));
    assert_eq!(
        (cost.status, cost.source),
        (CostStatus::Actual, CostSource::Provider)
    );
}

#[test]
fn a_server_of_ones_own_costs_nothing() {
    let cost = of("ollama", "qwen3:8b");
    assert_eq!(cost.usd, Some(0.0));
    assert_eq!(
        (cost.status, cost.source),
        (CostStatus::Actual, CostSource::Local)
    );
}

#[test]
fn a_plan_has_no_price_for_a_request() {
    let cost = of("kimi-coding", "kimi-for-coding");
    assert_eq!(cost.usd, None);
    assert_eq!(
        (cost.status, cost.source),
        (CostStatus::Included, CostSource::Plan)
    );
}

#[test]
fn the_users_price_comes_before_the_list() {
    let config: Config = toml::from_str("[providers.groq]\nprice = [1.0, 10.0]\n").unwrap();
    let provider = table::resolve("groq", &config, &|_| None).unwrap();
    let cost = cost(&provider, "llama-3.3-70b-versatile", &USED, None);
    assert!((cost.usd.unwrap() - 0.2).abs() < 1e-9, "{cost:?}");
    assert_eq!(cost.source, CostSource::Config);
}

#[test]
fn price_of_the_user_comes_before_all_others() {
    for name in ["ollama", "kimi-coding"] {
        let text = format!("[providers.{name}]\nprice = [1.0, 10.0]\n");
        let config: Config = toml::from_str(&text).unwrap();
        let provider = table::resolve(name, &config, &|_| None).unwrap();
        let cost = |usage| cost(&provider, "m", usage, None);
        assert!((cost(&USED).usd.unwrap() - 0.2).abs() < 1e-9, "{name}");
        assert_eq!(cost(&USED).source, CostSource::Config);
        assert_eq!(cost(&Usage::default()).status, CostStatus::Unknown);
    }
}

#[test]
fn price_of_a_plan_adds_nothing_paid() {
    let paid = Cost::of(Some(0.5), CostStatus::Actual, CostSource::Provider);
    let sum = total(&[of("kimi-coding", "kimi-for-coding"), paid]);
    assert_eq!((sum.usd, sum.status), (Some(0.5), CostStatus::Actual));
}

#[test]
fn price_unknown_is_never_a_number() {
    let unknown = Cost::of(None, CostStatus::Unknown, CostSource::None);
    assert_eq!(of("groq", "a-model-of-tomorrow"), unknown);
    let uncounted = cost(&provider("openai"), "gpt-4.1", &Usage::default(), None);
    assert_eq!(uncounted, unknown);
}

#[test]
fn price_list_has_its_crates_versions_day() {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap();
    let entry = "name = \"genai-prices\"\nversion = \"0.2.1\"";
    assert!(
        lock.contains(entry),
        "with another version, say of which day its prices are"
    );
}

#[test]
fn price_sum_is_as_sure_as_its_parts() {
    let known = of("groq", "llama-3.3-70b-versatile");
    let plan = of("kimi-coding", "kimi-for-coding");
    let sum = total(&[known.clone(), plan, known.clone()]);
    assert!((sum.usd.unwrap() - 2.0 * known.usd.unwrap()).abs() < 1e-9);
    assert_eq!(sum.status, CostStatus::Estimated);
    assert_eq!(sum.source, CostSource::Mixed);
    assert_eq!(total(&[]).status, CostStatus::Unknown);
}
