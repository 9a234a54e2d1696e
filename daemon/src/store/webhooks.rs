//! Deliveries: written with a job's end, read when they are due, marked after each attempt.
//!
//! Owns their table, their ids and what a delivery tells. Must not know HTTP, secrets or when the next
//! attempt is.

use std::path::Path;

use agentd_core::rfc3339;
use agentd_core::store::Loaded;
use agentd_protocol::JobId;
use agentd_protocol::webhook::{DeliveryRow, DeliveryState};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::columns::{int, nat, shown};
use super::schema::beside_its_writer;
use super::{ENDED, Store, WriterMessage};

/// One that was delivered is kept so long, for people to look at, in milliseconds.
const DELIVERED_MS: i64 = 24 * 60 * 60 * 1000;
/// A dead letter is kept so long, to be sent again.
const DEAD_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// No attempt is planned further ahead.
const AHEAD_MS: i64 = 30 * 60 * 60 * 1000;
/// What was made or tried later than this after now, in milliseconds, was so by a clock that has been
/// set back since.
const FUTURE_MS: i64 = 60 * 1000;
/// Rows forgotten at once.
const SLICE: i64 = 256;
/// Bytes of rows in one page, so that it fits into a line.
const PAGE_BYTES: usize = 512 * 1024;

/// Bytes of a turn's text in a delivery that has it: receivers refuse large bodies, and `collect`
/// has the whole.
const MOST_TEXT: usize = 64 * 1024;

/// What a final line says that is told.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FinalLine {
    stop: Option<String>,
    code: Option<String>,
    agent: Option<String>,
    text: String,
    truncated: bool,
}

impl FinalLine {
    /// Its text, as much of it as a receiver has to take.
    fn clipped(self) -> (String, bool) {
        let Self {
            mut text,
            truncated,
            ..
        } = self;
        let end = text.floor_char_boundary(MOST_TEXT);
        let cut = end < text.len();
        text.truncate(end);
        (text, truncated || cut)
    }
}

/// Which deliveries are asked for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Wanted {
    /// Delivery by now, milliseconds since 1970.
    pub now_ms: i64,
    /// None of these, which are under way.
    pub but: Vec<String>,
    /// At most so many of each host.
    pub each: usize,
    /// Was the clock set back, as far as is known? What it planned before is due now.
    pub set_back: bool,
}

/// One that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Its id, the same in every attempt.
    pub id: String,
    /// Where to.
    pub url: String,
    /// Of the URL.
    pub host: String,
    /// What is told.
    pub body: String,
    /// Attempts so far.
    pub attempts: u32,
    /// When it was made, milliseconds since 1970.
    pub created_ms: i64,
    /// Is it for a try? Then there is one attempt.
    pub is_test: bool,
}

/// What is due, and when more will be.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Waiting {
    /// The longest due first.
    pub due: Vec<Delivery>,
    /// Milliseconds since 1970 of the next one that isn't due yet.
    pub next_ms: Option<i64>,
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttemptOutcome {
    /// The receiver has it.
    Delivered,
    /// There is another attempt, at this time in milliseconds since 1970.
    Again(i64),
    /// The same, and this one doesn't count.
    Waits(i64),
    /// There is none.
    Dead,
    /// There is none, for this delivery and all others to the same URL.
    Gone,
}

/// What became of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptRecord {
    /// Of which delivery.
    pub id: String,
    /// How many attempts it had before, as it was read.
    pub attempts: u32,
    /// When it ended, milliseconds since 1970.
    pub at_ms: i64,
    /// How.
    pub outcome: AttemptOutcome,
    /// What the receiver answered, if it did.
    pub status: Option<u16>,
    /// Why it isn't delivered.
    pub error: Option<String>,
}

impl Store {
    /// What is to be delivered now, as far as it is in the file.
    ///
    /// # Errors
    /// When the file can't be read, or the writer has ended.
    pub async fn due(&self, wanted: Wanted) -> Result<Waiting, String> {
        let (answer, answered) = oneshot::channel();
        self.hand_in(WriterMessage::Due(wanted, answer))
            .map_err(|error| error.to_string())?;
        answered.await.unwrap_or_else(|_gone| Err(ENDED.to_owned()))
    }

