//! As many turns as may wait: what fails, expires or is aborted at once has its end, each of it, and
//! none is forgotten by the daemon while the store has it.

use nix::sys::signal::Signal;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::support::{Client, Daemon, Place, kill, wait_for};

/// Of one `dispatch`, and of one session.
const BATCH: usize = 250;
/// More than the orders that the store's queue had room for when they were thrown away.
const TURNS: usize = 10_000;

fn place() -> Place {
    let agents =
        "[agents.broken]\nkind = \"jsonl\"\ncommand = [\"/bin/sh\", \"-c\", \"exit 78\"]\n";
    Place::new(&Daemon::config(agents))
}

/// What a turn does that runs: it leaves a line in the ledger.
const NOTES_ITSELF: &str = "chaos:ledger a";

fn start(place: Place) -> Daemon {
    let ledger = place.path("ledger");
    place.start_with(&[("CHAOS_LEDGER", ledger.to_str().unwrap())])
}

fn ran(place: &Place) -> bool {
    place.path("ledger").exists()
}

fn greeted(daemon: &Daemon) -> Client {
    let mut client = daemon.connect();
    client.request(r#"{"type":"hello"}"#);
    client
}

/// Hands in `TURNS` turns, each batch with what `of` adds to its turns.
fn hand_in(daemon: &Daemon, of: impl Fn(usize) -> Value) {
    let mut client = greeted(daemon);
    for batch in 0..TURNS / BATCH {
        let line = json!({"type": "dispatch", "jobs": vec![of(batch); BATCH]});
        let answer = client.request(&line.to_string());
        assert_eq!(answer["ok"], true, "{answer}");
    }
}

/// How many jobs the store has in this state.
fn stored(place: &Place, state: &str) -> usize {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let store = Connection::open_with_flags(place.path("state/agentd.db"), flags).unwrap();
    let count = "SELECT count(*) FROM jobs WHERE state = ?1";
    let count: i64 = store.query_row(count, [state], |row| row.get(0)).unwrap();
    usize::try_from(count).unwrap()
}

fn until_stored(place: &Place, state: &str) {
    let mut last = 0;
    wait_for(&format!("{TURNS} are {state}"), || {
        last = stored(place, state);
        (last == TURNS).then_some(())
    });
}

#[test]
fn limits_of_failing_turns_leave_none_behind() {
    let daemon = place().start();
    daemon.ask(r#"{"type":"drain"}"#);
    hand_in(&daemon, |_| json!({"agent": "broken", "text": "x"}));
    assert_eq!(stored(&daemon.place, "queued"), TURNS);
    daemon.ask(r#"{"type":"undrain"}"#);
    until_stored(&daemon.place, "failed");
    let status = daemon.status();
    assert_eq!(status["rpc"]["queued"], 0, "{status}");
    assert_eq!(status["state"], "ready", "{status}");
}

#[test]
fn limits_of_expiring_turns_leave_none_at_start() {
    let daemon = place().start();
    daemon.ask(r#"{"type":"drain"}"#);
    hand_in(
        &daemon,
        |_| json!({"agent": "chaos", "text": "chaos:say a", "expires": 1}),
    );
    let place = daemon.kill();
    until_expired(&place);
    let daemon = start(place);
    until_stored(&daemon.place, "failed");
    assert!(!ran(&daemon.place));
    // A turn that runs would have been seen.
    daemon.ask(&json!({"type": "send", "agent": "chaos", "text": NOTES_ITSELF}).to_string());
    assert!(ran(&daemon.place));
}

/// The last of them was handed in more than a second ago.
fn until_expired(place: &Place) {
    let written = std::fs::metadata(place.path("state/agentd.db-wal")).unwrap();
    let written = written.modified().unwrap();
    wait_for("a second is over", || {
        let age = written.elapsed().ok()?;
        (age.as_millis() > 1100).then_some(())
    });
}

#[test]
fn limits_of_aborted_turns_hold_over_a_kill() {
    let daemon = start(place());
    daemon.ask(r#"{"type":"drain"}"#);
    hand_in(
        &daemon,
        |batch| json!({"agent": "chaos", "text": NOTES_ITSELF, "session": format!("s{batch}")}),
    );
    let mut client = greeted(&daemon);
    let mut aborted = 0;
    for batch in 0..TURNS / BATCH {
        let line = json!({"type": "abort", "session": format!("s{batch}"), "queued": true});
        let answer = client.request(&line.to_string());
        assert_eq!(answer["ok"], true, "{answer}");
        aborted += answer["jobs"].as_array().map_or(0, Vec::len);
    }
    assert_eq!(aborted, TURNS);
    kill(daemon.pid(), Signal::SIGKILL);
    let (place, _killed) = daemon.left();
    // Nobody drains this one: what was not aborted for good runs now.
    let daemon = start(place);
    until_stored(&daemon.place, "cancelled");
    assert!(!ran(&daemon.place));
}
