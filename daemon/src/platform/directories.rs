//! Directories that somebody named: is there one, and which?
//!
//! Owns how long an answer may take and how many may be waited for. Must not know what they are for.
//!
//! Asking may wait for ever, where a network is gone or a program serves the file system. There a child
//! asks (see `apart`), one for each directory: whoever asks for the same meanwhile gets its answer.
//! Once a directory was silent, everything on the same mount counts as silent at once, until that
//! child is through: however often somebody asks, one child hangs.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsString};
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use agentd_base::shared::lock;
use agentd_core::event::Directory;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::{Mode, fstat};
use rustix::fs::{CWD, readlinkat_raw};
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::apart::{self, Apart, Keeps};

/// A directory answers within this time, or is silent: a disk that slept needs several seconds, and
/// so does a share that is mounted on first use.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// An answer is true for a moment: many sends that come together ask once.
const FRESH: Duration = Duration::from_millis(250);
/// Directories that are asked at the same time; each has a process.
const AT_ONCE: usize = 32;

/// File systems that answer from this machine's own disks and memory.
#[cfg(target_os = "linux")]
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "overlay", "squashfs", "tmpfs",
    "xfs", "zfs",
];

type Answer = watch::Receiver<Option<Directory>>;

/// What is being asked, and what was just answered.
static ASKED: Mutex<BTreeMap<String, Answer>> = Mutex::new(BTreeMap::new());
/// Where nothing answers, and how many children wait there.
static SILENT: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());
static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

/// Asks for a directory, for 5 s at most.
pub async fn look(path: &str) -> Directory {
    let found = look_at_all([path.to_owned()]).await;
    found.into_values().next().unwrap_or(Directory::Silent)
}

/// The runtime that asks for threads which can wait.
static RUNTIME: OnceLock<Handle> = OnceLock::new();

/// From now on [`answers`] asks by this runtime, from which it is called.
pub fn ask_by_this_runtime() {
    if let Ok(runtime) = Handle::try_current() {
        let _before = RUNTIME.set(runtime);
    }
}

/// Does a directory, or else the one it is to be made in, answer within 5 s? For threads that are
/// not the runtime's.
#[must_use]
pub fn answers(path: &Path) -> bool {
    let Some(runtime) = RUNTIME.get() else {
        return true;
    };
    let mut above = path.ancestors().filter_map(Path::to_str);
    let found = above.find_map(|path| match runtime.block_on(look(path)) {
        Directory::Missing => None,
        found => Some(found),
    });
    found != Some(Directory::Silent)
}

/// Asks for some directories at the same time, for 5 s at most.
pub async fn look_at_all(paths: impl IntoIterator<Item = String>) -> BTreeMap<String, Directory> {
    let asked = paths.into_iter().map(|path| {
        let answer = (!is_silent(Path::new(&path))).then(|| asked(&path));
        (path, answer)
    });
    // All of them are asked before the first one is waited for.
    let asked: Vec<(String, Option<Answer>)> = asked.collect();
    let mut found = BTreeMap::new();
    for (path, answer) in asked {
        let answer = match answer {
            Some(mut answer) => {
                let answer = answer.wait_for(Option::is_some).await;
                answer.ok().and_then(|answer| answer.clone())
            }
            None => None,
        };
        // Only a runtime that is going down leaves a question without an answer.
        found.insert(path, answer.unwrap_or(Directory::Silent));
    }
    found
}

fn asked(path: &str) -> Answer {
    let mut asked = lock(&ASKED);
    if let Some(answer) = asked.get(path) {
        return answer.clone();
    }
    let (sender, answer) = watch::channel(None);
    asked.insert(path.to_owned(), answer.clone());
    #[expect(clippy::disallowed_methods, reason = "stop must not wait for it")]
    let _asking = tokio::spawn(ask(path.to_owned(), sender));
    answer
}

