//! The numbered lines of all jobs, in their order.
//!
//! Owns where they are found: a job's row is its first and its last one. Must not change anything.

use agentd_core::store::{Loaded, LogLine, MessageText};
use agentd_protocol::line::{Accepted, Line};
use agentd_protocol::{Body, JobId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::lists::session_id;
use super::read::{PAGE_BYTES, texts};
use super::write::{Numbers, int, nat, shown};

/// Lines of one page, however short they are.
const PAGE_LINES: usize = 4096;

const ALL: &str = "
    SELECT seq, 0, job FROM jobs WHERE seq > ?1
    UNION ALL SELECT seq, 1, job FROM events WHERE seq > ?1
    UNION ALL SELECT final_seq, 2, job FROM jobs WHERE final_seq > ?1 AND final_seq IS NOT NULL
    ORDER BY 1 LIMIT ?2";
/// Those of the `chosen` jobs.
const SOME: &str = "
    SELECT jobs.seq, 0, jobs.job FROM chosen CROSS JOIN jobs ON jobs.job = chosen.job
        WHERE jobs.seq > ?1
    UNION ALL SELECT events.seq, 1, events.job FROM chosen
        CROSS JOIN events ON events.job = chosen.job WHERE events.seq > ?1
    UNION ALL SELECT jobs.final_seq, 2, jobs.job FROM chosen
        CROSS JOIN jobs ON jobs.job = chosen.job WHERE jobs.final_seq > ?1
    ORDER BY 1 LIMIT ?2";
const OF_SESSION: &str = "
    WITH chosen (job) AS (
        SELECT job FROM jobs WHERE session = ?3 AND final_seq IS NULL
        UNION ALL SELECT job FROM jobs
            WHERE session = ?3 AND final_seq IS NOT NULL AND +final_seq > ?1)";
const OF_JOBS: &str = "WITH chosen (job) AS (SELECT DISTINCT value FROM json_each(?3))";

/// A page of the log.
pub(super) fn log(
    conn: &Connection,
    after: u64,
    session: Option<&str>,
    jobs: Option<&[JobId]>,
) -> rusqlite::Result<Loaded> {
    let (places, cut) = places(conn, after, session, jobs)?;
    let mut lines = Vec::new();
    let mut bytes = 0;
    let mut more = cut;
    for place in places {
        let line = line(conn, &place)?;
        bytes += line.body.as_json().len();
        bytes += line.texts.iter().map(|text| text.text.len()).sum::<usize>();
        if bytes > PAGE_BYTES && !lines.is_empty() {
            more = true;
            break;
        }
        lines.push(line);
    }
    Ok(Loaded::Log {
        lines,
        more,
        last: nat(Numbers::read(conn)?.last_seq()),
        oldest: oldest(conn)?,
    })
}

/// Everything after this number is there.
fn oldest(conn: &Connection) -> rusqlite::Result<u64> {
    let oldest = conn
        .prepare_cached("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned_seq'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(oldest.map_or(0, nat))
}

/// Where a line is.
struct Place {
    seq: i64,
    kind: i64,
    job: i64,
}

/// The places of the next lines; are there more of them?
fn places(
    conn: &Connection,
    after: u64,
    session: Option<&str>,
    jobs: Option<&[JobId]>,
) -> rusqlite::Result<(Vec<Place>, bool)> {
    let limit = int(PAGE_LINES as u64 + 1);
    let found = match (session, jobs) {
        (Some(name), _) => {
            let Some(session) = session_id(conn, name)? else {
                return Ok((Vec::new(), false));
            };
            conn.prepare_cached(&format!("{OF_SESSION}{SOME}"))?
                .query_map(params![int(after), limit, session], place)?
                .collect::<Result<Vec<_>, _>>()?
        }
        (None, Some(jobs)) => {
            let jobs: Vec<i64> = jobs.iter().map(|job| int(job.0)).collect();
            let jobs = serde_json::json!(jobs).to_string();
            conn.prepare_cached(&format!("{OF_JOBS}{SOME}"))?
                .query_map(params![int(after), limit, jobs], place)?
                .collect::<Result<Vec<_>, _>>()?
        }
        (None, None) => conn
            .prepare_cached(ALL)?
            .query_map(params![int(after), limit], place)?
            .collect::<Result<Vec<_>, _>>()?,
    };
    let mut found = found;
    let cut = found.len() > PAGE_LINES;
    found.truncate(PAGE_LINES);
    Ok((found, cut))
}

fn place(row: &rusqlite::Row<'_>) -> rusqlite::Result<Place> {
    Ok(Place {
        seq: row.get(0)?,
        kind: row.get(1)?,
        job: row.get(2)?,
    })
}

fn line(conn: &Connection, place: &Place) -> rusqlite::Result<LogLine> {
    let job = JobId(nat(place.job));
    let (body, texts): (Body, Vec<MessageText>) = match place.kind {
        0 => (accepted(conn, place.job)?, Vec::new()),
        1 => {
            let body = conn
                .prepare_cached("SELECT line FROM events WHERE seq = ?1")?
                .query_row([place.seq], |row| {
                    Ok(Body::stored_event(row.get_ref(0)?.as_str()?))
                })?;
            (body, Vec::new())
        }
        _last => {
            let body = conn
                .prepare_cached("SELECT final FROM jobs WHERE job = ?1")?
                .query_row([place.job], |row| {
                    Ok(Body::stored(row.get_ref(0)?.as_str()?))
                })?;
            (body, texts(conn, job)?)
        }
    };
    Ok(LogLine {
        seq: nat(place.seq),
        job,
        body,
        texts,
    })
}

/// As it was told to whoever was there. What was ignored in it only its sender was told.
fn accepted(conn: &Connection, job: i64) -> rusqlite::Result<Body> {
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
            })
        })?;
    Ok(Line::Accepted(accepted).body())
}
