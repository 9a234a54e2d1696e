//! One turn of pi: what its messages add up to.
//!
//! Owns usage, cost, api calls and the outcome. Must not know when a turn is over.

use std::collections::BTreeMap;

use agentd_core::worker::{ContextUse, Failure, Json, Outcome, Prompt};
use agentd_protocol::Code;
use agentd_protocol::line::{Cost, CostStatus, Stop, Usage};
use serde_json::json;

use crate::adapter::driver::{TurnState, in_flight};
use crate::adapter::object::{Object, content};
use crate::adapter::refusal::{Signs, Status};

/// Model calls listed for a turn: more are counted in its usage only.
const API_CALLS: usize = 1000;
/// Tool calls whose output is followed at once.
const OPEN_CALLS: usize = 64;
/// Output of one call that is followed: pi itself keeps the last 50 KB.
const FOLLOWED: usize = 64 * 1024;

/// What pi makes of a refusal, which it takes for an error.
const REFUSALS: &[&str] = &[
    "Provider finish_reason: content_filter",
    "Provider stopped with: sensitive",
    "The model refused to complete the request",
];

/// What its errors say, which are the provider's own.
const SIGNS: Signs = Signs {
    overflow: &[
        "context length",
        "context_length",
        "context window",
        "prompt is too long",
        "maximum context",
    ],
    rate: &[
        "rate limit",
        "rate_limit",
        "too many requests",
        "quota",
        "usage limit",
    ],
    auth: &["api key", "api_key", "unauthorized", "authentication"],
    status: Status::Counts,
};

/// The turn in flight.
#[derive(Debug)]
pub(in crate::adapter) struct Turn {
    /// Its run begins with `agent_start`.
    pub(super) state: TurnState,
    /// The id of its `prompt` request.
    pub(super) id: String,
    /// The id of its `abort`.
    pub(super) abort: Option<String>,
    /// May it be a command of an extension, which starts no run?
    pub(super) slash: bool,
    /// Did pi say that it was handled without a run?
    pub(super) handled: bool,
    /// The next message takes the place of the one that failed.
    pub(super) replaces: bool,
    /// Was text of the message that is open streamed?
    pub(super) streamed: bool,
    /// Output so far, by call.
    calls: BTreeMap<String, String>,
    usage: Option<Usage>,
    /// What the last request that went well read and said.
    context_tokens: Option<u64>,
    /// US dollars, and whether each part came from the provider itself.
    cost: Option<(f64, bool)>,
    api_calls: Vec<Json>,
    provider: Option<String>,
    model: Option<String>,
    /// The last assistant message: why it stopped, what went wrong, its text.
    last: Option<(String, String, String)>,
}

in_flight!(Turn);

impl Turn {
    pub(super) fn new(prompt: &Prompt, id: String) -> Self {
        Self {
            state: TurnState::new(prompt.turn),
            id,
            abort: None,
            slash: prompt.text.starts_with('/'),
            handled: false,
            replaces: false,
            streamed: false,
            calls: BTreeMap::new(),
            usage: None,
            context_tokens: None,
            cost: None,
            api_calls: Vec::new(),
            provider: None,
            model: None,
            last: None,
        }
    }

    /// Takes a finished assistant message; returns its text if none of it was streamed.
    pub(super) fn message(&mut self, message: &Object<'_>) -> Option<String> {
        let stop = message.string("stopReason").unwrap_or_default();
        let error = message.string("errorMessage").unwrap_or_default();
        let text = content(message);
        self.replaces = stop == "error";
        self.provider = message.string("provider").or(self.provider.take());
        self.model = message.string("model").or(self.model.take());
        let usage = message.object("usage");
        if let Some(usage) = &usage {
            self.count(usage);
            // pi's own reckoning leaves out messages that broke off.
            if stop != "error" && stop != "aborted" {
                let used = tokens(usage);
                self.context_tokens = Some(used.input_tokens.saturating_add(used.output_tokens));
            }
        }
        if self.api_calls.len() < API_CALLS {
            self.api_calls
                .push(api_call(message, &stop, usage.as_ref()));
        }
        let unsaid =
            (!std::mem::take(&mut self.streamed) && !text.is_empty()).then(|| text.clone());
        self.last = Some((stop, error, text));
        unsaid
    }

