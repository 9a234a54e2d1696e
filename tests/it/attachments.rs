//! What goes with a turn besides its text: from a file or a line to the worker, through crashes.

use serde_json::{Value, json};

use crate::support::{Client, Daemon, Place, chaos_worker, wait_for};

/// A picture of one pixel, and how its base64 ends.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const MB: usize = 1024 * 1024;

fn pixel() -> Vec<u8> {
    // Only its first and last bytes matter, to us and to the worker.
    let mut picture = b"\x89PNG\r\n\x1a\n".to_vec();
    picture.extend([7; 100]);
    picture
}

fn write(daemon: &Daemon, name: &str, content: &[u8]) -> String {
    let path = daemon.path(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

fn send(session: &str, text: &str, attachments: &Value) -> Value {
    json!({"type": "send", "agent": "chaos", "session": session, "text": text, "attachments": attachments})
}

#[track_caller]
fn refused(daemon: &Daemon, attachments: &Value, code: &str, why: &str) {
    let lines = daemon.ask(&send("s", "chaos:attached", attachments).to_string());
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(lines[0]["code"], code, "{lines:#?}");
    let error = lines[0]["error"].as_str().unwrap();
    assert!(error.contains(why), "{error}");
    assert!(lines[0]["job"].is_null(), "{lines:#?}");
}

#[test]
fn attachments_reach_the_worker_with_types_and_names() {
    let daemon = Daemon::start();
    let path = write(&daemon, "shot.txt", &pixel());
    let attachments = json!([
        {"path": path},
        {"mime": "image/png", "data": PIXEL, "name": "pixel"},
        {"mime": "text/csv", "data": "MSwy"},
    ]);
    let last = daemon
        .ask(&send("s", "chaos:attached", &attachments).to_string())
        .pop()
        .unwrap();
    let expected =
        "image/png shot.txt 144 BwcHBwcH\nimage/png pixel 96 rkJggg==\ntext/csv - 4 MSwy\n";
    assert_eq!(last["text"], expected, "{last:#}");
    let history = daemon
        .ask(r#"{"type":"session.history","session":"s"}"#)
        .remove(0);
    let told = &history["turns"][0]["attachments"];
    assert_eq!(
        (&told[0]["name"], &told[0]["bytes"]),
        (&json!("shot.txt"), &json!(108)),
        "{history:#}"
    );
    assert!(
        told[0]["path"].is_null() && told[1]["data"].is_null(),
        "{history:#}"
    );
    let shown = daemon.agentctl(&["history", "s"]);
    assert!(
        shown.stdout.contains("> [shot.txt: image/png, 108 B]"),
        "{shown:?}"
    );
}

#[test]
fn attachments_that_are_refused_leave_the_daemon_serving() {
    let daemon = Daemon::start();
    let fifo = daemon.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let huge = "YWFh".repeat(3 * MB);
    for (attachments, why) in [
        (json!([{"path": fifo}]), "is a device, pipe or socket"),
        (
            json!([{"path": "/dev/zero"}]),
            "is a device, pipe or socket",
        ),
        (json!([{"path": daemon.path("home")}]), "is a directory"),
        (json!([{"path": daemon.path("nothing")}]), "can't be read"),
        (json!([{"path": "shot.png"}]), "expected an absolute one"),
        (
            json!([{"mime": "text/plain", "data": "a b"}]),
            "isn't base64",
        ),
        (
            json!([{"mime": "image/jpeg", "data": PIXEL}]),
            "its content is `image/png`",
        ),
        (
            json!([{"mime": "text/plain", "data": huge}]),
            "the limit is 5242880",
        ),
        (
            json!([{"sha256": "aa", "bytes": 1, "mime": "image/png"}]),
            "neither `path` nor `data`",
        ),
        (json!(vec![json!({"path": "/a"}); 17]), "has 17 entries"),
        (json!("/a"), "invalid field"),
    ] {
        refused(&daemon, &attachments, "invalid-request", why);
    }
    assert!(daemon.status()["rpc"]["in_flight"] == 0);
    let lines = daemon.ask(r#"{"prompt":"still there"}"#);
    assert_eq!(lines.last().unwrap()["text"], "still there");
}

#[test]
fn attachments_being_read_keep_later_requests_in_order() {
    let daemon = Daemon::start();
    let path = write(&daemon, "large.txt", &vec![b'a'; 5 * MB]);
    let mut client = daemon.connect();
    client.request(r#"{"type":"hello"}"#);
    for id in 1..=6 {
        let attachments = if id % 2 == 1 {
            json!([{"path": path}])
        } else {
            json!([])
        };
        let mut line = send("s", "hi", &attachments);
        line["id"] = json!(id);
        client.send(&line.to_string());
    }
    let mut accepted = Vec::new();
    while accepted.len() < 6 {
        let line = client.next().expect("a line");
        if line["type"] == "accepted" {
            accepted.push((line["id"].clone(), line["job"].clone()));
        }
    }
    accepted.sort_by_key(|(id, _)| id.as_u64());
    let jobs: Vec<&str> = accepted
        .iter()
        .map(|(_, job)| job.as_str().unwrap())
        .collect();
    assert_eq!(jobs, ["j1", "j2", "j3", "j4", "j5", "j6"]);
}

#[test]
fn attachments_survive_a_kill_and_their_files_removal() {
    let daemon = Daemon::start();
    let path = write(&daemon, "shot.png", &pixel());
    let mut client = daemon.connect();
    client.request(r#"{"type":"hello"}"#);
    client.request(r#"{"type":"drain"}"#);
    let attachments = json!([{"path": path}]);
    let accepted = client.request(&send("s", "chaos:attached", &attachments).to_string());
    assert_eq!(accepted["type"], "accepted", "{accepted:#}");
    std::fs::remove_file(&path).unwrap();
    let daemon = daemon.kill().start();
    let collect = json!({"type": "collect", "jobs": [accepted["job"]], "timeout": 15});
    let collected = daemon.ask(&collect.to_string()).remove(0);
    assert_eq!(
        collected["results"][0]["text"], "image/png shot.png 144 BwcHBwcH\n",
        "{collected:#}"
    );
}

#[test]
fn every_attempt_gets_them() {
    let daemon = Daemon::start();
    let path = write(&daemon, "shot.png", &pixel());
    let gate = daemon.path("gate");
    let text = format!("chaos:attached;wait-file {}", gate.display());
    let mut line = send("s", &text, &json!([{"path": path}]));
    line["retry"] = json!("auto");
    let mut client = daemon.connect();
    client.send(&line.to_string());
    let begun = client.until("message_delta");
    std::fs::remove_file(&path).unwrap();
    let daemon = daemon.kill().start();
    std::fs::write(&gate, "").unwrap();
    let collect = json!({"type": "collect", "jobs": [begun[0]["job"]], "timeout": 15});
    let collected = daemon.ask(&collect.to_string()).remove(0);
    let last = &collected["results"][0];
    assert_eq!(
        last["text"], "image/png shot.png 144 BwcHBwcH\n",
        "{collected:#}"
    );
    assert_eq!(last["attempt"], 2, "{collected:#}");
}

#[test]
fn attachments_are_keyed_by_content_and_not_path() {
    let daemon = Daemon::start();
    let path = write(&daemon, "a.png", &pixel());
    let keyed = |path: &str| {
        let mut line = send("s", "chaos:attached", &json!([{"path": path}]));
        line["idempotency_key"] = json!("k");
        daemon.ask(&line.to_string()).pop().unwrap()
    };
    let first = keyed(&path);
    assert_eq!(first["replayed"], false, "{first:#}");
    let moved = write(&daemon, "b.png", &pixel());
    let again = keyed(&moved);
    assert_eq!(
        (&again["replayed"], &again["job"]),
        (&json!(true), &first["job"])
    );
    let mut other = pixel();
    other.push(1);
    write(&daemon, "a.png", &other);
    assert_eq!(keyed(&path)["code"], "idempotency-conflict");
}

#[test]
fn attachments_as_large_as_allowed_get_through_whole() {
    let daemon = Daemon::start();
    let sizes = [5 * MB, 3 * MB];
    let files = sizes.map(|size| {
        let path = write(&daemon, &format!("{size}.txt"), &vec![b'a'; size]);
        json!({"path": path})
    });
    let last = daemon
        .ask(&send("s", "chaos:attached", &json!(files)).to_string())
        .pop()
        .unwrap();
    let encoded = |size: usize| size.div_ceil(3) * 4;
    let expected = format!(
        "text/plain 5242880.txt {} YWFhYWE=\ntext/plain 3145728.txt {} YWFhYWFh\n",
        encoded(sizes[0]),
        encoded(sizes[1])
    );
    assert_eq!(last["text"], expected, "{last:#}");
    let more = json!([files[0], files[1], {"mime": "text/plain", "data": "YQ=="}]);
    refused(
        &daemon,
        &more,
        "invalid-request",
        "all attachments of a request together",
    );
}

#[test]
fn attachments_are_kept_from_agents_that_take_none() {
    let table = format!(
        "[agents.cat]\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\n[agents.blind]\nkind = \"jsonl\"\ncommand = [{:?}, \"--no-attachments\"]\n",
        chaos_worker()
    );
    let daemon = Daemon::with(&table);
    let to = |agent: &str| {
        let mut line = send(agent, "hi", &json!([{"mime": "image/png", "data": PIXEL}]));
        line["agent"] = json!(agent);
        daemon.ask(&line.to_string())
    };
    let lines = to("cat");
    assert_eq!(
        (lines.len(), &lines[0]["code"]),
        (1, &json!("unsupported")),
        "{lines:#?}"
    );
    // What a worker takes is known when it is there.
    let lines = to("blind");
    assert_eq!(lines.last().unwrap()["code"], "unsupported", "{lines:#?}");
    assert!(lines.last().unwrap()["job"].is_string(), "{lines:#?}");
    let lines = to("blind");
    assert_eq!(
        (lines.len(), &lines[0]["code"]),
        (1, &json!("unsupported")),
        "{lines:#?}"
    );
}

fn attaches(place: &Place, args: &[&str]) -> String {
    let file = place.path("home/notes.md");
    std::fs::write(file, "# notes").unwrap();
    let sent = place.agentctl(&[args, &["--attach", "notes.md", "look"]].concat());
    assert_eq!(sent.code, Some(0), "{sent:?}");
    sent.stdout
}

#[test]
fn agentctl_attaches_files_with_and_without_a_daemon() {
    let place = Place::new(&Daemon::config(""));
    let expected = "look [notes.md: text/plain, 7 bytes]\n";
    assert_eq!(attaches(&place, &["send"]), expected);
    let daemon = place.start();
    assert_eq!(
        attaches(&daemon.place, &["send", "--no-fallback"]),
        expected
    );
    let dispatched = attaches(&daemon.place, &["dispatch", "--collect"]);
    assert!(dispatched.contains(expected.trim_end()), "{dispatched}");
    let stdin = daemon.agentctl(&["send", "--attach", "-", "look"]);
    assert_eq!(stdin.code, Some(2), "{stdin:?}");
    assert!(
        stdin.stderr.contains("standard input can't be attached"),
        "{stdin:?}"
    );
    let missing = daemon.agentctl(&["send", "--attach", "nothing.png", "look"]);
    assert!(missing.stderr.contains("nothing.png"), "{missing:?}");
    assert_eq!(missing.stdout, "");
}

#[test]
fn memory_for_attachments_is_given_back() {
    let daemon = Daemon::start();
    let path = write(&daemon, "large.txt", &vec![b'a'; 5 * MB]);
    // More in all than may be held at once.
    let line = send("s", "hi", &json!([{"path": path}])).to_string();
    for _ in 0..20 {
        // Each has the harness's deadline: whoever had no room would wait for ever.
        let last = daemon.ask(&line).pop().unwrap();
        assert_eq!(last["type"], "message_end", "{last:#}");
    }
    let rss = |status: &Value| status["daemon"]["rss_bytes"].as_u64();
    let rss = wait_for("the daemon's memory", || rss(&daemon.status()));
    assert!(rss < 150 * MB as u64, "{rss}");
}

#[test]
fn attachments_being_read_outlive_their_connection() {
    let daemon = Daemon::start();
    let path = write(&daemon, "large.txt", &vec![b'a'; 5 * MB]);
    let mut line = send("s", "hi", &json!([{"path": path}]));
    line["idempotency_key"] = json!("k");
    let mut client = Client::connect(&daemon.place.socket());
    client.send(&line.to_string());
    drop(client);
    daemon.until("the job is done", |_| {
        let jobs = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
        (jobs["jobs"][0]["state"] == "completed").then_some(())
    });
}
