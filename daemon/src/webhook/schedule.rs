//! What an answer means, and when the next attempt is.
//!
//! Pure: no clock, no randomness. Must not know HTTP beyond a status and a `Retry-After`.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::store::AttemptOutcome;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// When the attempts are, counted from the first. What isn't there after a day is for people.
const ATTEMPTS: [Duration; 10] = [
    Duration::ZERO,
    SECOND.saturating_mul(5),
    MINUTE.saturating_mul(5),
    MINUTE.saturating_mul(30),
    HOUR.saturating_mul(2),
    HOUR.saturating_mul(5),
    HOUR.saturating_mul(10),
    HOUR.saturating_mul(14),
    HOUR.saturating_mul(20),
    HOUR.saturating_mul(24),
];
/// Waits are longer or shorter by up to so many hundredths: receivers that come back aren't met by
/// everybody at once.
const JITTER: u64 = 20;
/// A receiver that says when to come back is believed up to here.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// A machine that has no network looks so much later whether it has.
pub(super) const WITHOUT_NETWORK: Duration = MINUTE.saturating_mul(5);
/// And such attempts don't count, so long after the delivery was made, in milliseconds: later they
/// do, as nothing is tried for ever.
const WITHOUT_NETWORK_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// What came of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It was taken.
    Delivered,
    /// Nobody wants it any more.
    Gone,
    /// It wasn't; not before this long, if the receiver said so.
    Failed(Option<Duration>),
    /// This machine has no network.
    NoNetwork,
}

/// What a status means. `retry_after` is that header, `now_ms` in milliseconds since 1970.
pub(super) fn verdict(status: u16, retry_after: Option<&str>, now_ms: i64) -> Verdict {
    match status {
        200..=299 => Verdict::Delivered,
        // By Standard Webhooks the receiver wants no more of them then.
        410 => Verdict::Gone,
        // The two for which `Retry-After` is defined: RFC 6585, 4, and RFC 9110, 10.2.3.
        429 | 503 => Verdict::Failed(retry_after.and_then(|text| wait(text, now_ms))),
        _ => Verdict::Failed(None),
    }
}

/// Seconds, or a date.
fn wait(text: &str, now_ms: i64) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has mean: very late.
        return Some(text.parse().map_or(LONGEST, Duration::from_secs));
    }
    // HTTP's preferred form of a date is one of RFC 2822's (RFC 9110, 5.6.7); the two obsolete ones
    // count as nothing said.
    let at = OffsetDateTime::parse(text, &Rfc2822).ok()?;
    let ms = at.unix_timestamp().saturating_mul(1000);
    u64::try_from(ms.saturating_sub(now_ms))
        .ok()
        .map(Duration::from_millis)
}

/// What becomes of a delivery, made at `created_ms`, after its attempt number `attempts` (from 1) has
/// ended at `now_ms`.
pub(super) fn outcome(
    id: &str,
    attempts: u32,
    verdict: Verdict,
    created_ms: i64,
    now_ms: i64,
) -> AttemptOutcome {
    let asked = match verdict {
        Verdict::Delivered => return AttemptOutcome::Delivered,
        Verdict::Gone => return AttemptOutcome::Gone,
        Verdict::Failed(asked) => asked.unwrap_or_default().min(LONGEST),
        // A clock that was ahead when it was made is no reason to go on for ever, either.
        Verdict::NoNetwork if now_ms.abs_diff(created_ms) < WITHOUT_NETWORK_MS => {
            let wait = i64::try_from(WITHOUT_NETWORK.as_millis()).unwrap_or(i64::MAX);
            return AttemptOutcome::Waits(now_ms.saturating_add(wait));
        }
        Verdict::NoNetwork => Duration::ZERO,
    };
    let made = usize::try_from(attempts.max(1)).unwrap_or(usize::MAX);
    let (Some(last), Some(next)) = (ATTEMPTS.get(made - 1), ATTEMPTS.get(made)) else {
        return AttemptOutcome::Dead;
    };
    let usual = next.saturating_sub(*last);
    let share = share(id, attempts);
    let part = |wait: Duration, hundredths: u64| {
        wait.saturating_mul(u32::try_from(hundredths).unwrap_or(100)) / 100
    };
    let usual = part(usual, 100 - JITTER + share % (2 * JITTER + 1));
    // What was asked for is never cut short.
    let asked = part(asked, 100 + share % (JITTER + 1));
    let wait = i64::try_from(usual.max(asked).as_millis()).unwrap_or(i64::MAX);
    AttemptOutcome::Again(now_ms.saturating_add(wait))
}

