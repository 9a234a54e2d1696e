//! Another configuration counts from now on.
//!
//! Owns what becomes of processes that were started with the one before. What changed, the shell has
//! found out.

use crate::effect::StopStage;
use crate::event::ConfigTaken;
use crate::ids::WorkerId;
use crate::pool::slot::SlotPhase;
use crate::state::State;

impl State {
    /// What is said counts for the next turn and the next process. A turn that runs ends in the
    /// process that it began in.
    pub(crate) fn config_taken(&mut self, taken: ConfigTaken) {
        let ConfigTaken {
            agents,
            removed,
            renewed,
            default_agent,
            spare_memory,
            looked_for,
        } = taken;
        self.settings.default_agent = default_agent;
        self.settings.spare_memory = spare_memory;
        self.settings.looked_for = looked_for;
        for agent in agents {
            // It may be another program, or the same one mended.
            self.forget_deaths(&agent.name);
            self.settings.put_agent(agent);
        }
        for name in &removed {
            // Its sessions wait for something else now.
            self.forget_deaths(name);
            self.settings.agents.remove(name);
        }
        for name in &renewed {
            if let Some(agent) = self.settings.agents.get_mut(name) {
                agent.revision += 1;
            }
            for session in self.indexes.lanes().sessions_of(name) {
                // Whoever waits for a process waits for a new one.
                self.sessions.touch(session);
            }
        }
        self.renew_all(&renewed);
        for worker in self.processes_of(&removed) {
            self.renew(worker);
        }
    }

    /// All processes of these agents, but for those whose sessions would be lost.
    pub(crate) fn renew_all(&mut self, agents: &[String]) {
        for worker in self.processes_of(agents) {
            let slot = self.pool.get(&worker);
            // What only a process remembers is worth more than what is new: it goes on with those
            // sessions, and gets no others, as it doesn't fit them any more.
            if slot.is_some_and(|slot| !self.is_memory(slot)) {
                self.renew(worker);
            }
        }
    }

    fn processes_of(&self, agents: &[String]) -> Vec<WorkerId> {
        let slots = self.pool.iter();
        let slots = slots.filter(|(_, slot)| agents.contains(&slot.agent) && !slot.is_one_turn());
        slots.map(|(worker, _)| worker).collect()
    }

    /// It takes no new turns, and goes when it has none: another one is started when it is needed.
    fn renew(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get_mut(worker));
        match slot.phase {
            SlotPhase::Ready { .. } | SlotPhase::Probing { .. } | SlotPhase::Recycling { .. } => {
                // Without a time limit: its turn may take an hour.
                slot.retiring = true;
                if slot.turns.is_empty() {
                    self.stop_slot(worker, StopStage::Ask);
                }
            }
            SlotPhase::Planned
            | SlotPhase::Starting { .. }
            | SlotPhase::Backoff
            | SlotPhase::Stopping { .. }
            | SlotPhase::Failed => self.stop_slot(worker, StopStage::Term),
        }
    }
}
