//! What `daemon.lock` in the state directory says.
//!
//! Owns how it is read: in a thread of its own, as its disk may hang, and who waits for that waits for
//! ever. Must not know sockets, nor what follows from it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentd_base::clock::boot_ms;
use agentd_base::configuration::Taken;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::Deserialize;

use crate::fallback::RESTART_PATIENCE;

/// It is one short object; more than this isn't ours.
const MAX_LOCK: u64 = 16 * 1024;
/// A disk that takes longer for it hangs: `status` is there within a second, whatever is wrong …
const READ_WITHIN: Duration = Duration::from_millis(700);
/// … but for a machine so busy that a thread isn't begun: that says nothing of its disk.
const BEGUN_WITHIN: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub(crate) struct LockFile {
    pub(crate) pid: i32,
    pub(crate) socket: PathBuf,
    pub(crate) state: LockState,
    until_boot_ms: Option<u64>,
    pub(crate) began_with: Option<Taken>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LockState {
    Starting,
    Running,
    Restarting,
    Stopping,
    /// A state from a newer daemon: it is there.
    #[serde(other)]
    Other,
}

/// Does a process have the lock?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holding {
    Held,
    Free,
}

type Known = Option<(LockFile, Holding)>;

/// Reads that have taken too long so far, one for each file: another one would hang as well.
static HANGING: Mutex<BTreeMap<PathBuf, Receiver<Known>>> = Mutex::new(BTreeMap::new());

/// Does a read of it hang at this moment?
pub(crate) fn hangs(path: &Path) -> bool {
    let mut hanging = HANGING.lock().unwrap_or_else(PoisonError::into_inner);
    match hanging.get(path).map(Receiver::try_recv) {
        None => false,
        Some(Err(TryRecvError::Empty)) => true,
        Some(Ok(_) | Err(TryRecvError::Disconnected)) => {
            hanging.remove(path);
            false
        }
    }
}

/// The lock's content, where it is true: a process holds it, or one that is gone said that another
/// follows, less than a minute ago.
pub(crate) fn read_lock(path: &Path) -> Option<LockFile> {
    let (content, holding) = read(path)?;
    let follows = || {
        let left = content.until_boot_ms?.checked_sub(boot_ms())?;
        Some(Duration::from_millis(left) <= RESTART_PATIENCE)
    };
    let is_true = holding == Holding::Held
        || (content.state == LockState::Restarting && follows() == Some(true));
    is_true.then_some(content)
}

/// Its content, and whether somebody holds it; nothing where there is none, or it [`hangs`].
pub(crate) fn read(path: &Path) -> Known {
    if hangs(path) {
        return None;
    }
    let (tell, told) = sync_channel(1);
    let (begin, begun) = sync_channel(1);
    let file = path.to_owned();
    let reading = std::thread::Builder::new().spawn(move || {
        let _nobody_waits = begin.send(());
        let _nobody_waits = tell.send(read_now(&file));
    });
    if reading.is_err() {
        return read_now(path);
    }
    let _begun_or_late = begun.recv_timeout(BEGUN_WITHIN);
    match told.recv_timeout(READ_WITHIN) {
        Ok(known) => known,
        Err(RecvTimeoutError::Timeout) => {
            let mut hanging = HANGING.lock().unwrap_or_else(PoisonError::into_inner);
            hanging.insert(path.to_owned(), told);
            None
        }
        Err(RecvTimeoutError::Disconnected) => None,
    }
}

fn read_now(path: &Path) -> Known {
    let file = File::open(path).ok()?;
    let mut text = String::new();
    (&file).take(MAX_LOCK).read_to_string(&mut text).ok()?;
    let content: LockFile = serde_json::from_str(&text).ok()?;
    // Only a living process is worth probing: a probe could get into a starting daemon's way.
    if kill(Pid::from_raw(content.pid), None) == Err(Errno::ESRCH) {
        return Some((content, Holding::Free));
    }
    // Shared: two who look at the same time would each be taken for the holder. Let go of at once.
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Err((_file, Errno::EWOULDBLOCK)) => Some((content, Holding::Held)),
        Ok(_) | Err(_) => Some((content, Holding::Free)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    #[test]
    fn lock_on_a_silent_disk_is_known_soon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.lock");
        // Who opens it waits for whoever writes into it.
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let begun = std::time::Instant::now();
        for _ in 0..100 {
            assert!(read(&path).is_none());
            assert!(hangs(&path));
        }
        let took = begun.elapsed();
        assert!(took < 5 * READ_WITHIN, "{took:?}: it was waited for once");
        std::fs::write(&path, "{}").unwrap();
        while hangs(&path) {
            std::thread::yield_now();
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path).is_none() && !hangs(&path));
    }
}
