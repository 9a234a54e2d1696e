//! Standard input and output as byte streams.
//!
//! Owns when they need no thread of their own. Must not know what is said over them.

use std::fs::File;
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

/// Standard input.
#[must_use]
pub(super) fn input() -> Box<dyn AsyncRead + Unpin + Send> {
    match own_pipe(0).map(|path| pipe::OpenOptions::new().open_receiver(path)) {
        Some(Ok(pipe)) => Box::new(pipe),
        Some(Err(_)) | None => Box::new(tokio::io::stdin()),
    }
}

/// Standard output.
#[must_use]
pub(super) fn output() -> Box<dyn AsyncWrite + Unpin + Send> {
    match own_pipe(1).map(|path| pipe::OpenOptions::new().open_sender(path)) {
        Some(Ok(pipe)) => Box::new(pipe),
        Some(Err(_)) | None => Box::new(tokio::io::stdout()),
    }
}

/// Is nobody there to read standard output, whatever is written? A file has no reader to lose.
#[must_use]
pub(super) fn is_unread() -> bool {
    let output = std::io::stdout();
    let mut looked = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    let told = poll(&mut looked, PollTimeout::ZERO).is_ok_and(|count| count > 0);
    told && looked[0]
        .revents()
        .is_some_and(|what| what.intersects(gone))
}

/// Closes standard output: whoever waits for its end need not wait until the process is taken
/// apart.
pub(super) fn hang_up() {
    // Otherwise it ends with the process.
    let _kept = File::options()
        .write(true)
        .open("/dev/null")
        .map(nix::unistd::dup2_stdout);
}

/// Where an anonymous pipe can be opened once more. That description is ours alone, so it may be
/// non-blocking, whoever else holds the one that was inherited. Anything else is read and written
/// by a thread: a named pipe without its other end would wait or fail when it is opened.
#[cfg(target_os = "linux")]
fn own_pipe(descriptor: u8) -> Option<String> {
    let path = format!("/proc/self/fd/{descriptor}");
    let target = std::fs::read_link(&path).ok()?;
    target.to_str()?.starts_with("pipe:[").then_some(path)
}

#[cfg(not(target_os = "linux"))]
const fn own_pipe(_descriptor: u8) -> Option<&'static str> {
    None
}
