//! Daemons and editors that go away.

use serde_json::{Value, json};

use super::editor::Editor;
use crate::memory::resident_of;
use crate::support::{AGENTD, Daemon, Place, chaos_worker, wait_for};

#[test]
fn acp_daemon_killed_under_a_prompt_is_told() {
    let ledger = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let place = Place::new(&Daemon::config(""));
    let path = ledger.path().to_str().unwrap();
    let daemon = place.start_with(&[("CHAOS_LEDGER", path)]);
    let mut editor = Editor::start(&daemon.place, &["--agent", "chaos"]);
    let session = editor.open(&daemon.place);
    let prompt = editor.prompt(&session, "chaos:ledger once;say half;sleep-ms 600000");
    editor.update("agent_message_chunk");
    let place = daemon.kill();
    let daemon = place.start_with(&[("CHAOS_LEDGER", path)]);
    let error = &editor.answer(prompt)["error"];
    assert_eq!(error["data"]["code"], "interrupted", "{error:#}");
    // It goes on, and nothing ran twice.
    let next = editor.prompt(&session, "chaos:ledger again;say on");
    assert_eq!(editor.answer(next)["result"]["stopReason"], "end_turn");
    let runs = std::fs::read_to_string(ledger.path()).unwrap();
    let runs: Vec<&str> = runs
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert_eq!(runs, ["once", "again"]);
    drop(daemon);
}

#[test]
fn acp_prompts_wait_through_a_restart() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &["--agent", "chaos"]);
    let session = editor.open(&daemon.place);
    let restarted = daemon.agentctl(&["stop"]);
    assert_eq!(restarted.code, Some(0), "{}", restarted.stderr);
    let (place, _) = daemon.left();
    let daemon = place.start();
    let prompt = editor.prompt(&session, "chaos:say here");
    assert_eq!(editor.answer(prompt)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.text(&session, "agent_message_chunk"), "here");
    drop(daemon);
}

#[test]
fn acp_without_a_daemon_runs_one_for_itself() {
    let place = Place::new(&Daemon::config(""));
    let mut editor = Editor::start(&place, &[]);
    let session = editor.open(&place);
    let prompt = editor.prompt(&session, "alone");
    assert_eq!(editor.answer(prompt)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.text(&session, "agent_message_chunk"), "alone");
    let (code, _, _) = editor.leave();
    assert_eq!(code, Some(0));
    // Its sessions are those of the next one.
    let mut editor = Editor::start(&place, &[]);
    let load = json!({"sessionId": session, "cwd": place.path("home"), "mcpServers": []});
    assert!(editor.ask("session/load", &load)["result"].is_object());
    assert_eq!(editor.text(&session, "agent_message_chunk"), "alone");
}

/// What it ran by itself is everybody's as soon as there is a daemon.
#[test]
fn acp_idle_face_goes_over_to_a_daemon() {
    let place = Place::new(&Daemon::config(""));
    let mut editor = Editor::start(&place, &["--agent", "chaos"]);
    let session = editor.open(&place);
    let alone = editor.prompt(&session, "chaos:say alone");
    assert_eq!(editor.answer(alone)["result"]["stopReason"], "end_turn");
    let daemon = place.start();
    wait_for("the session is free", || {
        let sent = daemon.agentctl(&["send", "-q", "-s", &session, "chaos:say here"]);
        (sent.code == Some(0)).then(|| assert_eq!(sent.stdout, "here\n"))
    });
    let both = editor.prompt(&session, "chaos:say both");
    assert_eq!(editor.answer(both)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.text(&session, "agent_message_chunk"), "aloneboth");
}

#[test]
fn acp_session_is_deleted_with_its_turn() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &["--agent", "chaos"]);
    let session = editor.open(&daemon.place);
    let prompt = editor.prompt(&session, "chaos:say on;sleep-ms 600000");
    editor.update("agent_message_chunk");
    let deleted = editor.ask("session/delete", &json!({"sessionId": session}));
    assert!(deleted["result"].is_object(), "{deleted:#}");
    assert_eq!(editor.answer(prompt)["result"]["stopReason"], "cancelled");
    let left = editor.ask("session/list", &json!({}));
    assert_eq!(left["result"]["sessions"], json!([]));
}

