//! What a crash or a neighbour can see of a process that has prompts, keys or tokens in memory.
//!
//! Owns how that is refused, for every program of ours. Must not know what is in the memory.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// A core of so many bytes is none. Where cores are piped to a program, Linux knows no limit but one
/// byte, which means none (`fs/coredump.c`).
const NONE: u64 = if cfg!(target_os = "linux") { 1 } else { 0 };

/// A crash of this process leaves no file with its memory. What it starts inherits that, and may
/// raise the limit again.
pub fn leave_no_core() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE) {
        let soft = if hard == 0 { hard } else { NONE };
        // Lowering one's own limit is never refused.
        let _lowered = setrlimit(Resource::RLIMIT_CORE, soft, hard);
    }
}

/// The same, and no process of the user's own can look into this one's memory. It ends with the next
/// `exec`: what is started is not hidden.
///
/// Not for what reads or writes more than links in its own `/proc`: that is root's from now on.
pub fn hide_memory() {
    leave_no_core();
    #[cfg(target_os = "linux")]
    {
        // Refused by no kernel there is.
        let _shown = nix::sys::prctl::set_dumpable(false);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn secrecy_leaves_no_core_and_no_memory_readable() {
        let (_, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap();
        hide_memory();
        let soft = if hard == 0 { hard } else { NONE };
        assert_eq!(getrlimit(Resource::RLIMIT_CORE), Ok((soft, hard)));
        assert_eq!(nix::sys::prctl::get_dumpable(), Ok(false));
    }
}
