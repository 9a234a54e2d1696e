//! What dead instances left behind, and how it becomes ours.
//!
//! Owns which rows move. Must not know how an instance is found dead, nor what is done next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentd_core::store::{LeftJob, Recovered, SoFar};
use agentd_core::{Terms, Unreadable};
use agentd_protocol::JobId;
use rusqlite::{Connection, params};
use serde_json::json;

use super::read::{JOB_COLUMNS, SESSION_COLUMNS, events, job_row, session_row};
use super::texts::texts;
use super::write::stamp_key;
use super::{Liveness, Role};

/// Dead instances, with the sessions that each had open.
pub(super) type Dead = BTreeMap<String, Vec<i64>>;

/// Instances other than ours that have something open.
pub(super) fn dead(
    conn: &Connection,
    ours: &str,
    alive: &dyn Fn(&str) -> Liveness,
) -> rusqlite::Result<Dead> {
    let mut statement = conn.prepare(
        "SELECT DISTINCT instance, NULL FROM jobs WHERE final_seq IS NULL
         UNION ALL SELECT instance, id FROM sessions WHERE instance IS NOT NULL",
    )?;
    let mut rows = statement.query([])?;
    let mut all = Dead::new();
    while let Some(row) = rows.next()? {
        let sessions = all.entry(row.get(0)?).or_default();
        sessions.extend(row.get::<_, Option<i64>>(1)?);
    }
    all.retain(|name, _| name != ours && alive(name) == Liveness::Dead);
    Ok(all)
}

/// Moves what `instance` left to `ours`. A one-shot leaves the queued jobs: only the daemon has
/// time for them. A job comes with its session, even if that was given back since or another one of
/// the `dead` had it last, and stays where it is while another instance has the session open: which
/// ones have, it says.
///
/// Whose a waiting job is, its session says from now on: its own row is as long as its text, and
/// isn't written again before it runs. If we die, too, it is found under the same name as now.
pub(super) fn take(
    conn: &Connection,
    ours: &str,
    instance: &str,
    dead: &Dead,
    role: Role,
    boot: Option<&str>,
) -> rusqlite::Result<Recovered> {
    let left = left_jobs(conn, instance, role)?;
    let sessions: BTreeSet<i64> = left.iter().map(|(_, session)| *session).collect();
    let sessions = json!(sessions).to_string();
    // One that it had open is named even if it came with the job of another one: the processes of
    // both must be gone before it is opened.
    let theirs = "(instance = ?1 OR id IN (SELECT value FROM json_each(?5))
          OR id IN (SELECT value FROM json_each(?4))
          AND (instance IS NULL OR instance = ?2 OR instance IN (SELECT value FROM json_each(?3))))";
    let open = json!(dead.get(instance).map_or(&[][..], Vec::as_slice)).to_string();
    let dead = json!(dead.keys().collect::<Vec<_>>()).to_string();
    let rows = conn
        .prepare(&format!(
            "SELECT {SESSION_COLUMNS} FROM sessions WHERE {theirs} ORDER BY id"
        ))?
        .query_map([instance, ours, &dead, &sessions, &open], session_row)?
        .collect::<Result<_, _>>()?;
    conn.execute(
        &format!("UPDATE sessions SET instance = ?2 WHERE {theirs}"),
        [instance, ours, &dead, &sessions, &open],
    )?;
    let holders = conn
        .prepare(
            "SELECT id, instance FROM sessions
             WHERE id IN (SELECT value FROM json_each(?1)) AND instance IS NOT ?2",
        )?
        .query_map([sessions.as_str(), ours], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?))
        })?
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    let mut jobs = Vec::with_capacity(left.len());
    for (job, session) in left {
        if !holders.contains_key(&session) {
            let last = jobs.last().map(|last: &LeftJob| &last.terms);
            let job = left_job(conn, job, boot, last)?;
            jobs.push(job);
        }
    }
    wrong!("forget-job", drop(jobs.pop()));
    conn.execute(
        "UPDATE jobs SET instance = ?2
         WHERE instance = ?1 AND final_seq IS NULL AND state = 'running'
           AND session IN (SELECT id FROM sessions WHERE instance = ?2)",
        [instance, ours],
    )?;
    conn.execute("DELETE FROM meta WHERE key = ?1", [stamp_key(instance)])?;
    let holders: BTreeSet<String> = holders.into_values().flatten().collect();
    Ok(Recovered {
        instance: instance.to_owned(),
        sessions: rows,
        jobs,
        holders: holders.into_iter().collect(),
    })
}

/// The unfinished jobs of a dead instance and their sessions, in the order in which they were
/// accepted.
fn left_jobs(conn: &Connection, instance: &str, role: Role) -> rusqlite::Result<Vec<(i64, i64)>> {
    let states = match role {
        Role::Daemon => "'queued', 'running'",
        Role::OneShot => "'running'",
    };
    let mut jobs = conn
        .prepare(&format!(
            "SELECT job, session FROM jobs
             WHERE final_seq IS NULL AND instance = ?1 AND state IN ({states})"
        ))?
        .query_map([instance], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<Vec<(i64, i64)>, _>>()?;
    jobs.sort_unstable();
    Ok(jobs)
}

/// One of them, without its text; with the terms of the one before it, if they are the same.
fn left_job(
    conn: &Connection,
    job: i64,
    boot: Option<&str>,
    before: Option<&Result<Arc<Terms>, Unreadable>>,
) -> rusqlite::Result<LeftJob> {
    let (row, terms, has_said) = conn
        .prepare_cached(&format!(
            "SELECT {JOB_COLUMNS}, jobs.request,
                jobs.attempt > 0 OR EXISTS (SELECT 1 FROM events WHERE events.job = jobs.job)
             FROM jobs JOIN sessions ON sessions.id = jobs.session WHERE jobs.job = ?1"
        ))?
        .query_row([job], |row| {
            let terms = Terms::read(row.get_ref(15)?.as_str()?);
            Ok((job_row(row, boot)?, terms, row.get(16)?))
        })?;
    let terms = terms.map(|terms| match before {
        Some(Ok(before)) if **before == terms => Arc::clone(before),
        _ => Arc::new(terms),
    });
    // One that waits may have been held, or have run before.
    let so_far = if has_said {
        so_far(conn, row.job)?
    } else {
        SoFar::default()
    };
    Ok(LeftJob { row, terms, so_far })
}

fn so_far(conn: &Connection, job: JobId) -> rusqlite::Result<SoFar> {
    let mut all = SoFar::default();
    loop {
        let after = all.events.last().map_or(0, |(seq, _)| *seq);
        let (events, more) = events(conn, job, after)?;
        all.events.extend(events);
        if !more {
            all.texts = texts(conn, job)?;
            return Ok(all);
        }
    }
}

/// Leaves a note by which this very takeover can be recognised.
pub(super) fn stamp(conn: &Connection, ours: &str, value: i64) -> rusqlite::Result<()> {
    conn.execute(
        "INSERT INTO meta (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![stamp_key(ours), value.to_string()],
    )?;
    Ok(())
}
