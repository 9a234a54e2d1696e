//! Processes that aren't our children: which there are, whose they are, and how they end.
//!
//! Owns what is read from `/proc`. Where there is none (macOS) nothing is known, and what a dead
//! instance left behind isn't ended. Must not know the store or the core.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::instance;
use super::limit_mark::LimitMark;

/// The variable by which a process carries the name of the instance that spawned it.
pub const MARK: &str = "AGENTD_INSTANCE";
/// A killed process that is still there after this time hangs in the kernel.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// A process has become another program long before.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// No process has more ancestors than this, unless `/proc` changes while it is read.
const ANCESTORS: usize = 256;

/// When a process started, in ticks since the machine did.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// Does this system tell when processes started? One without `/proc` doesn't.
#[must_use]
pub fn sees_processes() -> bool {
    static SEES: OnceLock<bool> = OnceLock::new();
    *SEES.get_or_init(|| start_time(std::process::id()).is_some())
}

/// Which run of the machine this is.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// A process and its ancestors, itself first.
#[must_use]
pub fn ancestry(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    while let Some(parent) = line.last().and_then(|pid| stat_field(*pid, 4))
        && let Ok(parent) = parent.parse::<u32>()
        // The first process of a namespace has 0 for its parent.
        && parent != 0
        && line.len() < ANCESTORS
    {
        line.push(parent);
    }
    line
}

/// Resident memory of this process.
#[must_use]
pub fn rss_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// How many files this process has open, and may have.
#[must_use]
pub fn open_files() -> Option<(u64, u64)> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    // Since Linux 6.2 the directory's size says it; elsewhere it is counted.
    let dir = if cfg!(target_os = "linux") {
        "/proc/self/fd"
    } else {
        "/dev/fd"
    };
    let said = fs::metadata(dir).map_or(0, |dir| dir.len());
    if cfg!(target_os = "linux") && said > 0 {
        return Some((said, limit));
    }
    // The directory itself is open meanwhile.
    let open = fs::read_dir(dir).ok()?.count().saturating_sub(1);
    Some((u64::try_from(open).ok()?, limit))
}

/// What a look for marked processes found.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Marked {
    /// Those that carry the mark.
    pub pids: Vec<u32>,
    /// Those of which it can't be seen yet.
    pub unsettled: Vec<u32>,
    /// The table could not be read: there may be more.
    pub unread: bool,
}

/// Processes that carry the mark of one of the instances as a limit, or in their environment.
#[must_use]
pub fn marked(instances: &BTreeSet<String>) -> Marked {
    let mut marked = Marked::default();
    let entries = match fs::read_dir("/proc") {
        Ok(entries) => entries,
        Err(error) => {
            // Where there is none, nothing is ever marked.
            marked.unread = error.kind() != std::io::ErrorKind::NotFound;
            return marked;
        }
    };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|pid| pid.parse().ok()) else {
            continue;
        };
        if let Some(mark) = LimitMark::on(pid) {
            if instances.iter().any(|instance| mark.is_of(instance)) && !is_dead(pid) {
                marked.pids.push(pid);
            }
            continue;
        }
        match environment_of(pid) {
            Some(entries) if carries_one(&entries, instances) => marked.pids.push(pid),
            Some(_) => {}
            None => marked.unsettled.push(pid),
        }
    }
    marked
}

/// What a process has in its environment, nothing where it can't be read. Nobody knows while it is
/// just becoming another program.
#[must_use]
pub fn environment_of(pid: u32) -> Option<Vec<u8>> {
    let read = || {
        let of = |dir: &Path| fs::read(dir.join("environ")).unwrap_or_default();
        let whole = of(Path::new(&format!("/proc/{pid}")));
        if !whole.is_empty() {
            return whole;
        }
        // A thread still has what the process's first one had, which may have ended.
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        let threads = threads.into_iter().flatten().flatten();
        let mut read = threads.map(|thread| of(&thread.path()));
        read.find(|entries| !entries.is_empty()).unwrap_or_default()
    };
    let first = read();
    if !first.is_empty() {
        return Some(first);
    }
    // Or it has become the other program since.
    (!is_unsettled(pid)).then(read)
}

