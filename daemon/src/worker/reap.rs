//! The end of a process and of everything it started.
//!
//! Owns signals, the order "kill the group, then reap the leader", and the search for what escaped
//! the group. Must not know why a process ends.
//!
//! A dead leader is peeked at first: while it is a zombie its number belongs to nobody else, so
//! its group can be killed without hitting a stranger. Only then it is reaped. Without `waitid`
//! (macOS) the leader is reaped first; that path was never run on a Mac.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentd_core::worker::Exit;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::time::Instant;

use super::environment;
use crate::platform::cgroup::Group;
use crate::platform::instance;
use crate::platform::limit_mark::LimitMark;
use crate::platform::process::{environment_of, has_entry};

/// What is killed is gone within this time, or hangs in the kernel and can't be waited for.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks at the process table when no SIGCHLD comes: another parent got it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The fields that are read stand at the beginning, behind a name of at most 64 bytes.
const STAT: usize = 512;

/// A flag of a process in its `stat`: it has begun to end (`PF_EXITING` of the kernel's `sched.h`).
const PF_EXITING: u32 = 4;

/// Every living leader that this process started: the only children that may not be reaped as
/// somebody's orphan. Children belong to the process, and so does this list.
static LEADERS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn leaders() -> MutexGuard<'static, BTreeSet<i32>> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What every process of one spawn carries: as a limit, and in its environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) instance: String,
    pub(super) worker: String,
}

/// From now on, what a worker leaves behind becomes a child of this process instead of init's:
/// it can be found, killed and reaped. Does nothing where the system has no such thing.
///
/// # Errors
/// When the system refuses.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_child_subreaper(true)?;
    Ok(())
}

/// From now on a child is a leader. It must not have begun: until then it is in our session, where
/// nobody takes it for an orphan.
pub(super) fn is_leader(pid: u32) {
    leaders().insert(pid.cast_signed());
}

/// A leader was reaped that never became its program.
pub(super) fn was_leader(pid: u32) {
    leaders().remove(&pid.cast_signed());
}

/// When a process started, in ticks since boot.
pub(super) fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the start time is the 20th field behind it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// One leader, its group, and what escaped it.
#[derive(Debug)]
pub(super) struct Leader {
    pid: Pid,
    mark: Mark,
    child: Child,
    deaths: Signals,
    group: Option<Group>,
}

