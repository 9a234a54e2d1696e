//! Two callers at once, and what was known a moment ago.

use std::time::Duration;

use agentd_core::Event;
use agentd_core::store::{Loaded, Stored};
use agentd_core::worker::{About, Asking, Exit, QuestionKind, WorkerEvent};
use agentd_protocol::serde_json::Value;
use agentd_protocol::{Body, JobId};

use crate::agents::settings;
use crate::rename;
use crate::scenarios::{only, running};
use crate::world::{Process, StoreOrder, World};

/// A world whose store has idle sessions of agent `one`, and answers when it is told to.
fn stored(names: &[&str]) -> World {
    let mut world = World::new(settings());
    world.prompt_store = false;
    for name in names {
        rename::stored(&mut world, name);
    }
    world
}

fn all(world: &mut World) {
    while world.store_pending() > 0 {
        world.store_answers();
    }
}

const DISPATCH_Y: &str = r#"{"type":"dispatch","jobs":[{"text":"a","session":"y"}]}"#;

#[test]
fn dispatch_lets_requests_behind_it_load_sessions() {
    let mut world = stored(&["x", "z", "w"]);
    let conn = world.connect();
    world.request(conn, 1, DISPATCH_Y);
    world.request(conn, 2, r#"{"type":"send","text":"b","session":"x"}"#);
    world.request(conn, 3, r#"{"type":"session.close","session":"w"}"#);
    let second = r#"{"type":"dispatch","jobs":[{"text":"c","session":"z"}]}"#;
    world.request(conn, 4, second);
    world.request(conn, 5, r#"{"type":"send","text":"d"}"#);
    all(&mut world);
    assert_eq!(world.answer(conn, 2)["agent"], "one", "as it was made");
    assert_eq!(world.answer(conn, 3)["ok"], true);
    assert_eq!(world.answer(conn, 4)["ok"], true);
    let of = |text: &str| {
        let mut jobs = world.jobs.iter();
        let found = jobs.find(|(_, job)| job.request.contains(&format!("\"text\":\"{text}\"")));
        found.map(|(number, job)| (*number, job.agent.clone()))
    };
    assert_eq!(of("c").unwrap().1, "one");
    assert!(of("c").unwrap().0 < of("d").unwrap().0, "in the order sent");
}

#[test]
fn session_unloaded_during_a_lookup_keeps_its_agent() {
    let mut world = stored(&[]);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"a","agent":"one"}"#);
    all(&mut world);
    let process = only(&world);
    world.get_ready(process);
    all(&mut world);
    world.end_turn(process);
    let line =
        r#"{"type":"dispatch","jobs":[{"text":"b","session":"s1"},{"text":"c","session":"y"}]}"#;
    world.request(conn, 2, line);
    all(&mut world);
    assert_eq!(world.answer(conn, 2)["ok"], true);
    assert_eq!(world.jobs[&JobId(2)].agent, "one");
}

#[test]
fn send_right_behind_a_lookup_finds_its_session() {
    let mut world = stored(&["x"]);
    let (first, second) = (world.connect(), world.connect());
    world.request(first, 1, r#"{"type":"session.resume","session":"x"}"#);
    world.request(second, 1, r#"{"type":"send","text":"b","session":"x"}"#);
    all(&mut world);
    assert_eq!(world.answer(second, 1)["agent"], "one");
}

#[test]
fn send_during_session_close_is_refused_or_runs() {
    let mut world = stored(&["x"]);
    let (first, second) = (world.connect(), world.connect());
    world.request(first, 1, r#"{"type":"session.close","session":"x"}"#);
    let line =
        r#"{"type":"dispatch","jobs":[{"text":"a","session":"x"},{"text":"b","session":"q"}]}"#;
    world.request(second, 1, line);
    all(&mut world);
    assert_eq!(world.answer(first, 1)["ok"], true);
    assert_eq!(world.answer(second, 1)["code"], "session-busy");
    world.request(second, 2, r#"{"type":"send","text":"a","session":"x"}"#);
    all(&mut world);
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    world.work();
    assert_eq!(world.answer(second, 2)["type"], "message_end");
}

#[test]
fn session_close_refused_leaves_it_usable() {
    let mut world = stored(&["x"]);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"session.close","session":"x"}"#);
    world.store_answers();
    world.request(conn, 2, r#"{"type":"session.close","session":"x"}"#);
    assert_eq!(
        world.answer(conn, 2)["code"],
        "session-busy",
        "one at a time"
    );
    let model = r#"{"type":"set_model","session":"x","model":"m"}"#;
    world.request(conn, 3, model);
    assert_eq!(world.answer(conn, 3)["code"], "session-busy");
    world.store_gives_up();
    world.out_of_step = false;
    assert_eq!(world.answer(conn, 1)["code"], "store-failed");
    world.request(conn, 4, r#"{"type":"send","text":"a","session":"x"}"#);
    all(&mut world);
    assert_eq!(world.answer(conn, 4)["agent"], "one");
}

#[test]
fn session_new_by_two_makes_one() {
    let mut world = stored(&[]);
    let (first, second) = (world.connect(), world.connect());
    world.request(first, 1, r#"{"type":"send","text":"a","session":"x"}"#);
    let new = r#"{"type":"session.new","session":"x","agent":"one"}"#;
    world.request(second, 1, new);
    world.request(first, 2, DISPATCH_Y);
    let other = r#"{"type":"session.new","session":"y","agent":"one"}"#;
    world.request(second, 2, other);
    all(&mut world);
    for (name, job) in [("x", 1), ("y", 2)] {
        let (made, ran) = (&world.sessions[name].agent, &world.jobs[&JobId(job)].agent);
        assert_eq!(made, ran, "{name}");
    }
    assert_eq!(world.answer(second, 1)["code"], "session-conflict");
    assert_eq!(world.answer(second, 2)["code"], "session-conflict");
}

#[test]
fn delegation_depth_counts_ended_parents() {
    let (mut world, _, mut process) = running();
    for depth in 1..=3 {
        let child = world.connect();
        let line =
            format!(r#"{{"type":"dispatch","text":"x","session":"d{depth}","agent":"one"}}"#);
        world.request_from(child, depth, &line, World::inside(process));
        if depth == 3 {
            assert_eq!(world.answer(child, 3)["code"], "forbidden", "three levels");
            return;
        }
        assert_eq!(world.answer(child, depth)["ok"], true);
        let next = *world.processes.keys().next_back().unwrap();
        world.end_turn(process);
        world.get_ready(next);
        process = next;
    }
}

#[test]
fn collect_goes_on_after_a_partial_answer() {
    let mut world = stored(&[]);
    let jobs = [world.neighbour_accepts("a"), world.neighbour_accepts("b")];
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"collect","jobs":["j1","j2"]}"#);
    all(&mut world);
    world.pass(Duration::from_secs(1));
    for job in jobs {
        let seq = world.number();
        let line = r#"{"type":"message_end","stop":"end_turn"}"#;
        world.jobs.get_mut(&job).unwrap().last = Some((seq, Body::stored(line)));
    }
    let Some(StoreOrder::Load(token, _)) = world.orders.pop_front() else {
        panic!("it looks again");
    };
    let page = Loaded::Jobs(world.row(jobs[0]).into_iter().collect());
    world.event(Event::Loaded {
        token,
        loaded: page,
    });
    world.pass(Duration::from_secs(1));
    all(&mut world);
    assert_eq!(world.answer(conn, 1)["ok"], true);
}

#[test]
fn collect_of_a_lost_job_is_cut_off() {
    let (mut world, _, process) = running();
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"collect","jobs":["j1"]}"#);
    world.prompt_store = false;
    world.end_turn(process);
    world.store_gives_up();
    assert!(world.clients[&conn].closed);
}

fn long_question() -> Asking {
    Asking {
        question: "w".to_owned(),
        kind: QuestionKind::Text,
        title: "again?".to_owned(),
        detail: Some("x".repeat(1024 * 1024)),
        options: Vec::new(),
        limit: None,
        about: About::default(),
    }
}

#[test]
#[ignore = "heavy"]
fn output_limit_counts_questions_and_notes() {
    for asks in [true, false] {
        let (mut world, conn, process) = running();
        let turn = world.processes[&process].turns[0];
        for _ in 0..65 {
            let event = if asks {
                WorkerEvent::Asked {
                    turn: Some(turn),
                    asking: long_question(),
                }
            } else {
                WorkerEvent::Noted {
                    turn: Some(turn),
                    level: agentd_protocol::line::Level::Info,
                    code: "loop",
                    text: "x".repeat(1024 * 1024),
                }
            };
            world.worker(process, event);
        }
        world.end_turn(process);
        world.clients_read();
        assert_eq!(world.answer(conn, 1)["code"], "output-limit", "{asks}");
    }
}

#[test]
fn abort_counts_for_a_send_awaiting_recovery() {
    let mut world = stored(&[]);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"a","session":"warm"}"#);
    all(&mut world);
    let process = only(&world);
    world.get_ready(process);
    all(&mut world);
    world.end_turn(process);
    all(&mut world);
    world.request(conn, 2, r#"{"type":"send","text":"b","session":"x"}"#);
    world.store_answers();
    world.store_refuses(Stored::Orphaned {
        instance: "dead".to_owned(),
    });
    world.request(conn, 3, r#"{"type":"abort","session":"x"}"#);
    world.recovers();
    all(&mut world);
    assert_eq!(world.answer(conn, 3)["ok"], true);
    assert_eq!(world.answer(conn, 2)["stop"], "cancelled");
}

#[test]
fn abort_by_key_counts_before_the_outcome() {
    let mut world = stored(&[]);
    let sender = world.connect();
    let send = r#"{"type":"send","text":"a","session":"x","idempotency_key":"k"}"#;
    world.request(sender, 1, send);
    // Its session is looked up; then the disk hangs.
    world.store_answers();
    world.pass(Duration::from_secs(10));
    assert!(world.clients[&sender].closed, "the outcome is unknown");
    let other = world.connect();
    let abort = r#"{"type":"abort","session":"","idempotency_key":"k"}"#;
    world.request(other, 1, abort);
    // Of a key that the store alone may know, nobody can say.
    world.request(other, 7, r#"{"type":"abort","idempotency_key":"stored"}"#);
    world.pass(Duration::from_secs(10));
    for id in [1, 7] {
        assert_eq!(world.answer(other, id)["code"], "outcome-unknown");
    }
    all(&mut world);
    assert_eq!(world.spawns, 0);
    world.request(other, 2, send);
    all(&mut world);
    assert_eq!(world.answer(other, 2)["stop"], "cancelled");
    // Over, or never there.
    for (id, key) in [(3, "k"), (4, "other")] {
        let abort = format!(r#"{{"type":"abort","idempotency_key":"{key}"}}"#);
        world.request(other, id, &abort);
        all(&mut world);
        assert_eq!(world.answer(other, id)["jobs"], Value::Array(Vec::new()));
    }
    let looking = world.connect();
    // One whose session is still looked up, which takes the store until then.
    let waits = send.replace("\"k\"", "\"m\"").replace("\"x\"", "\"y\"");
    world.request(looking, 1, &waits);
    world.request(other, 6, &abort.replace("\"k\"", "\"m\""));
    all(&mut world);
    assert_eq!(world.answer(looking, 1)["stop"], "cancelled");
    assert!(world.prompts.is_empty());
    // In flight.
    let again = world.connect();
    world.request(again, 1, &send.replace("\"k\"", "\"l\""));
    all(&mut world);
    world.request(other, 5, &abort.replace("\"k\"", "\"l\""));
    all(&mut world);
    assert_eq!(world.answer(other, 5)["jobs"], Value::from(vec!["j3"]));
}

#[test]
fn reader_whose_history_is_pruned_is_told() {
    let (mut world, _, process) = running();
    world.end_turn(process);
    let sender = world.connect();
    world.request(sender, 1, r#"{"type":"send","text":"b","session":"main"}"#);
    world.end_turn(process);
    world.prompt_store = false;
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"subscribe","after":0}"#);
    world.store_answers();
    assert_eq!(world.clients[&conn].lines.len(), 3, "a page");
    world.oldest = world.seq;
    all(&mut world);
    assert_eq!(world.answer(conn, 1)["code"], "cursor-expired");
}

#[test]
fn store_in_doubt_cuts_off_the_unsure() {
    let wait = r#","on_question":"wait""#;
    let mut world = World::new(settings());
    let sender = world.connect();
    let send = format!(r#"{{"type":"send","text":"hi","session":"main"{wait}}}"#);
    world.request(sender, 1, &send);
    let process = only(&world);
    world.get_ready(process);
    let turn = world.processes[&process].turns.first().copied();
    let asking = Asking {
        detail: None,
        ..long_question()
    };
    world.worker(process, WorkerEvent::Asked { turn, asking });
    let there = world.neighbour_accepts("a");
    world.prompt_store = false;
    let waits = [
        r#"{"type":"answer","question_id":"j1-q1","text":"t"}"#.to_owned(),
        format!(r#"{{"type":"steer","job":"{there}","text":"t"}}"#),
        format!(r#"{{"type":"collect","jobs":["{there}"],"timeout":20}}"#),
        r#"{"type":"abort","job":"j1"}"#.to_owned(),
        r#"{"type":"send","text":"x","session":"unheard-of"}"#.to_owned(),
    ];
    let unknown = [
        r#"{"type":"session.new","session":"n"}"#,
        r#"{"type":"send","text":"x"}"#,
        r#"{"type":"dispatch","jobs":[{"text":"x","idempotency_key":"a"},{"text":"x"}]}"#,
        r#"{"type":"send","text":"x","idempotency_key":"b"}"#,
        r#"{"type":"dispatch","jobs":[{"text":"x","idempotency_key":"c"}]}"#,
    ];
    let mut ask = |request: &str| {
        let conn = world.connect();
        world.request(conn, 1, request);
        conn
    };
    let waiting = waits.each_ref().map(|request| ask(request));
    let cut = unknown.map(&mut ask);
    // One that is accepted and one that isn't, on one connection: the first is heard to its end.
    world.request(sender, 2, r#"{"type":"send","text":"x"}"#);
    world.event(Event::StoreHealth {
        trouble: Some("in doubt".to_owned()),
    });
    world.pass(Duration::from_secs(10));
    for (conn, request) in cut.iter().zip(unknown) {
        assert!(world.clients[conn].closed, "{request}");
    }
    // Without a key to ask again with, it is told why.
    let (told, keyed) = cut.split_at(3);
    for conn in told {
        assert_eq!(world.answer(*conn, 1)["code"], "outcome-unknown");
    }
    for conn in keyed {
        assert_eq!(world.clients[conn].lines.len(), 0);
    }
    assert!(!world.clients[&sender].closed);
    for (conn, request) in waiting.iter().zip(&waits) {
        assert!(!world.clients[conn].closed, "{request}");
    }
    let [.., unheard_of] = waiting;
    assert_eq!(world.answer(unheard_of, 1)["code"], "store-failed");
    world.event(Event::StoreHealth { trouble: None });
    all(&mut world);
    world.prompt_store = true;
    world.settle();
    for (conn, request) in waiting.iter().zip(&waits) {
        assert!(world.clients[conn].open.is_empty(), "{request}");
    }
    assert_eq!(world.answer(sender, 1)["stop"], "cancelled");
    assert_eq!(world.answer(sender, 2)["type"], "message_end");
}

#[test]
fn expired_turn_ends_when_its_process_dies_first() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"a","session":"x","expires":5}"#;
    world.request(conn, 1, send);
    let process = only(&world);
    world.prompt_store = false;
    world.get_ready(process);
    world.pass(Duration::from_secs(6));
    world.request(conn, 2, r#"{"type":"drain"}"#);
    world.exit(process, Exit::Code(1));
    all(&mut world);
    world.pass(Duration::from_secs(1));
    all(&mut world);
    assert_eq!(world.answer(conn, 1)["code"], "expired");
}

#[test]
fn spare_waits_briefly_for_the_turn_before() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().warm = agentd_core::agent::Warm::Always(1);
    let mut world = World::new(settings);
    let conn = world.connect();
    let spare = only(&world);
    world.get_ready(spare);
    for (request, ends) in [(1, true), (2, false)] {
        let spawns = world.spawns;
        let line = format!(r#"{{"type":"send","agent":"one","text":"hi","session":"s{request}"}}"#);
        world.request(conn, request, &line);
        assert_eq!(world.spawns, spawns, "it would take the turn's cores");
        let busy = |process: &Process| !process.turns.is_empty();
        let process = world.processes.iter().find(|(_, process)| busy(process));
        let process = *process.expect("the spare has the turn").0;
        if ends {
            world.end_turn(process);
            assert_eq!(world.answer(conn, request)["type"], "message_end");
            assert_eq!(world.spawns, spawns, "whoever waits is told first");
            world.pass(Duration::from_millis(50));
        } else {
            world.pass(Duration::from_secs(3));
        }
        assert_eq!(world.spawns, spawns + 1);
        let spare = world.processes.iter().find(|(_, process)| !process.ready);
        world.get_ready(*spare.expect("a new spare").0);
    }
}

#[test]
fn spare_is_not_put_off_for_ever() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().warm = agentd_core::agent::Warm::Always(1);
    let mut world = World::new(settings);
    let conn = world.connect();
    let spare = only(&world);
    world.get_ready(spare);
    let send = |world: &mut World, id: u64| {
        let line = format!(r#"{{"type":"send","agent":"one","text":"hi","session":"s{id}"}}"#);
        world.request(conn, id, &line);
    };
    send(&mut world, 1);
    world.pass(Duration::from_secs(2));
    // For this one a process is started, and it begins when the spare has waited long enough.
    send(&mut world, 2);
    let spawns = world.spawns;
    let starting = world.processes.iter().find(|(_, process)| !process.ready);
    world.get_ready(*starting.expect("its process").0);
    assert_eq!(world.spawns, spawns);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.spawns, spawns + 1, "the spare");
}

#[test]
fn pins_refused_fail_only_their_turns() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = |world: &mut World, id: u64, pins: &str| {
        let line = r#""type":"send","agent":"one","text":"hi","session":"main""#;
        world.request(conn, id, &format!("{{{line}{pins}}}"));
    };
    send(&mut world, 1, "");
    let native = "/s.jsonl".to_owned();
    world.worker(only(&world), WorkerEvent::SessionNamed { native });
    world.work();
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
    let odd = r#","provider":"nope","model":"m""#;
    send(&mut world, 2, odd);
    world.exit(only(&world), Exit::Code(0));
    let starting = only(&world);
    for (id, pins) in [(3, odd), (4, ""), (5, r#","model":"other""#)] {
        send(&mut world, id, pins);
    }
    let spawns = world.spawns;
    world.exit(starting, Exit::Code(1));
    for id in [2, 3, 4] {
        let answer = world.answer(conn, id);
        assert_eq!(answer["code"], "worker-start-failed", "{answer}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains("`provider` `nope`, `model` `m`"), "{error}");
    }
    world.work();
    send(&mut world, 6, "");
    world.work();
    for id in [5, 6] {
        assert_eq!(world.answer(conn, id)["type"], "message_end", "{id}");
    }
    assert_eq!(world.spawns, spawns + 1, "one for the other pin");
}

#[test]
fn pins_that_once_worked_are_started_again() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let line = r#"{"type":"send","agent":"one","text":"hi","session":"main","model":"m"}"#;
    world.request(conn, 1, line);
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    world.exit(process, Exit::Signal(9));
    world.request(conn, 2, line);
    world.pass(Duration::from_secs(1));
    world.exit(only(&world), Exit::Code(1));
    world.pass(Duration::from_secs(2));
    world.work();
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
}

#[test]
fn pins_that_fail_break_only_their_session() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = |world: &mut World, id: u64, session: &str| {
        let line = format!(r#"{{"type":"send","agent":"one","text":"hi","session":"{session}"}}"#);
        world.request(conn, id, &line);
    };
    let line = r#"{"type":"send","agent":"one","text":"hi","session":"bad","provider":"nope"}"#;
    world.request(conn, 1, line);
    while let Some(process) = world.processes.keys().next().copied() {
        world.exit(process, Exit::Code(78));
        world.pass(Duration::from_secs(60));
    }
    assert_eq!(world.answer(conn, 1)["code"], "worker-start-failed");
    send(&mut world, 2, "good");
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
    let line = r#"{"type":"set_model","session":"bad","provider":"right","model":"m"}"#;
    world.request(conn, 3, line);
    assert_eq!(world.answer(conn, 3)["ok"], true);
    send(&mut world, 4, "bad");
    let starting = world.processes.iter().find(|(_, process)| !process.ready);
    let process = *starting.expect("a process with the new pins").0;
    world.get_ready(process);
    world.end_turn(process);
    assert_eq!(world.answer(conn, 4)["type"], "message_end");
}

#[test]
fn breaker_opens_for_a_program_never_ready() {
    let mut settings = settings();
    let slow = Duration::from_secs(61);
    let agent = settings.agents.get_mut("one").unwrap();
    agent.describe.ready_within = slow;
    let mut world = World::new(settings);
    let conn = world.connect();
    let line = r#"{"type":"send","agent":"one","text":"hi","session":"main"}"#;
    world.request(conn, 1, line);
    let mut starts = 0;
    while let Some(process) = world.processes.keys().next().copied() {
        starts += 1;
        assert!(starts <= 3, "it is started for ever");
        world.pass(slow);
        world.exit(process, Exit::Signal(9));
        world.pass(Duration::from_secs(10));
    }
    assert_eq!(world.answer(conn, 1)["code"], "crash-looped");
}
