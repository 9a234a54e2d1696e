//! Agents that are missing for a moment, and agents that come while the daemon runs.

use std::time::Duration;

use agentd_core::agent::Agent;
use agentd_core::event::Fault;
use agentd_core::ids::{ConnId, Generation, WorkerId};
use agentd_core::worker::Exit;

use crate::agents::settings;
use crate::world::World;

fn send(world: &mut World, conn: ConnId, id: u64, agent: &str, session: &str) {
    let line = format!(r#"{{"type":"send","text":"x","agent":"{agent}","session":"{session}"}}"#);
    world.request(conn, id, &line);
}

/// No process comes up for so long, as the agent's program is away.
fn away(world: &mut World, time: Duration) {
    none_starts(world, time, Fault::Missing);
}

/// No process comes up for so long, as the machine has no room for one.
fn short(world: &mut World, time: Duration) {
    none_starts(world, time, Fault::Short);
}

fn none_starts(world: &mut World, time: Duration, fault: Fault) {
    let until = world.now.mono + time;
    while world.now.mono < until {
        all_fail(world, fault);
        world.pass(Duration::from_millis(100));
    }
    all_fail(world, fault);
}

fn spawns_fail(world: &mut World) {
    all_fail(world, Fault::Missing);
}

fn all_fail(world: &mut World, fault: Fault) {
    let starting = world.processes.iter();
    let starting = starting.filter(|(_, known)| !known.ready || known.per_turn);
    let starting: Vec<(WorkerId, Generation)> = starting.map(|(id, _)| *id).collect();
    for process in starting {
        world.spawn_fails(process, fault);
    }
}

fn told(world: &World, conn: ConnId, id: u64) -> Vec<String> {
    let told = world.told_to(conn).into_iter();
    let of_it = format!("{id}:");
    told.filter(|line| line.starts_with(&of_it)).collect()
}

#[test]
fn missing_agent_serves_its_turns_once_back() {
    for agent in ["one", "many", "turn"] {
        let mut world = World::new(settings());
        let conn = world.connect();
        send(&mut world, conn, 1, agent, "a");
        away(&mut world, Duration::from_secs(4));
        send(&mut world, conn, 2, agent, "b");
        away(&mut world, Duration::from_secs(3));
        assert!(
            told(&world, conn, 1).contains(&"1:note agent-missing".to_owned()),
            "{agent}: {:?}",
            world.told_to(conn)
        );
        world.pass(Duration::from_millis(500));
        world.work();
        world.pass(Duration::from_secs(1));
        world.work();
        for id in [1, 2] {
            assert_eq!(world.answer(conn, id)["type"], "message_end", "{agent}");
            assert_eq!(world.answer(conn, id)["attempts"].as_u64().unwrap_or(1), 1);
        }
    }
}

#[test]
fn missing_agent_is_told_late_then_retried() {
    for agent in ["one", "many", "turn"] {
        let mut world = World::new(settings());
        let conn = world.connect();
        send(&mut world, conn, 1, agent, "a");
        away(&mut world, Duration::from_secs(12));
        assert_eq!(world.answer(conn, 1)["type"], "error", "{agent}");
        // Who comes right after hears it at once; a few seconds later it is tried again.
        send(&mut world, conn, 2, agent, "a");
        spawns_fail(&mut world);
        let refused = world.answer(conn, 2);
        assert_eq!(refused["code"], "worker-start-failed", "{agent}: {refused}");
        world.pass(Duration::from_secs(3));
        send(&mut world, conn, 3, agent, "a");
        spawns_fail(&mut world);
        assert_eq!(world.answer(conn, 3)["type"], "error", "{agent}");
        world.pass(Duration::from_secs(3));
        send(&mut world, conn, 4, agent, "a");
        world.work();
        assert_eq!(world.answer(conn, 4)["type"], "message_end", "{agent}");
    }
}

#[test]
fn missing_agent_leaves_sessions_with_a_process_alone() {
    for agent in ["one", "many"] {
        let mut world = World::new(settings());
        let conn = world.connect();
        send(&mut world, conn, 1, agent, "lives");
        world.work();
        assert_eq!(world.answer(conn, 1)["type"], "message_end", "{agent}");
        // Another one needs a process of its own, and none comes up.
        let other = r#"{"type":"send","text":"x","agent":"AGENT","session":"other","cwd":"/w"}"#;
        world.request(conn, 2, &other.replace("AGENT", agent));
        let spawns = world.spawns;
        away(&mut world, Duration::from_secs(12));
        assert!(world.spawns > spawns, "{agent}: it was looked for");
        assert_eq!(world.answer(conn, 2)["code"], "worker-start-failed");
        send(&mut world, conn, 3, agent, "lives");
        world.work();
        assert_eq!(world.answer(conn, 3)["type"], "message_end", "{agent}");
    }
}

#[test]
fn machine_without_processes_is_no_agents_fault() {
    for agent in ["one", "many", "turn"] {
        let mut world = World::new(settings());
        let conn = world.connect();
        for (id, session) in [(1, "a"), (2, "b"), (3, "c")] {
            send(&mut world, conn, id, agent, session);
        }
        short(&mut world, Duration::from_secs(45));
        let said = told(&world, conn, 1);
        let notes = said.iter().filter(|line| *line == "1:note machine-short");
        assert_eq!(notes.count(), 1, "{agent}: {said:?}");
        world.pass(Duration::from_secs(1));
        for _ in 0..3 {
            world.work();
            world.pass(Duration::from_secs(1));
        }
        for id in 1..=3 {
            assert_eq!(world.answer(conn, id)["type"], "message_end", "{agent}");
        }
        // Not for ever.
        let mut world = World::new(settings());
        let conn = world.connect();
        send(&mut world, conn, 1, agent, "a");
        short(&mut world, Duration::from_secs(65));
        let refused = world.answer(conn, 1);
        assert_eq!(refused["code"], "worker-start-failed", "{agent}: {refused}");
    }
}

#[test]
fn machine_without_processes_leaves_the_queue_to_others() {
    let mut world = World::new(settings());
    let conn = world.connect();
    send(&mut world, conn, 1, "one", "lives");
    let lives = *world.processes.keys().next().unwrap();
    world.get_ready(lives);
    send(&mut world, conn, 2, "one", "waits");
    short(&mut world, Duration::from_secs(300));
    world.end_turn(lives);
    world.pass(Duration::from_secs(1));
    for _ in 0..3 {
        world.work();
        world.pass(Duration::from_secs(1));
    }
    for id in 1..=2 {
        assert_eq!(world.answer(conn, id)["type"], "message_end");
    }
}

#[test]
fn missing_interpreter_is_like_a_missing_program() {
    let mut world = World::new(settings());
    let conn = world.connect();
    send(&mut world, conn, 1, "one", "a");
    for _ in 0..8 {
        let starting = *world.processes.keys().next().expect("it is tried again");
        world.exit(starting, Exit::Code(127));
        world.pass(Duration::from_millis(500));
    }
    world.work();
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
}

/// An agent that nobody could use so far.
fn absent(world_has: &mut agentd_core::Settings, name: &str) -> Agent {
    let agent = world_has.agents.get_mut(name).unwrap();
    let usable = agent.clone();
    agent.usable = Err(format!("`{name}` is not on PATH"));
    usable
}

#[test]
fn found_agent_answers_the_request_that_named_it() {
    let session = r#"{"type":"session.new","agent":"one","session":"n"}"#;
    let dispatch = r#"{"type":"dispatch","jobs":[{"text":"x","agent":"one"}]}"#;
    let send = r#"{"type":"send","text":"x","agent":"one"}"#;
    for (request, expected) in [
        (send, "message_end"),
        (session, "session.new"),
        (dispatch, "dispatch"),
    ] {
        let mut settings = settings();
        let one = absent(&mut settings, "one");
        let mut world = World::new(settings);
        let conn = world.connect();
        world.request(conn, 1, request);
        assert_eq!(world.answer(conn, 1)["code"], "no-agent", "{request}");
        world.to_find = vec![one];
        world.pass(Duration::from_secs(1));
        world.prompt_look = false;
        world.request(conn, 2, request);
        world.request(
            conn,
            3,
            r#"{"type":"send","text":"y","agent":"many","session":"m"}"#,
        );
        world.work();
        assert!(
            told(&world, conn, 3).is_empty(),
            "requests of one connection keep their order"
        );
        world.take_look();
        world.work();
        assert_eq!(world.answer(conn, 2)["type"], expected);
        assert_eq!(world.answer(conn, 3)["type"], "message_end");
    }
}

#[test]
fn found_agent_is_looked_for_at_intervals() {
    let mut world = World::new(settings());
    world.prompt_look = false;
    let conn = world.connect();
    for id in 1..50 {
        send(&mut world, conn, id, "nobody", &format!("s{id}"));
    }
    assert_eq!(world.looks, 1);
    world.take_look();
    for id in 1..50 {
        assert_eq!(world.answer(conn, id)["code"], "unknown-agent");
    }
    world.pass(Duration::from_millis(1));
    send(&mut world, conn, 50, "nobody", "s");
    assert_eq!(world.looks, 0, "the last look was just now");
    assert!(
        told(&world, conn, 50).is_empty(),
        "it hears of the next one"
    );
    world.pass(Duration::from_millis(100));
    assert_eq!(world.looks, 1);
    world.take_look();
    assert_eq!(world.answer(conn, 50)["code"], "unknown-agent");
}

#[test]
fn found_nothing_is_told_after_the_sessions_load() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.prompt_store = false;
    send(&mut world, conn, 1, "nobody", "not-in-memory");
    assert_eq!(
        world.store_pending(),
        1,
        "it was looked for, and the session is asked for"
    );
    world.pass(Duration::from_millis(1));
    world.store_answers();
    assert_eq!(world.answer(conn, 1)["code"], "unknown-agent");
}

#[test]
fn found_program_forgives_the_one_before() {
    let mut world = World::new(settings());
    let conn = world.connect();
    send(&mut world, conn, 1, "one", "a");
    let process = *world.processes.keys().next().unwrap();
    world.exit(process, Exit::Code(78));
    assert_eq!(world.answer(conn, 1)["code"], "worker-start-failed");
    world.pass(Duration::from_secs(1));
    let one = settings().agents["one"].clone();
    // As it was: looked at, and refused.
    send(&mut world, conn, 2, "one", "b");
    assert_eq!(world.answer(conn, 2)["code"], "worker-start-failed");
    world.pass(Duration::from_secs(1));
    // It was replaced in place: the first that asks for it gets the new one.
    world.to_find = vec![one];
    send(&mut world, conn, 3, "one", "b");
    world.work();
    assert_eq!(world.answer(conn, 3)["type"], "message_end");
}
