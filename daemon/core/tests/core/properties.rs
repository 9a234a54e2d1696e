//! Random sequences of everything that can happen; the world checks the invariants.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentd_core::event::Fault;
use agentd_core::ids::ConnId;
use agentd_core::store::Stored;
use agentd_core::worker::{
    Exit, Failure, ModelList, Outcome, QuestionKind, Steering, Traits, WorkerEvent,
};
use agentd_core::{Event, Settings, ids};
use agentd_protocol::request::Subscribe;
use agentd_protocol::{Code, JobId, serde_json};
use proptest::prelude::*;

use crate::agents::{exec_form, settings, with_spares};
use crate::questions::asking;
use crate::world::World;
use crate::{config, spare};

/// Steps per run; with the number of runs below, more than 100,000 in all.
const STEPS: usize = 400;
/// Kinds of steps.
const KINDS: u32 = 288;
/// Those that readers of many lines see: others would end most connections and turns.
const OF_READERS: [u32; 16] = [
    0, 10, 14, 14, 100, 100, 100, 166, 186, 206, 243, 256, 256, 264, 270, 276,
];

/// Cases of this run that held, and the events that were applied in them.
static HELD: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// One more case held. How many events all of them were is printed for every thousand cases.
#[expect(clippy::print_stdout, reason = "for whoever runs many cases")]
fn held(worlds: &[&World]) {
    let events = worlds.iter().map(|world| world.events).sum::<u64>();
    let events = HELD[1].fetch_add(events, Ordering::Relaxed) + events;
    let cases = HELD[0].fetch_add(1, Ordering::Relaxed) + 1;
    if cases.is_multiple_of(1000) {
        println!("{cases} cases with {events} events");
    }
}

