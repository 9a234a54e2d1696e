//! Long texts from the store: in portions, each of which is read once.

use agentd_core::ids::ConnId;

use crate::agents::settings;
use crate::cursors::subscribe;
use crate::scenarios::{only, say};
use crate::world::World;

/// Bytes of the text.
const TEXT: usize = 10_000_000;
const SEND: &str = r#"{"type":"send","text":"hi","session":"main","idempotency_key":"k"}"#;

/// A job that has said so much, and ended unless it is still running.
fn said(ends: bool) -> World {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, SEND);
    let process = only(&world);
    world.get_ready(process);
    world.keep_text = false;
    for _ in 0..100 {
        say(&mut world, process, &"x".repeat(TEXT / 100));
        world.clients_read();
    }
    if ends {
        world.end_turn(process);
    }
    world
}

/// Takes one mark after the other until a line comes.
fn read_slowly(world: &mut World, conn: ConnId, last: &str) {
    let mut before = world.clients[&conn].bytes;
    while !world
        .told_to(conn)
        .iter()
        .any(|line| line.starts_with(last))
    {
        assert!(world.clients[&conn].marks > 0, "it waits for a reader");
        world.client_reads(conn);
        let now = world.clients[&conn].bytes;
        assert!(now - before < 1024 * 1024, "{} at once", now - before);
        before = now;
    }
    assert!(before > TEXT, "{before} bytes told");
}

/// Nothing was read twice but for what one answer has.
fn check_read_once(world: &World) {
    let read = world.text_read.get();
    let most = TEXT + world.portion;
    assert!((TEXT..most).contains(&read), "{read} bytes read");
}

#[test]
fn subscribers_that_are_slow_have_texts_read_once() {
    let mut world = said(true);
    let conn = subscribe(&mut world, 9, r#","after":0"#);
    read_slowly(&mut world, conn, "9:live");
    check_read_once(&world);
}

#[test]
fn senders_that_are_slow_have_texts_read_once() {
    let mut world = said(true);
    let conn = world.connect();
    world.request(conn, 9, SEND);
    read_slowly(&mut world, conn, "9:message_end");
    check_read_once(&world);
}

#[test]
fn subscribers_behind_get_each_text_piece_once() {
    let mut world = said(false);
    let process = only(&world);
    let slow = subscribe(&mut world, 9, "");
    for _ in 0..50 {
        world.client_reads(slow);
    }
    assert!(world.clients[&slow].bytes < TEXT, "it is behind");
    world.end_turn(process);
    let read = |world: &World| world.text_read.get();
    assert_eq!(read(&world), 0);
    read_slowly(&mut world, slow, "9:message_end");
    assert!(read(&world) < TEXT, "{} bytes read", read(&world));
    world.check_watches();
}
