//! A long run without kills of the daemon: agents, dispatches, subscribers and planned restarts, and
//! whether memory, descriptors, threads and the store are flat at its end.
//!
//! Owns the load, the samples and what counts as flat. Must not know the rules of single jobs: those
//! are held by the other runs.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::{Place, Programs, Started, kill_one};
use crate::random::Random;
use crate::record::{held, poll};

/// The smallest store that may be configured: it is full within minutes, so that what is forgotten
/// keeps it flat.
const RETENTION: &str = "[retention]\nsize = \"16MiB\"\n";
/// Clients that send one turn after the other.
const SENDERS: u64 = 4;
/// Clients that dispatch and collect.
const DISPATCHERS: u64 = 2;
/// Clients that subscribe, listen for a while, and come back.
const SUBSCRIBERS: u64 = 3;
/// Nothing takes longer, a restart included.
const LINE_WITHIN: Duration = Duration::from_secs(60);
/// A subscriber that hears nothing for so long comes again.
const LISTENS_FOR: Duration = Duration::from_secs(5);
/// Between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// A daemon that has just started has not yet used what it will.
const WARM_AFTER: Duration = Duration::from_secs(30);
/// Planned restarts of one soak.
const RESTARTS: u32 = 6;
/// What may be more at the end than in the second quarter: the share that noise is.
const NOISE: f64 = 1.10;

/// What the daemon used at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    /// Since this daemon's start.
    age: Duration,
    rss_kib: f64,
    anonymous_kib: f64,
    threads: f64,
    descriptors: f64,
    store_kib: f64,
}

/// One figure of the samples, and how much more of it is still flat besides the noise.
struct Figure {
    name: &'static str,
    of: fn(&Sample) -> f64,
    allowed: f64,
}

const FIGURES: &[Figure] = &[
    Figure {
        name: "resident KiB",
        of: |sample| sample.rss_kib,
        allowed: 1024.0,
    },
    Figure {
        name: "anonymous KiB",
        of: |sample| sample.anonymous_kib,
        allowed: 1024.0,
    },
    Figure {
        name: "threads",
        of: |sample| sample.threads,
        allowed: 2.0,
    },
    Figure {
        name: "descriptors",
        of: |sample| sample.descriptors,
        allowed: 8.0,
    },
    Figure {
        name: "store KiB",
        of: |sample| sample.store_kib,
        allowed: 4096.0,
    },
];

/// What all clients share.
struct Load {
    socket: std::path::PathBuf,
    stop: AtomicBool,
    turns: AtomicU64,
    lines: AtomicU64,
    broken: AtomicU64,
    complaints: Mutex<Vec<String>>,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn complain(&self, what: String) {
        println!("BROKEN: {what}");
        held(&self.complaints).push(what);
    }
}

/// Runs for so long; green when everything is flat and everybody was answered.
pub(crate) fn soak(programs: &Programs, seed: u64, time: Duration) -> ExitCode {
    let mut place = Place::new(programs);
    place.configure(RETENTION);
    let begun = Instant::now();
    if !start(&mut place) {
        return ExitCode::FAILURE;
    }
    let load = Arc::new(Load {
        socket: place.socket(),
        stop: AtomicBool::new(false),
        turns: AtomicU64::new(0),
        lines: AtomicU64::new(0),
        broken: AtomicU64::new(0),
        complaints: Mutex::default(),
    });
    let clients = start_clients(&load, seed);
    let samples = watch(&mut place, &load, seed, begun, time);
    load.stop.store(true, Ordering::SeqCst);
    for client in clients {
        if client.join().is_err() {
            load.complain("a client panicked".to_owned());
        }
    }
    stop(&mut place, &load);
    let left = place.left_over();
    if !left.is_empty() {
        load.complain(format!("processes are left: {left:?}"));
    }
    judge(&samples, &load)
}

fn start(place: &mut Place) -> bool {
    match place.start(&Vec::new()) {
        Started::Up => true,
        not_up => {
            println!("the daemon did not start: {not_up:?}\n{}", place.log());
            false
        }
    }
}

