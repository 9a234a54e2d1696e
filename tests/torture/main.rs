//! The product under torture: clients at work while everything is killed and the power fails, and
//! afterwards a look at whether any promise was broken.
//!
//! Owns the command line and what is printed. `cargo xtask torture` builds the programs and runs
//! this one; see `daemon/RELIABILITY.md`.
//!
//! `torture [--short] [--seed S] [--kills N] [--power-cuts N] [--minutes N] [--flood N] [--no-proof]`
//! `torture --soak MINUTES [--seed S]`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a run that can't be made ends with the reason; results are printed"
)]

mod cgroup;
mod client;
mod clock;
mod disk;
mod dispatch;
mod faults;
mod flood;
mod follow;
#[cfg_attr(target_os = "linux", path = "../fuse.rs")]
#[cfg_attr(not(target_os = "linux"), path = "no_fuse.rs")]
mod fuse;
mod history;
mod journal;
mod known;
mod place;
mod program;
mod proof;
mod random;
mod receiver;
mod record;
mod rules;
mod run;
mod soak;
mod stored;
mod work;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use faults::Faults;
use place::Programs;
use record::held;
use run::{Counts, Outcome, Plan};
use work::Mix;

/// Of one run: each has a store, a history and a seed of its own.
const KILLS_AT_ONCE: usize = 100;
const CUTS_AT_ONCE: usize = 20;
const RUNS_AT_ONCE: usize = 3;
/// What fills the queue, unless more is asked for: the limits are up to the nightly run.
const FLOOD: usize = 300;

/// What was asked for.
struct Wanted {
    seed: u64,
    kills: usize,
    power_cuts: usize,
    /// Goes on for so long, whatever was done by then.
    at_least: Duration,
    proof: bool,
    /// Turns of a run that all fail, and as many that are all aborted.
    flood: usize,
    /// No kills, but a long life.
    soak: Option<Duration>,
}

fn main() -> ExitCode {
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: torture needs /proc and LD_PRELOAD, that is Linux");
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = match Wanted::parse(&words) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!(
                "{why}\nusage: torture [--short] [--seed S] [--kills N] [--power-cuts N] [--minutes N] [--flood N] [--no-proof]\n       torture --soak MINUTES [--seed S]"
            );
            return ExitCode::from(2);
        }
    };
    println!("torture: seed {}, git {}", wanted.seed, git_hash());
    // Before there is another thread: a file system that doesn't answer is this run's alone.
    let journal = if fuse::alone() {
        journal::Journal::new()
    } else {
        println!("skipped: hung directories need root and mounts of their own");
        None
    };
    if journal.is_none() {
        println!("skipped: a stopped journal needs root and mounts of its own");
    }
    if cgroup::Group::new().is_none() {
        println!(
            "skipped: an OOM needs a control group with a limit of memory: root, or delegation"
        );
    }
    place::clean_up_on_interrupt();
    let dir = tempfile::tempdir().expect("a directory");
    let build = |name, text| disk::build_library(dir.path(), name, text);
    let built = build("power_cut", disk::SOURCE)
        .and_then(|disk| Ok((disk, build("clock", clock::SOURCE)?)));
    let (library, clock) = match built {
        Ok(built) => built,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let programs = Programs::find();
    if let Some(time) = wanted.soak {
        return soak::soak(&programs, wanted.seed, time);
    }
    let plan = |seed, faults, mix| Plan {
        seed,
        faults,
        mix,
        wrong: None,
        programs: programs.clone(),
        library: library.clone(),
        clock: clock.clone(),
        journal: journal.clone(),
        flood: wanted.flood,
    };
    if wanted.proof && !proof::of_the_checker(&plan(wanted.seed, Faults::Kills(0), Mix::Gentle)) {
        return ExitCode::FAILURE;
    }
    torture(&wanted, plan)
}

/// What is to be run, and what came of it.
struct Runs {
    kills: usize,
    cuts: usize,
    seed: u64,
    total: Counts,
    /// The first run that broke a rule.
    broken: Option<(Outcome, u64, Faults)>,
}

