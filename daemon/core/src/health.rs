//! When a process that died may be started again.
//!
//! Owns the schedule and the breaker, for an agent and for a session alike. Must not know
//! processes. Numbers: `limits.rs`.

use std::collections::VecDeque;
use std::time::Duration;

use agentd_protocol::Code;

use crate::limits::{
    BACKOFF_FIRST, BACKOFF_MOST, BREAKER_DEATHS, BREAKER_EARLY, BREAKER_EARLY_DEATHS,
    BREAKER_RETRY, BREAKER_WINDOW, HEALTHY_AFTER, MISSING_LOOK, MISSING_RETRY, MISSING_WAITS,
    SHORT_WAITS,
};
use crate::rare::Usual;
use crate::worker::Failure;

/// Why there is no process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// It died, or did not get ready.
    Crash,
    /// It said that trying again is pointless.
    Refusal,
    /// Its program can't be run, as when it is just being replaced.
    Missing,
    /// The machine has no process, memory or descriptor left for it: nobody's fault.
    Short,
}

impl Cause {
    /// How long its turns wait for it to pass, if it may pass by itself.
    pub(crate) const fn waits(self) -> Option<Duration> {
        match self {
            Self::Crash | Self::Refusal => None,
            Self::Missing => Some(MISSING_WAITS),
            Self::Short => Some(SHORT_WAITS),
        }
    }
}

/// Why nothing is started any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Broken {
    /// When it broke; one probe is allowed after [`Broken::retry`].
    pub(crate) since: Duration,
    pub(crate) cause: Cause,
    /// The sentence.
    pub(crate) why: String,
    /// The end of what the last process printed.
    pub(crate) tail: String,
}

impl Broken {
    /// How long nothing is tried.
    pub(crate) const fn retry(&self) -> Duration {
        match self.cause {
            Cause::Crash | Cause::Refusal => BREAKER_RETRY,
            Cause::Missing | Cause::Short => MISSING_RETRY,
        }
    }

    /// What a turn of `what` (an agent or a session) is told.
    pub(crate) fn failure(&self, what: &str) -> Failure {
        let code = match self.cause {
            Cause::Crash => Code::CrashLooped,
            Cause::Refusal | Cause::Missing | Cause::Short => Code::WorkerStartFailed,
        };
        let tail = if self.tail.is_empty() {
            String::new()
        } else {
            format!("; it said: {}", self.tail)
        };
        let error = format!("the worker of {what} does not come up: {}{tail}", self.why);
        let hint = match self.cause {
            Cause::Crash | Cause::Refusal => {
                "mend the cause; a daemon tries again after 10 min, or at once after \
                 `restart_worker`; `agents` says what its program lacks"
            }
            Cause::Missing => {
                "install its program, and send again: it is looked for each time; \
                 `agents` says where"
            }
            Cause::Short => {
                "the machine is short of processes, memory or descriptors (`ulimit -a`, `free`): \
                 end something, and send again"
            }
        };
        Failure {
            hint: Some(hint.to_owned()),
            ..Failure::new(code, error)
        }
    }
}

/// The record of one agent's or session's processes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Health {
    deaths: VecDeque<Death>,
    in_a_row: u32,
    broken: Option<Broken>,
    probing: bool,
    missing: Option<Missing>,
}

/// A program that could not be run, for a reason that may pass by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Missing {
    /// The first time.
    since: Duration,
    /// The last time.
    last: Duration,
}

