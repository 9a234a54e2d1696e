//! `agentctl` as somebody at a terminal sees it: the line that moves, and what stands below an
//! answer.

use std::os::unix::net::UnixListener;
use std::sync::mpsc::sync_channel;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::screen::{Peer, at_terminal, ended, said_at_terminal};
use crate::support::{DEADLINE, Daemon, Place, kill};

#[test]
fn terminal_spinner_says_what_a_turn_does() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let (seen, next) = sync_channel::<()>(1);
    let served = std::thread::spawn(move || {
        let (mut peer, _) = Peer::accept(&listener);
        let id = peer.next()["id"].clone();
        let job = |kind: &str| json!({"type": kind, "id": id, "job": "j1"});
        let with = |kind: &str, more: serde_json::Value| {
            let mut line = job(kind);
            let members = line.as_object_mut().unwrap();
            members.extend(more.as_object().unwrap().clone());
            line
        };
        let accepted = json!({"session": "s", "agent": "pi", "running": true});
        for line in [
            with("accepted", accepted),
            with(
                "tool_start",
                json!({"tool_call_id": "c", "name": "bash",
                    "input": {"command": "cargo test"}, "read_only": false}),
            ),
            with(
                "tool_end",
                json!({"tool_call_id": "c", "ok": true, "output": "", "truncated": false,
                    "duration_ms": 1}),
            ),
            with(
                "thinking_delta",
                json!({"message": 0, "offset": 0, "text": "hm"}),
            ),
        ] {
            peer.say(line);
            next.recv_timeout(DEADLINE).unwrap();
        }
        peer.end(&id);
    });
    let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
    for shown in [
        "pi is working, ",
        "running: bash cargo test, ",
        "pi is working, ",
        "thinking, ",
    ] {
        terminal.until(shown);
        seen.send(()).unwrap();
    }
    served.join().unwrap();
    assert_eq!(ended(&mut child), (Some(0), "done\n".to_owned()));
    let all = terminal.rest();
    // Without a locale there is nothing but ASCII.
    assert!(all.is_ascii(), "{all:?}");
}

#[test]
fn terminal_spinner_says_what_is_waited_for() {
    let chaos = crate::support::chaos_worker();
    let slow = format!(
        "[agents.slow]\nkind = \"jsonl\"\ncommand = [{chaos:?}, \"--slow-start\", \"3000\"]\n"
    );
    let daemon = Daemon::with(&slow);
    let place = &daemon.place;
    let (mut terminal, mut child) = at_terminal(place, &["send", "--agent", "slow", "hi"]);
    terminal.until("starting slow, ");
    assert_eq!(ended(&mut child).0, Some(0));

    let gate = daemon.path("gate");
    let mut busy = daemon.connect();
    let text = format!("chaos:say x;wait-file {}", gate.display());
    let send = json!({"type": "send", "agent": "chaos", "session": "s", "text": text});
    busy.send(&send.to_string());
    busy.until("message_delta");
    let (mut terminal, mut child) = at_terminal(place, &["send", "-s", "s", "hi"]);
    terminal.until("queued, 1 before it, ");
    std::fs::write(gate, "").unwrap();
    assert_eq!(ended(&mut child), (Some(0), "hi\n".to_owned()));

    daemon.agentctl(&["drain"]);
    let (mut terminal, mut child) = at_terminal(place, &["send", "-s", "s", "hi"]);
    terminal.until("draining: no turn starts, ");
    daemon.agentctl(&["undrain"]);
    assert_eq!(ended(&mut child), (Some(0), "hi\n".to_owned()));
}

