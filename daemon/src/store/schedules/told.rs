//! Schedules and their runs as they are told.
//!
//! Owns how rows become those of the protocol. Must not change anything.

use std::path::Path;
use std::time::Duration;

use agentd_core::rfc3339;
use agentd_core::store::Loaded;
use agentd_protocol::schedule::{
    RunOutcome, RunRow, ScheduleId, ScheduleRow, ScheduleSpec, ScheduleState,
};
use agentd_protocol::{JobId, Line};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::json;

use super::id_of;
use crate::store::columns::{int, nat};
use crate::store::lists::{self, Long};
use crate::store::read::PAGE_BYTES;
use crate::store::schema::beside_its_writer;

const ROW: &str = "id, name, state, why, spec, upcoming, failures, created_at";

pub(super) fn row_of(conn: &Connection, id: i64) -> rusqlite::Result<Option<ScheduleRow>> {
    let row = conn
        .prepare_cached(&format!("SELECT {ROW} FROM schedules WHERE id = ?1"))?
        .query_row([id], told)
        .optional()?;
    row.map_or(Ok(None), |row| with_last(conn, id, row).map(Some))
}

fn told(row: &Row<'_>) -> rusqlite::Result<ScheduleRow> {
    let spec: Option<ScheduleSpec> = serde_json::from_str(row.get_ref(4)?.as_str()?).ok();
    let mut spec = spec.unwrap_or_default();
    spec.name = row.get(1)?;
    let state = match row.get_ref(2)?.as_str()? {
        "paused" => ScheduleState::Paused,
        "done" => ScheduleState::Done,
        _ => ScheduleState::Active,
    };
    let upcoming: Vec<String> = match state {
        ScheduleState::Active => {
            serde_json::from_str(row.get_ref(5)?.as_str()?).unwrap_or_default()
        }
        ScheduleState::Paused | ScheduleState::Done => Vec::new(),
    };
    Ok(ScheduleRow {
        schedule: ScheduleId(nat(row.get(0)?)).to_string(),
        state,
        why: row.get(3)?,
        spec,
        next: upcoming,
        failures: row.get::<_, i64>(6).map(nat)?,
        created_at: rfc3339(row.get(7)?),
        last: None,
    })
}

fn with_last(conn: &Connection, id: i64, mut row: ScheduleRow) -> rusqlite::Result<ScheduleRow> {
    row.last = runs_of(conn, id, None, 1)?
        .into_iter()
        .next()
        .map(|(_, run)| run);
    Ok(row)
}

/// A page of schedules, as they were made.
pub(in crate::store) fn list(
    conn: &Connection,
    which: Option<&str>,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Loaded> {
    let only = match which {
        None => None,
        Some(which) => match id_of(conn, which)? {
            Some(id) => Some(id),
            None => return Ok(unknown(which)),
        },
    };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {ROW} FROM schedules WHERE id > ?1 AND (?2 IS NULL OR id = ?2)
         ORDER BY id LIMIT ?3"
    ))?;
    let asked = params![int(after), only, int(limit as u64 + 1)];
    let mut rows = statement.query(asked)?;
    let (mut schedules, mut bytes, mut last, mut next) = (Vec::new(), 0, None, None);
    while let Some(row) = rows.next()? {
        if schedules.len() == limit || bytes > PAGE_BYTES {
            next = last;
            break;
        }
        let id: i64 = row.get(0)?;
        last = Some(nat(id));
        let told = serde_json::to_value(with_last(conn, id, told(row)?)?).unwrap_or_default();
        bytes += told.to_string().len();
        schedules.push(told);
    }
    let line = Line::CronList {
        ok: true,
        schedules,
        next,
    };
    Ok(Loaded::Line(line.body()))
}

fn unknown(which: &str) -> Loaded {
    // It is somebody else's text, and may be long.
    let shown: String = which.chars().take(64).collect();
    Loaded::Refused(format!("there is no schedule `{shown}`"))
}

/// A page of a schedule's runs, newest first.
pub(in crate::store) fn runs(
    conn: &Connection,
    which: &str,
    before: Option<u64>,
    limit: usize,
) -> rusqlite::Result<Loaded> {
    let Some(id) = id_of(conn, which)? else {
        return Ok(unknown(which));
    };
    let mut runs = runs_of(conn, id, before, limit + 1)?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    let next = runs.last().map(|(run, _)| *run).filter(|_| more);
    let runs = runs.iter().map(|(_, run)| json!(run)).collect();
    let line = Line::CronRuns {
        ok: true,
        schedule: ScheduleId(nat(id)).to_string(),
        runs,
        next,
    };
    Ok(Loaded::Line(line.body()))
}

