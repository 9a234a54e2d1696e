//! What was said: the turns of a session, and one message in pieces.
//!
//! Owns how much of a turn fits into a page, and what is cut first. Must not change anything.

use agentd_core::store::{Loaded, MessageText, TextKind};
use agentd_core::{head, rfc3339};
use agentd_protocol::limits::MAX_TEXT;
use agentd_protocol::line::Telling;
use agentd_protocol::{Body, JobId, rows};
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use super::columns::{int, nat};
use super::lists::{phase, session_of, session_read};
use super::texts::{of_message, texts};

/// Encoded bytes of the turns of one page; the first one is given whatever it has. A line may have
/// twice as many: memory adds the text of the turn in flight.
const PAGE: usize = 512 * 1024;
/// Encoded bytes of a prompt in it.
const PROMPT: usize = 64 * 1024;
/// Encoded bytes of all messages of a turn in it.
const MESSAGES: usize = 256 * 1024;
/// Encoded bytes of one message's thinking in it.
const THINKING: usize = 16 * 1024;
/// About what a message costs besides its text.
const MESSAGE: usize = 64;
/// A final line longer than this is told without its longest members.
const FINAL: usize = 128 * 1024;
/// A request longer than this isn't told as it was stored.
const REQUEST: usize = 192 * 1024;

/// Encoded bytes of what happened in a turn besides what was said.
const EVENTS: usize = 64 * 1024;
/// Encoded bytes of one of them: what a tool was given or gave may be long.
const EVENT: usize = 4 * 1024;

/// Which turns, and what of them.
pub(super) struct Wanted {
    pub(super) job: Option<JobId>,
    pub(super) after: u64,
    pub(super) limit: usize,
    pub(super) events: bool,
}

/// A page of turns, or just one.
pub(super) fn history(
    conn: &Connection,
    session: &str,
    wanted: &Wanted,
) -> rusqlite::Result<Loaded> {
    let Wanted {
        job, after, limit, ..
    } = *wanted;
    let of_job = job.map(|job| session_of(conn, session, job)).transpose()?;
    let session = match of_job.flatten() {
        None => session_read(conn, session)?,
        found => found,
    };
    let Some(session) = session else {
        let (turns, more) = (None, false);
        return Ok(Loaded::History { turns, more });
    };
    let mut numbers = conn
        .prepare_cached(
            "SELECT * FROM (SELECT job FROM jobs
                WHERE session = ?1 AND final_seq IS NOT NULL AND job > ?2 AND job BETWEEN ?3 AND ?4
                ORDER BY job LIMIT ?5)
             UNION ALL SELECT * FROM (SELECT job FROM jobs
                WHERE session = ?1 AND final_seq IS NULL AND job > ?2 AND job BETWEEN ?3 AND ?4
                ORDER BY job LIMIT ?5)
             ORDER BY 1 LIMIT ?5",
        )?
        .query_map(
            params![
                session,
                int(after),
                job.map_or(0, |job| int(job.0)),
                job.map_or(i64::MAX, |job| int(job.0)),
                int(limit as u64 + 1)
            ],
            |row| row.get(0),
        )?
        .collect::<Result<Vec<i64>, _>>()?;
    // One more was asked for than is told, to know whether another page follows.
    let mut more = numbers.len() > limit;
    numbers.truncate(limit);
    let mut turns = Vec::new();
    let mut bytes = 0;
    let request = match job {
        Some(_) => Request::Told,
        None => Request::LeftOut,
    };
    for job in numbers {
        let mut turn = turn(conn, job, request)?;
        if wanted.events {
            (turn.events, turn.events_truncated) = events(conn, turn.job)?;
        }
        bytes += serde_json::to_string(&turn).map_or(PAGE, |line| line.len());
        if bytes > PAGE && !turns.is_empty() {
            more = true;
            break;
        }
        turns.push(turn);
    }
    let turns = Some(turns);
    Ok(Loaded::History { turns, more })
}

/// Is a turn's request told as it was stored?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Told,
    LeftOut,
}

fn turn(conn: &Connection, job: i64, wanted: Request) -> rusqlite::Result<rows::TurnRow> {
    let (mut turn, request, last) = conn
        .prepare_cached(
            "SELECT state, held, accepted_at, request, final, final_seq FROM jobs WHERE job = ?1",
        )?
        .query_row([job], |row| {
            let turn = rows::TurnRow {
                job: JobId(nat(job)),
                state: phase(row.get_ref(0)?.as_str()?, row.get(1)?),
                accepted_at: rfc3339(row.get(2)?),
                text: String::new(),
                truncated: false,
                attachments: Vec::new(),
                messages: Vec::new(),
                events: Vec::new(),
                events_truncated: false,
                last: None,
                questions: Vec::new(),
                request: None,
            };
            Ok((
                turn,
                row.get::<_, String>(3)?,
                row.get::<_, Option<String>>(4)?
                    .zip(row.get::<_, Option<i64>>(5)?),
            ))
        })?;
    (turn.text, turn.truncated) = head(&prompt(&request), PROMPT);
    turn.attachments = super::attachments::attachments(&request);
    if wanted == Request::Told && request.len() <= REQUEST {
        turn.request = serde_json::from_str(&request).ok();
        // The URLs of callbacks may hold secrets, and agents read histories, too.
        let members = turn.request.as_mut().and_then(Value::as_object_mut);
        if let Some(members) = members {
            members.remove("callback");
            // Said by the daemon, and not by whoever sent it.
            members.remove("routed");
        }
    }
    turn.messages = messages(texts(conn, JobId(nat(job)))?);
    turn.last = last.map(|(line, seq)| final_line(&line, nat(seq)));
    Ok(turn)
}

