//! Everything stored, as JSON objects in pages.
//!
//! Owns the kinds of objects, their order and where a page ends. Must not change anything.

use agentd_core::mcp::McpServers;
use agentd_core::store::{Loaded, TextKind};
use agentd_core::{head, rfc3339};
use agentd_protocol::{Body, JobId};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::{Value, json};

use super::columns::{int, nat};
use super::lists::session_read;
use super::texts::texts;

/// Bytes of one page; the first object is given whatever it has.
const PAGE: usize = 512 * 1024;
/// A request, a line or a text longer than this comes in pieces, so that every object fits into a
/// line.
const LONG: usize = 128 * 1024;
/// Bytes of an attachment in one object: a multiple of 3, so that pieces of base64 can be joined.
const PIECE: i64 = 96 * 1024;
/// Objects of one job that a cursor can tell apart: with as many jobs, each cursor is a number that
/// JavaScript has, too.
const ITEMS: u64 = 1 << 26;

/// Where an export stands: an even number in the sessions, an odd one in the jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cursor {
    /// After this one.
    Session(i64),
    /// So many objects of this one are given.
    Job { job: i64, given: u64 },
}

impl Cursor {
    fn read(after: u64) -> Self {
        let place = after >> 1;
        if after & 1 == 0 {
            Self::Session(int(place))
        } else {
            Self::Job {
                job: int(place / ITEMS),
                given: place % ITEMS,
            }
        }
    }

    /// A cursor that can't be written down would have a page told again and again.
    fn number(self) -> rusqlite::Result<u64> {
        let number = match self {
            Self::Session(place) => Some(nat(place) << 1),
            Self::Job { job, given } if given < ITEMS => nat(job)
                .checked_mul(ITEMS << 1)
                .map(|of_job| of_job | given << 1 | 1),
            Self::Job { .. } => None,
        };
        number.ok_or_else(|| {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_TOOBIG);
            let why = "a job has more objects than an export can count".to_owned();
            rusqlite::Error::SqliteFailure(code, Some(why))
        })
    }
}

/// A page that is being filled.
struct ExportPage {
    rows: Vec<String>,
    bytes: usize,
    cursor: Cursor,
}

/// Does the page take more?
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageRoom {
    Left,
    Full,
}

impl ExportPage {
    fn push(&mut self, row: &Value, cursor: Cursor) -> PageRoom {
        let row = row.to_string();
        if self.bytes + row.len() > PAGE && !self.rows.is_empty() {
            return PageRoom::Full;
        }
        self.bytes += row.len() + 1;
        self.rows.push(row);
        self.cursor = cursor;
        PageRoom::Left
    }
}

/// The page after a cursor, of everything or of a session.
pub(super) fn export(
    conn: &Connection,
    after: u64,
    session: Option<&str>,
) -> rusqlite::Result<Loaded> {
    let of = match session {
        None => None,
        Some(name) => match session_read(conn, name)? {
            None => return Ok(Loaded::Sessions(Vec::new())),
            known => known,
        },
    };
    let mut page = ExportPage {
        rows: Vec::new(),
        bytes: 0,
        cursor: Cursor::read(after),
    };
    let room = fill(conn, of, &mut page)?;
    let next = match room {
        PageRoom::Full => Some(page.cursor.number()?.to_string()),
        PageRoom::Left => None,
    };
    let line = Body::of_rows(
        "export",
        "rows",
        &page.rows,
        next.as_deref().map(|next| ("next", next)),
    );
    Ok(Loaded::Line(line))
}

