//! The content of a file that somebody named, whatever it is and wherever it lies.
//!
//! Owns how it is read: by a child (see `apart`), as any call for it may wait for ever. Must not know
//! what it is for.

use std::ffi::{CStr, CString};
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::stat::{Mode, fstat, stat};
use nix::unistd::read;
use tokio::process::Child;

use super::apart::{self, Apart, Keeps};
use super::directories::{self, Silent};

/// The next part of a file is there within this time, or its file system is silent.
const PART_WITHIN: Duration = Duration::from_secs(5);
/// All of it is: more is a disk that nobody wants to wait for.
const ALL_WITHIN: Duration = Duration::from_secs(30);
/// Bytes read at once.
const PART: usize = 32 * 1024;
/// Instead of the length of a part: reading failed.
const FAILED: u32 = u32::MAX;

/// What a file was when it was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The system's kinds: regular, directory, and what else there is.
    mode: i64,
    /// In bytes.
    pub size: u64,
    changed: (i64, i64),
}

impl Kind {
    /// Has it a content?
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT as i64 == libc::S_IFREG as i64
    }

    /// Is it a directory?
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT as i64 == libc::S_IFDIR as i64
    }
}

/// A file that is being read.
pub struct Content {
    child: Child,
    channel: UnixStream,
    path: PathBuf,
    until: Instant,
    /// What it was at first.
    pub kind: Kind,
}

/// Begins to read. Blocks, for 5 s at most, in a thread with a runtime.
///
/// # Errors
/// What the system said; `TimedOut` when it said nothing.
pub fn open(path: &str) -> io::Result<Content> {
    if directories::is_silent(Path::new(path)) {
        return Err(silent());
    }
    let named = CString::new(path)?;
    let copy = move |channel: BorrowedFd<'_>| copy(&named, channel);
    let Apart { child, channel } = apart::start(apart::no_program(), Keeps::Nothing, copy)?;
    let mut content = Content {
        child,
        channel,
        path: path.into(),
        until: Instant::now() + ALL_WITHIN,
        kind: Kind {
            mode: 0,
            size: 0,
            changed: (0, 0),
        },
    };
    match content.kind_now() {
        Ok(kind) => {
            content.kind = kind;
            Ok(content)
        }
        Err(error) => Err(content.failed(error)),
    }
}

impl Content {
    /// All of it, or nothing if it has become another one since. Blocks, for 30 s at most.
    ///
    /// # Errors
    /// What the system said; `TimedOut` when it said nothing.
    pub fn read(mut self) -> io::Result<Option<Vec<u8>>> {
        let size = usize::try_from(self.kind.size).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(size);
        match self.all(&mut bytes, size) {
            Ok(same) => Ok(same.then_some(bytes)),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn all(&mut self, bytes: &mut Vec<u8>, size: usize) -> io::Result<bool> {
        loop {
            let mut length = [0; 4];
            self.exactly(&mut length)?;
            match u32::from_ne_bytes(length) {
                // Looked at again at its end: what was written meanwhile would be half the one and
                // half the other.
                0 => return Ok(bytes.len() == size && self.kind_now()? == self.kind),
                FAILED => return Err(self.number()?),
                length => {
                    let before = bytes.len();
                    let after = before + length as usize;
                    if after > size {
                        return Ok(false);
                    }
                    bytes.resize(after, 0);
                    self.exactly(&mut bytes[before..])?;
                }
            }
        }
    }

    fn kind_now(&mut self) -> io::Result<Kind> {
        let error = self.number()?;
        if error.raw_os_error() != Some(0) {
            return Err(error);
        }
        let mut fields = [0; 4];
        for field in &mut fields {
            let mut number = [0; 8];
            self.exactly(&mut number)?;
            *field = i64::from_ne_bytes(number);
        }
        let [mode, size, seconds, nanos] = fields;
        Ok(Kind {
            mode,
            size: size.cast_unsigned(),
            changed: (seconds, nanos),
        })
    }

    fn number(&mut self) -> io::Result<io::Error> {
        let mut number = [0; 4];
        self.exactly(&mut number)?;
        Ok(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
    }

    /// Reads what the child says next.
    fn exactly(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(silent());
        }
        self.channel.set_read_timeout(Some(left.min(PART_WITHIN)))?;
        let read = self.channel.read_exact(bytes);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(),
            _ => error,
        })
    }

    fn failed(self, error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::TimedOut {
            Silent::below(&self.path).leave(self.child);
        }
        error
    }
}

fn silent() -> io::Error {
    let within = PART_WITHIN.as_secs();
    let error = format!("its file system does not answer within {within} s");
    io::Error::new(io::ErrorKind::TimedOut, error)
}

/// In a child: says what the file is, its content in parts, and what it is then. Async-signal-safe.
fn copy(path: &CStr, channel: BorrowedFd<'_>) -> i32 {
    match copied(path, channel) {
        Ok(()) => 0,
        Err(why) => {
            apart::tell(channel, &(why as i32).to_ne_bytes());
            1
        }
    }
}

fn copied(path: &CStr, channel: BorrowedFd<'_>) -> nix::Result<()> {
    // What is no file is not opened: that alone may wait, or do something.
    let kind = stat(path)?;
    if kind.st_mode & libc::S_IFMT != libc::S_IFREG {
        tell(channel, &kind);
        return Ok(());
    }
    // It may have become something else: no waiting for the other end of a named pipe, and no
    // terminal becomes ours.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = nix::fcntl::open(path, flags, Mode::empty())?;
    let kind = fstat(&file)?;
    tell(channel, &kind);
    if kind.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(());
    }
    let mut part = [0_u8; PART];
    loop {
        match read(&file, &mut part) {
            Ok(length) => {
                apart::tell(
                    channel,
                    &u32::try_from(length).unwrap_or(FAILED).to_ne_bytes(),
                );
                apart::tell(channel, &part[..length]);
                if length == 0 {
                    break;
                }
            }
            Err(Errno::EINTR) => {}
            Err(why) => {
                apart::tell(channel, &FAILED.to_ne_bytes());
                return Err(why);
            }
        }
    }
    tell(channel, &fstat(&file)?);
    Ok(())
}

#[allow(
    clippy::useless_conversion,
    reason = "these types have other names on other systems"
)]
fn tell(channel: BorrowedFd<'_>, kind: &libc::stat) {
    apart::tell(channel, &0_i32.to_ne_bytes());
    for field in [
        i64::from(kind.st_mode),
        kind.st_size,
        kind.st_mtime,
        kind.st_mtime_nsec,
    ] {
        apart::tell(channel, &i64::from(field).to_ne_bytes());
    }
}
