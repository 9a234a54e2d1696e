//! A daemon of its own for each test, clients that never wait for ever, and facts to wait for.
//!
//! Owns private directories and everything started in them: when a test ends, well or not, its
//! processes are gone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

#[path = "../skips.rs"]
pub mod skips;
#[cfg(target_os = "linux")]
#[path = "watchdog.rs"]
mod watchdog;

/// No single wait is longer, where the place has no other: a test that needs more is stuck. Many times
/// what a real agent takes to start while six tests share two cores.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub const AGENTD: &str = env!("CARGO_BIN_EXE_agentd");
pub const AGENTCTL: &str = env!("CARGO_BIN_EXE_agentctl");
pub const TIMMY: &str = env!("CARGO_BIN_EXE_timmy");

/// The agent that misbehaves on request.
pub fn chaos_worker() -> PathBuf {
    // Cargo builds examples for `cargo test` and puts them beside the binaries.
    let path = Path::new(AGENTD)
        .parent()
        .unwrap()
        .join("examples/chaos-worker");
    assert!(
        path.exists(),
        "`{}` is not built: run `cargo test`, or `cargo build --examples`",
        path.display()
    );
    path
}

/// Finds a program on PATH, or says loudly that the test is skipped; in CI, where
/// `AGENTD_TEST_NEEDS` is `all`, that is a failure.
pub fn needs(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file());
    if found.is_none() {
        skipped(program);
    }
    found
}

/// How often a test repeats what it tries: as the variable says, as every night, or `on_push` times.
pub fn repeats(variable: &str, on_push: usize) -> usize {
    let told = std::env::var(variable).ok();
    told.map_or(on_push, |count| count.parse().expect("a number"))
}

/// Says loudly, once per test, that it is skipped, or fails where nothing may be missing.
pub fn skipped(needs: &str) {
    skips::say(needs);
    assert!(
        std::env::var_os("AGENTD_TEST_NEEDS").is_none_or(|needs| needs != "all"),
        "CI must have {needs}"
    );
}

/// Private directories, without a daemon.
pub struct Place {
    pub dir: TempDir,
    /// The longest single wait of the daemon's and its clients'.
    pub deadline: Duration,
}

impl Place {
    pub fn new(config: &str) -> Self {
        #[cfg(target_os = "linux")]
        watchdog::watch();
        // Socket paths are short, so not below a long target directory.
        let dir = tempfile::Builder::new()
            .prefix("agentd-it-")
            .tempdir_in("/tmp")
            .unwrap();
        let place = Self {
            dir,
            deadline: DEADLINE,
        };
        std::fs::create_dir(place.path("home")).unwrap();
        place.configure(config);
        place
    }

    pub fn configure(&self, config: &str) {
        std::fs::write(self.path("config.toml"), config).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("agentd.sock")
    }

    /// A program with nothing of this machine's user in its environment.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("AGENTD_SOCKET", self.socket())
            .env("AGENTD_STATE_DIR", self.path("state"))
            .env("AGENTD_CONFIG", self.path("config.toml"))
            .env("AGENTD_ALIAS", self.path("timmy.sock"))
            .current_dir(self.path("home"));
        command
    }

    /// A new store that nobody may open before this connection has given it up.
    pub fn held_store(&self) -> Connection {
        std::fs::create_dir(self.path("state")).unwrap();
        let holding = Connection::open(self.path("state/agentd.db")).unwrap();
        holding.execute_batch("BEGIN EXCLUSIVE").unwrap();
        holding
    }

    pub fn agentctl(&self, args: &[&str]) -> Finished {
        let mut command = self.command(AGENTCTL);
        command.args(args);
        finish(command, b"")
    }

    /// Starts a daemon and waits until it answers.
    pub fn start(self) -> Daemon {
        self.start_with(&[])
    }

    /// The same with more in the daemon's environment.
    pub fn start_with(self, environment: &[(&str, &str)]) -> Daemon {
        let mut command = self.command(AGENTD);
        command.envs(environment.iter().copied());
        self.start_as(command)
    }

    /// The same with a command that becomes the daemon.
    pub fn start_as(self, mut command: Command) -> Daemon {
        let log = std::fs::File::create(self.path("log")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = Reaped(command.spawn().unwrap());
        let mut daemon = Daemon { place: self, child };
        daemon.until_up();
        daemon
    }
}

