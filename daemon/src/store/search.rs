//! In which turns something was said.
//!
//! Owns what is looked through, and for how long at once. All of it is read, newest first: an index
//! of words would be written with each turn, and nobody searches that often. Must not change
//! anything.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use agentd_core::rfc3339;
use agentd_core::store::Loaded;
use agentd_protocol::{Body, JobId, Line, rows};
use rusqlite::{Connection, Row, params};
use serde::Deserialize;

use super::columns::{closed_as, int, nat, shown};
use super::lists::{phase, session_read};

/// One page looks for so long: others read, too, and whoever waits sees that it goes on.
const TIME: Duration = Duration::from_secs(2);
/// Characters before what was found.
const BEFORE: usize = 30;
/// Characters of an excerpt.
const EXCERPT: usize = 120;

/// What is looked through: the text of a request, and of a final line.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

/// All of a session, or of all.
const TURNS: &str = "
    SELECT jobs.job, sessions.name, sessions.agent, jobs.state, jobs.held, jobs.accepted_at,
        jobs.request, jobs.final
    FROM jobs JOIN sessions ON sessions.id = jobs.session
    WHERE jobs.job < ?1 AND (?2 IS NULL OR jobs.session = ?2)
    ORDER BY jobs.job DESC";

/// A page of the turns in which all words are, `words` in small letters.
pub(super) fn search(
    conn: &Connection,
    words: &[String],
    session: Option<&str>,
    before: Option<JobId>,
    limit: usize,
) -> rusqlite::Result<Loaded> {
    let id = session.map(|name| session_read(conn, name)).transpose()?;
    if id == Some(None) {
        return Ok(page(Vec::new(), None));
    }
    let began = Instant::now();
    let before = before.map_or(i64::MAX, |before| int(before.0));
    let mut statement = conn.prepare_cached(TURNS)?;
    let mut rows = statement.query(params![before, id.flatten()])?;
    let mut found = Vec::new();
    let mut last = None;
    while let Some(row) = rows.next()? {
        if found.len() == limit || (last.is_some() && began.elapsed() > TIME) {
            return Ok(page(found, last));
        }
        last = Some(JobId(nat(row.get(0)?)));
        found.extend(found_in(row, words)?);
    }
    Ok(page(found, None))
}

fn page(turns: Vec<rows::FoundRow>, next: Option<JobId>) -> Loaded {
    let ok = true;
    let body: Body = Line::SessionSearch { ok, turns, next }.body();
    Loaded::Line(body)
}

fn found_in(row: &Row<'_>, words: &[String]) -> rusqlite::Result<Option<rows::FoundRow>> {
    let prompt = text(row.get_ref(6)?.as_str()?);
    let answer = row.get_ref(7)?.as_str_or_null()?.map(text);
    let mut places = None;
    let parts = [("prompt", Some(prompt)), ("answer", answer)].map(|(part, text)| {
        let text = text.unwrap_or_default();
        (part, text.to_lowercase(), text)
    });
    for word in words {
        let mut found = parts
            .iter()
            .filter_map(|part| Some((part, part.1.find(word)?)));
        match found.next() {
            Some(found) => {
                places.get_or_insert(found);
            }
            None => return Ok(None),
        }
    }
    let Some(((part, small, text), at)) = places else {
        return Ok(None);
    };
    // Small letters may take other bytes than large ones: it is counted in characters.
    let at = small.get(..at).map_or(0, |before| before.chars().count());
    let name: String = row.get(1)?;
    Ok(Some(rows::FoundRow {
        job: JobId(nat(row.get(0)?)),
        closed_as: closed_as(&name),
        session: shown(name),
        agent: row.get(2)?,
        state: phase(row.get_ref(3)?.as_str()?, row.get(4)?),
        accepted_at: rfc3339(row.get(5)?),
        part: (*part).to_owned(),
        excerpt: excerpt(text, at),
    }))
}

/// A line of ours that can't be read has nothing to be found in.
fn text(object: &str) -> Cow<'_, str> {
    let said: Result<Said<'_>, _> = serde_json::from_str(object);
    said.map_or(Cow::Borrowed(""), |said| said.text)
}

/// What stands around a character, on one line.
fn excerpt(text: &str, at: usize) -> String {
    let from = at.saturating_sub(BEFORE);
    let mut cut: String = text.chars().skip(from).take(EXCERPT).collect();
    if from > 0
        && let Some(blank) = cut
            .find(char::is_whitespace)
            .filter(|blank| *blank < BEFORE)
    {
        // It begins with a word.
        cut.drain(..blank);
    }
    let words: Vec<&str> = cut.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_excerpt_begins_with_a_word() {
        let text = format!("{}needle in it\nand more", "hay ".repeat(20));
        let shown = excerpt(&text, 80);
        assert!(shown.starts_with("hay hay"), "{shown}");
        assert!(shown.ends_with("needle in it and more"), "{shown}");
        assert_eq!(excerpt("needle", 0), "needle");
    }
}
