//! Not before, not later: the clock of this boot within one boot, the wall clock across boots.

use std::time::Duration;

use agentd_core::Event;
use agentd_core::ids::Now;
use agentd_protocol::JobId;

use crate::agents::settings;
use crate::scenarios::running;
use crate::world::World;

/// The world begins 1,000 s after 1970; this is 1,100 s.
const LATER: &str = r#"{"type":"send","text":"later","session":"s","start_at":"1970-01-01T00:18:20Z","expires":50}"#;

fn asleep(world: &mut World, duration: Duration) {
    // Suspended: the monotonic clock stands still.
    let ms = i64::try_from(duration.as_millis()).unwrap();
    world.now.wall_ms += ms;
    world.now.boot_ms += ms.unsigned_abs();
    world.event(Event::Ticked);
}

#[test]
fn start_at_delays_only_its_own_turn() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, LATER);
    assert_eq!(world.answer(conn, 1)["type"], "accepted");
    world.request(conn, 2, r#"{"type":"send","text":"now","session":"s"}"#);
    world.work();
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
    world.pass(Duration::from_millis(99_999));
    world.work();
    assert!(world.jobs[&JobId(1)].last.is_none(), "a moment too early");
    world.pass(Duration::from_millis(1));
    world.work();
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
}

#[test]
fn wall_clock_jumps_change_no_waiting_turn() {
    let (mut world, conn, process) = running();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"waits","session":"main","expires":60}"#,
    );
    world.request(conn, 3, LATER);
    for jump in [1_000_000_000, -2_000_000_000] {
        world.now.wall_ms += jump;
        world.pass(Duration::from_secs(10));
        assert!(world.jobs[&JobId(2)].last.is_none() && world.jobs[&JobId(3)].last.is_none());
    }
    world.end_turn(process);
    world.work();
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
    world.pass(Duration::from_secs(79));
    world.work();
    assert!(world.jobs[&JobId(3)].last.is_none());
    world.pass(Duration::from_secs(1));
    world.work();
    assert_eq!(world.answer(conn, 3)["type"], "message_end");
}

#[test]
fn suspend_counts_as_waiting_but_not_as_running() {
    let (mut world, conn, process) = running();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"waits","session":"main","expires":60}"#,
    );
    asleep(&mut world, Duration::from_secs(61));
    assert_eq!(world.answer(conn, 2)["code"], "expired");
    asleep(&mut world, Duration::from_secs(3_600));
    world.end_turn(process);
    assert_eq!(
        world.answer(conn, 1)["type"],
        "message_end",
        "its hour to run is not over"
    );
}

#[test]
fn wall_clock_counts_only_after_a_reboot() {
    for (reboot, expired) in [(true, true), (false, false)] {
        let (mut world, conn, _) = running();
        let line = r#"{"type":"send","text":"waits","session":"other","agent":"one","expires":60}"#;
        world.request(conn, 2, line);
        world.now = Now {
            mono: Duration::from_secs(1),
            boot_ms: if reboot {
                1_000
            } else {
                world.now.boot_ms + 10_000
            },
            wall_ms: world.now.wall_ms + 61_000,
        };
        world.rebooted = reboot;
        world.crash(settings());
        world.pass(Duration::ZERO);
        let ended = world.jobs[&JobId(2)].last.as_ref();
        let code = ended.map(|(_, line)| line.as_json().contains("expired"));
        assert_eq!(code, expired.then_some(true), "reboot {reboot}");
    }
}

#[test]
fn start_at_survives_a_crash() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, LATER);
    world.crash(settings());
    world.pass(Duration::from_secs(99));
    world.work();
    assert!(world.jobs[&JobId(1)].last.is_none());
    world.pass(Duration::from_secs(1));
    world.work();
    assert!(world.jobs[&JobId(1)].last.is_some());
}

#[test]
fn start_at_turn_can_be_aborted() {
    for (line, id) in [
        (r#"{"type":"abort","job":"j1"}"#, 2),
        (r#"{"type":"abort","session":"s","queued":true}"#, 3),
    ] {
        let mut world = World::new(settings());
        let conn = world.connect();
        world.request(conn, 1, LATER);
        world.request(conn, id, line);
        let told = world.told_to(conn);
        assert!(told.contains(&format!("{id}:abort [\"j1\"]")), "{told:?}");
        assert_eq!(world.answer(conn, 1)["stop"], "cancelled");
    }
}