async fn ask(path: String, answer: watch::Sender<Option<Directory>>) {
    let deadline = Instant::now() + ANSWERS_WITHIN;
    // Whatever ends this, the next one asks anew.
    let asked = PendingDirectory(path);
    let PendingDirectory(path) = &asked;
    let Ok(place) = timeout_at(deadline, PLACES.acquire()).await else {
        answer.send_replace(Some(Directory::Silent));
        return;
    };
    let Apart { mut child, channel } = match begin(path).await {
        Ok(BegunLook::Asked(apart)) => apart,
        Ok(BegunLook::Known(found)) => {
            answer.send_replace(Some(found));
            drop(place);
            return tokio::time::sleep(FRESH).await;
        }
        Err(_) => {
            // Whoever starts something there will hear it.
            answer.send_replace(Some(Directory::There(None)));
            return;
        }
    };
    let Ok(said) = timeout_at(deadline, read(channel)).await else {
        let silent = Silent::below(Path::new(path));
        answer.send_replace(Some(Directory::Silent));
        return silent.until_gone(child).await;
    };
    let found = parse(&said);
    let stays = matches!(found, Directory::There(_));
    answer.send_replace(Some(found));
    let _status = child.wait().await;
    drop(place);
    if stays {
        tokio::time::sleep(FRESH).await;
    }
}

/// A directory that is asked, or has just answered.
struct PendingDirectory(String);

impl Drop for PendingDirectory {
    fn drop(&mut self) {
        lock(&ASKED).remove(&self.0);
    }
}

/// A directory that is being asked.
enum BegunLook {
    /// Nobody has to be.
    Known(Directory),
    Asked(Apart),
}

async fn begin(path: &str) -> std::io::Result<BegunLook> {
    let path = CString::new(path)?;
    let begun = tokio::task::spawn_blocking(move || {
        if let Some(found) = known_at_once(&path) {
            return Ok(BegunLook::Known(found));
        }
        let look = move |channel: BorrowedFd<'_>| look_at(&path, channel);
        apart::start(apart::no_program(), Keeps::Nothing, look).map(BegunLook::Asked)
    });
    begun
        .await
        .unwrap_or_else(|lost| Err(std::io::Error::other(lost)))
}

/// What the kernel has in memory of a directory on a disk of this machine: a child costs more than
/// a send does.
#[cfg(target_os = "linux")]
fn known_at_once(path: &CString) -> Option<Directory> {
    let directory = open_at_once(path, OFlag::O_DIRECTORY, &mounts()).ok()?;
    let number = directory.as_raw_fd();
    let real = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    Some(Directory::There(real.into_os_string().into_string().ok()))
}

/// Opens the place of something on a disk of this machine, if nobody has to be asked for the way.
///
/// # Errors
/// Whatever it is: of `ENOENT` alone it is sure that the same would be said by whoever is asked.
#[cfg(target_os = "linux")]
pub(super) fn open_at_once(
    path: &CString,
    flags: OFlag,
    mounts: &str,
) -> nix::Result<std::os::fd::OwnedFd> {
    use nix::errno::Errno;
    use nix::fcntl::{AT_FDCWD, OpenHow, ResolveFlag, openat2};

    // Fails where a file system would have to be asked. At the root of a network's one it may ask
    // nevertheless, and wait, but so that this thread keeps nobody from leaving.
    let how = OpenHow::new()
        .flags(flags | OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::from_bits_retain(libc::RESOLVE_CACHED));
    let opened = openat2(AT_FDCWD, path.as_c_str(), how)?;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd()));
    let info = info.map_err(|_| Errno::EAGAIN)?;
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let kind = mount.and_then(|mount| kind_of(mount.trim(), mounts));
    match kind {
        Some(kind) if LOCAL.contains(&kind) => Ok(opened),
        _ => Err(Errno::EAGAIN),
    }
}

#[cfg(not(target_os = "linux"))]
const fn known_at_once(_path: &CString) -> Option<Directory> {
    None
}

/// The kernel's list of mounts; nothing where there is none.
pub(super) fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// The kind of the file system of a mount, by its number in the kernel's list.
#[cfg(target_os = "linux")]
fn kind_of<'a>(mount: &str, mounts: &'a str) -> Option<&'a str> {
    let is_it = |line: &&str| line.split(' ').next() == Some(mount);
    let (_, behind) = mounts.lines().find(is_it)?.split_once(" - ")?;
    behind.split(' ').next()
}

