//! How long `status` takes while the daemon is busy with something else.
//!
//! Owns what it is busy with. Must not know how the answer is made.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::durable::p99;
use crate::lists::{self, ask};
use crate::place::{Client, Place, ms};
use crate::report::{Figure, Limit};

/// How often it is asked in one measurement, and how long after the last answer.
const ASKED: usize = 1000;
const EVERY: Duration = Duration::from_millis(2);
const STATUS: &str = r#"{"type":"status"}"#;
/// In the store that is listed, copied and cut down.
const JOBS: u64 = 100_000;
/// Turns that wait, and how many one request brings.
const QUEUED: usize = 10_000;
const AT_ONCE: usize = 250;
/// Turns that are dispatched without waiting for any answer.
const DISPATCHED: usize = 3_000;
/// Processes that start at the same time: as many as there may be.
const STARTING: usize = 16;
/// Until a daemon begins to forget.
const FORGETS: Duration = Duration::from_secs(120);
/// Cuts the store down to a fraction.
const KEEP: &str = "[retention]\nsize = \"16MiB\"\n";
/// One that takes no end, and one that takes a core at its start, as those on a virtual machine do.
const AGENTS: &str = r#"
[agents.asleep]
kind = "exec"
command = ["/bin/sleep", "1000"]
[agents.busy]
kind = "exec"
command = ["/bin/sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"]
"#;

pub(crate) fn all(repetitions: usize) -> Vec<Figure> {
    let mut found = Found::default();
    for _ in 0..repetitions {
        let place = Place::new();
        place.configure(&format!("{CONFIG}{AGENTS}"));
        lists::stored(&place, JOBS);
        let daemon = place.daemon();
        found.alone.push(asked(&place.socket(), |_| ()));
        found.dispatch.push(beside_a_dispatch(&place.socket()));
        found.lists.push(beside_lists(&place.socket()));
        found.backup.push(beside_backups(&place));
        found.starting.push(beside_starts(&place.socket()));
        found.queued.push(with_many_queued(&place.socket()));
        daemon.stop();
        found.retention.push(beside_retention(&place));
    }
    found.figures()
}

const CONFIG: &str = "default_agent = \"timmy\"\n[agents.timmy]\nprovider = \"echo\"\n";

#[derive(Default)]
struct Found {
    alone: Vec<f64>,
    /// Of as many alone, and beside it.
    dispatch: Vec<[f64; 2]>,
    lists: Vec<f64>,
    backup: Vec<f64>,
    starting: Vec<f64>,
    queued: Vec<f64>,
    retention: Vec<f64>,
}

impl Found {
    fn figures(self) -> Vec<Figure> {
        let alone = self.alone;
        let figure = |name, ours, aside: String| Figure {
            name,
            unit: "ms",
            control: alone.clone(),
            ours,
            limit: Limit::Alone(10.0),
            aside: format!("p99 of `status` {aside}; control: alone"),
        };
        let longest = |of: usize| self.dispatch.iter().map(|both| both[of]).collect();
        vec![
            Figure {
                name: "status-dispatch",
                unit: "ms",
                control: longest(0),
                ours: longest(1),
                limit: Limit::Alone(650.0),
                aside: format!(
                    "the longest `status` while {DISPATCHED} turns come and run; control: alone; limit: \
                     how long agentctl waits"
                ),
            },
            figure("status-lists", self.lists, "beside 8 that list".to_owned()),
            figure("status-backup", self.backup, "beside backups".to_owned()),
            figure(
                "status-starting",
                self.starting,
                format!("beside {STARTING} processes that start"),
            ),
            figure(
                "status-queued",
                self.queued,
                format!("with {QUEUED} turns queued"),
            ),
            figure(
                "status-retention",
                self.retention,
                format!("while {JOBS} jobs are forgotten"),
            ),
        ]
    }
}

