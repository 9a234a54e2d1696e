//! The listening socket: where it comes from, who may connect, and how many.
//!
//! Owns the socket's file and the only use of `interprocess` in the daemon. Must not know the
//! protocol, but for the one line that a connection too many gets. Whether the lock is held is the
//! caller's to prove: see [`SocketLock`].

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentd_core::limits::MAX_WORKERS;
use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{ErrorLine, Line, Telling};
use interprocess::ConnectWaitMode;
use interprocess::local_socket::{ConnectOptions, GenericFilePath, ListenerOptions, ToFsName as _};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, SockType, UnixAddr, getsockname, getsockopt, listen, sockopt};
use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::platform::process;
use crate::worker::FileLimit;

/// Connections at once: about 12 KiB each, so 150 MB at most.
pub const CONNECTIONS: usize = 12_000;
/// Open files of a process of an agent: three pipes, a handle to wait for its end, the entry of its
/// control group, and while it is made the other ends and a channel.
const FILES_OF_A_PROCESS: usize = 12;
/// Processes at once: workers, those that are about to be gone, programs that are asked for their
/// version.
const PROCESSES: usize = MAX_WORKERS + 8;
/// Of the store: its writer, who writes the log back, readers, a copy, attachments on their way.
const FILES_OF_THE_STORE: usize = 48;
/// Directories that are asked whether they are there, and files that are attached.
const FILES_OF_QUESTIONS: usize = 64;
/// Whatever there is once, or a few times: standard streams, locks, the log, the runtime, webhooks,
/// looks at other instances and at `/proc`.
const FILES_OF_OUR_OWN: usize = 48;
/// Open files kept free of connections: however many there are, a process can be started, a dead
/// instance's jobs taken over, and the store opened.
pub const RESERVED_FILES: usize =
    PROCESSES * FILES_OF_A_PROCESS + FILES_OF_THE_STORE + FILES_OF_QUESTIONS + FILES_OF_OUR_OWN;
/// Where the limit is less than twice that, connections get this part of it.
const LEAST_PART: usize = 4;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// After an error that time may heal, accepting pauses: the queue stays readable and would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest path that every system can bind, without its end.
const LONGEST_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Holds whatever lock guards the socket's path: only with one may a socket be replaced.
#[derive(Debug)]
pub struct SocketLock<L>(pub L);

/// The process that connected, as it was when it was let in. Others may have its connection by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerProcess {
    /// Its number, which is another's when it is gone.
    pub pid: u32,
    /// When it started, which no other of its number did; `None` when it was gone already.
    pub started: Option<u64>,
}

/// One of the connections that may be open at once; given back when dropped.
pub type Slot = OwnedSemaphorePermit;

/// Connections that were closed unheard.
#[derive(Default, Debug)]
pub struct Unheard {
    /// Of another user.
    pub foreign: AtomicU64,
    /// One too many.
    pub too_many: AtomicU64,
}

/// Raises the soft limit of open files to the hard one; gives what it was, for children, and what
/// it is.
///
/// # Errors
/// When the system refuses to tell; a refusal to raise leaves it as it was.
pub fn raise_file_limit() -> io::Result<(FileLimit, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let before = FileLimit { soft, hard };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return Ok((before, hard));
    }
    Ok((before, soft))
}

/// How many connections fit with so many open files.
#[must_use]
pub fn connections(files: u64) -> usize {
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let rest = files.saturating_sub(RESERVED_FILES);
    CONNECTIONS.min(rest.max(files / LEAST_PART)).max(1)
}

/// One for each connection that may be open at once.
#[must_use]
pub fn slots(files: u64) -> Arc<Semaphore> {
    let most = connections(files);
    if most < CONNECTIONS {
        tracing::warn!(
            "{files} files may be open, so {most} connections are served at once; hint: raise the \
             hard limit (`ulimit -Hn`, or `LimitNOFILE` of a service)"
        );
    }
    Arc::new(Semaphore::new(most))
}

