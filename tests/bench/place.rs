//! A private place for a measured daemon, and a line client.
//!
//! Owns directories and processes of one measurement. Must not know what is measured.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub(crate) const AGENTD: &str = env!("CARGO_BIN_EXE_agentd");
pub(crate) const AGENTCTL: &str = env!("CARGO_BIN_EXE_agentctl");
pub(crate) const TIMMY: &str = env!("CARGO_BIN_EXE_timmy");

/// Nothing measured takes longer.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often a starting server is knocked at: small against what is measured.
const KNOCK_EVERY: Duration = Duration::from_micros(100);

const CONFIG: &str = "default_agent = \"timmy\"\n[agents.timmy]\nprovider = \"echo\"\n";

/// Private directories.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("agentd-bench-")
            .tempdir_in("/tmp")
            .unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        std::fs::write(dir.path().join("config.toml"), CONFIG).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("agentd.sock")
    }

    /// A program in this place, that says nothing.
    pub(crate) fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("AGENTD_SOCKET", self.socket())
            .env("AGENTD_STATE_DIR", self.path("state"))
            .env("AGENTD_CONFIG", self.path("config.toml"))
            .env("AGENTD_ALIAS", self.path("timmy.sock"))
            .current_dir(self.path("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Starts a daemon and waits until it answers.
    pub(crate) fn daemon(&self) -> Server {
        Server::start(self.command(AGENTD, &[]), &self.socket(), PING)
    }

    /// Starts the control server, in the same place on the same file system.
    pub(crate) fn control(&self) -> Server {
        let socket = self.path("control.sock");
        let itself = std::env::current_exe().unwrap();
        let words = ["--control-server", socket.to_str().unwrap()];
        Server::start(
            self.command(itself.to_str().unwrap(), &words),
            &socket,
            PING,
        )
    }

    /// Starts the bare writer.
    pub(crate) fn writer(&self) -> Server {
        let socket = self.path("writer.sock");
        let itself = std::env::current_exe().unwrap();
        let words = ["--writer", socket.to_str().unwrap()];
        Server::start(
            self.command(itself.to_str().unwrap(), &words),
            &socket,
            PING,
        )
    }

    /// Another configuration, for daemons that start later.
    pub(crate) fn configure(&self, config: &str) {
        std::fs::write(self.path("config.toml"), config).unwrap();
    }

    /// One more agent: this very program in one of its modes.
    pub(crate) fn add_agent(&self, name: &str, mode: &str) {
        let itself = std::env::current_exe().unwrap();
        let itself = itself.to_str().unwrap();
        let agent = format!(
            "{CONFIG}[agents.{name}]\nkind = \"jsonl\"\ncommand = [{itself:?}, {mode:?}]\n"
        );
        std::fs::write(self.path("config.toml"), agent).unwrap();
    }

    /// Runs a program to its end and says how long that took.
    pub(crate) fn run(&self, program: &str, words: &[&str], expected: i32) -> Duration {
        let mut command = self.command(program, words);
        let begun = Instant::now();
        let status = command.status().unwrap();
        let took = begun.elapsed();
        assert_eq!(status.code(), Some(expected), "{command:?}");
        took
    }
}

const PING: &str = r#"{"type":"ping"}"#;

/// A server that answers; killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// From before its start until its first answer.
    pub(crate) took: Duration,
}

impl Server {
    fn start(mut command: Command, socket: &Path, question: &str) -> Self {
        // What an earlier one left would be knocked at in vain.
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        loop {
            if let Ok(stream) = UnixStream::connect(socket) {
                let mut client = Client::over(stream);
                client.ask(question);
                break;
            }
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{command:?} left with {status}");
            }
            assert!(begun.elapsed() < DEADLINE, "{command:?} does not listen");
            std::thread::sleep(KNOCK_EVERY);
        }
        let took = begun.elapsed();
        Self { child, took }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to leave and waits for it.
    pub(crate) fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A blocking line client.
pub(crate) struct Client {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    line: String,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Self {
        Self::over(UnixStream::connect(socket).unwrap())
    }

    /// To a daemon, which keeps the connection however long there is nothing to say.
    pub(crate) fn kept(socket: &Path) -> Self {
        let mut client = Self::connect(socket);
        client.ask(r#"{"type":"hello","client":"bench"}"#);
        client
    }

    fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self {
            stream,
            reader,
            line: String::new(),
        }
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.stream
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    pub(crate) fn next(&mut self) -> &str {
        self.line.clear();
        let read = self.reader.read_line(&mut self.line).unwrap();
        assert!(read > 0, "the server closed");
        &self.line
    }

    pub(crate) fn ask(&mut self, line: &str) -> &str {
        self.send(line);
        self.next()
    }

    /// Reads up to the final line of a turn.
    pub(crate) fn finish(&mut self) {
        while !is_final(self.next()) {}
    }
}

pub(crate) fn is_final(line: &str) -> bool {
    assert!(!line.contains(r#""type":"error""#), "{line}");
    line.contains(r#""type":"message_end""#)
}

pub(crate) fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}
