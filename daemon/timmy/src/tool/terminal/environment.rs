//! What a command finds in its environment.
//!
//! Owns the list of variables that pass: a key is in none of them. Must not know processes.

use std::ffi::{OsStr, OsString};

use agentd_protocol::network;

use crate::tool::Surroundings;
use crate::tool::places::{Rules, temporary};

/// Who the user is, and where things are.
const PASSED: &[&str] = &[
    "CARGO_HOME",
    "GOPATH",
    "HOME",
    "JAVA_HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NVM_DIR",
    "PATH",
    "PYENV_ROOT",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "SHELL",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
];
const PASSED_PREFIX: &str = "LC_";
/// Nobody looks at a terminal there: no colours, no pagers, no questions.
const FIXED: &[(&str, &str)] = &[("TERM", "dumb"), ("GIT_TERMINAL_PROMPT", "0")];

/// The environment of a command.
pub(super) fn of(rules: &Rules, around: &Surroundings, network: bool) -> Vec<(OsString, OsString)> {
    let passes = |name: &OsStr, value: &OsStr| {
        let Some(name) = name.to_str() else {
            return false;
        };
        // A proxy's address may have a password in it.
        let is_open = !value.as_encoded_bytes().contains(&b'@');
        PASSED.contains(&name)
            || name.starts_with(PASSED_PREFIX)
            || (network && is_open && network::VARIABLES.contains(&name))
    };
    let mut passed: Vec<_> = rules
        .environment
        .iter()
        .filter(|(name, value)| passes(name, value))
        .cloned()
        .collect();
    passed.extend(
        FIXED
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    passed.push(("TMPDIR".into(), temporary(around).into()));
    // A shell keeps this name of its directory, with the links in it, when it is right (POSIX,
    // `sh`).
    passed.push(("PWD".into(), around.cwd.clone().into()));
    passed
}