/// A model that a send asks for, or none; its label says so to the store.
fn pin(choice: u32) -> String {
    match choice % 8 {
        pin @ 0..=1 => format!(r#""model":"pin-{pin}","labels":{{"pin":"pin-{pin}"}},"#),
        _ => String::new(),
    }
}

fn about_sessions(world: &mut World, conn: ConnId, id: u64, choice: u32) {
    let agent = ["many", "one", "turn"][(choice >> 4) as usize % 3];
    let session = format!("{agent}{}", (choice >> 8) % 3);
    // Up to 100 s from now, or past.
    let start = 990 + world.now.wall_ms / 1000 - 1000 + i64::from((choice >> 12) % 100);
    let start = format!("1970-01-01T00:{:02}:{:02}Z", start / 60 % 60, start % 60);
    let line = match choice % 9 {
        0 => r#"{"type":"status"}"#.to_owned(),
        1 => format!(r#"{{"type":"session.close","session":"{session}"}}"#),
        2 => format!(r#"{{"type":"session.resume","session":"{session}"}}"#),
        3 => format!(r#"{{"type":"session.new","session":"{session}","agent":"{agent}"}}"#),
        4 => format!(
            r#"{{"type":"send","text":"x","agent":"{agent}","start_at":"{start}","after_failure":"run"}}"#
        ),
        6 => {
            // One of another name, or one that is there.
            let to = format!("{agent}{}", (choice >> 10) % 4);
            format!(r#"{{"type":"session.rename","session":"{session}","to":"{to}"}}"#)
        }
        5 => format!(
            r#"{{"type":"dispatch","jobs":[{{"text":"x","session":"{session}","agent":"{agent}"}},{{"text":"x","session":"many0","start_at":"{start}"}}]}}"#
        ),
        7 => format!(
            r#"{{"type":"set_model","session":"{session}","model":"pin-{}"}}"#,
            choice >> 12 & 1
        ),
        _ => format!(
            r#"{{"type":"dispatch","jobs":[{{"text":"x","idempotency_key":"k{}"}},{{{}"text":"x","session":"{session}"}},{{"text":"x","session":"{session}"}}]}}"#,
            choice >> 20 & 7,
            pin(choice >> 12)
        ),
    };
    world.request(conn, id, &line);
}

#[expect(
    clippy::too_many_lines,
    reason = "a table of everything that can happen"
)]
fn step(world: &mut World, kind: u32, choice: u32, id: &mut u64) {
    let pick = |n: usize| (choice >> 8) as usize % n.max(1);
    let conns: Vec<_> = world
        .clients
        .iter()
        .filter(|(_, client)| !client.closed)
        .map(|(conn, _)| *conn)
        .collect();
    let conn = conns.get(pick(conns.len())).copied();
    let processes: Vec<_> = world.processes.keys().copied().collect();
    let process = processes.get(pick(processes.len())).copied();
    *id += 1;
    match (kind, conn, process) {
        (0..=9, _, _) if conns.len() < 6 => {
            world.connect();
        }
        (10..=13, Some(conn), _) => world.disconnect(conn),
        (14..=79, Some(conn), _) => {
            let ask = if choice & 0x200_0000 == 0 {
                ""
            } else {
                r#""on_question":"wait","#
            };
            let agents = ["many", "one", "turn", "keeps"];
            let agent = agents[pick(4)];
            let session = if choice & 0x1000 == 0 {
                format!(r#""session":"{agent}{}","#, (choice >> 14) % 3)
            } else {
                String::new()
            };
            let key = if choice & 0x8_0000 == 0 {
                String::new()
            } else {
                format!(r#""idempotency_key":"k{}","#, (choice >> 20) % 8)
            };
            let cwd = match (choice >> 26) & 3 {
                at @ 1..=2 if session.is_empty() && key.is_empty() => format!(r#""cwd":"/{at}","#),
                _ => String::new(),
            };
            let retry = if choice & 0x40_0000 == 0 {
                ""
            } else {
                r#""retry":"auto","#
            };
            // Always the same with the same key.
            let callback = if choice & 0x10_0000 == 0 {
                ""
            } else {
                r#""callback":{"url":"https://a.example/"},"#
            };
            let pin = pin(choice >> 28);
            let own = if choice & 0x100_0000 == 0 { *id } else { 0 };
            if own == 0 && world.clients[&conn].open.iter().any(|open| open == "-") {
                return;
            }
            world.request(
                conn,
                own,
                &format!(
                    r#"{{{session}{key}{cwd}{retry}{ask}{callback}{pin}"agent":"{agent}","type":"send","text":"x"}}"#
                ),
            );
        }
        (80..=87, Some(conn), _) => {
            let target = match (choice >> 12) % 3 {
                0 => r#","session":"many0","queued":true"#.to_owned(),
                1 => format!(r#","job":"j{}""#, (choice >> 16) % 20 + 1),
                _ => String::new(),
            };
            world.request(conn, *id, &format!(r#"{{"type":"abort"{target}}}"#));
        }
        (88..=91, Some(conn), _) => world.request(
            conn,
            *id,
            &format!(
                r#"{{"type":"collect","jobs":["j{}"],"timeout":5}}"#,
                pick(30) + 1
            ),
        ),
        (92..=93, Some(conn), _) => world.request(conn, *id, r#"{"type":"subscribe"}"#),
        (94, Some(conn), _) => {
            world.request(conn, *id, r#"{"type":"restart_worker","agent":"many"}"#)
        }
        (95, Some(conn), _) => world.request(
            conn,
            *id,
            r#"{"type":"restart_worker","agent":"one","now":true}"#,
        ),
        (96..=97, Some(conn), _) => about_sessions(world, conn, *id, choice >> 8),
        (98..=99, Some(conn), _) => world.request(conn, *id, r#"{"type":"unsubscribe"}"#),
        (100..=103, _, _) => talk(world, choice, *id, conn, process),
        (104..=115, _, _) => world.store_reads(),
        (116..=123, _, _) => world.store_has_read(),
        (124..=159, _, _) => world.store_answers(),
        (160..=163, _, _) => world.store_refuses(Stored::Failed {
            code: Code::DiskFull,
            why: "full".to_owned(),
        }),
        (164..=165, _, _) => world.store_refuses(Stored::Leased {
            item: 0,
            instance: "x".to_owned(),
            pid: 9,
        }),
        (254, _, _) => {
            world.reordered = true;
            world.store_refuses(Stored::Orphaned {
                instance: "dead".to_owned(),
            });
        }
        (255, _, _) if choice & 0x300 == 0 => world.store_gives_up(),
        (255, _, _) => world.recovers(),
        (166..=185, _, Some(process)) => {
            let resumes = Some(choice & 0x3000 != 0);
            let agent = &world.processes[&process].agent;
            let bit = |n: u32| (choice >> n) & 1 == 1;
            let shared = agent == "many" || agent == "keeps";
            let traits = Traits {
                resumes: resumes.filter(|_| agent == "keeps"),
                cwd_per_turn: shared && bit(14),
                concurrent_sends: Some(1 + u32::from(bit(15))).filter(|_| shared),
                one_session: Some(bit(16) && bit(17)).filter(|_| agent == "many"),
                ..Traits::default()
            };
            world.get_ready_as(process, traits);
        }
        (186..=205, _, Some(process)) => world.end_turn(process),
        (206..=215, _, Some(process)) => {
            if let Some(turn) = world.processes[&process].turns.first().copied() {
                match pick(6) {
                    4 => {
                        let native = format!("{}#{}", world.turns[&turn], choice >> 28);
                        world.worker(process, WorkerEvent::SessionOfTurn { turn, native });
                    }
                    5 => {
                        world.processes.get_mut(&process).unwrap().turns.remove(0);
                        let failure = Failure::new(Code::ContextLost, "gone");
                        let outcome = Box::new(Outcome::failed(failure));
                        world.worker(process, WorkerEvent::Ended { turn, outcome });
                    }
                    0 => world.worker(
                        process,
                        WorkerEvent::Text {
                            turn,
                            text: "wörd ".to_owned(),
                            native: true,
                        },
                    ),
                    1 => world.worker(
                        process,
                        WorkerEvent::ToolStarted {
                            turn,
                            call: "c".to_owned(),
                            name: "t".to_owned(),
                            input: "{}".to_owned(),
                            read_only: false,
                            about: Default::default(),
                        },
                    ),
                    2 => world.worker(
                        process,
                        WorkerEvent::ToolEnded {
                            turn,
                            call: "c".to_owned(),
                            ok: true,
                            output: "o".to_owned(),
                            sandbox: None,
                            diff: Vec::new(),
                        },
                    ),
                    _ => world.worker(
                        process,
                        WorkerEvent::SessionNamed {
                            native: "/s".to_owned(),
                        },
                    ),
                }
            }
        }
        (216..=219, _, Some(process)) => {
            // A steer for a turn that isn't its own.
            let turn = ids::TurnId(u64::from(choice >> 10) % 60);
            let foreign = !world.processes[&process].turns.contains(&turn);
            if foreign {
                world.worker(
                    process,
                    WorkerEvent::Text {
                        turn,
                        text: "lie".to_owned(),
                        native: true,
                    },
                );
            }
        }
        (220..=226, _, Some(process)) => world.exit(
            process,
            if pick(3) == 0 {
                Exit::Code(78)
            } else {
                Exit::Signal(9)
            },
        ),
        (227..=229, _, Some((worker, generation)))
            if !world.processes[&(worker, generation)].ready =>
        {
            let faults = [
                Fault::Agent,
                Fault::Missing,
                Fault::Short,
                Fault::Machine,
                Fault::Directory,
                Fault::Arguments,
            ];
            world.spawn_fails((worker, generation), faults[pick(6)]);
        }
        (230..=239, _, _) => world.pass(Duration::from_millis(u64::from(choice >> 8) % 3_000)),
        (240..=241, _, _) => world.pass(Duration::from_secs(40)),
        (242, _, _) => world.pass(Duration::from_secs(700)),
        (243..=245, Some(conn), _) => about_sessions(world, conn, *id, choice >> 8),
        (246..=249, _, _) => world.clients_read(),
        (250, _, Some((worker, generation))) => world.event(Event::WorkerStuck {
            worker,
            generation,
            why: "it takes no input".to_owned(),
        }),
        (251..=252, _, _) => world.crash(world.settings.clone()),
        (253, _, Some(process)) => world.worker(process, WorkerEvent::Recycled),
        (256..=263, Some(conn), _) => subscribe(world, conn, *id, choice >> 8),
        (264..=269, _, _) => world.neighbour_steps(choice as usize >> 8),
        (270..=275, _, Some(process)) => speak(world, process, choice >> 8),
        (276..=283, Some(conn), _) => world.client_reads(conn),
        (284, _, _) => world.event(Event::FormReplaced {
            agent: ["many", "one", "keeps"][pick(3)].to_owned(),
            form: Box::new(exec_form()),
        }),
        (285..=286, _, _) => spare::see_machine(world, choice >> 8),
        (287, _, _) => config::configure(world, choice >> 8),
        _ => {}
    }
}

/// Somebody goes on where a reader left off whose connection went, or begins at the beginning.
fn subscribe(world: &mut World, conn: ConnId, id: u64, choice: u32) {
    let cursors = world.cursors.len();
    let kept = (choice as usize).checked_rem(cursors * 4 / 3);
    let (session, jobs, after) = if let Some(at) = kept.filter(|at| *at < cursors) {
        let cursor = world.cursors.swap_remove(at);
        let jobs: Option<Vec<JobId>> = cursor.filter.jobs.map(|jobs| jobs.into_iter().collect());
        (cursor.filter.session, jobs, Some(cursor.after))
    } else {
        let session = match choice % 5 {
            0 => Some("many0".to_owned()),
            1 => Some("beside0".to_owned()),
            _ => None,
        };
        let jobs =
            (session.is_none() && choice.is_multiple_of(7)).then(|| (1..=9).map(JobId).collect());
        (session, jobs, (!choice.is_multiple_of(3)).then_some(0))
    };
    let fields = Subscribe {
        sessions: jobs.is_none() && choice.is_multiple_of(5),
        session,
        jobs,
        after,
        epoch: Some("e".to_owned()),
    };
    let fields = serde_json::to_string(&fields).unwrap();
    world.request(
        conn,
        id,
        &fields.replacen('{', r#"{"type":"subscribe","#, 1),
    );
}

/// A worker says much, thinks, or begins anew.
fn speak(world: &mut World, process: (ids::WorkerId, ids::Generation), choice: u32) {
    let Some(turn) = world.processes[&process].turns.first().copied() else {
        return;
    };
    let event = match choice % 4 {
        0 => WorkerEvent::Thinking {
            turn,
            text: "hmm ".to_owned(),
        },
        1 => WorkerEvent::MessageStarted {
            turn,
            replaces_last: choice & 8 == 0,
        },
        _ => WorkerEvent::Text {
            turn,
            text: "öx".repeat(40_000),
            native: true,
        },
    };
    world.worker(process, event);
}

/// Questions, answers, steers and the rest of what is said beside turns.
fn talk(
    world: &mut World,
    choice: u32,
    id: u64,
    conn: Option<ConnId>,
    process: Option<(ids::WorkerId, ids::Generation)>,
) {
    let (what, pick) = ((choice >> 8) % 12, choice >> 12);
    let job = pick % 20 + 1;
    let line = match (what, process) {
        (0..=2, Some(process)) => {
            let kinds = [
                QuestionKind::Approval,
                QuestionKind::Choice,
                QuestionKind::Text,
            ];
            let turn = world.processes[&process].turns.first().copied();
            let mut asking = asking(kinds[pick as usize % 3]);
            asking.question = format!("w{pick}");
            return world.worker(process, WorkerEvent::Asked { turn, asking });
        }
        (3, Some(process)) => {
            let question = format!("w{pick}");
            let asked = world.processes[&process].heard.first();
            let question = asked.map_or(question, |(question, _)| question.clone());
            return world.worker(process, WorkerEvent::Withdrew { question });
        }
        (4, Some(process)) => {
            let Some((steer, _)) = world.processes.get_mut(&process).unwrap().steers.pop() else {
                return;
            };
            let steering = [Steering::Taken, Steering::TooLate][pick as usize % 2].clone();
            return world.worker(process, WorkerEvent::Steered { steer, steering });
        }
        (5, Some(process)) => {
            if world
                .processes
                .get_mut(&process)
                .unwrap()
                .compacting
                .take()
                .is_some()
            {
                let result = Ok(None);
                world.worker(process, WorkerEvent::Compacted { result });
            }
            let listing = world.processes.get_mut(&process);
            if let Some((number, _)) = listing.and_then(|known| known.listings.pop()) {
                let result = Ok(ModelList::default());
                world.worker(process, WorkerEvent::Models { number, result });
            }
            return;
        }
        (6, Some(process)) => return world.worker(process, WorkerEvent::Spoilt { why: "a steer" }),
        (7 | 8, _) => {
            let given = [
                r#""approve":true"#,
                r#""choice":"left""#,
                r#""text":"x""#,
                r#""cancel":true"#,
            ];
            let given = given[pick as usize % 4];
            let number = (pick >> 4) % 3 + 1;
            format!(r#"{{"type":"answer","question_id":"j{job}-q{number}",{given}}}"#)
        }
        (9, _) => match pick % 3 {
            0 => r#"{"type":"steer","text":"x"}"#.to_owned(),
            1 => r#"{"type":"steer","session":"many0","text":"x"}"#.to_owned(),
            _ => format!(r#"{{"type":"steer","job":"j{job}","text":"x"}}"#),
        },
        (10, _) => match pick % 3 {
            0 => r#"{"type":"hello","answers":true}"#.to_owned(),
            1 => r#"{"type":"compact"}"#.to_owned(),
            _ => r#"{"type":"compact","session":"one0"}"#.to_owned(),
        },
        _ => match pick % 5 {
            0 => r#"{"type":"questions"}"#.to_owned(),
            3 => r#"{"type":"models","session":"one0"}"#.to_owned(),
            4 => r#"{"type":"models","agent":"keeps"}"#.to_owned(),
            1 => r#"{"type":"set_model","session":"one0","model":"m"}"#.to_owned(),
            _ => r#"{"type":"set_model","session":"one1","model":"n"}"#.to_owned(),
        },
    };
    if let Some(conn) = conn {
        world.request(conn, id, &line);
    }
}

/// A world in which all of these happened, and whatever began has ended.
pub fn settled(choices: impl IntoIterator<Item = u32>) -> World {
    settled_with(settings(), choices)
}

/// As `settled`, with other settings.
pub fn settled_with(settings: Settings, choices: impl IntoIterator<Item = u32>) -> World {
    let mut world = World::new(settings);
    world.portion = 50_000;
    world.prompt_store = false;
    let mut id = 0;
    for choice in choices {
        step(&mut world, choice % KINDS, choice, &mut id);
        world.check_known();
    }
    world.settle();
    world.check_known();
    world
}

/// A world in which all of these happened, and whatever was to be stored was at once.
pub fn stored_at_once(choices: &[u32]) -> World {
    let mut world = World::new(settings());
    world.portion = 50_000;
    let mut id = 0;
    for choice in choices {
        step(&mut world, choice % KINDS, *choice, &mut id);
    }
    world
}

/// Every night there are fifty times as many histories, as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let all = ProptestConfig::default();
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => all.cases,
        None => 100,
    };
    ProptestConfig {
        cases,
        max_shrink_iters: 3_000,
        max_shrink_time: 20_000,
        failure_persistence: None,
        ..all
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_every_accepted_job_ends_exactly_once(choices in proptest::collection::vec(any::<u32>(), STEPS)) {
        let world = settled(choices);
        world.check_watches();
        // No question outlives its turn, and none is closed twice or without having been asked.
        for (job, stored) in world.jobs.iter().filter(|_| !world.gave_up) {
            let lines = stored.events.iter().map(|(_, body)| shown_question(body.as_json()));
            let mut open = std::collections::BTreeSet::new();
            for (kind, question) in lines.flatten() {
                let fine = if kind == "question" { open.insert(question) } else { open.remove(&question) };
                prop_assert!(fine, "{job}: {kind}");
            }
            prop_assert!(open.is_empty(), "{job} ended with {open:?} open");
        }
        // Whoever is still there and sent something has its answer; only a cut-off one has none.
        for (conn, client) in &world.clients {
            prop_assert!(client.closed || client.open.is_empty(), "{conn:?} waits for {:?}: {:#?} {:#?}", client.open, client.asked, world.told_to(*conn));
        }
        held(&[&world]);
    }

    #[test]
    #[ignore = "heavy"]
    fn spares_keep_no_job_from_its_end(choices in proptest::collection::vec(any::<u32>(), STEPS)) {
        let world = settled_with(with_spares(), choices);
        held(&[&world]);
    }

    #[test]
    fn readers_that_come_and_go_miss_nothing(choices in proptest::collection::vec(any::<u32>(), STEPS)) {
        let mut world = World::new(settings());
        world.portion = 50_000;
        world.prompt_store = false;
        let mut id = 0;
        for choice in choices {
            // A crash is rare: what is in flight is to become much.
            let kind = if choice >> 26 == 0 { 251 } else { OF_READERS[(choice & 15) as usize] };
            step(&mut world, kind, choice, &mut id);
        }
        world.settle();
        world.check_watches();
        held(&[&world]);
    }

    #[test]
    #[ignore = "heavy"]
    fn the_same_events_give_the_same_state(choices in proptest::collection::vec(any::<u32>(), 100)) {
        let (one, two) = (stored_at_once(&choices), stored_at_once(&choices));
        prop_assert!(one.state == two.state);
        held(&[&one, &two]);
    }
}

/// Is it a line about a question? Its type, and which.
fn shown_question(line: &str) -> Option<(String, String)> {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let question = line["question_id"].as_str()?.to_owned();
    Some((line["type"].as_str()?.to_owned(), question))
}
