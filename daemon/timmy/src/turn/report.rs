//! What is known of a turn when it is over: every attempt, what it used and cost, the final line.
//!
//! Owns the members of the final line. Must not know how a turn is played.

use std::time::Duration;

use agentd_protocol::Code;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::{Ending, Failing};
use crate::failover::Class;
use crate::failover::cooldown::Cooldown;
use crate::line::Line;
use crate::model::Usage;
use crate::price::{self, Cost, CostSource, CostStatus};
use crate::provider::{Key, Target};
use crate::session::store::StoreError;

/// One request to a model.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attempt {
    pub(crate) provider: String,
    pub(crate) model: String,
    /// Does it run on the user's own machines?
    pub(crate) local: bool,
    /// Milliseconds of the wall clock.
    pub(crate) started: u64,
    pub(crate) ended: u64,
    /// How it failed, if it did.
    pub(crate) class: Option<Class>,
    /// The HTTP status of a failure.
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) usage: Option<Usage>,
    /// How many tokens fit into a conversation with the model.
    pub(crate) window: Option<u64>,
    pub(crate) cost: Option<Cost>,
}

impl Attempt {
    pub(crate) fn new(target: &Target, started: u64, ended: u64) -> Self {
        Self {
            provider: target.provider.id.clone(),
            model: target.model.clone(),
            local: target.provider.is_at_home(),
            started,
            ended,
            class: None,
            status: None,
            retry_after: None,
            usage: None,
            window: target.window(),
            cost: None,
        }
    }

    pub(crate) fn used(&mut self, target: &Target, usage: &Usage, reported: Option<f64>) {
        // One that says nothing of it used something nobody knows.
        self.usage = Some(*usage).filter(|usage| *usage != Usage::default());
        self.cost = Some(price::cost(
            &target.provider,
            &target.model,
            usage,
            reported,
        ));
    }

    fn json(&self) -> Value {
        json!({
            "provider": self.provider,
            "model": self.model,
            "local": self.local,
            "started": rfc3339(self.started),
            "ended": rfc3339(self.ended),
            "class": self.class,
            "status": self.status,
            "retry_after": self.retry_after.map(|time| time.as_secs_f64()),
            "usage": self.usage,
            "cost": self.cost,
        })
    }
}

/// What is known of a turn.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Report {
    /// Of the last message that has one.
    pub(crate) text: String,
    pub(crate) attempts: Vec<Attempt>,
    /// So far; a provider that isn't there doesn't count.
    pub(crate) requests: u32,
    pub(crate) suspected_refusal: bool,
    /// As they were at the beginning, less those that are over.
    pub(crate) cooldowns: Vec<Cooldown>,
    soul_sha256: Option<String>,
}

impl Report {
    pub(crate) const fn new(cooldowns: Vec<Cooldown>, soul_sha256: Option<String>) -> Self {
        Self {
            text: String::new(),
            attempts: Vec::new(),
            requests: 0,
            suspected_refusal: false,
            cooldowns,
            soul_sha256,
        }
    }

    fn usage(&self) -> Option<Usage> {
        let used = self.attempts.iter().filter_map(|attempt| attempt.usage);
        used.reduce(|all, one| Usage {
            input: all.input + one.input,
            cache_read: all.cache_read + one.cache_read,
            cache_write: all.cache_write + one.cache_write,
            output: all.output + one.output,
            reasoning: all.reasoning + one.reasoning,
        })
    }

    /// The sum; of what nobody knows there is none.
    fn cost(&self) -> Value {
        let costs: Vec<Cost> = self
            .attempts
            .iter()
            .filter_map(|one| one.cost.clone())
            .collect();
        if costs.is_empty() {
            return json!({"usd": null, "status": CostStatus::Unknown, "source": CostSource::None});
        }
        let mut sum = price::total(&costs);
        if sum.status == CostStatus::Unknown {
            // A part of the sum would be read as all of it.
            sum.usd = None;
        }
        json!(sum)
    }

    /// What both kinds of final line say.
    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        let mut say = |name: &str, value: Value| {
            members.insert(name.to_owned(), value);
        };
        say("text", json!(self.text));
        // Who answered last, or was asked last.
        let answered = self.attempts.iter().rev().find(|one| one.class.is_none());
        if let Some(attempt) = answered {
            let tokens = attempt.usage.map(|usage| usage.input + usage.output);
            say("context_tokens", json!(tokens));
            say("context_window", json!(attempt.window));
        }
        if let Some(attempt) = answered.or(self.attempts.last()) {
            say("provider", json!(attempt.provider));
            say("model", json!(attempt.model));
            say("local", json!(attempt.local));
        }
        say("usage", json!(self.usage()));
        say("cost", self.cost());
        let attempts = self.attempts.iter().map(Attempt::json);
        say("api_calls", attempts.collect());
        if self.suspected_refusal {
            say("suspected_refusal", json!(true));
        }
        if let Some(soul) = &self.soul_sha256 {
            say("soul_sha256", json!(soul));
        }
        members
    }
}

