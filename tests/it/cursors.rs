//! Readers that come, go, read slowly and come back: what a cursor promises, from outside.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{AGENTD, Client, Daemon};

/// Numbers of the numbered lines; each has to be larger than the one before.
fn numbers(lines: &[Value]) -> Vec<u64> {
    let lines = lines.iter().filter(|line| line["type"] != "live");
    let numbers: Vec<u64> = lines.filter_map(|line| line["seq"].as_u64()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    numbers
}

/// The text by job, message by message; a hole or a repetition fails.
fn texts(lines: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines {
        let Some(job) = line["job"].as_str() else {
            continue;
        };
        let messages = all.entry(job.to_owned()).or_default();
        if line["type"] == "message_start" {
            assert_eq!(line["message"], messages.len(), "{line}");
            messages.push(String::new());
        } else if line["type"] == "message_delta" {
            let text = messages.last_mut().expect("a message_start");
            assert_eq!(line["offset"], text.len(), "{line}");
            text.push_str(line["text"].as_str().unwrap());
        }
    }
    all
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    let kinds = lines.iter().map(|line| line["type"].as_str().unwrap());
    // How deltas were cut, and what a worker's start is noted with, is not the point.
    kinds
        .filter(|kind| *kind != "message_delta" && *kind != "note")
        .collect()
}

fn reader(daemon: &Daemon, fields: &str) -> Client {
    let mut client = daemon.connect();
    client.request(r#"{"type":"hello"}"#);
    client.send(&format!(r#"{{"type":"subscribe","id":"w"{fields}}}"#));
    client
}

fn run(daemon: &Daemon, session: &str, prompt: &str) {
    let line = format!(r#"{{"agent":"chaos","prompt":"{prompt}","session":"{session}"}}"#);
    let end = daemon.ask(&line).pop().unwrap();
    assert_eq!(end["type"], "message_end", "{end:#}");
}

#[test]
fn cursor_of_a_history_is_where_live_begins() {
    let daemon = Daemon::start();
    run(&daemon, "a", "chaos:say one;tool ro;say two");
    let mut first = reader(&daemon, r#","after":0"#);
    let mut lines = first.until("live");
    let epoch = lines.last().unwrap()["epoch"].as_str().unwrap().to_owned();
    let expected = [
        "accepted",
        "running",
        "tool_start",
        "tool_end",
        "message_start",
        "message_end",
        "live",
    ];
    assert_eq!(kinds(&lines), expected);
    assert!(lines.iter().all(|line| line["id"] == "w"), "{lines:#?}");
    assert_eq!(lines[0]["replayed"], false);
    run(&daemon, "b", "more");
    lines.extend(first.until("message_end"));
    assert_eq!(texts(&lines)["j1"], ["onetwo"]);
    let cursor = *numbers(&lines).last().unwrap();
    drop(first);
    run(&daemon, "a", "while it was away");
    // The daemon dies, and the cursor holds.
    let daemon = daemon.kill().start();
    let mut second = reader(&daemon, &format!(r#","after":{cursor},"epoch":"{epoch}""#));
    let resumed = second.until("live");
    assert_eq!(numbers(&resumed)[0], cursor + 1);
    assert_eq!(
        texts(&resumed).into_values().collect::<Vec<_>>(),
        [["while it was away"]]
    );
    let mut whole = reader(&daemon, r#","after":0"#);
    let whole = numbers(&whole.until("live"));
    let joined: Vec<u64> = numbers(&lines)
        .into_iter()
        .chain(numbers(&resumed))
        .collect();
    assert_eq!(joined, whole);
}

#[test]
fn joiner_gets_the_text_so_far_and_on() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let mut sender = daemon.connect();
    let prompt = format!("chaos:say so far;wait-file {};say , and on", gate.display());
    sender.send(&format!(
        r#"{{"type":"send","agent":"chaos","text":"{prompt}","id":1}}"#
    ));
    sender.until("message_delta");
    let mut joiner = reader(&daemon, "");
    assert_eq!(joiner.next().unwrap()["type"], "live");
    let mut lines = joiner.until("message_delta");
    std::fs::write(gate, "").unwrap();
    lines.extend(joiner.until("message_end"));
    assert_eq!(texts(&lines)["j1"], ["so far, and on"]);
}

#[test]
fn cursor_of_another_store_is_refused_with_ours() {
    let daemon = Daemon::start();
    run(&daemon, "a", "x");
    let mut client = reader(&daemon, r#","after":1,"epoch":"another""#);
    let refused = client.next().unwrap();
    assert_eq!(refused["code"], "cursor-invalid", "{refused:#}");
    let epoch = daemon.status()["daemon"]["epoch"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        refused["error"].as_str().unwrap().contains(&epoch),
        "{refused:#}"
    );
    let refused = client.request(r#"{"type":"subscribe","after":1000}"#);
    assert_eq!(refused["code"], "cursor-invalid", "{refused:#}");
}

#[test]
fn cursor_orders_a_one_shots_run_before_ours() {
    let daemon = Daemon::start();
    run(&daemon, "here", "first");
    let mut watcher = reader(&daemon, "");
    let live = watcher.until("live").pop().unwrap();
    let mut beside = daemon.place.command(AGENTD);
    beside
        .arg("--stdio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut beside = beside.stderr(Stdio::null()).spawn().unwrap();
    let send = b"{\"prompt\":\"beside\",\"agent\":\"chaos\",\"session\":\"there\"}\n";
    beside.stdin.take().unwrap().write_all(send).unwrap();
    let output = beside.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    run(&daemon, "here", "second");
    let mut lines = watcher.until("message_end");
    lines.extend(watcher.until("message_end"));
    let sessions: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "message_end")
        .collect();
    assert_eq!(
        (&sessions[0]["session"], &sessions[1]["session"]),
        (&"there".into(), &"here".into())
    );
    assert_eq!(sessions[0]["served_by"], "oneshot");
    let told = numbers(&lines);
    let since = live["seq"].as_u64().unwrap() + 1;
    let all: Vec<u64> = (since..since + told.len() as u64).collect();
    assert_eq!(told, all, "nothing is left out");
    assert_eq!(
        texts(&lines).into_values().collect::<Vec<_>>(),
        [["beside"], ["second"]]
    );
}

#[test]
fn reader_asleep_through_100000_deltas_gets_them_cheaply() {
    let daemon = Daemon::start();
    let mut slow = reader(&daemon, "");
    slow.until("live");
    run(&daemon, "warm", "x");
    let rss = |daemon: &Daemon| daemon.status()["daemon"]["rss_bytes"].as_u64().unwrap();
    let before = rss(&daemon);
    let gate = daemon.path("gate");
    let mut sender = daemon.connect();
    let prompt = format!("chaos:emit 100000;wait-file {}", gate.display());
    sender.send(&format!(
        r#"{{"type":"send","agent":"chaos","text":"{prompt}","session":"warm","id":1}}"#
    ));
    let mut heard = Vec::new();
    while !heard.last().is_some_and(|line: &Value| {
        line["type"] == "message_delta" && line["text"].as_str().unwrap().ends_with("d99999 ")
    }) {
        heard.push(sender.next().unwrap());
    }
    let cost = rss(&daemon).saturating_sub(before);
    // The text itself, which the turn has, is 0.7 MB of it.
    assert!(cost < 8 * 1024 * 1024, "{} KiB", cost / 1024);
    // Nobody else notices.
    let other = daemon.ask(r#"{"prompt":"quick"}"#).pop().unwrap();
    assert_eq!(other["text"], "quick", "{other:#}");
    std::fs::write(gate, "").unwrap();
    heard.extend(sender.until("message_end"));
    let mut lines = Vec::new();
    while lines
        .iter()
        .filter(|line: &&Value| line["type"] == "message_end")
        .count()
        < 3
    {
        lines.push(slow.next().unwrap());
    }
    numbers(&lines);
    let job = heard[0]["job"].as_str().unwrap();
    assert_eq!(texts(&lines)[job], texts(&heard)[job]);
    assert!(lines.len() < 20_000, "merged: {} lines", lines.len());
}

#[test]
fn readers_that_are_cut_have_every_line_once() {
    let daemon = Daemon::start();
    let stop = daemon.path("stop");
    let prompt = format!(
        "chaos:emit 300;tool ro;emit 300;wait-file {}",
        stop.display()
    );
    let mut senders: Vec<Client> = (0..3).map(|_| daemon.connect()).collect();
    for (number, sender) in senders.iter_mut().enumerate() {
        for turn in 0..4 {
            let end = if turn == 3 {
                prompt.as_str()
            } else {
                "chaos:emit 50;tool ro;tool rw;say x"
            };
            sender.send(&format!(
                r#"{{"agent":"chaos","prompt":"{end}","session":"s{number}","id":{turn},"stream":false}}"#
            ));
        }
    }
    let mut told = Vec::new();
    let mut cursor = 0;
    for round in 0..30 {
        let mut client = reader(&daemon, &format!(r#","after":{cursor}"#));
        for _ in 0..=round {
            // It leaves somewhere in the history.
            let line = client.next().unwrap();
            if line["type"] == "live" {
                break;
            }
            if let Some(seq) = line["seq"].as_u64() {
                told.push(seq);
                cursor = seq;
            }
        }
    }
    std::fs::write(stop, "").unwrap();
    for sender in &mut senders {
        for _ in 0..4 {
            sender.last();
        }
    }
    let mut last = reader(&daemon, &format!(r#","after":{cursor}"#));
    told.extend(numbers(&last.until("live")));
    let mut whole = reader(&daemon, r#","after":0"#);
    assert_eq!(told, numbers(&whole.until("live")));
}
