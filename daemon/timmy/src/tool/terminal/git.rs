//! What git is told of its user in a sandbox: a configuration without tokens.
//!
//! Owns which settings are in it, and which git is asked. A token may be in any other one: in an
//! address, a header, a helper's command. Must not know sandboxes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::{AccessFlags, access, geteuid};
use tokio::process::Command;

use crate::tool::places::Rules;
use crate::tool::sandbox;

/// The settings without which work in a repository goes wrong, and which tell nothing.
const KEPT: &str = r"^(user\.(name|email)|init\.defaultbranch|safe\.directory|pull\.(rebase|ff)|core\.(autocrlf|eol|safecrlf|filemode|ignorecase|precomposeunicode|quotepath|symlinks)|merge\.conflictstyle|diff\.algorithm)$";
/// What says where git's own configuration is.
const WHERE: &[&str] = &["HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "PATH"];
/// Its name in a session's directory.
const FILE: &str = "gitconfig";
/// Nobody waits longer for it, on whatever disk: git does without.
const WITHIN: Duration = Duration::from_secs(2);

/// The file, in a directory that commands can't write; it is made for a session's first command.
pub(super) async fn configuration(rules: &Rules, cwd: &Path, spill: &Path) -> PathBuf {
    let file = spill.join(FILE);
    if file.is_file() {
        return file;
    }
    let text = written(&asked(rules, cwd).await);
    match std::fs::write(&file, text) {
        Ok(()) => file,
        // An empty one: without the variable git looks for the user's own file.
        Err(_) => "/dev/null".into(),
    }
}

/// What git says of its configuration: each name and value.
async fn asked(rules: &Rules, cwd: &Path) -> Vec<u8> {
    let mut all = sandbox::all_found("git", rules);
    let Some(git) = all.find(|git| is_out_of_reach(git, rules, cwd)) else {
        return Vec::new();
    };
    let mut command = Command::new(git);
    let known = |name: &OsString| WHERE.iter().any(|known| name == known);
    command
        .args([
            "config",
            "--global",
            "--includes",
            "--null",
            "--get-regexp",
            KEPT,
        ])
        .env_clear()
        .envs(
            rules
                .environment
                .iter()
                .filter(|(name, _)| known(name))
                .cloned(),
        )
        // Not in the workspace: a repository there says what a command wants it to.
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let said = tokio::time::timeout(WITHIN, command.output()).await;
    said.ok()
        .and_then(Result::ok)
        .map(|said| said.stdout)
        .unwrap_or_default()
}

/// It is run without a sandbox: could a command, of this session or another one, have put it there?
/// What the user owns may be in any session's workspace.
fn is_out_of_reach(program: &Path, rules: &Rules, cwd: &Path) -> bool {
    let Ok(program) = program.canonicalize() else {
        return false;
    };
    let roots = rules.home.iter().chain(&rules.writable);
    let mut within = roots.map(PathBuf::as_path).chain([cwd]);
    let may_write = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    // A superuser may write everywhere, so that only the roots tell anything.
    !within.any(|root| program.starts_with(root))
        && (geteuid().is_root() || !program.ancestors().any(may_write))
}

/// The same as a file of git's. A name without a value is true.
fn written(said: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in said.split(|byte| *byte == 0) {
        let name_end = entry.iter().position(|byte| *byte == b'\n');
        let (name, value) = entry.split_at(name_end.unwrap_or(entry.len()));
        // None of `KEPT` is in a subsection, whose name would have to be quoted.
        let Some((section, name)) = std::str::from_utf8(name)
            .ok()
            .and_then(|name| name.split_once('.'))
        else {
            continue;
        };
        text.extend_from_slice(format!("[{section}]\n\t{name}").as_bytes());
        if let Some(value) = value.strip_prefix(b"\n") {
            // Always quoted: outside of quotes `#` and `;` begin a comment, and blanks at the end
            // are lost (git-config(1), "Syntax").
            text.extend_from_slice(b" = \"");
            for byte in value {
                match byte {
                    b'\n' => text.extend_from_slice(b"\\n"),
                    b'"' | b'\\' => text.extend_from_slice(&[b'\\', *byte]),
                    byte => text.push(*byte),
                }
            }
            text.push(b'"');
        }
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_settings_are_written_as_git_reads_them() {
        let said = b"user.name\nA \"B\" \\ C\0core.filemode\0user.email\na@b\nc\0";
        let text = String::from_utf8(written(said)).unwrap();
        assert_eq!(
            text,
            "[user]\n\tname = \"A \\\"B\\\" \\\\ C\"\n[core]\n\tfilemode\n\
             [user]\n\temail = \"a@b\\nc\"\n"
        );
    }
}
