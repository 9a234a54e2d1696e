//! Nothing outlives its use: no timer, no slot, no session; and what waits for its time takes
//! nobody else's room.

use std::time::Duration;

use agentd_core::limits::SCHEDULED_IN_ALL;
use agentd_core::worker::{Exit, Traits, WorkerEvent};
use agentd_protocol::serde_json::json;

use crate::agents::settings;
use crate::world::World;

/// Is something of this name in the state?
fn holds(world: &World, name: &str) -> bool {
    format!("{:?}", world.state).contains(name)
}

#[test]
fn leaks_collect_timer_goes_with_its_connection() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x"}"#);
    let other = world.connect();
    let collect = r#"{"type":"collect","jobs":["j1"],"timeout":3600}"#;
    world.request(other, 1, collect);
    assert!(holds(&world, "Collect("));
    world.disconnect(other);
    assert!(!holds(&world, "Collect("));
    world.request(conn, 2, collect);
    world.work();
    assert_eq!(world.answer(conn, 2)["results"][0]["stop"], "end_turn");
    assert!(!holds(&world, "Collect("));
}

#[test]
fn leaks_session_leaves_process_that_others_keep() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let mut id = 0;
    let mut turn = |world: &mut World, session: &str| {
        id += 1;
        let send = format!(r#"{{"type":"send","text":"x","agent":"keeps","session":"{session}"}}"#);
        world.request(conn, id, &send);
        let process = *world.processes.keys().next().unwrap();
        if !world.processes[&process].ready {
            let resumes = Some(true);
            world.get_ready_as(
                process,
                Traits {
                    resumes,
                    ..Traits::default()
                },
            );
        }
        world.worker(process, WorkerEvent::Ready(Traits::default()));
        let turn = world.processes[&process].turns[0];
        let native = format!("{session}#1");
        world.worker(process, WorkerEvent::SessionOfTurn { turn, native });
        world.end_turn(process);
        assert_eq!(world.answer(conn, id)["type"], "message_end");
    };
    turn(&mut world, "rarely");
    for _ in 0..10 {
        turn(&mut world, "often");
        world.pass(Duration::from_secs(100));
    }
    assert!(!holds(&world, "rarely"), "it and its lease");
    assert!(holds(&world, "often"));
    assert_eq!(world.processes.len(), 1);
    turn(&mut world, "rarely");
    let carried = world.natives.last().unwrap().as_deref();
    assert_eq!(carried, Some("rarely#1"), "it is reopened");
}

#[test]
fn leaks_crash_looped_slot_goes_when_tried_again() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"x","agent":"one","session":"s"}"#;
    for id in 1..=3 {
        world.request(conn, id, send);
        for _ in 0..100 {
            let Some(process) = world.processes.keys().next().copied() else {
                world.pass(Duration::from_millis(200));
                continue;
            };
            world.get_ready(process);
            world.exit(process, Exit::Signal(9));
            break;
        }
    }
    let workers = |world: &mut World, id: u64| {
        world.request(conn, id, r#"{"type":"status","workers":true}"#);
        world.answer(conn, id)["workers"].clone()
    };
    assert_eq!(workers(&mut world, 10)[0]["state"], "crash-looped");
    world.pass(Duration::from_secs(590));
    assert_eq!(workers(&mut world, 11)[0]["state"], "crash-looped");
    world.pass(Duration::from_secs(20));
    assert_eq!(workers(&mut world, 12).as_array().unwrap().len(), 0);
    assert!(
        !holds(&world, r#"name: Some("s")"#),
        "neither the session nor its lease"
    );
}

#[test]
fn scheduled_jobs_have_a_limit_of_their_own() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let later = r#"{"text":"x","start_at":"1970-01-02T00:00:00Z"}"#;
    let page = [later; 250].join(",");
    let mut id = 0;
    while world.jobs.len() < SCHEDULED_IN_ALL {
        id += 1;
        world.request(
            conn,
            id,
            &format!(r#"{{"type":"dispatch","jobs":[{page}]}}"#),
        );
        assert_eq!(world.answer(conn, id)["ok"], true);
    }
    let one = later.replacen('{', r#"{"type":"send","#, 1);
    world.request(conn, 900, &one);
    let refused = world.answer(conn, 900);
    assert_eq!(refused["code"], "queue-full");
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.contains("10000 jobs wait for their `start_at`"),
        "{error}"
    );
    world.request(conn, 902, r#"{"type":"status"}"#);
    let rpc = &world.answer(conn, 902)["rpc"];
    assert_eq!(
        (&rpc["scheduled"], &rpc["queued"]),
        (&json!(10_000), &json!(0))
    );
    world.request(conn, 901, r#"{"type":"send","text":"x"}"#);
    assert_eq!(world.answer(conn, 901)["type"], "accepted");
    // Far more than there are processes.
    let now = [r#"{"text":"x"}"#; 250].join(",");
    world.request(
        conn,
        904,
        &format!(r#"{{"type":"dispatch","jobs":[{now}]}}"#),
    );
    assert_eq!(world.answer(conn, 904)["ok"], true);
    // One that ends makes room.
    world.request(conn, 902, r#"{"type":"abort","job":"j1"}"#);
    world.request(conn, 903, &one);
    assert_eq!(world.answer(conn, 903)["type"], "accepted");
}