    fn count(&mut self, usage: &Object<'_>) {
        self.usage.get_or_insert_default().add(tokens(usage));
        if let Some((usd, actual)) = price(usage) {
            let (sum, all_actual) = self.cost.unwrap_or((0.0, true));
            self.cost = Some((sum + usd, all_actual && actual));
        }
    }

    /// The new piece of a call's accumulated output and where it begins. Output that isn't a
    /// continuation (pi dropped its beginning) is left to the call's end.
    pub(super) fn more_output(&mut self, call: &str, output: String) -> Option<(u64, String)> {
        if output.len() > FOLLOWED
            || (!self.calls.contains_key(call) && self.calls.len() >= OPEN_CALLS)
        {
            return None;
        }
        let before = self.calls.entry(call.to_owned()).or_default();
        let piece = output
            .strip_prefix(before.as_str())
            .filter(|piece| !piece.is_empty())?;
        let told = (before.len() as u64, piece.to_owned());
        *before = output;
        Some(told)
    }

    pub(super) fn call_ended(&mut self, call: &str) {
        self.calls.remove(call);
    }

    /// How the turn ended, now that pi is idle.
    pub(super) fn outcome(&self, window: Option<u64>) -> Outcome {
        let aborted = self.state.is_cancelled();
        let (stop, error, text) = match &self.last {
            Some((stop, error, text)) => (stop.as_str(), error.as_str(), Some(text.clone())),
            // A command of an extension, or an abort before the first answer: there is no message.
            None => (if aborted { "aborted" } else { "stop" }, "", None),
        };
        let refuses = stop == "error" && REFUSALS.contains(&error);
        let result = match stop {
            "aborted" => Ok(Stop::Cancelled),
            "error" if aborted => Ok(Stop::Cancelled),
            "error" if refuses => Ok(Stop::Refusal),
            "error" => Err(failure(error)),
            "length" => Ok(Stop::MaxTokens),
            _ => Ok(Stop::EndTurn),
        };
        let refusal = (result == Ok(Stop::Refusal)).then(|| error.to_owned());
        Outcome {
            result,
            text,
            provider: self.provider.clone(),
            model: self.model.clone(),
            usage: self.usage,
            context: ContextUse::known(self.context_tokens, window),
            cost: self.cost.map_or_else(Cost::default, cost),
            api_calls: self.last.is_some().then(|| self.api_calls.clone()),
            refusal,
            ..Outcome::ended(Stop::EndTurn)
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.calls.values().map(String::len).sum::<usize>() + self.api_calls.len()
    }
}

/// What the obvious words of an error mean.
pub(super) fn failure(error: &str) -> Failure {
    let code = SIGNS.code(error);
    let said = if error.is_empty() {
        "the model call failed without saying why"
    } else {
        error
    };
    Failure {
        hint: (code == Code::AgentAuth)
            .then(|| "run `pi` and `/login`, or give it an API key".to_owned()),
        ..Failure::new(code, format!("pi: {said}"))
    }
}

fn tokens(usage: &Object<'_>) -> Usage {
    Usage {
        input_tokens: usage.get("input").unwrap_or(0),
        output_tokens: usage.get("output").unwrap_or(0),
        cache_read_tokens: usage.get("cacheRead").unwrap_or(0),
        cache_write_tokens: usage.get("cacheWrite").unwrap_or(0),
        reasoning_tokens: usage.get("reasoning").unwrap_or(0),
    }
    .cached_apart()
}

fn price(usage: &Object<'_>) -> Option<(f64, bool)> {
    let cost = usage.object("cost")?;
    let total = cost.get("total").filter(|usd: &f64| usd.is_finite())?;
    Some((total, cost.is_true("totalFromProvider")))
}

fn cost((usd, actual): (f64, bool)) -> Cost {
    Cost {
        usd: Some(usd),
        status: if actual {
            CostStatus::Actual
        } else {
            CostStatus::Estimated
        },
        source: (!actual).then(|| "pi".to_owned()),
    }
}

fn api_call(message: &Object<'_>, stop: &str, usage: Option<&Object<'_>>) -> Json {
    let mut call = json!({
        "provider": message.string("provider"),
        "model": message.string("model"),
        "outcome": match stop { "error" => "error", "aborted" => "cancelled", _ => "ok" },
        "usage": usage.map(tokens),
        "cost": usage.and_then(price).map_or_else(Cost::default, cost),
    });
    if let Some(ms) = message.get::<u64>("durationMs") {
        call["duration_ms"] = json!(ms);
    }
    call.to_string()
}
