//! The one-shot: `agentd --stdio`, run once when no daemon takes the request.
//!
//! Owns finding the program, starting it and waiting for its end. Must not know when this is right
//! (`fallback`), nor what is said to it (`connection`).

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::fallback::Reason;

/// How long the one-shot gets to open its store and answer `hello`: it may have to migrate.
pub const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long it gets to leave after its final line: it stops its worker first.
pub const LEAVE_PATIENCE: Duration = Duration::from_secs(20);

/// What a one-shot is for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Asks {
    /// Anything.
    #[default]
    Anything,
    /// What is stored: it is read where it can't be written, too.
    Stored,
}

/// A running one-shot.
#[derive(Debug)]
pub struct OneShot {
    child: Child,
    /// Why it runs.
    pub reason: Reason,
}

impl OneShot {
    /// Starts it and returns its standard output and input.
    ///
    /// # Errors
    /// When there is no such program or it can't be started.
    pub fn start(reason: Reason, asks: Asks) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        Self::run(&program(), reason, asks)
    }

    fn run(
        program: &PathBuf,
        reason: Reason,
        asks: Asks,
    ) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let past = (asks == Asks::Stored).then_some("--past");
        let mut child = Command::new(program)
            .args(["--stdio", "--fallback-reason", reason.name()])
            .args(past)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It says itself why it can't serve, to whoever started us.
            .stderr(Stdio::inherit())
            // The terminal's Ctrl-C is ours: it reaches the turn as an `abort`.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("cannot start `{}`: {error}", program.display()),
                )
            })?;
        match (child.stdout.take(), child.stdin.take()) {
            (Some(stdout), Some(stdin)) => Ok((Self { child, reason }, stdout, stdin)),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Waits for its end after its input was closed. None when it takes longer than
    /// [`LEAVE_PATIENCE`]: it has answered and may finish by itself.
    pub async fn leave(&mut self) -> Option<ExitStatus> {
        let ended = tokio::time::timeout(LEAVE_PATIENCE, self.child.wait()).await;
        ended.ok()?.ok()
    }

    /// Its end, if it has ended already or does so at once.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        let ended = tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await;
        ended.ok()?.ok()
    }
}

/// The `agentd` that belongs to this `agentctl`: next to it, else the first on `PATH`.
#[must_use]
pub fn program() -> PathBuf {
    sibling("agentd")
}

