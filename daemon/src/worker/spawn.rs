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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentd_core::event::{Directory, Event, Fault};
use agentd_core::ids::{Generation, WorkerId};
use nix::libc;
use tokio::process::Child;

use super::environment::Environment;
use super::one_text;
use super::reap::{self, SpawnTag};
use crate::adapter::Launch;
use crate::platform::apart::{self, Apart, Keeps, NotEntered, Program, SpawnStep};
use crate::platform::cgroup::{Delegated, Group};
use crate::platform::directories::{self, Silent};

/// Pauses before another try when the system has no process or memory to spare right now.
const TRIES_AGAIN_AFTER: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// A child is in its directory within this time, or hangs in a file system that doesn't answer. It
/// was looked at just before.
const ENTERS_WITHIN: Duration = Duration::from_secs(5);
/// It is its program within this time: a machine that has no memory left may need that long to read
/// its first page.
const BEGINS_WITHIN: Duration = Duration::from_secs(15);
/// Children that hang and can't be killed. More are not made: each is a process of the user's.
const HANGING_AT_MOST: usize = 32;

/// Children that are being killed before they were programs.
static HANGING: AtomicUsize = AtomicUsize::new(0);

/// How many files a process may open: the soft and the hard limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLimit {
    /// What counts, until the process raises it.
    pub soft: u64,
    /// As far as it may.
    pub hard: u64,
}

/// Everything needed to start a process.
pub(super) struct Plan {
    pub(super) worker: WorkerId,
    pub(super) generation: Generation,
    pub(super) launch: Launch,
    pub(super) env: Environment,
    pub(super) cwd: PathBuf,
    pub(super) session: Option<String>,
    pub(super) mark: SpawnTag,
    pub(super) file_limit: Option<FileLimit>,
    pub(super) groups: Option<Arc<Delegated>>,
}

/// Why there is no process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SpawnFailure {
    error: String,
    fault: Fault,
}

impl SpawnFailure {
    /// Trying again is pointless, whatever for.
    pub(super) fn permanent(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            fault: Fault::Agent,
        }
    }

    /// Is trying again right now pointless?
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self.fault, Fault::Agent | Fault::Missing | Fault::Arguments)
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
pub(super) struct Started {
    pub(super) child: Child,
    /// It and all that it starts, where control groups can be made.
    pub(super) group: Option<Group>,
}

/// Told of a process, by its number, before it does anything.
pub(super) type Note = Arc<dyn Fn(u32) + Send + Sync>;

/// Starts the process, with all of `text` at its standard input if there is one, else with a pipe;
/// tries again a few times while the system is short of something. Dropped before it is done, there
/// will be no process.
pub(super) async fn start(
    plan: &Plan,
    text: Option<Arc<Vec<u8>>>,
    note: Note,
) -> Result<Started, SpawnFailure> {
    let Some(program) = plan.launch.argv.first().map(Path::new) else {
        return Err(SpawnFailure::permanent("the agent's command is empty"));
    };
    if !program.is_absolute() {
        let error = format!(
            "the program is `{}`: expected an absolute path",
            program.display()
        );
        return Err(SpawnFailure::permanent(error));
    }
    let hanging = HANGING.load(Ordering::Relaxed);
    if hanging >= HANGING_AT_MOST {
        let error = format!(
            "{hanging} processes hang in directories or programs that don't answer, the limit"
        );
        return Err(SpawnFailure {
            error,
            fault: Fault::Machine,
        });
    }
    // Otherwise each try would be one more process that hangs.
    let hangs = match directories::look(&plan.cwd.to_string_lossy()).await {
        Directory::Silent => Some(SpawnStep::Directory),
        _ => directories::is_silent(program).then_some(SpawnStep::Program),
    };
    if let Some(step) = hangs {
        return Err(explain(plan, program, &NotEntered::Hangs(step)));
    }
    let mut group = group(plan);
    let mut pauses = TRIES_AGAIN_AFTER.iter();
    loop {
        let why = match attempt(plan, text.as_ref(), group, &note).await {
            Ok(started) => return Ok(started),
            Err((why, back)) => {
                group = back;
                why
            }
        };
        let error = match &why {
            NotEntered::Refused(_, error) => error,
            NotEntered::Hangs(_) => return Err(explain(plan, program, &why)),
        };
        match pauses.next() {
            Some(pause) if may_pass(error) => tokio::time::sleep(*pause).await,
            _ => return Err(explain(plan, program, &why)),
        }
    }
}

/// A group for the process, if groups can be made. Without one it is found as it is elsewhere.
fn group(plan: &Plan) -> Option<Group> {
    let made = plan.groups.as_ref()?.make(&plan.mark.group());
    made.inspect_err(|error| tracing::warn!(%error, "no control group for a worker"))
        .ok()
}

/// A child that is not yet its program. Dropped as that, it will never be.
struct Entering {
    /// Taken when it is, or dropped.
    child: Option<Child>,
    group: Option<Group>,
    /// Where it hangs.
    silent: Option<Silent>,
    pid: u32,
}