impl Usual for Health {
    fn usual() -> &'static Self {
        static NOTHING: Health = Health {
            deaths: VecDeque::new(),
            in_a_row: 0,
            broken: None,
            probing: false,
            missing: None,
        };
        &NOTHING
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Death {
    at: Duration,
    early: bool,
    was_ready: bool,
}

impl Health {
    /// A process died after it had been ready for so long, or never was. Opens the breaker when it was
    /// one too many.
    pub(crate) fn died(
        &mut self,
        now: Duration,
        ready_for: Option<Duration>,
        why: String,
        tail: &str,
    ) {
        let lived = ready_for.unwrap_or_default();
        // A process came of it.
        self.missing = None;
        if lived > HEALTHY_AFTER {
            self.deaths.clear();
            self.in_a_row = 0;
            self.probing = false;
        } else {
            self.in_a_row = self.in_a_row.saturating_add(1);
        }
        self.deaths.push_back(Death {
            at: now,
            early: lived < BREAKER_EARLY,
            was_ready: ready_for.is_some(),
        });
        // More than the breaker looks at are of no use, and older ones than its window don't count.
        while self.deaths.len() > BREAKER_DEATHS
            || self
                .deaths
                .front()
                .is_some_and(|death| now.saturating_sub(death.at) > BREAKER_WINDOW)
        {
            self.deaths.pop_front();
        }
        // Only those in a row: one that lived between them shows that the program can come up.
        let early = self
            .deaths
            .iter()
            .rev()
            .take_while(|death| death.early)
            .count();
        if self.probing || self.deaths.len() >= BREAKER_DEATHS || early >= BREAKER_EARLY_DEATHS {
            self.breaks(now, Cause::Crash, why, tail);
        }
    }

    /// The program can't be run, for a reason that may pass. It is tried again for a while before
    /// anybody is told.
    pub(crate) fn missed(&mut self, now: Duration, cause: Cause, why: String, tail: &str) {
        let since = self.missing.map_or(now, |missing| missing.since);
        self.missing = Some(Missing { since, last: now });
        let waits = cause.waits().unwrap_or_default();
        if now.saturating_sub(since) >= waits {
            self.breaks(now, cause, why, tail);
        }
    }

    /// Another process of it lives, and serves who waits.
    pub(crate) fn missed_beside_others(&mut self, now: Duration) {
        self.missing = Some(Missing {
            since: now,
            last: now,
        });
    }

    /// Is its program known to be missing, so that only who needs it looks for it?
    pub(crate) fn is_missing(&self, now: Duration) -> bool {
        self.missing
            .is_some_and(|missing| now.saturating_sub(missing.last) < BREAKER_RETRY)
    }

    /// When its missing program is looked for next.
    pub(crate) fn next_look(&self, now: Duration) -> Option<Duration> {
        let next = self.missing?.last + MISSING_LOOK;
        (next > now).then_some(next)
    }

    /// Its program could be run.
    pub(crate) fn found(&mut self) {
        self.missing = None;
        self.broken = self
            .broken
            .take()
            // A program that was found again says nothing about one that kept crashing.
            .filter(|broken| broken.cause.waits().is_none());
    }

    /// Opens the breaker at once.
    pub(crate) fn breaks(&mut self, now: Duration, cause: Cause, why: String, tail: &str) {
        self.probing = false;
        self.broken = Some(Broken {
            since: now,
            cause,
            why,
            tail: tail.to_owned(),
        });
    }

    /// A process got ready, or a person asked for another try.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// A process got ready: a breaker that let it through closes, and those that did not come up
    /// before it count no more; deaths after readiness go on counting.
    pub(crate) fn ready(&mut self) {
        self.found();
        if std::mem::take(&mut self.probing) {
            return self.reset();
        }
        // A process that comes up and dies in its turns would never be given up, if its readiness
        // cleared what it did before.
        self.deaths.retain(|death| death.was_ready);
        let left = u32::try_from(self.deaths.len()).unwrap_or(u32::MAX);
        self.in_a_row = self.in_a_row.min(left);
    }

    /// Until when nothing more is tried: while the breaker is open, and after each death.
    pub(crate) fn held_until(&self, now: Duration, jitter: u64) -> Option<Duration> {
        let broken = self
            .broken
            .as_ref()
            .map(|broken| broken.since + broken.retry());
        let last = self
            .deaths
            .back()
            .map(|death| death.at + self.delay(jitter));
        broken.max(last).filter(|until| *until > now)
    }

