//! What goes away: the daemon, the server, the token.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Answer, Http, rest, served};
use crate::support::{Daemon, Place, kill, needs, wait_for};

#[test]
fn http_goes_on_with_the_next_daemon() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "a", "idempotency_key": "k"});
    assert_eq!(http.post("/v1/dispatch?wait=20", &turn).status, 200);
    let place = daemon.kill();
    // The conversation that is left from before is not taken for one.
    let refused = http.post("/v1/dispatch", &turn);
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (503, "no-daemon")
    );
    for path in [
        "/v1/jobs",
        "/v1/jobs/j1",
        "/v1/jobs/j1/events",
        "/v1/agents",
    ] {
        let answer = http.curl(path, &[]);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (503, "no-daemon"),
            "{path}"
        );
    }
    let detailed = http.curl("/health/detailed", &[]);
    assert_eq!((detailed.status, detailed.code().as_str()), (503, "down"));
    assert_eq!(
        http.bare_curl("/health", &[]).json(),
        json!({"status": "ok"})
    );
    let metrics = http.curl("/metrics", &[]);
    assert!(
        metrics.status == 200 && metrics.body.ends_with("agentd_up 0\n"),
        "{metrics:?}"
    );
    let _daemon = place.start();
    let again = http.post("/v1/dispatch?wait=20", &turn);
    assert_eq!(
        (again.status, &again.json()["jobs"][0]["job"]),
        (200, &json!("j1"))
    );
}

#[test]
fn a_daemon_that_was_stopped_is_told_apart() {
    let Some((daemon, http)) = served() else {
        return;
    };
    kill(daemon.pid(), Signal::SIGSTOP);
    let detailed = http.curl("/health/detailed", &[]);
    kill(daemon.pid(), Signal::SIGCONT);
    assert_eq!(
        (detailed.status, detailed.code().as_str()),
        (503, "stopped"),
        "{detailed:?}"
    );
}

/// What a daemon that is no daemon says to a request; `ID` stands for the request's.
type Said = (&'static str, &'static str);

const HELLO: Said = (
    "hello",
    r#"{"type":"hello","id":ID,"ok":true,"server":"agentd","version":"0.1.0","protocol":1,"epoch":"e","pid":1,"uid":1,"capabilities":[],"limits":{"line_in":1,"line_out":1,"in_flight":1}}"#,
);
const ACCEPTED: Said = (
    "dispatch",
    r#"{"type":"dispatch","id":ID,"ok":true,"jobs":[{"job":"j1","session":"s","replayed":false}]}"#,
);

const REFUSED: Said = (
    "dispatch",
    r#"{"type":"error","id":ID,"code":"invalid-request","error":"it has begun","retryable":false}"#,
);

/// A server in front of a socket on which a test itself answers.
fn in_front_of_nobody() -> Option<(Place, UnixListener, Http)> {
    needs("curl")?;
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let http = Http::start(&place);
    Some((place, listener, http))
}

/// Serves one conversation; gives the request that it has no answer to, and the connection.
fn scripted(listener: &UnixListener, said: &[Said]) -> (Value, UnixStream) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let answer = said.iter().find(|(kind, _)| asked["type"] == *kind);
        let Some((_, answer)) = answer else {
            return (asked, reader.into_inner());
        };
        let answer = answer.replace("ID", &asked["id"].to_string());
        let stream = reader.get_mut();
        stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
        line.clear();
    }
    (Value::Null, reader.into_inner())
}

/// A daemon that is lost whenever it is asked this: the next one is asked again, not for ever.
fn lost_each_time(listener: &UnixListener, said: &[Said]) -> Value {
    let mut lost = Value::Null;
    for _ in 0..=agentd_client::again::MOST_LOSSES {
        let (next, _) = scripted(listener, said);
        assert!(lost.is_null() || lost["type"] == next["type"], "{next}");
        lost = next;
    }
    lost
}

