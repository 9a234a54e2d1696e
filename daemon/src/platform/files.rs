//! Files where programs and logins may be: what is there, and how it begins.
//!
//! Owns how one look at many of them is taken, where any of them may lie on a mount that doesn't
//! answer. Must not know what they are for.
//!
//! What the kernel has in memory of a disk of this machine is asked for here. Everything else one
//! child asks for, a file after the other (see `apart`): it is made for the first such file, and ends
//! with the look. Where it hangs nothing is asked any more for as long as it does (see
//! `directories`), and another one goes on with the rest.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agentd_base::shared::lock;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::{Mode, stat};
use nix::unistd::{AccessFlags, access, read};

use super::apart::{self, Apart, Keeps};
use super::directories::{self, Silent};

/// A file system says the next thing within this time, or is silent.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// A look at all files together is over within this time: the rest counts as silent.
const LOOK_WITHIN: Duration = Duration::from_secs(2);
/// So many children of one look may hang; then nothing more is asked in it.
const HANG_AT_MOST: usize = 4;
/// Bytes passed on at once.
const PART: usize = 4096;
/// A path with its NUL.
const PATH: usize = libc::PATH_MAX as usize;
/// What is said of a file before its real path.
const FIELDS: usize = 5;

/// What is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileFacts {
    /// The system's kinds: regular, directory, and what else there is.
    mode: i64,
    /// May this user execute it?
    executable: bool,
    /// Behind all links.
    pub real: PathBuf,
    /// In bytes.
    pub size: u64,
    /// When it was changed in any way: seconds, and nanoseconds.
    pub changed: (i64, i64),
    /// As much of its content as was asked for.
    pub head: Vec<u8>,
}

/// Why nothing is.
#[derive(Debug)]
pub struct Absent {
    /// What the system said; `TimedOut` when it said nothing.
    pub error: io::Error,
    /// Where a link of this name leads.
    pub link: Option<PathBuf>,
}

impl Absent {
    /// Does nothing answer there?
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.error.kind() == io::ErrorKind::TimedOut
    }
}

impl Absent {
    /// Is it known that nothing is there? Who can't look, for want of a right or of descriptors,
    /// doesn't know that.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(
            self.error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    }
}

impl From<io::Error> for Absent {
    fn from(error: io::Error) -> Self {
        Self { error, link: None }
    }
}

impl FileFacts {
    fn of(metadata: &Metadata, executable: bool, real: PathBuf) -> Self {
        Self {
            mode: i64::from(metadata.mode()),
            executable,
            real,
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            head: Vec::new(),
        }
    }

    /// Has it a content?
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT as i64 == libc::S_IFREG as i64
    }

    /// Is it a directory?
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT as i64 == libc::S_IFDIR as i64
    }

    /// Is it a file that may be executed?
    #[must_use]
    pub fn is_program(&self) -> bool {
        self.is_file() && self.executable
    }
}

/// Who asks: this process itself, which then may wait for ever, or a child where that could be.
#[derive(Clone, Default)]
pub struct Files(Option<Arc<PendingLook>>);

/// Two looks differ in what they see, not in how.
impl PartialEq for Files {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Files {}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Apart" } else { "Here" })
    }
}

/// One look.
struct PendingLook {
    /// The kernel's list of mounts.
    #[cfg(target_os = "linux")]
    mounts: String,
    until: Instant,
    /// Names that were asked for and lead to nothing: several agents' programs have the same ones.
    #[cfg(target_os = "linux")]
    gone: Mutex<BTreeSet<PathBuf>>,
    asking: Mutex<Asking>,
}

/// Who is asked.
#[derive(Default)]
struct Asking {
    child: Option<Apart>,
    hanging: usize,
}

impl Files {
    /// For a look of 2 s at most, in a thread with a runtime.
    #[must_use]
    pub fn apart() -> Self {
        Self(Some(Arc::new(PendingLook {
            #[cfg(target_os = "linux")]
            mounts: directories::mounts(),
            until: Instant::now() + LOOK_WITHIN,
            #[cfg(target_os = "linux")]
            gone: Mutex::default(),
            asking: Mutex::default(),
        })))
    }