/// Says how a turn ended.
pub(crate) async fn say(line: &Line, ending: &Ending, report: &Report, more: Map<String, Value>) {
    let mut members = report.members();
    members.extend(more);
    let stop = match ending {
        Ending::Done => "end_turn",
        Ending::MaxTokens => "max_tokens",
        Ending::MaxRequests => "max_turn_requests",
        Ending::Refused(_) => "refusal",
        Ending::Cancelled => "cancelled",
        Ending::TimedOut | Ending::Failed(_) | Ending::Store(_) => {
            let (code, error) = failure(ending);
            members.insert("code".to_owned(), json!(code));
            members.insert("error".to_owned(), json!(error));
            members.insert("retryable".to_owned(), json!(code.retryable()));
            if let Ending::Failed(failing) = ending {
                members.insert("class".to_owned(), json!(failing.class));
                let retry_in = failing.retry_in.map(|time| time.as_secs_f64());
                members.insert("retry_in".to_owned(), json!(retry_in));
            }
            return line.say("error", Value::Object(members)).await;
        }
    };
    if let Ending::Refused(why) = ending {
        members.insert("refusal".to_owned(), json!(why));
    }
    members.insert("stop".to_owned(), json!(stop));
    line.say("message_end", Value::Object(members)).await;
}

/// What a turn failed of, for programs and for people.
pub(crate) fn failure(ending: &Ending) -> (Code, String) {
    match ending {
        Ending::Failed(Failing { code, error, .. }) => (*code, error.clone()),
        Ending::Store(why) => (store_code(why), why.to_string()),
        Ending::TimedOut => (Code::Timeout, "the turn took too long".to_owned()),
        Ending::MaxRequests => {
            let error = "there were as many requests as a turn may have";
            (Code::AgentFailed, error.to_owned())
        }
        Ending::Refused(why) => (Code::AgentFailed, format!("the model refused: {why}")),
        Ending::Cancelled => (Code::AgentFailed, "it was cancelled".to_owned()),
        Ending::Done | Ending::MaxTokens => (Code::Internal, "nothing failed".to_owned()),
    }
}

/// The protocol's word for a class.
pub(crate) const fn code(class: Class) -> Code {
    match class {
        Class::Auth => Code::AgentAuth,
        // Both mean: later.
        Class::RateLimit | Class::Overloaded => Code::RateLimit,
        Class::ContextOverflow => Code::ContextOverflow,
        _ => Code::AgentFailed,
    }
}

/// The protocol's word for what the store says.
pub(crate) const fn store_code(why: &StoreError) -> Code {
    match why {
        StoreError::Open => Code::SessionBusy,
        StoreError::Full(..) => Code::DiskFull,
        StoreError::Changed | StoreError::Failed(..) => Code::StoreFailed,
    }
}

/// A class, for people.
pub(crate) const fn word(class: Class) -> &'static str {
    match class {
        Class::Cancelled => "it was cancelled",
        Class::Refusal => "it refused",
        Class::ContextOverflow => "the conversation is too long for it",
        Class::Billing => "money or a plan has run out",
        Class::Auth => "it doesn't take the key",
        Class::NotConfigured => "it isn't there, or has no key",
        Class::ModelNotFound => "it has no such model",
        Class::RateLimit => "too many requests",
        Class::Overloaded => "it is overloaded",
        Class::ServerError => "it is broken",
        Class::Timeout => "nothing came, or the connection broke",
        Class::Certificate => "its certificate isn't to be trusted",
        Class::MalformedResponse => "its answer makes no sense",
        Class::BadRequest => "it doesn't take the request",
        Class::Unknown => "it failed",
    }
}

/// Tells one key from another, and nothing of either.
pub(crate) fn fingerprint(key: &Key) -> String {
    let digest = Sha256::digest(key.secret().as_bytes());
    digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// As `2026-11-22T04:05:06.789Z`.
pub(crate) fn rfc3339(ms: u64) -> String {
    let at = i64::try_from(ms / 1000).ok();
    let at = at.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let at = at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        ms % 1000
    )
}

#[cfg(test)]
mod tests;