    /// Notes what became of attempts, all or none; they are durable then.
    ///
    /// # Errors
    /// When the file can't be written, or the writer has ended.
    pub async fn record_attempts(&self, attempts: Vec<AttemptRecord>) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        self.hand_in(WriterMessage::Attempts(attempts, answer))
            .map_err(|error| error.to_string())?;
        answered.await.unwrap_or_else(|_gone| Err(ENDED.to_owned()))
    }
}

/// A delivery about a job that has just ended, in its transaction. It tells that it ended and how,
/// and of what was said the text, where that was asked for.
pub(super) fn put(
    conn: &Connection,
    job: i64,
    (url, result): (&str, bool),
    now_ms: i64,
) -> rusqlite::Result<()> {
    let data = conn
        .prepare_cached(
            "SELECT coalesce(sessions.name, ''), jobs.state, jobs.final_seq, jobs.key,
                jobs.attempt, jobs.final, jobs.finished_at
             FROM jobs LEFT JOIN sessions ON sessions.id = jobs.session
             WHERE jobs.job = ?1 AND jobs.final_seq IS NOT NULL",
        )?
        .query_row([job], |row| {
            let line = row.get_ref(5)?.as_str()?;
            let last: FinalLine = serde_json::from_str(line).unwrap_or_default();
            let mut told = json!({
                "type": "job.ended",
                "timestamp": rfc3339(row.get(6)?),
                "data": {
                    "job": JobId(nat(job)),
                    "session": shown(row.get(0)?),
                    "agent": last.agent,
                    "state": row.get::<_, String>(1)?,
                    "stop": last.stop,
                    "code": last.code,
                    "seq": row.get::<_, i64>(2)?,
                    "idempotency_key": row.get::<_, Option<String>>(3)?,
                    "attempt": row.get::<_, i64>(4)?,
                    "final_bytes": line.len(),
                },
            });
            if result {
                let (text, truncated) = last.clipped();
                told["data"]["text"] = text.into();
                told["data"]["truncated"] = truncated.into();
            }
            Ok(told)
        })
        .optional()?;
    match data {
        Some(data) => insert(conn, Some(job), url, &data.to_string(), now_ms).map(drop),
        // It had ended before, and was told then.
        None => Ok(()),
    }
}

/// A delivery that tells nothing.
pub(super) fn put_test(conn: &Connection, url: &str, now_ms: i64) -> rusqlite::Result<String> {
    let body = json!({"type": "webhook.test", "timestamp": rfc3339(now_ms), "data": {}});
    insert(conn, None, url, &body.to_string(), now_ms)
}

fn insert(
    conn: &Connection,
    job: Option<i64>,
    url: &str,
    body: &str,
    now_ms: i64,
) -> rusqlite::Result<String> {
    conn.prepare_cached(
        "INSERT INTO webhooks (id, job, url, host, body, state, created_at, due_at)
         VALUES ('evt_' || lower(hex(randomblob(16))), ?1, ?2, ?3, ?4, 'pending', ?5, ?5)
         ON CONFLICT (job) DO UPDATE SET job = job RETURNING id",
    )?
    // With `DO NOTHING` no row would come back, and the id of the first one is wanted.
    .query_row(params![job, url, host(url), body, now_ms], |row| row.get(0))
}

/// The host of a URL, however it is spelled: deliveries to one host take turns.
pub(super) fn host(url: &str) -> String {
    let url = reqwest::Url::parse(url);
    let host = url.as_ref().ok().and_then(reqwest::Url::host_str);
    // What is none is refused when it is to be sent.
    host.unwrap_or("none").trim_end_matches('.').to_owned()
}

/// A delivery goes out again, as if for the first time; its id stays, so that a receiver that has it
/// knows.
pub(super) fn replay(
    conn: &Connection,
    webhook: &str,
    now_ms: i64,
) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(
        "UPDATE webhooks SET state = 'pending', attempts = 0, due_at = ?2
         WHERE id = ?1 RETURNING id",
    )?
    .query_row(params![webhook, now_ms], |row| row.get(0))
    .optional()
}