fn fill(conn: &Connection, of: Option<i64>, page: &mut ExportPage) -> rusqlite::Result<PageRoom> {
    if let Cursor::Session(after) = page.cursor {
        if sessions(conn, after, of, page)? == PageRoom::Full {
            return Ok(PageRoom::Full);
        }
        // The first job has the number 1.
        page.cursor = Cursor::Job { job: 0, given: 0 };
    }
    let Cursor::Job { job, given } = page.cursor else {
        return Ok(PageRoom::Left);
    };
    if job > 0 && one_job(conn, job, given, page)? == PageRoom::Full {
        return Ok(PageRoom::Full);
    }
    let mut last = job;
    loop {
        let next: Option<i64> = conn
            .prepare_cached(
                "SELECT job FROM jobs WHERE job > ?1 AND (?2 IS NULL OR session = ?2)
                 ORDER BY job LIMIT 1",
            )?
            .query_row(params![last, of], |row| row.get(0))
            .optional()?;
        let Some(next) = next else {
            return Ok(PageRoom::Left);
        };
        ascending(last, next)?;
        if one_job(conn, next, 0, page)? == PageRoom::Full {
            return Ok(PageRoom::Full);
        }
        last = next;
    }
}

/// A damaged file may give rows that were not asked for, and whoever goes on behind one of those
/// never comes to an end.
fn ascending(last: i64, next: i64) -> rusqlite::Result<()> {
    if next > last {
        return Ok(());
    }
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    let why = format!("row {next} comes behind row {last}");
    Err(rusqlite::Error::SqliteFailure(code, Some(why)))
}

fn sessions(
    conn: &Connection,
    after: i64,
    of: Option<i64>,
    page: &mut ExportPage,
) -> rusqlite::Result<PageRoom> {
    let mut statement = conn.prepare_cached(
        "SELECT id, name, agent, cwd, toolsets, named, native, turns, provider, model, thinking,
            created_at, system, called, mcp_servers, mode FROM sessions
         WHERE id > ?1 AND (?2 IS NULL OR id = ?2) ORDER BY id",
    )?;
    let mut rows = statement.query(params![after, of])?;
    let mut last = after;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        ascending(last, id)?;
        last = id;
        let name: String = row.get(1)?;
        let toolsets: Option<String> = row.get(4)?;
        let session = json!({
            "kind": "session",
            "place": id,
            "session": super::columns::shown(name.clone()),
            "closed": name.contains('#'),
            "agent": row.get::<_, String>(2)?,
            "cwd": row.get::<_, String>(3)?,
            "toolsets": toolsets.map(|list| object(&list)),
            "named": row.get::<_, bool>(5)?,
            "native": row.get::<_, Option<String>>(6)?,
            "turns": row.get::<_, i64>(7)?,
            "provider": row.get::<_, Option<String>>(8)?,
            "model": row.get::<_, Option<String>>(9)?,
            "thinking": row.get::<_, Option<String>>(10)?,
            "mode": row.get::<_, Option<String>>(15)?,
            "created_at": rfc3339(row.get(11)?),
            "system": row.get::<_, Option<String>>(12)?,
            "title": row.get::<_, Option<String>>(13)?,
            "mcp_servers": McpServers::stored(row.get(14)?).named(),
        });
        if page.push(&session, Cursor::Session(id)) == PageRoom::Full {
            return Ok(PageRoom::Full);
        }
    }
    Ok(PageRoom::Left)
}

/// The objects of one job, of which the first ones are skipped.
struct Items<'a> {
    job: i64,
    skip: u64,
    count: u64,
    page: &'a mut ExportPage,
}

impl Items<'_> {
    /// Was the next one given in an earlier page?
    const fn skips_next(&self) -> bool {
        self.count < self.skip
    }

    fn push(&mut self, row: &Value) -> PageRoom {
        self.count += 1;
        if self.count <= self.skip {
            return PageRoom::Left;
        }
        let cursor = Cursor::Job {
            job: self.job,
            given: self.count,
        };
        self.page.push(row, cursor)
    }

    /// A long text in pieces, each with the members of `like`.
    fn pieces(&mut self, text: &str, like: &Value) -> PageRoom {
        let mut from = 0;
        while from < text.len() {
            let (piece, _) = head(&text[from..], LONG);
            let mut row = like.clone();
            row["offset"] = json!(from);
            from += piece.len();
            row["text"] = json!(piece);
            if self.push(&row) == PageRoom::Full {
                return PageRoom::Full;
            }
        }
        PageRoom::Left
    }

    /// What was too long to be a member.
    fn long(&mut self, text: &str, of: &str, seq: Option<i64>) -> PageRoom {
        if text.len() <= LONG {
            return PageRoom::Left;
        }
        let job = JobId(nat(self.job));
        self.pieces(
            text,
            &json!({ "kind": "piece", "job": job, "of": of, "seq": seq }),
        )
    }
}

