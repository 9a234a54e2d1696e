//! `agentctl stop` and `agentctl restart`: with others that do so, too, and of a daemon that can't be
//! reached.

use nix::sys::signal::Signal;

use crate::start::{Started, daemons};
use crate::support::{AGENTCTL, Daemon, Finished, finish, is_alive, kill};

/// What five of a command say that begin at once.
fn five_at_once(started: &Started, word: &'static str) -> Vec<Finished> {
    let beginning: Vec<_> = (0..5)
        .map(|_| {
            let mut command = started.0.command(AGENTCTL);
            command.arg(word);
            std::thread::spawn(move || finish(command, b""))
        })
        .collect();
    let said = beginning.into_iter();
    said.map(|one| one.join().unwrap()).collect()
}

#[test]
fn restarts_and_stops_at_once_all_succeed() {
    let started = Started::place();
    for _ in 0..3 {
        assert_eq!(started.agentctl(&["start"]).code, Some(0));
        let before = started.pid().expect("a daemon");
        for one in five_at_once(&started, "restart") {
            assert_eq!(one.code, Some(0), "{one:?}");
        }
        let after = started.pid().expect("a daemon");
        assert_ne!(before, after);
        assert_eq!(daemons(&started.0), [after]);
        for one in five_at_once(&started, "stop") {
            assert_eq!(one.code, Some(0), "{one:?}");
        }
        assert_eq!(daemons(&started.0), [0; 0]);
    }
}

#[test]
fn stop_ends_a_daemon_without_a_socket() {
    let started = Started::place();
    assert_eq!(started.agentctl(&["start"]).code, Some(0));
    let pid = started.pid().expect("a daemon");
    std::fs::remove_file(started.0.socket()).unwrap();
    let again = started.agentctl(&["start"]);
    assert_eq!(again.code, Some(69), "{again:?}");
    let why = format!("the daemon (pid {pid}) runs, and its socket");
    assert!(again.stderr.contains(&why), "{again:?}");
    let asked = started.agentctl(&["collect", "j1", "--no-fallback"]);
    assert!(asked.stderr.contains(&why), "{asked:?}");
    let stopped = started.agentctl(&["stop"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(stopped.stdout, "the daemon has stopped\n");
    assert!(!is_alive(pid));
    // What is asked for is so.
    let again = started.agentctl(&["stop"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stdout.starts_with("no daemon runs on "), "{again:?}");
}

#[test]
fn a_daemon_that_hangs_is_said_to_run() {
    let started = Started::place();
    assert_eq!(started.agentctl(&["start"]).code, Some(0));
    let pid = started.pid().expect("a daemon");
    kill(pid, Signal::SIGSTOP);
    for words in [
        &["stop"][..],
        &["attach", "j1", "--no-fallback"],
        &["collect", "j1", "--no-fallback"],
        &["start"],
    ] {
        let said = started.agentctl(words);
        assert_eq!(said.code, Some(69), "{words:?}: {said:?}");
        let why = format!("error: the daemon (pid {pid}) was stopped (SIGSTOP)");
        assert!(said.stderr.starts_with(&why), "{words:?}: {said:?}");
        assert!(
            said.stderr.contains(&format!("`kill -CONT {pid}`")),
            "{said:?}"
        );
    }
    kill(pid, Signal::SIGCONT);
}

#[test]
fn stop_says_what_it_waits_for() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client
        .send(r#"{"type":"send","id":1,"agent":"chaos","text":"chaos:say a;wait-file /nowhere"}"#);
    client.until("message_delta");
    let stop = daemon.agentctl(&["stop", "--deadline", "3"]);
    assert_eq!(stop.code, Some(0), "{stop:?}");
    assert!(
        stop.stderr
            .contains("still stopping: 1 running turn may take 3 s to end"),
        "{stop:?}"
    );
    assert_eq!(stop.stdout, "the daemon has stopped\n");
    // One that is gone at once says nothing of it.
    let at_once = Daemon::start().agentctl(&["stop"]);
    assert_eq!(at_once.stderr, "", "{at_once:?}");
}
