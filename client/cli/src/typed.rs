//! This command as somebody typed it, for commands that we name.
//!
//! Owns which of its options stay, and how a word is quoted. Must not know what is to be done.

use std::borrow::Cow;

use clap::Parser as _;

use super::args::Cli;
use super::{host, output};

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

/// A hint whose commands are for the daemon that this command was for: by the options that say which, or
/// on its machine, where only that will do.
pub(super) fn there(hint: &str) -> String {
    of_there(hint, &words())
}

fn of_there(hint: &str, words: &[String]) -> String {
    let there = daemon_of(words);
    if there.is_empty() {
        return hint.to_owned();
    }
    let mut parts = hint.split("`agentctl ");
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let command = part.split('`').next().unwrap_or_default();
        let line = format!("agentctl{there} {command}");
        // What says itself which daemon it is for can't be given another one.
        let read = shlex::split(&line).and_then(|words| Cli::try_parse_from(words).ok());
        told.push_str(&match read.as_ref().map(host::socket_of) {
            Some(Ok(_)) => format!("`agentctl{there} "),
            Some(Err(target)) => format!("`ssh {target} agentctl "),
            None => "`agentctl ".to_owned(),
        });
        told.push_str(part);
    }
    told
}

pub(super) fn quoted(word: &str) -> String {
    let word = output::safe(word);
    // No argument holds what can't be quoted, which is NUL.
    shlex::try_quote(&word).map_or_else(|_| word.to_string(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_for_the_daemon_that_was_meant() {
        let of = |typed: &str, hint: &str| {
            let typed: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            of_there(hint, &typed)
        };
        let hint = "`agentctl jobs` lists them, `agentctl start` starts it";
        assert_eq!(of("agentctl status", hint), hint);
        assert_eq!(
            of("agentctl --host me@mac status", hint),
            "`agentctl --host me@mac jobs` lists them, `ssh me@mac agentctl start` starts it"
        );
        assert_eq!(
            of("agentctl status --socket /s", "see `agentctl logs`"),
            "see `agentctl --socket /s logs`"
        );
        // What is no command as it stands is left alone.
        let hint = "`agentctl nothing` and `x`";
        assert_eq!(of("agentctl --host mac status", hint), hint);
    }
}
