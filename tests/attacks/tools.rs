//! Attempts of a model with the tools for files, and while somebody swaps names under them.
//!
//! Owns how many calls are made, and the swapping. Further fields of a row: `plant` is a script that is
//! run in the workspace before, `swap` are two names there that change places all the while, and `may`
//! says that the call itself is answered. A `try` is a tool and what it gets. A row of `races` must
//! have been answered with `must` at least once.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::Value;

use crate::catalogue::{Row, none_failed, rows};
use crate::script;
use crate::support::{finish, skipped};
use crate::world::World;

/// Calls of one turn: a model may make more, but not in one answer.
const AT_ONCE: usize = 10;
/// Turns until a row has been answered.
const MOST_TURNS: usize = 20;
/// Turns of a race at least.
const TURNS: usize = 2;

/// What each of these calls said, and whether it did what it was asked.
fn used(world: &World, work: &Path, calls: &[String]) -> Vec<(bool, String)> {
    let mut said = Vec::new();
    for calls in calls.chunks(AT_ONCE) {
        let text: Vec<String> = calls.iter().map(|call| format!("[[use {call}]]")).collect();
        let last = world.turn("timmy", work, &text.join(" "));
        let trace = last["tool_trace"].as_array();
        let trace = trace.unwrap_or_else(|| panic!("{last:#}")).iter();
        let trace: Vec<&Value> = trace.filter(|call| call["name"] != "question").collect();
        assert_eq!(trace.len(), calls.len(), "{last:#}");
        said.extend(trace.iter().map(|call| {
            let output = call["output"].as_str().unwrap_or_default();
            (call["ok"] == true, output.to_owned())
        }));
    }
    said
}

fn plant(world: &World, work: &Path, rows: &[Row]) {
    for row in rows {
        let Some(script) = row.field("plant") else {
            continue;
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", script]).current_dir(work);
        command.envs(world.variables());
        let done = finish(command, b"");
        assert_eq!(done.code, Some(0), "{}: {done:?}", row.name);
    }
}

#[test]
fn attacks_with_tools_for_files_are_refused() {
    let mut world = World::new("");
    let attempts = rows("tools");
    let work = world.workspace("tools", &[]);
    plant(&world, &work, &attempts);
    let before = world.snapshot();
    let allowed = [
        r#"read {"path": "mine"}"#,
        r#"write {"path": "new", "content": "made"}"#,
        r#"edit {"path": "new", "old": "made", "new": "changed"}"#,
        r#"search {"pattern": "of the workspace"}"#,
        r#"list {}"#,
    ]
    .map(str::to_owned);
    for (call, (ok, said)) in allowed.iter().zip(used(&world, &work, &allowed)) {
        assert!(ok, "{call}: {said}");
    }
    let calls: Vec<String> = attempts
        .iter()
        .map(|row| world.filled(row.tries()))
        .collect();
    let mut failed = Vec::new();
    for (row, (ok, said)) in attempts.iter().zip(used(&world, &work, &calls)) {
        failed.extend(row.judge(row.must(), &said, &world.key).err());
        if ok && row.field("may").is_none() {
            failed.push(format!("{}: it was done: {said}", row.name));
        }
    }
    failed.extend(world.harm(&before));
    none_failed("tools", &failed);
}

/// Has two names change places until the work is done.
fn swapping<T>(work: &Path, names: &str, during: impl FnOnce() -> T) -> T {
    let (one, other) = names.split_once(' ').unwrap();
    let (one, other) = (work.join(one), work.join(other));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let flags = RenameFlags::RENAME_EXCHANGE;
                // A tool may have one of them for a moment.
                let _next_time = renameat2(AT_FDCWD, &one, AT_FDCWD, &other, flags);
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|why| std::panic::resume_unwind(why))
    })
}

#[test]
fn attacks_that_race_with_tools_lose() {
    if script::landlock() < 3 {
        return skipped("a sandbox");
    }
    let mut world = World::new("");
    let mut failed = Vec::new();
    for (number, row) in rows("races").iter().enumerate() {
        let work = world.workspace(&format!("races-{number}"), &[]);
        plant(&world, &work, std::slice::from_ref(row));
        let before = world.snapshot();
        let call = world.filled(row.tries());
        let calls = if call.starts_with("bash") { 1 } else { AT_ONCE };
        let calls = vec![call; calls];
        let mut all = String::new();
        let turns = || {
            for turn in 0..MOST_TURNS {
                for (_, said) in used(&world, &work, &calls) {
                    all.push_str(&said);
                    all.push('\n');
                }
                if turn + 1 >= TURNS && all.contains(row.must()) {
                    break;
                }
            }
        };
        swapping(&work, row.field("swap").unwrap(), turns);
        failed.extend(row.judge(row.must(), &all, &world.key).err());
        failed.extend(
            world
                .harm(&before)
                .iter()
                .map(|harm| format!("{}: {harm}", row.name)),
        );
    }
    none_failed("races", &failed);
}
