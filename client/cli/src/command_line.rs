//! From the words of a command line to what they say.
//!
//! Owns that only the command which is named is built. Must not know what commands there are, but for
//! those that other programs start again and again.

use std::ffi::OsString;

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::args::{self, Cli, EverywhereArgs, SendArgs, ServeArgs, StatusArgs};

/// Command lines that are read by themselves. What isn't one, or asks for help, is read with all
/// commands, which costs a short one as much again: so nothing is said of these here.
#[derive(Parser)]
#[command(name = "agentctl", disable_help_subcommand = true)]
struct Often {
    #[command(flatten)]
    everywhere: EverywhereArgs,
    #[command(subcommand)]
    command: OftenCommand,
}

#[derive(Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant, reason = "there is one, for a moment")]
enum OftenCommand {
    Send(SendArgs),
    Serve(ServeArgs),
    Status(StatusArgs),
}

/// # Errors
/// What is wrong with the words, or the help that they ask for.
pub(super) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let read = often(words).or_else(|| named(words));
    // Help and errors speak of all commands.
    read.map_or_else(|| Cli::try_parse_from(words), Ok)
}

/// What the words say if they are one of these.
fn often(words: &[OsString]) -> Option<Cli> {
    let is_often = |word: &OsString| word.to_str().is_some_and(OftenCommand::has_subcommand);
    words.iter().skip(1).find(|word| is_often(word))?;
    let Often {
        everywhere,
        command,
    } = Often::try_parse_from(words).ok()?;
    let command = match command {
        OftenCommand::Send(args) => args::Command::Send(args),
        OftenCommand::Serve(args) => args::Command::Serve(args),
        OftenCommand::Status(args) => args::Command::Status(args),
    };
    Some(Cli {
        everywhere,
        command,
    })
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
        for line in [
            "agentctl status --rpc --json",
            "agentctl send hi -s main --host mac --color never",
            "agentctl --socket /s serve http --listen 127.0.0.1:1",
            "agentctl --host mac send send",
            "agentctl send -- --socket",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(often(&words).is_some(), "{line}");
        }
        for (line, is_named) in [
            ("agentctl status --rpc --json", true),
            ("agentctl serve http --listen 127.0.0.1:1", true),
            ("agentctl serve", false),
            ("agentctl serve bridge --once", true),
            ("agentctl jobs --label send", true),
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