    /// What is at a path, and the first bytes of it if that is a file.
    ///
    /// # Errors
    /// When nothing is, or nothing answers.
    pub fn look(&self, path: &Path, head: usize) -> Result<FileFacts, Absent> {
        let Some(look) = &self.0 else {
            return here(path, head);
        };
        #[cfg(target_os = "linux")]
        if let Some(known) = look.known_at_once(path, head) {
            return known;
        }
        if directories::is_silent(path) {
            return Err(silent().into());
        }
        look.ask(path, head)
    }

    /// What is at a path.
    ///
    /// # Errors
    /// When nothing is, or nothing answers.
    pub fn at(&self, path: &Path) -> Result<FileFacts, Absent> {
        self.look(path, 0)
    }

    /// Is it a program?
    #[must_use]
    pub fn is_program(&self, path: &Path) -> bool {
        self.at(path).is_ok_and(|found| found.is_program())
    }
}

fn here(path: &Path, head: usize) -> Result<FileFacts, Absent> {
    let metadata = std::fs::metadata(path).map_err(|error| Absent {
        error,
        link: std::fs::read_link(path).ok(),
    })?;
    let real = std::fs::canonicalize(path)?;
    whole(path, &metadata, real, head)
}

/// With a path that leads to it for sure.
fn whole(
    path: &Path,
    metadata: &Metadata,
    real: PathBuf,
    head: usize,
) -> Result<FileFacts, Absent> {
    let executable = access(path, AccessFlags::X_OK).is_ok();
    let mut found = FileFacts::of(metadata, executable, real);
    if head > 0 && found.is_file() {
        let file = File::open(path)?;
        file.take(head as u64).read_to_end(&mut found.head)?;
    }
    Ok(found)
}

impl PendingLook {
    /// What a disk of this machine has, if nobody has to be asked for the way there.
    #[cfg(target_os = "linux")]
    fn known_at_once(&self, path: &Path, head: usize) -> Option<Result<FileFacts, Absent>> {
        use std::os::fd::AsRawFd as _;

        use nix::errno::Errno;
        use nix::fcntl::OFlag;

        if lock(&self.gone).contains(path) {
            return Some(Err(io::Error::from_raw_os_error(libc::ENOENT).into()));
        }
        let named = CString::new(path.as_os_str().as_bytes()).ok()?;
        let open = |flags| directories::open_at_once(&named, flags, &self.mounts).map(File::from);
        // Most of what is looked for is not there, and this asks once for it. What follows links
        // says the same of nothing and of a link that leads nowhere.
        let named = match open(OFlag::O_NOFOLLOW) {
            Ok(named) => named,
            Err(Errno::ENOENT) => {
                lock(&self.gone).insert(path.to_owned());
                return Some(Err(io::Error::from_raw_os_error(libc::ENOENT).into()));
            }
            Err(_) => return None,
        };
        let is_link = named.metadata().ok()?.file_type().is_symlink();
        let file = if is_link {
            open(OFlag::empty()).ok()?
        } else {
            named
        };
        let opened = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let known = || {
            let real = std::fs::read_link(&opened)?;
            whole(&opened, &file.metadata()?, real, head)
        };
        Some(known())
    }

    /// Has a child ask. Blocks, for a second at most.
    fn ask(&self, path: &Path, head: usize) -> Result<FileFacts, Absent> {
        let mut asking = lock(&self.asking);
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() || asking.hanging >= HANG_AT_MOST {
            return Err(silent().into());
        }
        let apart = match asking.child.take() {
            Some(apart) => apart,
            None => apart::start(apart::no_program(), Keeps::Nothing, answer)?,
        };
        apart
            .channel
            .set_read_timeout(Some(left.min(ANSWERS_WITHIN)))?;
        match question(&apart.channel, path, head) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                asking.hanging += 1;
                Silent::below(path).leave(apart.child);
                Err(silent().into())
            }
            // It is gone, or doesn't understand: the next one is asked by another.
            Err(error) => Err(error.into()),
            Ok(answer) => {
                asking.child = Some(apart);
                answer
            }
        }
    }
}

