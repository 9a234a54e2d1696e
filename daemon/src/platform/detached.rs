//! A daemon that outlives the terminal and the program that started it.
//!
//! Owns what it leaves behind: the session, the descriptors, what signals were told to do. Must not
//! know who started it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{inherited, signals};

/// Set before there is another thread.
static DETACHED: AtomicBool = AtomicBool::new(false);

/// Was it said on the command line? Before that can be read in order, as what is left behind is left
/// before anything else is done.
#[must_use]
pub fn is_asked_for() -> bool {
    std::env::args_os().skip(1).any(|word| word == "--detach")
}

/// Is this process one?
#[must_use]
pub fn is() -> bool {
    DETACHED.load(Ordering::Relaxed)
}

/// Leaves the session, closes what was inherited besides standard input, output and error, and lets
/// signals do what they usually do, whatever a shell or `nohup` made of them.
pub fn leave() {
    DETACHED.store(true, Ordering::Relaxed);
    // Whoever leads a group already stays in its session, and is as well off.
    let _leads = nix::unistd::setsid();
    inherited::close();
    signals::reset();
}
