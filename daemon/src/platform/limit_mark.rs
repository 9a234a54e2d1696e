//! The mark that a worker's processes can't lose: a resource limit.
//!
//! Owns how the names of an instance and its worker become a number, and where that is kept. Must
//! not know who looks for it. Linux only: elsewhere nothing is marked and nothing found.
//!
//! A process can leave its group, begin a session and clear its environment; its limits go with it
//! through all of that. `RLIMIT_LOCKS` limits nothing since Linux 2.4.25 (getrlimit(2)), nobody uses
//! it, and `/proc` shows it to everybody. The mark is its soft limit: the hard one stays, so that
//! whoever is marked can mark its own.

use std::process::Command;

/// Marks have this bit and none above it: no limit that somebody would set, nor "unlimited".
const IS_MARK: u64 = 1 << 62;
/// Of each name.
const BITS: u32 = 31;

/// Whose a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitMark(u64);

impl LimitMark {
    /// The mark of a worker's processes.
    #[must_use]
    pub fn new(instance: &str, worker: &str) -> Self {
        Self(IS_MARK | digest(instance) << BITS | digest(worker))
    }

    /// Is it of a worker of this instance?
    #[must_use]
    pub fn is_of(self, instance: &str) -> bool {
        (self.0 & !IS_MARK) >> BITS == digest(instance)
    }

    /// The mark that a process has.
    #[must_use]
    pub fn on(pid: u32) -> Option<Self> {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max file locks"))?;
        let soft = line.split_ascii_whitespace().next()?.parse().ok()?;
        (soft >> (BITS * 2) == 1).then_some(Self(soft))
    }

    /// What is started with this command has the mark. Where the system would refuse that, it has none.
    pub fn put_on(self, command: &mut Command) {
        #[cfg(target_os = "linux")]
        self.limit(command);
        #[cfg(not(target_os = "linux"))]
        let _unmarked = command;
    }

    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "the only way to do something in one child")]
    fn limit(self, command: &mut Command) {
        use std::os::unix::process::CommandExt as _;
        use std::sync::Once;

        use nix::libc;
        use nix::sys::resource::{Resource, getrlimit};

        static TOLD: Once = Once::new();
        let may_be = getrlimit(Resource::RLIMIT_LOCKS).ok();
        let Some((_, hard)) = may_be.filter(|(_, hard)| self.0 <= *hard) else {
            TOLD.call_once(|| {
                tracing::warn!(
                    "file locks are limited: what an agent starts in a session of its own and \
                     without its environment won't be found; hint: `ulimit -H -x unlimited`"
                );
            });
            return;
        };
        let limit = libc::rlimit {
            rlim_cur: self.0,
            rlim_max: hard,
        };
        let put = move || {
            // SAFETY: setrlimit is async-signal-safe and reads a struct that the closure owns.
            let _unmarked = unsafe { libc::setrlimit(libc::RLIMIT_LOCKS, &raw const limit) };
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes one async-signal-safe call, allocates
        // nothing and takes no lock.
        unsafe {
            command.pre_exec(put);
        }
    }
}

/// 31 bits of a name: FNV-1a, folded (draft-eastlake-fnv). It stays the same between versions, as a
/// daemon ends what its predecessor left.
fn digest(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> BITS) ^ (hash >> (BITS * 2))) & ((1 << BITS) - 1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn limit_mark_stays_with_what_was_started() {
        let mark = LimitMark::new("1-2-aa", "3.4");
        assert_eq!(LimitMark::on(std::process::id()), None);
        let script = "env -i setsid sh -c 'ulimit -n 64; cat /proc/self/limits'";
        let marked = |program: &str| {
            let mut command = Command::new(program);
            mark.put_on(&mut command);
            command
        };
        let mut child = marked("sleep").arg("60").spawn().unwrap();
        let printed = marked("sh").args(["-c", script]).output().unwrap();
        assert_eq!(LimitMark::on(child.id()), Some(mark));
        let printed = String::from_utf8(printed.stdout).unwrap();
        assert!(printed.contains(&mark.0.to_string()), "{printed}");
        assert_eq!(LimitMark::on(std::process::id()), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_mark_tells_instances_and_workers_apart() {
        let mark = LimitMark::new("1-2-aa", "3.4");
        assert!(mark.is_of("1-2-aa") && !mark.is_of("1-2-ab") && !mark.is_of(""));
        assert_ne!(mark, LimitMark::new("1-2-aa", "3.5"));
        assert_eq!(mark, LimitMark::new("1-2-aa", "3.4"));
        assert_eq!((mark.0 >> 62, mark.0 < i64::MAX.cast_unsigned()), (1, true));
        // As published for FNV-1a.
        assert_eq!(digest("a"), {
            let hash: u64 = 0xaf63_dc4c_8601_ec8c;
            (hash ^ (hash >> 31) ^ (hash >> 62)) & 0x7fff_ffff
        });
    }
}
