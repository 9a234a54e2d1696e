//! One run: clients at work in a place, faults, and at the end the books.
//!
//! Owns the order of a run. Must not know which faults there are (`faults`), nor what is right
//! (`rules`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{self, Wire};
use crate::dispatch;
use crate::faults::{self, Faults};
use crate::flood;
use crate::follow::{self, Wish};
use crate::history::{Descriptors, History, Hold};
use crate::journal::Journal;
use crate::known;
use crate::place::{Place, Programs, Started, Variables};
use crate::program::{self, Fallback, Victim};
use crate::random::Random;
use crate::receiver;
use crate::record::{Record, poll};
use crate::rules::{self, Broken, subscriptions, told};
use crate::stored;
use crate::work::{self, Mix, Work};

/// Clients that ask, besides those that subscribe.
const ASKERS: u64 = 6;
/// The number of the one that is a program, and of the first that dispatches.
const PROGRAM: u64 = ASKERS + 1;
const DISPATCHERS: std::ops::RangeInclusive<u64> = PROGRAM + 1..=PROGRAM + 2;
/// The one that fills the queue.
const FLOODER: u64 = PROGRAM + 3;
/// Everything that has to come comes within this time, also what waits when the faults are over: a
/// hanging turn is ended by its timeout and four rungs of 5 s.
const PATIENCE: Duration = Duration::from_secs(60);
/// A wrong daemon may never say what is waited for, and what has to be seen of it was written down.
const PATIENCE_WITH_WRONG: Duration = Duration::from_secs(25);
/// How often it is looked whether it has: each look opens the store.
const SETTLED_EVERY: Duration = Duration::from_millis(30);
/// So many of these later it is looked whether the daemon knows them all.
const LOOKED_EVERY: usize = 32;
/// A subscriber hears what is stored within this time.
const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// As many as one `collect` may name, so that most answers fit into a line.
const COLLECTED_AT_ONCE: usize = 100;

/// What a run is to be.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) faults: Faults,
    pub(crate) mix: Mix,
    /// A way to be wrong, for the daemon.
    pub(crate) wrong: Option<&'static str>,
    pub(crate) programs: Programs,
    /// The library that makes a power cut.
    pub(crate) library: PathBuf,
    /// The library that makes a clock jump.
    pub(crate) clock: PathBuf,
    /// One that has stopped, where it can be had.
    pub(crate) journal: Option<Journal>,
    /// Turns that fill the queue to fail, and as many to be aborted.
    pub(crate) flood: usize,
}

/// What was done, by name.
#[derive(Clone, Default, Debug)]
pub(crate) struct Counts(pub(crate) BTreeMap<String, usize>);

impl Counts {
    pub(crate) fn add(&mut self, name: &str, more: usize) {
        *self.0.entry(name.to_owned()).or_default() += more;
    }

    /// All whose names begin so.
    pub(crate) fn sum(&self, beginning: &str) -> usize {
        let named = self
            .0
            .iter()
            .filter(|(name, _)| name.starts_with(beginning));
        named.map(|(_, count)| count).sum()
    }
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            self.add(name, *count);
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    pub(crate) broken: Vec<Broken>,
    /// The end of the daemon's log, when something is broken.
    pub(crate) log: String,
    pub(crate) times: Times,
}

/// How long the parts of a run took.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Times {
    pub(crate) faults: Duration,
    /// Until everything asked had its end.
    pub(crate) ends: Duration,
    /// Until everything was collected, told, stopped and looked at.
    pub(crate) books: Duration,
}

impl Display for Times {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let seconds = |part: Duration| part.as_secs_f64();
        let (faults, ends) = (seconds(self.faults), seconds(self.ends));
        let books = seconds(self.books);
        write!(
            to,
            "{:.0} s (faults {faults:.0}, ends {ends:.0}, books {books:.0})",
            faults + ends + books
        )
    }
}

