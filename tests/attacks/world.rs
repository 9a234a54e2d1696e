//! A user's machine in small: a daemon, a home with keys in it, and a process that has one, too.
//!
//! Owns what is planted, and can tell whether anything of it was changed. Must not know the attempts.

use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::mock_model::MockModel;
use crate::script;
use crate::support::{Daemon, Place, Reaped, TIMMY};

/// Where programs keep tokens, below the home.
const TOKENS: &[&str] = &[
    ".aws/credentials",
    ".bash_history",
    ".cargo/credentials.toml",
    ".config/gh/hosts.yml",
    ".docker/config.json",
    ".git-credentials",
    ".gnupg/private",
    ".netrc",
    ".ssh/id",
    "diary/today",
];
/// Files outside, with the key in each.
const FILES: &[&str] = &[
    "secret",
    "dir/inner",
    "dir/taken",
    "kept",
    "loose/secret",
    "new\nline",
    "ключ",
    " spaces ",
];
/// What is beside the place's directories and is nobody's to change.
const KEPT: &[&str] = &[
    "outside",
    "home",
    "config.toml",
    "env",
    "webhooks.json",
    "timmy",
];
/// Of what is below this only the content counts: what the sandbox says of itself.
const LOOSE: &str = "outside/loose";

pub struct World {
    pub daemon: Daemon,
    pub key: String,
    pub model: MockModel,
    victim: Reaped,
    doors: Doors,
}

/// What somebody could come in by.
struct Doors {
    socket: UnixListener,
    letters: UnixDatagram,
    named: UnixListener,
    port: std::net::TcpListener,
}

impl Doors {
    fn new(outside: &Path, name: &str) -> Self {
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let doors = Self {
            socket: UnixListener::bind(outside.join("agent.sock")).unwrap(),
            letters: UnixDatagram::bind(outside.join("letters.sock")).unwrap(),
            named: UnixListener::bind_addr(&name).unwrap(),
            port: std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        doors.socket.set_nonblocking(true).unwrap();
        doors.letters.set_nonblocking(true).unwrap();
        doors.named.set_nonblocking(true).unwrap();
        doors.port.set_nonblocking(true).unwrap();
        doors
    }

    /// By which somebody came.
    fn opened(&self) -> Vec<&'static str> {
        let came = |result: io::Result<()>| match result {
            Ok(()) => true,
            Err(why) => {
                assert_eq!(why.kind(), io::ErrorKind::WouldBlock, "{why}");
                false
            }
        };
        [
            ("the socket", came(self.socket.accept().map(drop))),
            (
                "the letter box",
                came(self.letters.recv(&mut [0; 8]).map(drop)),
            ),
            ("the abstract name", came(self.named.accept().map(drop))),
            ("the port", came(self.port.accept().map(drop))),
        ]
        .into_iter()
        .filter_map(|(name, came)| came.then_some(name))
        .collect()
    }
}

/// A key that no run had before.
fn new_key() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let part = || RandomState::new().hash_one(0_u8);
    format!("PLANTED-{:016x}{:016x}", part(), part())
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn plant(place: &Place, key: &str) {
    let text = format!("{key}\n");
    for name in FILES {
        write(&place.path("outside").join(name), &text, 0o644);
    }
    write(
        &place.path("outside/program"),
        &format!("#!/bin/sh\necho {key}\n"),
        0o755,
    );
    std::os::unix::fs::symlink("secret", place.path("outside/link")).unwrap();
    for name in TOKENS {
        write(&place.path("home").join(name), &text, 0o600);
    }
    write(
        &place.path("env"),
        &format!("PLANTED_API_KEY={key}\n"),
        0o600,
    );
    write(&place.path("timmy/SOUL.md"), "kind\n", 0o600);
    let path = format!("s:{}", place.path("outside/secret").display());
    let (text, length) = (format!("s:{key}"), key.len().to_string());
    let words = [
        "call",
        "setxattr",
        &path,
        "s:user.planted",
        &text,
        &length,
        "0",
    ];
    // Where there are none, nobody tries to read one.
    let _has_none = Command::new(script::attacker()).args(words).output();
}

