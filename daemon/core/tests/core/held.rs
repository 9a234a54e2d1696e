//! What waits behind an interrupted turn: held, released, or running all the same.

use std::time::Duration;

use agentd_core::worker::{Exit, ToolAbout, WorkerEvent};
use agentd_protocol::JobId;
use agentd_protocol::line::{FileChange, Reach, Sandbox, ToolKind, ToolLocation};

use crate::agents::settings;
use crate::scenarios::running;
use crate::world::World;

const BEHIND: &str = r#"{"type":"send","text":"behind","session":"main"}"#;
const ANYWAY: &str = r#"{"type":"send","text":"anyway","session":"main","after_failure":"run"}"#;
const RESUME: &str = r#"{"type":"session.resume","session":"main"}"#;

#[test]
fn held_turns_run_when_their_session_is_resumed() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, BEHIND);
    world.request(conn, 3, BEHIND);
    world.exit(process, Exit::Signal(9));
    world.pass(Duration::from_secs(2));
    world.work();
    assert!(world.jobs[&JobId(2)].held && world.jobs[&JobId(2)].last.is_none());
    world.request(conn, 4, RESUME);
    assert_eq!(world.answer(conn, 4)["jobs"], serde_json(r#"["j2","j3"]"#));
    world.pass(Duration::from_secs(2));
    world.work();
    assert!(world.jobs[&JobId(2)].last.is_some() && world.jobs[&JobId(3)].last.is_some());
    world.request(conn, 5, RESUME);
    assert_eq!(
        world.answer(conn, 5)["jobs"],
        serde_json("[]"),
        "nothing is held any more"
    );
    world.request(conn, 6, r#"{"type":"session.resume","session":"nobody"}"#);
    assert_eq!(world.answer(conn, 6)["code"], "unknown-session");
}

fn serde_json(text: &str) -> agentd_protocol::serde_json::Value {
    agentd_protocol::serde_json::from_str(text).unwrap()
}

#[test]
fn after_failure_run_goes_on_without_hold() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, BEHIND);
    world.request(conn, 3, ANYWAY);
    world.exit(process, Exit::Signal(9));
    world.pass(Duration::from_secs(2));
    world.work();
    assert!(world.jobs[&JobId(2)].last.is_none());
    assert!(world.jobs[&JobId(3)].last.is_some());
}

#[test]
fn held_turns_stay_held_through_a_crash() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, BEHIND);
    world.exit(process, Exit::Signal(9));
    // A new send runs ahead of what is held, and releases nothing.
    world.request(conn, 3, BEHIND);
    world.crash(settings());
    world.pass(Duration::from_secs(2));
    world.work();
    assert!(world.jobs[&JobId(2)].last.is_none(), "held");
    assert!(world.jobs[&JobId(3)].last.is_some(), "never held");
    let conn = world.connect();
    world.request(conn, 1, RESUME);
    world.work();
    assert!(world.jobs[&JobId(2)].last.is_some());
}

#[test]
fn interrupted_turn_tells_what_its_tools_did() {
    let (mut world, _, process) = running();
    let turn = world.processes[&process].turns[0];
    for event in [
        WorkerEvent::ToolStarted {
            turn,
            call: "c1".to_owned(),
            name: "bash".to_owned(),
            input: r#"{"command":"ls"}"#.to_owned(),
            read_only: false,
            about: edits("new"),
        },
        WorkerEvent::ToolEnded {
            turn,
            call: "c1".to_owned(),
            ok: true,
            output: "done".to_owned(),
            sandbox: Some(Sandbox {
                files: Reach::Granted,
                network: Reach::None,
                signals: Reach::Own,
                sockets: Reach::None,
                processes: Reach::All,
            }),
            diff: Vec::new(),
        },
    ] {
        world.worker(process, event);
    }
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"collect","jobs":["j1"]}"#);
    let line = &world.answer(conn, 1)["results"][0];
    assert_eq!(line["code"], "interrupted");
    let tool = &line["tool_trace"][0];
    assert_eq!(
        (&tool["name"], &tool["output"], &tool["ok"]),
        (&"bash".into(), &"done".into(), &true.into())
    );
    assert_eq!(tool["sandbox"]["signals"], "own", "{tool}");
    assert_eq!(
        (&tool["kind"], &tool["locations"][0]["path"]),
        (&"edit".into(), &"/a".into())
    );
    assert_eq!(tool["diff"][0]["new"], "new");
}

fn edits(new: &str) -> ToolAbout {
    ToolAbout {
        kind: ToolKind::Edit,
        locations: vec![
            ToolLocation {
                path: "/a".to_owned(),
                line: None,
            };
            20
        ],
        diff: vec![FileChange {
            path: "/a".to_owned(),
            new: Some(new.to_owned()),
            ..FileChange::default()
        }],
    }
}

#[test]
fn tool_changes_are_told_when_it_worked() {
    let (mut world, conn, process) = running();
    let turn = world.processes[&process].turns[0];
    for (call, ok, new, told) in [
        ("c1", true, "x".to_owned(), true),
        ("c2", false, "x".to_owned(), false),
        // Escaped, it has more than has room.
        ("c3", true, "\u{1}".repeat(3000), false),
    ] {
        world.worker(
            process,
            WorkerEvent::ToolStarted {
                turn,
                call: call.to_owned(),
                name: "edit".to_owned(),
                input: "{}".to_owned(),
                read_only: false,
                about: edits(&new),
            },
        );
        world.worker(
            process,
            WorkerEvent::ToolEnded {
                turn,
                call: call.to_owned(),
                ok,
                output: String::new(),
                sandbox: None,
                diff: Vec::new(),
            },
        );
        let lines = &world.clients[&conn].lines;
        let of = |kind: &str| {
            let mut lines = lines.iter();
            let line = lines.find(|line| line["type"] == kind && line["tool_call_id"] == call);
            line.unwrap().clone()
        };
        let locations = of("tool_start")["locations"].as_array().map(Vec::len);
        assert_eq!(locations, Some(16));
        assert_eq!(of("tool_end").get("diff").is_some(), told, "{call}");
    }
}

