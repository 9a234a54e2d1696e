//! What a sandboxed command, an agent, another user and a stranger could try, and that it is refused.
//!
//! The attempts are rows of `rows/`, one file for each area; `catalogue` reads them, and each area has
//! a module that runs them against real programs. An area has controls, so that nothing passes because
//! nothing works: the same attempt where it is allowed.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "tests")]
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the harness is part of the tests: a failure there is a failed test"
)]

mod catalogue;
mod disk;
#[path = "../it/mock_model/mod.rs"]
mod mock_model;
#[cfg(target_os = "linux")]
mod others;
#[cfg(target_os = "linux")]
mod sandbox;
#[cfg(target_os = "linux")]
mod script;
#[path = "../it/http/server.rs"]
mod server;
mod strangers;
#[path = "../it/support.rs"]
mod support;
#[cfg(target_os = "linux")]
mod tools;
#[cfg(target_os = "linux")]
mod world;

use std::path::Path;

use catalogue::{AREAS, rows};

/// As many as are asked for at least.
const LEAST: usize = 150;

#[test]
fn attacks_are_named_once_and_counted() {
    let mut names = std::collections::BTreeSet::new();
    let mut counted = Vec::new();
    for area in AREAS {
        let rows = rows(area);
        for row in &rows {
            assert!(names.insert(row.name.clone()), "twice: {}", row.name);
        }
        println!("{:4} {area}", rows.len());
        counted.push(rows.len());
    }
    let all: usize = counted.iter().sum();
    println!("{all:4} attempts");
    assert!(all >= LEAST, "only {all}");
    let told = Path::new(env!("CARGO_MANIFEST_DIR")).join("SECURITY.md");
    let told = std::fs::read_to_string(told).unwrap();
    let expected = format!("a catalogue of {all} attempts");
    assert!(told.contains(&expected), "SECURITY.md: expected {expected}");
}
