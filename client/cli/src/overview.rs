//! `agentctl --help`: what people do with it, in groups that fit on a screen.
//!
//! Owns the groups. What a command says of itself is `args`'; `agentctl help-all` lists everything
//! there is, and `agentctl COMMAND --help` says it in full.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;

use clap::{Command, CommandFactory as _};

use super::args::Cli;
use super::exit::Exit;
use super::output;

/// The commands of each group, in the order in which somebody meets them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Start here", &["send", "demo", "agents", "doctor"]),
    (
        "Turns",
        &[
            "attach",
            "steer",
            "abort",
            "retry",
            "questions",
            "answer",
            "history",
            "sessions",
            "model",
        ],
    ),
    (
        "Work",
        &[
            "dispatch", "jobs", "ps", "collect", "watch", "usage", "webhook",
        ],
    ),
    ("Agents and models", &["provider", "models"]),
    ("Daemon", &["start", "stop", "restart", "status", "logs"]),
    ("Other machines", &["forward", "voice", "ssh-key", "serve"]),
    ("Setup", &["config", "service", "completions"]),
];

/// Fits on any terminal.
const COLUMNS: usize = 78;

/// Options that may stand before a command.
const ELSEWHERE: [&str; 3] = ["--socket=", "--host=", "--color="];

/// What somebody wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overview {
    /// The groups.
    Groups,
    /// The same, as nothing was asked for.
    Nothing,
    /// Everything.
    All,
}

/// Do the words ask for an overview, and for nothing else?
pub(super) fn asked_for(words: &[OsString]) -> Option<Overview> {
    let mut words = words.iter().skip(1);
    let mut found = Overview::Nothing;
    while let Some(word) = words.next() {
        found = match word.to_str()? {
            "--socket" | "--host" | "--color" => {
                words.next()?;
                continue;
            }
            word if ELSEWHERE.iter().any(|option| word.starts_with(option)) => continue,
            "-h" | "--help" | "help" => Overview::Groups,
            "help-all" | "--help-all" => Overview::All,
            _ => return None,
        };
        if words.next().is_some() {
            return None;
        }
    }
    Some(found)
}

pub(super) fn tell(overview: Overview) -> io::Result<Exit> {
    match overview {
        Overview::Groups => output::out(&groups()).map(|()| Exit::Done),
        Overview::All => {
            let help = Cli::command().render_long_help();
            output::out(&help.to_string()).map(|()| Exit::Done)
        }
        Overview::Nothing => {
            output::err(&groups());
            Ok(Exit::Usage)
        }
    }
}

fn groups() -> String {
    let mut command = Cli::command();
    // What is put off until a command is used is done now.
    command.build();
    let about = command.get_about().map(ToString::to_string);
    let mut text = about.unwrap_or_default();
    text.push_str("\n\nUsage: agentctl [--host HOST] COMMAND\n");
    for (title, names) in GROUPS {
        let _infallible = write!(text, "\n{title}\n");
        for name in names {
            let _infallible = writeln!(text, "  {name:11} {}", line_of(&command, name));
        }
    }
    text.push_str(&more(&command));
    text.push_str(
        "\n--host [USER@]HOST asks the daemon of another machine, --socket PATH another one here.\n\
        `agentctl COMMAND --help` explains a command, `agentctl help-all` lists all of them.\n\
         Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 69 no daemon, 75 outcome unknown,\n\
         78 configuration, 124 timeout, 130 interrupted\n",
    );
    text
}

/// The names of all others, whoever added them.
fn more(command: &Command) -> String {
    let listed = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut text = "\nMore\n ".to_owned();
    let mut taken = 1;
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        let name = inner.get_name();
        if name == "help" || listed(name) {
            continue;
        }
        if taken + name.len() + 1 > COLUMNS {
            text.push_str("\n ");
            taken = 1;
        }
        text.push(' ');
        text.push_str(name);
        taken += name.len() + 1;
    }
    text.push('\n');
    text
}

fn line_of(command: &Command, name: &str) -> String {
    let found = command.find_subcommand(name);
    let about = found.and_then(Command::get_about).map(ToString::to_string);
    about.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overview_names_commands_that_are_there() {
        let mut command = Cli::command();
        command.build();
        for (title, names) in GROUPS {
            for name in names {
                assert!(!line_of(&command, name).is_empty(), "{title}: {name}");
            }
        }
    }

    #[test]
    fn overview_fits_on_a_screen() {
        let shown = groups();
        assert!(shown.lines().count() <= 60, "{shown}");
        for line in shown.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn overview_is_shown_when_nothing_else_is_asked() {
        let asked = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            asked_for(&words)
        };
        assert_eq!(asked("agentctl"), Some(Overview::Nothing));
        assert_eq!(asked("agentctl --host mac --help"), Some(Overview::Groups));
        assert_eq!(asked("agentctl help"), Some(Overview::Groups));
        assert_eq!(asked("agentctl help-all"), Some(Overview::All));
        for other in [
            "agentctl send --help",
            "agentctl help send",
            "agentctl status",
        ] {
            assert_eq!(asked(other), None, "{other}");
        }
    }
}
