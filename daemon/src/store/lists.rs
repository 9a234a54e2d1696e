//! Lists of jobs and of sessions.
//!
//! Owns which index leads to which list, and how a row becomes a line of it. Long columns are never
//! read whole for it. Must not change anything.

use std::io::Read as _;

use agentd_core::rfc3339;
use agentd_core::store::{JobFilter, Loaded};
use agentd_protocol::work::JobPhase;
use agentd_protocol::{JobId, rows};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::write::{int, nat, shown};

/// Characters of a prompt or an answer in a list.
const PREVIEW: usize = 80;
/// Bytes of a long column that are read for them: characters take up to six each, and something
/// stands before them.
const PREFIX: usize = 2048;

/// Some jobs, newest first.
pub(super) fn jobs(
    conn: &Connection,
    filter: &JobFilter,
    limit: usize,
) -> rusqlite::Result<Loaded> {
    let mut numbers = job_numbers(conn, filter, limit)?;
    let more = numbers.len() > limit;
    numbers.truncate(limit);
    let mut statement = conn.prepare_cached(
        "SELECT jobs.job, sessions.name, sessions.agent, jobs.state, jobs.held, jobs.attempt,
            jobs.labels, jobs.parent, jobs.accepted_at, jobs.start_at, jobs.finished_at
         FROM jobs JOIN sessions ON sessions.id = jobs.session WHERE jobs.job = ?1",
    )?;
    let mut jobs = Vec::with_capacity(numbers.len());
    for job in numbers {
        let mut row = statement.query_row([job], job_row)?;
        let request = prefix(conn, "request", job)?;
        row.preview = preview(&member(&request, "text").unwrap_or_default());
        if row.finished_at.is_some() {
            let last = prefix(conn, "final", job)?;
            let failed = last.starts_with(r#"{"type":"error""#);
            row.stop = member(&last, "stop").filter(|_| !failed);
            row.code = member(&last, "code").filter(|_| failed);
        }
        jobs.push(row);
    }
    Ok(Loaded::JobList { jobs, more })
}

/// The numbers of one job more than `limit`, if there are so many, descending.
fn job_numbers(conn: &Connection, filter: &JobFilter, limit: usize) -> rusqlite::Result<Vec<i64>> {
    let session = match &filter.session {
        None => None,
        Some(name) => match session_id(conn, name)? {
            None => return Ok(Vec::new()),
            known => known,
        },
    };
    let (key, value) = filter.label.clone().unzip();
    let mut numbers: Vec<i64> = Vec::new();
    for from in ways(filter) {
        let sql = format!(
            "SELECT jobs.job {from}{} ORDER BY jobs.job DESC LIMIT ?8",
            conditions(filter)
        );
        let mut statement = conn.prepare_cached(&sql)?;
        let found = statement.query_map(
            params![
                session,
                filter.state.map(phase_name),
                filter.since,
                filter.before.map(|before| int(before.0)),
                filter.parent.map(|parent| int(parent.0)),
                key,
                value.clone().flatten(),
                int(limit as u64 + 1),
            ],
            |row| row.get(0),
        )?;
        for job in found {
            numbers.push(job?);
        }
    }
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    numbers.truncate(limit + 1);
    Ok(numbers)
}

/// By which index the jobs are found. Unfinished and ended ones have separate indexes, so that an
/// accept has few to write.
fn ways(filter: &JobFilter) -> Vec<&'static str> {
    const UNFINISHED: &str = "FROM jobs INDEXED BY jobs_unfinished WHERE jobs.final_seq IS NULL";
    if filter.label.is_some() {
        return vec!["FROM labels CROSS JOIN jobs ON jobs.job = labels.job WHERE labels.key = ?6"];
    }
    if filter.parent.is_some() {
        return vec!["FROM jobs INDEXED BY jobs_of_parent WHERE jobs.parent = ?5"];
    }
    let ended = if filter.session.is_some() {
        "FROM jobs INDEXED BY jobs_ended_in WHERE jobs.final_seq IS NOT NULL AND jobs.session = ?1"
    } else if filter.since.is_some() {
        // Nothing ends before it was accepted. The index is read whole, which costs less than one
        // of times would at the end of every job.
        "FROM jobs INDEXED BY jobs_ended
         WHERE jobs.final_seq IS NOT NULL AND jobs.finished_at >= ?3"
    } else if filter.state == Some(JobPhase::Completed) {
        "FROM jobs WHERE jobs.final_seq IS NOT NULL"
    } else {
        "FROM jobs INDEXED BY jobs_ended_badly
         WHERE jobs.final_seq IS NOT NULL AND jobs.state <> 'completed' AND jobs.state = ?2"
    };
    match filter.state {
        Some(JobPhase::Queued | JobPhase::Held | JobPhase::Running) => vec![UNFINISHED],
        Some(_ended) => vec![ended],
        None if filter.session.is_some() || filter.since.is_some() => vec![UNFINISHED, ended],
        None => vec!["FROM jobs WHERE 1"],
    }
}