#[test]
fn session_close_needs_idle_and_frees_name() {
    let (mut world, conn, process) = running();
    let close = r#"{"type":"session.close","session":"main"}"#;
    world.request(conn, 2, close);
    assert_eq!(world.answer(conn, 2)["code"], "session-busy");
    world.end_turn(process);
    world.prompt_store = false;
    world.request(conn, 3, close);
    world.request(conn, 4, BEHIND);
    assert_eq!(
        world.answer(conn, 4)["code"],
        "session-busy",
        "it is being closed"
    );
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    assert_eq!(world.answer(conn, 3)["ok"], true);
    world.request(conn, 5, BEHIND);
    world.pass(Duration::from_secs(1));
    world.work();
    assert_eq!(
        world.answer(conn, 5)["context"],
        "new",
        "the old turns are gone"
    );
    // Only the send that makes a session says so.
    world.request(conn, 6, BEHIND);
    for (id, made) in [(1, true), (5, true), (6, false)] {
        let mut lines = world.clients[&conn].lines.iter();
        let accepted = lines.find(|line| line["id"] == id && line["type"] == "accepted");
        assert_eq!(accepted.unwrap().get("made").is_some(), made, "{id}");
    }
    world.request(conn, 7, r#"{"type":"session.close","session":"nobody"}"#);
    assert_eq!(world.answer(conn, 7)["code"], "unknown-session");
}

#[test]
fn session_new_makes_a_session_just_once() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let new = r#"{"type":"session.new","session":"fresh","agent":"one","cwd":"/tmp"}"#;
    world.request(conn, 1, new);
    assert_eq!(world.answer(conn, 1)["session"], "fresh");
    world.request(conn, 2, new);
    assert_eq!(world.answer(conn, 2)["code"], "session-conflict");
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"x","session":"fresh","agent":"many"}"#,
    );
    assert_eq!(world.answer(conn, 3)["code"], "session-conflict");
    world.request(conn, 4, r#"{"type":"session.new"}"#);
    assert_eq!(world.answer(conn, 4)["agent"], "many");
    assert_eq!(world.spawns, 0, "no process before the first turn");
}

#[test]
fn held_note_is_in_the_ends_commit() {
    let (mut world, conn, process) = running();
    let keyed = BEHIND.replace("\"text\"", "\"idempotency_key\":\"k\",\"text\"");
    world.request(conn, 2, &keyed);
    world.prompt_store = false;
    world.exit(process, Exit::Signal(9));
    world.store_answers();
    assert!(world.jobs[&JobId(1)].last.is_some() && world.jobs[&JobId(2)].held);
    assert_eq!(world.jobs[&JobId(2)].events.len(), 1, "its note");
    world.crash(settings());
    world.prompt_store = true;
    let conn = world.connect();
    world.request(conn, 3, &keyed);
    let told = world.told_to(conn);
    assert_eq!(told, ["3:accepted j2 main replayed", "3:note held"]);
}

#[test]
fn final_text_wins_over_what_was_streamed() {
    for (streamed, last, lines) in [
        ("half", "half and half", 1),
        ("ha??", "half", 2),
        (" half ", "half", 1),
    ] {
        let (mut world, conn, process) = running();
        crate::scenarios::say(&mut world, process, streamed);
        let turn = world.processes.get_mut(&process).unwrap().turns.remove(0);
        let outcome = agentd_core::worker::Outcome {
            text: Some(last.to_owned()),
            ..agentd_core::worker::Outcome::ended(agentd_protocol::line::Stop::EndTurn)
        };
        let outcome = Box::new(outcome);
        world.worker(process, WorkerEvent::Ended { turn, outcome });
        let text = world.answer(conn, 1)["text"].as_str().unwrap();
        assert_eq!(text.trim(), last, "streamed {streamed:?}");
        let told = world.told_to(conn);
        let starts = told.iter().filter(|line| line.contains("message_start"));
        assert_eq!(starts.count(), lines, "{told:?}");
    }
}

#[test]
fn cancelled_retry_keeps_what_it_had_said() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let auto = r#"{"type":"send","text":"x","session":"main","retry":"auto"}"#;
    world.request(conn, 1, auto);
    let process = crate::scenarios::only(&world);
    world.get_ready(process);
    crate::scenarios::say(&mut world, process, "half");
    world.exit(process, Exit::Signal(9));
    world.request(conn, 2, r#"{"type":"abort","job":"j1"}"#);
    let last = world.answer(conn, 1);
    assert_eq!(
        (&last["stop"], &last["text"]),
        (&"cancelled".into(), &"half".into())
    );
}

#[test]
fn text_is_durable_with_the_next_event() {
    let (mut world, _, process) = running();
    crate::scenarios::say(&mut world, process, "working");
    let turn = world.processes[&process].turns[0];
    world.worker(
        process,
        WorkerEvent::ToolStarted {
            turn,
            call: "c".to_owned(),
            name: "t".to_owned(),
            input: "{}".to_owned(),
            read_only: false,
            about: Default::default(),
        },
    );
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"collect","jobs":["j1"]}"#);
    assert_eq!(world.answer(conn, 1)["results"][0]["text"], "working");
}