/// A child that is killed and reaped when its owner is dropped.
pub struct Reaped(pub Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

pub struct Daemon {
    // Ended before its directories go: it would see its store taken away, and make a rescue file.
    child: Reaped,
    pub place: Place,
}

impl Daemon {
    /// A daemon whose default agent is timmy with the echo provider, and that has the chaos worker
    /// as agent `chaos`.
    pub fn start() -> Self {
        Self::with("")
    }

    /// The same with more configuration.
    pub fn with(more: &str) -> Self {
        Place::new(&Self::config(more)).start()
    }

    pub fn config(more: &str) -> String {
        format!(
            "default_agent = \"timmy\"\n[agents.timmy]\nprovider = \"echo\"\n[agents.chaos]\nkind = \"jsonl\"\ncommand = [{:?}]\npass_env = [\"CHAOS_LEDGER\", \"CHAOS_PIDS\"]\n{more}",
            chaos_worker()
        )
    }

    fn until_up(&mut self) {
        let socket = self.place.socket();
        let log = self.place.path("log");
        let pid = self.pid();
        wait_for("the daemon answers", || {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                panic!(
                    "the daemon left with {status}: {}",
                    std::fs::read_to_string(&log).unwrap_or_default()
                );
            }
            let stream = UnixStream::connect(&socket).ok()?;
            serves(&stream, pid).then_some(())
        });
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.place.path("log")).unwrap_or_default()
    }

    pub fn agentctl(&self, args: &[&str]) -> Finished {
        self.place.agentctl(args)
    }

    pub fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.place.socket());
        let stream = stream.unwrap_or_else(|why| panic!("{why}: {}", self.log()));
        Client::within(self.place.deadline, stream)
    }

    /// One line out, every line back until the daemon closes.
    pub fn ask(&self, line: &str) -> Vec<Value> {
        let mut client = self.connect();
        client.send(line);
        client.rest()
    }

    pub fn status(&self) -> Value {
        self.ask(r#"{"type":"status"}"#).remove(0)
    }

    /// Waits until `status` shows a fact.
    pub fn until<T>(&self, fact: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        let mut last = Value::Null;
        let deadline = self.place.deadline;
        let found = poll(deadline, || {
            last = self.status();
            look(&last)
        });
        found.unwrap_or_else(|| {
            panic!(
                "not within {deadline:?}: {fact}; last status: {last:#}\n{}",
                self.log()
            )
        })
    }

    /// `kill -9`, and everything is left as it is.
    pub fn kill(mut self) -> Place {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
        let Self { place, .. } = self;
        place
    }

    /// Waits until the process has left by itself.
    pub fn left(mut self) -> (Place, std::process::ExitStatus) {
        let status = wait_for("the daemon leaves", || self.child.0.try_wait().unwrap());
        (self.place, status)
    }
}

/// Is it this process that listens? Until it does, a child of one that was killed may.
#[cfg(target_os = "linux")]
fn serves(stream: &UnixStream, pid: u32) -> bool {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    let peer = getsockopt(stream, PeerCredentials).unwrap();
    u32::try_from(peer.pid()) == Ok(pid)
}

#[cfg(not(target_os = "linux"))]
fn serves(_stream: &UnixStream, _pid: u32) -> bool {
    true
}

/// A line client with a deadline on every read.
pub struct Client {
    pub stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(socket: &Path) -> Self {
        Self::new(UnixStream::connect(socket).unwrap())
    }

    pub fn new(stream: UnixStream) -> Self {
        Self::within(DEADLINE, stream)
    }

