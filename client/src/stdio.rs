//! Standard input and output as byte streams.
//!
//! Owns when they need no thread of their own: a line that goes through one is handed over several
//! times on its way. Must not know what is said over them.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

/// Standard input.
#[must_use]
pub fn input() -> Box<dyn AsyncRead + Unpin + Send> {
    match own_pipe(0).map(|path| pipe::OpenOptions::new().open_receiver(path)) {
        Some(Ok(pipe)) => Box::new(pipe),
        Some(Err(_)) | None => Box::new(tokio::io::stdin()),
    }
}

/// Standard output.
#[must_use]
pub fn output() -> Box<dyn AsyncWrite + Unpin + Send> {
    match own_pipe(1).map(|path| pipe::OpenOptions::new().open_sender(path)) {
        Some(Ok(pipe)) => Box::new(pipe),
        Some(Err(_)) | None => Box::new(tokio::io::stdout()),
    }
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
