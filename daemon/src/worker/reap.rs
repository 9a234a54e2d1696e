//! The end of a process and of everything it started.
//!
//! Owns signals, the order "kill the group, then reap the leader", the search for what escaped the
//! group, and the one task that hears of the end of children. Must not know why a process ends.
//!
//! That task knows leaders by their numbers, and what was adopted by the list of our own children:
//! an end costs the same however many workers live and processes there are. Only where a leader's
//! end leaves somebody behind it is looked further, one at a time and beside the owner.
//!
//! A dead leader is peeked at first: while it is a zombie its number belongs to nobody else, so
//! its group can be killed without hitting a stranger. Only then it is reaped. Without `waitid`
//! (macOS) the leader is reaped first; that path was never run on a Mac.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentd_core::worker::Exit;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::environment;
use super::family::{self, Found, Process};
use crate::platform::cgroup::Group;
use crate::platform::instance;
use crate::platform::limit_mark::LimitMark;
use crate::platform::process::{environment_of, has_entry};

/// What is killed is gone within this time, or hangs in the kernel and can't be waited for.
const GONE_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks at the process table when no SIGCHLD comes: another parent got it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// By number, with who is told of the end.
type Leaders = BTreeMap<i32, Arc<Notify>>;

/// Every leader that this process started and didn't reap: the only children that may not be reaped
/// as somebody's orphan. Children belong to the process, and so does this list. Held while children
/// are reaped or listed, as the kernel may skip one in between.
static LEADERS: Mutex<Leaders> = Mutex::new(Leaders::new());
/// Rung at each end.
static ENDS: Notify = Notify::const_new();
/// Who looks for what a leader left: one at a time.
static LOOKING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn leaders() -> MutexGuard<'static, Leaders> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What every process of one spawn carries: as a limit, and in its environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SpawnTag {
    pub(super) instance: String,
    pub(super) worker: String,
}

/// From now on, what a worker leaves behind becomes a child of this process instead of init's:
/// it can be found, killed and reaped. Begins to hear of the ends of children, for as long as the
/// runtime lives. Does nothing where the system has no such thing.
///
/// # Errors
/// When the system refuses.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let ends = signal(SignalKind::child())?;
        #[expect(clippy::disallowed_methods, reason = "it hears of the last end, too")]
        let _hearing = tokio::spawn(hear(ends));
        nix::sys::prctl::set_child_subreaper(true)?;
    }
    Ok(())
}

/// Tells leaders of their ends, and reaps what was adopted.
#[cfg(target_os = "linux")]
async fn hear(mut ends: tokio::signal::unix::Signal) {
    while ends.recv().await.is_some() {
        let leaders = leaders();
        for (leader, ended) in leaders.iter() {
            if is_dead(Pid::from_raw(*leader)) {
                ended.notify_one();
            }
        }
        // Where it can't be seen, those that a leader left are reaped with it.
        let adopted = family::adopted().unwrap_or_default().into_iter();
        for child in adopted.filter(|pid| !leaders.contains_key(&pid.as_raw()) && is_dead(*pid)) {
            if family::process(child).is_some_and(|dead| is_adopted(&dead, &leaders)) {
                reap(child);
            }
        }
        drop(leaders);
        ENDS.notify_waiters();
    }
}

/// From now on a child is a leader. It must not have begun: until then it is in our session, where
/// nobody takes it for an orphan.
pub(super) fn is_leader(pid: u32) {
    leaders().insert(pid.cast_signed(), Arc::default());
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
pub(super) struct Leader {
    pid: Pid,
    mark: SpawnTag,
    child: Child,
    /// Rung at its end.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "without a peek the child's own wait tells it")
    )]
    ended: Arc<Notify>,
    group: Option<Group>,
}

