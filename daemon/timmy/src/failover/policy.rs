//! What to do next when a request to a model failed: again, the next one, a shorter conversation,
//! or the end.
//!
//! Owns the rules between the classes of failure. Pure: time is given, and so is chance. Must not
//! know any wire, nor what is said to anybody about it.
//!
//! A chain is only ever walked forward, each entry has a number of tries, and each turn has a
//! number of compactions: so it always ends.

use std::time::Duration;

use super::Class;
use super::cooldown;
use crate::config::OnRefusal;
use crate::session::compaction::UNKNOWN_WINDOW;

/// No single wait for one model is longer: whoever waits wants to hear of it sooner.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// What one model is waited for in all while the next one could answer.
pub(crate) const WAIT_BESIDE_HEALTHY: Duration = Duration::from_secs(3);
/// The first wait; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Compactions in one turn because a provider said that the conversation is too long: the second
/// keeps less, a third would keep nothing.
pub(crate) const COMPACTIONS: u32 = 2;
/// Requests to one entry in a row, at most: the first and its retries.
pub(crate) const TRIES: u32 = 4;

/// An entry of the chain, as far as the rules care.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The provider's name here.
    pub(crate) provider: String,
    /// The model's name there.
    pub(crate) model: String,
    /// Where it is.
    pub(crate) url: String,
    /// Tokens that fit into a conversation, where that is known.
    pub(crate) window: Option<u64>,
    /// Can it be asked?
    pub(crate) standing: Standing,
}

/// Can an entry be asked?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// Yes.
    Ready,
    /// Never: there is no key for it.
    NoKey,
    /// Not before this long from the turn's start, because of that.
    Cooling(Duration, Class),
    /// Not in this turn.
    Gone(Class),
}

/// What failed, and how.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Failed {
    /// The kind of failure.
    pub(crate) class: Class,
    /// How long the provider wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
    /// How long it took to fail.
    pub(crate) took: Duration,
    /// Has a tool changed something in this turn?
    pub(crate) effects: Effects,
    /// Chance, from 0 to 1.
    pub(crate) jitter: f64,
}

/// Has a tool changed something in this turn?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effects {
    /// Nothing that couldn't be done again.
    None,
    /// It may have.
    Possible,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    /// Which entry is to be left alone from now on.
    pub(crate) cool: Option<Cool>,
    /// Entries that were passed over, each with the reason.
    pub(crate) passed: Vec<(usize, Passed)>,
    /// And then.
    pub(crate) next: Next,
}

/// An entry that needs rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cool {
    /// Which.
    pub(crate) entry: usize,
    /// Why.
    pub(crate) class: Class,
    /// How long, where the provider said so.
    pub(crate) retry_after: Option<Duration>,
}

/// Why an entry was passed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passed {
    /// It is the same as one before it.
    Repeated,
    /// There is no key for it.
    NoKey,
    /// It needs rest, because of that.
    Cooling(Class),
    /// Its window is not larger than the one that was too small.
    NotLarger,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Ask this entry.
    Ask(usize),
    /// Wait so long, then ask it.
    Wait(usize, Duration),
    /// Shorten the conversation, then ask it.
    Compact(usize),
    /// End, with this class; asking again may help after so long, where that is known.
    GiveUp(Class, Option<Duration>),
}

/// The rules, in the middle of one turn.
pub(crate) struct Policy {
    entries: Vec<Entry>,
    repeated: Vec<usize>,
    current: usize,
    /// Failures of the current entry since it answered.
    failures: u32,
    /// What it was waited for since.
    waited: Duration,
    compactions: u32,
    on_refusal: OnRefusal,
    refused: bool,
    deadline: Option<Duration>,
}

impl Policy {
    /// The rules for a turn with this chain, which has to end before `deadline`.
    pub(crate) fn new(
        mut entries: Vec<Entry>,
        on_refusal: OnRefusal,
        deadline: Option<Duration>,
    ) -> Self {
        let mut repeated = Vec::new();
        for at in 1..entries.len() {
            let (before, from) = entries.split_at_mut(at);
            let same = |other: &Entry| {
                let one = &from[0];
                (&other.provider, &other.model, &other.url) == (&one.provider, &one.model, &one.url)
            };
            // Asked a second time in one turn it would fail in the same way.
            if before.iter().any(same) {
                from[0].standing = Standing::Gone(Class::Unknown);
                repeated.push(at);
            }
        }
        Self {
            entries,
            repeated,
            current: 0,
            failures: 0,
            waited: Duration::ZERO,
            compactions: 0,
            on_refusal,
            refused: false,
            deadline,
        }
    }