#[test]
fn http_accepted_turn_is_told_though_daemon_lost() {
    let Some((_place, listener, http)) = in_front_of_nobody() else {
        return;
    };
    let served = std::thread::spawn(move || {
        let lost = lost_each_time(&listener, &[HELLO, ACCEPTED]);
        let (hung, kept) = scripted(&listener, &[HELLO, ACCEPTED]);
        let (read, also) = scripted(&listener, &[HELLO]);
        (lost, hung, read, (kept, also))
    });
    for wait in [60, 1] {
        let path = format!("/v1/dispatch?wait={wait}");
        let answer = http.post(&path, &json!({"prompt": "a"}));
        let told = answer.json();
        assert_eq!(answer.status, 202, "{answer:?}");
        assert_eq!(
            (&told["jobs"][0]["job"], &told["results"], &told["pending"]),
            (&json!("j1"), &json!([]), &json!(["j1"]))
        );
    }
    // A wait that only reads ends, too.
    let late = http.curl("/v1/jobs/j1?wait=1", &[]);
    assert_eq!((late.status, late.code().as_str()), (504, "no-answer"));
    let (lost, hung, read, _kept) = served.join().unwrap();
    // The daemon notices that somebody left only when it has waited: never long at a time.
    for (asked, most) in [(lost, 10.0), (hung, 1.0), (read, 1.0)] {
        assert_eq!(asked["type"], "collect");
        let timeout = asked["timeout"].as_f64().unwrap();
        assert!((0.9 * most..=most).contains(&timeout), "{asked}");
    }
}

const ROWS: Said = (
    "jobs",
    r#"{"type":"jobs","id":ID,"ok":true,"jobs":[{"job":"j1","session":"s","agent":"a","state":"queued","attempt":1,"preview":"a","accepted_at":"2026-01-01T00:00:00Z"}]}"#,
);

#[test]
fn openai_accepted_turn_is_told_though_daemon_lost() {
    let Some((_place, listener, http)) = in_front_of_nobody() else {
        return;
    };
    let served = std::thread::spawn(move || {
        [[HELLO, ACCEPTED], [HELLO, ROWS], [HELLO, ACCEPTED]]
            .map(|said| scripted(&listener, &said).0["type"].clone())
    });
    let ask = |path: &str, attempt: &str| {
        let count = format!("x-stainless-retry-count: {attempt}");
        let body = json!({"input": "a", "background": path.ends_with("responses")});
        http.post_with(path, &body, &["-H", &count])
    };
    let first = ask("/v1/responses", "0");
    assert_eq!(first.status, 200, "{first:?}");
    let first = first.json();
    assert_eq!(
        (&first["id"], &first["status"]),
        (&json!("resp_j1"), &json!("queued"))
    );
    assert_eq!(ask("/v1/responses", "1").json()["id"], "resp_j1");
    // The daemon that told of the first dies of this one, and the next accepts it.
    let run = ask("/v1/runs", "0");
    assert_eq!(run.status, 202, "{run:?}");
    assert_eq!(run.json()["run_id"], "run_j1");
    let lost = served.join().unwrap();
    assert_eq!(lost, [json!("jobs"), json!("dispatch"), json!("jobs")]);
    let away = ask("/v1/runs", "1");
    assert_eq!(away.status, 503, "{away:?}");
    let told = away.json()["error"]["message"].clone();
    assert!(
        told.as_str().unwrap().ends_with("accepted as job j1"),
        "{told}"
    );
    assert!(away.head.contains("x-agentd-job: j1"), "{away:?}");
}

#[test]
fn http_unknown_outcome_is_told_with_its_keys() {
    let Some((_place, listener, http)) = in_front_of_nobody() else {
        return;
    };
    let served = std::thread::spawn(move || {
        for _ in 0..2 {
            let lost = lost_each_time(&listener, &[HELLO]);
            assert_eq!(lost["type"], "dispatch");
        }
        let (lost, _) = scripted(&listener, &[HELLO]);
        assert_eq!(lost["type"], "jobs");
        scripted(&listener, &[HELLO]);
        scripted(&listener, &[HELLO, REFUSED]);
    });
    let turns = json!([{"prompt": "a"}, {"prompt": "b", "idempotency_key": "mine"}]);
    let lost = http.post("/v1/dispatch", &turns);
    assert_eq!(
        (lost.status, lost.code().as_str()),
        (504, "outcome-unknown")
    );
    let keys = lost.json()["idempotency_keys"].clone();
    assert_eq!(
        (keys[0].as_str().unwrap().len(), &keys[1]),
        (32, &json!("mine"))
    );
    let more = ["-H", "Idempotency-Key: given"];
    let lost = http.post_with("/v1/dispatch", &json!({"prompt": "a"}), &more);
    assert_eq!(lost.json()["idempotency_keys"], json!(["given"]));
    // What changes nothing is only not answered.
    let lost = http.curl("/v1/jobs", &[]);
    assert_eq!((lost.status, lost.code().as_str()), (503, "no-daemon"));
    // What the first daemon accepted may be why the next one refuses it.
    let lost = http.post("/v1/dispatch", &json!({"prompt": "a"}));
    assert_eq!(lost.code(), "outcome-unknown", "{lost:?}");
    served.join().unwrap();
}

