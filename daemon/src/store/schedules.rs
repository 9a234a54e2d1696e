//! Schedules: what they say, when they are due next, and what became of their due times.
//!
//! Owns the rows, and that a due time and its job are one commit. When a schedule is due is worked out
//! by whoever asks, and is only kept here.

mod asked;
mod told;

use agentd_core::store::{End, Fired, NextDue, ScheduleWrite, Stored, Written};
use agentd_protocol::JobId;
use agentd_protocol::schedule::{ScheduleId, ScheduleRow, ScheduleSpec};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::columns::{int, nat};
use super::write::WriteStop;

pub(super) use asked::OnSchedules;
pub use told::paused_schedules;
use told::row_of;
pub(super) use told::{list, runs};

/// So many runs are kept of a schedule that doesn't say.
const KEEP: u32 = 100;
/// The keys of their jobs begin so.
pub const KEYS: &str = "cron:";

/// A schedule that is due.
#[derive(Clone, PartialEq, Debug)]
pub struct DueSchedule {
    /// Its number.
    pub schedule: u64,
    /// What it says.
    pub spec: ScheduleSpec,
    /// From when on `every` counts, milliseconds since 1970.
    pub anchor_ms: i64,
    /// The due time.
    pub due_ms: i64,
    /// When it is acted on.
    pub fires_ms: i64,
    /// Runs that failed in a row.
    pub failures: u32,
    /// When the last of them ended.
    pub failed_ms: Option<i64>,
    /// The last one of its jobs that goes on.
    pub busy: Option<JobId>,
}

/// What is due, and when more will be.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct DueSchedules {
    /// The longest due first. What can't be read is left out, and paused.
    pub due: Vec<DueSchedule>,
    /// Milliseconds since 1970 of the next one that isn't due yet.
    pub next_ms: Option<i64>,
    /// Where the next page begins; `None` at the end.
    pub more: Option<(i64, u64)>,
    /// One that agentd has paused, and how many there are.
    pub paused: Option<(String, u64)>,
}

/// A schedule that somebody wants to change or run.
#[derive(Clone, PartialEq, Debug)]
pub struct KeptSchedule {
    /// Its number.
    pub schedule: u64,
    /// Another one with each change.
    pub revision: i64,
    /// Is it paused?
    pub paused: bool,
    /// What it says, with its name.
    pub spec: ScheduleSpec,
    /// From when on `every` counts, milliseconds since 1970.
    pub anchor_ms: i64,
    /// When it is due.
    pub next: NextDue,
    /// The last due time that is over, milliseconds since 1970.
    pub over_ms: Option<i64>,
}

/// What became of a due time without a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// It was left out: why is said of what passed.
    Skipped,
    /// Its send was refused.
    Refused {
        /// Why.
        why: String,
    },
    /// Its job was there already.
    Job(JobId),
}

/// The number of a schedule that somebody named.
fn id_of(conn: &Connection, which: &str) -> rusqlite::Result<Option<i64>> {
    let (sql, id) = match ScheduleId::parse(which) {
        Some(id) => ("SELECT id FROM schedules WHERE id = ?1", Some(int(id.0))),
        None => (
            "SELECT id FROM schedules WHERE name = ?2 AND ?1 IS NULL",
            None,
        ),
    };
    let mut statement = conn.prepare_cached(sql)?;
    match id {
        Some(id) => statement.query_row([id], |row| row.get(0)).optional(),
        None => statement
            .query_row(params![id, which], |row| row.get(0))
            .optional(),
    }
}

fn upcoming(next: &NextDue) -> String {
    serde_json::to_string(&next.upcoming).unwrap_or_default()
}

fn is_taken(conn: &Connection, name: Option<&String>, but: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM schedules WHERE name = ?1 AND id <> ?2")?
        .exists(params![name, but])
}

