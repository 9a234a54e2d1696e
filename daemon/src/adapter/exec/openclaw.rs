//! What `openclaw agent --json` prints: one JSON object with `payloads` and `meta`.
//!
//! Owns what of that object counts. Bare from `--local`, wrapped in a `result` by its gateway, an
//! `error` when nothing came of it, or one in `meta`: then the payloads are words about it. Lines
//! before the object are log. `tests/fixtures/openclaw` has what version 2026.9.6 printed.

use agentd_core::ids::TurnId;
use agentd_core::worker::{Exit, Failure, Outcome, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::{Cost, CostStatus, Stop, Usage};
use serde_json::Value;

use super::Exec;
use crate::adapter::{Adapter, Framing, refusal};
use agentd_core::effect::Spawn;

/// A turn's object is some 12 KB of report around its text, which has a limit of its own.
const MOST: usize = 16 * 1024 * 1024;

/// One process's translator.
pub struct Openclaw {
    /// For the words about a failure.
    exec: Exec,
    turn: Option<TurnId>,
    printed: Vec<u8>,
    beyond: usize,
}

impl Openclaw {
    /// A translator for a new process.
    #[must_use]
    pub fn new(spawn: &Spawn) -> Self {
        Self {
            exec: Exec::new(spawn),
            turn: spawn.prompt.as_deref().map(|prompt| prompt.turn),
            printed: Vec::new(),
            beyond: 0,
        }
    }

    fn outcome(&self, exit: Exit, tail: &str) -> (String, Outcome) {
        let failed = |code, error: String| Outcome::failed(Failure::new(code, error));
        let odd = |error: String| failed(Code::AgentFailed, error);
        let agent = &self.exec.agent;
        let Some(answer) = answer(&self.printed) else {
            let outcome = match exit {
                Exit::Code(0) if self.beyond > 0 => odd(format!(
                    "agent `{agent}` printed more than {MOST} bytes, expected one JSON object"
                )),
                Exit::Code(0) => odd(format!(
                    "agent `{agent}` printed no JSON object with `payloads`; its command needs \
                     `--json`"
                )),
                Exit::Code(_) | Exit::Signal(_) => self.exec.failed(exit, tail),
            };
            return (String::new(), outcome);
        };
        let inner = answer.get("result").unwrap_or(&answer);
        let meta = &inner["meta"]["agentMeta"];
        let word = |name: &str| meta[name].as_str().map(str::to_owned);
        let refused = why(&answer, inner).filter(|_| {
            is_failure(&answer) || !inner["meta"]["error"].is_null() || exit != Exit::Code(0)
        });
        let text = text(inner, refused.is_some());
        let outcome = match (refused, exit) {
            (Some(why), _) => failed(refusal::ANY.code(&why), format!("agent `{agent}`: {why}")),
            (None, Exit::Code(0)) => Outcome::ended(Stop::EndTurn),
            (None, _) => self.exec.failed(exit, tail),
        };
        let outcome = Outcome {
            provider: word("provider"),
            model: word("model"),
            usage: usage(&meta["usage"]),
            cost: cost(&meta["usage"]),
            ..outcome
        };
        (text, outcome)
    }
}

/// The first object that is one: what stands before it is log.
fn answer(printed: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(printed);
    let starts = text.match_indices('{').map(|(at, _)| at);
    // Words of a log may have braces, too, but not at the beginning of a line.
    let at_line = |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n';
    starts.filter(at_line).find_map(|at| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        let value = values.next()?.ok()?;
        let known = ["payloads", "result", "error"];
        known
            .iter()
            .any(|name| value.get(name).is_some())
            .then_some(value)
    })
}

fn is_failure(answer: &Value) -> bool {
    answer["ok"] == Value::Bool(false) || answer["status"] == "error"
}

/// What went wrong, as it was said: by the command, in the place of an answer, or by the provider.
fn why(answer: &Value, inner: &Value) -> Option<String> {
    let beside = ["error", "summary"];
    let of_command = beside.iter().find_map(|name| said(&answer[*name]));
    let payloads = inner["payloads"].as_array().into_iter().flatten();
    let mut of_turn: Vec<String> = payloads
        .filter(|one| is_error(one))
        .filter_map(|one| said(&one["text"]))
        .collect();
    of_turn.extend(said(&inner["meta"]["error"]));
    let of_turn = Some(of_turn.join(" ")).filter(|said| !said.is_empty());
    of_command.or(of_turn)
}

fn is_error(payload: &Value) -> bool {
    payload["isError"] == Value::Bool(true)
}

fn said(error: &Value) -> Option<String> {
    let said = error.as_str().or_else(|| error["message"].as_str())?;
    Some(said.trim().to_owned()).filter(|said| !said.is_empty())
}

/// The answer; of a turn that failed without the words about it.
fn text(inner: &Value, has_failed: bool) -> String {
    let payloads = inner["payloads"].as_array();
    let texts = payloads.into_iter().flatten();
    let texts: Vec<&str> = texts
        .filter(|one| !(has_failed && is_error(one)))
        .filter_map(|one| one["text"].as_str())
        .collect();
    texts.join("\n")
}

fn usage(usage: &Value) -> Option<Usage> {
    let count = |name: &str| usage[name].as_u64();
    let usage = Usage {
        input_tokens: count("input")?,
        output_tokens: count("output").unwrap_or(0),
        cache_read_tokens: count("cacheRead").unwrap_or(0),
        cache_write_tokens: count("cacheWrite").unwrap_or(0),
        reasoning_tokens: 0,
    };
    Some(usage.cached_apart())
}

fn cost(usage: &Value) -> Cost {
    let cost = &usage["cost"];
    match cost.as_f64().or_else(|| cost["total"].as_f64()) {
        Some(usd) if usd > 0.0 => Cost {
            usd: Some(usd),
            status: CostStatus::Estimated,
            source: Some("openclaw".to_owned()),
        },
        // A zero is what it says without a price list.
        _ => Cost::default(),
    }
}

impl Adapter for Openclaw {
    fn framing(&self) -> Framing {
        Framing::Raw
    }

    fn decode(&mut self, bytes: &[u8], _events: &mut Vec<WorkerEvent>, _write: &mut Vec<u8>) {
        let room = MOST.saturating_sub(self.printed.len()).min(bytes.len());
        self.printed.extend_from_slice(&bytes[..room]);
        self.beyond += bytes.len() - room;
    }

    fn exited(&mut self, exit: Exit, tail: &str, events: &mut Vec<WorkerEvent>) {
        let Some(turn) = self.turn else { return };
        let (text, outcome) = self.outcome(exit, tail);
        // The text goes the way of every text, with its limit, its head and its tail.
        let mut write = Vec::new();
        self.exec.decode(text.as_bytes(), events, &mut write);
        let mut rest = Vec::new();
        self.exec.exited(Exit::Code(0), "", &mut rest);
        let is_text = |event: &WorkerEvent| !matches!(event, WorkerEvent::Ended { .. });
        events.extend(rest.into_iter().filter(is_text));
        events.push(WorkerEvent::Ended {
            turn,
            outcome: Box::new(outcome),
        });
    }
}
