//! The numbered lines of all jobs, in their order.
//!
//! Owns where they are found: a job's row is its first and its last one. Must not change anything.

use agentd_core::store::{Loaded, LogLine, Position, TextPiece};
use agentd_protocol::line::{Accepted, Line};
use agentd_protocol::{Body, JobId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::columns::{int, nat, shown};
use super::lists::{Long, routed, session_id};
use super::read::PAGE_BYTES;
use super::texts::portion;
use super::write::Numbers;

/// Lines of one page, however short they are.
const PAGE_LINES: usize = 1024;
/// Jobs of a session that one page looks at first; more, where none of them has a line in it.
const PAGE_JOBS: usize = 256;

/// What is known already: lines up to a number, and so much of the texts before final lines behind it.
type Since<'a> = (u64, &'a [(JobId, Position)]);

const ALL: &str = "
    SELECT seq, 0, job FROM jobs WHERE seq > ?1
    UNION ALL SELECT seq, 1, job FROM events WHERE seq > ?1
    UNION ALL SELECT final_seq, 2, job FROM jobs WHERE final_seq > ?1 AND final_seq IS NOT NULL
    ORDER BY 1 LIMIT ?2";
/// Those of the jobs in `?3`, a JSON array.
const SOME: &str = "
    WITH chosen (job) AS (SELECT DISTINCT value FROM json_each(?3))
    SELECT jobs.seq, 0, jobs.job FROM chosen CROSS JOIN jobs ON jobs.job = chosen.job
        WHERE jobs.seq > ?1
    UNION ALL SELECT events.seq, 1, events.job FROM chosen
        CROSS JOIN events ON events.job = chosen.job WHERE events.seq > ?1
    UNION ALL SELECT jobs.final_seq, 2, jobs.job FROM chosen
        CROSS JOIN jobs ON jobs.job = chosen.job WHERE jobs.final_seq > ?1
    ORDER BY 1 LIMIT ?2";
/// Jobs of a session that may have a line after a number, in their order.
const JOBS_OF_SESSION: &str = "
    SELECT * FROM (SELECT job, seq, final_seq FROM jobs INDEXED BY jobs_ended_in
        WHERE session = ?1 AND final_seq IS NOT NULL AND job >= ?2 AND +final_seq > ?3
        ORDER BY job LIMIT ?4)
    UNION ALL SELECT * FROM (SELECT job, seq, final_seq FROM jobs INDEXED BY jobs_unfinished
        WHERE session = ?1 AND final_seq IS NULL AND job >= ?2 ORDER BY job LIMIT ?4)
    ORDER BY 1 LIMIT ?4";

/// A page of the log of all jobs.
pub(super) fn of_all(conn: &Connection, since: Since<'_>) -> rusqlite::Result<Loaded> {
    let (after, texts) = since;
    let found = conn
        .prepare_cached(ALL)?
        .query_map(params![int(after), int(PAGE_LINES as u64 + 1)], place)?
        .collect::<Result<Vec<_>, _>>()?;
    page(conn, found, texts)?.loaded(conn, (JobId(0), oldest(conn)?))
}

/// A page of the log of some jobs.
pub(super) fn of_jobs(
    conn: &Connection,
    (after, texts): Since<'_>,
    jobs: &[JobId],
) -> rusqlite::Result<Loaded> {
    let jobs: Vec<i64> = jobs.iter().map(|job| int(job.0)).collect();
    let found = places_of(conn, after, &jobs)?;
    let mut oldest = oldest(conn)?;
    // A job is forgotten as a whole: what is missing of others is none of these.
    if after < oldest && are_there(conn, &jobs)? {
        oldest = 0;
    }
    page(conn, found, texts)?.loaded(conn, (JobId(0), oldest))
}

/// A page of the log of a session, none of whose jobs before `first` has a line after `after`.
///
/// Jobs have their numbers in the order of their first lines. So what comes before the first line
/// of some job is all of it of earlier ones: of those that this page looks at.
pub(super) fn of_session(
    conn: &Connection,
    (after, texts): Since<'_>,
    name: &str,
    first: JobId,
) -> rusqlite::Result<Loaded> {
    let Some(session) = session_id(conn, name)? else {
        return page(conn, Vec::new(), texts)?.loaded(conn, (first, oldest(conn)?));
    };
    let mut most = PAGE_JOBS;
    loop {
        let mut open = conn
            .prepare_cached(JOBS_OF_SESSION)?
            .query_map(
                params![session, int(first.0), int(after), int(most as u64 + 1)],
                open_job,
            )?
            .collect::<Result<Vec<_>, _>>()?;
        let beyond = open.get(most).map(|next| next.seq);
        open.truncate(most);
        let jobs: Vec<i64> = open.iter().map(|open| open.job).collect();
        let mut found = places_of(conn, after, &jobs)?;
        if let Some(beyond) = beyond {
            found.retain(|place| place.seq < beyond);
            if found.is_empty() {
                // All of them began before and end later.
                most *= 4;
                continue;
            }
        }
        let mut page = page(conn, found, texts)?;
        page.more |= beyond.is_some();
        let told = page.lines.last().map_or(after, |line| line.seq);
        let first = open
            .iter()
            .find(|open| open.last.is_none_or(|last| nat(last) > told))
            .map(|open| open.job);
        // A job to come has a larger number than all that there are.
        let first = match first.or(beyond.and(jobs.last().map(|job| job + 1))) {
            Some(first) => JobId(nat(first)),
            None => next_job(conn)?,
        };
        return page.loaded(conn, (first, oldest(conn)?));
    }
}

