//! Every process that runs turns is an instance: a locked file in `instances/` while it lives.
//!
//! Owns the file's name, its lock, the record of what was spawned, and which instances this process
//! is. Must not know the store, nor end any process.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::limit_mark::LimitMark;
use super::process;

/// Below the state directory.
const DIR: &str = "instances";
/// A file that is being made has this end until it is locked.
const UNFINISHED: &str = ".new";

/// The instances that this process is: one, but in tests.
static OURS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn ours() -> MutexGuard<'static, BTreeSet<String>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on this process is that instance, too: what has its mark is no other's.
pub fn claim(id: &str) {
    ours().insert(id.to_owned());
}

/// Is it this process?
#[must_use]
pub fn is_ours(id: &str) -> bool {
    ours().contains(id)
}

/// Is it one of a worker of this process?
#[must_use]
pub fn is_our_workers(mark: LimitMark) -> bool {
    ours().iter().any(|id| mark.is_of(id))
}

/// A process that was spawned by an instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpawnRecord {
    /// Its id, which is its group's too.
    pub pid: u32,
    /// When it started, in the kernel's count: an id is used again, both together aren't.
    pub start_time: u64,
    /// In which run of the machine.
    pub boot_id: String,
    /// For which session, when that was known.
    pub session: Option<String>,
}

/// Is an instance alive?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It holds its lock.
    Alive {
        /// Its process; 0 when its file could not be read.
        pid: u32,
    },
    /// Its lock is free, or its file is gone.
    Dead,
}

/// Is it an instance that was this process?
#[must_use]
pub fn was(id: &str, pid: u32) -> bool {
    process_of(id).is_some_and(|(found, _)| found == pid)
}

/// The process that its name says it was, and when that started.
fn process_of(id: &str) -> Option<(u32, u64)> {
    let mut parts = id.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// This process as an instance. Its file goes with it.
pub struct Instance {
    id: String,
    path: PathBuf,
    file: File,
}

impl Instance {
    /// Makes and locks the file.
    pub fn create(state_dir: &Path) -> io::Result<Self> {
        let dir = state_dir.join(DIR);
        // The state directory keeps others out already; whoever copies it keeps this mode.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        let pid = std::process::id();
        let started = process::start_time(pid).unwrap_or(0);
        let mut random = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let id = format!("{pid}-{started}-{:016x}", u64::from_ne_bytes(random));
        let path = dir.join(&id);
        let unfinished = dir.join(format!("{id}{UNFINISHED}"));
        let mut file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&unfinished)?;
        // Locked before anybody can find it: whoever finds it free knows that we are gone.
        let mut begin = || {
            file.lock()?;
            writeln!(file, "{pid}")?;
            fs::rename(&unfinished, &path)
        };
        if let Err(error) = begin() {
            // On a full disk each try would leave one behind.
            let _stays = fs::remove_file(&unfinished);
            return Err(error);
        }
        claim(&id);
        Ok(Self { id, path, file })
    }

    /// The name: also the value of `AGENTD_INSTANCE` in what it spawns.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Notes a process. Not synced: a power cut ends the process, too.
    pub fn record(&self, spawn: &SpawnRecord) -> io::Result<()> {
        let mut line = serde_json::to_string(spawn)?;
        line.push('\n');
        (&self.file).write_all(line.as_bytes())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Somebody may have cleaned up; without the file we are as dead as without the lock.
        let _gone = fs::remove_file(&self.path);
    }
}

/// Does the instance live? Asking doesn't get in its way, nor in another asker's.
#[must_use]
pub fn liveness(state_dir: &Path, id: &str) -> Life {
    let file = match File::open(file_of(state_dir, id)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Life::Dead,
        // Whoever can't look doesn't know, and of the living nothing may be taken.
        Err(_) => return Life::Alive { pid: 0 },
    };
    match file.try_lock_shared() {
        Ok(()) => Life::Dead,
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {
            let mut text = String::new();
            let _unreadable = file.take(32).read_to_string(&mut text);
            let pid = text.lines().next().and_then(|line| line.parse().ok());
            Life::Alive {
                pid: pid.unwrap_or(0),
            }
        }
    }
}

/// Does the instance live in another state directory than this one? Then what is here of it is a copy,
/// as a backup that was restored, and its processes aren't ours to end.
#[must_use]
pub fn lives_elsewhere(state_dir: &Path, id: &str) -> bool {
    process_of(id).is_some_and(|(pid, started)| {
        process::start_time(pid) == Some(started) && has_elsewhere(state_dir, pid, id)
    })
}

