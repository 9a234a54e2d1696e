//! One turn of Claude Code: what its messages and results add up to.
//!
//! Owns usage, cost, api calls and the outcome. Must not know when a turn is over.

use agentd_core::ids::TurnId;
use agentd_core::worker::{ContextUse, Failure, Json, Outcome};
use agentd_protocol::Code;
use agentd_protocol::line::{Cost, CostStatus, Stop, Usage};
use serde_json::{Value, json};

use super::{ANTHROPIC, cancelled};
use crate::adapter::driver::{Abort, TurnState, in_flight};
use crate::adapter::object::Object;

/// Model calls listed for a turn: more are counted in its usage only.
const API_CALLS: usize = 1000;
/// Longest name of a model that is kept, in characters.
const MODEL: usize = 256;

/// The turn in flight.
#[derive(Debug)]
pub(in crate::adapter) struct Turn {
    /// Its run begins when something of it is seen.
    pub(super) state: TurnState,
    /// The id of its user message.
    pub(super) id: String,
    /// Is the message in the agent's queue, behind something else?
    pub(super) queued: bool,
    /// Did the agent say that it began with the message?
    pub(super) started: bool,
    /// The id of the last model message.
    pub(super) said: Option<String>,
    /// Did it come in pieces?
    pub(super) streamed: bool,
    /// The last message's end is not seen: a new one takes its place.
    pub(super) open: bool,
    /// The outcome of a run that another one follows, for a steer it did not take.
    pub(super) last: Option<Outcome>,
    /// What the agent called the error of a model call.
    pub(super) error: Option<String>,
    /// Why the model would not.
    pub(super) refusal: Option<String>,
    usage: Option<Usage>,
    cost: Option<f64>,
    /// The model call under way: its model and tokens.
    call: Option<(String, Usage)>,
    /// What the last one that ended read and said.
    context_tokens: Option<u64>,
    api_calls: Vec<Json>,
    model: Option<String>,
}

in_flight!(Turn);

impl Turn {
    pub(super) fn new(turn: TurnId, id: String) -> Self {
        Self {
            state: TurnState::new(turn),
            id,
            queued: false,
            started: false,
            said: None,
            streamed: false,
            open: false,
            last: None,
            error: None,
            refusal: None,
            usage: None,
            cost: None,
            call: None,
            context_tokens: None,
            api_calls: Vec::new(),
            model: None,
        }
    }

    /// A model call begins.
    pub(super) fn call_started(&mut self, message: &Object<'_>) {
        let model = message.string("model").unwrap_or_default();
        let model: String = model.chars().take(MODEL).collect();
        let usage = message.object("usage");
        let usage = usage.as_ref().map(tokens).unwrap_or_default();
        self.model = Some(model.clone());
        self.call = Some((model, usage));
    }

    /// What it has used by now.
    pub(super) fn call_used(&mut self, usage: &Object<'_>) {
        if let Some((_, used)) = &mut self.call {
            // The Messages API counts from the call's beginning each time, and an event may leave
            // some out.
            let more = tokens(usage);
            for (used, more) in [
                (&mut used.input_tokens, more.input_tokens),
                (&mut used.output_tokens, more.output_tokens),
                (&mut used.cache_read_tokens, more.cache_read_tokens),
                (&mut used.cache_write_tokens, more.cache_write_tokens),
            ] {
                *used = more.max(*used);
            }
        }
    }

    pub(super) fn call_ended(&mut self) {
        let Some((model, usage)) = self.call.take() else {
            return;
        };
        self.context_tokens = Some(usage.input_tokens.saturating_add(usage.output_tokens));
        if self.api_calls.len() < API_CALLS {
            let call = json!({"provider": null, "model": model, "outcome": "ok", "usage": usage});
            self.api_calls.push(call.to_string());
        }
    }

    /// What a result counted: its tokens are those of its run.
    pub(super) fn count(&mut self, result: &Object<'_>, usd: Option<f64>) {
        let usage = result.object("usage").map(|usage| tokens(&usage));
        // An interrupted run reports zeros for what it has used.
        if let Some(one) = usage.filter(|usage| *usage != Usage::default()) {
            self.usage.get_or_insert_default().add(one);
        }
        if let Some(usd) = usd {
            *self.cost.get_or_insert_default() += usd;
        }
    }

