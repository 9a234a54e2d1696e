//! The files by which daemons keep out of each other's way.
//!
//! Owns `daemon.lock` and `agentd.sock.lock`: who holds one, and what it tells others. Of what a
//! free one says nothing is true, but that another daemon follows, and that for a minute.
//! The files stay in place for ever, as a lock on a removed file locks nobody out; whoever tidies
//! may remove one all the same.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agentd_base::clock::boot_ms;
use agentd_base::configuration::Taken;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// What the holder of a lock is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Doing {
    /// Opening its store, which may take its time: it doesn't serve yet.
    Starting,
    /// Serving.
    Running,
    /// Going down, or gone; another one follows at once.
    Restarting,
    /// Going down.
    Stopping,
}

/// How long clients wait for the next daemon after one said that another follows: it may migrate
/// the store.
pub const NEXT_WITHIN: Duration = Duration::from_secs(60);

/// A client probes the lock for a moment: its holder isn't another daemon.
const PROBED: Duration = Duration::from_millis(100);

/// A child of a daemon that was killed has its locks until it is another program, which takes longer
/// the busier the machine is.
const INHERITED: Duration = Duration::from_secs(20);

/// A lock says one short object; more than this isn't ours, as clients see it too.
const MOST: u64 = 16 * 1024;

/// What a lock file says. While the lock is held it is true.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The daemon's process.
    pub pid: u32,
    /// Where it listens.
    pub socket: PathBuf,
    /// What it is doing.
    pub state: Doing,
    /// Of one that is restarting: the time since boot until which the next one is waited for, when
    /// the lock is free. Whoever takes it says something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_boot_ms: Option<u64>,
    /// The configuration that it began with: while that is as it was, the next one will have it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_with: Option<Taken>,
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error("another agentd (pid {pid}) runs and holds `{}`", path.display())]
    Held {
        /// The lock.
        path: PathBuf,
        /// Who; 0 when it doesn't say.
        pid: u32,
    },
    /// The system said no.
    #[error("can't lock `{}`: {source}", path.display())]
    Io {
        /// The lock.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    holder: Holder,
    cut_off: Option<u32>,
}

impl Lock {
    /// Takes the lock for this process, or says who has it. Waits where it is nobody who keeps it.
    pub fn take(path: &Path, socket: &Path) -> Result<Self, LockError> {
        let begun = Instant::now();
        loop {
            let within = match Self::try_take(path, socket) {
                Err(LockError::Held { pid, .. }) if is_gone(pid) => INHERITED,
                Err(LockError::Held { .. }) => PROBED,
                taken => return taken,
            };
            if begun.elapsed() > within {
                return Self::try_take(path, socket);
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    fn try_take(path: &Path, socket: &Path) -> Result<Self, LockError> {
        let io = |source| LockError::Io {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            // A link there would have us make and lock a file of its choice.
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held {
                    path: path.to_owned(),
                    pid: read(&file).map_or(0, |holder| holder.pid),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let holder = Holder {
            pid: std::process::id(),
            socket: socket.to_owned(),
            state: Doing::Starting,
            until_boot_ms: None,
            began_with: None,
        };
        // Of who left in order it says so, and that is kept in the file.
        let cut_off = read(&file).and_then(|left| match left.state {
            Doing::Starting | Doing::Running => Some(left.pid),
            Doing::Restarting | Doing::Stopping => None,
        });
        let mut lock = Self {
            file,
            holder,
            cut_off,
        };
        lock.say(Doing::Starting).map_err(io)?;
        Ok(lock)
    }

    /// What the lock is to say, from the next word on, of the configuration.
    pub fn begin_with(&mut self, taken: Taken) {
        self.holder.began_with = Some(taken);
    }

    /// The process that had the lock before, if it ended without saying that it does.
    #[must_use]
    pub const fn cut_off(&self) -> Option<u32> {
        self.cut_off
    }

    /// Is the file at the path the one that is locked? A file that was removed locks nobody out.
    /// Whoever can't look doesn't know that it was.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let there = match fs::symlink_metadata(path) {
            Ok(there) => identity(there),
            Err(error) => return error.kind() != io::ErrorKind::NotFound,
        };
        self.file
            .metadata()
            .map_or(true, |ours| identity(ours) == there)
    }

    /// Tells others what we are doing.
    pub fn say(&mut self, state: Doing) -> io::Result<()> {
        self.holder.state = state;
        self.holder.until_boot_ms = (state == Doing::Restarting).then(|| {
            let within = u64::try_from(NEXT_WITHIN.as_millis()).unwrap_or(u64::MAX);
            boot_ms().saturating_add(within)
        });
        let mut text = serde_json::to_vec(&self.holder)?;
        text.push(b'\n');
        // Blanks over what was longer, so that no reader finds the file cut off.
        let before = self.file.metadata()?.len();
        let blanks = usize::try_from(before.min(MOST)).unwrap_or(0);
        text.resize(text.len().max(blanks), b' ');
        self.file.write_all_at(&text, 0)?;
        if before > MOST {
            tracing::warn!(
                found = before,
                expected = MOST,
                "a lock's file is longer than any of agentd's and is cut: who else writes to it?"
            );
            self.file.set_len(MOST.max(text.len() as u64))?;
        }
        Ok(())
    }
}

impl Drop for Lock {
    /// A child that is between fork and exec has the file, too, and would keep the lock.
    fn drop(&mut self) {
        // Then it goes with the last of them.
        let _closed = self.file.unlock();
    }
}

/// Has a process ended? One that doesn't say who it is, hasn't.
fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).unwrap_or(0);
    pid > 0 && kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)
}

