//! What happens to a run: kills of the daemon, of workers and of clients, and power cuts.
//!
//! Owns when and where; a seed decides. Must not know what is asked, nor what is right.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::client::Wire;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::fuse::{ACCESS, ANYTHING};
use crate::history::History;
use crate::journal::Journal;
use crate::known;
use crate::place::{FEW_FILES, Place, Started, Variables, kill_one};
use crate::program::Victim;
use crate::random::Random;
use crate::record::{Record, poll};
use crate::run::{self, Counts, Plan, Release};
use crate::stored;

/// Which faults, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Faults {
    /// So many processes are killed.
    Kills(usize),
    /// The power fails so often.
    PowerCuts(usize),
}

/// Places in the daemon, at each arrow of a job's life; see `daemon/src/failpoint.rs`.
pub(crate) const FAILPOINTS: &[&str] = &[
    "before-commit-accept",
    "after-commit-accept",
    "before-commit-accept-running",
    "after-commit-accept-running",
    "before-commit-start",
    "after-commit-start",
    "before-commit-requeue",
    "after-commit-requeue",
    "before-commit-event",
    "after-commit-event",
    "before-commit-text",
    "after-commit-text",
    "before-commit-cancel",
    "after-commit-cancel",
    "before-commit-finish",
    "after-commit-finish",
    "before-commit-hold",
    "after-commit-hold",
    "before-commit-release",
    "after-commit-release",
    "before-commit-takeover",
    "after-commit-takeover",
    "before-prompt",
    "worker-told",
    "worker-heard",
    "before-spawn",
    "spawned",
    "before-line",
    "after-line",
    "before-mark",
    "before-commit-mark",
];
/// The same where the tables become those of the next version.
const MIGRATION: &[&str] = &[
    "before-commit-migration",
    "after-commit-migration",
    "before-commit-takeover",
];
/// Of a run's faults so many of a hundred come before the daemon is of the next version.
const UPGRADED_AFTER: std::ops::RangeInclusive<u64> = 30..=80;
/// Seconds that running turns get when the daemon is to be restarted.
const STOPS_AFTER: u64 = 1;
/// A daemon that is to be restarted is killed after this time, if it is still there.
const STOPS_WITHIN: Duration = Duration::from_secs(2);
/// An older daemon refuses a newer store within this time.
const REFUSES_WITHIN: Duration = Duration::from_secs(10);
/// A place that isn't reached within this time isn't on the way this time.
const REACHED_WITHIN: Duration = Duration::from_millis(700);
/// A daemon whose clients hear nothing for so long is killed all the same.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// A daemon of the debug build is up after about this time.
const SOON_MS: u64 = 60;
/// How far the clock jumps, in seconds: hours, more than retention, years back.
const JUMPS: &[i64] = &[0, 7_200, -7_200, 40 * 86_400, -40 * 86_400, 900 * 86_400];
/// What a file system doesn't answer: nothing, entering a directory, anything at all.
const HANGS: &[u32] = &[0, ACCESS, ANYTHING];
/// Signals that somebody may send to a daemon, and that are not to end it.
const HARMLESS: &[Signal] = &[Signal::SIGHUP];
/// Connections that say nothing, to a daemon with few descriptors.
const CROWD: u64 = 200;
/// How often it is looked whether the daemon is still there.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Plays the faults, and leaves a daemon that is up. Gives what one is started with that is as it
/// should be.
pub(crate) fn play(
    plan: &Plan,
    place: &mut Place,
    record: &Record,
    victim: &Victim,
    counts: &mut Counts,
) -> Variables {
    let clock = place.path("clock");
    let before = stored::version(&place.path("state")).unwrap_or(0);
    let mut play = Play {
        plan,
        place,
        record,
        victim,
        counts,
        random: Random::part(plan.seed, 7),
        disk: None,
        clock: Clock::new(&plan.clock, clock),
        version: Version::This,
        before,
    };
    let done = match plan.faults {
        Faults::Kills(kills) => play.kills(kills),
        Faults::PowerCuts(cuts) => play.power_cuts(cuts),
    };
    play.clock.jump(0);
    if let Some(hung) = &play.place.hung {
        hung.ignore(0);
    }
    play.place.files = None;
    if let Some(journal) = &plan.journal {
        journal.catch_up();
    }
    if let Err(why) = done.and_then(|()| play.start(Vec::new(), None).map(drop)) {
        record.stuck(why);
    }
    play.variables_of(None, None)
}

