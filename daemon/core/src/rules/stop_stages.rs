//! How a process is ended: asked, terminated, killed, and what follows.
//!
//! Owns the rungs and their deadlines. Why it is ended, others know.

use crate::effect::{Effect, StopStage};
use crate::ids::{TurnId, WorkerId};
use crate::jobs::job::{Ending, Phase};
use crate::limits::{RETIRE_WITHIN, RUNG};
use crate::log::What;
use crate::outbox::timers::Timer;
use crate::pool::slot::{SlotPhase, Then};
use crate::state::State;

impl State {
    /// The deadline of a slot's phase has passed.
    pub(crate) fn slot_deadline(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get_mut(worker));
        match slot.phase {
            // Its answer may be in the pipe that isn't read.
            SlotPhase::Probing { .. } | SlotPhase::Recycling { .. } if slot.paused => {
                self.outbox.set(Timer::Slot(worker), self.now.mono + RUNG);
            }
            SlotPhase::Backoff => self.start(worker),
            SlotPhase::Starting { .. } => self.unready(worker, "it did not get ready in time"),
            SlotPhase::Probing { .. } => {
                slot.last_error = Some("it was idle and did not answer when asked".to_owned());
                self.log_worker(worker, What::Unresponsive);
                self.restart_slot(worker, true);
                // It is deaf: to ask it would only take five seconds more.
                self.climb(worker, StopStage::Kill);
            }
            SlotPhase::Recycling { .. } => {
                slot.last_error = Some("it was not ready for its next turn in time".to_owned());
                self.stop_slot(worker, StopStage::Ask);
            }
            SlotPhase::Stopping { stage, .. } => match stage {
                StopStage::Ask => self.climb(worker, StopStage::Term),
                StopStage::Term | StopStage::Kill => self.climb(worker, StopStage::Kill),
            },
            SlotPhase::Failed => self.drop_slot(worker),
            SlotPhase::Planned | SlotPhase::Ready { .. } => {}
        }
    }

    /// Begins to end a process; an earlier rung of a stop under way is never gone back to.
    pub(crate) fn stop_slot(&mut self, worker: WorkerId, stage: StopStage) {
        self.end_slot(worker, stage, Then::Gone);
    }

    pub(crate) fn end_slot(&mut self, worker: WorkerId, stage: StopStage, then: Then) {
        let slot = expected!(self.pool.get_mut(worker));
        let pid = match slot.phase {
            SlotPhase::Planned | SlotPhase::Backoff | SlotPhase::Failed => {
                let was_failed = slot.phase == SlotPhase::Failed;
                // A broken slot had given up its place among the processes.
                return if then == Then::Gone || (was_failed && self.is_full()) {
                    self.drop_slot(worker);
                } else {
                    self.start(worker);
                };
            }
            SlotPhase::Stopping {
                stage: now,
                then: before,
                pid,
            } => {
                // What was to be restarted may still be told to go, not the reverse.
                let then = if before == Then::Gone {
                    Then::Gone
                } else {
                    then
                };
                slot.phase = SlotPhase::Stopping {
                    pid,
                    stage: now,
                    then,
                };
                if stage > now {
                    self.climb(worker, stage);
                }
                return;
            }
            SlotPhase::Starting { pid }
            | SlotPhase::Ready { pid, .. }
            | SlotPhase::Probing { pid, .. }
            | SlotPhase::Recycling { pid, .. } => pid,
        };
        slot.phase = SlotPhase::Stopping { pid, stage, then };
        self.outbox.clear(Timer::Idle(worker));
        self.outbox.clear(Timer::Retire(worker));
        self.climb(worker, stage);
    }

    /// Takes the next rung of the stop ladder.
    pub(crate) fn climb(&mut self, worker: WorkerId, next: StopStage) {
        let at = self.now.mono + RUNG;
        let slot = expected!(self.pool.get_mut(worker));
        let SlotPhase::Stopping { stage, .. } = &mut slot.phase else {
            return;
        };
        *stage = next;
        let generation = slot.generation;
        self.outbox.set(Timer::Slot(worker), at);
        self.outbox.push(Effect::End {
            worker,
            generation,
            stage: next,
        });
    }

    /// No new turns; it goes when the last one ended, or after `RETIRE_WITHIN`.
    pub(crate) fn retire(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get_mut(worker));
        slot.retiring = true;
        if slot.turns.is_empty() {
            self.stop_slot(worker, StopStage::Ask);
        } else {
            self.outbox
                .set_if_unset(Timer::Retire(worker), self.now.mono + RETIRE_WITHIN);
        }
    }

    pub(crate) fn retire_now(&mut self, worker: WorkerId) {
        if self.is_paused(worker) {
            // What its turns end with can't be heard yet.
            let again = self.now.mono + RUNG;
            return self.outbox.set(Timer::Retire(worker), again);
        }
        self.stop_slot(worker, StopStage::Ask);
    }

    /// Replaces a slot's process, at once or when its turns ended.
    pub(crate) fn restart_slot(&mut self, worker: WorkerId, now: bool) {
        let slot = expected!(self.pool.get_mut(worker));
        if now || slot.turns.is_empty() {
            self.end_slot(worker, StopStage::Ask, Then::Restart);
        } else {
            // Somebody's turn runs in it.
            slot.restart_when_idle = true;
        }
    }

    /// A turn's worker did not settle: its process must go.
    pub(crate) fn unsettled(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        let Phase::Settling { process, ending } = job.phase.clone() else {
            return;
        };
        if self.is_paused(process.worker) {
            // It may have settled long since.
            let again = self.now.mono + RUNG;
            return self.outbox.set(Timer::Settling(turn), again);
        }
        // An agent that can't be told to end one turn is ended for it, unless others' turns run
        // there, too.
        let alone = self
            .pool
            .get(&process.worker)
            .is_none_or(|slot| slot.turns.len() <= 1);
        if alone || ending == Ending::Interrupted {
            self.end_slot(process.worker, StopStage::Ask, Then::Restart);
        } else {
            self.retire(process.worker);
        }
    }
}
