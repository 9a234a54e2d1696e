//! A file system that stops answering, for whoever has to show that nobody waits for it.
//!
//! Owns the mount and the device behind it: when it is dropped, whatever waits is told so and the mount
//! is gone. Must not know who uses it. It is in a namespace of the caller's, see [`alone`].

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tempfile::TempDir;

/// What a file system can be asked, as the kernel numbers it.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
pub(crate) const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
pub(crate) const ACCESS: u32 = 34;
/// Nobody waits for an answer to these.
const UNANSWERED: &[u32] = &[2, 36, 38, 42];
/// All of them.
pub(crate) const ANYTHING: u32 = u32::MAX;
const FILE: u64 = 3;
/// Nobody waits longer for a test that failed and can't be killed.
const SERVES: Duration = Duration::from_secs(120);

/// A file system in which every name is a directory, but for `file`, which may be executed.
pub(crate) struct FileSystem {
    pub(crate) at: PathBuf,
    /// What it doesn't answer.
    ignores: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
    _dir: TempDir,
}

/// Mounts; did it work?
#[expect(unsafe_code, reason = "the library is built without mounts")]
pub(crate) fn mount(
    what: &str,
    at: &Path,
    kind: &str,
    options: &str,
    flags: libc::c_ulong,
) -> bool {
    let text = |text: &str| std::ffi::CString::new(text).unwrap();
    let (what, at, kind) = (text(what), text(at.to_str().unwrap()), text(kind));
    let options = text(options);
    // SAFETY: strings with their NUL.
    let mounted = unsafe {
        let (kind, options) = (kind.as_ptr(), options.as_ptr().cast());
        libc::mount(what.as_ptr(), at.as_ptr(), kind, flags, options)
    };
    mounted == 0
}

impl FileSystem {
    /// `None` where it can't be had.
    pub(crate) fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().to_owned();
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK);
        let device = options.open("/dev/fuse").ok()?;
        let how = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        if !mount(
            "hanging",
            &at,
            "fuse",
            &how,
            libc::MS_NOSUID | libc::MS_NODEV,
        ) {
            return None;
        }
        let (ignores, over) = (
            Arc::new(AtomicU32::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (mute, end) = (Arc::clone(&ignores), Arc::clone(&over));
        let serving = std::thread::spawn(move || serve(device, &mute, &end));
        Some(Self {
            at,
            ignores,
            over,
            serving: Some(serving),
            _dir: dir,
        })
    }

    /// From now on it says nothing to requests of this kind, or to [`ANYTHING`].
    pub(crate) fn ignore(&self, what: u32) {
        self.ignores.store(what, Ordering::SeqCst);
    }

    /// Of something in it.
    pub(crate) fn path(&self, name: &str) -> String {
        self.at.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for FileSystem {
    #[expect(unsafe_code, reason = "the library is built without mounts")]
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Closing the device ends whatever waits.
        let _panicked = self.serving.take().map(JoinHandle::join);
        let at = std::ffi::CString::new(self.at.to_str().unwrap()).unwrap();
        // SAFETY: a string with its NUL.
        let _as_before = unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

fn serve(mut device: File, ignores: &AtomicU32, over: &AtomicBool) {
    let mut request = vec![0; 256 * 1024];
    // A call that is not answered can't be killed: it is told that it failed when all are answered
    // again.
    let mut silent: Vec<[u8; 8]> = Vec::new();
    let begun = Instant::now();
    while !over.load(Ordering::SeqCst) && begun.elapsed() < SERVES {
        let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        let _again = poll(&mut fds, PollTimeout::from(50_u16));
        if ignores.load(Ordering::SeqCst) == 0 {
            for call in silent.drain(..) {
                let mut failed = 16_u32.to_ne_bytes().to_vec();
                failed.extend((-libc::EIO).to_ne_bytes());
                failed.extend(call);
                let _gone = device.write(&failed);
            }
        }
        let Ok(length) = device.read(&mut request) else {
            continue;
        };
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let operation = number(4);
        let ignored = ignores.load(Ordering::SeqCst);
        let mute = ignored == operation || ignored == ANYTHING && operation != INIT;
        if UNANSWERED.contains(&operation) {
            continue;
        }
        if mute {
            silent.extend(<[u8; 8]>::try_from(&request[8..16]));
            continue;
        }
        let node = u64::from_ne_bytes(request[16..24].try_into().unwrap());
        let named_file = request[40..length].starts_with(b"file\0");
        let mut body: Vec<u8> = Vec::new();
        let mut error = 0_i32;
        match operation {
            INIT => {
                for field in [7_u32, 31, 0, 0, 0, 65536, 1] {
                    body.extend(field.to_ne_bytes());
                }
                body.resize(64, 0);
            }
            LOOKUP => {
                let node = if named_file { FILE } else { 2 };
                for field in [node, 0, 0, 0, 0] {
                    body.extend(field.to_ne_bytes());
                }
                body.extend(attributes(node));
            }
            GETATTR => {
                body.extend([0; 16]);
                body.extend(attributes(node));
            }
            OPEN | OPENDIR => body.extend([0; 16]),
            READ => body.extend([b'x'; 10]),
            READDIR | ACCESS => {}
            _ => error = -libc::ENOSYS,
        }
        let mut answer = Vec::new();
        answer.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
        answer.extend(error.to_ne_bytes());
        answer.extend_from_slice(&request[8..16]);
        answer.extend(body);
        // Whoever asked may be gone.
        let _gone = device.write(&answer);
    }
}

fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = match node {
        FILE => (libc::S_IFREG | 0o755, 10_u64),
        _ => (libc::S_IFDIR | 0o755, 0),
    };
    let mut attributes = Vec::new();
    for field in [node, size, 0, 0, 0, 0] {
        attributes.extend(field.to_ne_bytes());
    }
    for field in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        attributes.extend(field.to_ne_bytes());
    }
    attributes
}

/// Gives this thread, and what it starts, mounts of its own; false where that takes rights that it
/// hasn't got.
#[expect(unsafe_code, reason = "the library is built without namespaces")]
pub(crate) fn alone() -> bool {
    // SAFETY: changes what this thread sees, and what it starts.
    let apart = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    let private = libc::MS_REC | libc::MS_PRIVATE;
    apart && mount("none", Path::new("/"), "none", "", private)
}