/// Carries out what somebody asked for. What is refused is refused before anything is written.
pub(super) fn write(
    conn: &Connection,
    write: &ScheduleWrite,
    now_ms: i64,
) -> Result<Written, WriteStop> {
    let row = match write {
        ScheduleWrite::Add { .. } => add(conn, write, now_ms)?,
        ScheduleWrite::Set { .. } => set(conn, write)?,
        ScheduleWrite::Pause { which } => {
            let id = id_of(conn, which)?;
            if let Some(id) = id {
                conn.prepare_cached(
                    "UPDATE schedules SET revision = revision + 1, state = 'paused', why = NULL
                     WHERE id = ?1 AND state = 'active'",
                )?
                .execute([id])?;
            }
            id.map_or(Ok(None), |id| row_of(conn, id))?
        }
        ScheduleWrite::Remove { which } => {
            let id = id_of(conn, which)?;
            let row = id.map_or(Ok(None), |id| row_of(conn, id))?;
            if let Some(id) = id {
                conn.prepare_cached("DELETE FROM schedules WHERE id = ?1")?
                    .execute([id])?;
            }
            row
        }
    };
    let row = row.and_then(|row| serde_json::to_string(&row).ok());
    Ok(Written::Schedule { row })
}

fn add(
    conn: &Connection,
    write: &ScheduleWrite,
    now_ms: i64,
) -> Result<Option<ScheduleRow>, WriteStop> {
    let ScheduleWrite::Add {
        name,
        spec,
        anchor_ms,
        next,
    } = write
    else {
        return Ok(None);
    };
    if is_taken(conn, name.as_ref(), 0)? {
        return Err(WriteStop::Refused(Stored::Taken));
    }
    let (due, fires, upcoming) = (next.due_ms, next.fires_ms, upcoming(next));
    let id: i64 = conn
        .prepare_cached(
            "INSERT INTO schedules (name, state, anchor_at, due_at, fires_at, upcoming, created_at,
                spec)
             VALUES (?1, 'active', ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id",
        )?
        .query_row(
            params![name, anchor_ms, due, fires, upcoming, now_ms, spec],
            |row| row.get(0),
        )?;
    Ok(row_of(conn, id)?)
}

fn set(conn: &Connection, write: &ScheduleWrite) -> Result<Option<ScheduleRow>, WriteStop> {
    let ScheduleWrite::Set {
        schedule,
        revision,
        name,
        spec,
        anchor_ms,
        next,
        resumes,
    } = write
    else {
        return Ok(None);
    };
    let id = int(*schedule);
    if is_taken(conn, name.as_ref(), id)? {
        return Err(WriteStop::Refused(Stored::Taken));
    }
    let is_as_it_was = conn
        .prepare_cached("SELECT 1 FROM schedules WHERE id = ?1 AND revision = ?2")?
        .exists(params![id, revision])?;
    if !is_as_it_was {
        return Err(WriteStop::Refused(Stored::Superseded));
    }
    let (due, fires, upcoming) = (next.due_ms, next.fires_ms, upcoming(next));
    conn.prepare_cached(
        "UPDATE schedules SET revision = revision + 1, name = ?2, spec = ?3, anchor_at = ?4,
            due_at = ?5, fires_at = ?6, upcoming = ?7,
            why = CASE WHEN ?8 THEN NULL ELSE why END,
            failures = CASE WHEN ?8 THEN 0 ELSE failures END,
            state = CASE WHEN ?5 IS NULL THEN 'done'
                WHEN ?8 OR state = 'done' THEN 'active' ELSE state END
         WHERE id = ?1",
    )?
    .execute(params![
        id, name, spec, anchor_ms, due, fires, upcoming, resumes
    ])?;
    Ok(row_of(conn, id)?)
}

/// Is the due time that is acted on still the next one of its schedule?
pub(super) fn is_next(conn: &Connection, fired: &Fired) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT 1 FROM schedules
         WHERE id = ?1 AND (?2 IS NULL OR (state = 'active' AND due_at = ?2))",
    )?
    .exists(params![int(fired.schedule), fired.expected])
}

/// A due time has become a job, in that job's transaction.
pub(super) fn fired(
    conn: &Connection,
    fired: &Fired,
    job: i64,
    now_ms: i64,
) -> rusqlite::Result<()> {
    run(conn, fired, ("job", Some(job), None), now_ms)
}

