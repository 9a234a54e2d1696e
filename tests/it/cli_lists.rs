//! What there is, what was said, and copies of it, from the command line.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::{Daemon, Finished};

fn said(finished: &Finished) -> &str {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    &finished.stdout
}

/// The one line that `--json` prints for a page.
fn page(finished: &Finished) -> Value {
    let line = said(finished).lines().next().expect("a line");
    serde_json::from_str(line).unwrap()
}

fn finished(daemon: &Daemon, words: &[&str]) {
    let args: Vec<&str> = ["send", "--agent", "chaos"]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    said(&daemon.agentctl(&args));
}

#[test]
fn jobs_are_listed_newest_first_with_their_facts() {
    let daemon = Daemon::start();
    finished(
        &daemon,
        &["--session", "a", "--label", "run=7", "chaos:say one"],
    );
    finished(
        &daemon,
        &["--session", "b", "--label", "run=8", "chaos:say two"],
    );
    let failed = daemon.agentctl(&[
        "send",
        "--agent",
        "chaos",
        "--session",
        "a",
        "chaos:error rate-limit",
    ]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let listed = |args: &[&str]| {
        let args = [&["jobs", "--json"], args].concat();
        let page = page(&daemon.agentctl(&args));
        let rows = page["jobs"].as_array().unwrap().clone();
        let names = rows
            .iter()
            .map(|row| row["job"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), ["j3", "j2", "j1"]);
    assert_eq!(listed(&["--session", "a"]), ["j3", "j1"]);
    assert_eq!(listed(&["--label", "run"]), ["j2", "j1"]);
    assert_eq!(listed(&["--label", "run=8"]), ["j2"]);
    assert_eq!(listed(&["--state", "failed"]), ["j3"]);
    assert_eq!(listed(&["--since", "1h", "--limit", "2"]), ["j3", "j2"]);
    assert_eq!(listed(&["--session", "nobody"]), Vec::<String>::new());
    let shown = daemon.agentctl(&["jobs"]);
    assert!(said(&shown).contains("chaos:say one"), "{shown:?}");
}

#[test]
fn jobs_over_a_page_come_without_a_gap() {
    let daemon = Daemon::start();
    daemon.ask(r#"{"type":"drain","deadline":5}"#);
    for _ in 0..3 {
        let jobs: Vec<Value> = (0..200)
            .map(|n| json!({"text": format!("n {n}")}))
            .collect();
        let dispatched = daemon.ask(&json!({"type": "dispatch", "jobs": jobs}).to_string());
        assert_eq!(dispatched[0]["ok"], true, "{dispatched:?}");
    }
    let mut seen = BTreeSet::new();
    let mut before = Value::Null;
    let mut pages = 0;
    loop {
        let mut asked = json!({"type": "jobs", "limit": 250});
        if !before.is_null() {
            asked["before"] = before;
        }
        let page = daemon.ask(&asked.to_string()).remove(0);
        for row in page["jobs"].as_array().unwrap() {
            assert_eq!(row["state"], "queued");
            assert!(
                seen.insert(row["job"].as_str().unwrap().to_owned()),
                "{row}"
            );
        }
        pages += 1;
        before = page["next"].clone();
        if before.is_null() {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (600, 3));
}

#[test]
fn session_is_listed_and_read_amid_its_turn() {
    let daemon = Daemon::start();
    finished(
        &daemon,
        &["--session", "talk", "chaos:say the first answer"],
    );
    let gate = daemon.path("gate");
    let text = format!("chaos:say so far;wait-file {}", gate.display());
    let mut client = daemon.connect();
    client.send(
        &json!({"type": "send", "agent": "chaos", "session": "talk", "text": text}).to_string(),
    );
    client.until("message_delta");

    let sessions = page(&daemon.agentctl(&["sessions", "--json"]));
    let row = &sessions["sessions"][0];
    assert_eq!(
        (&row["session"], &row["state"], &row["turns"]),
        (&json!("talk"), &json!("working"), &json!(1))
    );
    let jobs = page(&daemon.agentctl(&["jobs", "--json"]))["jobs"].clone();
    let began = jobs[0]["started_at"].as_str().expect("it runs");
    assert!(jobs[0]["accepted_at"].as_str() <= Some(began), "{jobs:#}");
    assert!(jobs[1]["started_at"].is_null(), "{jobs:#}");
    let turns = page(&daemon.agentctl(&["history", "talk", "--json"]))["turns"].clone();
    let texts: Vec<&Value> = (0..2)
        .map(|turn| &turns[turn]["messages"][0]["text"])
        .collect();
    assert_eq!(texts, [&json!("the first answer"), &json!("so far")]);
    assert_eq!(turns[1]["state"], "running");
    assert!(
        turns[0]["final"]["seq"].is_u64() && turns[1]["final"].is_null(),
        "{turns:#}"
    );

    std::fs::write(&gate, "").unwrap();
    client.until("message_end");
    let shown = daemon.agentctl(&["history", "talk"]);
    assert!(
        said(&shown).contains("the first answer") && shown.stdout.contains("so far"),
        "{shown:?}"
    );
    let nobody = daemon.agentctl(&["history", "nobody"]);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(nobody.stderr.contains("nobody"), "{nobody:?}");
}

#[test]
fn history_shows_a_message_longer_than_a_line() {
    let daemon = Daemon::start();
    finished(&daemon, &["--session", "long", "--json", "chaos:flood 3"]);
    let whole = daemon.agentctl(&["history", "long", "--full"]);
    assert!(
        said(&whole).len() > 3 * 1024 * 1024,
        "{} bytes",
        whole.stdout.len()
    );
    let cut = daemon.agentctl(&["history", "long"]);
    assert!(said(&cut).len() < 1024 * 1024, "{} bytes", cut.stdout.len());
}

#[test]
fn backup_is_a_store_and_export_is_whole() {
    let daemon = Daemon::start();
    for text in ["chaos:say one", "chaos:tool rw;say two"] {
        finished(&daemon, &["--session", "kept", text]);
    }
    let copy = daemon.path("copy.db");
    let path = copy.to_str().unwrap();
    assert!(said(&daemon.agentctl(&["backup", path])).contains(path));
    let mode = std::fs::metadata(&copy).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = daemon.agentctl(&["backup", path]);
    assert_ne!(again.code, Some(0), "what is there is not written over");
    let asked = json!({"type": "backup", "path": path});
    let refused = &daemon.ask(&asked.to_string())[0];
    assert_eq!(refused["code"], "invalid-request", "{refused}");
    assert_eq!(refused["retryable"], false, "{refused}");
    let why = refused["error"].as_str().unwrap();
    assert!(why.contains("is there already: name a file"), "{refused}");

    let exported = daemon.agentctl(&["export"]);
    let rows: Vec<Value> = said(&exported)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of_kind = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
    assert_eq!((of_kind("job"), of_kind("session")), (2, 1), "{rows:#?}");
    let file = daemon.path("rows");
    said(&daemon.agentctl(&["export", "--output", file.to_str().unwrap()]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), exported.stdout);

    // The copy is a whole store: a daemon goes on with it.
    let place = daemon.kill();
    std::fs::remove_dir_all(place.path("state")).unwrap();
    std::fs::create_dir(place.path("state")).unwrap();
    std::fs::copy(&copy, place.path("state").join("agentd.db")).unwrap();
    let daemon = place.start();
    let collected = daemon.agentctl(&["collect", "j1", "j2"]);
    assert!(said(&collected).contains("two"), "{collected:?}");
}

#[test]
fn what_happened_is_watched_from_a_cursor_on() {
    let daemon = Daemon::start();
    finished(&daemon, &["--session", "w", "chaos:say before"]);
    let mut command = daemon.place.command(crate::support::AGENTCTL);
    command.args(["watch", "--json", "--after", "0"]);
    command.stdout(std::process::Stdio::piped());
    let mut watching = crate::support::Reaped(command.spawn().unwrap());
    let output = watching.0.stdout.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(output));
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "live") {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        kinds.push(line["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(kinds.first().unwrap(), "accepted", "{kinds:?}");
    assert!(kinds.contains(&"message_end".to_owned()), "{kinds:?}");
    let other = daemon.agentctl(&["watch", "--after", "1", "--epoch", "another"]);
    assert_eq!(other.code, Some(3), "{other:?}");
    assert!(other.stderr.contains("epoch"), "{other:?}");
}

#[test]
fn turn_is_steered_and_answered_from_another_shell() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let send = json!({"type": "send", "agent": "chaos", "session": "q", "on_question": "wait",
        "text": "chaos:ask choice;say chosen;steered"});
    client.send(&send.to_string());
    let asked = client.until("question").pop().unwrap();
    let name = asked["question_id"].as_str().unwrap();
    let open = daemon.agentctl(&["questions"]);
    assert!(said(&open).contains(name), "{open:?}");
    let wrong = daemon.agentctl(&["answer", name, "--approve"]);
    assert_ne!(wrong.code, Some(0), "{wrong:?}");
    let option = asked["options"][0].as_str().unwrap();
    said(&daemon.agentctl(&["answer", name, "--choice", option]));
    let late = daemon.agentctl(&["answer", name, "--choice", option]);
    assert_ne!(late.code, Some(0), "{late:?}");
    said(&daemon.agentctl(&["steer", "--session", "q", "a word from outside"]));
    let end = client.until("message_end").pop().unwrap();
    assert!(
        end["text"]
            .as_str()
            .unwrap()
            .contains("a word from outside"),
        "{end}"
    );
    said(&daemon.agentctl(&["model", "q", "other/model"]));
    let compacted = daemon.agentctl(&["compact", "q"]);
    assert_eq!(compacted.code, Some(0), "{compacted:?}");
}