    /// Whom to ask first.
    pub(crate) fn begin(&mut self, now: Duration) -> Verdict {
        self.advance(0, now, Class::NotConfigured, None)
    }

    /// The entry that is asked, or that is the reason why nobody is.
    pub(crate) const fn current(&self) -> usize {
        self.current
    }

    /// The current entry answered.
    pub(crate) fn answered(&mut self) {
        self.failures = 0;
        self.waited = Duration::ZERO;
    }

    /// The current entry failed.
    pub(crate) fn failed(&mut self, now: Duration, failed: Failed) -> Verdict {
        match failed.class {
            // A proxy that signs by itself does so for the next one, too, and only the user can say
            // that it is to be trusted.
            Class::Cancelled | Class::Certificate => Verdict::end(failed.class),
            Class::Refusal => self.refused(now, failed.effects),
            Class::ContextOverflow => self.overflowed(now),
            class => {
                let retry = self.retry(now, &failed);
                if let Some(wait) = retry {
                    self.failures += 1;
                    self.waited += wait;
                    return Verdict::only(Next::Wait(self.current, wait));
                }
                self.leave(now, class, failed.retry_after)
            }
        }
    }

    /// How long to wait before the same model is asked again, if it is.
    fn retry(&self, now: Duration, failed: &Failed) -> Option<Duration> {
        if self.failures >= retries(failed.class) {
            return None;
        }
        let wait = wait(failed, self.failures);
        // Who was silent for long would be so again.
        let is_silent = failed.class == Class::Timeout && failed.took > WAIT_BESIDE_HEALTHY;
        // While another one could answer, waiting is worth a few seconds only.
        let beside_healthy = !is_silent && self.waited + wait <= WAIT_BESIDE_HEALTHY;
        let fits = wait <= LONGEST_WAIT
            && self.in_time(now + wait)
            && (beside_healthy || self.healthy_after(now).is_none());
        fits.then_some(wait)
    }

    fn in_time(&self, at: Duration) -> bool {
        self.deadline.is_none_or(|deadline| at < deadline)
    }

    fn is_healthy(&self, entry: usize, now: Duration) -> bool {
        match self.entries[entry].standing {
            Standing::Ready => true,
            Standing::Cooling(until, _) => until <= now,
            Standing::NoKey | Standing::Gone(_) => false,
        }
    }

    fn healthy_after(&self, now: Duration) -> Option<usize> {
        (self.current + 1..self.entries.len()).find(|entry| self.is_healthy(*entry, now))
    }

    /// The current entry is given up for now.
    fn leave(&mut self, now: Duration, class: Class, retry_after: Option<Duration>) -> Verdict {
        let left = self.current;
        let cools = cooldown::time(class, 0, retry_after);
        let provider = self.entries[left].provider.clone();
        for (at, entry) in self.entries.iter_mut().enumerate() {
            // Its other models are in the chain, too, and would fail alike.
            let whole = cooldown::is_of_provider(class) && entry.provider == provider;
            let known = matches!(entry.standing, Standing::NoKey | Standing::Gone(_));
            if (at == left || whole) && !known {
                entry.standing = match cools {
                    // What concerns the whole provider, such as a bill, isn't over within this
                    // turn.
                    Some(time) if !whole => Standing::Cooling(now + time, class),
                    _ => Standing::Gone(class),
                };
            }
        }
        let cool = cools.map(|_| Cool {
            entry: left,
            class,
            retry_after,
        });
        let mut verdict = self.advance(left + 1, now, class, retry_after);
        verdict.cool = cool;
        verdict
    }

