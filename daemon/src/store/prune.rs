//! What is forgotten: old jobs, in small slices.
//!
//! Owns which job goes next and what goes with it. Must not know when there is time for it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};

use super::age::{self, Believed, Clocks};
use super::columns::nat;
use super::{Keep, NotTaken, Store, WriterMessage};
use super::{listed, usage, webhooks};

/// A slice ends about here; with its commit whoever comes meanwhile waits less than 50 ms.
pub(super) const SLICE: Duration = Duration::from_millis(20);
/// What ended turns used is noted for so long at a time, and so is what lists say of sessions.
const NOTING: Duration = Duration::from_millis(5);
/// Jobs looked up at once.
const CHUNK: i64 = 32;

/// What is to be forgotten waits for room in the writer's queue, so often …
const KEEP_TRIES: u32 = 100;
/// … after this time.
const KEEP_AGAIN: Duration = Duration::from_millis(50);

/// How a slice ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pruned {
    /// Nothing is too old and nothing too much.
    All,
    /// So many jobs are gone, and there may be more.
    Some(u64),
}

/// What was done of what nobody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UpkeepDone {
    jobs: Pruned,
    deliveries: usize,
    noted: u64,
    listed: u64,
}

impl UpkeepDone {
    /// There is nothing to do for now.
    pub(super) const NOTHING: Self = Self {
        jobs: Pruned::All,
        deliveries: 0,
        noted: 0,
        listed: 0,
    };
}

impl Store {
    /// From now on this is what is forgotten, where anything is.
    pub async fn keep(&self, keep: Keep) {
        for _full in 0..KEEP_TRIES {
            match self.hand_in(WriterMessage::Keep(keep)) {
                Err(NotTaken::Full) => tokio::time::sleep(KEEP_AGAIN).await,
                // A writer that has ended forgets nothing.
                Ok(()) | Err(NotTaken::Closed) => return,
            }
        }
    }
}

/// Does some of what nobody waits for: forgets, notes what ended turns used, and what lists say of
/// sessions of earlier versions.
pub(super) fn some(
    conn: &Connection,
    keep: Keep,
    clocks: Clocks<'_>,
) -> rusqlite::Result<UpkeepDone> {
    let believed = age::look(conn, clocks)?;
    Ok(UpkeepDone {
        deliveries: webhooks::forget(conn, believed.now_ms)?,
        jobs: slice(conn, keep, believed, SLICE)?,
        noted: usage::note(conn, NOTING)?,
        listed: listed::note(conn, NOTING)?,
    })
}

/// Forgets some of what is too old, or too much. A key is remembered for a day, whatever else is
/// wanted.
pub(super) fn slice(
    conn: &Connection,
    keep: Keep,
    believed: Believed,
    time: Duration,
) -> rusqlite::Result<Pruned> {
    let began = Instant::now();
    let age = i64::try_from(keep.age.as_millis()).unwrap_or(i64::MAX);
    let old = believed.now_ms.saturating_sub(age);
    let day_old = believed.day_old;
    // A look without a lock first: mostly there is nothing to do.
    if candidates(conn, bound(conn, keep, old)?, day_old, 1)?.is_empty() {
        return Ok(Pruned::All);
    }
    // With the lock from the start: a reader that turns writer fails if another instance wrote
    // meanwhile.
    let change = rusqlite::Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let mut count = 0;
    let mut gone = HighestGone::default();
    'slice: loop {
        let chunk = candidates(conn, bound(conn, keep, old)?, day_old, CHUNK)?;
        if chunk.is_empty() {
            break;
        }
        for job in chunk {
            forget(conn, &job)?;
            gone.add(&job);
            count += 1;
            if began.elapsed() >= time {
                break 'slice;
            }
            // What is too much must be looked at again; what is too old stays so.
            if bound(conn, keep, old)? < job.finished_at {
                break;
            }
        }
    }
    gone.note(conn)?;
    for session in gone.of {
        listed::make_anew(conn, session)?;
    }
    change.commit()?;
    Ok(Pruned::Some(count))
}

/// Jobs that ended before this are to go.
fn bound(conn: &Connection, keep: Keep, old: i64) -> rusqlite::Result<i64> {
    let pragma = |name| conn.pragma_query_value(None, name, |row| row.get(0).map(nat));
    // Pages that are free count for nothing: the file keeps its size, and fills them again.
    let used = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
    let too_much = used.saturating_mul(pragma("page_size")?) > keep.bytes;
    Ok(if too_much { i64::MAX } else { old })
}

struct Candidate {
    job: i64,
    session: i64,
    final_seq: i64,
    finished_at: i64,
}

/// The next ones to go. What is open somewhere stays: its session would go with it.
fn candidates(
    conn: &Connection,
    before: i64,
    day_old: i64,
    limit: i64,
) -> rusqlite::Result<Vec<Candidate>> {
    conn.prepare_cached(
        "SELECT jobs.job, jobs.session, jobs.final_seq, jobs.finished_at
         FROM jobs INDEXED BY jobs_ended CROSS JOIN sessions ON sessions.id = jobs.session
         WHERE jobs.final_seq IS NOT NULL AND jobs.finished_at < ?1
            AND (jobs.key IS NULL OR jobs.job <= ?2)
            AND (sessions.named OR sessions.instance IS NULL)
         ORDER BY jobs.final_seq LIMIT ?3",
    )?
    .query_map(params![before, day_old, limit], |row| {
        Ok(Candidate {
            job: row.get(0)?,
            session: row.get(1)?,
            final_seq: row.get(2)?,
            finished_at: row.get(3)?,
        })
    })?
    .collect()
}

/// The job with its events, texts and labels, and a session that only it was left of. A closed
/// session counts as one that nobody named.
fn forget(conn: &Connection, gone: &Candidate) -> rusqlite::Result<()> {
    // What hangs on it goes by itself: `ON DELETE CASCADE`, with foreign keys on.
    conn.prepare_cached("DELETE FROM jobs WHERE job = ?1")?
        .execute([gone.job])?;
    conn.prepare_cached(
        "DELETE FROM sessions WHERE id = ?1 AND NOT named AND instance IS NULL
            AND NOT EXISTS (SELECT 1 FROM jobs WHERE session = ?1 AND final_seq IS NULL)
            AND NOT EXISTS (SELECT 1 FROM jobs WHERE session = ?1 AND final_seq IS NOT NULL)",
    )?
    .execute([gone.session])?;
    Ok(())
}

/// The highest numbers that are gone: cursors before them are too old, and they aren't given out
/// again.
#[derive(Default)]
struct HighestGone {
    seq: i64,
    job: i64,
    /// Whose jobs they were: lists say nothing of them any more.
    of: BTreeSet<i64>,
}

impl HighestGone {
    fn add(&mut self, gone: &Candidate) {
        self.seq = self.seq.max(gone.final_seq);
        self.job = self.job.max(gone.job);
        self.of.insert(gone.session);
    }

    fn note(&self, conn: &Connection) -> rusqlite::Result<()> {
        for (key, value) in [("pruned_seq", self.seq), ("pruned_job", self.job)] {
            conn.prepare_cached(
                "INSERT INTO meta (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET
                    value = CAST(max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER)) AS TEXT)",
            )?
            .execute(params![key, value.to_string()])?;
        }
        Ok(())
    }
}
