//! What has to hold of timmy's tables in `config.toml`, whatever is in them.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to. Must not be part of the product: it
//! is built for tests and for the fuzzer only.

use std::path::Path;

use super::edit::{Change, EditError, changed};
use super::read::ConfigError;
use super::{Config, ProviderConfig};

/// Where the text is said to be from.
const FILE: &str = "/c/config.toml";

/// A configuration is taken, or refused with a line that is in it. What a change makes of it reads as
/// just that, and loses no comment.
pub(crate) fn toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let config = match Config::parse(text, Path::new(FILE)) {
        Ok(config) => config,
        Err(ConfigError::Wrong { line, what, .. }) => {
            let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
            assert!(
                (1..=lines).contains(&line),
                "line {line} of {lines}: {what}"
            );
            return assert!(!what.is_empty());
        }
        Err(other) => panic!("{other} is wrong with a text"),
    };
    for change in changes(&config) {
        match changed(text, Path::new(FILE), &change) {
            Ok((fresh, after)) => {
                let again = Config::parse(&fresh, Path::new(FILE));
                assert!(
                    again.is_ok_and(|again| again == after),
                    "{change:?} made\n{fresh}"
                );
                check_comments(&change, text, &fresh);
            }
            Err(EditError::Refused { what, hint }) => assert!(!what.is_empty() && !hint.is_empty()),
            Err(other) => panic!("{other} after {change:?} of\n{text}"),
        }
    }
}

fn changes(config: &Config) -> Vec<Change> {
    let model = || "ollama/qwen3 \"x\"".to_owned();
    let provider = ProviderConfig {
        base_url: Some("http://127.0.0.1:1/v1".to_owned()),
        wire: None,
        key_env: None,
        context_window: Some(8_192),
        price: None,
    };
    let mut changes = vec![
        Change::Default(Some(model())),
        Change::Default(None),
        Change::AddFallback(model(), Some(1)),
        Change::AddFallback(model(), None),
        Change::ClearFallbacks,
        Change::SetAlias("fuzzed".to_owned(), "ollama/qwen3".to_owned()),
        Change::SetProvider("fuzzed".to_owned(), provider),
    ];
    let models = &config.models;
    changes.extend(
        models
            .fallbacks
            .last()
            .map(|last| Change::RemoveFallback(last.clone())),
    );
    changes.extend(
        models
            .fallbacks
            .last()
            .map(|last| Change::Reorder(vec![last.clone()])),
    );
    changes.extend(
        models
            .aliases
            .keys()
            .next()
            .map(|name| Change::RemoveAlias(name.clone())),
    );
    changes.extend(
        config
            .providers
            .keys()
            .next()
            .map(|name| Change::RemoveProvider(name.clone())),
    );
    changes
}

/// Every line of nothing but a comment is still there. One above what is taken away goes with it.
fn check_comments(change: &Change, before: &str, after: &str) {
    let kept = matches!(
        change,
        Change::Default(Some(_))
            | Change::AddFallback(..)
            | Change::SetAlias(..)
            | Change::SetProvider(..)
    );
    // Within a string of several lines it is none, and may be written in another way.
    if !kept || before.contains("\"\"\"") || before.contains("'''") {
        return;
    }
    for comment in before
        .lines()
        .filter(|line| line.trim_start().starts_with('#'))
    {
        let kept = after.lines().any(|line| line.trim() == comment.trim());
        assert!(kept, "{change:?} lost `{comment}` in\n{after}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzzing_corpus_of_timmys_tables_holds() {
        crate::replay::replay("timmy_config", super::toml);
    }
}
