//! Private directories of a run, the daemon in them, and every process that came of it.
//!
//! Owns files and processes: when a place is dropped, nothing is left. Must not know what is asked
//! or checked.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::cgroup::Group;
use crate::fuse::FileSystem;
use crate::record::{held, poll};

/// A daemon answers or has left within this time.
const UP_WITHIN: Duration = Duration::from_secs(30);
/// What was killed is gone within this time.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// The programs of a run, beside this one.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) agentd: PathBuf,
    pub(crate) agentctl: PathBuf,
    pub(crate) chaos: PathBuf,
}

impl Programs {
    pub(crate) fn find() -> Self {
        let examples = std::env::current_exe().expect("this program's path");
        let examples = examples.parent().expect("its directory");
        let found = Self {
            agentd: examples.with_file_name("agentd"),
            agentctl: examples.with_file_name("agentctl"),
            chaos: examples.join("chaos-worker"),
        };
        for program in [&found.agentd, &found.agentctl, &found.chaos] {
            assert!(
                program.exists(),
                "`{}` is not built: use `cargo xtask torture`",
                program.display()
            );
        }
        found
    }
}

/// An agent whose program says for good that it can't run.
pub(crate) const BROKEN_AGENT: &str = "broken";
/// As few descriptors as a daemon with a few workers and clients can do with.
pub(crate) const FEW_FILES: u32 = 192;

/// The directories of the runs that go on, for whoever interrupts them.
static CURRENT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// What the next daemon is started with besides.
pub(crate) type Variables = Vec<(&'static str, OsString)>;

/// How a start ended.
#[derive(Debug)]
pub(crate) enum Started {
    Up,
    /// It was gone before it answered.
    Left,
    /// It does neither.
    Silent,
}

/// With what programs of a place are started.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    dir: PathBuf,
    programs: Programs,
}

impl Environment {
    pub(crate) fn agentctl(&self) -> Command {
        self.command(&self.programs.agentctl)
    }

