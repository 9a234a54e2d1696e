//! Single stories, told as what a client sees.

use std::time::Duration;

use agentd_core::ids::{ConnId, Generation, WorkerId};
use agentd_core::worker::{Exit, Outcome, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::{Cost, CostStatus, Usage};

use crate::agents::settings;
use crate::world::World;

pub type ProcessId = (WorkerId, Generation);

pub fn only(world: &World) -> ProcessId {
    assert_eq!(world.processes.len(), 1, "{:?}", world.processes);
    *world.processes.keys().next().unwrap()
}

/// A world with one connection and one ready worker that has the turn of session `main`.
pub fn running() -> (World, ConnId, ProcessId) {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"hi","session":"main"}"#);
    let process = only(&world);
    world.get_ready(process);
    (world, conn, process)
}

pub fn say(world: &mut World, process: ProcessId, text: &str) {
    let turn = world.processes[&process].turns[0];
    world.worker(
        process,
        WorkerEvent::Text {
            turn,
            text: text.to_owned(),
            native: true,
        },
    );
}

#[test]
fn a_send_is_accepted_runs_streams_and_ends() {
    let (mut world, conn, process) = running();
    say(&mut world, process, "hel");
    say(&mut world, process, "lo");
    world.end_turn(process);
    assert_eq!(
        world.told_to(conn),
        [
            "1:accepted j1 main",
            "1:running",
            "1:message_start",
            "1:message_delta hel@0",
            "1:message_delta lo@3",
            "1:message_end end_turn hello",
        ]
    );
}

#[test]
fn warm_worker_takes_a_turn_with_acceptance() {
    let (mut world, conn, process) = running();
    world.end_turn(process);
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"again","session":"main"}"#,
    );
    let accepted = world.clients[&conn]
        .lines
        .iter()
        .find(|line| line["id"] == 2)
        .unwrap();
    assert_eq!(accepted["running"], true);
    assert_eq!(world.processes[&process].turns.len(), 1);
}

#[test]
fn final_text_alone_is_one_delta_not_native() {
    let (mut world, conn, process) = running();
    let turn = world.processes.get_mut(&process).unwrap().turns.remove(0);
    let outcome = Outcome {
        text: Some("all at once".to_owned()),
        ..Outcome::ended(agentd_protocol::line::Stop::EndTurn)
    };
    world.worker(
        process,
        WorkerEvent::Ended {
            turn,
            outcome: Box::new(outcome),
        },
    );
    let delta = world.clients[&conn]
        .lines
        .iter()
        .find(|line| line["type"] == "message_delta")
        .unwrap();
    assert_eq!(
        (&delta["native"], &delta["text"]),
        (&false.into(), &"all at once".into())
    );
}

#[test]
fn usage_that_no_turn_has_is_not_known() {
    for (tokens, usd) in [(1_000_000_000_000_000_000, 0.1), (5, -3.0), (5, 1e9)] {
        let (mut world, conn, process) = running();
        let turn = world.processes.get_mut(&process).unwrap().turns.remove(0);
        let usage = Usage {
            input_tokens: tokens,
            ..Usage::default()
        };
        let cost = Cost {
            usd: Some(usd),
            status: CostStatus::Actual,
            source: None,
        };
        let outcome = Box::new(Outcome {
            usage: Some(usage),
            cost,
            ..Outcome::ended(agentd_protocol::line::Stop::EndTurn)
        });
        world.worker(process, WorkerEvent::Ended { turn, outcome });
        let told = world.told_to(conn);
        assert!(
            told.contains(&"1:note usage-not-credible".to_owned()),
            "{told:?}"
        );
        let last = world.clients[&conn].lines.last().unwrap();
        assert_eq!(last["cost"]["status"], "unknown", "{last}");
        let counted = if tokens == 5 { Some(5) } else { None };
        assert_eq!(last["usage"]["input_tokens"].as_u64(), counted, "{last}");
    }
}

