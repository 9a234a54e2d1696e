//! What has to hold of `config.toml`, `env` and `webhooks.json`, whatever is in them.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to. Must not be part of the product: it
//! is built for tests and for the fuzzer only.

use std::path::Path;

use super::{
    Change, Config, ConfigError, EditError, EndpointChange, Endpoints, HostEnv, NewAgent, edit,
    endpoints, secrets,
};

/// Where the text is said to be from.
const FILE: &str = "/c/config.toml";
/// All that is said of a line of `env`: it may have a key.
const NO_KEY: &str = "this line is not `KEY=VALUE`";

/// A configuration is taken, or refused with a line that is in it. What a change makes of it reads as
/// just that, and loses no comment.
pub fn toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (file, look) = (Path::new(FILE), HostEnv::default());
    let config = match Config::parse(text, file, &look) {
        Ok(config) => config,
        Err(error) => return told(&error, text),
    };
    for (key, place) in &config.given {
        let line = place.rsplit(':').next().and_then(|line| line.parse().ok());
        assert!(
            line.is_some_and(|line| is_line(line, text)),
            "{key} in {place}"
        );
    }
    let added = Change::Add(
        "fuzzed".to_owned(),
        NewAgent {
            kind: Some("exec".to_owned()),
            command: vec!["/bin/cat".to_owned(), "a \"b\" \\ 'c'".to_owned()],
            ..NewAgent::default()
        },
    );
    let mut changes = vec![added, Change::NoDefault];
    for name in config.agents.keys().take(2) {
        changes.push(Change::Remove(name.clone()));
        changes.push(Change::Default(name.clone()));
    }
    for change in &changes {
        match edit::changed(text, file, &look, change) {
            Ok((fresh, after)) => {
                let again = Config::parse(&fresh, file, &look);
                assert!(
                    again.is_ok_and(|again| again == after),
                    "{change:?} made\n{fresh}"
                );
                if !matches!(change, Change::Remove(_)) {
                    check_comments(text, &fresh);
                }
            }
            Err(EditError::Refused { what, hint }) => assert!(!what.is_empty() && !hint.is_empty()),
            Err(other) => panic!("{other} after {change:?} of\n{text}"),
        }
    }
}

/// Every line of nothing but a comment is still there.
fn check_comments(before: &str, after: &str) {
    // Within a string of several lines it is none, and may be written in another way.
    if before.contains("\"\"\"") || before.contains("'''") {
        return;
    }
    let comments = before
        .lines()
        .filter(|line| line.trim_start().starts_with('#'));
    for comment in comments {
        let kept = after.lines().any(|line| line.trim() == comment.trim());
        assert!(kept, "lost `{comment}` in\n{after}");
    }
}

fn is_line(line: usize, text: &str) -> bool {
    (1..=1 + text.bytes().filter(|byte| *byte == b'\n').count()).contains(&line)
}

fn told(error: &ConfigError, text: &str) {
    match error {
        ConfigError::Wrong { line, what, .. } => {
            assert!(is_line(*line, text), "line {line}: {what}");
            assert!(!what.is_empty());
        }
        other => panic!("{other} is wrong with a text"),
    }
}

/// Keys of agents are read or refused, and no message has one.
pub fn env(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match secrets::parse(text, Path::new("/c/env")) {
        Ok(secrets) => {
            let written: String = secrets
                .iter()
                .map(|(name, value)| format!("{name}='{value}'\n"))
                .collect();
            let again = secrets::parse(&written, Path::new("/c/env"));
            assert!(again.is_ok_and(|again| again == secrets), "{written}");
        }
        Err(error) => {
            told(&error, text);
            let ConfigError::Wrong { what, hint, .. } = error else {
                return;
            };
            assert_eq!((what.as_str(), hint), (NO_KEY, None));
        }
    }
}

/// Endpoints are read or refused, and no message has a secret. They are written as they are read.
pub fn webhooks(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut all = match Endpoints::parse(text) {
        Ok(all) => all,
        Err((line, what)) => {
            assert!(is_line(line, text) && !what.is_empty(), "{line}: {what}");
            return;
        }
    };
    let written = all.text();
    assert_eq!(Endpoints::parse(&written), Ok(all.clone()), "{written}");
    let callback = text.split('"').find(|word| word.contains("://"));
    if let Some(callback) = callback
        && all.check(callback).is_ok()
    {
        let url = reqwest::Url::parse(callback);
        assert!(
            url.is_ok_and(|url| all.of(&url).is_some()),
            "{callback} is nobody's"
        );
    }
    for row in all.rows() {
        let url = match endpoints::base(&row.url) {
            Ok(url) => url,
            Err(why) => panic!("`{}` was taken, and {why}", row.url),
        };
        for change in [
            EndpointChange::Rotate,
            EndpointChange::Retire,
            EndpointChange::Remove,
        ] {
            if let Err(error) = all.changed(&url, &change) {
                assert!(matches!(error, EditError::Refused { .. }), "{error}");
            }
            let written = all.text();
            assert_eq!(
                Endpoints::parse(&written),
                Ok(all.clone()),
                "{change:?}: {written}"
            );
        }
    }
    assert_eq!(all.count(), 0, "some can't be removed");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;

    #[test]
    fn fuzzing_corpus_of_the_configuration_holds() {
        replay("config", toml);
        replay("env", env);
        replay("webhooks", webhooks);
    }
}
