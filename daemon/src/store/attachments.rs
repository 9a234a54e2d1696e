//! The contents of attachments: written with their job, read when its turn begins.
//!
//! Owns their table. What each of them is, the job's request says. Must not know who gets them.

use std::path::Path;

use agentd_core::attached::{Attached, Content};
use agentd_protocol::JobId;
use agentd_protocol::attachment::Attachment;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::columns::int;
use super::schema::{FILE, reopen_to_read};

/// What is read of a request.
#[derive(serde::Deserialize)]
struct StoredRequest {
    #[serde(default)]
    attachments: Vec<Attachment>,
}

/// Writes the contents of a new job's attachments.
pub(super) fn put(conn: &Connection, job: i64, contents: &[Content]) -> rusqlite::Result<()> {
    for (place, content) in (0_i64..).zip(contents) {
        conn.prepare_cached("INSERT INTO attachments (job, place, content) VALUES (?1, ?2, ?3)")?
            .execute(params![job, place, content.bytes()])?;
    }
    Ok(())
}

/// Reads the attachments of an accepted job of the store in `dir`, beside the writer.
///
/// # Errors
/// Says why they can't be read, in words for a person.
pub fn of_job(dir: &Path, job: JobId) -> Result<Vec<Attached>, String> {
    let read = || {
        let conn = reopen_to_read(&dir.join(FILE))?;
        let request = "SELECT request FROM jobs WHERE job = ?1";
        let request: Option<String> = conn
            .query_row(request, [int(job.0)], |row| row.get(0))
            .optional()?;
        let contents = "SELECT content FROM attachments WHERE job = ?1 ORDER BY place";
        let contents: Vec<Vec<u8>> = conn
            .prepare(contents)?
            .query_map([int(job.0)], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        Ok((request, contents))
    };
    let (request, contents) = read().map_err(|error: rusqlite::Error| error.to_string())?;
    let known = attachments(request.as_deref().unwrap_or_default());
    // Read one after the other: of a job that was forgotten in between the numbers differ.
    if known.len() != contents.len() {
        let (found, expected) = (contents.len(), known.len());
        return Err(format!(
            "the store has {found} of its {expected} attachments"
        ));
    }
    let attached = known
        .into_iter()
        .zip(contents)
        .map(|(of, content)| Attached {
            name: of.name,
            mime: of.mime.unwrap_or_default(),
            content: Content::new(content),
        });
    Ok(attached.collect())
}

/// What a request says of its attachments.
pub(super) fn attachments(request: &str) -> Vec<Attachment> {
    serde_json::from_str(request)
        .map_or_else(|_broken| Vec::new(), |of: StoredRequest| of.attachments)
}
