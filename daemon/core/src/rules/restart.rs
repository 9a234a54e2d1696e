//! `restart_worker`: processes are replaced, and whoever asked hears when they are ready.
//!
//! Owns the waiting list. Must not know the stop ladder.

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
                self.forget_deaths(agent);
                self.slots
                    .iter()
                    .filter(|(_, slot)| slot.agent == *agent)
                    .map(|(id, _)| *id)
                    .collect()
            }
            (None, Some(session)) => {
                let Some(session) = self
                    .names
                    .get(session)
                    .and_then(|id| self.sessions.get_mut(id))
                else {
                    let error = format!("the session `{session}` has no worker");
                    return self.refuse(conn, id, Rejected::new(Code::UnknownSession, error));
                };
                session.health = Rare::default();
                session.slot.into_iter().collect()
            }
            _ => {
                let error = "`restart_worker` needs either `agent` or `session`";
                return self.refuse(conn, id, Rejected::new(Code::InvalidRequest, error));
            }
        };
        self.restarts.push(RestartWait {
            conn,
            id,
            slots: slots.clone(),
        });
        for slot in slots {
            self.restart_slot(slot, restart.now);
        }
        self.settle_restarts();
    }

    /// A slot that was to be restarted is ready, or gone for good.
    pub(crate) fn restarted(&mut self, worker: WorkerId, outcome: Result<(), String>) {
        for wait in std::mem::take(&mut self.restarts) {
            let mut wait = wait;
            match &outcome {
                Err(why) if wait.slots.contains(&worker) => {
                    self.refuse(
                        wait.conn,
                        wait.id,
                        Rejected::new(Code::WorkerStartFailed, why.clone()),
                    );
                }
                _ => {
                    wait.slots.remove(&worker);
                    self.restarts.push(wait);
                }
            }
        }
        self.settle_restarts();
    }

    /// Does somebody who asked for a restart wait for this process?
    pub(crate) fn restarts_await(&self, worker: WorkerId) -> bool {
        self.restarts
            .iter()
            .any(|wait| wait.slots.contains(&worker))
    }

    pub(crate) fn settle_restarts(&mut self) {
        let (done, waiting) = std::mem::take(&mut self.restarts)
            .into_iter()
            .partition(|wait| wait.slots.is_empty());
        self.restarts = waiting;
        let done: Vec<RestartWait> = done;
        for wait in done {
            self.answer(wait.conn, wait.id, &Line::RestartWorker { ok: true });
        }
    }
}
