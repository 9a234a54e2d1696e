//! Lists of jobs.
//!
//! Owns which index leads to which list, how a row becomes a line of it, and how long texts begin.
//! Long columns are never read whole for it. Must not change anything.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _};

use agentd_core::rfc3339;
use agentd_core::store::{JobFilter, Loaded};
use agentd_protocol::routed::Routed;
use agentd_protocol::work::JobPhase;
use agentd_protocol::{JobId, rows};
use rusqlite::blob::Blob;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::Liveness;
use super::columns::{int, nat, shown};

/// Characters of a prompt or an answer in a list.
const PREVIEW: usize = 80;
/// Bytes of a long column that are read for them: characters take up to six each, and something
/// stands before them.
const PREFIX: usize = 2048;

/// So many of the newest jobs are looked at one by one before an index is read whole and put in
/// order: most who ask want what is new.
const NEWEST: usize = 2000;

/// Some jobs, newest first.
pub(super) fn jobs(
    conn: &Connection,
    filter: &JobFilter,
    limit: usize,
    alive: &dyn Fn(&str) -> Liveness,
) -> rusqlite::Result<Loaded> {
    let mut numbers = job_numbers(conn, filter, limit)?;
    let more = numbers.len() > limit;
    numbers.truncate(limit);
    let mut statement = conn.prepare_cached(
        "SELECT jobs.job, sessions.name, sessions.agent, jobs.state, jobs.held, jobs.attempt,
            jobs.labels, jobs.parent, jobs.accepted_at, jobs.start_at, jobs.finished_at,
            jobs.instance
         FROM jobs JOIN sessions ON sessions.id = jobs.session WHERE jobs.job = ?1",
    )?;
    let mut jobs = Vec::with_capacity(numbers.len());
    let (mut requests, mut finals) = (Long::new(conn, "request"), Long::new(conn, "final"));
    let mut gone = BTreeMap::new();
    for job in numbers {
        let told = |row: &Row<'_>| Ok((job_row(row)?, row.get::<_, Option<String>>(11)?));
        let (mut row, ran_by) = statement.query_row([job], told)?;
        if let (JobPhase::Running, Some(instance)) = (row.state, ran_by) {
            let is_gone = || alive(&instance) == Liveness::Dead;
            row.cut_off = *gone.entry(instance.clone()).or_insert_with(is_gone);
        }
        let request = requests.prefix(job)?;
        row.preview = preview(&member(&request, "text").unwrap_or_default());
        row.routed = routed(&request);
        if row.finished_at.is_some() {
            let last = finals.prefix(job)?;
            // Stored lines are written here, with `type` first.
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
        Some(name) => match session_read(conn, name)? {
            None => return Ok(Vec::new()),
            known => known,
        },
    };
    let (key, value) = filter.label.clone().unzip();
    let agent = filter.agent.as_deref();
    let find = |from: &str, numbers: &mut Vec<i64>| {
        let sql = format!("{from}{} ORDER BY 1 DESC LIMIT ?9", conditions(filter));
        let mut statement = conn.prepare_cached(&sql)?;
        let found = statement.query_map(
            params![
                session,
                filter.state.map(phase_name),
                filter.since,
                filter.before.map(|before| int(before.0)),
                filter.parent.map(|parent| int(parent.0)),
                key,
                value.as_ref().and_then(Option::as_ref),
                agent,
                int(limit as u64 + 1),
            ],
            |row| row.get(0),
        )?;
        for job in found {
            numbers.push(job?);
        }
        Ok::<_, rusqlite::Error>(())
    };
    let mut numbers = Vec::new();
    if let Some(newest) = among_the_newest(filter) {
        find(&newest, &mut numbers)?;
        if numbers.len() > limit {
            return Ok(numbers);
        }
        numbers.clear();
    }
    for from in ways(filter) {
        find(from, &mut numbers)?;
    }
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    numbers.truncate(limit + 1);
    Ok(numbers)
}

/// The newest jobs one by one, where no index has them in their order.
fn among_the_newest(filter: &JobFilter) -> Option<String> {
    let with = match &filter.label {
        Some((_, None)) => {
            "EXISTS (SELECT 1 FROM labels WHERE labels.job = jobs.job AND labels.key = ?6)"
        }
        None if filter.since.is_some() && filter.session.is_none() && filter.parent.is_none() => {
            "1"
        }
        _ => return None,
    };
    let before = filter.before.map_or("", |_| "WHERE job < ?4");
    Some(format!(
        "SELECT jobs.job FROM (SELECT job, session, state, held, parent, accepted_at FROM jobs
            {before} ORDER BY job DESC LIMIT {NEWEST}) AS jobs WHERE {with}"
    ))
}