    fn within(deadline: Duration, stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(deadline)).unwrap();
        stream.set_write_timeout(Some(deadline)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader }
    }

    pub fn try_connect(socket: &Path) -> Option<UnixStream> {
        UnixStream::connect(socket).ok()
    }

    pub fn send(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// Sends to somebody who may have turned this connection away: what it said first can be read.
    pub fn offer(&mut self, line: &str) {
        let _closed = self.stream.write_all(format!("{line}\n").as_bytes());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next line, or `None` at the end.
    pub fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => {
                Some(serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line}")))
            }
            Err(error) => panic!("no line came: {error}"),
        }
    }

    /// The next line as it was written.
    pub fn raw_line(&mut self, line: &mut String) {
        self.reader.read_line(line).unwrap();
    }

    /// Lines up to and including the first of this type.
    pub fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            let Some(line) = self.next() else {
                panic!("closed before `{kind}`: {lines:#?}")
            };
            let found = line["type"] == kind;
            lines.push(line);
            if found {
                return lines;
            }
        }
    }

    /// A request and its one answer.
    pub fn request(&mut self, line: &str) -> Value {
        self.send(line);
        self.next().expect("an answer")
    }

    /// The final line; those before it aren't kept.
    pub fn last(&mut self) -> Value {
        loop {
            let line = self.next().expect("a final line");
            if line["type"] == "message_end" || line["type"] == "error" {
                return line;
            }
        }
    }

    /// Every line until the daemon closes.
    pub fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// What was said and isn't read, up to 4 KiB; it stays so.
    pub fn peek(&self) -> String {
        use nix::sys::socket::{MsgFlags, recv};
        use std::os::fd::AsRawFd as _;
        let mut said = [0; 4096];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let length = recv(self.stream.as_raw_fd(), &mut said, flags).unwrap_or(0);
        String::from_utf8_lossy(&said[..length]).into_owned()
    }
}

/// A shell script that people would call a program.
///
/// Written by a process of its own, as copies are: one that another test starts meanwhile would have
/// the file open for writing, and nobody could run it ("Text file busy").
pub fn program(dir: &Path, name: &str, script: &str) -> PathBuf {
    program_of(dir, name, &format!("#!/bin/sh\n{script}"))
}

/// The same with a first line of its own.
pub fn program_of(dir: &Path, name: &str, text: &str) -> PathBuf {
    std::fs::create_dir_all(dir).unwrap();
    let file = dir.join(name);
    let mut write = Command::new("sh");
    write
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&file);
    let written = finish(write, format!("{text}\n").as_bytes());
    assert_eq!(written.code, Some(0), "{written:?}");
    file
}

/// A copy of a program that can be run at once, as `program` says.
pub fn copy_program(from: impl AsRef<std::ffi::OsStr>, to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg(from.as_ref()).arg(to);
    let copied = finish(copy, b"");
    assert_eq!(copied.code, Some(0), "{copied:?}");
}

/// What a program left behind.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

/// Runs a program to its end, or kills it at the deadline and says what it had printed.
pub fn finish(command: Command, input: &[u8]) -> Finished {
    finish_within(DEADLINE, command, input)
}

/// The same of a program that takes longer: an agent of somebody else's needs seconds for its start,
/// beside all the other tests.
pub fn finish_within(deadline: Duration, mut command: Command, input: &[u8]) -> Finished {
    let started = Instant::now();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Reaped(
        command
            .spawn()
            .unwrap_or_else(|why| panic!("{command:?}: {why}")),
    );
    let mut stdin = child.0.stdin.take().unwrap();
    let (mut out, mut err) = (
        child.0.stdout.take().unwrap(),
        child.0.stderr.take().unwrap(),
    );
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _closed = stdin.write_all(&input);
    });
    let read_out = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _cut = out.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let read_err = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _cut = err.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = poll(deadline, || child.0.try_wait().unwrap());
    if status.is_none() {
        let _gone = child.0.kill();
    }
    writer.join().unwrap();
    let (stdout, stderr) = (read_out.join().unwrap(), read_err.join().unwrap());
    let Some(status) = status else {
        panic!("{command:?} did not end; stdout: {stdout}\nstderr: {stderr}")
    };
    Finished {
        code: status.code(),
        stdout,
        stderr,
        took: started.elapsed(),
    }
}

/// The lines of a stream as they come, for whoever has a deadline.
pub fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = sync_channel(1024);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _test_is_over = sender.send(line);
        }
    });
    lines
}

/// Looks again and again until a fact is there; the deadline is the only clock.
pub fn poll<T>(deadline: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + deadline;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > until {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Waits for a fact.
pub fn wait_for<T>(fact: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(DEADLINE, look).unwrap_or_else(|| panic!("not within {DEADLINE:?}: {fact}"))
}

/// Is a process there (a zombie isn't)?
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z')
    })
}

/// Who started a process.
pub fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_its_name) = stat.rsplit_once(')')?;
    behind_its_name.split_whitespace().nth(1)?.parse().ok()
}

/// Ends a process that this test's daemon started.
pub fn kill(pid: u32, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, signal).unwrap();
}
