//! Lines of the log about jobs and processes.
//!
//! Owns what is known by name of them. Which events are worth a line is in `log.rs`.

use agentd_protocol::line::Line;

use crate::effect::Effect;
use crate::ids::{TurnId, WorkerId};
use crate::log::{About, Entry, What};
use crate::state::State;

impl State {
    /// A line about a job.
    pub(crate) fn log_job(&mut self, turn: TurnId, what: What) {
        let job = expected!(self.jobs.get(turn));
        let session = self.sessions.get(&job.session);
        let about = About {
            job: job.number,
            session: session.and_then(|session| session.name.clone()),
            agent: session.map(|session| session.agent.clone()),
            worker: (job.process()).map(|process| (process.worker, process.generation)),
        };
        self.log(about, what);
    }

    /// A line about the end of a job, as its final line says it.
    pub(crate) fn log_end(&mut self, turn: TurnId, line: &Line, took_ms: u64) {
        let (stop, code) = match line {
            Line::MessageEnd(end) => (Some(end.stop), None),
            Line::Error(error) => (None, Some(error.code)),
            _ => (None, None),
        };
        let ended = What::Ended {
            stop,
            code,
            took_ms,
        };
        self.log_job(turn, ended);
    }

    /// A line about a process.
    pub(crate) fn log_worker(&mut self, worker: WorkerId, what: What) {
        let slot = expected!(self.pool.get(worker));
        let mut sessions = slot
            .sessions
            .iter()
            .filter_map(|session| self.sessions.get(session));
        let about = About {
            job: None,
            // One of many would be a wrong answer.
            session: match (sessions.next(), sessions.next()) {
                (Some(only), None) => only.name.clone(),
                _ => None,
            },
            agent: Some(slot.agent.clone()),
            worker: Some((worker, slot.generation)),
        };
        self.log(about, what);
    }

    fn log(&mut self, about: About, what: What) {
        let entry = Entry { about, what };
        self.outbox.push(Effect::Log(Box::new(entry)));
    }
}