/// A number that is another one for each attempt of each delivery, and always the same.
fn share(id: &str, attempts: u32) -> u64 {
    let hash = Sha256::digest(format!("{id} {attempts}"));
    let bytes = hash.iter().take(8);
    bytes.fold(0, |all, byte| all << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn delivery_is_tried_ten_times_a_day() {
        let mut now = 1_000_000;
        let mut waits = Vec::new();
        for attempts in 1..=10 {
            let failed = Verdict::Failed(None);
            match outcome("evt_1", attempts, failed, 0, now) {
                AttemptOutcome::Again(at) => {
                    waits.push((at - now) / 1000);
                    now = at;
                }
                AttemptOutcome::Dead => assert_eq!(attempts, 10),
                other => panic!("{other:?}"),
            }
        }
        let expected = [5, 295, 1500, 5400, 10800, 18000, 14400, 21600, 14400];
        assert_eq!(waits.len(), expected.len());
        for (found, expected) in waits.iter().zip(expected) {
            let most = expected * 12 / 10;
            assert!((expected * 8 / 10..=most).contains(found), "{waits:?}");
        }
        assert!(waits.windows(2).any(|two| two[0] != two[1]));
        let total: i64 = waits.iter().sum();
        assert!((19 * 3600..=29 * 3600).contains(&total), "{total}");
    }

    #[test]
    fn deliveries_do_not_come_back_all_at_once() {
        let at = |id: &str| outcome(id, 2, Verdict::Failed(None), 0, 0);
        let different: std::collections::BTreeSet<_> = (0..100)
            .map(|number| format!("{:?}", at(&format!("evt_{number}"))))
            .collect();
        assert!(different.len() > 20, "{}", different.len());
    }

    #[test]
    fn every_status_has_its_meaning() {
        for (status, retry_after, expected) in [
            (200, None, Verdict::Delivered),
            (204, None, Verdict::Delivered),
            (299, None, Verdict::Delivered),
            (101, None, Verdict::Failed(None)),
            (301, None, Verdict::Failed(None)),
            (302, Some("5"), Verdict::Failed(None)),
            (400, None, Verdict::Failed(None)),
            (404, None, Verdict::Failed(None)),
            (410, None, Verdict::Gone),
            (429, Some("7"), Verdict::Failed(Some(SECOND * 7))),
            (503, Some(" 7 "), Verdict::Failed(Some(SECOND * 7))),
            (503, Some("soon"), Verdict::Failed(None)),
            (503, Some("-1"), Verdict::Failed(None)),
            (503, Some(""), Verdict::Failed(None)),
            (500, Some("7"), Verdict::Failed(None)),
            (
                503,
                Some("Thu, 01 Jan 1970 00:01:00 GMT"),
                Verdict::Failed(Some(SECOND * 50)),
            ),
            (
                503,
                Some("Thu, 01 Jan 1970 00:00:01 GMT"),
                Verdict::Failed(None),
            ),
        ] {
            let found = verdict(status, retry_after, 10_000);
            assert_eq!(found, expected, "{status} {retry_after:?}");
        }
    }

    #[test]
    fn a_receiver_is_believed_within_bounds() {
        let after = |asked: &str| {
            let failed = verdict(429, Some(asked), 0);
            match outcome("evt_1", 1, failed, 0, 0) {
                AttemptOutcome::Again(at) => at / 1000,
                other => panic!("{other:?}"),
            }
        };
        let day = 24 * 3600;
        assert!((60..=72).contains(&after("60")), "{}", after("60"));
        for long in ["1000000000", "99999999999999999999999"] {
            assert!((day..=day * 12 / 10).contains(&after(long)), "{long}");
        }
        assert!((4..=6).contains(&after("0")), "no sooner than planned");
    }

    #[test]
    fn delivery_without_network_ends_after_a_week() {
        let (created, minutes, week) = (1_000_000, 5 * 60 * 1000, 7 * 24 * 60 * 60 * 1000);
        let after = |attempts, now| outcome("evt_1", attempts, Verdict::NoNetwork, created, now);
        for now in [created, created + week - 1, created - week + 1] {
            assert_eq!(
                after(10, now),
                AttemptOutcome::Waits(now + minutes),
                "{now}"
            );
        }
        for now in [created + week, created - week] {
            assert!(matches!(after(1, now), AttemptOutcome::Again(at) if at > now));
            assert_eq!(after(10, now), AttemptOutcome::Dead);
        }
    }

    proptest! {
        #[test]
        fn delivery_comes_next_within_about_a_day(
            id in "evt_[0-9a-f]{1,32}",
            attempts in 0_u32..20,
            asked in proptest::option::of(any::<u64>()),
            now in 0_i64..4_000_000_000_000,
        ) {
            let verdict = Verdict::Failed(asked.map(Duration::from_secs));
            match outcome(&id, attempts, verdict, 0, now) {
                AttemptOutcome::Again(at) => {
                    prop_assert!(attempts < 10);
                    prop_assert!(at > now && at - now <= 29 * 3600 * 1000, "{at}");
                }
                other => prop_assert_eq!((other, attempts >= 10), (AttemptOutcome::Dead, true)),
            }
        }
    }
}
