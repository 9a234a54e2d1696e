//! A daemon that isn't there yet and is about to be: clients wait for it, and no run without it
//! begins beside it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{AGENTCTL, AGENTD, Daemon, Place, Reaped, kill, wait_for};

/// What the lock says.
fn state(place: &Place) -> String {
    let lock = std::fs::read(place.path("state/daemon.lock")).unwrap_or_default();
    let lock: Value = serde_json::from_slice(&lock).unwrap_or_default();
    lock["state"].as_str().unwrap_or_default().to_owned()
}

fn sending(place: &Place) -> Reaped {
    let mut command: Command = place.command(AGENTCTL);
    command.args(["send", "--json", "one two"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Reaped(command.spawn().unwrap())
}

/// Waits for so long, unless it ends before.
fn stays(child: &mut Child, within: Duration) {
    let begun = Instant::now();
    wait_for("its time", || {
        let over = child.try_wait().unwrap().is_some() || begun.elapsed() >= within;
        over.then_some(())
    });
}

/// What the final line says of who served it.
fn served_by(mut sending: Reaped) -> Value {
    let output = sending.0.stdout.take().unwrap();
    let lines: Vec<Value> = crate::support::lines(output)
        .iter()
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    lines.last().expect("a final line")["served_by"].clone()
}

#[test]
fn starting_daemon_is_waited_for_without_a_limit() {
    let place = Place::new(&Daemon::config(""));
    // It is opened when nobody keeps it locked, as after a copy or a migration.
    let holding = place.held_store();
    let daemon = place.start();
    assert_eq!(state(&daemon.place), "starting");
    let mut sending = sending(&daemon.place);
    // Longer than a daemon that serves may be silent.
    stays(&mut sending.0, Duration::from_millis(2600));
    holding.execute_batch("ROLLBACK").unwrap();
    assert_eq!(served_by(sending), "daemon");
    assert_eq!(state(&daemon.place), "running");
}

#[test]
fn restarting_daemon_is_waited_for_when_gone() {
    let daemon = Daemon::start();
    let stop = daemon.ask(r#"{"type":"daemon.stop","restart":true}"#);
    assert_eq!(stop[0]["ok"], true);
    let (place, _) = daemon.left();
    assert_eq!(state(&place), "restarting");
    let mut sending = sending(&place);
    stays(&mut sending.0, Duration::from_millis(500));
    assert!(sending.0.try_wait().unwrap().is_none(), "it ran without it");
    let daemon = place.start();
    assert_eq!(served_by(sending), "daemon");
    // Whoever came next said so: nothing is left of the promise when it is killed.
    let place = daemon.kill();
    assert_eq!(state(&place), "running");
    assert_eq!(served_by(self::sending(&place)), "oneshot");
}

#[test]
fn stopped_daemon_is_not_waited_for() {
    let daemon = Daemon::start();
    assert_eq!(daemon.ask(r#"{"type":"daemon.stop"}"#)[0]["ok"], true);
    let (place, _) = daemon.left();
    assert_eq!(state(&place), "stopping");
    assert_eq!(served_by(sending(&place)), "oneshot");
}

#[test]
fn starting_is_over_with_a_failed_daemon() {
    let place = Place::new(&Daemon::config(""));
    let holding = place.held_store();
    let mut command: Command = place.command(AGENTD);
    let mut daemon = Reaped(command.stderr(Stdio::null()).spawn().unwrap());
    wait_for("it starts", || (state(&place) == "starting").then_some(()));
    daemon.0.kill().unwrap();
    daemon.0.wait().unwrap();
    holding.execute_batch("ROLLBACK").unwrap();
    drop(holding);
    assert_eq!(served_by(sending(&place)), "oneshot");
}

#[test]
fn starting_daemon_is_told_to_who_waits() {
    let place = Place::new(&Daemon::config(""));
    let holding = place.held_store();
    let daemon = place.start();
    assert_eq!(state(&daemon.place), "starting");
    // It gives up by itself when the store stays locked for long.
    kill(daemon.pid(), Signal::SIGSTOP);
    let begun = Instant::now();
    let sent = daemon.agentctl(&["send", "hi", "--wait", "6s"]);
    let took = begun.elapsed();
    assert_eq!(sent.code, Some(69), "{sent:?}");
    assert!(took < Duration::from_secs(9), "{took:?}");
    let waits = format!("waiting for the daemon (pid {})", daemon.pid());
    assert!(sent.stderr.contains(&waits), "{sent:?}");
    assert!(sent.stderr.contains("no longer waiting"), "{sent:?}");
    assert!(sent.stderr.contains("nothing was run"), "{sent:?}");
    holding.execute_batch("ROLLBACK").unwrap();
    drop(holding);
    kill(daemon.pid(), Signal::SIGCONT);
    daemon.until("it serves", |status| {
        (status["state"] == "ready").then_some(())
    });
    let jobs = daemon.agentctl(&["jobs", "--json"]).stdout;
    assert!(!jobs.contains("\"job\""), "nothing was run: {jobs}");
}
