//! This command as somebody typed it, for commands that we name.
//!
//! Owns which of its options stay, and how a word is quoted. Must not know what is to be done.

use std::borrow::Cow;

use super::output;

/// This command, as it was typed.
pub(super) fn words() -> Vec<String> {
    let words = std::env::args_os();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// The options of this command that say which daemon, to stand behind `agentctl`.
pub(super) fn which_daemon() -> String {
    daemon_of(&words())
}

/// The options that say which daemon, as they were typed.
pub(super) fn daemon_of(words: &[String]) -> String {
    let mut there = String::new();
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            // What follows is said to the agent.
            "--" => break,
            "--socket" | "--host" => {
                let value = words.next().map(|value| quoted(value)).unwrap_or_default();
                there.push_str(&format!(" {word} {value}"));
            }
            word if word.starts_with("--socket=") || word.starts_with("--host=") => {
                there.push_str(&format!(" {}", quoted(word)));
            }
            _ => {}
        }
    }
    there
}

pub(super) fn quoted(word: &str) -> String {
    let word = output::safe(word);
    // No argument holds what can't be quoted, which is NUL.
    shlex::try_quote(&word).map_or_else(|_| word.to_string(), Cow::into_owned)
}