/// Is the mark in an environment that of one of the instances?
fn carries_one(environment: &[u8], instances: &BTreeSet<String>) -> bool {
    let mut entries = environment.split(|byte| *byte == 0);
    entries.any(|entry| {
        let named = entry.strip_prefix(MARK.as_bytes());
        let named = named.and_then(|named| named.strip_prefix(b"="));
        let named = named.and_then(|named| std::str::from_utf8(named).ok());
        named.is_some_and(|named| instances.contains(named))
    })
}

/// Is this one of an environment's entries?
#[must_use]
pub fn has_entry(environment: &[u8], entry: &str) -> bool {
    let mut entries = environment.split(|byte| *byte == 0);
    entries.any(|other| other == entry.as_bytes())
}

/// Is the process just becoming another program? Then it has neither arguments nor environment for
/// a moment, which otherwise only the kernel's own and the dead have, and those have no program.
fn is_unsettled(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.is_empty())
        && fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Has it ended? Its limits are told until its parent has asked how, which may take a second, or for
/// ever. One whose first thread has ended goes on with the others.
fn is_dead(pid: u32) -> bool {
    let ended = stat_field(pid, 3).is_some_and(|state| matches!(&*state, "Z" | "X"));
    let threads = stat_field(pid, 20).and_then(|threads| threads.parse::<u32>().ok());
    ended && threads.is_none_or(|threads| threads <= 1)
}

/// Ends everything that dead instances left running, and what others did that died before them: they
/// may have had their sessions by then, and have died before they ended their processes.
///
/// Gives the processes that would not go. Blocks for at most 5 s, however many there are. Never
/// touches this process or its ancestors, whatever they are marked.
#[must_use]
pub fn end_dead(state_dir: &Path, ids: &BTreeSet<String>) -> Vec<u32> {
    let others = instance::dead_instances(state_dir).unwrap_or_default();
    let mut all: BTreeSet<String> = ids.iter().cloned().chain(others).collect();
    all.retain(|id| !instance::lives_elsewhere(state_dir, id));
    end_instances(state_dir, &all)
}

fn end_instances(state_dir: &Path, ids: &BTreeSet<String>) -> Vec<u32> {
    let until = Instant::now() + GONE_WITHIN;
    let spared: BTreeSet<u32> = ancestry(std::process::id()).into_iter().collect();
    let boot = boot_id();
    let records = |id: &String| {
        let read = instance::records(state_dir, id).inspect_err(|error| {
            tracing::warn!(%error, instance = id, "what it started is found by its mark only");
        });
        read.unwrap_or_default()
    };
    let recorded: Vec<u32> = ids
        .iter()
        .flat_map(records)
        .filter(|spawn| {
            Some(&spawn.boot_id) == boot.as_ref() && start_time(spawn.pid) == Some(spawn.start_time)
        })
        .map(|spawn| spawn.pid)
        .filter(|pid| !spared.contains(pid))
        .collect();
    // Handles before the kill: afterwards a number may be another's.
    let mut ending = watch(&recorded);
    for pid in &recorded {
        kill_group(*pid);
    }
    loop {
        // A process may have forked between the look and its end, or was becoming another program:
        // looked for until none is left.
        let now = marked(ids);
        let found: Vec<u32> = now
            .pids
            .into_iter()
            .filter(|pid| !spared.contains(pid))
            .collect();
        ending.extend(watch(&found));
        for pid in &found {
            kill_one(*pid);
        }
        ending = await_exits(ending, until);
        let is_over = found.is_empty() && now.unsettled.is_empty() && !now.unread;
        if is_over || Instant::now() >= until {
            return ending.into_iter().map(|(pid, _)| pid).collect();
        }
        if found.is_empty() {
            std::thread::park_timeout(LOOK_AGAIN);
        }
    }
}

