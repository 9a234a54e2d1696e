//! Several turns in one commit: all or none, side by side, and what agents make of their own.

use std::time::Duration;

use agentd_core::Event;
use agentd_core::ids::ConnId;
use agentd_core::store::Stored;
use agentd_core::worker::Traits;
use agentd_protocol::Code;

use crate::agents::settings;
use crate::scenarios::{ProcessId, only, running};
use crate::world::World;

fn jobs_of(world: &World, conn: ConnId, id: u64) -> Vec<String> {
    let rows = world.answer(conn, id)["jobs"].as_array().unwrap();
    rows.iter()
        .map(|row| row["job"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn dispatch_is_one_commit_of_parallel_turns() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    let line = r#"{"type":"dispatch","jobs":[{"text":"a","session":"x","agent":"one"},{"text":"b","session":"y","agent":"one"},{"text":"c"}]}"#;
    world.request(conn, 1, line);
    world.store_answers();
    assert_eq!(world.jobs.len(), 0, "the sessions are looked up first");
    world.store_answers();
    assert_eq!(world.jobs.len(), 3, "one commit");
    assert_eq!(jobs_of(&world, conn, 1), ["j1", "j2", "j3"]);
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    assert_eq!(
        world.processes.len(),
        3,
        "three processes for three sessions"
    );
    world.work();
    world.request(conn, 2, r#"{"type":"collect","jobs":["j3","j1","j2"]}"#);
    let results = world.answer(conn, 2)["results"].as_array().unwrap();
    let order: Vec<_> = results.iter().map(|line| line["job"].clone()).collect();
    // Nobody asked for them before with the same key.
    assert!(results.iter().all(|line| line["replayed"] == false));
    assert_eq!(order, ["j3", "j1", "j2"], "in the order asked");
    world.request(conn, 3, r#"{"type":"collect","jobs":["j2","j1","j2"]}"#);
    let answer = world.answer(conn, 3);
    let twice = (
        answer["results"].as_array().unwrap().len(),
        &answer["pending"],
    );
    assert_eq!(
        twice,
        (2, &agentd_protocol::serde_json::json!([])),
        "named twice, told once"
    );
}

#[test]
fn collect_waits_for_jobs_being_looked_up() {
    let (mut world, _conn, process) = running();
    let first = world.processes[&process].turns[0];
    let other = world.connect();
    world.request(other, 1, r#"{"type":"send","text":"b"}"#);
    world.end_turn(process);
    assert!(!world.processes[&process].turns.contains(&first));
    let conn = world.connect();
    world.prompt_store = false;
    world.request(conn, 2, r#"{"type":"collect","jobs":["j1","j2"]}"#);
    for process in world.processes.keys().copied().collect::<Vec<_>>() {
        if world.processes[&process].turns.is_empty() {
            world.get_ready(process);
        }
        if !world.processes[&process].turns.is_empty() {
            world.end_turn(process);
        }
    }
    // What is read comes later than the end of the one that is in memory.
    world.orders.rotate_left(1);
    while !world.orders.is_empty() {
        world.store_answers();
    }
    let answer = world.answer(conn, 2);
    assert_eq!(answer["results"].as_array().unwrap().len(), 2, "{answer}");
}

#[test]
fn dispatch_is_refused_whole_naming_its_job() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"dispatch","jobs":[{"text":"a","session":"x"},{"text":"b","agent":"nobody"}]}"#,
    );
    let error = world.answer(conn, 1);
    assert_eq!(error["code"], "unknown-agent");
    assert!(
        error["error"].as_str().unwrap().starts_with("`jobs[1]`"),
        "{error}"
    );
    assert!(world.jobs.is_empty());
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"a","session":"x","agent":"one"}"#,
    );
    assert_eq!(
        world.last_error(conn),
        Some(Code::UnknownAgent),
        "only the old error"
    );
    assert_eq!(
        world.answer(conn, 2)["type"],
        "accepted",
        "the name is free"
    );
}

#[test]
fn dispatch_keys_conflict_for_all_or_replay() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"dispatch","jobs":[{"text":"a","idempotency_key":"k"},{"text":"a","idempotency_key":"k"},{"text":"b"}]}"#);
    assert_eq!(
        jobs_of(&world, conn, 1),
        ["j1", "j1", "j2"],
        "twice the same key is once the job"
    );
    let rows = &world.answer(conn, 1)["jobs"];
    assert_eq!(
        (&rows[0]["replayed"], &rows[1]["replayed"]),
        (&false.into(), &true.into())
    );
    world.request(
        conn,
        2,
        r#"{"type":"dispatch","jobs":[{"text":"new"},{"text":"other","idempotency_key":"k"}]}"#,
    );
    assert_eq!(world.answer(conn, 2)["code"], "idempotency-conflict");
    assert_eq!(world.jobs.len(), 2, "none of it");
    world.work();
    world.request(
        conn,
        3,
        r#"{"type":"dispatch","text":"a","idempotency_key":"k"}"#,
    );
    assert_eq!(jobs_of(&world, conn, 3), ["j1"]);
    world.work();
    assert_eq!(world.prompts.values().max(), Some(&1), "nothing ran twice");
}

