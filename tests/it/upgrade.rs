//! Programs of different versions that meet: what a client of 0.1.0 says is answered as it was, and
//! this client understands a daemon of 0.1.0 and one that says more than it knows.
//!
//! What was said then is `tests/fixtures/v1/wire/0.1.0.jsonl`, word for word from a daemon of that
//! version: a new one is recorded with each release, and none is changed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Client, Daemon, Finished, Place};

const RECORDED: &str = include_str!("../fixtures/v1/wire/0.1.0.jsonl");

struct Exchange {
    asked: Value,
    answered: Vec<Value>,
}

fn recorded() -> Vec<Exchange> {
    let exchange = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        Exchange {
            asked: line["asked"].take(),
            answered: serde_json::from_value(line["answered"].take()).unwrap(),
        }
    };
    RECORDED.lines().map(exchange).collect()
}

/// Is all that was said said again, with values of the same type? More may be said.
fn says_as_much(then: &Value, now: &Value, at: &str) -> Result<(), String> {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => then.iter().try_for_each(|(name, then)| {
            let at = format!("{at}.{name}");
            let now = now.get(name).ok_or(format!("{at} is gone"))?;
            says_as_much(then, now, &at)
        }),
        (Value::Array(then), Value::Array(now)) => match (then.first(), now.first()) {
            (Some(then), Some(now)) => says_as_much(then, now, &format!("{at}[0]")),
            (Some(_), None) => Err(format!("{at} is empty")),
            (None, _) => Ok(()),
        },
        // What was not known then may be known now.
        (Value::Null, _) => Ok(()),
        (then, now) if std::mem::discriminant(then) == std::mem::discriminant(now) => Ok(()),
        (then, now) => Err(format!("{at} was {then}, is {now}")),
    }
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    // Text comes in as many pieces as the moment makes of it.
    let kinds = lines.iter().map(|line| line["type"].as_str().unwrap());
    let mut kinds: Vec<&str> = kinds.filter(|kind| *kind != "message_delta").collect();
    kinds.dedup();
    kinds
}

#[test]
fn upgrade_answers_old_clients_as_before() {
    let daemon = Daemon::start();
    let mut client = Client::connect(&daemon.place.socket());
    for Exchange { asked, answered } in recorded() {
        if asked.get("type").is_none() {
            // The bare form has a connection of its own.
            client = Client::connect(&daemon.place.socket());
        }
        client.send(&asked.to_string());
        let last = answered.last().unwrap()["type"]
            .as_str()
            .unwrap()
            .to_owned();
        let now = client.until(&last);
        assert_eq!(kinds(&answered), kinds(&now), "{asked}");
        for then in &answered {
            let same = now.iter().find(|line| line["type"] == then["type"]);
            if let Err(why) = says_as_much(then, same.unwrap(), "") {
                panic!("{asked}: {why}");
            }
        }
        // Codes are what programs decide by.
        assert_eq!(
            answered.last().unwrap()["code"],
            now.last().unwrap()["code"]
        );
    }
}

/// A daemon that says what was recorded, changed by `speak`, until the test ends.
fn daemon_that(place: &Place, speak: fn(Value) -> Vec<Value>) {
    let listener = UnixListener::bind(place.socket()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream, speak));
        }
    });
}

fn answer(stream: UnixStream, speak: fn(Value) -> Vec<Value>) {
    let mut out = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Ok(asked) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let kind = asked["type"].as_str().unwrap_or("send").to_owned();
        let exchange = recorded()
            .into_iter()
            .find(|one| one.asked["type"] == kind.as_str());
        for mut said in exchange.unwrap().answered {
            said["id"] = asked["id"].clone();
            for line in speak(said) {
                // Whoever asked may have what it wanted.
                let _gone = out.write_all(format!("{line}\n").as_bytes());
            }
        }
    }
}

fn understood(place: &Place) {
    let run = |args: &[&str]| -> Finished {
        let done = place.agentctl(args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
        assert!(!done.stderr.contains("error"), "{args:?}: {done:?}");
        done
    };
    assert_eq!(
        run(&["send", "--no-fallback", "one two"]).stdout,
        "one two\n"
    );
    assert!(run(&["status"]).stdout.contains("is ready"));
    let status: Value = serde_json::from_str(&run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["state"], "ready");
    for words in [
        &["status", "--rpc"][..],
        &["metrics"],
        &["jobs"],
        &["sessions"],
        &["history", "s"],
        &["dispatch", "later"],
        &["collect", "j2"],
        &["abort", "j1"],
        &["undrain"],
    ] {
        run(words);
    }
}

#[test]
fn a_daemon_of_0_1_0_is_understood() {
    let place = Place::new("");
    daemon_that(&place, |said| vec![said]);
    understood(&place);
}

#[test]
fn upgrade_understands_a_daemon_that_says_more() {
    let place = Place::new("");
    daemon_that(&place, |mut said| {
        let future = json!({"type": "future_event", "id": said["id"], "seq": 1, "why": ["x", 1]});
        let unasked = json!({"type": "future_note", "of": {"nobody": true}});
        said["future"] = json!({"deep": [{"er": 1.5}], "text": "\u{1b}[2J"});
        if said["type"] == "hello" {
            said["version"] = json!("9.0.0");
            said["capabilities"]
                .as_array_mut()
                .unwrap()
                .push(json!("future"));
        }
        if said["type"] == "status" {
            said["daemon"]["version"] = json!("9.0.0");
            said["rpc"]["future"] = json!({});
        }
        match said["type"].as_str().unwrap() {
            // Nothing comes before it.
            "hello" => vec![said, unasked],
            "accepted" => vec![unasked, said, future],
            _ => vec![unasked, said],
        }
    });
    understood(&place);
    let doctor = place.agentctl(&["doctor"]);
    assert!(
        doctor.stdout.contains("the daemon that runs is 9.0.0"),
        "{doctor:?}"
    );
}

#[test]
fn upgrade_leaves_a_daemon_of_another_protocol_alone() {
    let place = Place::new("");
    daemon_that(&place, |mut said| {
        said["protocol"] = json!(2);
        said["version"] = json!("9.0.0");
        vec![said]
    });
    for words in [
        &["send", "hi"][..],
        &["send", "--no-fallback", "hi"],
        &["status"],
        &["jobs"],
    ] {
        let refused = place.agentctl(words);
        assert_eq!(refused.code, Some(69), "{words:?}: {refused:?}");
        assert!(
            refused
                .stderr
                .contains("it speaks protocol 2 (version 9.0.0)"),
            "{words:?}: {refused:?}"
        );
    }
    assert!(
        !place.path("state/agentd.db").exists(),
        "nothing ran without it"
    );
    assert!(Path::new(&place.socket()).exists());
}