#[test]
fn terminal_spinner_goes_with_its_daemon() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let (seen, next) = sync_channel::<()>(1);
    let socket = place.socket();
    let served = std::thread::spawn(move || {
        let (mut peer, _) = Peer::accept(&listener);
        let id = peer.next()["id"].clone();
        peer.say(
            json!({"type": "accepted", "id": id, "job": "j1", "session": "s", "agent": "pi",
            "running": true}),
        );
        next.recv_timeout(DEADLINE).unwrap();
        std::fs::remove_file(socket).unwrap();
    });
    let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
    terminal.until("pi is working, ");
    seen.send(()).unwrap();
    served.join().unwrap();
    assert_eq!(ended(&mut child).0, Some(75));
    let all = terminal.rest();
    let (moving, said) = all.split_once("error: ").expect("an error");
    assert!(moving.ends_with("\r\u{1b}[K"), "{all:?}");
    assert!(!said.contains("is working"), "{all:?}");
}

#[test]
fn terminal_footer_says_how_to_go_on() {
    let daemon = Daemon::start();
    let shown = |args: &[&str]| {
        let (terminal, mut child) = at_terminal(&daemon.place, args);
        let (code, said) = ended(&mut child);
        assert_eq!(code, Some(0), "{args:?}");
        (terminal.rest(), said)
    };
    let (seen, said) = shown(&["send", "--agent", "chaos", "hi"]);
    assert_eq!(said, "hi\n");
    assert!(seen.contains("\u{1b}[2mchaos, "), "{seen:?}");
    let how = "session s1, go on: agentctl send -c \"...\"\u{1b}[0m";
    assert!(seen.contains(how), "{seen:?}");
    let (seen, _) = shown(&["send", "-s", "main", "hi"]);
    assert!(seen.contains("send -s main \"...\""), "{seen:?}");
    let (seen, _) = shown(&["send", "-c", "hi"]);
    assert!(seen.contains("send -c \"...\""), "{seen:?}");
    for args in [&["send", "-q", "hi"][..], &["send", "--json", "hi"]] {
        let (seen, _) = shown(args);
        assert!(!seen.contains("go on"), "{seen:?}");
    }
    let piped = daemon.agentctl(&["send", "--agent", "chaos", "hi"]);
    assert_eq!(piped.stderr, "");
}

#[test]
fn terminal_footer_says_that_a_turn_was_cancelled() {
    let daemon = Daemon::start();
    let text = format!("chaos:wait-file {}", daemon.path("gate").display());
    let args = ["send", "--agent", "chaos", &text];
    let (mut terminal, mut child) = at_terminal(&daemon.place, &args);
    terminal.until("chaos is working");
    kill(child.0.id(), Signal::SIGINT);
    assert_eq!(ended(&mut child).0, Some(130));
    let seen = terminal.rest();
    assert!(seen.contains("\u{1b}[2mcancelled j1 after "), "{seen:?}");
    let how = ", chaos, session s1, go on: agentctl send -c \"...\"\u{1b}[0m";
    assert!(seen.contains(how), "{seen:?}");
    assert_eq!(seen.matches("cancelled").count(), 1, "{seen:?}");
}

#[test]
fn terminal_attach_counts_from_the_turns_start() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let ago = |seconds: u64| {
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
        let then = then.duration_since(std::time::UNIX_EPOCH).unwrap();
        agentd_core::rfc3339(i64::try_from(then.as_millis()).unwrap())
    };
    let row = json!({"job": "j1", "session": "s", "agent": "pi", "state": "running", "attempt": 1,
        "preview": "", "accepted_at": ago(9 * 3600), "started_at": ago(2 * 3600 + 60)});
    let (seen, next) = sync_channel::<()>(1);
    let served = std::thread::spawn(move || {
        let (mut peer, _) = Peer::accept(&listener);
        let asked = peer.request();
        peer.say(json!({"type": "jobs", "id": asked["id"], "ok": true, "jobs": [row]}));
        let id = peer.next()["id"].clone();
        peer.say(json!({"type": "running", "id": id, "job": "j1", "attempt": 1}));
        next.recv_timeout(DEADLINE).unwrap();
        peer.end(&id);
    });
    let (mut terminal, mut child) = at_terminal(&place, &["attach", "j1"]);
    terminal.until("is working, 2 h ");
    seen.send(()).unwrap();
    served.join().unwrap();
    assert_eq!(ended(&mut child), (Some(0), "done\n".to_owned()));
}

