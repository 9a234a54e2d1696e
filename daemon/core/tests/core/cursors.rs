//! Stories of subscribers with cursors: history, order, slow readers, other instances.
//!
//! The world compares every line with the store's log (`watch.rs`); here stands what it can't know.

use agentd_core::Event;
use agentd_core::ids::ConnId;
use agentd_core::store::{Recovered, SessionRow};
use agentd_core::worker::{Exit, WorkerEvent};
use agentd_protocol::serde_json::Value;
use agentd_protocol::{Code, JobId};

use crate::agents::settings;
use crate::scenarios::{ProcessId, running, say};
use crate::world::World;

const SEND: &str = r#"{"type":"send","text":"x","session":"main"}"#;

pub fn subscribe(world: &mut World, id: u64, fields: &str) -> ConnId {
    let conn = world.connect();
    world.request(conn, id, &format!(r#"{{"type":"subscribe"{fields}}}"#));
    conn
}

fn tool(world: &mut World, process: ProcessId, call: &str) {
    let turn = world.processes[&process].turns[0];
    let started = WorkerEvent::ToolStarted {
        turn,
        call: call.to_owned(),
        name: "t".to_owned(),
        input: "{}".to_owned(),
        read_only: true,
        about: Default::default(),
    };
    world.worker(process, started);
}

fn last_number(world: &World, conn: ConnId) -> u64 {
    let numbers = world.clients[&conn].lines.iter().rev();
    numbers
        .filter_map(|line| line["seq"].as_u64())
        .next()
        .unwrap()
}

fn refusal(world: &World, conn: ConnId) -> &Value {
    let line = world.clients[&conn].lines.last().unwrap();
    assert_eq!(line["type"], "error", "{line}");
    line
}

/// A world whose first turn has ended and whose second one, in another session, runs.
fn one_ended_one_running() -> (World, ConnId, ProcessId) {
    let (mut world, conn, process) = running();
    say(&mut world, process, "one ");
    tool(&mut world, process, "c1");
    say(&mut world, process, "two");
    world.end_turn(process);
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"x","session":"b","agent":"one"}"#,
    );
    let process = *world.processes.keys().last().unwrap();
    world.get_ready(process);
    say(&mut world, process, "so ");
    say(&mut world, process, "far");
    (world, conn, process)
}

