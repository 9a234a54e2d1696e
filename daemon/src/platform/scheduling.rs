//! How long this process's threads run at a stretch, and who of them goes first.
//!
//! Owns that they ask for less than others do: what they have to do takes microseconds, and between
//! an agent that compiles itself on every core and the person who waits for it they would wait for
//! whole slices, several times in each turn. And that those with longer work give way to them. Must
//! not know who they are.

/// In nanoseconds: the shortest that Linux takes (`sched_setattr(2)`, `sched_runtime` of a thread of
/// the normal class, from 6.12 on; earlier kernels take it and do nothing).
#[cfg(target_os = "linux")]
const SLICE: u64 = 100_000;

/// Shortens the slices of all threads that this process has now. Their share of the cores stays what
/// it is, and neither children nor later threads have it from them.
///
/// Whoever gave the process another scheduling class, or a precedence that children are to inherit,
/// is heeded, and where it is refused everything is as before.
#[cfg(target_os = "linux")]
pub fn shorten() {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    let names = tasks.flatten().map(|task| task.file_name());
    for thread in names.filter_map(|name| name.to_str()?.parse().ok()) {
        if let Some(mut attributes) = attributes_of(thread)
            && attributes.sched_policy == libc::SCHED_OTHER.cast_unsigned()
            && attributes.sched_nice >= 0
        {
            attributes.sched_runtime = SLICE;
            attributes.sched_flags |= u64::from(libc::SCHED_FLAG_RESET_ON_FORK.unsigned_abs());
            set(thread, &attributes);
        }
    }
}

/// There is no such thing here.
#[cfg(not(target_os = "linux"))]
pub const fn shorten() {}

/// As for `nice(1)` when it isn't told how much: a tenth of the share of others who want the core.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The thread that asks gives way to all others from now on, unless it does already.
#[cfg(target_os = "linux")]
pub fn give_way() {
    if let Some(mut attributes) = attributes_of(0)
        && attributes.sched_policy == libc::SCHED_OTHER.cast_unsigned()
        && attributes.sched_nice < NICE
    {
        attributes.sched_nice = NICE;
        set(0, &attributes);
    }
}

/// There a thread has a class of its work, which is another thing.
#[cfg(not(target_os = "linux"))]
pub const fn give_way() {}

/// How a thread is scheduled; 0 is the one that asks.
#[cfg(target_os = "linux")]
fn attributes_of(thread: libc::pid_t) -> Option<libc::sched_attr> {
    let size = u32::try_from(size_of::<libc::sched_attr>()).ok()?;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes to the structure, which has as many.
    #[expect(unsafe_code, reason = "neither std nor nix offers sched_getattr")]
    let failed = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread,
            &raw mut attributes,
            size,
            0,
        )
    };
    (failed == 0).then_some(attributes)
}

#[cfg(target_os = "linux")]
fn set(thread: libc::pid_t, attributes: &libc::sched_attr) {
    // SAFETY: the kernel reads as many bytes as the structure says it has.
    #[expect(unsafe_code, reason = "neither std nor nix offers sched_setattr")]
    let _refused = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            thread,
            std::ptr::from_ref(attributes),
            0,
        )
    };
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn thread_that_gives_way_is_the_only_one() {
        let usual = attributes_of(0).unwrap().sched_nice;
        let gave_way = std::thread::spawn(|| {
            give_way();
            attributes_of(0).unwrap().sched_nice
        });
        assert_eq!(gave_way.join().unwrap(), usual.max(NICE));
        assert_eq!(attributes_of(0).unwrap().sched_nice, usual);
    }

    #[test]
    fn scheduling_slices_are_for_threads_and_not_inherited() {
        let usual = std::thread::spawn(|| attributes_of(0).unwrap()).join();
        let usual = usual.unwrap().sched_runtime;
        shorten();
        let ours = attributes_of(0).unwrap();
        assert_eq!(ours.sched_policy, libc::SCHED_OTHER.cast_unsigned());
        let thread = std::thread::spawn(|| attributes_of(0).unwrap()).join();
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.unwrap();
        let of_child = attributes_of(child.id().cast_signed()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(thread.unwrap().sched_runtime, usual);
        assert_eq!(of_child.sched_runtime, usual);
        assert_eq!(of_child.sched_flags & 1, 0, "its own children are its own");
        // Kernels before 6.12 tell nothing of slices.
        if usual > 0 {
            assert_eq!(ours.sched_runtime, SLICE);
        }
    }
}
