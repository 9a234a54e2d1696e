//! An agent whose process never gets ready: its turn ends in time, and nothing of it is left behind.

use std::io::{BufRead as _, BufReader};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{AGENTCTL, Daemon, Place, Reaped, is_alive, kill, wait_for};

/// It repeats what it hears, which is not what a pi says; `$0` and more are the kind's own options.
const MUTE: &str =
    "[agents.mute]\nkind = \"pi\"\ncommand = [\"/bin/sh\", \"-c\", \"exec cat\", \"sh\"]\n";

/// Of all its threads: each has those that it started.
fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let listed: String = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .collect();
    listed
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// A command without a daemon, its lines so far, and the one-shot that it started.
struct Alone {
    ctl: Reaped,
    lines: BufReader<ChildStdout>,
    oneshot: u32,
}

impl Alone {
    fn sends(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(AGENTCTL);
        command.args(["send", "--json"]).args(args);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut ctl = Reaped(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(ctl.0.stdout.take().unwrap());
        let pid = ctl.0.id();
        let oneshot = wait_for("a one-shot", || children(pid).first().copied());
        Self {
            ctl,
            lines,
            oneshot,
        }
    }

    fn until(&mut self, kind: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no `{kind}`");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["type"] == kind {
                return line;
            }
        }
    }

    /// The agent's process.
    fn agent(&self) -> u32 {
        let of_oneshot = || {
            children(self.oneshot)
                .into_iter()
                .find(|pid| is_alive(*pid))
        };
        wait_for("the agent's process", of_oneshot)
    }

    fn leaves(&mut self, agent: u32) -> Option<i32> {
        let status = wait_for("agentctl leaves", || self.ctl.0.try_wait().unwrap());
        for pid in [self.oneshot, agent] {
            wait_for("its processes leave", || (!is_alive(pid)).then_some(()));
        }
        status.code()
    }
}

#[test]
fn readiness_that_never_comes_ends_at_the_timeout() {
    let daemon = Daemon::with(MUTE);
    let done = daemon.agentctl(&["send", "--agent", "mute", "--timeout", "1", "hi"]);
    assert_eq!(done.code, Some(124), "{}", done.stderr);
    for part in ["`mute`", "`pi`", "did not get ready within 1 s"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert!(done.took < Duration::from_secs(10), "{:?}", done.took);
    daemon.until("the process is gone", |status| {
        let workers = status["workers"].as_array()?;
        let of_it = |worker: &Value| worker["agent"] == "mute";
        (!workers.iter().any(of_it)).then_some(())
    });
    assert!(children(daemon.pid()).is_empty());
}

#[test]
fn readiness_without_a_daemon_has_a_timeout_too() {
    let place = Place::new(MUTE);
    let done = place.agentctl(&["send", "--agent", "mute", "--timeout", "1", "hi"]);
    assert_eq!(done.code, Some(124), "{}", done.stderr);
    assert!(done.stderr.contains("did not get ready"), "{}", done.stderr);
    assert!(done.took < Duration::from_secs(15), "{:?}", done.took);
}

#[test]
fn send_without_a_daemon_leaves_nothing_when_told() {
    let place = Place::new(MUTE);
    let mut alone = Alone::sends(&place, &["--agent", "mute", "hi"]);
    alone.until("accepted");
    let agent = alone.agent();
    kill(alone.ctl.0.id(), Signal::SIGTERM);
    assert_eq!(alone.until("message_end")["stop"], "cancelled");
    assert_eq!(alone.leaves(agent), Some(130));
}

#[test]
fn send_that_is_killed_takes_its_waiting_turn() {
    let place = Place::new(MUTE);
    let mut alone = Alone::sends(&place, &["--agent", "mute", "hi"]);
    alone.until("accepted");
    let agent = alone.agent();
    kill(alone.ctl.0.id(), Signal::SIGKILL);
    assert_eq!(alone.leaves(agent), None);
}

#[test]
fn send_that_is_signalled_cancels_its_running_turn() {
    let place = Place::new(&Daemon::config(""));
    let mut alone = Alone::sends(&place, &["half [[sleep 600000]]"]);
    alone.until("message_delta");
    let agent = alone.agent();
    kill(alone.ctl.0.id(), Signal::SIGTERM);
    let end = alone.until("message_end");
    assert_eq!(
        (&end["stop"], &end["text"]),
        (&"cancelled".into(), &"half".into())
    );
    assert_eq!(alone.leaves(agent), Some(130));
}