fn stop(place: &mut Place, load: &Load) {
    if let Ok(mut stream) = UnixStream::connect(&load.socket) {
        let ask = json!({"type": "daemon.stop", "id": 0, "restart": true, "deadline": 10});
        let _gone = stream.write_all(format!("{ask}\n").as_bytes());
    }
    if place.left(LINE_WITHIN).is_none() {
        load.complain(format!("the daemon does not stop\n{}", place.log()));
        place.kill_daemon();
    }
}

/// Samples until the time is over, ends a worker now and then, and restarts the daemon.
fn watch(place: &mut Place, load: &Load, seed: u64, begun: Instant, time: Duration) -> Vec<Sample> {
    let mut random = Random::part(seed, 1000);
    let mut samples = Vec::new();
    let mut born = Instant::now();
    let life = time / (RESTARTS + 1);
    let report_every = time / 30;
    let mut reported = Duration::ZERO;
    println!("minute turns resident anonymous threads descriptors store");
    while begun.elapsed() < time {
        std::thread::park_timeout(SAMPLE_EVERY);
        if born.elapsed() >= life {
            stop(place, load);
            if !start(place) {
                load.complain("no daemon after a restart".to_owned());
                return samples;
            }
            born = Instant::now();
            continue;
        }
        let Some(sample) = sample(place, begun.elapsed(), born.elapsed()) else {
            load.complain(format!("the daemon is gone\n{}", place.log()));
            return samples;
        };
        if begun.elapsed() >= reported {
            reported = begun.elapsed() + report_every;
            let turns = load.turns.load(Ordering::SeqCst);
            println!("{}", row(&sample, turns));
        }
        samples.push(sample);
        let workers = place.workers();
        if random.percent(50) && !workers.is_empty() {
            kill_one(*random.one_of(&workers));
        }
    }
    samples
}

fn row(sample: &Sample, turns: u64) -> String {
    let minutes = sample.at.as_secs_f64() / 60.0;
    let figures = FIGURES.iter().map(|figure| (figure.of)(sample).to_string());
    format!(
        "{minutes:.1} {turns} {}",
        figures.collect::<Vec<_>>().join(" ")
    )
}

fn sample(place: &Place, at: Duration, age: Duration) -> Option<Sample> {
    let pid = place.daemon_pid();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| -> Option<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    };
    let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len()) / 1024;
    let store = size(&place.path("state").join("agentd.db"));
    let log = size(&place.path("state").join("agentd.db-wal"));
    let descriptors: usize = place.descriptors().values().sum();
    Some(Sample {
        at,
        age,
        rss_kib: field("VmRSS:")?,
        anonymous_kib: field("RssAnon:")?,
        threads: field("Threads:")?,
        descriptors: count(descriptors as u64),
        store_kib: count(store + log),
    })
}

/// Counts here are far below the integers that a float can't hold.
fn count(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}

