//! What a read can't find unless the file is damaged, in words for whoever asked.
//!
//! Owns which refusals of SQLite's mean that, and the question whether a job that isn't there must
//! be. Must not know what is done about it (`verify`).

use agentd_protocol::JobId;
use rusqlite::{Connection, Error, ErrorCode, OptionalExtension as _};

use super::columns::nat;

/// What can be done about it, for everybody who is told.
pub(super) const REMEDY: &str = "`agentctl export` and `agentctl backup` save what can be read, \
                                 `agentctl restore` puts an earlier backup in its place";

/// What was found instead of what had been written, if the file is damaged.
pub(super) fn found(error: &Error) -> Option<String> {
    match error {
        Error::SqliteFailure(code, words) => {
            let words = words.clone().unwrap_or_else(|| code.to_string());
            let is_damage = match code.code {
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => true,
                // It has no number of its own for a row, or for what stands in one.
                ErrorCode::Unknown => {
                    words.starts_with("malformed JSON") || words.starts_with("no such rowid")
                }
                _ => false,
            };
            is_damage.then_some(words)
        }
        Error::QueryReturnedNoRows => Some("a row that others lead to isn't there".to_owned()),
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => Some(error.to_string()),
        _ => None,
    }
}

/// Is it about what stands in one row, beside which others can be read?
pub(super) fn is_of_a_value(error: &Error) -> bool {
    error.sqlite_error_code().is_none() && found(error).is_some()
}

/// The whole of it, for whoever asked for what can't be read.
pub(super) fn words(found: &str) -> String {
    format!(
        "the store is damaged: what had been written was expected, and this was found: {found}; \
         hint: `agentctl doctor --full` says what else is, {REMEDY}"
    )
}

/// What to do about a store that can't even be opened for it.
pub(super) fn at_start(error: &Error) -> &'static str {
    match found(error) {
        Some(_damage) => {
            "; it was left as it is; hint: `agentctl doctor --full` says what is damaged, \
             `agentctl restore` puts an earlier backup in its place"
        }
        None => "",
    }
}

/// A job isn't there: must it be? Its number was given out, and it isn't one that was forgotten.
///
/// # Errors
/// When it must: then its row is gone, or its session's.
pub(super) fn if_gone(conn: &Connection, job: i64) -> rusqlite::Result<()> {
    // Numbers are given out one by one, and whatever is forgotten takes what is told of it along.
    let must_be = "SELECT 1 WHERE
        ?1 BETWEEN 1 + coalesce(
            (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned_job'), 0)
            AND coalesce((SELECT max(job) FROM jobs), 0)
        OR EXISTS (SELECT 1 FROM events WHERE events.job = ?1)
        OR EXISTS (SELECT 1 FROM texts WHERE texts.job = ?1)";
    let must_be = conn
        .prepare_cached(must_be)?
        .query_row([job], |_| Ok(()))
        .optional()?;
    match must_be {
        Some(()) => Err(corrupt(gone(job))),
        None => Ok(()),
    }
}

/// Of a job that others lead to.
pub(super) fn gone(job: i64) -> String {
    let job = JobId(nat(job));
    format!("job {job} was accepted, and its row or that of its session is gone")
}

/// As SQLite would say it.
pub(super) fn corrupt(found: String) -> Error {
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Error::SqliteFailure(corrupt, Some(found))
}
