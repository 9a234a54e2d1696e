//! What signals do to a program of ours that is not the daemon, which has more to say of them.
//!
//! Owns which of them mean nothing, and how they are made to. Must not know what a program does.
//!
//! Nothing is ignored: what is started would begin so, too. A handler that does nothing is the same
//! to us, and is handed to nobody.

use std::io;

use nix::libc::{self, c_int};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use tokio::signal::unix::{SignalKind, signal};

/// They end a process that doesn't expect them, and mean nothing to one that serves.
const MEANINGLESS: &[Signal] = &[
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
    #[cfg(target_os = "linux")]
    Signal::SIGPWR,
    #[cfg(target_os = "linux")]
    Signal::SIGSTKFLT,
];

/// Does nothing, which is what an ignored signal does.
extern "C" fn nothing(_signal: c_int) {}

/// A file that is too large (`ulimit -f`) is an error of the write that made it so, and no more.
pub fn outlive_large_files() {
    disarm(Signal::SIGXFSZ);
}

/// Nothing but a stop, a crash or SIGKILL ends this process.
pub fn serve_on() {
    MEANINGLESS.iter().copied().for_each(disarm);
}

#[expect(
    unsafe_code,
    reason = "the only way to handle a signal without a runtime"
)]
fn disarm(signal: Signal) {
    let action = SigAction::new(
        SigHandler::Handler(nothing),
        // Or a call that waits would fail with EINTR, as if the signal meant something.
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing, which is safe at any time.
    let _refused = unsafe { sigaction(signal, &action) };
}

/// `nohup` said so, or what does the same.
#[expect(unsafe_code, reason = "nix can't tell without changing it")]
fn is_hangup_ignored() -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: it only tells what is, into memory of the right size.
    let told = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: zeroed, a `sigaction` is a valid one, whether it was filled or not.
    told == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// The signals that ask for a stop: heard from now on, they end the process no more.
#[derive(Debug)]
pub struct Stops(Vec<tokio::signal::unix::Signal>);

impl Stops {
    /// Ctrl-C, SIGTERM, SIGQUIT, SIGXCPU, and a terminal that hangs up, unless whoever started us
    /// said that this should change nothing.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> io::Result<Self> {
        let mut kinds = vec![
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::quit(),
            SignalKind::from_raw(libc::SIGXCPU),
        ];
        // Asked before the handler is there, which would take the place of what was ignored.
        if !is_hangup_ignored() {
            kinds.push(SignalKind::hangup());
        }
        let heard: io::Result<_> = kinds.into_iter().map(signal).collect();
        heard.map(Self)
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        std::future::poll_fn(|cx| {
            // All of them are polled: only those wake us.
            let came = self.0.iter_mut().map(|one| one.poll_recv(cx).is_ready());
            match came.filter(|came| *came).count() {
                0 => std::task::Poll::Pending,
                _ => std::task::Poll::Ready(()),
            }
        })
        .await;
    }
}