/// The socket that the service manager listens on for us, if it does.
///
/// # Errors
/// When what it handed over isn't a listening Unix stream socket.
#[expect(
    unsafe_code,
    reason = "a number from the environment becomes a descriptor"
)]
pub fn from_service_manager() -> io::Result<Option<UnixListener>> {
    #[cfg(target_os = "macos")]
    let number = crate::platform::launchd::socket()?;
    #[cfg(not(target_os = "macos"))]
    let number = sd_notify::listen_fds()?.next();
    let Some(number) = number else {
        return Ok(None);
    };
    // SAFETY: only looked at for the length of this call; a closed one is refused as EBADF.
    let looked_at = unsafe { BorrowedFd::borrow_raw(number) };
    // What isn't the socket may be a descriptor of our own, so it is not closed either.
    check_listening(looked_at)?;
    // Who connects sees the user and process that called `listen` last: that is to be us. Launchd,
    // which runs as root, called it.
    listen(&looked_at, Backlog::MAXCONN)?;
    // SAFETY: a listening socket, as was just seen, and by the service manager's protocol it is
    // this process's own. The caller calls this once.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    into_tokio(StdListener::from(fd)).map(Some)
}

/// Is it what the service manager should have handed over?
fn check_listening(fd: BorrowedFd<'_>) -> io::Result<()> {
    if nix::sys::stat::fstat(fd).is_err() {
        return Err(invalid("the service manager's socket is not open"));
    }
    if getsockname::<UnixAddr>(fd.as_raw_fd()).is_err() {
        return Err(invalid("the socket handed over is not a Unix socket"));
    }
    if getsockopt(&fd, sockopt::SockType)? != SockType::Stream {
        return Err(invalid("the socket handed over is not a stream socket"));
    }
    if !getsockopt(&fd, sockopt::AcceptConn)? {
        return Err(invalid("the socket handed over does not listen"));
    }
    Ok(())
}

fn into_tokio(listener: StdListener) -> io::Result<UnixListener> {
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.into())
}

/// A socket file that we bound and keep.
#[derive(Debug)]
pub struct Binding<L, P> {
    path: PathBuf,
    inode: (u64, u64),
    lock: SocketLock<L>,
    prepare: P,
}

impl<L, P: Fn(&Path) -> io::Result<()>> Binding<L, P> {
    /// Binds `path`, replacing a socket that a dead daemon left. `prepare` makes sure of the
    /// private directory context it.
    ///
    /// # Errors
    /// When the path is too long, taken by something that isn't our socket, or can't be bound.
    pub fn new(path: PathBuf, lock: SocketLock<L>, prepare: P) -> io::Result<(Self, UnixListener)> {
        let (listener, inode) = bind(&path, &lock, &prepare)?;
        let binding = Self {
            path,
            inode,
            lock,
            prepare,
        };
        Ok((binding, listener))
    }

    /// Is the file at the path still our socket? If it was taken away, another listener to be
    /// handed to [`accept_loop`].
    ///
    /// # Errors
    /// When it isn't and can't be bound again.
    pub fn check(&mut self) -> io::Result<Option<UnixListener>> {
        if identity(&self.path).ok() == Some(self.inode) {
            return Ok(None);
        }
        let (listener, inode) = bind(&self.path, &self.lock, &self.prepare)?;
        self.inode = inode;
        Ok(Some(listener))
    }

    /// Makes sure of the directory around the socket.
    ///
    /// # Errors
    /// When it isn't as it must be.
    pub fn prepare(&self) -> io::Result<()> {
        let parent = self.path.parent();
        (self.prepare)(parent.ok_or_else(|| invalid("the socket's path is not absolute"))?)
    }

    /// The lock that was held is worth nothing any more, as its file was taken away; this one is.
    pub fn relock(&mut self, lock: L) {
        self.lock = SocketLock(lock);
    }

    /// The lock in force.
    pub const fn lock(&self) -> &L {
        &self.lock.0
    }

