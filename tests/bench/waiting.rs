//! What turns that wait cost: memory, a start with them, and the order in which they start.
//!
//! Owns the turns that wait and who runs them. Must not know how they are kept.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::idle::memory_of;
use crate::place::{Client, Place, Server, ms};
use crate::report::{Figure, Limit};

const MANY: usize = 100_000;
const FEW: usize = 10_000;
const KIB: usize = 1024;
/// Turns of one `dispatch`, and of one session: about as many as may be.
const TOGETHER: usize = 250;
/// Long ones, and how long each is.
const LONG: (usize, usize) = (400, 1_000_000);
/// Long ones in one line, which has a limit.
const LONG_TOGETHER: usize = 10;
/// A daemon gives memory back when nobody has let go of any for a second.
const SETTLED: Duration = Duration::from_secs(4);
/// Sends whose order is looked at, and those of one connection.
const SENDS: usize = IN_FLIGHT * 157;
const IN_FLIGHT: usize = 64;
/// Processes that a daemon has at most.
const POOL: f64 = 16.0;

/// Whose process never gets ready, so that turns wait.
const NEVER: &str = "[agents.never]\nkind = \"jsonl\"\ncommand = [\"/bin/sleep\", \"600\"]\n";

/// Which session a turn is of.
#[derive(Clone, Copy)]
enum Sessions {
    /// One for as many as go together.
    Shared,
    /// One of its own.
    Own,
}

fn place() -> Place {
    let place = Place::new();
    place.configure(NEVER);
    place
}

