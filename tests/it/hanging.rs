//! Calls that never come back: a directory whose file system doesn't answer, a journal that nobody
//! reads. Whoever named it is told; everybody else is served as ever.
//!
//! A file system of the test's own says nothing from some moment on. It is in a namespace of the
//! test's, with whatever else is mounted there, and gone when the test is.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{AGENTCTL, AGENTD, Daemon, Place, kill, lines, skipped, wait_for};

/// What a file system can be asked, as the kernel numbers it.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const ACCESS: u32 = 34;
/// Nobody waits for an answer to these.
const UNANSWERED: &[u32] = &[2, 36, 38, 42];
/// All of them.
const ANYTHING: u32 = u32::MAX;
const FILE: u64 = 3;

/// A file system in which every name is a directory, but for `file`.
struct FileSystem {
    at: PathBuf,
    /// What it doesn't answer.
    ignores: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
    _dir: TempDir,
}

#[expect(unsafe_code, reason = "the library is built without mounts")]
fn mount(what: &str, at: &Path, kind: &str, options: &str, flags: libc::c_ulong) -> bool {
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
    fn new() -> Option<Self> {
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

    fn ignore(&self, what: u32) {
        self.ignores.store(what, Ordering::SeqCst);
    }

    fn path(&self, name: &str) -> String {
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
    while !over.load(Ordering::SeqCst) {
        let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        let _again = poll(&mut fds, PollTimeout::from(50_u16));
        let Ok(length) = device.read(&mut request) else {
            continue;
        };
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let operation = number(4);
        let ignored = ignores.load(Ordering::SeqCst);
        let mute = ignored == operation || ignored == ANYTHING && operation != INIT;
        if mute || UNANSWERED.contains(&operation) {
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
        FILE => (libc::S_IFREG | 0o644, 10_u64),
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

/// Runs a test in a namespace for its mounts, or says that it is skipped.
#[expect(unsafe_code, reason = "the library is built without namespaces")]
fn with_mounts_of_its_own(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new();
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let running = thread.name(name).spawn(move || {
        // SAFETY: changes what this thread sees, and what it starts.
        let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0
            && mount(
                "none",
                Path::new("/"),
                "none",
                "",
                libc::MS_REC | libc::MS_PRIVATE,
            );
        if alone {
            test();
        } else {
            skipped("mounts of its own: root");
        }
    });
    if let Err(panic) = running.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

fn with_file_system(test: impl FnOnce(Daemon, FileSystem) + Send + 'static) {
    with_mounts_of_its_own(|| {
        let place = Place::new(&Daemon::config(""));
        match FileSystem::new() {
            Some(files) => test(place.start(), files),
            None => skipped("FUSE: `/dev/fuse`"),
        }
    });
}

fn send(text: &str, cwd: &str) -> Value {
    json!({"type": "send", "agent": "chaos", "text": text, "cwd": cwd})
}

fn pings(daemon: &Daemon) {
    let answer = daemon.ask(r#"{"type":"ping"}"#);
    assert_eq!(answer[0]["type"], "pong", "{answer:?}");
}

/// Its threads, and its children.
fn tasks(pid: u32) -> (usize, usize) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let (mut threads, mut children) = (0, 0);
    for task in tasks.flatten() {
        threads += 1;
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children += text.split_whitespace().count();
    }
    (threads, children)
}

fn stops(daemon: Daemon) {
    kill(daemon.pid(), Signal::SIGTERM);
    let (place, status) = daemon.left();
    assert!(status.success(), "{status}");
    // Nobody has its lock or its socket.
    let _log = std::fs::remove_file(place.path("state/agentd.log"));
    drop(place.start());
}

#[test]
fn hung_directory_stops_one_send_and_nobody_else() {
    with_file_system(|daemon, files| {
        files.ignore(ANYTHING);
        let mut hangs = daemon.connect();
        hangs.send(&send("chaos:say a", &files.path("")).to_string());
        pings(&daemon);
        let elsewhere = daemon.path("home");
        let turn = send("chaos:say b", elsewhere.to_str().unwrap());
        let turn = daemon.ask(&turn.to_string()).pop().unwrap();
        assert_eq!(turn["text"], "b", "{turn}");
        let refused = hangs.last();
        assert_eq!(refused["code"], "invalid-request", "{refused}");
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("the directory does not answer"), "{error}");

        // A thousand more hang nobody.
        let (threads, children) = tasks(daemon.pid());
        let mut many = daemon.connect();
        let paths: Vec<String> = (0..500).map(|at| files.path(&format!("d{at}"))).collect();
        for (id, path) in paths.iter().enumerate() {
            let mut line = send("chaos:say a", path);
            line["id"] = id.into();
            many.send(&line.to_string());
            line["id"] = format!("attach{id}").into();
            line["cwd"] = elsewhere.to_str().into();
            line["attachments"] = json!([{ "path": path }]);
            many.send(&line.to_string());
        }
        for _ in 0..1000 {
            let refused = many.last();
            assert_eq!(refused["code"], "invalid-request", "{refused}");
        }
        let (threads_now, children_now) = tasks(daemon.pid());
        assert!(threads_now <= threads + 2, "{threads} > {threads_now}");
        assert!(children_now <= children + 2, "{children} > {children_now}");
        stops(daemon);
    });
}

#[test]
fn hung_directory_after_acceptance_ends_its_turn_alone() {
    with_file_system(|daemon, files| {
        // A look goes well, entering hangs; so does reading.
        files.ignore(ACCESS);
        let mut hangs = daemon.connect();
        let mut line = send("chaos:say a", &files.path("below"));
        line["stream"] = true.into();
        hangs.send(&line.to_string());
        assert_eq!(hangs.next().unwrap()["type"], "accepted");
        pings(&daemon);
        let elsewhere = daemon.path("home");
        let turn = send("chaos:say b", elsewhere.to_str().unwrap());
        let turn = daemon.ask(&turn.to_string()).pop().unwrap();
        assert_eq!(turn["text"], "b", "{turn}");
        let failed = hangs.last();
        let error = failed["error"].as_str().unwrap_or_default();
        assert!(error.contains("did not answer within"), "{failed}");
        stops(daemon);
    });
}

#[test]
fn hung_file_as_an_attachment_is_refused_and_stops_nobody() {
    with_file_system(|daemon, files| {
        let mut line = send("chaos:attached", daemon.path("home").to_str().unwrap());
        line["attachments"] = json!([{ "path": files.path("file") }]);
        let read = daemon.ask(&line.to_string()).pop().unwrap();
        assert_eq!(read["type"], "message_end", "{read}");
        files.ignore(OPEN);
        let mut hangs = daemon.connect();
        hangs.send(&line.to_string());
        pings(&daemon);
        let refused = hangs.last();
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("does not answer"), "{refused}");
        stops(daemon);
    });
}

#[test]
fn hung_directory_of_a_shell_stops_no_command() {
    with_file_system(|daemon, files| {
        let script = format!(
            "cd {:?} && echo in && read go && exec \"$0\" \"$@\"",
            files.at
        );
        let in_it = |args: &[&str]| {
            let mut command: Command = daemon.place.command("/bin/sh");
            command.args(["-c", &script, AGENTCTL]).args(args);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = crate::support::Reaped(command.spawn().unwrap());
            let said = lines(child.0.stdout.take().unwrap());
            let first = said.recv_timeout(crate::support::DEADLINE).unwrap();
            assert_eq!(first, "in");
            (child, said)
        };
        let mut commands = [in_it(&["status"]), in_it(&["jobs"]), in_it(&["agents"])];
        files.ignore(ANYTHING);
        for (child, said) in &mut commands {
            child.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
            let status = wait_for("agentctl ends", || child.0.try_wait().unwrap());
            assert!(status.success(), "{status}: {:?}", said.try_iter().last());
        }
    });
}

#[test]
fn log_on_a_disk_that_hangs_stops_nobody() {
    let daemon = Daemon::start();
    let log = daemon.path("state/agentd.log");
    std::fs::remove_file(&log).unwrap();
    // Opened for writing it waits for a reader, who never comes.
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let turn = send("chaos:say a", daemon.path("home").to_str().unwrap());
    for _ in 0..3 {
        let turn = daemon.ask(&turn.to_string()).pop().unwrap();
        assert_eq!(turn["text"], "a", "{turn}");
    }
    stops(daemon);
}

#[test]
fn journal_that_nobody_reads_stops_nobody() {
    with_mounts_of_its_own(|| {
        let place = Place::new(&Daemon::config(""));
        assert!(mount("none", Path::new("/run"), "tmpfs", "", 0));
        std::fs::create_dir_all("/run/systemd/journal").unwrap();
        let journal = UnixDatagram::bind("/run/systemd/journal/socket").unwrap();
        // The harness writes standard error into this file, which is the stream to the journal then.
        let stream = File::create(place.path("log")).unwrap().metadata().unwrap();
        let stream = format!("{}:{}", stream.dev(), stream.ino());
        let mut command = place.command(AGENTD);
        command
            .env("JOURNAL_STREAM", stream)
            .env("AGENTD_LOG", "debug");
        let daemon = place.start_as(command);
        let turn = send("chaos:say a", daemon.path("home").to_str().unwrap());
        for _ in 0..20 {
            let turn = daemon.ask(&turn.to_string()).pop().unwrap();
            assert_eq!(turn["text"], "a", "{turn}");
        }
        let place = daemon.ask(r#"{"type":"log_level"}"#);
        assert_eq!(place[0]["to"], "journal", "{place:?}");
        journal.set_nonblocking(true).unwrap();
        let mut entry = [0; 64 * 1024];
        wait_for("what was lost is told", || {
            daemon.ask(&turn.to_string());
            let length = journal.recv(&mut entry).ok()?;
            let text = String::from_utf8_lossy(&entry[..length]).into_owned();
            text.contains("lines of the log were not read in time")
                .then_some(())
        });
    });
}
