//! The tables of sessions and cool-downs, and what is asked of them.
//!
//! Owns the SQL. Must not know threads, locks or models.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Basis;
use crate::failover::Class;
use crate::failover::cooldown::Cooldown;
use crate::message::Message;
use crate::tool::anchor::Led;

/// "timm": a file of another program is not touched.
pub(super) const APPLICATION: i32 = 0x7469_6d6d;

/// Each entry leads from the version that is its index to the next; a released one is never edited.
pub(super) const MIGRATIONS: &[&str] = &[VERSION_1, VERSION_2, VERSION_3];

const VERSION_1: &str = "
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    native TEXT NOT NULL UNIQUE DEFAULT (lower(hex(randomblob(16)))),
    name TEXT UNIQUE,
    created_at INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    -- Of all its messages.
    bytes INTEGER NOT NULL DEFAULT 0,
    -- The number of the first message that is not in the summary.
    first INTEGER NOT NULL DEFAULT 0,
    soul_sha256 TEXT,
    system TEXT NOT NULL,
    summary TEXT
) STRICT;
CREATE INDEX sessions_used ON sessions (used_at);

CREATE TABLE messages (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    at INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (session, at)
) STRICT, WITHOUT ROWID;

CREATE TABLE cooldowns (
    provider TEXT NOT NULL,
    -- Empty for all models of the provider.
    model TEXT NOT NULL,
    class TEXT NOT NULL,
    key TEXT,
    step INTEGER NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (provider, model)
) STRICT, WITHOUT ROWID;
";

/// Where the names of a session's directories led, as JSON; absent in sessions of before.
const VERSION_2: &str = "ALTER TABLE sessions ADD COLUMN led TEXT;";

/// Messages out of the tree that is searched, where SQLite reads each that it compares with whole.
const VERSION_3: &str = "
CREATE TABLE messages_3 (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    at INTEGER NOT NULL,
    message TEXT NOT NULL,
    UNIQUE (session, at)
) STRICT;
INSERT INTO messages_3 SELECT session, at, message FROM messages ORDER BY session, at;
DROP TABLE messages;
ALTER TABLE messages_3 RENAME TO messages;
";

/// A note from so far in the future, in milliseconds, is of a clock that was set back.
const SET_BACK: i64 = 60_000;

/// A session as it is found.
pub(super) struct StoredSession {
    pub(super) id: i64,
    pub(super) native: String,
    pub(super) first: u64,
    pub(super) basis: Basis,
    pub(super) summary: Option<String>,
}

/// Numbers are milliseconds or counts: neither comes near the end of either type.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn count(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Makes a session.
pub(super) fn create(
    conn: &Connection,
    name: Option<&str>,
    basis: &Basis,
    now: u64,
) -> rusqlite::Result<(i64, String)> {
    conn.prepare_cached(
        "INSERT INTO sessions (name, created_at, used_at, soul_sha256, system, led)
         VALUES (?1, ?2, ?2, ?3, ?4, ?5) RETURNING id, native",
    )?
    .query_row(
        params![
            name,
            number(now),
            basis.soul_sha256,
            basis.system,
            written(&basis.led)
        ],
        |row| row.try_into(),
    )
}

/// Makes a session of all that another one has but its name.
pub(super) fn copy(conn: &Connection, native: &str, now: u64) -> rusqlite::Result<Option<String>> {
    let made = conn
        .prepare_cached(
            "INSERT INTO sessions (created_at, used_at, bytes, first, soul_sha256, system, summary, led)
             SELECT ?2, ?2, bytes, first, soul_sha256, system, summary, led FROM sessions
             WHERE native = ?1 RETURNING id, native",
        )?
        .query_row(params![native, number(now)], |row| {
            <(i64, String)>::try_from(row)
        })
        .optional()?;
    let Some((id, copied)) = made else {
        return Ok(None);
    };
    conn.prepare_cached(
        "INSERT INTO messages SELECT ?2, at, message FROM messages
         WHERE session = (SELECT id FROM sessions WHERE native = ?1)",
    )?
    .execute(params![native, id])?;
    Ok(Some(copied))
}

