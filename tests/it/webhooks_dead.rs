//! Many deliveries that were given up: looked at page by page, and sent again.

use std::collections::BTreeSet;

use rusqlite::Connection;
use serde_json::Value;

use crate::support::{Daemon, Finished, Place, wait_for};
use crate::webhooks::{Hook, add};

/// More than a page of the protocol.
const MANY: usize = 700;

/// A store with deliveries that were given up: of two URLs by turns, and one that was a try.
fn given_up(hook: &Hook) -> Place {
    let daemon = Daemon::start();
    // It listens before its tables are made.
    daemon.status();
    add(&daemon.place, &format!("http://127.0.0.1:{}/", hook.port));
    let place = daemon.kill();
    let store = Connection::open(place.path("state/agentd.db")).unwrap();
    let insert = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2)
        INSERT INTO webhooks (id, job, url, host, body, state, attempts, created_at, due_at, last_at)
        SELECT printf('evt_%d', n), nullif(n, 1), ?1 || CASE n % 2 WHEN 1 THEN 'a' ELSE 'b' END,
            '127.0.0.1', '{}', 'dead', 10, unixepoch() * 1000, 0, unixepoch() * 1000 FROM n";
    let rows = i64::try_from(MANY).unwrap();
    let url = format!("http://127.0.0.1:{}/", hook.port);
    assert_eq!(store.execute(insert, (url, rows)), Ok(MANY));
    place
}

fn ids(pages: &Finished) -> Vec<String> {
    let lines = pages.stdout.lines();
    let pages = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows = pages.flat_map(|page| page["deliveries"].as_array().unwrap().clone());
    rows.map(|row| row["webhook"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn webhooks_dead_are_seen_and_sent_again() {
    let hook = Hook::new();
    let daemon = given_up(&hook).start();
    let list = |words: &[&str]| {
        let listed = daemon.agentctl(&[&["webhook", "list", "--state", "dead"], words].concat());
        assert_eq!(listed.code, Some(0), "{listed:?}");
        listed
    };
    let all = ids(&list(&["--limit", "10000", "--json"]));
    assert_eq!(all.len(), MANY);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), MANY);
    // What a list that was cut off says leads to the rest.
    let first = list(&["--limit", "600"]);
    assert!(first.stdout.contains("evt_101 ") && !first.stdout.contains("evt_100 "));
    let before = first.stderr.split('`').nth(1).expect("how it goes on");
    assert!(before.starts_with("--before "), "{first:?}");
    let words: Vec<&str> = before
        .split(' ')
        .chain(["--limit", "600", "--json"])
        .collect();
    assert_eq!(ids(&list(&words)), all[600..]);

    let replay = |words: &[&str]| {
        let replayed = daemon.agentctl(&[&["webhook", "replay", "--dead"], words].concat());
        assert_eq!(replayed.code, Some(0), "{replayed:?}");
        replayed.stdout
    };
    let prefix = format!("http://127.0.0.1:{}/b", hook.port);
    let said = replay(&["--url", &prefix]);
    assert_eq!(said, "350 deliveries go out again now\n");
    let mut told: BTreeSet<String> = (0..350).map(|_| hook.next().id().to_owned()).collect();
    assert_eq!(told.len(), 350);
    // The try tells nothing, so it stays.
    assert_eq!(replay(&[]), "349 deliveries go out again now\n");
    told.extend((0..349).map(|_| hook.next().id().to_owned()));
    assert_eq!(told.len(), 699);
    wait_for("all are noted", || {
        let left = ids(&list(&["--json"]));
        let pending = daemon
            .ask(r#"{"type":"webhooks","state":"pending"}"#)
            .remove(0);
        (left == ["evt_1"] && pending["deliveries"] == Value::Array(Vec::new())).then_some(())
    });
    hook.quiet();
    assert_eq!(replay(&[]), "0 deliveries go out again now\n");
}
