//! What a send may look like.
//!
//! Owns the syntax of its chain and labels. Must not know which models or agents exist.

use std::collections::BTreeMap;

use super::Send;
use super::beginning::{check_history, check_system};
use super::mcp_server::check_servers;
use crate::check::{check_path, check_seconds, check_session, check_words, unix_ms};
use crate::envelope::{Rejected, invalid};
use crate::limits::{MAX_FALLBACKS, MAX_KEY, MAX_LABEL, MAX_LABELS};

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
    check_system(send.system.as_deref())?;
    check_history(&send.history)?;
    check_servers(send.mcp_servers.as_deref().unwrap_or_default())?;
    check_labels(&send.labels)?;
    crate::attachment::check(&send.attachments)?;
    if let Some(callback) = &send.callback {
        callback.check_as("callback.url")?;
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
