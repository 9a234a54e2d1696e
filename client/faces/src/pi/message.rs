//! Messages, models and what is made of a session's past, in pi's shapes.
//!
//! Owns these shapes. Must not know how any of it is asked for.

use agentd_protocol::JobId;
use agentd_protocol::line::{Line, Stop, TurnFacts};
use agentd_protocol::models::ModelRow;
use agentd_protocol::request::{Earlier, Speaker};
use agentd_protocol::rows::{JobPhase, TurnRow};
use agentd_protocol::usage::Usage;
use serde_json::{Value, json};

use crate::face::hinted;

/// What pi calls a model that it doesn't know, too.
const UNKNOWN: &str = "unknown";

/// Which model answers, as far as anybody said.
#[derive(Clone, Default, Debug)]
pub(super) struct Named {
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
}

impl Named {
    pub(super) fn of(facts: &TurnFacts, or: &Self) -> Self {
        match &facts.model {
            None => or.clone(),
            model => Self {
                provider: facts.provider.clone(),
                model: model.clone(),
            },
        }
    }

    fn is(&self, row: &ModelRow) -> bool {
        self.model.as_ref() == Some(&row.model)
            && (self.provider.is_none() || self.provider == row.provider)
    }

    /// Its row among those of the agent; the default one while nobody named any.
    pub(super) fn among<'a>(&self, rows: &'a [ModelRow]) -> Option<&'a ModelRow> {
        match self.model {
            Some(_) => rows.iter().find(|row| self.is(row)),
            None => rows.iter().find(|row| row.default),
        }
    }

    /// As `get_state` has it.
    pub(super) fn object(&self, rows: &[ModelRow]) -> Value {
        match (self.among(rows), &self.model) {
            (Some(row), _) => model(row),
            (None, Some(name)) => model(&ModelRow {
                provider: self.provider.clone(),
                ..ModelRow::named(name)
            }),
            (None, None) => model(&ModelRow::named(UNKNOWN)),
        }
    }
}

/// A model. What it costs, and how long an answer may be, nobody says here: pi's clients want numbers.
pub(super) fn model(row: &ModelRow) -> Value {
    let reasons = row
        .thinking
        .as_ref()
        .is_some_and(|levels| !levels.is_empty());
    json!({
        "id": row.model,
        "name": row.label.as_ref().unwrap_or(&row.model),
        "api": "agentd",
        "provider": row.provider.as_deref().unwrap_or(UNKNOWN),
        "baseUrl": "",
        "reasoning": reasons,
        "input": row.input.clone().unwrap_or_else(|| vec!["text".to_owned()]),
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": row.context_window.unwrap_or(0),
        "maxTokens": 0,
    })
}

pub(super) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn user(said: &str, ms: u64) -> Value {
    json!({"role": "user", "content": [text(said)], "timestamp": ms})
}

pub(super) fn tool_result((id, name): (&str, &str), output: &str, ok: bool, ms: u64) -> Value {
    json!({"role": "toolResult", "toolCallId": id, "toolName": name, "content": [text(output)],
        "isError": !ok, "timestamp": ms})
}

/// Something to know, which is no message.
pub(super) fn notice(id: &str, said: &str) -> Value {
    json!({"type": "extension_ui_request", "id": id, "method": "notify", "message": said,
        "notifyType": "warning"})
}

/// Tokens of a turn are those of its last message: agents say them once.
pub(super) fn assistant(
    content: Vec<Value>,
    named: &Named,
    facts: &TurnFacts,
    (stop, error): (&str, Option<&str>),
    ms: u64,
) -> Value {
    let mut message = json!({
        "role": "assistant",
        "content": content,
        "api": "agentd",
        "provider": named.provider.as_deref().unwrap_or(UNKNOWN),
        "model": named.model.as_deref().unwrap_or(UNKNOWN),
        "usage": usage(facts),
        "stopReason": stop,
        "timestamp": ms,
    });
    if let Some(error) = error {
        message["errorMessage"] = json!(error);
    }
    message
}

/// What was used, as far as the agent says it.
pub(super) fn usage(facts: &TurnFacts) -> Value {
    let usage = facts.usage.unwrap_or_default();
    let total = facts.cost.usd.unwrap_or(0.0);
    json!({
        "input": fresh_input(&usage),
        "output": usage.output_tokens,
        "cacheRead": usage.cache_read_tokens,
        "cacheWrite": usage.cache_write_tokens,
        "totalTokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": total},
    })
}

/// Why a turn's last message ended.
pub(super) const fn stop_reason(stop: Stop, error: Option<&str>) -> &'static str {
    match (error, stop) {
        (Some(_), Stop::EndTurn) => "error",
        (_, Stop::Cancelled) => "aborted",
        (_, Stop::MaxTokens) => "length",
        (_, Stop::EndTurn | Stop::MaxTurnRequests | Stop::Refusal) => "stop",
    }
}

