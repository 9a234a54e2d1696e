//! `man`: the manual pages.
//!
//! Owns which pages there are and how the help of a command becomes one. Must not know what a
//! command does: `args` has its words, and the pages of the other programs are written by hand.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::args::{Cli, ManArgs};
use super::exit::Exit;
use super::output;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The pages of the programs that are not this one.
const OTHERS: [(&str, &str); 2] = [
    ("agentd.1", include_str!("../../../packaging/man/agentd.1")),
    ("timmy.1", include_str!("../../../packaging/man/timmy.1")),
];

/// What the first page says of the program's surroundings, as in agentd.1.
const SURROUNDINGS: [(&str, &[(&str, &str)]); 2] = [
    (
        "ENVIRONMENT",
        &[
            (
                "AGENTD_SOCKET",
                "The daemon's socket, when no option names one.",
            ),
            (
                "AGENTD_STATE_DIR, XDG_STATE_HOME",
                "The state: the lock by which the daemon is found, its log, speech that waits, and the \
                 store of a turn that runs without a daemon.",
            ),
            (
                "AGENTD_CONFIG",
                "The configuration file of a turn that runs without a daemon.",
            ),
            (
                "AGENTD_ALIAS",
                "The link to the socket that service install has made.",
            ),
            (
                "AGENTD_SSH_KEY",
                "The private key that ssh uses instead of the default ones: an absolute path.",
            ),
            (
                "XDG_RUNTIME_DIR",
                "Where the socket is when nothing else is said.",
            ),
            (
                "PATH",
                "Where ssh is found, and agentd and timmy when they are not beside agentctl.",
            ),
        ],
    ),
    (
        "FILES",
        &[
            ("$XDG_RUNTIME_DIR/agentd/agentd.sock", "the socket"),
            ("~/.config/agentd/config.toml", "the configuration"),
            ("~/.local/state/agentd/spool", "speech that waits"),
            ("~/.config/systemd/user/agentd*", "the service's units"),
            ("~/.local/state/agentd/http.token", "what opens HTTP"),
        ],
    ),
];

pub(super) fn man(args: &ManArgs) -> io::Result<Exit> {
    let pages = pages()?;
    match write(&args.to, &pages) {
        Ok(()) => {
            output::out_line(&format!("{} pages in {}", pages.len(), args.to.display()))?;
            Ok(Exit::Done)
        }
        Err((at, error)) => {
            output::error(
                &format!("cannot write `{at}`: {error}"),
                Some("name a directory that you may write to"),
            );
            Ok(Exit::Failed)
        }
    }
}

fn write(dir: &Path, pages: &[(String, Vec<u8>)]) -> Result<(), (String, io::Error)> {
    let at = |path: &Path| path.display().to_string();
    fs::create_dir_all(dir).map_err(|error| (at(dir), error))?;
    for (name, page) in pages {
        let path = dir.join(name);
        fs::write(&path, page).map_err(|error| (at(&path), error))?;
    }
    Ok(())
}

/// All pages, each with the name of its file.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut pages = Vec::new();
    // `help` has nothing to say that the pages don't.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    collect(&command, None, &mut pages)?;
    let others = OTHERS.map(|(name, page)| {
        let page = page.replace("@VERSION@", VERSION);
        (name.to_owned(), page.into_bytes())
    });
    pages.extend(others);
    Ok(pages)
}

/// The page of a command, and those of its commands.
fn collect(
    command: &Command,
    above: Option<&str>,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name());
    let man = Man::new(command.clone());
    // Not by the library, which leaves an empty date out: what follows would stand in its place.
    let title = format!(".TH {name} 1 \"\" \"agentd {VERSION}\" agentd\n");
    let mut page = title.into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    if let Some(help) = command.get_after_help() {
        after_help(&mut rest, &help.to_string());
    }
    if above.is_none() {
        surroundings(&mut rest);
    }
    see_also(&mut rest, above);
    rest.to_writer(&mut page)?;
    pages.push((man.get_filename(), page));
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        collect(inner, Some(name), pages)?;
    }
    Ok(())
}

/// What stands below the options in the help: examples, indented and kept as they are, then notes.
fn after_help(roff: &mut Roff, help: &str) {
    let mut notes = Vec::new();
    let mut in_examples = false;
    for line in help.lines() {
        if line == "Examples:" {
            roff.control("SH", ["EXAMPLES"]).control("nf", []);
            in_examples = true;
        } else if in_examples && line.starts_with("  ") {
            roff.text([bold(line.trim_start())]);
        } else {
            if in_examples {
                roff.control("fi", []);
                in_examples = false;
            }
            notes.push(line);
        }
    }
    if in_examples {
        roff.control("fi", []);
    }
    let notes: Vec<&str> = notes
        .into_iter()
        .skip_while(|line| line.is_empty())
        .collect();
    if notes.is_empty() {
        return;
    }
    roff.control("SH", ["NOTES"]);
    for line in notes {
        if line.is_empty() {
            roff.control("PP", []);
        } else {
            roff.text([roman(line)]);
        }
    }
}

fn surroundings(roff: &mut Roff) {
    for (section, entries) in SURROUNDINGS {
        roff.control("SH", [section]);
        for (name, text) in entries {
            roff.control("TP", []).text([bold(*name)]);
            roff.text([roman(*text)]);
        }
    }
}

/// The page above this one, and those of the other programs.
fn see_also(roff: &mut Roff, above: Option<&str>) {
    roff.control("SH", ["SEE ALSO"]);
    if let Some(above) = above {
        roff.control("BR", [above, "(1),"]);
    }
    roff.control("BR", ["agentd", "(1),"]);
    roff.control("BR", ["timmy", "(1)"]);
}
