//! Spawns that make no process: whom they end, and whom they don't concern.

use std::time::Duration;

use agentd_core::event::Fault;
use agentd_core::ids::{ConnId, Generation, WorkerId};
use agentd_core::limits::SPAWNS_AT_ONCE;
use agentd_core::worker::{Exit, Failure, Outcome, WorkerEvent};
use agentd_core::{Event, Served};
use agentd_protocol::Code;
use agentd_protocol::line::Stop;
use agentd_protocol::serde_json::json;

use crate::agents::settings;
use crate::world::{StoreOrder, World};

fn send(world: &mut World, conn: ConnId, id: u64, session: &str, more: &str) {
    let line = format!(r#"{{"type":"send","text":"x","session":"{session}"{more}}}"#);
    world.request(conn, id, &line);
}

/// The process in this directory.
fn there(world: &World, cwd: &str) -> (WorkerId, Generation) {
    let mut found = world.processes.iter().filter(|(_, known)| known.cwd == cwd);
    *found.next().expect("a process there").0
}

fn dirs(world: &World) -> Vec<&str> {
    let processes = world.processes.values();
    let living = processes.filter(|process| process.told_to_end.is_none());
    living.map(|process| process.cwd.as_str()).collect()
}

#[test]
fn one_shot_starts_its_agent_while_accepting() {
    let once = || Served::OneShot { reason: None };
    for (agent, served, comes) in [
        ("one", once(), 1),
        ("many", once(), 1),
        // It gets its prompt when it starts.
        ("turn", once(), 0),
        ("one", Served::Daemon, 0),
    ] {
        let mut settings = settings();
        settings.served = served;
        let mut world = World::new(settings);
        world.prompt_store = false;
        let conn = world.connect();
        let at = format!(r#","agent":"{agent}","cwd":"/w""#);
        send(&mut world, conn, 1, "s", &at);
        // Whether the session is known is looked up before.
        while !matches!(world.orders.front(), Some(StoreOrder::Commit(..))) {
            world.store_answers();
        }
        assert_eq!(world.processes.len(), comes, "{agent}: not accepted yet");
        if comes == 0 {
            continue;
        }
        world.prompt_store = true;
        world.event(Event::Ticked);
        let process = there(&world, "/w");
        world.get_ready(process);
        world.end_turn(process);
        assert_eq!(world.answer(conn, 1)["type"], "message_end", "{agent}");
        assert_eq!(world.processes.len(), 1, "{agent}: it is the one");
    }
}

#[test]
fn a_prompt_that_no_command_takes_fails_alone() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for id in 1..8 {
        let before = there_after(&mut world, conn, id);
        world.spawn_fails(before, Fault::Arguments);
        assert_eq!(world.answer(conn, id)["code"], "invalid-request", "{id}");
    }
    let process = there_after(&mut world, conn, 8);
    world.end_turn(process);
    assert_eq!(world.answer(conn, 8)["type"], "message_end");
}

fn there_after(world: &mut World, conn: ConnId, id: u64) -> (WorkerId, Generation) {
    send(
        world,
        conn,
        id,
        &format!("s{id}"),
        r#","agent":"turn","cwd":"/w""#,
    );
    there(world, "/w")
}

#[test]
fn cwd_that_is_gone_blames_nobody() {
    for agent in ["turn", "one", "many"] {
        let mut world = World::new(settings());
        let conn = world.connect();
        for id in 1..8 {
            let at = format!(r#","agent":"{agent}","cwd":"/gone""#);
            send(&mut world, conn, 2 * id, "g", &at);
            let process = there(&world, "/gone");
            send(&mut world, conn, 2 * id + 1, "g", "");
            world.spawn_fails(process, Fault::Directory);
            world.pass(Duration::from_secs(1));
            if agent == "turn" {
                world.spawn_fails(there(&world, "/gone"), Fault::Directory);
            }
            for id in [2 * id, 2 * id + 1] {
                assert_eq!(world.answer(conn, id)["code"], "invalid-request", "{agent}");
            }
            world.pass(Duration::from_secs(60));
            assert!(world.processes.is_empty(), "{agent}: nobody wants one");
        }
        send(
            &mut world,
            conn,
            100,
            "other",
            &format!(r#","agent":"{agent}","cwd":"/w""#),
        );
        world.work();
        assert_eq!(world.answer(conn, 100)["type"], "message_end", "{agent}");
    }
}

#[test]
fn one_turn_command_never_runs_for_nothing() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for id in 1..4 {
        let process = there_after(&mut world, conn, id);
        world.spawn_fails(process, Fault::Machine);
        let code = &world.answer(conn, id)["code"];
        assert!(code == "worker-exited", "{code}");
        assert!(world.processes.is_empty());
    }
    // By now the agent is broken: a restart forgives it, and is no reason to run anything.
    send(&mut world, conn, 5, "s", r#","agent":"turn","cwd":"/w""#);
    assert_eq!(world.answer(conn, 5)["code"], "crash-looped");
    world.request(conn, 6, r#"{"type":"restart_worker","agent":"turn"}"#);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.answer(conn, 6)["ok"], json!(true));
    assert!(world.processes.is_empty());
    let process = there_after(&mut world, conn, 7);
    world.end_turn(process);
    assert_eq!(world.answer(conn, 7)["type"], "message_end");
}

/// With a spare of the agent `one`.
fn with_a_spare() -> World {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().warm = agentd_core::agent::Warm::Always(1);
    let mut world = World::new(settings);
    world.connect();
    let spare = there(&world, "/home/u");
    world.get_ready(spare);
    world
}

/// A turn in a directory, and what follows from it.
fn turn_in(world: &mut World, id: u64, cwd: &str) {
    let conn = *world.clients.keys().next().unwrap();
    let session = format!("s{id}");
    send(
        world,
        conn,
        id,
        &session,
        &format!(r#","agent":"one","cwd":"{cwd}""#),
    );
    let process = there(world, cwd);
    world.get_ready(process);
    world.end_turn(process);
    assert_eq!(world.answer(conn, id)["type"], "message_end");
    world.pass(Duration::from_millis(50));
}

#[test]
fn spare_is_where_its_agent_ran_last() {
    let mut world = with_a_spare();
    turn_in(&mut world, 1, "/p");
    assert_eq!(dirs(&world), ["/p", "/p"], "the home's made way");
    let spawns = world.spawns;
    let ended = |world: &World| {
        let told = world
            .processes
            .iter()
            .filter(|(_, known)| known.told_to_end.is_some());
        told.map(|(process, _)| *process).collect::<Vec<_>>()
    };
    for process in ended(&world) {
        world.exit(process, Exit::Code(0));
    }
    let spare = *world
        .processes
        .iter()
        .find(|(_, known)| !known.ready)
        .unwrap()
        .0;
    world.get_ready(spare);
    let conn = *world.clients.keys().next().unwrap();
    send(&mut world, conn, 2, "s2", r#","agent":"one","cwd":"/p""#);
    assert_eq!(
        world.processes[&spare].turns.len(),
        1,
        "it serves the next one"
    );
    assert_eq!(world.spawns, spawns);
}

#[test]
fn spare_falls_back_to_home_or_nowhere() {
    let mut world = with_a_spare();
    turn_in(&mut world, 1, "/gone");
    let spare = *world
        .processes
        .iter()
        .find(|(_, known)| !known.ready)
        .unwrap()
        .0;
    assert_eq!(world.processes[&spare].cwd, "/gone");
    world.spawn_fails(spare, Fault::Directory);
    assert_eq!(dirs(&world), ["/gone", "/home/u"]);
    let spawns = world.spawns;
    let spare = *world
        .processes
        .iter()
        .find(|(_, known)| !known.ready)
        .unwrap()
        .0;
    world.spawn_fails(spare, Fault::Directory);
    for _ in 0..100 {
        world.pass(Duration::from_secs(5));
    }
    assert_eq!(world.spawns, spawns, "it would fail alike");
    world.pass(Duration::from_secs(200));
    assert_eq!(world.spawns, spawns + 1, "once in a while");
    turn_in(&mut world, 2, "/w");
}

#[test]
fn pool_miss_is_a_process_started_for_it() {
    for (agent, expected) in [("many", [2, 1]), ("one", [2, 1])] {
        let mut world = World::new(settings());
        let conn = world.connect();
        // The second waits behind the first, whose process isn't there yet; the third comes later.
        let at = format!(r#","agent":"{agent}""#);
        send(&mut world, conn, 1, "s", &at);
        send(&mut world, conn, 2, "s", &at);
        world.settle();
        send(&mut world, conn, 3, "s", &at);
        world.settle();
        world.request(conn, 4, r#"{"type":"status"}"#);
        let rpc = &world.answer(conn, 4)["rpc"];
        let found = [&rpc["pool_hits"], &rpc["pool_misses"]];
        assert_eq!(found, [&json!(expected[0]), &json!(expected[1])], "{agent}");
    }
}

#[test]
fn one_turn_process_gets_no_second_turn() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for id in [1, 2] {
        send(&mut world, conn, id, "s", r#","agent":"turn","cwd":"/w""#);
    }
    let process = there(&world, "/w");
    let turn = world.processes[&process].turns[0];
    let outcome = Box::new(Outcome::ended(Stop::EndTurn));
    world.worker(process, WorkerEvent::Ended { turn, outcome });
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
    world.exit(process, Exit::Code(0));
    world.end_turn(there(&world, "/w"));
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
}

#[test]
fn spawns_for_many_new_sessions_wait_for_none() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for id in 1..=SPAWNS_AT_ONCE as u64 + 3 {
        send(
            &mut world,
            conn,
            id,
            &format!("s{id}"),
            r#","agent":"turn""#,
        );
    }
    // As many as are asked for, one after the other.
    while let Some(process) = world.processes.keys().next().copied() {
        world.end_turn(process);
    }
    assert_eq!(world.began.len(), SPAWNS_AT_ONCE + 3);
}

#[test]
fn spawns_whose_turns_fail_keep_to_a_rate() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for id in 1..=SPAWNS_AT_ONCE as u64 + 4 {
        let session = format!("s{id}");
        send(&mut world, conn, id, &session, r#","agent":"turn""#);
    }
    let fail = |world: &mut World| {
        while let Some(process) = world.processes.keys().next().copied() {
            let turn = world.processes[&process].turns[0];
            let failure = Failure::new(Code::AgentFailed, "no luck");
            let outcome = Box::new(Outcome::failed(failure));
            world.worker(process, WorkerEvent::Ended { turn, outcome });
            world.exit(process, Exit::Code(1));
        }
        world.began.len()
    };
    assert_eq!(fail(&mut world), SPAWNS_AT_ONCE);
    for more in 1..=3 {
        world.pass(Duration::from_millis(100));
        assert_eq!(fail(&mut world), SPAWNS_AT_ONCE + more);
    }
}
