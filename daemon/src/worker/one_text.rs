//! The standard input of a program that is given one text.
//!
//! Owns that the whole text and its end are there before the program is: written while the program
//! reads, it would be cut by a daemon that is killed meanwhile, and half a prompt, or none, be run as
//! if it were the whole. Must not know what the text says.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::process::Stdio;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// A pipe with the text in it, or a file of no name for one that is too long for a pipe.
///
/// # Errors
/// If the system has no room for either.
pub(super) fn holding(text: &[u8]) -> io::Result<Stdio> {
    let (reader, mut writer) = io::pipe()?;
    // Nobody reads yet: one that doesn't take it all never will.
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    match writer.write(text) {
        Ok(taken) if taken == text.len() => return Ok(reader.into()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    let mut file = unnamed()?;
    file.write_all(text)?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(target_os = "linux")]
fn unnamed() -> io::Result<File> {
    let file = rustix::fs::memfd_create("prompt", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(file.into())
}

#[cfg(not(target_os = "linux"))]
fn unnamed() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("agentd-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut opening = File::options();
    opening.read(true).write(true).create_new(true).mode(0o600);
    let file = opening.open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}
