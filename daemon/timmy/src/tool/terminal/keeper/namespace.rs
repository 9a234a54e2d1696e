//! A namespace of processes for one command: it sees nobody else's, with their arguments.
//!
//! Owns making it, and its end. The user's id stays what it is, other users' are shown as nobody's.
//! Must not know what the command is.
//!
//! Three processes: the one that timmy started makes the namespace, but isn't in it. It starts the
//! first one in it, which is the keeper, and kills it when it isn't over in time. When that ends the
//! kernel kills whatever is left, so nothing outruns it.
//! Source: pid_namespaces(7), user_namespaces(7).

use std::ffi::OsString;
use std::fs;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::{FIRST, GRACE, KEEP, KILLED_WITHIN, Rest, alive, closed, descend, itself, runtime};

/// After its own limits, a keeper is given this long.
const SLACK: Duration = Duration::from_millis(500);

/// Makes the namespace, and waits for the keeper in it.
///
/// # Errors
/// This user may make none here.
pub(super) fn make(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    // As the keeper: a signal that is meant for timmy's group isn't for what keeps the command.
    let _has_one_already = nix::unistd::setsid();
    let (user, group) = (geteuid(), getegid());
    // Not `getpid`: in a container `/proc` may be mounted from another namespace, and `enter` reads
    // what it compares this with there, too.
    let number = fs::read_link("/proc/self").unwrap_or_default();
    // Before the runtime, which might have threads: with these it is `EINVAL` (unshare(2)), and
    // `is_never` would take that for a kernel that can't.
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)
        .context("namespaces")?;
    // Without this nobody may say which group it is.
    fs::write("/proc/self/setgroups", "deny").context("its groups")?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1")).context("its group")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1")).context("its user")?;
    // What shows processes is mounted by the first one, which needs the right to.
    for set in [CapSet::Inheritable, CapSet::Ambient] {
        caps::raise(None, set, Capability::CAP_SYS_ADMIN).context("the right to mount")?;
    }
    let status = runtime()?.block_on(async {
        let alive = alive()?;
        let mut first = Command::new(itself()?);
        let first = first.args([KEEP, FIRST]).arg(number).args(arguments);
        let first = first.kill_on_drop(true).spawn()?;
        Ok::<_, anyhow::Error>(ended(first, &alive).await)
    })?;
    Ok(match status {
        Some(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// How it ended, unless it was left to be killed.
async fn ended(mut first: Child, alive: &pipe::Receiver) -> Option<ExitStatus> {
    tokio::select! {
        status = first.wait() => return status.ok(),
        () = closed(alive) => {}
    }
    let within = GRACE + KILLED_WITHIN + SLACK;
    let ended = tokio::time::timeout(within, first.wait()).await;
    ended.ok()?.ok()
}

/// Makes this process, the first one, see the others of its namespace only.
///
/// # Errors
/// This user may not: as in a container, where a part of `/proc` is hidden.
pub(super) fn enter(maker: Option<OsString>) -> anyhow::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    // Had what made it ended before that, nobody would say so any more. Both numbers are of the
    // table that is mounted there now, as in the namespace it has none.
    let parent = parent_in_table().filter(|_| maker.as_ref().is_some_and(|it| !it.is_empty()));
    ensure!(
        parent.is_none() || parent.map(OsString::from) == maker,
        "what made the namespace has ended"
    );
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).context("/proc")?;
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        caps::clear(None, set).context("the right to mount")?;
    }
    Ok(())
}

fn parent_in_table() -> Option<String> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(1).map(str::to_owned)
}

/// Does it say that this user may make none here, whenever it is tried? Limits of 0 are how some
/// systems say it.
pub(super) fn is_never(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    let errno = io.and_then(|error| error.raw_os_error().map(Errno::from_raw));
    let errno = errno.or_else(|| error.downcast_ref::<Errno>().copied());
    let is_forbidden = |limit: &str| {
        let limit = fs::read_to_string(format!("/proc/sys/user/max_{limit}_namespaces"));
        limit.is_ok_and(|most| most.trim() == "0")
    };
    match errno {
        // The limit is reached (unshare(2)): by others, who may let go of theirs, unless it is 0.
        Some(Errno::ENOSPC) => ["user", "pid", "mnt"]
            .iter()
            .any(|limit| is_forbidden(limit)),
        // `EINVAL` is a kernel that was built without one of them.
        Some(Errno::EPERM | Errno::EACCES | Errno::ENOSYS | Errno::EINVAL) => true,
        _ => false,
    }
}

/// How many processes end with this one.
pub(super) fn left_over() -> Rest {
    Rest {
        killed: descend::descendants().len(),
        left: 0,
    }
}