    /// Is nothing to be started now? After [`Broken::retry`] one probe is let through.
    pub(crate) fn broken(&mut self, now: Duration) -> Option<&Broken> {
        if let Some(broken) = &self.broken
            && now.saturating_sub(broken.since) >= broken.retry()
        {
            // Where a program was missing, the next look is judged by itself.
            self.probing = broken.cause.waits().is_none();
            self.broken = None;
        }
        self.broken.as_ref()
    }

    /// The breaker as it stands, without letting a probe through.
    pub(crate) const fn state(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// How long to wait before the next start, with `jitter` in 0..1024 handed in.
    pub(crate) fn delay(&self, jitter: u64) -> Duration {
        if self.missing.is_some() {
            return MISSING_LOOK;
        }
        if self.in_a_row == 0 {
            return Duration::ZERO;
        }
        // The shift is bounded, as it would overflow long after the longest delay is reached.
        let doubled = BACKOFF_FIRST.saturating_mul(1 << (self.in_a_row - 1).min(16));
        // Half to one and a half times, so that many daemons don't start in step.
        let factor = 512 + u32::try_from(jitter % 1024).unwrap_or(0);
        doubled.min(BACKOFF_MOST).saturating_mul(factor) / 1024
    }
}

/// A number that looks random, the same for the same input (splitmix64).
pub(crate) const fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn died(health: &mut Health, now: u64, lived: u64) -> bool {
        health.died(s(now), Some(s(lived)), "died".to_owned(), "tail");
        health.state().is_some()
    }

    #[test]
    fn restart_delays_double_up_to_a_minute() {
        let mut health = Health::default();
        assert_eq!(health.delay(512), Duration::ZERO);
        let mut delays = Vec::new();
        for n in 0..10 {
            health.died(s(n * 1000), Some(s(20)), String::new(), "");
            delays.push(health.delay(512).as_millis());
        }
        assert_eq!(
            delays,
            [
                500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000
            ]
        );
        assert_eq!(health.delay(0), s(30));
        assert!(health.delay(1023) < s(90));
    }

    #[test]
    fn missing_program_is_looked_for_before_told() {
        let mut health = Health::default();
        let miss = |health: &mut Health, at| {
            health.missed(at, Cause::Missing, "not there".to_owned(), "");
            health.broken(at).is_some()
        };
        let first = s(100);
        for n in 0..20 {
            assert!(!miss(&mut health, first + MISSING_LOOK * n), "{n}");
            assert_eq!(health.delay(7), MISSING_LOOK);
        }
        let told = first + MISSING_WAITS;
        assert!(miss(&mut health, told));
        assert!(health.broken(told + MISSING_RETRY / 2).is_some());
        assert!(health.broken(told + MISSING_RETRY).is_none());
        assert!(
            miss(&mut health, told + MISSING_RETRY),
            "who comes later hears it at once"
        );
        health.found();
        assert_eq!(health, Health::default());
    }

    #[test]
    fn a_long_life_forgets_the_deaths_before() {
        let mut health = Health::default();
        for n in 0..4 {
            assert!(!died(&mut health, n * 20, 15));
        }
        assert!(
            !died(&mut health, 150, 61),
            "the fifth death in 3 min, but after a healthy life"
        );
        assert_eq!(health.delay(512), Duration::ZERO);
    }

    #[test]
    fn breaker_opens_at_fifth_death_in_three_minutes() {
        let mut health = Health::default();
        for (n, broken) in [(1, false), (2, false), (3, false), (4, false), (5, true)] {
            assert_eq!(died(&mut health, n * 30, 20), broken, "{n}");
        }
        let mut slow = Health::default();
        assert!((1..20).all(|n| !died(&mut slow, n * 50, 20)));
    }

    #[test]
    fn breaker_opens_at_third_early_death_then_probes() {
        let mut health = Health::default();
        assert!(!died(&mut health, 1, 1) && !died(&mut health, 2, 1));
        assert!(died(&mut health, 3, 1));
        assert!(health.broken(s(602)).is_some());
        assert!(health.broken(s(603)).is_none());
        assert!(died(&mut health, 604, 20), "the probe died, too");
        assert!(health.broken(s(1204)).is_none());
        health.ready();
        assert_eq!(health, Health::default());
    }
}
