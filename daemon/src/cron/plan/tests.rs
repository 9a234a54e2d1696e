//! What becomes of due times by table, and over any course of events: none twice, none lost.

use agentd_protocol::schedule::ScheduleSpec;
use proptest::prelude::*;

use super::*;

const MINUTE: i64 = 60_000;

/// Due each minute from the first on; looked at since then.
fn row(spec: ScheduleSpec) -> DueSchedule {
    let spec = ScheduleSpec {
        every: Some("1m".to_owned()),
        tz: Some("UTC".to_owned()),
        ..spec
    };
    DueSchedule {
        schedule: 1,
        spec,
        anchor_ms: 0,
        due_ms: MINUTE,
        fires_ms: MINUTE,
        failures: 0,
        failed_ms: None,
        busy: None,
    }
}

fn with(missed: Missed, overlap: Overlap) -> DueSchedule {
    row(ScheduleSpec {
        missed,
        overlap,
        ..ScheduleSpec::default()
    })
}

fn decided(row: &DueSchedule, now_ms: i64, since_ms: i64) -> Decision {
    let timing = Timing::of(&row.spec, row.anchor_ms).unwrap();
    decide(row, &timing, now_ms, since_ms)
}

/// The due time, its delay, what was left out before it, and what comes next, in minutes.
fn sent(decision: &Decision) -> (i64, u64, u64, i64) {
    let Decision::Send { fired, .. } = decision else {
        panic!("{decision:?}")
    };
    let passed = fired.passed.as_ref().map_or(0, |passed| passed.times);
    (
        fired.due_ms / MINUTE,
        fired.late_ms / 60_000,
        passed,
        fired.next.due_ms.unwrap() / MINUTE,
    )
}

fn skipped(decision: &Decision) -> (i64, u64, &str, i64) {
    let Decision::Skip(fired) = decision else {
        panic!("{decision:?}")
    };
    let passed = fired.passed.as_ref().unwrap();
    (
        passed.due_ms / MINUTE,
        passed.times,
        &passed.why,
        fired.next.due_ms.unwrap() / MINUTE,
    )
}

#[test]
fn missed_times_by_policy() {
    let at = |missed| decided(&with(missed, Overlap::Skip), 5 * MINUTE + 1, 5 * MINUTE);
    // The fifth is on time.
    assert_eq!(sent(&at(Missed::Last)), (5, 0, 4, 6));
    assert_eq!(sent(&at(Missed::Skip)), (5, 0, 4, 6));
    assert_eq!(sent(&at(Missed::All)), (1, 4, 0, 2));
    // All five came before anybody looked.
    let at = |missed| decided(&with(missed, Overlap::Skip), 5 * MINUTE + 2, 5 * MINUTE + 1);
    assert_eq!(sent(&at(Missed::Last)), (5, 0, 4, 6));
    let skip = at(Missed::Skip);
    let (due, times, why, next) = skipped(&skip);
    assert_eq!((due, times, next), (5, 5, 6));
    assert!(why.starts_with("missed"), "{why}");
    // Somebody was there and slept.
    let mut slept = with(Missed::Skip, Overlap::Skip);
    slept.spec.every = Some("1h".to_owned());
    (slept.due_ms, slept.fires_ms) = (60 * MINUTE, 60 * MINUTE);
    let skip = decided(&slept, 62 * MINUTE, 0);
    assert_eq!(skipped(&skip).0, 60);
    let sent_late = decided(&slept, 60 * MINUTE + 59_000, 0);
    assert_eq!(sent(&sent_late), (60, 0, 0, 120));
}

#[test]
fn missed_times_are_made_up_within_bounds() {
    let row = with(Missed::All, Overlap::Parallel);
    let decision = decided(&row, 10_000 * MINUTE, 10_000 * MINUTE);
    assert_eq!(sent(&decision), (9_901, 99, COUNTED, 9_902));
    let Decision::Send { fired, .. } = decision else {
        panic!()
    };
    assert_eq!(fired.passed.as_ref().unwrap().due_ms, 9_900 * MINUTE);
    let few = decided(&row, 100 * MINUTE, 100 * MINUTE);
    assert_eq!(sent(&few), (1, 99, 0, 2));
}

#[test]
fn overlap_by_policy() {
    let busy = |missed, overlap| {
        let mut row = with(missed, overlap);
        row.busy = Some(JobId(7));
        row
    };
    let now = 3 * MINUTE;
    let skip = decided(&busy(Missed::Last, Overlap::Skip), now, 0);
    assert_eq!(skipped(&skip), (3, 3, "the run before goes on: j7", 4));
    let queue = decided(&busy(Missed::Last, Overlap::Queue), now, 0);
    assert_eq!(queue, Decision::Wait);
    let parallel = decided(&busy(Missed::Last, Overlap::Parallel), now, 0);
    assert_eq!(sent(&parallel), (3, 0, 2, 4));
    let replace = decided(&busy(Missed::Last, Overlap::Replace), now, 0);
    assert_eq!(sent(&replace), (3, 0, 2, 4));
    assert!(matches!(
        replace,
        Decision::Send {
            replaces: Some(JobId(7)),
            ..
        }
    ));
    // What is made up for one by one waits for the one before.
    for overlap in [Overlap::Skip, Overlap::Replace] {
        let made_up = decided(&busy(Missed::All, overlap), now, 0);
        assert_eq!(made_up, Decision::Wait, "{overlap:?}");
        // The last of those that were missed, too.
        let mut last = busy(Missed::All, overlap);
        (last.due_ms, last.fires_ms) = (now, now);
        assert_eq!(
            decided(&last, now + 5, now + 1),
            Decision::Wait,
            "{overlap:?}"
        );
    }
    // What waited for long isn't missed.
    let mut waited = with(Missed::Skip, Overlap::Queue);
    waited.spec.every = Some("1h".to_owned());
    (waited.due_ms, waited.fires_ms) = (60 * MINUTE, 60 * MINUTE);
    assert_eq!(sent(&decided(&waited, 90 * MINUTE, 0)), (60, 30, 0, 120));
}