/// The daemon that was to follow doesn't come up: from now on nobody waits for it. A lock that is
/// held, or says nothing of the kind, stays as it is.
pub fn none_follows(path: &Path) {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let Ok(file) = options.custom_flags(libc::O_NOFOLLOW).open(path) else {
        return;
    };
    if file.try_lock().is_err() {
        return;
    }
    let left = read(&file).filter(|holder| holder.state == Doing::Restarting);
    if let Some(holder) = left {
        // Whoever can't write it makes clients wait for a minute, no more.
        let mut lock = Lock {
            file,
            holder,
            cut_off: None,
        };
        let _waited_for = lock.say(Doing::Stopping);
    }
}

/// Who holds the lock, if anybody does and says so.
#[must_use]
pub fn holder(path: &Path) -> Option<Holder> {
    let file = File::open(path).ok()?;
    // Shared: of two who look at once each would be taken for the holder.
    match file.try_lock_shared() {
        Ok(()) => None,
        Err(_held) => read(&file),
    }
}

/// No more of it than a lock says, however long somebody made it: what else is in there is no reason
/// to be short of memory.
fn read(file: &File) -> Option<Holder> {
    let mut text = Vec::new();
    file.take(MOST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_tells_the_second_daemon_of_the_first() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("daemon.lock");
        let mut first = Lock::take(&path, Path::new("/a/long/way/to/the.sock")).unwrap();
        let pid = std::process::id();
        let refused = Lock::take(&path, Path::new("/b")).unwrap_err();
        assert!(
            matches!(refused, LockError::Held { pid: told, .. } if told == pid),
            "{refused}"
        );
        let holds = || holder(&path).map(|holder| (holder.state, holder.until_boot_ms.is_some()));
        assert_eq!(
            holds(),
            Some((Doing::Starting, false)),
            "its store isn't open"
        );
        assert_eq!(first.cut_off(), None);
        first.say(Doing::Running).unwrap();
        assert_eq!(holds(), Some((Doing::Running, false)));
        drop(first);
        let mut first = Lock::take(&path, Path::new("/a/long/way/to/the.sock")).unwrap();
        assert_eq!(first.cut_off(), Some(pid), "it said nothing of its end");
        first.say(Doing::Restarting).unwrap();
        assert_eq!(holds(), Some((Doing::Restarting, true)));
        first.say(Doing::Stopping).unwrap();
        assert_eq!(holder(&path).unwrap().state, Doing::Stopping);
        drop(first);
        assert_eq!(holder(&path), None, "what a free lock says isn't true");
        let next = Lock::take(&path, Path::new("/b")).unwrap();
        assert_eq!(next.cut_off(), None, "it said that it stops");
        assert_eq!(holder(&path).unwrap().socket, Path::new("/b"));
        assert!(path.exists());
        assert!(next.is_at(&path));
        fs::remove_file(&path).unwrap();
        assert!(!next.is_at(&path));
        let _another = Lock::take(&path, Path::new("/c")).unwrap();
        assert!(!next.is_at(&path), "another file of the same name");
    }

    #[test]
    fn lock_says_that_none_follows_once_free() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("daemon.lock");
        none_follows(&path);
        assert!(!path.exists());
        let mut lock = Lock::take(&path, Path::new("/a")).unwrap();
        lock.say(Doing::Restarting).unwrap();
        none_follows(&path);
        assert_eq!(holder(&path).unwrap().state, Doing::Restarting);
        drop(lock);
        none_follows(&path);
        let left = read(&File::open(&path).unwrap()).unwrap();
        assert_eq!((left.state, left.until_boot_ms), (Doing::Stopping, None));
    }

    #[test]
    fn lock_that_is_too_long_is_cut() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("daemon.lock");
        // More than there is memory for; a hole takes no room on the disk.
        let file = File::create(&path).unwrap();
        file.set_len(900 << 30).unwrap();
        file.lock().unwrap();
        assert_eq!(holder(&path), None, "it says nothing");
        // A child of another test may have it, too.
        file.unlock().unwrap();
        drop(file);
        let lock = Lock::take(&path, Path::new("/a")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), MOST);
        assert_eq!(holder(&path).unwrap().pid, std::process::id());
        drop(lock);
        let _next = Lock::take(&path, Path::new("/b")).unwrap();
        assert_eq!(holder(&path).unwrap().socket, Path::new("/b"));
    }

    #[test]
    fn lock_is_free_whatever_children_have_it() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("daemon.lock");
        let lock = Lock::take(&path, Path::new("/a")).unwrap();
        // What one has that was forked a moment ago.
        let inherited = lock.file.try_clone().unwrap();
        drop(lock);
        let next = Lock::take(&path, Path::new("/b")).unwrap();
        drop(inherited);
        assert!(Lock::take(&path, Path::new("/c")).is_err(), "it is held");
        drop(next);
    }

    #[test]
    fn lock_of_a_killed_daemons_child_is_awaited() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("daemon.lock");
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let mut lock = Lock::take(&path, Path::new("/a")).unwrap();
        lock.holder.pid = ended.id();
        lock.say(Doing::Running).unwrap();
        let (held, asked) = (PROBED * 3, Instant::now());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| Lock::take(&path, Path::new("/b")));
            // A child that becomes another program at last.
            std::thread::park_timeout(held);
            drop(lock);
            assert_eq!(next.join().unwrap().unwrap().cut_off(), Some(ended.id()));
        });
        assert!(asked.elapsed() >= held, "nobody had it");
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("daemon.lock");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(
            Lock::take(&path, Path::new("/a")),
            Err(LockError::Io { .. })
        ));
    }
}