/// Compares the last quarter with the second one.
fn judge(samples: &[Sample], load: &Load) -> ExitCode {
    let end = samples.last().map_or(Duration::ZERO, |sample| sample.at);
    let within = |from: f64, to: f64| -> Vec<&Sample> {
        let range = end.mul_f64(from)..=end.mul_f64(to);
        let warm = samples.iter().filter(|sample| sample.age >= WARM_AFTER);
        warm.filter(|sample| range.contains(&sample.at)).collect()
    };
    let (early, late) = (within(0.25, 0.5), within(0.75, 1.0));
    let mut green = !early.is_empty() && !late.is_empty();
    if !green {
        println!("too short: no sample of a daemon that is {WARM_AFTER:?} old");
    }
    for figure in FIGURES {
        let (before, after) = (median(&early, figure.of), median(&late, figure.of));
        let flat = after <= before * NOISE + figure.allowed;
        green &= flat;
        let verdict = if flat { "flat" } else { "GROWS" };
        println!(
            "{}: {before} in the second quarter, {after} in the last: {verdict}",
            figure.name
        );
    }
    let complaints = held(&load.complaints);
    println!(
        "{} turns ended, {} lines heard, {} conversations broken off by restarts, {} complaints",
        load.turns.load(Ordering::SeqCst),
        load.lines.load(Ordering::SeqCst),
        load.broken.load(Ordering::SeqCst),
        complaints.len()
    );
    if green && complaints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn median(samples: &[&Sample], of: fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(|sample| of(sample)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn start_clients(load: &Arc<Load>, seed: u64) -> Vec<std::thread::JoinHandle<()>> {
    let run = |number: u64, client: fn(&Load, u64, Random)| {
        let load = Arc::clone(load);
        let random = Random::part(seed, 2000 + number);
        std::thread::spawn(move || client(&load, number, random))
    };
    let mut clients: Vec<_> = (0..SENDERS).map(|number| run(number, send)).collect();
    clients.extend((10..10 + DISPATCHERS).map(|number| run(number, dispatch)));
    clients.extend((20..20 + SUBSCRIBERS).map(|number| run(number, subscribe)));
    clients.push(run(30, look_around));
    clients
}

/// One conversation.
struct Talk<'a> {
    load: &'a Load,
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    /// Silence is wrong: something was asked.
    expects: bool,
}

impl<'a> Talk<'a> {
    /// Waits for a daemon that is being restarted; nothing when the soak is over.
    fn begin(load: &'a Load) -> Option<Self> {
        let stream = poll(LINE_WITHIN, || {
            if !load.goes_on() {
                return Some(None);
            }
            UnixStream::connect(&load.socket).ok().map(Some)
        });
        let Some(stream) = stream else {
            load.complain(format!("no daemon for {LINE_WITHIN:?}"));
            return None;
        };
        let stream = stream?;
        stream.set_read_timeout(Some(LINE_WITHIN)).ok()?;
        let reader = BufReader::new(stream.try_clone().ok()?);
        Some(Self {
            load,
            stream,
            reader,
            expects: true,
        })
    }

    /// From now on hears what comes, or nothing.
    fn listen(&mut self) -> Option<()> {
        self.expects = false;
        self.stream.set_read_timeout(Some(LISTENS_FOR)).ok()
    }

    fn write(&mut self, line: &Value) -> Option<()> {
        self.stream.write_all(format!("{line}\n").as_bytes()).ok()
    }

    /// The next line; nothing when the connection is over.
    fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(1..) if line.ends_with('\n') => {
                self.load.lines.fetch_add(1, Ordering::Relaxed);
                serde_json::from_str(&line).ok()
            }
            Err(error) if self.expects && error.kind() == std::io::ErrorKind::WouldBlock => {
                self.load
                    .complain(format!("nothing was heard for {LINE_WITHIN:?}"));
                None
            }
            _ => None,
        }
    }

    /// The line that ends request `id`.
    fn until_end(&mut self, id: u64) -> Option<Value> {
        loop {
            let line = self.read()?;
            let kind = line["type"].as_str().unwrap_or("");
            let ends = matches!(kind, "message_end" | "error") || line["ok"] == true;
            // An `abort` has the id of the send that it ends, too.
            if line["id"] == id && ends && !matches!(kind, "accepted" | "abort") {
                return Some(line);
            }
        }
    }
}

