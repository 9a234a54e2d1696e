//! A table of descriptors that others fill: connections get what is left over, so processes start and
//! nobody living is taken for dead.

use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::json;

use crate::support::{AGENTD, Client, Daemon, Place, finish, wait_for};

/// As many as connections would take with nothing kept for anybody else.
const FILES: usize = 600;

/// A daemon with few files.
fn daemon(files: usize) -> Daemon {
    let place = Place::new(&Daemon::config(""));
    let mut sh: Command = place.command("/bin/sh");
    sh.args(["-c", &format!("ulimit -n {files}; exec \"$0\""), AGENTD]);
    place.start_as(sh)
}

#[test]
fn descriptors_connections_beyond_them_come_again() {
    let daemon = daemon(96);
    daemon.ask(r#"{"prompt":"I am here"}"#);
    let mut held: Vec<Client> = Vec::new();
    let mut refusals = Vec::new();
    // The place of who asked before may become free only now.
    while refusals.len() < 20 {
        let mut client = daemon.connect();
        client.offer(r#"{"type":"hello"}"#);
        let answer = client.next().unwrap();
        if answer["type"] == "error" {
            refusals.push(answer);
            continue;
        }
        refusals.clear();
        held.push(client);
        assert!(held.len() <= 96, "no limit");
    }
    let refusal = &refusals[0];
    assert_eq!(refusal["code"], "too-many-connections", "{refusal}");
    assert_eq!(refusal["retryable"], true);
    assert!(held.len() >= 16, "only {} connections", held.len());
    // It is there, and `agentctl` says so: nothing runs beside it.
    for _ in 0..5 {
        for words in [&["status"][..], &["send", "hi"], &["jobs"]] {
            let told = daemon.agentctl(words);
            assert_eq!(told.code, Some(3), "{words:?}: {told:?}");
            assert!(told.stderr.contains("too many connections"), "{told:?}");
            assert!(!told.stderr.contains("not running"), "{told:?}");
        }
    }
    // Who is there is served, a worker can still be started.
    let answer = held[0].request(r#"{"prompt":"a"}"#);
    assert_eq!(answer["type"], "accepted");
    held[0].until("message_end");
    drop(held);
    wait_for("there is room again", || {
        let mut client = daemon.connect();
        client.offer(r#"{"type":"ping"}"#);
        (client.next()?["type"] == "pong").then_some(())
    });
    let lines = daemon.ask(r#"{"prompt":"again"}"#);
    assert_eq!(lines.last().unwrap()["text"], "again", "{lines:?}");
}

#[test]
fn descriptors_suffice_for_all_workers_beside_any_connections() {
    let daemon = daemon(FILES);
    let (mut sender, mut looker) = (daemon.connect(), daemon.connect());
    // They stay between one request and the next.
    for client in [&mut sender, &mut looker] {
        client.request(r#"{"type":"hello"}"#);
    }
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

#[test]
fn descriptors_that_are_too_few_are_named() {
    let place = Place::new(&Daemon::config(""));
    let run = |files: usize, program: &str, args: &[&str]| {
        let mut sh: Command = place.command("/bin/sh");
        let shell = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        sh.args(["-c", &shell, program]).args(args);
        finish(sh, b"{\"type\":\"agents\"}\n")
    };
    // Where exactly each number fails is another question.
    for files in 10..22 {
        let told = run(files, AGENTD, &["--stdio"]);
        let said = told.stdout.clone() + &told.stderr;
        let is_named = said.contains("Too many open files") || said.contains("ulimit -n");
        assert!(is_named || told.code == Some(0), "{files}: {told:?}");
        assert!(!said.contains("unable to open"), "{files}: {told:?}");
        let timmy = said.lines().find(|line| line.contains("\"timmy\""));
        let lost = timmy.is_some_and(|line| line.contains("program `timmy` is not"));
        assert!(!lost, "{files}: {told:?}");
    }
}
