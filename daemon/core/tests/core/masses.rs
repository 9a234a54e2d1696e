//! What happens to all that waits at once, and a store that is behind: at the limits.

use std::collections::BTreeSet;
use std::time::Duration;

use agentd_core::ids::ConnId;
use agentd_core::limits::{
    COMMITS_OUTSTANDING, ENDED_AT_ONCE, EVENTS_UNSTORED, MAX_WORKERS, SCHEDULED_IN_ALL,
};
use agentd_core::store::{Stored, Write};
use agentd_core::worker::{Exit, WorkerEvent};
use agentd_core::{Effect, Event, Settings};
use agentd_protocol::{Code, JobId};

use crate::agents::settings;
use crate::scenarios::only;
use crate::world::{StoreOrder, StoredJob, World};

/// So many wait: all that may be scheduled. A tenth of those that may wait without a time to start,
/// of which forty slices show what four hundred would.
const ALL: usize = SCHEDULED_IN_ALL;

/// That run at once, several times as many as one event may end.
const RUNNING: usize = 4 * ENDED_AT_ONCE;

/// One event may ask for some more commits than it ends turns.
const SLICE: usize = ENDED_AT_ONCE + 16;

/// What one event may lead to besides lines: so many ends with what goes with each, and what they
/// free.
const MOST_EFFECTS: usize = 2_000;

impl World {
    /// One event leads to so much and no more.
    pub fn measure(&mut self, effects: &[Effect]) {
        let lines = effects.iter().filter(|effect| effect.is_for_a_connection());
        let others = effects.len() - lines.count();
        assert!(others < MOST_EFFECTS, "{others} effects of one event");
        let is_commit = |effect: &&Effect| matches!(effect, Effect::Commit { .. });
        let commits = effects.iter().filter(is_commit).count();
        self.most_commits = self.most_commits.max(commits);
    }

    /// Every stored job of this instance that has no end is known to the core.
    pub fn check_known(&self) {
        let open = |(_, job): &(&JobId, &StoredJob)| job.ours && job.last.is_none();
        for (job, stored) in self.jobs.iter().filter(open) {
            assert!(self.state.knows(*job), "{job} is nobody's: {stored:?}");
        }
    }
}

