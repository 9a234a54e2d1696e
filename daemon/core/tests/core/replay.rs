//! The same key again, whatever state the first or the daemon is in.

use agentd_core::store::Stored;
use agentd_core::worker::Exit;
use agentd_protocol::Code;

use crate::agents::settings;
use crate::scenarios::{running, say};
use crate::world::World;

const KEYED: &str = r#"{"type":"send","text":"hi","session":"main","idempotency_key":"k"}"#;

fn keyed() -> (World, agentd_core::ids::ConnId, crate::scenarios::ProcessId) {
    let (mut world, conn, process) = running();
    world.end_turn(process);
    world.request(conn, 2, KEYED);
    (world, conn, process)
}

#[test]
fn key_replays_a_running_job_without_gaps() {
    let (mut world, _, process) = keyed();
    say(&mut world, process, "hel");
    let late = world.connect();
    world.request(late, 7, KEYED);
    say(&mut world, process, "lo");
    world.end_turn(process);
    assert_eq!(
        world.told_to(late),
        [
            "7:accepted j2 main replayed",
            "7:message_start",
            "7:message_delta hel@0",
            "7:message_delta lo@3",
            "7:message_end end_turn hello",
        ]
    );
}

#[test]
fn fifty_callers_with_one_key_are_one_job() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conns: Vec<_> = (0..50).map(|_| world.connect()).collect();
    for conn in &conns {
        world.request(*conn, 1, KEYED);
    }
    world.prompt_store = true;
    world.pass(std::time::Duration::ZERO);
    world.work();
    assert_eq!(world.jobs.len(), 1);
    assert_eq!(world.prompts.values().sum::<u32>(), 1);
    let mut first = 0;
    for conn in conns {
        let told = world.told_to(conn);
        first += u32::from(told[0] == "1:accepted j1 main");
        assert_eq!(told.last().unwrap(), "1:message_end end_turn ", "{told:?}");
    }
    assert_eq!(first, 1, "one of them was the first");
}

#[test]
fn key_is_answered_when_new_work_is_refused() {
    let (mut world, conn, process) = keyed();
    world.end_turn(process);
    world.request(conn, 3, r#"{"type":"daemon.stop"}"#);
    assert!(!world.exited);
    world.request(conn, 4, KEYED);
    assert_eq!(
        world.answer(conn, 4)["type"],
        "message_end",
        "{:?}",
        world.told_to(conn)
    );
    let other = KEYED.replace("hi", "ho");
    world.request(conn, 5, &other);
    assert_eq!(world.answer(conn, 5)["code"], "idempotency-conflict");
    let unknown = KEYED.replace("\"k\"", "\"new\"");
    world.request(conn, 6, &unknown);
    assert_eq!(world.answer(conn, 6)["code"], "draining");
}

#[test]
fn key_is_answered_for_a_crash_looped_agent() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, KEYED);
    let process = crate::scenarios::only(&world);
    world.exit(process, Exit::Code(78));
    assert_eq!(world.last_error(conn), Some(Code::WorkerStartFailed));
    world.request(conn, 2, KEYED);
    let again = world.answer(conn, 2);
    assert_eq!(
        (&again["job"], &again["replayed"]),
        (&"j1".into(), &true.into())
    );
    world.request(conn, 3, &KEYED.replace("\"k\"", "\"new\""));
    let refused = world.answer(conn, 3);
    assert!(refused["job"].is_null(), "refused, not accepted: {refused}");
}

#[test]
fn a_refused_send_leaves_its_key_free() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    world.request(conn, 1, KEYED);
    world.store_answers();
    world.store_refuses(Stored::Failed {
        code: Code::DiskFull,
        why: "full".to_owned(),
    });
    while world.store_pending() > 0 {
        world.store_answers();
    }
    assert_eq!(world.last_error(conn), Some(Code::DiskFull));
    world.prompt_store = true;
    world.request(conn, 2, KEYED);
    let accepted = world.answer(conn, 2);
    assert_eq!(accepted["replayed"], false);
}

#[test]
fn a_key_outlives_a_crash() {
    let (mut world, _, process) = keyed();
    world.end_turn(process);
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 1, KEYED);
    let told = world.told_to(conn);
    assert_eq!(told[0], "1:accepted j2 main replayed");
    assert_eq!(world.prompts.values().max(), Some(&1));
}

#[test]
fn key_is_answered_while_nothing_is_written() {
    let (mut world, _, process) = keyed();
    world.end_turn(process);
    world.prompt_store = false;
    let conn = world.connect();
    world.request(conn, 1, KEYED);
    world.store_refuses(Stored::Failed {
        code: Code::DiskFull,
        why: "full".to_owned(),
    });
    world.prompt_store = true;
    world.pass(std::time::Duration::ZERO);
    assert_eq!(world.answer(conn, 1)["job"], "j2");
}

#[test]
fn key_finds_the_job_after_a_doubt() {
    let (mut world, _, process) = running();
    world.end_turn(process);
    world.prompt_store = false;
    let conn = world.connect();
    world.request(conn, 1, KEYED);
    let trouble = Some("I/O error".to_owned());
    world.event(agentd_core::Event::StoreHealth { trouble });
    world.pass(std::time::Duration::from_millis(9_999));
    assert!(!world.clients[&conn].closed);
    world.pass(std::time::Duration::from_millis(1));
    assert!(world.clients[&conn].closed && world.told_to(conn).is_empty());
    world.prompt_store = true;
    world.event(agentd_core::Event::StoreHealth { trouble: None });
    let again = world.connect();
    world.request(again, 1, KEYED);
    world.work();
    assert_eq!(world.answer(again, 1)["replayed"], true);
    assert_eq!(world.prompts.values().max(), Some(&1));
}