/// Restarts break conversations, nothing else does.
fn again_and_again(load: &Load, mut talk: impl FnMut(&mut Talk<'_>) -> Option<()>) {
    while load.goes_on() {
        let Some(mut conversation) = Talk::begin(load) else {
            return;
        };
        if talk(&mut conversation).is_none() {
            load.broken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const SCRIPTS: &[&str] = &[
    "say hello;emit 9",
    "tool rw;emit 3;tool ro",
    "emit 40;sleep-ms 20;say end",
    "emit 400",
    "stderr-flood 2;say end",
];

fn turn(random: &mut Random) -> Value {
    let agent = *random.one_of(&["chaos", "chaos-many", "chaos-one"]);
    let text = format!("chaos: {}", random.one_of(SCRIPTS));
    let mut item = json!({"agent": agent, "text": text, "timeout": 30});
    if random.percent(60) {
        item["session"] = json!(format!("{agent}-{}", random.below(6)));
    }
    item
}

fn pause(random: &mut Random) {
    // A load that leaves the machine some of its time.
    std::thread::park_timeout(Duration::from_millis(random.within(10, 60)));
}

/// Turns one after the other, some of them aborted, on connections that come and go.
fn send(load: &Load, _number: u64, mut random: Random) {
    again_and_again(load, |talk| {
        for id in 1..=random.within(1, 40) {
            let mut line = turn(&mut random);
            line["type"] = json!("send");
            line["id"] = json!(id);
            talk.write(&line)?;
            if random.percent(5) {
                talk.write(&json!({"type": "abort", "id": id}))?;
            }
            if random.percent(2) {
                // Gone without hearing the end.
                return Some(());
            }
            let end = talk.until_end(id)?;
            if end["type"] == "message_end" || !end["job"].is_null() {
                load.turns.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(session) = line["session"].as_str() {
                talk.write(&json!({"type": "session.resume", "id": 1000, "session": session}))?;
                talk.until_end(1000)?;
            }
            pause(&mut random);
        }
        Some(())
    });
}

fn dispatch(load: &Load, _number: u64, mut random: Random) {
    again_and_again(load, |talk| {
        talk.write(&json!({"type": "hello"}))?;
        for _ in 0..random.within(1, 10) {
            let turns: Vec<Value> = (0..random.within(2, 8))
                .map(|_| turn(&mut random))
                .collect();
            talk.write(&json!({"type": "dispatch", "id": 1, "jobs": turns}))?;
            let taken = talk.until_end(1)?;
            let rows = taken["jobs"].as_array().cloned().unwrap_or_default();
            let jobs: Vec<&Value> = rows.iter().map(|row| &row["job"]).collect();
            if jobs.is_empty() {
                pause(&mut random);
                continue;
            }
            // Now and then somebody collects who doesn't wait for it.
            talk.write(&json!({"type": "collect", "id": 2, "jobs": jobs, "timeout": 5}))?;
            if random.percent(10) {
                return Some(());
            }
            let results = talk.until_end(2)?;
            let ended = results["results"].as_array().map_or(0, Vec::len);
            load.turns
                .fetch_add(u64::try_from(ended).unwrap_or(0), Ordering::Relaxed);
            pause(&mut random);
        }
        Some(())
    });
}

/// Listens to a few hundred lines from somewhere, sometimes so slowly that it falls behind.
fn subscribe(load: &Load, _number: u64, mut random: Random) {
    let mut last = 0;
    again_and_again(load, |talk| {
        let mut ask = json!({"type": "subscribe", "id": 1});
        if last > 0 && random.percent(70) {
            ask["after"] = json!(last);
        }
        talk.write(&ask)?;
        talk.listen()?;
        for line in 0..random.within(50, 2000) {
            if !load.goes_on() {
                return Some(());
            }
            let heard = talk.read()?;
            if heard["type"] == "error" {
                // What it had heard last is forgotten by now.
                last = 0;
                return Some(());
            }
            last = heard["seq"].as_u64().unwrap_or(last);
            if line % 100 == 0 && random.percent(20) {
                pause(&mut random);
            }
        }
        Some(())
    });
}

/// Lists, status, and connections that ask for nothing.
fn look_around(load: &Load, _number: u64, mut random: Random) {
    again_and_again(load, |talk| {
        let silent: Vec<UnixStream> = (0..random.below(30))
            .filter_map(|_| UnixStream::connect(&load.socket).ok())
            .collect();
        for ask in [
            json!({"type": "status", "id": 1}),
            json!({"type": "jobs", "id": 1, "limit": 50}),
            json!({"type": "sessions", "id": 1}),
            json!({"type": "usage", "id": 1}),
        ] {
            talk.write(&ask)?;
            talk.until_end(1)?;
        }
        drop(silent);
        std::thread::park_timeout(Duration::from_millis(random.within(200, 800)));
        Some(())
    });
}
