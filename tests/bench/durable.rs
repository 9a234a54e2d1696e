//! What durability costs: acknowledgements under load, a start with history, a reader that sleeps.
//!
//! Owns these measurements. Must not know how they are judged, nor the store beyond its file.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::disk;
use crate::place::{Client, Place, ms};
use crate::report::{Figure, Limit};

pub(crate) const CLIENTS: usize = 64;
/// Of one client in one burst; 64 clients make 8,000.
const PER_CLIENT: usize = 125;
pub(crate) const BURSTS: usize = 6;
const SYNCS: usize = 1000;
const STORED: usize = 100_000;
pub(crate) const DELTAS: usize = 100_000;
/// How long the sleeping reader takes nothing.
const ASLEEP: Duration = Duration::from_secs(5);

/// What one client says, to the daemon and the control alike.
fn dispatch(session: usize, number: usize) -> String {
    format!(
        r#"{{"type":"dispatch","id":{number},"text":"the prompt of a burst","session":"burst{session}"}}"#
    )
}

/// All clients at once, each of which waits for its answer before it asks again. Returns
/// acknowledgements per second, and how long each took.
pub(crate) fn burst(socket: &Path) -> (f64, Vec<f64>) {
    burst_with(socket, dispatch)
}

/// The same with what each client says, by its number and that of the question.
pub(crate) fn burst_with(
    socket: &Path,
    says: impl Fn(usize, usize) -> String + Sync,
) -> (f64, Vec<f64>) {
    burst_of(|session| {
        let mut client = Client::kept(socket);
        let says = &says;
        move |number| {
            let answer = client.ask(&says(session, number));
            assert!(!answer.contains(r#""type":"error""#), "{answer}");
        }
    })
}

/// The same with any clients: `connect` gives one by its number, which asks and waits by the number
/// of the question.
pub(crate) fn burst_of<A: FnMut(usize)>(connect: impl Fn(usize) -> A + Sync) -> (f64, Vec<f64>) {
    let ready = Barrier::new(CLIENTS + 1);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|session| {
                let (ready, connect) = (&ready, &connect);
                scope.spawn(move || {
                    let mut ask = connect(session);
                    ready.wait();
                    let timed = |number| {
                        let begun = Instant::now();
                        ask(number);
                        ms(begun.elapsed())
                    };
                    (0..PER_CLIENT).map(timed).collect::<Vec<f64>>()
                })
            })
            .collect();
        ready.wait();
        let begun = Instant::now();
        let took = clients
            .into_iter()
            .flat_map(|client| client.join().unwrap());
        let took: Vec<f64> = took.collect();
        (took.len() as f64 / begun.elapsed().as_secs_f64(), took)
    })
}

/// Makes the sessions, and keeps turns from starting.
pub(crate) fn drain(place: &Place) {
    let mut client = Client::kept(&place.socket());
    for session in 0..CLIENTS {
        client.ask(&format!(
            r#"{{"type":"session.new","session":"burst{session}","agent":"timmy"}}"#
        ));
    }
    client.ask(r#"{"type":"drain"}"#);
}

pub(crate) fn empty(place: &Place) {
    let mut client = Client::kept(&place.socket());
    for session in 0..CLIENTS {
        let answer = client.ask(&format!(
            r#"{{"type":"abort","session":"burst{session}","queued":true}}"#
        ));
        assert!(answer.contains(r#""ok":true"#), "{answer}");
    }
}

pub(crate) fn acks(repetitions: usize) -> Vec<Figure> {
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    let (mut quiet, mut busy, mut wal) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bare_tails, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let place = Place::new();
        let writer = place.writer();
        let bursts = (0..BURSTS).map(|_| burst(&place.path("writer.sock")));
        let (rates, control): (Vec<f64>, Vec<Vec<f64>>) = bursts.unzip();
        bare.push(crate::report::median(&rates));
        bare_tails.push(p99(control.concat()));
        // One more, which isn't counted, as it has company.
        busy.push(p99(disk::syncs_during(&place.path("synced"), || {
            burst(&place.path("writer.sock"));
        })));
        writer.stop();

        let daemon = place.daemon();
        drain(&place);
        let (mut rates, mut took) = (Vec::new(), Vec::new());
        let mut largest = 0.0_f64;
        for _ in 0..BURSTS {
            let (rate, some) = burst(&place.socket());
            rates.push(rate);
            took.extend(some);
            empty(&place);
            largest = largest.max(mib(&place.path("state/agentd.db-wal")));
        }
        ours.push(crate::report::median(&rates));
        wal.push(largest);
        quiet.push(p99(disk::syncs(&place.path("synced"), SYNCS)));
        tails.push(p99(took));
        daemon.stop();
    }
    let zeros = vec![0.0; wal.len()];
    vec![
        Figure {
            name: "acks",
            unit: "1/s",
            // The other way round, so that more is better for us.
            control: ours.clone(),
            ours: bare,
            limit: Limit::Ratio(1.0 / 0.6),
            aside: "columns turned: `ours` is the bare writer, `control` the daemon".to_owned(),
        },
        Figure {
            name: "acks-p99",
            unit: "ms",
            control: busy,
            ours: tails.clone(),
            limit: Limit::Ratio(5.0),
            aside: format!(
                "{CLIENTS} clients, each waits; control: p99 of fdatasync beside the bare writer's"
            ),
        },
        Figure {
            name: "acks-p99-quiet",
            unit: "ms",
            control: quiet,
            ours: tails.clone(),
            limit: Limit::Ratio(5.0),
            aside: "the same; control: p99 of fdatasync with nothing beside it".to_owned(),
        },
        Figure {
            name: "acks-tail",
            unit: "ms",
            control: bare_tails,
            ours: tails,
            limit: Limit::Ratio(2.0),
            aside: "the same; control: p99 of the bare writer".to_owned(),
        },
        Figure {
            name: "acks-wal",
            unit: "MiB",
            control: zeros,
            ours: wal,
            limit: Limit::Alone(128.0),
            aside: "the largest write-ahead log between bursts".to_owned(),
        },
    ]
}

fn mib(path: &Path) -> f64 {
    std::fs::metadata(path).map_or(0.0, |file| file.len() as f64 / 1_048_576.0)
}

pub(crate) fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * 99 / 100]
}