async fn read(channel: std::os::unix::net::UnixStream) -> Vec<u8> {
    let mut said = Vec::new();
    if channel.set_nonblocking(true).is_ok()
        && let Ok(mut channel) = tokio::net::UnixStream::from_std(channel)
    {
        // What it could say before it was gone is all there is.
        let _gone = channel.read_to_end(&mut said).await;
    }
    said
}

/// The system's number for why not, or nought; then the path.
fn parse(said: &[u8]) -> Directory {
    match said.split_first_chunk::<4>() {
        Some((number, real)) if *number == [0; 4] => {
            let real = OsString::from_vec(real.to_vec()).into_string();
            Directory::There(real.ok().filter(|real| !real.is_empty()))
        }
        Some((number, _)) => match i32::from_ne_bytes(*number) {
            // What ends the connection to a file system ends everything in it.
            libc::ENOTCONN | libc::EIO | libc::ESTALE | libc::ETIMEDOUT | libc::EHOSTDOWN => {
                Directory::Silent
            }
            _ => Directory::Missing,
        },
        None => Directory::There(None),
    }
}

/// In a child: opens the directory and says its real path. Async-signal-safe.
fn look_at(path: &CStr, channel: BorrowedFd<'_>) -> i32 {
    #[cfg(target_os = "linux")]
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
    #[cfg(not(target_os = "linux"))]
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
    let opened = open(path, flags, Mode::empty());
    // Where something is mounted, only a look at it asks who serves it.
    let file = match opened.and_then(|file| fstat(&file).map(|_| file)) {
        Ok(file) => file,
        Err(why) => {
            apart::tell(channel, &(why as i32).to_ne_bytes());
            return 1;
        }
    };
    apart::tell(channel, &[0; 4]);
    let mut real = [0_u8; libc::PATH_MAX as usize];
    let bytes = real_path(file.as_raw_fd(), &mut real);
    apart::tell(channel, &real[..bytes]);
    0
}

/// As the kernel has it: no file system is asked. Gives how many bytes it has.
#[cfg(target_os = "linux")]
pub(super) fn real_path(file: RawFd, real: &mut [u8]) -> usize {
    const DIR: &[u8] = b"/proc/self/fd/";
    let mut link = [0_u8; 32];
    link[..DIR.len()].copy_from_slice(DIR);
    // A child of ours has few files.
    let (mut digits, mut rest) = (1, file / 10);
    while rest > 0 {
        (digits, rest) = (digits + 1, rest / 10);
    }
    let mut rest = file.unsigned_abs();
    for digit in (0..digits).rev() {
        link[DIR.len() + digit] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    link_at(CStr::from_bytes_until_nul(&link).unwrap_or_default(), real)
}

/// Where a link leads, into room that is there. Gives how many bytes it has, none of what is no link.
/// Async-signal-safe.
pub(super) fn link_at(path: &CStr, place: &mut [u8]) -> usize {
    readlinkat_raw(CWD, path, place).unwrap_or(0)
}

/// As the kernel has it. Gives how many bytes it has.
#[cfg(target_os = "macos")]
#[expect(
    unsafe_code,
    reason = "between fork and exec, where nothing may be allocated"
)]
fn real_path(file: RawFd, real: &mut [u8]) -> usize {
    // SAFETY: room of PATH_MAX bytes, as is asked for.
    if unsafe { libc::fcntl(file, libc::F_GETPATH, real.as_mut_ptr()) } != 0 {
        return 0;
    }
    real.iter().position(|byte| *byte == 0).unwrap_or(0)
}

/// Is it where nothing answers?
#[must_use]
pub fn is_silent(path: &Path) -> bool {
    let silent = lock(&SILENT);
    silent.keys().any(|place| path.starts_with(place))
}

/// For as long as this is there, nobody asks anything below a place.
pub struct Silent(PathBuf);

impl Silent {
    /// The mount that a path is on, as it is written; all of the machine isn't silent.
    #[must_use]
    pub fn below(path: &Path) -> Self {
        let place = mount_of(path, &mounts()).unwrap_or_else(|| path.to_owned());
        *lock(&SILENT).entry(place.clone()).or_default() += 1;
        Self(place)
    }