impl Leader {
    /// Takes charge of a child that leads its own group.
    pub(super) fn new(child: Child, pid: u32, mark: SpawnTag, group: Option<Group>) -> Self {
        instance::claim(&mark.instance);
        let pid = Pid::from_raw(pid.cast_signed());
        let ended = Arc::clone(leaders().entry(pid.as_raw()).or_default());
        Self {
            pid,
            mark,
            child,
            ended,
            group,
        }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// A signal to the group, and to the leader, which may have left it for one of its children's. It
    /// isn't reaped, so its number is nobody else's.
    fn signal(&self, signal: Signal) {
        // A group that is gone needs no signal: the exit is on its way.
        let _gone = killpg(self.pid, signal);
        let _gone = kill(self.pid, signal);
    }

    /// SIGTERM to the group; SIGCONT lets a stopped one hear it.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// SIGKILL to the group. What escaped it becomes ours with the leader's death, and is ended then.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    /// Waits until the leader is dead, without reaping it. Can be dropped and called again.
    #[cfg(target_os = "linux")]
    pub(super) async fn dead(&mut self) {
        while !is_dead(self.pid) {
            self.ended.notified().await;
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
            let _end = tokio::time::timeout(LOOK_AGAIN, ENDS.notified()).await;
        }
        true
    }

    /// Ends what the dead leader left, then reaps all of it, the leader last.
    pub(super) async fn clear(mut self) -> Exit {
        let deadline = Instant::now() + GONE_WITHIN;
        let mut left = self.empty_group(deadline).await;
        let mut strangers = BTreeSet::new();
        loop {
            // ESRCH and EPERM both mean that nobody is left but zombies.
            let _gone = killpg(self.pid, Signal::SIGKILL);
            if !left && left_nothing(self.pid) {
                break;
            }
            left = true;
            let found = self.look(&mut strangers).await;
            // One may become our child while others are read: only who finds nobody knows.
            if (found.alive == 0 && found.reaped == 0) || Instant::now() >= deadline {
                break;
            }
            if found.alive > 0 {
                let _end = tokio::time::timeout(LOOK_AGAIN, ENDS.notified()).await;
            }
        }
        let reaped = {
            let mut leaders = leaders();
            // Under one lock with the next line: once it is reaped, its number may be that of a new
            // child.
            let reaped = self.child.try_wait();
            leaders.remove(&self.pid.as_raw());
            reaped
        };
        match reaped {
            Ok(Some(status)) => exit_of(Ok(status)),
            // Where nobody could peek at it.
            Ok(None) => exit_of(self.child.wait().await),
            Err(error) => exit_of(Err(error)),
        }
    }

    /// Looks for what it left and ends that, beside the owner.
    async fn look(&self, strangers: &mut BTreeSet<i32>) -> Survivors {
        let (leader, mark) = (self.pid, self.mark.clone());
        let mut killed = std::mem::take(strangers);
        let _alone = LOOKING.lock().await;
        let looked = tokio::task::spawn_blocking(move || {
            let found = sweep(leader, &mark, &mut killed);
            (found, killed)
        });
        // Only a runtime that is going down doesn't look.
        let (found, killed) = looked.await.unwrap_or_default();
        *strangers = killed;
        found
    }
}

/// Does it carry the mark of an instance that this process is not? A child that we just made has
/// ours, until it is another program: as a worker of another agentd we have a mark ourselves.
fn is_of_another(pid: Pid) -> bool {
    let program = |pid: &dyn std::fmt::Display| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    if program(&pid) == program(&"self") {
        return false;
    }
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

/// Is a child of ours dead? It isn't reaped.
#[cfg(target_os = "linux")]
fn is_dead(pid: Pid) -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    // An error means that it isn't our child any more, so it won't become more dead.
    !matches!(waitid(Id::Pid(pid), peek), Ok(WaitStatus::StillAlive))
}

/// Does whatever outlives its own parent become a child of ours?
#[cfg(target_os = "linux")]
fn adopts() -> bool {
    nix::sys::prctl::get_child_subreaper() == Ok(true)
}

#[cfg(not(target_os = "linux"))]
const fn adopts() -> bool {
    false
}

/// Has the dead leader surely left nothing? Then all our children are leaders.
fn left_nothing(leader: Pid) -> bool {
    if !adopts() {
        return false;
    }
    let leaders = leaders();
    let is_leader = |pid: &Pid| *pid == leader || leaders.contains_key(&pid.as_raw());
    family::children().is_some_and(|children| children.iter().all(is_leader))
}

/// What a look found besides the leader.
#[derive(Default)]
struct Survivors {
    /// Processes that are to be gone.
    alive: usize,
    /// Dead children of ours, whoever reaps them; whose they were can't be seen any more.
    reaped: usize,
}

/// Kills what carries the mark or is in the group, besides the leader, and what an agentd started
/// that was a worker of ours and is dead: its processes have its mark, and became our children.
/// Those of a living one are its own. Reaps what is dead; `strangers` are the latter.
fn sweep(leader: Pid, mark: &SpawnTag, strangers: &mut BTreeSet<i32>) -> Survivors {
    end_all(leader, mark, remaining(leader), strangers)
}

/// The same, of what was found.
fn end_all(
    leader: Pid,
    mark: &SpawnTag,
    remaining: Found,
    strangers: &mut BTreeSet<i32>,
) -> Survivors {
    let mut found = Survivors::default();
    // What the leader started is not older than it; the rest need not be looked into.
    let since = family::process(leader).map_or(0, |leader| leader.started);
    // What one left that ended meanwhile may have become our child behind our look, whoever reaps it.
    found.reaped += usize::from(remaining.gone);
    for process in remaining.processes {
        if process.pid == leader {
            continue;
        }
        if process.zombie {
            found.reaped += usize::from(is_adopted(&process, &leaders()));
            continue;
        }
        // It has no environment any more, so whose it was can't be seen; as our child it is a
        // zombie in a moment, and that is waited for.
        if process.exiting && is_adopted(&process, &leaders()) {
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
            Some(false) => end_stranger(&process, strangers),
            // It is seen in a moment.
            None => found.alive += 1,
        }
    }
    found.reaped += reap_adopted(leader);
    let _reaping = leaders();
    strangers.retain(|pid| !reap(Pid::from_raw(*pid)));
    found.alive += strangers.len();
    found
}

/// What may be there of a dead leader: whatever is below our children that are no leaders. Where
/// orphans aren't ours, or children can't be listed, it may be any process.
fn remaining(leader: Pid) -> Found {
    let children = {
        let leaders = leaders();
        let is_other = |pid: &Pid| *pid != leader && !leaders.contains_key(&pid.as_raw());
        let children = family::children().filter(|_| adopts());
        children.map(|children| children.into_iter().filter(is_other).collect::<Vec<_>>())
    };
    children.map_or_else(
        || Found {
            processes: family::table(),
            gone: false,
        },
        family::below,
    )
}

fn end_stranger(process: &Process, killed: &mut BTreeSet<i32>) {
    let pid = process.pid.as_raw();
    let adopted = process.parent == Pid::this() && !leaders().contains_key(&pid);
    if adopted && !killed.contains(&pid) && is_of_another(process.pid) {
        if process.group == process.pid {
            let _gone = killpg(process.pid, Signal::SIGKILL);
        }
        let _gone = kill(process.pid, Signal::SIGKILL);
        killed.insert(pid);
    }
}

/// Reaps dead children that were adopted, and says how many. Each by its number: whatever else the
/// process started is reaped by whoever started it.
fn reap_adopted(leader: Pid) -> usize {
    let leaders = leaders();
    let children = match family::children() {
        Some(children) => children.into_iter().filter_map(family::process).collect(),
        None => family::table(),
    };
    let adopted = children
        .iter()
        .filter(|process| process.pid != leader && is_adopted(process, &leaders));
    adopted
        .filter(|process| process.zombie && reap(process.pid))
        .count()
}

/// Is it a child of ours that another process started? Those are in a leader's group, or in a
/// session of their own, where this process never starts anything.
fn is_adopted(process: &Process, leaders: &Leaders) -> bool {
    process.parent == Pid::this()
        && (leaders.contains_key(&process.group.as_raw())
            || Some(process.session) != nix::unistd::getsid(None).ok())
        && !leaders.contains_key(&process.pid.as_raw())
}

/// Is it no child of ours any more? The caller holds the list of leaders.
fn reap(pid: Pid) -> bool {
    let flags = Some(nix::sys::wait::WaitPidFlag::WNOHANG);
    // ECHILD: somebody was faster.
    let waited: Result<WaitStatus, Errno> = nix::sys::wait::waitpid(pid, flags);
    !matches!(waited, Ok(WaitStatus::StillAlive))
}

impl SpawnTag {
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn process_without_a_limit_has_its_environments_mark() {
        let mark = SpawnTag {
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
        let another = SpawnTag {
            worker: "4.6".to_owned(),
            ..mark
        };
        assert_eq!(another.is_on(pid), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn process_gone_under_the_look_asks_for_another() {
        let mut parent = std::process::Command::new("true").spawn().unwrap();
        let gone = Pid::from_raw(parent.id().cast_signed());
        parent.wait().unwrap();
        let mark = SpawnTag {
            instance: "1-2-4".to_owned(),
            worker: "4.7".to_owned(),
        };
        let found = end_all(gone, &mark, family::below([gone]), &mut BTreeSet::new());
        assert!(found.reaped > 0, "what it left may be our child now");
    }
}
