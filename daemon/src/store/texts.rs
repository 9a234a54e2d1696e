//! What turns have said, in pieces.
//!
//! Owns the table of them, and how much of it one answer holds. Must not know lines.

use agentd_core::store::{MessageText, Position, TextKind, TextPiece};
use agentd_protocol::JobId;
use rusqlite::{Connection, params};

use super::columns::int;

/// Bytes of a piece, and about so many of the text in one answer: each is read once, whole.
const PIECE: usize = 256 * 1024;
/// Earlier versions kept each message in one piece, of which so much is given at once: it is read
/// whole for that.
const LONG: usize = 2 * 1024 * 1024;

const fn number(kind: TextKind) -> i64 {
    match kind {
        TextKind::Text => 0,
        TextKind::Thinking => 1,
    }
}

/// A piece of a turn in flight.
pub(super) fn add(
    conn: &Connection,
    job: JobId,
    (message, kind, at): (u32, TextKind, u64),
    text: &str,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR REPLACE INTO texts (job, message, kind, at, text)
         SELECT job, ?2, ?3, ?4, ?5 FROM jobs WHERE job = ?1 AND final_seq IS NULL",
    )?
    // A piece that comes behind its job's end is dropped: what stands there is the whole by then.
    .execute(params![int(job.0), message, number(kind), int(at), text])?;
    Ok(())
}

/// What a turn ended with, in place of its pieces so far.
pub(super) fn replace(conn: &Connection, job: i64, texts: &[MessageText]) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM texts WHERE job = ?1")?
        .execute([job])?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO texts (job, message, kind, at, text) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for MessageText {
        message,
        kind,
        text,
    } in texts
    {
        let mut at = 0;
        loop {
            // Once at least: an empty text has a row, too, as its message was begun.
            let end = text.floor_char_boundary(at + PIECE);
            let place = int(at as u64);
            insert.execute(params![job, message, number(*kind), place, &text[at..end]])?;
            if end == text.len() {
                break;
            }
            at = end;
        }
    }
    Ok(())
}

/// The text of a job: its pieces put together, or what it ended with.
pub(super) fn texts(conn: &Connection, job: JobId) -> rusqlite::Result<Vec<MessageText>> {
    let mut statement = conn.prepare_cached(
        "SELECT message, kind, text FROM texts WHERE job = ?1 ORDER BY message, kind, at",
    )?;
    let mut rows = statement.query([int(job.0)])?;
    let mut texts: Vec<MessageText> = Vec::new();
    while let Some(row) = rows.next()? {
        let message = row.get(0)?;
        let kind = match row.get(1)? {
            0_i64 => TextKind::Text,
            _ => TextKind::Thinking,
        };
        let piece = row.get_ref(2)?.as_str()?;
        match texts.last_mut() {
            Some(last) if (last.message, last.kind) == (message, kind) => {
                last.text.push_str(piece);
            }
            _ => texts.push(MessageText {
                message,
                kind,
                text: piece.to_owned(),
            }),
        }
    }
    Ok(texts)
}

/// A portion of the text of a job that has ended, from a place on. Is that the rest of it?
pub(super) fn portion(
    conn: &Connection,
    job: JobId,
    from: Position,
) -> rusqlite::Result<(Vec<TextPiece>, bool)> {
    let mut found = Portion {
        conn,
        job: int(job.0),
        pieces: Vec::new(),
        bytes: 0,
    };
    let mut message = from.messages.saturating_sub(1);
    loop {
        let next: Option<u32> = conn
            .prepare_cached("SELECT min(message) FROM texts WHERE job = ?1 AND message >= ?2")?
            .query_row(params![int(job.0), int(message as u64)], |row| row.get(0))?;
        let Some(next) = next else {
            return Ok((found.pieces, true));
        };
        let begun = next as usize + 1 == from.messages;
        let (thinking, text) = if begun {
            (from.thinking, from.text)
        } else {
            (0, 0)
        };
        for (kind, after) in [(TextKind::Thinking, thinking), (TextKind::Text, text)] {
            if !found.read((next, kind), after)? {
                return Ok((found.pieces, false));
            }
        }
        if !begun && found.pieces.last().is_none_or(|last| last.message != next) {
            // It is told although nothing is said in it.
            found.pieces.push(TextPiece {
                message: next,
                kind: TextKind::Text,
                at: 0,
                text: String::new(),
            });
        }
        message = next as usize + 1;
    }
}

/// A portion that is being read.
struct Portion<'a> {
    conn: &'a Connection,
    job: i64,
    pieces: Vec<TextPiece>,
    bytes: usize,
}

impl Portion<'_> {
    /// Takes what follows a place in one message. Was there room for all of it? No piece is read
    /// for which there is none.
    fn read(&mut self, (message, kind): (u32, TextKind), after: usize) -> rusqlite::Result<bool> {
        let mut places = self.conn.prepare_cached(
            "SELECT at FROM texts WHERE job = ?1 AND message = ?2 AND kind = ?3
                AND at >= ifnull((SELECT max(at) FROM texts
                    WHERE job = ?1 AND message = ?2 AND kind = ?3 AND at <= ?4), 0)
             ORDER BY at",
        )?;
        let mut text = self.conn.prepare_cached(
            "SELECT text FROM texts WHERE job = ?1 AND message = ?2 AND kind = ?3 AND at = ?4",
        )?;
        let from = int(after as u64);
        let mut places = places.query(params![self.job, message, number(kind), from])?;
        while let Some(row) = places.next()? {
            if self.bytes >= PIECE {
                return Ok(false);
            }
            let begins: i64 = row.get(0)?;
            let mut rows = text.query(params![self.job, message, number(kind), begins])?;
            let Some(row) = rows.next()? else { continue };
            let piece = row.get_ref(0)?.as_str()?;
            let begins = usize::try_from(begins).unwrap_or(usize::MAX);
            let from = piece.floor_char_boundary(after.saturating_sub(begins));
            let end = match piece.len() {
                short if short <= PIECE => short,
                _long => piece.floor_char_boundary(from + LONG),
            };
            self.bytes += end - from;
            if from < end {
                self.pieces.push(TextPiece {
                    message,
                    kind,
                    at: begins + from,
                    text: piece[from..end].to_owned(),
                });
            }
            if end < piece.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What follows so many bytes of one message, at least so much of it, and where that begins.
pub(super) fn of_message(
    conn: &Connection,
    (job, message): (JobId, u32),
    after: u64,
    most: usize,
) -> rusqlite::Result<(usize, String)> {
    let mut pieces = conn.prepare_cached(
        "SELECT at, text FROM texts WHERE job = ?1 AND message = ?2 AND kind = 0
            AND at >= ifnull((SELECT max(at) FROM texts
                WHERE job = ?1 AND message = ?2 AND kind = 0 AND at <= ?3), 0)
         ORDER BY at",
    )?;
    let mut pieces = pieces.query(params![int(job.0), message, int(after)])?;
    let after = usize::try_from(after).unwrap_or(usize::MAX);
    let (mut begins, mut text) = (None, String::new());
    while text.len() <= most
        && let Some(row) = pieces.next()?
    {
        let piece = row.get_ref(1)?.as_str()?;
        let at = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(usize::MAX);
        let from = match begins {
            None => piece.floor_char_boundary(after.saturating_sub(at)),
            Some(_) => 0,
        };
        begins.get_or_insert(at + from);
        text.push_str(&piece[from..]);
    }
    Ok((begins.unwrap_or(0), text))
}