/// What is asked besides; `+` leaves the choice of the index alone.
fn conditions(filter: &JobFilter) -> String {
    let mut all = String::new();
    let mut and = |given: bool, condition: &str| {
        if given {
            all.push_str(" AND ");
            all.push_str(condition);
        }
    };
    and(filter.session.is_some(), "+jobs.session = ?1");
    and(
        filter.state.is_some(),
        match filter.state {
            Some(JobPhase::Queued) => "+jobs.state = 'queued' AND NOT jobs.held",
            Some(JobPhase::Held) => "+jobs.state = 'queued' AND jobs.held",
            _other => "+jobs.state = ?2",
        },
    );
    and(filter.since.is_some(), "jobs.accepted_at >= ?3");
    and(filter.before.is_some(), "jobs.job < ?4");
    and(filter.parent.is_some(), "+jobs.parent = ?5");
    let value = filter.label.as_ref().and_then(|(_, value)| value.as_ref());
    and(value.is_some(), "labels.value = ?7");
    all
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<rows::JobRow> {
    let labels: Option<String> = row.get(6)?;
    let time = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(rfc3339));
    Ok(rows::JobRow {
        job: JobId(nat(row.get(0)?)),
        session: shown(row.get(1)?),
        agent: row.get(2)?,
        state: phase(row.get_ref(3)?.as_str()?, row.get(4)?),
        attempt: row.get(5)?,
        preview: String::new(),
        labels: labels
            .and_then(|labels| serde_json::from_str(&labels).ok())
            .unwrap_or_default(),
        parent: row
            .get::<_, Option<i64>>(7)?
            .map(|parent| JobId(nat(parent))),
        accepted_at: rfc3339(row.get(8)?),
        start_at: time(9)?,
        finished_at: time(10)?,
        stop: None,
        code: None,
    })
}

/// How far a job is, from its two columns.
pub(super) fn phase(state: &str, held: bool) -> JobPhase {
    match state {
        "queued" if held => JobPhase::Held,
        "queued" => JobPhase::Queued,
        "running" => JobPhase::Running,
        "completed" => JobPhase::Completed,
        "cancelled" => JobPhase::Cancelled,
        "interrupted" => JobPhase::Interrupted,
        _failed => JobPhase::Failed,
    }
}

/// The `state` of the ended ones.
const fn phase_name(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Queued | JobPhase::Held => "queued",
        JobPhase::Running => "running",
        JobPhase::Completed => "completed",
        JobPhase::Cancelled => "cancelled",
        JobPhase::Failed => "failed",
        JobPhase::Interrupted => "interrupted",
    }
}