#[test]
fn http_token_that_changed_counts_at_once() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let token = daemon.path("state/http.token");
    assert_eq!(token.metadata().unwrap().mode() & 0o7777, 0o600);
    let mut stream = http.connect();
    let request = http.head("GET /v1/jobs") + "\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut said = String::new();
    while !said.contains("{\"jobs\":[]}") {
        let count = reader.fill_buf().unwrap();
        assert!(!count.is_empty(), "{said}");
        said += &String::from_utf8_lossy(count);
        let count = count.len();
        reader.consume(count);
    }
    let renewed = daemon.agentctl(&["token", "--new"]).stdout;
    assert_ne!(renewed.trim(), http.token);
    let request = http.head("GET /v1/jobs") + "Connection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let answer = Answer::parse(&rest(&mut stream));
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (401, "unauthorized")
    );
    let bearer = format!("Authorization: Bearer {}", renewed.trim());
    assert_eq!(http.bare_curl("/v1/jobs", &["-H", &bearer]).status, 200);
    // Whoever asks is not told what the owner is: where it is, and what is wrong with it.
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&token, open).unwrap();
    for bearer in [&bearer, "Authorization: Bearer x", &bearer] {
        let answer = http.bare_curl("/v1/jobs", &["-H", bearer]);
        assert_eq!((answer.status, answer.code().as_str()), (503, "no-token"));
        assert!(
            !answer.body.contains("/http.token") && !answer.body.contains("0644"),
            "{answer:?}"
        );
    }
    let log = || std::fs::read_to_string(daemon.path("http.log")).unwrap();
    let line = "http.token` has the mode 0644, expected 0600";
    let text = wait_for("three requests are logged", || {
        let text = log();
        (text.matches(" 503 ").count() == 3).then_some(text)
    });
    assert_eq!(text.matches(line).count(), 1, "{text}");
    std::fs::remove_file(&token).unwrap();
    let answer = http.bare_curl("/v1/jobs", &["-H", &bearer]);
    assert_eq!((answer.status, answer.code().as_str()), (503, "no-token"));
}

#[test]
fn a_stream_ends_when_its_token_does() {
    let Some((daemon, http)) = served() else {
        return;
    };
    http.post("/v1/dispatch", &json!({"prompt": "a [[sleep 600000]]"}));
    let mut stream = http.connect();
    let request = http.head("GET /v1/jobs/j1/events") + "\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut said = String::new();
    while !said.contains("event: live") {
        assert!(reader.read_line(&mut said).unwrap() > 0, "{said}");
    }
    assert_eq!(daemon.agentctl(&["token", "--new"]).code, Some(0));
    // It is looked at with the next sign of life. The last chunk is an empty one.
    while !said.ends_with("\r\n0\r\n") {
        assert!(reader.read_line(&mut said).unwrap() > 0, "{said}");
        // One may have been on its way.
        assert!(said.matches("\n:\n").count() <= 1, "{said}");
    }
    assert!(!said.contains("message_end"), "{said}");
}

