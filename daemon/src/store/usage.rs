//! What turns that have ended used.
//!
//! Owns what is taken out of a final line for it, and how much one page looks at. The lines
//! themselves are the record: there is no second one that could say something else. Must not change
//! anything.

use agentd_core::rfc3339;
use agentd_core::store::Loaded;
use agentd_protocol::line::{Cost, Usage};
use agentd_protocol::rows::{UsagePart, UsageRow, is_local_provider};
use agentd_protocol::work::JobPhase;
use agentd_protocol::{Body, JobId};
use rusqlite::{Connection, Row, params};
use serde::Deserialize;
use serde_json::Value;

use super::lists::phase;
use super::write::{int, nat};

/// Jobs that one page looks at: who writes waits for it.
const LOOKED_AT: i64 = 2000;
/// Bytes of final lines that one page reads; the first is read whatever it has.
const READ_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of rows in one page, so that it fits into a line.
const PAGE_BYTES: usize = 512 * 1024;

/// The members of a final line that are counted.
#[derive(Default, Deserialize)]
struct Final {
    #[serde(default)]
    agent: Option<String>,
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    local: Option<bool>,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    cost: Cost,
    #[serde(default)]
    api_calls: Option<Vec<Value>>,
    #[serde(default)]
    queued_ms: u64,
    #[serde(default)]
    duration_ms: u64,
}

/// The provider that says the prompt back.
const NO_MODEL: &str = "echo";

/// A request to a model, as far as the agent tells it in words that are known here.
#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    local: Option<bool>,
    /// How it failed, in timmy's words.
    #[serde(default)]
    class: Option<String>,
    /// What became of it, in others'.
    #[serde(default)]
    outcome: Option<String>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    cost: Option<Cost>,
}

impl Call {
    fn was_answered(&self) -> bool {
        self.class.is_none()
            && self
                .outcome
                .as_deref()
                .is_none_or(|outcome| outcome == "ok")
    }
}

impl Final {
    fn calls(&mut self) -> Vec<Call> {
        let calls = self.api_calls.take().unwrap_or_default();
        let calls = calls.into_iter().map(serde_json::from_value);
        calls.filter_map(Result::ok).collect()
    }

    /// Where its model is; `None` if no model answered or nobody knows which.
    fn is_local(&self, state: JobPhase, calls: &[Call]) -> Option<bool> {
        let answered = state == JobPhase::Completed
            || self.usage.is_some()
            || calls.iter().any(Call::was_answered);
        if !answered || self.provider.as_deref() == Some(NO_MODEL) {
            return None;
        }
        let known = self.provider.as_deref().map(is_local_provider);
        self.local.or(known)
    }

    /// What other models than its own used.
    fn others(&self, calls: Vec<Call>) -> Vec<UsagePart> {
        let mut parts: Vec<UsagePart> = Vec::new();
        for call in calls {
            let (Some(provider), Some(usage)) = (call.provider, call.usage) else {
                continue;
            };
            if Some(&provider) == self.provider.as_ref() && call.model == self.model {
                continue;
            }
            let usd = call.cost.and_then(|cost| cost.usd);
            let same =
                |part: &&mut UsagePart| part.provider == provider && part.model == call.model;
            if let Some(part) = parts.iter_mut().find(same) {
                part.usage.add(usage);
                part.usd = match (part.usd, usd) {
                    (Some(before), Some(usd)) => Some(before + usd),
                    (before, usd) => before.or(usd),
                };
            } else {
                parts.push(UsagePart {
                    local: call.local.unwrap_or_else(|| is_local_provider(&provider)),
                    provider,
                    model: call.model,
                    usage,
                    usd,
                });
            }
        }
        parts
    }
}

/// A page, newest first. It goes through all jobs and not by an index: a job that was accepted by a
/// clock that was wrong is found, too.
pub(super) fn usage(
    conn: &Connection,
    since: Option<i64>,
    before: Option<JobId>,
) -> rusqlite::Result<Loaded> {
    let mut statement = conn.prepare_cached(
        "SELECT jobs.job, jobs.final_seq IS NOT NULL AND jobs.accepted_at >= ?2, jobs.state,
            jobs.accepted_at, sessions.agent, jobs.final
         FROM jobs LEFT JOIN sessions ON sessions.id = jobs.session
         WHERE jobs.job < ?1 ORDER BY jobs.job DESC LIMIT ?3",
    )?;
    let before = before.map_or(i64::MAX, |before| int(before.0));
    let mut rows = statement.query(params![before, since.unwrap_or(i64::MIN), LOOKED_AT])?;
    let (mut turns, mut looked_at, mut read, mut written) = (Vec::new(), 0, 0, 0);
    let mut last = None;
    let mut full = false;
    while let Some(row) = rows.next()? {
        if read > READ_BYTES || written > PAGE_BYTES {
            full = true;
            break;
        }
        looked_at += 1;
        last = Some(JobId(nat(row.get(0)?)));
        if row.get(1)? {
            let (turn, bytes) = usage_row(row)?;
            read += bytes;
            // A row of strings and numbers can always be written.
            let turn = serde_json::to_string(&turn).unwrap_or_default();
            written += turn.len();
            turns.push(turn);
        }
    }
    let next = last.filter(|_| full || looked_at == LOOKED_AT);
    let next = next.map(|next| format!("\"{next}\""));
    let line = Body::of_rows("usage", "turns", &turns, next.as_deref());
    Ok(Loaded::Line(line))
}

/// What a job used, and how long its final line is.
fn usage_row(row: &Row<'_>) -> rusqlite::Result<(UsageRow, usize)> {
    let line = row.get_ref(5)?.as_str().unwrap_or_default();
    let mut last: Final = serde_json::from_str(line).unwrap_or_default();
    let state = phase(row.get_ref(2)?.as_str()?, false);
    let calls = last.calls();
    let local = last.is_local(state, &calls);
    let others = last.others(calls);
    let turn = UsageRow {
        job: JobId(nat(row.get(0)?)),
        accepted_at: rfc3339(row.get(3)?),
        agent: match last.agent {
            Some(agent) => agent,
            None => row.get::<_, Option<String>>(4)?.unwrap_or_default(),
        },
        provider: last.provider,
        model: last.model,
        local,
        state,
        code: last.code,
        usage: last.usage,
        cost: last.cost,
        others,
        queued_ms: last.queued_ms,
        duration_ms: last.duration_ms,
    };
    Ok((turn, line.len()))
}