/// The p99 of some `status`, one after the other, beside whatever goes on until it is told that it
/// is over.
fn asked(socket: &Path, beside: impl FnOnce(&AtomicBool) + Send) -> f64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| beside(&over));
        let mut client = Client::kept(socket);
        let times = (0..ASKED).map(|_| {
            std::thread::sleep(EVERY);
            ask(&mut client, STATUS)
        });
        let times = times.collect();
        over.store(true, Ordering::Relaxed);
        work.join().unwrap();
        p99(times)
    })
}

/// The longest `status` of those that are asked while that is so, and how many they were.
fn longest(socket: &Path, goes_on: impl Fn(usize) -> bool) -> (f64, usize) {
    let mut client = Client::kept(socket);
    let (mut longest, mut asked) = (0.0, 0);
    while goes_on(asked) {
        std::thread::sleep(EVERY);
        longest = f64::max(longest, ask(&mut client, STATUS));
        asked += 1;
    }
    (longest, asked)
}

fn beside_a_dispatch(socket: &Path) -> [f64; 2] {
    let (beside, asked) = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let mut client = Client::kept(socket);
            for _ in 0..DISPATCHED / AT_ONCE {
                client.send(&sends("timmy", AT_ONCE));
            }
            for _ in 0..DISPATCHED / AT_ONCE {
                assert!(client.next().contains(r#""ok":true"#));
            }
            idle(&mut client);
        });
        longest(socket, |_| !work.is_finished())
    });
    let (alone, _) = longest(socket, |so_many| so_many < asked);
    [alone, beside]
}

fn beside_lists(socket: &Path) -> f64 {
    asked(socket, |over| lists::list_until(socket, over))
}

fn beside_backups(place: &Place) -> f64 {
    let copy = place.path("copy.db");
    asked(&place.socket(), |over| {
        let mut client = Client::kept(&place.socket());
        while !over.load(Ordering::Relaxed) {
            ask(
                &mut client,
                &format!(r#"{{"type":"backup","path":{copy:?}}}"#),
            );
            std::fs::remove_file(&copy).unwrap();
        }
    })
}

fn sends(agent: &str, count: usize) -> String {
    let send = format!(r#"{{"prompt":"x","agent":"{agent}"}}"#);
    let jobs = vec![send; count].join(",");
    format!(r#"{{"type":"dispatch","jobs":[{jobs}]}}"#)
}

/// All processes that there may be, again and again.
fn beside_starts(socket: &Path) -> f64 {
    asked(socket, |over| {
        let mut client = Client::kept(socket);
        while !over.load(Ordering::Relaxed) {
            ask(&mut client, &sends("busy", STARTING));
            idle(&mut client);
        }
    })
}

/// Waits until nothing runs and nothing waits.
fn idle(client: &mut Client) {
    let is_idle = |status: &str| {
        let status: serde_json::Value = serde_json::from_str(status).unwrap();
        status["rpc"]["in_flight"] == 0 && status["rpc"]["queued"] == 0
    };
    while !is_idle(client.ask(STATUS)) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn with_many_queued(socket: &Path) -> f64 {
    let mut client = Client::kept(socket);
    for _ in 0..QUEUED / AT_ONCE {
        ask(&mut client, &sends("asleep", AT_ONCE));
    }
    asked(socket, |_| ())
}

/// A daemon that may keep less than there is.
fn beside_retention(place: &Place) -> f64 {
    place.configure(&format!("{CONFIG}{AGENTS}{KEEP}"));
    let _daemon = place.daemon();
    let begun = Instant::now();
    let store = rusqlite::Connection::open(place.path("state/agentd.db")).unwrap();
    store.busy_timeout(Duration::from_secs(5)).unwrap();
    let forgotten = || {
        let sql =
            "SELECT ifnull(max(CAST(value AS INTEGER)), 0) FROM meta WHERE key = 'pruned_job'";
        store
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    while forgotten() == 0 {
        assert!(begun.elapsed() < FORGETS, "nothing is forgotten");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (before, asking) = (forgotten(), Instant::now());
    let found = asked(&place.socket(), |_| ());
    let after = forgotten();
    assert!(
        after > before,
        "forgotten within {} ms",
        ms(asking.elapsed())
    );
    found
}
