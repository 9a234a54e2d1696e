//! Lists of a large store, and what they cost everybody else.
//!
//! Owns the store that is listed and who asks for what. Must not know how lists are made.
//!
//! `AGENTD_BENCH_JOBS` is how many jobs the store holds; 100,000 when absent.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::durable::p99;
use crate::place::{Client, Place, ms};
use crate::report::{Figure, Limit};

const SESSIONS: usize = 2000;
/// Turns whose acceptance is timed, one after another.
const TURNS: usize = 1000;
/// Who lists meanwhile.
const LISTING: usize = 8;
/// What they ask for, each another one first.
const LISTS: [&str; 6] = [
    r#"{"type":"jobs","label":"kind","limit":50}"#,
    r#"{"type":"jobs","since":2592000,"limit":50}"#,
    r#"{"type":"session.list","limit":500}"#,
    r#"{"type":"session.history","session":"stored","limit":20}"#,
    r#"{"type":"jobs","session":"stored","limit":50}"#,
    r#"{"type":"usage","by":"model"}"#,
];
/// Until a daemon has looked through a store that it didn't fill.
const SETTLED: Duration = Duration::from_secs(1200);

pub(crate) fn all(repetitions: usize) -> Vec<Figure> {
    let jobs = std::env::var("AGENTD_BENCH_JOBS").map_or(100_000, |jobs| jobs.parse().unwrap());
    let place = Place::new();
    stored(&place, jobs);
    let _daemon = place.daemon();
    settle(&place.path("state/agentd.db"));
    let mut client = Client::kept(&place.socket());
    let mut found = Found::default();
    for _ in 0..repetitions {
        found
            .usage
            .push(ask(&mut client, r#"{"type":"usage","by":"model"}"#));
        found
            .rows
            .push(pages(&mut client, r#"{"type":"usage""#, "before"));
        let sessions = r#"{"type":"session.list","limit":500"#;
        found.sessions.push(pages(&mut client, sessions, "after"));
        let pings = (0..5).map(|_| ask(&mut client, r#"{"type":"ping"}"#));
        found.ping.push(pings.sum());
        let alone = turns(&place.socket(), 0, &[]);
        let beside = turns(&place.socket(), LISTING, &LISTS);
        let talking = turns(&place.socket(), LISTING, &[r#"{"type":"ping"}"#]);
        let dear = [LISTS[5], LISTS[2]];
        let busy = [Counting::new(), Counting::new()];
        let computing = turns(&place.socket(), 0, &[]);
        drop(busy);
        let two = turns(&place.socket(), dear.len(), &dear);
        let eight = turns(&place.socket(), LISTING, &dear);
        found.alone.push(median(&alone));
        found.beside.push(median(&beside));
        found.talking.push(median(&talking));
        found.alone_p99.push(p99(alone));
        found.computing_p99.push(p99(computing));
        found.two_p99.push(p99(two));
        found.eight_p99.push(p99(eight));
    }
    found.figures(jobs)
}

#[derive(Default)]
struct Found {
    usage: Vec<f64>,
    rows: Vec<f64>,
    sessions: Vec<f64>,
    ping: Vec<f64>,
    alone: Vec<f64>,
    beside: Vec<f64>,
    talking: Vec<f64>,
    alone_p99: Vec<f64>,
    computing_p99: Vec<f64>,
    two_p99: Vec<f64>,
    eight_p99: Vec<f64>,
}

/// A program that does nothing but keep a core busy, with the precedence of the daemon's readers:
/// what a machine whose cores are all busy does to turns by itself, as virtual ones are stopped by
/// their hosts for milliseconds.
struct Counting(Child);

impl Counting {
    fn new() -> Self {
        let counting = ["sh", "-c", "while :; do :; done"];
        Self(Command::new("nice").args(counting).spawn().unwrap())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

impl Found {
    fn figures(self, jobs: u64) -> Vec<Figure> {
        vec![
            Figure {
                name: "lists-usage",
                unit: "ms",
                control: self.rows,
                ours: self.usage,
                limit: Limit::Alone(200.0),
                aside: format!("{jobs} jobs added up; control: all of their rows, page by page"),
            },
            Figure {
                name: "lists-sessions",
                unit: "ms",
                control: self.ping,
                ours: self.sessions,
                limit: Limit::Alone(10.0),
                aside: format!("{SESSIONS} sessions, 500 to a page; control: as many pings"),
            },
            Figure {
                name: "lists-accepts",
                unit: "ms",
                control: self.alone.clone(),
                ours: self.beside.clone(),
                limit: Limit::Ratio(1.5),
                aside: format!(
                    "p50 of `accepted` beside {LISTING} clients that list; control: alone"
                ),
            },
            Figure {
                name: "lists-accepts-busy",
                unit: "ms",
                control: self.talking,
                ours: self.beside,
                limit: Limit::Ratio(1.5),
                aside: "the same; control: beside as many clients that ping".to_owned(),
            },
            Figure {
                name: "lists-turns-p99",
                unit: "ms",
                control: self.computing_p99,
                ours: self.two_p99,
                limit: Limit::More(3.0),
                aside: "p99 of `accepted` beside a client that asks for `usage` and one for \
                    `session.list`, by turns; control: beside two programs that count"
                    .to_owned(),
            },
            Figure {
                name: "lists-turns-p99-8",
                unit: "ms",
                control: self.alone_p99,
                ours: self.eight_p99,
                limit: Limit::Alone(10.0),
                aside: format!("the same beside {LISTING} such clients; control: alone"),
            },
        ]
    }
}

/// A store with so many jobs, made by a daemon that has left.
pub(crate) fn stored(place: &Place, jobs: u64) {
    let daemon = place.daemon();
    let mut client = Client::connect(&place.socket());
    client.send(r#"{"prompt":"hello","session":"stored"}"#);
    client.finish();
    daemon.stop();
    fill(&place.path("state/agentd.db"), jobs);
}

pub(crate) fn ask(client: &mut Client, line: &str) -> f64 {
    let begun = Instant::now();
    let answer = client.ask(line);
    let took = ms(begun.elapsed());
    assert!(!answer.contains(r#""type":"error""#), "{answer}");
    took
}

/// All pages of a list, whose next one begins where `cursor` says.
fn pages(client: &mut Client, line: &str, cursor: &str) -> f64 {
    let begun = Instant::now();
    let mut question = format!("{line}}}");
    loop {
        let answer = client.ask(&question);
        let Some((_, next)) = answer.rsplit_once(r#","next":"#) else {
            return ms(begun.elapsed());
        };
        let next = next.trim_end().trim_end_matches('}');
        question = format!(r#"{line},"{cursor}":{next}}}"#);
    }
}

/// How long each of some turns takes until it is accepted, beside so many clients that ask for
/// lists.
fn turns(socket: &Path, clients: usize, lists: &[&str]) -> Vec<f64> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| ask_until(socket, clients, lists, &over));
        let mut client = Client::kept(socket);
        let timed = |number| {
            let begun = Instant::now();
            client.send(&format!(
                r#"{{"type":"send","id":{number},"text":"hello","session":"timed"}}"#
            ));
            let accepted = client.next().contains(r#""type":"accepted""#);
            let took = ms(begun.elapsed());
            assert!(accepted);
            client.finish();
            took
        };
        let took = (0..TURNS).map(timed).collect();
        over.store(true, Ordering::Relaxed);
        took
    })
}

/// So many clients ask for all of these, each for another one first, until it is over.
fn ask_until(socket: &Path, clients: usize, lists: &[&str], over: &AtomicBool) {
    std::thread::scope(|scope| {
        for number in 0..clients {
            scope.spawn(move || {
                let mut client = Client::kept(socket);
                for list in lists.iter().cycle().skip(number) {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    ask(&mut client, list);
                }
            });
        }
    });
}

/// Everybody lists until it is over.
pub(crate) fn list_until(socket: &Path, over: &AtomicBool) {
    ask_until(socket, LISTING, &LISTS, over);
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Copies the one job that is there: half of them into its session, the others into many.
fn fill(path: &Path, jobs: u64) {
    let store = rusqlite::Connection::open(path).unwrap();
    store
        .execute_batch(&format!(
            "BEGIN;
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {SESSIONS})
             INSERT INTO sessions (id, name, agent, cwd, named, created_at)
             SELECT 10 + i, 'listed' || i, agent, cwd, 1, created_at
             FROM n, (SELECT * FROM sessions LIMIT 1);
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {jobs})
             INSERT INTO jobs (job, seq, session, request, state, instance, attempt, accepted_at,
                expires_at, finished_at, final, final_seq)
             SELECT 100 + i, 1000 + 2 * i,
                CASE WHEN i % 2 THEN session ELSE 11 + (i / 2) % {SESSIONS} END,
                request, state, instance, attempt, accepted_at, expires_at, finished_at, final,
                1001 + 2 * i
             FROM n, (SELECT * FROM jobs LIMIT 1);
             INSERT INTO labels SELECT 'kind', job % 7, job FROM jobs;
             COMMIT;"
        ))
        .unwrap();
}

/// Waits until the daemon has noted what the turns used, and what lists say of the sessions.
fn settle(path: &Path) {
    let store = rusqlite::Connection::open(path).unwrap();
    store.busy_timeout(Duration::from_secs(5)).unwrap();
    let begun = Instant::now();
    let all = "SELECT (SELECT count(*) FROM jobs WHERE final_seq IS NOT NULL)
        = (SELECT count(*) FROM used)
        AND NOT EXISTS (SELECT 1 FROM sessions WHERE listed_turns IS NOT turns)";
    while !store
        .query_row(all, [], |row| row.get::<_, bool>(0))
        .unwrap()
    {
        assert!(
            begun.elapsed() < SETTLED,
            "what turns used, or lists say, is not noted"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}