/// pi counts what was cached apart.
fn fresh_input(usage: &Usage) -> u64 {
    let cached = usage
        .cache_read_tokens
        .saturating_add(usage.cache_write_tokens);
    usage.input_tokens.saturating_sub(cached)
}

/// One message of the past, with the name by which it can be gone back to.
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) at: String,
    pub(super) message: Value,
}

/// What was said in a session.
#[derive(Default)]
pub(super) struct Past {
    pub(super) turns: Vec<TurnRow>,
}

/// How a turn ended.
struct Ended {
    facts: TurnFacts,
    stop: Stop,
    error: Option<String>,
}

impl Ended {
    fn of(turn: &TurnRow) -> Self {
        let last: Option<Line> = turn
            .last
            .as_ref()
            .and_then(|last| serde_json::from_value(last.clone()).ok());
        match last {
            Some(Line::MessageEnd(end)) => Self {
                stop: end.stop,
                error: end.turn.refusal.clone(),
                facts: end.turn,
            },
            Some(Line::Error(error)) => Self {
                stop: Stop::EndTurn,
                error: Some(hinted(&error)),
                facts: error.turn.unwrap_or_default(),
            },
            _ => Self {
                facts: TurnFacts::default(),
                stop: Stop::EndTurn,
                error: None,
            },
        }
    }
}

/// When a turn was accepted.
fn accepted_ms(turn: &TurnRow) -> u64 {
    let ms = agentd_protocol::request::unix_ms(&turn.accepted_at);
    ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0)
}

/// What a turn was asked.
fn prompt(turn: &TurnRow) -> Entry {
    Entry {
        id: turn.job.to_string(),
        at: turn.accepted_at.clone(),
        message: user(&turn.text, accepted_ms(turn)),
    }
}

/// All messages of a turn that has ended.
fn said(turn: &TurnRow, entries: &mut Vec<Entry>) {
    let Ended { facts, stop, error } = Ended::of(turn);
    let named = Named::of(&facts, &Named::default());
    let ms = accepted_ms(turn);
    entries.push(prompt(turn));
    let mut add = |id: String, message: Value| {
        let at = turn.accepted_at.clone();
        entries.push(Entry { id, at, message });
    };
    let none = TurnFacts::default();
    // Questions that nobody could answer are in the trace, too.
    let calls = facts.tool_trace.iter().filter(|one| one.name != "question");
    for (at, call) in calls.enumerate() {
        let called = json!({"type": "toolCall", "id": call.tool_call_id, "name": call.name,
            "arguments": call.input});
        let calls = assistant(vec![called], &named, &none, ("toolUse", None), ms);
        add(format!("{}.c{at}", turn.job), calls);
        let of = (&*call.tool_call_id, &*call.name);
        let result = tool_result(of, &call.output, call.ok.unwrap_or(false), ms);
        add(format!("{}.r{at}", turn.job), result);
    }
    for (at, said) in told(turn).enumerate() {
        add(format!("{}.s{at}", turn.job), user(&said, ms));
    }
    let mut messages: Vec<(u32, &str, &str)> = Vec::new();
    for said in &turn.messages {
        messages.push((said.message, &said.thinking, &said.text));
    }
    match (&mut messages[..], facts.text.as_str()) {
        // What is long is cut, and the last line may have all of it.
        ([(.., text)], whole) if whole.len() > text.len() && !facts.truncated => *text = whole,
        ([], whole) if !whole.is_empty() || error.is_some() => messages.push((0, "", whole)),
        _ => {}
    }
    let last = messages.len().saturating_sub(1);
    let reason = stop_reason(stop, error.as_deref());
    for (at, (number, thinking, said)) in messages.into_iter().enumerate() {
        let mut content = Vec::new();
        if !thinking.is_empty() {
            content.push(json!({"type": "thinking", "thinking": thinking}));
        }
        if !said.is_empty() {
            content.push(text(said));
        }
        let (of, end) = match at == last {
            true => (&facts, (reason, error.as_deref())),
            false => (&none, ("stop", None)),
        };
        add(
            format!("{}.{number}", turn.job),
            assistant(content, &named, of, end, ms),
        );
    }
}

/// What the agent was told while it worked.
fn told(turn: &TurnRow) -> impl Iterator<Item = String> {
    let lines = turn
        .events
        .iter()
        .filter_map(|event| serde_json::from_value(event.clone()).ok());
    lines.filter_map(|line| match line {
        Line::Note { code, text, .. } if code == "steered" => Some(text),
        _ => None,
    })
}