/// How a session is looked for.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// By what it is called here.
    Native(String),
    /// By the name that a person gave it.
    Name(String),
}

/// Finds a session.
pub(super) fn find(conn: &Connection, which: &Which) -> rusqlite::Result<Option<StoredSession>> {
    let (column, value) = match which {
        Which::Native(native) => ("native", native),
        Which::Name(name) => ("name", name),
    };
    let sql = format!(
        "SELECT id, native, first, system, soul_sha256, summary, led FROM sessions WHERE {column} = ?1"
    );
    conn.prepare_cached(&sql)?
        .query_row([value], |row| {
            Ok(StoredSession {
                id: row.get(0)?,
                native: row.get(1)?,
                first: count(row.get(2)?),
                basis: Basis {
                    system: row.get(3)?,
                    soul_sha256: row.get(4)?,
                    led: led(row.get_ref(6)?)?,
                },
                summary: row.get(5)?,
            })
        })
        .optional()
}

/// The messages of a session, in order.
pub(super) fn messages(conn: &Connection, session: i64) -> rusqlite::Result<Vec<Message>> {
    let mut statement =
        conn.prepare_cached("SELECT message FROM messages WHERE session = ?1 ORDER BY at")?;
    let rows = statement.query_map([session], |row| {
        let text = row.get_ref(0)?.as_str()?;
        serde_json::from_str(text).map_err(|why| {
            let kind = rusqlite::types::Type::Text;
            rusqlite::Error::FromSqlConversionFailure(0, kind, Box::new(why))
        })
    })?;
    rows.collect()
}

/// The number of a session's next message, of which those before number `first` are in a summary.
pub(super) fn next(conn: &Connection, session: i64, first: u64) -> rusqlite::Result<u64> {
    conn.prepare_cached("SELECT coalesce(max(at) + 1, ?2) FROM messages WHERE session = ?1")?
        .query_row(params![session, number(first)], |row| row.get(0).map(count))
}

