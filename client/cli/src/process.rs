//! Another process of this machine: does it live, and which variables was it started with?
//!
//! Owns that a number which somebody else has by now isn't taken for it, where the system tells. Must
//! not know what process it is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// The environment of another process of ours, where the system tells.
pub(super) fn environment_of(pid: u32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/environ")).ok()
}

/// What is in such an environment.
pub(super) fn variables(environment: &[u8]) -> impl Iterator<Item = (&OsStr, &OsStr)> {
    let pairs = environment.split(|byte| *byte == 0);
    pairs.filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        (!name.is_empty()).then(|| (OsStr::from_bytes(name), OsStr::from_bytes(value)))
    })
}

/// It is held on to: its number may be another process's later.
#[cfg(target_os = "linux")]
pub(super) struct Process(std::os::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Process {
    /// The one that has this number now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
        let flags = rustix::process::PidfdFlags::empty();
        rustix::process::pidfd_open(pid, flags).ok().map(Self)
    }

    /// One that has ended and is not reaped doesn't.
    pub(super) fn lives(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd as _;
        let mut looked = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // Whoever can't look waits no longer.
        !matches!(poll(&mut looked, PollTimeout::ZERO), Ok(1..))
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) struct Process(nix::unistd::Pid);

#[cfg(not(target_os = "linux"))]
impl Process {
    /// The one that has this number now.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self(nix::unistd::Pid::from_raw(pid)))
    }

    pub(super) fn lives(&self) -> bool {
        nix::sys::signal::kill(self.0, None).is_ok()
    }
}
