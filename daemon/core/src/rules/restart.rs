//! `restart_worker`: processes are replaced, and whoever asked hears when they are ready.
//!
//! Owns the waiting list, and who is replaced unasked because something is left in it. Must not know
//! the stop ladder.

use std::collections::BTreeSet;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::request::RestartWorker;
use agentd_protocol::{Code, Id};

use crate::ids::{ConnId, WorkerId};
use crate::peers::waiting::RestartWait;
use crate::rare::Rare;
use crate::state::State;

impl State {
    pub(crate) fn restart_worker(&mut self, conn: ConnId, id: Option<Id>, restart: &RestartWorker) {
        let slots: BTreeSet<WorkerId> = match (&restart.agent, &restart.session) {
            (Some(agent), None) => {
                if !self.settings.agents.contains_key(agent) {
                    let rejected = self.unknown_agent(agent);
                    return self.refuse(conn, id, rejected);
                }
                // Somebody asks for another try, having mended something, probably.
                self.forget_deaths(agent);
                self.pool
                    .iter()
                    .filter(|(_, slot)| slot.agent == *agent)
                    .map(|(id, _)| id)
                    .collect()
            }
            (None, Some(session)) => {
                let named = self.sessions.named(session);
                let Some(session) = named.and_then(|id| self.sessions.get_mut(&id)) else {
                    let error = format!("no session `{session}` has a process");
                    let rejected = Rejected::new(Code::UnknownSession, error);
                    let hint = "its next turn starts one; `session.list` lists the sessions";
                    return self.refuse(conn, id, rejected.hint(hint));
                };
                session.health = Rare::default();
                session.slot.into_iter().collect()
            }
            _ => {
                let error = "`restart_worker` needs either `agent` or `session`";
                return self.refuse(conn, id, Rejected::new(Code::InvalidRequest, error));
            }
        };
        // Before the processes are told: one that is gone at once answers for itself.
        self.peers.restart(RestartWait {
            conn,
            id,
            slots: slots.clone(),
        });
        for slot in slots {
            self.restart_slot(slot, restart.now);
        }
        // There may be none to wait for.
        self.settle_restarts();
    }

    /// A slot that was to be restarted is ready, or gone for good.
    pub(crate) fn restarted(&mut self, worker: WorkerId, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.peers.restarted(worker),
            Err(why) => {
                for wait in self.peers.restart_failed(worker) {
                    let rejected = Rejected::new(Code::WorkerStartFailed, why.clone());
                    self.refuse(wait.conn, wait.id, rejected);
                }
            }
        }
        self.settle_restarts();
    }

    pub(crate) fn settle_restarts(&mut self) {
        for wait in self.peers.take_restarted() {
            self.answer(wait.conn, wait.id, &Line::RestartWorker { ok: true });
        }
    }

    /// Something is left in a process that no later turn must get.
    pub(crate) fn spoilt(&mut self, worker: WorkerId, why: &str) {
        if let Some(slot) = found!(self.pool.get_mut(worker))
            && !slot.phase.is_stopping()
        {
            slot.last_error = Some(format!("it was replaced: {why}"));
            self.restart_slot(worker, false);
        }
    }
}
