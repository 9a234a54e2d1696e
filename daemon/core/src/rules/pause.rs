//! A store that is behind is waited for by those who write: their pipes are not read.
//!
//! Owns when a process is paused, and that nobody holds its silence against it. Must not know pipes.

use crate::effect::Effect;
use crate::ids::{Process, TurnId, WorkerId};
use crate::limits::{EVENTS_READ_AGAIN, EVENTS_UNSTORED, TEXT_READ_AGAIN, TEXT_UNSTORED};
use crate::state::State;

impl State {
    /// A numbered event of a process is on its way to the store.
    pub(crate) fn event_unstored(&mut self, of: Option<Process>) {
        let Some(of) = of else { return };
        let Some(slot) = self.pool.current(of.worker, of.generation) else {
            return;
        };
        // Counted in the slot, and anew with each process: what a dead one said is no longer held
        // against it.
        slot.unstored += 1;
        if slot.unstored >= EVENTS_UNSTORED && !slot.paused {
            self.pause(of, true);
        }
    }

    /// The store answered for one of them.
    pub(crate) fn event_stored(&mut self, of: Process) {
        let Some(slot) = self.pool.current(of.worker, of.generation) else {
            return;
        };
        slot.unstored = slot.unstored.saturating_sub(1);
        self.read_again(Some(of));
    }

    /// A turn said something: it may be more than the store takes.
    pub(crate) fn text_unstored(&mut self, turn: TurnId) {
        let job = expected!(self.jobs.get(turn));
        let behind = job.said.text_unstored >= TEXT_UNSTORED;
        if let Some(of) = job
            .process()
            .filter(|of| behind && !self.is_paused(of.worker))
        {
            self.pause(of, true);
        }
    }

    /// Reads a process again that the store has caught up with.
    pub(crate) fn read_again(&mut self, of: Option<Process>) {
        let Some(of) = of else { return };
        let Some(slot) = self.pool.current(of.worker, of.generation) else {
            return;
        };
        // Far below the limit, so that it isn't paused and read again for every event.
        if !slot.paused || slot.unstored > EVENTS_READ_AGAIN {
            return;
        }
        let slot = self.pool.get(&of.worker);
        let turns = slot.into_iter().flat_map(|slot| &slot.turns);
        let mut jobs = turns.filter_map(|turn| self.jobs.get(turn));
        // Either may have paused it: it is read again when neither would.
        if !jobs.any(|job| job.said.text_unstored > TEXT_READ_AGAIN) {
            self.pause(of, false);
        }
    }

    fn pause(&mut self, of: Process, paused: bool) {
        let Some(slot) = self.pool.current(of.worker, of.generation) else {
            return;
        };
        slot.paused = paused;
        self.outbox.push(Effect::Pause {
            worker: of.worker,
            generation: of.generation,
            paused,
        });
    }

    /// Can a process not be heard just now? Then nothing that it doesn't say counts against it.
    pub(crate) fn is_paused(&self, worker: WorkerId) -> bool {
        self.pool.get(&worker).is_some_and(|slot| slot.paused)
    }
}