impl Leader {
    /// Takes charge of a child that leads its own group.
    pub(super) fn new(
        child: Child,
        pid: u32,
        mark: Mark,
        group: Option<Group>,
    ) -> io::Result<Self> {
        instance::claim(&mark.instance);
        Ok(Self {
            pid: Pid::from_raw(pid.cast_signed()),
            mark,
            child,
            deaths: signal(SignalKind::child())?,
            group,
        })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// SIGTERM to the group; SIGCONT lets a stopped one hear it.
    pub(super) fn terminate(&self) {
        // A group that is gone needs no signal: the exit is on its way.
        let _gone = killpg(self.pid, Signal::SIGTERM);
        let _gone = killpg(self.pid, Signal::SIGCONT);
    }

    /// SIGKILL to the group and to what escaped it.
    pub(super) fn kill(&self) {
        let _gone = killpg(self.pid, Signal::SIGKILL);
        if let Some(group) = &self.group {
            group.kill();
        }
        let _left = sweep(self.pid, &self.mark);
    }

    /// Waits until the leader is dead, without reaping it. Can be dropped and called again.
    #[cfg(target_os = "linux")]
    pub(super) async fn dead(&mut self) {
        while !is_zombie(self.pid) {
            if self.deaths.recv().await.is_none() {
                // Only a runtime that is going down ends the stream.
                std::future::pending::<()>().await;
            }
            // Its own death brings a look at the table anyway.
            if !is_zombie(self.pid) {
                reap_orphans(self.pid, &table());
            }
        }
    }

    /// Waits until the leader is dead. Reaps it: there is no `waitid` to peek with.
    #[cfg(not(target_os = "linux"))]
    pub(super) async fn dead(&mut self) {
        let _kept_by_the_child = self.child.wait().await;
    }

    /// Ends everybody in the control group, if there is one; was there anybody?
    async fn empty_group(&mut self, deadline: Instant) -> bool {
        let Some(group) = self.group.as_ref().filter(|group| !group.is_empty()) else {
            return false;
        };
        group.kill();
        while !group.is_empty() && Instant::now() < deadline {
            let _death = tokio::time::timeout(LOOK_AGAIN, self.deaths.recv()).await;
        }
        true
    }

    /// Ends what the dead leader left, then reaps all of it, the leader last.
    pub(super) async fn clear(mut self) -> Exit {
        let deadline = Instant::now() + GONE_WITHIN;
        let mut left = self.empty_group(deadline).await;
        let mut orphans = BTreeSet::new();
        loop {
            // ESRCH and EPERM both mean that nobody is left but zombies.
            let _gone = killpg(self.pid, Signal::SIGKILL);
            if !left && left_nothing(self.pid) {
                break;
            }
            let mut found = sweep(self.pid, &self.mark);
            found.alive += sweep_orphans(&mut orphans);
            left |= found.alive + found.dead > 0;
            if found.alive == 0 || Instant::now() >= deadline {
                break;
            }
            let _death = tokio::time::timeout(LOOK_AGAIN, self.deaths.recv()).await;
        }
        if left {
            // One may have become our child while the table was read.
            reap_orphans(self.pid, &table());
        }
        let status = self.child.wait().await;
        leaders().remove(&self.pid.as_raw());
        exit_of(status)
    }
}

/// Kills what an agentd started that was a worker of ours and is dead: its processes have its mark,
/// and became our children. Those of a living one are its own. Reaps the `killed` that are dead;
/// says how many are not yet.
fn sweep_orphans(killed: &mut BTreeSet<i32>) -> usize {
    for process in table() {
        let adopted = process.parent == Pid::this() && !leaders().contains(&process.pid.as_raw());
        let pid = process.pid.as_raw();
        if adopted && !process.zombie && !killed.contains(&pid) && is_of_another(process.pid) {
            if process.group == process.pid {
                let _gone = killpg(process.pid, Signal::SIGKILL);
            }
            let _gone = kill(process.pid, Signal::SIGKILL);
            killed.insert(pid);
        }
    }
    killed.retain(|pid| {
        let flags = Some(nix::sys::wait::WaitPidFlag::WNOHANG);
        let waited = nix::sys::wait::waitpid(Pid::from_raw(*pid), flags);
        matches!(waited, Ok(WaitStatus::StillAlive))
    });
    killed.len()
}

/// Does it carry the mark of an instance that this process is not?
fn is_of_another(pid: Pid) -> bool {
    if let Some(mark) = LimitMark::on(pid.as_raw().cast_unsigned()) {
        return !instance::is_our_workers(mark);
    }
    let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else {
        return false;
    };
    let mut entries = environ.split(|byte| *byte == 0);
    let name = entries.find_map(|entry| {
        let value = entry.strip_prefix(environment::INSTANCE.as_bytes())?;
        value.strip_prefix(b"=")
    });
    name.is_some_and(|name| !instance::is_ours(&String::from_utf8_lossy(name)))
}

fn exit_of(status: io::Result<std::process::ExitStatus>) -> Exit {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Code(-1),
        },
        // Somebody else reaped our child; how it ended is lost, that it ended is not.
        Err(_) => Exit::Code(-1),
    }
}

#[cfg(target_os = "linux")]
fn is_zombie(pid: Pid) -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    // An error means that it isn't our child any more, so it won't become more dead.
    !matches!(waitid(Id::Pid(pid), peek), Ok(WaitStatus::StillAlive))
}

/// Has the dead leader surely left nothing? A subreaper is the parent of whatever outlived its own
/// parent, so its children are all there is to look at: far less than the process table.
#[cfg(target_os = "linux")]
fn left_nothing(leader: Pid) -> bool {
    if nix::sys::prctl::get_child_subreaper() != Ok(true) {
        return false;
    }
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return false;
    };
    // A thread that ends while we read hands its children to another one: then we don't know.
    let mut known = false;
    let leaders = leaders();
    for thread in threads {
        let children =
            thread.and_then(|thread| std::fs::read_to_string(thread.path().join("children")));
        let Ok(children) = children else { return false };
        let is_leader = |pid: &str| {
            let pid = pid.parse::<i32>();
            pid.is_ok_and(|pid| pid == leader.as_raw() || leaders.contains(&pid))
        };
        if !children.split_ascii_whitespace().all(is_leader) {
            return false;
        }
        known = true;
    }
    known
}

#[cfg(not(target_os = "linux"))]
const fn left_nothing(_leader: Pid) -> bool {
    false
}

/// What a look at the table found besides the leader.
struct Found {
    /// Processes of this worker.
    alive: usize,
    /// Zombies; whose they were can't be seen any more.
    dead: usize,
}

/// Kills what carries the mark or is in the group, besides the leader. Reaps those of them that
/// became our children.
fn sweep(leader: Pid, mark: &Mark) -> Found {
    let mut found = Found { alive: 0, dead: 0 };
    let table = table();
    // What the leader started is not older than it; the rest need not be looked into.
    let since = table
        .iter()
        .find(|process| process.pid == leader)
        .map_or(0, |leader| leader.started);
    for process in &table {
        if process.pid == leader {
            continue;
        }
        if process.zombie {
            found.dead += 1;
            continue;
        }
        // It has no environment any more, so whose it was can't be seen; as our child it is a
        // zombie in a moment, and that is waited for.
        if process.exiting && is_adopted(process, leader) {
            found.alive += 1;
            continue;
        }
        let is_ours = match process.group == leader {
            true => Some(true),
            false if process.started < since => Some(false),
            false => mark.is_on(process.pid),
        };
        match is_ours {
            // EPERM: it changed its user, and is out of our reach.
            Some(true) => {
                found.alive += usize::from(kill(process.pid, Signal::SIGKILL) != Err(Errno::EPERM));
            }
            Some(false) => {}
            // It is seen in a moment.
            None => found.alive += 1,
        }
    }
    reap_orphans(leader, &table);
    found
}