fn one_job(
    conn: &Connection,
    job: i64,
    skip: u64,
    page: &mut ExportPage,
) -> rusqlite::Result<PageRoom> {
    let mut items = Items {
        job,
        skip,
        count: 0,
        page,
    };
    let known = conn
        .prepare_cached(
            "SELECT sessions.name, jobs.session, state, held, attempt, cancelled, key, labels,
                parent, accepted_at, start_at, expires_at, finished_at, seq, final_seq, request,
                final
             FROM jobs JOIN sessions ON sessions.id = jobs.session WHERE job = ?1",
        )?
        .query_row([job], |row| {
            let request: String = row.get(15)?;
            let last: Option<String> = row.get(16)?;
            let labels: Option<String> = row.get(7)?;
            let time = |column| {
                let time = row.get::<_, Option<i64>>(column)?;
                Ok::<_, rusqlite::Error>(time.map(rfc3339))
            };
            let object = json!({
                "kind": "job",
                "job": JobId(nat(job)),
                "session": super::columns::shown(row.get(0)?),
                "place": row.get::<_, i64>(1)?,
                "state": super::lists::phase(row.get_ref(2)?.as_str()?, row.get(3)?),
                "attempt": row.get::<_, i64>(4)?,
                "cancelled": row.get::<_, bool>(5)?,
                "idempotency_key": row.get::<_, Option<String>>(6)?,
                "labels": labels.map(|labels| object(&labels)),
                "parent": row.get::<_, Option<i64>>(8)?.map(|parent| JobId(nat(parent))),
                "accepted_at": rfc3339(row.get(9)?),
                "start_at": time(10)?,
                "expires_at": time(11)?,
                "finished_at": time(12)?,
                "seq": row.get::<_, i64>(13)?,
                "final_seq": row.get::<_, Option<i64>>(14)?,
                "request": short(&request),
                "final": last.as_deref().map(short),
            });
            Ok((object, request, last.unwrap_or_default()))
        })
        .optional()?;
    // It may have been pruned since the page before.
    let Some((object, request, last)) = known else {
        return Ok(PageRoom::Left);
    };
    let room = items.push(&object);
    if room == PageRoom::Full
        || items.long(&request, "request", None) == PageRoom::Full
        || items.long(&last, "final", None) == PageRoom::Full
    {
        return Ok(PageRoom::Full);
    }
    if events(conn, &mut items)? == PageRoom::Full {
        return Ok(PageRoom::Full);
    }
    if said(conn, &mut items)? == PageRoom::Full {
        return Ok(PageRoom::Full);
    }
    if contents(conn, &mut items)? == PageRoom::Full {
        return Ok(PageRoom::Full);
    }
    delivery(conn, &mut items)
}

/// Who was told of the job's end, and what came of it.
fn delivery(conn: &Connection, items: &mut Items<'_>) -> rusqlite::Result<PageRoom> {
    let job = JobId(nat(items.job));
    let delivery = conn
        .prepare_cached(
            "SELECT id, url, state, attempts, created_at, last_at, status, error FROM webhooks
             WHERE job = ?1",
        )?
        .query_row([items.job], |row| {
            Ok(json!({
                "kind": "webhook",
                "job": job,
                "webhook": row.get::<_, String>(0)?,
                "url": row.get::<_, String>(1)?,
                "state": row.get::<_, String>(2)?,
                "attempts": row.get::<_, i64>(3)?,
                "created_at": rfc3339(row.get(4)?),
                "last_at": row.get::<_, Option<i64>>(5)?.map(rfc3339),
                "status": row.get::<_, Option<i64>>(6)?,
                "error": row.get::<_, Option<String>>(7)?,
            }))
        })
        .optional()?;
    Ok(delivery.map_or(PageRoom::Left, |delivery| items.push(&delivery)))
}

