//! What dead instances left behind, and how it becomes ours.
//!
//! Owns which rows move. Must not know how an instance is found dead, nor what is done next.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agentd_core::store::{JobState, LeftJob, Recovered, SoFar};
use agentd_core::{Terms, Unreadable};
use agentd_protocol::JobId;
use rusqlite::{Connection, Row, params};
use serde_json::json;

use super::columns::{int, nat};
use super::loss::Loss;
use super::read::{JOB_COLUMNS, SESSION_COLUMNS, events, job_row, session_row};
use super::texts::texts;
use super::write::{Numbers, stamp_key};
use super::{Role, damage, losses, schema};

/// What an instance left, as it was found.
#[derive(Default)]
pub(super) struct Leftovers {
    /// In the order in which they were accepted.
    jobs: Vec<LeftJob>,
    /// The session of each.
    sessions_of_jobs: Vec<i64>,
    /// That it had open.
    sessions: Vec<i64>,
}

/// Dead instances, with what each of them left.
pub(super) type Dead = BTreeMap<String, Leftovers>;

/// Is there anything that somebody has open, or has not done?
pub(super) fn anything(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row(
        "SELECT EXISTS (SELECT 1 FROM jobs WHERE final_seq IS NULL)
             OR EXISTS (SELECT 1 FROM sessions WHERE instance IS NOT NULL)",
        [],
        |row| row.get(0),
    )
}

/// Jobs that one thread reads sooner than two: a second connection takes as long as some hundred.
const MANY: usize = 1_000;

/// What is looked for.
pub(super) struct Search<'a> {
    role: Role,
    boot: Option<&'a str>,
    only: Option<&'a str>,
    dead: &'a (dyn Fn(&str) -> bool + Sync),
    /// Each is asked after once, whichever thread comes across it: another answer later would leave
    /// a part of what it had.
    asked: Mutex<BTreeMap<String, bool>>,
    /// What was found damaged.
    damaged: Mutex<Vec<String>>,
}

impl<'a> Search<'a> {
    /// Instances that have something open and are `dead`.
    ///
    /// A one-shot leaves the queued jobs: only the daemon has time for them.
    pub(super) fn new(
        role: Role,
        boot: Option<&'a str>,
        dead: &'a (dyn Fn(&str) -> bool + Sync),
    ) -> Self {
        Self {
            role,
            boot,
            only: None,
            dead,
            asked: Mutex::default(),
            damaged: Mutex::default(),
        }
    }

