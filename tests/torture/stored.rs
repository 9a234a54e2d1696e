//! What a run left on the disk: the store, opened for reading only, and the ledger.
//!
//! Owns the tables' names. Must not know what is right.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};
use serde_json::Value;

use crate::history::{Effect, End, Event, History, Job};

/// Puts the store and the ledger into the history.
pub(crate) fn read(state: &Path, ledger: &Path, history: &mut History) -> rusqlite::Result<()> {
    let store = open(state)?;
    let whole: String = store.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if whole != "ok" {
        history.stuck.push(format!("the store is broken: {whole}"));
    }
    history.jobs = all(&store, JOBS, job)?;
    let events = "SELECT seq, job FROM events ORDER BY seq";
    history.events = all(&store, events, |row| {
        Ok(Event {
            seq: number(row, 0)?,
            job: name(number(row, 1)?),
        })
    })?;
    let sessions = "SELECT id, name FROM sessions";
    let sessions = all(&store, sessions, |row| Ok((number(row, 0)?, row.get(1)?)))?;
    history.sessions = sessions.into_iter().collect();
    history.effects = effects(&fs::read_to_string(ledger).unwrap_or_default());
    Ok(())
}

/// Jobs that have no end yet.
pub(crate) fn unfinished(state: &Path) -> rusqlite::Result<Vec<String>> {
    let store = open(state)?;
    let open = "SELECT job || ' ' || state || ' ' || request FROM jobs WHERE final_seq IS NULL";
    all(&store, open, |row| row.get(0))
}

/// The version of the tables.
pub(crate) fn version(state: &Path) -> rusqlite::Result<u64> {
    open(state)?.query_row("PRAGMA user_version", [], |row| number(row, 0))
}

/// Jobs that have no end yet and that no other instance has than the daemon with this process id: its
/// session says who has a job, and what nobody has is the daemon's to take.
pub(crate) fn open_of(state: &Path, pid: u32) -> rusqlite::Result<BTreeSet<String>> {
    let open_jobs = format!(
        "SELECT jobs.job FROM jobs JOIN sessions ON sessions.id = jobs.session
         WHERE jobs.final_seq IS NULL
           AND (sessions.instance IS NULL OR sessions.instance LIKE '{pid}-%')"
    );
    let jobs = all(&open(state)?, &open_jobs, |row| Ok(name(number(row, 0)?)))?;
    Ok(jobs.into_iter().collect())
}

/// Jobs that wait behind an interrupted one, each with its session's name, and the number of the
/// last end. They wait for an abort, or until the session is resumed.
pub(crate) fn waiting_in_vain(state: &Path) -> rusqlite::Result<(Vec<(String, String)>, u64)> {
    let held = "SELECT jobs.job, sessions.name FROM jobs
        JOIN sessions ON sessions.id = jobs.session
        WHERE jobs.final_seq IS NULL AND jobs.state = 'queued' AND jobs.held";
    let store = open(state)?;
    let held = all(&store, held, |row| Ok((name(number(row, 0)?), row.get(1)?)))?;
    let last = "SELECT coalesce(max(final_seq), 0) FROM jobs";
    let last = store.query_row(last, [], |row| number(row, 0))?;
    Ok((held, last))
}

const JOBS: &str = "SELECT job, seq, session, key, request, state, final_seq, final
    FROM jobs ORDER BY job";

fn open(state: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let store = Connection::open_with_flags(state.join("agentd.db"), flags)?;
    store.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(store)
}

fn all<T>(
    store: &Connection,
    query: &str,
    of: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    store.prepare(query)?.query_map([], of)?.collect()
}

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    let end: Option<i64> = row.get(6)?;
    let last = end
        .map(|seq| {
            let line: String = row.get(7)?;
            Ok::<_, rusqlite::Error>(End {
                seq: seq.unsigned_abs(),
                line: serde_json::from_str(&line).unwrap_or(Value::String(line)),
            })
        })
        .transpose()?;
    Ok(Job {
        job: name(number(row, 0)?),
        seq: number(row, 1)?,
        session: number(row, 2)?,
        key: row.get(3)?,
        request: row.get(4)?,
        state: row.get(5)?,
        last: last.map(|mut last| {
            // The number is a column of its own.
            if last.line.get("seq").is_none() && last.line.is_object() {
                last.line["seq"] = last.seq.into();
            }
            last
        }),
    })
}

/// SQLite's integers are signed; none of these is below 0.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

fn name(job: u64) -> String {
    format!("j{job}")
}

fn effects(ledger: &str) -> Vec<Effect> {
    ledger
        .lines()
        .map(|line| {
            // JOB ATTEMPT SESSION <NONCE>
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap_or("").to_owned();
            let (job, _attempt, session, nonce) = (word(), word(), word(), word());
            Effect {
                job,
                session,
                nonce: nonce.trim_matches(['<', '>']).to_owned(),
            }
        })
        .collect()
}
