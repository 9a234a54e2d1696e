//! Recordings of turns that were handed in together, that break a rule.

use serde_json::{Value, json};

use super::{Heard, History, Retry, broken, heard, sound};
use crate::history::{Dispatched, Item};

const ALL_OR_NONE: &str = "a dispatch is all or none";
const KEYS: &str = "a dispatch is found by its keys";

/// Both jobs were handed in together: the answer was lost on connection 7, and came on 8.
fn handed_in() -> History {
    let mut history = sound();
    history.asked.clear();
    history.heard.retain(|heard| heard.conn == 2);
    let item = |nonce: &str| Item {
        key: nonce.to_owned(),
        nonce: nonce.to_owned(),
        retry: Retry::Never,
    };
    for conn in [7, 8] {
        history.dispatched.push(Dispatched {
            conn,
            id: 1,
            items: ["1-1", "1-2"].map(item).to_vec(),
        });
    }
    history.heard.push(answer(8, ["j1", "j2"], [true, true]));
    history
}

fn answer(conn: u64, jobs: [&str; 2], replayed: [bool; 2]) -> Heard {
    let row = |at: usize| json!({"job": jobs[at], "session": "s", "replayed": replayed[at]});
    let line = json!({"type": "dispatch", "id": 1, "ok": true, "jobs": [row(0), row(1)]});
    heard(conn, line)
}

fn replace_answer(history: &mut History, line: Value) {
    history.heard.pop();
    history.heard.push(heard(8, line));
}

/// As if the second turn had never been there.
fn without_the_second(history: &mut History) {
    let second = |job: &str| job == "j2";
    history.jobs.retain(|job| !second(&job.job));
    history.events.retain(|event| !second(&event.job));
    history.effects.retain(|effect| !second(&effect.job));
    history.collected.retain(|line| line["job"] != "j2");
    history.heard.retain(|heard| heard.job() != Some("j2"));
}

#[test]
fn a_sound_dispatch_breaks_no_rule() {
    assert_eq!(broken(&handed_in()), [""; 0]);
    // Answered twice.
    let mut history = handed_in();
    let first = history.heard.len() - 1;
    history
        .heard
        .insert(first, answer(7, ["j1", "j2"], [false, false]));
    assert_eq!(broken(&history), [""; 0]);
}

#[test]
fn a_half_stored_dispatch_is_seen() {
    let mut history = handed_in();
    without_the_second(&mut history);
    assert!(broken(&history).contains(&ALL_OR_NONE), "answered");
    history.heard.pop();
    assert!(broken(&history).contains(&ALL_OR_NONE), "not answered");
}

#[test]
fn rule_sees_a_refused_dispatch_that_is_stored() {
    let mut history = handed_in();
    replace_answer(
        &mut history,
        json!({"type": "error", "id": 1, "code": "unknown-agent", "retryable": false}),
    );
    assert_eq!(broken(&history), [ALL_OR_NONE]);
}

#[test]
fn rule_sees_an_answered_dispatch_not_stored() {
    let mut history = History::default();
    let like = handed_in();
    history.dispatched = like.dispatched;
    history.heard.extend(like.heard.last().cloned());
    assert!(broken(&history).contains(&ALL_OR_NONE));
}

#[test]
fn a_dispatch_that_nobody_answered_is_seen() {
    let mut history = handed_in();
    history.heard.pop();
    assert_eq!(broken(&history), [ALL_OR_NONE]);
    replace_answer(
        &mut history,
        json!({"type": "error", "id": 1, "code": "disk-full", "retryable": true}),
    );
    assert!(broken(&history).contains(&ALL_OR_NONE));
}

#[test]
fn other_jobs_under_the_same_keys_are_seen() {
    let wrong = [
        answer(8, ["j2", "j1"], [true, true]),
        answer(8, ["j1", "j1"], [true, true]),
        answer(8, ["j1", "j2"], [true, false]),
    ];
    for wrong in wrong {
        let mut history = handed_in();
        replace_answer(&mut history, wrong.line);
        assert_eq!(broken(&history), [KEYS]);
    }
    // Of two jobs one is named.
    let mut history = handed_in();
    let mut short = answer(8, ["j1", "j2"], [true, true]).line;
    short["jobs"].as_array_mut().unwrap().pop();
    replace_answer(&mut history, short);
    assert_eq!(broken(&history), [KEYS]);
    // Twice as new.
    let mut history = handed_in();
    history.heard.pop();
    let new = [7, 8].map(|conn| answer(conn, ["j1", "j2"], [false, false]));
    history.heard.extend(new);
    assert_eq!(broken(&history), [KEYS]);
}