/// What happened besides, as far as there is room; are there more?
fn events(conn: &Connection, job: JobId) -> rusqlite::Result<(Vec<Value>, bool)> {
    let (lines, more) = super::read::events(conn, job, 0)?;
    let mut room = EVENTS;
    let mut events = Vec::new();
    for (seq, line) in lines {
        let told = line.render(None, Some(seq), Telling::First);
        let Ok(mut event) = serde_json::from_str::<Value>(&told) else {
            continue;
        };
        if told.len() > EVENT {
            shorten(&mut event);
        }
        let bytes = event.to_string().len();
        if bytes > room {
            return Ok((events, true));
        }
        room -= bytes;
        events.push(event);
    }
    Ok((events, more))
}

/// Cuts the members of an event that may be long.
fn shorten(event: &mut Value) {
    let Some(members) = event.as_object_mut() else {
        return;
    };
    for name in ["output", "text", "detail", "input"] {
        let Some(member) = members.get_mut(name) else {
            continue;
        };
        let text = member
            .as_str()
            .map_or_else(|| member.to_string(), str::to_owned);
        if let (cut, true) = head(&text, EVENT / 2) {
            *member = Value::String(cut);
        }
    }
}

/// The user's words.
fn prompt(request: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Said {
        text: String,
    }
    serde_json::from_str(request)
        .map(|said: Said| said.text)
        .unwrap_or_default()
}

fn messages(texts: Vec<MessageText>) -> Vec<rows::MessageRow> {
    let mut rows: Vec<rows::MessageRow> = Vec::new();
    let mut room = MESSAGES;
    for text in texts {
        if rows.last().is_none_or(|last| last.message != text.message) {
            if room == 0 {
                break;
            }
            room = room.saturating_sub(MESSAGE);
            rows.push(rows::MessageRow {
                message: text.message,
                offset: 0,
                text: String::new(),
                thinking: String::new(),
                truncated: false,
            });
        }
        let Some(row) = rows.last_mut() else { continue };
        let most = match text.kind {
            TextKind::Text => room,
            TextKind::Thinking => room.min(THINKING),
        };
        let (cut, truncated) = head(&text.text, most);
        room = room.saturating_sub(encoded_len(&cut));
        match text.kind {
            TextKind::Text => (row.text, row.truncated) = (cut, truncated),
            TextKind::Thinking => row.thinking = cut,
        }
    }
    rows
}

fn encoded_len(text: &str) -> usize {
    serde_json::to_string(text).map_or(0, |encoded| encoded.len())
}

/// As it was told, without what makes it long.
fn final_line(line: &str, seq: u64) -> Value {
    let told = Body::stored(line).render(None, Some(seq), Telling::First);
    let mut value: Value =
        serde_json::from_str(&told).unwrap_or_else(|_broken| Value::String(line.to_owned()));
    if line.len() <= FINAL {
        return value;
    }
    if let Some(members) = value.as_object_mut() {
        // What is longest goes first, and is to be had by other questions: messages one by one, the
        // rest as events.
        members.remove("messages");
        members.insert("api_calls".to_owned(), Value::Null);
        members.insert("tool_trace".to_owned(), json!([]));
        members.insert("tool_trace_truncated".to_owned(), Value::Bool(true));
        for (name, room) in [("text", PROMPT), ("error", FINAL - PROMPT)] {
            let cut = members.get(name).and_then(Value::as_str);
            if let Some((cut, true)) = cut.map(|text| head(text, room)) {
                members.insert(name.to_owned(), Value::String(cut));
                members.insert("truncated".to_owned(), Value::Bool(true));
            }
        }
    }
    value
}

/// A piece of one message of a job of that session.
pub(super) fn message(
    conn: &Connection,
    session: &str,
    job: JobId,
    message: u32,
    after: u64,
) -> rusqlite::Result<Loaded> {
    let has_it = conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM texts WHERE job = ?1 AND message = ?2)")?
        .query_row(params![int(job.0), message], |row| row.get::<_, bool>(0))?;
    if !has_it || session_of(conn, session, job)?.is_none() {
        return Ok(Loaded::Message(None));
    }
    let (from, text) = of_message(conn, (job, message), after, MAX_TEXT)?;
    let (piece, truncated) = head(&text, MAX_TEXT);
    Ok(Loaded::Message(Some(rows::MessageRow {
        message,
        offset: from as u64,
        text: piece,
        thinking: String::new(),
        truncated,
    })))
}