fn runs_of(
    conn: &Connection,
    id: i64,
    before: Option<u64>,
    limit: usize,
) -> rusqlite::Result<Vec<(u64, RunRow)>> {
    let mut statement = conn.prepare_cached(
        "SELECT runs.run, runs.due_at, runs.at, runs.late, runs.outcome, runs.job, runs.by_hand,
            runs.ended, runs.times, runs.why,
            CASE WHEN jobs.held AND jobs.final_seq IS NULL THEN 'held' ELSE jobs.state END,
            jobs.final_seq, used.usd
         FROM schedule_runs runs LEFT JOIN jobs ON jobs.job = runs.job
            LEFT JOIN used ON used.job = runs.job
         WHERE runs.schedule = ?1 AND runs.run < ?2 ORDER BY runs.run DESC LIMIT ?3",
    )?;
    let asked = params![id, before.map_or(i64::MAX, int), int(limit as u64)];
    let mut rows = statement.query(asked)?;
    let (mut found, mut finals) = (Vec::new(), Long::new(conn, "final"));
    while let Some(row) = rows.next()? {
        let job: Option<i64> = row.get(5)?;
        let outcome = match row.get_ref(4)?.as_str()? {
            "job" => RunOutcome::Job,
            "refused" => RunOutcome::Refused,
            _ => RunOutcome::Skipped,
        };
        let mut told = RunRow {
            due_at: rfc3339(row.get(1)?),
            outcome,
            job: job.map(|job| JobId(nat(job))),
            // Of a job that is forgotten the run still says it.
            state: row.get::<_, Option<String>>(7)?.or(row.get(10)?),
            code: None,
            preview: None,
            usd: row.get(12)?,
            late_ms: nat(row.get(3)?),
            by_hand: row.get(6)?,
            why: row.get(9)?,
            times: row
                .get::<_, i64>(8)
                .map(nat)
                .map(Some)?
                .filter(|times| *times > 1),
            at: rfc3339(row.get(2)?),
        };
        if let (Some(job), Some(_ended)) = (job, row.get::<_, Option<i64>>(11)?) {
            let last = finals.prefix(job)?;
            let failed = last.starts_with(r#"{"type":"error""#);
            let said = lists::member(&last, if failed { "error" } else { "text" });
            told.code = lists::member(&last, "code").filter(|_| failed);
            told.preview = said
                .map(|said| lists::preview(&said))
                .filter(|said| !said.is_empty());
        }
        found.push((nat(row.get(0)?), told));
    }
    Ok(found)
}

/// The first schedule that agentd has paused, and how many there are.
pub(super) fn paused(conn: &Connection) -> rusqlite::Result<Option<(String, u64)>> {
    let mut first = conn.prepare_cached(
        "SELECT id, name, why, (SELECT count(*) FROM schedules
            WHERE state = 'paused' AND why IS NOT NULL)
         FROM schedules WHERE state = 'paused' AND why IS NOT NULL ORDER BY id LIMIT 1",
    )?;
    first
        .query_row([], |row| Ok((paused_row(row)?, nat(row.get(3)?))))
        .optional()
}

fn paused_row(row: &Row<'_>) -> rusqlite::Result<String> {
    let id = ScheduleId(nat(row.get(0)?));
    let (name, why): (Option<String>, String) = (row.get(1)?, row.get(2)?);
    Ok(match name {
        Some(name) => format!("{id} ({name}): {why}"),
        None => format!("{id}: {why}"),
    })
}

/// Schedules that agentd paused, as seen from outside while somebody has the store open.
///
/// # Errors
/// When the store in `dir` can't be read, or has another version.
pub fn paused_schedules(dir: &Path) -> rusqlite::Result<Vec<String>> {
    let Some(conn) = beside_its_writer(dir)? else {
        return Ok(Vec::new());
    };
    // A daemon that was stopped may hold a lock for ever.
    conn.busy_timeout(Duration::ZERO)?;
    let mut paused = conn.prepare(
        "SELECT id, name, why FROM schedules WHERE state = 'paused' AND why IS NOT NULL",
    )?;
    let told = paused.query_map([], paused_row)?;
    told.collect()
}