#[test]
fn terminal_is_notified_of_a_long_turns_end() {
    let daemon = Daemon::start();
    let notified = |args: &[&str]| {
        let words = [&["send", "--agent", "chaos", "hi"], args].concat();
        let (terminal, mut child) = at_terminal(&daemon.place, &words);
        assert_eq!(ended(&mut child).0, Some(0));
        let seen = terminal.rest();
        seen.contains("\u{1b}]9;agentctl: chaos is done\u{7}")
    };
    assert!(notified(&["--notify=0"]));
    assert!(!notified(&["--notify"]));
    assert!(!notified(&[]));
}

#[test]
fn terminal_shows_how_far_collected_jobs_are() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let slow = format!("chaos:wait-file {};say slow", gate.display());
    let args = ["dispatch", "--agent", "chaos", "--collect", "quick", &slow];
    let (mut terminal, mut child) = at_terminal(&daemon.place, &args);
    terminal.until("1 of 2 done, 1 running, ");
    // Who leaves hears that the jobs don't.
    let (mut other, mut leaves) = at_terminal(&daemon.place, &["collect", "j1", "j2"]);
    other.until("1 of 2 done, 1 running, ");
    kill(leaves.0.id(), Signal::SIGINT);
    let printed = "j1 done (chaos)\nquick\n".to_owned();
    assert_eq!(ended(&mut leaves), (Some(130), printed));
    let said = other.rest();
    assert!(said.contains("`agentctl collect j2` waits"), "{said:?}");
    std::fs::write(gate, "").unwrap();
    let (code, said) = ended(&mut child);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "j1 done (chaos)\nquick\nj2 done (chaos)\nslow\n")
    );
}

#[test]
fn terminal_has_no_log_of_a_run_alone() {
    // Else it is asked on the terminal whether a daemon shall be started.
    let place = Place::new(&Daemon::config("[client]\nstart = \"never\"\n"));
    let args = ["send", "--agent", "chaos", "chaos:exit 3"];
    let (terminal, mut child) = at_terminal(&place, &args);
    assert_eq!(ended(&mut child).0, Some(1));
    let seen = terminal.rest();
    assert!(seen.contains("error: "), "{seen:?}");
    for log in ["WARN", "ERROR", "agentd_core"] {
        assert!(!seen.contains(log), "{seen:?}");
    }
}

#[test]
fn terminal_note_names_a_closed_sessions_past() {
    let daemon = Daemon::start();
    let said = |words: &[&str]| said_at_terminal(&daemon.place, words);
    let note = "the session `s` was closed and begins anew";
    let send = ["send", "-s", "s", "--agent", "chaos", "chaos:say haystack"];
    assert!(!said(&send).contains(note));
    assert!(!said(&send).contains(note));
    let closed = daemon.agentctl(&["sessions", "close", "s"]);
    assert_eq!(closed.code, Some(0), "{closed:?}");
    let seen = said(&send);
    assert!(seen.contains(note), "{seen:?}");
    assert!(!said(&send).contains(note));
    // What it points to is there.
    let found = daemon.agentctl(&["sessions", "search", "haystack"]);
    assert!(found.stdout.contains("j1"), "{found:?}");
    let help = daemon.agentctl(&["sessions", "--help"]).stdout;
    assert!(help.contains("their history and jobs stay"), "{help}");
}

#[test]
fn terminal_tells_of_a_session_that_is_new() {
    let daemon = Daemon::start();
    let said = |words: &[&str]| {
        let (terminal, mut child) = at_terminal(&daemon.place, words);
        assert_eq!(ended(&mut child).0, Some(0), "{words:?}");
        terminal.rest()
    };
    let new = "session `trip` is new";
    assert!(said(&["send", "-s", "trip", "hi"]).contains(new));
    assert!(!said(&["send", "-s", "trip", "hi"]).contains(new));
    assert!(!said(&["send", "hi"]).contains("is new"));
}
