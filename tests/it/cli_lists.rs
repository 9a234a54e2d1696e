//! What there is, what was said, and copies of it, from the command line.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use crate::screen::Peer;
use crate::support::{Daemon, Finished, Place};

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
fn export_of_a_session_has_nothing_else() {
    let daemon = Daemon::start();
    for (session, text) in [("kept", "one"), ("other", "two"), ("kept", "three")] {
        finished(&daemon, &["--session", session, text]);
    }
    said(&daemon.agentctl(&["sessions", "close", "other"]));
    for (session, jobs) in [("kept", &["j1", "j3"][..]), ("other", &["j2"])] {
        let exported = daemon.agentctl(&["export", session]);
        let rows: Vec<Value> = said(&exported)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let of_kind = |kind: &'static str| rows.iter().filter(move |row| row["kind"] == kind);
        let exported: Vec<&str> = of_kind("job").flat_map(|row| row["job"].as_str()).collect();
        assert_eq!(exported, jobs, "{rows:#?}");
        let sessions: Vec<&Value> = of_kind("session").collect();
        assert_eq!(sessions.len(), 1, "{rows:#?}");
        assert!(
            sessions[0]["session"]
                .as_str()
                .unwrap()
                .starts_with(session)
        );
    }
    // A file that has no room for all of it is none.
    let mut small = daemon.place.command("sh");
    let file = daemon.path("cut.jsonl");
    small.args([
        "-c",
        "trap '' XFSZ; ulimit -f 1; exec \"$0\" export -o \"$1\"",
    ]);
    small.arg(crate::support::AGENTCTL).arg(&file);
    let cut = crate::support::finish(small, b"");
    assert_ne!(cut.code, Some(0), "{cut:?}");
    assert!(cut.stderr.contains("nothing is left of it"), "{cut:?}");
    assert!(!file.exists());
    let none = daemon.agentctl(&["export", "nowhere"]);
    assert_ne!(none.code, Some(0), "{none:?}");
    assert!(
        none.stderr.contains("there is no session `nowhere`"),
        "{none:?}"
    );
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

#[test]
fn session_list_answers_what_is_asked_for() {
    let daemon = Daemon::start();
    let other = daemon.path("other");
    std::fs::create_dir(&other).unwrap();
    let link = daemon.path("link");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    let mut client = daemon.connect();
    let mut made = |session: &str, agent: &str, cwd: &std::path::Path| {
        let new = json!({"type": "session.new", "session": session, "agent": agent, "cwd": cwd});
        let made = client.request(&new.to_string());
        assert_eq!(made["ok"], true, "{made}");
    };
    let home = daemon.path("home");
    made("a", "chaos", &home);
    made("b", "timmy", &home);
    made("c", "chaos", &link);
    finished(&daemon, &["--session", "a", "chaos:say x"]);
    let gate = daemon.path("gate");
    let text = format!("chaos:say x;wait-file {}", gate.display());
    let mut busy = daemon.connect();
    busy.send(&json!({"type": "send", "session": "c", "text": text}).to_string());
    busy.until("message_delta");
    let list = |more: Value| {
        let mut line = json!({"type": "session.list"});
        let fields = line.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        daemon.ask(&line.to_string()).remove(0)
    };
    let names = |more: Value| -> Vec<String> {
        let listed = list(more);
        let rows = listed["sessions"]
            .as_array()
            .unwrap_or_else(|| panic!("{listed}"));
        let name = |row: &Value| row["session"].as_str().unwrap().to_owned();
        rows.iter().map(name).collect()
    };
    assert_eq!(names(json!({})), ["a", "b", "c"]);
    assert_eq!(names(json!({"session": "b"})), ["b"]);
    assert_eq!(names(json!({"session": "nobody"})), [""; 0]);
    assert_eq!(names(json!({"agent": "chaos"})), ["a", "c"]);
    assert_eq!(names(json!({"cwd": link})), ["c"]);
    assert_eq!(names(json!({"cwd": other})), ["c"]);
    assert_eq!(names(json!({"newest": true})), ["c", "a", "b"]);
    let newest = list(json!({"newest": true, "limit": 2}));
    assert_eq!(newest["sessions"].as_array().unwrap().len(), 2, "{newest}");
    assert!(newest["next"].is_null(), "{newest}");
    assert_eq!(names(json!({"idle_for": 0})), ["a", "b"]);
    assert_eq!(names(json!({"idle_for": 3600})), [""; 0]);
    let refused = list(json!({"newest": true, "after": 1}));
    assert_eq!(refused["code"], "invalid-request", "{refused}");
    std::fs::write(gate, "").unwrap();
    busy.last();
    assert_eq!(names(json!({"idle_for": 0})), ["a", "b", "c"]);
}

#[test]
fn sessions_that_were_closed_are_listed_apart() {
    let daemon = Daemon::start();
    for (session, closes) in [("a", true), ("b", true), ("a", false), ("c", false)] {
        let prompt = format!("chaos:say {session} {closes}");
        finished(&daemon, &["--session", session, &prompt]);
        if closes {
            let closed = daemon.agentctl(&["sessions", "close", session]);
            assert_eq!(closed.code, Some(0), "{closed:?}");
        }
    }
    let list = |more: &[&str]| {
        let listed = daemon.agentctl(&[&["sessions", "--json"], more].concat());
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        let rows = listed["sessions"].as_array().unwrap().iter();
        let word = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
        rows.map(|row| {
            ["session", "state", "title"]
                .map(|name| word(row, name))
                .join(" ")
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(
        list(&["--closed"]),
        ["b closed chaos:say b true", "a closed chaos:say a true"]
    );
    assert_eq!(
        list(&[]),
        ["c idle chaos:say c false", "a idle chaos:say a false"]
    );
    let shown = daemon.agentctl(&["sessions", "--closed", "--agent", "timmy"]);
    assert_eq!(shown.stdout, "no closed sessions\n", "{shown:?}");
    // Whoever has its name now.
    let last = daemon.ask(r#"{"type":"session.list","closed":true,"session":"a"}"#);
    assert_eq!(last[0]["sessions"][0]["closed_as"], "a#1", "{last:?}");
    let refused = daemon.ask(r#"{"type":"session.list","closed":true,"idle_for":1}"#);
    assert_eq!(refused[0]["code"], "invalid-request", "{refused:?}");
}

#[test]
fn session_that_was_closed_is_shown() {
    let daemon = Daemon::start();
    finished(&daemon, &["--session", "main", "chaos:say the answer"]);
    let closed = daemon.agentctl(&["sessions", "close", "main"]);
    assert_eq!(closed.code, Some(0), "{closed:?}");
    let shown = daemon.agentctl(&["sessions", "show", "main"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for fact in [
        "main#1 closed, 1 turn\n",
        "agent     chaos\n",
        "first     chaos:say the answer\n",
        "last      the answer\n",
        "go on     agentctl history main#1\n",
    ] {
        assert!(shown.stdout.contains(fact), "{fact}: {shown:?}");
    }
    let json = page(&daemon.agentctl(&["sessions", "show", "main", "--json"]));
    assert_eq!(
        (&json["session"], &json["state"]),
        (&json!("main"), &json!("closed"))
    );
    // Another one that has its name is another one.
    finished(&daemon, &["--session", "main", "chaos:say again"]);
    let shown = daemon.agentctl(&["sessions", "show", "main"]);
    assert!(shown.stdout.starts_with("main idle, 1 turn\n"), "{shown:?}");
    let unknown = daemon.agentctl(&["sessions", "show", "nobody"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
}

#[test]
fn session_closed_is_read_under_its_number() {
    let daemon = Daemon::start();
    for prompt in ["chaos:say first", "chaos:say second"] {
        finished(&daemon, &["--session", "main", prompt]);
        let closed = daemon.agentctl(&["sessions", "close", "main"]);
        assert_eq!(closed.code, Some(0), "{closed:?}");
    }
    // Told when it was closed; and a session that has its name since says so, though its turn fails.
    finished(&daemon, &["--session", "main", "chaos:say zero"]);
    let closed = daemon.agentctl(&["sessions", "close", "main"]);
    let name = "`agentctl history main#3`";
    assert!(closed.stderr.contains(name), "{closed:?}");
    let refused = daemon.agentctl(&["send", "-a", "timmy", "-s", "main", "[[error=rate-limit]]"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let read = daemon.agentctl(&["history", "main"]);
    assert!(read.stderr.contains(name), "{read:?}");
    assert_eq!(
        daemon.agentctl(&["sessions", "close", "main"]).code,
        Some(0)
    );
    let found = daemon.agentctl(&["sessions", "search", "zero"]);
    assert!(found.stdout.contains("main#3"), "{found:?}");
    let found = daemon.agentctl(&["sessions", "search", "zero", "--session", "main#3"]);
    assert!(found.stdout.contains("main#3"), "{found:?}");
    finished(&daemon, &["--session", "main", "chaos:say third"]);
    let listed = daemon.agentctl(&["sessions", "list", "--closed"]).stdout;
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| {
            line.split_whitespace()
                .next()
                .filter(|name| name.contains('#'))
        })
        .collect();
    assert_eq!(names.len(), 4, "{listed}");
    for (name, said) in names.iter().skip(2).zip(["second", "first"]) {
        for words in [&["history", name][..], &["history", name, "--last", "1"]] {
            let read = daemon.agentctl(words);
            assert!(read.stdout.contains(said), "{words:?}: {read:?}");
            assert!(!read.stdout.contains("third"), "{words:?}: {read:?}");
        }
        let shown = daemon.agentctl(&["sessions", "show", name]);
        let head = format!("{name} closed, 1 turn\n");
        assert!(shown.stdout.starts_with(&head), "{shown:?}");
        let next = format!("go on     agentctl history {name}\n");
        assert!(shown.stdout.contains(&next), "{shown:?}");
    }
    for wrong in ["main#", "main#x", "#1", "main#1#2"] {
        let refused = daemon.agentctl(&["history", wrong]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
    // It is read, and nothing else is done with it.
    let sent = daemon.agentctl(&["send", "--session", names[0], "hi"]);
    assert_eq!(sent.code, Some(2), "{sent:?}");
}

#[test]
fn send_c_asks_once_for_the_last_session() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let home = place.path("home");
    let served = std::thread::spawn(move || {
        let (mut peer, _) = Peer::accept(&listener);
        let asked = peer.request();
        let row = |session: &str, at: &str| {
            json!({"session": session, "agent": "pi", "cwd": home, "state": "idle", "title": "",
                "preview": "", "model": null, "turns": 1, "created_at": at, "last_active_at": at})
        };
        let (at, before) = ("2026-11-21T19:00:00Z", "2026-11-21T18:00:00Z");
        // Of the same second the first: the daemon knows it better.
        let rows = [row("last", at), row("other", at), row("old", before)];
        peer.say(json!({"type": "session.list", "id": asked["id"], "ok": true, "sessions": rows}));
        let send = peer.request();
        peer.end(&send["id"]);
        (asked, send)
    });
    let sent = place.agentctl(&["send", "-c", "hi"]);
    assert_eq!(sent.stdout, "done\n", "{sent:?}");
    let (asked, send) = served.join().unwrap();
    assert_eq!(
        (&asked["type"], &asked["newest"]),
        (&json!("session.list"), &json!(true))
    );
    assert_eq!(asked["cwd"], json!(place.path("home")), "{asked}");
    assert_eq!(
        (&send["type"], &send["session"]),
        (&json!("send"), &json!("last"))
    );
}

#[test]
fn sessions_are_closed_many_at_once() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let served = std::thread::spawn(move || {
        let (mut peer, _) = Peer::accept(&listener);
        let closes: Vec<Value> = (0..3).map(|_| peer.request()).collect();
        // The second one is busy, and told first.
        for (at, ok) in [(1, false), (0, true), (2, true)] {
            let id = &closes[at]["id"];
            peer.say(match ok {
                true => json!({"type": "session.close", "id": id, "ok": true,
                    "session": closes[at]["session"]}),
                false => json!({"type": "error", "id": id, "code": "session-busy", "error": "busy",
                    "retryable": true}),
            });
        }
    });
    let closed = place.agentctl(&["sessions", "close", "a", "b", "c"]);
    served.join().unwrap();
    assert_eq!(closed.code, Some(3), "{closed:?}");
    assert_eq!(closed.stdout, "closed a\nclosed c\n");
    assert!(closed.stderr.contains("busy"), "{closed:?}");
}
