//! What a field may look like.
//!
//! Owns the syntax of names, paths, times and numbers. Must not know which of them exist.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::envelope::{Rejected, invalid};
use crate::limits::{MAX_PAGE, MAX_SESSION_NAME};

/// Checks a session's name: 1 to [`MAX_SESSION_NAME`] of `[A-Za-z0-9._:@/-]`.
///
/// # Errors
/// `invalid-request`, saying what was found.
pub fn check_session(name: &str) -> Result<(), Rejected> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._:@/-".contains(c);
    if name.is_empty() || name.len() > MAX_SESSION_NAME {
        return Err(invalid(format!(
            "`session` is {} bytes, expected 1 to {MAX_SESSION_NAME}",
            name.len()
        )));
    }
    match name.chars().find(|c| !fine(*c)) {
        Some(c) => Err(invalid(format!(
            "`session` contains {c:?}: expected letters, digits and ._:@/-"
        ))),
        None => Ok(()),
    }
}

/// The name of a session whose past is read: as ever, or of one that was closed, with its number, as
/// `main#12`.
///
/// # Errors
/// [`Rejected`] says what is wrong with it.
pub(crate) fn check_session_read(name: &str) -> Result<(), Rejected> {
    match name.split_once('#') {
        Some((closed, number))
            if number.len() < 20
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            check_session(closed)
        }
        Some(_) | None => check_session(name),
    }
}

/// An RFC 3339 time as milliseconds since 1970.
#[must_use]
pub fn unix_ms(time: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(time, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

/// Does a path mean the same to whoever opens it?
pub(crate) fn is_absolute(path: &str) -> bool {
    path.starts_with('/') && !path.contains('\0')
}

pub(crate) fn check_path(name: &str, path: Option<&str>) -> Result<(), Rejected> {
    match path {
        Some(path) if path.contains('\0') => Err(invalid(format!(
            "`{name}` holds a NUL byte, which no path has"
        ))),
        Some(path) if !is_absolute(path) => Err(invalid(format!(
            "`{name}` is `{path}`: expected an absolute path"
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn check_words(words: &[(&str, &Option<String>)]) -> Result<(), Rejected> {
    for (name, value) in words {
        if let Some(value) = value {
            check_word(name, value)?;
        }
    }
    Ok(())
}

/// Checks a word for an agent, such as a model's name or a level.
///
/// # Errors
/// `invalid-request`.
pub fn check_word(name: &str, value: &str) -> Result<(), Rejected> {
    if value.trim().is_empty()
        || value.len() > 256
        // They become words of agents' command lines, where this would be an option.
        || value.starts_with('-')
        || value.chars().any(char::is_control)
    {
        let error = format!(
            "`{name}` must be 1 to 256 bytes, not blank, without control characters, not starting with `-`"
        );
        return Err(invalid(error));
    }
    Ok(())
}

pub(crate) fn check_seconds(name: &str, value: Option<f64>) -> Result<(), Rejected> {
    // A year is longer than any turn, and keeps deadlines far from overflow.
    const MOST: f64 = 31_536_000.0;
    match value {
        Some(seconds) if !(0.0..=MOST).contains(&seconds) => Err(invalid(format!(
            "`{name}` is {seconds}: expected 0 to {MOST} seconds"
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn check_limit(limit: Option<usize>) -> Result<(), Rejected> {
    match limit {
        Some(limit) if !(1..=MAX_PAGE).contains(&limit) => Err(invalid(format!(
            "`limit` is {limit}: expected 1 to {MAX_PAGE}"
        ))),
        _ => Ok(()),
    }
}
