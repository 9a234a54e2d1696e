//! Bad input: rows B1 to B12 of the fault catalogue, as PROTOCOL.md parts 1 and 2 want them.
//!
//! Not here: the 30 s and 5 min of B3 are tested with a paused clock in `peer/tests.rs`; what B11 says
//! of terminals is `faults_terminal.rs`.

use std::net::Shutdown;

use agentd_protocol::limits::{MAX_DEPTH, MAX_LINE_IN};
use serde_json::Value;

use crate::support::{Client, Daemon, wait_for};

/// What came back, in short: a code, or the line's type.
fn names(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["code"].as_str().or(line["type"].as_str()).unwrap())
        .collect()
}

/// Everything in one write, then the end of input.
fn pour(daemon: &Daemon, bytes: &[u8]) -> Vec<Value> {
    let mut client = daemon.connect();
    client.write(bytes);
    client.stream.shutdown(Shutdown::Write).unwrap();
    client.rest()
}

fn rss(daemon: &Daemon) -> u64 {
    daemon.status()["daemon"]["rss_bytes"].as_u64().unwrap()
}

/// The most memory it ever had.
fn peak(daemon: &Daemon) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

const MIB: u64 = 1024 * 1024;

#[test]
fn b1_unended_line_is_served_whole_or_never() {
    let daemon = Daemon::start();
    for (last, name) in [
        (&br#"{"type":"ping"}"#[..], "pong"),
        (br#"{"type":"ping"}   "#, "pong"),
        (br#"{"prompt":"half"#, "truncated"),
        (br#"{"prompt":"half","#, "truncated"),
        (br#"{"#, "truncated"),
        (b"prompt", "bad-json"),
        (b"[1]", "not-an-object"),
        (b"\xff", "bad-utf8"),
        (br#"{"type":"ping","type":"ping"}"#, "bad-json"),
        (br#"{"type":"ping"} and"#, "bad-json"),
    ] {
        let lines = pour(&daemon, last);
        assert_eq!(names(&lines), [name], "{}", String::from_utf8_lossy(last));
    }
    assert_eq!(daemon.status()["rpc"]["sends"], 0, "half a prompt was run");
}

#[test]
fn b2_line_over_the_limit_is_skipped() {
    let daemon = Daemon::start();
    for (more, name) in [(0, "pong"), (1, "frame-too-long")] {
        let (head, tail) = (r#"{"type":"ping","x":""#, r#""}"#);
        let fill = "x".repeat(MAX_LINE_IN - head.len() - tail.len() + more);
        let text = format!("{head}{fill}{tail}\n{{\"type\":\"abort\"}}\n");
        assert_eq!(names(&pour(&daemon, text.as_bytes())), [name, "abort"]);
    }
}

/// Its worker's line is longer, by what the daemon adds. What echo says then is too long for a line of
/// a worker's own: that is another end.
#[test]
fn b2_longest_prompt_reaches_its_worker() {
    let daemon = Daemon::start();
    let (head, tail) = (r#"{"stream":false,"prompt":""#, r#""}"#);
    let room = MAX_LINE_IN - head.len() - tail.len();
    let escaped = "\\u0000".repeat(room / 6) + &"x".repeat(room % 6);
    let lines = pour(&daemon, format!("{head}{escaped}{tail}\n").as_bytes());
    assert_eq!(names(&lines), ["accepted", "agent-failed"], "{lines:?}");
}

#[test]
fn b2_line_without_end_takes_bounded_memory() {
    let daemon = Daemon::start();
    let before = peak(&daemon);
    let mut client = daemon.connect();
    let portion = vec![b'x'; 1024 * 1024];
    for _ in 0..200 {
        client.write(&portion);
    }
    client.write(b"\n{\"type\":\"ping\"}\n");
    assert_eq!(names(&client.rest()), ["frame-too-long", "pong"]);
    let grown = (peak(&daemon) - before) / MIB;
    // A buffer that doubles holds the old and the new one for a moment.
    assert!(grown < 56, "{grown} MiB for a line that is refused");
}

#[test]
fn b3_b8_bytes_may_come_in_any_portions() {
    let daemon = Daemon::start();
    let text = "{\"type\":\"ping\",\"id\":\"ä\"}\r\n\n  \t\r\n{\"type\":\"abort\",\"id\":2}\n";
    for portion in [1, 2, 3, 7, text.len()] {
        let mut client = daemon.connect();
        client.request(r#"{"type":"hello"}"#);
        for bytes in text.as_bytes().chunks(portion) {
            client.write(bytes);
        }
        client.stream.shutdown(Shutdown::Write).unwrap();
        let lines = client.rest();
        assert_eq!(names(&lines), ["pong", "abort"], "{portion}");
        assert_eq!(lines[0]["id"], "ä", "{portion}");
    }
}

#[test]
fn b4_b5_b6_loose_json_is_refused_alone() {
    let daemon = Daemon::start();
    let nested = |depth: usize| {
        let inside = depth - 1;
        format!(
            "{{\"type\":\"ping\",\"x\":{}{}}}",
            "[".repeat(inside),
            "]".repeat(inside)
        )
    };
    let many: Vec<String> = (0..10_000).map(|n| format!("\"k{n}\":{n}")).collect();
    let mut cases: Vec<(Vec<u8>, &str)> = [
        (&b"{\"type\":\"ping\",\"x\":\"\xff\"}"[..], "bad-utf8"),
        (b"{\"type\":\"ping\",\"x\":\"\xed\xa0\x80\"}", "bad-utf8"),
        (b"{\"type\":\"ping\",\"x\":\"\xc0\xaf\"}", "bad-utf8"),
        (b"{\"type\":\"ping\",\"x\":\"\0\"}", "bad-json"),
        (b"\0", "bad-json"),
        (b"\xef\xbb\xbf{\"type\":\"ping\"}", "bad-json"),
        (br#"{"type":"ping","x":"\ud800"}"#, "bad-json"),
        (br#"{"type":"ping","x":"\udc00\ud800"}"#, "bad-json"),
        (br#"{"type":"ping","x":"\ud83d\ude00"}"#, "pong"),
        (br#"{"type":"ping","x":"\u0000"}"#, "pong"),
        (b"{\"type\":\"ping\"}\r", "pong"),
        (
            "{\"type\":\"ping\",\"x\":\"\u{2028}\u{2029}\"}".as_bytes(),
            "pong",
        ),
        (br#"{"type":"ping","type":"ping"}"#, "bad-json"),
        (br#"{"type":"ping","x":{"a":1,"\u0061":2}}"#, "bad-json"),
        (br#"{"type":"ping","x":NaN}"#, "bad-json"),
        (br#"{"type":"ping","x":1e999}"#, "bad-json"),
        (br#"{"type":"ping","x":01}"#, "bad-json"),
        (br#"{"type":"ping",}"#, "bad-json"),
        (br#"{"type":"ping"}{"type":"ping"}"#, "bad-json"),
        (
            br#"{"type":"ping","x":123456789012345678901234567890}"#,
            "pong",
        ),
        (br#"{"type":"ping","__proto__":{"constructor":1}}"#, "pong"),
        (b"null", "not-an-object"),
        (b"\"text\"", "not-an-object"),
        (b"12", "not-an-object"),
    ]
    .map(|(line, name)| (line.to_vec(), name))
    .to_vec();
    cases.push((nested(MAX_DEPTH).into_bytes(), "pong"));
    cases.push((nested(MAX_DEPTH + 1).into_bytes(), "bad-json"));
    cases.push((nested(100_000).into_bytes(), "bad-json"));
    cases.push(("[".repeat(100_000).into_bytes(), "bad-json"));
    cases.push((
        format!("{{\"type\":\"ping\",{}}}", many.join(",")).into_bytes(),
        "pong",
    ));
    for (line, name) in cases {
        let bytes = [&line, &b"\n{\"type\":\"abort\"}\n"[..]].concat();
        let lines = pour(&daemon, &bytes);
        let shown = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        let mut found = names(&lines);
        found.sort_unstable();
        let mut expected = [name, "abort"];
        expected.sort_unstable();
        assert_eq!(found, expected, "{shown}: {lines:?}");
    }
}

#[test]
fn b7_wrong_field_echoes_the_id() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.request(r#"{"type":"hello"}"#);
    for (line, code) in [
        (r#"{"type":7,"id":ID}"#, "invalid-request"),
        (r#"{"type":null,"id":ID}"#, "invalid-request"),
        (r#"{"id":ID}"#, "invalid-request"),
        (r#"{"type":"nope","id":ID}"#, "unknown-command"),
        (r#"{"type":"send","id":ID}"#, "invalid-request"),
        (r#"{"type":"send","text":["a"],"id":ID}"#, "invalid-request"),
        (
            r#"{"prompt":"a","timeout":"soon","id":ID}"#,
            "invalid-request",
        ),
        (r#"{"prompt":"a","timeout":-1,"id":ID}"#, "invalid-request"),
        (
            r#"{"prompt":"a","session":"../../etc passwd","id":ID}"#,
            "invalid-request",
        ),
        (r#"{"prompt":"a","agent":"-rf","id":ID}"#, "invalid-request"),
        (r#"{"prompt":"a","cwd":"here","id":ID}"#, "invalid-request"),
        (r#"{"prompt":"a","text":"b","id":ID}"#, "invalid-request"),
        (
            r#"{"type":"collect","jobs":"j1","id":ID}"#,
            "invalid-request",
        ),
        (
            r#"{"type":"collect","jobs":["1"],"id":ID}"#,
            "invalid-request",
        ),
        (r#"{"type":"abort","job":1,"id":ID}"#, "invalid-request"),
        (
            r#"{"type":"daemon.stop","deadline":-5,"id":ID}"#,
            "invalid-request",
        ),
    ] {
        for id in [
            "1",
            "null",
            "\"a\\u0062\"",
            "{\"k\": [1,  2.50]}",
            "18446744073709551616",
        ] {
            client.send(&line.replace("ID", id));
            let mut text = String::new();
            client.raw_line(&mut text);
            let starts = format!(r#"{{"type":"error","id":{id},"code":"{code}","#);
            assert!(text.starts_with(&starts), "{line}: {text}");
        }
    }
    assert_eq!(client.request(r#"{"type":"ping"}"#)["type"], "pong");
    let long = format!(r#"{{"type":"ping","id":"{}"}}"#, "x".repeat(255));
    assert_eq!(
        client.request(&long)["code"],
        "invalid-request",
        "an id of 257 bytes"
    );
}

#[test]
fn b9_thousand_requests_at_once_are_all_answered() {
    let daemon = Daemon::start();
    let text: String = (0..1000)
        .map(|n| format!("{{\"type\":\"ping\",\"id\":{n}}}\n"))
        .collect();
    let lines = pour(&daemon, text.as_bytes());
    let mut ids: Vec<u64> = lines
        .iter()
        .map(|line| line["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..1000).collect::<Vec<_>>());
}

#[test]
fn b9_sends_over_the_limit_are_refused() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let text: String = (0..100)
        .map(|n| {
            let gate = gate.display();
            format!("{{\"id\":{n},\"agent\":\"chaos\",\"session\":\"one\",\"prompt\":\"chaos: wait-file {gate}\"}}\n")
        })
        .collect();
    let mut client = daemon.connect();
    client.write(text.as_bytes());
    let first: Vec<Value> = (0..100).map(|_| client.next().unwrap()).collect();
    let count =
        |lines: &[Value], name: &str| names(lines).iter().filter(|one| **one == name).count();
    assert_eq!(
        (count(&first, "accepted"), count(&first, "queue-full")),
        (64, 36)
    );
    std::fs::write(&gate, "").unwrap();
    assert_eq!(count(&client.rest(), "message_end"), 64);
}

#[test]
fn b10_other_protocols_get_errors_and_an_end() {
    let daemon = Daemon::start();
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\xff\xfe\xfd";
    for (bytes, codes) in [
        (
            &b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"[..],
            vec!["bad-json"; 3],
        ),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", vec!["bad-json"]),
        (&tls[..], vec!["bad-utf8"]),
    ] {
        assert_eq!(names(&pour(&daemon, bytes)), codes);
    }
    // It ends the connection of one that waits for more, too.
    let mut client = daemon.connect();
    client.write(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(names(&client.rest()), ["bad-json"]);
}

#[test]
fn b11_escapes_in_a_prompt_come_back_unchanged() {
    let daemon = Daemon::start();
    let text = "\u{1b}]0;title\u{7}\u{1b}[31m\u{202e}drow\u{0}\u{9b}2J";
    let line = serde_json::json!({"agent": "chaos", "prompt": text}).to_string();
    let lines = daemon.ask(&line);
    assert_eq!(lines.last().unwrap()["text"], text, "{lines:?}");
}

#[test]
fn b12_peer_that_never_reads_costs_bounded_memory() {
    let daemon = Daemon::start();
    daemon.ask(r#"{"agent":"chaos","prompt":"warm"}"#);
    let before = rss(&daemon);
    let mut deaf: Vec<Client> = (0..8)
        .map(|n| {
            let mut client = daemon.connect();
            client.send(r#"{"type":"hello"}"#);
            client.send(&format!(r#"{{"type":"subscribe","id":{n}}}"#));
            client
        })
        .collect();
    let lines =
        daemon.ask(r#"{"type":"send","agent":"chaos","prompt":"chaos: flood 24","stream":false}"#);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["truncated"]),
        (&"message_end".into(), &true.into())
    );
    let grown = (peak(&daemon).saturating_sub(before)) / MIB;
    // The text of the turn itself is held once, in buffers that double; not once for each reader.
    assert!(
        grown < 24 * 5,
        "{grown} MiB for a text of 24 MiB and 8 readers"
    );
    assert_eq!(
        daemon.ask(r#"{"prompt":"still here"}"#)[1]["text"],
        "still here"
    );
    // Late, but nothing is missing: the final line comes.
    let reader = deaf.first_mut().unwrap();
    let seen = reader.until("message_end");
    assert_eq!(seen.last().unwrap()["job"], last["job"]);
    drop(deaf);
    wait_for("the connections are gone", || {
        (daemon.ask(r#"{"type":"ping"}"#).len() == 1).then_some(())
    });
}

#[test]
fn b12_peer_that_never_writes_bothers_nobody() {
    let daemon = Daemon::start();
    let mut silent: Vec<Client> = (0..200).map(|_| daemon.connect()).collect();
    assert_eq!(daemon.ask(r#"{"prompt":"a"}"#)[1]["text"], "a");
    // All at once: each is left open for a moment before it is closed.
    for client in &mut silent {
        client.send(r#"{"type":"ping"}"#);
    }
    for mut client in silent {
        assert_eq!(names(&client.rest()), ["pong"]);
    }
}
