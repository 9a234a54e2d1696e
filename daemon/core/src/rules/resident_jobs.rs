//! Jobs come into memory and leave it.
//!
//! Owns that a session knows how many of its jobs are there.

use crate::ids::{SessionId, TurnId};
use crate::jobs::job::Job;
use crate::state::State;

impl State {
    /// Whose a session is. It is in memory for as long as a job of it.
    pub(crate) fn agent_of(&self, session: SessionId) -> String {
        let session = self.sessions.get(&session);
        session.map_or_else(String::new, |session| session.agent.clone())
    }

    /// A job is in memory from now on, and its session with it.
    pub(crate) fn put_job(&mut self, turn: TurnId, job: Job) {
        if let Some(session) = found!(self.sessions.get_mut(job.session)) {
            session.jobs += 1;
        }
        self.jobs.insert(turn, job);
    }

    /// A job leaves memory.
    pub(crate) fn take_job(&mut self, turn: TurnId) -> Option<Box<Job>> {
        let job = self.outbox.expected(turn, self.jobs.remove(turn))?;
        if let Some(session) = found!(self.sessions.get_mut(job.session)) {
            session.jobs -= 1;
        }
        Some(job)
    }
}
