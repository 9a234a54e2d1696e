//! Programs that are wrong on purpose: the rules have to see it, or they prove nothing.
//!
//! Owns which wrong there is and which rule is for it. Must not know how it is made; see
//! `daemon/src/failpoint.rs`.

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
];

/// A kill may miss the moment in which a wrong shows; in so many runs it doesn't.
const RUNS: u64 = 5;

/// Runs every wrong program; says whether each was seen through.
pub(crate) fn of_the_checker(like: &Plan) -> bool {
    let mut all = true;
    for (wrong, faults, rule) in WRONG {
        let seen = (0..RUNS).find_map(|run| {
            let plan = Plan {
                seed: like.seed + run,
                faults: *faults,
                wrong: Some(wrong),
                ..like.clone()
            };
            let broken = run::run(&plan).broken;
            broken.into_iter().find(|broken| broken.rule == *rule)
        });
        match seen {
            Some(broken) => {
                let evidence: String = broken.evidence.chars().take(100).collect();
                println!("`{wrong}` is seen: {rule}: {evidence}…");
            }
            None => {
                println!(
                    "`{wrong}` is NOT seen: {rule}, in {RUNS} runs from seed {}",
                    like.seed
                );
                all = false;
            }
        }
    }
    all
}