/// What is due, the longest due first, and of what is due at once the first that came. It takes as
/// long as there are hosts, however many deliveries wait: whoever asks holds up those who write.
pub(super) fn due(conn: &Connection, wanted: &Wanted) -> rusqlite::Result<Waiting> {
    if wanted.set_back {
        plan_anew(conn, wanted.now_ms)?;
    }
    let but = serde_json::to_string(&wanted.but).unwrap_or_default();
    let each = i64::try_from(wanted.each).unwrap_or(i64::MAX);
    let (mut due, mut next_ms, mut last) = (Vec::new(), None, String::new());
    while let Some(host) = host_after(conn, &last)? {
        let mut statement = conn.prepare_cached(
            "SELECT id, url, host, body, attempts, job IS NULL, created_at, due_at, place
             FROM webhooks
             WHERE state = 'pending' AND host = ?1 AND due_at <= ?2
                AND id NOT IN (SELECT value FROM json_each(?3))
             ORDER BY due_at, place LIMIT ?4",
        )?;
        let rows = statement.query_map(params![host, wanted.now_ms, but, each], |row| {
            let delivery = Delivery {
                id: row.get(0)?,
                url: row.get(1)?,
                host: row.get(2)?,
                body: row.get(3)?,
                attempts: row.get(4)?,
                is_test: row.get(5)?,
                created_ms: row.get(6)?,
            };
            Ok((row.get::<_, i64>(7)?, row.get::<_, i64>(8)?, delivery))
        })?;
        for row in rows {
            due.push(row?);
        }
        let next: Option<i64> = conn
            .prepare_cached(
                "SELECT min(due_at) FROM webhooks
                 WHERE state = 'pending' AND host = ?1 AND due_at > ?2",
            )?
            .query_row(params![host, wanted.now_ms], |row| row.get(0))?;
        next_ms = next_ms.into_iter().chain(next).min();
        last = host;
    }
    due.sort_by_key(|(at_ms, place, _)| (*at_ms, *place));
    let due = due.into_iter().map(|(_, _, delivery)| delivery).collect();
    Ok(Waiting { due, next_ms })
}

/// The next host, by name, for which something waits.
fn host_after(conn: &Connection, last: &str) -> rusqlite::Result<Option<String>> {
    // A step into the index for each host: `DISTINCT` would read all that wait.
    conn.prepare_cached("SELECT min(host) FROM webhooks WHERE state = 'pending' AND host > ?1")?
        .query_row([last], |row| row.get(0))
}

/// What a clock planned that was ahead is due now.
fn plan_anew(conn: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    let (future, ahead) = (
        now_ms.saturating_add(FUTURE_MS),
        now_ms.saturating_add(AHEAD_MS),
    );
    conn.prepare_cached(
        "UPDATE webhooks SET due_at = ?1 WHERE state = 'pending' AND due_at > ?1
            AND (coalesce(last_at, created_at) > ?2 OR due_at > ?3)",
    )?
    .execute(params![now_ms, future, ahead])
    .map(drop)
}

/// Notes what became of attempts, all or none. A delivery that was asked for again meanwhile stays to
/// be sent.
pub(super) fn record_attempts(
    conn: &Connection,
    attempts: &[AttemptRecord],
) -> rusqlite::Result<()> {
    let change = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    for attempt in attempts {
        let (state, due) = match attempt.outcome {
            AttemptOutcome::Delivered => (DeliveryState::Delivered, None),
            AttemptOutcome::Again(due) | AttemptOutcome::Waits(due) => {
                (DeliveryState::Pending, Some(due))
            }
            AttemptOutcome::Dead | AttemptOutcome::Gone => (DeliveryState::Dead, None),
        };
        let counts = !matches!(attempt.outcome, AttemptOutcome::Waits(_));
        // By its count, so that nothing is said of one that was asked for again meanwhile.
        // Delivered counts even where its URL was given up since.
        let url: Option<String> = change
            .prepare_cached(
                "UPDATE webhooks SET state = ?2, attempts = attempts + ?8, last_at = ?3,
                    due_at = coalesce(?4, due_at), status = ?5, error = ?6
                 WHERE id = ?1 AND attempts = ?7 AND (state = 'pending' OR ?2 = 'delivered')
                 RETURNING url",
            )?
            .query_row(
                params![
                    attempt.id,
                    state.name(),
                    attempt.at_ms,
                    due,
                    attempt.status,
                    attempt.error,
                    attempt.attempts,
                    counts
                ],
                |row| row.get(0),
            )
            .optional()?;
        if attempt.outcome == AttemptOutcome::Gone {
            change
                .prepare_cached(
                    "UPDATE webhooks SET state = 'dead', last_at = ?2, error = ?3
                     WHERE url = ?1 AND state = 'pending'",
                )?
                .execute(params![url, attempt.at_ms, attempt.error])?;
        }
    }
    failpoint!("before-commit-mark");
    change.commit()
}

