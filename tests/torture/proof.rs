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

/// Runs every wrong program; says whether each was seen through.
pub(crate) fn of_the_checker(like: &Plan) -> bool {
    let mut all = true;
    for (wrong, faults, rule) in WRONG {
        let plan = Plan {
            faults: *faults,
            wrong: Some(wrong),
            ..like.clone()
        };
        let outcome = run::run(&plan);
        let seen = outcome.broken.iter().find(|broken| broken.rule == *rule);
        match seen {
            Some(broken) => {
                let evidence: String = broken.evidence.chars().take(100).collect();
                println!("`{wrong}` is seen: {rule}: {evidence}…");
            }
            None => {
                println!(
                    "`{wrong}` is NOT seen, with seed {}: {:?}",
                    plan.seed, outcome.broken
                );
                all = false;
            }
        }
    }
    all
}