/// Makes the run, looks at it, and leaves nothing behind.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let begun = Instant::now();
    let mut place = Place::new(&plan.programs);
    let patience = plan.wrong.map_or(PATIENCE, |_| PATIENCE_WITH_WRONG);
    let record = Arc::new(Record::new(place.socket(), patience));
    let mut counts = Counts::default();
    let base = base_of(&mut place, &record);
    let hook = receiver::start(&record, Random::part(plan.seed, 300));
    place.allow(&hook);
    if matches!(plan.faults, Faults::PowerCuts(_)) {
        // The power may fail before the store is there.
        place.forget_the_store();
    }
    let victim = Victim::default();
    let clients = start_clients(plan, &place, &record, &victim, &hook);
    let followers = start_followers(plan, &record);
    let mended = faults::play(plan, &mut place, &record, &victim, &mut counts);
    let faults = begun.elapsed();
    record.stop();
    settle(&mut place, &record, &mended);
    for client in clients {
        client.join().expect("a client doesn't panic");
    }
    settle(&mut place, &record, &mended);
    let ends = begun.elapsed() - faults;
    close_the_books(&mut place, &record, base);
    for follower in followers {
        follower.join().expect("a client doesn't panic");
    }
    let history = record.with(std::mem::take);
    count(&history, &mut counts);
    let (broken, facts) = rules::check(&history);
    counts.add("facts checked", facts);
    counts.add("looks for forgotten jobs", history.looks.len());
    let log = if broken.is_empty() {
        String::new()
    } else {
        place.log()
    };
    Outcome {
        counts,
        broken,
        log,
        times: Times {
            faults,
            ends,
            books: begun.elapsed() - faults - ends,
        },
    }
}

/// The descriptors of a daemon that has not been asked anything.
fn base_of(place: &mut Place, record: &Record) -> BTreeMap<String, usize> {
    match place.start(&Vec::new()) {
        Started::Up => {}
        not_up => record.stuck(format!("the first start: {not_up:?}\n{}", place.log())),
    }
    // It listens before it is ready.
    if let Some(mut wire) = Wire::kept(record) {
        let _pong = wire
            .write(&json!({"type": "ping"}))
            .ok()
            .and_then(|()| wire.read(record));
    }
    let base = place.descriptors();
    place.kill_daemon();
    base
}

fn start_followers(plan: &Plan, record: &Arc<Record>) -> Vec<JoinHandle<()>> {
    let start = |(number, wish): (u64, Wish)| {
        let record = Arc::clone(record);
        let random = Random::part(plan.seed, 200 + number);
        std::thread::spawn(move || follow::follow(&record, &wish, random))
    };
    (0..).zip(follow::wishes()).map(start).collect()
}

fn start_clients(
    plan: &Plan,
    place: &Place,
    record: &Arc<Record>,
    victim: &Victim,
    hook: &str,
) -> Vec<JoinHandle<()>> {
    let hung = place.hung.as_ref().map(|hung| hung.path("below"));
    let mut clients: Vec<_> = (1..=ASKERS)
        .map(|number| {
            let record = Arc::clone(record);
            let work = Work::new(number, plan.mix, Random::part(plan.seed, number));
            let work = work.telling(hook).visiting(hung.clone());
            let random = Random::part(plan.seed, 100 + number);
            std::thread::spawn(move || client::ask_and_ask_again(&record, work, random))
        })
        .collect();
    clients.extend(DISPATCHERS.map(|number| {
        let record = Arc::clone(record);
        let work = Work::new(number, plan.mix, Random::part(plan.seed, number));
        let work = work.telling(hook);
        let random = Random::part(plan.seed, 100 + number);
        std::thread::spawn(move || dispatch::dispatch_and_collect(&record, work, random))
    }));
    let (flooded, size) = (Arc::clone(record), plan.flood);
    let work = Work::new(FLOODER, Mix::Gentle, Random::part(plan.seed, FLOODER));
    let random = Random::part(plan.seed, 100 + FLOODER);
    clients.push(std::thread::spawn(move || {
        flood::flood(&flooded, work, random, size);
    }));
    let (record, victim) = (Arc::clone(record), victim.clone());
    let environment = place.environment();
    let work = Work::new(PROGRAM, Mix::Gentle, Random::part(plan.seed, 50));
    let random = Random::part(plan.seed, 150);
    let fallback = match plan.faults {
        Faults::Kills(_) => Fallback::Allowed,
        Faults::PowerCuts(_) => Fallback::Never,
    };
    clients.push(std::thread::spawn(move || {
        program::run_and_run_again(&record, &environment, &victim, fallback, work, random);
    }));
    clients
}

/// Waits until every stored job has its end. What a daemon has forgotten, the next one finds.
fn settle(place: &mut Place, record: &Record, mended: &Variables) {
    let state = place.path("state");
    let mut open = Vec::new();
    let mut looks = (0..LOOKED_EVERY).cycle();
    let settled = poll(record.patience, || {
        if looks.next() == Some(0) && !known::look(place, record) {
            place.kill_daemon();
            if !matches!(place.start(mended), Started::Up) {
                record.stuck(format!("no daemon after one that forgot\n{}", place.log()));
            }
        }
        release(place, record, Release::Resume);
        open = stored::unfinished(&state).unwrap_or_else(|error| vec![error.to_string()]);
        if open.is_empty() {
            return Some(());
        }
        std::thread::park_timeout(SETTLED_EVERY);
        None
    });
    if settled.is_none() {
        record.stuck(format!("not ended within {:?}: {open:#?}", record.patience));
    }
}

