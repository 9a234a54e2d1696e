//! An agent whose program lacks its long-lived form goes on in its exec form.

use std::time::Duration;

use agentd_core::agent::{Levels, Resume, Sessions};
use agentd_core::ids::{ConnId, Generation, WorkerId};
use agentd_core::worker::{Exit, WorkerEvent};
use agentd_core::{Event, Settings};

use crate::agents::{describe, exec_form, settings};
use crate::world::World;

const LONG_LIVED: [&str; 3] = ["one", "many", "keeps"];

fn send(world: &mut World, conn: ConnId, id: u64, agent: &str, more: &str) {
    let line = format!(r#"{{"type":"send","text":"x","agent":"{agent}"{more}}}"#);
    world.request(conn, id, &line);
}

fn first(world: &World) -> (WorkerId, Generation) {
    *world.processes.keys().next().expect("a process")
}

/// It is found out that the program lacks what it was started for.
fn lacks(world: &mut World, agent: &str) {
    world.event(Event::FormReplaced {
        agent: agent.to_owned(),
        form: Box::new(exec_form()),
    });
}

/// With one send to this agent, whose process is on its way.
fn with_one(settings: Settings, agent: &str, more: &str) -> (World, ConnId) {
    let mut world = World::new(settings);
    let conn = world.connect();
    send(&mut world, conn, 1, agent, more);
    assert_eq!(world.processes.len(), 1);
    (world, conn)
}

fn codes(world: &World, conn: ConnId) -> Vec<String> {
    let told = world.told_to(conn);
    let notes = told.into_iter().filter(|line| line.contains(":note "));
    notes.collect()
}

#[test]
fn exec_form_runs_the_waiting_turn() {
    for agent in LONG_LIVED {
        let (mut world, conn) = with_one(settings(), agent, r#","session":"s""#);
        send(&mut world, conn, 2, agent, r#","session":"s""#);
        let process = first(&world);
        lacks(&mut world, agent);
        world.exit(process, Exit::Code(2));
        assert_eq!(codes(&world, conn), ["1:note one-shot-form"], "{agent}");
        for id in [1, 2] {
            world.pass(Duration::from_secs(1));
            let process = first(&world);
            assert!(world.processes[&process].per_turn, "{agent}");
            world.end_turn(process);
            assert_eq!(world.answer(conn, id)["type"], "message_end", "{agent}");
        }
        assert_eq!(world.spawns, 3, "{agent}: no other try");
        // From now on nothing else is tried.
        world.pass(Duration::from_secs(1));
        send(&mut world, conn, 3, agent, "");
        assert!(world.processes[&first(&world)].per_turn);
        world.work();
        assert_eq!(world.answer(conn, 3)["type"], "message_end", "{agent}");
        let codes = codes(&world, conn);
        let said = codes.iter().filter(|code| code.contains("one-shot-form"));
        assert_eq!(said.count(), 1, "it is said once: {codes:?}");
    }
}

#[test]
fn exec_form_serves_waiters_in_any_phase() {
    type Leads = fn(&mut World, ConnId);
    let phases: [(&str, Leads); 5] = [
        ("starting", |_, _| {}),
        ("dead, to be started again", |world, _| {
            world.exit(first(world), Exit::Signal(9));
        }),
        ("killed, as it did not get ready", |world, _| {
            world.pass(Duration::from_secs(30));
        }),
        ("being restarted", |world, conn| {
            let restart = r#"{"type":"restart_worker","agent":"one","now":true}"#;
            world.request(conn, 9, restart);
        }),
        ("asked to leave", |world, conn| {
            send(world, conn, 8, "one", r#","session":"t""#);
            world.request(conn, 9, r#"{"type":"session.close","session":"t"}"#);
        }),
    ];
    for (phase, lead) in phases {
        let (mut world, conn) = with_one(settings(), "one", r#","session":"s""#);
        lead(&mut world, conn);
        lacks(&mut world, "one");
        let living: Vec<_> = world.processes.keys().copied().collect();
        for process in living {
            if world.processes[&process].per_turn {
                continue;
            }
            let told = world.processes[&process].told_to_end;
            assert!(told.is_some(), "{phase}");
            world.exit(process, Exit::Signal(15));
        }
        world.work();
        assert_eq!(world.answer(conn, 1)["type"], "message_end", "{phase}");
        let health = format!("{:?}", world.state);
        assert!(!health.contains("permanent"), "{phase}");
    }
}

#[test]
fn an_agent_that_was_given_up_is_forgiven() {
    let (mut world, conn) = with_one(settings(), "one", "");
    for _ in 0..3 {
        world.exit(first(&world), Exit::Code(2));
        world.pass(Duration::from_secs(5));
    }
    assert_eq!(world.answer(conn, 1)["code"], "crash-looped");
    send(&mut world, conn, 2, "one", "");
    assert_eq!(world.answer(conn, 2)["code"], "crash-looped");
    lacks(&mut world, "one");
    send(&mut world, conn, 3, "one", "");
    world.work();
    assert_eq!(world.answer(conn, 3)["type"], "message_end");
}

#[test]
fn exec_form_lets_ready_processes_end_turns() {
    for aborted in [false, true] {
        let (mut world, conn) = with_one(settings(), "one", r#","session":"s""#);
        let old = first(&world);
        world.get_ready(old);
        send(&mut world, conn, 2, "one", r#","session":"s""#);
        lacks(&mut world, "one");
        assert_eq!(world.processes.len(), 1, "a session is in one process only");
        if aborted {
            world.request(conn, 3, r#"{"type":"abort","job":"j1"}"#);
            assert_eq!(world.processes[&old].cancelled.len(), 1);
            assert_eq!(world.processes[&old].told_to_end, None);
        }
        world.end_turn(old);
        assert_eq!(world.answer(conn, 1)["type"], "message_end");
        assert!(world.processes[&old].told_to_end.is_some());
        world.exit(old, Exit::Code(0));
        world.work();
        assert_eq!(world.answer(conn, 2)["type"], "message_end");
        assert_eq!(world.answer(conn, 2)["context"], "new");
    }
}

#[test]
fn exec_form_refuses_what_it_lacks() {
    for (agent, more, code) in [
        ("one", r#","thinking":"high""#, "unsupported"),
        ("keeps", r#","toolsets":["a"]"#, "unsupported"),
        ("keeps", r#","fallback_chain":["m"]"#, "unsupported"),
    ] {
        let mut settings = settings();
        let known = settings.agents.get_mut("one").unwrap();
        known.describe.thinking = Levels::Any;
        let (mut world, conn) = with_one(settings, agent, more);
        let process = first(&world);
        lacks(&mut world, agent);
        world.exit(process, Exit::Code(2));
        assert_eq!(world.answer(conn, 1)["code"], code, "{agent} {more}");
        assert!(world.processes.is_empty());
        send(&mut world, conn, 2, agent, more);
        assert_eq!(world.answer(conn, 2)["code"], code, "{agent} {more}");
    }
    // A session that had turns has none of them any more.
    let (mut world, conn) = with_one(settings(), "one", r#","session":"s""#);
    world.work();
    world.exit(first(&world), Exit::Signal(9));
    let strict = r#","session":"s","require_context":true"#;
    send(&mut world, conn, 2, "one", strict);
    lacks(&mut world, "one");
    while let Some(process) = world.processes.keys().next().copied() {
        world.exit(process, Exit::Code(2));
    }
    assert_eq!(world.answer(conn, 2)["code"], "context-lost");
}

#[test]
fn exec_form_tells_of_lost_context_once() {
    let (mut world, conn) = with_one(settings(), "one", r#","session":"s""#);
    let old = first(&world);
    world.get_ready(old);
    let native = "/s.jsonl".to_owned();
    world.worker(old, WorkerEvent::SessionNamed { native });
    world.end_turn(old);
    // Nobody waits for its process when it is found out.
    world.pass(Duration::from_secs(601));
    world.exit(old, Exit::Code(0));
    lacks(&mut world, "one");
    for (id, context) in [(2, "lost"), (3, "new")] {
        send(&mut world, conn, id, "one", r#","session":"s""#);
        world.work();
        assert_eq!(world.answer(conn, id)["context"], context);
        assert_eq!(codes(&world, conn), ["2:note context-lost"]);
    }
    send(
        &mut world,
        conn,
        4,
        "one",
        r#","session":"s","require_context":true"#,
    );
    assert_eq!(world.answer(conn, 4)["code"], "context-lost");
}

#[test]
fn exec_form_ends_spares_for_good() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().warm = agentd_core::agent::Warm::Always(1);
    let mut world = World::new(settings);
    world.connect();
    let spare = first(&world);
    lacks(&mut world, "one");
    world.exit(spare, Exit::Code(2));
    world.pass(Duration::from_secs(700));
    assert!(world.processes.is_empty());
    assert_eq!(world.spawns, 1);
}

#[test]
fn exec_form_of_no_agent_changes_nothing() {
    let mut world = World::new(settings());
    world.event(Event::Ticked);
    let before = world.state.clone();
    lacks(&mut world, "nobody");
    let mut form = Box::new(exec_form());
    form.describe = describe(Sessions::Many, Resume::None);
    let agent = "one".to_owned();
    world.event(Event::FormReplaced { agent, form });
    assert!(world.state == before);
}
