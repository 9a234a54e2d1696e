//! Sessions that a process of many reopens by the agent's own id, and what only some workers take.

use std::time::Duration;

use agentd_core::worker::{Exit, Failure, Outcome, Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::serde_json::Value;

use crate::agents::settings;
use crate::scenarios::{ProcessId, only};
use crate::world::World;

const SEND: &str = r#"{"type":"send","text":"x","session":"main","agent":"keeps"}"#;

fn able() -> Traits {
    Traits {
        resumes: Some(true),
        toolsets: Some(true),
        fallback_chain: Some(true),
        ..Traits::default()
    }
}

/// Names the session of the turn that a process has.
fn name(world: &mut World, process: ProcessId, native: &str) {
    let turn = world.processes[&process].turns[0];
    let native = native.to_owned();
    world.worker(process, WorkerEvent::SessionOfTurn { turn, native });
}

/// A world whose session `main` had its first turn in a process that is able to go on with it.
fn begun() -> (World, agentd_core::ids::ConnId, ProcessId) {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, SEND);
    let process = only(&world);
    world.get_ready_as(process, able());
    assert_eq!(world.natives, [None]);
    name(&mut world, process, "n-1");
    world.end_turn(process);
    (world, conn, process)
}

fn context(world: &World, conn: agentd_core::ids::ConnId, id: u64) -> Value {
    world.answer(conn, id)["context"].clone()
}

#[test]
fn native_id_is_stored_and_goes_with_turns() {
    let (mut world, conn, process) = begun();
    assert_eq!(world.sessions["main"].native.as_deref(), Some("n-1"));
    world.request(conn, 2, SEND);
    world.end_turn(process);
    assert_eq!(world.natives.last().unwrap().as_deref(), Some("n-1"));
    assert_eq!(context(&world, conn, 2), "continued");
    // Another session of the same process has a name of its own.
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"x","session":"other","agent":"keeps"}"#,
    );
    assert_eq!(world.natives.last().unwrap(), &None);
    name(&mut world, process, "n-2");
    world.end_turn(process);
    assert_eq!(world.sessions["main"].native.as_deref(), Some("n-1"));
    assert_eq!(world.sessions["other"].native.as_deref(), Some("n-2"));
}

#[test]
fn native_session_outlives_process_and_daemon() {
    let (mut world, conn, process) = begun();
    world.exit(process, Exit::Signal(9));
    world.pass(Duration::from_secs(5));
    world.request(conn, 2, SEND);
    let process = only(&world);
    world.get_ready_as(process, able());
    world.end_turn(process);
    assert_eq!(context(&world, conn, 2), "continued");
    assert_eq!(world.natives.last().unwrap().as_deref(), Some("n-1"));
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 3, SEND);
    let process = only(&world);
    world.get_ready_as(process, able());
    world.end_turn(process);
    assert_eq!(context(&world, conn, 3), "continued");
    assert_eq!(world.natives.last().unwrap().as_deref(), Some("n-1"));
}

#[test]
fn idle_shared_process_stays_while_one_lacks_id() {
    let (mut world, conn, process) = begun();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"x","session":"nameless","agent":"keeps"}"#,
    );
    world.end_turn(process);
    world.pass(Duration::from_secs(601));
    assert_eq!(world.processes[&process].told_to_end, None);
    world.request(conn, 3, r#"{"type":"session.close","session":"nameless"}"#);
    world.request(conn, 4, SEND);
    // It was idle for long: it is asked before its turn.
    world.worker(process, WorkerEvent::Ready(able()));
    world.end_turn(process);
    world.pass(Duration::from_secs(601));
    assert!(world.processes[&process].told_to_end.is_some());
}

#[test]
fn native_id_without_resumes_reopens_nothing() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, SEND);
    let process = only(&world);
    world.get_ready(process);
    name(&mut world, process, "n-1");
    world.end_turn(process);
    world.exit(process, Exit::Signal(9));
    world.pass(Duration::from_secs(5));
    world.request(conn, 2, SEND);
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    assert_eq!(context(&world, conn, 2), "lost");
    assert_eq!(world.natives, [None, None]);
}

#[test]
fn native_session_lost_fails_once_then_restarts() {
    let (mut world, conn, process) = begun();
    world.request(conn, 2, SEND);
    let turn = world.processes.get_mut(&process).unwrap().turns.remove(0);
    let outcome = Outcome::failed(Failure::new(Code::ContextLost, "there is no n-1"));
    let outcome = Box::new(outcome);
    world.worker(process, WorkerEvent::Ended { turn, outcome });
    let failed = world.answer(conn, 2).clone();
    assert_eq!(failed["code"], "context-lost");
    assert_eq!(failed["context"], "lost");
    assert_eq!(world.sessions["main"].native, None);
    world.request(conn, 3, SEND);
    assert_eq!(world.natives.last().unwrap(), &None);
    name(&mut world, process, "n-3");
    world.end_turn(process);
    let told = world.told_to(conn);
    assert!(told.contains(&"3:note context-lost".to_owned()), "{told:?}");
    assert_eq!(context(&world, conn, 3), "lost");
    world.request(conn, 4, SEND);
    world.end_turn(process);
    assert_eq!(context(&world, conn, 4), "continued");
    assert_eq!(world.natives.last().unwrap().as_deref(), Some("n-3"));
}

