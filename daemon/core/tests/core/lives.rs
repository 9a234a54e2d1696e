//! Single stories of processes that idle, die, and come back, and of a daemon that goes down.

use std::time::Duration;

use agentd_core::effect::StopStage;
use agentd_core::worker::{Exit, Failure, Outcome, WorkerEvent};
use agentd_core::{Event, Settings, Socket};
use agentd_protocol::Code;

use crate::agents::settings;
use crate::scenarios::{only, running, say};
use crate::world::World;

#[test]
fn native_session_is_resumed_after_being_idle() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"send","text":"x","session":"main","agent":"one"}"#,
    );
    let process = only(&world);
    world.get_ready(process);
    world.worker(
        process,
        WorkerEvent::SessionNamed {
            native: "/s.jsonl".to_owned(),
        },
    );
    world.end_turn(process);
    world.pass(Duration::from_secs(601));
    assert!(
        world.processes[&process].told_to_end.is_some(),
        "idle for longer than idle_timeout"
    );
    world.exit(process, Exit::Code(0));
    world.request(conn, 2, r#"{"type":"send","text":"y","session":"main"}"#);
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    let last = world.clients[&conn].lines.last().unwrap();
    assert_eq!(
        (&last["id"], &last["context"]),
        (&2.into(), &"continued".into())
    );
}

#[test]
fn session_gets_the_id_where_its_turn_begins() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"x","session":"main","agent":"one"}"#;
    world.request(conn, 1, send);
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    world.exit(process, Exit::Signal(9));
    // Named before it is ready, and so before it is the session's.
    world.request(conn, 2, send);
    world.pass(Duration::from_secs(2));
    let (process, spawns) = (only(&world), world.spawns);
    let native = "/s.jsonl".to_owned();
    world.worker(process, WorkerEvent::SessionNamed { native });
    world.get_ready(process);
    assert_eq!(world.processes[&process].turns.len(), 1, "it began here");
    assert_eq!(world.spawns, spawns, "no other one was started");
    let stored = || world.sessions["main"].native.as_deref();
    assert_eq!(stored(), Some("/s.jsonl"), "before its turn ended");
}

#[test]
fn idle_process_that_is_memory_is_kept() {
    let (mut world, _, process) = running();
    world.end_turn(process);
    world.pass(Duration::from_secs(6_000));
    assert_eq!(world.processes[&process].told_to_end, None);
}

