//! What the machine runs on, how much memory it has left, and what processes take.
//!
//! Owns where that is read: `/proc` and `/sys` on Linux, the system's own commands on macOS (never run
//! on one). What isn't known is left out. Must not know what it is for.

use std::collections::BTreeMap;

use agentd_core::machine::{Machine, Power};

/// Looks, and asks for these processes, each with all that it started. Blocks.
#[must_use]
pub fn look(pids: &[u32]) -> Machine {
    if let Some(told) = told() {
        return told;
    }
    Machine {
        power: system::power(),
        memory: system::memory(),
        processes: system::processes(pids),
    }
}

/// A build for tests can be told what to find, by the words of a file: a test must not depend on what
/// else the machine does.
fn told() -> Option<Machine> {
    let file = cfg!(debug_assertions).then(|| std::env::var_os("AGENTD_TEST_MACHINE"));
    let words = std::fs::read_to_string(file??).unwrap_or_default();
    Some(Machine {
        power: match words.contains("battery") {
            true => Power::Battery,
            false => Power::Mains,
        },
        ..Machine::default()
    })
}

/// A process and those below it, by whose children `of` says each has.
fn tree(pid: u32, of: &dyn Fn(u32) -> Vec<u32>) -> Vec<u32> {
    /// No agent starts so many; what changes while it is read could go on for ever.
    const MOST: usize = 256;
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied()
        && all.len() < MOST
    {
        all.extend(of(pid));
        next += 1;
    }
    all
}

fn sizes(
    pids: &[u32],
    of: &dyn Fn(u32) -> Vec<u32>,
    bytes: &dyn Fn(u32) -> Option<u64>,
) -> BTreeMap<u32, u64> {
    let size = |pid: u32| {
        // Without the process itself nothing is known of it.
        bytes(pid)?;
        Some(tree(pid, of).into_iter().filter_map(bytes).sum())
    };
    let sizes = pids.iter().filter_map(|pid| Some((*pid, size(*pid)?)));
    sizes.collect()
}

#[cfg(not(target_os = "macos"))]
mod system {
    use std::collections::BTreeMap;
    use std::fs::{read_dir, read_to_string};
    use std::path::Path;

    use agentd_core::machine::{Memory, Power};

    pub(super) fn power() -> Power {
        power_in(Path::new("/sys/class/power_supply"))
    }

    /// The battery counts when it is used and nothing else is there, as systemd has it.
    pub(super) fn power_in(dir: &Path) -> Power {
        let mut discharges = false;
        for supply in read_dir(dir).into_iter().flatten().flatten() {
            let field = |name: &str| {
                let text = read_to_string(supply.path().join(name)).unwrap_or_default();
                text.trim().to_owned()
            };
            // That of a mouse.
            if field("scope") == "Device" {
                continue;
            }
            if field("type") == "Battery" {
                discharges |= field("status") == "Discharging";
            } else if field("online") == "1" {
                return Power::Mains;
            }
        }
        match discharges {
            true => Power::Battery,
            false => Power::Mains,
        }
    }

    pub(super) fn memory() -> Option<Memory> {
        let table = read_to_string("/proc/meminfo").ok()?;
        // A kernel may not count it.
        let stalls = read_to_string("/proc/pressure/memory").unwrap_or_default();
        memory_of(&table, &stalls)
    }

    pub(super) fn memory_of(table: &str, stalls: &str) -> Option<Memory> {
        let stalled = stalls
            .lines()
            .find_map(|line| line.strip_prefix("some avg10="))
            .and_then(|rest| rest.split('.').next()?.parse().ok());
        Some(Memory {
            total: kib(table, "MemTotal:")?,
            available: kib(table, "MemAvailable:")?,
            stalled: stalled.unwrap_or(0),
        })
    }

    fn kib(table: &str, field: &str) -> Option<u64> {
        let line = table.lines().find_map(|line| line.strip_prefix(field))?;
        let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(number * 1024)
    }

    pub(super) fn processes(pids: &[u32]) -> BTreeMap<u32, u64> {
        super::sizes(pids, &children, &bytes)
    }

    fn children(pid: u32) -> Vec<u32> {
        let threads = read_dir(format!("/proc/{pid}/task"));
        let threads = threads.into_iter().flatten().flatten();
        let lists =
            threads.filter_map(|thread| read_to_string(thread.path().join("children")).ok());
        let lists: Vec<String> = lists.collect();
        let words = lists.iter().flat_map(|list| list.split_whitespace());
        words.filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Its share of what it has in common with others, so that what is added up is what they take.
    fn bytes(pid: u32) -> Option<u64> {
        let share = read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
        let share = share.and_then(|table| kib(&table, "Pss:"));
        share.or_else(|| {
            let status = read_to_string(format!("/proc/{pid}/status")).ok()?;
            kib(&status, "VmRSS:")
        })
    }
}

#[cfg(target_os = "macos")]
mod system {
    use std::collections::BTreeMap;
    use std::process::{Command, Stdio};

