//! What a dead instance left behind: interrupted, queued again, or held.
//!
//! Owns the gate: a session opens only when the dead instance's processes are gone. Must not know
//! processes: the shell ends them and says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use agentd_protocol::line::LeftFacts;
use agentd_protocol::request::Retry;
use agentd_protocol::{Code, JobId};

use crate::ids::{SessionId, TurnId};
use crate::jobs::job::{Ending, Job, Phase};
use crate::jobs::slices::Fate;
use crate::limits::ATTEMPTS;
use crate::peers::questions::Closed;
use crate::rules::budget;
use crate::sessions::session::{Gate, Session};
use crate::state::State;
use crate::store::{JobRow, JobState, LeftJob, Recovered, Write};
use crate::terms::{Terms, Unreadable};
use crate::worker::Failure;

/// Why a job that was left behind can't go on.
#[derive(Clone, Copy)]
enum Lost {
    /// Somebody ended it before.
    Cancelled,
    /// It ran, and may not run again.
    Running,
    /// It waited, and what was asked doesn't read back.
    Unreadable {
        /// Not even as what another version asks.
        damaged: bool,
        /// An earlier attempt had begun.
        has_run: bool,
    },
}

impl Lost {
    /// What is told of it, unless it ends as somebody asked.
    fn failure(self) -> Option<Failure> {
        let (damaged, has_run) = match self {
            Self::Cancelled => return None,
            Self::Running => {
                let error = "agentd died while the turn ran; what it had done by then may have \
                             taken effect";
                return Some(Failure::new(Code::Interrupted, error));
            }
            Self::Unreadable { damaged, has_run } => (damaged, has_run),
        };
        let why = match damaged {
            true => "what was asked can't be read any more: the store is damaged",
            false => "what was asked can't be read by this version: a newer agentd wrote it",
        };
        let ran = match has_run {
            true => "it isn't run again, and what it had done before may have taken effect",
            false => "nothing of it was run",
        };
        Some(Failure::new(Code::StoreFailed, format!("{why}; {ran}")))
    }
}

/// Does a job that was running begin anew?
fn runs_again(row: &JobRow, terms: Option<&Terms>) -> bool {
    let running = matches!(row.state, JobState::Running { attempt } if attempt < ATTEMPTS);
    // An abort that was answered holds through the crash.
    running && !row.cancelled && terms.is_some_and(|terms| terms.retry == Retry::Auto)
}

impl Recovered {
    /// How many of its turns were running, and what becomes of them. An abort ends its turn as
    /// somebody asked.
    #[must_use]
    pub fn left(&self) -> LeftFacts {
        let running = |left: &&LeftJob| {
            matches!(left.row.state, JobState::Running { .. }) && !left.row.cancelled
        };
        let (mut interrupted, mut again) = (0, 0);
        for left in self.jobs.iter().filter(running) {
            match runs_again(&left.row, left.terms.as_deref().ok()) {
                true => again += 1,
                false => interrupted += 1,
            }
        }
        LeftFacts { interrupted, again }
    }
}

impl State {
    pub(crate) fn recovered(&mut self, recovered: Recovered) {
        let why = "what a dead agentd left running is being ended";
        let gate = Arc::new(Gate {
            why: why.to_owned(),
            instances: BTreeSet::from([recovered.instance.clone()]),
        });
        // The sessions first, as the jobs name them.
        let mut sessions = BTreeSet::new();
        for row in recovered.sessions {
            let session = self.adopt_session(row);
            sessions.insert(session);
            if let Some(session) = found!(self.sessions.get_mut(session)) {
                // The takeover wrote it as ours, whatever is still running of it.
                session.leased = true;
                // One gate for all of them: a daemon may have left a hundred thousand.
                let known = session.gate.get_or_insert_with(|| Arc::clone(&gate));
                if !known.instances.contains(&recovered.instance) {
                    let known = Arc::make_mut(known);
                    known.instances.insert(recovered.instance.clone());
                    why.clone_into(&mut known.why);
                }
            }
        }
        // All of them first: a turn that ends as interrupted holds those behind it.
        let lost: Vec<(TurnId, Lost)> = recovered
            .jobs
            .into_iter()
            .filter_map(|left| self.recover_job(left))
            .collect();
        for (turn, lost) in lost {
            let Some(failure) = lost.failure() else {
                self.end_in_turn(turn, Fate::Asked(Ending::Cancelled));
                continue;
            };
            // Nothing of its session starts before it has ended, which may hold what is behind it.
            let Some(job) = found!(self.jobs.get(turn)) else {
                continue;
            };
            if let Some(session) = found!(self.sessions.get_mut(job.session)) {
                session.current = Some(turn);
            }
            self.end_in_turn(turn, Fate::Failed(Box::new(failure)));
        }
        for session in sessions {
            // One whose jobs all had their ends was only written as ours.
            self.forget_session_if_idle(session);
        }
        self.read_on(recovered.last_seq);
        // Those who found the session taken ask again; it is ours now.
        for batch in self.jobs.adopted(&recovered.instance) {
            self.ask_to_accept(batch);
        }
    }

