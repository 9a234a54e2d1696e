//! For each rule a recording that breaks it, made from one that breaks none.

mod dispatched;
mod subscriptions;
mod told;

use std::time::Duration;

use serde_json::{Value, json};

use super::{RULES, check};
use crate::history::{
    Asked, Asker, Descriptors, Effect, End, Event, Followed, Heard, History, Hold, Job, Look, Retry,
};

/// Two jobs of one session, asked for on connection 1 as requests 1 and 2, heard by a subscriber on
/// connection 2, with one side effect each.
fn sound() -> History {
    let mut history = History::default();
    for number in 1..=2 {
        let nonce = format!("1-{number}");
        let job = format!("j{number}");
        let first = 4 * (number - 1);
        let last = json!({
            "type": "message_end", "stop": "end_turn", "job": job, "seq": first + 4,
            "text": format!("<{nonce}>done"),
        });
        history.asked.push(Asked {
            conn: 1,
            id: number,
            by: Asker::Socket,
            key: Some(nonce.clone()),
            nonce: nonce.clone(),
            retry: Retry::Never,
        });
        history.effects.push(Effect {
            job: job.clone(),
            session: "s".to_owned(),
            nonce: nonce.clone(),
        });
        let request = json!({"text": format!("chaos: say <{nonce}>;ledger <{nonce}>")});
        history.jobs.push(Job {
            job: job.clone(),
            seq: first + 1,
            session: 7,
            key: Some(nonce.clone()),
            request: request.to_string(),
            state: "completed".to_owned(),
            last: Some(End {
                seq: first + 4,
                line: last.clone(),
            }),
        });
        for seq in [first + 2, first + 3] {
            history.events.push(Event {
                seq,
                job: job.clone(),
            });
        }
        history.collected.push(last.clone());
        hear(&mut history, &nonce, &job, first, &last);
    }
    history.sessions.insert(7, "s".to_owned());
    history.descriptors.push(Descriptors {
        kind: "socket".to_owned(),
        base: 1,
        idle: 2,
        allowed: 1,
    });
    history
}

/// The lines of one job, as its sender and as a subscriber hear them.
fn hear(history: &mut History, nonce: &str, job: &str, first: u64, last: &Value) {
    let lines = [
        json!({"type": "accepted", "job": job, "seq": first + 1, "replayed": false}),
        json!({"type": "tool_start", "job": job, "seq": first + 2}),
        json!({"type": "message_start", "job": job, "message": 0}),
        json!({"type": "message_delta", "job": job, "message": 0, "offset": 0, "text": format!("<{nonce}>")}),
        json!({"type": "message_delta", "job": job, "message": 0, "offset": nonce.len() + 2, "text": "done"}),
        json!({"type": "tool_end", "job": job, "seq": first + 3}),
        last.clone(),
    ];
    if first == 0 {
        let live = json!({"type": "live", "id": 9, "seq": 0});
        history.heard.push(heard(2, live));
        history.followed.push(Followed {
            conn: 2,
            id: 9,
            follower: "now-0".to_owned(),
            who: "now",
            after: None,
            session: None,
        });
    }
    for (conn, id) in [(1, first / 4 + 1), (2, 9)] {
        for line in &lines {
            let mut line = line.clone();
            line["id"] = json!(id);
            history.heard.push(heard(conn, line));
        }
    }
}

fn heard(conn: u64, line: Value) -> Heard {
    Heard {
        at: Duration::ZERO,
        conn,
        line,
    }
}

/// The rules that a recording breaks.
fn broken(history: &History) -> Vec<&'static str> {
    let (broken, _) = check(history);
    let mut rules: Vec<_> = broken.iter().map(|broken| broken.rule).collect();
    rules.dedup();
    rules
}

/// The line of this type on connection 1, of the first job.
fn line_of<'a>(history: &'a mut History, kind: &str) -> &'a mut Value {
    let found = history
        .heard
        .iter_mut()
        .find(|heard| heard.conn == 1 && heard.line["type"] == kind);
    &mut found.unwrap().line
}

fn forget(history: &mut History, conn: u64, kind: &str) {
    let at = history
        .heard
        .iter()
        .position(|heard| heard.conn == conn && heard.kind() == kind);
    history.heard.remove(at.unwrap());
}

#[test]
fn a_sound_recording_breaks_no_rule() {
    let (broken, facts) = check(&sound());
    assert_eq!(broken, []);
    assert!(facts > 20, "{facts}");
}

