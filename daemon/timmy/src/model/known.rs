//! What is known of models by their names: how much fits into them, and how they think.
//!
//! Owns the table. Must not send anything. Models nobody here has heard of get the defaults;
//! `context_window` of `[providers.NAME]` has the last word.

/// Fits into nearly every model that can use tools.
pub(crate) const DEFAULT_WINDOW: u64 = 128_000;
/// The memory for so many takes about 2 GiB with a model of eight billion parameters. What a turn
/// begins with takes a quarter.
const LOCAL_WINDOW: u64 = 16_384;
/// A reply this long is one file of a thousand lines; servers take a smaller limit of their own.
const DEFAULT_OUTPUT: u32 = 16_384;
/// What Ollama gives a model that nobody configured may be as little as 4096: more is asked for
/// only by the user.
const SMALL_OUTPUT: u32 = 8_192;

/// A family of models: how its names begin, what fits into it, and how much it may say at once.
struct Family {
    starts: &'static str,
    window: u64,
    output: u32,
}

const fn family(starts: &'static str, window: u64, output: u32) -> Family {
    Family {
        starts,
        window,
        output,
    }
}

/// The longest beginning that fits counts. Vendors before a slash are left out.
const FAMILIES: &[Family] = &[
    family("claude-2", 200_000, 4_096),
    family("claude-3-haiku", 200_000, 4_096),
    family("claude-3-opus", 200_000, 4_096),
    family("claude-3-sonnet", 200_000, 4_096),
    family("claude-3-5", 200_000, 8_192),
    family("claude-3-7", 200_000, 64_000),
    family("claude-3.5", 200_000, 8_192),
    family("claude-3.7", 200_000, 64_000),
    family("claude-opus-4", 200_000, 32_000),
    family("claude-opus-4-5", 200_000, 64_000),
    family("claude-opus-4-6", 1_000_000, 64_000),
    family("claude-opus-4-7", 1_000_000, 64_000),
    family("claude-opus-4-8", 1_000_000, 128_000),
    family("claude-opus-5", 1_000_000, 128_000),
    family("claude-sonnet-4", 200_000, 64_000),
    family("claude-sonnet-4-6", 1_000_000, 64_000),
    family("claude-sonnet-5", 1_000_000, 64_000),
    family("claude-haiku-4", 200_000, 64_000),
    family("claude-haiku-5", 1_000_000, 128_000),
    family("claude-fable", 1_000_000, 128_000),
    family("gpt-3.5", 16_385, 4_096),
    family("gpt-4", 8_192, 4_096),
    family("gpt-4-turbo", 128_000, 4_096),
    family("gpt-4o", 128_000, 16_384),
    family("gpt-4.1", 1_000_000, 32_768),
    family("gpt-5", 400_000, 128_000),
    family("gpt-5.3", 128_000, 32_768),
    family("gpt-5.3-codex", 400_000, 128_000),
    family("gpt-5.4", 1_050_000, 128_000),
    family("gpt-5.4-mini", 400_000, 128_000),
    family("gpt-5.4-nano", 400_000, 128_000),
    family("gpt-5.5", 1_000_000, 128_000),
    family("gpt-5.6", 1_050_000, 128_000),
    family("gpt-6", 1_050_000, 128_000),
    family("gpt-oss", 131_072, 32_768),
    family("o1", 200_000, 100_000),
    family("o1-mini", 128_000, 65_536),
    family("o1-preview", 128_000, 32_768),
    family("o3", 200_000, 100_000),
    family("o4", 200_000, 100_000),
    family("codex-mini", 200_000, 100_000),
    family("gemini-1.5", 1_000_000, 8_192),
    family("gemini-1.5-pro", 1_000_000, 8_192),
    family("gemini-2.0", 1_000_000, 8_192),
    family("gemini-2.5", 1_048_576, 65_536),
    family("gemini-3", 1_000_000, 65_536),
    family("gemini-4", 1_048_576, 65_536),
    family("gemma-4", 262_144, 32_768),
    family("llama-3.1", 131_072, 8_192),
    family("llama-3.3", 131_072, 32_768),
    family("llama-4", 131_072, 8_192),
    family("qwen3", 131_072, 32_768),
    family("grok-2", 32_768, 8_192),
    family("grok-3", 131_072, 32_768),
    family("grok-4", 256_000, 64_000),
    family("grok-4-fast", 2_000_000, 64_000),
    family("grok-4-1-fast", 2_000_000, 64_000),
    family("grok-4.20", 1_000_000, 64_000),
    family("grok-4.3", 1_000_000, 64_000),
    family("grok-4.", 500_000, 64_000),
    family("grok-code", 256_000, 64_000),
    family("kimi-k2", 131_072, 32_768),
    family("kimi-k2-0905", 262_144, 32_768),
    family("kimi-k2-t", 262_144, 32_768),
    family("kimi-k2.", 262_144, 32_768),
    family("kimi-k3", 1_048_576, 65_536),
    family("kimi-for-coding", 262_144, 32_768),
    family("k3", 1_048_576, 65_536),
    family("moonshot-v1-8k", 8_192, 4_096),
    family("moonshot-v1-32k", 32_768, 8_192),
    family("moonshot-v1-128k", 131_072, 16_384),
    family("deepseek-chat", 128_000, 8_192),
    family("deepseek-reasoner", 128_000, 32_768),
    family("deepseek-v3", 128_000, 8_192),
    family("deepseek-v4", 1_000_000, 65_536),
    family("deepseek-flash", 1_000_000, 65_536),
    family("codestral", 256_000, 16_384),
    family("devstral", 262_144, 16_384),
    family("ministral", 131_072, 16_384),
    family("mistral-large-2512", 262_144, 16_384),
    family("mistral-large-4", 1_048_576, 32_768),
    family("mistral-medium-3-5", 262_144, 16_384),
    family("mistral-small-2603", 262_144, 16_384),
    family("magistral", 131_072, 32_768),
    family("glm-4.5", 131_072, 65_536),
    family("glm-4.6", 200_000, 65_536),
    family("glm-4.7", 200_000, 65_536),
    family("glm-5", 200_000, 65_536),
    family("glm-5.2", 1_000_000, 65_536),
    family("glm-5.3", 1_000_000, 65_536),
];

