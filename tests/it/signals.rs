//! Signals: those that mean nothing change nothing, the others end the daemon in order, and workers
//! begin with none of them ignored, whoever started it.

use std::process::Command;
use std::time::Duration;

use nix::libc;
use serde_json::{Value, json};

use crate::support::{AGENTD, Client, Daemon, Place, finish, is_alive, poll, wait_for};

fn send_signal(pid: u32, number: i32) {
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: a signal to a process that this test started.
    #[expect(unsafe_code, reason = "nix doesn't know the real-time signals")]
    let sent = unsafe { libc::kill(pid, number) };
    assert_eq!(sent, 0, "signal {number}");
}

/// A turn that runs until the file is there.
fn a_turn(daemon: &Daemon, gate: &str) -> (Client, u32) {
    let mut client = daemon.connect();
    let gate = daemon.path(gate);
    let prompt = format!("chaos:say up;wait-file {}", gate.display());
    let send = serde_json::json!({"type": "send", "agent": "chaos", "prompt": prompt});
    client.send(&send.to_string());
    client.until("message_delta");
    let pid = daemon.until("a worker", worker);
    (client, pid)
}

fn worker(status: &Value) -> Option<u32> {
    let pid = status["workers"].as_array()?.first()?["pid"].as_u64()?;
    u32::try_from(pid).ok()
}

#[test]
fn signals_without_meaning_end_neither_daemon_nor_turn() {
    let daemon = Daemon::start();
    let (mut client, pid) = a_turn(&daemon, "gate");
    #[cfg_attr(not(target_os = "linux"), expect(unused_mut, reason = "more on Linux"))]
    let mut numbers = vec![
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGXFSZ,
        libc::SIGPIPE,
    ];
    #[cfg(target_os = "linux")]
    {
        numbers.extend([libc::SIGPWR, libc::SIGSTKFLT]);
        numbers.extend(libc::SIGRTMIN()..=libc::SIGRTMAX());
    }
    for number in numbers {
        send_signal(daemon.pid(), number);
        assert_eq!(daemon.status()["ok"], true, "after signal {number}");
    }
    assert!(is_alive(pid));
    std::fs::write(daemon.path("gate"), "").unwrap();
    assert_eq!(client.last()["type"], "message_end");
    assert!(
        daemon
            .log()
            .contains("SIGHUP: the configuration is looked at"),
        "{}",
        daemon.log()
    );
}

#[test]
fn signals_to_stop_let_turns_end() {
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGXCPU] {
        let daemon = Daemon::start();
        let (mut client, pid) = a_turn(&daemon, "gate");
        send_signal(daemon.pid(), number);
        std::fs::write(daemon.path("gate"), "").unwrap();
        assert_eq!(client.last()["type"], "message_end", "signal {number}");
        let (_place, status) = daemon.left();
        assert_eq!(status.code(), Some(0), "signal {number}");
        wait_for("the worker is gone", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn signals_ignored_by_the_starter_reach_workers() {
    let place = Place::new(&Daemon::config(""));
    let mut sh: Command = place.command("/bin/sh");
    // As `nohup`, a script's `&` and a careless launcher leave it.
    let script = "trap '' HUP INT QUIT TERM USR1 CHLD TSTP; exec \"$0\"";
    sh.args(["-c", script, AGENTD]);
    let daemon = place.start_as(sh);
    let (mut client, pid) = a_turn(&daemon, "gate");
    let told = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = |name: &str| {
        let line = told.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    };
    // The agent's own library ignores SIGPIPE; 32 and 33 the C library keeps for itself.
    let of_its_own = 1 << (libc::SIGPIPE - 1) | 0b11 << 31;
    assert_eq!(
        (mask("SigBlk:"), mask("SigIgn:") & !of_its_own),
        (0, 0),
        "{told}"
    );
    // And the daemon still hears of its children's ends and of a stop.
    std::fs::write(daemon.path("gate"), "").unwrap();
    assert_eq!(client.last()["type"], "message_end");
    send_signal(daemon.pid(), libc::SIGTERM);
    let (_place, status) = daemon.left();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn signals_hangup_ends_no_daemon_that_starts() {
    let place = Place::new(&Daemon::config(""));
    // It has its socket, and waits for its store.
    let holding = place.held_store();
    let daemon = place.start();
    send_signal(daemon.pid(), libc::SIGHUP);
    holding.execute_batch("ROLLBACK").unwrap();
    assert_eq!(daemon.status()["ok"], true);
}

#[test]
fn signals_hangup_takes_no_broken_configuration() {
    let daemon = Daemon::start();
    daemon
        .place
        .configure("default_agent = \"chaos\"\n[agents.chaos]\nkind =\n");
    send_signal(daemon.pid(), libc::SIGHUP);
    wait_for("it was heard", || {
        daemon
            .log()
            .contains("the newest configuration does not count")
            .then_some(())
    });
    // The agents are those that it has read.
    let (mut client, _pid) = a_turn(&daemon, "gate");
    std::fs::write(daemon.path("gate"), "").unwrap();
    assert_eq!(client.last()["type"], "message_end");
    let place = daemon.kill();
    let refused = finish(place.command(AGENTD), b"");
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(refused.stderr.contains("config.toml:3:"), "{refused:?}");
}

#[test]
fn daemon_stopped_meanwhile_ends_nobodys_turn() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let gate = daemon.path("gate");
    let prompt = format!("chaos:say up;wait-file {};say done", gate.display());
    let send = json!({"type": "send", "agent": "chaos", "prompt": prompt, "timeout": 1});
    client.send(&send.to_string());
    client.until("message_delta");
    let pid = daemon.pid();
    send_signal(pid, libc::SIGSTOP);
    std::fs::write(gate, "").unwrap();
    // Past the turn's time, and longer than a busy machine is late.
    assert_eq!(poll(Duration::from_secs(3), || None::<()>), None);
    send_signal(pid, libc::SIGCONT);
    let last = client.last();
    assert_eq!(last["type"], "message_end", "{last}");
}
