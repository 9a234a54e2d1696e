//! `provider` and `models`: the built-in agent's own program takes them over.
//!
//! Owns nothing but its place. Its input, its terminal and its exit code are that program's: a key
//! is typed there, and never comes through here.

use std::os::unix::process::CommandExt as _;

use super::args::PassedArgs;
use super::exit::Exit;
use super::output;
use agentd_client::oneshot;

/// What that program takes behind each of the two words, for completion.
pub(super) const COMMANDS: [(&str, &[&str]); 2] = [
    ("provider", &["add", "list", "remove", "test"]),
    (
        "models",
        &["aliases", "default", "fallbacks", "list", "status"],
    ),
];

/// Becomes `timmy COMMAND WORDS`; comes back only when that can't be started.
pub(super) fn run(command: &str, args: &PassedArgs) -> Exit {
    let program = oneshot::sibling("timmy");
    let mut timmy = std::process::Command::new(&program);
    // What it tells people to type begins as what they typed.
    timmy.arg0("agentctl").arg(command).args(&args.words);
    let error = timmy.exec();
    output::error(
        &format!("cannot start `{}`: {error}", program.display()),
        Some("put `timmy` next to `agentctl`, or on `PATH`"),
    );
    Exit::Configuration
}
