//! A turn's time runs while its process gets ready; and whose fault it is when one never does.

use std::time::Duration;

use agentd_core::Event;
use agentd_core::worker::{Exit, WorkerEvent};

use crate::agents::settings;
use crate::scenarios::{ProcessId, only, running};
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);

/// A world in which nobody got ready, and one connection.
fn asked(sends: &[&str]) -> (World, agentd_core::ids::ConnId) {
    let mut world = World::new(settings());
    let conn = world.connect();
    for (id, send) in (1..).zip(sends) {
        world.request(conn, id, &format!(r#"{{"type":"send","text":"x",{send}}}"#));
    }
    (world, conn)
}

fn is_told_to_end(world: &World, process: ProcessId) -> bool {
    world.processes[&process].told_to_end.is_some()
}

#[test]
fn timeout_ends_a_turn_and_its_unready_process() {
    let (mut world, conn) = asked(&[r#""agent":"one","session":"s","timeout":5"#]);
    let process = only(&world);
    let deadline = world.state.next_deadline();
    assert_eq!(deadline, Some(world.now.mono + 5 * SECOND));
    world.pass(4 * SECOND);
    assert_eq!(world.answer(conn, 1)["type"], "accepted");
    world.pass(SECOND);
    let last = world.answer(conn, 1).clone();
    let error = last["error"].as_str().unwrap();
    assert_eq!(last["code"], "timeout");
    assert!(
        error.contains("`one`") && error.contains("`jsonl`") && error.contains("within 5 s"),
        "{error}"
    );
    assert!(world.prompts.is_empty(), "it never ran");
    assert!(is_told_to_end(&world, process));
    world.exit(process, Exit::Code(0));
    assert!(
        world.processes.is_empty(),
        "nobody wants another one: {:?}",
        world.processes
    );
    world.request(conn, 2, r#"{"type":"send","text":"x","session":"s"}"#);
    world.work();
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
}

#[test]
fn timeout_keeps_a_process_that_others_await() {
    for (agent, session) in [("one", r#""session":"s","#), ("many", "")] {
        let first = format!(r#"{session}"agent":"{agent}","timeout":5"#);
        let second = format!(r#"{session}"agent":"{agent}","timeout":60"#);
        let (mut world, conn) = asked(&[&first, &second]);
        let process = only(&world);
        world.pass(5 * SECOND);
        assert_eq!(world.answer(conn, 1)["code"], "timeout", "{agent}");
        assert!(!is_told_to_end(&world, process), "{agent}");
        world.get_ready(process);
        world.end_turn(process);
        assert_eq!(world.answer(conn, 2)["type"], "message_end", "{agent}");
    }
}

#[test]
fn getting_ready_and_running_share_one_time() {
    let (mut world, conn) = asked(&[r#""agent":"one","timeout":10"#]);
    let process = only(&world);
    world.pass(6 * SECOND);
    world.get_ready(process);
    world.pass(3 * SECOND);
    assert_eq!(world.processes[&process].turns.len(), 1);
    world.pass(SECOND);
    world.end_turn(process);
    let last = world.answer(conn, 1);
    let error = last["error"].as_str().unwrap_or_default();
    assert_eq!(last["code"], "timeout");
    assert!(
        error.contains("limit of 10 s") && error.contains("6 s"),
        "{error}"
    );
}

#[test]
fn timeout_of_a_deaf_agent_names_the_limit() {
    let (mut world, conn) = asked(&[r#""agent":"one","timeout":1"#]);
    let process = only(&world);
    world.get_ready(process);
    world.pass(SECOND);
    world.pass(5 * SECOND);
    world.exit(process, Exit::Signal(9));
    let last = world.answer(conn, 1);
    let error = last["error"].as_str().unwrap_or_default();
    assert_eq!(last["code"], "timeout");
    assert!(
        error.contains("limit of 1 s") && error.contains("took 6 s"),
        "{error}"
    );
}

#[test]
fn timeout_excludes_waiting_for_session_or_room() {
    // Four processes are all there may be.
    let busy: Vec<String> = (0..4)
        .map(|n| format!(r#""agent":"one","session":"b{n}""#))
        .collect();
    let busy: Vec<&str> = busy.iter().map(String::as_str).collect();
    let (mut world, conn) = asked(&busy);
    let processes: Vec<ProcessId> = world.processes.keys().copied().collect();
    for process in &processes {
        world.get_ready(*process);
    }
    for (id, session) in [(10, "b0"), (11, "new")] {
        let send = format!(
            r#"{{"type":"send","text":"x","agent":"one","session":"{session}","timeout":5}}"#
        );
        world.request(conn, id, &send);
    }
    world.pass(20 * SECOND);
    for id in [10, 11] {
        assert_eq!(world.answer(conn, id)["type"], "accepted", "{id}");
    }
    world.work();
    world.settle();
    for id in [10, 11] {
        assert_eq!(world.answer(conn, id)["type"], "message_end", "{id}");
    }
}

#[test]
fn timeout_runs_only_for_the_first_waiter() {
    let send = r#""agent":"many","timeout":5"#;
    let (mut world, conn) = asked(&[send, send]);
    let first = only(&world);
    world.pass(4 * SECOND);
    world.get_ready(first);
    // The second one gets a process of its own, and all of its five seconds.
    world.pass(4 * SECOND);
    assert_eq!(world.answer(conn, 2)["type"], "accepted");
    let second = *world.processes.keys().find(|one| **one != first).unwrap();
    world.get_ready(second);
    world.end_turn(second);
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
}

#[test]
fn timeout_spans_all_starts_that_fail() {
    let (mut world, conn) = asked(&[r#""agent":"one","session":"s","timeout":3"#]);
    world.exit(only(&world), Exit::Code(1));
    world.pass(2 * SECOND);
    let process = only(&world);
    world.pass(SECOND);
    let last = world.answer(conn, 1);
    assert_eq!(last["code"], "timeout");
    let error = last["error"].as_str().unwrap();
    assert!(error.contains("exited with code 1"), "{error}");
    assert!(is_told_to_end(&world, process));
}

#[test]
fn timeout_before_the_mark_starts_nothing() {
    let (mut world, conn) = asked(&[r#""agent":"one","session":"s","timeout":5"#]);
    let process = only(&world);
    world.prompt_store = false;
    world.get_ready(process);
    world.pass(6 * SECOND);
    world.prompt_store = true;
    world.event(Event::Ticked);
    assert_eq!(world.answer(conn, 1)["code"], "timeout");
    assert!(world.prompts.is_empty(), "not a byte went to the agent");
    assert!(
        !is_told_to_end(&world, process),
        "it is ready, and the session's"
    );
}

#[test]
fn pins_whose_start_hangs_fail_only_their_turn() {
    type Fails = fn(&mut World, ProcessId);
    let ways: [(&str, Fails); 3] = [
        ("killed by signal 11", |_, _| {}),
        ("did not get ready in time", |world, _| {
            world.pass(31 * SECOND);
        }),
        (
            "closed its standard output",
            |world, (worker, generation)| {
                let why = "it closed its standard output".to_owned();
                world.event(Event::WorkerStuck {
                    worker,
                    generation,
                    why,
                });
            },
        ),
    ];
    for (said, fail) in ways {
        let (mut world, conn) = asked(&[r#""agent":"one","session":"odd","model":"no-such""#]);
        let process = only(&world);
        fail(&mut world, process);
        world.exit(process, Exit::Signal(11));
        let answer = world.answer(conn, 1);
        assert_eq!(answer["code"], "worker-start-failed", "{answer}");
        let error = answer["error"].as_str().unwrap();
        for part in ["`model` `no-such`", said, "its last words"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(world.spawns, 1, "{said}: no other try");
        // Neither the session nor the agent is to blame.
        for (id, session) in [(2, "odd"), (3, "plain")] {
            let send =
                format!(r#"{{"type":"send","text":"x","agent":"one","session":"{session}"}}"#);
            world.request(conn, id, &send);
            world.work();
            assert_eq!(world.answer(conn, id)["type"], "message_end", "{said}");
        }
    }
}

#[test]
fn pins_whose_start_was_killed_are_retried() {
    let (mut world, conn) = asked(&[r#""agent":"one","session":"odd","model":"a-model""#]);
    world.exit(only(&world), Exit::Signal(9));
    world.pass(5 * SECOND);
    assert_eq!(world.spawns, 2);
    world.work();
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
}

#[test]
fn start_that_hangs_without_pins_blames_agent() {
    for stuck in [false, true] {
        let (mut world, conn) = asked(&[r#""agent":"one","session":"s""#]);
        for _ in 0..3 {
            let process = only(&world);
            let (worker, generation) = process;
            let why = "it takes no input".to_owned();
            if stuck {
                world.event(Event::WorkerStuck {
                    worker,
                    generation,
                    why,
                });
            }
            world.pass(31 * SECOND);
            world.exit(process, Exit::Signal(9));
            world.pass(5 * SECOND);
        }
        assert_eq!(world.answer(conn, 1)["code"], "crash-looped", "{stuck}");
        assert_eq!(world.spawns, 3, "{stuck}");
    }
}

#[test]
fn spares_fall_back_to_the_usual_pins() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().warm = agentd_core::agent::Warm::Always(1);
    let mut world = World::new(settings);
    let conn = world.connect();
    world.get_ready(only(&world));
    let send = r#"{"type":"send","text":"x","agent":"one","session":"s","model":"odd"}"#;
    world.request(conn, 1, send);
    let unready = |world: &World| {
        let mut processes = world.processes.iter();
        let found = processes.find(|(_, known)| !known.ready);
        found.map(|(process, _)| *process)
    };
    let served = unready(&world).unwrap();
    world.get_ready(served);
    world.end_turn(served);
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
    for _ in 0..20 {
        world.pass(5 * SECOND);
        if let Some(spare) = unready(&world) {
            world.exit(spare, Exit::Code(1));
        }
    }
    // After the first spare and the turn's process: one spare with those pins, and three of the usual
    // kind, which are the agent's to answer for.
    assert_eq!(world.spawns, 6);
}

#[test]
fn a_reader_that_left_collects_nothing_any_more() {
    let (mut world, conn) = asked(&[r#""agent":"one","session":"runs""#]);
    let other = world.connect();
    let collect = r#"{"type":"collect","jobs":["j1"]}"#;
    world.request(conn, 2, collect);
    world.request(other, 2, collect);
    let process = only(&world);
    world.get_ready(process);
    world.event(Event::ReaderLeft { conn });
    assert_eq!(world.answer(conn, 2)["pending"][0], "j1");
    world.end_turn(process);
    assert_eq!(world.answer(other, 2)["results"][0]["job"], "j1");
}

#[test]
fn reader_that_left_cancels_only_unbegun_turns() {
    let (mut world, conn) = asked(&[
        r#""agent":"many","session":"runs""#,
        r#""agent":"one","session":"waits""#,
    ]);
    let (runs, starts) = {
        let mut all = world.processes.iter();
        let of = |name: &str| all.clone().find(|(_, one)| one.agent == name);
        let found = (*of("many").unwrap().0, *of("one").unwrap().0);
        all.next();
        found
    };
    world.get_ready(runs);
    let other = world.connect();
    let send = r#"{"type":"send","text":"x","agent":"one","session":"other"}"#;
    world.request(other, 1, send);
    world.event(Event::ReaderLeft { conn });
    assert_eq!(world.answer(conn, 2)["stop"], "cancelled");
    assert_eq!(world.answer(conn, 1)["type"], "running");
    assert_eq!(world.answer(other, 1)["type"], "accepted");
    world.get_ready(starts);
    world.worker(
        runs,
        WorkerEvent::Text {
            turn: world.processes[&runs].turns[0],
            text: "done".to_owned(),
            native: true,
        },
    );
    world.end_turn(runs);
    assert_eq!(world.answer(conn, 1)["text"], "done");
}

/// On a machine without a core to spare an agent says nothing for long.
#[test]
fn silence_of_a_turn_is_told_and_endured() {
    let (mut world, conn, process) = running();
    for _ in 0..59 {
        world.pass(60 * SECOND);
        assert!(!is_told_to_end(&world, process), "it is only slow");
    }
    let told = world.told_to(conn);
    let notes = told.iter().filter(|line| *line == "1:note stalled");
    assert_eq!(notes.count(), 1, "{told:?}");
    world.end_turn(process);
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
}
