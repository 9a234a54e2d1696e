//! What the daemon takes of memory: the same for long prompts that wait as for short ones, and what a
//! burst took goes back.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::support::{Client, Daemon, wait_for};

const KIB: u64 = 1024;

/// Resident memory of a daemon, in KiB.
fn resident(daemon: &Daemon) -> u64 {
    resident_of(daemon.pid())
}

/// Resident memory of a process, in KiB.
pub fn resident_of(process: impl std::fmt::Display) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// Waits until a daemon takes less than so many KiB.
fn until_below(daemon: &Daemon, most: u64, what: &str) {
    let mut last = 0;
    wait_for(&format!("{what}: below {most} KiB"), || {
        last = resident(daemon);
        (last < most).then_some(())
    });
}

/// Lets 40 turns wait with prompts of so many KiB.
fn queue(daemon: &Daemon, kib: usize) {
    let mut client = daemon.connect();
    client.request(r#"{"type":"hello"}"#);
    for _ in 0..4 {
        let job = json!({"text": "x".repeat(kib * 1024), "expires": 3600});
        let line = json!({"type": "dispatch", "jobs": vec![job; 10]});
        let answer = client.request(&line.to_string());
        assert_eq!(
            answer["jobs"].as_array().map(Vec::len),
            Some(10),
            "{answer}"
        );
    }
}

/// What each of so many waiting turns takes, as `status` tells it.
fn each(daemon: &Daemon, turns: u64) -> u64 {
    let status = daemon.status();
    assert_eq!(status["rpc"]["queued"], turns, "{status}");
    status["memory"]["queued"]["bytes"].as_u64().unwrap() / turns
}

#[test]
fn memory_of_long_prompts_waiting_is_short_ones() {
    let daemon = Daemon::start();
    daemon.ask(r#"{"type":"drain"}"#);
    queue(&daemon, 1);
    let short = resident(&daemon);
    let before = each(&daemon, 40);
    queue(&daemon, 1024);
    // A fifth of the texts alone; of what is on its way from line to disk a part stays for the next.
    until_below(&daemon, short + 8 * KIB, "40 MiB of prompts that wait");
    // Their terms are counted once.
    assert!(each(&daemon, 80).abs_diff(before) < 8);

    let place = daemon.kill();
    let daemon = place.start();
    until_below(&daemon, short + 8 * KIB, "the same after a restart");
    assert!(each(&daemon, 80).abs_diff(before) < 8);
}

#[test]
fn memory_of_closed_connections_is_given_back() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let daemon = Daemon::start();
    daemon.status();
    let before = resident(&daemon);
    let mut clients: Vec<Client> = (0..1500).map(|_| daemon.connect()).collect();
    for client in &mut clients {
        client.send(r#"{"type":"hello","protocol":1,"client":"x"}"#);
    }
    for client in &mut clients {
        client.until("hello");
    }
    let grown = resident(&daemon) - before;
    assert!(grown > 4 * KIB, "{grown} KiB for 1,500 connections");
    drop(clients);
    until_below(&daemon, before + grown / 2, "1,500 closed connections");
}
