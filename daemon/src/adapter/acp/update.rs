//! What an agent tells of its session: `session/update`.
//!
//! Owns what each update means, and that history repeated by `session/load` is not a turn's. An
//! unknown update is noted.

use agentd_core::worker::{ContextUse, WorkerEvent};
use agentd_protocol::line::Usage;

use super::turn::seen;
use super::{Acp, content};
use crate::adapter::commands;
use crate::adapter::driver::{Abort, Out};
use crate::adapter::object::Object;

/// Agents that count the tokens of the whole session, as the schema's words have it. Others count
/// those of the turn.
const COUNTS_ALL: &[&str] = &["hermes-agent"];

/// Updates that tell of a turn.
const KNOWN: &[&str] = &[
    "agent_message_chunk",
    "agent_thought_chunk",
    "current_mode_update",
    "plan",
    "tool_call",
    "tool_call_update",
    "user_message_chunk",
];

/// Longer lists of commands are not kept, in bytes: each process has one.
const KEPT: usize = 256 * 1024;

fn is_short(list: &str) -> bool {
    list.len() <= KEPT
}

impl Acp {
    /// Is it about our session? A missing id is.
    pub(super) fn is_ours(&self, params: &Object<'_>) -> bool {
        let ours = self.session.as_ref();
        params.raw("sessionId").is_none() || params.string("sessionId").as_ref() == ours
    }

    pub(super) fn updated(&mut self, bytes: &[u8], record: &Object<'_>, out: &mut Out<'_>) {
        let params = record.object("params");
        let update = params.as_ref().and_then(|params| params.object("update"));
        let (Some(params), Some(update)) = (params, update) else {
            return out.log(bytes);
        };
        let kind = update.string("sessionUpdate").unwrap_or_default();
        if kind == "available_commands_update" {
            let hint = |row: &Object<'_>| row.object("input")?.string("hint");
            if self.is_ours(&params) && update.raw("availableCommands").is_some_and(is_short) {
                let rows = update.objects("availableCommands");
                self.commands = Some(commands::listed(rows, hint));
            }
            return;
        }
        if self.repeats(&kind) {
            // What the session has cost so far is where the next turn's cost begins.
            if kind == "usage_update" {
                self.spend(&update);
            }
            return;
        }
        if !self.is_ours(&params) {
            return;
        }
        match kind.as_str() {
            "usage_update" => return self.spend(&update),
            "config_option_update" => {
                let taken = self.learn(&update, out);
                if let (Some(mode), Some(turn)) = (taken, &self.driver.turn) {
                    // Whoever watches the turn knows one way only.
                    out.mode_taken(turn.state.id, &mode);
                }
                return;
            }
            "current_mode_update" => {
                let _told_below = self.learn(&update, out);
            }
            "session_info_update" => return,
            _ => {}
        }
        if self.driver.turn.is_none() {
            if kind == "current_mode_update" {
                return;
            }
            if !KNOWN.contains(&kind.as_str()) {
                return self.not_understood(&kind, out);
            }
            return out.stray(bytes);
        }
        if let Some(turn) = &mut self.driver.turn
            && turn.state.abort == Abort::Sent
            && !std::mem::replace(&mut turn.repeated, true)
        {
            // It came before the agent had begun.
            self.put_cancel(out);
        }
        self.output(&kind, &update, out);
        if KNOWN.contains(&kind.as_str())
            && let Some(part) = content::unknown(&update)
        {
            self.not_understood(&format!("{kind} with {part}"), out);
        }
    }

    /// What a turn says and does.
    fn output(&mut self, kind: &str, update: &Object<'_>, out: &mut Out<'_>) {
        let Some(turn) = &mut self.driver.turn else {
            return;
        };
        let name = turn.state.id;
        let piece = || {
            let content = update.object("content")?;
            content::block(&content).filter(|text| !text.is_empty())
        };
        match kind {
            "agent_message_chunk" => {
                if let Some(text) = piece() {
                    turn.begins(update.string("messageId"), out);
                    out.push(WorkerEvent::Text {
                        turn: name,
                        text,
                        native: true,
                    });
                }
            }
            "agent_thought_chunk" => {
                if let Some(text) = piece() {
                    turn.begins(None, out);
                    out.push(WorkerEvent::Thinking { turn: name, text });
                }
            }
            "tool_call" | "tool_call_update" => {
                let seen = seen(update);
                turn.called(&seen, kind == "tool_call", out);
                if let (Some(call), true) = (&seen.call, seen.is_over()) {
                    self.release(Some(call), out);
                }
            }
            "plan" | "current_mode_update" => {
                let field = if kind == "plan" {
                    "entries"
                } else {
                    "currentModeId"
                };
                if let Some(data) = update.raw(field) {
                    out.push(WorkerEvent::Other {
                        turn: name,
                        kind: kind.to_owned(),
                        data: data.to_owned(),
                    });
                }
            }
            // Our own words, which some agents repeat.
            "user_message_chunk" => {}
            _ => self.not_understood(kind, out),
        }
    }

    /// What the session's context holds, and what the session has cost.
    fn spend(&mut self, update: &Object<'_>) {
        if let Some(turn) = &mut self.driver.turn {
            turn.context = ContextUse::known(update.get("used"), update.get("size"));
        }
        let Some(cost) = update.object("cost") else {
            return;
        };
        // Nothing is converted: no rate is known here.
        let usd = cost.string("currency").as_deref() == Some("USD");
        let sane = |amount: &f64| amount.is_finite() && *amount >= 0.0;
        if let Some(amount) = cost.get("amount").filter(sane).filter(|_| usd) {
            self.spent = Some(amount);
            if let Some(turn) = &mut self.driver.turn {
                turn.costs(amount);
            }
        }
    }

    /// Tokens of the turn, where the answer to its prompt names them.
    pub(super) fn usage(&mut self, result: &Object<'_>) -> Option<Usage> {
        let Some(usage) = result.object("usage") else {
            // Gemini has its own place for them.
            let quota = result.object("_meta")?.object("quota")?;
            let count = quota.object("token_count")?;
            return Some(Usage {
                input_tokens: count.get("input_tokens").unwrap_or(0),
                output_tokens: count.get("output_tokens").unwrap_or(0),
                ..Usage::default()
            });
        };
        let tokens = |name| usage.get(name).unwrap_or(0);
        let told = Usage {
            input_tokens: tokens("inputTokens"),
            output_tokens: tokens("outputTokens"),
            cache_read_tokens: tokens("cachedReadTokens"),
            cache_write_tokens: tokens("cachedWriteTokens"),
            reasoning_tokens: tokens("thoughtTokens"),
        };
        // The protocol doesn't say whether the input holds what was cached, but its sum does.
        let apart = told.cached_apart();
        let sum = apart.input_tokens.saturating_add(apart.output_tokens);
        let total: Option<u64> = usage.get("totalTokens");
        let is_sum = |total| total == sum || total == sum.saturating_add(told.reasoning_tokens);
        let told = if total.is_some_and(is_sum) {
            apart
        } else {
            told
        };
        let all = self
            .name
            .as_deref()
            .is_some_and(|name| COUNTS_ALL.contains(&name));
        if !all {
            return Some(told);
        }
        // They begin anew when it was rebuilt.
        let before = std::mem::replace(&mut self.counted, told);
        Some(told.since(before))
    }
}
