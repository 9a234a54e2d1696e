//! Was standard output closed before this program began?
//!
//! Owns the one moment in which that can be seen. The standard library opens `/dev/null` in the
//! place of a closed descriptor before `main`, and everything written there would be lost without a
//! word. Must not know what is written.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls it before `main`.
#[used]
#[cfg_attr(
    not(target_os = "macos"),
    unsafe(link_section = ".init_array"),
    expect(unsafe_code, reason = "later it can't be seen any more")
)]
#[cfg_attr(
    target_os = "macos",
    unsafe(link_section = "__DATA,__mod_init_func"),
    expect(unsafe_code, reason = "later it can't be seen any more")
)]
static LOOKS: extern "C" fn() = look;

#[expect(
    unsafe_code,
    reason = "the descriptor may be closed: that is the question"
)]
extern "C" fn look() {
    // SAFETY: it is used for one call, which says so where it is closed.
    let stdout = unsafe { BorrowedFd::borrow_raw(1) };
    let closed = stdout.try_clone_to_owned().is_err();
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Was it?
pub(crate) fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