impl Drop for Entering {
    fn drop(&mut self) {
        let (group, silent, pid) = (self.group.take(), self.silent.take(), self.pid);
        let Some(mut child) = self.child.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        // One that hangs in the kernel dies when the kernel lets go, before it is anything else.
        let _gone = child.start_kill();
        HANGING.fetch_add(1, Ordering::Relaxed);
        runtime.spawn(async move {
            let _status = child.wait().await;
            reap::was_leader(pid);
            HANGING.fetch_sub(1, Ordering::Relaxed);
            drop((group, silent));
        });
    }
}

/// One try. Gives the group back when there is no child that could be in it.
async fn attempt(
    plan: &Plan,
    text: Option<&Arc<Vec<u8>>>,
    group: Option<Group>,
    note: &Note,
) -> Result<Started, (NotEntered, Option<Group>)> {
    let here = |error| NotEntered::Refused(SpawnStep::Program, error);
    let program = Program::new(&plan.launch.argv, &plan.env, &plan.cwd);
    let program = match program {
        Ok(program) => program,
        Err(error) => return Err((here(error), group)),
    };
    let mut command = command(plan, group.as_ref());
    let (text, note) = (text.cloned(), Arc::clone(note));
    // Beside the owner: making a process copies our memory, and the child has to get a core.
    let made = tokio::task::spawn_blocking(move || {
        if let Some(text) = text {
            command.stdin(one_text::holding(&text)?);
        }
        let Apart { child, channel } = apart::start(command, Keeps::Standard, move |channel| {
            program.enter(channel)
        })?;
        let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
        // Known and written down before it may go on: should we be killed in between, the next
        // agentd finds it, and its end is never taken for an orphan's.
        reap::is_leader(pid);
        let child = Some(child);
        let entering = Entering {
            child,
            group: None,
            silent: None,
            pid,
        };
        note(pid);
        apart::let_go(&channel)?;
        Ok((entering, channel))
    });
    let made = made
        .await
        .unwrap_or_else(|lost| Err(io::Error::other(lost)));
    let (mut entering, channel) = match made {
        Ok(made) => made,
        Err(error) => return Err((here(error), group)),
    };
    entering.group = group;
    match apart::entered(channel, within).await {
        Ok(()) => {}
        Err(refused @ NotEntered::Refused(..)) => {
            // It has ended by itself.
            return Err((refused, entering.group.take()));
        }
        Err(NotEntered::Hangs(step)) => {
            let place = match step {
                SpawnStep::Directory => plan.cwd.as_path(),
                SpawnStep::Program => Path::new(&plan.launch.argv[0]),
            };
            entering.silent = Some(Silent::below(place));
            return Err((NotEntered::Hangs(step), None));
        }
    }
    let group = entering.group.take();
    match entering.child.take() {
        Some(child) => Ok(Started { child, group }),
        None => Err((here(io::ErrorKind::NotFound.into()), group)),
    }
}

const fn within(step: SpawnStep) -> Duration {
    match step {
        SpawnStep::Directory => ENTERS_WITHIN,
        SpawnStep::Program => BEGINS_WITHIN,
    }
}

fn command(plan: &Plan, group: Option<&Group>) -> std::process::Command {
    // What it becomes, and where, is said to the child itself.
    let mut command = apart::no_program();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that one signal reaches all that it starts.
        .process_group(0);
    if let Some(limit) = plan.file_limit {
        restore(&mut command, limit);
    }
    plan.mark.limit().put_on(&mut command);
    if let Some(group) = group {
        enter(&mut command, group);
    }
    command
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

fn explain(plan: &Plan, program: &Path, why: &NotEntered) -> SpawnFailure {
    let (cwd, program) = (plan.cwd.display(), program.display());
    let (error, fault) = match why {
        NotEntered::Hangs(SpawnStep::Directory) => (
            format!(
                "the working directory `{cwd}` did not answer within {} s",
                ENTERS_WITHIN.as_secs()
            ),
            Fault::Directory,
        ),
        NotEntered::Hangs(SpawnStep::Program) => (
            format!(
                "cannot run `{program}`: it did not start within {} s",
                BEGINS_WITHIN.as_secs()
            ),
            Fault::Machine,
        ),
        // Another spawn may be for another directory, so this one says nothing about the agent.
        NotEntered::Refused(SpawnStep::Directory, error) if !may_pass(error) => (
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {
                    format!("the working directory `{cwd}` is not there, or not a directory")
                }
                _ => format!("the working directory `{cwd}` can't be entered: {error}"),
            },
            Fault::Directory,
        ),
        NotEntered::Refused(_, error) => (format!("cannot run `{program}`: {error}"), blame(error)),
    };
    SpawnFailure { error, fault }
}

fn blame(error: &io::Error) -> Fault {
    match error.raw_os_error() {
        // Arguments and environment together, or one of them (execve(2)): the same agent takes a
        // shorter prompt.
        Some(libc::E2BIG) => Fault::Arguments,
        // While it is being replaced it is away, or half there.
        Some(
            libc::ENOENT
            | libc::EACCES
            | libc::ENOEXEC
            | libc::ENOTDIR
            | libc::EISDIR
            | libc::ELOOP
            | libc::EPERM
            | libc::ETXTBSY,
        ) => Fault::Missing,
        Some(libc::ENAMETOOLONG) => Fault::Agent,
        _ if may_pass(error) => Fault::Short,
        // A NUL: the library sees it before the system does.
        None if error.kind() == io::ErrorKind::InvalidInput => Fault::Arguments,
        _ => Fault::Machine,
    }
}