impl Runs {
    /// The next one, unless enough was done or something is broken.
    fn next(&mut self, more: bool) -> Option<(u64, Faults)> {
        let faults = match (self.kills, self.cuts) {
            _ if self.broken.is_some() => return None,
            (0, 0) if !more => return None,
            // The longer ones first.
            (1.., _) => Faults::Kills(self.kills.min(KILLS_AT_ONCE)),
            (0, 1..) => Faults::PowerCuts(self.cuts.min(CUTS_AT_ONCE)),
            (0, 0) if self.seed.is_multiple_of(2) => Faults::Kills(KILLS_AT_ONCE),
            (0, 0) => Faults::PowerCuts(CUTS_AT_ONCE),
        };
        match faults {
            Faults::Kills(kills) => self.kills = self.kills.saturating_sub(kills),
            Faults::PowerCuts(cuts) => self.cuts = self.cuts.saturating_sub(cuts),
        }
        self.seed += 1;
        Some((self.seed - 1, faults))
    }
}

/// Runs until enough was done, or something is broken: some runs at once, as each mostly waits.
fn torture(wanted: &Wanted, plan: impl Fn(u64, Faults, Mix) -> Plan + Sync) -> ExitCode {
    let begun = Instant::now();
    let runs = Mutex::new(Runs {
        kills: wanted.kills,
        cuts: wanted.power_cuts,
        seed: wanted.seed,
        total: Counts::default(),
        broken: None,
    });
    let one_after_the_other = || {
        let next = || held(&runs).next(begun.elapsed() < wanted.at_least);
        while let Some((seed, faults)) = next() {
            let outcome = run::run(&plan(seed, faults, Mix::Deadly));
            println!("{faults:?} with seed {seed}: {}", outcome.times);
            let mut runs = held(&runs);
            runs.total += &outcome.counts;
            if !outcome.broken.is_empty() {
                runs.broken.get_or_insert((outcome, seed, faults));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..RUNS_AT_ONCE {
            scope.spawn(one_after_the_other);
        }
    });
    let runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((outcome, seed, faults)) = runs.broken {
        show(&outcome.counts);
        complain(&outcome, &again(seed, faults));
        return ExitCode::FAILURE;
    }
    show(&runs.total);
    println!(
        "no rule of {} is broken; {:.0} s",
        rules::RULES.len(),
        begun.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// The same run once more.
fn again(seed: u64, faults: Faults) -> String {
    let (kills, cuts) = match faults {
        Faults::Kills(kills) => (kills, 0),
        Faults::PowerCuts(cuts) => (0, cuts),
    };
    format!("cargo xtask torture --no-proof --seed {seed} --kills {kills} --power-cuts {cuts}")
}

fn show(counts: &Counts) {
    for (name, count) in &counts.0 {
        println!("  {name}: {count}");
    }
}

/// At most so many pieces of evidence for each rule: the rest says the same.
const EVIDENCE: usize = 5;

fn complain(outcome: &Outcome, again: &str) {
    for (rule, _) in rules::RULES {
        let broken = outcome.broken.iter().filter(|broken| broken.rule == *rule);
        let count = broken.clone().count();
        if count > 0 {
            println!("BROKEN: {rule}: {count}");
        }
        for broken in broken.take(EVIDENCE) {
            println!("  {}", broken.evidence);
        }
    }
    println!("the end of the daemon's log:\n{}", outcome.log);
    println!("again with: {again}");
}

impl Wanted {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut wanted = Self {
            seed: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| since.as_secs()),
            kills: 2000,
            power_cuts: 300,
            at_least: Duration::ZERO,
            proof: true,
            flood: FLOOD,
            soak: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let text = words.next().ok_or(format!("{word} needs a number"))?;
                text.parse::<u64>()
                    .map_err(|why| format!("{word} {text}: {why}"))
            };
            let size = |number: u64| usize::try_from(number).map_err(|why| why.to_string());
            match word.as_str() {
                "--seed" => wanted.seed = number()?,
                "--kills" => wanted.kills = size(number()?)?,
                "--power-cuts" => wanted.power_cuts = size(number()?)?,
                "--soak" => wanted.soak = Some(Duration::from_secs(60 * number()?)),
                "--minutes" => wanted.at_least = Duration::from_secs(60 * number()?),
                "--short" => (wanted.kills, wanted.power_cuts) = (200, 20),
                "--flood" => wanted.flood = size(number()?)?,
                "--no-proof" => wanted.proof = false,
                _ => return Err(format!("what is `{word}`?")),
            }
        }
        Ok(wanted)
    }
}

fn git_hash() -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12"]);
    git.current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let output = git.output().ok().filter(|output| output.status.success());
    output.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