/// The place of an open session.
pub(super) fn session_id(conn: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT id FROM sessions WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// Open sessions in the order they were made.
pub(super) fn sessions(conn: &Connection, after: u64, limit: usize) -> rusqlite::Result<Loaded> {
    let mut statement = conn.prepare_cached(
        "SELECT id, name, agent, cwd, model, turns, created_at FROM sessions
         WHERE id > ?1 AND instr(name, '#') = 0 ORDER BY id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![int(after), int(limit as u64 + 1)])?;
    let mut sessions = Vec::new();
    let mut more = false;
    while let Some(row) = rows.next()? {
        if sessions.len() == limit {
            more = true;
            break;
        }
        let place = row.get(0)?;
        sessions.push((nat(place), session_row(conn, place, row)?));
    }
    Ok(Loaded::SessionList { sessions, more })
}

fn session_row(conn: &Connection, place: i64, row: &Row<'_>) -> rusqlite::Result<rows::SessionRow> {
    let (first, last, ended): (Option<i64>, Option<i64>, Option<i64>) = conn
        .prepare_cached(
            "SELECT min(ifnull(ended.first, open.first), ifnull(open.first, ended.first)),
                max(ifnull(ended.last, open.last), ifnull(open.last, ended.last)), ended.last
             FROM (SELECT min(job) AS first, max(job) AS last FROM jobs
                    WHERE session = ?1 AND final_seq IS NOT NULL) AS ended,
                (SELECT min(job) AS first, max(job) AS last FROM jobs
                    WHERE session = ?1 AND final_seq IS NULL) AS open",
        )?
        .query_row([place], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut times = conn.prepare_cached(
        "SELECT max(accepted_at, ifnull(finished_at, accepted_at)) FROM jobs WHERE job = ?1",
    )?;
    let created: i64 = row.get(6)?;
    let mut active = created;
    for job in last.into_iter().chain(ended) {
        active = active.max(times.query_row([job], |row| row.get(0))?);
    }
    let begins = |column, job: Option<i64>| {
        let text = job.map(|job| prefix(conn, column, job)).transpose()?;
        let text = text.and_then(|text| member(&text, "text"));
        Ok::<_, rusqlite::Error>(preview(&text.unwrap_or_default()))
    };
    Ok(rows::SessionRow {
        session: row.get(1)?,
        agent: row.get(2)?,
        cwd: row.get(3)?,
        state: rows::SessionPhase::Idle,
        title: begins("request", first)?,
        preview: begins("final", ended)?,
        model: row.get(4)?,
        turns: nat(row.get(5)?),
        created_at: rfc3339(created),
        last_active_at: rfc3339(active),
    })
}

/// The beginning of a long column, without the pages that hold the rest.
fn prefix(conn: &Connection, column: &str, job: i64) -> rusqlite::Result<String> {
    let mut blob = conn.blob_open("main", "jobs", column, job, true)?;
    let mut bytes = vec![0; blob.len().min(PREFIX)];
    if let Err(error) = blob.read_exact(&mut bytes) {
        tracing::warn!(%error, job, column, "the beginning of a column can't be read");
        bytes.clear();
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        // Cut inside a character.
        Err(cut) => {
            let valid = cut.utf8_error().valid_up_to();
            let mut bytes = cut.into_bytes();
            bytes.truncate(valid);
            String::from_utf8(bytes).unwrap_or_default()
        }
    })
}

/// A string member of an object of ours that may end anywhere: as much of it as is there.
fn member(object: &str, name: &str) -> Option<String> {
    let begin = format!("\"{name}\":\"");
    let at = object.find(&begin)? + begin.len();
    let value = object.get(at..)?;
    let mut end = value.len();
    let mut escaped = false;
    for (place, byte) in value.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => {
                end = place;
                break;
            }
            _ => {}
        }
    }
    // A cut may go through an escape, or between the two of a pair.
    for shorter in (end.saturating_sub(12)..=end).rev() {
        let whole = value.get(..shorter).map(|cut| format!("\"{cut}\""));
        if let Some(Ok(text)) = whole.map(|whole| serde_json::from_str(&whole)) {
            return Some(text);
        }
    }
    None
}

/// The beginning of a text, on one line.
fn preview(text: &str) -> String {
    let mut line = String::new();
    let mut left = PREVIEW;
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
            left = left.saturating_sub(1);
        }
        let cut: String = word.chars().take(left).collect();
        left -= cut.chars().count();
        line.push_str(&cut);
        if left == 0 {
            break;
        }
    }
    line.truncate(line.trim_end().len());
    line
}
