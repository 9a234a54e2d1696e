//! A store that is behind is waited for by those who write: their pipes are not read.
//!
//! Owns when a process is paused, and that nobody holds its silence against it. Must not know pipes.

use crate::effect::Effect;
use crate::ids::WorkerId;
use crate::job::Process;
use crate::limits::{EVENTS_READ_AGAIN, EVENTS_UNSTORED};
use crate::state::State;

impl State {
    /// A numbered event of a process is on its way to the store.
    pub(crate) fn event_unstored(&mut self, of: Option<Process>) {
        let Some(of) = of else { return };
        let Some(slot) = self.current(of.worker, of.generation) else {
            return;
        };
        slot.unstored += 1;
        if slot.unstored >= EVENTS_UNSTORED && !slot.paused {
            self.pause(of, true);
        }
    }

    /// The store answered for one of them.
    pub(crate) fn event_stored(&mut self, of: Process) {
        let Some(slot) = self.current(of.worker, of.generation) else {
            return;
        };
        slot.unstored = slot.unstored.saturating_sub(1);
        if slot.unstored <= EVENTS_READ_AGAIN && slot.paused {
            self.pause(of, false);
        }
    }

    fn pause(&mut self, of: Process, paused: bool) {
        let Some(slot) = self.current(of.worker, of.generation) else {
            return;
        };
        slot.paused = paused;
        self.out.push(Effect::Pause {
            worker: of.worker,
            generation: of.generation,
            paused,
        });
    }

    /// Can a process not be heard just now? Then nothing that it doesn't say counts against it.
    pub(crate) fn is_paused(&self, worker: WorkerId) -> bool {
        self.slots.get(&worker).is_some_and(|slot| slot.paused)
    }
}