/// Forgets some that ended long ago; says how many.
pub(super) fn forget(conn: &Connection, now_ms: i64) -> rusqlite::Result<usize> {
    let mut gone = 0;
    for (state, kept) in [
        (DeliveryState::Delivered, DELIVERED_MS),
        (DeliveryState::Dead, DEAD_MS),
    ] {
        let old = params![state.name(), now_ms.saturating_sub(kept)];
        // A look without a lock first: mostly there is nothing to do.
        let is_there = conn
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM webhooks
                 WHERE state <> 'pending' AND state = ?1 AND last_at < ?2)",
            )?
            .query_row(old, |row| row.get::<_, bool>(0))?;
        if is_there {
            gone += conn
                .prepare_cached(
                    "DELETE FROM webhooks WHERE place IN (
                        SELECT place FROM webhooks
                        WHERE state <> 'pending' AND state = ?1 AND last_at < ?2
                        ORDER BY last_at LIMIT ?3)",
                )?
                .execute(params![state.name(), now_ms.saturating_sub(kept), SLICE])?;
        }
    }
    Ok(gone)
}

/// How many were given up, as seen from outside while somebody has the store open.
///
/// # Errors
/// When the store in `dir` can't be read, or has another version.
pub fn given_up(dir: &Path) -> rusqlite::Result<u64> {
    let Some(conn) = beside_its_writer(dir)? else {
        return Ok(0);
    };
    let dead = "SELECT count(*) FROM webhooks WHERE state = 'dead' AND job IS NOT NULL";
    conn.query_row(dead, [], |row| row.get(0).map(nat))
}

/// A page of deliveries, newest first.
pub(super) fn list(
    conn: &Connection,
    state: Option<DeliveryState>,
    webhook: Option<&str>,
    before: Option<u64>,
    limit: usize,
) -> rusqlite::Result<Loaded> {
    let mut statement = conn.prepare_cached(
        "SELECT place, id, job, url, state, attempts, created_at, due_at, last_at, status, error
         FROM webhooks
         WHERE place < ?1 AND (?2 IS NULL OR state = ?2) AND (?3 IS NULL OR id = ?3)
         ORDER BY place DESC LIMIT ?4",
    )?;
    let asked = params![
        before.map_or(i64::MAX, int),
        state.map(DeliveryState::name),
        webhook,
        i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX),
    ];
    let mut rows = statement.query(asked)?;
    let (mut deliveries, mut bytes, mut last) = (Vec::new(), 0, None);
    let mut next = None;
    while let Some(row) = rows.next()? {
        if deliveries.len() == limit || bytes > PAGE_BYTES {
            next = last;
            break;
        }
        last = Some(nat(row.get(0)?));
        // A row of strings and numbers can always be written.
        let text = serde_json::to_string(&delivery_row(row)?).unwrap_or_default();
        bytes += text.len();
        deliveries.push(text);
    }
    Ok(Loaded::Webhooks { deliveries, next })
}

fn delivery_row(row: &Row<'_>) -> rusqlite::Result<DeliveryRow> {
    let state = match row.get_ref(4)?.as_str()? {
        "delivered" => DeliveryState::Delivered,
        "dead" => DeliveryState::Dead,
        _ => DeliveryState::Pending,
    };
    let due: i64 = row.get(7)?;
    Ok(DeliveryRow {
        webhook: row.get(1)?,
        job: row.get::<_, Option<i64>>(2)?.map(|job| JobId(nat(job))),
        url: row.get(3)?,
        state,
        attempts: nat(row.get(5)?),
        created_at: rfc3339(row.get(6)?),
        next_at: (state == DeliveryState::Pending).then(|| rfc3339(due)),
        last_at: row.get::<_, Option<i64>>(8)?.map(rfc3339),
        status: row.get(9)?,
        error: row.get(10)?,
    })
}