/// Reads a stream of events until it has said this; gives all of it, and the last event's id.
fn heard(reader: &mut impl BufRead, until: &str) -> (String, String) {
    let mut said = String::new();
    while !said.contains(until) {
        assert!(reader.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let mut ids = said.lines().filter_map(|line| line.strip_prefix("id: "));
    let last = ids.next_back().unwrap_or_default().to_owned();
    (said, last)
}

#[test]
fn http_stream_cut_by_death_is_not_whole() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let turn = json!({"prompt": "chaos: say one;tool rw;wait-file gone", "agent": "chaos"});
    assert_eq!(http.post("/v1/dispatch", &turn).status, 202);
    let watch = |after: &str| {
        let mut stream = http.connect();
        let request = http.head("GET /v1/jobs/j1/events") + after + "\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let mut reader = watch("");
    heard(&mut reader, "event: tool_end");
    // The next line is its id.
    let (_, last) = heard(&mut reader, "id: ");
    let place = daemon.kill();
    let cut = rest(&mut reader.into_inner());
    // The last chunk of a whole answer is an empty one.
    assert!(
        !cut.ends_with("0\r\n\r\n") && !cut.contains("event: error"),
        "{cut}"
    );
    let after = format!("Last-Event-ID: {last}\r\n");
    let mut down = watch(&(after.clone() + "Connection: close\r\n")).into_inner();
    let down = Answer::parse(&rest(&mut down));
    assert_eq!((down.status, down.code().as_str()), (503, "no-daemon"));
    let _daemon = place.start();
    let (said, end) = heard(&mut watch(&after), "\r\n0\r\n");
    assert!(
        said.contains("event: error") && said.contains("\"code\":\"interrupted\""),
        "{said}"
    );
    // The end may come before the stream is live, or after it: then `live` has the last number.
    let live = format!("event: live\nid: {last}");
    let said = said.replace(&live, "");
    for before in ["event: accepted", "event: tool_end", last.as_str()] {
        assert!(!said.contains(before), "{before}: {said}");
    }
    // And then there is no more.
    let cursor = format!("Last-Event-ID: {end}");
    assert_eq!(
        http.curl("/v1/jobs/j1/events", &["-H", &cursor]).status,
        204
    );
}

#[test]
fn http_server_that_is_stopped_answers_what_waits() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let pid = http.pid();
    let turn = json!({"prompt": "a [[sleep 600000]]"});
    let at = http.at;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| http.post("/v1/dispatch?wait=300", &turn));
        let watching = scope.spawn(|| {
            wait_for("the job", || (super::jobs(&daemon) == 1).then_some(()));
            let mut stream = http.connect();
            let request = http.head("GET /v1/jobs/j1/events") + "\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            let mut reader = BufReader::new(stream);
            let mut said = String::new();
            while !said.contains("event: live") {
                assert!(reader.read_line(&mut said).unwrap() > 0, "{said}");
            }
            kill(pid, Signal::SIGTERM);
            rest(&mut reader.into_inner())
        });
        watching.join().unwrap();
        let answer = waiting.join().unwrap();
        assert_eq!(
            (answer.status, &answer.json()["pending"]),
            (202, &json!(["j1"]))
        );
    });
    assert!(http.left().success());
    assert!(std::net::TcpStream::connect(at).is_err());
    let log = std::fs::read_to_string(daemon.path("http.log")).unwrap();
    assert!(log.contains("POST /v1/dispatch 202 "), "{log}");
    // The turn is the daemon's, and goes on.
    assert_eq!(daemon.status()["rpc"]["in_flight"], 1);
}

#[test]
fn http_logs_neither_token_nor_questions() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let canary = "canary-7f3a";
    let turn = json!({"prompt": canary});
    http.post(&format!("/v1/dispatch?wait={canary}"), &turn);
    http.post("/v1/dispatch?wait=20", &turn);
    http.curl(&format!("/v1/jobs?session={canary}"), &[]);
    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", http.pid())).unwrap();
    kill(http.pid(), Signal::SIGTERM);
    let token = http.token.clone();
    assert!(http.left().success());
    let log = std::fs::read_to_string(daemon.path("http.log")).unwrap();
    assert!(log.contains("GET /v1/jobs 200 "), "{log}");
    for text in [&log, &words, &daemon.log()] {
        assert!(!text.contains(canary) && !text.contains(&token), "{text}");
    }
}

#[test]
fn http_is_not_stopped_by_an_unread_log() {
    if needs("curl").is_none() {
        return;
    }
    let daemon = Daemon::start();
    let http = Http::start(&daemon.place);
    let token = http.token.clone();
    drop(http);
    // A pipe that nobody reads: 64 KiB and it is full.
    let mut command = daemon.place.command(crate::support::AGENTCTL);
    command
        .args(["serve", "http", "--listen", "127.0.0.1:0"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut server = crate::support::Reaped(command.spawn().unwrap());
    let said = crate::support::lines(server.0.stdout.take().unwrap());
    let said = said.recv_timeout(crate::support::DEADLINE).unwrap();
    let at: std::net::SocketAddr = said["http://".len()..]
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let path = "x".repeat(200);
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    stream
        .set_read_timeout(Some(crate::support::DEADLINE))
        .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..2000 {
        let request =
            format!("GET /{path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 404 "), "{line}");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(said) = line.strip_prefix("content-length: ") {
                length = said.trim().parse().unwrap();
            }
        }
        std::io::Read::read_exact(&mut reader, &mut vec![0; length]).unwrap();
    }
}