#[test]
fn worker_death_in_a_turn_is_one_error() {
    let (mut world, conn, process) = running();
    say(&mut world, process, "half");
    world.exit(process, Exit::Signal(9));
    let error = world.clients[&conn].lines.last().unwrap().clone();
    assert_eq!(error["code"], "worker-exited");
    assert_eq!(error["text"], "half");
    let sentence = error["error"].as_str().unwrap();
    assert!(
        sentence.contains("was killed by signal 9") && sentence.contains("its last words"),
        "{sentence}"
    );

    world.request(
        conn,
        2,
        r#"{"type":"send","text":"again","session":"main"}"#,
    );
    world.pass(Duration::from_secs(2));
    let next = only(&world);
    assert!(next.1 > process.1, "a new generation");
    world.get_ready(next);
    world.end_turn(next);
    let last = world.clients[&conn].lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["context"]),
        (&"message_end".into(), &"lost".into())
    );
    assert!(
        world
            .told_to(conn)
            .contains(&"2:note context-lost".to_owned())
    );
}

#[test]
fn key_sent_again_runs_nothing_twice() {
    let (mut world, conn, process) = running();
    let send = r#"{"type":"send","text":"x","session":"main","idempotency_key":"k"}"#;
    world.end_turn(process);
    world.request(conn, 2, send);
    let other = world.connect();
    world.request(other, 3, send);
    say(&mut world, process, "text");
    world.end_turn(process);
    let late = world.connect();
    world.request(late, 4, send);
    world.request(late, 5, &send.replace("\"x\"", "\"y\""));
    assert_eq!(
        world.told_to(other),
        [
            "3:accepted j2 main replayed",
            "3:message_start",
            "3:message_delta text@0",
            "3:message_end end_turn text"
        ]
    );
    assert_eq!(world.told_to(late)[0], "4:accepted j2 main replayed");
    assert_eq!(
        world.told_to(late)[1..],
        [
            "4:message_start",
            "4:message_delta text@0",
            "4:message_end end_turn text",
            "5:error idempotency-conflict"
        ]
    );
    assert_eq!(world.prompts.len(), 2);
}

#[test]
fn unnamed_sends_get_their_lines_in_order() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(
        conn,
        0,
        r#"{"type":"send","text":"a","session":"a","agent":"one"}"#,
    );
    world.request(
        conn,
        0,
        r#"{"type":"send","text":"b","session":"b","agent":"one"}"#,
    );
    let processes: Vec<_> = world.processes.keys().copied().collect();
    for process in &processes {
        world.get_ready(*process);
    }
    say(&mut world, processes[1], "second");
    world.end_turn(processes[1]);
    say(&mut world, processes[0], "first");
    world.end_turn(processes[0]);
    let told: Vec<_> = world
        .told_to(conn)
        .into_iter()
        .filter(|line| line != "running" && line != "message_start")
        .collect();
    assert_eq!(
        told,
        [
            "accepted j1 a",
            "accepted j2 b",
            "message_delta first@0",
            "message_end end_turn first",
            "message_delta second@0",
            "message_end end_turn second",
        ]
    );
}