fn events(conn: &Connection, items: &mut Items<'_>) -> rusqlite::Result<PageRoom> {
    let mut statement =
        conn.prepare_cached("SELECT seq, line FROM events WHERE job = ?1 ORDER BY seq")?;
    let mut rows = statement.query(params![items.job])?;
    while let Some(row) = rows.next()? {
        let (seq, line): (i64, &str) = (row.get(0)?, row.get_ref(1)?.as_str()?);
        // There may be millions that were given already.
        if items.skips_next() && line.len() <= LONG {
            items.count += 1;
            continue;
        }
        let job = JobId(nat(items.job));
        let event = json!({ "kind": "event", "job": job, "seq": seq, "line": short(line) });
        if items.push(&event) == PageRoom::Full
            || items.long(line, "event", Some(seq)) == PageRoom::Full
        {
            return Ok(PageRoom::Full);
        }
    }
    Ok(PageRoom::Left)
}

fn said(conn: &Connection, items: &mut Items<'_>) -> rusqlite::Result<PageRoom> {
    let job = JobId(nat(items.job));
    for text in texts(conn, job)? {
        let of = match text.kind {
            TextKind::Text => "text",
            TextKind::Thinking => "thinking",
        };
        let like = json!({ "kind": "message", "job": job, "message": text.message, "of": of });
        if items.pieces(&text.text, &like) == PageRoom::Full {
            return Ok(PageRoom::Full);
        }
    }
    Ok(PageRoom::Left)
}

/// The attachments, each in pieces of base64 that can be put together.
fn contents(conn: &Connection, items: &mut Items<'_>) -> rusqlite::Result<PageRoom> {
    let job = items.job;
    let sizes: Vec<(i64, i64)> = conn
        .prepare_cached(
            "SELECT place, length(content) FROM attachments WHERE job = ?1 ORDER BY place",
        )?
        .query_map([job], |row| row.try_into())?
        .collect::<Result<_, _>>()?;
    for (place, size) in sizes {
        let mut offset = 0;
        while offset < size {
            let piece = PIECE.min(size - offset);
            // What was given already isn't read again: an attachment may have megabytes.
            let row = if items.skips_next() {
                Value::Null
            } else {
                let content: Vec<u8> = conn
                    .prepare_cached(
                        "SELECT substr(content, ?3 + 1, ?4) FROM attachments
                         WHERE job = ?1 AND place = ?2",
                    )?
                    .query_row(params![job, place, offset, piece], |row| row.get(0))?;
                json!({
                    "kind": "attachment", "job": JobId(nat(job)), "place": place,
                    "offset": offset, "data": STANDARD.encode(content),
                })
            };
            if items.push(&row) == PageRoom::Full {
                return Ok(PageRoom::Full);
            }
            offset += piece;
        }
    }
    Ok(PageRoom::Left)
}

/// A member of the object, unless it comes in pieces.
fn short(text: &str) -> Value {
    if text.len() > LONG {
        return Value::Null;
    }
    object(text)
}

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_other| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_cursor_is_read_as_written_or_refused() {
        let job = |job, given| Cursor::Job { job, given };
        let cursors = [
            Cursor::Session(7),
            job(1, 0),
            job(1, (1 << 20) - 1),
            job(1, 1 << 20),
            job(2, (1 << 20) + 1),
            job(1 << 26, ITEMS - 1),
        ];
        let read = cursors.map(|cursor| Cursor::read(cursor.number().unwrap()));
        assert_eq!(read, cursors);
        for too_far in [job(1, ITEMS), job(i64::MAX, 0)] {
            assert!(too_far.number().is_err(), "{too_far:?}");
        }
    }
}
