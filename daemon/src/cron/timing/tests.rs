//! Due times by table: what the clocks of a place did, and what that means.

use proptest::prelude::*;

use super::*;

fn ms(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn cron(fields: &str, tz: &str) -> ScheduleSpec {
    ScheduleSpec {
        cron: Some(fields.to_owned()),
        tz: Some(tz.to_owned()),
        ..ScheduleSpec::default()
    }
}

fn every(every: &str) -> ScheduleSpec {
    ScheduleSpec {
        every: Some(every.to_owned()),
        tz: Some("UTC".to_owned()),
        ..ScheduleSpec::default()
    }
}

fn at(at: &str, tz: &str) -> ScheduleSpec {
    ScheduleSpec {
        at: Some(at.to_owned()),
        tz: Some(tz.to_owned()),
        ..ScheduleSpec::default()
    }
}

/// The first due times after an instant, as they are shown.
fn due(spec: &ScheduleSpec, after: &str, count: usize) -> Vec<String> {
    let after = ms(after);
    let timing = Timing::of(spec, after).unwrap();
    let next = std::iter::successors(timing.next_after(after), |due| timing.next_after(*due));
    next.take(count).map(|due| timing.shown(due)).collect()
}

/// Fields, a time zone, an instant, and the first due times after it.
const CRON: &[(&str, &str, &str, &[&str])] = &[
    // The gap: 2:00 to 3:00 isn't there.
    (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T01:30:00Z",
        &["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
    ),
    // What is due within each hour is due within those that there are.
    (
        "30 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"],
    ),
    // The fold: 2:00 to 3:00 comes twice.
    (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T01:00:00Z",
        &["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
    ),
    (
        "30 * * * *",
        "Europe/Berlin",
        "2026-10-25T00:00:00Z",
        &[
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:30:00+01:00",
            "2026-10-25T03:30:00+01:00",
        ],
    ),
    // On the other side of the world, by half an hour.
    (
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-02T15:00:00Z",
        &[
            "2026-10-03T02:15:00+10:30",
            "2026-10-04T02:30:00+11:00",
            "2026-10-05T02:15:00+11:00",
        ],
    ),
    // A day that a place left out: 30 December 2011 in Samoa.
    (
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-29T00:00:00Z",
        &["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"],
    ),
    // Rules that changed: no summer time in Moscow since 2011, and other offsets until 2014.
    (
        "0 9 1 7 *",
        "Europe/Moscow",
        "2010-01-01T00:00:00Z",
        &[
            "2010-07-01T09:00:00+04:00",
            "2011-07-01T09:00:00+04:00",
            "2012-07-01T09:00:00+04:00",
            "2013-07-01T09:00:00+04:00",
            "2014-07-01T09:00:00+04:00",
            "2015-07-01T09:00:00+03:00",
        ],
    ),
    // Leap days, and a year that has none though four divide it.
    (
        "0 0 29 2 *",
        "UTC",
        "2092-01-01T00:00:00Z",
        &[
            "2092-02-29T00:00:00Z",
            "2096-02-29T00:00:00Z",
            "2104-02-29T00:00:00Z",
        ],
    ),
    // Ends of months.
    (
        "0 0 31 * *",
        "UTC",
        "2026-11-28T00:00:00Z",
        &[
            "2026-12-31T00:00:00Z",
            "2027-01-31T00:00:00Z",
            "2027-03-31T00:00:00Z",
        ],
    ),
    (
        "0 0 L * *",
        "UTC",
        "2026-11-28T00:00:00Z",
        &["2026-11-30T00:00:00Z", "2026-12-31T00:00:00Z"],
    ),
    // Working days; Saturday, 28 November 2026.
    (
        "0 9 * * 1-5",
        "Europe/Berlin",
        "2026-11-28T12:00:00Z",
        &["2026-11-30T09:00:00+01:00", "2026-12-01T09:00:00+01:00"],
    ),
    // A day of the month or of the week, as crontab has it.
    (
        "0 0 13 * 5",
        "UTC",
        "2026-11-28T00:00:00Z",
        &[
            "2026-12-04T00:00:00Z",
            "2026-12-11T00:00:00Z",
            "2026-12-13T00:00:00Z",
        ],
    ),
    // Within the minute that is due.
    (
        "* * * * *",
        "UTC",
        "2026-11-28T12:00:00.5Z",
        &["2026-11-28T12:01:00Z"],
    ),
    (
        "* * * * *",
        "UTC",
        "2026-11-28T11:59:59.999Z",
        &["2026-11-28T12:00:00Z"],
    ),
];

#[test]
fn cron_by_table() {
    for (fields, tz, after, expected) in CRON {
        let found = due(&cron(fields, tz), after, expected.len());
        assert_eq!(found, *expected, "{fields} in {tz} after {after}");
    }
}

#[test]
fn every_keeps_its_anchor() {
    let timing = Timing::of(&every("7m"), ms("2026-11-28T12:00:01.250Z")).unwrap();
    for (after, expected) in [
        ("2020-01-01T00:00:00Z", "2026-11-28T12:07:01.25Z"),
        ("2026-11-28T12:00:01.250Z", "2026-11-28T12:07:01.25Z"),
        ("2026-11-28T12:07:01.249Z", "2026-11-28T12:07:01.25Z"),
        ("2026-11-28T12:07:01.250Z", "2026-11-28T12:14:01.25Z"),
        ("2026-11-28T13:03:01Z", "2026-11-28T13:03:01.25Z"),
    ] {
        let next = timing.next_after(ms(after)).unwrap();
        assert_eq!(timing.shown(next), expected, "{after}");
    }
    assert_eq!(timing.last_by(ms("2026-11-28T12:07:01.249Z")), None);
    let last = timing.last_by(ms("2026-11-28T12:10:00Z")).unwrap();
    assert_eq!(timing.shown(last), "2026-11-28T12:07:01.25Z");
}

#[test]
fn at_by_table() {
    let now = ms("2026-03-28T12:00:00Z");
    for (given, tz, expected) in [
        ("+1m", "UTC", "2026-03-28T12:01:00Z"),
        ("20m", "UTC", "2026-03-28T12:20:00Z"),
        ("+90", "UTC", "2026-03-28T12:01:30Z"),
        (
            "2026-12-01T09:00",
            "Europe/Berlin",
            "2026-12-01T09:00:00+01:00",
        ),
        (
            "2026-12-01 09:00",
            "Europe/Berlin",
            "2026-12-01T09:00:00+01:00",
        ),
        (
            "2026-12-01T09:00:00Z",
            "Europe/Berlin",
            "2026-12-01T10:00:00+01:00",
        ),
        ("2026-12-01T09:00:00-05:00", "UTC", "2026-12-01T14:00:00Z"),
        // In the gap, and in the fold.
        (
            "2026-03-29T02:30",
            "Europe/Berlin",
            "2026-03-29T03:30:00+02:00",
        ),
        (
            "2026-10-25T02:30",
            "Europe/Berlin",
            "2026-10-25T02:30:00+02:00",
        ),
    ] {
        let mut spec = at(given, tz);
        let timing = settle(&mut spec, now).unwrap();
        let due = timing.next_after(now).unwrap();
        assert_eq!(timing.shown(due), expected, "{given} in {tz}");
        assert_eq!(timing.next_after(due), None, "{given} is due once");
        // What is kept says the same for ever.
        let kept = Timing::of(&spec, 0).unwrap();
        assert_eq!(kept.next_after(now), Some(due), "{:?}", spec.at);
    }
}

#[test]
fn times_that_never_come_are_refused() {
    let now = ms("2026-11-28T12:00:00Z");
    for (mut spec, why) in [
        (at("2026-11-28T11:59", "UTC"), "which is past"),
        (at("+0", "UTC"), "which is past"),
        (at("tomorrow", "UTC"), "expected +10m"),
        (at("2026", "UTC"), "expected +10m"),
        (cron("0 0 30 2 *", "UTC"), "never comes"),
        (cron("0 0 31 4,6,9,11 *", "UTC"), "never comes"),
        (cron("0 0 * *", "UTC"), "expected five fields"),
        (cron("0 0 0 * * *", "UTC"), "expected five fields"),
        (cron("61 * * * *", "UTC"), "expected five fields"),
        (cron("", "UTC"), "expected five fields"),
        (cron("* * * * *", "Europe/Atlantis"), "doesn't know"),
        (every("10ms"), "at least 1s"),
        (every("often"), "expected a time such as"),
        (every("100000d"), "ten years"),
    ] {
        let begun = std::time::Instant::now();
        let found = settle(&mut spec, now).unwrap_err();
        assert!(found.contains(why), "{spec:?}: {found}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{spec:?}");
    }
    let jitter = ScheduleSpec {
        jitter: Some("1m".to_owned()),
        ..every("1m")
    };
    assert!(
        Timing::of(&jitter, now)
            .unwrap_err()
            .contains("expected less")
    );
}

#[test]
fn jitter_is_the_same_each_time() {
    let jitter = ScheduleSpec {
        jitter: Some("5m".to_owned()),
        ..every("1h")
    };
    let timing = Timing::of(&jitter, 0).unwrap();
    let parts: std::collections::BTreeSet<i64> = (1..100)
        .map(|hour| timing.fires_at(hour * 3_600_000) - hour * 3_600_000)
        .collect();
    assert!(parts.len() > 90, "{}", parts.len());
    assert!(parts.iter().all(|part| (0..=300_000).contains(part)));
    let again = Timing::of(&jitter, 0).unwrap();
    assert_eq!(timing.fires_at(3_600_000), again.fires_at(3_600_000));
    let other = Timing::of(&jitter, 1).unwrap();
    assert_ne!(timing.fires_at(3_600_000), other.fires_at(3_600_000));
}

proptest! {
    #[test]
    fn due_times_ascend_and_read_back(
        fields in prop_oneof![
            Just("*/7 * * * *"), Just("30 2 * * *"), Just("0 9 * * 1-5"), Just("15 * 1 * *"),
            Just("59 23 31 12 *"), Just("0 0,2 * * *"),
        ],
        tz in prop_oneof![
            Just("UTC"), Just("Europe/Berlin"), Just("America/New_York"), Just("Africa/Casablanca"),
            Just("Australia/Lord_Howe"),
        ],
        after in 1_577_836_800_000_i64..1_893_456_000_000,
    ) {
        let timing = Timing::of(&cron(fields, tz), 0).unwrap();
        let mut last = after;
        for _ in 0..20 {
            let next = timing.next_after(last).unwrap();
            prop_assert!(next > last);
            prop_assert_eq!(timing.last_by(next), Some(next));
            if last > after {
                prop_assert_eq!(timing.last_by(next - 1), Some(last));
                prop_assert_eq!(timing.next_after(next - 1), Some(next));
            }
            last = next;
        }
    }
}
