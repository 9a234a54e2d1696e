//! From the words of a command line to what they say.
//!
//! Owns that only the command which is named is built. Must not know what commands there are.

use std::ffi::OsString;

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser as _};

use super::args::Cli;

/// # Errors
/// What is wrong with the words, or the help that they ask for.
pub(super) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    // Help and errors speak of all commands.
    named(words).map_or_else(|| Cli::try_parse_from(words), Ok)
}

/// What the words say if they name a command and nothing is wrong. clap copies the options that every
/// command has into each of them before it looks at the first word: a sixth of the memory that a short
/// command touches.
fn named(words: &[OsString]) -> Option<Cli> {
    let all = Cli::command();
    // It may be another one's value: then the words mean nothing here, and are read with all commands.
    let command = words
        .iter()
        .skip(1)
        .find_map(|word| all.find_subcommand(word))?;
    let alone = Command::new("agentctl")
        .args(all.get_arguments())
        .subcommand_required(true)
        .subcommand(command);
    let matches = alone.try_get_matches_from(words).ok()?;
    Cli::from_arg_matches(&matches).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_is_named_reads_as_among_all() {
        for (line, is_named) in [
            ("agentctl status --rpc --json", true),
            ("agentctl run hi -s main --host mac --color never", true),
            ("agentctl --socket /s webhook list --json", true),
            ("agentctl --host mac send send", true),
            ("agentctl send -- --socket", true),
            // `send` is a path, and `status` the command.
            ("agentctl --socket send status", false),
            ("agentctl status --host mac --socket /s", false),
            ("agentctl send hi --help", false),
            ("agentctl sned hi", false),
            ("agentctl agents", true),
            ("agentctl agents lits", false),
            ("agentctl --version", false),
            ("agentctl", false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(named(&words).is_some(), is_named, "{line}");
            let shown = |parsed: Result<Cli, clap::Error>| match parsed {
                Ok(cli) => format!("{cli:?}"),
                Err(error) => error.render().to_string(),
            };
            let among_all = shown(Cli::try_parse_from(&words));
            assert_eq!(shown(parse(&words)), among_all, "{line}");
        }
    }
}
