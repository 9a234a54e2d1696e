//! What a field may look like.
//!
//! Owns the syntax of names, paths, times and labels. Must not know which of them exist.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Send, invalid};
use crate::envelope::Rejected;
use crate::limits::{MAX_FALLBACKS, MAX_KEY, MAX_LABEL, MAX_LABELS, MAX_SESSION_NAME};

pub(super) fn check_send(send: &Send) -> Result<(), Rejected> {
    if send.text.trim().is_empty() {
        return Err(invalid("`text` is blank: expected the user's turn"));
    }
    if let Some(session) = &send.session {
        check_session(session)?;
    }
    check_seconds("timeout", send.timeout)?;
    if send.timeout == Some(0.0) {
        return Err(invalid(
            "`timeout` is 0: expected more, or nothing for an hour",
        ));
    }
    check_seconds("expires", send.expires)?;
    if let Some(key) = &send.idempotency_key
        && (key.is_empty() || key.len() > MAX_KEY)
    {
        let error = format!(
            "`idempotency_key` is {} bytes, expected 1 to {MAX_KEY}",
            key.len()
        );
        return Err(invalid(error));
    }
    check_path("cwd", send.cwd.as_deref())?;
    check_path("cwd_if_new", send.cwd_if_new.as_deref())?;
    check_words(&[
        ("agent", &send.agent),
        ("provider", &send.provider),
        ("model", &send.model),
        ("thinking", &send.thinking),
    ])?;
    check_chain(send.fallback_chain.as_deref().unwrap_or_default())?;
    check_labels(&send.labels)?;
    crate::attachment::check(&send.attachments)?;
    if let Some(callback) = &send.callback {
        callback.clone().check("callback.url")?;
    }
    if let Some(time) = &send.start_at
        && unix_ms(time).is_none()
    {
        return Err(invalid(format!(
            "`start_at` is `{time}`: expected a time like 2026-11-21T19:00:00Z"
        )));
    }
    if let Some(other) = send.include.iter().find(|name| *name != "messages") {
        return Err(invalid(format!(
            "`include` names `{other}`: expected `messages`"
        )));
    }
    Ok(())
}

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

/// An RFC 3339 time as milliseconds since 1970.
#[must_use]
pub fn unix_ms(time: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(time, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

pub(super) fn check_path(name: &str, path: Option<&str>) -> Result<(), Rejected> {
    match path {
        Some(path) if !path.starts_with('/') || path.contains('\0') => Err(invalid(format!(
            "`{name}` is `{path}`: expected an absolute path"
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn check_words(words: &[(&str, &Option<String>)]) -> Result<(), Rejected> {
    for (name, value) in words {
        if let Some(value) = value
            && (value.trim().is_empty()
                || value.len() > 256
                || value.starts_with('-')
                || value.chars().any(char::is_control))
        {
            let error = format!(
                "`{name}` must be 1 to 256 bytes, not blank, without control characters, not starting with `-`"
            );
            return Err(invalid(error));
        }
    }
    Ok(())
}

/// Checks a chain of models: which of them exist, and what a name without a slash means, is for the
/// agent to say.
fn check_chain(chain: &[String]) -> Result<(), Rejected> {
    if chain.len() > MAX_FALLBACKS {
        let count = chain.len();
        return Err(invalid(format!(
            "`fallback_chain` has {count} entries, the limit is {MAX_FALLBACKS}"
        )));
    }
    for entry in chain {
        let half = |(provider, model): (&str, &str)| provider.is_empty() || model.is_empty();
        if entry.split_once('/').is_some_and(half) {
            return Err(invalid(format!(
                "`fallback_chain` has {entry:?}: expected `provider/model`, or a name without a slash"
            )));
        }
        check_words(&[("fallback_chain", &Some(entry.clone()))])?;
    }
    Ok(())
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), Rejected> {
    if labels.len() > MAX_LABELS {
        let count = labels.len();
        return Err(invalid(format!(
            "`labels` has {count} entries, the limit is {MAX_LABELS}"
        )));
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    for (key, value) in labels {
        if key.is_empty() || key.len() > MAX_LABEL || !key.chars().all(fine) {
            return Err(invalid(format!(
                "`labels` has the key {key:?}: expected 1 to {MAX_LABEL} letters, digits and ._/-"
            )));
        }
        if value.len() > MAX_LABEL || value.chars().any(char::is_control) {
            return Err(invalid(format!(
                "the label `{key}` must be at most {MAX_LABEL} bytes, without control characters"
            )));
        }
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