fn run(
    conn: &Connection,
    fired: &Fired,
    (outcome, job, why): (&str, Option<i64>, Option<&str>),
    now_ms: i64,
) -> rusqlite::Result<()> {
    let id = int(fired.schedule);
    let add = "INSERT INTO schedule_runs (schedule, due_at, at, late, outcome, job, by_hand, times,
            why)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";
    let mut add = conn.prepare_cached(add)?;
    let by_hand = fired.expected.is_none();
    if let Some(passed) = &fired.passed {
        let late = now_ms.saturating_sub(passed.due_ms).max(0);
        let (times, none) = (int(passed.times), None::<i64>);
        let due = passed.due_ms;
        add.execute(params![
            id, due, now_ms, late, "skipped", none, by_hand, times, passed.why
        ])?;
    }
    if outcome != "skipped" {
        let late = int(fired.late_ms);
        let due = fired.due_ms;
        add.execute(params![
            id, due, now_ms, late, outcome, job, by_hand, 1, why
        ])?;
    }
    if fired.expected.is_some() {
        let next = &fired.next;
        conn.prepare_cached(
            "UPDATE schedules SET revision = revision + 1, due_at = ?2, fires_at = ?3,
                upcoming = ?4, state = CASE WHEN ?2 IS NULL THEN 'done' ELSE state END
             WHERE id = ?1",
        )?
        .execute(params![id, next.due_ms, next.fires_ms, upcoming(next)])?;
    }
    forget_runs(conn, id)
}

/// Of the runs that have ended as many stay as the schedule says.
fn forget_runs(conn: &Connection, id: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "DELETE FROM schedule_runs WHERE schedule = ?1 AND (job IS NULL OR ended IS NOT NULL)
            AND run <= (SELECT run FROM schedule_runs WHERE schedule = ?1 ORDER BY run DESC
                LIMIT 1 OFFSET (SELECT coalesce(spec ->> 'keep', ?2) FROM schedules WHERE id = ?1))",
    )?
    .execute(params![id, KEEP])
    .map(drop)
}

/// A due time that became no job, in a transaction of its own; was it still the next one?
pub(super) fn record(
    conn: &Connection,
    due: &Fired,
    unsent: &Unsent,
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let change = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    if !is_next(&change, due)? {
        return Ok(false);
    }
    match unsent {
        Unsent::Skipped => run(&change, due, ("skipped", None, None), now_ms)?,
        Unsent::Refused { why } => {
            run(&change, due, ("refused", None, Some(why)), now_ms)?;
            failed(&change, int(due.schedule), why, now_ms)?;
        }
        Unsent::Job(job) => run(&change, due, ("job", Some(int(job.0)), None), now_ms)?,
    }
    change.commit()?;
    Ok(true)
}

/// A job of a schedule has ended, in that transaction. Was it one?
pub(super) fn ended(
    conn: &Connection,
    job: i64,
    (end, state): (End, &str),
    now_ms: i64,
) -> rusqlite::Result<bool> {
    let schedule: Option<i64> = conn
        .prepare_cached("UPDATE schedule_runs SET ended = ?2 WHERE job = ?1 RETURNING schedule")?
        .query_row(params![job, state], |row| row.get(0))
        .optional()?;
    let Some(schedule) = schedule else {
        return Ok(false);
    };
    match end {
        End::Completed => {
            conn.prepare_cached("UPDATE schedules SET failures = 0 WHERE id = ?1")?
                .execute([schedule])?;
        }
        // Somebody did that; it says nothing of the next one.
        End::Cancelled => {}
        End::Failed | End::Interrupted => {
            failed(conn, schedule, &format!("j{job} {state}"), now_ms)?;
        }
    }
    Ok(true)
}

/// Counts a failure, and pauses what has had as many as it may.
fn failed(conn: &Connection, schedule: i64, last: &str, now_ms: i64) -> rusqlite::Result<()> {
    let (failures, most): (u32, Option<u32>) = conn
        .prepare_cached(
            "UPDATE schedules SET failures = failures + 1, failed_at = ?2 WHERE id = ?1
             RETURNING failures, spec ->> 'max_failures'",
        )?
        .query_row(params![schedule, now_ms], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if most.is_none_or(|most| failures < most) {
        return Ok(());
    }
    let why = format!("{failures} runs failed in a row, the last one: {last}");
    let paused = conn
        .prepare_cached(
            "UPDATE schedules SET revision = revision + 1, state = 'paused', why = ?2
             WHERE id = ?1 AND state = 'active'",
        )?
        .execute(params![schedule, why])?;
    if paused > 0 {
        tracing::warn!(
            schedule = %format!("c{schedule}"),
            why,
            "a schedule is paused; `agentctl cron resume` has it go on"
        );
    }
    Ok(())
}

/// Is there a schedule that will be due, or that agentd has paused?
pub(super) fn any(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM schedules WHERE state = 'active' AND fires_at IS NOT NULL)
            OR EXISTS (SELECT 1 FROM schedules WHERE state = 'paused' AND why IS NOT NULL)",
    )?
    .query_row([], |row| row.get(0))
}

