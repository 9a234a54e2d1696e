//! What this process was given by whoever started it.
//!
//! Owns that no child gets it. Must not know what it is.

/// Closes what this process was given besides standard input, output and error.
///
/// Called once, before anything is opened: whoever waits for the other end of a pipe, or for a lock,
/// isn't to wait for this process.
pub fn close() {
    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "neither std nor nix offers close_range")]
    // SAFETY: nothing is open yet that anybody here owns.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } == 0;
    #[cfg(not(target_os = "linux"))]
    let closed = false;
    if closed {
        return;
    }
    for number in 3..MOST_INHERITED {
        #[expect(unsafe_code, reason = "a number is all that is known of it")]
        // SAFETY: as above; a number that isn't open is refused.
        let _not_open = unsafe { libc::close(number) };
    }
}

/// Where one can't say "all": shells give their children few.
const MOST_INHERITED: libc::c_int = 1024;

/// Keeps every child from inheriting what is open now besides standard input, output and error.
///
/// Called once, before anything else is opened: what this program opens is closed in children
/// anyway. Said here rather than in each child, a child can be made without a copy of our memory.
pub fn keep() {
    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "neither std nor nix offers close_range")]
    // SAFETY: a system call on numbers; it marks descriptors and closes none. Kernels before
    // 5.11 refuse it, and children inherit what they always did.
    let _refused = unsafe {
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, flags)
    };
}