    /// Notes as losses what was found damaged, if the file is kept.
    pub(super) fn note_damaged(&self, store: &Path) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        for found in std::mem::take(&mut *damaged) {
            tracing::error!(found, "the store is damaged");
            losses::note(store, &Loss::Damaged { found });
        }
    }

    /// Those that have something open, and live.
    pub(super) fn living(&self) -> BTreeSet<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let living = asked.iter().filter(|(_, is_dead)| !**is_dead);
        living.map(|(name, _)| name.clone()).collect()
    }

    fn found_damaged(&self, found: String) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.push(found);
    }

    /// Only this one.
    pub(super) fn only(self, instance: &'a str) -> Self {
        Self {
            only: Some(instance),
            ..self
        }
    }

    /// Finds them, in one walk over all that is open. Nobody may write meanwhile if a second
    /// connection, to the file at `beside`, is to read a half of it.
    pub(super) fn find(&self, conn: &Connection, beside: Option<&Path>) -> rusqlite::Result<Dead> {
        let open = open_jobs(conn)?;
        let beside = beside.filter(|_| open.len() >= MANY);
        let mut dead = match beside {
            Some(path) => self.jobs_by_two(conn, path, &open)?,
            None => self.jobs(conn, &open)?,
        };
        let mut statement = conn.prepare(
            "SELECT instance, id FROM sessions
             WHERE instance IS NOT NULL AND instance = coalesce(?1, instance)",
        )?;
        let mut rows = statement.query([self.only])?;
        while let Some(row) = rows.next()? {
            if let Some(found) = self.of_instance(&mut dead, row.get_ref(0)?.as_str()?) {
                found.sessions.push(row.get(1)?);
            }
        }
        Ok(dead)
    }

    fn jobs_by_two(&self, conn: &Connection, path: &Path, open: &[i64]) -> rusqlite::Result<Dead> {
        let (older, younger) = open.split_at(open.len() / 2);
        std::thread::scope(|scope| {
            let beside = || self.jobs(&schema::reopen_to_read(path)?, younger);
            let reading = std::thread::Builder::new().spawn_scoped(scope, beside);
            let mut dead = self.jobs(conn, older)?;
            let younger = match reading {
                Ok(thread) => thread.join(),
                // A machine that has no thread left takes longer, and takes over all the same.
                Err(_no_thread) => Ok(self.jobs(conn, younger)),
            };
            let younger = younger.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            for (instance, found) in younger {
                let all = dead.entry(instance).or_default();
                all.jobs.extend(found.jobs);
                all.sessions_of_jobs.extend(found.sessions_of_jobs);
            }
            Ok(dead)
        })
    }

    /// Those of the `open` jobs, ascending numbers, that the dead have.
    fn jobs(&self, conn: &Connection, open: &[i64]) -> rusqlite::Result<Dead> {
        let states = match self.role {
            Role::Daemon => "'queued', 'running'",
            Role::OneShot => "'running'",
        };
        // By their numbers, as they lie in the file, and not by their sessions, as the index has
        // them: those that are near each other are on one page.
        let mut statement = conn.prepare(&format!(
            "SELECT {JOB_COLUMNS}, jobs.instance, jobs.session, jobs.request,
                jobs.attempt > 0 OR EXISTS (SELECT 1 FROM events WHERE events.job = jobs.job)
                , open.value, sessions.id IS NULL
             FROM json_each(?1) AS open LEFT JOIN jobs ON jobs.job = open.value
                LEFT JOIN sessions ON sessions.id = jobs.session
             WHERE sessions.id IS NULL
                OR jobs.state IN ({states}) AND jobs.instance = coalesce(?2, jobs.instance)"
        ))?;
        let mut dead = Dead::new();
        let mut rows = statement.query(params![json!(open).to_string(), self.only])?;
        while let Some(row) = rows.next()? {
            match self.job(conn, row, &mut dead) {
                // Those beside it are taken over all the same.
                Err(error) if damage::is_of_a_value(&error) => {
                    let job = JobId(nat(row.get(19)?));
                    self.found_damaged(format!("the row of job {job} can't be read: {error}"));
                }
                taken => taken?,
            }
        }
        Ok(dead)
    }

    /// One of them, if the dead have it.
    fn job(&self, conn: &Connection, row: &Row<'_>, dead: &mut Dead) -> rusqlite::Result<()> {
        if row.get(20)? {
            self.found_damaged(damage::gone(row.get(19)?));
            return Ok(());
        }
        let Some(found) = self.of_instance(dead, row.get_ref(15)?.as_str()?) else {
            return Ok(());
        };
        let last = found.jobs.last().map(|last| &last.terms);
        let job = left_job(conn, row, self.boot, last)?;
        let session = row.get(16)?;
        if job.terms.as_ref().is_err_and(Unreadable::is_damaged) {
            let job = job.row.job;
            self.found_damaged(format!("what was asked of job {job} can't be read"));
        }
        found.jobs.push(job);
        found.sessions_of_jobs.push(session);
        Ok(())
    }

    /// Where what an instance left is kept, if it is dead.
    fn of_instance<'d>(&self, dead: &'d mut Dead, name: &str) -> Option<&'d mut Leftovers> {
        if !dead.contains_key(name) {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let known = asked.get(name).copied();
            let is_dead = known.unwrap_or_else(|| (self.dead)(name));
            if known.is_none() {
                asked.insert(name.to_owned(), is_dead);
            }
            if is_dead {
                dead.insert(name.to_owned(), Leftovers::default());
            }
        }
        dead.get_mut(name)
    }
}

/// The numbers of all jobs that have no end, ascending. Their index alone says them.
fn open_jobs(conn: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut jobs = conn
        .prepare("SELECT job FROM jobs WHERE final_seq IS NULL")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<Vec<i64>, _>>()?;
    // The index has them by session; accepted they were by number.
    jobs.sort_unstable();
    Ok(jobs)
}