#[test]
fn abort_keeps_late_output_from_next_turn() {
    let (mut world, conn, process) = running();
    say(&mut world, process, "so far");
    world.request(conn, 2, r#"{"type":"abort"}"#);
    world.request(conn, 3, r#"{"type":"send","text":"next","session":"main"}"#);
    let told = world.told_to(conn);
    assert!(told.contains(&r#"2:abort ["j1"]"#.to_owned()), "{told:?}");
    assert_eq!(
        world.processes[&process].turns.len(),
        1,
        "nothing is sent to a settling worker"
    );
    world.end_turn(process);
    assert!(
        world
            .told_to(conn)
            .contains(&"1:message_end cancelled so far".to_owned())
    );
    assert_eq!(
        world.processes[&process].turns.len(),
        1,
        "the next turn goes when it has settled"
    );
}

#[test]
fn abort_that_is_ignored_escalates_to_kill() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, r#"{"type":"abort"}"#);
    for stage in ["Ask", "Term", "Kill"] {
        world.pass(Duration::from_secs(5));
        assert_eq!(
            format!("{:?}", world.processes[&process].told_to_end.unwrap()),
            stage
        );
    }
    world.exit(process, Exit::Signal(9));
    assert_eq!(
        world.told_to(conn).last().unwrap(),
        "1:message_end cancelled "
    );
    assert!(only(&world).1 > process.1, "a new generation starts");
}

/// A turn that said something, and was told to end as its time is over.
fn over_its_time() -> (World, ConnId, ProcessId) {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x","timeout":7}"#);
    let process = only(&world);
    world.get_ready(process);
    say(&mut world, process, "half");
    world.pass(Duration::from_secs(8));
    (world, conn, process)
}

#[test]
fn timeout_ends_a_turn_with_its_text() {
    let (mut world, conn, process) = over_its_time();
    world.end_turn(process);
    let last = world.clients[&conn].lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["text"]),
        (&"timeout".into(), &"half".into())
    );
}

#[test]
fn abort_of_a_settling_turn_cancels_it() {
    let (mut world, conn, process) = over_its_time();
    world.request(conn, 2, r#"{"type":"abort","job":"j1"}"#);
    world.end_turn(process);
    let told = world.told_to(conn);
    assert!(told.contains(&r#"2:abort ["j1"]"#.to_owned()), "{told:?}");
    let ends = told.iter().filter(|line| line.starts_with("1:message_end"));
    let ends: Vec<_> = ends.collect();
    assert_eq!(ends, ["1:message_end cancelled half"], "{told:?}");
}

#[test]
fn breaker_opens_in_crash_loop_restart_resets() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x"}"#);
    for _ in 0..3 {
        let process = only(&world);
        world.exit(process, Exit::Code(1));
        world.pass(Duration::from_secs(5));
    }
    assert_eq!(world.last_error(conn), Some(Code::CrashLooped));
    assert!(world.processes.is_empty());
    world.request(conn, 2, r#"{"type":"send","text":"x"}"#);
    assert_eq!(
        world.told_to(conn).last().unwrap(),
        "2:error crash-looped",
        "refused at once"
    );
    world.request(conn, 3, r#"{"type":"restart_worker","agent":"many"}"#);
    world.request(conn, 4, r#"{"type":"send","text":"x"}"#);
    let process = *world.processes.keys().last().unwrap();
    world.get_ready(process);
    world.end_turn(process);
    assert!(
        world
            .told_to(conn)
            .iter()
            .any(|line| line.starts_with("4:message_end")),
        "{:?}",
        world.told_to(conn)
    );
}

#[test]
fn a_permanent_exit_is_not_tried_again() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x"}"#);
    let process = only(&world);
    world.exit(process, Exit::Code(78));
    assert_eq!(world.last_error(conn), Some(Code::WorkerStartFailed));
    world.pass(Duration::from_secs(60));
    assert!(world.processes.is_empty());
}

#[test]
fn held_turns_are_overtaken_by_new_ones() {
    let (mut world, conn, process) = running();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"behind","session":"main","expires":100}"#,
    );
    world.exit(process, Exit::Signal(9));
    assert!(world.told_to(conn).contains(&"2:note held".to_owned()));
    world.request(conn, 3, r#"{"type":"send","text":"new","session":"main"}"#);
    world.pass(Duration::from_secs(2));
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    let told = world.told_to(conn);
    assert!(told.contains(&"3:note overtakes".to_owned()), "{told:?}");
    assert!(told.iter().any(|line| line.starts_with("3:message_end")));
    world.pass(Duration::from_secs(101));
    assert_eq!(world.told_to(conn).last().unwrap(), "2:error expired");
}

#[test]
fn session_of_another_agent_is_a_conflict() {
    let (mut world, conn, _) = running();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"x","session":"main","agent":"one"}"#,
    );
    assert_eq!(world.last_error(conn), Some(Code::SessionConflict));
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"x","session":"main","cwd":"/tmp"}"#,
    );
    assert_eq!(world.last_error(conn), Some(Code::SessionConflict));
    world.request(
        conn,
        4,
        r#"{"type":"send","text":"x","session":"main","mode":"reject"}"#,
    );
    assert_eq!(world.last_error(conn), Some(Code::SessionBusy));
}

#[test]
fn limits_refuse_with_queue_full() {
    let (mut world, conn, _) = running();
    for id in 2..=64 {
        world.request(conn, id, r#"{"type":"send","text":"x","session":"main"}"#);
    }
    assert_eq!(world.last_error(conn), None);
    world.request(conn, 65, r#"{"type":"send","text":"x","session":"main"}"#);
    assert_eq!(
        world.last_error(conn),
        Some(Code::QueueFull),
        "64 in flight on one connection"
    );
    let jobs = world.jobs.len();
    for n in 0..4 {
        let conn = world.connect();
        for id in 1..=64 {
            world.request(conn, id, r#"{"type":"send","text":"x","session":"main"}"#);
        }
        assert_eq!(
            world.last_error(conn),
            (n == 3).then_some(Code::QueueFull),
            "256 wait in one session"
        );
    }
    assert_eq!(world.jobs.len(), jobs + 193);
}