fn silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its file system does not answer")
}

/// Asks a child, and hears it out.
fn question(
    mut channel: &UnixStream,
    path: &Path,
    head: usize,
) -> io::Result<Result<FileFacts, Absent>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let bytes = path.as_bytes_with_nul();
    if bytes.len() > PATH {
        return Ok(Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG).into()));
    }
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_ne_bytes();
    channel.write_all(&[&number(head)[..], &number(bytes.len()), bytes].concat())?;
    let why = number_of(channel)?;
    let mut fields = [0_i64; FIELDS];
    for field in &mut fields {
        let mut bytes = [0; 8];
        channel.read_exact(&mut bytes)?;
        *field = i64::from_ne_bytes(bytes);
    }
    let place = PathBuf::from(OsString::from_vec(part(channel)?));
    if why != 0 {
        return Ok(Err(Absent {
            error: io::Error::from_raw_os_error(why),
            link: Some(place).filter(|link| !link.as_os_str().is_empty()),
        }));
    }
    let mut head = Vec::new();
    loop {
        let next = part(channel)?;
        if next.is_empty() {
            break;
        }
        head.extend(next);
    }
    // Last, as reading may fail in the middle.
    let unread = number_of(channel)?;
    if unread != 0 {
        return Ok(Err(io::Error::from_raw_os_error(unread).into()));
    }
    let [mode, executable, size, seconds, nanoseconds] = fields;
    Ok(Ok(FileFacts {
        mode,
        executable: executable != 0,
        real: place,
        size: size.cast_unsigned(),
        changed: (seconds, nanoseconds),
        head,
    }))
}

fn number_of(mut channel: &UnixStream) -> io::Result<i32> {
    let mut number = [0; 4];
    channel.read_exact(&mut number)?;
    Ok(i32::from_ne_bytes(number))
}

/// Bytes with their length before them.
fn part(mut channel: &UnixStream) -> io::Result<Vec<u8>> {
    let length = usize::try_from(number_of(channel)?).unwrap_or(0);
    let mut part = vec![0; length.min(PATH.max(PART))];
    channel.read_exact(&mut part)?;
    Ok(part)
}

/// In a child: answers one question after the other, until nobody asks. Async-signal-safe.
fn answer(channel: BorrowedFd<'_>) -> i32 {
    let mut path = [0_u8; PATH];
    loop {
        let (mut head, mut length) = ([0; 4], [0; 4]);
        if !hear(channel, &mut head) || !hear(channel, &mut length) {
            return 0;
        }
        let length = u32::from_ne_bytes(length) as usize;
        let Some(bytes) = path.get_mut(..length) else {
            return 1;
        };
        if !hear(channel, bytes) {
            return 0;
        }
        let Ok(path) = CStr::from_bytes_with_nul(bytes) else {
            return 1;
        };
        answer_of(path, u32::from_ne_bytes(head) as usize, channel);
    }
}

/// Reads all of it; false when nobody says anything more.
fn hear(channel: BorrowedFd<'_>, bytes: &mut [u8]) -> bool {
    let mut done = 0;
    while done < bytes.len() {
        match read(channel, &mut bytes[done..]) {
            Ok(read @ 1..) => done += read,
            _ => return false,
        }
    }
    true
}

fn answer_of(path: &CStr, head: usize, channel: BorrowedFd<'_>) {
    let mut place = [0_u8; PATH];
    let found = match stat(path) {
        Ok(found) => found,
        Err(why) => {
            tell_fields(channel, why as i32, [0; FIELDS]);
            let length = directories::link_at(path, &mut place);
            return tell_part(channel, &place[..length]);
        }
    };
    let executable = access(path, AccessFlags::X_OK).is_ok();
    tell_kind(channel, &found, executable);
    let length = real_path(path, &mut place);
    tell_part(channel, &place[..length]);
    let is_file = found.st_mode & libc::S_IFMT == libc::S_IFREG;
    let unread = match head {
        1.. if is_file => tell_head(channel, path, head),
        _ => Ok(()),
    };
    tell_part(channel, &[]);
    let unread = unread.map_or_else(|why| why as i32, |()| 0);
    apart::tell(channel, &unread.to_ne_bytes());
}

