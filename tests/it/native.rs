//! Sessions that a worker keeps itself and reopens by an id of its own, and what it takes with a
//! turn.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::supervision::{jsonl, pid_of, row};
use crate::support::{Daemon, Place, chaos_worker, kill};

pub fn keeps(dir: &Path, more: &str) -> String {
    let worker = chaos_worker();
    let (worker, dir) = (worker.to_str().unwrap(), dir.to_str().unwrap());
    let agent = jsonl("keeps", &[worker, "--resumes", dir]);
    format!("{agent}{more}")
}

/// A turn of the session `main`: its final line, and the texts of its notes.
fn turn(daemon: &Daemon, text: &str) -> (Value, Vec<String>) {
    let line = json!({"type": "send", "agent": "keeps", "session": "main", "text": text});
    let lines = daemon.ask(&line.to_string());
    let notes = lines.iter().filter(|line| line["type"] == "note");
    let notes = notes.map(|line| line["code"].as_str().unwrap().to_owned());
    let notes = notes.collect();
    (lines.last().unwrap().clone(), notes)
}

fn counted(daemon: &Daemon) -> (String, String) {
    let (last, notes) = turn(daemon, "chaos:count");
    assert_eq!(last["type"], "message_end", "{last:#}");
    let word = |name: &str| last[name].as_str().unwrap().to_owned();
    assert_eq!(notes.is_empty(), word("context") != "lost", "{notes:?}");
    (word("text"), word("context"))
}

fn told(text: &str, context: &str) -> (String, String) {
    (text.to_owned(), context.to_owned())
}

#[test]
fn native_session_outlives_its_process_and_daemon() {
    let kept = tempfile::tempdir().unwrap();
    let daemon = Place::new(&keeps(kept.path(), "")).start();
    assert_eq!(counted(&daemon), told("1", "new"));
    assert_eq!(counted(&daemon), told("2", "continued"));
    kill(pid_of(&daemon, "keeps"), Signal::SIGKILL);
    daemon.until("the death is noticed", |status| {
        (row(status, "keeps")?["generation"] == 2).then_some(())
    });
    assert_eq!(counted(&daemon), told("3", "continued"));
    let daemon = daemon.kill().start();
    assert_eq!(counted(&daemon), told("4", "continued"));
    // Killed in the middle of a turn, it goes on behind it.
    let (died, _) = turn(&daemon, "chaos:signal 9");
    assert_eq!(died["code"], "worker-exited", "{died:#}");
    assert_eq!(counted(&daemon), told("6", "continued"));
}

#[test]
fn idle_process_without_memory_is_ended() {
    let kept = tempfile::tempdir().unwrap();
    let config = keeps(kept.path(), "idle_timeout = \"100ms\"\n");
    let daemon = Place::new(&config).start();
    assert_eq!(counted(&daemon), told("1", "new"));
    daemon.until("the idle process is gone", |status| {
        row(status, "keeps").is_none().then_some(())
    });
    assert_eq!(counted(&daemon), told("2", "continued"));
}

#[test]
fn native_session_lost_fails_once_then_begins_anew() {
    let kept = tempfile::tempdir().unwrap();
    let daemon = Place::new(&keeps(kept.path(), "")).start();
    assert_eq!(counted(&daemon), told("1", "new"));
    for file in std::fs::read_dir(kept.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let (lost, _) = turn(&daemon, "chaos:count");
    assert_eq!(
        (&lost["code"], &lost["context"]),
        (&json!("context-lost"), &json!("lost")),
        "{lost:#}"
    );
    // The loss is remembered, too.
    let daemon = daemon.kill().start();
    assert_eq!(counted(&daemon), told("1", "lost"));
    assert_eq!(counted(&daemon), told("2", "continued"));
}

#[test]
fn chain_and_toolsets_end_turns_where_not_taken() {
    let worker = chaos_worker();
    let takes = jsonl("takes", &[worker.to_str().unwrap(), "--takes"]);
    let daemon = Daemon::with(&format!(
        "{takes}[agents.cat]\nkind = \"exec\"\ncommand = [\"cat\"]\n"
    ));
    for (field, value) in [
        ("fallback_chain", json!(["a/b/c", "d/e"])),
        ("toolsets", json!(["file"])),
    ] {
        let ask = |agent: &str| {
            let text = format!("chaos:given {field}");
            let line = json!({"type": "send", "agent": agent, "text": text, field: value});
            daemon.ask(&line.to_string())
        };
        let last = ask("takes").pop().unwrap();
        assert_eq!(last["text"], value.to_string(), "{last:#}");
        let lines = ask("chaos");
        let last = lines.last().unwrap();
        assert_eq!(last["code"], "unsupported", "{last:#}");
        assert!(last["job"].is_string() && last["text"] == "", "{last:#}");
        assert!(last["error"].as_str().unwrap().contains(field));
        let lines = ask("cat");
        assert!(lines[0]["code"] == "unsupported" && lines[0]["job"].is_null());
    }
    let sent = daemon.agentctl(&[
        "send",
        "--agent",
        "takes",
        "--fallback",
        "a/b/c",
        "--fallback",
        "d/e",
        "chaos:given fallback_chain",
    ]);
    assert_eq!(sent.stdout, "[\"a/b/c\",\"d/e\"]\n", "{sent:?}");
    let wrong = daemon.agentctl(&["send", "--fallback", "a", "x"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}
