//! Spare processes: how many there are to be, where, and when.
//!
//! Owns where an agent was used last. Which turn gets which process is in `placement.rs`, what the
//! machine has room for in `spare_room.rs`.

use std::time::Duration;

use crate::agent::{Agent, Sessions, Warm};
use crate::ids::WorkerId;
use crate::limits::{BREAKER_RETRY, SPARE_LETS, SPARE_WAITS};
use crate::outbox::timers::Timer;
use crate::pool::fit::Fit;
use crate::pool::slot::Slot;
use crate::rules::agent_choice::per_turn;
use crate::settings::Served;
use crate::state::State;

impl State {
    /// A ready process serves a turn: spares are for where its agent is used.
    pub(crate) fn used(&mut self, worker: WorkerId) {
        let slot = found!(self.pool.get(worker));
        let Some(slot) = slot.filter(|slot| slot.is_ready()) else {
            return;
        };
        let (name, is_spare) = (slot.agent.clone(), slot.is_spare_taken());
        let agent = self.settings.agents.get(&name);
        if agent.is_none_or(|agent| agent.warm == Warm::Always(0)) {
            return;
        }
        if agent.is_some_and(|agent| agent.logged_in == Some(false)) {
            // Somebody may have logged in since it was looked at.
            self.look_for_agents();
        }
        self.pool.served(worker);
        self.was_used(worker);
        if is_spare {
            // They come up, and are of use.
            self.pool.spares_of(&name).forgive();
        }
    }

    /// A directory is gone: spares are for the default one until the agent is used again, and for
    /// none if it is that one.
    pub(crate) fn no_spares_in(&mut self, agent: &str, cwd: &str) {
        let spares = self.pool.spares_of(agent);
        if spares.last.as_ref().is_some_and(|last| last.cwd == cwd) {
            spares.last = None;
        }
        if self.settings.home == cwd {
            spares.not_before = Some(self.now.mono + BREAKER_RETRY);
        }
    }

    /// No process comes up with what was used last: spares are the usual ones again.
    pub(crate) fn no_spares_with(&mut self, agent: &str, fit: &Fit) {
        let spares = self.pool.spares(agent);
        if let Some(spares) = spares.filter(|spares| spares.last.as_ref() == Some(fit)) {
            spares.last = None;
        }
    }

    /// Keeps the spares that were asked for.
    pub(crate) fn keep_warm(&mut self) {
        if self.settings.served != Served::Daemon || !self.mode.starts_turns() {
            return;
        }
        let wanting: Vec<Agent> = self
            .settings
            .agents
            .values()
            .filter(|agent| self.spares_wanted(agent) > 0 && agent.usable.is_ok())
            .filter(|agent| !per_turn(agent))
            .cloned()
            .collect();
        for agent in wanting {
            self.keep_warm_of(&agent);
        }
    }

    fn keep_warm_of(&mut self, agent: &Agent) {
        let now = self.now.mono;
        if self
            .pool
            .health_mut(&agent.name)
            .is_some_and(|health| health.is_missing(now) || health.broken(now).is_some())
        {
            return self
                .outbox
                .set_if_unset(Timer::Breaker, now + BREAKER_RETRY);
        }
        let spares = self.pool.spares_of(&agent.name);
        if let Some(until) = spares.not_before.filter(|until| *until > now) {
            return self.outbox.set_no_later(Timer::Spare, until);
        }
        // Where it was used last is where it is used next, mostly.
        let last = spares.last.clone();
        let fit = last.unwrap_or_else(|| Fit::usual(agent, &self.settings.home));
        // Before they are counted: those of another directory serve nobody here.
        self.retire_others(agent, &fit);
        if let Some(at) = self.no_extra_before(&agent.name, &fit) {
            return self.outbox.set_no_later(Timer::Spare, at);
        }
        let automatic = agent.warm == Warm::WhenUsed;
        let is_spare = |slot: &&Slot| {
            let shared = agent.describe.sessions == Sessions::Many && !slot.one_session;
            let serves =
                slot.takes_turns() && slot.serves(&fit) && (shared || slot.sessions.is_empty());
            // Or it is about to be, for where the agent was used before: it goes first.
            slot.agent == agent.name && (serves || automatic && slot.is_spare_to_be())
        };
        let there = self.pool.slots().filter(is_spare).count();
        // A spare ends nobody to make room.
        if there >= self.spares_wanted(agent) || self.is_full() {
            return self.spare_is_missing_no_more(&agent.name);
        }
        if let Some(until) = self.spare_would_disturb(&agent.name) {
            self.outbox.set_no_later(Timer::Spare, until);
        } else if self.has_room_for_spare(agent) {
            self.spare_is_missing_no_more(&agent.name);
            self.tries_extra(&agent.name);
            let worker = self.add_slot(agent, fit);
            if let Some(slot) = found!(self.pool.get_mut(worker)) {
                slot.spare = true;
            }
            self.start(worker);
        }
    }

    /// Spares for where the agent was used before make way.
    fn retire_others(&mut self, agent: &Agent, fit: &Fit) {
        // Who waits for one that is starting gets it first.
        let others = self.pool.iter().filter(|(worker, slot)| {
            slot.agent == agent.name
                && slot.is_free()
                && slot.turns.is_empty()
                && slot.is_ready()
                && slot.takes_turns()
                && !slot.serves(fit)
                // What was in use is kept for its idle time where nobody asked for spares.
                && (agent.warm != Warm::WhenUsed || slot.is_unused_spare())
                && !self.pool.is_compacting(*worker)
        });
        let others: Vec<WorkerId> = others.map(|(worker, _)| worker).collect();
        for worker in others {
            self.retire(worker);
        }
    }

    fn spare_is_missing_no_more(&mut self, agent: &str) {
        if let Some(spares) = self.pool.spares(agent) {
            spares.missing = None;
        }
    }

    /// Until when a new spare would take its cores from a turn that has just begun: often the one
    /// that took the last spare. Others that begin meanwhile don't put it off any further. One that
    /// has just ended is to be told first.
    fn spare_would_disturb(&mut self, agent: &str) -> Option<Duration> {
        let now = self.now.mono;
        let slots = || self.pool.slots().filter(|slot| slot.agent == agent);
        let turns = slots().flat_map(|slot| &slot.turns);
        let jobs = turns.filter_map(|turn| self.jobs.get(turn));
        let began = jobs.map(|job| job.said.started_at.unwrap_or(now)).max();
        let served = slots().filter(|slot| slot.served && slot.turns.is_empty());
        let ended = served.map(|slot| slot.idle_since + SPARE_LETS).max();
        let quiet = began.map(|began| began + SPARE_WAITS).max(ended)?;
        let spares = self.pool.spares_of(agent);
        // From the first time that it was missing: turns that follow one another don't put it off
        // for ever.
        let missing = *spares.missing.get_or_insert(now);
        let until = quiet.min(missing + SPARE_WAITS);
        (until > now).then_some(until)
    }
}
