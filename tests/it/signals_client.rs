//! Signals to clients: those that mean nothing change nothing to a server, the others end it in
//! order, and none leaves a worker behind its turn. A file that is too large is an error of one write.
//!
//! Owns the tables. What the daemon makes of them is in `signals`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::http::Http;
use crate::support::{
    AGENTCTL, Daemon, Finished, Place, Reaped, TIMMY, finish, is_alive, needs, wait_for,
};

const MEANINGLESS: [Signal; 7] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGPIPE,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGIO,
];
const STOPS: [Signal; 5] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGXCPU,
];

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

#[test]
fn signals_without_meaning_end_no_server() {
    let (daemon, Some(_curl)) = (Daemon::start(), needs("curl")) else {
        return;
    };
    let http = Http::start(&daemon.place);
    for signal in MEANINGLESS.into_iter().chain([Signal::SIGXFSZ]) {
        send(http.pid(), signal);
        assert_eq!(http.curl("/v1/jobs", &[]).status, 200, "{signal}");
    }
}

/// What this process was told to ignore, as by `nohup`, it would hand on; what it handles it doesn't.
pub fn ignore_nothing() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let _within = runtime.enter();
    for signal in STOPS {
        let number = signal as i32;
        if ignored & 1 << (number - 1) != 0 {
            // It stays when this is dropped.
            let kind = tokio::signal::unix::SignalKind::from_raw(number);
            drop(tokio::signal::unix::signal(kind).unwrap());
        }
    }
}

#[test]
fn signals_stop_a_server_in_order() {
    let (daemon, Some(_curl)) = (Daemon::start(), needs("curl")) else {
        return;
    };
    ignore_nothing();
    for signal in STOPS {
        let http = Http::start(&daemon.place);
        send(http.pid(), signal);
        assert_eq!(http.left().code(), Some(0), "{signal}");
    }
}

#[test]
fn signals_hangup_under_nohup_ends_no_server() {
    let (daemon, Some(_curl)) = (Daemon::start(), needs("curl")) else {
        return;
    };
    let http = Http::as_of(&daemon.place, "trap '' HUP; exec \"$@\"");
    send(http.pid(), Signal::SIGHUP);
    assert_eq!(http.curl("/v1/jobs", &[]).status, 200);
    send(http.pid(), Signal::SIGTERM);
    assert_eq!(http.left().code(), Some(0));
}

/// The process of this name below another one: each thread has children of its own.
fn below(pid: u32, name: &str) -> Option<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let children = threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|all| all.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .filter_map(Result::ok)
        .collect();
    let is_it = |child: &u32| {
        let program = std::fs::read_link(format!("/proc/{child}/exe")).unwrap_or_default();
        program.ends_with(name)
    };
    let found = children.iter().copied().find(is_it);
    found.or_else(|| children.iter().find_map(|child| below(*child, name)))
}

#[test]
fn signals_to_a_client_leave_nothing_running() {
    if !std::path::Path::new("/proc/self/task").exists() {
        return;
    }
    for signal in MEANINGLESS.into_iter().chain(STOPS) {
        let place = Place::new(&Daemon::config(""));
        let gate = place.path("gate");
        let ledger = place.path("ledger");
        let prompt = format!("chaos:ledger up;wait-file {}", gate.display());
        let mut command = place.command(AGENTCTL);
        command
            .args(["send", "--agent", "chaos", &prompt])
            .env("CHAOS_LEDGER", &ledger)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut client = Reaped(command.spawn().unwrap());
        let pid = client.0.id();
        // No daemon runs: `agentd` is its child, and the worker that one's.
        let has_begun = || std::fs::metadata(&ledger).is_ok_and(|ledger| ledger.len() > 0);
        wait_for("a turn", || has_begun().then_some(()));
        let (worker, alone) = (below(pid, "chaos-worker"), below(pid, "agentd"));
        let (worker, alone) = (worker.unwrap(), alone.unwrap());
        send(pid, signal);
        // Without its client a turn goes on, and its run ends with it.
        std::fs::write(&gate, "").unwrap();
        let _status = wait_for("it leaves", || client.0.try_wait().unwrap());
        for (what, pid) in [("worker", worker), ("run", alone)] {
            wait_for(&format!("its {what} is gone after {signal}"), || {
                (!is_alive(pid)).then_some(())
            });
        }
    }
}

/// With files of 512 bytes, or 1024 where a block is one.
fn limited(place: &Place, words: &[&str], output: &str) -> Finished {
    let mut command = place.command("/bin/sh");
    let script = format!("ulimit -f 1 && exec \"$@\" {output}");
    command.args(["-c", &script, "sh"]).args(words);
    finish(command, b"")
}

#[test]
fn signals_of_large_files_are_errors_of_writes() {
    let place = Place::new(&Daemon::config(""));
    let pages = place.path("pages");
    let (pages, out) = (pages.to_str().unwrap(), place.path("out"));
    let output = format!("> {}", out.display());
    let long = "a ".repeat(4000);
    for (words, output) in [
        (&[AGENTCTL, "man", "--to", pages][..], ""),
        (&[AGENTCTL, "completions", "bash"], output.as_str()),
        (&[AGENTCTL, "--help"], &output),
        (&[TIMMY, "--provider", "echo", "-p", &long], &output),
    ] {
        let done = limited(&place, words, output);
        assert!(done.code.is_some(), "{words:?} was killed: {done:?}");
    }
    let done = limited(&place, &[AGENTCTL, "man", "--to", pages], "");
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("File too large"), "{done:?}");
}

#[test]
fn signals_of_a_full_log_end_no_server() {
    let (daemon, Some(_curl)) = (Daemon::start(), needs("curl")) else {
        return;
    };
    // Its standard error is a file.
    let http = Http::as_of(&daemon.place, "ulimit -f 1 && exec \"$@\"");
    for _ in 0..100 {
        assert_eq!(http.curl("/v1/jobs?limit=1", &[]).status, 200);
    }
    let log = std::fs::File::open(daemon.path("http.log")).unwrap();
    let shown = BufReader::new(log).lines().count();
    assert!(shown < 100, "{shown} lines: it was not full");
    send(http.pid(), Signal::SIGTERM);
    assert_eq!(http.left().code(), Some(0));
}
