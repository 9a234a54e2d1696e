//! Turns start in the order in which they were accepted, however many wait, and an event costs no
//! more when many do.

use std::collections::BTreeSet;
use std::time::Duration;

use agentd_core::ids::{Generation, WorkerId};
use agentd_core::limits::{
    BACKOFF_MOST, BREAKER_EARLY_DEATHS, BREAKER_RETRY, SAYS_WITHIN, SPAWN_EVERY, SPAWNS_AT_ONCE,
};
use agentd_core::worker::{Exit, Traits, WorkerEvent};
use agentd_protocol::JobId;
use agentd_protocol::line::Telling;

use crate::agents::settings;
use crate::world::{Process, World};

/// Processes of the world.
const POOL: usize = 4;

/// Dispatches this many turns over sessions by turns, each an own request of 200 at most.
fn dispatch(world: &mut World, turns: usize, mut job: impl FnMut(usize) -> String) {
    let conn = world.connect();
    let numbers: Vec<usize> = (0..turns).collect();
    for (id, page) in (1..).zip(numbers.chunks(200)) {
        let jobs: Vec<String> = page.iter().map(|n| job(*n)).collect();
        let jobs = jobs.join(",");
        world.request(
            conn,
            id,
            &format!(r#"{{"type":"dispatch","jobs":[{jobs}]}}"#),
        );
        assert_eq!(
            world.answer(conn, id)["ok"],
            true,
            "{:?}",
            world.clients[&conn].lines
        );
    }
}

/// Each process does what it is to do next; then time passes.
pub fn step(world: &mut World) {
    step_of(world, SPAWN_EVERY);
}

/// The same, with so much time.
pub fn step_of(world: &mut World, time: Duration) {
    let processes: Vec<_> = world.processes.keys().copied().collect();
    for process in processes {
        match world.processes.get(&process) {
            Some(known) if known.told_to_end.is_some() => world.exit(process, Exit::Signal(15)),
            Some(known) if !known.ready => world.get_ready(process),
            Some(known) if known.turns.is_empty() => {
                world.worker(process, WorkerEvent::Recycled);
                world.worker(process, WorkerEvent::Ready(Traits::default()));
            }
            Some(_) => world.end_turn(process),
            None => {}
        }
    }
    world.pass(time);
}

/// How many younger turns of the same agent started before one of these, at most.
fn overtaken(world: &World) -> usize {
    let mut began = BTreeSet::new();
    let mut most = 0;
    for job in &world.began {
        most = most.max(began.range(job..).count());
        began.insert(*job);
    }
    most
}

/// Lets all turns run; says by how many younger ones one of them was overtaken at most.
fn run(turns: usize, job: impl FnMut(usize) -> String) -> usize {
    let mut world = World::new(settings());
    dispatch(&mut world, turns, job);
    let mut steps = 0;
    while world.began.len() < turns {
        step(&mut world);
        steps += 1;
        assert!(steps < turns * 20, "{} began", world.began.len());
    }
    overtaken(&world)
}

#[test]
fn fairness_one_session_processes_start_oldest_first() {
    // More sessions than processes, each with more turns than one.
    let most = run(497, |n| {
        format!(r#"{{"text":"x","agent":"one","session":"s{}"}}"#, n % 60)
    });
    assert!(most <= POOL, "{most} overtook");
}

#[test]
#[ignore = "heavy"]
fn fairness_ten_thousand_sends_start_oldest_first() {
    let unnamed = |_| r#"{"text":"x","agent":"one"}"#.to_owned();
    let most = run(10_000, unnamed);
    assert!(most <= POOL, "{most} overtook");
}

#[test]
fn fairness_process_per_turn_starts_oldest_first() {
    let most = run(500, |n| {
        format!(r#"{{"text":"x","agent":"turn","session":"s{}"}}"#, n % 60)
    });
    assert!(most <= POOL, "{most} overtook");
}

#[test]
fn fairness_new_send_waits_behind_those_held() {
    let mut world = World::new(settings());
    let turns = 2 * SPAWNS_AT_ONCE;
    dispatch(&mut world, turns, |_| {
        r#"{"text":"x","agent":"turn"}"#.to_owned()
    });
    let conn = world.connect();
    for id in 1..=40 {
        // Time goes on, and the send is the first to know.
        world.now.mono += Duration::from_millis(100);
        world.request(conn, id, r#"{"type":"send","text":"x","agent":"turn"}"#);
        let processes: Vec<_> = world.processes.keys().copied().collect();
        processes
            .into_iter()
            .for_each(|process| world.end_turn(process));
    }
    assert!(world.began.len() > SPAWNS_AT_ONCE);
    assert_eq!(overtaken(&world), 0);
}

#[test]
fn fairness_idle_process_goes_to_the_older_turn() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = |world: &mut World, id: u64, session: &str| {
        let send = format!(r#"{{"type":"send","text":"x","agent":"one","session":"{session}"}}"#);
        world.request(conn, id, &send);
    };
    for n in 1..=POOL {
        send(&mut world, n as u64, &format!("s{n}"));
    }
    let processes: Vec<_> = world.processes.keys().copied().collect();
    processes
        .iter()
        .for_each(|process| world.get_ready(*process));
    send(&mut world, 10, "older");
    for n in 1..=POOL {
        send(&mut world, 10 + n as u64, &format!("s{n}"));
    }
    world.end_turn(processes[0]);
    let ended = world.processes[&processes[0]].told_to_end;
    assert!(ended.is_some(), "its own session's turn is younger");
    world.exit(processes[0], Exit::Code(0));
    let started: Vec<_> = world.processes.keys().copied().collect();
    world.get_ready(*started.last().unwrap());
    assert_eq!(world.began.last(), Some(&JobId(POOL as u64 + 1)));
}

#[test]
fn fairness_ready_process_takes_turns_of_slow_starts() {
    let mut world = World::new(settings());
    let unnamed = |_| r#"{"text":"x","agent":"one"}"#.to_owned();
    dispatch(&mut world, 5 * POOL, unnamed);
    let starting: Vec<_> = world.processes.keys().copied().collect();
    assert_eq!(starting.len(), POOL);
    world.get_ready(starting[0]);
    for _ in 1..4 * POOL {
        world.end_turn(starting[0]);
        world.worker(starting[0], WorkerEvent::Recycled);
    }
    let jobs: Vec<JobId> = (1..).map(JobId).take(4 * POOL).collect();
    assert_eq!(
        world.began, jobs,
        "whoever waited for a start waits no longer"
    );
    world.get_ready(starting[1]);
    assert_eq!(world.began.len(), 4 * POOL + 1, "that process has use");
    assert_eq!(world.processes.len(), POOL, "no more are started");
}

/// Processes that come up now, the first one first.
fn starting(world: &World) -> Vec<(WorkerId, Generation)> {
    let known = world.processes.iter();
    known
        .filter(|(_, process)| !process.ready)
        .map(|(process, _)| *process)
        .collect()
}

#[test]
fn fairness_oldest_turn_takes_the_first_ready() {
    for agent in ["one", "many"] {
        let mut world = World::new(settings());
        dispatch(&mut world, POOL, |_| {
            format!(r#"{{"text":"x","agent":"{agent}"}}"#)
        });
        world.pass(SAYS_WITHIN);
        let coming = starting(&world);
        assert!(coming.len() > 1, "{agent}");
        world.get_ready(coming[1]);
        assert_eq!(world.began, [JobId(1)], "{agent}");
    }
}

#[test]
fn fairness_idle_process_precedes_one_that_restarts() {
    let mut world = World::new(settings());
    let session = |n: usize| format!(r#"{{"text":"x","agent":"many","session":"s{n}"}}"#);
    dispatch(&mut world, 2, session);
    let first = starting(&world)[0];
    world.get_ready(first);
    let second = starting(&world)[0];
    world.get_ready(second);
    world.end_turn(first);
    world.end_turn(second);
    world.exit(first, Exit::Signal(9));
    dispatch(&mut world, 1, |_| {
        r#"{"text":"x","agent":"many"}"#.to_owned()
    });
    assert_eq!(world.began.len(), 3);
}

#[test]
fn fairness_shared_processes_start_beside_each_other() {
    for (says, one_session, started) in [
        (1, false, POOL),
        (2, false, POOL / 2),
        (64, false, 1),
        (64, true, POOL),
    ] {
        let says = Traits {
            concurrent_sends: Some(says),
            one_session: Some(one_session),
            ..Traits::default()
        };
        let mut world = World::new(settings());
        let unnamed = |_| r#"{"text":"x","agent":"many"}"#.to_owned();
        dispatch(&mut world, POOL, unnamed);
        assert_eq!(world.processes.len(), 1, "what it says is waited for");
        world.get_ready_as(starting(&world)[0], says.clone());
        assert_eq!(world.processes.len(), started, "{says:?}");
        for process in starting(&world) {
            world.get_ready_as(process, says.clone());
        }
        assert_eq!(world.began.len(), POOL);
        for process in world.processes.keys().copied().collect::<Vec<_>>() {
            world.exit(process, Exit::Signal(9));
        }
        world.began.clear();
        dispatch(&mut world, POOL, unnamed);
        assert_eq!(starting(&world).len(), started, "it is known now");
    }
}

#[test]
fn fairness_hanging_first_start_holds_up_nobody() {
    let mut world = World::new(settings());
    dispatch(&mut world, 3, |_| {
        r#"{"text":"x","agent":"many"}"#.to_owned()
    });
    world.pass(SAYS_WITHIN);
    let [_hangs, second] = starting(&world)[..] else {
        panic!("{:?}", world.processes)
    };
    world.pass(SAYS_WITHIN);
    assert_eq!(world.processes.len(), 2, "more would hang as well");
    world.get_ready(second);
    for _ in 0..3 {
        world.end_turn(second);
    }
    assert_eq!(world.began.len(), 3);
}

#[test]
fn fairness_aborted_turns_leave_their_processes() {
    for agent in ["one", "many"] {
        let mut world = World::new(settings());
        let unnamed = |_| format!(r#"{{"text":"x","agent":"{agent}"}}"#);
        dispatch(&mut world, POOL, unnamed);
        world.pass(SAYS_WITHIN);
        let conn = world.connect();
        for job in 1..=POOL {
            let abort = format!(r#"{{"type":"abort","job":"j{job}"}}"#);
            world.request(conn, job as u64, &abort);
        }
        dispatch(&mut world, 1, unnamed);
        world.get_ready(starting(&world)[0]);
        assert_eq!(world.began.len(), 1, "{agent}");
    }
}

#[test]
fn fairness_idle_process_of_another_agent_makes_way() {
    let mut world = World::new(settings());
    dispatch(&mut world, 1, |_| {
        r#"{"text":"x","agent":"many"}"#.to_owned()
    });
    let busy = starting(&world)[0];
    world.get_ready(busy);
    dispatch(&mut world, POOL - 1, |n| {
        format!(r#"{{"text":"x","agent":"one","session":"x{n}"}}"#)
    });
    for process in starting(&world) {
        world.get_ready(process);
        world.end_turn(process);
    }
    dispatch(&mut world, 1, |_| {
        r#"{"text":"x","agent":"many"}"#.to_owned()
    });
    let told = |(process, known): (&(WorkerId, Generation), &Process)| {
        known.told_to_end.is_some().then_some(*process)
    };
    let makes_way = world.processes.iter().find_map(told).unwrap();
    world.exit(makes_way, Exit::Code(0));
    let started = starting(&world)[0];
    world.get_ready(started);
    assert_eq!(world.began.len(), POOL + 1, "beside the one that is busy");
}

/// What a process says that works where each turn says, or not.
fn anywhere(cwd_per_turn: bool, concurrent_sends: u32) -> Traits {
    Traits {
        cwd_per_turn,
        concurrent_sends: Some(concurrent_sends),
        ..Traits::default()
    }
}

#[test]
fn fairness_exact_fit_is_behind_nobody() {
    let mut world = World::new(settings());
    let send = |world: &mut World, cwd: &str| {
        let job = format!(r#"{{"text":"x","agent":"many","cwd":"{cwd}"}}"#);
        dispatch(world, 1, |_| job.clone());
    };
    send(&mut world, "/a");
    let here = starting(&world)[0];
    world.get_ready_as(here, anywhere(false, 1));
    send(&mut world, "/b");
    world.get_ready_as(starting(&world)[0], anywhere(true, 1));
    // What the second one will take waits for it: no third comes up.
    send(&mut world, "/c");
    for _ in 0..BREAKER_EARLY_DEATHS {
        world.exit(starting(&world)[0], Exit::Code(1));
        world.pass(BACKOFF_MOST);
    }
    assert_eq!(starting(&world), []);
    send(&mut world, "/a");
    world.end_turn(here);
    assert_eq!(world.began.last(), Some(&JobId(4)));
}

#[test]
fn fairness_process_for_any_directory_is_used() {
    let mut world = World::new(settings());
    let send = |world: &mut World, agent: &str, cwd: &str| {
        let job = format!(r#"{{"text":"x","agent":"{agent}","cwd":"{cwd}"}}"#);
        dispatch(world, 1, |_| job.clone());
    };
    send(&mut world, "many", "/a");
    let any = starting(&world)[0];
    world.get_ready_as(any, anywhere(true, 2));
    send(&mut world, "many", "/b");
    send(&mut world, "many", "/c");
    world.get_ready_as(starting(&world)[0], anywhere(false, 2));
    for n in 2..POOL {
        send(&mut world, "one", &format!("/{n}"));
        world.get_ready(starting(&world)[0]);
    }
    assert_eq!(world.began.len(), POOL + 1);
    send(&mut world, "one", "/x");
    world.end_turn(any);
    send(&mut world, "many", "/y");
    assert_eq!(world.began.last(), Some(&JobId(POOL as u64 + 3)));
}

#[test]
fn fairness_busy_shared_processes_make_way() {
    let mut world = World::new(settings());
    let shared = |_| r#"{"text":"x","agent":"many"}"#.to_owned();
    dispatch(&mut world, 2 * POOL, shared);
    while let [next, ..] = starting(&world)[..] {
        world.get_ready_as(next, anywhere(true, 2));
    }
    // One of them has a turn that goes on for ever.
    let stays = *world.processes.keys().next().unwrap();
    assert_eq!(world.began.len(), 2 * POOL);
    dispatch(&mut world, 1, |_| {
        r#"{"text":"x","agent":"one"}"#.to_owned()
    });
    let waits = JobId(2 * POOL as u64 + 1);
    dispatch(&mut world, 4 * POOL, shared);
    let second = Duration::from_secs(1);
    for seconds in 0.. {
        assert!(seconds < 60, "it starves");
        for process in world.processes.keys().copied().collect::<Vec<_>>() {
            let known = &world.processes[&process];
            if known.told_to_end.is_some() {
                world.exit(process, Exit::Code(0));
            } else if !known.ready {
                world.get_ready_as(process, Traits::default());
            } else if process != stays {
                // Never both at once.
                world.end_turn(process);
                dispatch(&mut world, 1, shared);
            }
        }
        if world.began.contains(&waits) {
            break;
        }
        world.pass(second);
    }
    assert!(world.processes.contains_key(&stays));
}

/// So many jobs ended, all of them well.
fn all_ended_well(world: &World, jobs: usize) {
    let last = world.jobs.values().filter_map(|job| job.last.as_ref());
    let ends: Vec<String> = last
        .map(|(_, body)| body.render(None, None, Telling::First))
        .collect();
    let well = |end: &&String| end.contains(r#""type":"message_end""#);
    assert_eq!(ends.iter().filter(well).count(), jobs, "{ends:?}");
}

#[test]
fn further_processes_that_fail_end_no_turn() {
    for (hangs, agent) in [(false, "many"), (true, "many"), (false, "one")] {
        let mut world = World::new(settings());
        let turns = 20;
        dispatch(&mut world, turns, |_| {
            format!(r#"{{"text":"x","agent":"{agent}"}}"#)
        });
        let lives = starting(&world)[0];
        world.get_ready(lives);
        let mut tries = 0;
        for _ in 0..turns * 2 {
            for process in starting(&world) {
                match world.processes[&process].told_to_end {
                    None if hangs => continue,
                    None => world.exit(process, Exit::Code(1)),
                    Some(_) => world.exit(process, Exit::Signal(9)),
                }
                tries += 1;
            }
            world.end_turn(lives);
            world.worker(lives, WorkerEvent::Recycled);
            // A start that hangs is ended after 30 s.
            world.pass(Duration::from_secs(2));
        }
        assert_eq!(world.began.len(), turns, "{agent}");
        all_ended_well(&world, turns);
        assert!((1..10).contains(&tries), "{agent}: tried {tries} times");
    }
}

/// A program that allows one instance: a second one leaves at once, with this code. The first one
/// takes so many rounds to leave.
fn alone(code: i32, leaves: usize, turns: usize, job: impl FnMut(usize) -> String) -> World {
    let mut world = World::new(settings());
    dispatch(&mut world, turns, job);
    let mut left = 0;
    for _ in 0..turns * 20 {
        let mut others = 0;
        for process in world.processes.keys().copied().collect::<Vec<_>>() {
            let known = &world.processes[&process];
            if known.agent != "many" {
                match known.ready {
                    _ if known.told_to_end.is_some() => world.exit(process, Exit::Code(0)),
                    true => world.end_turn(process),
                    false => world.get_ready(process),
                }
            } else if !known.ready && others > 0 {
                world.exit(process, Exit::Code(code));
            } else if known.told_to_end.is_some() {
                left += 1;
                if left % leaves == 0 {
                    world.exit(process, Exit::Code(0));
                }
                others += 1;
            } else {
                others += 1;
                match known.ready {
                    true => world.end_turn(process),
                    false => world.get_ready(process),
                }
            }
        }
        world.pass(Duration::from_millis(500));
    }
    world
}

#[test]
fn further_process_beside_one_that_leaves_waits() {
    for code in [1, 78] {
        // Others make it leave again and again.
        let world = alone(code, 6, 40, |n| match n % 5 {
            0 => r#"{"text":"x","agent":"many"}"#.to_owned(),
            _ => format!(r#"{{"text":"x","agent":"one","session":"x{n}"}}"#),
        });
        all_ended_well(&world, 40);
    }
}

#[test]
fn further_process_for_another_directory_waits() {
    for code in [1, 78] {
        let world = alone(code, 3, 20, |n| {
            format!(r#"{{"text":"x","agent":"many","cwd":"/{}"}}"#, n % 3)
        });
        all_ended_well(&world, 20);
    }
}

#[test]
fn further_process_is_tried_again_later() {
    let mut world = World::new(settings());
    let unnamed = |_| r#"{"text":"x","agent":"many"}"#.to_owned();
    dispatch(&mut world, 2, unnamed);
    world.get_ready(starting(&world)[0]);
    for _ in 0..BREAKER_EARLY_DEATHS {
        world.exit(starting(&world)[0], Exit::Code(1));
        world.pass(BACKOFF_MOST);
    }
    assert_eq!(starting(&world), []);
    world.pass(BREAKER_RETRY);
    world.get_ready(starting(&world)[0]);
    assert_eq!(world.began.len(), 2);
    dispatch(&mut world, 1, unnamed);
    assert_eq!(starting(&world).len(), 1, "nothing is held against it");
}

#[test]
fn failed_starts_between_good_ones_break_nothing() {
    let mut world = World::new(settings());
    let turns = 4 * BREAKER_EARLY_DEATHS;
    dispatch(&mut world, turns, |n| {
        format!(r#"{{"text":"x","agent":"many","cwd":"/{n}"}}"#)
    });
    let mut starts = 0;
    for _ in 0..turns * 20 {
        for process in world.processes.keys().copied().collect::<Vec<_>>() {
            let known = &world.processes[&process];
            if known.told_to_end.is_some() {
                world.exit(process, Exit::Code(0));
            } else if !known.ready {
                starts += 1;
                match starts % 3 {
                    0 => world.exit(process, Exit::Code(1)),
                    _ => world.get_ready(process),
                }
            } else {
                world.end_turn(process);
            }
        }
        world.pass(Duration::from_secs(1));
    }
    all_ended_well(&world, turns);
}

/// Turns looked at per event while so many wait, at most, over events of every kind.
fn looks(waiting: usize, job: impl FnMut(usize) -> String) -> u64 {
    let mut world = World::new(settings());
    dispatch(&mut world, waiting, job);
    let mut most = 0;
    for _ in 0..60 {
        let (looked, events) = (world.state.looked(), world.events);
        step(&mut world);
        let events = world.events - events;
        most = most.max((world.state.looked() - looked).div_ceil(events));
    }
    most
}

#[test]
#[ignore = "heavy"]
fn scheduler_event_cost_is_independent_of_waiting() {
    for agent in ["one", "turn", "many", "keeps"] {
        for named in [false, true] {
            let job = |n: usize| match named {
                true => format!(r#"{{"text":"x","agent":"{agent}","session":"{agent}{n}"}}"#),
                // Each in a directory of its own: no process fits two of them.
                false => format!(r#"{{"text":"x","agent":"{agent}","cwd":"/{n}"}}"#),
            };
            let (few, many) = (looks(100, job), looks(1_000, job));
            assert!(few > 0 && many <= few + 1, "{agent} {named}: {few}, {many}");
            assert!(many <= 4 * POOL as u64, "{agent} {named}: {many}");
        }
    }
}