/// Reaps dead children that were adopted. Each by its number: whatever else the process started
/// is reaped by whoever started it.
fn reap_orphans(leader: Pid, table: &[Process]) {
    let dead = table.iter().filter(|process| process.zombie);
    for process in dead.filter(|process| is_adopted(process, leader)) {
        reap(process.pid);
    }
}

/// Is it a child of ours that another process started? Those are in the leader's group, or in a
/// session of their own, where this process never starts anything.
fn is_adopted(process: &Process, leader: Pid) -> bool {
    process.parent == Pid::this()
        && (process.group == leader || Some(process.session) != nix::unistd::getsid(None).ok())
        && !leaders().contains(&process.pid.as_raw())
}

fn reap(pid: Pid) {
    let flags = Some(nix::sys::wait::WaitPidFlag::WNOHANG);
    // ECHILD: another leader's sweep was faster.
    let _status: Result<WaitStatus, Errno> = nix::sys::wait::waitpid(pid, flags);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Process {
    pid: Pid,
    zombie: bool,
    /// On its way to be one.
    exiting: bool,
    parent: Pid,
    group: Pid,
    session: Pid,
    /// In ticks since boot.
    started: u64,
}

/// Every process that can be seen; nothing where there is no `/proc`.
fn table() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| {
            // Each read makes the kernel gather all of it again, so one has to do.
            let mut stat = [0; STAT];
            let read = File::open(format!("/proc/{pid}/stat"))
                .and_then(|mut file| file.read(&mut stat))
                .ok()?;
            parse(pid, &String::from_utf8_lossy(&stat[..read]))
        })
        .collect()
}

fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X");
    let mut number = || fields.next()?.parse().ok().map(Pid::from_raw);
    let (parent, group, session) = (number()?, number()?, number()?);
    Some(Process {
        pid: Pid::from_raw(pid),
        zombie,
        parent,
        group,
        session,
        exiting: fields.nth(2)?.parse::<u32>().ok()? & PF_EXITING != 0,
        started: fields.nth(12)?.parse().ok()?,
    })
}

impl Mark {
    /// As every process has it in its environment.
    pub(super) fn variables(&self) -> [(&'static str, &str); 2] {
        [
            (environment::INSTANCE, &self.instance),
            (environment::WORKER, &self.worker),
        ]
    }

    /// The name of its control group.
    pub(super) fn group(&self) -> String {
        format!("worker-{}-{}", self.instance, self.worker)
    }

    pub(super) fn limit(&self) -> LimitMark {
        LimitMark::new(&self.instance, &self.worker)
    }

    /// Where a limit can't be set, and in what an older agentd left, the environment tells, unless
    /// there is none just now.
    fn is_on(&self, pid: Pid) -> Option<bool> {
        let pid = pid.as_raw().cast_unsigned();
        if let Some(mark) = LimitMark::on(pid) {
            return Some(mark == self.limit());
        }
        let environment = environment_of(pid)?;
        let has = |name, value| has_entry(&environment, &format!("{name}={value}"));
        let is_instance = has(environment::INSTANCE, &self.instance);
        Some(is_instance && has(environment::WORKER, &self.worker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_and_spaces_does_not_confuse_the_table() {
        let rest = "0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 553579 9666560";
        let process = parse(7, &format!("7 (a) Z (b) S 1 5 6 {rest}")).unwrap();
        let pid = Pid::from_raw;
        assert_eq!(
            (
                process.zombie,
                process.parent,
                process.group,
                process.session,
                process.started
            ),
            (false, pid(1), pid(5), pid(6), 553_579)
        );
        assert!(parse(7, &format!("7 (x) Z 1 5 6 {rest}")).unwrap().zombie);
        assert_eq!(parse(7, "garbage"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_without_a_limit_is_known_by_its_environment() {
        let mark = Mark {
            instance: "1-2-3".to_owned(),
            worker: "4.5".to_owned(),
        };
        instance::claim(&mark.instance);
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("60").envs(mark.variables());
        let mut child = sleep.spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        let begun = Instant::now();
        while mark.is_on(pid).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
        assert_eq!(LimitMark::on(child.id()), None);
        assert_eq!(mark.is_on(pid), Some(true));
        assert!(!is_of_another(pid));
        let another = Mark {
            worker: "4.6".to_owned(),
            ..mark
        };
        assert_eq!(another.is_on(pid), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
