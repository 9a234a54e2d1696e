//! Children that do for us what may wait for ever: enter a directory, look at a file, become a
//! program that lies on a dead network mount.
//!
//! Owns how such a child is made and how it says how far it came. Must not know what for.
//!
//! Whoever waits for a file system that doesn't answer may not even be killed. A thread of ours that
//! does keeps the whole process half dead, its locks and its sockets with it; so does a child for as
//! long as it has our files. So the child closes them first, and only then does what it is for: by
//! then nobody waits for it longer than they want to.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{chdir, read, write};
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;
use tokio::time::{Instant, timeout_at};

/// Said by a child that is in its directory.
const IN_DIRECTORY: u8 = b'd';
/// Said by a child that can't go on; the system's number for why follows.
const REFUSED: u8 = b'x';
/// Written to a child that may go on.
const GO: &[u8] = b"g";
/// How a child ends that didn't become a program.
const NOT_ENTERED: i32 = 127;

/// More files than this process has: its limit may be none.
const FILES: RawFd = 64 * 1024;

/// Which files a child keeps besides its end of the channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Standard input, output and error.
    Standard,
    /// None. It is killed when nobody has it any more, and reaped when it is dead.
    Nothing,
}

/// A child that has none of our files.
pub struct Apart {
    /// The child.
    pub child: Child,
    /// To what it does.
    pub channel: UnixStream,
}

/// Makes a child that closes its files, does `step` with its end of the channel, and ends with the
/// code that this gives. Blocks until the child has got a core, but never for what it does.
///
/// Between fork and exec only what is async-signal-safe may be done in `step`: no allocation, no
/// lock.
///
/// # Errors
/// When the system can't make it.
pub fn start(
    mut command: std::process::Command,
    keeps: Keeps,
    mut step: impl FnMut(BorrowedFd<'_>) -> i32 + Send + Sync + 'static,
) -> io::Result<Apart> {
    let (channel, theirs) = UnixStream::pair()?;
    let first = match keeps {
        Keeps::Standard => 3,
        Keeps::Nothing => 0,
    };
    let (most, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let leave = move || {
        close(first, theirs.as_raw_fd(), most);
        let code = step(theirs.as_fd());
        // SAFETY: ends this process at once.
        #[expect(
            unsafe_code,
            reason = "a forked child must run nothing of its parent's at its end"
        )]
        unsafe {
            libc::_exit(code)
        }
    };
    // SAFETY: `leave` closes files and does `step`, which is async-signal-safe.
    #[expect(unsafe_code, reason = "the only way to do something in one child")]
    unsafe {
        command.pre_exec(leave);
    }
    // The library waits until its own pipe is closed, which is the first thing that the child does.
    let child = tokio::process::Command::from(command)
        .kill_on_drop(keeps == Keeps::Nothing)
        .spawn()?;
    Ok(Apart { child, channel })
}

/// Closes all files from `first` on, but for one. Where that can't be said at once, `most` and
/// [`FILES`] bound the numbers that there can be.
#[expect(unsafe_code, reason = "the files belong to objects of the parent")]
fn close(first: RawFd, but: RawFd, most: u64) {
    #[cfg(target_os = "linux")]
    {
        let range = |from: RawFd, to: libc::c_uint| {
            let from = from.cast_unsigned();
            // SAFETY: the system call closes files of this process, where nobody else runs.
            from > to || unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) } == 0
        };
        let below = but.cast_unsigned().checked_sub(1);
        if below.is_none_or(|below| range(first, below)) && range(but + 1, libc::c_uint::MAX) {
            return;
        }
    }
    let most = RawFd::try_from(most).unwrap_or(FILES).min(FILES);
    for file in (first..most).filter(|file| *file != but) {
        // SAFETY: as above.
        let _was_not_open = unsafe { libc::close(file) };
    }
}

/// What a child becomes, and where: all of it is there before the child is.
pub struct Program {
    directory: CString,
    arguments: Words,
    environment: Words,
}

/// Words as the system takes them.
struct Words {
    /// Of `words`, and a null.
    pointers: Vec<*const c_char>,
    _words: Vec<CString>,
}