/// A process of the same user, which has the key in its environment, memory and files.
fn victim(place: &Place, key: &str) -> Reaped {
    let mut command = Command::new("/bin/sh");
    let hold = "exec 3< secret; exec sleep 1000";
    command
        .args(["-c", hold])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("PLANTED", key)
        .current_dir(place.path("outside"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Reaped(command.process_group(0).spawn().unwrap())
}

/// The agents that work as on a kernel of each age, and the shell that is one without a sandbox.
fn config(model: &MockModel, place: &Place, more: &str) -> String {
    let url = &model.url;
    let unreadable = place.path("home/diary");
    let mut text = format!(
        "default_agent = \"timmy\"\n[models]\ndefault = \"mock/m\"\n[providers.mock]\n\
         base_url = {url:?}\n[timmy]\nunreadable = [{unreadable:?}]\n{more}\n"
    );
    for version in OLDER {
        text.push_str(&format!(
            "[agents.abi{version}]\nkind = \"jsonl\"\ncommand = [{TIMMY:?}, \"--rpc\"]\n\
             env = {{ AGENTD_TEST_LANDLOCK = \"{version}\" }}\n"
        ));
    }
    text
}

/// The versions of landlock that are emulated, none with a namespace of processes; the last one may be
/// newer than this kernel's, which then is all that there is.
pub const OLDER: std::ops::RangeInclusive<u8> = 1..=8;

impl World {
    /// With more configuration of timmy's own table.
    pub fn new(more: &str) -> Self {
        let key = new_key();
        let model = MockModel::start();
        let place = Place::new("");
        place.configure(&config(&model, &place, more));
        plant(&place, &key);
        let doors = Doors::new(&place.path("outside"), &key[8..]);
        let victim = victim(&place, &key);
        let daemon = place.start();
        let world = Self {
            daemon,
            key,
            model,
            victim,
            doors,
        };
        let webhooks = "{\"endpoints\":[]}\n";
        write(&world.daemon.path("webhooks.json"), webhooks, 0o600);
        // The store has it, too.
        let kept = json!({"prompt": world.key, "provider": "echo", "session": "kept"});
        let last = world.daemon.ask(&kept.to_string()).pop().unwrap();
        assert_eq!(last["text"], world.key, "{last:#}");
        world
    }

    /// What attempts find under their names.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let shown = |name: &str| self.daemon.path(name).display().to_string();
        vec![
            ("A", "./attacker".to_owned()),
            ("OUT", shown("outside")),
            ("PLACE", self.daemon.place.dir.path().display().to_string()),
            ("SOCK", self.daemon.place.socket().display().to_string()),
            ("STATE", shown("state")),
            ("HOME", shown("home")),
            ("VICTIM", self.victim.0.id().to_string()),
            ("DAEMON", self.daemon.pid().to_string()),
            (
                "PORT",
                self.doors.port.local_addr().unwrap().port().to_string(),
            ),
            ("ABSTRACT", self.key[8..].to_owned()),
        ]
    }

    /// A text with `{NAME}` for these.
    pub fn filled(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (name, value) in self.variables() {
            filled = filled.replace(&format!("{{{name}}}"), &value);
        }
        filled
    }

    /// A workspace with these attempts.
    pub fn workspace(&self, name: &str, rows: &[crate::catalogue::Row]) -> PathBuf {
        let work = self.daemon.path(name);
        script::write(&work, &self.variables(), rows);
        work
    }

    /// A turn of this agent in a session of the workspace's name; the final line.
    pub fn turn(&self, agent: &str, work: &Path, text: &str) -> Value {
        let session = work.file_name().unwrap().to_str().unwrap();
        let line = json!({"type": "send", "agent": agent, "session": session, "text": text,
            "cwd_if_new": work});
        self.daemon.ask(&line.to_string()).pop().unwrap()
    }

    /// What was planted, as it is now.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        for name in KEPT {
            look(self.daemon.place.dir.path(), Path::new(name), &mut all);
        }
        all
    }

    /// What is different now; also, who came in, and that the victim lives.
    pub fn harm(&mut self, before: &BTreeMap<PathBuf, String>) -> Vec<String> {
        let now = self.snapshot();
        let mut harm: Vec<String> = before
            .iter()
            .filter(|(path, was)| now.get(*path) != Some(*was))
            .map(|(path, was)| format!("{}: was {was}, is {:?}", path.display(), now.get(path)))
            .collect();
        let new = now.keys().filter(|path| !before.contains_key(*path));
        harm.extend(new.map(|path| format!("{} is new", path.display())));
        harm.extend(
            self.doors
                .opened()
                .iter()
                .map(|door| format!("came in by {door}")),
        );
        if let Some(status) = self.victim.0.try_wait().unwrap() {
            harm.push(format!("the other process ended: {status}"));
        }
        harm
    }
}

fn look(base: &Path, below: &Path, all: &mut BTreeMap<PathBuf, String>) {
    let path = base.join(below);
    let Ok(found) = path.symlink_metadata() else {
        return;
    };
    let mut is = format!("{:?}", found.file_type());
    let is_loose = below.starts_with(LOOSE);
    if !is_loose {
        let (seconds, nanos) = (found.mtime(), found.mtime_nsec());
        is.push_str(&format!(
            " {:o} {} {seconds}.{nanos}",
            found.mode(),
            found.uid()
        ));
    }
    if found.is_symlink() {
        is.push_str(&format!(" -> {:?}", std::fs::read_link(&path).unwrap()));
    } else if found.is_file() {
        is.push_str(&format!(" {:?}", std::fs::read(&path).unwrap()));
    }
    all.insert(below.to_owned(), is);
    if found.is_dir() {
        for entry in std::fs::read_dir(&path).unwrap() {
            look(base, &below.join(entry.unwrap().file_name()), all);
        }
    }
}
