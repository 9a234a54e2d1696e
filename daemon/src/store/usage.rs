//! What turns that have ended used.
//!
//! Owns what is taken out of a final line for it, how much one page looks at, and the table in which
//! that is noted when nobody waits, so that it can be added up. The lines themselves are the record.

use std::time::{Duration, Instant};

use agentd_core::rfc3339;
use agentd_core::store::Loaded;
use agentd_protocol::line::{Cost, CostStatus, Usage};
use agentd_protocol::rows::{UsagePart, UsageRow, is_local};
use agentd_protocol::sums::{By, NamedSum, Sums};
use agentd_protocol::work::JobPhase;
use agentd_protocol::{Body, JobId, Line};
use rusqlite::{Connection, Row, TransactionBehavior, params};
use serde::Deserialize;
use serde_json::Value;

use super::columns::{int, nat, shown};
use super::lists::{phase, session_read};

/// Jobs that one page looks at: who writes waits for it.
const LOOKED_AT: i64 = 2000;
/// Bytes of final lines that one page reads; the first is read whatever it has.
const READ_BYTES: usize = 4 * 1024 * 1024;
/// So many turns are taken from their final lines, beside those that are noted.
const NOT_NOTED: i64 = 5000;
/// Names that an answer has sums of, so that it fits into a line.
const NAMES: usize = 1000;
/// Bytes of rows in one page, so that it fits into a line.
const PAGE_BYTES: usize = 512 * 1024;

/// The members of a final line that are counted.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FinalUsage {
    agent: Option<String>,
    provider: Option<String>,
    model: Option<String>,
    local: Option<bool>,
    code: Option<String>,
    usage: Option<Usage>,
    cost: Cost,
    api_calls: Option<Vec<Value>>,
    queued_ms: u64,
    duration_ms: u64,
}

/// The provider that says the prompt back.
const NO_MODEL: &str = "echo";

/// A request to a model, as far as the agent tells it in words that are known here.
#[derive(Deserialize)]
struct ModelCall {
    provider: Option<String>,
    model: Option<String>,
    local: Option<bool>,
    /// How it failed, in timmy's words.
    class: Option<String>,
    /// What became of it, in others'.
    outcome: Option<String>,
    usage: Option<Usage>,
    cost: Option<Cost>,
}

impl ModelCall {
    fn was_answered(&self) -> bool {
        self.class.is_none()
            && self
                .outcome
                .as_deref()
                .is_none_or(|outcome| outcome == "ok")
    }
}

impl FinalUsage {
    fn calls(&mut self) -> Vec<ModelCall> {
        let calls = self.api_calls.take().unwrap_or_default();
        // Each by itself: one in an agent's own words doesn't take the others along.
        let calls = calls.into_iter().map(serde_json::from_value);
        calls.filter_map(Result::ok).collect()
    }

    /// Where its model is; `None` if no model answered or nobody knows which.
    fn is_local(&self, state: JobPhase, calls: &[ModelCall]) -> Option<bool> {
        let answered = state == JobPhase::Completed
            || self.usage.is_some()
            || calls.iter().any(ModelCall::was_answered);
        if !answered || self.provider.as_deref() == Some(NO_MODEL) {
            return None;
        }
        is_local(self.local, self.provider.as_deref())
    }

