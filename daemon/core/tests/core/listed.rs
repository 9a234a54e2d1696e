//! `models`: who is asked, and what becomes of a question that nobody answers.

use std::time::Duration;

use agentd_core::ids::ConnId;
use agentd_core::worker::{CommandList, Exit, Failure, ModelList, Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::commands::CommandRow;
use agentd_protocol::models::ModelRow;
use agentd_protocol::serde_json::{self, Value};

use crate::agents::settings;
use crate::scenarios::{ProcessId, only, running};
use crate::world::World;

fn listed(world: &World, conn: ConnId) -> &Value {
    world.clients[&conn].lines.last().unwrap()
}

/// Its answer to the question that it was asked last.
fn tells(world: &mut World, process: ProcessId, result: Result<ModelList, Failure>) {
    let (number, _) = world.processes[&process].listings.last().unwrap().clone();
    world.worker(process, WorkerEvent::Models { number, result });
}

fn list(names: &[&str]) -> ModelList {
    ModelList {
        rows: names.iter().map(|name| ModelRow::named(*name)).collect(),
        ..ModelList::default()
    }
}

fn questions(world: &World, process: ProcessId) -> usize {
    world.processes[&process].listings.len()
}

#[test]
fn models_are_asked_of_what_lives() {
    let (mut world, conn, process) = running();
    let asker = world.connect();
    world.request(asker, 1, r#"{"type":"models","session":"main"}"#);
    world.request(asker, 2, r#"{"type":"models","agent":"many"}"#);
    assert_eq!(questions(&world, process), 2);
    tells(&mut world, process, Ok(list(&["a", "-b", "c"])));
    let told = listed(&world, asker);
    assert_eq!((&told["id"], &told["agent"]), (&2.into(), &"many".into()));
    assert_eq!(told["models"].as_array().unwrap().len(), 2);
    assert!(
        told["note"]
            .as_str()
            .unwrap()
            .starts_with("1 were left out")
    );
    // The same answer once more is nobody's, and the first question is still open.
    tells(&mut world, process, Ok(list(&["a"])));
    assert_eq!(listed(&world, asker)["id"], 2);
    let (number, _) = world.processes[&process].listings[0].clone();
    let refused = Failure::new(Code::AgentFailed, "no");
    let result = Err(refused);
    world.worker(process, WorkerEvent::Models { number, result });
    assert_eq!(world.told_to(asker).last().unwrap(), "1:error agent-failed");
    world.end_turn(process);
    assert!(world.told_to(conn).last().unwrap().contains("message_end"));
}

#[test]
fn models_start_a_process_that_takes_turns() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"models","agent":"one"}"#);
    let process = only(&world);
    assert_eq!(questions(&world, process), 0);
    // Another one who asks waits for the same process.
    world.request(conn, 2, r#"{"type":"models","agent":"one"}"#);
    world.get_ready(process);
    assert_eq!(questions(&world, only(&world)), 2);
    tells(&mut world, process, Ok(list(&[])));
    assert!(
        listed(&world, conn)["note"]
            .as_str()
            .unwrap()
            .contains("lists no models")
    );
    world.request(conn, 3, r#"{"type":"send","agent":"one","text":"hi"}"#);
    assert_eq!(world.processes[&process].turns.len(), 1);
    assert_eq!(world.spawns, 1);
}

#[test]
fn models_nobody_tells_are_given_up_in_time() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, r#"{"type":"models"}"#);
    world.pass(Duration::from_secs(9));
    assert_eq!(world.told_to(conn).last().unwrap(), "1:running");
    world.pass(Duration::from_secs(2));
    assert_eq!(world.last_error(conn), Some(Code::WorkerUnresponsive));
    // Late is as never, and the turn goes on.
    tells(&mut world, process, Ok(list(&["a"])));
    assert_eq!(world.last_error(conn), Some(Code::WorkerUnresponsive));
    world.end_turn(process);
    // One that doesn't come up.
    world.request(conn, 3, r#"{"type":"models","agent":"one"}"#);
    world.pass(Duration::from_secs(26));
    assert_eq!(world.last_error(conn), Some(Code::WorkerStartFailed));
}

#[test]
fn models_of_what_dies_say_why() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"models","agent":"one"}"#);
    let process = only(&world);
    world.exit(process, Exit::Code(3));
    let told = listed(&world, conn);
    assert_eq!(told["code"], "worker-start-failed", "{told:#}");
    assert!(
        told["error"]
            .as_str()
            .unwrap()
            .contains("exited with code 3")
    );
    // One that dies whenever it is asked does so for a while, and not for ever.
    let (mut world, conn, process) = running();
    world.end_turn(process);
    world.request(conn, 2, r#"{"type":"models","agent":"many"}"#);
    for _ in 0..26 {
        let Some(process) = world.processes.keys().next().copied() else {
            break;
        };
        world.get_ready(process);
        world.exit(process, Exit::Signal(9));
        world.pass(Duration::from_secs(1));
    }
    assert!(
        world.last_error(conn).is_some(),
        "{:?}",
        world.told_to(conn)
    );
}

#[test]
fn models_are_for_whoever_is_still_there() {
    let (mut world, conn, process) = running();
    let asker = world.connect();
    world.request(asker, 1, r#"{"type":"models"}"#);
    world.disconnect(asker);
    tells(&mut world, process, Ok(list(&["a"])));
    world.request(conn, 2, r#"{"type":"models"}"#);
    world.request(conn, 3, r#"{"type":"daemon.stop"}"#);
    let told = world.told_to(conn);
    assert!(told.contains(&"2:error draining".to_owned()), "{told:?}");
    world.request(conn, 4, r#"{"type":"models"}"#);
    assert_eq!(world.last_error(conn), Some(Code::Draining));
}

#[test]
fn models_none_can_say_are_unsupported() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"models","agent":"turn"}"#);
    assert_eq!(world.last_error(conn), Some(Code::Unsupported));
    assert!(world.processes.is_empty());
    world.request(conn, 2, r#"{"type":"models","agent":"many"}"#);
    let traits = Traits {
        lists_models: Some(false),
        ..Traits::default()
    };
    let process = only(&world);
    world.get_ready_as(process, traits);
    assert_eq!(world.last_error(conn), Some(Code::Unsupported));
    assert_eq!(questions(&world, process), 0);
}

#[test]
fn models_make_room_by_what_is_idle() {
    let mut settings = settings();
    settings.max_workers = 1;
    let mut world = World::new(settings);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","agent":"one","text":"hi"}"#);
    let first = only(&world);
    world.get_ready(first);
    world.request(conn, 2, r#"{"type":"models","agent":"many"}"#);
    world.pass(Duration::from_secs(26));
    assert_eq!(world.last_error(conn), Some(Code::QueueFull));
    world.end_turn(first);
    world.request(conn, 3, r#"{"type":"models","agent":"many"}"#);
    world.exit(first, Exit::Code(0));
    let second = only(&world);
    assert_eq!(world.processes[&second].agent, "many");
    world.get_ready(second);
    tells(&mut world, second, Ok(list(&["a"])));
    assert_eq!(listed(&world, conn)["models"][0]["model"], "a");
}

#[test]
fn commands_are_asked_as_models_are() {
    let (mut world, _, process) = running();
    let asker = world.connect();
    world.request(asker, 1, r#"{"type":"commands","session":"main"}"#);
    let (number, _) = world.processes[&process].listings[0].clone();
    // An answer to another question is none to this one.
    let result = Ok(list(&["a"]));
    world.worker(process, WorkerEvent::Models { number, result });
    assert!(world.told_to(asker).is_empty());
    let rows = [("/plan", Some("d")), ("a\nb", None)].map(|(name, description)| CommandRow {
        name: name.to_owned(),
        description: description.map(str::to_owned),
        hint: None,
    });
    let result = Ok(CommandList {
        rows: rows.into(),
        note: None,
    });
    world.worker(process, WorkerEvent::Commands { number, result });
    let told = listed(&world, asker);
    assert_eq!(told["type"], "commands");
    assert_eq!(
        told["commands"],
        serde_json::json!([{"name": "plan", "description": "d"}])
    );
    assert_eq!(told["note"], "1 were left out");
    world.request(asker, 2, r#"{"type":"commands","agent":"turns"}"#);
    assert!(world.told_to(asker).last().unwrap().starts_with("2:error"));
}