    /// For as long as a child hangs there: it is killed, and gone when the kernel lets go of it.
    pub async fn until_gone(self, mut child: Child) {
        let _gone = child.start_kill();
        let _status = child.wait().await;
    }

    /// The same for whoever can't wait.
    pub fn leave(self, child: Child) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.until_gone(child));
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let mut silent = lock(&SILENT);
        if let Some(count) = silent.get_mut(&self.0) {
            *count -= 1;
            if *count == 0 {
                silent.remove(&self.0);
            }
        }
    }
}

/// The innermost mount that a path begins with, of the kernel's list; the root is none.
fn mount_of(path: &Path, mounts: &str) -> Option<PathBuf> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| PathBuf::from(unescaped(point)));
    points
        .filter(|point| point.parent().is_some() && path.starts_with(point))
        // What is mounted last on a place covers what was there, and is longest.
        .max_by_key(|point| point.components().count())
}

/// The kernel writes white space and backslashes as three octal digits.
fn unescaped(point: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = point.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        let octal = behind.get(..3).and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match octal.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[3..];
            }
            None => bytes.push(*first),
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn directory_is_known_by_its_real_path() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(real.join("proj")).unwrap();
        std::fs::write(real.join("file"), "").unwrap();
        std::os::unix::fs::symlink("proj", real.join("link")).unwrap();
        let proj = Directory::There(Some(real.join("proj").display().to_string()));
        for spelling in ["proj", "proj/.", "proj/", "/proj", "link", "proj/../link"] {
            let path = format!("{}/{spelling}", real.display());
            assert_eq!(look(&path).await, proj, "{path}");
        }
        for none in ["file", "gone", "file/below", "a\0b"] {
            let path = format!("{}/{none}", real.display());
            let found = look(&path).await;
            let unknown = none.contains('\0') && found == Directory::There(None);
            assert!(found == Directory::Missing || unknown, "{path}: {found:?}");
        }
    }

    #[tokio::test]
    async fn directory_that_many_ask_for_is_asked_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let answers: Vec<Answer> = (0..100).map(|_| asked(&path)).collect();
        assert!(
            answers
                .iter()
                .all(|answer| answer.same_channel(&answers[0]))
        );
        assert!(matches!(look(&path).await, Directory::There(_)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn directory_of_a_local_disk_needs_no_child() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/a rw\n\
             30 22 0:30 / /mnt rw,nosuid shared:1 - fuse.sshfs x rw\n";
        assert_eq!(kind_of("22", mounts), Some("ext4"));
        assert_eq!(kind_of("30", mounts), Some("fuse.sshfs"));
        assert_eq!(kind_of("3", mounts), None);
        let at_once = |path: &str| known_at_once(&CString::new(path).unwrap());
        assert_eq!(at_once("/proc/self"), None, "of no disk");
        assert_eq!(at_once("/no/such/directory"), None);
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        let real = real.to_str().unwrap().to_owned();
        // On a file system that nobody listed, or an old kernel, a child is asked.
        let known = at_once(&format!("{real}/."));
        assert!(known.is_none() || known == Some(Directory::There(Some(real))));
    }

    #[test]
    fn directory_that_is_silent_silences_its_mount_only() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/a rw\n\
             30 22 0:30 / /mnt/my\\040disk rw - fuse x rw\n\
             31 22 0:31 / /mnt rw - tmpfs x rw\n";
        let of = |path: &str| mount_of(Path::new(path), mounts);
        assert_eq!(of("/mnt/my disk/a/b"), Some("/mnt/my disk".into()));
        assert_eq!(of("/mnt/my disks"), Some("/mnt".into()));
        assert_eq!(of("/srv/a"), None, "the root is everything");

        let place = Path::new("/no/such/place");
        let below = Path::new("/no/such/place/below");
        let first = Silent::below(place);
        let second = Silent::below(place);
        drop(first);
        assert!(is_silent(below) && !is_silent(Path::new("/no/such/other")));
        drop(second);
        assert!(!is_silent(below));
    }
}
