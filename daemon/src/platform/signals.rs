//! What signals do to this process, whoever started it.
//!
//! Owns their dispositions and the mask. Must not know what a stop is.
//!
//! A child begins with what its parent ignores or blocks, and without what its parent handles. So
//! nothing is ignored here: a handler that does nothing is the same to us, and is handed to nobody.
//! Said here rather than in each child, a child can be made without a copy of our memory.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use nix::libc::{self, c_int};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// They end a process that doesn't expect them, and mean nothing to this one. A file that is too
/// large is told by the write as well. What remains are a stop, and the crashes.
const MEANINGLESS: &[c_int] = &[
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGXFSZ,
    #[cfg(target_os = "linux")]
    libc::SIGPWR,
    #[cfg(target_os = "linux")]
    libc::SIGSTKFLT,
];

/// `nohup` said so, or what does the same.
static HANGUP_IGNORED: AtomicBool = AtomicBool::new(false);

/// Does nothing, which is what an ignored signal does.
extern "C" fn nothing(_signal: c_int) {}

/// Called once, before there is another thread: what was ignored stays without effect, and what
/// means nothing gets none.
pub fn take_charge() {
    for number in 1..=last() {
        let ignored = is_ignored(number);
        match number {
            // The standard library ignores it here, and gives it back to children.
            libc::SIGPIPE => {}
            // Nobody could wait for a child.
            libc::SIGCHLD if ignored => set(number, libc::SIG_DFL),
            _ if ignored || is_meaningless(number) => set(number, nothing as *const () as usize),
            _ => {}
        }
        if ignored && number == libc::SIGHUP {
            HANGUP_IGNORED.store(true, Ordering::Relaxed);
        }
    }
    let nobody = nix::sys::signal::SigSet::empty();
    // It fails for a wrong argument only.
    let _set = nobody.thread_set_mask();
}

/// Lets all signals do what they usually do, and blocks none. Called before [`take_charge`], by
/// whoever was started in the background and means to be a daemon.
pub fn reset() {
    for number in 1..=last() {
        if number != libc::SIGPIPE && is_ignored(number) {
            set(number, libc::SIG_DFL);
        }
    }
}

fn is_meaningless(number: c_int) -> bool {
    #[cfg(target_os = "linux")]
    if number >= libc::SIGRTMIN() {
        return true;
    }
    MEANINGLESS.contains(&number)
}

fn last() -> c_int {
    #[cfg(target_os = "linux")]
    return libc::SIGRTMAX();
    #[cfg(not(target_os = "linux"))]
    31
}

#[expect(unsafe_code, reason = "nix doesn't know the real-time signals")]
fn is_ignored(number: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only tells what is, into memory of the right size; what isn't a signal of ours is
    // refused.
    let told = unsafe { libc::sigaction(number, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: zeroed, a `sigaction` is a valid one, whether it was filled or not.
    told == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

#[expect(unsafe_code, reason = "nix doesn't know the real-time signals")]
fn set(number: c_int, handler: libc::sighandler_t) {
    // SAFETY: zeroed, a `sigaction` is a valid one: no flags, an empty mask.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler is the default one, or one that does nothing; SIGKILL, SIGSTOP and those
    // of the C library are refused.
    let _refused = unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) };
}

/// The signals that ask for a stop.
pub struct Stops(Vec<Signal>);

/// Does a terminal that hangs up end this process?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtHangup {
    /// In order, unless whoever started it said that it should not.
    Stop,
    /// No.
    Stay,
}

impl Stops {
    /// From now on each of them is heard and none ends the process.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen(at_hangup: AtHangup) -> io::Result<Self> {
        let mut kinds = vec![
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::from_raw(libc::SIGXCPU),
        ];
        if at_hangup == AtHangup::Stop && !HANGUP_IGNORED.load(Ordering::Relaxed) {
            kinds.push(SignalKind::hangup());
        }
        kinds
            .into_iter()
            .map(signal)
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        poll_fn(|cx| {
            // All of them are polled: only those wake us.
            let came = self.0.iter_mut().map(|one| one.poll_recv(cx).is_ready());
            match came.filter(|came| *came).count() {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}