    /// To the first entry from `from` on that can be asked, or to the one that can be soonest.
    fn advance(
        &mut self,
        from: usize,
        now: Duration,
        class: Class,
        retry_after: Option<Duration>,
    ) -> Verdict {
        let mut passed = Vec::new();
        let mut soonest: Option<(Duration, usize, Class)> = None;
        for at in from..self.entries.len() {
            if self.is_healthy(at, now) {
                self.turn_to(at);
                return Verdict {
                    cool: None,
                    passed,
                    next: Next::Ask(at),
                };
            }
            match self.entries[at].standing {
                Standing::Cooling(until, why) => {
                    passed.push((at, Passed::Cooling(why)));
                    if soonest.is_none_or(|(best, ..)| until < best) {
                        soonest = Some((until, at, why));
                    }
                }
                Standing::NoKey => passed.push((at, Passed::NoKey)),
                Standing::Gone(_) if self.repeated.contains(&at) => {
                    passed.push((at, Passed::Repeated));
                }
                Standing::Gone(why) => passed.push((at, Passed::Cooling(why))),
                Standing::Ready => {}
            }
        }
        let next = match soonest {
            // All that are left need rest: better a wait than no answer, if it isn't long.
            Some((until, at, _)) if until - now <= LONGEST_WAIT && self.in_time(until) => {
                self.turn_to(at);
                passed.retain(|(entry, _)| *entry != at);
                Next::Wait(at, until - now)
            }
            // Nothing was asked at all: why not is the reason.
            Some((until, at, why)) if class == Class::NotConfigured => {
                self.turn_to(at);
                Next::GiveUp(why, Some(until - now))
            }
            _ => Next::GiveUp(class, self.earliest(now).or(retry_after)),
        };
        Verdict {
            cool: None,
            passed,
            next,
        }
    }

    /// How long until any entry has rested.
    fn earliest(&self, now: Duration) -> Option<Duration> {
        let cooling = self
            .entries
            .iter()
            .filter_map(|entry| match entry.standing {
                Standing::Cooling(until, _) => Some(until.saturating_sub(now)),
                _ => None,
            });
        cooling.min()
    }

    fn turn_to(&mut self, entry: usize) {
        self.current = entry;
        self.answered();
    }

    fn refused(&mut self, now: Duration, effects: Effects) -> Verdict {
        // Once, and only while nothing was changed: another model would begin the same work again.
        let may = self.on_refusal == OnRefusal::Next && !self.refused && effects == Effects::None;
        match self.healthy_after(now) {
            Some(_) if may => {
                self.refused = true;
                self.advance(self.current + 1, now, Class::Refusal, None)
            }
            // Nor without another one that can be asked: the refusal is the answer.
            _ => Verdict::end(Class::Refusal),
        }
    }

    fn overflowed(&mut self, now: Duration) -> Verdict {
        if self.compactions < COMPACTIONS {
            self.compactions += 1;
            return Verdict::only(Next::Compact(self.current));
        }
        let window = |entry: &Entry| entry.window.unwrap_or(UNKNOWN_WINDOW);
        // Shortened as far as it goes: only a larger window helps now.
        let full = window(&self.entries[self.current]);
        let mut passed = Vec::new();
        for at in self.current + 1..self.entries.len() {
            if window(&self.entries[at]) > full && self.is_healthy(at, now) {
                self.turn_to(at);
                return Verdict {
                    cool: None,
                    passed,
                    next: Next::Ask(at),
                };
            }
            passed.push((at, Passed::NotLarger));
        }
        Verdict::end(Class::ContextOverflow)
    }
}

impl Verdict {
    const fn only(next: Next) -> Self {
        Self {
            cool: None,
            passed: Vec::new(),
            next,
        }
    }

    const fn end(class: Class) -> Self {
        Self::only(Next::GiveUp(class, None))
    }
}

/// How often the same model is asked again.
const fn retries(class: Class) -> u32 {
    match class {
        Class::RateLimit | Class::Overloaded => TRIES - 1,
        Class::ServerError | Class::Timeout | Class::MalformedResponse => 2,
        // It may have passed, and may as well be for good.
        Class::Unknown => 1,
        Class::Cancelled
        | Class::Refusal
        | Class::ContextOverflow
        | Class::Billing
        | Class::Auth
        | Class::NotConfigured
        | Class::ModelNotFound
        | Class::Certificate
        | Class::BadRequest => 0,
    }
}

/// How long the same model is left alone before its next try.
fn wait(failed: &Failed, failures: u32) -> Duration {
    let wait = FIRST_WAIT * 2_u32.saturating_pow(failures.min(8));
    // A quarter shorter or longer, so that many who were refused together don't come back together.
    let wait = wait.mul_f64(0.75 + failed.jitter.clamp(0.0, 1.0) / 2.0);
    wait.max(failed.retry_after.unwrap_or_default())
}

#[cfg(test)]
mod tests;