/// How what waits behind an interrupted turn is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    Abort,
    Resume,
}

impl Release {
    pub(crate) fn either(random: &mut Random) -> Self {
        *random.one_of(&[Self::Abort, Self::Resume])
    }
}

/// Releases what waits behind an interrupted turn: who asks for it again isn't told that it does.
pub(crate) fn release(place: &Place, record: &Record, how: Release) {
    // What is answered while the store is read may be newer than what is read.
    let before = record.with(|history| history.holds.len());
    let Ok((held, until)) = stored::waiting_in_vain(&place.path("state")) else {
        return;
    };
    let seen = |(job, _): &(String, String)| Hold::Held {
        job: job.clone(),
        until,
    };
    record.with(|history| drop(history.holds.splice(before..before, held.iter().map(seen))));
    match how {
        Release::Abort => {
            let abort = |(job, _)| json!({"type": "abort", "job": job});
            ask_all(record, held.into_iter().map(abort));
        }
        Release::Resume => {
            let sessions: BTreeSet<String> = held.into_iter().map(|(_, session)| session).collect();
            resume_all(record, sessions);
        }
    }
}

/// The same without a look into the store: whatever waits in a session that has a name.
pub(crate) fn release_all(record: &Record, how: Release) {
    let sessions = work::sessions(*DISPATCHERS.end());
    let abort = |session| json!({"type": "abort", "session": session, "queued": true});
    match how {
        Release::Abort => ask_all(record, sessions.map(abort)),
        Release::Resume => resume_all(record, sessions.collect()),
    }
}

/// Asks one after the other, as long as there is somebody who answers.
fn ask_all(record: &Record, lines: impl Iterator<Item = Value>) {
    let mut lines = lines.peekable();
    let wire = lines.peek().and_then(|_| Wire::kept(record));
    let Some(mut wire) = wire else { return };
    for line in lines {
        if wire.write(&line).is_err() || wire.read(record).is_none() {
            return;
        }
    }
}

fn resume_all(record: &Record, sessions: BTreeSet<String>) {
    let wire = sessions.first().and_then(|_| Wire::kept(record));
    let Some(mut wire) = wire else { return };
    for session in sessions {
        if wire.resume(record, &session).is_err() || wire.read(record).is_none() {
            return;
        }
    }
}

/// Collects everything, reads the store, stops the daemon, and looks at what is left.
fn close_the_books(place: &mut Place, record: &Record, base: BTreeMap<String, usize>) {
    let state = place.path("state");
    let ledger = place.path("ledger");
    let read = record.with(|history| stored::read(&state, &ledger, history));
    if let Err(error) = read {
        record.stuck(format!("the store can't be read: {error}"));
    }
    collect(record);
    deliver(record);
    until_all_is_told(record);
    let descriptors = descriptors(place, base);
    let mut left = place.orphans();
    stop(place, record);
    left.extend(place.left_over());
    record.with(|history| {
        history.left = left;
        history.descriptors = descriptors;
    });
}

/// Whoever subscribes may have come back only now. Who doesn't hear all is found by the rules.
fn until_all_is_told(record: &Record) {
    let lasts = record.with(|history| {
        let sessions = follow::wishes().into_iter().map(|wish| wish.session);
        let last = |session: Option<String>| {
            let last = subscriptions::last_told(history, session.as_deref());
            (session, last)
        };
        sessions.map(last).collect::<BTreeMap<_, _>>()
    });
    let last_of = |session: Option<&str>| {
        let last = lasts.get(&session.map(str::to_owned));
        last.copied().unwrap_or(0)
    };
    let told = || record.with(|history| follow::has_told_all(history, last_of));
    let _deadline = poll(TOLD_WITHIN, || told().then_some(()));
}

/// Asks for every stored job's final line.
fn collect(record: &Record) {
    let mut jobs: Vec<String> =
        record.with(|history| history.jobs.iter().map(|job| job.job.clone()).collect());
    let Some(mut wire) = Wire::kept(record) else {
        return record.stuck("nobody to collect from".to_owned());
    };
    while !jobs.is_empty() {
        let some: Vec<String> = jobs.iter().take(COLLECTED_AT_ONCE).cloned().collect();
        let ask = json!({"type": "collect", "id": 0, "jobs": some, "timeout": 10});
        let answer = wire.write(&ask).ok().and_then(|()| wire.read(record));
        let answer = answer.unwrap_or(Value::Null);
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        if results.is_empty() {
            return record.stuck(format!("{some:?} can't be collected: {answer}"));
        }
        jobs.retain(|job| !results.iter().any(|line| line["job"] == job.as_str()));
        record.with(|history| history.collected.extend(results));
    }
}

