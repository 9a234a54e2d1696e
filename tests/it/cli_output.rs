//! Answers of any length, on standard output of every kind: all of them once, or an error.

use std::fs::OpenOptions;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::screen::Peer;
use crate::support::{AGENTCTL, Daemon, Finished, Place, TIMMY, finish};

/// A text as long as this, of words that are long themselves: each comes by itself.
fn long(bytes: usize) -> String {
    let word = |number: usize| format!("{number}{} ", "ö".repeat(5000));
    let mut text = String::new();
    let mut words = (0..).map(word);
    while text.len() + 10_020 < bytes {
        text.extend(words.next());
    }
    text.push_str(&"x".repeat(bytes - 3 - text.len()));
    text + "end"
}

fn echoed(place: &Place, words: &[&str], text: &str) -> Finished {
    let mut command = place.command(AGENTCTL);
    command.args(words);
    finish(command, text.as_bytes())
}

fn is_once(done: &Finished, text: &str) {
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let (had, expected) = (done.stdout.len(), text.len() + 1);
    assert_eq!(had, expected, "{}", done.stderr);
    let is_it = done.stdout.strip_suffix('\n') == Some(text);
    assert!(is_it, "another text of the same length");
    assert!(!done.stderr.contains("missing"), "{}", done.stderr);
}

#[test]
fn long_answer_is_printed_whole_and_once() {
    let daemon = Daemon::start();
    let (shown, quiet) = (&["send"][..], &["send", "-q"][..]);
    for (bytes, words) in [(600_000, shown), (5_000_000, quiet), (15_000_000, shown)] {
        let text = long(bytes);
        is_once(&echoed(&daemon.place, words, &text), &text);
    }
    // That of a turn which is over, too.
    let text = long(15_000_000);
    let again = daemon.agentctl(&["attach", "j3"]);
    is_once(&again, &text);
}

#[test]
fn long_answer_without_a_daemon_is_whole() {
    let place = Place::new(&Daemon::config(""));
    let text = long(5_000_000);
    for words in [&["send"][..], &["send", "-q"]] {
        is_once(&echoed(&place, words, &text), &text);
    }
    // As long as one argument may be.
    let text = long(130_000);
    let mut command = place.command(TIMMY);
    command.args(["--provider", "echo", "-p", &text]);
    is_once(&finish(command, b""), &text);
}

#[test]
fn long_answer_that_stays_cut_says_so() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let served = std::thread::spawn(move || {
        let (mut peer, _) = Peer::accept(&listener);
        let id = peer.next()["id"].clone();
        peer.say(json!({"type": "accepted", "id": id, "job": "j1", "session": "s", "agent": "a"}));
        peer.say(
            json!({"type": "message_end", "id": id, "job": "j1", "session": "s",
            "text": "be\n[… 70 bytes left out …]\nend", "truncated": true}),
        );
        let history = peer.next();
        peer.say(
            json!({"type": "error", "id": history["id"], "code": "unsupported",
            "error": "not here"}),
        );
        history
    });
    let sent = place.agentctl(&["send", "-q", "hi"]);
    let history: Value = served.join().unwrap();
    assert_eq!(history["type"], "session.history");
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(sent.stdout, "be\n[… 70 bytes left out …]\nend\n");
    assert!(
        sent.stderr.contains(
            "70 bytes of the answer are missing here: `agentctl history --job j1 --full`"
        ),
        "{sent:?}"
    );
}

/// Runs a command whose standard output goes nowhere.
fn on_a_full_disk(place: &Place, program: &str, words: &[&str]) -> (Option<i32>, String) {
    let mut command = place.command(program);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.args(words).stdin(Stdio::null()).stdout(full);
    said(command)
}

fn closed(place: &Place, words: &[&str]) -> (Option<i32>, String) {
    let mut command = place.command("/bin/sh");
    let script = format!("exec {AGENTCTL} \"$@\" >&-");
    command.args(["-c", &script, "sh"]).args(words);
    said(command)
}

fn said(mut command: Command) -> (Option<i32>, String) {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code(), said)
}

#[test]
fn answer_that_is_not_written_names_its_job() {
    let daemon = Daemon::start();
    for (words, job) in [
        (&["send", "hi"][..], "j1"),
        (&["send", "-q", "hi"], "j2"),
        (&["send", "--json", "hi"], "j3"),
        (&["attach", "j1"], "j1"),
    ] {
        let named = format!("hint: `agentctl history --job {job} --full` shows it");
        let (code, said) = on_a_full_disk(&daemon.place, AGENTCTL, words);
        assert_eq!(code, Some(1), "{words:?}: {said}");
        assert!(
            said.contains("can't write to standard output: No space"),
            "{said}"
        );
        assert!(said.contains(&named), "{words:?}: {said}");
    }
    for (words, job) in [(&["send", "hi"][..], "j4"), (&["attach", "j4"], "j4")] {
        let named = format!("the answer of {job} is not written: standard output is closed");
        let (code, said) = closed(&daemon.place, words);
        assert_eq!(code, Some(1), "{words:?}: {said}");
        assert!(said.contains(&named), "{words:?}: {said}");
    }
    let kept = daemon.agentctl(&["history", "--job", "j4", "--full"]);
    assert!(kept.stdout.contains("hi"), "{kept:?}");
}

#[test]
fn output_that_is_not_written_is_an_error() {
    let daemon = Daemon::start();
    daemon.agentctl(&["send", "hi"]);
    for words in [
        &["jobs"][..],
        &["jobs", "j1"],
        &["history"],
        &["status", "--json"],
        &["export"],
        &["config", "show"],
        &["config", "path"],
        &["config", "get", "default_agent"],
        &["--help"],
        &["send", "--help"],
        &["--version"],
        &["completions", "bash"],
        &["doctor", "--json"],
    ] {
        for (code, said) in [
            on_a_full_disk(&daemon.place, AGENTCTL, words),
            closed(&daemon.place, words),
        ] {
            assert_eq!(code, Some(1), "{words:?}: {said}");
            assert!(said.starts_with("error: "), "{words:?}: {said}");
        }
    }
    let (code, said) = on_a_full_disk(&daemon.place, TIMMY, &["-p", "hi", "--provider", "echo"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("can't write to standard output"), "{said}");
}

#[test]
fn output_to_a_reader_that_left_is_quiet() {
    let daemon = Daemon::start();
    let text = long(2_000_000);
    daemon.agentctl(&["send", "first"]);
    for words in ["send -", "history --full --job j2", "jobs"] {
        let mut command = daemon.place.command("/bin/bash");
        let script = format!("set -o pipefail; {AGENTCTL} {words} | head -c 3");
        command.args(["-c", &script]);
        let done = finish(command, text.as_bytes());
        assert_eq!((done.code, done.stdout.len()), (Some(0), 3), "{done:?}");
        assert!(!done.stderr.contains("error"), "{done:?}");
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = daemon.place.command(AGENTCTL);
    let left = command.args(["config", "show"]).stdout(writer).output();
    let left = left.unwrap();
    assert_eq!((left.status.code(), left.stderr), (Some(0), Vec::new()));
}
