//! What this process was given by whoever started it.
//!
//! Owns that no child gets it. Must not know what it is.

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
