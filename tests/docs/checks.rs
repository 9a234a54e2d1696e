//! What can be said of a block without doing what it says.
//!
//! Owns what each language and mark asks for. Must not know what happens when a block is run.

use std::process::Command;

use agentd_cli::args::Cli;
use agentd_protocol::{Envelope, Request};
use clap::Parser as _;

use crate::blocks::{Block, Mark};
use crate::support::{AGENTCTL, AGENTD, Finished, Place, TIMMY, finish, needs};

/// A word that no command line holds, behind each of them.
const END: &str = "\u{1}";

pub fn check(block: &Block) -> Result<(), String> {
    let text = block.text.as_str();
    match (block.language.as_str(), &block.mark) {
        // `chapter` runs these, and compares what they print.
        ("sh" | "python", Mark::Run) | ("text", Mark::Output | Mark::OutputInAnyOrder) => Ok(()),
        ("sh", Mark::NotRun(_)) => shell(text),
        ("python", Mark::NotRun(_)) => python(text),
        ("toml", Mark::None) => configuration(text),
        ("toml", Mark::NotRun(_)) => toml(text),
        ("json", Mark::None) => text.lines().try_for_each(request),
        // The tests of the TypeScript package run these.
        ("ts", Mark::None) if block.document.ends_with("programs.md") => Ok(()),
        // Doctests of the client compile these.
        ("rust,no_run", Mark::None) if block.document.ends_with("programs.md") => Ok(()),
        ("rust", Mark::None) if crate::compiled_elsewhere(block) => Ok(()),
        ("rust", Mark::None) => {
            Err("docs/src/programs.md has no block with these lines".to_owned())
        }
        (language, mark) => Err(format!(
            "a block of `{language}` that is neither run nor checked ({mark:?}): expected \
             `<!-- ci: run -->`, `<!-- ci: output -->` or `<!-- not run: needs X -->` on the line before it"
        )),
    }
}

/// The shell itself takes the words apart: it runs the block with nothing on its `PATH` but our
/// programs, and of these such as only write down how they were called.
fn shell(text: &str) -> Result<(), String> {
    let place = Place::new("");
    let stubs = place.path("stubs");
    std::fs::create_dir(&stubs).unwrap();
    for program in ["agentctl", "agentd", "timmy"] {
        let script = format!("printf '%s\\0' {program} \"$@\" '{END}' >>\"$CALLS\"");
        crate::support::program(&stubs, program, &script);
    }
    let script = format!(
        "command_not_found_handle() {{ return 0; }}\nkill() {{ :; }}\nexec() {{ :; }}\n{text}\nwait\n"
    );
    let mut bash = place.command("bash");
    bash.env("CALLS", place.path("calls"))
        .env("PATH", &stubs)
        .args(["-c", &script]);
    // It finds `bash` by our own path.
    let bash = resolved(bash);
    let ran = finish(bash, b"");
    if ran.stderr.contains("syntax error") {
        return Err(ran.stderr);
    }
    let calls = std::fs::read_to_string(place.path("calls")).unwrap_or_default();
    let calls: Vec<Vec<&str>> = calls
        .split(&format!("{END}\0"))
        .filter(|call| !call.is_empty())
        .map(|call| call.trim_end_matches('\0').split('\0').collect())
        .collect();
    let written = written(text);
    if calls.len() < written {
        return Err(format!(
            "calls our programs {written} times, and the shell came by {} of them: {calls:?}\n{}",
            calls.len(),
            ran.stderr
        ));
    }
    calls.iter().try_for_each(|words| call(&place, words))
}

fn resolved(command: Command) -> Command {
    let bash = needs("bash").expect("the tests need bash");
    let mut resolved = Command::new(bash);
    resolved.args(command.get_args()).env_clear();
    for (name, value) in command.get_envs() {
        resolved.env(name, value.unwrap());
    }
    resolved.current_dir(command.get_current_dir().unwrap());
    resolved
}

/// How often our programs are called, as far as the text shows it.
fn written(text: &str) -> usize {
    let mut count = 0;
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        for program in ["agentctl ", "agentd ", "timmy "] {
            let called = |at: usize| {
                let before = line[..at].trim_end();
                before.is_empty() || before.ends_with(['|', ';', '&', '('])
            };
            count += line
                .match_indices(program)
                .filter(|(at, _)| called(*at))
                .count();
        }
    }
    count
}

/// Would the program take these words?
fn call(place: &Place, words: &[&str]) -> Result<(), String> {
    let shown = words.join(" ");
    let (program, rest) = match words {
        // What an agent can be asked with, agentctl itself asks.
        ["agentctl", "models", "list", of, ..] if of.starts_with("--") => {
            (AGENTCTL, words[1..].to_vec())
        }
        ["agentctl", which @ ("provider" | "models"), rest @ ..] => {
            (TIMMY, [&[*which], rest].concat())
        }
        ["agentctl", ..] => {
            return match Cli::try_parse_from(words) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("`{shown}`: {error}")),
            };
        }
        ["timmy", rest @ ..] => (TIMMY, rest.to_vec()),
        [_, rest @ ..] => (AGENTD, rest.to_vec()),
        [] => return Ok(()),
    };
    // What is wrong with the words before it is told first.
    let mut command = place.command(program);
    command.args(rest).arg("--help");
    let said = finish(command, b"");
    if said.code == Some(0) {
        Ok(())
    } else {
        Err(format!("`{shown}`: {}", said.stderr))
    }
}

fn python(text: &str) -> Result<(), String> {
    let Some(python) = needs("python3") else {
        return Ok(());
    };
    let mut command = Command::new(python);
    command.args(["-c", "import ast, sys; ast.parse(sys.stdin.read())"]);
    worked(finish(command, text.as_bytes()))
}

/// As the daemon and timmy read it.
fn configuration(text: &str) -> Result<(), String> {
    let place = Place::new(text);
    worked(place.agentctl(&["config", "show"]))?;
    worked(place.agentctl(&["provider", "list"]))
}

fn toml(text: &str) -> Result<(), String> {
    let read: Result<toml::Table, _> = text.parse();
    read.map(drop).map_err(|error| error.to_string())
}

fn request(line: &str) -> Result<(), String> {
    let envelope =
        Envelope::parse(line.as_bytes()).map_err(|(_, why)| format!("{line}: {why:?}"))?;
    let decoded = Request::decode(&envelope).map_err(|why| format!("{line}: {why:?}"))?;
    match decoded.ignored.as_slice() {
        [] => Ok(()),
        ignored => Err(format!("{line}: {ignored:?}")),
    }
}

fn worked(finished: Finished) -> Result<(), String> {
    match finished.code {
        Some(0) => Ok(()),
        _ => Err(format!("{finished:?}")),
    }
}

/// The programs, built.
pub fn programs() -> &'static str {
    AGENTCTL.rsplit_once('/').unwrap().0
}