/// By which index the jobs are found. Unfinished and ended ones have separate indexes, so that an
/// accept has few to write.
fn ways(filter: &JobFilter) -> Vec<&'static str> {
    // Each index is named: nothing is ever analysed, and without statistics SQLite may choose to
    // read all jobs.
    const UNFINISHED: &str =
        "SELECT jobs.job FROM jobs INDEXED BY jobs_unfinished WHERE jobs.final_seq IS NULL";
    if filter.label.is_some() {
        // With a value these are in their order.
        return vec![
            "SELECT labels.job FROM labels CROSS JOIN jobs ON jobs.job = labels.job
             WHERE labels.key = ?6",
        ];
    }
    if filter.parent.is_some() {
        return vec!["SELECT jobs.job FROM jobs INDEXED BY jobs_of_parent WHERE jobs.parent = ?5"];
    }
    let ended = if filter.session.is_some() {
        "SELECT jobs.job FROM jobs INDEXED BY jobs_ended_in WHERE jobs.final_seq IS NOT NULL AND jobs.session = ?1"
    } else if filter.since.is_some() {
        // Nothing ends before it was accepted. The index is read whole, which costs less than one
        // of times would at the end of every job.
        "SELECT jobs.job FROM jobs INDEXED BY jobs_ended
         WHERE jobs.final_seq IS NOT NULL AND jobs.finished_at >= ?3"
    } else if filter.state == Some(JobPhase::Completed) {
        "SELECT jobs.job FROM jobs WHERE jobs.final_seq IS NOT NULL"
    } else {
        "SELECT jobs.job FROM jobs INDEXED BY jobs_ended_badly
         WHERE jobs.final_seq IS NOT NULL AND jobs.state <> 'completed' AND jobs.state = ?2"
    };
    match filter.state {
        Some(JobPhase::Queued | JobPhase::Held | JobPhase::Running) => vec![UNFINISHED],
        Some(_ended) => vec![ended],
        None if filter.session.is_some() || filter.since.is_some() => vec![UNFINISHED, ended],
        None => vec!["SELECT jobs.job FROM jobs WHERE 1"],
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
    // Looked up job by job, and not by walking through the sessions of an agent.
    and(
        filter.agent.is_some(),
        "(SELECT agent FROM sessions WHERE id = jobs.session) = ?8",
    );
    and(
        filter.state.is_some(),
        match filter.state {
            Some(JobPhase::Queued) => "+jobs.state = 'queued' AND NOT jobs.held",
            Some(JobPhase::Held) => "+jobs.state = 'queued' AND jobs.held",
            _other => "+jobs.state = ?2",
        },
    );
    and(filter.since.is_some(), "jobs.accepted_at >= ?3");
    // What comes first in the choice is what is put in order, too.
    let by_label = matches!(filter.label, Some((_, Some(_))));
    let before = if by_label {
        "labels.job < ?4"
    } else {
        "jobs.job < ?4"
    };
    and(filter.before.is_some(), before);
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
        // Whoever runs it knows.
        started_at: None,
        doing: None,
        // By who ran it.
        cut_off: false,
        finished_at: time(10)?,
        stop: None,
        code: None,
        routed: None,
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

/// The place of the session whose past is read by this name: the open one, else the one of this name
/// that was closed last.
pub(super) fn session_read(conn: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    match session_id(conn, name)? {
        None => session_closed(conn, name),
        open => Ok(open),
    }
}

/// The place of the session that was closed last of those that had this name.
pub(super) fn session_closed(conn: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    // As `close` renames them; `$` is the next character.
    conn.prepare_cached("SELECT max(id) FROM sessions WHERE name > ?1 || '#' AND name < ?1 || '$'")?
        .query_row([name], |row| row.get(0))
}

/// The place of a job's session, if that has this name, or had it when it was closed.
pub(super) fn session_of(
    conn: &Connection,
    name: &str,
    job: JobId,
) -> rusqlite::Result<Option<i64>> {
    let of_job = "SELECT sessions.id, name FROM jobs JOIN sessions ON sessions.id = jobs.session
         WHERE job = ?1";
    let found = conn
        .prepare_cached(of_job)?
        .query_row([int(job.0)], |row| {
            Ok((row.get::<_, i64>(0)?, shown(row.get(1)?)))
        })
        .optional()?;
    Ok(found.filter(|(_, named)| named == name).map(|(id, _)| id))
}

/// A long column, of which only beginnings are read, without the pages that hold the rest.
pub(super) struct Long<'a> {
    conn: &'a Connection,
    column: &'static str,
    /// At some row: to move on costs much less than to open another one.
    blob: Option<Blob<'a>>,
}

impl<'a> Long<'a> {
    pub(super) const fn new(conn: &'a Connection, column: &'static str) -> Self {
        Self {
            conn,
            column,
            blob: None,
        }
    }

    pub(super) fn prefix(&mut self, job: i64) -> rusqlite::Result<String> {
        let mut blob = match self.blob.take() {
            Some(mut blob) => {
                blob.reopen(job)?;
                blob
            }
            None => (self.conn).blob_open("main", "jobs", self.column, job, true)?,
        };
        let mut bytes = vec![0; blob.len().min(PREFIX)];
        if let Err(error) = blob.rewind().and_then(|()| blob.read_exact(&mut bytes)) {
            // The list is told all the same: it is only the words of a row that are missing.
            let column = self.column;
            tracing::warn!(%error, job, column, "the beginning of a column can't be read");
            bytes.clear();
        }
        self.blob = Some(blob);
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
}

/// As much of a long column as is read for a list.
pub(super) fn prefix(text: &str) -> &str {
    &text[..text.floor_char_boundary(PREFIX)]
}

/// A string member of an object of ours that may end anywhere: as much of it as is there.
pub(super) fn member(object: &str, name: &str) -> Option<String> {
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

/// Why a job has its agent: in front of a request, where the routes were asked.
pub(super) fn routed(request: &str) -> Option<Box<Routed>> {
    let value = request.strip_prefix(r#"{"routed":"#)?;
    let mut read = serde_json::Deserializer::from_str(value).into_iter();
    read.next()?.ok()
}

/// The beginning of a text, on one line.
pub(super) fn preview(text: &str) -> String {
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
