//! How hard to think, in each house's words.
//!
//! Owns what is sent for it. A model that can't be told is told nothing: an answer without the
//! wanted effort is better than none.

use genai::chat::ReasoningEffort;
use serde_json::{Map, Value, json};

use crate::model::known::{bare, is_openai_reasoning};
use crate::model::{Request, Thinking};
use crate::provider::Wire;

/// What Gemini 2.5 Pro can't think less than.
const GEMINI_PRO_LEAST: u32 = 128;
/// Endings of names that `genai` takes for an effort, and cuts off.
const ENDINGS: &[&str] = &[
    "-zero", "-none", "-minimal", "-low", "-medium", "-high", "-xhigh", "-max",
];

/// What is sent.
pub(super) struct Effort {
    /// In the words of `genai`.
    pub(super) effort: Option<ReasoningEffort>,
    /// Is reasoning to be sent back, with what proves it?
    pub(super) shown: bool,
}

/// The effort for a request; what only one house understands goes into `extra`.
pub(super) fn effort(request: &Request, wire: Wire, extra: &mut Map<String, Value>) -> Effort {
    let model = bare(&request.target.model);
    let wanted = request.thinking;
    let (effort, shown) = match wire {
        Wire::Anthropic => (
            anthropic(&model, wanted),
            wanted.is_some_and(|level| level > Thinking::Off),
        ),
        Wire::Gemini => gemini(&model, wanted),
        Wire::Responses => {
            let reasons = is_openai_reasoning(&model);
            (
                wanted
                    .filter(|_| reasons)
                    .and_then(|level| openai(&model, level)),
                reasons,
            )
        }
        Wire::Ollama => (wanted.map(plain), false),
        Wire::DeepSeek => (wanted.map(plain), false),
        _ => (
            chat(&request.target.provider.id, &model, wire, wanted, extra),
            false,
        ),
    };
    // Without an effort, `genai` looks for one in the model's name: `qwen-max` would be asked for
    // as `qwen`. A budget is what chat completions and Responses have no words for.
    let has_ending = ENDINGS.iter().any(|ending| model.ends_with(ending));
    let effort = effort.or_else(|| match wire {
        Wire::Ollama | Wire::DeepSeek | Wire::Gemini => None,
        Wire::Anthropic => has_ending.then_some(ReasoningEffort::Zero),
        _ => Some(ReasoningEffort::Budget(0)),
    });
    Effort { effort, shown }
}

const fn plain(level: Thinking) -> ReasoningEffort {
    match level {
        Thinking::Off => ReasoningEffort::Zero,
        Thinking::Minimal | Thinking::Low => ReasoningEffort::Low,
        Thinking::Medium => ReasoningEffort::Medium,
        Thinking::High => ReasoningEffort::High,
        Thinking::Max => ReasoningEffort::Max,
    }
}

/// Low, medium or high: what everybody has who has levels.
const fn three(level: Thinking) -> Option<ReasoningEffort> {
    match level {
        Thinking::Off => None,
        Thinking::Minimal | Thinking::Low => Some(ReasoningEffort::Low),
        Thinking::Medium => Some(ReasoningEffort::Medium),
        Thinking::High | Thinking::Max => Some(ReasoningEffort::High),
    }
}

fn anthropic(model: &str, wanted: Option<Thinking>) -> Option<ReasoningEffort> {
    let can = ![
        "claude-2",
        "claude-3-5",
        "claude-3-h",
        "claude-3-o",
        "claude-3-s",
    ]
    .iter()
    .any(|old| model.starts_with(old));
    wanted.filter(|_| can).map(plain)
}

/// GPT-5 has `minimal` and no `none`; since 5.1 it is the other way round, and since 5.2 there is
/// `xhigh`.
fn openai(model: &str, level: Thinking) -> Option<ReasoningEffort> {
    let version = model.strip_prefix("gpt-").and_then(|rest| {
        let mut parts = rest.split('-').next()?.split('.');
        let major: u32 = parts.next()?.parse().ok()?;
        Some((
            major,
            parts
                .next()
                .and_then(|minor| minor.parse().ok())
                .unwrap_or(0_u32),
        ))
    });
    let version = version.unwrap_or((0, 0));
    match level {
        Thinking::Off if version >= (5, 1) => Some(ReasoningEffort::Zero),
        Thinking::Off | Thinking::Minimal if version == (5, 0) => Some(ReasoningEffort::Minimal),
        // An older one can't be told not to think at all.
        Thinking::Off => Some(ReasoningEffort::Low),
        Thinking::Max if version >= (5, 2) => Some(ReasoningEffort::XHigh),
        other => three(other),
    }
}

fn gemini(model: &str, wanted: Option<Thinking>) -> (Option<ReasoningEffort>, bool) {
    let has_levels = ["gemini-3", "gemini-4"]
        .iter()
        .any(|new| model.starts_with(new));
    let has_budget = model.starts_with("gemini-2.5");
    if !has_levels && !has_budget {
        return (None, false);
    }
    let is_pro = model.contains("-pro");
    let effort = wanted.map(|level| match level {
        Thinking::Off if has_budget && is_pro => ReasoningEffort::Budget(GEMINI_PRO_LEAST),
        Thinking::Off if has_budget => ReasoningEffort::Budget(0),
        // A Pro can't go below this, as above.
        Thinking::Off | Thinking::Minimal if is_pro => ReasoningEffort::Low,
        Thinking::Off | Thinking::Minimal => ReasoningEffort::Minimal,
        other => plain(other),
    });
    (effort, wanted != Some(Thinking::Off))
}

/// Chat completions of all houses but DeepSeek's, whose words `genai` knows.
fn chat(
    provider: &str,
    model: &str,
    wire: Wire,
    wanted: Option<Thinking>,
    extra: &mut Map<String, Value>,
) -> Option<ReasoningEffort> {
    let level = wanted?;
    let is_off = level == Thinking::Off;
    let mut switch = || {
        let kind = if is_off { "disabled" } else { "enabled" };
        extra.insert("thinking".to_owned(), json!({"type": kind}));
    };
    match wire {
        Wire::Kimi | Wire::Zai => switch(),
        Wire::OpenRouter => {
            let effort = match level {
                Thinking::Off => "none",
                Thinking::Minimal => "minimal",
                Thinking::Low => "low",
                Thinking::Medium => "medium",
                Thinking::High => "high",
                Thinking::Max => "xhigh",
            };
            extra.insert("reasoning".to_owned(), json!({"effort": effort}));
        }
        Wire::Mistral if model.starts_with("magistral") && !is_off => {
            extra.insert("prompt_mode".to_owned(), json!("reasoning"));
        }
        Wire::Groq if model.contains("gpt-oss") => return three(level),
        Wire::Groq if model.contains("qwen3") => {
            let effort = if is_off { "none" } else { "default" };
            extra.insert("reasoning_effort".to_owned(), json!(effort));
        }
        Wire::Xai if model.starts_with("grok-3-mini") => {
            return Some(match level {
                Thinking::Off | Thinking::Minimal | Thinking::Low => ReasoningEffort::Low,
                _ => ReasoningEffort::High,
            });
        }
        Wire::OpenAi if provider == "openai" => {
            return is_openai_reasoning(model)
                .then(|| openai(model, level))
                .flatten();
        }
        // llama.cpp, LM Studio, vLLM: templates have a switch, and some models have levels.
        Wire::OpenAi => {
            let switched = json!({"enable_thinking": !is_off});
            extra.insert("chat_template_kwargs".to_owned(), switched);
            return three(level);
        }
        _ => {}
    }
    None
}