// SAFETY: the pointers lead into `_words`, which nobody changes.
#[expect(unsafe_code, reason = "pointers are neither by themselves")]
unsafe impl Send for Words {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "pointers are neither by themselves")]
unsafe impl Sync for Words {}

impl Words {
    fn new(words: impl Iterator<Item = Vec<u8>>) -> io::Result<Self> {
        let words = words.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = words.iter().map(|word| word.as_ptr());
        Ok(Self {
            pointers: pointers.chain([std::ptr::null()]).collect(),
            _words: words,
        })
    }
}

impl Program {
    /// A program by its absolute path, which is its first argument, too.
    ///
    /// # Errors
    /// `InvalidInput` for a NUL in any of it.
    pub fn new(
        arguments: &[String],
        environment: &BTreeMap<OsString, OsString>,
        directory: &Path,
    ) -> io::Result<Self> {
        let entry = |(name, value): (&OsString, &OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        };
        Ok(Self {
            directory: CString::new(directory.as_os_str().as_bytes())?,
            arguments: Words::new(arguments.iter().map(|word| word.as_bytes().to_vec()))?,
            environment: Words::new(environment.iter().map(entry))?,
        })
    }

    /// Waits until it may go on, enters the directory, and becomes the program, which closes the
    /// channel. For [`start`].
    #[expect(unsafe_code, reason = "what the library does waits for all of it")]
    pub fn enter(&self, channel: BorrowedFd<'_>) -> i32 {
        if read(channel, &mut [0]) != Ok(1) {
            return NOT_ENTERED;
        }
        if let Err(why) = chdir(self.directory.as_c_str()) {
            return refused(channel, why);
        }
        tell(channel, &[IN_DIRECTORY]);
        let (arguments, environment) = (&self.arguments.pointers, &self.environment.pointers);
        // SAFETY: both lists end with a null, and their strings live as long as `self`; the first
        // one is that of a string or the null.
        unsafe {
            if !arguments[0].is_null() {
                execute(arguments.as_ptr(), environment.as_ptr());
            }
        }
        refused(channel, Errno::last())
    }
}

/// Returns only if it fails. A script that doesn't say who runs it is run by the shell, as ever.
///
/// # Safety
/// Both are lists of strings with a null at their end, and the first has at least one string.
#[expect(unsafe_code, reason = "the caller says that the lists are lists")]
unsafe fn execute(arguments: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: as the caller says.
    unsafe {
        #[cfg(target_os = "linux")]
        // The name has a slash, so that nothing is searched; of the family only the ones with `p`
        // give a script without `#!` to the shell (exec(3)).
        libc::execvpe(*arguments, arguments, environment);
        #[cfg(not(target_os = "linux"))]
        libc::execve(*arguments, arguments, environment);
    }
}

fn refused(channel: BorrowedFd<'_>, why: Errno) -> i32 {
    let [a, b, c, d] = (why as i32).to_ne_bytes();
    tell(channel, &[REFUSED, a, b, c, d]);
    NOT_ENTERED
}

/// Writes bytes from a child; a parent that is gone needs none. Async-signal-safe.
pub fn tell(channel: BorrowedFd<'_>, bytes: &[u8]) {
    let mut bytes = bytes;
    while !bytes.is_empty() {
        match write(channel, bytes) {
            Ok(written @ 1..) => bytes = &bytes[written..],
            _ => return,
        }
    }
}

/// A child may go on.
///
/// # Errors
/// When it is gone.
pub fn let_go(mut channel: &UnixStream) -> io::Result<()> {
    io::Write::write_all(&mut channel, GO)
}

/// What a child was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpawnStep {
    /// To enter the directory.
    Directory,
    /// To become the program.
    Program,
}

/// Why a child is no program.
#[derive(Debug)]
pub enum NotEntered {
    /// The system said no.
    Refused(SpawnStep, io::Error),
    /// The system said nothing.
    Hangs(SpawnStep),
}