/// Has every end told that waits for its next attempt.
fn deliver(record: &Record) {
    let Some(mut wire) = Wire::kept(record) else {
        return record.stuck("nobody to deliver".to_owned());
    };
    let mut ask = |line: Value| {
        let answer = wire.write(&line).ok().and_then(|()| wire.read(record));
        answer.unwrap_or(Value::Null)
    };
    let mut pending = Value::Null;
    let delivered = poll(record.patience, || {
        let listed = ask(json!({"type": "webhooks", "id": 0, "state": "pending", "limit": 500}));
        pending = listed["deliveries"].clone();
        for row in pending.as_array()? {
            ask(json!({"type": "webhook.replay", "id": 0, "webhook": row["webhook"]}));
        }
        pending.as_array()?.is_empty().then_some(())
    });
    if delivered.is_none() {
        record.stuck(format!(
            "not told within {:?}: {pending:#}",
            record.patience
        ));
    }
}

/// What the idle daemon has open, once those who asked are gone.
fn descriptors(place: &Place, base: BTreeMap<String, usize>) -> Vec<Descriptors> {
    let look = || -> Vec<Descriptors> {
        let workers = place.workers().len();
        let of_kind = |(kind, idle): (String, usize)| Descriptors {
            base: base.get(&kind).copied().unwrap_or(0),
            allowed: match kind.as_str() {
                // Three pipes each, and a handle on the process.
                "pipe" => 3 * workers,
                "anon_inode:[pidfd]" => workers,
                // Those that subscribe, and where the thread that delivers webhooks hears of
                // signals, once there was one.
                "socket" => follow::wishes().len() + 1,
                // For turns that wait, once there was one.
                "anon_inode:[timerfd]" => 1,
                // The thread that delivers webhooks, once there was one.
                "anon_inode:[eventfd]" => 1,
                "anon_inode:[eventpoll]" => 2,
                // A second connection to the store, once its log was long, and two that read it, for
                // a while after the last question.
                "file" => 2 + 4,
                _ => 0,
            },
            kind,
            idle,
        };
        place.descriptors().into_iter().map(of_kind).collect()
    };
    let is_idle = |found: &Vec<Descriptors>| {
        found
            .iter()
            .all(|kind| kind.idle <= kind.base + kind.allowed)
    };
    poll(Duration::from_secs(5), || Some(look()).filter(is_idle)).unwrap_or_else(look)
}

fn stop(place: &mut Place, record: &Record) {
    record.finish();
    if let Some(mut wire) = Wire::kept(record) {
        let stop = json!({"type": "daemon.stop", "id": 0, "deadline": 5});
        let _answer = wire.write(&stop).ok().and_then(|()| wire.read(record));
    }
    if place.left(record.patience).is_none() {
        record.stuck("the daemon does not stop".to_owned());
        place.kill_daemon();
    }
}

fn count(history: &History, counts: &mut Counts) {
    counts.add("asked", history.asked.len());
    counts.add("lines heard", history.heard.len());
    counts.add("jobs accepted", history.jobs.len());
    for job in &history.jobs {
        counts.add(&format!("jobs {}", job.state), 1);
    }
    counts.add("side effects", history.effects.len());
    let calling = history.jobs.iter().filter(|job| told::calls_back(job));
    counts.add("ends to be told", calling.count());
    counts.add("webhooks told", history.told.len());
    for heard in &history.heard {
        if let ("error", Some(code)) = (heard.kind(), heard.line["code"].as_str()) {
            let what = if heard.job().is_some() {
                "ended"
            } else {
                "refused"
            };
            counts.add(&format!("lines {what} {code}"), 1);
        }
    }
    let alone = history.heard.iter().filter(|heard| {
        heard.is_final() && heard.line["served_by"] == "oneshot" && heard.line["replayed"] == false
    });
    counts.add("jobs run without the daemon", alone.count());
    let replays = history
        .heard
        .iter()
        .filter(|heard| heard.kind() == "accepted" && heard.line["replayed"] == true);
    counts.add("replays by key", replays.count());
    counts.add("dispatches asked", history.dispatched.len());
    let resumed = history.followed.iter();
    let resumed = resumed.filter(|followed| followed.after.is_some_and(|after| after > 0));
    counts.add("subscriptions resumed", resumed.count());
    let of_kind = |kind: &'static str| {
        let heard = history.heard.iter();
        heard.filter(move |heard| heard.kind() == kind && heard.line["ok"] == true)
    };
    counts.add("dispatches answered", of_kind("dispatch").count());
    let resumed = of_kind("session.resume").filter_map(|heard| heard.line["jobs"].as_array());
    counts.add("jobs resumed", resumed.map(Vec::len).sum());
}
