//! A control group for a daemon and its workers, in which memory can run out.
//!
//! Owns the group's directory: when it is dropped, the group is gone. Must not know when memory runs
//! out, nor what becomes of who is killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::record::poll;

/// The kernel needs so long at most until somebody is killed.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// What is left to the group when memory is to run out: nobody does without.
const LEFT: u64 = 256 * 1024;
/// Groups of this program.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The names of a kernel's files: version 1 has a hierarchy for memory alone, version 2 has one.
#[derive(Clone, Copy, Debug)]
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Memory and what is swapped out.
    swap: (&'static str, Swap),
    /// Has a line `oom_kill COUNT`.
    kills: &'static str,
    /// No limit.
    none: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Swap {
    /// The limit is of both.
    Together,
    /// It is of what is swapped out.
    Apart,
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    swap: ("memory.memsw.limit_in_bytes", Swap::Together),
    kills: "memory.oom_control",
    none: "-1",
};
const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    swap: ("memory.swap.max", Swap::Apart),
    kills: "memory.events",
    none: "max",
};

#[derive(Debug)]
pub(crate) struct Group {
    dir: PathBuf,
    files: Files,
}

impl Group {
    /// One below this program's own, or where processes may be beside groups; `None` where that
    /// can't be had.
    pub(crate) fn new() -> Option<Self> {
        let ours = fs::read_to_string("/proc/self/cgroup").ok()?;
        let of = |wanted: &str| {
            // NUMBER:CONTROLLERS:PATH
            let mut lines = ours.lines().map(|line| line.splitn(3, ':').skip(1));
            lines.find_map(|mut line| {
                let named = line.next()?.split(',').any(|name| name == wanted);
                line.next().filter(|_| named)
            })
        };
        let below = |mount: &str, path: &str| Path::new(mount).join(path.trim_start_matches('/'));
        let mut places = Vec::new();
        if let Some(path) = of("memory") {
            places.push((below("/sys/fs/cgroup/memory", path), VERSION_1));
        }
        if let Some(path) = of("") {
            places.push((below("/sys/fs/cgroup", path), VERSION_2));
            places.push((PathBuf::from("/sys/fs/cgroup"), VERSION_2));
        }
        let mut places = places.into_iter();
        places.find_map(|(parent, files)| Self::below(&parent, files))
    }

    fn below(parent: &Path, files: Files) -> Option<Self> {
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("agentd-torture-{}-{number}", std::process::id());
        let dir = parent.join(name);
        fs::create_dir(&dir).ok()?;
        let group = Self { dir, files };
        // Without the controller there is no such file.
        let works = group.write(files.limit, files.none).is_ok() && group.kills().is_some();
        works.then_some(group)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.dir.join(name), text)
    }

    /// From now on the process is in it, and what it starts.
    pub(crate) fn take(&self, pid: u32) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// How many processes the kernel killed in it.
    fn kills(&self) -> Option<usize> {
        let text = fs::read_to_string(self.dir.join(self.files.kills)).ok()?;
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    /// Memory runs out, until the kernel has killed somebody or `is_over`: the largest, or a
    /// process that is named. Gives how many were killed.
    pub(crate) fn exhaust(&self, named: Option<u32>, is_over: impl Fn() -> bool) -> usize {
        let before = self.kills().unwrap_or(0);
        let since = || self.kills().unwrap_or(0).saturating_sub(before);
        if let Some(pid) = named {
            // It may be gone by now.
            let _gone = fs::write(format!("/proc/{pid}/oom_score_adj"), "1000");
        }
        let usage = fs::read_to_string(self.dir.join(self.files.usage));
        let usage = usage.ok().and_then(|text| text.trim().parse::<u64>().ok());
        self.limit(&(usage.unwrap_or(0) + LEFT).to_string());
        if let Ok(mut hog) = self.hog().spawn() {
            poll(KILLED_WITHIN, || {
                let gone = hog.try_wait().is_ok_and(|ended| ended.is_some());
                (gone || is_over() || named.is_none() && since() > 0).then_some(())
            });
            let _gone = hog.kill();
            let _status = hog.wait();
        }
        self.limit(self.files.none);
        since()
    }

    fn limit(&self, bytes: &str) {
        let (name, swap) = self.files.swap;
        let apart = match swap {
            Swap::Apart if bytes != self.files.none => "0",
            Swap::Apart | Swap::Together => bytes,
        };
        // One that holds for both is never below the other. It is missing where nothing is swapped.
        let raised = self.write(name, self.files.none);
        let _limited = self.write(self.files.limit, bytes);
        if raised.is_ok() {
            let _limited = self.write(name, apart);
        }
    }

    /// Takes all memory that there is, and is spared itself where we may say so.
    fn hog(&self) -> Command {
        let mut hog = Command::new("/bin/sh");
        let script =
            "echo $$ >\"$0\" || exit; echo -1000 >/proc/self/oom_score_adj; exec tail /dev/zero";
        hog.args(["-c", script]).arg(self.dir.join("cgroup.procs"));
        hog.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        hog
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was killed in it is gone in a moment.
        poll(KILLED_WITHIN, || fs::remove_dir(&self.dir).ok());
    }
}
