//! What a provider's error says: its code, its words, and how long to wait.
//!
//! Owns the shapes that errors come in, and what of them may be shown. Must not know what an error
//! means (`failover` does).

use std::time::{Duration, SystemTime};

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

/// What is kept of an error's words: enough for a person, and little enough to be logged.
pub(crate) const MOST_TEXT: usize = 2048;
/// Nobody waits longer than a day; a longer answer is a slip of the provider's clock or ours.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// A shorter key would be found in ordinary words.
const SHORTEST_KEY: usize = 8;
/// How the keys of known houses begin.
const KEY_PREFIXES: &[&str] = &[
    "sk-", "sk_", "gsk_", "xai-", "AIza", "AQ.", "pplx-", "nvapi-", "hf_", "r8_",
];

/// What an error says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ErrorDetails {
    /// The provider's own code or type for it.
    pub(crate) code: Option<String>,
    /// Its words.
    pub(crate) text: String,
    /// How long it wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

/// Reads the body of an HTTP error.
pub(crate) fn body(raw: &str) -> ErrorDetails {
    match serde_json::from_str::<Value>(raw) {
        Ok(value) => error(&value),
        Err(_) => ErrorDetails {
            text: plain(raw),
            ..ErrorDetails::default()
        },
    }
}

/// Reads an error, whole or the inside of its `error` field.
pub(crate) fn error(value: &Value) -> ErrorDetails {
    // Gemini's stream puts its error into a list.
    let value = value
        .as_array()
        .and_then(|list| list.first())
        .unwrap_or(value);
    let inner = match &value["error"] {
        Value::Object(_) => &value["error"],
        _ => value,
    };
    let text = [
        &inner["message"],
        &value["error"],
        &inner["detail"],
        &inner["msg"],
    ]
    .into_iter()
    .find_map(words)
    .unwrap_or_else(|| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    // A gateway says what it heard from behind it.
    let behind = words(&inner["metadata"]["raw"]).filter(|raw| !text.contains(raw.as_str()));
    let text = match behind {
        Some(raw) => format!("{text}: {raw}"),
        None => text,
    };
    ErrorDetails {
        code: code(value, inner),
        retry_after: details_wait(inner).or_else(|| said_wait(&text)),
        text,
    }
}

/// A word says more than a number, and a number more than a word that everybody uses; unless the
/// number only repeats the status.
fn code(value: &Value, inner: &Value) -> Option<String> {
    let candidates = [
        &inner["code"],
        &inner["type"],
        &inner["status"],
        &value["code"],
    ];
    let all = candidates.into_iter().filter_map(|value| match value {
        Value::String(code) if !code.is_empty() => Some(code.clone()),
        Value::Number(code) => Some(code.to_string()),
        _ => None,
    });
    let worth = |code: &String| match code.parse::<u64>() {
        Ok(100..600) => 3,
        Ok(_) => 1,
        Err(_) if matches!(code.as_str(), "error" | "invalid_request_error") => 2,
        Err(_) => 0,
    };
    all.min_by_key(worth)
}

fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        Value::Array(list) if !list.is_empty() => Some(Value::Array(list.clone()).to_string()),
        _ => None,
    }
}

/// What isn't JSON: a page of a proxy is told by its title.
fn plain(raw: &str) -> String {
    let start = raw.trim_start();
    let is_page = start.starts_with('<');
    if !is_page {
        return start.trim_end().to_owned();
    }
    let lower = start.to_ascii_lowercase();
    let between = |from: &str, to: &str| {
        let (at, end) = (lower.find(from)? + from.len(), lower.find(to)?);
        start
            .get(at..end)
            .map(str::trim)
            .filter(|text| !text.is_empty())
    };
    match between("<title>", "</title>").or_else(|| between("<h1>", "</h1>")) {
        Some(title) => format!("an HTML page instead of an answer: {title}"),
        None => "an HTML page instead of an answer".to_owned(),
    }
}

/// Google's `RetryInfo`.
fn details_wait(inner: &Value) -> Option<Duration> {
    let details = inner["details"].as_array()?;
    let delay = details
        .iter()
        .find_map(|detail| detail["retryDelay"].as_str())?;
    duration(delay)
}

/// `Please try again in 7.66s.`
fn said_wait(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower
        .split_once("try again in ")
        .or_else(|| lower.split_once("retry in "))?;
    let word: String = rest
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '.')
        .collect();
    duration(word.trim_end_matches('.'))
}

/// `34s`, `1m26.4s`, `2h`, `850ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .filter(|at| *at > 0)?;
        let (number, unit) = rest.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let end = unit
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(unit.len());
        let (unit, next) = unit.split_at(end);
        total += number
            * match unit {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        rest = next;
    }
    Duration::try_from_secs_f64(total)
        .ok()
        .map(|wait| wait.min(LONGEST_WAIT))
}

/// The headers that say how long to wait: milliseconds, seconds or a date.
pub(crate) fn header_wait<'a>(
    header: impl Fn(&str) -> Option<&'a str>,
    now: SystemTime,
) -> Option<Duration> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let exact = header("retry-after-ms")
        .and_then(number)
        .map(|millis| millis / 1000.0);
    // Milliseconds are some houses' own; RFC 9110 (10.2.3) knows seconds and a date.
    let wait = exact.or_else(|| number(header("retry-after")?));
    let wait = match wait {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        None => {
            let date = OffsetDateTime::parse(header("retry-after")?.trim(), &Rfc2822).ok()?;
            let date = SystemTime::from(date);
            // A date that has passed means now.
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

/// Words without keys, and not too many.
pub(crate) fn shown(text: &str, key: Option<&str>) -> String {
    let text = match key.filter(|key| key.len() >= SHORTEST_KEY) {
        Some(key) => text.replace(key, "…"),
        None => text.to_owned(),
    };
    // Cut before it is searched: an error may be as long as its sender likes.
    cut(&without_keys(cut(&text, 2 * MOST_TEXT)), MOST_TEXT).to_owned()
}

/// The most of a text that fits.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Whatever looks like a key, ours or not: providers repeat what they were given.
fn without_keys(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*');
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_bearer = false;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, next) = rest.split_at(end);
        let prefix = KEY_PREFIXES
            .iter()
            .find(|prefix| word.starts_with(**prefix));
        match prefix {
            Some(prefix) if word.len() >= prefix.len() + SHORTEST_KEY => {
                clean.push_str(prefix);
                clean.push('…');
            }
            _ if after_bearer && word.len() >= SHORTEST_KEY => clean.push('…'),
            _ => clean.push_str(word),
        }
        if !word.is_empty() {
            after_bearer = word.eq_ignore_ascii_case("bearer");
        }
        let between = next.find(is_part).unwrap_or(next.len());
        clean.push_str(&next[..between]);
        rest = &next[between..];
    }
    clean
}

#[cfg(test)]
mod tests;
