//! A table of descriptors that others fill: connections get what is left over, so processes start and
//! nobody living is taken for dead.

use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::json;

use crate::support::{AGENTD, Client, Daemon, Place, wait_for};

/// As many as connections would take with nothing kept for anybody else.
const FILES: usize = 600;

/// A daemon with few files, and a client that came before the others.
fn daemon() -> Daemon {
    let place = Place::new(&Daemon::config(""));
    let mut sh: Command = place.command("/bin/sh");
    sh.args(["-c", &format!("ulimit -n {FILES}; exec \"$0\""), AGENTD]);
    place.start_as(sh)
}

#[test]
fn descriptors_suffice_for_all_workers_beside_any_connections() {
    let daemon = daemon();
    let (mut sender, mut looker) = (daemon.connect(), daemon.connect());
    let mut look = || looker.request(r#"{"type":"status","workers":true}"#);
    let flood: Vec<UnixStream> = (0..FILES)
        .filter_map(|_| UnixStream::connect(daemon.place.socket()).ok())
        .collect();
    // Those that were let in have been when one was turned away.
    wait_for("one too many is told", || {
        let mut one = Client::new(Client::try_connect(&daemon.place.socket())?);
        let line = one.next()?;
        (line["code"] == "too-many-connections").then_some(())
    });
    let status = look();
    assert_eq!(status["daemon"]["file_limit"], FILES);
    let open = status["daemon"]["open_files"].as_u64().unwrap();
    assert!(
        100 < open && open < FILES as u64 / 2,
        "{open} files are open"
    );
    let gate = daemon.path("gate");
    for number in 0..16 {
        let prompt = format!("chaos:wait-file {}", gate.display());
        let send = json!({"type": "send", "id": number, "agent": "chaos",
            "session": format!("s{number}"), "prompt": prompt});
        sender.send(&send.to_string());
    }
    wait_for("each has a process", || {
        let status = look();
        let workers = status["workers"].as_array()?;
        let live = workers.iter().filter(|worker| worker["live"] == true);
        (live.count() == 16).then_some(())
    });
    std::fs::write(gate, "").unwrap();
    for _ in 0..16 {
        let last = sender.last();
        assert_eq!(last["type"], "message_end", "{last}");
    }
    let log = daemon.log();
    assert!(!log.contains("Too many open files"), "{log}");
    drop(flood);
}