#[test]
fn failures_are_backed_off_from() {
    let mut row = with(Missed::Last, Overlap::Skip);
    row.spec.backoff = Some("10m".to_owned());
    row.due_ms = 30 * MINUTE;
    (row.failures, row.failed_ms) = (0, Some(29 * MINUTE));
    assert_eq!(sent(&decided(&row, 30 * MINUTE, 0)).0, 30);
    row.failures = 1;
    let skip = decided(&row, 30 * MINUTE, 0);
    assert!(
        skipped(&skip).2.contains("1970-01-01T00:39:00Z"),
        "{skip:?}"
    );
    assert_eq!(sent(&decided(&row, 39 * MINUTE, 0)).0, 39);
    // Twice as long each time, and never longer than a day.
    row.failures = 2;
    assert_eq!(skipped(&decided(&row, 39 * MINUTE, 0)).0, 39);
    assert_eq!(sent(&decided(&row, 49 * MINUTE, 0)).0, 49);
    row.failures = 40;
    let day = 24 * 60 * MINUTE;
    assert_eq!(skipped(&decided(&row, 28 * MINUTE + day, 0)).1, COUNTED + 1);
    sent(&decided(&row, 29 * MINUTE + day, 0));
}

#[test]
fn jitter_delays_what_is_due() {
    let mut row = with(Missed::Last, Overlap::Skip);
    row.spec.jitter = Some("50s".to_owned());
    let timing = Timing::of(&row.spec, 0).unwrap();
    for minute in 1..50 {
        let due = minute * MINUTE;
        (row.due_ms, row.fires_ms) = (due, timing.fires_at(due));
        let at_once = decide(&row, &timing, row.fires_ms, 0);
        assert_eq!(sent(&at_once), (minute, 0, 0, minute + 1));
        // The next one is due, and its jitter isn't over.
        let next = due + MINUTE;
        if timing.fires_at(next) > next {
            assert_eq!(sent(&decide(&row, &timing, next, 0)).0, minute);
        }
        let Decision::Send { fired, .. } = at_once else {
            panic!()
        };
        assert_eq!(fired.next.fires_ms, Some(timing.fires_at(next)));
    }
}

proptest! {
    /// A daemon that comes and goes, a clock that jumps, jobs that end or don't: each due time is sent
    /// or left out once, in order, and of those nobody says nothing.
    #[test]
    fn due_times_come_once_each(
        missed in prop_oneof![Just(Missed::Skip), Just(Missed::Last), Just(Missed::All)],
        overlap in prop_oneof![
            Just(Overlap::Skip), Just(Overlap::Queue), Just(Overlap::Replace),
            Just(Overlap::Parallel),
        ],
        steps in proptest::collection::vec((-5_i64..30, any::<bool>(), any::<bool>()), 1..60),
    ) {
        let mut row = with(missed, overlap);
        let timing = Timing::of(&row.spec, 0).unwrap();
        let (mut now, mut since, mut jobs) = (0, 0, 0);
        // The last one that is accounted for.
        let mut over = 0;
        for (jump, restarts, ends) in steps {
            now = (now + jump * MINUTE / 4).max(0);
            if restarts {
                since = now;
            }
            if ends {
                row.busy = None;
            }
            for _ in 0..200 {
                if row.fires_ms > now {
                    break;
                }
                let fired = match decide(&row, &timing, now, since) {
                    Decision::Wait => break,
                    Decision::Skip(fired) => {
                        let passed = fired.passed.clone().unwrap();
                        let times = i64::try_from(passed.times).unwrap();
                        prop_assert_eq!(passed.due_ms, over + times * MINUTE);
                        over = passed.due_ms;
                        fired
                    }
                    Decision::Send { fired, .. } => {
                        let fired = Fired::clone(&fired);
                        if let Some(passed) = &fired.passed {
                            prop_assert!(missed != Missed::All || passed.times > 0);
                            let times = i64::try_from(passed.times).unwrap();
                            prop_assert_eq!(passed.due_ms, over + times * MINUTE);
                            over = passed.due_ms;
                        }
                        prop_assert_eq!(fired.due_ms, over + MINUTE);
                        over = fired.due_ms;
                        jobs += 1;
                        row.busy = Some(JobId(jobs));
                        fired
                    }
                };
                prop_assert_eq!(fired.expected, Some(row.due_ms));
                row.due_ms = fired.next.due_ms.unwrap();
                row.fires_ms = fired.next.fires_ms.unwrap();
                prop_assert_eq!(row.due_ms, over + MINUTE);
            }
            if row.busy.is_none() {
                prop_assert!(row.fires_ms > now, "something is due and nothing is done");
            }
        }
    }
}