#[test]
fn rule_sees_an_accepted_job_forgotten() {
    let mut history = sound();
    history.jobs.remove(1);
    assert!(broken(&history).contains(&"an accepted job is stored"));
    let mut history = sound();
    history.jobs[1].key = None;
    assert!(broken(&history).contains(&"an accepted job is stored"));
}

#[test]
fn a_key_that_became_two_jobs_is_seen() {
    let mut history = sound();
    history.jobs[1].key = Some("1-1".to_owned());
    assert!(broken(&history).contains(&"a key is one job"));
}

#[test]
fn rule_sees_a_job_without_one_end() {
    let rule = "a job has exactly one end";
    let mut history = sound();
    history.jobs[0].state = "running".to_owned();
    assert!(broken(&history).contains(&rule));
    let mut history = sound();
    history.jobs[0].last = None;
    assert!(broken(&history).contains(&rule));
    // Told as completed, stored as interrupted.
    let mut history = sound();
    line_of(&mut history, "message_end")["stop"] = json!("cancelled");
    assert_eq!(broken(&history), [rule]);
    let mut history = sound();
    let again = line_of(&mut history, "message_end").clone();
    history.heard.push(heard(1, again));
    assert!(broken(&history).contains(&rule));
    let mut history = sound();
    history.collected[0]["seq"] = json!(3);
    assert_eq!(broken(&history), [rule]);
}

#[test]
fn rule_sees_a_side_effect_twice_unless_allowed() {
    let rule = "a side effect happens once";
    let mut history = sound();
    let twice = history.effects[0].clone();
    history.effects.push(twice.clone());
    assert_eq!(broken(&history), [rule]);
    history.asked[0].retry = Retry::Auto;
    assert!(broken(&history).is_empty());
    history.effects.extend([twice.clone(), twice]);
    assert_eq!(broken(&history), [rule], "four times");
    let mut history = sound();
    history.effects.remove(0);
    assert_eq!(broken(&history), [rule], "none, and yet completed");
}

#[test]
fn an_answer_under_another_job_is_seen() {
    let rule = "an answer belongs to its job";
    let mut history = sound();
    line_of(&mut history, "message_delta")["text"] = json!("<1-2>");
    assert_eq!(broken(&history)[0], rule);
    let mut history = sound();
    line_of(&mut history, "tool_start")["job"] = json!("j2");
    assert!(broken(&history).contains(&rule));
    // Nothing of the prompt came back.
    let mut history = sound();
    line_of(&mut history, "message_end")["text"] = json!("done");
    assert!(broken(&history).contains(&rule));
}

#[test]
fn a_request_that_nobody_answered_is_seen() {
    let rule = "what was asked is answered";
    let mut history = sound();
    forget(&mut history, 1, "message_end");
    assert_eq!(broken(&history), [rule]);
    let mut history = sound();
    history.collected.remove(0);
    assert_eq!(broken(&history), [rule]);
}

#[test]
fn rule_sees_gaps_repetitions_and_wrong_orders() {
    let rule = "a stream has no gap and no repetition";
    let mut history = sound();
    forget(&mut history, 1, "tool_start");
    assert_eq!(broken(&history), [rule]);
    let mut history = sound();
    let again = history
        .heard
        .iter()
        .find(|heard| heard.kind() == "tool_start")
        .cloned();
    history.heard.extend(again);
    assert_eq!(broken(&history), [rule]);
    let mut history = sound();
    line_of(&mut history, "tool_start")["seq"] = json!(3);
    line_of(&mut history, "tool_end")["seq"] = json!(2);
    assert_eq!(broken(&history), [rule]);
}

#[test]
fn rule_lets_a_replay_begin_with_accepted() {
    let mut history = sound();
    line_of(&mut history, "accepted")["replayed"] = json!(true);
    forget(&mut history, 1, "tool_start");
    assert!(broken(&history).is_empty());
    line_of(&mut history, "tool_end")["seq"] = json!(2);
    assert_eq!(
        broken(&history),
        ["a stream has no gap and no repetition"],
        "but nothing after that"
    );
}

