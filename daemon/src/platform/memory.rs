//! Memory that nobody needs any more goes back to the system.
//!
//! Owns when the allocator is asked for it: when much was let go, and nobody has let go of more for
//! a moment; and when pages of the program itself are given back: when nobody has asked for anything.
//! Must not know what it was.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use nix::libc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use agentd_base::program;

/// What is let go before it is worth a look: a look costs a fault for each page that is used again.
const WORTH_A_LOOK: usize = 4 * 1024 * 1024;
/// So long nothing more must be let go; while work goes on, its memory is used again anyway.
const QUIET: Duration = Duration::from_secs(1);
/// At most so many times: work that never pauses must not keep what a burst left.
const WAITS: u32 = 30;
/// Blocks of at least this size are given by the system and go back to it at once. Left to itself,
/// the allocator keeps them from the first one on that was freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 512 * 1024;
/// As much as may stay free at the heap's end, so that it isn't lengthened again for each request.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const SPARE: libc::c_int = 2 * 1024 * 1024;

/// One heap for all threads. Left to itself the allocator makes one for nearly each, of which none
/// gives to another what it has free: 1.28 MB of an idle daemon instead of 0.91.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS: libc::c_int = 1;

/// So long nobody must ask for anything before pages of the program are given back: to have them again
/// costs the next one a quarter of a millisecond.
const IDLE: Duration = Duration::from_secs(5);

/// Let go since the last look.
static LET_GO: AtomicUsize = AtomicUsize::new(0);
static MUCH: Notify = Notify::const_new();
/// Was anything asked for since the last look?
static BUSY: AtomicBool = AtomicBool::new(true);
static WORK: Notify = Notify::const_new();

/// About so many bytes were let go, all over the heap: something was asked for.
pub fn let_go(bytes: usize) {
    if !BUSY.load(Ordering::Relaxed) && !BUSY.swap(true, Ordering::Relaxed) {
        WORK.notify_one();
    }
    let before = LET_GO.fetch_add(bytes, Ordering::Relaxed);
    if before < WORTH_A_LOOK && before.saturating_add(bytes) >= WORTH_A_LOOK {
        MUCH.notify_one();
    }
}

/// Gives back what was let go, whenever that is much; sleeps until then.
pub async fn give_back(stop: CancellationToken) {
    let whenever = async {
        loop {
            MUCH.notified().await;
            until_quiet().await;
            LET_GO.store(0, Ordering::Relaxed);
            // A few milliseconds for a hundred megabytes, in which whoever shares the heap waits.
            let _lost = tokio::task::spawn_blocking(trim).await;
        }
    };
    let _stopped: Option<()> = stop.run_until_cancelled(whenever).await;
}

/// Gives back what the kernel keeps in memory of the program, the code of the start at first, and what
/// is free in the heap, whenever there was something to do and no more comes; sleeps until then. The
/// program stays in the kernel's cache.
pub async fn forget_program(stop: CancellationToken) {
    let whenever = async {
        loop {
            while BUSY.swap(false, Ordering::Relaxed) {
                tokio::time::sleep(IDLE).await;
            }
            let both = || {
                program::forget();
                // What the start and the first look through the store left free in the heap.
                trim();
            };
            let _as_it_was = tokio::task::spawn_blocking(both).await;
            WORK.notified().await;
        }
    };
    let _stopped: Option<()> = stop.run_until_cancelled(whenever).await;
}

async fn until_quiet() {
    let mut before = 0;
    for _ in 0..WAITS {
        let now = LET_GO.load(Ordering::Relaxed);
        if std::mem::replace(&mut before, now) == now {
            return;
        }
        tokio::time::sleep(QUIET).await;
    }
}

/// Has the allocator keep little that is free. To be called before there is another thread.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "neither std nor nix offers mallopt")]
pub fn keep_little() {
    // SAFETY: it changes numbers of the allocator, under its own lock.
    let _refused = unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE)
            & libc::mallopt(libc::M_TRIM_THRESHOLD, SPARE)
            & libc::mallopt(libc::M_ARENA_MAX, HEAPS)
    };
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "neither std nor nix offers malloc_trim")]
fn trim() {
    // SAFETY: it gives pages back that hold nothing in use, under the allocator's own locks.
    let _nothing_was_free = unsafe { libc::malloc_trim(0) };
}

/// Other allocators give it back by themselves, or never.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn keep_little() {}

/// See [`keep_little`].
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn memory_is_looked_at_after_much_was_freed() {
        let rung = || async { tokio::time::timeout(QUIET, MUCH.notified()).await.is_ok() };
        let_go(WORTH_A_LOOK - 1);
        assert!(!rung().await);
        let_go(1);
        assert!(rung().await);
        let_go(WORTH_A_LOOK);
        assert!(!rung().await, "once until it was looked at");
        LET_GO.store(0, Ordering::Relaxed);
        let_go(usize::MAX);
        assert!(rung().await);
        LET_GO.store(0, Ordering::Relaxed);
    }
}