    /// Takes the file away, if it is still ours.
    pub fn unlink(self) {
        if identity(&self.path).ok() == Some(self.inode) {
            // A file that stays is replaced at the next start.
            let _stays = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

fn bind<L>(
    path: &Path,
    _held: &SocketLock<L>,
    prepare: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<(UnixListener, (u64, u64))> {
    let length = path.as_os_str().len();
    if length > LONGEST_PATH {
        let shown = path.display();
        let error =
            format!("the socket's path is {length} bytes, the limit is {LONGEST_PATH}: `{shown}`");
        return Err(invalid(error));
    }
    let parent = path.parent().filter(|_| path.is_absolute());
    prepare(parent.ok_or_else(|| invalid("the socket's path is not absolute"))?)?;
    make_room(path)?;

    let name = path.to_fs_name::<GenericFilePath>()?;
    // Whether the file goes is for `unlink` to say: it may be another daemon's by then.
    let options = ListenerOptions::new().name(name).reclaim_name(false);
    let interprocess::local_socket::Listener::UdSocket(listener) = options.create_sync()?;
    // Whatever the umask was. The directory is private, so nobody was faster.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    let listener = StdListener::from(OwnedFd::from(listener));
    // Listening again only changes the queue's length; a system with a lower limit keeps its own.
    let _shorter = Backlog::new(BACKLOG).and_then(|backlog| listen(&listener, backlog));
    Ok((into_tokio(listener)?, identity(path)?))
}

/// Takes away what a dead daemon left, and nothing that somebody listens on: the service manager's
/// socket has no lock beside it.
fn make_room(path: &Path) -> io::Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !meta.file_type().is_socket() || meta.uid() != geteuid().as_raw() {
        let error = format!("`{}` is there and is not our socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, error));
    }
    if is_listened_on(path)? {
        let error = "somebody listens there, as the service manager does for an installed service; \
                     hint: `agentctl service status`";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, error));
    }
    fs::remove_file(path)
}

/// Never waits: a full queue is somebody's, too.
fn is_listened_on(path: &Path) -> io::Result<bool> {
    let name = path.to_fs_name::<GenericFilePath>()?;
    let options = ConnectOptions::new()
        .name(name)
        .wait_mode(ConnectWaitMode::Deferred);
    Ok(options.connect_sync().is_ok())
}

/// Accepts connections of our own user until told to stop; `replacements` bring the listeners that
/// [`Binding::check`] made.
pub async fn accept_loop(
    mut listener: UnixListener,
    mut replacements: mpsc::Receiver<UnixListener>,
    slots: Arc<Semaphore>,
    unheard: Arc<Unheard>,
    mut on_conn: impl FnMut(UnixStream, Option<PeerProcess>, Slot),
    stop: CancellationToken,
) {
    let mut replaced = true;
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            next = replacements.recv(), if replaced => {
                match next {
                    // Whoever waits in the old queue found the old file, and is served first.
                    Some(next) => {
                        while let Some(Ok((stream, _))) = waiting(&listener).await {
                            admit(stream, &slots, &unheard, &mut on_conn);
                        }
                        listener = next;
                    }
                    None => replaced = false,
                }
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => admit(stream, &slots, &unheard, &mut on_conn),
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
}

async fn waiting(
    listener: &UnixListener,
) -> Option<io::Result<(UnixStream, tokio::net::unix::SocketAddr)>> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match listener.poll_accept(cx) {
            std::task::Poll::Ready(accepted) => Some(accepted),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// Is it that connection's trouble only?
fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::ECONNABORTED | Errno::EINTR | Errno::EPROTO)
    )
}

fn admit(
    stream: UnixStream,
    slots: &Arc<Semaphore>,
    unheard: &Unheard,
    on_conn: &mut impl FnMut(UnixStream, Option<PeerProcess>, Slot),
) {
    let Ok(cred) = stream.peer_cred() else {
        return;
    };
    // Before a slot is taken: nobody else's connections may use ours up.
    if !is_ours(cred.uid()) {
        unheard.foreign.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let Ok(slot) = Arc::clone(slots).try_acquire_owned() else {
        unheard.too_many.fetch_add(1, Ordering::Relaxed);
        turn_away(&stream);
        return;
    };
    // Nobody within a worker is shown as 0: that is whoever lives outside of a container of ours.
    let pid = cred.pid().and_then(|pid| u32::try_from(pid).ok());
    let peer = pid.filter(|pid| *pid != 0).map(|pid| PeerProcess {
        pid,
        // At once: its number may be another's before anybody looks again.
        started: process::start_time(pid),
    });
    on_conn(stream, peer, slot);
}

fn is_ours(uid: u32) -> bool {
    uid == geteuid().as_raw()
}

fn turn_away(stream: &UnixStream) {
    let error = "too many connections are open";
    let rejected =
        Rejected::new(Code::TooManyConnections, error).hint("close some, or try again later");
    let line = Line::Error(Box::new(ErrorLine::refusal(rejected))).body();
    let line = line.render(None, None, Telling::First) + "\n";
    // A fresh socket has room for a line; a peer that is gone needs none. What it has sent is
    // taken, for unread input would turn the answer into an error.
    let _gone = stream.try_write(line.as_bytes());
    let _nothing = stream.try_read(&mut [0; 4096]);
}

#[cfg(test)]
pub(super) mod tests;
