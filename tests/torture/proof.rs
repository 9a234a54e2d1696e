//! Programs that are wrong on purpose: the rules have to see it, or they prove nothing.
//!
//! Owns which wrong there is and which rule is for it. Must not know how it is made; see
//! `daemon/src/failpoint.rs`.

use std::time::Instant;

use crate::faults::Faults;
use crate::run::{self, Plan};

/// A way to be wrong, under which faults it shows, and the rule that it breaks.
const WRONG: &[(&str, Faults, &str)] = &[
    // `accepted` is told before its commit.
    ("ack-early", Faults::Kills(12), "an accepted job is stored"),
    // Commits are synced at checkpoints only, so that a power cut takes what was told.
    (
        "sync-rarely",
        Faults::PowerCuts(3),
        "an accepted job is stored",
    ),
    // A worker gets each prompt twice.
    ("tell-twice", Faults::Kills(3), "a side effect happens once"),
    // Some numbered lines are not sent.
    (
        "lose-lines",
        Faults::Kills(3),
        "a stream has no gap and no repetition",
    ),
    // What a dead daemon left is taken over but for one job.
    ("forget-job", Faults::Kills(6), "every open job is known"),
];

/// A kill may miss the moment in which a wrong shows; in so many runs it doesn't. Most show in the first
/// or second.
const RUNS: u64 = 12;

/// Runs every wrong program, all at once as they mostly wait; says whether each was seen through.
pub(crate) fn of_the_checker(like: &Plan) -> bool {
    std::thread::scope(|scope| {
        let start = |(wrong, faults, rule): &'static (&'static str, Faults, &str)| {
            scope.spawn(move || is_seen(like, wrong, *faults, rule))
        };
        let cases: Vec<_> = WRONG.iter().map(start).collect();
        // Each is waited for.
        let seen: Vec<_> = cases.into_iter().map(|case| case.join()).collect();
        seen.iter().all(|seen| matches!(seen, Ok(true)))
    })
}

fn is_seen(like: &Plan, wrong: &'static str, faults: Faults, rule: &str) -> bool {
    let begun = Instant::now();
    for run in 0..RUNS {
        let plan = Plan {
            seed: like.seed + run,
            faults,
            wrong: Some(wrong),
            ..like.clone()
        };
        let broken = run::run(&plan).broken;
        if let Some(broken) = broken.into_iter().find(|broken| broken.rule == rule) {
            let evidence: String = broken.evidence.chars().take(100).collect();
            let took = begun.elapsed().as_secs();
            println!("`{wrong}` is seen, {took} s: {rule}: {evidence}…");
            return true;
        }
    }
    let from = like.seed;
    println!("`{wrong}` is NOT seen: {rule}, in {RUNS} runs from seed {from}");
    false
}