    /// What other models than its own used.
    fn others(&self, calls: Vec<ModelCall>) -> Vec<UsagePart> {
        let mut parts: Vec<UsagePart> = Vec::new();
        for call in calls {
            let credible = call.usage.filter(Usage::is_credible);
            let (Some(provider), Some(usage)) = (call.provider, credible) else {
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
                    local: is_local(call.local, Some(&provider)),
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

/// What a `usage` asks for: a page, or sums; of a session, or of all.
pub(super) fn asked(
    conn: &Connection,
    since: Option<i64>,
    before: Option<JobId>,
    (by, session): (Option<By>, Option<&str>),
) -> rusqlite::Result<Loaded> {
    let of = match session {
        None => None,
        // No session has this place.
        Some(name) => Some(session_read(conn, name)?.unwrap_or(-1)),
    };
    match (before, by) {
        (None, Some(by)) => added_up(conn, since, by, of),
        _ => usage(conn, since, before, of),
    }
}

/// A page, newest first. It goes through all jobs and not by an index: a job that was accepted by a
/// clock that was wrong is found, too.
fn usage(
    conn: &Connection,
    since: Option<i64>,
    before: Option<JobId>,
    of: Option<i64>,
) -> rusqlite::Result<Loaded> {
    let mut statement = conn.prepare_cached(
        "SELECT jobs.job, jobs.final_seq IS NOT NULL AND jobs.accepted_at >= ?2
                AND (?4 IS NULL OR jobs.session = ?4), jobs.state,
            jobs.accepted_at, sessions.agent, jobs.final, sessions.name
         FROM jobs LEFT JOIN sessions ON sessions.id = jobs.session
         WHERE jobs.job < ?1 ORDER BY jobs.job DESC LIMIT ?3",
    )?;
    let before = before.map_or(i64::MAX, |before| int(before.0));
    let mut rows = statement.query(params![before, since.unwrap_or(i64::MIN), LOOKED_AT, of])?;
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
    let line = Body::of_rows(
        "usage",
        "turns",
        &turns,
        next.as_deref().map(|next| ("next", next)),
    );
    Ok(Loaded::Line(line))
}

/// All turns since then, added up by something; a page of them where too many have no row of their
/// own yet, or there are too many names: then whoever asked adds up.
fn added_up(
    conn: &Connection,
    since: Option<i64>,
    by: By,
    of: Option<i64>,
) -> rusqlite::Result<Loaded> {
    let mut sums = Sums::default();
    let since_ms = since.unwrap_or(i64::MIN);
    if fresh(conn, (since_ms, of), |row| sums.add(row, by))? == Noted::TooFew {
        return usage(conn, since, None, of);
    }
    // Whose a turn is its job says: it is only looked at where that matters.
    let from = match (of, by) {
        (Some(_), _) => {
            "sessions.name FROM jobs INDEXED BY jobs_ended_in CROSS JOIN used ON used.job = jobs.job
                LEFT JOIN sessions ON sessions.id = jobs.session
             WHERE jobs.session = ?2 AND jobs.final_seq IS NOT NULL AND used.accepted_at >= ?1"
        }
        (None, By::Session) => {
            "sessions.name FROM used CROSS JOIN jobs ON jobs.job = used.job
                LEFT JOIN sessions ON sessions.id = jobs.session
             WHERE used.accepted_at >= ?1 AND ?2 IS NULL"
        }
        (None, _) => "NULL FROM used WHERE used.accepted_at >= ?1 AND ?2 IS NULL",
    };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT used.job, used.accepted_at, used.state, used.agent, used.provider,
            used.model, local, input_tokens, output_tokens, usd, cost_unknown, duration_ms, others,
            {from}"
    ))?;
    let mut rows = statement.query(params![since_ms, of])?;
    let mut turn = nothing();
    while let Some(row) = rows.next()? {
        noted(row, by, &mut turn)?;
        sums.add(&turn, by);
        if sums.names() > NAMES {
            return usage(conn, since, None, of);
        }
    }
    let (total, by) = sums.ended();
    let sums = by.into_iter().map(|(name, sum)| NamedSum { name, sum });
    let line = Line::Usage {
        ok: true,
        turns: Vec::new(),
        next: None,
        total: Some(Box::new(total)),
        sums: Some(sums.collect()),
    };
    Ok(Loaded::Line(line.body()))
}

/// Have most ended jobs a row of their own?
#[derive(PartialEq, Eq)]
enum Noted {
    Most,
    TooFew,
}

/// Jobs that have ended since the last ones were noted, and how far that is.
const FRESH: &str = "
    SELECT jobs.job, jobs.accepted_at >= ?1 AND (?3 IS NULL OR jobs.session = ?3), jobs.state,
        jobs.accepted_at, sessions.agent, jobs.final, sessions.name, jobs.final_seq
    FROM jobs INDEXED BY jobs_ended LEFT JOIN sessions ON sessions.id = jobs.session
    WHERE jobs.final_seq IS NOT NULL AND jobs.final_seq > ifnull(
        (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'used_seq'), 0)
    ORDER BY jobs.final_seq LIMIT ?2";

fn fresh(
    conn: &Connection,
    (since, of): (i64, Option<i64>),
    mut add: impl FnMut(&UsageRow),
) -> rusqlite::Result<Noted> {
    let mut statement = conn.prepare_cached(FRESH)?;
    let mut rows = statement.query(params![since, NOT_NOTED + 1, of])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        if count > NOT_NOTED {
            return Ok(Noted::TooFew);
        }
        if row.get(1)? {
            add(&usage_row(row)?.0);
        }
    }
    Ok(Noted::Most)
}

/// Notes what some more turns used, until the time is over. How many were noted?
pub(super) fn note(conn: &Connection, time: Duration) -> rusqlite::Result<u64> {
    let began = Instant::now();
    // A look without a lock first: mostly there is nothing to do.
    if !conn
        .prepare_cached(FRESH)?
        .exists(params![i64::MIN, 1, None::<i64>])?
    {
        return Ok(0);
    }
    let change = rusqlite::Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let (mut count, mut seq) = (0, None);
    {
        let mut statement = change.prepare_cached(FRESH)?;
        let mut rows = statement.query(params![i64::MIN, i64::MAX, None::<i64>])?;
        let mut insert = change.prepare_cached(
            "INSERT OR REPLACE INTO used VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
                ?12, ?13)",
        )?;
        while let Some(row) = rows.next()? {
            let (turn, _) = usage_row(row)?;
            let others = (!turn.others.is_empty()).then(|| serde_json::to_string(&turn.others));
            insert.execute(params![
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(3)?,
                row.get_ref(2)?.as_str()?,
                turn.agent,
                turn.provider,
                turn.model,
                turn.local,
                turn.usage.map(|usage| int(usage.input_tokens)),
                turn.usage.map(|usage| int(usage.output_tokens)),
                turn.cost.usd,
                turn.cost.status == CostStatus::Unknown,
                int(turn.duration_ms),
                others.and_then(Result::ok),
            ])?;
            seq = Some(row.get::<_, i64>(7)?);
            count += 1;
            if began.elapsed() >= time {
                break;
            }
        }
    }
    if let Some(seq) = seq {
        change
            .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('used_seq', ?1)")?
            .execute([seq.to_string()])?;
    }
    change.commit()?;
    Ok(count)
}

