//! Workers that die, don't start, or stay longer than they should.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Daemon, Place, chaos_worker, copy_program, is_alive, kill, needs, wait_for};

/// The final line of a turn of the chaos worker.
pub fn chaos(daemon: &Daemon, script: &str) -> Value {
    chaos_in(daemon, script, None)
}

/// The same in a named session.
pub fn chaos_in(daemon: &Daemon, script: &str, session: Option<&str>) -> Value {
    let mut line = json!({"agent": "chaos", "prompt": script});
    if let Some(session) = session {
        line["session"] = json!(session);
    }
    daemon.ask(&line.to_string()).pop().expect("a final line")
}

/// A worker's row in `status`.
pub fn row<'a>(status: &'a Value, agent: &str) -> Option<&'a Value> {
    status["workers"]
        .as_array()?
        .iter()
        .find(|row| row["agent"] == agent)
}

pub fn pid_of(daemon: &Daemon, agent: &str) -> u32 {
    daemon.until("a process", |status| {
        let pid = row(status, agent)?["pid"].as_u64()?;
        u32::try_from(pid).ok()
    })
}

/// A daemon whose chaos worker can leave marks: `ledger` and `pids` in the daemon's place.
pub fn with_marks(more: &str) -> Place {
    let place = Place::new("");
    place.configure(&Daemon::config(&format!(
        "env = {{ CHAOS_LEDGER = {:?}, CHAOS_PIDS = {:?} }}\n{more}",
        place.path("ledger"),
        place.path("pids")
    )));
    place
}

/// The processes that this place's daemons started and that still live.
pub fn workers_of(place: &Place) -> Vec<u32> {
    let mark = format!("AGENTD_SOCKET={}", place.socket().display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let carries = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut names = environment.split(|byte| *byte == 0);
        let instance = names
            .clone()
            .any(|name| name.starts_with(b"AGENTD_INSTANCE="));
        instance && names.any(|name| name == mark.as_bytes()) && is_alive(*pid)
    };
    pids.filter(carries).collect()
}

