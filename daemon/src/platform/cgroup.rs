//! Control groups that the service manager gave us to divide: one for each worker, so that all a
//! worker started can be killed at once, however it hid.
//!
//! Owns the search for the delegated group, and making, killing and removing groups in it. Must not
//! know what a worker is. Nothing is done in a group that nobody delegated: others keep order there.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Where the unified hierarchy is mounted: alone, or beside the old ones.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Our unit says with it that it delegates. Not every systemd marks such groups for their owner.
const SAID: (&str, &str) = ("AGENTD_CGROUP", "delegated");

/// A group that is ours to divide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delegated {
    dir: PathBuf,
}

impl Delegated {
    /// This process's own group, if it was delegated to us and the kernel can kill groups (5.14).
    #[must_use]
    pub fn find() -> Option<Self> {
        let (name, delegated) = SAID;
        if std::env::var_os(name).is_none_or(|said| said != delegated) {
            return None;
        }
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let below = unified(&groups)?;
        let dir = MOUNTS
            .iter()
            .map(|mount| Path::new(mount).join(below))
            .find(|dir| dir.join("cgroup.kill").exists())?;
        Some(Self { dir })
    }

    /// Makes a group in it.
    ///
    /// # Errors
    /// When the system refuses, or there is one of this name.
    pub fn make(&self, name: &str) -> io::Result<Group> {
        let dir = self.dir.join(name);
        fs::create_dir(&dir)?;
        let entry = File::options()
            .write(true)
            .open(dir.join("cgroup.procs"))
            .inspect_err(|_| {
                // Empty, and the service manager removes it with the service.
                let _stays = fs::remove_dir(&dir);
            })?;
        Ok(Group { dir, entry })
    }
}

/// A group of our own; removed when dropped, if nobody is in it.
pub struct Group {
    dir: PathBuf,
    entry: File,
}

impl Group {
    /// A process that writes `0` here is in the group, with all that it starts from then on.
    #[must_use]
    pub fn entry(&self) -> BorrowedFd<'_> {
        self.entry.as_fd()
    }

    /// Kills everything in it and below. It is gone when [`Group::is_empty`] says so.
    pub fn kill(&self) {
        if let Err(error) = fs::write(self.dir.join("cgroup.kill"), "1") {
            tracing::warn!(%error, group = %self.dir.display(), "a control group can't be killed");
        }
    }

    /// Is nobody in it but the dead?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let events = fs::read_to_string(self.dir.join("cgroup.events"));
        // A group that is gone had nobody in it.
        !events.is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What a worker made in its own group is empty, too.
        let below = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        for inner in below.filter(|entry| entry.path().is_dir()) {
            let _stays = fs::remove_dir(inner.path());
        }
        // A group that stays is removed with the service's own.
        let _stays = fs::remove_dir(&self.dir);
    }
}

/// The path of the unified hierarchy, without its first slash.
fn unified(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_unified_is_found_among_old_ones() {
        let hybrid = "9:name=systemd:/x\n4:memory:/y\n0::/user.slice/agentd.service\n";
        assert_eq!(unified(hybrid), Some("user.slice/agentd.service"));
        assert_eq!(unified("0::/\n"), Some(""));
        assert_eq!(unified("4:memory:/y\n"), None);
    }
}