/// Another program of this installation: next to this one, else the first on `PATH`.
#[must_use]
pub fn sibling(name: &str) -> PathBuf {
    // A link to this program has nothing beside it.
    let exe = std::env::current_exe().and_then(std::fs::canonicalize);
    let beside = exe.ok().and_then(|exe| Some(exe.parent()?.join(name)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    found(name, beside, &path)
}

/// Where a program of ours is found after an upgrade, too: package managers link a directory on
/// `PATH` to one of each version. The same path when nothing leads to it.
#[must_use]
pub fn lasting(program: PathBuf) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let started_as = std::env::args_os().next().map(PathBuf::from);
    linked(&program, started_as, &path).unwrap_or(program)
}

/// The first of the directories of `path`, and that of `started_as`, in which a link leads to the
/// program.
fn linked(program: &Path, started_as: Option<PathBuf>, path: &OsStr) -> Option<PathBuf> {
    let (name, real) = (program.file_name()?, std::fs::canonicalize(program).ok()?);
    let dirs = std::env::split_paths(path);
    let mut dirs = dirs.chain(started_as.and_then(|exe| Some(exe.parent()?.to_owned())));
    // systemd takes no `..`.
    let is_plain = |dir: &Path| dir.is_absolute() && !dir.iter().any(|part| part == "..");
    dirs.find_map(|dir| {
        let place = dir.join(name);
        let leads = std::fs::canonicalize(&place).is_ok_and(|leads| leads == real);
        (is_plain(&dir) && leads).then_some(place)
    })
}

/// A program that isn't ours: the first on `PATH`, else where it should be.
pub(crate) fn on_path(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
    let mut places = dirs.map(|dir| dir.join(name));
    let found = places.find(|place| is_program(place));
    found.unwrap_or_else(|| Path::new("/usr/bin").join(name))
}

/// Relative and empty entries of `PATH` mean the current directory: nothing in it is ever run.
fn found(name: &str, beside: Option<PathBuf>, path: &OsStr) -> PathBuf {
    // Where it should be, if it is nowhere: a bare name would be looked for once more.
    let beside = beside.unwrap_or_else(|| Path::new("/usr/bin").join(name));
    let dirs = std::env::split_paths(path).filter(|dir| dir.is_absolute());
    let mut places = std::iter::once(beside.clone()).chain(dirs.map(|dir| dir.join(name)));
    places.find(|place| is_program(place)).unwrap_or(beside)
}

fn is_program(path: &Path) -> bool {
    let executable = |meta: Metadata| meta.is_file() && meta.permissions().mode() & 0o111 != 0;
    std::fs::metadata(path).is_ok_and(executable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn one_shot_is_told_why_and_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("agentd");
        // Written by a process of its own: one that another test starts meanwhile would have it open
        // for writing ("Text file busy").
        let written = std::process::Command::new("sh")
            .args([
                "-c",
                "printf '#!/bin/sh\\necho \"$@\"\\ncat\\n' > $0 && chmod 755 $0",
            ])
            .arg(&script)
            .status();
        assert!(written.unwrap().success());
        let (mut oneshot, mut stdout, stdin) =
            OneShot::run(&script, Reason::Refused, Asks::Anything).unwrap();
        drop(stdin);
        let mut said = String::new();
        stdout.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "--stdio --fallback-reason refused\n");
        assert!(oneshot.leave().await.unwrap().success());
    }

    #[test]
    fn one_shot_is_found_nearby_or_on_path() {
        let dir = tempfile::tempdir().unwrap();
        let (beside, on_path) = (dir.path().join("beside"), dir.path().join("agentd"));
        for file in [&beside, &on_path] {
            std::fs::write(file, "").unwrap();
        }
        // The same directory, as seen from the current one.
        let up = "../".repeat(std::env::current_dir().unwrap().components().count());
        let relative = format!("{up}{}", dir.path().strip_prefix("/").unwrap().display());
        assert!(Path::new(&relative).join("agentd").is_file());
        let runs = |file: &Path| {
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let absolute = format!(":{relative}:{}", dir.path().display());
        let look = |path: &str| found("agentd", Some(beside.clone()), OsStr::new(path));
        assert_eq!(look(&absolute), beside, "none of them can be run");
        runs(&on_path);
        assert_eq!(look(&absolute), on_path);
        assert_eq!(look(&format!(":.:{relative}:")), beside);
        runs(&beside);
        assert_eq!(look(&absolute), beside);
        assert!(found("agentd", None, OsStr::new("")).is_absolute());
    }

    #[test]
    fn program_lasts_where_links_lead_to_versions() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let (keg, bin, opt) = (
            root.join("agentd/0.1/bin"),
            root.join("bin"),
            root.join("opt"),
        );
        for dir in [&keg, &bin, &opt] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let program = keg.join("agentd");
        std::fs::write(&program, "").unwrap();
        for dir in [&bin, &opt] {
            std::os::unix::fs::symlink(&program, dir.join("agentd")).unwrap();
        }
        std::fs::write(root.join("agentd/agentd"), "another's").unwrap();
        let other = root.join("agentd");
        let look = |dirs: &[&Path], started_as: &Path| {
            let path = std::env::join_paths(dirs).unwrap();
            linked(&program, Some(started_as.to_owned()), &path)
        };
        let bare = Path::new("agentctl");
        assert_eq!(look(&[&other, &bin, &keg], bare), Some(bin.join("agentd")));
        assert_eq!(
            look(&[&other], &opt.join("agentctl")),
            Some(opt.join("agentd"))
        );
        assert_eq!(look(&[&other, &keg.join("../../../bin")], bare), None);
        assert_eq!(
            lasting("/nowhere/agentd".into()),
            Path::new("/nowhere/agentd")
        );
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error =
            OneShot::run(&"/nowhere/agentd".into(), Reason::NoSocket, Asks::Stored).unwrap_err();
        assert!(error.to_string().contains("`/nowhere/agentd`"), "{error}");
    }
}