    /// A program that sees nothing of its user's files.
    fn command(&self, program: &Path) -> Command {
        let path = |name: &str| self.dir.join(name);
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", path("home"))
            .env("AGENTD_SOCKET", path("agentd.sock"))
            .env("AGENTD_STATE_DIR", path("state"))
            .env("AGENTD_CONFIG", path("config.toml"))
            .env("AGENTD_ALIAS", path("timmy.sock"))
            .current_dir(path("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}

pub(crate) struct Place {
    dir: TempDir,
    programs: Programs,
    daemon: Option<Child>,
    /// How many descriptors the next daemons may have, if that is limited.
    pub(crate) files: Option<u32>,
    /// Directories of which some don't answer, where they can be had.
    pub(crate) hung: Option<FileSystem>,
    /// What the daemons and their workers are in, where it can be had.
    pub(crate) group: Option<Group>,
}

impl Place {
    pub(crate) fn new(programs: &Programs) -> Self {
        // A socket's path is short.
        let dir = tempfile::Builder::new()
            .prefix("agentd-torture-")
            .tempdir_in("/tmp")
            .expect("a private directory");
        let place = Self {
            dir,
            programs: programs.clone(),
            daemon: None,
            files: None,
            hung: FileSystem::new(),
            group: Group::new(),
        };
        held(&CURRENT).push(place.dir.path().to_owned());
        fs::create_dir(place.path("home")).expect("a directory");
        fs::create_dir(place.path("state")).expect("a directory");
        fs::write(place.path("config.toml"), place.config()).expect("a file");
        place
    }

    /// Adds to the configuration of the daemons to come.
    pub(crate) fn configure(&self, text: &str) {
        let all = format!("{}{text}", self.config());
        fs::write(self.path("config.toml"), all).expect("a file");
    }

    fn config(&self) -> String {
        let mut text = "default_agent = \"chaos\"\n".to_owned();
        for (name, flags) in [
            ("chaos", ""),
            ("chaos-many", ", \"--concurrent\", \"4\""),
            ("chaos-one", ", \"--one-session\""),
        ] {
            text.push_str(&format!(
                "[agents.{name}]\nkind = \"jsonl\"\ncommand = [{:?}{flags}]\nenv = {{ CHAOS_LEDGER = {:?}, CHAOS_PIDS = {:?} }}\n",
                self.programs.chaos,
                self.path("ledger"),
                self.path("pids")
            ));
        }
        text.push_str(&format!(
            "[agents.{BROKEN_AGENT}]\nkind = \"jsonl\"\ncommand = [\"/bin/sh\", \"-c\", \"exit 78\"]\n"
        ));
        text
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("agentd.sock")
    }

    pub(crate) fn log(&self) -> String {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    pub(crate) fn environment(&self) -> Environment {
        Environment {
            dir: self.dir.path().to_owned(),
            programs: self.programs.clone(),
        }
    }

    /// Lets callbacks go there.
    pub(crate) fn allow(&self, url: &str) {
        let mut command = self.environment().agentctl();
        command.args(["webhook", "add", url, "--allow-private"]);
        let status = command.status().expect("agentctl starts");
        assert!(status.success(), "`agentctl webhook add`: {status}");
    }

    /// Starts a daemon, without waiting for anything.
    pub(crate) fn launch(&mut self, variables: &Variables) {
        // Not while everything is put away.
        let _current = held(&CURRENT);
        assert!(self.daemon.is_none(), "one daemon at a time");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .expect("the log");
        let mut command = match self.files {
            Some(files) => {
                let mut command = self.environment().command(Path::new("prlimit"));
                command.arg(format!("--nofile={files}:{files}"));
                command.arg(&self.programs.agentd);
                command
            }
            None => self.environment().command(&self.programs.agentd),
        };
        let environment = variables.iter().map(|(name, value)| (name, value));
        command.envs(environment).stderr(log);
        let daemon = spawn_unblocked(command);
        if let Some(group) = &self.group {
            // It has started nobody yet, and may be gone.
            let _gone = group.take(daemon.id());
        }
        self.daemon = Some(daemon);
    }

    /// Starts a daemon and waits until it listens, or leaves.
    pub(crate) fn start(&mut self, variables: &Variables) -> Started {
        self.launch(variables);
        let socket = self.socket();
        let daemon = self.daemon.as_mut().expect("it was just started");
        let found = poll(UP_WITHIN, || {
            if daemon.try_wait().expect("its state").is_some() {
                return Some(Started::Left);
            }
            UnixStream::connect(&socket).ok().map(|_| Started::Up)
        });
        if let Some(Started::Left) = found {
            self.daemon = None;
        }
        found.unwrap_or(Started::Silent)
    }

    pub(crate) fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    /// Is the daemon gone? It stays to be waited for.
    pub(crate) fn is_dead(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.daemon_pid()));
        stat.map_or(true, |stat| stat.contains(") Z "))
    }

    /// Waits until the daemon is gone by itself.
    pub(crate) fn left(&mut self, within: Duration) -> Option<ExitStatus> {
        let daemon = self.daemon.as_mut()?;
        let status = poll(within, || daemon.try_wait().expect("its state"))?;
        self.daemon = None;
        Some(status)
    }

    /// `kill -9`.
    pub(crate) fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().expect("it is ours");
            daemon.wait().expect("it is ours");
        }
    }

    /// Tells the daemon something that is not to end it.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Ok(pid @ 2..) = i32::try_from(self.daemon_pid()) {
            let _gone = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Every process of this place but the daemon.
    pub(crate) fn others(&self) -> BTreeMap<u32, String> {
        let mut others = marked(self.dir.path());
        others.remove(&self.daemon_pid());
        others
    }

    /// Processes that the living daemon did not start, and that it has not ended although it took
    /// over from those who did.
    pub(crate) fn orphans(&self) -> Vec<String> {
        // Its instance begins with its process id.
        let ours = format!("AGENTD_INSTANCE={}-", self.daemon_pid());
        self.until_gone(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut entries = environ.split(|byte| *byte == 0);
            !entries.any(|entry| entry.starts_with(ours.as_bytes()))
        })
    }

    /// Nothing was ever stored.
    pub(crate) fn forget_the_store(&self) {
        fs::remove_dir_all(self.path("state")).expect("it is there");
        fs::create_dir(self.path("state")).expect("a directory");
    }

