//! A namespace of processes for one command: it sees nobody else's, with their arguments.
//!
//! Owns making it, and its end. The user's id stays what it is, other users' are shown as nobody's.
//! Must not know what the command is.
//!
//! Three processes: the one that timmy started makes the namespace, but isn't in it. It starts the
//! first one in it, which is the keeper. When that ends the kernel kills whatever is left, so nothing
//! outruns it. Source: pid_namespaces(7), user_namespaces(7).

use std::ffi::OsString;
use std::fs;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use super::{FIRST, KEEP, descend, itself};

/// Makes the namespace, and waits for the keeper in it.
///
/// # Errors
/// This user may make none here.
pub(super) fn make(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    // As the keeper: a signal that is meant for timmy's group isn't for what keeps the command.
    let _has_one_already = nix::unistd::setsid();
    let (user, group) = (geteuid(), getegid());
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
    let mut first = Command::new(itself()?);
    let status = first.args([KEEP, FIRST]).args(arguments).status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Makes this process, the first one, see the others of its namespace only.
///
/// # Errors
/// This user may not: as in a container, where a part of `/proc` is hidden.
pub(super) fn enter() -> anyhow::Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).context("/proc")?;
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        caps::clear(None, set).context("the right to mount")?;
    }
    Ok(())
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
        Some(Errno::ENOSPC) => ["user", "pid", "mnt"]
            .iter()
            .any(|limit| is_forbidden(limit)),
        Some(Errno::EPERM | Errno::EACCES | Errno::ENOSYS | Errno::EINVAL) => true,
        _ => false,
    }
}

/// How many processes end with this one.
pub(super) fn left_over() -> usize {
    descend::descendants().len()
}
