//! The process between timmy and a command: it sees to it that nothing is left of the command.
//!
//! Owns ending the command and everything that it started. On Linux whatever loses its parent
//! becomes a child of the keeper's, however it got away; it is killed as soon as the command has
//! ended, or the other end of standard input is gone, even because timmy was killed. A sandboxed
//! command's keeper is the first process of a namespace where one may be made, with which all ends.
//! Elsewhere the command's process group is killed. Must not know what a command is for.
//!
//! No wait is without an end: what can't be ended within a while is told.
//!
//! Not caught: on Linux what another user owns (`sudo` without a sandbox), or what another program
//! was asked to start, and without a namespace what forks faster than it is found; elsewhere what
//! left the process group.

#[cfg(target_os = "linux")]
mod namespace;

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use crate::tool::sandbox;

/// The hidden word by which this program starts itself.
pub(crate) const KEEP: &str = "__keep";
/// After it: in a namespace of processes, or not at all.
pub(super) const ALONE: &str = "--alone";
/// After it: as the first process of one.
#[cfg(target_os = "linux")]
const FIRST: &str = "--first";
/// A command that is asked to end gets this long to tidy up.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// One that was killed is over by then, unless another process holds it.
const KILLED_WITHIN: Duration = Duration::from_secs(1);
/// What is left over is hunted for so long.
#[cfg(target_os = "linux")]
const HUNTED_WITHIN: Duration = Duration::from_secs(10);

/// What a keeper says at its end, as one line on standard error.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    /// The command's exit code.
    pub(super) code: Option<i32>,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
    /// How many processes were left over, and killed.
    pub(super) strays: usize,
    /// How many could not be ended.
    pub(super) left: usize,
    /// Why there was nothing to keep.
    pub(super) failed: Option<String>,
    /// Why there may be no namespace of processes here: nothing was run.
    pub(super) not_alone: Option<String>,
}

/// Starts this program with `arguments` as a command, on standard output, and keeps it.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.peekable();
    let report = match arguments.peek().and_then(|word| word.to_str()) {
        #[cfg(target_os = "linux")]
        Some(ALONE) => match namespace::make(arguments.skip(1)) {
            // The first process of it says how the command ended.
            Ok(code) => return code,
            Err(error) => not_run(&error),
        },
        #[cfg(target_os = "linux")]
        Some(FIRST) => {
            let mut rest = arguments.skip(1);
            match namespace::enter(rest.next()) {
                Ok(()) => kept(rest, async || namespace::left_over()),
                Err(error) => not_run(&error),
            }
        }
        #[cfg(not(target_os = "linux"))]
        Some(ALONE) => Report {
            not_alone: Some("this system has none".to_owned()),
            ..Report::default()
        },
        _ => kept(arguments, sweep),
    };
    // Standard output is the command's, which has both of its streams there.
    let said = serde_json::to_writer(std::io::stderr(), &report);
    if said.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Where none may be made a command runs without; where one may, and can't be made just now, it
/// doesn't run.
#[cfg(target_os = "linux")]
fn not_run(error: &anyhow::Error) -> Report {
    let why = Some(format!("{error:#}"));
    if namespace::is_never(error) {
        Report {
            not_alone: why,
            ..Report::default()
        }
    } else {
        let why =
            why.map(|why| format!("it was not run, as nothing could be hidden from it: {why}"));
        Report {
            failed: why,
            ..Report::default()
        }
    }
}

/// What a command left behind, which is counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Rest {
    killed: usize,
    /// Those that could not be.
    left: usize,
}

/// Keeps a command; `rest` sees to what is left over.
fn kept(arguments: impl Iterator<Item = OsString>, rest: impl AsyncFnOnce() -> Rest) -> Report {
    keep(arguments, rest).unwrap_or_else(|error| Report {
        failed: Some(format!("{error:#}")),
        ..Report::default()
    })
}

fn keep(
    mut arguments: impl Iterator<Item = OsString>,
    rest: impl AsyncFnOnce() -> Rest,
) -> anyhow::Result<Report> {
    // Away from any terminal, and from signals that are meant for timmy's group.
    let _has_one_already = nix::unistd::setsid();
    #[cfg(target_os = "linux")]
    // Before anything is started: a child that loses its parent earlier goes to the system's first
    // process, where nobody finds it (prctl(2)).
    nix::sys::prctl::set_child_subreaper(true)?;
    let runtime = runtime()?;
    let status = runtime.block_on(async {
        let output = std::io::stdout().as_fd().try_clone_to_owned()?;
        let alive = alive()?;
        let mut command = Command::new(itself()?);
        // It makes a session of its own, so that nothing of it can join this one's group, where
        // signals would reach the keeper, and those of the keeper nobody.
        let command = command
            .args(arguments.next())
            .args([sandbox::KEPT_BY, &std::process::id().to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        until_end(command.spawn()?, &alive).await
    })?;
    let Rest { killed, left } = runtime.block_on(rest());
    Ok(Report {
        code: status.and_then(|status| status.code()),
        // One that is held by another process is ended with that one.
        signal: status.map_or(Some(Signal::SIGKILL as i32), |status| status.signal()),
        strays: killed,
        left,
        ..Report::default()
    })
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Standard input, whose other end timmy has as long as the command may run.
fn alive() -> std::io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)
}

/// This program, even when another one has taken its place meanwhile.
pub(super) fn itself() -> std::io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") {
        Ok("/proc/self/exe".into())
    } else {
        std::env::current_exe()
    }
}