#[test]
fn subscribe_after_0_tells_history_live_text_events() {
    let (mut world, _, process) = one_ended_one_running();
    let conn = subscribe(&mut world, 9, r#","after":0"#);
    say(&mut world, process, "!");
    world.end_turn(process);
    assert_eq!(
        world.told_to(conn),
        [
            "9:accepted j1 main",
            "9:running",
            "9:tool_start c1",
            "9:message_start",
            "9:message_delta one two@0",
            "9:message_end end_turn one two",
            "9:accepted j2 b",
            "9:running",
            "9:live",
            "9:message_start",
            "9:message_delta so far@0",
            "9:message_delta !@6",
            "9:message_end end_turn so far!",
        ]
    );
    let lines = &world.clients[&conn].lines;
    assert_eq!(
        (&lines[8]["seq"], &lines[8]["epoch"]),
        (&6.into(), &"e".into())
    );
    // It is told to this reader for the first time.
    assert_eq!(lines[0]["replayed"], false);
    assert_eq!(lines[5]["replayed"], false);
    assert_eq!(world.jobs[&JobId(1)].seq, 1);
}

#[test]
fn subscribe_without_cursor_tells_only_the_logs_end() {
    let (mut world, _, process) = one_ended_one_running();
    let conn = subscribe(&mut world, 9, "");
    world.end_turn(process);
    let told = [
        "live",
        "message_start",
        "message_delta so far@0",
        "message_end end_turn so far",
    ];
    assert_eq!(world.told_to(conn), told.map(|line| format!("9:{line}")));
    assert_eq!(world.clients[&conn].lines[0]["seq"], 6);
    // A daemon that has just started has said nothing yet, and knows it all the same.
    world.crash(settings());
    let conn = subscribe(&mut world, 9, "");
    assert_eq!(world.clients[&conn].lines[0]["seq"], world.seq);
    assert_eq!(world.clients[&conn].lines.len(), 1);
}

#[test]
fn cursor_of_a_returning_reader_misses_nothing() {
    let (mut world, sender, process) = running();
    let first = subscribe(&mut world, 9, r#","after":0"#);
    tool(&mut world, process, "c1");
    let cursor = last_number(&world, first);
    world.disconnect(first);
    tool(&mut world, process, "c2");
    say(&mut world, process, "text");
    world.end_turn(process);
    world.request(sender, 2, SEND);
    let second = subscribe(&mut world, 9, &format!(r#","after":{cursor},"epoch":"e""#));
    assert_eq!(
        world.told_to(second),
        [
            "9:tool_start c2",
            "9:message_start",
            "9:message_delta text@0",
            "9:message_end end_turn text",
            "9:accepted j2 main",
            "9:live",
        ]
    );
}

#[test]
fn cursor_that_is_foreign_future_or_pruned_refused() {
    let (mut world, _, _) = one_ended_one_running();
    let conn = subscribe(&mut world, 1, r#","after":1,"epoch":"other""#);
    let line = refusal(&world, conn);
    assert_eq!(line["code"], "cursor-invalid");
    assert!(line["error"].as_str().unwrap().contains("`e`"), "{line}");
    world.request(conn, 2, r#"{"type":"subscribe","after":7}"#);
    let line = refusal(&world, conn);
    assert_eq!(line["code"], "cursor-invalid");
    assert!(
        line["error"].as_str().unwrap().contains("last number is 6"),
        "{line}"
    );
    world.oldest = 3;
    world.request(conn, 3, r#"{"type":"subscribe","after":2}"#);
    let line = refusal(&world, conn);
    assert_eq!(line["code"], "cursor-expired");
    assert!(
        line["hint"].as_str().unwrap().contains(r#""after":3"#),
        "{line}"
    );
    // A refused one leaves the connection without any.
    world.request(conn, 4, r#"{"type":"subscribe","after":3,"epoch":"e"}"#);
    world.request(conn, 5, r#"{"type":"subscribe"}"#);
    let told = world.told_to(conn);
    assert!(told.contains(&"4:live".to_owned()), "{told:?}");
    assert_eq!(told.last().unwrap(), "5:error invalid-request");
}

#[test]
fn subscribe_filter_holds_for_history_and_later() {
    let (mut world, sender, process) = one_ended_one_running();
    let session = subscribe(&mut world, 7, r#","session":"b","after":0"#);
    let jobs = subscribe(&mut world, 8, r#","jobs":["j1","j3"],"after":0"#);
    let later = subscribe(&mut world, 9, r#","session":"later""#);
    world.request(sender, 3, &SEND.replace("main", "later"));
    world.end_turn(process);
    let told = world.told_to(session);
    assert_eq!(told.len(), 6, "{told:?}");
    assert_eq!(told[0], "7:accepted j2 b");
    let told = world.told_to(jobs);
    assert_eq!(told[6..8], ["8:live", "8:accepted j3 later"], "{told:?}");
    assert_eq!(world.told_to(later)[..2], ["9:live", "9:accepted j3 later"]);
    let many = vec![r#""j1""#; 257].join(",");
    let conn = subscribe(&mut world, 1, &format!(r#","jobs":[{many}]"#));
    assert_eq!(world.last_error(conn), Some(Code::InvalidRequest));
    let conn = subscribe(&mut world, 1, r#","session":"b","jobs":["j1"]"#);
    assert_eq!(world.last_error(conn), Some(Code::InvalidRequest));
}

/// Two turns in two sessions, each on its process.
fn two_running() -> (World, ConnId, [ProcessId; 2]) {
    let (mut world, conn, one) = running();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"x","session":"b","agent":"one"}"#,
    );
    let two = *world.processes.keys().last().unwrap();
    world.get_ready(two);
    (world, conn, [one, two])
}

#[test]
fn slow_reader_gets_lines_in_ascending_order() {
    let (mut world, _, [one, two]) = two_running();
    let slow = subscribe(&mut world, 9, "");
    say(&mut world, one, &"x".repeat(400_000));
    let before = world.clients[&slow].lines.len();
    for call in 0..20 {
        tool(
            &mut world,
            if call % 2 == 0 { one } else { two },
            &format!("c{call}"),
        );
    }
    say(&mut world, two, "short");
    world.end_turn(one);
    world.end_turn(two);
    assert_eq!(world.clients[&slow].lines.len(), before, "it is behind");
    for _ in 0..20 {
        world.client_reads(slow);
    }
    let told = world.told_to(slow);
    let calls: Vec<_> = told
        .iter()
        .filter(|line| line.contains("tool_start"))
        .collect();
    assert_eq!(calls.len(), 20);
    assert_eq!(told.last().unwrap(), "9:message_end end_turn short");
    world.check_watches();
}

#[test]
#[ignore = "heavy"]
fn stuck_reader_costs_only_a_bounded_queue() {
    let (mut world, sender, process) = running();
    let slow = subscribe(&mut world, 9, "");
    let fast = subscribe(&mut world, 9, "");
    world.keep_text = false;
    for number in 0..40_000 {
        say(&mut world, process, "a token or two ");
        if number % 100 == 0 {
            world.client_reads(fast);
            world.client_reads(sender);
        }
    }
    let text = 600_000;
    assert!(world.clients[&fast].bytes > 3 * text, "one line each");
    assert!(
        world.clients[&slow].bytes < 512 * 1024,
        "{}",
        world.clients[&slow].bytes
    );
    // When it reads again, it gets the rest in few lines and in portions of a queue's size.
    let lines = world.clients[&slow].lines.len();
    let mut before = world.clients[&slow].bytes;
    while world.clients[&slow].marks > 0 {
        world.client_reads(slow);
        let now = world.clients[&slow].bytes;
        assert!(now - before < 512 * 1024, "{} at once", now - before);
        before = now;
    }
    assert_eq!(world.clients[&slow].lines.len(), lines);
    assert!(before < 512 * 1024 + text + 20_000, "{before}");
    world.end_turn(process);
    world.clients_read();
    assert!(
        world
            .told_to(slow)
            .last()
            .unwrap()
            .starts_with("9:message_end")
    );
}

#[test]
fn subscriber_hears_another_instances_lines_in_order() {
    let (mut world, _, process) = running();
    let conn = subscribe(&mut world, 9, "");
    let session = subscribe(&mut world, 9, r#","session":"main""#);
    let job = world.neighbour_accepts("beside");
    world.neighbour_works(job);
    say(&mut world, process, "text");
    tool(&mut world, process, "c1");
    world.neighbour_ends(job, "elsewhere");
    world.end_turn(process);
    assert_eq!(
        world.told_to(conn),
        [
            "9:live",
            "9:message_start",
            "9:message_delta text@0",
            "9:accepted j2 beside",
            "9:running",
            "9:tool_start c1",
            "9:message_start",
            "9:message_delta elsewhere@0",
            "9:message_end end_turn elsewhere",
            "9:message_end end_turn text",
        ]
    );
    assert_eq!(
        world.told_to(session).len(),
        5,
        "{:?}",
        world.told_to(session)
    );
}

#[test]
fn subscriber_hears_an_end_when_its_instance_left() {
    let (mut world, _, _) = running();
    let job = world.neighbour_accepts("beside");
    world.neighbour_works(job);
    let conn = subscribe(&mut world, 9, &format!(r#","jobs":["{job}"]"#));
    world.neighbour_ends(job, "elsewhere");
    // Nothing is committed here meanwhile; the one-shot exits, and that is noticed.
    let recovered = Recovered {
        instance: "left".to_owned(),
        sessions: Vec::new(),
        jobs: Vec::new(),
        holders: Vec::new(),
        last_seq: world.last_number(),
    };
    world.event(Event::Recovered(Box::new(recovered)));
    let told = world.told_to(conn);
    assert_eq!(told.last().unwrap(), "9:message_end end_turn elsewhere");
}

/// Another instance died: its job, which had said something, is this one's now.
fn inherit(world: &mut World, job: JobId, request: &str) {
    let stored = world.jobs.get_mut(&job).unwrap();
    stored.ours = true;
    stored.request = request.to_owned();
    stored.texts.insert((0, 0), "it had said".to_owned());
    let session = SessionRow {
        name: "beside".to_owned(),
        agent: "turn".to_owned(),
        ..world.sessions["main"].clone()
    };
    world.sessions.insert("beside".to_owned(), session.clone());
    let recovered = Recovered {
        instance: "dead".to_owned(),
        sessions: vec![session],
        jobs: vec![world.left(job).unwrap()],
        holders: Vec::new(),
        last_seq: 0,
    };
    world.event(Event::Recovered(Box::new(recovered)));
}

#[test]
fn subscriber_hears_a_recovered_job_from_its_beginning() {
    let (mut world, _, _) = running();
    let conn = subscribe(&mut world, 9, "");
    let job = world.neighbour_accepts("beside");
    inherit(
        &mut world,
        job,
        r#"{"text":"x","agent":"turn","retry":"auto"}"#,
    );
    let late = subscribe(&mut world, 8, "");
    let told = world.told_to(late);
    let expected = ["8:live", "8:message_start", "8:message_delta it had said@0"];
    assert_eq!(told, expected, "what it had said is told to who comes now");
    world.event(Event::InstanceGone {
        instance: "dead".to_owned(),
        survivors: Vec::new(),
    });
    let process = *world.processes.keys().last().unwrap();
    world.get_ready(process);
    say(&mut world, process, "anew");
    world.end_turn(process);
    let told = world.told_to(conn);
    assert_eq!(
        told[..3],
        ["9:live", "9:accepted j2 beside", "9:running"],
        "{told:?}"
    );
    assert_eq!(told.last().unwrap(), "9:message_end end_turn anew");
}

#[test]
fn recovered_job_ends_with_what_it_had_said() {
    let (mut world, _, _) = running();
    let job = world.neighbour_accepts("beside");
    let conn = subscribe(&mut world, 9, "");
    inherit(&mut world, job, r#"{"text":"x","agent":"turn"}"#);
    let told = world.told_to(conn);
    let expected = [
        "live",
        "message_start",
        "message_delta it had said@0",
        "error interrupted",
    ];
    assert_eq!(told, expected.map(|line| format!("9:{line}")));
}

#[test]
fn sender_hears_its_job_once_though_subscribed() {
    let (mut world, other, process) = running();
    let conn = subscribe(&mut world, 9, r#","after":0"#);
    say(&mut world, process, &"x".repeat(400_000));
    for call in 0..20 {
        tool(&mut world, process, &format!("c{call}"));
    }
    world.request(conn, 2, &SEND.replace("main", "own"));
    world.end_turn(process);
    // Its process takes it: it is free before another one is ready.
    say(&mut world, process, "mine");
    world.end_turn(process);
    for _ in 0..9 {
        world.client_reads(conn);
    }
    let told = world.told_to(conn);
    let own: Vec<_> = told.iter().filter(|line| line.starts_with("2:")).collect();
    assert_eq!(own.last().unwrap(), &"2:message_end end_turn mine");
    let heard = told.iter().filter(|line| line.contains("mine"));
    assert_eq!(heard.count(), 2, "its delta and its final line: {told:?}");
    world.request(conn, 3, r#"{"type":"unsubscribe"}"#);
    world.request(conn, 4, r#"{"type":"subscribe","session":"own","after":0}"#);
    assert!(
        world
            .told_to(conn)
            .contains(&"4:accepted j2 own".to_owned())
    );
    assert!(!world.told_to(other).iter().any(|line| line.contains("own")));
}

#[test]
fn unnumbered_lines_go_to_live_readers_only() {
    let (mut world, sender, process) = running();
    let slow = subscribe(&mut world, 9, "");
    let turn = world.processes[&process].turns[0];
    let update = |world: &mut World| {
        let output = "some".to_owned();
        let call = "c".to_owned();
        let offset = 0;
        let updated = WorkerEvent::ToolUpdated {
            turn,
            call,
            offset,
            output,
        };
        world.worker(process, updated);
    };
    update(&mut world);
    say(&mut world, process, &"x".repeat(400_000));
    world.client_reads(sender);
    world.client_reads(sender);
    world.client_reads(sender);
    update(&mut world);
    let updates = |conn| {
        let told = world.told_to(conn).into_iter();
        told.filter(|line| line.contains("tool_update")).count()
    };
    assert_eq!((updates(slow), updates(sender)), (1, 2));
}

#[test]
fn history_that_fails_is_refused_or_cut_off() {
    let (mut world, _, process) = one_ended_one_running();
    let (refused, cut) = (world.connect(), world.connect());
    world.prompt_store = false;
    world.request(refused, 1, r#"{"type":"subscribe","after":0}"#);
    world.store_gives_up();
    assert_eq!(world.last_error(refused), Some(Code::StoreFailed));
    world.request(cut, 1, r#"{"type":"subscribe"}"#);
    world.store_answers();
    world.neighbour_accepts("beside");
    tool(&mut world, process, "c");
    world.store_answers();
    world.store_gives_up();
    assert!(world.clients[&cut].closed && !world.clients[&refused].closed);
}

#[test]
fn unsubscribe_before_live_gives_just_both_answers() {
    let (mut world, _, process) = one_ended_one_running();
    let conn = world.connect();
    world.prompt_store = false;
    world.request(conn, 1, r#"{"type":"subscribe","after":6}"#);
    world.request(conn, 2, r#"{"type":"unsubscribe"}"#);
    world.request(conn, 3, r#"{"type":"subscribe","after":0}"#);
    world.prompt_store = true;
    world.end_turn(process);
    let told = world.told_to(conn);
    let expected = ["1:live", "2:unsubscribe", "3:accepted j1 main"];
    assert_eq!(
        told[..3],
        expected,
        "the first one's page is not the second one's: {told:?}"
    );
    assert_eq!(world.clients[&conn].lines[0]["seq"], 6);
    assert!(
        told[3..].iter().all(|line| line.starts_with("3:")),
        "{told:?}"
    );
}

#[test]
fn text_behind_an_uncommitted_event_waits_for_it() {
    let (mut world, _, process) = running();
    let conn = subscribe(&mut world, 9, "");
    world.prompt_store = false;
    tool(&mut world, process, "c1");
    say(&mut world, process, "after it");
    assert_eq!(world.told_to(conn), ["9:live"]);
    while world.store_pending() > 0 {
        world.store_answers();
    }
    let told = [
        "live",
        "tool_start c1",
        "message_start",
        "message_delta after it@0",
    ];
    assert_eq!(world.told_to(conn), told.map(|line| format!("9:{line}")));
}

#[test]
fn lost_job_cuts_off_only_its_subscribers() {
    let (mut world, _, process) = running();
    let conn = subscribe(&mut world, 9, r#","session":"main""#);
    let other = subscribe(&mut world, 9, r#","session":"other""#);
    world.prompt_store = false;
    tool(&mut world, process, "c1");
    world.store_gives_up();
    assert!(world.clients[&conn].closed && !world.clients[&other].closed);
    world.exit(process, Exit::Signal(9));
}