/// Hands in so many turns of so many bytes, `together` in one line.
fn hand_in(place: &Place, agent: &str, turns: usize, bytes: usize, together: usize, of: Sessions) {
    let mut client = Client::kept(&place.socket());
    for batch in 0..turns / together {
        let mut job = json!({"agent": agent, "text": "x".repeat(bytes), "expires": 86_400});
        if let Sessions::Shared = of {
            job["session"] = format!("s{}", batch * together / TOGETHER).into();
        }
        let line = json!({"type": "dispatch", "jobs": vec![job; together]});
        let answer = client.ask(&line.to_string());
        assert!(answer.contains(r#""ok":true"#), "{answer}");
    }
}

/// A daemon with turns that wait.
fn waiting(place: &Place, turns: usize, bytes: usize, together: usize, of: Sessions) -> Server {
    let daemon = place.daemon();
    Client::kept(&place.socket()).ask(r#"{"type":"drain"}"#);
    hand_in(place, "never", turns, bytes, together, of);
    daemon
}

fn queued(place: &Place) -> u64 {
    let status: Value =
        serde_json::from_str(Client::kept(&place.socket()).ask(r#"{"type":"status"}"#)).unwrap();
    status["rpc"]["queued"].as_u64().unwrap()
}

fn resident(server: &Server) -> f64 {
    std::thread::sleep(SETTLED);
    memory_of(server.pid(), "Rss:") / 1024.0
}

/// Memory of turns that wait: as they came, and of a daemon that was started with them.
struct Memory {
    name: &'static str,
    started: &'static str,
    limit: f64,
    turns: usize,
    bytes: usize,
    together: usize,
    of: Sessions,
    aside: &'static str,
}

impl Memory {
    fn measure(&self, repetitions: usize) -> [Figure; 2] {
        let (mut bare, mut came, mut started) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..repetitions {
            let place = place();
            let daemon = place.daemon();
            bare.push(resident(&daemon));
            drop(daemon);
            let daemon = waiting(&place, self.turns, self.bytes, self.together, self.of);
            came.push(resident(&daemon));
            assert_eq!(queued(&place), self.turns as u64);
            drop(daemon);
            let daemon = place.daemon();
            started.push(resident(&daemon));
            assert!(queued(&place) + 1 >= self.turns as u64);
        }
        let figure = |name, ours, more| Figure {
            name,
            unit: "MiB",
            control: bare.clone(),
            ours,
            limit: Limit::Alone(self.limit),
            aside: format!("{}{more}; control: none", self.aside),
        };
        [
            figure(self.name, came, ""),
            figure(self.started, started, ", of a daemon started with them"),
        ]
    }
}

pub(crate) fn memory(repetitions: usize) -> Vec<Figure> {
    let kinds = [
        Memory {
            name: "waiting-rss",
            started: "waiting-rss-started",
            limit: 60.0,
            turns: MANY,
            bytes: KIB,
            together: TOGETHER,
            of: Sessions::Shared,
            aside: "100,000 turns of 1 KiB in 400 sessions",
        },
        Memory {
            name: "waiting-rss-own",
            started: "waiting-rss-own-started",
            limit: 120.0,
            turns: MANY,
            bytes: KIB,
            together: TOGETHER,
            of: Sessions::Own,
            aside: "each in a session of its own",
        },
        Memory {
            name: "waiting-rss-long",
            started: "waiting-rss-long-started",
            limit: 40.0,
            turns: LONG.0,
            bytes: LONG.1,
            together: LONG_TOGETHER,
            of: Sessions::Own,
            aside: "400 turns of 1 MB",
        },
    ];
    let measured = kinds.iter().flat_map(|kind| kind.measure(repetitions));
    measured.collect()
}

/// Starts with turns that wait, up to the first answer, after a `kill -9`.
pub(crate) fn start(repetitions: usize) -> Vec<Figure> {
    [
        ("waiting-start", MANY, Sessions::Shared, 1000.0),
        ("waiting-start-own", MANY, Sessions::Own, 1000.0),
        ("waiting-start-10k", FEW, Sessions::Shared, 50.0),
        ("waiting-start-10k-own", FEW, Sessions::Own, 50.0),
    ]
    .map(|(name, turns, of, limit)| {
        let place = place();
        drop(waiting(&place, turns, KIB, TOGETHER, of));
        let (mut bare, mut took) = (Vec::new(), Vec::new());
        for _ in 0..repetitions {
            let control = place.control();
            bare.push(ms(control.took));
            control.stop();
            let daemon = place.daemon();
            took.push(ms(daemon.took));
            assert!(queued(&place) + 1 >= turns as u64);
        }
        let each = match of {
            Sessions::Shared => "250 to a session",
            Sessions::Own => "each in a session of its own",
        };
        Figure {
            name,
            unit: "ms",
            control: bare,
            ours: took,
            limit: Limit::Alone(limit),
            aside: format!("to the first answer, {turns} turns wait, {each}"),
        }
    })
    .into()
}

/// Turns that are sent while others run: by how many younger ones one is overtaken.
pub(crate) fn order(repetitions: usize) -> Vec<Figure> {
    let (mut overtaken, mut took) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let place = Place::new();
        place.add_agent("quick", "--quick-turns");
        let _daemon = place.daemon();
        let mut watch = Client::kept(&place.socket());
        watch.ask(r#"{"type":"subscribe"}"#);
        let begun = Instant::now();
        let senders: Vec<Client> = (0..SENDS / IN_FLIGHT)
            .map(|_| Client::kept(&place.socket()))
            .collect();
        let began = std::thread::scope(|scope| {
            let watching = scope.spawn(move || watch_order(&mut watch));
            senders.into_iter().for_each(|sender| {
                scope.spawn(move || send(sender));
            });
            watching.join().unwrap()
        });
        took.push(ms(begun.elapsed()));
        overtaken.push(most_overtaken(&began) as f64);
    }
    vec![Figure {
        name: "waiting-order",
        unit: "turns",
        control: vec![0.0; overtaken.len()],
        ours: overtaken,
        limit: Limit::Alone(POOL),
        aside: format!("younger ones that start before one of {SENDS}; all took {took:.0?} ms"),
    }]
}

/// As many sends as one connection may have, and their ends.
fn send(mut client: Client) {
    for id in 0..IN_FLIGHT {
        let line =
            json!({"type": "send", "id": id, "agent": "quick", "text": "x", "stream": false});
        client.send(&line.to_string());
    }
    (0..IN_FLIGHT).for_each(|_| client.finish());
}

/// The numbers of the jobs as they begin, until all have ended.
fn watch_order(watch: &mut Client) -> Vec<u64> {
    let (mut began, mut ended) = (Vec::new(), 0);
    while ended < SENDS {
        let line: Value = serde_json::from_str(watch.next()).unwrap();
        let begins = match line["type"].as_str() {
            Some("running") => true,
            Some("accepted") => line["running"] == true,
            Some("message_end" | "error") => {
                ended += 1;
                false
            }
            _ => false,
        };
        if begins {
            let job = line["job"].as_str().unwrap();
            began.push(job.trim_start_matches('j').parse().unwrap());
        }
    }
    assert_eq!(began.len(), SENDS);
    began
}

fn most_overtaken(order: &[u64]) -> usize {
    let mut began = BTreeSet::new();
    let overtaken = order.iter().map(|job| {
        let younger = began.range(job..).count();
        began.insert(*job);
        younger
    });
    overtaken.max().unwrap_or(0)
}
