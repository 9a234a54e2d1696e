//! What leaves the core: effects in their order, deadlines, and what waits for the store's answers.
//!
//! Owns tokens and numbers. Must not know what an answer means, nor what happens when a deadline
//! passes.

use std::collections::BTreeMap;
use std::panic::Location;
use std::time::Duration;

use crate::effect::Effect;
use crate::ids::Token;
use crate::limits::{COMMITS_OUTSTANDING, ENDED_AT_ONCE};
use crate::log::{About, Dangling, Entry, What};
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::{Timer, Timers};
use crate::store::{Query, Urgency, Write};

pub(crate) mod awaiting;
pub(crate) mod timers;

/// What is to be done, and what was asked for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outbox {
    effects: Vec<Effect>,
    timers: Timers,
    awaiting: BTreeMap<Token, Awaiting>,
    /// Commits among them.
    commits: usize,
    /// The last one that was asked for.
    last_commit: Option<Token>,
    /// Of what the store was not told yet: sessions that left memory, turns that wait again. Many
    /// may at once.
    untold: Vec<Write>,
    next: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            effects: Vec::new(),
            timers: Timers::default(),
            awaiting: BTreeMap::new(),
            commits: 0,
            last_commit: None,
            untold: Vec::new(),
            next: 1,
        }
    }
}

impl Outbox {
    /// A number that nothing else here has.
    pub(crate) const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// The effects go to the caller's list from now on, or are given back to it.
    pub(crate) const fn swap(&mut self, effects: &mut Vec<Effect>) {
        std::mem::swap(&mut self.effects, effects);
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Logs that something is named which isn't there, though it must be. What may be gone by now is
    /// no mistake: that is said where it is looked up.
    #[track_caller]
    pub(crate) fn dangling(&mut self, id: impl Into<Dangling>) {
        let what = What::Dangling {
            id: id.into(),
            at: Location::caller(),
        };
        let about = About::default();
        self.push(Effect::Log(Box::new(Entry { about, what })));
    }

    /// What is found under an id that must be there. If it isn't, that is logged as above.
    #[track_caller]
    pub(crate) fn expected<T>(&mut self, id: impl Into<Dangling>, found: Option<T>) -> Option<T> {
        if found.is_none() {
            self.dangling(id);
        }
        found
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Duration) {
        self.timers.set(timer, at);
    }

    /// Sets a timer that isn't set yet.
    pub(crate) fn set_if_unset(&mut self, timer: Timer, at: Duration) {
        self.timers.set_if_unset(timer, at);
    }

    /// Sets a timer that isn't set, or for later.
    pub(crate) fn set_no_later(&mut self, timer: Timer, at: Duration) {
        self.timers.set_no_later(timer, at);
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        self.timers.clear(timer);
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.timers.is_set(timer)
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// Takes the timers that are due, so that one which is set again for now waits for the next event.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<Timer> {
        let mut due = Vec::new();
        while let Some(timer) = self.timers.pop(now) {
            due.push(timer);
        }
        due
    }

    /// Has the store commit something that somebody waits for.
    pub(crate) fn commit(&mut self, awaiting: Awaiting, writes: Vec<Write>) -> Token {
        self.ask_to_commit(awaiting, writes, Urgency::Waited)
    }

    pub(crate) fn commit_lazily(&mut self, awaiting: Awaiting, writes: Vec<Write>) {
        self.ask_to_commit(awaiting, writes, Urgency::Lazy);
    }

    /// A write that nobody waits for.
    pub(crate) fn write_lazily(&mut self, write: Write) {
        self.commit_lazily(Awaiting::Nothing, vec![write]);
    }

    fn ask_to_commit(&mut self, awaiting: Awaiting, writes: Vec<Write>, urgency: Urgency) -> Token {
        // The store takes orders one after the other: a session that was let go must be free before
        // anything behind it asks for that one.
        self.tell_the_rest();
        let token = Token(self.number());
        self.awaiting.insert(token, awaiting);
        self.commits += 1;
        self.last_commit = Some(token);
        self.push(Effect::Commit {
            token,
            writes,
            urgency,
        });
        token
    }

    /// Has the store told something that nobody waits for, together with others, and before anything
    /// else is asked of it.
    pub(crate) fn tell_later(&mut self, write: Write) {
        self.untold.push(write);
    }

    pub(crate) fn tell_the_rest(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        // One commit of a hundred thousand writes would hold up everybody behind it.
        for some in untold.chunks(ENDED_AT_ONCE) {
            self.commit_lazily(Awaiting::Nothing, some.to_vec());
        }
    }

    /// Asks the store.
    pub(crate) fn load(&mut self, awaiting: Awaiting, query: Query) -> Token {
        self.tell_the_rest();
        let token = Token(self.number());
        self.awaiting.insert(token, awaiting);
        self.push(Effect::Load { token, query });
        token
    }

    /// What waited for this commit. The store answers each once.
    pub(crate) fn committed(&mut self, token: Token) -> Option<Awaiting> {
        let awaiting = self.awaiting.remove(&token)?;
        self.commits = self.commits.saturating_sub(1);
        Some(awaiting)
    }

    /// What waited for this answer. The store gives each once.
    pub(crate) fn loaded(&mut self, token: Token) -> Option<Awaiting> {
        self.awaiting.remove(&token)
    }

    /// Everything that waits for the store.
    pub(crate) fn awaiting(&self) -> impl Iterator<Item = &Awaiting> {
        self.awaiting.values()
    }

    /// What waits so for the store waits no more: its answers are nothing to anybody.
    pub(crate) fn wait_no_more(&mut self, is_meant: impl Fn(&Awaiting) -> bool) -> Vec<Awaiting> {
        let waiting = self.awaiting.values_mut();
        let meant = waiting.filter(|awaiting| is_meant(awaiting));
        let none = |awaiting| std::mem::replace(awaiting, Awaiting::Nothing);
        meant.map(none).collect()
    }

    /// Commits that the store has not answered.
    pub(crate) const fn commits(&self) -> usize {
        self.commits
    }

    /// The last commit that was asked for since this was asked last.
    pub(crate) const fn take_last_commit(&mut self) -> Option<Token> {
        self.last_commit.take()
    }

    /// Are so many commits outstanding that nothing new is begun?
    pub(crate) const fn store_is_behind(&self) -> bool {
        self.commits >= COMMITS_OUTSTANDING
    }
}