/// Waits until a child has become its program, or ended.
///
/// # Errors
/// When the system refuses it, and when a step takes longer than `within`, each from now on.
pub async fn entered(
    channel: UnixStream,
    within: impl Fn(SpawnStep) -> Duration,
) -> Result<(), NotEntered> {
    let begun = Instant::now();
    let here = |error| NotEntered::Refused(SpawnStep::Directory, error);
    channel.set_nonblocking(true).map_err(here)?;
    let mut channel = tokio::net::UnixStream::from_std(channel).map_err(here)?;
    let mut said = Vec::new();
    let step = |said: &[u8]| match said.first() {
        Some(&IN_DIRECTORY) => SpawnStep::Program,
        _ => SpawnStep::Directory,
    };
    // An error means that it is gone, as the end does.
    loop {
        let at = step(&said);
        match timeout_at(begun + within(at), channel.read_buf(&mut said)).await {
            Ok(Ok(1..)) => {}
            Ok(_) => break,
            Err(_late) => return Err(NotEntered::Hangs(at)),
        }
    }
    let step = step(&said);
    match said.strip_prefix(&[IN_DIRECTORY]).unwrap_or(&said) {
        [REFUSED, a, b, c, d] => {
            let error = io::Error::from_raw_os_error(i32::from_ne_bytes([*a, *b, *c, *d]));
            Err(NotEntered::Refused(step, error))
        }
        // The channel is closed: it is the program by now, or has ended, which its exit tells.
        _ => Ok(()),
    }
}

/// A command for a child that becomes no program.
#[must_use]
pub fn no_program() -> std::process::Command {
    // It is never run: the child ends, or becomes something else, before that.
    std::process::Command::new(OsStr::new("/"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// As a call into a file system that never answers.
    fn hang(_channel: BorrowedFd<'_>) -> i32 {
        loop {
            nix::unistd::pause();
        }
    }

    #[tokio::test]
    async fn apart_child_that_hangs_holds_nothing_of_ours() {
        let (mut reader, writer) = io::pipe().unwrap();
        let apart = start(no_program(), Keeps::Nothing, hang).unwrap();
        drop(writer);
        let (sender, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || sender.send(reader.read(&mut [0])));
        let end = tokio::time::timeout(Duration::from_secs(20), end).await;
        let end = end.expect("the child has the pipe").unwrap();
        assert_eq!(end.unwrap(), 0);
        let pid = apart.child.id().unwrap();
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        assert_eq!(files.count(), 1, "its end of the channel");
        let late = entered(apart.channel, |_| Duration::from_millis(1)).await;
        assert!(matches!(late, Err(NotEntered::Hangs(SpawnStep::Directory))));
    }

    #[tokio::test]
    async fn a_child_says_what_it_could_not_enter() {
        let enter = |arguments: &[&str], dir: &str| {
            let words: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
            let program = Program::new(&words, &BTreeMap::new(), Path::new(dir)).unwrap();
            let made = start(no_program(), Keeps::Standard, move |channel| {
                program.enter(channel)
            });
            let Apart { child, channel } = made.unwrap();
            let_go(&channel).unwrap();
            async move {
                let entered = entered(channel, |_| Duration::from_secs(20)).await;
                let status = child.wait_with_output().await.unwrap().status;
                (entered, status.code())
            }
        };
        let (entered, code) = enter(&["/bin/sh", "-c", "exit 3"], "/").await;
        assert!(entered.is_ok() && code == Some(3), "{entered:?} {code:?}");
        for (program, dir, step) in [
            ("/bin/sh", "/no/such/directory", SpawnStep::Directory),
            ("/no/such/program", "/", SpawnStep::Program),
        ] {
            let (entered, code) = enter(&[program], dir).await;
            let Err(NotEntered::Refused(at, error)) = entered else {
                panic!("{entered:?}");
            };
            let found = (at, error.raw_os_error(), code);
            assert_eq!(found, (step, Some(libc::ENOENT), Some(NOT_ENTERED)));
        }
    }

    #[tokio::test]
    async fn a_child_whose_parent_is_gone_does_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        let words = ["/usr/bin/touch".to_owned(), made.display().to_string()];
        let program = Program::new(&words, &BTreeMap::new(), dir.path()).unwrap();
        let apart = start(no_program(), Keeps::Standard, move |channel| {
            program.enter(channel)
        });
        let Apart { mut child, channel } = apart.unwrap();
        drop(channel);
        let status = child.wait().await.unwrap();
        assert_eq!((status.code(), made.exists()), (Some(NOT_ENTERED), false));
    }
}
