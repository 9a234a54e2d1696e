//! macOS: the socket that launchd listens on for us. Never run on a Mac.
//!
//! Owns the one call to launchd. Must not know what the socket is for.

#![expect(unsafe_code, reason = "launchd gives sockets through this call only")]

use std::io;
use std::os::fd::RawFd;

/// As it stands in the agent's property list.
const NAME: &std::ffi::CStr = c"agentd";

unsafe extern "C" {
    /// `<launch.h>`: 0, or an error number; the array is the caller's to free.
    fn launch_activate_socket(
        name: *const libc::c_char,
        fds: *mut *mut libc::c_int,
        count: *mut libc::size_t,
    ) -> libc::c_int;
}

/// The descriptor of the socket; `None` when launchd did not start this process, or has no such
/// socket for it.
///
/// # Errors
/// What launchd says otherwise.
pub fn socket() -> io::Result<Option<RawFd>> {
    let mut fds: *mut libc::c_int = std::ptr::null_mut();
    let mut count: libc::size_t = 0;
    // SAFETY: the name ends with a zero; both pointers are to variables of our own.
    let error = unsafe { launch_activate_socket(NAME.as_ptr(), &raw mut fds, &raw mut count) };
    match error {
        0 => {}
        libc::ESRCH | libc::ENOENT => return Ok(None),
        other => return Err(io::Error::from_raw_os_error(other)),
    }
    if fds.is_null() || count == 0 {
        return Ok(None);
    }
    // SAFETY: the array has `count` entries, at least one, and is freed once, after its last use.
    let first = unsafe {
        let first = *fds;
        libc::free(fds.cast());
        first
    };
    Ok(Some(first))
}