#[test]
fn dispatch_waits_for_recovery_of_its_session() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"dispatch","jobs":[{"text":"a"},{"text":"b"}]}"#,
    );
    world.store_refuses(Stored::Orphaned {
        instance: "dead".to_owned(),
    });
    assert_eq!(world.recover_asked, ["dead"]);
    world.recovers();
    world.store_answers();
    assert_eq!(jobs_of(&world, conn, 1), ["j1", "j2"]);
}

#[test]
fn dispatch_on_a_full_disk_leaves_nothing() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"dispatch","jobs":[{"text":"a"},{"text":"b"}]}"#,
    );
    world.store_refuses(Stored::Failed {
        code: Code::DiskFull,
        why: "full".to_owned(),
    });
    assert_eq!(world.answer(conn, 1)["code"], "disk-full");
    world.prompt_store = true;
    world.request(conn, 2, r#"{"type":"send","text":"a"}"#);
    assert_eq!(world.answer(conn, 2)["job"], "j1");
}

#[test]
fn dispatch_that_loads_sessions_keeps_request_order() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"dispatch","jobs":[{"text":"a","session":"x"}]}"#,
    );
    world.request(conn, 2, r#"{"type":"send","text":"b"}"#);
    world.request(conn, 3, r#"{"type":"send","text":"c","session":"x"}"#);
    while world.store_pending() > 0 {
        world.store_answers();
    }
    assert_eq!(jobs_of(&world, conn, 1), ["j1"]);
    assert_eq!(world.jobs[&agentd_protocol::JobId(3)].session, "x");
}

/// A running turn that has the only process there may be, and a connection from inside it.
fn parent_in_a_full_pool() -> (World, ProcessId, ConnId) {
    let mut few = settings();
    few.max_workers = 1;
    let mut world = World::new(few);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"parent","session":"p"}"#);
    let parent = only(&world);
    world.get_ready(parent);
    let child = world.connect();
    (world, parent, child)
}

#[test]
fn delegation_parent_that_waits_takes_no_room() {
    let (mut world, parent, child) = parent_in_a_full_pool();
    let send = r#"{"type":"dispatch","text":"child","session":"c"}"#;
    world.request_from(child, 1, send, World::inside(parent));
    assert_eq!(
        world.jobs[&agentd_protocol::JobId(2)].parent,
        Some(agentd_protocol::JobId(1))
    );
    assert_eq!(world.processes.len(), 1, "the pool is full");
    let collect = r#"{"type":"collect","jobs":["j2"]}"#;
    world.request_from(child, 2, collect, World::inside(parent));
    world.pass(Duration::ZERO);
    assert_eq!(
        world.processes.len(),
        2,
        "a turn that waits for its child does not count"
    );
    let other = *world
        .processes
        .keys()
        .find(|process| **process != parent)
        .unwrap();
    world.get_ready(other);
    world.end_turn(other);
    assert_eq!(world.answer(child, 2)["results"][0]["job"], "j2");
}

#[test]
fn delegation_by_send_makes_room_for_it() {
    let (mut world, parent, child) = parent_in_a_full_pool();
    let send = r#"{"type":"send","text":"child","session":"c"}"#;
    world.request_from(child, 1, send, World::inside(parent));
    let mut others = world.processes.keys().filter(|other| **other != parent);
    let other = *others.next().expect("room for what is waited for");
    world.get_ready(other);
    world.end_turn(other);
    assert_eq!(world.answer(child, 1)["type"], "message_end");
}