/// Process ids with a handle that tells when they are gone.
type Watched = Vec<(u32, OwnedFd)>;

fn watch(pids: &[u32]) -> Watched {
    pids.iter()
        .filter_map(|pid| Some((*pid, pidfd(*pid)?)))
        .collect()
}

/// Waits until all are gone or the time has come, and gives those that are left.
fn await_exits(mut left: Watched, until: Instant) -> Watched {
    while !left.is_empty() {
        let rest = until.saturating_duration_since(Instant::now());
        let mut polled: Vec<PollFd<'_>> = left
            .iter()
            .map(|(_, handle)| PollFd::new(handle.as_fd(), PollFlags::POLLIN))
            .collect();
        let timeout = PollTimeout::try_from(rest).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, timeout) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => break,
        }
        let gone: Vec<bool> = polled
            .iter()
            .map(|one| one.any().unwrap_or(false))
            .collect();
        let mut gone = gone.into_iter();
        left.retain(|_| !gone.next().unwrap_or(false));
    }
    left
}

#[cfg(target_os = "linux")]
fn pidfd(pid: u32) -> Option<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn pidfd(_pid: u32) -> Option<OwnedFd> {
    None
}

fn kill_group(pid: u32) {
    if let Some(pid) = target(pid) {
        // It may be gone by now, which is what is wanted.
        let _gone = killpg(pid, Signal::SIGKILL);
    }
}

fn kill_one(pid: u32) {
    if let Some(pid) = target(pid) {
        // It may be gone by now, which is what is wanted.
        let _gone = kill(pid, Signal::SIGKILL);
    }
}

/// 0 is our own group and 1 is everybody's parent: neither is ever meant.
fn target(pid: u32) -> Option<Pid> {
    i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .map(Pid::from_raw)
}

