//! Attempts that take more than one system call.
//!
//! Owns what is done in which order, and how an error is named. Must not know what is expected.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, bind, connect, socket, socketpair,
};
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, fork, setsid};

use crate::calls;

/// Marks the system calls of x86-64's second ABI.
const X32: libc::c_long = 0x4000_0000;
/// What planted keys begin with.
const KEY: &[u8] = b"PLANTED-";
/// As much of another's memory is looked at, of each part.
const PIECE: usize = 1 << 20;
/// `F_SETSIG`.
const SET_SIGNAL: libc::c_int = 10;

/// The error's name, as the manual has it.
pub(crate) fn name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("{:?}", Errno::from_raw(number)),
        None => error.to_string(),
    }
}

pub(crate) fn run(words: &[&str]) -> io::Result<()> {
    match words {
        ["call", name, rest @ ..] => calls::call(name, rest, 0).map(drop),
        ["x32", name, rest @ ..] => calls::call(name, rest, X32).map(drop),
        ["landlock"] => landlock(),
        ["int80", rest @ ..] => calls::int80(rest),
        ["beneath", dir, name] => beneath(dir, name),
        ["again", path] => again(path),
        ["handle", path] => handle(path),
        ["memory", pid] => memory(pid),
        ["peek", pid] => peek(pid, libc::process_vm_readv),
        ["poke", pid] => peek(pid, libc::process_vm_writev),
        ["steal", pid, number] => steal(pid, number),
        ["pidfd", pid, signal] => pidfd(pid, signal),
        ["owner", pid] => owner(pid),
        ["unix", path] => UnixStream::connect(path).map(drop),
        ["abstract", name] => {
            let address = SocketAddr::from_abstract_name(name)?;
            UnixStream::connect_addr(&address).map(drop)
        }
        ["bound", name] => bound(name),
        ["letter", path] => UnixDatagram::unbound()?.send_to(b"x", path).map(drop),
        ["tcp", address] => std::net::TcpStream::connect(address).map(drop),
        ["ask", path, line] => ask(UnixStream::connect(path)?, line),
        ["named", name, path, line] => ask(named(name, path)?, line),
        ["gone", path, line] => gone(path, line),
        ["away", rest @ ..] => away(rest),
        ["nothing", path] => from_memory(path),
        ["attribute", path, name] => attribute(path, name),
        _ => Err(io::Error::other(format!("no such attempt: {words:?}"))),
    }
}

/// The version that the kernel has.
fn landlock() -> io::Result<()> {
    let version = calls::call("landlock_create_ruleset", &["0", "0", "1"], 0)?;
    writeln!(io::stdout(), "{version}")
}

fn show(mut file: impl io::Read) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    io::stdout().write_all(&text)
}

fn beneath(dir: &str, name: &str) -> io::Result<()> {
    let dir = open(dir, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
    let file = openat(&dir, name, OFlag::O_RDONLY, Mode::empty())?;
    show(File::from(file))
}

fn again(path: &str) -> io::Result<()> {
    let file = open(path, OFlag::O_PATH, Mode::empty())?;
    show(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?)
}

/// A file's handle, of a size that every file system is content with.
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    room: [u8; 128],
}

#[expect(unsafe_code, reason = "the library has no handles of files")]
fn handle(path: &str) -> io::Result<()> {
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        room: [0; 128],
    };
    let (mut mount, text) = (0_i32, CString::new(path)?);
    let at = &raw mut handle;
    let call = libc::SYS_name_to_handle_at;
    let (here, of_mount) = (libc::AT_FDCWD, &raw mut mount);
    // SAFETY: all pointers are to what lives on this stack.
    let made = unsafe { libc::syscall(call, here, text.as_ptr(), at, of_mount, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    let here = File::open(".")?;
    let call = libc::SYS_open_by_handle_at;
    // SAFETY: the same.
    let opened = unsafe { libc::syscall(call, here.as_raw_fd(), at, libc::O_RDONLY) };
    show(File::from(descriptor(opened)?))
}

#[expect(unsafe_code, reason = "a number that the kernel just gave is taken")]
fn descriptor(number: libc::c_long) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: it was opened a moment ago, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Looks for a key in all of another's memory that may be read.
fn memory(pid: &str) -> io::Result<()> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut memory = File::open(format!("/proc/{pid}/mem"))?;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line.split(' ').next().and_then(|it| it.split_once('-'));
        let Some((from, to)) = range else { continue };
        let hex = |text| u64::from_str_radix(text, 16).map_err(io::Error::other);
        let (from, to) = (hex(from)?, hex(to)?);
        let size = usize::try_from(to - from).map_err(io::Error::other)?;
        let mut piece = vec![0; size.min(PIECE)];
        memory.seek(SeekFrom::Start(from))?;
        let read = memory.read(&mut piece).unwrap_or(0);
        let found = piece[..read].windows(KEY.len()).position(|at| at == KEY);
        if let Some(at) = found {
            let end = (at + 64).min(read);
            io::stdout().write_all(&piece[at..end])?;
            return io::stdout().write_all(b"\n");
        }
    }
    Ok(())
}

/// `process_vm_readv`, or `process_vm_writev`.
type Reaches = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> libc::ssize_t;

