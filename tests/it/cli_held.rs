//! Jobs that wait until somebody does something, from the command line: held behind an interrupted turn,
//! or left by a daemon that was killed. Whoever asks is told what to do.

use std::process::Stdio;

use rusqlite::Connection;
use serde_json::json;

use crate::support::{AGENTCTL, AGENTD, Daemon, Place, Reaped, finish, lines, wait_for};

const AFTER: &[&str] = &[
    "send",
    "--agent",
    "chaos",
    "--session",
    "kept",
    "--idempotency-key",
    "after",
    "chaos:say after",
];

/// A command that goes on, with what it says on its standard error to be read.
fn begun(place: &Place, words: &[&str]) -> Reaped {
    let mut command = place.command(AGENTCTL);
    command.args(words).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    Reaped(command.spawn().unwrap())
}

/// A turn runs, another one waits behind it, and the daemon is killed.
fn killed() -> Place {
    let daemon = Daemon::start();
    let hang = [
        "send",
        "--agent",
        "chaos",
        "--session",
        "kept",
        "chaos:hang",
    ];
    let mut waiting = Vec::new();
    for (words, jobs) in [(&hang as &[&str], 1), (AFTER, 2)] {
        waiting.push(begun(&daemon.place, words));
        wait_for("it is accepted", || {
            let listed = daemon.agentctl(&["jobs", "--json"]).stdout;
            (listed.matches("\"job\":").count() == jobs).then_some(())
        });
    }
    drop(waiting);
    daemon.kill()
}

#[test]
fn key_of_a_left_job_names_the_start() {
    let place = killed();
    let again = place.agentctl(AFTER);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(
        again
            .stderr
            .contains("j2 has the key and waits for a daemon"),
        "{again:?}"
    );
    assert!(again.stderr.contains("`agentctl start`"), "{again:?}");
}

#[test]
fn held_job_says_how_it_goes_on() {
    let daemon = killed().start();
    let how = "`agentctl sessions resume kept` runs it, `agentctl abort j2` ends it";
    for words in [&["attach", "j2"] as &[&str], AFTER] {
        let mut asked = begun(&daemon.place, words);
        let said = lines(asked.0.stderr.take().unwrap());
        wait_for("it says how", || {
            said.try_iter().any(|line| line.contains(how)).then_some(())
        });
    }
    let ahead = ["send", "--agent", "chaos", "-s", "kept", "chaos:say ahead"];
    let ahead = daemon.agentctl(&ahead);
    assert!(
        ahead.stderr.contains("j2 stays held behind") && ahead.stderr.contains(how),
        "{ahead:?}"
    );
    let mut waits = begun(&daemon.place, &["attach", "j2"]);
    let resumed = daemon.agentctl(&["sessions", "resume", "kept"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let ended = wait_for("it runs", || waits.0.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}

/// What the store says of its only job.
fn stored(place: &Place) -> (String, i64, Option<String>) {
    let store = Connection::open(place.path("state/agentd.db")).unwrap();
    let asked = "SELECT state, attempt, jobs.instance FROM jobs";
    store
        .query_row(asked, [], |row| {
            <(String, i64, Option<String>)>::try_from(row)
        })
        .unwrap()
}

#[test]
fn past_takes_up_nothing_of_a_killed_daemon() {
    let place = Place::new(&Daemon::config(""));
    let ledger = place.path("ledger");
    let ledger = ledger.to_str().unwrap();
    let daemon = place.start_with(&[("CHAOS_LEDGER", ledger)]);
    let gate = daemon.path("gate");
    let text = format!("chaos:ledger;wait-file {};say done", gate.display());
    let send = json!({"type": "send", "agent": "chaos", "session": "kept", "retry": "auto",
        "text": text});
    let mut client = daemon.connect();
    client.send(&send.to_string());
    client.until("accepted");
    let runs = |place: &Place| {
        let ledger = std::fs::read_to_string(place.path("ledger")).unwrap_or_default();
        ledger.lines().count()
    };
    wait_for("it runs", || (runs(&daemon.place) == 1).then_some(()));
    let place = daemon.kill();
    let before = stored(&place);
    assert_eq!((&*before.0, before.1), ("running", 1));
    let config = std::fs::read_to_string(place.path("config.toml")).unwrap();
    // Where it can't be read, a copy of the store is.
    for config in [&*config, "broken"] {
        std::fs::write(place.path("config.toml"), config).unwrap();
        for words in [
            &["jobs"] as &[&str],
            &["jobs", "j1"],
            &["collect", "j1", "--timeout", "0"],
            &["attach", "kept"],
            &["history", "kept"],
            &["ps"],
            &["export"],
        ] {
            place.agentctl(words);
        }
        let mut past = place.command(AGENTD);
        past.args(["--stdio", "--past"]);
        let asked = [
            r#"{"type":"subscribe","after":0,"id":1}"#,
            r#"{"type":"collect","jobs":["j1"],"timeout":1,"id":2}"#,
            r#"{"type":"abort","session":"kept","id":3}"#,
            r#"{"type":"session.resume","session":"kept","id":4}"#,
            r#"{"type":"send","session":"kept","agent":"chaos","text":"chaos:ledger","id":5}"#,
            r#"{"type":"unsubscribe","id":6}"#,
            "",
        ];
        let said = finish(past, asked.join("\n").as_bytes());
        let refusals = said.stdout.matches("only reads what is stored").count();
        assert_eq!(refusals, 3, "{said:?}");
        assert_eq!(stored(&place), before);
        assert_eq!(runs(&place), 1, "it ran once");
    }
    std::fs::write(place.path("config.toml"), config).unwrap();
    std::fs::write(&gate, "").unwrap();
    let daemon = place.start_with(&[("CHAOS_LEDGER", ledger)]);
    let ended = daemon.agentctl(&["collect", "j1"]);
    assert!(ended.stdout.contains("done"), "{ended:?}");
    assert_eq!(runs(&daemon.place), 2, "the next daemon runs it again");
}