fn pids_in(file: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

pub fn jsonl(name: &str, command: &[&str]) -> String {
    format!("[agents.{name}]\nkind = \"jsonl\"\ncommand = {command:?}\n")
}

#[test]
fn worker_killed_amid_a_turn_is_one_error() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","agent":"chaos","session":"s","text":"chaos:stderr-flood 1;say begun;wait-file /nowhere/at/all"}"#);
    client.send(r#"{"type":"shutdown"}"#);
    client.until("message_delta");
    let pid = pid_of(&daemon, "chaos");
    kill(pid, Signal::SIGKILL);
    let rest = client.rest();
    let finals: Vec<&Value> = rest
        .iter()
        .filter(|line| line["type"] == "error" || line["type"] == "message_end")
        .collect();
    assert_eq!(finals.len(), 1, "{rest:#?}");
    let last = finals[0];
    assert_eq!(
        (&last["code"], &last["text"]),
        (&json!("worker-exited"), &json!("begun")),
        "{last:#}"
    );
    let error = last["error"].as_str().unwrap();
    assert!(
        error.contains("signal 9") && error.contains("eeee"),
        "{error}"
    );
    let next = chaos_in(&daemon, "chaos:say back", Some("s"));
    assert_eq!(next["text"], "back", "{next:#}");
    let status = daemon.status();
    assert_eq!(
        row(&status, "chaos").unwrap()["generation"],
        2,
        "{status:#}"
    );
    assert_eq!(status["rpc"]["restarts"], 1, "{status:#}");
}

#[test]
fn worker_exit_amid_a_turn_tells_its_code() {
    let daemon = Daemon::start();
    for (script, code) in [
        ("chaos:say a;exit 3", "exited with code 3"),
        ("chaos:say a;partial-exit", "exited with code 0"),
    ] {
        let last = chaos(&daemon, script);
        assert_eq!(
            (&last["code"], &last["text"]),
            (&json!("worker-exited"), &json!("a")),
            "{last:#}"
        );
        assert!(last["error"].as_str().unwrap().contains(code), "{last:#}");
    }
}

#[test]
fn worker_dead_early_thrice_is_crash_looped() {
    let place = Place::new("");
    let cured = place.path("cured");
    let script = format!(
        "[ -e {} ] && exec {}; echo no-luck-today >&2; exit 7",
        cured.display(),
        chaos_worker().display()
    );
    place.configure(&jsonl("chaos", &["/bin/sh", "-c", &script]));
    let daemon = place.start();
    let lines = daemon.ask(r#"{"agent":"chaos","prompt":"hi"}"#);
    assert_eq!(lines[0]["type"], "accepted", "{lines:#?}");
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["code"]),
        (&json!("error"), &json!("crash-looped")),
        "{last:#}"
    );
    assert!(
        last["error"].as_str().unwrap().contains("no-luck-today"),
        "{last:#}"
    );
    let status = daemon.status();
    assert_eq!(
        row(&status, "chaos").unwrap()["state"],
        "crash-looped",
        "{status:#}"
    );
    let refused = daemon.ask(r#"{"agent":"chaos","prompt":"hi"}"#);
    assert_eq!(
        (refused.len(), &refused[0]["code"]),
        (1, &json!("crash-looped")),
        "{refused:#?}"
    );
    std::fs::write(&cured, "").unwrap();
    let restarted = daemon.agentctl(&["restart", "chaos"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    assert_eq!(chaos(&daemon, "hi")["text"], "hi");
}

#[test]
fn worker_that_is_not_configured_is_not_retried() {
    let script = "echo x >> $HOME/starts; echo no-key-here >&2; exit 78";
    let daemon = Place::new(&jsonl("chaos", &["/bin/sh", "-c", script])).start();
    let last = chaos(&daemon, "hi");
    assert_eq!(last["code"], "worker-start-failed", "{last:#}");
    assert!(
        last["error"].as_str().unwrap().contains("no-key-here"),
        "{last:#}"
    );
    let refused = daemon.ask(r#"{"agent":"chaos","prompt":"hi"}"#);
    assert_eq!(
        (refused.len(), &refused[0]["code"]),
        (1, &json!("worker-start-failed")),
        "{refused:#?}"
    );
    assert_eq!(row(&daemon.status(), "chaos").unwrap()["state"], "failed");
    assert_eq!(
        std::fs::read_to_string(daemon.path("home/starts")).unwrap(),
        "x\n"
    );
}

#[test]
fn program_that_went_is_named_and_waited_for() {
    let place = Place::new("");
    let program = place.path("worker");
    copy_program(chaos_worker(), &program);
    place.configure(&jsonl("chaos", &[program.to_str().unwrap()]));
    let daemon = place.start();
    // Its look at the programs was before it answers.
    daemon.status();
    std::fs::remove_file(&program).unwrap();
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","agent":"chaos","text":"hi","stream":true}"#);
    client.send(r#"{"type":"shutdown"}"#);
    let lines = client.until("note");
    let note = lines.last().unwrap()["text"].as_str().unwrap();
    assert!(note.contains(program.to_str().unwrap()), "{note}");
    // Half of an upgrade.
    copy_program(chaos_worker(), &program);
    let mode = |mode| std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode));
    mode(0o644).unwrap();
    mode(0o755).unwrap();
    let rest = client.rest();
    assert_eq!(rest.last().unwrap()["text"], "hi", "{rest:#?}");

    mode(0o644).unwrap();
    let restarted = daemon.agentctl(&["restart", "chaos"]);
    assert_ne!(restarted.code, Some(0), "{restarted:?}");
    assert!(
        restarted.stderr.contains("Permission denied"),
        "{restarted:?}"
    );
    mode(0o755).unwrap();
    assert_eq!(chaos(&daemon, "hi")["text"], "hi");
}

#[test]
fn program_missing_at_start_is_refused_by_name() {
    let daemon = Place::new(&jsonl("chaos", &["/nowhere/worker"])).start();
    let refused = daemon.ask(r#"{"agent":"chaos","prompt":"hi"}"#);
    assert_eq!(
        (refused.len(), &refused[0]["type"]),
        (1, &json!("error")),
        "{refused:#?}"
    );
    assert!(
        refused[0]["error"]
            .as_str()
            .unwrap()
            .contains("/nowhere/worker"),
        "{refused:#?}"
    );
    assert_eq!(
        daemon.agentctl(&["send", "--agent", "chaos", "hi"]).code,
        Some(78)
    );
}

#[test]
fn the_python_fixture_is_a_worker() {
    let Some(python) = needs("python3") else {
        return;
    };
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/worker.py");
    let daemon = Place::new(&jsonl(
        "py",
        &[python.to_str().unwrap(), fixture.to_str().unwrap()],
    ))
    .start();
    let last = daemon.ask(r#"{"agent":"py","prompt":"hi"}"#).pop().unwrap();
    assert_eq!(
        (&last["type"], &last["text"]),
        (&json!("message_end"), &json!("you said: hi")),
        "{last:#}"
    );
}

#[test]
fn retry_auto_runs_a_turn_after_a_death() {
    let daemon = with_marks("").start();
    let gate = daemon.path("gate");
    let text = format!("chaos:ledger;say once;wait-file {}", gate.display());
    let mut client = daemon.connect();
    client.send(
        &json!({"type": "send", "agent": "chaos", "session": "s", "retry": "auto", "text": text})
            .to_string(),
    );
    client.until("message_delta");
    kill(pid_of(&daemon, "chaos"), Signal::SIGKILL);
    std::fs::write(&gate, "").unwrap();
    let lines = client.rest();
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["attempt"], &last["text"]),
        (&json!("message_end"), &json!(2), &json!("once")),
        "{lines:#?}"
    );
    let ledger = std::fs::read_to_string(daemon.path("ledger")).unwrap();
    assert_eq!(ledger.lines().count(), 2, "{ledger}");
}

#[test]
fn environment_of_a_worker_is_clean() {
    let daemon = Place::new(&Daemon::config(""))
        .start_with(&[("SECRET_TOKEN", "hunter2"), ("SSH_AUTH_SOCK", "/x")]);
    let last = chaos(&daemon, "chaos:env");
    let names: Vec<&str> = last["text"].as_str().unwrap().lines().collect();
    for absent in ["SECRET_TOKEN", "SSH_AUTH_SOCK", "AGENTD_STATE_DIR"] {
        assert!(!names.contains(&absent), "{names:?}");
    }
    for present in ["AGENTD_SOCKET", "AGENTD_INSTANCE", "HOME", "PATH"] {
        assert!(names.contains(&present), "{names:?}");
    }
    let cwd = format!("cwd={}", daemon.path("home").display());
    assert_eq!(names.last(), Some(&cwd.as_str()));
}

#[test]
fn sessions_share_a_process_with_memories_apart() {
    let daemon = Daemon::start();
    assert_eq!(chaos_in(&daemon, "chaos:count", Some("a"))["text"], "1");
    let pid = pid_of(&daemon, "chaos");
    assert_eq!(chaos_in(&daemon, "chaos:count", Some("b"))["text"], "1");
    assert_eq!(chaos_in(&daemon, "chaos:count", Some("a"))["text"], "2");
    assert_eq!(workers_of(&daemon.place), [pid]);
}

#[test]
fn spare_is_up_and_serves_the_first_send() {
    let place = Place::new("");
    place.configure(&Daemon::config("warm = 1\n"));
    let daemon = place.start();
    let pid = daemon.until("an idle spare", |status| {
        let row = row(status, "chaos").filter(|row| row["state"] == "idle")?;
        u32::try_from(row["pid"].as_u64()?).ok()
    });
    assert_eq!(chaos(&daemon, "chaos:count")["text"], "1");
    assert!(workers_of(&daemon.place).contains(&pid));
    assert_eq!(row(&daemon.status(), "chaos").unwrap()["generation"], 1);
}

#[test]
fn context_that_is_lost_can_be_refused() {
    let daemon = Daemon::start();
    let lines = |fields: Value| {
        let mut line =
            json!({"type": "send", "agent": "chaos", "session": "s", "text": "chaos:count"});
        line.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        daemon.ask(&line.to_string())
    };
    let told = |lines: &[Value]| {
        let last = lines.last().unwrap();
        (last["text"].clone(), last["context"].clone())
    };
    assert_eq!(told(&lines(json!({}))), (json!("1"), json!("new")));
    assert_eq!(
        told(&lines(json!({"require_context": true}))),
        (json!("2"), json!("continued"))
    );
    let pid = pid_of(&daemon, "chaos");
    kill(pid, Signal::SIGKILL);
    daemon.until("the death is noticed", |status| {
        (row(status, "chaos")?["generation"] == 2).then_some(())
    });
    let refused = lines(json!({"require_context": true}));
    assert_eq!(
        refused.last().unwrap()["code"],
        "context-lost",
        "{refused:#?}"
    );
    let lost = lines(json!({}));
    assert_eq!(told(&lost), (json!("1"), json!("lost")));
    let note = lost
        .iter()
        .position(|line| line["type"] == "note" && line["code"] == "context-lost");
    let text = lost.iter().position(|line| line["type"] == "message_delta");
    assert!(note.is_some() && note < text, "{lost:#?}");
    assert_eq!(told(&lines(json!({}))), (json!("2"), json!("continued")));
}

#[test]
fn processes_stay_within_their_limit() {
    let worker = chaos_worker();
    let daemon = Place::new(&jsonl(
        "chaos",
        &[worker.to_str().unwrap(), "--one-session"],
    ))
    .start();
    let gate = daemon.path("gate");
    let mut client = daemon.connect();
    for n in 0..18 {
        let text = format!("chaos:wait-file {};say done", gate.display());
        client.send(&json!({"type": "send", "id": n, "agent": "chaos", "session": format!("s{n}"), "text": text}).to_string());
    }
    daemon.until("all processes are busy", |status| {
        let rows = status["workers"].as_array()?;
        let busy = rows.iter().filter(|row| row["state"] == "busy").count();
        assert!(rows.len() <= 16, "{status:#}");
        (busy == 16).then_some(())
    });
    assert_eq!(daemon.status()["rpc"]["in_flight"], 16);
    std::fs::write(&gate, "").unwrap();
    let lines = client.rest();
    let done = lines
        .iter()
        .filter(|line| line["type"] == "message_end" && line["text"] == "done");
    assert_eq!(done.count(), 18);
}

#[test]
fn leftovers_of_a_worker_go_with_the_daemon() {
    let daemon = with_marks("").start();
    assert_eq!(
        chaos_in(&daemon, "chaos:setsid;fork-hold;say ok", Some("s"))["text"],
        "ok"
    );
    let escaped = pids_in(&daemon.path("pids"));
    assert!(escaped.len() == 1 && is_alive(escaped[0]));
    assert_eq!(workers_of(&daemon.place).len(), 3);
    let stopped = daemon.agentctl(&["stop"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let (place, status) = daemon.left();
    assert_eq!(status.code(), Some(0));
    assert_eq!(workers_of(&place), [0; 0]);
}

#[test]
fn abort_ends_an_agent_that_left_its_group() {
    let daemon = with_marks("").start();
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","agent":"chaos","text":"chaos:leave-group;ignore-term;say stuck;hang-all"}"#);
    client.until("message_delta");
    let stuck = pid_of(&daemon, "chaos");
    client.send(r#"{"type":"abort"}"#);
    let lines = client.until("message_end");
    let last = lines.last().unwrap();
    assert_eq!(last["stop"], "cancelled", "{last:#}");
    wait_for("it is gone", || (!is_alive(stuck)).then_some(()));
}

#[test]
fn stop_ends_a_process_without_first_thread() {
    let daemon = with_marks("").start();
    assert_eq!(chaos(&daemon, "chaos:thread-only;say ok")["text"], "ok");
    let escaped = pids_in(&daemon.path("pids"))[0];
    wait_for("its first thread has ended", || {
        (!is_alive(escaped)).then_some(())
    });
    let threads = || std::fs::read_dir(format!("/proc/{escaped}/task")).map_or(0, Iterator::count);
    assert_eq!(threads(), 2, "it goes on");
    let stopped = daemon.agentctl(&["stop"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(threads(), 0);
}

#[test]
fn leftovers_of_a_worker_go_at_its_death() {
    let daemon = with_marks("warm = 0\n").start();
    let last = chaos(&daemon, "chaos:setsid;fork-hold;exit 1");
    assert_eq!(last["code"], "worker-exited", "{last:#}");
    let escaped = pids_in(&daemon.path("pids"));
    wait_for("the escaped process is gone", || {
        (!is_alive(escaped[0])).then_some(())
    });
    wait_for("all are gone", || {
        workers_of(&daemon.place).is_empty().then_some(())
    });
}

#[test]
fn leftovers_of_a_killed_daemon_go_at_restart() {
    let daemon = with_marks("").start();
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","agent":"chaos","text":"chaos:setsid;fork-hold;ignore-term;say stuck;hang-all"}"#);
    client.until("message_delta");
    let stuck = pid_of(&daemon, "chaos");
    let escaped = pids_in(&daemon.path("pids"))[0];
    let place = daemon.kill();
    assert!(
        is_alive(stuck) && is_alive(escaped),
        "they outlive the daemon"
    );
    let daemon = place.start();
    wait_for("all are gone", || {
        workers_of(&daemon.place).is_empty().then_some(())
    });
    // What is on its way out has no environment any more, by which the others are found.
    wait_for("they are, too", || {
        (!is_alive(stuck) && !is_alive(escaped)).then_some(())
    });
}

#[test]
fn dead_workers_are_reaped() {
    let daemon = with_marks("").start();
    for script in ["chaos:setsid;exit 1", "chaos:fork-hold;signal 9"] {
        assert_eq!(chaos(&daemon, script)["code"], "worker-exited");
    }
    let parent = format!(" {} ", daemon.pid());
    wait_for("no zombie is left", || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let stats =
            processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        let zombies = stats.filter(|stat| {
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.starts_with(&format!(" Z{parent}")))
        });
        (zombies.count() == 0).then_some(())
    });
}
