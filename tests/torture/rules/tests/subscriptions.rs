//! Recordings of subscribers, over one connection and over several, that break a rule.

use serde_json::{Value, json};

use super::{Followed, Heard, History, broken, forget, heard, sound};

const MISSED: &str = "a subscription misses nothing";
const CURSOR: &str = "a cursor holds";

/// Connection 2, whatever it heard, as said over three: it breaks after the numbers 2 and 4, comes
/// back with a cursor, and hears number 3 as history, with the text so far once more.
fn resumed() -> History {
    let mut history = sound();
    let whole: Vec<Heard> = history
        .heard
        .iter()
        .filter(|heard| heard.conn == 2)
        .cloned()
        .collect();
    history.heard.retain(|heard| heard.conn != 2);
    history.followed.clear();
    for (conn, after, until) in [(2, None, 2), (3, Some(2), 4), (4, Some(4), 8)] {
        history.followed.push(follows(conn, "on", after));
        let from = after.unwrap_or(0);
        let live = if conn == 3 { 3 } else { from };
        let told = |line: &Value| {
            let seq = line["seq"].as_u64();
            seq.is_none_or(|seq| seq > from && seq <= until)
        };
        let of_it = |line: &Value| {
            if until <= 4 {
                line["job"] == "j1"
            } else {
                line["job"] == "j2"
            }
        };
        let lines = whole.iter().map(|heard| &heard.line);
        let mut lines: Vec<Value> = lines
            .filter(|line| of_it(line) && told(line))
            .cloned()
            .collect();
        if conn == 2 {
            // The text comes later.
            lines.retain(|line| line["seq"].is_u64());
        }
        let history_ends = lines
            .iter()
            .rposition(|line| line["seq"].as_u64().is_some_and(|seq| seq <= live));
        let place = history_ends.map_or(0, |at| at + 1);
        lines.insert(place, live_line(live));
        history
            .heard
            .extend(lines.into_iter().map(|line| heard(conn, line)));
    }
    history
}

fn live_line(seq: u64) -> Value {
    json!({"type": "live", "id": 9, "seq": seq, "epoch": "e"})
}

fn follows(conn: u64, follower: &str, after: Option<u64>) -> Followed {
    Followed {
        conn,
        id: 9,
        follower: follower.to_owned(),
        who: "on",
        after,
        session: None,
    }
}

/// Where this number came.
fn place_of(history: &History, conn: u64, seq: u64) -> usize {
    let is_it =
        |heard: &Heard| heard.conn == conn && heard.seq() == Some(seq) && heard.job().is_some();
    history.heard.iter().position(is_it).unwrap()
}

#[test]
fn rule_passes_a_sound_subscription_over_several_connections() {
    assert_eq!(broken(&resumed()), [""; 0]);
}

#[test]
fn a_line_that_a_subscriber_missed_is_seen() {
    let mut history = sound();
    forget(&mut history, 2, "tool_start");
    assert_eq!(broken(&history), [MISSED]);
    // Of the second job nothing at all.
    let mut history = sound();
    let is_missed = |heard: &Heard| heard.conn == 2 && heard.job() == Some("j2");
    history.heard.retain(|heard| !is_missed(heard));
    assert_eq!(broken(&history), [MISSED]);
    // Nothing but the end.
    let mut history = sound();
    let last = place_of(&history, 2, 8);
    history.heard.remove(last);
    assert_eq!(broken(&history), [MISSED]);
}

#[test]
fn rule_sees_lines_that_overtake_each_other() {
    let mut history = sound();
    let (one, other) = (place_of(&history, 2, 4), place_of(&history, 2, 5));
    history.heard.swap(one, other);
    assert_eq!(broken(&history), [MISSED]);
}

#[test]
fn a_line_from_before_the_subscription_is_seen() {
    // A daemon that says 0 and begins with what a dead one left.
    let mut history = sound();
    let late = Followed {
        who: "now",
        ..follows(5, "now-1", None)
    };
    history.followed.push(late);
    let number = |seq| json!({"type": "note", "id": 9, "job": "j2", "seq": seq});
    history.heard.push(heard(5, live_line(0)));
    history
        .heard
        .extend([7, 8].map(|seq| heard(5, number(seq))));
    assert_eq!(broken(&history), [MISSED]);
}

#[test]
fn rule_sees_gaps_and_repetitions_between_connections() {
    for seq in [3, 4, 5] {
        let conn = if seq < 5 { 3 } else { 4 };
        let mut history = resumed();
        let at = place_of(&history, conn, seq);
        history.heard.remove(at);
        assert!(broken(&history).contains(&MISSED), "{seq} is missing");
    }
    let mut history = resumed();
    let last = history.heard[place_of(&history, 3, 4)].clone();
    let first = place_of(&history, 4, 5);
    history.heard.insert(first, Heard { conn: 4, ..last });
    assert!(broken(&history).contains(&MISSED), "4 comes twice");
    // The last connection breaks off before the end.
    let mut history = resumed();
    history.heard.retain(|heard| heard.conn != 4);
    assert_eq!(broken(&history), [MISSED]);
}

#[test]
fn rule_wants_lines_of_its_session_only() {
    let mut history = resumed();
    for followed in &mut history.followed {
        followed.session = Some("s".to_owned());
    }
    assert_eq!(broken(&history), [""; 0]);
    for followed in &mut history.followed {
        followed.session = Some("another".to_owned());
    }
    assert_eq!(broken(&history), [MISSED]);
}

#[test]
fn rule_wants_outside_runs_with_the_next_line() {
    let mut history = resumed();
    let at = place_of(&history, 4, 8);
    history.heard.remove(at);
    assert_eq!(broken(&history), [MISSED]);
    history.asked[1].by = super::Asker::Program;
    assert_eq!(broken(&history), [""; 0]);
}

#[test]
fn a_cursor_that_is_refused_is_seen() {
    let mut history = resumed();
    let refused = json!({"type": "error", "id": 9, "code": "cursor-invalid", "retryable": false});
    history.followed.push(follows(6, "on", Some(8)));
    history.heard.push(heard(6, refused));
    assert_eq!(broken(&history), [CURSOR]);
}

#[test]
fn rule_sees_a_wrong_live_and_epoch() {
    let mut history = resumed();
    let of = |history: &mut History, conn, member: &str, value: Value| {
        let live = history
            .heard
            .iter_mut()
            .find(|heard| heard.conn == conn && heard.kind() == "live");
        live.unwrap().line[member] = value;
    };
    of(&mut history, 3, "seq", json!(2));
    assert_eq!(broken(&history), [CURSOR], "smaller than a line before it");
    of(&mut history, 3, "seq", json!(4));
    assert_eq!(
        broken(&history),
        [CURSOR],
        "not smaller than a line after it"
    );
    of(&mut history, 3, "seq", json!(3));
    of(&mut history, 4, "epoch", json!("another"));
    assert_eq!(broken(&history), [CURSOR]);
}