/// An editor keeps it for days, and mostly asks nothing.
#[test]
fn acp_idle_face_gives_pages_back() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let process = editor.child.0.id();
    let started = resident_of(process);
    let session = editor.open(&daemon.place);
    let prompt = editor.prompt(&session, "hello");
    editor.answer(prompt);
    // On a busy machine it may have been idle already.
    let busy = resident_of(process).max(started);
    wait_for("a third less is resident", || {
        (resident_of(process) < busy * 2 / 3).then_some(())
    });
    let prompt = editor.prompt(&session, "again");
    assert_eq!(editor.answer(prompt)["result"]["stopReason"], "end_turn");
}

#[test]
fn acp_nobody_to_serve_is_an_error() {
    let place = Place::new(&Daemon::config(""));
    let mut editor = Editor::start(&place, &["--no-fallback"]);
    let new = json!({"cwd": place.path("home"), "mcpServers": []});
    let refused = editor.ask("session/new", &new);
    assert_eq!(
        refused["error"]["data"]["code"], "unreachable",
        "{refused:#}"
    );
    // It is asked anew each time.
    let daemon = place.start();
    assert!(
        editor.ask(
            "session/new",
            &json!({"cwd": daemon.path("home"), "mcpServers": []})
        )["result"]
            .is_object()
    );
}

#[test]
fn acp_two_editors_share_a_session() {
    let daemon = Daemon::start();
    let mut one = Editor::start(&daemon.place, &["--agent", "chaos"]);
    let session = one.open(&daemon.place);
    let gate = daemon.path("gate");
    let first = one.prompt(
        &session,
        &format!("chaos:say first;wait-file {}", gate.display()),
    );
    one.update("agent_message_chunk");
    let mut other = Editor::start(&daemon.place, &[]);
    let load = json!({"sessionId": session, "cwd": daemon.path("home"), "mcpServers": []});
    assert!(other.ask("session/load", &load)["result"].is_object());
    let second = other.prompt(&session, "chaos:say second");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(other.answer(second)["result"]["stopReason"], "end_turn");
    assert_eq!(one.answer(first)["result"]["stopReason"], "end_turn");
    assert_eq!(other.text(&session, "agent_message_chunk"), "firstsecond");
    assert_eq!(one.text(&session, "agent_message_chunk"), "first");
}

#[test]
fn acp_editor_that_vanishes_ends_no_turn() {
    let daemon = Daemon::start();
    for kill in [false, true] {
        let mut editor = Editor::start(&daemon.place, &["--agent", "chaos"]);
        let session = editor.open(&daemon.place);
        let gate = daemon.path(if kill { "killed" } else { "left" });
        editor.prompt(
            &session,
            &format!("chaos:say on;wait-file {}", gate.display()),
        );
        editor.update("agent_message_chunk");
        match kill {
            true => drop(editor),
            false => assert_eq!(editor.leave().0, Some(0)),
        }
        std::fs::write(&gate, "").unwrap();
        daemon.until("the turn ends", |_| {
            let line = json!({"type": "jobs", "session": session});
            let jobs = daemon.ask(&line.to_string()).remove(0);
            (jobs["jobs"][0]["state"] == "completed").then_some(())
        });
    }
}

/// What is configured counts for the run without a daemon, too.
#[test]
fn acp_face_needs_no_environment_but_a_home() {
    let place = Place::new("");
    let state = place.path("home/.local/state/agentd");
    let config = place.path("home/.config/agentd");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), Daemon::config("")).unwrap();
    let mut command = std::process::Command::new(crate::support::AGENTCTL);
    let path = std::path::Path::new(AGENTD).parent().unwrap();
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", place.path("home"))
        .args(["serve", "acp"]);
    let new = json!({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": place.path("home"), "mcpServers": []}});
    let finished = crate::support::finish(command, format!("{new}\n").as_bytes());
    let answer: Value =
        serde_json::from_str(finished.stdout.lines().next().unwrap_or("null")).unwrap();
    assert!(answer["result"]["sessionId"].is_string(), "{finished:#?}");
    assert!(state.is_dir() && chaos_worker().is_file());
}