/// Has the process the instance's file open in another directory? One that was taken away here is ours.
#[cfg(target_os = "linux")]
fn has_elsewhere(state_dir: &Path, pid: u32, id: &str) -> bool {
    let files = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(files) => files,
        // It may be another user's by now, or hidden: what isn't known to be ours is left alone.
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    let state_dir = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    let ours = file_of(&state_dir, id);
    let is_its = |open: PathBuf| {
        let shown = open.to_string_lossy();
        let path = Path::new(shown.trim_end_matches(" (deleted)"));
        path.ends_with(Path::new(DIR).join(id)) && path != ours
    };
    files
        .flatten()
        .any(|file| fs::read_link(file.path()).is_ok_and(is_its))
}

/// What it has open can't be looked at here.
#[cfg(not(target_os = "linux"))]
fn has_elsewhere(_state_dir: &Path, pid: u32, _id: &str) -> bool {
    pid != std::process::id()
}

/// Instances whose files are there and whose locks are free.
pub fn dead_instances(state_dir: &Path) -> io::Result<Vec<String>> {
    let names = instances(state_dir)?;
    Ok(names
        .into_iter()
        .filter(|id| liveness(state_dir, id) == Life::Dead)
        .collect())
}

/// Every instance that has a file.
pub fn instances(state_dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(state_dir.join(DIR)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        if let Ok(name) = entry?.file_name().into_string()
            && !name.ends_with(UNFINISHED)
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// What the instance spawned, as far as it was written.
pub fn records(state_dir: &Path, id: &str) -> io::Result<Vec<SpawnRecord>> {
    let text = match fs::read(file_of(state_dir, id)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // The last line may be half a line; the mark in the environment finds that process.
    let lines = text.lines().skip(1);
    Ok(lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// Removes a dead instance's file, when its processes are gone and its rows taken over.
pub fn forget(state_dir: &Path, id: &str) -> io::Result<()> {
    match fs::remove_file(file_of(state_dir, id)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _gone => Ok(()),
    }
}

/// A name from the store is not trusted to stay in the directory.
fn file_of(state_dir: &Path, id: &str) -> PathBuf {
    let name = Path::new(id).file_name().unwrap_or_default();
    state_dir.join(DIR).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_lives_while_it_holds_its_lock() {
        let dir = tempfile::TempDir::new().unwrap();
        let instance = Instance::create(dir.path()).unwrap();
        let id = instance.id().to_owned();
        let pid = std::process::id();
        assert_eq!(liveness(dir.path(), &id), Life::Alive { pid });
        assert_eq!(
            liveness(dir.path(), &id),
            Life::Alive { pid },
            "asking changes nothing"
        );
        assert!(dead_instances(dir.path()).unwrap().is_empty());
        drop(instance);
        assert_eq!(liveness(dir.path(), &id), Life::Dead);
        assert!(instances(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn instance_lives_elsewhere_than_in_its_copy() {
        let (dir, copy) = (
            tempfile::TempDir::new().unwrap(),
            tempfile::TempDir::new().unwrap(),
        );
        let instance = Instance::create(dir.path()).unwrap();
        let id = instance.id().to_owned();
        assert!(lives_elsewhere(copy.path(), &id));
        assert!(!lives_elsewhere(dir.path(), &id));
        fs::remove_file(file_of(dir.path(), &id)).unwrap();
        assert!(!lives_elsewhere(dir.path(), &id), "only its file is gone");
        drop(instance);
        assert!(!lives_elsewhere(copy.path(), &id), "it has left");
    }

    #[test]
    fn an_instance_that_cannot_be_looked_at_lives() {
        let dir = tempfile::TempDir::new().unwrap();
        let living = Instance::create(dir.path()).unwrap();
        // As a table of descriptors that is full, it says nothing about who holds the lock; unlike
        // that it is no other test's trouble.
        std::os::unix::fs::symlink("loop", file_of(dir.path(), "loop")).unwrap();
        assert_eq!(liveness(dir.path(), "loop"), Life::Alive { pid: 0 });
        assert!(dead_instances(dir.path()).unwrap().is_empty());
        assert_eq!(liveness(dir.path(), "gone"), Life::Dead);
        drop(living);
    }

    #[test]
    fn instance_without_a_lock_is_dead_with_records() {
        let dir = tempfile::TempDir::new().unwrap();
        let instance = Instance::create(dir.path()).unwrap();
        let spawn = SpawnRecord {
            pid: 4,
            start_time: 5,
            boot_id: "b".to_owned(),
            session: Some("main".to_owned()),
        };
        instance.record(&spawn).unwrap();
        let mut left = fs::read(file_of(dir.path(), instance.id())).unwrap();
        left.extend_from_slice(b"{\"pid\":7,\"sta");
        fs::write(file_of(dir.path(), "gone"), left).unwrap();
        assert_eq!(dead_instances(dir.path()).unwrap(), ["gone"]);
        assert_eq!(records(dir.path(), "gone").unwrap(), [spawn]);
        forget(dir.path(), "gone").unwrap();
        forget(dir.path(), "gone").unwrap();
        assert_eq!(instances(dir.path()).unwrap(), [instance.id()]);
    }
}