    /// How the run ended, with all that was counted.
    pub(super) fn outcome(&mut self, result: &Object<'_>, is_flat: bool) -> Outcome {
        let reason = result.string("terminal_reason").unwrap_or_default();
        let aborted = matches!(reason.as_str(), "aborted_streaming" | "aborted_tools");
        let subtype = result.string("subtype").unwrap_or_default();
        // 2.0 gives no reason.
        let broken = subtype == "error_during_execution";
        let mut outcome = if aborted || (self.state.abort == Abort::Sent && broken) {
            cancelled()
        } else if reason == "max_turns" || subtype == "error_max_turns" {
            Outcome::ended(Stop::MaxTurnRequests)
        } else if self.error.as_deref() == Some("max_output_tokens") {
            Outcome::ended(Stop::MaxTokens)
        } else if result.string("stop_reason").as_deref() == Some("refusal") {
            let said = || result.string("result").filter(|said| !said.is_empty());
            Outcome {
                refusal: self.refusal.clone().or_else(said),
                ..Outcome::ended(Stop::Refusal)
            }
        } else if result.is_true("is_error") || subtype != "success" {
            Outcome::failed(failure(result, self.error.as_deref(), &reason))
        } else {
            let stop = match result.string("stop_reason").as_deref() {
                Some("max_tokens" | "model_context_window_exceeded") => Stop::MaxTokens,
                _ => Stop::EndTurn,
            };
            Outcome {
                text: result.string("result"),
                ..Outcome::ended(stop)
            }
        };
        outcome.provider = provider(result);
        outcome.model.clone_from(&self.model);
        outcome.usage = self.usage;
        let window = window(result, self.model.as_deref());
        outcome.context = ContextUse::known(self.context_tokens, window);
        outcome.cost = cost(self.cost, is_flat);
        outcome.api_calls = Some(self.api_calls.clone());
        outcome
    }
}

/// Who served the models, by the names by which one is chosen (`bedrock`, `vertex`, …).
fn provider(result: &Object<'_>) -> Option<String> {
    let models: Value = result.get("modelUsage")?;
    let mut models = models.as_object()?.values();
    let said = models.find_map(|model| model["provider"].as_str());
    said.map(|said| {
        if said == "firstParty" {
            ANTHROPIC
        } else {
            said
        }
        .to_owned()
    })
}

/// How much fits into the context of the model that answered: a result lists all that were used in the
/// process, under the names that they were asked for.
fn window(result: &Object<'_>, model: Option<&str>) -> Option<u64> {
    let models: Value = result.get("modelUsage")?;
    let models = models.as_object()?;
    let is_it = |name: &str, row: &Value| {
        Some(name) == model
            || row["canonicalModel"]
                .as_str()
                .is_some_and(|of| Some(of) == model)
    };
    let mut named = models.iter().filter(|(name, row)| is_it(name, row));
    let (_, row) = named.next().or_else(|| {
        let mut all = models.iter();
        all.next().filter(|_| all.next().is_none())
    })?;
    row["contextWindow"].as_u64()
}

/// Claude Code multiplies tokens by its own price list.
fn cost(usd: Option<f64>, is_flat: bool) -> Cost {
    let status = match usd {
        _ if is_flat => CostStatus::Included,
        Some(_) => CostStatus::Estimated,
        None => CostStatus::Unknown,
    };
    Cost {
        usd: usd.filter(|_| !is_flat),
        status,
        source: (status == CostStatus::Estimated).then(|| "claude".to_owned()),
    }
}

fn tokens(usage: &Object<'_>) -> Usage {
    let details = usage.object("output_tokens_details");
    Usage {
        input_tokens: usage.get("input_tokens").unwrap_or(0),
        output_tokens: usage.get("output_tokens").unwrap_or(0),
        cache_read_tokens: usage.get("cache_read_input_tokens").unwrap_or(0),
        cache_write_tokens: usage.get("cache_creation_input_tokens").unwrap_or(0),
        reasoning_tokens: details
            .and_then(|details| details.get("thinking_tokens"))
            .unwrap_or(0),
    }
    // The Messages API counts what was cached apart from the input.
    .cached_apart()
}

/// Why a run failed: by the agent's own name of the error, by the provider's status, by its words.
fn failure(result: &Object<'_>, error: Option<&str>, reason: &str) -> Failure {
    let errors: Vec<String> = result.get("errors").unwrap_or_default();
    let said = result.string("result").filter(|said| !said.is_empty());
    let said = said.unwrap_or_else(|| errors.join("; "));
    let words = said.to_lowercase();
    // 2.0 has the status in its words only.
    let status = result.get("api_error_status").or_else(|| {
        let (_, after) = words.split_once("api error: ")?;
        after.get(..3)?.parse().ok()
    });
    let status: u64 = status.unwrap_or(0);
    let code = match (reason, error.unwrap_or_default(), status) {
        ("prompt_too_long" | "blocking_limit" | "rapid_refill_breaker", ..) => {
            Code::ContextOverflow
        }
        (_, "authentication_failed" | "oauth_org_not_allowed", _) | (_, _, 401 | 403) => {
            Code::AgentAuth
        }
        // 529 is Anthropic's own, for when it is overloaded.
        (_, "rate_limit" | "overloaded", _) | (_, _, 429 | 529) => Code::RateLimit,
        _ if words.contains("prompt is too long") => Code::ContextOverflow,
        _ if words.contains("/login") => Code::AgentAuth,
        _ => Code::AgentFailed,
    };
    let said = if said.is_empty() {
        "the run failed without saying why"
    } else {
        &said
    };
    Failure {
        hint: (code == Code::AgentAuth).then(|| {
            "run `claude` and `/login`, or give it ANTHROPIC_API_KEY by `pass_env`".to_owned()
        }),
        ..Failure::new(code, format!("claude: {said}"))
    }
}
