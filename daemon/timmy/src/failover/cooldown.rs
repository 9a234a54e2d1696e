//! How long what failed is left alone.
//!
//! Owns the times for each class and when a stored cool-down still counts. Pure: the clock is
//! given. Must not know where cool-downs are stored.

use std::time::Duration;

use super::Class;

/// Rate limits without a word of the provider's, one after the other.
const RATE_LIMITS: [Duration; 3] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
];
/// A provider that wants to be left alone for longer is asked again all the same: plans are
/// changed, and quotas bought.
const LONGEST_RATE_LIMIT: Duration = Duration::from_secs(3600);
/// A refused key is tried again after a day, should it have been allowed meanwhile. Another key is
/// tried at once.
const REFUSED_KEY: Duration = Duration::from_secs(24 * 3600);
/// After this long without trouble the first rate limit is a first one again.
const FORGET_STEPS: Duration = Duration::from_secs(600);

/// A provider, or one model of it, that is left alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cooldown {
    /// Whose.
    pub(crate) provider: String,
    /// Which model; all of them when there is none.
    pub(crate) model: Option<String>,
    /// Why.
    pub(crate) class: Class,
    /// Which key it was: a digest, never the key.
    pub(crate) key: Option<String>,
    /// How often in a row.
    pub(crate) step: u32,
    /// Since when, in milliseconds of the wall clock.
    pub(crate) since: u64,
    /// Until when.
    pub(crate) until: u64,
}

/// Is there anything else that could be asked?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Company {
    /// Other entries of the chain.
    Others,
    /// None: it is this one or nothing.
    Alone,
}

impl Cooldown {
    /// How long it still lasts; `None` when it doesn't count.
    pub(crate) fn left(&self, now: u64, key: Option<&str>, company: Company) -> Option<Duration> {
        let left = Duration::from_millis(self.until.checked_sub(now).filter(|left| *left > 0)?);
        // The clock was set back.
        if left > longest(self.class) {
            return None;
        }
        // What a key may do says nothing of another one.
        let is_of_key = matches!(self.class, Class::Auth | Class::Billing | Class::RateLimit);
        let is_same = !is_of_key || self.key.as_deref() == key;
        // Where nothing else can be asked, asking shows whether it is still so.
        let counts = company == Company::Others || self.class == Class::RateLimit;
        (is_same && counts).then_some(left)
    }

    /// Does it leave this model alone?
    pub(crate) fn is_about(&self, provider: &str, model: &str) -> bool {
        let of_model = self.model.as_deref().is_none_or(|own| own == model);
        self.provider == provider && of_model
    }