fn next_job(conn: &Connection) -> rusqlite::Result<JobId> {
    conn.prepare_cached("SELECT 1 + ifnull(max(job), 0) FROM jobs")?
        .query_row([], |row| Ok(JobId(nat(row.get(0)?))))
}

/// A job that may have more lines.
struct OpenJob {
    job: i64,
    seq: i64,
    last: Option<i64>,
}

fn open_job(row: &rusqlite::Row<'_>) -> rusqlite::Result<OpenJob> {
    Ok(OpenJob {
        job: row.get(0)?,
        seq: row.get(1)?,
        last: row.get(2)?,
    })
}

/// Some lines of the log.
struct LogPage {
    lines: Vec<LogLine>,
    more: bool,
    portion: Option<(JobId, Vec<TextPiece>)>,
}

impl LogPage {
    fn loaded(self, conn: &Connection, (first, oldest): (JobId, u64)) -> rusqlite::Result<Loaded> {
        Ok(Loaded::Log {
            lines: self.lines,
            more: self.more,
            last: nat(Numbers::read(conn)?.last_seq()),
            oldest,
            first,
            portion: self.portion,
        })
    }
}

/// As many lines as fit into a page.
fn page(
    conn: &Connection,
    mut places: Vec<LinePosition>,
    texts: &[(JobId, Position)],
) -> rusqlite::Result<LogPage> {
    let more = places.len() > PAGE_LINES;
    places.truncate(PAGE_LINES);
    let mut page = LogPage {
        lines: Vec::new(),
        more,
        portion: None,
    };
    let mut bytes = 0;
    for place in places {
        if bytes >= PAGE_BYTES {
            page.more = true;
            break;
        }
        let job = JobId(nat(place.job));
        let mut said = Vec::new();
        if place.kind == LAST {
            let from = texts.iter().find(|(of, _)| *of == job);
            let from = from.map_or_else(Position::default, |(_, from)| *from);
            // The text goes before its final line: a reader that had the end first would take it
            // for all.
            let (portion, whole) = portion(conn, job, from)?;
            if !whole {
                page.more = true;
                page.portion = Some((job, portion));
                break;
            }
            said = portion;
        }
        let body = line(conn, &place)?;
        bytes += body.as_json().len();
        if bytes > PAGE_BYTES && !page.lines.is_empty() {
            page.more = true;
            break;
        }
        bytes += said.iter().map(|text| text.text.len()).sum::<usize>();
        page.lines.push(LogLine {
            seq: nat(place.seq),
            job,
            body,
            texts: said,
        });
    }
    Ok(page)
}

/// Everything after this number is there.
fn oldest(conn: &Connection) -> rusqlite::Result<u64> {
    let oldest = conn
        .prepare_cached("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned_seq'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(oldest.map_or(0, nat))
}

/// Are all these jobs kept?
fn are_there(conn: &Connection, jobs: &[i64]) -> rusqlite::Result<bool> {
    let jobs = serde_json::json!(jobs).to_string();
    conn.prepare_cached(
        "SELECT NOT EXISTS (SELECT 1 FROM json_each(?1) WHERE value NOT IN (SELECT job FROM jobs))",
    )?
    .query_row([jobs], |row| row.get(0))
}

/// Final lines, among kinds of places.
const LAST: i64 = 2;

/// Where a line is.
struct LinePosition {
    seq: i64,
    kind: i64,
    job: i64,
}

/// The places of the next lines of some jobs, one more than a page has if there are so many.
fn places_of(conn: &Connection, after: u64, jobs: &[i64]) -> rusqlite::Result<Vec<LinePosition>> {
    let jobs = serde_json::json!(jobs).to_string();
    conn.prepare_cached(SOME)?
        .query_map(params![int(after), int(PAGE_LINES as u64 + 1), jobs], place)?
        .collect()
}

fn place(row: &rusqlite::Row<'_>) -> rusqlite::Result<LinePosition> {
    Ok(LinePosition {
        seq: row.get(0)?,
        kind: row.get(1)?,
        job: row.get(2)?,
    })
}

fn line(conn: &Connection, place: &LinePosition) -> rusqlite::Result<Body> {
    match place.kind {
        0 => accepted(conn, place.job),
        LAST => conn
            .prepare_cached("SELECT final FROM jobs WHERE job = ?1")?
            .query_row([place.job], |row| {
                Ok(Body::stored(row.get_ref(0)?.as_str()?))
            }),
        _event => conn
            .prepare_cached("SELECT line FROM events WHERE seq = ?1")?
            .query_row([place.seq], |row| {
                Ok(Body::stored_event(row.get_ref(0)?.as_str()?))
            }),
    }
}

/// As it was told to whoever was there. What was ignored in it only its sender was told.
fn accepted(conn: &Connection, job: i64) -> rusqlite::Result<Body> {
    let routed = routed(&Long::new(conn, "request").prefix(job)?);
    let accepted = conn
        .prepare_cached(
            "SELECT sessions.name, sessions.agent, jobs.at_once FROM jobs
             JOIN sessions ON sessions.id = jobs.session WHERE jobs.job = ?1",
        )?
        .query_row([job], |row| {
            Ok(Accepted {
                job: JobId(nat(job)),
                session: shown(row.get(0)?),
                agent: row.get(1)?,
                seq: None,
                replayed: false,
                ignored: Vec::new(),
                running: row.get(2)?,
                drained: false,
                made: false,
                routed,
            })
        })?;
    Ok(Line::Accepted(accepted).body())
}
