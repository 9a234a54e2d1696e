//! Spares that nobody configured: when there is one, and when there is none.

use std::time::Duration;

use agentd_core::agent::Warm;
use agentd_core::ids::{ConnId, Generation, WorkerId};
use agentd_core::machine::{Machine, Memory, Power};
use agentd_core::worker::{Exit, Failure, Outcome, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::serde_json::Value;

use crate::agents::settings;
use crate::world::World;

const SECOND: Duration = Duration::from_secs(1);
const GIB: u64 = 1 << 30;

fn machine(available: u64) -> Machine {
    Machine {
        memory: Some(Memory {
            total: 8 * GIB,
            available,
            stalled: 0,
        }),
        ..Machine::default()
    }
}

/// A world in which the agent `one` may have spares, on a machine with much room.
fn world(warm: Warm) -> (World, ConnId) {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().warm = warm;
    let mut world = World::new(settings);
    world.machine = machine(6 * GIB);
    let conn = world.connect();
    (world, conn)
}

fn unready(world: &World) -> Option<(WorkerId, Generation)> {
    let mut processes = world.processes.iter();
    let found = processes.find(|(_, known)| !known.ready && known.told_to_end.is_none());
    found.map(|(process, _)| *process)
}

/// A turn of a session, in the process that is started for it, or that is there.
fn turn(world: &mut World, conn: ConnId, id: u64, session: &str) {
    let send = format!(r#"{{"type":"send","text":"x","agent":"one","session":"{session}"}}"#);
    world.request(conn, id, &send);
    if let Some(process) = unready(world) {
        world.get_ready(process);
    }
    let mut busy = world.processes.iter();
    let busy = busy.find(|(_, known)| !known.turns.is_empty());
    let process = *busy.unwrap().0;
    world.end_turn(process);
    assert_eq!(world.answer(conn, id)["type"], "message_end");
}

fn spares(world: &mut World, conn: ConnId, id: u64) -> Value {
    world.request(conn, id, r#"{"type":"status"}"#);
    world.answer(conn, id)["spares"].clone()
}

fn told_to_end(world: &World) -> Vec<(WorkerId, Generation)> {
    let ending = world.processes.iter();
    let ending = ending.filter(|(_, known)| known.told_to_end.is_some());
    ending.map(|(process, _)| *process).collect()
}

#[test]
fn spare_follows_an_agents_first_turn() {
    let (mut world, conn) = world(Warm::WhenUsed);
    world.pass(10 * SECOND);
    assert_eq!(world.spawns, 0, "nobody used it");
    turn(&mut world, conn, 1, "a");
    world.pass(SECOND);
    assert_eq!(world.spawns, 2);
    world.get_ready(unready(&world).unwrap());
    assert_eq!(spares(&mut world, conn, 2)["processes"], 1);
    // The next session has it at once, and another one comes.
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"x","agent":"one","session":"b"}"#,
    );
    assert_eq!(world.began.len(), 2);
    world.pass(5 * SECOND);
    assert_eq!(world.spawns, 3);
    world.get_ready(unready(&world).unwrap());
    world.pass(100 * SECOND);
    assert_eq!(world.spawns, 3, "one is enough");
}

#[test]
fn spare_goes_with_its_agents_idle_time() {
    let (mut world, conn) = world(Warm::WhenUsed);
    turn(&mut world, conn, 1, "a");
    world.pass(SECOND);
    world.get_ready(unready(&world).unwrap());
    for _ in 0..59 {
        world.pass(10 * SECOND);
    }
    assert_eq!(told_to_end(&world), []);
    world.pass(20 * SECOND);
    assert_eq!(told_to_end(&world).len(), 2);
    for process in told_to_end(&world) {
        world.exit(process, Exit::Code(0));
    }
    world.pass(1000 * SECOND);
    assert_eq!(world.spawns, 2);
    assert_eq!(
        world.state.next_deadline(),
        None,
        "nothing wakes it any more"
    );
}

#[test]
fn spare_is_never_there_where_forbidden() {
    let (mut world, conn) = world(Warm::Always(0));
    turn(&mut world, conn, 1, "a");
    world.pass(100 * SECOND);
    assert_eq!(world.spawns, 1);
}

#[test]
fn spare_is_not_kept_for_the_logged_out() {
    let mut settings = settings();
    let agent = settings.agents.get_mut("one").unwrap();
    (agent.warm, agent.logged_in) = (Warm::WhenUsed, Some(false));
    let mut world = World::new(settings);
    world.machine = machine(6 * GIB);
    let conn = world.connect();
    turn(&mut world, conn, 1, "a");
    world.pass(100 * SECOND);
    assert_eq!(world.spawns, 1);
}

/// Who has been told to log in does, and asks again: no process from before answers.
#[test]
fn spare_is_not_kept_after_a_failed_login() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().warm = Warm::WhenUsed;
    let mut world = World::new(settings);
    world.machine = machine(6 * GIB);
    let conn = world.connect();
    let send = |session: &str| {
        format!(r#"{{"type":"send","text":"x","agent":"one","session":"{session}"}}"#)
    };
    world.request(conn, 1, &send("a"));
    let first = *world.processes.keys().next().unwrap();
    world.get_ready(first);
    let turn = world.processes[&first].turns[0];
    let outcome = Box::new(Outcome::failed(Failure::new(Code::AgentAuth, "no key")));
    world.worker(first, WorkerEvent::Ended { turn, outcome });
    world.processes.get_mut(&first).unwrap().turns.clear();
    world.pass(100 * SECOND);
    let others = world.processes.keys().any(|process| *process != first);
    assert!(!others, "{:?}", world.processes.keys());
    let is_told_to_end = |world: &World| {
        let known = world.processes.get(&first);
        known.is_none_or(|known| known.told_to_end.is_some())
    };
    assert!(is_told_to_end(&world));
    world.exit(first, Exit::Code(0));
    world.request(conn, 2, &send("b"));
    let next = *world.processes.keys().next().unwrap();
    world.get_ready(next);
    world.end_turn(next);
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
    world.pass(100 * SECOND);
    assert_eq!(world.spawns, 3, "spares are kept again");
}

#[test]
fn spare_is_not_started_without_room() {
    let battery = Machine {
        power: Power::Battery,
        ..machine(6 * GIB)
    };
    let stalled = Machine {
        memory: Some(Memory {
            stalled: 40,
            ..machine(6 * GIB).memory.unwrap()
        }),
        ..Machine::default()
    };
    for (found, word) in [
        (battery, "battery"),
        (machine(GIB / 2), "short of memory"),
        (machine(GIB), "short of memory"),
        (stalled, "short of memory"),
    ] {
        let (mut world, conn) = world(Warm::WhenUsed);
        world.machine = found;
        turn(&mut world, conn, 1, "a");
        world.pass(100 * SECOND);
        assert_eq!(world.spawns, 1, "{word}");
        let held = spares(&mut world, conn, 2)["held"].clone();
        assert!(held.as_str().unwrap().contains(word), "{held}");
        // Once there is, it comes.
        world.machine = machine(6 * GIB);
        world.pass(40 * SECOND);
        assert_eq!(world.spawns, 2, "{word}");
    }
}

#[test]
fn spare_ends_when_the_machine_gets_short() {
    let (mut world, conn) = world(Warm::WhenUsed);
    turn(&mut world, conn, 1, "a");
    world.pass(SECOND);
    let spare = unready(&world).unwrap();
    world.get_ready(spare);
    world.machine.power = Power::Battery;
    world.pass(40 * SECOND);
    assert_eq!(told_to_end(&world), [spare], "the session's process stays");
}

#[test]
fn spares_keep_to_their_budget() {
    let (mut world, conn) = world(Warm::WhenUsed);
    let held = |world: &mut World, conn, id| spares(world, conn, id)["held"].clone();
    turn(&mut world, conn, 1, "a");
    // The process of the session takes more than an eighth of the machine.
    let ((worker, _), _) = world.processes.first_key_value().unwrap();
    // As the world numbers them.
    let pid = 100 + u32::try_from(worker.0).unwrap();
    world.machine.processes.insert(pid, 2 * GIB);
    world.pass(SECOND);
    assert_eq!(world.spawns, 1);
    assert!(
        held(&mut world, conn, 2)
            .as_str()
            .unwrap()
            .contains("[pool] memory")
    );
    world.machine.processes.insert(pid, GIB / 4);
    world.pass(60 * SECOND);
    let spare = unready(&world).unwrap();
    world.get_ready(spare);
    let facts = spares(&mut world, conn, 3);
    assert_eq!(facts["memory"]["bytes"], GIB / 4);
    assert_eq!(facts["memory"]["limit"], GIB);
}

#[test]
fn spare_that_dies_is_started_ever_later() {
    let (mut world, conn) = world(Warm::WhenUsed);
    turn(&mut world, conn, 1, "a");
    for _ in 0..1200 {
        world.pass(SECOND / 2);
        if let Some(spare) = unready(&world) {
            world.exit(spare, Exit::Code(1));
        }
    }
    // After 10 s, 20 s, 40 s, 80 s, 160 s and 320 s.
    assert!((6..=8).contains(&world.spawns), "{} in 600 s", world.spawns);
    // And the agent is none the worse for it.
    turn(&mut world, conn, 2, "b");
}

#[test]
fn spare_goes_with_a_drain() {
    let (mut world, conn) = world(Warm::WhenUsed);
    turn(&mut world, conn, 1, "a");
    world.pass(SECOND);
    let spare = unready(&world).unwrap();
    world.get_ready(spare);
    world.request(conn, 2, r#"{"type":"drain"}"#);
    assert!(told_to_end(&world).contains(&spare));
}

#[test]
fn spare_is_replaced_with_its_agents_restart() {
    let (mut world, conn) = world(Warm::WhenUsed);
    turn(&mut world, conn, 1, "a");
    world.pass(SECOND);
    let spare = unready(&world).unwrap();
    world.get_ready(spare);
    world.request(conn, 2, r#"{"type":"restart_worker","agent":"one"}"#);
    assert!(told_to_end(&world).contains(&spare));
}

#[test]
fn spare_is_for_where_the_agent_was_last() {
    let (mut world, conn) = world(Warm::WhenUsed);
    turn(&mut world, conn, 1, "a");
    world.pass(SECOND);
    world.get_ready(unready(&world).unwrap());
    let send = r#"{"type":"send","text":"x","agent":"one","session":"c","cwd":"/elsewhere"}"#;
    world.request(conn, 2, send);
    let process = unready(&world).unwrap();
    assert_eq!(world.began.len(), 1, "one elsewhere serves nobody there");
    world.get_ready(process);
    world.end_turn(process);
    world.pass(5 * SECOND);
    for process in told_to_end(&world) {
        world.exit(process, Exit::Code(0));
    }
    world.pass(5 * SECOND);
    world.get_ready(unready(&world).unwrap());
    let send = r#"{"type":"send","text":"x","agent":"one","session":"d","cwd":"/elsewhere"}"#;
    world.request(conn, 3, send);
    assert_eq!(world.began.len(), 3);
}

/// The machine has more room for spares, or less.
pub fn see_machine(world: &mut World, choice: u32) {
    let power = match choice & 1 {
        0 => Power::Mains,
        _ => Power::Battery,
    };
    let total = 8 << 30;
    world.machine = Machine {
        power,
        memory: Some(Memory {
            total,
            available: total / 16 * u64::from(choice >> 1 & 15),
            stalled: (choice >> 5 & 3) * 5,
        }),
        processes: Default::default(),
    };
}
