//! Questions as statements.
//!
//! Owns how rows become the core's types, and how much one answer may hold.
//! Must not change anything.

use agentd_core::mcp::McpServers;
use agentd_core::store::{Due, JobRow, JobState, Keyed, Loaded, Pins, Position, Query, SessionRow};
use agentd_protocol::{Body, JobId};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sha2::{Digest as _, Sha256};

use super::columns::{int, nat, shown};
use super::lists::{Long, routed};
use super::{
    Liveness, damage, export, history, listed, lists, log, schedules, search, texts, usage,
    webhooks,
};

/// Bytes of final lines in one answer; the first job is given whatever it has.
/// Who asked for more asks again for what follows the last one given.
pub(super) const JOBS_BYTES: usize = 1024 * 1024;
/// Bytes of event lines in one page; the first event is given whatever it has.
pub(super) const PAGE_BYTES: usize = 256 * 1024;

/// The columns of [`session_row`].
pub(super) const SESSION_COLUMNS: &str = "name, agent, cwd, toolsets, named, native, turns,
    provider, model, thinking, lost, real_cwd, system, forks, mcp_servers, mode";
/// The columns of [`job_row`], of `jobs` and `sessions` joined.
pub(super) const JOB_COLUMNS: &str = "jobs.job, jobs.seq, sessions.name, sessions.agent,
    jobs.boot, jobs.state, jobs.attempt, jobs.expires_at, jobs.final, jobs.final_seq,
    jobs.cancelled, jobs.held, jobs.start_at,
    jobs.expires_boot, jobs.start_boot";

/// Answers a question; `alive` says which instances are.
pub(super) fn ask(
    conn: &Connection,
    query: &Query,
    alive: &dyn Fn(&str) -> Liveness,
) -> rusqlite::Result<Loaded> {
    match query {
        Query::Sessions { names } => sessions(conn, names).map(Loaded::Sessions),
        Query::Key { key, hashed } => keyed(conn, key, hashed).map(Loaded::Key),
        Query::Jobs { jobs } => some_jobs(conn, jobs).map(Loaded::Jobs),
        Query::Asked { job, question } => asked(conn, *job, question),
        Query::Events { job, after, from } => events_and_text(conn, *job, *after, *from),
        Query::JobList { filter, limit } => lists::jobs(conn, filter, *limit, alive),
        Query::Usage {
            since,
            before,
            by,
            session,
        } => usage::asked(conn, *since, *before, (*by, session.as_deref())),
        Query::Webhooks {
            state,
            webhook,
            before,
            limit,
        } => webhooks::list(conn, *state, webhook.as_deref(), *before, *limit),
        Query::Schedules {
            which,
            after,
            limit,
        } => schedules::list(conn, which.as_deref(), *after, *limit),
        Query::ScheduleRuns {
            which,
            before,
            limit,
        } => schedules::runs(conn, which, *before, *limit),
        Query::SessionList {
            filter,
            after,
            limit,
        } => listed::sessions(conn, filter, *after, *limit),
        Query::Search {
            words,
            session,
            before,
            limit,
        } => search::search(conn, words, session.as_deref(), *before, *limit),
        Query::History {
            session,
            job,
            after,
            limit,
            events,
        } => {
            let wanted = history::Wanted {
                job: *job,
                after: *after,
                limit: *limit,
                events: *events,
            };
            history::history(conn, session, &wanted)
        }
        Query::Message {
            session,
            job,
            message,
            after,
        } => history::message(conn, session, *job, *message, *after),
        Query::Log {
            after,
            session,
            jobs,
            first,
            texts,
        } => match (session, jobs) {
            (Some(session), _) => log::of_session(conn, (*after, texts), session, *first),
            (None, Some(jobs)) => log::of_jobs(conn, (*after, texts), jobs),
            (None, None) => log::of_all(conn, (*after, texts)),
        },
        Query::Export { after, session } => export::export(conn, *after, session.as_deref()),
        // Made beside the writer, not within its transaction.
        Query::Backup { .. } => Ok(Loaded::Failed("a backup is no question".to_owned())),
    }
}

/// The same, with the words of whatever is in the way.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn load(conn: &Connection, query: &Query) -> Loaded {
    ask(conn, query, &|_nobody| Liveness::Dead)
        .unwrap_or_else(|error| Loaded::Failed(error.to_string()))
}

fn asked(conn: &Connection, job: JobId, question: &str) -> rusqlite::Result<Loaded> {
    // What others said is escaped within a line.
    let says = format!("\"question_id\":\"{question}\"");
    conn.prepare_cached("SELECT 1 FROM events WHERE job = ?1 AND instr(line, ?2) > 0")?
        .exists(params![int(job.0), says])
        .map(Loaded::Asked)
}

fn sessions(conn: &Connection, names: &[String]) -> rusqlite::Result<Vec<SessionRow>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {SESSION_COLUMNS} FROM sessions WHERE name = ?1"
    ))?;
    let mut rows = Vec::new();
    for name in names {
        rows.extend(statement.query_row([name], session_row).optional()?);
    }
    Ok(rows)
}