#[test]
fn delegation_has_a_depth_and_checked_parent() {
    let (mut world, conn, mut process) = running();
    world.request(conn, 9, r#"{"type":"send","text":"x","parent":"j1"}"#);
    assert_eq!(world.answer(conn, 9)["code"], "forbidden");
    for depth in 1..=3 {
        let child = world.connect();
        let line = format!(r#"{{"type":"send","text":"x","session":"d{depth}"}}"#);
        world.request_from(child, depth, &line, World::inside(process));
        if depth == 3 {
            assert_eq!(world.answer(child, 3)["code"], "forbidden", "three levels");
            return;
        }
        assert_eq!(world.answer(child, depth)["type"], "accepted");
        let next = *world.processes.keys().next_back().unwrap();
        world.get_ready(next);
        process = next;
    }
}

#[test]
fn delegation_into_its_own_session_is_refused() {
    let (mut world, _, process) = running();
    let session = world.jobs[&agentd_protocol::JobId(1)].session.clone();
    let send = |session: &str| format!(r#"{{"type":"send","text":"x","session":"{session}"}}"#);
    let child = world.connect();
    world.request_from(child, 1, &send(&session), World::inside(process));
    assert_eq!(world.answer(child, 1)["code"], "forbidden");
    // Behind the turn it may run.
    let dispatch = format!(r#"{{"type":"dispatch","text":"x","session":"{session}"}}"#);
    world.request_from(child, 2, &dispatch, World::inside(process));
    assert_eq!(world.answer(child, 2)["ok"], true);
    // Through another agent it is the same, as long as it is waited for.
    world.request_from(child, 3, &send("other"), World::inside(process));
    let other = *world.processes.keys().next_back().unwrap();
    world.get_ready(other);
    let grandchild = world.connect();
    world.request_from(grandchild, 1, &send(&session), World::inside(other));
    assert_eq!(world.answer(grandchild, 1)["code"], "forbidden");
}

#[test]
fn delegation_of_what_nobody_awaits_may_report() {
    let (mut world, _, process) = running();
    let session = world.jobs[&agentd_protocol::JobId(1)].session.clone();
    let conn = world.connect();
    let dispatch = r#"{"type":"dispatch","text":"x","session":"other"}"#;
    world.request_from(conn, 1, dispatch, World::inside(process));
    let other = *world.processes.keys().next_back().unwrap();
    world.get_ready(other);
    let child = world.connect();
    let report = format!(r#"{{"type":"send","text":"done","session":"{session}"}}"#);
    world.request_from(child, 1, &report, World::inside(other));
    assert_eq!(world.answer(child, 1)["type"], "accepted");
}

/// Its session has begun by then, so that the same words are refused as a beginning.
#[test]
fn dispatch_again_finds_jobs_it_would_refuse() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let one = |key: &str| {
        format!(
            r#"{{"text":"x","session":"s-{key}","system":"be brief","idempotency_key":"{key}"}}"#
        )
    };
    let dispatch = |keys: &[&str]| {
        let jobs: Vec<String> = keys.iter().map(|key| one(key)).collect();
        format!(r#"{{"type":"dispatch","jobs":[{}]}}"#, jobs.join(","))
    };
    world.request(conn, 1, &dispatch(&["a", "b"]));
    assert_eq!(jobs_of(&world, conn, 1), ["j1", "j2"]);
    world.request(conn, 2, &dispatch(&["a", "b"]));
    assert_eq!(jobs_of(&world, conn, 2), ["j1", "j2"]);
    let row = world.answer(conn, 2)["jobs"][1].clone();
    assert_eq!(
        (row["replayed"].as_bool(), row["session"].as_str()),
        (Some(true), Some("s-b"))
    );
    // One that is new makes it another dispatch: all of it or nothing.
    for (id, keys) in [(3, ["a", "c"]), (4, ["c", "a"])] {
        world.request(conn, id, &dispatch(&keys));
        let error = world.answer(conn, id)["error"].clone();
        assert!(
            error.as_str().unwrap().ends_with("none was accepted"),
            "{error}"
        );
    }
    assert_eq!(world.jobs.len(), 2);
}

#[test]
fn a_one_shot_can_not_dispatch() {
    let mut alone = settings();
    alone.served = agentd_core::Served::OneShot { reason: None };
    let mut world = World::new(alone);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"dispatch","text":"x"}"#);
    assert_eq!(world.answer(conn, 1)["code"], "needs-daemon");
}

#[test]
fn a_dispatcher_that_leaves_cancels_nothing() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"dispatch","jobs":[{"text":"a"},{"text":"b"}]}"#,
    );
    world.disconnect(conn);
    world.prompt_store = true;
    world.event(Event::Ticked);
    world.work();
    assert_eq!(
        world.jobs.values().filter(|job| job.last.is_some()).count(),
        2
    );
}

#[test]
fn crowd_for_one_agent_keeps_nobody_waiting() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for batch in 0..10_u64 {
        let agent = ["many", "turn"][batch as usize % 2];
        let job = |n: usize| {
            format!(r#"{{"text":"x","session":"{agent}{batch}-{n}","agent":"{agent}"}}"#)
        };
        let jobs: Vec<String> = (0..20).map(job).collect();
        let line = format!(r#"{{"type":"dispatch","jobs":[{}]}}"#, jobs.join(","));
        world.request(conn, 1 + batch, &line);
    }
    assert_eq!(world.jobs.len(), 200);
    for _ in 0..100 {
        world.work();
        let told = world.processes.iter();
        let told = told.filter(|(_, process)| process.told_to_end.is_some());
        for process in told.map(|(process, _)| *process).collect::<Vec<_>>() {
            world.exit(process, agentd_core::worker::Exit::Code(0));
        }
        world.pass(Duration::from_secs(1));
    }
    let waiting = world.jobs.iter().filter(|(_, job)| job.last.is_none());
    let waiting: Vec<_> = waiting.map(|(job, _)| *job).collect();
    assert!(waiting.is_empty(), "{waiting:?}");
    assert_eq!(world.prompts.values().max(), Some(&1));
}

#[test]
fn dispatch_survives_sessions_that_come_and_go() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = |session: &str| {
        format!(r#"{{"type":"send","text":"x","session":"{session}","agent":"turn"}}"#)
    };
    world.request(conn, 1, &send("b"));
    world.work();
    world.request(conn, 2, &send("a"));
    let process = only(&world);
    world.prompt_store = false;
    // The end of `a` is on its way when the dispatch finds it here, and `b` gone.
    world.end_turn(process);
    let jobs = r#"[{"text":"x","session":"a"},{"text":"x","session":"b"}]"#;
    world.request(conn, 3, &format!(r#"{{"type":"dispatch","jobs":{jobs}}}"#));
    for _ in 0..20 {
        world.store_answers();
    }
    assert_eq!(jobs_of(&world, conn, 3), ["j3", "j4"]);
}

/// Asked again with the same keys after 10 s without an answer, while the first may be stored yet.
#[test]
fn dispatch_to_a_silent_store_claims_nothing() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let dispatch =
        r#"{"type":"dispatch","jobs":[{"text":"a","agent":"one","idempotency_key":"k"}]}"#;
    let first = world.connect();
    world.request(first, 1, dispatch);
    world.pass(Duration::from_secs(10));
    assert!(world.clients[&first].closed);
    let again = world.connect();
    world.request(again, 1, dispatch);
    let error = world.answer(again, 1).clone();
    assert_eq!(error["code"], "outcome-unknown", "{error}");
    let words = error["error"].as_str().unwrap();
    assert!(!words.contains("none was accepted"), "{words}");
    world.store_answers();
    assert_eq!(world.jobs.len(), 1);
}

#[test]
fn dispatch_that_waits_for_starts_is_passed_over() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let says = Traits {
        concurrent_sends: Some(64),
        ..Traits::default()
    };
    world.request(conn, 1, r#"{"type":"send","text":"x","agent":"many"}"#);
    world.get_ready_as(only(&world), says.clone());
    let jobs = [r#"{"text":"x","agent":"many"}"#; 250].join(",");
    for id in 2..5 {
        let line = format!(r#"{{"type":"dispatch","jobs":[{jobs}]}}"#);
        world.request(conn, id, &line);
    }
    let coming = world.processes.iter().filter(|(_, known)| !known.ready);
    let coming: Vec<ProcessId> = coming.map(|(process, _)| *process).collect();
    assert_eq!(coming.len(), 3, "64 turns wait for each, and more for room");
    let looks = |world: &mut World, id, line| {
        let before = world.state.looked();
        world.request(conn, id, line);
        world.state.looked() - before
    };
    let status = looks(&mut world, 5, r#"{"type":"status"}"#);
    assert_eq!(status, 0, "it starts nothing");
    let other = looks(&mut world, 6, r#"{"type":"undrain"}"#);
    assert!((1..=8).contains(&other), "{other} looks for one event");
    for process in coming {
        world.get_ready_as(process, says.clone());
    }
    assert_eq!(world.began.len(), 4 * 64);
}