#[test]
fn native_id_is_taken_of_own_turns_only() {
    let (mut world, conn, process) = begun();
    world.request(conn, 2, SEND);
    let turn = world.processes[&process].turns[0];
    world.end_turn(process);
    let native = "n-9".to_owned();
    world.worker(process, WorkerEvent::SessionOfTurn { turn, native });
    assert_eq!(world.sessions["main"].native.as_deref(), Some("n-1"));
}

#[test]
fn unsupported_field_ends_a_turn_before_its_start() {
    for (field, word) in [
        (r#""toolsets":["file"]"#, "`toolsets`"),
        (r#""fallback_chain":["p/m"]"#, "`fallback_chain`"),
    ] {
        let mut world = World::new(settings());
        let conn = world.connect();
        let send = format!(r#"{{"type":"send","text":"x","agent":"keeps",{field}}}"#);
        world.request(conn, 1, &send);
        let process = only(&world);
        world.get_ready_as(
            process,
            Traits {
                toolsets: Some(false),
                fallback_chain: Some(false),
                ..Traits::default()
            },
        );
        let line = world.answer(conn, 1).clone();
        assert_eq!(line["code"], "unsupported", "{line}");
        assert!(line["error"].as_str().unwrap().contains(word), "{line}");
        assert!(world.natives.is_empty(), "not a byte went to it");
        // Who takes it gets it; and toolsets need no process of their own.
        let mut world = World::new(settings());
        let conn = world.connect();
        world.request(conn, 1, SEND);
        let process = only(&world);
        world.get_ready_as(process, able());
        world.end_turn(process);
        world.request(conn, 2, &send);
        world.end_turn(process);
        assert_eq!(world.answer(conn, 2)["type"], "message_end");
        // An agent of a kind that never takes it is not even asked.
        let one = send.replace("keeps", "one");
        world.request(conn, 3, &one);
        assert_eq!(world.told_to(conn).last().unwrap(), "3:error unsupported");
    }
}

#[test]
fn fallback_chain_is_part_of_its_key() {
    let (mut world, conn, process) = begun();
    let keyed = |chain: &str| {
        format!(
            r#"{{"type":"send","text":"x","session":"main","agent":"keeps","idempotency_key":"k"{chain}}}"#
        )
    };
    world.request(conn, 2, &keyed(r#","fallback_chain":["p/m"]"#));
    world.end_turn(process);
    let stored: Value =
        agentd_protocol::serde_json::from_str(&world.jobs.values().last().unwrap().request)
            .unwrap();
    assert_eq!(stored["fallback_chain"][0], "p/m");
    world.request(conn, 3, &keyed(r#","fallback_chain":["p/m"]"#));
    assert_eq!(world.answer(conn, 3)["replayed"], true);
    for other in [r#","fallback_chain":["p/n"]"#, ""] {
        world.request(conn, 4, &keyed(other));
        assert_eq!(world.answer(conn, 4)["code"], "idempotency-conflict");
    }
}

#[test]
fn native_id_given_by_us_is_always_new() {
    let mut settings = settings();
    let describe = &mut settings.agents.get_mut("turn").unwrap().describe;
    describe.resume = agentd_core::agent::Resume::Native;
    let mut world = World::new(settings.clone());
    let mut conn = world.connect();
    let turn = |world: &mut World, conn, id, exit: Option<Exit>| {
        let line = r#"{"type":"send","text":"x","session":"main","agent":"turn"}"#;
        world.request(conn, id, line);
        let process = only(world);
        let resume = world.processes[&process].resume.clone().unwrap();
        match exit {
            Some(exit) => world.exit(process, exit),
            None => world.end_turn(process),
        }
        (resume, world.answer(conn, id)["context"].clone())
    };
    // A turn that fails may have left something there.
    let (first, context) = turn(&mut world, conn, 1, Some(Exit::Code(1)));
    assert_eq!(context, "new");
    assert_eq!(
        turn(&mut world, conn, 2, None),
        (first.clone(), "continued".into())
    );
    world.crash(settings);
    conn = world.connect();
    assert_eq!(
        turn(&mut world, conn, 3, None),
        (first.clone(), "continued".into())
    );
    world.request(conn, 4, r#"{"type":"session.close","session":"main"}"#);
    assert_eq!(world.answer(conn, 4)["ok"], true);
    let (second, context) = turn(&mut world, conn, 5, None);
    assert_ne!(second, first, "what was closed is not gone on with");
    assert_eq!(context, "new");
}