fn keyed(conn: &Connection, key: &str, hashed: &str) -> rusqlite::Result<Keyed> {
    let known = conn
        .prepare_cached("SELECT job, hash FROM jobs WHERE key = ?1")?
        .query_row([key], |row| <(i64, Vec<u8>)>::try_from(row))
        .optional()?;
    Ok(match known {
        None => Keyed::Free,
        Some((job, hash)) if hash == Sha256::digest(hashed.as_bytes()).as_slice() => Keyed::Same {
            job: JobId(nat(job)),
        },
        Some((job, _)) => Keyed::Other {
            job: JobId(nat(job)),
        },
    })
}

fn some_jobs(conn: &Connection, jobs: &[JobId]) -> rusqlite::Result<Vec<JobRow>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {JOB_COLUMNS} FROM jobs JOIN sessions ON sessions.id = jobs.session
         WHERE jobs.job = ?1"
    ))?;
    let mut rows = Vec::new();
    let mut bytes = 0;
    let mut requests = Long::new(conn, "request");
    for job in jobs {
        let found = statement.query_row([int(job.0)], |row| job_row(row, None));
        let Some(mut row) = found.optional()? else {
            damage::if_gone(conn, int(job.0))?;
            continue;
        };
        row.routed = routed(&requests.prefix(int(job.0))?);
        if let JobState::Finished { line, .. } = &row.state {
            bytes += line.as_json().len();
        }
        if bytes > JOBS_BYTES && !rows.is_empty() {
            break;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// A page of the numbered events of a job; does another one follow?
pub(super) fn events(
    conn: &Connection,
    job: JobId,
    after: u64,
) -> rusqlite::Result<(Vec<(u64, Body)>, bool)> {
    let mut statement = conn
        .prepare_cached("SELECT seq, line FROM events WHERE job = ?1 AND seq > ?2 ORDER BY seq")?;
    let mut rows = statement.query(params![int(job.0), int(after)])?;
    let mut events = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let line = row.get_ref(1)?.as_str()?;
        bytes += line.len();
        if bytes > PAGE_BYTES && !events.is_empty() {
            return Ok((events, true));
        }
        events.push((nat(row.get(0)?), Body::stored_event(line)));
    }
    Ok((events, false))
}

/// The same, with a portion of its text behind the last one.
fn events_and_text(
    conn: &Connection,
    job: JobId,
    after: u64,
    from: Option<Position>,
) -> rusqlite::Result<Loaded> {
    let (events, more) = events(conn, job, after)?;
    let (texts, whole) = match from {
        Some(from) if !more => texts::portion(conn, job, from)?,
        _ => (Vec::new(), false),
    };
    Ok(Loaded::Events {
        events,
        more,
        texts,
        whole,
    })
}

/// A session from [`SESSION_COLUMNS`].
pub(super) fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        name: row.get(0)?,
        agent: row.get(1)?,
        cwd: row.get(2)?,
        toolsets: row.get(3)?,
        named: row.get(4)?,
        native: row.get(5)?,
        turns: nat(row.get(6)?),
        pins: Pins {
            provider: row.get(7)?,
            model: row.get(8)?,
            thinking: row.get(9)?,
            mode: row.get(15)?,
        },
        lost: row.get(10)?,
        real_cwd: row.get(11)?,
        system: row.get(12)?,
        forks: row.get(13)?,
        mcp_servers: McpServers::stored(row.get(14)?),
    })
}

/// A job from [`JOB_COLUMNS`]; times by the clock of another boot than `boot` are left out.
pub(super) fn job_row(row: &Row<'_>, boot: Option<&str>) -> rusqlite::Result<JobRow> {
    // Times of another boot say nothing: its clock began anew.
    let same = boot.is_some() && row.get_ref(4)?.as_str_or_null()? == boot;
    let booted = |column| {
        let ms = row.get::<_, Option<i64>>(column)?;
        Ok::<_, rusqlite::Error>(ms.filter(|_| same).map(nat))
    };
    let attempt = row.get(6)?;
    let (expires_boot, start_boot) = (booted(13)?, booted(14)?);
    let state = match (row.get_ref(8)?.as_str_or_null()?, row.get_ref(5)?.as_str()?) {
        (Some(line), _) => JobState::Finished {
            seq: nat(row.get(9)?),
            line: Body::stored(line),
        },
        (None, "queued") => JobState::Queued {
            expires: Due {
                wall_ms: row.get(7)?,
                boot_ms: expires_boot,
            },
            start: row.get::<_, Option<i64>>(12)?.map(|wall_ms| Due {
                wall_ms,
                boot_ms: start_boot,
            }),
            held: row.get(11)?,
            attempt,
        },
        (None, _) => JobState::Running { attempt },
    };
    Ok(JobRow {
        job: JobId(nat(row.get(0)?)),
        seq: nat(row.get(1)?),
        session: shown(row.get(2)?),
        agent: row.get(3)?,
        cancelled: row.get(10)?,
        state,
        routed: None,
    })
}