/// Moves what each of the `dead` left to `ours`. A job comes with its session, even if that was given
/// back since or another one of the `dead` had it last, and stays where it is while another instance
/// has the session open: which ones have, it says.
///
/// Whose a waiting job is, its session says from now on: its own row is as long as its text, and
/// isn't written again before it runs. If we die, too, it is found under the same name as now.
pub(super) fn take(conn: &Connection, ours: &str, dead: Dead) -> rusqlite::Result<Vec<Recovered>> {
    let names = json!(dead.keys().collect::<Vec<_>>()).to_string();
    let all = dead.into_iter();
    all.map(|(instance, found)| take_one(conn, ours, instance, found, &names))
        .collect()
}

fn take_one(
    conn: &Connection,
    ours: &str,
    instance: String,
    found: Leftovers,
    dead: &str,
) -> rusqlite::Result<Recovered> {
    let sessions: BTreeSet<i64> = found.sessions_of_jobs.iter().copied().collect();
    let sessions = json!(sessions).to_string();
    let open = json!(found.sessions).to_string();
    // One that it had open is named even if it came with the job of another one: the processes of
    // both must be gone before it is opened.
    let theirs = "(instance = ?1 OR id IN (SELECT value FROM json_each(?5))
          OR id IN (SELECT value FROM json_each(?4))
          AND (instance IS NULL OR instance = ?2 OR instance IN (SELECT value FROM json_each(?3))))";
    let rows = conn
        .prepare(&format!(
            "SELECT {SESSION_COLUMNS} FROM sessions WHERE {theirs} ORDER BY id"
        ))?
        .query_map([&instance, ours, dead, &sessions, &open], session_row)?
        .collect::<Result<_, _>>()?;
    conn.execute(
        &format!("UPDATE sessions SET instance = ?2 WHERE {theirs}"),
        [&instance, ours, dead, &sessions, &open],
    )?;
    let holders = conn
        .prepare(
            "SELECT id, instance FROM sessions
             WHERE id IN (SELECT value FROM json_each(?1)) AND instance IS NOT ?2",
        )?
        .query_map([sessions.as_str(), ours], |row| {
            <(i64, Option<String>)>::try_from(row)
        })?
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    // Where they are: there may be very many.
    let mut jobs = found.jobs;
    let mut of = found.sessions_of_jobs.iter();
    jobs.retain(|_| {
        of.next()
            .is_some_and(|session| !holders.contains_key(session))
    });
    wrong!("forget-job", drop(jobs.pop()));
    let running = jobs.iter().filter(|job| is_running(job));
    let running: Vec<i64> = running.map(|job| int(job.row.job.0)).collect();
    conn.execute(
        "UPDATE jobs SET instance = ?1 WHERE job IN (SELECT value FROM json_each(?2))",
        [ours, &json!(running).to_string()],
    )?;
    // Nobody is left who could be in doubt about a commit of that instance.
    conn.execute("DELETE FROM meta WHERE key = ?1", [stamp_key(&instance)])?;
    let holders: BTreeSet<String> = holders.into_values().flatten().collect();
    Ok(Recovered {
        instance,
        sessions: rows,
        jobs,
        holders: holders.into_iter().collect(),
        last_seq: last_seq(conn)?,
    })
}

/// The last number of an event that was given out.
pub(super) fn last_seq(conn: &Connection) -> rusqlite::Result<u64> {
    Ok(nat(Numbers::read(conn)?.last_seq()))
}

const fn is_running(left: &LeftJob) -> bool {
    matches!(left.row.state, JobState::Running { .. })
}

/// One of them, without its text; with the terms of the one before it, if they are the same.
fn left_job(
    conn: &Connection,
    row: &Row<'_>,
    boot: Option<&str>,
    before: Option<&Result<Arc<Terms>, Unreadable>>,
) -> rusqlite::Result<LeftJob> {
    let terms = Terms::read(row.get_ref(17)?.as_bytes()?);
    let terms = terms.map(|terms| match before {
        Some(Ok(before)) if **before == terms => Arc::clone(before),
        _ => Arc::new(terms),
    });
    let has_said: bool = row.get(18)?;
    let row = job_row(row, boot)?;
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
