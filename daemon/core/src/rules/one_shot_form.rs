//! An agent whose program turns out to lack its long-lived form goes on in its exec form.
//!
//! Owns what becomes of its processes and of those who wait for them. Who found it out, and how,
//! the shell knows.

use agentd_protocol::line::Level;

use crate::agent::{ExecForm, Sessions};
use crate::effect::StopStage;
use crate::ids::{SessionId, WorkerId};
use crate::jobs::said::Notice;
use crate::pool::slot::SlotPhase;
use crate::state::State;

impl State {
    /// From now on each turn of an agent is a process. One that got ready in the old form ends the
    /// turns it has; any other is ended, and whoever waits for it is served anew.
    pub(crate) fn run_in_exec_form(&mut self, name: &str, form: ExecForm) {
        let Some(agent) = self.settings.agents.get_mut(name) else {
            return;
        };
        if form.describe.sessions != Sessions::PerTurn {
            return;
        }
        agent.kind = form.kind;
        agent.command = form.command;
        agent.describe = form.describe;
        // They were of the form that it lacks.
        self.forget_deaths(name);
        let old = self.pool.iter();
        let old = old.filter(|(_, slot)| slot.agent == name && !slot.is_one_turn());
        let old: Vec<WorkerId> = old.map(|(worker, _)| worker).collect();
        for worker in old {
            // Before its process ends, by which they are found.
            self.tell_who_waits(worker, &form.why);
            match self.pool.get(&worker).map(|slot| slot.phase) {
                Some(
                    SlotPhase::Ready { .. }
                    | SlotPhase::Probing { .. }
                    | SlotPhase::Recycling { .. },
                ) => self.retire(worker),
                // Nobody told it anything: it need not be asked to end.
                _ => self.stop_slot(worker, StopStage::Term),
            }
        }
    }

    /// The next turn of each session of a process says why it is run in another way.
    fn tell_who_waits(&mut self, worker: WorkerId, why: &str) {
        let slot = expected!(self.pool.get(worker));
        let sessions: Vec<SessionId> = slot.sessions.iter().copied().collect();
        for turn in self.first_waiting(&sessions) {
            let notice = Notice {
                level: Level::Info,
                code: "one-shot-form".to_owned(),
                text: format!("{why}: its exec form is run"),
            };
            self.note(turn, &notice);
        }
    }
}
