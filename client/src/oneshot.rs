//! The one-shot: `agentd --stdio`, run once when no daemon takes the request.
//!
//! Owns finding the program, starting it and waiting for its end. Must not know when this is right
//! (`fallback`), nor what is said to it (`connection`).

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::fallback::Reason;

/// How long the one-shot gets to open its store and answer `hello`: it may have to migrate.
pub const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long it gets to leave after its final line: it stops its worker first.
pub const LEAVE_PATIENCE: Duration = Duration::from_secs(20);

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
    pub fn start(reason: Reason) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        Self::run(&program(), reason)
    }

    fn run(program: &PathBuf, reason: Reason) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let mut child = Command::new(program)
            .args(["--stdio", "--fallback-reason", reason.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
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
    let beside = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .ok()
        .and_then(|exe| Some(exe.parent()?.join(name)))
        .filter(|path| path.is_file());
    beside.unwrap_or_else(|| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn it_is_told_why_it_runs_and_leaves_at_the_end_of_its_input() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("agentd");
        std::fs::write(&script, "#!/bin/sh\necho \"$@\"\ncat\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (mut oneshot, mut stdout, stdin) = OneShot::run(&script, Reason::Refused).unwrap();
        drop(stdin);
        let mut said = String::new();
        stdout.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "--stdio --fallback-reason refused\n");
        assert!(oneshot.leave().await.unwrap().success());
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = OneShot::run(&"/nowhere/agentd".into(), Reason::NoSocket).unwrap_err();
        assert!(error.to_string().contains("`/nowhere/agentd`"), "{error}");
    }
}