    /// The next one after `before`, if that was there.
    pub(crate) fn after(
        before: Option<&Self>,
        whose: (&str, &str),
        class: Class,
        retry_after: Option<Duration>,
        now: u64,
    ) -> Option<Self> {
        let recent = |old: &&Self| {
            old.class == class && now.saturating_sub(old.until) < millis(FORGET_STEPS)
        };
        // Of another class it says nothing: a refused key is no second rate limit.
        let step = before.filter(recent).map_or(0, |old| old.step + 1);
        let time = time(class, step, retry_after)?;
        let (provider, model) = whose;
        Some(Self {
            provider: provider.to_owned(),
            model: (!is_of_provider(class)).then(|| model.to_owned()),
            class,
            key: None,
            step,
            since: now,
            until: now.saturating_add(millis(time)),
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How long this class is left alone, the `step`th time in a row; `None` for not at all.
pub(crate) fn time(class: Class, step: u32, retry_after: Option<Duration>) -> Option<Duration> {
    Some(match class {
        Class::Billing => Duration::from_secs(600),
        Class::Auth => REFUSED_KEY,
        Class::NotConfigured | Class::Overloaded => Duration::from_secs(30),
        Class::RateLimit => {
            let own = RATE_LIMITS[(step as usize).min(RATE_LIMITS.len() - 1)];
            // The provider's own word, even where it is shorter: it counts what we only guess.
            retry_after.map_or(own, |asked| asked.min(LONGEST_RATE_LIMIT))
        }
        Class::ServerError | Class::Timeout => Duration::from_secs(15),
        Class::Cancelled
        | Class::Refusal
        | Class::ContextOverflow
        | Class::ModelNotFound
        | Class::Certificate
        | Class::MalformedResponse
        | Class::BadRequest
        | Class::Unknown => return None,
    })
}

/// The longest a cool-down of this class can be: one that is longer comes of a clock that jumped.
fn longest(class: Class) -> Duration {
    match class {
        Class::RateLimit => LONGEST_RATE_LIMIT,
        class => time(class, 0, None).unwrap_or_default(),
    }
}

/// Does it concern all models of the provider?
pub(crate) const fn is_of_provider(class: Class) -> bool {
    matches!(class, Class::Billing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cooldown(class: Class, retry_after: Option<u64>) -> Cooldown {
        let retry_after = retry_after.map(Duration::from_secs);
        Cooldown::after(None, ("p", "m"), class, retry_after, 1_000_000).unwrap()
    }

    #[test]
    fn cooldown_of_each_class_has_its_time() {
        for (class, seconds) in [
            (Class::Billing, Some(600)),
            (Class::Auth, Some(24 * 3600)),
            (Class::NotConfigured, Some(30)),
            (Class::RateLimit, Some(30)),
            (Class::Overloaded, Some(30)),
            (Class::ServerError, Some(15)),
            (Class::Timeout, Some(15)),
            (Class::ModelNotFound, None),
            (Class::MalformedResponse, None),
            (Class::BadRequest, None),
            (Class::Certificate, None),
            (Class::Refusal, None),
            (Class::ContextOverflow, None),
        ] {
            let found = time(class, 0, None).map(|time| time.as_secs());
            assert_eq!(found, seconds, "{class:?}");
        }
        let asked = Some(Duration::from_secs(42));
        assert_eq!(time(Class::RateLimit, 0, asked), asked);
        let day = Some(Duration::from_secs(86_400));
        assert_eq!(time(Class::RateLimit, 0, day), Some(LONGEST_RATE_LIMIT));
    }

    #[test]
    fn cooldown_of_rate_limits_in_a_row_grows() {
        let mut last = cooldown(Class::RateLimit, None);
        let mut seconds = vec![(last.until - last.since) / 1000];
        for _ in 0..3 {
            let now = last.until + 1;
            last = Cooldown::after(Some(&last), ("p", "m"), Class::RateLimit, None, now).unwrap();
            seconds.push((last.until - last.since) / 1000);
        }
        assert_eq!(seconds, [30, 60, 300, 300]);
        let later = last.until + millis(FORGET_STEPS);
        let first = Cooldown::after(Some(&last), ("p", "m"), Class::RateLimit, None, later);
        assert_eq!(first.unwrap().step, 0);
    }

    #[test]
    fn cooldown_lasts_no_longer_by_clocks_set_back() {
        let cooled = cooldown(Class::ServerError, None);
        let left = |now| cooled.left(now, None, Company::Others);
        assert_eq!(left(1_000_000), Some(Duration::from_secs(15)));
        assert_eq!(left(1_014_000), Some(Duration::from_secs(1)));
        assert_eq!(left(1_015_000), None);
        assert_eq!(
            left(500_000),
            None,
            "the clock was set back by eight minutes"
        );
    }

    #[test]
    fn cooldown_of_a_key_ends_with_another_key() {
        for class in [Class::Auth, Class::Billing, Class::RateLimit] {
            let mut refused = cooldown(class, None);
            refused.key = Some("a".to_owned());
            let left = |key| refused.left(1_000_001, key, Company::Others);
            assert!(left(Some("a")).is_some());
            assert_eq!(left(Some("b")), None, "{class:?}");
            assert_eq!(left(None), None, "{class:?}");
        }
        let mut broken = cooldown(Class::ServerError, None);
        broken.key = Some("a".to_owned());
        let left = broken.left(1_000_001, Some("b"), Company::Others);
        assert!(left.is_some(), "it is so for every key");
    }

    #[test]
    fn cooldown_lets_whoever_is_alone_be_asked() {
        for (class, counts) in [
            (Class::RateLimit, true),
            (Class::ServerError, false),
            (Class::Billing, false),
            (Class::Auth, false),
        ] {
            let left = cooldown(class, None).left(1_000_001, None, Company::Alone);
            assert_eq!(left.is_some(), counts, "{class:?}");
        }
    }

    #[test]
    fn cooldown_of_a_bill_concerns_the_whole_provider() {
        let billing = cooldown(Class::Billing, None);
        assert!(billing.is_about("p", "other") && !billing.is_about("q", "m"));
        let timeout = cooldown(Class::Timeout, None);
        assert!(timeout.is_about("p", "m") && !timeout.is_about("p", "other"));
    }
}