/// How it ended; nothing when it hadn't after it was killed.
pub(super) async fn until_end(
    mut child: Child,
    alive: &pipe::Receiver,
) -> anyhow::Result<Option<ExitStatus>> {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let pid = pid.map(Pid::from_raw);
    tokio::select! {
        status = child.wait() => {
            if !cfg!(target_os = "linux") {
                // Its group is all that can be found there.
                let _is_gone = pid.map(|group| killpg(group, Signal::SIGKILL));
            }
            return Ok(Some(status?));
        }
        () = closed(alive) => {}
    }
    // Nobody has waited for it yet, so its number is still its own.
    if let Some(pid) = pid {
        // The group first: a command that tidies up may wait for its children.
        let _is_gone = killpg(pid, Signal::SIGTERM);
        // It may have left that group, and then has heard nothing.
        if getpgid(Some(pid)) != Ok(pid) {
            let _is_gone = kill(pid, Signal::SIGTERM);
        }
    }
    let ended = tokio::time::timeout(GRACE, child.wait()).await;
    if let Some(pid) = pid
        && (ended.is_err() || !cfg!(target_os = "linux"))
    {
        let _is_gone = killpg(pid, Signal::SIGKILL);
    }
    if let Ok(status) = ended {
        return Ok(Some(status?));
    }
    // Whatever group it is in.
    child.start_kill()?;
    let ended = tokio::time::timeout(KILLED_WITHIN, child.wait()).await;
    Ok(ended.ok().transpose()?)
}

/// Waits until nobody has the other end.
async fn closed(alive: &pipe::Receiver) {
    let mut ignored = [0; 64];
    loop {
        if alive.readable().await.is_err() {
            return;
        }
        match alive.try_read(&mut ignored) {
            Ok(0) => return,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// Kills what is left over, until nothing is or it has taken too long.
#[cfg(target_os = "linux")]
async fn sweep() -> Rest {
    use nix::errno::Errno;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use tokio::signal::unix::{SignalKind, signal};

    /// After it is looked again, whatever is told of children that have ended.
    const PAUSE: Duration = Duration::from_millis(20);

    let mut has_ended = signal(SignalKind::child()).ok();
    let began = std::time::Instant::now();
    let mut killed = std::collections::BTreeSet::new();
    loop {
        let found = descend::descendants();
        let mut is_new = false;
        for process in &found {
            // Parents first: who is killed before it can fork leaves less to find.
            process.kill();
            is_new |= killed.insert(process.pid);
        }
        // Each that dies leaves its children to us: look again.
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => {
                    return Rest {
                        killed: killed.len(),
                        left: 0,
                    };
                }
                Ok(WaitStatus::StillAlive) => break,
                _ => {}
            }
        }
        if began.elapsed() > HUNTED_WITHIN {
            return Rest {
                killed: killed.len().saturating_sub(found.len()),
                left: found.len(),
            };
        }
        if !is_new {
            let ended = async {
                match &mut has_ended {
                    Some(signal) => signal.recv().await,
                    None => std::future::pending().await,
                }
            };
            let _looked_again_anyway = tokio::time::timeout(PAUSE, ended).await;
        }
    }
}

/// Its group is all that can be found there, and was killed.
#[cfg(not(target_os = "linux"))]
async fn sweep() -> Rest {
    Rest::default()
}

#[cfg(target_os = "linux")]
mod descend {
    //! The processes below this one.

    use std::collections::BTreeMap;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    /// A process that lives.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) struct Process {
        pub(super) pid: i32,
        parent: i32,
        /// A number may be another's by now, this with it can't.
        started: u64,
    }

    impl Process {
        fn read(pid: i32) -> Option<Self> {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name may have anything in it, so what follows its end counts.
            let (_, after) = stat.rsplit_once(')')?;
            let fields: Vec<_> = after.split_ascii_whitespace().collect();
            // The state is the first thread's: when that has ended, others may work on.
            // Here the state is the field 0: proc_pid_stat(5) counts from 1, and has it third.
            let threads: u32 = fields.get(17)?.parse().ok()?;
            let lives = threads > 1 || !matches!(*fields.first()?, "Z" | "X");
            lives.then_some(Self {
                pid,
                parent: fields.get(1)?.parse().ok()?,
                started: fields.get(19)?.parse().ok()?,
            })
        }

        pub(super) fn kill(self) {
            // Between the look and this its number may have become another's.
            let now = Self::read(self.pid);
            if now.is_some_and(|now| now.started == self.started) {
                let _is_gone = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            }
        }
    }

    /// Those that live, parents first.
    pub(super) fn descendants() -> Vec<Process> {
        let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            if let Some(process) = pid.and_then(Process::read) {
                children.entry(process.parent).or_default().push(process);
            }
        }
        let mut found = children
            .remove(&nix::unistd::getpid().as_raw())
            .unwrap_or_default();
        let mut at = 0;
        while let Some(process) = found.get(at) {
            found.extend(children.remove(&process.pid).unwrap_or_default());
            at += 1;
        }
        found
    }
}
