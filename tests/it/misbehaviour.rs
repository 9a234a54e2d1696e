//! Workers that say the wrong thing, too much, nothing, or don't stop.

use serde_json::{Value, json};

use crate::supervision::{chaos, chaos_in, pid_of, row};
use crate::support::{Client, Daemon, is_alive};

fn start(daemon: &Daemon, script: &str, session: &str) -> Client {
    let mut client = daemon.connect();
    let line = json!({"type": "send", "agent": "chaos", "session": session, "text": script});
    client.send(&line.to_string());
    client.until("message_delta");
    client
}

fn abort(daemon: &Daemon, session: &str) -> Value {
    daemon
        .ask(&json!({"type": "abort", "session": session}).to_string())
        .remove(0)
}

#[test]
fn garbage_on_standard_output_is_not_an_answer() {
    let daemon = Daemon::start();
    for script in [
        "chaos:junk 1000;say fine",
        "chaos:utf8bad;say fine",
        "chaos:stderr-flood 4000;say fine",
        "chaos:wrong-session;say fine",
    ] {
        let last = chaos(&daemon, script);
        assert_eq!(
            (&last["type"], &last["text"]),
            (&json!("message_end"), &json!("fine")),
            "{script}: {last:#}"
        );
    }
    assert_eq!(row(&daemon.status(), "chaos").unwrap()["generation"], 1);
}

#[test]
fn final_line_that_was_unasked_ends_no_turn() {
    let daemon = Daemon::start();
    for session in ["a", "b"] {
        let last = chaos_in(&daemon, "chaos:stale-id;say mine", Some(session));
        assert_eq!(last["text"], "mine", "{last:#}");
        let last = chaos_in(&daemon, "chaos:two-finals;say first", Some(session));
        assert_eq!(last["text"], "first", "{last:#}");
        let last = chaos_in(&daemon, "chaos:sleep-ms 20;say second", Some(session));
        assert_eq!(last["text"], "second", "{last:#}");
    }
}

#[test]
fn line_over_the_limit_is_skipped_and_noted() {
    let daemon = Daemon::start();
    let lines =
        daemon.ask(r#"{"type":"send","agent":"chaos","text":"chaos:long-line 20;say after"}"#);
    let note = lines
        .iter()
        .find(|line| line["type"] == "note")
        .unwrap_or_else(|| panic!("{lines:#?}"));
    assert_eq!(note["level"], "warning", "{note:#}");
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["text"]),
        (&json!("message_end"), &json!("after")),
        "{last:#}"
    );
}

#[test]
fn flood_ends_at_the_limit_in_bounded_memory() {
    let daemon = Daemon::start();
    // Streamed, so that each read shows that it goes on: a debug build takes its time.
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","agent":"chaos","text":"chaos:flood 100"}"#);
    let last = client.last();
    assert_eq!(
        (&last["type"], &last["code"], &last["truncated"]),
        (&json!("error"), &json!("output-limit"), &json!(true)),
        "{:#}",
        last["error"]
    );
    assert!(last["text"].as_str().unwrap().len() <= 512 * 1024);
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 512 * 1024, "peak {peak} kB");
    assert_eq!(chaos(&daemon, "chaos:say after")["text"], "after");
}

#[test]
fn final_line_after_an_abort_answers_nothing() {
    let daemon = Daemon::start();
    let mut first = start(&daemon, "chaos:late 300;say one;wait-file /nowhere", "s");
    let aborted = abort(&daemon, "s");
    assert_eq!(
        (&aborted["ok"], aborted["jobs"].as_array().map(Vec::len)),
        (&json!(true), Some(1)),
        "{aborted:#}"
    );
    let second = chaos_in(&daemon, "chaos:say two", Some("s"));
    assert_eq!(
        (&second["type"], &second["text"]),
        (&json!("message_end"), &json!("two")),
        "{second:#}"
    );
    let last = first.until("message_end").pop().unwrap();
    assert_eq!(
        (&last["stop"], &last["text"]),
        (&json!("cancelled"), &json!("one")),
        "{last:#}"
    );
    assert_eq!(row(&daemon.status(), "chaos").unwrap()["generation"], 1);
}

#[test]
fn abort_while_queued_ends_that_turn_only() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let mut first = start(
        &daemon,
        &format!("chaos:say one;wait-file {}", gate.display()),
        "s",
    );
    let mut second = daemon.connect();
    let accepted = second.request(r#"{"type":"send","agent":"chaos","session":"s","text":"two"}"#);
    let job = &accepted["job"];
    daemon.ask(&json!({"type": "abort", "job": job}).to_string());
    let last = second.until("message_end").pop().unwrap();
    assert_eq!(
        (&last["stop"], &last["text"]),
        (&json!("cancelled"), &json!("")),
        "{last:#}"
    );
    std::fs::write(&gate, "").unwrap();
    let last = first.until("message_end").pop().unwrap();
    assert_eq!(
        (&last["stop"], &last["text"]),
        (&json!("end_turn"), &json!("one")),
        "{last:#}"
    );
}

#[test]
fn timeout_of_a_turn_keeps_its_text() {
    let daemon = Daemon::start();
    let lines = daemon.ask(r#"{"type":"send","agent":"chaos","timeout":0.2,"text":"chaos:say begun;wait-file /nowhere"}"#);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["text"]),
        (&json!("timeout"), &json!("begun")),
        "{last:#}"
    );
}

#[test]
fn abort_that_is_ignored_replaces_the_worker() {
    let daemon = Daemon::start();
    let mut first = start(&daemon, "chaos:ignore-term;say begun;hang-all", "s");
    let pid = pid_of(&daemon, "chaos");
    abort(&daemon, "s");
    let settling = daemon.status();
    assert_eq!(
        row(&settling, "chaos").unwrap()["state"],
        "settling",
        "{settling:#}"
    );
    let last = first.until("message_end").pop().unwrap();
    assert_eq!(
        (&last["stop"], &last["text"]),
        (&json!("cancelled"), &json!("begun")),
        "{last:#}"
    );
    assert!(
        !is_alive(pid),
        "its process is gone before the job has ended"
    );
    let next = chaos_in(&daemon, "chaos:say back", Some("s"));
    assert_eq!(
        (&next["text"], &next["context"]),
        (&json!("back"), &json!("lost")),
        "{next:#}"
    );
    assert_eq!(row(&daemon.status(), "chaos").unwrap()["generation"], 2);
}