/// A field of `/proc/<pid>/stat`, counted from 1. The second one, the name, may hold anything.
fn stat_field(pid: u32, field: usize) -> Option<String> {
    // One read gets the line whole, which is shorter by half: without a size `std` asks for it in
    // six, and a sender's ancestors are looked up before its first turn.
    let mut stat = [0; 1024];
    let mut file = fs::File::open(format!("/proc/{pid}/stat")).ok()?;
    let length = file.read(&mut stat).ok()?;
    let stat = String::from_utf8_lossy(stat.get(..length)?);
    let (_, after_name) = stat.rsplit_once(')')?;
    let index = field.checked_sub(3)?;
    after_name.split_whitespace().nth(index).map(str::to_owned)
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};

    use super::*;
    use crate::platform::instance::{self, Instance, SpawnRecord};

    fn spawn(mark: Option<&str>) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60").process_group(0);
        if let Some(mark) = mark {
            command.env(MARK, mark);
        }
        command.spawn().unwrap()
    }

    fn only(instance: &str) -> BTreeSet<String> {
        BTreeSet::from([instance.to_owned()])
    }

    #[test]
    fn process_knows_its_start_memory_and_line() {
        let pid = std::process::id();
        assert!(start_time(pid).is_some());
        assert!(rss_bytes().unwrap() > 1024 * 1024);
        assert!(boot_id().is_some());
        let (open, limit) = open_files().unwrap();
        assert!(3 <= open && open < limit, "{open} of {limit}");
        let line = ancestry(pid);
        assert_eq!(line.first(), Some(&pid));
        assert_eq!(
            line.get(1).copied(),
            Some(std::os::unix::process::parent_id())
        );
    }

    #[test]
    fn dead_process_is_not_waited_for() {
        let dir = tempfile::TempDir::new().unwrap();
        let instance = Instance::create(dir.path()).unwrap();
        let mut command = Command::new("sleep");
        LimitMark::new(instance.id(), "1.0").put_on(&mut command);
        let mut child = command.arg("60").spawn().unwrap();
        assert_eq!(marked(&only(instance.id())).pids, [child.id()]);
        // Nobody asks how it ended, as a first process of a container that is slow to.
        assert!(end_instances(dir.path(), &only(instance.id())).is_empty());
        assert!(LimitMark::on(child.id()).is_some(), "it is seen still");
        assert!(marked(&only(instance.id())).pids.is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn process_becoming_another_program_is_ended_too() {
        let dir = tempfile::TempDir::new().unwrap();
        let instance = Instance::create(dir.path()).unwrap();
        let mut missed = 0;
        for _ in 0..200 {
            // It is back as soon as the new program is chosen, before its environment is there.
            let mut child = spawn(Some(instance.id()));
            assert_eq!(
                end_instances(dir.path(), &only(instance.id())),
                Vec::<u32>::new()
            );
            missed += u32::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(missed, 0, "of 200");
    }

    #[test]
    fn leftovers_of_earlier_dead_instances_are_ended_too() {
        let dir = tempfile::TempDir::new().unwrap();
        let dead = |name: &str| {
            // Or a test of the worker's takes it for what another process left here.
            instance::claim(name);
            let file = dir.path().join("instances").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "{\"pid\":1}\n").unwrap();
        };
        let (earlier, last) = ("earlier-instance", "last-instance");
        dead(earlier);
        dead(last);
        let living = Instance::create(dir.path()).unwrap();
        let [mut first, mut second, mut spared] =
            [earlier, last, living.id()].map(|mark| spawn(Some(mark)));
        assert_eq!(end_dead(dir.path(), &only(last)), Vec::<u32>::new());
        for child in [&mut first, &mut second] {
            assert!(child.try_wait().unwrap().is_some(), "it was ended");
        }
        assert!(spared.try_wait().unwrap().is_none(), "its instance lives");
        spared.kill().unwrap();
        spared.wait().unwrap();
    }

    #[test]
    fn leftovers_are_what_is_marked_or_recorded() {
        let dir = tempfile::TempDir::new().unwrap();
        let instance = Instance::create(dir.path()).unwrap();
        let mut marked_one = spawn(Some(instance.id()));
        let mut clearing = Command::new("sleep");
        clearing.arg("60").process_group(0);
        LimitMark::new(instance.id(), "1").put_on(&mut clearing);
        let mut cleared_one = clearing.spawn().unwrap();
        let mut recorded_one = spawn(None);
        let mut stale_one = spawn(None);
        let mut rebooted_one = spawn(None);
        let record = |pid: u32, later: u64| SpawnRecord {
            pid,
            start_time: start_time(pid).unwrap() + later,
            boot_id: boot_id().unwrap(),
            session: None,
        };
        instance.record(&record(recorded_one.id(), 0)).unwrap();
        instance.record(&record(stale_one.id(), 1)).unwrap();
        let of_another_boot = SpawnRecord {
            boot_id: "another".to_owned(),
            ..record(rebooted_one.id(), 0)
        };
        instance.record(&of_another_boot).unwrap();
        let found = loop {
            let now = marked(&only(instance.id()));
            if !now.unsettled.contains(&marked_one.id()) {
                break now.pids;
            }
        };
        assert_eq!(found, [marked_one.id(), cleared_one.id()]);
        assert_eq!(
            end_instances(dir.path(), &only(instance.id())),
            Vec::<u32>::new()
        );
        assert!(!marked_one.wait().unwrap().success());
        assert!(!cleared_one.wait().unwrap().success());
        assert!(!recorded_one.wait().unwrap().success());
        for stranger in [&mut stale_one, &mut rebooted_one] {
            assert!(
                stranger.try_wait().unwrap().is_none(),
                "its id was used again"
            );
            stranger.kill().unwrap();
            stranger.wait().unwrap();
        }
    }
}