    pub(crate) fn workers(&self) -> Vec<u32> {
        let others = self.others().into_iter();
        others
            .filter(|(_, command)| command.contains("chaos-worker"))
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Ends everything at once, as a power cut does.
    pub(crate) fn kill_everything(&mut self) -> bool {
        self.kill_daemon();
        if let Some(hung) = &self.hung {
            // What waits for it can't be killed.
            hung.ignore(0);
        }
        poll(GONE_WITHIN, || {
            let others = self.others();
            for pid in others.keys() {
                kill_one(*pid);
            }
            others.is_empty().then_some(())
        })
        .is_some()
    }

    /// Waits until no process is left, and gives those that are.
    pub(crate) fn left_over(&self) -> Vec<String> {
        self.until_gone(|_pid| true)
    }

    /// Waits until none of these is there, and gives those that are.
    fn until_gone(&self, is_meant: impl Fn(u32) -> bool) -> Vec<String> {
        let mut last = Vec::new();
        let gone = poll(GONE_WITHIN, || {
            last = self
                .others()
                .into_iter()
                .filter(|(pid, _)| is_meant(*pid))
                .map(|(pid, command)| format!("{pid}: {command}{}", marks(pid)))
                .collect();
            last.is_empty().then_some(())
        });
        gone.map_or(last, |()| Vec::new())
    }

    /// How many descriptors of each kind the daemon has.
    pub(crate) fn descriptors(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        let entries = fs::read_dir(format!("/proc/{}/fd", self.daemon_pid()));
        for entry in entries.into_iter().flatten().flatten() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            let kind = match target.split_once(":[") {
                Some((kind, _number)) if kind != "anon_inode" => kind,
                None if target.starts_with('/') => "file",
                _kind => &target,
            };
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        kinds
    }
}

/// Starts a program that hears every signal: this one blocks some for the thread that waits for them.
fn spawn_unblocked(mut command: Command) -> Child {
    let spawned = std::thread::spawn(move || {
        SigSet::all().thread_unblock()?;
        command.spawn()
    });
    let child = spawned.join().expect("a start doesn't panic");
    child.expect("the daemon starts")
}

impl Drop for Place {
    fn drop(&mut self) {
        let _deadline = self.kill_everything();
        held(&CURRENT).retain(|dir| dir != self.dir.path());
    }
}

/// Every process but this one whose environment names the directory.
fn marked(dir: &Path) -> BTreeMap<u32, String> {
    let mark = dir.as_os_str().as_encoded_bytes();
    let entries = fs::read_dir("/proc").expect("Linux");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.windows(mark.len()).any(|part| part == mark)
        })
        .map(|pid| (pid, command_line(pid)))
        .collect()
}

/// An interrupted run leaves nothing behind either.
pub(crate) fn clean_up_on_interrupt() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().expect("signals can be blocked");
    std::thread::spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        // Nothing new is started while this is held.
        let current = held(&CURRENT);
        for dir in current.iter() {
            // The daemon comes with its workers: what it started meanwhile is found again.
            let _deadline = poll(GONE_WITHIN, || {
                let found = marked(dir);
                found.keys().copied().for_each(kill_one);
                found
                    .keys()
                    .all(|pid| command_line(*pid).is_empty())
                    .then_some(())
            });
            let _removed = fs::remove_dir_all(dir);
        }
        eprintln!("interrupted; everything was put away");
        #[expect(
            clippy::disallowed_methods,
            clippy::exit,
            reason = "the main thread waits for something that will not come"
        )]
        std::process::exit(128 + signal as i32);
    });
}

/// Who started it, and for what.
fn marks(pid: u32) -> String {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let environ = String::from_utf8_lossy(&environ);
    let marks = environ.split('\0').filter(|entry| {
        ["AGENTD_INSTANCE=", "AGENTD_WORKER="]
            .iter()
            .any(|mark| entry.starts_with(mark))
    });
    marks.collect::<Vec<_>>().join(" ")
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Ends a process that this run's daemon started; it may be gone by now.
pub(crate) fn kill_one(pid: u32) {
    if let Ok(pid @ 2..) = i32::try_from(pid) {
        let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
