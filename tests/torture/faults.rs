//! What happens to a run: kills of the daemon, of workers and of clients, and power cuts.
//!
//! Owns when and where; a seed decides. Must not know what is asked, nor what is right.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use crate::disk::Disk;
use crate::history::History;
use crate::place::{Place, Started, Variables, kill_one};
use crate::program::Victim;
use crate::random::Random;
use crate::record::{Record, poll};
use crate::run::{self, Counts, Plan, Release};

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
/// A place that isn't reached within this time isn't on the way this time.
const REACHED_WITHIN: Duration = Duration::from_millis(700);
/// A daemon whose clients hear nothing for so long is killed all the same.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// A daemon of the debug build is up after about this time.
const SOON_MS: u64 = 60;
/// How often it is looked whether the daemon is still there.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Plays the faults, and leaves a daemon that is up and as it should be.
pub(crate) fn play(
    plan: &Plan,
    place: &mut Place,
    record: &Record,
    victim: &Victim,
    counts: &mut Counts,
) {
    let mut play = Play {
        plan,
        place,
        record,
        victim,
        counts,
        random: Random::part(plan.seed, 7),
        disk: None,
    };
    let done = match plan.faults {
        Faults::Kills(kills) => play.kills(kills),
        Faults::PowerCuts(cuts) => play.power_cuts(cuts),
    };
    let variables = play.variables();
    if let Err(why) = done.and_then(|()| play.start(&variables).map(drop)) {
        record.stuck(why);
    }
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
}

impl Play<'_> {
    fn kills(&mut self, kills: usize) -> Result<(), String> {
        while self.counts.sum("kills of") < kills {
            if self.random.percent(10) {
                self.storm();
            }
            let failpoint = self.random.percent(50).then(|| self.failpoint());
            if self.live(failpoint.as_deref())? == Life::Lives {
                self.place.kill_daemon();
                self.counts.add("kills of the daemon", 1);
            }
        }
        Ok(())
    }

    /// Several daemons, each killed before or while it takes over from the last one.
    fn storm(&mut self) {
        for _ in 0..self.random.within(2, 6) {
            self.place.launch(&self.variables());
            // No fact is waited for: any moment will do.
            std::thread::park_timeout(Duration::from_millis(self.random.below(SOON_MS)));
            self.place.kill_daemon();
            self.counts.add("kills of the daemon", 1);
            self.counts.add("kills while it starts", 1);
        }
    }

    /// One daemon from its start to its end, or to where it is to be killed.
    fn live(&mut self, failpoint: Option<&str>) -> Result<Life, String> {
        let mut variables = self.variables();
        if let Some(failpoint) = failpoint {
            let chosen = self
                .plan
                .wrong
                .map_or_else(String::new, |wrong| format!("{wrong},"));
            variables.push(("AGENTD_FAILPOINT", format!("{chosen}{failpoint}").into()));
        }
        if self.start(&variables)? == Life::Over {
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
        for _ in 0..self.random.below(3) {
            self.let_them_talk(25);
            self.kill_another();
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
        for _ in 0..cuts {
            let early = *self.random.one_of(&[0, 0, 200, 500, 900]);
            let state = self.place.path("state");
            let seed = self.random.next();
            let dir = self.place.path("disk");
            let disk = Disk::under(&state, dir, &self.plan.library, seed, early)
                .map_err(|error| format!("no disk: {error}"))?;
            self.disk = Some(disk);
            let failpoint = self.random.percent(40).then(|| self.failpoint());
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

    fn variables(&self) -> Variables {
        let mut variables = self.disk.as_ref().map_or_else(Vec::new, Disk::variables);
        if let Some(wrong) = self.plan.wrong {
            variables.push(("AGENTD_FAILPOINT", OsString::from(wrong)));
        }
        variables
    }

    /// A daemon that leaves by itself was told to, by a failpoint.
    fn start(&mut self, variables: &Variables) -> Result<Life, String> {
        self.counts.add("starts", 1);
        let told = variables
            .iter()
            .any(|(_, value)| value.to_string_lossy().contains(':'));
        match self.place.start(variables) {
            Started::Up => Ok(Life::Lives),
            Started::Left if told => Ok(Life::Over),
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