/// Whether there is anything at that address doesn't matter: leave is asked for first.
#[expect(unsafe_code, reason = "the library is built without it")]
fn peek(pid: &str, call: Reaches) -> io::Result<()> {
    let pid: libc::pid_t = pid.parse().map_err(io::Error::other)?;
    let mut room = [0_u8; 64];
    let local = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    let remote = libc::iovec {
        iov_base: 4096 as *mut libc::c_void,
        iov_len: room.len(),
    };
    // SAFETY: what is read or written here is `room`.
    let read = unsafe { call(pid, &raw const local, 1, &raw const remote, 1, 0) };
    if read < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn number(word: &str) -> io::Result<libc::c_long> {
    word.parse().map_err(io::Error::other)
}

#[expect(unsafe_code, reason = "the library has no handles of processes")]
fn handle_of(pid: &str) -> io::Result<OwnedFd> {
    let pid = number(pid)?;
    // SAFETY: numbers only.
    descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })
}

#[expect(unsafe_code, reason = "the library has no handles of processes")]
fn steal(pid: &str, wanted: &str) -> io::Result<()> {
    let (handle, wanted) = (handle_of(pid)?, number(wanted)?);
    let call = libc::SYS_pidfd_getfd;
    // SAFETY: numbers only.
    let stolen = unsafe { libc::syscall(call, handle.as_raw_fd(), wanted, 0) };
    let mut file = File::from(descriptor(stolen)?);
    file.seek(SeekFrom::Start(0))?;
    show(file)
}

#[expect(unsafe_code, reason = "the library has no handles of processes")]
fn pidfd(pid: &str, signal: &str) -> io::Result<()> {
    let (handle, signal) = (handle_of(pid)?, number(signal)?);
    let call = libc::SYS_pidfd_send_signal;
    // SAFETY: numbers, and no details.
    let sent = unsafe { libc::syscall(call, handle.as_raw_fd(), signal, 0, 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The other is to end by SIGTERM, from the kernel itself.
#[expect(unsafe_code, reason = "the library doesn't set owners of pipes")]
fn owner(pid: &str) -> io::Result<()> {
    let pid: libc::pid_t = pid.parse().map_err(io::Error::other)?;
    let (reader, mut writer) = io::pipe()?;
    let number = reader.as_raw_fd();
    // SAFETY: numbers only.
    let owned = unsafe { libc::fcntl(number, libc::F_SETOWN, pid) };
    if owned < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers only.
    let told = unsafe {
        libc::fcntl(number, SET_SIGNAL, libc::SIGTERM)
            | libc::fcntl(number, libc::F_SETFL, libc::O_ASYNC)
    };
    if told < 0 {
        return Err(io::Error::last_os_error());
    }
    writer.write_all(b"x")
}

/// An end of a pair is given a name of the machine's.
fn bound(name: &str) -> io::Result<()> {
    let kind = SockType::Stream;
    let (end, _other) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
    let name = UnixAddr::new_abstract(name.as_bytes())?;
    Ok(bind(end.as_raw_fd(), &name)?)
}

/// A connection whose own end has a name.
fn named(name: &str, path: &str) -> io::Result<UnixStream> {
    let kind = SockType::Stream;
    let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(name)?)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn ask(mut stream: UnixStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    if BufReader::new(stream).read_line(&mut answer)? == 0 {
        return Err(io::Error::other("closed without an answer"));
    }
    io::stdout().write_all(answer.as_bytes())
}

/// A child connects the socket that both have, and dies before anything is said.
#[expect(unsafe_code, reason = "being forked is the attempt")]
fn gone(path: &str, line: &str) -> io::Result<()> {
    let kind = SockType::Stream;
    let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None)?;
    let address = UnixAddr::new(path)?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }? {
        ForkResult::Child => {
            connect(socket.as_raw_fd(), &address)?;
            Err(Command::new("/bin/true").exec())
        }
        ForkResult::Parent { child } => {
            nix::sys::wait::waitpid(child, None)?;
            ask(UnixStream::from(socket), line)
        }
    }
}

/// The grandchild is nobody's; the caller waits until it has closed the output.
#[expect(unsafe_code, reason = "being forked is the attempt")]
fn away(rest: &[&str]) -> io::Result<()> {
    let (mut reader, writer) = io::pipe()?;
    let program = std::env::current_exe()?;
    // SAFETY: this process has one thread.
    if let ForkResult::Child = unsafe { fork() }? {
        setsid()?;
        let between = std::process::id();
        // SAFETY: this process has one thread.
        if let ForkResult::Parent { .. } = unsafe { fork() }? {
            // It says nothing at its end.
            return Err(Command::new("/bin/true").exec());
        }
        while parent_id() == between {
            std::thread::yield_now();
        }
        let mut command = Command::new(program);
        return Err(command.args(rest).env_clear().stdout(writer).exec());
    }
    drop(writer);
    let mut said = String::new();
    reader.read_to_string(&mut said)?;
    io::stdout().write_all(said.as_bytes())
}

fn from_memory(path: &str) -> io::Result<()> {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    let memory = memfd_create(c"attacker", MFdFlags::empty())?;
    let program = std::fs::read(std::env::current_exe()?)?;
    File::from(memory.try_clone()?).write_all(&program)?;
    let memory = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let done = Command::new(memory).args(["again", path]).output()?;
    io::stdout().write_all(&done.stdout)
}

#[expect(unsafe_code, reason = "the library has no attributes")]
fn attribute(path: &str, name: &str) -> io::Result<()> {
    let (path, name) = (CString::new(path)?, CString::new(name)?);
    let mut room = [0_u8; 256];
    let at = room.as_mut_ptr().cast();
    // SAFETY: what is written to is `room`.
    let read = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), at, room.len()) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    io::stdout().write_all(&room[..read])?;
    io::stdout().write_all(b"\n")
}