#[test]
fn rule_sees_text_with_holes_or_not_final() {
    let rule = "text by offsets is the final text";
    let mut history = sound();
    forget(&mut history, 1, "message_delta");
    assert_eq!(broken(&history), [rule]);
    let mut history = sound();
    let at = history
        .heard
        .iter()
        .rposition(|heard| heard.conn == 1 && heard.kind() == "message_delta");
    history.heard.remove(at.unwrap());
    assert_eq!(broken(&history), [rule]);
    // Who subscribes hears the whole of it, too.
    let mut history = sound();
    let at = history
        .heard
        .iter()
        .rposition(|heard| heard.conn == 2 && heard.kind() == "message_delta");
    history.heard.remove(at.unwrap());
    assert_eq!(broken(&history), [rule]);
}

#[test]
fn rule_lets_only_repeated_turns_drop_words() {
    let mut history = sound();
    for heard in &mut history.heard {
        if heard.kind() == "message_end" && heard.job() == Some("j1") {
            heard.line["text"] = json!("");
            heard.line["stop"] = json!("cancelled");
        }
    }
    for line in [
        &mut history.collected[0],
        &mut history.jobs[0].last.as_mut().unwrap().line,
    ] {
        line["text"] = json!("");
        line["stop"] = json!("cancelled");
    }
    history.jobs[0].state = "cancelled".to_owned();
    assert_eq!(broken(&history), ["text by offsets is the final text"]);
    history.jobs[0].request = history.jobs[0]
        .request
        .replacen('{', r#"{"retry":"auto","#, 1);
    assert!(broken(&history).is_empty());
}

#[test]
fn rule_sees_a_resumed_turn_held_again() {
    let hold = |history: &mut History, after, until| {
        let job = "j2".to_owned();
        let released = Hold::Released {
            job: job.clone(),
            after,
        };
        history.holds = vec![released, Hold::Held { job, until }];
    };
    let rule = "what was resumed stays so";
    let mut history = sound();
    hold(&mut history, 0, 8);
    assert_eq!(broken(&history), [rule]);
    history.jobs[0].state = "interrupted".to_owned();
    assert!(broken(&history).is_empty(), "behind j1");
    hold(&mut history, 4, 8);
    assert_eq!(broken(&history), [rule], "j1 had ended before");
    hold(&mut history, 0, 3);
    assert_eq!(broken(&history), [rule], "j1 had not ended by then");
    history.holds.reverse();
    assert!(broken(&history).is_empty(), "held before it was resumed");
}

#[test]
fn rule_sees_a_number_lost_or_given_twice() {
    let rule = "the store's numbers have no gaps";
    let mut history = sound();
    history.events.remove(0);
    assert!(broken(&history).contains(&rule));
    let mut history = sound();
    history.events[0].seq = 3;
    assert!(broken(&history).contains(&rule));
    let mut history = sound();
    history.sessions.clear();
    assert_eq!(broken(&history), [rule]);
}

#[test]
fn rule_sees_processes_descriptors_and_clients_left_behind() {
    let mut history = sound();
    history.left.push("4711: sleep 300".to_owned());
    assert_eq!(broken(&history), ["no process is left"]);
    let mut history = sound();
    history.descriptors[0].idle = 3;
    assert_eq!(broken(&history), ["descriptors return to their number"]);
    let mut history = sound();
    history.stuck.push("connection 1 heard nothing".to_owned());
    assert_eq!(broken(&history), ["nobody waits in vain"]);
}

#[test]
fn every_rule_has_a_recording_that_breaks_it() {
    let text = [
        include_str!("tests.rs"),
        include_str!("tests/dispatched.rs"),
        include_str!("tests/subscriptions.rs"),
        include_str!("tests/told.rs"),
    ]
    .concat();
    for (rule, _) in RULES {
        assert!(text.matches(rule).count() > 0, "{rule}");
    }
}

#[test]
fn aborted_jobs_that_ran_are_seen() {
    let mut history = sound();
    history.aborted.push("j1".to_owned());
    assert_eq!(broken(&history), ["what was aborted never runs"]);
    let mut history = sound();
    history.aborted.push("j9".to_owned());
    assert_eq!(
        broken(&history),
        ["what was aborted never runs"],
        "not stored"
    );
}

#[test]
fn rule_sees_a_job_its_daemon_forgot() {
    let mut history = sound();
    let mut look = Look {
        open: vec!["j1".to_owned(), "j2".to_owned()],
        known: 2,
    };
    history.looks.push(look.clone());
    assert!(broken(&history).is_empty());
    look.known = 1;
    history.looks.push(look);
    assert_eq!(broken(&history), ["every open job is known"]);
}
