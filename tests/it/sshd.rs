//! Another machine: a real sshd on loopback with keys and configuration of its own.
//!
//! Owns the keys, the configuration of both sides, and a port that is up, down, or silent when a
//! test says so. Each connection gets an `sshd -i`, so no port has to be guessed and nothing of
//! this machine's own sshd is touched. Must not know what is tested.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

/// How it meets a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// As a machine does that is there.
    Up,
    /// It hangs up at once.
    Down,
    /// It says nothing, ever.
    Silent,
}

/// Where its parts are.
pub struct Programs {
    pub ssh: PathBuf,
    pub keygen: PathBuf,
    pub sshd: PathBuf,
}

/// One other machine, and how this one reaches it: as `mac`, and as `voice` with another key.
pub struct Sshd {
    dir: TempDir,
    pub port: u16,
    pub user: String,
    programs: Programs,
    shared: Arc<Shared>,
}

struct Shared {
    line: Mutex<Line>,
    met: AtomicUsize,
    /// Connections that are left open without a word.
    silent: Mutex<Vec<TcpStream>>,
    children: Mutex<Vec<Child>>,
    stopped: Mutex<bool>,
}

impl Sshd {
    /// `environment` is what programs have there, `PATH` among it.
    pub fn start(programs: Programs, environment: &[(&str, String)]) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("agentd-ssh-")
            .tempdir_in("/tmp")
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            line: Mutex::new(Line::Up),
            met: AtomicUsize::new(0),
            silent: Mutex::new(Vec::new()),
            children: Mutex::new(Vec::new()),
            stopped: Mutex::new(false),
        });
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
        let machine = Self {
            dir,
            port,
            user: user.unwrap().unwrap().name,
            programs,
            shared: Arc::clone(&shared),
        };
        machine.make_keys();
        machine.configure(environment);
        let config = machine.path("sshd_config");
        let log = std::fs::File::create(machine.path("sshd.log")).unwrap();
        let sshd = machine.programs.sshd.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if *shared.stopped.lock().unwrap() {
                    return;
                }
                shared.met.fetch_add(1, Ordering::SeqCst);
                let line = *shared.line.lock().unwrap();
                match line {
                    Line::Down => drop(stream),
                    Line::Silent => shared.silent.lock().unwrap().push(stream),
                    Line::Up => {
                        let child = serve(&sshd, &config, stream, &log);
                        shared.children.lock().unwrap().push(child);
                    }
                }
            }
        });
        machine
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// From now on it meets connections like this.
    pub fn is(&self, line: Line) {
        *self.shared.line.lock().unwrap() = line;
    }

    /// As many connections came so far.
    pub fn met(&self) -> usize {
        self.shared.met.load(Ordering::SeqCst)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("sshd.log")).unwrap_or_default()
    }

    /// A directory whose `ssh` knows this machine, for `PATH`.
    pub fn bin(&self) -> PathBuf {
        self.path("bin")
    }

    /// `ssh` itself, with this machine's configuration.
    pub fn ssh(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.programs.ssh);
        command.arg("-F").arg(self.path("config")).args(words);
        command
    }

    /// Lets the key `voice` in under this line only.
    pub fn allow_voice(&self, line: &str) {
        let key = std::fs::read_to_string(self.path("key.pub")).unwrap();
        std::fs::write(self.path("authorized_keys"), format!("{key}{line}\n")).unwrap();
    }

    /// The key that this machine is known by isn't the one that it has.
    pub fn change_known_key(&self) {
        let key = std::fs::read_to_string(self.path("voice.pub")).unwrap();
        self.know(&key);
    }

    /// Nothing is known of this machine.
    pub fn forget_known_key(&self) {
        std::fs::write(self.path("known_hosts"), "").unwrap();
    }

    fn know(&self, key: &str) {
        let mut words = key.split(' ');
        let (kind, data) = (words.next().unwrap(), words.next().unwrap());
        let line = format!("[127.0.0.1]:{} {kind} {}\n", self.port, data.trim());
        std::fs::write(self.path("known_hosts"), line).unwrap();
    }

    fn make_keys(&self) {
        for name in ["host", "key", "voice"] {
            let made = Command::new(&self.programs.keygen)
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(self.path(name))
                .status();
            assert!(made.unwrap().success());
        }
        self.know(&std::fs::read_to_string(self.path("host.pub")).unwrap());
        std::fs::copy(self.path("key.pub"), self.path("authorized_keys")).unwrap();
    }

    fn configure(&self, environment: &[(&str, String)]) {
        let dir = self.dir.path().display();
        let set: Vec<String> = environment
            .iter()
            .map(|(name, value)| format!("\"{name}={value}\""))
            .collect();
        let server = format!(
            "HostKey {dir}/host\nAuthorizedKeysFile {dir}/authorized_keys\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nLogLevel VERBOSE\nUseDNS no\nSubsystem sftp internal-sftp\nSetEnv {}\n",
            set.join(" ")
        );
        std::fs::write(self.path("sshd_config"), server).unwrap();
        let (port, user) = (self.port, &self.user);
        // Nothing is said of host keys: what holds is what `ssh` does by itself.
        let client = format!(
            "Host mac voice\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\nHost voice\n  IdentityFile {dir}/voice\nHost *\n  IdentityFile {dir}/key\n  IdentitiesOnly yes\n  UserKnownHostsFile {dir}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  ControlPath {dir}/cm-%C\n"
        );
        std::fs::write(self.path("config"), client).unwrap();
        std::fs::create_dir(self.bin()).unwrap();
        let ssh = self.bin().join("ssh");
        let real = self.programs.ssh.display();
        // Written by a process of its own: one that another test starts meanwhile would have it open
        // for writing ("Text file busy").
        let written = Command::new("sh")
            .args(["-c", "printf '%s' \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .arg(&ssh)
            .arg(format!("#!/bin/sh\nexec {real} -F {dir}/config \"$@\"\n"))
            .status();
        assert!(written.unwrap().success());
    }
}

fn serve(sshd: &Path, config: &Path, stream: TcpStream, log: &std::fs::File) -> Child {
    let input: OwnedFd = stream.try_clone().unwrap().into();
    let output: OwnedFd = stream.into();
    Command::new(sshd)
        .args(["-i", "-e", "-f"])
        .arg(config)
        .env_clear()
        .stdin(Stdio::from(input))
        .stdout(Stdio::from(output))
        .stderr(log.try_clone().unwrap())
        .spawn()
        .unwrap()
}

impl Drop for Sshd {
    fn drop(&mut self) {
        *self.shared.stopped.lock().unwrap() = true;
        // The listening thread is woken to see it.
        let _woken = TcpStream::connect(("127.0.0.1", self.port)).map(|mut line| line.write(b"\n"));
        for child in self.shared.children.lock().unwrap().iter_mut() {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Everything that it takes, or what is missing. As root, sshd wants an empty directory.
pub fn programs(find: impl Fn(&str) -> Option<PathBuf>) -> Result<Programs, &'static str> {
    let ssh = find("ssh").ok_or("ssh")?;
    let keygen = find("ssh-keygen").ok_or("ssh-keygen")?;
    let sshd = PathBuf::from("/usr/sbin/sshd");
    let sshd = if sshd.is_file() {
        Some(sshd)
    } else {
        find("sshd")
    };
    let sshd = sshd.ok_or("sshd")?;
    let empty = Path::new("/run/sshd");
    if nix::unistd::Uid::effective().is_root() && !empty.exists() {
        std::fs::create_dir(empty).map_err(|_| "/run/sshd")?;
    }
    Ok(Programs { ssh, keygen, sshd })
}
