//! What dead instances left behind, and how it becomes ours.
//!
//! Owns which rows move. Must not know how an instance is found dead, nor what is done next.

use agentd_core::store::{JobRow, JobState, Loaded, Recovered, SoFar};
use agentd_protocol::JobId;
use rusqlite::{Connection, params};

use super::read::{JOB_COLUMNS, SESSION_COLUMNS, events, job_row, session_row};
use super::write::stamp_key;
use super::{Liveness, Role};

/// Instances other than ours that have something open.
pub(super) fn dead(
    conn: &Connection,
    ours: &str,
    alive: &dyn Fn(&str) -> Liveness,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare(
        "SELECT instance FROM jobs WHERE final_seq IS NULL
         UNION SELECT instance FROM sessions WHERE instance IS NOT NULL",
    )?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    let others = names.filter(|name| !matches!(name, Ok(name) if name == ours));
    others
        .filter(|name| !matches!(name, Ok(name) if alive(name) != Liveness::Dead))
        .collect()
}

/// Moves what `instance` left to `ours`. A one-shot leaves the queued jobs: only the daemon has
/// time for them. A job comes with its session, even if that was given back since or another one of
/// the `dead` had it last, and stays where it is while another instance has the session open: which
/// ones have, it says.
pub(super) fn take(
    conn: &Connection,
    ours: &str,
    instance: &str,
    dead: &[String],
    role: Role,
    boot: Option<&str>,
) -> rusqlite::Result<Recovered> {
    let states = match role {
        Role::Daemon => "'queued', 'running'",
        Role::OneShot => "'running'",
    };
    let left = format!("instance = ?1 AND final_seq IS NULL AND state IN ({states})");
    let theirs = format!(
        "(instance = ?1 OR id IN (SELECT session FROM jobs WHERE {left})
          AND (instance IS NULL OR instance = ?2 OR instance IN (SELECT value FROM json_each(?3))))"
    );
    let dead = serde_json::json!(dead).to_string();
    let sessions = conn
        .prepare(&format!(
            "SELECT {SESSION_COLUMNS} FROM sessions WHERE {theirs} ORDER BY id"
        ))?
        .query_map([instance, ours, &dead], session_row)?
        .collect::<Result<_, _>>()?;
    conn.execute(
        &format!("UPDATE sessions SET instance = ?2 WHERE {theirs}"),
        [instance, ours, &dead],
    )?;
    let rows = conn
        .prepare(&format!(
            "SELECT {JOB_COLUMNS} FROM jobs JOIN sessions ON sessions.id = jobs.session
             WHERE jobs.instance = ?1 AND jobs.final_seq IS NULL AND jobs.state IN ({states})
               AND sessions.instance = ?2
             ORDER BY jobs.job"
        ))?
        .query_map([instance, ours], |row| job_row(row, boot))?
        .collect::<Result<Vec<JobRow>, _>>()?;
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        let so_far = match row.state {
            // One that waits may have been held, or have run before.
            JobState::Running { .. } | JobState::Queued { .. } => so_far(conn, row.job)?,
            JobState::Finished { .. } => SoFar::default(),
        };
        jobs.push((row, so_far));
    }
    conn.execute(
        &format!(
            "UPDATE jobs SET instance = ?2
             WHERE {left} AND session IN (SELECT id FROM sessions WHERE instance = ?2)"
        ),
        [instance, ours],
    )?;
    conn.execute("DELETE FROM meta WHERE key = ?1", [stamp_key(instance)])?;
    let holders = conn
        .prepare(&format!(
            "SELECT DISTINCT instance FROM sessions WHERE instance IS NOT NULL
             AND id IN (SELECT session FROM jobs WHERE {left}) ORDER BY instance"
        ))?
        .query_map([instance], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    Ok(Recovered {
        instance: instance.to_owned(),
        sessions,
        jobs,
        holders,
    })
}

fn so_far(conn: &Connection, job: JobId) -> rusqlite::Result<SoFar> {
    let mut all = SoFar::default();
    loop {
        let after = all.events.last().map_or(0, |(seq, _)| *seq);
        let Loaded::Events {
            events,
            more,
            texts,
        } = events(conn, job, after)?
        else {
            return Ok(all);
        };
        all.events.extend(events);
        if !more {
            all.texts = texts;
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