/// What is due by now, behind a place among those, and when the next one will be. What waits for the
/// run before it isn't due until that has ended. A run that is held goes on only when somebody says so:
/// nothing waits for it.
pub(super) fn due(
    conn: &Connection,
    now_ms: i64,
    after: Option<(i64, u64)>,
    limit: usize,
) -> rusqlite::Result<DueSchedules> {
    let (after_ms, after_id) = after.map_or((i64::MIN, 0), |(ms, id)| (ms, int(id)));
    let mut statement = conn.prepare_cached(
        "SELECT id, spec, anchor_at, due_at, fires_at, failures, failed_at,
            (SELECT max(runs.job) FROM schedule_runs runs
                JOIN jobs ON jobs.job = runs.job AND jobs.final_seq IS NULL AND jobs.held = 0
                WHERE runs.schedule = schedules.id AND runs.job IS NOT NULL
                    AND runs.ended IS NULL) AS busy
         FROM schedules
         WHERE state = 'active' AND fires_at <= ?1 AND (fires_at, id) > (?2, ?3)
         ORDER BY fires_at, id LIMIT ?4",
    )?;
    let mut rows = statement.query(params![now_ms, after_ms, after_id, int(limit as u64)])?;
    let (mut found, mut unreadable) = (DueSchedules::default(), Vec::new());
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        let (id, fires_ms): (i64, i64) = (row.get(0)?, row.get(4)?);
        found.more = (count == limit).then(|| (fires_ms, nat(id)));
        match serde_json::from_str(row.get_ref(1)?.as_str()?) {
            Ok(spec) => found.due.push(DueSchedule {
                schedule: nat(id),
                spec,
                anchor_ms: row.get(2)?,
                due_ms: row.get(3)?,
                fires_ms,
                failures: row.get(5)?,
                failed_ms: row.get(6)?,
                busy: row.get::<_, Option<i64>>(7)?.map(|job| JobId(nat(job))),
            }),
            Err(why) => unreadable.push((id, why.to_string())),
        }
    }
    drop(rows);
    for (id, why) in unreadable {
        pause(conn, nat(id), &format!("what it says can't be read: {why}"))?;
    }
    found.next_ms = conn
        .prepare_cached(
            "SELECT min(fires_at) FROM schedules WHERE state = 'active' AND fires_at > ?1",
        )?
        .query_row([now_ms], |row| row.get(0))?;
    found.paused = told::paused(conn)?;
    Ok(found)
}

/// Pauses what can't be acted on.
pub(super) fn pause(conn: &Connection, schedule: u64, why: &str) -> rusqlite::Result<()> {
    tracing::warn!(schedule = %ScheduleId(schedule), why, "a schedule is paused");
    conn.prepare_cached(
        "UPDATE schedules SET revision = revision + 1, state = 'paused', why = ?2
         WHERE id = ?1 AND state = 'active'",
    )?
    .execute(params![int(schedule), why])
    .map(drop)
}

/// One that somebody names, to be changed or run.
pub(super) fn kept(conn: &Connection, which: &str) -> rusqlite::Result<Option<KeptSchedule>> {
    let Some(id) = id_of(conn, which)? else {
        return Ok(None);
    };
    conn.prepare_cached(
        "SELECT id, revision, state = 'paused', name, spec, anchor_at,
            (SELECT max(due_at) FROM schedule_runs WHERE schedule = id AND NOT by_hand),
            due_at, fires_at, upcoming
         FROM schedules WHERE id = ?1",
    )?
    .query_row([id], |row| {
        let spec: Option<ScheduleSpec> = serde_json::from_str(row.get_ref(4)?.as_str()?).ok();
        let mut spec = spec.unwrap_or_default();
        spec.name = row.get(3)?;
        Ok(KeptSchedule {
            schedule: nat(row.get(0)?),
            revision: row.get(1)?,
            paused: row.get(2)?,
            spec,
            anchor_ms: row.get(5)?,
            over_ms: row.get(6)?,
            next: NextDue {
                due_ms: row.get(7)?,
                fires_ms: row.get(8)?,
                upcoming: serde_json::from_str(row.get_ref(9)?.as_str()?).unwrap_or_default(),
            },
        })
    })
    .optional()
}
