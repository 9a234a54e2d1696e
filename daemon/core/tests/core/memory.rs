//! Memory is bounded by bytes: what waits in the store is not held here, and what is held has a
//! limit that `status` tells.

use std::time::Duration;

use agentd_core::Event;
use agentd_core::ids::ConnId;
use agentd_core::ids::Token;
use agentd_core::limits::{PARKED_BYTES, QUEUED_BYTES};
use agentd_core::store::{Loaded, Query, Stored};
use agentd_protocol::serde_json::Value;
use agentd_protocol::{Body, Code};

use crate::agents::settings;
use crate::scenarios::{only, running};
use crate::world::{StoreOrder, World};

/// A send of so many bytes of text.
fn send(bytes: usize, more: &str) -> String {
    let text = "x".repeat(bytes);
    format!(r#"{{"type":"send","text":"{text}"{more}}}"#)
}

fn memory(world: &mut World, conn: ConnId) -> Value {
    world.request(conn, 9_999, r#"{"type":"status"}"#);
    world.answer(conn, 9_999)["memory"].clone()
}

fn bytes(world: &mut World, of: &str) -> u64 {
    let conn = world.connect();
    let bytes = memory(world, conn)[of]["bytes"].as_u64().unwrap();
    world.disconnect(conn);
    bytes
}

#[test]
fn memory_holds_no_text_of_waiting_turns() {
    let (mut world, _, process) = running();
    let conn = world.connect();
    let before = bytes(&mut world, "queued");
    for id in 1..=50 {
        world.request(conn, id, &send(100_000, r#","session":"main""#));
    }
    let state = format!("{:?}", world.state);
    assert!(!state.contains("xxxxxxxx"), "a text is still in memory");
    let each = (bytes(&mut world, "queued") - before) / 50;
    assert!(each < 2_000, "{each} bytes for a turn that waits");
    assert_eq!(world.texts_told, ["hi"]);
    world.end_turn(process);
    assert_eq!(
        world.texts_told[1..],
        ["x".repeat(100_000)],
        "the next one has its text"
    );
}

#[test]
fn memory_of_ended_turns_is_given_back() {
    let (mut world, conn, process) = running();
    assert!(bytes(&mut world, "queued") > 0);
    world.request(
        conn,
        2,
        &send(1_000, r#","session":"main","model":"m","agent":"many""#),
    );
    world.request(
        conn,
        3,
        r#"{"type":"dispatch","jobs":[{"text":"a"},{"text":"b","agent":"nobody"}]}"#,
    );
    world.end_turn(process);
    for process in world.processes.keys().copied().collect::<Vec<_>>() {
        world.get_ready(process);
        world.end_turn(process);
    }
    world.settle();
    assert_eq!(bytes(&mut world, "queued"), 0);
}

#[test]
fn memory_of_recovered_turns_is_counted() {
    let (mut world, conn, _) = running();
    world.request(conn, 2, &send(1_000, r#","session":"main""#));
    let before = bytes(&mut world, "queued");
    world.crash(settings());
    let after = bytes(&mut world, "queued");
    assert!(
        after > before / 3 && after < before + 1_000,
        "{before}, {after}"
    );
}

#[test]
#[ignore = "heavy"]
fn memory_of_unstored_sends_has_a_limit() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let (mut conn, mut sent) = (world.connect(), 0);
    let refused = loop {
        sent += 1;
        if sent % 60 == 0 {
            conn = world.connect();
        }
        world.request(conn, sent, &send(1 << 20, ""));
        let lines = &world.clients[&conn].lines;
        if let Some(line) = lines.last() {
            break line.clone();
        }
        assert!(
            sent << 20 < 2 * QUEUED_BYTES as u64,
            "{sent} sends of 1 MiB"
        );
    };
    assert_eq!(refused["code"], Code::QueueFull.name());
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("the limit is 134217728"),
        "{refused}"
    );
    assert!(bytes(&mut world, "queued") <= QUEUED_BYTES as u64);
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    assert!(bytes(&mut world, "queued") < 2_000 * sent);
    let conn = world.connect();
    world.request(conn, 1, &send(1 << 20, ""));
    assert_eq!(
        world.answer(conn, 1)["type"],
        "accepted",
        "there is room again"
    );
}

#[test]
fn memory_of_refused_sends_is_given_back() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    world.request(conn, 1, &send(1 << 20, ""));
    assert!(bytes(&mut world, "queued") > 1 << 20);
    world.store_refuses(Stored::Failed {
        code: Code::DiskFull,
        why: "full".to_owned(),
    });
    assert_eq!(bytes(&mut world, "queued"), 0);
}

#[test]
fn memory_of_parked_sends_has_a_limit() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    for id in 1..100 {
        let session = format!(r#","session":"s{id}""#);
        world.request(conn, id, &send(1 << 20, &session));
        if !world.clients[&conn].lines.is_empty() {
            break;
        }
    }
    let refused = world.clients[&conn].lines.last().expect("no limit").clone();
    assert_eq!(refused["code"], Code::QueueFull.name());
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.contains("looked up") && error.contains("33554432"),
        "{error}"
    );
    let parked = bytes(&mut world, "parked");
    assert!((PARKED_BYTES as u64 * 9 / 10..=PARKED_BYTES as u64).contains(&parked));
    // Whoever goes takes what it asked with it.
    let other = world.connect();
    world.request(other, 1, r#"{"type":"abort","session":"s1"}"#);
    assert!(bytes(&mut world, "parked") > parked);
    world.disconnect(conn);
    assert!(bytes(&mut world, "parked") < 10_000);
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    assert_eq!(bytes(&mut world, "parked"), 0);
}

#[test]
fn memory_of_sends_awaiting_agents_is_given_back() {
    let mut world = World::new(settings());
    world.prompt_look = false;
    let conn = world.connect();
    for id in 1..=3 {
        world.request(conn, id, &send(1 << 20, r#","agent":"nobody""#));
    }
    assert!(bytes(&mut world, "parked") > 3 << 20, "each of them");
    world.take_look();
    assert_eq!(bytes(&mut world, "parked"), 0);
    let told = &world.clients[&conn].lines;
    let refused = told.iter().filter(|line| line["code"] == "unknown-agent");
    assert_eq!(refused.count(), 3, "{told:?}");
}

/// Lists that the store was asked for and has not answered.
fn asked(world: &mut World) -> Vec<Token> {
    let orders = std::mem::take(&mut world.orders).into_iter();
    let tokens = orders.map(|order| match order {
        StoreOrder::Load(token, Query::Export { .. }) => token,
        other => panic!("{other:?}"),
    });
    tokens.collect()
}

/// A page of so many bytes is found.
fn found(world: &mut World, token: Token, bytes: usize) {
    let rows = format!(r#"{{"type":"export","rows":["{}"]}}"#, "x".repeat(bytes));
    let loaded = Loaded::Line(Body::stored(&rows));
    world.event(Event::Loaded { token, loaded });
}

#[test]
fn memory_of_pages_waits_for_their_reader() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    for id in 1..=100 {
        world.request(conn, id, r#"{"type":"export"}"#);
    }
    for id in 1..=100 {
        let [token] = asked(&mut world)[..] else {
            panic!("one at a time, before page {id}")
        };
        found(&mut world, token, 300_000);
        assert_eq!(asked(&mut world), [], "nobody has read page {id}");
        let unsent = bytes(&mut world, "unsent");
        assert!((300_000..600_000).contains(&unsent), "{unsent}");
        assert_eq!(world.answer(conn, id)["type"], "export");
        world.clients_read();
    }
    assert_eq!(bytes(&mut world, "unsent"), 0);
    world.request(conn, 101, r#"{"type":"export"}"#);
    let [token] = asked(&mut world)[..] else {
        panic!("there is room again")
    };
    found(&mut world, token, 300_000);
    world.disconnect(conn);
    assert_eq!(bytes(&mut world, "unsent"), 0);
}

#[test]
fn memory_of_unread_lines_has_a_limit() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let mut readers = 0;
    let refused = loop {
        readers += 1;
        let conn = world.connect();
        world.request(conn, 1, r#"{"type":"export"}"#);
        let Some(token) = asked(&mut world).pop() else {
            break world.answer(conn, 1).clone();
        };
        found(&mut world, token, 1_000_000);
        assert!(readers < 1000, "no limit");
    };
    assert_eq!(refused["code"], "queue-full");
    assert!(
        refused["error"].as_str().unwrap().contains("268435456"),
        "{refused}"
    );
    assert!((260..280).contains(&readers), "{readers}");
}

/// Jobs of another instance, each with a final line of so many bytes.
fn ended_elsewhere(world: &mut World, jobs: usize, bytes: usize) -> String {
    let names = (0..jobs).map(|_| {
        let job = world.neighbour_accepts("x");
        let seq = world.number();
        let text = "x".repeat(bytes);
        let line = format!(r#"{{"type":"message_end","stop":"end_turn","text":"{text}"}}"#);
        world.jobs.get_mut(&job).unwrap().last = Some((seq, Body::stored(&line)));
        format!(r#""{job}""#)
    });
    let names: Vec<_> = names.collect();
    format!(r#"{{"type":"collect","jobs":[{}]}}"#, names.join(","))
}

#[test]
fn memory_of_unread_results_has_a_limit() {
    let mut world = World::new(settings());
    let collect = ended_elsewhere(&mut world, 1, 900_000);
    let mut readers = 0;
    let refused = loop {
        readers += 1;
        let conn = world.connect();
        world.request(conn, 1, &collect);
        let answer = world.answer(conn, 1);
        if answer["type"] == "error" {
            break answer.clone();
        }
        assert!(readers < 1000, "no limit");
    };
    assert_eq!(refused["code"], "queue-full", "{refused}");
    assert!((280..310).contains(&readers), "{readers}");
    world.clients_read();
    let conn = world.connect();
    world.request(conn, 1, &collect);
    assert_eq!(world.answer(conn, 1)["ok"], true, "there is room again");
}

#[test]
fn memory_of_a_collect_is_one_answer() {
    let (mut world, _, process) = running();
    let jobs = ended_elsewhere(&mut world, 10, 900_000);
    let conn = world.connect();
    world.request(conn, 1, &jobs.replace('[', r#"["j1","#));
    let state = format!("{:?}", world.state);
    assert!(state.len() < 3_000_000, "{} bytes", state.len());
    world.end_turn(process);
    let answer = world.answer(conn, 1);
    let (results, pending) = (&answer["results"], &answer["pending"]);
    let (results, pending) = (results.as_array().unwrap(), pending.as_array().unwrap());
    assert!(!results.is_empty());
    assert_eq!(results.len() + pending.len(), 11, "{pending:?}");
}

#[test]
fn unreadable_request_ends_its_turn() {
    let (mut world, _, process) = running();
    let conn = world.connect();
    world.request(conn, 1, &send(3, r#","session":"main""#));
    for job in world.jobs.values_mut() {
        job.request = "{".to_owned();
    }
    world.end_turn(process);
    let ended = world.answer(conn, 1);
    assert_eq!(ended["code"], "store-failed", "{ended}");
    world.request(conn, 2, &send(3, r#","session":"main""#));
    world.end_turn(only(&world));
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
}