/// A turn that was noted; the room that it takes is used again. What no sum needs is left out.
fn noted(row: &Row<'_>, by: By, turn: &mut UsageRow) -> rusqlite::Result<()> {
    let text = |column, into: &mut Option<String>| {
        match row.get_ref(column)?.as_str_or_null()? {
            Some(text) => {
                let into = into.get_or_insert_default();
                into.clear();
                into.push_str(text);
            }
            None => *into = None,
        }
        Ok::<_, rusqlite::Error>(())
    };
    if by == By::Day {
        turn.accepted_at = rfc3339(row.get(1)?);
    }
    turn.state = phase(row.get_ref(2)?.as_str()?, false);
    turn.agent.clear();
    turn.agent.push_str(row.get_ref(3)?.as_str()?);
    turn.session = row.get::<_, Option<String>>(13)?.map(shown);
    text(4, &mut turn.provider)?;
    text(5, &mut turn.model)?;
    turn.local = row.get(6)?;
    let (input, output): (Option<i64>, Option<i64>) = (row.get(7)?, row.get(8)?);
    turn.usage = input.zip(output).map(|(input, output)| Usage {
        input_tokens: nat(input),
        output_tokens: nat(output),
        ..Usage::default()
    });
    turn.cost.usd = row.get(9)?;
    turn.cost.status = match row.get(10)? {
        true => CostStatus::Unknown,
        false => CostStatus::Included,
    };
    turn.duration_ms = nat(row.get(11)?);
    let others = row.get_ref(12)?.as_str_or_null()?;
    turn.others = others
        .and_then(|others| serde_json::from_str(others).ok())
        .unwrap_or_default();
    Ok(())
}

fn nothing() -> UsageRow {
    UsageRow {
        job: JobId(0),
        accepted_at: String::new(),
        agent: String::new(),
        session: None,
        provider: None,
        model: None,
        local: None,
        state: JobPhase::Completed,
        code: None,
        usage: None,
        cost: Cost::default(),
        others: Vec::new(),
        queued_ms: 0,
        duration_ms: 0,
    }
}

/// What a job used, and how long its final line is.
fn usage_row(row: &Row<'_>) -> rusqlite::Result<(UsageRow, usize)> {
    let line = row.get_ref(5)?.as_str().unwrap_or_default();
    let mut last: FinalUsage = serde_json::from_str(line).unwrap_or_default();
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
        session: row.get::<_, Option<String>>(6)?.map(shown),
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
