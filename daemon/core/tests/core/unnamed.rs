//! Sessions that nobody named: what is remembered of them when their turn is over, and for how long.

use std::time::Duration;

use agentd_core::ids::ConnId;
use agentd_core::limits::LINGERING_SESSIONS;
use agentd_core::worker::Exit;
use agentd_protocol::serde_json::Value;

use crate::agents::{settings, with_spares};
use crate::scenarios::{ProcessId, only};
use crate::world::World;

const SEND: &str = r#"{"type":"send","text":"x","agent":"many"}"#;

/// A turn in a session of its own; the name that it got.
fn begin(world: &mut World, conn: ConnId, id: u64, process: Option<ProcessId>) -> String {
    world.request(conn, id, SEND);
    let process = process.unwrap_or_else(|| {
        let process = only(world);
        world.get_ready(process);
        process
    });
    world.end_turn(process);
    let session = &world.answer(conn, id)["session"];
    session.as_str().unwrap().to_owned()
}

/// What the next turn of a session knows of those before it.
fn context(world: &mut World, conn: ConnId, id: u64, session: &str) -> Value {
    let send = format!(r#"{{"type":"send","text":"x","session":"{session}"}}"#);
    world.request(conn, id, &send);
    let process = only(world);
    if !world.processes[&process].ready {
        world.get_ready(process);
    }
    world.end_turn(process);
    world.answer(conn, id)["context"].clone()
}

#[test]
fn unnamed_session_goes_on_in_a_shared_process() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let first = begin(&mut world, conn, 1, None);
    let process = only(&world);
    let second = begin(&mut world, conn, 2, Some(process));
    assert_eq!(context(&mut world, conn, 3, &first), "continued");
    assert_eq!(context(&mut world, conn, 4, &second), "continued");
    assert_eq!(context(&mut world, conn, 5, &first), "continued");
    assert_eq!(only(&world), process);
}

#[test]
fn unnamed_session_keeps_no_process_alive() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let session = begin(&mut world, conn, 1, None);
    let process = only(&world);
    world.pass(Duration::from_secs(601));
    assert!(world.processes[&process].told_to_end.is_some());
    world.exit(process, Exit::Code(0));
    assert_eq!(context(&mut world, conn, 2, &session), "lost");
    let told = world.told_to(conn);
    assert!(told.contains(&"2:note context-lost".to_owned()), "{told:?}");
    let lines = &world.clients[&conn].lines;
    let mut notes = lines.iter().filter(|line| line["code"] == "context-lost");
    let note = notes.next().unwrap()["text"].as_str().unwrap();
    assert!(
        note.contains("`many` remembers them in its process alone"),
        "{note}"
    );
}

#[test]
fn unnamed_sessions_of_a_process_are_bounded() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let first = begin(&mut world, conn, 1, None);
    let process = only(&world);
    let count = u64::try_from(LINGERING_SESSIONS).unwrap();
    let kept = begin(&mut world, conn, 2, Some(process));
    for id in 3..=count + 1 {
        begin(&mut world, conn, id, Some(process));
    }
    assert_eq!(context(&mut world, conn, count + 2, &kept), "continued");
    assert_eq!(context(&mut world, conn, count + 3, &first), "lost");
}

#[test]
fn unnamed_session_leaves_its_process_a_spare() {
    let mut world = World::new(with_spares());
    let conn = world.connect();
    begin(&mut world, conn, 1, None);
    let process = only(&world);
    world.pass(Duration::from_secs(601));
    assert_eq!(world.processes[&process].told_to_end, None, "warm = 1");
    assert_eq!(world.spawns, 1);
}
