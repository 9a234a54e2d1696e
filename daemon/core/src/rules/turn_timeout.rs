//! A turn's time: how long it may take, from when its process is made ready for it.
//!
//! Owns when that time begins, and what becomes of a turn whose process never got ready, and of
//! that process. Waiting for its session or for room is not its time. Which process a turn gets,
//! `placement.rs` decides.

use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::spoken::span;

use crate::effect::StopStage;
use crate::ids::{TurnId, WorkerId};
use crate::jobs::job::{Ending, Job, Phase};
use crate::jobs::said::Notice;
use crate::limits::DEFAULT_TIMEOUT;
use crate::outbox::timers::Timer;
use crate::pool::slot::{Slot, SlotPhase, Then};
use crate::state::State;
use crate::worker::Failure;

/// How long a turn may take.
pub(crate) fn allowed(job: &Job) -> Duration {
    job.terms.timeout().unwrap_or(DEFAULT_TIMEOUT)
}

impl State {
    /// Nothing but the readiness of its process keeps this turn from running.
    pub(crate) fn clock_runs(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get_mut(turn));
        // From the first time: a process that dies while it starts gives its turn no new time.
        let until = *job.clock.get_or_insert(self.now.mono) + allowed(job);
        self.outbox.set_if_unset(Timer::Running(turn), until);
        self.jobs.clock(turn);
    }

    /// It waits for something else again.
    pub(crate) fn clock_stops(&mut self, turn: TurnId) {
        if self.jobs.unclock(turn) {
            self.outbox.clear(Timer::Running(turn));
            if let Some(job) = found!(self.jobs.get_mut(turn)) {
                job.clock = None;
            }
        }
    }

    /// A turn has had its time.
    pub(crate) fn time_up(&mut self, turn: TurnId) {
        match self.jobs.get(&turn).map(|job| &job.phase) {
            Some(Phase::Queued) => self.never_ready(turn),
            // Until its mark is durable nothing of it was written: `begin` sees that it is late.
            Some(_) => self.tell_to_end(turn, Ending::Timeout),
            None => self.outbox.dangling(turn),
        }
    }

    /// Says it to the turns whose time runs while this process gets ready.
    pub(crate) fn note_waiting(&mut self, worker: WorkerId, notice: &Notice) {
        let clocked = self.jobs.clocked().iter().copied();
        let waiting = clocked.filter(|turn| {
            let session = self.jobs.get(turn).map(|job| job.session);
            let known = session.and_then(|session| self.sessions.get(&session));
            known.is_some_and(|known| known.slot == Some(worker))
        });
        for turn in waiting.collect::<Vec<_>>() {
            self.note(turn, notice);
        }
    }

    /// Ends a turn whose process did not get ready while it had time.
    pub(crate) fn never_ready(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        let name = self.agent_of(job.session);
        let kind = self.settings.agents.get(&name).map_or("", |one| one.kind);
        let since = job.clock.unwrap_or(self.now.mono);
        let waited = span(self.now.mono.saturating_sub(since));
        let slot = self.sessions.get(&job.session).and_then(|known| known.slot);
        let last = slot
            .and_then(|worker| self.pool.get(&worker)?.last_error.as_ref())
            .map_or_else(String::new, |why| format!("; the last one: {why}"));
        let error = format!(
            "the process of agent `{name}` (kind `{kind}`) did not get ready within {waited}, \
             the turn's limit{last}"
        );
        let hint = format!(
            "`agents` shows what is run: it must be a program of kind `{kind}`; a longer \
             `timeout` gives it more time"
        );
        let failure = Failure {
            hint: Some(hint),
            ..Failure::new(Code::Timeout, error)
        };
        self.fail(turn, failure);
        // The turn that has just ended waits for none of them any more.
        self.update_indexes();
        // Else a program that hangs at its start is there until its own time is over, in the room
        // of others.
        self.end_unwanted(&name);
    }

    /// What a turn that ran is told of its limit.
    pub(crate) fn took_too_long(&self, turn: TurnId) -> String {
        let job = self.jobs.get(&turn);
        let times = job.and_then(|job| Some((job.clock?, job.said.started_at?)));
        let (since, began) = times.unwrap_or((self.now.mono, self.now.mono));
        let all = self.now.mono.saturating_sub(since);
        let before = began.saturating_sub(since);
        let before = if before < Duration::from_millis(100) {
            String::new()
        } else {
            format!(" ({} of it until its process was ready)", span(before))
        };
        let limit = job.map_or(DEFAULT_TIMEOUT, allowed);
        // What does not stop when it is told to gets some time for it.
        let late = if all.saturating_sub(limit) < Duration::from_millis(500) {
            String::new()
        } else {
            format!("; until its agent had stopped it took {}", span(all))
        };
        let limit = span(limit);
        format!("the turn reached its limit of {limit}{before}, and was ended{late}")
    }

    /// Ends processes of an agent that are on their way to be ready, when nobody waits for them.
    fn end_unwanted(&mut self, agent: &str) {
        let begins = |slot: &Slot| match slot.phase {
            SlotPhase::Starting { .. } | SlotPhase::Backoff => true,
            SlotPhase::Stopping { then, .. } => then != Then::Gone,
            _ => false,
        };
        let unwanted: Vec<WorkerId> = self
            .pool
            .iter()
            .filter(|(_, slot)| slot.agent == agent && slot.turns.is_empty() && begins(slot))
            .filter(|(worker, slot)| !self.is_awaited(*worker, slot))
            .map(|(worker, _)| worker)
            .collect();
        for worker in unwanted {
            self.stop_slot(worker, StopStage::Ask);
        }
    }

    /// Does anybody wait for this process to get ready?
    fn is_awaited(&self, worker: WorkerId, slot: &Slot) -> bool {
        let Some(agent) = self.settings.agents.get(&slot.agent) else {
            return false;
        };
        let is_spare = slot.is_free() && self.spares_wanted(agent) > 0;
        let mut bound = slot.sessions.iter().filter_map(|id| self.sessions.get(id));
        is_spare
            || self.peers.awaits_restart(worker)
            || bound.any(|session| !session.queue.is_empty())
            || (slot.sessions.is_empty() || !slot.one_session)
                && self
                    .lane_of(slot)
                    .is_some_and(|lane| !self.indexes.lanes().is_empty(&lane))
    }
}