    use agentd_core::machine::{Memory, Power};

    fn said(program: &str, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(program);
        let done = command.args(arguments).stdin(Stdio::null()).output().ok()?;
        String::from_utf8(done.stdout).ok()
    }

    pub(super) fn power() -> Power {
        let said = said("/usr/bin/pmset", &["-g", "ps"]).unwrap_or_default();
        match said.contains("'Battery Power'") {
            true => Power::Battery,
            false => Power::Mains,
        }
    }

    pub(super) fn memory() -> Option<Memory> {
        let names = ["-n", "hw.memsize", "kern.memorystatus_level"];
        let said = said("/usr/sbin/sysctl", &names)?;
        let mut lines = said.lines().map(|line| line.trim().parse::<u64>().ok());
        let (total, percent) = (lines.next()??, lines.next()??);
        Some(Memory {
            total,
            available: total / 100 * percent,
            stalled: 0,
        })
    }

    pub(super) fn processes(pids: &[u32]) -> BTreeMap<u32, u64> {
        let table = said("/bin/ps", &["-axo", "pid=,ppid=,rss="]).unwrap_or_default();
        let row = |line: &str| {
            let mut fields = line
                .split_whitespace()
                .map(|field| field.parse::<u64>().ok());
            let (pid, parent) = (fields.next()??, fields.next()??);
            let kib = fields.next()??;
            Some((
                u32::try_from(pid).ok()?,
                u32::try_from(parent).ok()?,
                kib * 1024,
            ))
        };
        let rows: Vec<(u32, u32, u64)> = table.lines().filter_map(row).collect();
        let children = |pid: u32| {
            let below = rows.iter().filter(|(_, parent, _)| *parent == pid);
            below.map(|(pid, _, _)| *pid).collect()
        };
        let bytes = |pid: u32| {
            let row = rows.iter().find(|(of, _, _)| *of == pid);
            row.map(|(_, _, bytes)| *bytes)
        };
        super::sizes(pids, &children, &bytes)
    }
}

#[cfg(all(test, not(target_os = "macos")))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn machine_runs_on_battery_only_when_discharging_alone() {
        let dir = tempfile::TempDir::new().unwrap();
        let supply = |name: &str, fields: &[(&str, &str)]| {
            let at = dir.path().join(name);
            fs::create_dir_all(&at).unwrap();
            for (field, value) in fields {
                fs::write(at.join(field), format!("{value}\n")).unwrap();
            }
        };
        let power = || system::power_in(dir.path());
        assert_eq!(power(), Power::Mains, "a machine without any");
        let mouse = [
            ("type", "Battery"),
            ("scope", "Device"),
            ("status", "Discharging"),
        ];
        supply("mouse", &mouse);
        assert_eq!(power(), Power::Mains);
        supply("BAT0", &[("type", "Battery"), ("status", "Discharging")]);
        assert_eq!(power(), Power::Battery);
        supply("AC", &[("type", "Mains"), ("online", "0")]);
        assert_eq!(power(), Power::Battery);
        supply("AC", &[("type", "Mains"), ("online", "1")]);
        assert_eq!(power(), Power::Mains);
        assert_eq!(system::power_in(&dir.path().join("none")), Power::Mains);
    }

    #[test]
    fn machine_tells_memory_and_stalls() {
        let table = "MemTotal:       8000 kB\nMemFree: 1 kB\nMemAvailable:   2000 kB\n";
        let stalls = "some avg10=12.34 avg60=1.00 avg300=0.00 total=1\nfull avg10=1.00\n";
        let memory = system::memory_of(table, stalls).unwrap();
        assert_eq!((memory.total, memory.available), (8_192_000, 2_048_000));
        assert_eq!(memory.stalled, 12);
        assert_eq!(system::memory_of(table, "").unwrap().stalled, 0);
        assert_eq!(system::memory_of("MemTotal: 1 kB\n", ""), None);
    }

    #[test]
    fn machine_measures_processes_with_their_children() {
        let own = std::process::id();
        let seen = look(&[own, u32::MAX - 1]);
        assert!(seen.processes[&own] > 1 << 20, "{seen:?}");
        assert_eq!(seen.processes.len(), 1);
        let children = |pid: u32| match pid {
            1 => vec![2, 3],
            2 => vec![4],
            _ => Vec::new(),
        };
        let bytes = |pid: u32| (pid < 5).then_some(u64::from(pid));
        assert_eq!(sizes(&[1, 9], &children, &bytes), [(1, 10)].into());
    }
}
