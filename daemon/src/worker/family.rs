//! The processes below this one, as `/proc` shows them.
//!
//! Owns how they are found and what is read of each. Must not know whose they are, nor end any.
//!
//! A process that was told to adopt orphans is the parent of whatever outlived its own parent: below
//! its children is all that can have been left, however many others the machine has.

use std::fs::File;
use std::io::Read as _;

use nix::unistd::Pid;

/// The fields that are read stand at the beginning, behind a name of at most 64 bytes.
const STAT: usize = 512;
/// A list of children is read again so often, until it stays.
const LISTS: u32 = 8;
/// A flag of a process in its `stat`: it has begun to end (`PF_EXITING` of the kernel's `sched.h`).
const PF_EXITING: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// All of it: one whose first thread alone has ended is shown in the same way, and goes on.
    pub(super) zombie: bool,
    /// On its way to be one.
    pub(super) exiting: bool,
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) session: Pid,
    /// In ticks since boot.
    pub(super) started: u64,
}

/// What was adopted: it becomes a child of the first thread, which started nothing. `None` where
/// that can't be seen.
#[cfg(target_os = "linux")]
pub(super) fn adopted() -> Option<Vec<Pid>> {
    let this = Pid::this();
    // Only in kernels with CONFIG_PROC_CHILDREN (proc(5)).
    let children = std::fs::read_to_string(format!("/proc/self/task/{this}/children")).ok()?;
    Some(pids(&children).collect())
}

/// All children of this process. `None` where that can't be seen.
pub(super) fn children() -> Option<Vec<Pid>> {
    children_of(Pid::this())
}

/// Where one ends while the kernel lists them, another one may be left out (proc(5)): a list that is
/// the same twice has all. `None` of a process that is gone, and where they change too fast.
fn children_of(pid: Pid) -> Option<Vec<Pid>> {
    let mut before = listed_children(pid)?;
    for _ in 0..LISTS {
        let children = listed_children(pid)?;
        if children == before {
            return Some(children);
        }
        before = children;
    }
    None
}

fn listed_children(pid: Pid) -> Option<Vec<Pid>> {
    let mut all = Vec::new();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    for thread in threads {
        // A thread that ends while we read hands its children to another one: then we don't know.
        let children = std::fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        all.extend(pids(&children));
    }
    Some(all)
}

fn pids(children: &str) -> impl Iterator<Item = Pid> {
    let numbers = children.split_ascii_whitespace();
    numbers
        .filter_map(|pid| pid.parse().ok())
        .map(Pid::from_raw)
}

/// Processes as they were found, one after the other.
#[derive(Default)]
pub(super) struct Found {
    pub(super) processes: Vec<Process>,
    /// Was one gone when it was looked at? What it left has another parent now, where nobody looked.
    pub(super) gone: bool,
}

/// These processes and all below them. What changes meanwhile may be missing.
pub(super) fn below(roots: impl IntoIterator<Item = Pid>) -> Found {
    let mut next: Vec<Pid> = roots.into_iter().collect();
    let mut found = Found::default();
    while let Some(pid) = next.pop() {
        let Some(process) = process(pid) else {
            found.gone = true;
            continue;
        };
        found.processes.push(process);
        if !process.zombie {
            next.extend(children_of(pid).unwrap_or_default());
        }
    }
    found
}

/// Every process that can be seen; nothing where there is no `/proc`. Reads as much as the machine
/// has: for where nothing less will do.
pub(super) fn table() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| process(Pid::from_raw(pid)))
        .collect()
}

/// One that is there.
pub(super) fn process(pid: Pid) -> Option<Process> {
    // Each read makes the kernel gather all of it again, so one has to do.
    let mut stat = [0; STAT];
    let read = File::open(format!("/proc/{pid}/stat"))
        .and_then(|mut file| file.read(&mut stat))
        .ok()?;
    parse(pid, &String::from_utf8_lossy(&stat[..read]))
}

fn parse(pid: Pid, stat: &str) -> Option<Process> {
    // The name before it may hold anything, parentheses and spaces too.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    // Behind the state come, as proc_pid_stat(5) counts them, 4 to 6, the flags as 9, the threads
    // as 20 and the start as 22.
    let mut number = || fields.next()?.parse().ok().map(Pid::from_raw);
    let (parent, group, session) = (number()?, number()?, number()?);
    let exiting = fields.nth(2)?.parse::<u32>().ok()? & PF_EXITING != 0;
    let alone = fields.nth(10)?.parse::<u32>().ok()? <= 1;
    Some(Process {
        pid,
        zombie: ended && alone,
        parent,
        group,
        session,
        exiting: exiting && alone,
        started: fields.nth(1)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_with_parentheses_confuses_no_table() {
        let rest = "0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 553579 9666560";
        let pid = Pid::from_raw;
        let process = parse(pid(7), &format!("7 (a) Z (b) S 1 5 6 {rest}")).unwrap();
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
        let dead = parse(pid(7), &format!("7 (x) Z 1 5 6 {rest}")).unwrap();
        assert!(dead.zombie);
        let threads = rest.replace("20 0 1 0", "20 0 2 0");
        let goes_on = parse(pid(7), &format!("7 (x) Z 1 5 6 {threads}")).unwrap();
        assert!(!goes_on.zombie);
        assert_eq!(parse(pid(7), "garbage"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn family_is_what_a_child_has_started() {
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", "/bin/sleep 60 & echo; wait"]);
        let mut shell = shell.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let said = shell.stdout.take().unwrap().read(&mut [0; 1]).unwrap();
        assert_eq!(said, 1, "it has started it");
        let pid = Pid::from_raw(shell.id().cast_signed());
        // Threads of other tests end while it is read: then it isn't known.
        let ours = (0..1000).find_map(|_| children()).unwrap();
        assert!(ours.contains(&pid));
        let found = below([pid]);
        let found = found.processes;
        let parents: Vec<Pid> = found.iter().map(|process| process.parent).collect();
        assert_eq!(parents, [Pid::this(), pid], "{found:?}");
        for process in found {
            nix::sys::signal::kill(process.pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        shell.wait().unwrap();
        let found = below([pid]);
        assert!(found.processes.is_empty() && found.gone);
    }
}