#[test]
fn idle_worker_is_probed_and_replaced_when_deaf() {
    let (mut world, conn, process) = running();
    world.end_turn(process);
    world.pass(Duration::from_secs(16));
    world.request(conn, 2, r#"{"type":"send","text":"x","session":"main"}"#);
    assert!(
        world.processes[&process].turns.is_empty(),
        "not before it answered"
    );
    world.pass(Duration::from_secs(2));
    assert!(world.processes[&process].told_to_end.is_some());
    world.exit(process, Exit::Signal(9));
    let next = only(&world);
    world.get_ready(next);
    world.end_turn(next);
    assert!(
        world
            .told_to(conn)
            .iter()
            .any(|line| line.starts_with("2:message_end")),
        "nothing was lost"
    );
}

#[test]
fn drain_accepts_and_answers_when_nothing_runs() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, r#"{"type":"drain"}"#);
    world.request(conn, 3, r#"{"type":"send","text":"x"}"#);
    assert!(!world.told_to(conn).contains(&"2:drain".to_owned()));
    world.end_turn(process);
    let told = world.told_to(conn);
    assert!(
        told.contains(&"2:drain".to_owned())
            && told.iter().any(|line| line.starts_with("3:accepted")),
        "{told:?}"
    );
    assert_eq!(world.prompts.len(), 1);
    world.request(conn, 4, r#"{"type":"undrain"}"#);
    assert_eq!(world.prompts.len(), 2);
}

#[test]
fn drain_while_connected_ends_with_that_connection() {
    const BOUND: &str = r#"{"type":"drain","while_connected":true}"#;
    let begins = |drains: [&str; 2], stops: bool| {
        let (mut world, conn, process) = running();
        let askers = [world.connect(), world.connect()];
        for (asker, drain) in askers.into_iter().zip(drains) {
            world.request(asker, 1, drain);
        }
        world.request(conn, 2, r#"{"type":"send","text":"x"}"#);
        world.end_turn(process);
        world.disconnect(askers[1]);
        assert_eq!(world.prompts.len(), 1, "the first one is still there");
        if stops {
            world.request(askers[0], 2, r#"{"type":"daemon.stop","restart":true}"#);
        }
        world.disconnect(askers[0]);
        world.prompts.len() == 2
    };
    let other = r#"{"type":"ping"}"#;
    let (mut world, _, _) = running();
    let asker = world.connect();
    world.request(asker, 1, BOUND);
    world.event(Event::AskedLast { conn: asker });
    assert_eq!(world.last_error(asker), Some(Code::Interrupted));

    assert!(begins([BOUND, other], false));
    assert!(!begins([BOUND, other], true), "it leaves");
    assert!(!begins([BOUND, r#"{"type":"drain"}"#], false));
    assert!(!begins([r#"{"type":"drain"}"#, BOUND], false));
}

#[test]
fn stop_interrupts_late_turns_and_keeps_waiting() {
    let (mut world, conn, process) = running();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"waits","session":"main"}"#,
    );
    world.request(conn, 3, r#"{"type":"daemon.stop","deadline":10}"#);
    world.request(conn, 4, r#"{"type":"send","text":"late"}"#);
    assert_eq!(world.last_error(conn), Some(Code::Draining));
    world.pass(Duration::from_secs(11));
    world.end_turn(process);
    assert!(
        world
            .told_to(conn)
            .contains(&"1:error interrupted".to_owned()),
        "{:?}",
        world.told_to(conn)
    );
    assert!(world.processes[&process].told_to_end.is_some() && !world.exited);
    world.exit(process, Exit::Code(0));
    assert!(world.exited);
    assert!(
        world.jobs[&agentd_protocol::JobId(2)].last.is_none(),
        "it stays in the store"
    );
}

#[test]
fn stop_leaves_retry_auto_to_the_next_daemon() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"x","session":"main","agent":"many","retry":"auto"}"#;
    let job = agentd_protocol::JobId(1);
    world.request(conn, 1, send);
    for attempt in 1..=3 {
        let process = only(&world);
        world.get_ready(process);
        assert_eq!(world.prompts[&job], attempt);
        let asker = world.connect();
        world.request(asker, 1, r#"{"type":"daemon.stop","deadline":0}"#);
        world.pass(Duration::from_millis(1));
        if attempt == 2 {
            // It says nothing any more: its process is ended.
            world.pass(Duration::from_secs(6));
        } else {
            world.end_turn(process);
        }
        world.exit(process, Exit::Code(0));
        assert!(world.exited, "attempt {attempt}");
        assert_eq!(world.jobs[&job].last.is_some(), attempt == 3);
        world.crash(settings());
    }
    assert_eq!(world.prompts[&job], 3);
    let last = &world.jobs[&job].last.as_ref().unwrap().1;
    assert!(last.as_json().contains(r#""code":"interrupted""#));
}

/// A daemon whose socket the service manager holds.
fn service() -> World {
    World::new(Settings {
        socket: Socket::Stays,
        ..settings()
    })
}

#[test]
fn stop_serves_those_let_in_by_socket() {
    let mut world = service();
    let (asker, other) = (world.connect(), world.connect());
    world.request(asker, 1, r#"{"type":"daemon.stop","restart":true}"#);
    world.request(other, 1, r#"{"type":"hello"}"#);
    assert_eq!(world.answer(other, 1)["type"], "hello");
    assert!(world.told_to(asker).is_empty() && !world.exited);
    world.pass(Duration::from_millis(101));
    assert_eq!(world.answer(asker, 1)["type"], "daemon.stop");
    assert!(world.exited);
}

#[test]
fn stop_goes_on_without_its_asker() {
    let mut world = service();
    let (first, second) = (world.connect(), world.connect());
    world.request(first, 1, r#"{"type":"daemon.stop"}"#);
    world.request(second, 1, r#"{"type":"daemon.stop"}"#);
    assert!(world.exited);
    for conn in [first, second] {
        assert_eq!(world.answer(conn, 1)["type"], "daemon.stop");
    }

    let mut world = service();
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"daemon.stop"}"#);
    world.disconnect(conn);
    world.pass(Duration::from_millis(101));
    assert!(world.exited, "nobody is answered, and it stops");

    let mut world = service();
    world.event(Event::StopAsked);
    assert!(!world.exited);
    world.event(Event::StopAsked);
    assert!(world.exited);
}

#[test]
fn crash_interrupts_running_turns_and_holds_waiting() {
    let (mut world, conn, _) = running();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"waits","session":"main"}"#,
    );
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"other","session":"other","agent":"turn"}"#,
    );
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"collect","jobs":["j1"]}"#);
    let collected = &world.clients[&conn].lines[0]["results"][0];
    assert_eq!(
        (&collected["code"], &collected["replayed"]),
        (&"interrupted".into(), &false.into())
    );
    assert_eq!(
        world.prompts.len(),
        2,
        "what was held did not run: {:?}",
        world.prompts
    );
}

#[test]
fn failed_turn_is_an_error_with_facts() {
    let (mut world, conn, process) = running();
    let turn = world.processes.get_mut(&process).unwrap().turns.remove(0);
    let failure = Failure::new(Code::RateLimit, "the provider said 429");
    world.worker(
        process,
        WorkerEvent::Ended {
            turn,
            outcome: Box::new(Outcome::failed(failure)),
        },
    );
    let last = world.clients[&conn].lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["job"], &last["retryable"]),
        (&"rate-limit".into(), &"j1".into(), &true.into())
    );
    assert_eq!(last["attempt"], 1);
}

#[test]
fn subscriber_hears_others_and_sender_hears_once() {
    let mut world = World::new(settings());
    let (watcher, sender) = (world.connect(), world.connect());
    world.request(watcher, 9, r#"{"type":"subscribe","session":"main"}"#);
    world.request(sender, 1, r#"{"type":"subscribe"}"#);
    world.request(sender, 2, r#"{"type":"send","text":"x","session":"main"}"#);
    let process = only(&world);
    world.get_ready(process);
    say(&mut world, process, "hi");
    world.end_turn(process);
    let lines = [
        "accepted j1 main",
        "running",
        "message_start",
        "message_delta hi@0",
        "message_end end_turn hi",
    ];
    assert_eq!(
        world.told_to(watcher)[1..],
        lines.map(|line| format!("9:{line}"))
    );
    assert_eq!(
        world.told_to(sender)[1..],
        lines.map(|line| format!("2:{line}"))
    );
}

#[test]
fn reader_behind_is_refilled_without_gaps() {
    let (mut world, conn, process) = running();
    let chunk = "0123456789".repeat(1_000);
    for _ in 0..100 {
        say(&mut world, process, &chunk);
    }
    let before = world.clients[&conn].lines.len();
    assert!(before < 60, "the rest is kept back: {before}");
    let turn = world.processes[&process].turns[0];
    world.worker(
        process,
        WorkerEvent::ToolStarted {
            turn,
            call: "c1".to_owned(),
            name: "t".to_owned(),
            input: "{}".to_owned(),
            read_only: true,
            about: Default::default(),
        },
    );
    for _ in 0..50 {
        world.clients_read();
    }
    world.end_turn(process);
    for _ in 0..50 {
        world.clients_read();
    }
    let client = &world.clients[&conn];
    let mut text = String::new();
    for line in client
        .lines
        .iter()
        .filter(|line| line["type"] == "message_delta")
    {
        assert_eq!(line["offset"], text.len());
        text.push_str(line["text"].as_str().unwrap());
    }
    assert_eq!(text.len(), 1_000_000);
    assert!(world.told_to(conn).contains(&"1:tool_start c1".to_owned()));
    assert!(
        world
            .told_to(conn)
            .last()
            .unwrap()
            .starts_with("1:message_end")
    );
}

#[test]
fn reader_gets_what_is_committed_during_refill() {
    // The job goes on meanwhile, or ends.
    for ends in [false, true] {
        let (mut world, conn, process) = running();
        let turn = world.processes[&process].turns[0];
        let tool = |world: &mut World, call: &str| {
            let event = WorkerEvent::ToolStarted {
                turn,
                call: call.to_owned(),
                name: "t".to_owned(),
                input: "{}".to_owned(),
                read_only: true,
                about: Default::default(),
            };
            world.worker(process, event);
        };
        for _ in 0..100 {
            say(&mut world, process, &"0123456789".repeat(1_000));
        }
        tool(&mut world, "c1");
        world.prompt_store = false;
        while world.store_pending() == 0 {
            world.clients_read();
        }
        world.store_reads();
        tool(&mut world, "c2");
        if ends {
            world.end_turn(process);
        }
        while !world.orders.is_empty() {
            world.store_answers();
        }
        world.prompt_store = true;
        world.store_has_read();
        for _ in 0..50 {
            world.clients_read();
        }
        let told = world.told_to(conn);
        for call in ["c1", "c2"] {
            let line = format!("1:tool_start {call}");
            let count = told.iter().filter(|told| **told == line).count();
            assert_eq!(count, 1, "{call}, {ends}");
        }
        let ended = told.last().unwrap().starts_with("1:message_end");
        assert_eq!(ended, ends);
        assert!(!world.clients[&conn].closed);
    }
}

#[test]
fn stop_ends_in_time_whatever_hangs() {
    let (mut world, conn, _) = running();
    // The store never answers again: a commit is outstanding for ever.
    world.prompt_store = false;
    world.request(conn, 2, r#"{"type":"send","text":"x","session":"main"}"#);
    world.processes.clear();
    world.request(conn, 3, r#"{"type":"daemon.stop","deadline":1}"#);
    for _ in 0..3 {
        assert!(!world.exited);
        world.pass(Duration::from_secs(6));
    }
    assert!(world.exited);
}

#[test]
fn context_is_never_claimed_without_memory() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let line = |strict: bool| {
        format!(
            r#"{{"type":"send","text":"x","session":"main","agent":"turn","require_context":{strict}}}"#
        )
    };
    // The first turn has none before it.
    for (id, strict, expected) in [
        (1, true, None),
        (2, false, None),
        (3, true, Some("context-lost")),
    ] {
        world.request(conn, id, &line(strict));
        world.work();
        let answer = world.answer(conn, id);
        assert_eq!(answer["code"].as_str(), expected, "{answer:#}");
        // No job is made to find that out.
        assert_eq!(answer["job"].is_null(), expected.is_some(), "{answer:#}");
        if expected.is_none() {
            assert_eq!(answer["context"], "new", "{answer:#}");
        }
    }
}

#[test]
fn context_that_was_lost_stays_lost() {
    let (mut world, conn, process) = running();
    world.end_turn(process);
    world.exit(process, Exit::Code(1));
    world.pass(Duration::from_secs(2));
    let wants = r#"{"type":"send","text":"x","session":"main","require_context":true}"#;
    let goes_on = r#"{"type":"send","text":"x","session":"main"}"#;
    world.request(conn, 2, wants);
    world.work();
    assert_eq!(world.answer(conn, 2)["code"], "context-lost");
    world.request(conn, 3, goes_on);
    world.work();
    assert_eq!(world.answer(conn, 3)["context"], "lost");
    // The process holds the session now, but not the turns before.
    world.request(conn, 4, wants);
    world.work();
    assert_eq!(world.answer(conn, 4)["code"], "context-lost");
    world.request(conn, 5, goes_on);
    world.work();
    assert_eq!(world.answer(conn, 5)["context"], "continued");
    // Neither a restart of the daemon nor the agent's memory of the later ones changes that.
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 6, goes_on);
    world.work();
    world.request(conn, 7, wants);
    world.work();
    assert_eq!(world.answer(conn, 7)["code"], "context-lost");
    let other = wants.replace("main", "new");
    world.request(conn, 8, &other);
    world.work();
    assert_eq!(world.answer(conn, 8)["context"], "new");
}

#[test]
fn status_keeps_a_crash_whose_slot_is_gone() {
    let mut world = World::new(settings());
    let conn = world.connect();
    // No name: nobody needs its process again.
    world.request(conn, 1, r#"{"type":"send","text":"hi"}"#);
    let process = only(&world);
    world.get_ready(process);
    world.exit(process, Exit::Code(9));
    world.request(conn, 2, r#"{"type":"status"}"#);
    let status = world.answer(conn, 2);
    let rpc = &status["rpc"];
    assert_eq!((&rpc["crashes"], &rpc["restarts"]), (&1.into(), &0.into()));
    assert_eq!(status["workers"].as_array().unwrap().len(), 0, "{status:#}");
    let last = &rpc["last_crashes"][0];
    assert_eq!(last["agent"], "many", "{last}");
    assert!(last["error"].as_str().unwrap().contains("code 9"), "{last}");

    // As many as are told, and no more.
    for id in 3..30 {
        world.request(conn, id, r#"{"type":"send","text":"hi"}"#);
        world.pass(Duration::from_secs(700));
        for process in world.processes.keys().copied().collect::<Vec<_>>() {
            world.get_ready(process);
            world.exit(process, Exit::Code(9));
        }
    }
    world.request(conn, 90, r#"{"type":"status"}"#);
    let rpc = &world.answer(conn, 90)["rpc"];
    assert!(rpc["crashes"].as_u64().unwrap() > 8, "{rpc:#}");
    assert_eq!(rpc["last_crashes"].as_array().unwrap().len(), 8);
}

#[test]
fn drained_daemons_say_so_when_they_accept() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"drain"}"#);
    world.request(conn, 2, r#"{"type":"send","text":"hi"}"#);
    let accepted = |world: &World, id: u64| {
        let lines = &world.clients[&conn].lines;
        let of = |line: &&agentd_protocol::serde_json::Value| {
            line["type"] == "accepted" && line["id"] == id
        };
        lines.iter().find(of).unwrap().clone()
    };
    assert_eq!(accepted(&world, 2)["drained"], true);
    world.request(conn, 3, r#"{"type":"undrain"}"#);
    world.request(conn, 4, r#"{"type":"send","text":"hi"}"#);
    assert_eq!(accepted(&world, 4).get("drained"), None);
}

#[test]
fn stop_ends_deaf_workers_within_15_seconds() {
    for idle in [true, false] {
        let (mut world, _, process) = running();
        if idle {
            world.end_turn(process);
        }
        world.event(Event::StopAsked);
        // Whatever it is told it ignores.
        for _ in 0..15 {
            assert!(!world.exited);
            world.pass(Duration::from_secs(1));
        }
        assert_eq!(world.processes[&process].told_to_end, Some(StopStage::Kill));
        world.exit(process, Exit::Signal(9));
        assert!(world.exited);
    }
}

#[test]
fn stop_waits_15_seconds_for_a_full_disk() {
    let (mut world, _, process) = running();
    world.prompt_store = false;
    let trouble = Some("there is no room on the disk".to_owned());
    world.event(Event::StoreHealth { trouble });
    world.end_turn(process);
    world.event(Event::StopAsked);
    for _ in 0..15 {
        assert!(!world.exited);
        world.pass(Duration::from_secs(1));
    }
    world.exit(process, Exit::Signal(9));
    assert!(world.exited, "the next daemon goes on with what was stored");
}
