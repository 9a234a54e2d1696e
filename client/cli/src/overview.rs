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
use super::{built_in, output};

/// A group of the overview.
struct Group {
    title: &'static str,
    /// With what each does, in the order in which somebody meets them.
    shown: &'static [&'static str],
    /// By their names alone: with a line each, all of them are more than a screen.
    also: &'static [&'static str],
}

const GROUPS: [Group; 7] = [
    Group {
        title: "Start here",
        shown: &["send", "demo", "agents", "doctor"],
        also: &[],
    },
    Group {
        title: "Turns",
        shown: &[
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
        also: &["agent", "route", "compact"],
    },
    Group {
        title: "Work",
        shown: &[
            "dispatch", "jobs", "ps", "collect", "cron", "watch", "usage",
        ],
        also: &[],
    },
    Group {
        title: "Agents and models",
        shown: &["provider", "models", "bench"],
        also: &[],
    },
    Group {
        title: "Daemon",
        shown: &["start", "stop", "restart", "status", "logs"],
        also: &[
            "log-level",
            "metrics",
            "drain",
            "undrain",
            "backup",
            "restore",
            "export",
        ],
    },
    Group {
        title: "Other machines and programs",
        shown: &["forward", "voice", "ssh-key", "serve"],
        also: &["webhook", "token", "stdio", "nc"],
    },
    Group {
        title: "Setup",
        shown: &["config", "service"],
        also: &["completions", "man"],
    },
];

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
        // Help about the list of everything is that list.
        let is_more = |word: &OsString| word != "--help" && word != "-h";
        let has_more = match found {
            Overview::All => words.any(is_more),
            Overview::Groups | Overview::Nothing => words.next().is_some(),
        };
        if has_more {
            return None;
        }
    }
    Some(found)
}

/// `help COMMAND` of a command that is another program's is that one's to say.
pub(super) fn passed_on(words: &[OsString]) -> Option<Vec<OsString>> {
    let help = words.iter().position(|word| word == "help")?;
    let command = words.get(help + 1)?.to_str()?;
    let is_ours = built_in::COMMANDS.iter().all(|(name, _)| *name != command);
    // What stands before it is an option, or its value.
    if is_ours || asked_for(&words[..=help]) != Some(Overview::Groups) {
        return None;
    }
    let others = words[..help].iter().chain(&words[help + 1..]);
    Some(others.cloned().chain(["--help".into()]).collect())
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
    for group in &GROUPS {
        let _infallible = write!(text, "\n{}\n", group.title);
        for name in group.shown {
            let _infallible = writeln!(text, "  {name:11} {}", line_of(&command, name));
        }
        if !group.also.is_empty() {
            let _infallible = writeln!(text, "  also: {}", group.also.join(", "));
        }
    }
    text.push_str(
        "\n--host [USER@]HOST asks the daemon of another machine, --socket PATH another one here.\n\
        `agentctl COMMAND --help` explains a command, `agentctl help-all` lists all of them.\n\
         Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 69 no daemon, 75 outcome unknown,\n\
         78 configuration, 124 timeout, 130 interrupted\n",
    );
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
    fn overview_has_every_command_in_one_group() {
        let mut command = Cli::command();
        command.build();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let visible = visible
            .map(Command::get_name)
            .filter(|name| *name != "help");
        let mut expected: Vec<&str> = visible.collect();
        let named = GROUPS.iter().flat_map(|group| [group.shown, group.also]);
        let mut named: Vec<&str> = named.flatten().copied().collect();
        expected.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, expected);
        for name in named {
            assert!(!line_of(&command, name).is_empty(), "{name}");
        }
    }

    #[test]
    fn overview_fits_on_a_screen() {
        let shown = groups();
        let lines = shown.lines().count();
        assert!(lines <= 60, "{lines}: {shown}");
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
        for all in ["help-all", "--help-all", "help-all --help", "help-all -h"] {
            assert_eq!(asked(&format!("agentctl {all}")), Some(Overview::All));
        }
        let passed = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let passed = passed_on(&words)?;
            Some(passed.join(std::ffi::OsStr::new(" ")))
        };
        for (words, passed_on) in [
            ("agentctl help provider", Some("agentctl provider --help")),
            (
                "agentctl --color never help models aliases",
                Some("agentctl --color never models aliases --help"),
            ),
            ("agentctl help send", None),
            ("agentctl send help provider", None),
            ("agentctl help", None),
        ] {
            assert_eq!(passed(words), passed_on.map(OsString::from), "{words}");
        }
        for other in [
            "agentctl send --help",
            "agentctl help send",
            "agentctl help-all send",
            "agentctl status",
        ] {
            assert_eq!(asked(other), None, "{other}");
        }
    }
}