/// Starts with 100,000 jobs that have ended.
pub(crate) fn stored(repetitions: usize) -> Vec<Figure> {
    let place = Place::new();
    let daemon = place.daemon();
    let mut client = Client::connect(&place.socket());
    client.send(r#"{"prompt":"hello","session":"stored"}"#);
    client.finish();
    daemon.stop();
    fill(&place.path("state/agentd.db"));
    let (mut bare, mut took, mut rss) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let control = place.control();
        bare.push(ms(control.took));
        control.stop();
        let begun = Instant::now();
        let daemon = place.daemon();
        let mut client = Client::connect(&place.socket());
        client.send(r#"{"type":"send","id":1,"text":"hello","session":"stored"}"#);
        assert!(client.next().contains(r#""type":"accepted""#));
        took.push(ms(begun.elapsed()));
        client.finish();
        rss.push(crate::idle::memory_of(daemon.pid(), "Rss:") / 1024.0);
        daemon.stop();
    }
    let zeros = vec![0.0; rss.len()];
    vec![
        Figure {
            name: "stored-start",
            unit: "ms",
            control: bare,
            ours: took,
            limit: Limit::Alone(1000.0),
            aside: format!("start to the first accept with {STORED} stored jobs"),
        },
        Figure {
            name: "stored-rss",
            unit: "MiB",
            control: zeros,
            ours: rss,
            limit: Limit::Alone(40.0),
            aside: "resident after it".to_owned(),
        },
    ]
}

/// Copies the one job that is there.
fn fill(path: &Path) {
    let store = rusqlite::Connection::open(path).unwrap();
    let copied = store
        .execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             INSERT INTO jobs (job, seq, session, request, state, instance, attempt, accepted_at,
                expires_at, finished_at, final, final_seq)
             SELECT 100 + i, 1000 + 2 * i, session, request, state, instance, attempt,
                accepted_at, expires_at, finished_at, final, 1001 + 2 * i
             FROM n, (SELECT * FROM jobs LIMIT 1)",
            [i64::try_from(STORED).unwrap()],
        )
        .unwrap();
    assert_eq!(copied, STORED);
}

/// A turn of 100,000 deltas, with and without a subscriber that sleeps meanwhile.
pub(crate) fn sleeping_reader(repetitions: usize) -> Vec<Figure> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let (memory, took) = deltas(false);
        alone.push(memory);
        fast.push(took);
        let (memory, took) = deltas(true);
        beside.push(memory);
        slow.push(took);
    }
    vec![
        Figure {
            name: "sleeping-reader",
            unit: "MiB",
            control: alone,
            ours: beside,
            limit: Limit::More(8.0),
            aside: format!("peak resident, {DELTAS} deltas; control: without the reader"),
        },
        Figure {
            name: "sleeping-others",
            unit: "ms",
            control: fast,
            ours: slow,
            // Half of the noise between two such runs here; a copy per delta would be far beyond.
            limit: Limit::Ratio(1.25),
            aside: "the same turn for its sender; control: without the reader".to_owned(),
        },
    ]
}

/// Peak memory of the daemon in MiB, and how long the turn took in ms.
fn deltas(reader: bool) -> (f64, f64) {
    let place = Place::new();
    place.add_agent("flood", "--flood");
    let daemon = place.daemon();
    let mut sleeper = reader.then(|| {
        let mut client = Client::kept(&place.socket());
        client.ask(r#"{"type":"subscribe","id":"s"}"#);
        client
    });
    let since = Instant::now();
    let mut client = Client::connect(&place.socket());
    let begun = Instant::now();
    client.send(r#"{"type":"send","agent":"flood","text":"go"}"#);
    client.finish();
    let took = ms(begun.elapsed());
    if let Some(sleeper) = &mut sleeper {
        std::thread::sleep(ASLEEP.saturating_sub(since.elapsed()));
        let mut text = 0;
        loop {
            let line = sleeper.next();
            if line.contains(r#""type":"message_delta""#) {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(line["offset"], text, "a gap or a repetition");
                text += line["text"].as_str().unwrap().len();
            } else if line.contains(r#""type":"message_end""#) {
                break;
            }
        }
        assert_eq!(text, DELTAS * crate::control::DELTA.len());
    }
    let peak = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = peak.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kib: f64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    (kib / 1024.0, took)
}
