//! From a plan to a process, or to the reason why there is none.
//!
//! Owns how a child is made and which failures are worth another try. Must not know what the
//! process says.

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agentd_core::event::{Event, Fault};
use agentd_core::ids::{Generation, WorkerId};
use nix::libc;
use tokio::process::{Child, Command};

use super::environment::Environment;
use super::reap::{self, Mark};
use crate::adapter::Launch;
use crate::platform::cgroup::{Delegated, Group};

/// Pauses before another try when the system has no process or memory to spare right now.
const TRIES_AGAIN_AFTER: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// How many files a process may open: the soft and the hard limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLimit {
    /// What counts, until the process raises it.
    pub soft: u64,
    /// As far as it may.
    pub hard: u64,
}

/// Everything needed to start a process.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) worker: WorkerId,
    pub(super) generation: Generation,
    pub(super) launch: Launch,
    pub(super) env: Environment,
    pub(super) cwd: PathBuf,
    pub(super) session: Option<String>,
    pub(super) mark: Mark,
    pub(super) file_limit: Option<FileLimit>,
    pub(super) groups: Option<Arc<Delegated>>,
}

/// Why there is no process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    error: String,
    fault: Fault,
}

impl Failure {
    /// Trying again is pointless, whatever for.
    pub(super) fn permanent(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            fault: Fault::Agent,
        }
    }

    /// Is trying again pointless?
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self.fault, Fault::Agent | Fault::Arguments)
    }

    /// In words for a person.
    pub(super) fn into_error(self) -> String {
        self.error
    }

    /// In the core's words.
    pub(super) fn event(self, worker: WorkerId, generation: Generation) -> Event {
        Event::SpawnFailed {
            worker,
            generation,
            error: self.error,
            fault: self.fault,
        }
    }
}

/// A process that was just started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    /// It and all that it starts, where control groups can be made.
    pub(super) group: Option<Group>,
}

/// Starts the process; tries again a few times while the system is short of something.
pub(super) async fn start(plan: &Plan) -> Result<Started, Failure> {
    let Some(program) = plan.launch.argv.first().map(Path::new) else {
        return Err(Failure::permanent("the agent's command is empty"));
    };
    if !program.is_absolute() {
        let error = format!(
            "the program is `{}`: expected an absolute path",
            program.display()
        );
        return Err(Failure::permanent(error));
    }
    let group = group(plan);
    let mut pauses = TRIES_AGAIN_AFTER.iter();
    loop {
        let error = match attempt(plan, program, group.as_ref()) {
            Ok(child) => return Ok(Started { child, group }),
            Err(error) => error,
        };
        match pauses.next() {
            Some(pause) if may_pass(&error) => tokio::time::sleep(*pause).await,
            _ => return Err(explain(plan, program, &error)),
        }
    }
}

/// A group for the process, if groups can be made. Without one it is found as it is elsewhere.
fn group(plan: &Plan) -> Option<Group> {
    let made = plan.groups.as_ref()?.make(&plan.mark.group());
    made.inspect_err(|error| tracing::warn!(%error, "no control group for a worker"))
        .ok()
}

fn attempt(plan: &Plan, program: &Path, group: Option<&Group>) -> io::Result<Child> {
    let mut command = std::process::Command::new(program);
    command
        .args(&plan.launch.argv[1..])
        .env_clear()
        .envs(&plan.env)
        .current_dir(&plan.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // Without this step the child is made without a copy of our memory, which is much faster.
    if let Some(limit) = plan.file_limit {
        restore(&mut command, limit);
    }
    if let Some(group) = group {
        enter(&mut command, group);
    }
    reap::start_leader(&plan.mark, || Command::from(command).spawn())
}

/// Puts the limit of open files back in the child.
#[expect(unsafe_code, reason = "the only way to do something in one child")]
fn restore(command: &mut std::process::Command, limit: FileLimit) {
    let limit = libc::rlimit {
        rlim_cur: limit.soft,
        rlim_max: limit.hard,
    };
    // SAFETY: setrlimit is async-signal-safe and reads a struct that the closure owns.
    let restore = move || match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: between fork and exec the closure makes one async-signal-safe call, allocates
    // nothing and takes no lock.
    unsafe {
        command.pre_exec(restore);
    }
}

/// Puts the child into the group before it is another program: what it starts is in it, too.
#[expect(unsafe_code, reason = "the only way to do something in one child")]
fn enter(command: &mut std::process::Command, group: &Group) {
    let entry = group.entry().as_raw_fd();
    let enter = move || {
        // One that stays outside is ended by its process group and its mark, as without groups.
        // SAFETY: write is async-signal-safe and reads one byte of a constant; the descriptor is
        // open in the child until it becomes the program.
        let _outside = unsafe { libc::write(entry, c"0".as_ptr().cast(), 1) };
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one async-signal-safe call, allocates
    // nothing and takes no lock.
    unsafe {
        command.pre_exec(enter);
    }
}

/// Is it the system's state rather than the program's?
fn may_pass(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ETXTBSY)
    )
}

fn explain(plan: &Plan, program: &Path, error: &io::Error) -> Failure {
    // The system's error is the same for a missing directory and a missing program. Another spawn
    // may be for another directory, so this one says nothing about the agent.
    if !may_pass(error) && !plan.cwd.is_dir() {
        return Failure {
            error: format!(
                "the working directory `{}` is not there, or not a directory",
                plan.cwd.display()
            ),
            fault: Fault::Directory,
        };
    }
    let fault = match error.raw_os_error() {
        Some(libc::E2BIG) => Fault::Arguments,
        Some(
            libc::ENOENT
            | libc::EACCES
            | libc::ENOEXEC
            | libc::ENOTDIR
            | libc::EISDIR
            | libc::ELOOP
            | libc::EPERM
            | libc::ENAMETOOLONG,
        ) => Fault::Agent,
        // A NUL: the library sees it before the system does.
        None if error.kind() == io::ErrorKind::InvalidInput => Fault::Arguments,
        _ => Fault::Machine,
    };
    Failure {
        error: format!("cannot run `{}`: {error}", program.display()),
        fault,
    }
}