/// Notes what a model is told first, of a session that none was asked in.
pub(super) fn begin(conn: &Connection, session: i64, basis: &Basis) -> rusqlite::Result<()> {
    let changed = conn
        .prepare_cached("UPDATE sessions SET system = ?2, soul_sha256 = ?3 WHERE id = ?1")?
        .execute(params![session, basis.system, basis.soul_sha256])?;
    if changed == 0 {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    Ok(())
}

/// Adds messages from number `at` on. Where somebody else has added meanwhile, this fails.
pub(super) fn append(
    conn: &Connection,
    session: i64,
    at: u64,
    messages: &[String],
    now: u64,
) -> rusqlite::Result<()> {
    let mut add = conn.prepare_cached("INSERT INTO messages VALUES (?1, ?2, ?3)")?;
    let mut bytes = 0;
    for (number_of, message) in (at..).zip(messages) {
        add.execute(params![session, number(number_of), message])?;
        bytes += message.len() as u64;
    }
    let changed = conn
        .prepare_cached("UPDATE sessions SET used_at = ?2, bytes = bytes + ?3 WHERE id = ?1")?
        .execute(params![session, number(now), number(bytes)])?;
    if changed == 0 {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    Ok(())
}

/// Notes where the names of a session's directories lead.
pub(super) fn remember(conn: &Connection, session: i64, led: &Led) -> rusqlite::Result<()> {
    let changed = conn
        .prepare_cached("UPDATE sessions SET led = ?2 WHERE id = ?1")?
        .execute(params![session, written(led)])?;
    if changed == 0 {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    Ok(())
}

/// A name that is no text isn't in any request: it is settled anew for each turn.
fn written(led: &Led) -> Option<String> {
    serde_json::to_string(led).ok()
}

fn led(value: ValueRef<'_>) -> rusqlite::Result<Led> {
    let Some(text) = value.as_str_or_null()? else {
        return Ok(Led::new());
    };
    serde_json::from_str(text).map_err(|why| {
        let kind = rusqlite::types::Type::Text;
        rusqlite::Error::FromSqlConversionFailure(6, kind, Box::new(why))
    })
}

/// Puts a summary in the place of the messages before number `first`.
pub(super) fn compact(
    conn: &Connection,
    session: i64,
    summary: &str,
    first: u64,
) -> rusqlite::Result<()> {
    conn.execute(
        "DELETE FROM messages WHERE session = ?1 AND at < ?2",
        params![session, number(first)],
    )?;
    conn.execute(
        "UPDATE sessions SET summary = ?2, first = ?3, bytes =
             (SELECT coalesce(sum(length(CAST(message AS BLOB))), 0) FROM messages WHERE session = ?1)
             + length(CAST(?2 AS BLOB))
         WHERE id = ?1",
        params![session, summary, number(first)],
    )?;
    Ok(())
}

/// Sessions that may go, those unused for longest first: which weren't used since `before`, or
/// which are beyond `bytes` in all.
pub(super) fn old(
    conn: &Connection,
    before: u64,
    bytes: u64,
    most: usize,
) -> rusqlite::Result<Vec<(i64, String)>> {
    let pages = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let used = (pages("page_count")? - pages("freelist_count")?) * pages("page_size")?;
    // Each process asks, so not every session is looked at: all that is kept fits where it is kept.
    let mut statement = conn.prepare(match count(used) <= bytes {
        true => "SELECT id, native FROM sessions WHERE used_at < ?1 ORDER BY used_at, id LIMIT ?3",
        false => {
            "SELECT id, native FROM (
                 SELECT id, native, used_at,
                     sum(bytes) OVER (ORDER BY used_at DESC, id DESC) AS newer FROM sessions)
             WHERE used_at < ?1 OR newer > ?2 ORDER BY used_at, id LIMIT ?3"
        }
    })?;
    let rows = statement.query_map(
        params![number(before), number(bytes), number(most as u64)],
        |row| row.try_into(),
    )?;
    rows.collect()
}

/// Forgets a session.
pub(super) fn forget(conn: &Connection, session: i64) -> rusqlite::Result<()> {
    conn.execute("DELETE FROM sessions WHERE id = ?1", [session])?;
    Ok(())
}

/// Every cool-down that may still count.
pub(crate) fn cooldowns(conn: &Connection) -> rusqlite::Result<Vec<Cooldown>> {
    let mut statement = conn
        .prepare_cached("SELECT provider, model, class, key, step, since, until FROM cooldowns")?;
    let rows = statement.query_map([], |row| {
        let model: String = row.get(1)?;
        let class: String = row.get(2)?;
        Ok(Cooldown {
            provider: row.get(0)?,
            model: Some(model).filter(|model| !model.is_empty()),
            // A class of a newer version is one we know nothing of.
            class: serde_json::from_value(class.into()).unwrap_or(Class::Unknown),
            key: row.get(3)?,
            step: u32::try_from(row.get::<_, i64>(4)?).unwrap_or(0),
            since: count(row.get(5)?),
            until: count(row.get(6)?),
        })
    })?;
    rows.collect()
}

/// Leaves a provider or a model alone, for no shorter than before: unless that was because of
/// another key, or is of a clock that has been set back since.
pub(super) fn cool(conn: &Connection, cooldown: &Cooldown) -> rusqlite::Result<()> {
    let class = serde_json::to_value(cooldown.class).unwrap_or_default();
    conn.prepare_cached(
        "INSERT INTO cooldowns VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT DO UPDATE SET class = excluded.class, key = excluded.key,
             step = excluded.step, since = excluded.since, until = excluded.until
         WHERE excluded.until >= until OR excluded.key IS NOT key
             OR since > excluded.since + ?8",
    )?
    .execute(params![
        cooldown.provider,
        cooldown.model.as_deref().unwrap_or(""),
        class.as_str(),
        cooldown.key,
        cooldown.step,
        number(cooldown.since),
        number(cooldown.until),
        SET_BACK,
    ])?;
    Ok(())
}

/// It answered a request that was sent at `asked`: what was noted later is no older news.
pub(super) fn warm(
    conn: &Connection,
    provider: &str,
    model: &str,
    asked: u64,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "DELETE FROM cooldowns WHERE provider = ?1 AND model IN (?2, '') AND since <= ?3",
    )?
    .execute(params![provider, model, number(asked)])?;
    Ok(())
}