/// Dispatches so many turns, each with these fields besides its text.
fn fill(world: &mut World, conn: ConnId, turns: usize, fields: &str) {
    let mut left = turns;
    while left > 0 {
        let some = left.min(250);
        let job = format!(r#"{{"text":"x"{fields}}}"#);
        let jobs = vec![job; some].join(",");
        let line = format!(r#"{{"type":"dispatch","jobs":[{jobs}]}}"#);
        world.request(conn, left as u64, &line);
        assert_eq!(world.answer(conn, left as u64)["ok"], true);
        left -= some;
    }
}

/// A world in which so many turns wait.
fn full(fields: &str) -> (World, ConnId) {
    let mut world = World::new(settings());
    let conn = world.connect();
    fill(&mut world, conn, ALL, fields);
    (world, conn)
}

/// Lets time stand still until nothing more happens.
fn go_on(world: &mut World) {
    for _ in 0..2 * ALL {
        if world
            .state
            .next_deadline()
            .is_none_or(|at| at > world.now.mono)
        {
            return;
        }
        world.event(Event::Ticked);
    }
    panic!("it goes on for ever");
}

fn ended_with(world: &World, what: &str) -> usize {
    let last = world.jobs.values().filter_map(|job| job.last.as_ref());
    last.filter(|(_, line)| line.as_json().contains(what))
        .count()
}

#[test]
#[ignore = "heavy"]
fn failing_all_that_waits_goes_in_slices() {
    let (mut world, conn) = full("");
    let process = only(&world);
    world.most_commits = 0;
    world.exit(process, Exit::Code(78));
    go_on(&mut world);
    world.check_known();
    assert!(
        world.most_commits <= SLICE,
        "{} commits",
        world.most_commits
    );
    assert_eq!(ended_with(&world, "\"type\":\"error\""), ALL);
    world.request(conn, 1, r#"{"type":"status"}"#);
    let details = world.answer(conn, 1)["details"].as_str().unwrap();
    assert!(details.contains(" 0 waiting"), "{details}");
}

#[test]
#[ignore = "heavy"]
fn failing_all_that_waits_leaves_room_for_others() {
    let (mut world, conn) = full("");
    let process = only(&world);
    world.prompt_store = false;
    world.exit(process, Exit::Code(78));
    go_on(&mut world);
    assert!(
        world.orders.len() < COMMITS_OUTSTANDING / 2,
        "{}",
        world.orders.len()
    );
    while !world.orders.is_empty() {
        world.store_answers();
        go_on(&mut world);
    }
    assert_eq!(ended_with(&world, "\"type\":\"error\""), ALL);
    world.request(conn, 1, r#"{"type":"send","text":"x","agent":"one"}"#);
    world.prompt_store = true;
    go_on(&mut world);
    world.event(Event::Ticked);
    assert_eq!(world.answer(conn, 1)["type"], "accepted");
}

#[test]
#[ignore = "heavy"]
fn expiry_of_all_goes_in_slices() {
    let (mut world, _) = full(r#","expires":60"#);
    world.prompts.clear();
    let day = Duration::from_secs(86_400);
    world.now.mono += day;
    world.now.boot_ms += u64::try_from(day.as_millis()).unwrap();
    world.now.wall_ms += i64::try_from(day.as_millis()).unwrap();
    world.most_commits = 0;
    world.crash(settings());
    world.check_known();
    go_on(&mut world);
    assert!(
        world.most_commits <= SLICE,
        "{} commits",
        world.most_commits
    );
    assert_eq!(ended_with(&world, "\"expired\""), ALL);
    assert!(world.prompts.is_empty() && world.processes.is_empty());
}

/// More turns than one event may commit for, all of which run in one process, and may run again.
fn running() -> (World, Settings) {
    let mut settings = settings();
    let agent = settings.agents.get_mut("many").unwrap();
    agent.describe.concurrent_sends = RUNNING as u32;
    let mut world = World::new(settings.clone());
    let conn = world.connect();
    fill(
        &mut world,
        conn,
        RUNNING,
        r#","agent":"many","retry":"auto""#,
    );
    let process = only(&world);
    world.get_ready(process);
    go_on(&mut world);
    assert_eq!(world.processes[&process].turns.len(), RUNNING);
    (world, settings)
}

fn check_again(world: &World) {
    world.check_known();
    assert!(
        world.most_commits <= SLICE,
        "{} commits",
        world.most_commits
    );
    assert!(world.jobs.values().all(|job| !job.running));
}

#[test]
fn running_again_all_that_ran_commits_together() {
    let (mut world, _) = running();
    world.check_known();
    world.most_commits = 0;
    world.exit(only(&world), Exit::Signal(9));
    check_again(&world);
}

#[test]
fn running_again_all_that_ran_at_a_start() {
    let (mut world, settings) = running();
    world.most_commits = 0;
    world.crash(settings);
    check_again(&world);
}

#[test]
fn starting_all_that_waits_goes_in_slices() {
    let (world, _) = running();
    assert!(
        world.most_commits <= SLICE,
        "{} commits",
        world.most_commits
    );
}

/// As many scheduled turns of one session as may be.
fn scheduled() -> (World, ConnId) {
    full(r#","session":"s","start_at":"1970-01-01T01:00:00Z""#)
}

const ABORT: &str = r#"{"type":"abort","session":"s","queued":true}"#;

#[test]
#[ignore = "heavy"]
fn aborting_all_that_waits_goes_in_slices() {
    let (mut world, conn) = scheduled();
    world.most_commits = 0;
    world.request(conn, 1, ABORT);
    go_on(&mut world);
    assert!(
        world.most_commits <= SLICE,
        "{} commits",
        world.most_commits
    );
    assert_eq!(world.answer(conn, 1)["jobs"].as_array().unwrap().len(), ALL);
    assert_eq!(ended_with(&world, "\"cancelled\""), ALL);
}

#[test]
#[ignore = "heavy"]
fn abort_says_ok_when_its_marks_are_durable() {
    let (mut world, conn) = scheduled();
    world.prompt_store = false;
    world.request(conn, 1, ABORT);
    let mut marked = BTreeSet::new();
    let answered = |world: &World| {
        let last = world.clients[&conn].lines.last();
        last.is_some_and(|line| line["type"] == "abort")
    };
    while !answered(&world) {
        assert!(!world.orders.is_empty(), "nobody is answered");
        if let Some(StoreOrder::Commit(_, writes)) = world.orders.front() {
            marked.extend(writes.iter().filter_map(|write| match write {
                Write::Cancel { job } => Some(*job),
                _ => None,
            }));
        }
        world.store_answers();
        go_on(&mut world);
    }
    world.check_known();
    assert_eq!(marked.len(), ALL, "answered before all was durable");
    // The daemon dies before most of them have their final lines; their time to start comes.
    world.prompt_store = true;
    world.crash(settings());
    world.pass(Duration::from_secs(7200));
    go_on(&mut world);
    assert!(
        world.spawns == 0 && world.prompts.is_empty(),
        "an aborted turn runs"
    );
    assert_eq!(ended_with(&world, "\"cancelled\""), ALL);
}

#[test]
#[ignore = "heavy"]
fn abort_in_slices_starts_nothing_in_between() {
    // A crash after each number of answers: what was marked doesn't run, the rest is as it was.
    for answers in [0, 1, 300, 5_000] {
        let (mut world, conn) = scheduled();
        world.prompt_store = false;
        world.request(conn, 1, ABORT);
        for _ in 0..answers {
            world.store_answers();
            go_on(&mut world);
        }
        world.pass(Duration::from_secs(7200));
        assert!(world.spawns == 0, "an aborted turn gets a process");
        world.prompt_store = true;
        world.crash(settings());
        go_on(&mut world);
        world.check_known();
        let marked = |job: &JobId| world.jobs[job].cancelled;
        assert!(!world.prompts.keys().any(marked));
    }
}

#[test]
fn abort_whose_marks_are_refused_says_so() {
    let mut world = World::new(settings());
    let conn = world.connect();
    fill(
        &mut world,
        conn,
        3,
        r#","session":"s","start_at":"1970-01-01T01:00:00Z""#,
    );
    world.prompt_store = false;
    world.request(conn, 1, ABORT);
    while let Some(order) = world.orders.front() {
        let StoreOrder::Commit(_, writes) = order else {
            unreachable!()
        };
        if matches!(writes.first(), Some(Write::Cancel { .. })) {
            world.store_gives_up();
        } else {
            world.store_answers();
        }
    }
    assert_eq!(world.answer(conn, 1)["code"], "store-failed");
}

#[test]
#[ignore = "heavy"]
fn abort_while_nothing_is_stored_says_so() {
    let (mut world, conn) = scheduled();
    world.prompt_store = false;
    world.request(conn, 1, ABORT);
    world.event(Event::StoreHealth {
        trouble: Some("database or disk is full".to_owned()),
    });
    world.pass(Duration::from_secs(10));
    let answer = world.answer(conn, 1);
    assert_eq!(answer["code"], "outcome-unknown", "{answer}");
    assert!(
        answer["error"].to_string().contains("disk is full"),
        "{answer}"
    );
    // It is still meant.
    world.event(Event::StoreHealth { trouble: None });
    world.prompt_store = true;
    while !world.orders.is_empty() {
        world.store_answers();
    }
    go_on(&mut world);
    assert_eq!(ended_with(&world, "\"cancelled\""), ALL);
}

#[test]
fn store_that_is_behind_pauses_whoever_writes() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for n in 1..=4 {
        let send = format!(r#"{{"type":"send","text":"x","agent":"one","session":"one{n}"}}"#);
        world.request(conn, n, &send);
    }
    let processes: Vec<_> = world.processes.keys().copied().collect();
    assert_eq!(processes.len(), 4);
    for process in &processes {
        world.get_ready(*process);
    }
    world.prompt_store = false;
    world.event(Event::StoreHealth {
        trouble: Some("locked".to_owned()),
    });
    // Each has 3,000 tools to tell of, and can't while nobody reads it.
    let mut told = vec![0; processes.len()];
    let mut tell = |world: &mut World| {
        let mut some = false;
        for (process, told) in processes.iter().zip(&mut told) {
            while *told < 3_000 && !world.processes[process].paused {
                let (turn, call) = (world.processes[process].turns[0], told.to_string());
                let event = match *told % 2 {
                    0 => WorkerEvent::ToolStarted {
                        turn,
                        call,
                        name: "n".to_owned(),
                        input: "{}".to_owned(),
                        read_only: true,
                        about: Default::default(),
                    },
                    _ => WorkerEvent::ToolEnded {
                        turn,
                        call,
                        ok: true,
                        output: String::new(),
                        sandbox: None,
                        diff: Vec::new(),
                    },
                };
                world.worker(*process, event);
                *told += 1;
                some = true;
            }
        }
        some
    };
    tell(&mut world);
    let most = MAX_WORKERS * EVENTS_UNSTORED;
    assert!(
        world.orders.len() <= 4 * EVENTS_UNSTORED && most < COMMITS_OUTSTANDING,
        "{}",
        world.orders.len()
    );
    for _ in 0..25 {
        world.pass(Duration::from_secs(1));
    }
    assert!(!world.clients[&conn].closed, "who has a job is not cut off");
    assert!(
        processes
            .iter()
            .all(|process| world.processes[process].told_to_end.is_none())
    );
    world.event(Event::StoreHealth { trouble: None });
    loop {
        while !world.orders.is_empty() {
            world.store_answers();
        }
        if !tell(&mut world) {
            break;
        }
    }
    world.prompt_store = true;
    for process in processes {
        world.end_turn(process);
    }
    world.clients_read();
    for n in 1..=4 {
        assert_eq!(world.answer(conn, n)["type"], "message_end");
    }
    assert_eq!(ended_with(&world, "end_turn"), 4);
}

#[test]
fn paused_process_is_not_killed_for_its_silence() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"send","text":"x","agent":"one","session":"a","timeout":20}"#,
    );
    let process = only(&world);
    world.get_ready(process);
    world.prompt_store = false;
    let turn = world.processes[&process].turns[0];
    for n in 0..EVENTS_UNSTORED {
        let call = n.to_string();
        world.worker(
            process,
            WorkerEvent::ToolEnded {
                turn,
                call,
                ok: true,
                output: String::new(),
                sandbox: None,
                diff: Vec::new(),
            },
        );
    }
    assert!(world.processes[&process].paused);
    world.request(conn, 2, r#"{"type":"abort","job":"j1"}"#);
    for _ in 0..40 {
        world.pass(Duration::from_secs(1));
    }
    assert!(
        world.processes[&process].told_to_end.is_none(),
        "it can't be heard"
    );
    while !world.orders.is_empty() {
        world.store_answers();
    }
    assert!(!world.processes[&process].paused);
    world.prompt_store = true;
    world.end_turn(process);
    assert_eq!(world.answer(conn, 1)["stop"], "cancelled");
}

#[test]
fn store_that_is_behind_gets_no_new_work() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.prompt_store = false;
    for id in 1..=COMMITS_OUTSTANDING as u64 {
        world.request(conn, id, r#"{"type":"session.new"}"#);
    }
    assert_eq!(world.orders.len(), COMMITS_OUTSTANDING);
    let conn = world.connect();
    let refused = [
        r#"{"type":"send","text":"x"}"#,
        r#"{"type":"dispatch","jobs":[{"text":"x"}]}"#,
        r#"{"type":"session.new","session":"n"}"#,
    ];
    for (id, request) in (1..).zip(refused) {
        world.request(conn, id, request);
        let answer = world.answer(conn, id);
        assert_eq!(
            (&answer["code"], &answer["retryable"]),
            (&"queue-full".into(), &true.into()),
            "{request}"
        );
    }
    assert!(world.orders.len() <= COMMITS_OUTSTANDING);
    while !world.orders.is_empty() {
        world.store_answers();
    }
    world.prompt_store = true;
    world.request(conn, 9, r#"{"type":"session.new","session":"n"}"#);
    assert_eq!(world.answer(conn, 9)["ok"], true);
}

#[test]
fn store_that_gives_up_leaves_no_job_behind() {
    for refused in 2..=4 {
        let mut world = World::new(settings());
        let conn = world.connect();
        world.prompt_store = false;
        world.request(
            conn,
            1,
            r#"{"type":"send","text":"x","agent":"one","session":"a"}"#,
        );
        world.store_answers();
        // Its mark, a tool, its final line.
        let mut answered = 0;
        for _ in 0..20 {
            while !world.orders.is_empty() {
                answered += 1;
                if answered == refused {
                    let code = Code::StoreFailed;
                    let Some(StoreOrder::Commit(token, _)) = world.orders.pop_front() else {
                        unreachable!()
                    };
                    let stored = Stored::Failed {
                        code,
                        why: "broken".to_owned(),
                    };
                    world.event(Event::Stored { token, stored });
                } else {
                    world.store_answers();
                }
                world.check_known();
            }
            match world
                .processes
                .iter()
                .next()
                .map(|(id, process)| (*id, process))
            {
                Some((id, process)) if process.told_to_end.is_some() => {
                    world.exit(id, Exit::Signal(15));
                }
                Some((id, process)) if !process.ready => world.get_ready(id),
                Some((id, process)) if !process.turns.is_empty() => world.end_turn(id),
                _ => {}
            }
            world.pass(Duration::from_secs(1));
        }
        world.check_known();
        let stored = world.jobs.values().next().unwrap();
        assert!(stored.last.is_some(), "after {refused}: {stored:?}");
    }
}