/// The name behind vendors: `openai/gpt-4.1-mini` is `gpt-4.1-mini`, whatever its case.
pub(crate) fn bare(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model);
    name.to_ascii_lowercase()
}

fn find(model: &str) -> Option<&'static Family> {
    let name = bare(model);
    let fits = FAMILIES
        .iter()
        .filter(|family| name.starts_with(family.starts));
    fits.max_by_key(|family| family.starts.len())
}

/// Tokens that fit into a conversation with a model, as its makers say.
///
/// Local servers decide for themselves how much they give a model, so of theirs nothing is known.
pub(crate) fn window(provider: &str, model: &str) -> Option<u64> {
    if matches!(provider, "ollama" | "lmstudio" | "llamacpp") {
        return None;
    }
    find(model).map(|family| family.window)
}

/// Tokens that a local server is asked to make room for, when the user says nothing: enough to work
/// with, and no more memory than most machines have.
pub(crate) fn local_window(model: &str) -> u64 {
    let listed = find(model).map_or(LOCAL_WINDOW, |family| family.window);
    listed.min(LOCAL_WINDOW)
}

/// How much a model may say in one reply.
pub(crate) fn max_output(model: &str, is_local: bool) -> u32 {
    match find(model) {
        Some(family) if is_local => family.output.min(DEFAULT_OUTPUT),
        Some(family) => family.output,
        None if is_local => SMALL_OUTPUT,
        None => DEFAULT_OUTPUT,
    }
}

/// Does OpenAI call it a reasoning model? These are asked through Responses, and only they take an
/// effort.
pub(crate) fn is_openai_reasoning(model: &str) -> bool {
    let name = bare(model);
    let is_series = |start: &str| {
        let rest = name.strip_prefix(start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    let generation = name
        .strip_prefix("gpt-")
        .and_then(|rest| rest.split(['-', '.']).next()?.parse::<u32>().ok());
    (generation.is_some_and(|number| number >= 5) && !name.contains("-chat"))
        || ["o1", "o3", "o4"].into_iter().any(is_series)
        || name.starts_with("codex-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_that_of_the_longest_fitting_name() {
        let of = |model| window("openrouter", model);
        assert_eq!(of("anthropic/claude-opus-4-1"), Some(200_000));
        assert_eq!(of("anthropic/claude-opus-4-8"), Some(1_000_000));
        assert_eq!(of("OpenAI/GPT-4.1-mini"), Some(1_000_000));
        assert_eq!(of("gpt-4"), Some(8_192));
        assert_eq!(of("somebody/unheard-of"), None);
        assert_eq!(window("ollama", "qwen3:8b"), None);
    }

    #[test]
    fn the_table_says_what_the_price_list_says() {
        let list = genai_prices::Calculator::bundled();
        let mut compared = 0;
        for provider in ["anthropic", "openai", "x-ai", "moonshotai"] {
            let found = list.find_provider(Some(provider), None).unwrap().unwrap();
            for model in found.models() {
                let skipped = [
                    "audio",
                    "realtime",
                    "transcribe",
                    "search",
                    "image",
                    "32k",
                    "vision",
                ];
                let (Some(theirs), Some(ours)) =
                    (model.context_window(), window(provider, model.id()))
                else {
                    continue;
                };
                if skipped.iter().any(|word| model.id().contains(word)) {
                    continue;
                }
                compared += 1;
                assert_eq!(ours, theirs, "{provider}/{}", model.id());
            }
        }
        assert!(compared > 60, "only {compared} compared");
    }

    #[test]
    fn small_models_are_not_asked_for_long_replies() {
        assert_eq!(max_output("claude-3-haiku-20240307", false), 4_096);
        assert_eq!(max_output("unheard-of", false), DEFAULT_OUTPUT);
        assert_eq!(max_output("llama3.2:3b", true), SMALL_OUTPUT);
    }

    #[test]
    fn reasoning_models_are_known_by_their_names() {
        for model in [
            "gpt-5",
            "gpt-5.2-codex",
            "gpt-6-sol",
            "o3",
            "o4-mini",
            "openai/gpt-5-mini",
        ] {
            assert!(is_openai_reasoning(model), "{model}");
        }
        for model in [
            "gpt-4.1",
            "gpt-4o",
            "gpt-oss-120b",
            "gpt-5-chat-latest",
            "o10x",
            "llama-3",
        ] {
            assert!(!is_openai_reasoning(model), "{model}");
        }
    }
}
