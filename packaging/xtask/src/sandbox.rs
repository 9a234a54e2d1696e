//! A private place for a daemon, and nothing left of it afterwards.
//!
//! Owns the directory, the environment and the processes started in it, also when the task is
//! interrupted. Must not know what is shown.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// No wait is longer: something that takes more is stuck.
const DEADLINE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);

const CONFIG: &str = "default_agent = \"timmy\"\n\n[agents.timmy]\nprovider = \"echo\"\n";

pub(crate) struct Sandbox {
    dir: TempDir,
    /// What is to be ended: the daemon and its workers.
    pids: Arc<Mutex<Vec<u32>>>,
    daemon: Option<Child>,
}

impl Sandbox {
    pub(crate) fn new() -> anyhow::Result<Self> {
        // A socket's path is at most 104 bytes on some systems, so it is short.
        let dir = tempfile::Builder::new()
            .prefix("agentd-demo-")
            .tempdir_in("/tmp")?;
        std::fs::create_dir(dir.path().join("home"))?;
        std::fs::write(dir.path().join("config.toml"), CONFIG)?;
        let pids = Arc::default();
        clean_up_on_interrupt(dir.path().to_owned(), Arc::clone(&pids))?;
        Ok(Self {
            dir,
            pids,
            daemon: None,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The well-known name of the socket, here as private as everything else.
    pub(crate) fn alias(&self) -> PathBuf {
        self.path("timmy.sock")
    }

    /// A program that sees nothing of its user's files.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("AGENTD_SOCKET", self.path("agentd.sock"))
            .env("AGENTD_STATE_DIR", self.path("state"))
            .env("AGENTD_CONFIG", self.path("config.toml"))
            .env("AGENTD_ALIAS", self.alias())
            .current_dir(self.path("home"))
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon and says how long it took until it answered.
    pub(crate) fn start(&mut self, agentd: &Path) -> anyhow::Result<Duration> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))?;
        let begun = Instant::now();
        let child = self
            .command(agentd)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("can't start `{}`", agentd.display()))?;
        self.remember(child.id());
        self.daemon = Some(child);
        self.until("the daemon answers", |place| {
            let mut lines = place.connect().ok()?;
            lines.send(r#"{"type":"ping"}"#).ok()?;
            (lines.next().ok()??["type"] == "pong").then_some(())
        })?;
        Ok(begun.elapsed())
    }

    pub(crate) fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    /// Waits until the daemon has left by itself.
    pub(crate) fn left(&mut self) -> anyhow::Result<std::process::ExitStatus> {
        let mut daemon = self.daemon.take().context("there is no daemon")?;
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = daemon.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > until {
                self.daemon = Some(daemon);
                bail!("the daemon did not leave within {DEADLINE:?}");
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// `kill -9`; the daemon gets no chance to say goodbye.
    pub(crate) fn kill_daemon(&mut self) -> anyhow::Result<()> {
        let mut daemon = self.daemon.take().context("there is no daemon")?;
        daemon.kill()?;
        daemon.wait()?;
        Ok(())
    }

    /// Will be ended with the sandbox, if it is still there.
    pub(crate) fn remember(&self, pid: u32) {
        let mut pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        if !pids.contains(&pid) {
            pids.push(pid);
        }
    }

    pub(crate) fn connect(&self) -> anyhow::Result<Lines> {
        let stream = UnixStream::connect(self.alias())?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Lines { stream, reader })
    }

    /// One line out, every line back until the daemon closes, as `nc` does it; and how long it
    /// took until the last one.
    pub(crate) fn ask(&self, line: &str) -> anyhow::Result<(Vec<Value>, Duration)> {
        let begun = Instant::now();
        let mut lines = self.connect()?;
        lines.send(line)?;
        let mut answer = Vec::new();
        let mut took = Duration::ZERO;
        while let Some(line) = lines.next()? {
            answer.push(line);
            took = begun.elapsed();
        }
        Ok((answer, took))
    }

    /// Waits for a fact.
    pub(crate) fn until<T>(
        &self,
        fact: &str,
        look: impl Fn(&Self) -> Option<T>,
    ) -> anyhow::Result<T> {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if Instant::now() > until {
                let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
                bail!("not within {DEADLINE:?}: {fact}\n{log}");
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Ends what is left and says what that was.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        if self.daemon.is_some() {
            self.kill_daemon()?;
        }
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        let pids = pids.clone();
        self.until("every process is gone", |_| {
            pids.iter().all(|pid| !is_there(*pid)).then_some(())
        })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _gone = daemon.kill();
            let _reaped = daemon.wait();
        }
    }
}

/// A connection with a deadline on every read.
pub(crate) struct Lines {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Lines {
    pub(crate) fn send(&mut self, line: &str) -> anyhow::Result<()> {
        Ok(self.stream.write_all(format!("{line}\n").as_bytes())?)
    }

    /// The next line; none at the end.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<Value>> {
        let mut line = String::new();
        let read = self
            .reader
            .read_line(&mut line)
            .context("the daemon did not answer")?;
        if read == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }
}

/// What a program printed, and its exit code.
pub(crate) fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn is_there(pid: u32) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), None).is_ok())
}

pub(crate) fn kill_9(pid: u32) -> anyhow::Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?)
}

/// Ctrl-C leaves nothing behind either. Children start with no signal blocked.
fn clean_up_on_interrupt(dir: PathBuf, pids: Arc<Mutex<Vec<u32>>>) -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block()?;
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        let started = pids.lock().unwrap_or_else(PoisonError::into_inner);
        // The daemon comes first: its workers leave when their input ends.
        for pid in started.iter() {
            let _gone = kill_9(*pid);
        }
        let _removed = std::fs::remove_dir_all(&dir);
        eprintln!("\ninterrupted; everything was put away");
        #[expect(
            clippy::disallowed_methods,
            clippy::exit,
            reason = "the main thread waits for something that will not come"
        )]
        std::process::exit(128 + signal as i32);
    });
    Ok(())
}