/// Of which version is the daemon?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    This,
    Next,
}

/// Is the daemon there?
#[derive(PartialEq, Eq)]
enum Life {
    Lives,
    Over,
}

struct Play<'a> {
    plan: &'a Plan,
    place: &'a mut Place,
    record: &'a Record,
    victim: &'a Victim,
    counts: &'a mut Counts,
    random: Random,
    disk: Option<Disk>,
    clock: Clock,
    version: Version,
    /// That of the tables at the beginning.
    before: u64,
}

impl Play<'_> {
    fn kills(&mut self, kills: usize) -> Result<(), String> {
        let upgrade = self.upgrade_after(kills);
        while self.counts.sum("kills of") < kills {
            let upgrades = self.counts.sum("kills of") >= upgrade && self.upgrade();
            if self.random.percent(10) {
                self.storm();
            }
            self.downgrade()?;
            let failpoint = match upgrades {
                true => Some(format!("{}:1", self.random.one_of(MIGRATION))),
                false => self.random.percent(50).then(|| self.failpoint()),
            };
            if self.live(failpoint.as_deref())? == Life::Lives {
                self.end(failpoint.as_deref());
            }
        }
        Ok(())
    }

    /// The daemon alone, or everything of its control group, as the system does it that has no
    /// memory left.
    fn end(&mut self, failpoint: Option<&str>) {
        if failpoint.is_none() && self.place.is_dead() {
            let how = self.place.left(Duration::from_secs(1));
            let how = how.map_or_else(|| "nobody knows how".to_owned(), |how| how.to_string());
            self.record.stuck(format!(
                "the daemon left by itself, {how}\n{}",
                self.place.log()
            ));
        }
        if failpoint.is_none()
            && self.random.percent(50)
            && matches!(self.plan.faults, Faults::Kills(_))
        {
            known::look(self.place, self.record);
        }
        if self.random.percent(15) && self.stops()
            || self.random.percent(10) && self.runs_out_of_memory()
        {
            return;
        }
        self.counts.add("kills of the daemon", 1);
        if self.random.percent(10) {
            self.counts.add("kills of everything", 1);
            if !self.place.kill_everything() {
                self.record
                    .stuck(format!("not to be killed: {:?}", self.place.others()));
            }
        } else {
            self.place.kill_daemon();
        }
    }

    /// Several daemons, each killed before or while it takes over from the last one.
    fn storm(&mut self) {
        for _ in 0..self.random.within(2, 6) {
            self.place.launch(&self.variables(None));
            // No fact is waited for: any moment will do.
            std::thread::park_timeout(Duration::from_millis(self.random.below(SOON_MS)));
            self.place.kill_daemon();
            self.counts.add("kills of the daemon", 1);
            self.counts.add("kills while it starts", 1);
        }
    }

    /// One daemon from its start to its end, or to where it is to be killed.
    fn live(&mut self, failpoint: Option<&str>) -> Result<Life, String> {
        self.place.files = self.random.percent(15).then_some(FEW_FILES);
        let journal = self.journal();
        let is_told = !journal.is_empty();
        if self.start(journal, failpoint)? == Life::Over {
            self.at_failpoint(failpoint);
            return Ok(Life::Over);
        }
        let how = Release::either(&mut self.random);
        match self.plan.faults {
            Faults::Kills(_) => run::release(self.place, self.record, how),
            // Who looks into the store would be one more writer of its log.
            Faults::PowerCuts(_) if self.random.percent(30) => run::release_all(self.record, how),
            Faults::PowerCuts(_) => {}
        }
        let crowd = self.crowd();
        for _ in 0..self.random.below(3) {
            self.let_them_talk(25);
            self.kill_another();
            self.disturb();
        }
        drop(crowd);
        if is_told && self.plan.journal.as_ref().is_some_and(Journal::is_full) {
            self.counts.add("stopped journals that were full", 1);
        }
        if failpoint.is_none() {
            self.let_them_talk(25);
            return Ok(Life::Lives);
        }
        if self.place.left(REACHED_WITHIN).is_none() {
            return Ok(Life::Lives);
        }
        self.at_failpoint(failpoint);
        Ok(Life::Over)
    }

    /// Until clients heard a few lines more, or nothing comes.
    fn let_them_talk(&mut self, at_most: u64) {
        let enough = self.record.lines() + size(self.random.within(1, at_most));
        let until = Instant::now() + HEARD_WITHIN;
        while !self.record.until_heard(enough, LOOK_EVERY)
            && !self.place.is_dead()
            && Instant::now() < until
        {}
    }

    fn at_failpoint(&mut self, failpoint: Option<&str>) {
        self.counts.add("kills of the daemon", 1);
        let name = failpoint.and_then(|failpoint| failpoint.split(':').next());
        self.counts
            .add(&format!("at {}", name.unwrap_or("no place")), 1);
    }

    /// Takes what descriptors a daemon has that has few.
    fn crowd(&mut self) -> Vec<UnixStream> {
        if self.place.files.is_none() {
            return Vec::new();
        }
        self.counts.add("full descriptor tables", 1);
        let socket = self.place.socket();
        let connect = |_| UnixStream::connect(&socket).ok();
        (0..CROWD).filter_map(connect).collect()
    }

    /// The clock jumps, somebody sends a signal, or a directory doesn't answer: the daemon goes on.
    fn disturb(&mut self) {
        if let Some(hung) = &self.place.hung
            && self.random.percent(30)
        {
            let ignored = *self.random.one_of(HANGS);
            hung.ignore(ignored);
            self.counts
                .add("directories that hang", usize::from(ignored != 0));
        }
        if self.random.percent(20) {
            let jump = *self.random.one_of(JUMPS);
            self.clock.jump(jump);
            self.counts.add("clock jumps", 1);
        }
        if self.random.percent(20) && !self.place.is_dead() {
            let signal = *self.random.one_of(HARMLESS);
            self.place.signal(signal);
            self.counts.add(&format!("signals {signal}"), 1);
            self.let_them_talk(5);
        }
    }

    /// After how many of a run's faults the daemon is one of the next version. What is wrong on purpose
    /// stays what it is.
    fn upgrade_after(&mut self, faults: usize) -> usize {
        let percent = self
            .random
            .within(*UPGRADED_AFTER.start(), *UPGRADED_AFTER.end());
        match self.plan.wrong {
            Some(_) => usize::MAX,
            None => faults * size(percent) / 100,
        }
    }

    /// From now on the daemon is of the next version; false if it was already.
    fn upgrade(&mut self) -> bool {
        if self.version != Version::This {
            return false;
        }
        self.version = Version::Next;
        self.counts.add("upgrades", 1);
        true
    }

    /// An older daemon is started on a newer store, which it has to refuse and to leave as it is.
    fn downgrade(&mut self) -> Result<(), String> {
        let state = self.place.path("state");
        if self.version == Version::This || !self.random.percent(10) {
            return Ok(());
        }
        // It may have been killed before its tables were there.
        let now = stored::version(&state).unwrap_or(0);
        if now <= self.before {
            return Ok(());
        }
        self.version = Version::This;
        self.place.launch(&self.variables(None));
        self.version = Version::Next;
        let status = self.place.left(REFUSES_WITHIN);
        let after = stored::version(&state).unwrap_or(0);
        if status.is_none_or(|status| status.success()) || after != now {
            return Err(format!(
                "an older daemon took a newer store: {status:?}, {now}, {after}"
            ));
        }
        self.counts.add("downgrades refused", 1);
        Ok(())
    }

    /// The daemon is told to stop for a restart; one that takes its time is killed meanwhile. False
    /// when it wasn't told.
    fn stops(&mut self) -> bool {
        let Some(mut wire) = Wire::kept(self.record) else {
            return false;
        };
        let stop =
            json!({"type": "daemon.stop", "id": 0, "restart": true, "deadline": STOPS_AFTER});
        if wire.write(&stop).is_err() {
            return false;
        }
        self.counts.add("planned restarts", 1);
        if self.place.left(STOPS_WITHIN).is_none() {
            self.place.kill_daemon();
            self.counts.add("kills of the daemon", 1);
            self.counts.add("kills while it stops", 1);
        }
        true
    }

    /// There is no memory left for the daemon and its workers. False while the daemon lives.
    fn runs_out_of_memory(&mut self) -> bool {
        let named = self.random.percent(60).then(|| self.place.daemon_pid());
        let Some(group) = &self.place.group else {
            return false;
        };
        let killed = group.exhaust(named, || self.place.is_dead());
        self.counts.add("OOM kills", killed);
        if !self.place.is_dead() {
            return false;
        }
        self.counts.add("OOM kills of the daemon", 1);
        self.place.kill_daemon();
        true
    }

    /// Sends some daemons to a journal that has stopped, and may be full already.
    fn journal(&mut self) -> Variables {
        let (stopped, reads) = (self.random.percent(15), self.random.percent(50));
        let Some(journal) = self.plan.journal.as_ref().filter(|_| stopped) else {
            return Vec::new();
        };
        if reads {
            journal.catch_up();
        }
        self.counts.add("stopped journals", 1);
        Journal::variables(&self.place.path("log")).expect("the log is there")
    }

    fn failpoint(&mut self) -> String {
        let name = *self.random.one_of(FAILPOINTS);
        // The takeover comes once in a life.
        let most = if name.ends_with("takeover") { 1 } else { 6 };
        format!("{name}:{}", self.random.within(1, most))
    }

    /// A worker, or a client that is a program.
    fn kill_another(&mut self) {
        if self.random.percent(60) {
            let workers = self.place.workers();
            if !workers.is_empty() {
                kill_one(*self.random.one_of(&workers));
                self.counts.add("kills of workers", 1);
            }
        } else if self.victim.kill() {
            self.counts.add("kills of clients", 1);
        }
    }

    fn power_cuts(&mut self, cuts: usize) -> Result<(), String> {
        let upgrade = self.upgrade_after(cuts);
        for cut in 0..cuts {
            let early = *self.random.one_of(&[0, 0, 200, 500, 900]);
            let state = self.place.path("state");
            let seed = self.random.next();
            let dir = self.place.path("disk");
            let disk = Disk::under(&state, dir, &self.plan.library, seed, early)
                .map_err(|error| format!("no disk: {error}"))?;
            self.disk = Some(disk);
            let failpoint = match cut >= upgrade && self.upgrade() {
                true => Some(format!("{}:1", self.random.one_of(MIGRATION))),
                false => self.random.percent(40).then(|| self.failpoint()),
            };
            if self.live(failpoint.as_deref())? == Life::Lives && self.random.percent(30) {
                self.fill_the_disk();
            }
            if !self.place.kill_everything() {
                return Err(format!("not to be killed: {:?}", self.place.others()));
            }
            self.counts.add("power cuts", 1);
            let disk = self.disk.take().expect("it was made above");
            disk.cut(&state)
                .map_err(|error| format!("the power cut: {error}"))?;
        }
        Ok(())
    }

    /// No file grows for a while; every other time the power fails meanwhile.
    fn fill_the_disk(&mut self) {
        let Some(disk) = &self.disk else { return };
        self.counts.add("full disks", 1);
        let before = self.record.lines();
        let room = disk.fill();
        let refused = poll(HEARD_WITHIN, || {
            let look = |history: &mut History| {
                let since = history.heard.iter().skip(before);
                since
                    .filter(|heard| heard.line["code"] == "disk-full")
                    .count()
            };
            (self.record.with(look) > 0 || self.place.is_dead()).then_some(())
        });
        self.counts
            .add("full disks noticed", usize::from(refused.is_some()));
        self.let_them_talk(40);
        if self.random.percent(50) {
            room.make();
            self.let_them_talk(25);
        }
    }

    /// What a daemon of this moment is started with.
    fn variables(&self, failpoint: Option<&str>) -> Variables {
        self.variables_of(self.plan.wrong, failpoint)
    }

    fn variables_of(&self, wrong: Option<&str>, failpoint: Option<&str>) -> Variables {
        let mut variables = self.disk.as_ref().map_or_else(Vec::new, Disk::variables);
        let preloaded = variables.iter().position(|(name, _)| *name == "LD_PRELOAD");
        let preloaded = preloaded.map(|place| variables.remove(place).1);
        variables.extend(self.clock.variables(preloaded.as_ref()));
        let next = (self.version != Version::This).then_some("next-version");
        let words: Vec<&str> = [wrong, next, failpoint].into_iter().flatten().collect();
        if !words.is_empty() {
            variables.push(("AGENTD_FAILPOINT", OsString::from(words.join(","))));
        }
        variables
    }

    /// A daemon that leaves by itself was told to, by a failpoint.
    fn start(&mut self, more: Variables, failpoint: Option<&str>) -> Result<Life, String> {
        self.counts.add("starts", 1);
        let mut variables = self.variables(failpoint);
        variables.extend(more);
        match self.place.start(&variables) {
            Started::Up => Ok(Life::Lives),
            Started::Left if failpoint.is_some() => Ok(Life::Over),
            not_up => Err(format!(
                "the daemon did not start: {not_up:?}\n{}",
                self.place.log()
            )),
        }
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).expect("a small number")
}