    /// The dead instance's processes are gone: its sessions may be opened again.
    pub(crate) fn instance_gone(&mut self, instance: &str, survivors: &[u32]) {
        let waits = |session: &Session| {
            let gate = session.gate.as_ref();
            gate.is_some_and(|gate| gate.instances.contains(instance))
        };
        let gated = self.sessions.iter().filter(|(_, session)| waits(session));
        let gated: Vec<SessionId> = gated.map(|(session, _)| session).collect();
        for id in gated {
            if let Some(session) = found!(self.sessions.get_mut(id))
                && let Some(gate) = &mut session.gate
            {
                if !survivors.is_empty() {
                    Arc::make_mut(gate).why =
                        format!("processes {survivors:?} of a dead agentd could not be ended");
                } else if gate.instances.len() > 1 {
                    Arc::make_mut(gate).instances.remove(instance);
                } else {
                    session.gate = None;
                }
            }
            self.forget_session_if_idle(id);
        }
    }

    /// Takes a job back into memory; returns it if it can't go on.
    fn recover_job(&mut self, left: LeftJob) -> Option<(TurnId, Lost)> {
        let LeftJob { row, terms, so_far } = left;
        let session = self.sessions.named(&row.session)?;
        // What was left behind is told again until it could be taken over.
        if self.jobs.knows(row.job) {
            return None;
        }
        let now = self.now;
        let again = runs_again(&row, terms.as_deref().ok());
        let (attempt, expires, start, held, was_running) = match row.state {
            JobState::Queued {
                attempt,
                expires,
                start,
                held,
            } => (attempt, expires.boot_ms(now), start, held, false),
            JobState::Running { attempt } => (attempt, u64::MAX, None, false, true),
            JobState::Finished { .. } => return None,
        };
        let start = start
            .map(|start| start.boot_ms(now))
            .filter(|start| *start > now.boot_ms);
        let turn = TurnId(self.outbox.number());
        // A request that doesn't read back is ended, never run.
        let unreadable = terms.as_ref().err().map(Unreadable::is_damaged);
        let terms = terms.unwrap_or_else(|newer| Arc::new(Terms::of_unreadable(newer)));
        let (terms, bytes) = self.jobs.share(terms);
        let lost = match unreadable {
            _ if row.cancelled => Some(Lost::Cancelled),
            _ if was_running && !again => Some(Lost::Running),
            Some(damaged) => Some(Lost::Unreadable {
                damaged,
                has_run: attempt > 0,
            }),
            None => None,
        };
        let mut job = Job {
            number: Some(row.job),
            depth: terms.parent.map_or(0, |parent| self.depth(parent)) + 1,
            attempt,
            accepted_seq: row.seq,
            seq: row.seq,
            start: start.filter(|_| lost.is_none()),
            weight: budget::of_waiting(bytes),
            ..Job::new(session, terms, now.mono, expires)
        };
        let asked = job.restore(so_far);
        if again || (!was_running && attempt > 0) {
            job.restart();
            job.ran = true;
        } else if was_running {
            job.ran = true;
            job.said.started_at = Some(self.now.mono);
        }
        let scheduled = job.start.is_some();
        if scheduled {
            job.phase = Phase::Scheduled;
        } else if held {
            job.phase = Phase::Held;
        }
        // Before its questions are closed: these are lines of the job.
        self.put_job(turn, job);
        for question in asked {
            // Who asked is gone.
            self.say_closed(turn, question, Closed::Exit);
        }
        if let Some(lost) = lost {
            return Some((turn, lost));
        }
        if !scheduled {
            self.enqueue_recovered(turn, session, row.job);
        }
        if again {
            self.wait_afresh(turn);
            self.outbox.tell_later(Write::Requeue {
                job: row.job,
                attempt,
            });
        } else {
            self.jobs.waits(turn);
        }
        None
    }

    fn enqueue_recovered(&mut self, turn: TurnId, session: SessionId, number: JobId) {
        let session = expected!(self.sessions.get_mut(session));
        // A send that came meanwhile is younger, and of two dead instances the second may have left
        // an older one.
        let older = |other: &TurnId| {
            let job = self.jobs.get(other);
            let other = job.and_then(|job| job.number);
            other.is_some_and(|other| other < number)
        };
        let place = session.queue.iter().rposition(older);
        let place = place.map_or(0, |last| last + 1);
        session.queue.insert(place, turn);
    }
}
