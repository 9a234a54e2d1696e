//! No more processes may be made: turns wait until there is room again, and nobody else waits. And an
//! agent that makes as many as it may.
//!
//! The limit is the kernel's, of one process and what it starts. Root has none: where the tests are
//! root's, the daemon and its clients are somebody else's.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;

use serde_json::Value;

use crate::support::{AGENTD, DEADLINE, Daemon, Place, Reaped, finish, lines, needs, wait_for};

/// The user that owns nothing.
const NOBODY: u32 = 65534;

/// Whom the kernel holds to a number of processes.
struct User {
    nc: PathBuf,
    is_root: bool,
}

impl User {
    fn new() -> Option<Self> {
        let is_root = nix::unistd::geteuid().is_root();
        Some(Self {
            nc: needs("nc")?,
            is_root,
        })
    }

    fn uid(&self) -> u32 {
        match self.is_root {
            true => NOBODY,
            false => nix::unistd::geteuid().as_raw(),
        }
    }

    /// A program as this user.
    fn own(&self, mut command: Command) -> Command {
        if self.is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// A daemon of this user's with the agent `cat`.
    fn start(&self, more: &str) -> Daemon {
        let cat = "[agents.cat]\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\n";
        let place = Place::new(&format!("{cat}{more}"));
        let program = place.path("agentd");
        // Where it was built, others need not get to it. Copied here, it could be open for writing in
        // what another test starts just then, and could not be run.
        let mut copy = place.command("cp");
        copy.arg(AGENTD).arg(&program);
        assert_eq!(finish(copy, b"").code, Some(0));
        if self.is_root {
            for path in [place.dir.path(), &place.path("home")] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let command = self.own(place.command(program));
        place.start_as(command)
    }

    fn nc(&self, daemon: &Daemon) -> Command {
        let mut command = self.own(daemon.place.command(&self.nc));
        command.arg("-U").arg(daemon.place.socket());
        command
    }

    /// The lines that come back for one.
    fn ask(&self, daemon: &Daemon, line: &str) -> Vec<Value> {
        let said = finish(self.nc(daemon), format!("{line}\n").as_bytes());
        said.stdout.lines().map(parsed).collect()
    }

    fn begin(&self, daemon: &Daemon, line: &str) -> Asked {
        let mut command = self.nc(daemon);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Reaped(command.spawn().unwrap());
        let mut stdin = child.0.stdin.take().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        let said = lines(child.0.stdout.take().unwrap());
        Asked { child, said }
    }
}

/// Somebody who waits for lines.
struct Asked {
    child: Reaped,
    said: Receiver<String>,
}

impl Asked {
    /// The first line with this fact; none before it is an error.
    fn until(&mut self, daemon: &Daemon, fact: impl Fn(&Value) -> bool) -> Value {
        let mut heard = Vec::new();
        loop {
            let line = self.said.recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|why| panic!("{why}: {heard:?}\n{}", daemon.log()));
            let line = parsed(&line);
            assert_ne!(line["type"], "error", "{line}");
            if fact(&line) {
                return line;
            }
            heard.push(line);
        }
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"))
}

/// How many processes its user may have for it to make another one.
fn limit_of(pid: u32) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max processes"));
    line.unwrap().split_whitespace().nth(2).unwrap().to_owned()
}

/// How many the user has by now, threads included: all that the kernel counts.
fn held_by(uid: u32) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let told = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    let of = |status: &str, name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u32>().ok()
    };
    let theirs = told.filter(|status| of(status, "Uid:") == Some(uid));
    theirs
        .filter_map(|status| of(&status, "Threads:"))
        .map(|threads| threads as usize)
        .sum()
}

/// How many live that have this among their words.
fn living(words: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let named = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    named
        .filter(|line| String::from_utf8_lossy(line).contains(words))
        .count()
}

#[test]
fn processes_that_run_out_let_turns_wait() {
    let (Some(prlimit), Some(user)) = (needs("prlimit"), User::new()) else {
        return;
    };
    let daemon = user.start("");
    let before = user.ask(&daemon, r#"{"agent":"cat","prompt":"before"}"#);
    assert_eq!(before.last().unwrap()["text"], "before", "{before:?}");
    let limit = |soft: &str| {
        let mut command = user.own(Command::new(&prlimit));
        command.args(["--pid", &daemon.pid().to_string()]);
        command.arg(format!("--nproc={soft}:"));
        let done = finish(command, b"");
        assert_eq!(done.code, Some(0), "{done:?}");
    };
    let usual = limit_of(daemon.pid());
    // Of its threads alone there are more.
    limit("1");
    let send = r#"{"type":"send","agent":"cat","text":"after","stream":true}"#;
    let mut waiting = user.begin(&daemon, send);
    let short = waiting.until(&daemon, |line| line["code"] == "machine-short");
    assert_eq!(short["type"], "note", "{short}");
    for request in [
        r#"{"type":"status"}"#,
        r#"{"type":"jobs"}"#,
        r#"{"type":"session.list"}"#,
        r#"{"type":"collect","jobs":["j1"],"timeout":0}"#,
    ] {
        let answer = user.ask(&daemon, request);
        assert_eq!(answer.len(), 1, "{request}: {answer:?}");
        assert_ne!(answer[0]["type"], "error", "{request}: {answer:?}");
    }
    limit(&usual);
    let end = waiting.until(&daemon, |line| line["type"] == "message_end");
    assert_eq!(end["text"], "after", "{end}");
    let log = daemon.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn processes_of_a_fork_bomb_end_together() {
    const MORE: usize = 200;
    let (Some(prlimit), Some(user)) = (needs("prlimit"), User::new()) else {
        return;
    };
    // One that can make no more tries again. Without the place, none is made.
    let bomb =
        "bomb() { while [ -e \"$HOME\" ]; do bomb & done; }; bomb 2> /dev/null & exec sleep 300";
    let most = format!("--nproc={}", held_by(user.uid()) + MORE);
    let name = format!("bomb-{}", std::process::id());
    let command = [
        prlimit.to_str().unwrap(),
        &most,
        "/bin/bash",
        "-c",
        bomb,
        &name,
    ];
    let agent = format!("[agents.bomb]\nkind = \"exec\"\ncommand = {command:?}\n");
    let daemon = user.start(&agent);
    let mut running = user.begin(&daemon, r#"{"type":"send","agent":"bomb","text":"x"}"#);
    wait_for("there are many", || {
        (living(&name) > MORE / 2).then_some(())
    });
    let beside = user.ask(&daemon, r#"{"agent":"cat","prompt":"beside"}"#);
    assert_eq!(beside.last().unwrap()["text"], "beside", "{beside:?}");
    assert!(living(&name) > 1, "they went on meanwhile");
    let aborted = user.ask(&daemon, r#"{"type":"abort"}"#);
    assert_eq!(aborted[0]["ok"], true, "{aborted:?}");
    let end = running.until(&daemon, |line| line["type"] == "message_end");
    assert_eq!(end["stop"], "cancelled", "{end}");
    wait_for("none is left", || (living(&name) == 0).then_some(()));
}