impl Past {
    /// Who answered last.
    pub(super) fn agent(&self) -> Option<String> {
        self.turns
            .iter()
            .rev()
            .find_map(|turn| Ended::of(turn).facts.agent)
    }

    /// All messages of turns that have ended, and the words of the one that runs. Where calls and what
    /// the agent was told stood between them isn't kept: the last message stands behind them.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for turn in &self.turns {
            match (&turn.last, turn.state) {
                (Some(_), _) => said(turn, &mut entries),
                (None, JobPhase::Running | JobPhase::Interrupted) => entries.push(prompt(turn)),
                (None, _) => {}
            }
        }
        entries
    }

    /// The turn that runs, and those that wait behind it.
    pub(super) fn open(&self) -> impl Iterator<Item = &TurnRow> {
        let waits = |turn: &&TurnRow| turn.state == JobPhase::Queued;
        let runs = |turn: &TurnRow| turn.last.is_none() && turn.state == JobPhase::Running;
        let at = self.turns.iter().position(runs);
        let from = at.map_or(&[][..], |at| &self.turns[at..]);
        from.iter().take(1).chain(from.iter().skip(1).filter(waits))
    }

    /// Nobody runs these any more; the next daemon says so.
    pub(super) fn are_cut_off(&mut self, jobs: impl Iterator<Item = JobId>) {
        for job in jobs {
            if let Some(turn) = self.turns.iter_mut().find(|turn| turn.job == job) {
                turn.state = JobPhase::Interrupted;
            }
        }
    }

    /// Has this turn no end here?
    pub(super) fn is_open(&self, job: JobId) -> bool {
        let turn = self.turns.iter().find(|turn| turn.job == job);
        turn.is_none_or(|turn| turn.last.is_none())
    }

    /// Who answered last, and how hard it thought.
    pub(super) fn last(&self) -> (Named, Option<String>) {
        let last = self.turns.iter().rev().find(|turn| turn.last.is_some());
        let facts = last.map(|turn| Ended::of(turn).facts).unwrap_or_default();
        (Named::of(&facts, &Named::default()), facts.thinking)
    }

    /// As pi's session file has them: each behind the one before.
    pub(super) fn listed(&self) -> Vec<Value> {
        let mut parent = Value::Null;
        let listed = self.entries().into_iter().map(|entry| {
            let before = std::mem::replace(&mut parent, json!(entry.id));
            json!({"type": "message", "id": entry.id, "parentId": before, "timestamp": entry.at,
                "message": entry.message})
        });
        listed.collect()
    }

    /// What another session begins with that goes on before this entry; its words.
    pub(super) fn before(&self, entry: &str) -> Option<(String, Vec<Earlier>)> {
        let at = self
            .turns
            .iter()
            .position(|turn| turn.job.to_string() == entry)?;
        let mut earlier = Vec::new();
        for turn in &self.turns[..at] {
            let answer = Ended::of(turn).facts.text;
            for (role, text) in [
                (Speaker::User, turn.text.clone()),
                (Speaker::Assistant, answer),
            ] {
                if !text.trim().is_empty() {
                    earlier.push(Earlier { role, text });
                }
            }
        }
        Some((self.turns[at].text.clone(), earlier))
    }

    /// The sums of all turns.
    pub(super) fn stats(&self) -> Value {
        let entries = self.entries();
        let count = |role: &str| {
            let of = |entry: &&Entry| entry.message["role"] == role;
            entries.iter().filter(of).count()
        };
        let (mut usage, mut cost, mut calls) = (Usage::default(), 0.0, 0);
        let mut context = None;
        for turn in &self.turns {
            let facts = Ended::of(turn).facts;
            usage.add(facts.usage.unwrap_or_default());
            cost += facts.cost.usd.unwrap_or(0.0);
            calls += facts.tool_trace.len();
            if let (Some(tokens), Some(window)) = (facts.context_tokens, facts.context_window) {
                context = Some((tokens, window));
            }
        }
        let mut stats = json!({
            "userMessages": count("user"),
            "assistantMessages": count("assistant"),
            "toolCalls": calls,
            "toolResults": count("toolResult"),
            "totalMessages": entries.len(),
            "tokens": {
                "input": fresh_input(&usage),
                "output": usage.output_tokens,
                "cacheRead": usage.cache_read_tokens,
                "cacheWrite": usage.cache_write_tokens,
                "total": usage.input_tokens.saturating_add(usage.output_tokens),
            },
            "cost": cost,
        });
        if let Some((tokens, window)) = context.filter(|(_, window)| *window > 0) {
            let percent = 100.0 * tokens as f64 / window as f64;
            stats["contextUsage"] =
                json!({"tokens": tokens, "contextWindow": window, "percent": percent});
        }
        stats
    }
}