/// Gives how many bytes it has.
#[cfg(target_os = "linux")]
fn real_path(path: &CStr, place: &mut [u8; PATH]) -> usize {
    let file = open(path, OFlag::O_PATH, Mode::empty());
    file.map_or(0, |file| directories::real_path(file.as_raw_fd(), place))
}

/// Gives how many bytes it has.
#[cfg(not(target_os = "linux"))]
#[expect(
    unsafe_code,
    reason = "between fork and exec, where nothing may be allocated"
)]
fn real_path(path: &CStr, place: &mut [u8; PATH]) -> usize {
    // SAFETY: a string with its NUL, and room of as many bytes as a path may have.
    let real = unsafe { libc::realpath(path.as_ptr(), place.as_mut_ptr().cast()) };
    let length = place.iter().position(|byte| *byte == 0);
    length.filter(|_| !real.is_null()).unwrap_or(0)
}

#[allow(
    clippy::useless_conversion,
    reason = "these types have other names on other systems"
)]
fn tell_kind(channel: BorrowedFd<'_>, found: &libc::stat, executable: bool) {
    let fields = [
        i64::from(found.st_mode),
        i64::from(executable),
        found.st_size,
        found.st_ctime,
        found.st_ctime_nsec,
    ];
    tell_fields(channel, 0, fields);
}

fn tell_fields(channel: BorrowedFd<'_>, why: i32, fields: [i64; FIELDS]) {
    apart::tell(channel, &why.to_ne_bytes());
    for field in fields {
        apart::tell(channel, &field.to_ne_bytes());
    }
}

fn tell_part(channel: BorrowedFd<'_>, bytes: &[u8]) {
    let length = i32::try_from(bytes.len()).unwrap_or(0);
    apart::tell(channel, &length.to_ne_bytes());
    apart::tell(channel, bytes);
}

/// Says how it begins; fails when not all of that can be read.
fn tell_head(channel: BorrowedFd<'_>, path: &CStr, head: usize) -> nix::Result<()> {
    // It may have become something else: no waiting for the other end of a named pipe, and no
    // terminal becomes ours.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = open(path, flags, Mode::empty())?;
    let mut part = [0_u8; PART];
    let mut left = head;
    while left > 0 {
        match read(&file, &mut part[..left.min(PART)])? {
            0 => break,
            length => {
                tell_part(channel, &part[..length]);
                left -= length;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_the_same_to_a_child() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        let path = |name: &str| real.join(name);
        std::fs::write(path("long"), vec![b'x'; 3 * PART]).unwrap();
        std::os::unix::fs::symlink("long", path("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("broken")).unwrap();
        let apart = Files::apart();
        let look = apart.0.as_ref().unwrap();
        let names = ["long", "link", "broken", "gone", "", "long/below"];
        for name in names.map(path).into_iter().chain(["/bin/sh".into()]) {
            for head in [0, 5, PART, 2 * PART + 1, usize::from(u16::MAX)] {
                let told = |found: Result<FileFacts, Absent>| {
                    found.map_err(|absent| (absent.error.raw_os_error(), absent.link))
                };
                let here = told(Files::default().look(&name, head));
                let name = name.display();
                assert_eq!(
                    told(look.ask(Path::new(&name.to_string()), head)),
                    here,
                    "{name}"
                );
                assert_eq!(
                    told(apart.look(Path::new(&name.to_string()), head)),
                    here,
                    "{name}"
                );
            }
        }
        assert!(apart.is_program(Path::new("/bin/sh")) && !apart.is_program(&path("long")));
        assert!(apart.at(&real).unwrap().is_dir());
        let pid = look
            .asking
            .lock()
            .unwrap()
            .child
            .as_ref()
            .unwrap()
            .child
            .id();
        assert!(pid.is_some(), "one child for all of them");
    }
}
