//! `steer`: text for a turn that runs already.
//!
//! Owns which turns take one, and what their agents made of it. Which turn is meant is in
//! `targets.rs`. Must not know wires.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::work::Steer;
use agentd_protocol::{Code, Id, JobId, Request, limits};

use crate::effect::Effect;
use crate::event::RequestContext;
use crate::ids::{ConnId, TurnId, WorkerId};
use crate::jobs::job::Phase;
use crate::jobs::said::Notice;
use crate::limits::STEERS_PER_TURN;
use crate::outbox::awaiting::Awaiting;
use crate::peers::steers::{PendingSteer, Told};
use crate::rules::targets::Target;
use crate::state::State;
use crate::store::{JobRow, Query};
use crate::text::head_and_tail;
use crate::worker::{Steering, WorkerCommand};

impl State {
    pub(crate) fn steer(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        steer: Steer,
        facts: &RequestContext,
    ) {
        let target = Target::new(steer.job, steer.session.as_deref());
        if let Some(loading) = self.loading_of(conn, target) {
            let request = Request::Steer(steer);
            return self.wait_for_loading(&loading, conn, id, request, facts);
        }
        // It has ended or never was, which are two answers.
        if let Some(job) = steer.job.filter(|job| !self.jobs.knows(*job)) {
            self.outbox.load(
                Awaiting::Steer { conn, id, job },
                Query::Jobs { jobs: vec![job] },
            );
            return;
        }
        let meant = self.steer_target(conn, target).and_then(|turn| {
            self.takes_steers(turn)?;
            let number = self.jobs.get(&turn).and_then(|job| job.number);
            Ok((turn, number))
        });
        let (turn, job) = match meant {
            Ok((turn, Some(job))) => (turn, job),
            Ok((_, None)) => return self.refuse(conn, id, idle("the turn has not begun")),
            Err(rejected) => return self.refuse(conn, id, rejected),
        };
        let number = self.outbox.number();
        let pending = PendingSteer {
            conn,
            id,
            turn,
            job,
            told: Told::Not(steer.text),
        };
        self.peers.steers_mut().push(number, pending);
        let job = self.jobs.get(&turn);
        // While its mark is on its way it waits, and is told behind the prompt.
        if job.is_some_and(|job| matches!(job.phase, Phase::Running { .. })) {
            self.tell_steers(turn);
        }
    }

    /// The turn in flight that is meant.
    fn steer_target(&self, conn: ConnId, target: Target<'_>) -> Result<TurnId, Rejected> {
        let turns = self.turns_meant(conn, target, false)?;
        let turn = turns.first().copied();
        let meant = turn.and_then(|turn| Some((turn, &self.jobs.get(&turn)?.phase)));
        match meant {
            None => Err(idle("there is no turn in flight")),
            Some((turn, Phase::Running { .. } | Phase::Marking { .. })) => Ok(turn),
            Some((_, Phase::Settling { .. } | Phase::Finishing)) => {
                Err(idle("the turn is being ended"))
            }
            Some(_) => Err(idle("the turn waits and has not begun")
                .hint("wait for `running`, or send the text as a turn of its own")),
        }
    }

    /// Can the agent of a turn be steered, and has it room?
    fn takes_steers(&self, turn: TurnId) -> Result<(), Rejected> {
        let job = self.jobs.get(&turn);
        let process = job.and_then(|job| job.process());
        let slot = process.and_then(|process| self.pool.get(&process.worker));
        if let Some(slot) = slot.filter(|slot| !slot.steers) {
            let error = format!("the agent `{}` can't be steered", slot.agent);
            return Err(Rejected::new(Code::Unsupported, error)
                .hint("send the text: it runs after the turn in flight"));
        }
        if self.peers.steers().of_turn(turn).len() >= STEERS_PER_TURN {
            let error = format!("{STEERS_PER_TURN} steers wait for the agent to take them");
            return Err(Rejected::new(Code::QueueFull, error));
        }
        Ok(())
    }

    /// Tells a turn's agent what it was not told yet: its first byte has gone.
    pub(crate) fn tell_steers(&mut self, turn: TurnId) {
        let job = found!(self.jobs.get(turn));
        let Some(process) = job.and_then(|job| job.process()) else {
            return;
        };
        for number in self.peers.steers().of_turn(turn) {
            let Some(text) = self.peers.steers_mut().tell(number, process) else {
                continue;
            };
            // The text itself goes to the agent; a copy is kept for who wants the messages listed,
            // and as much of it as a note tells.
            let kept = self.jobs.get(&turn).map(|job| job.keeps(&text));
            let kept = kept.filter(|kept| !kept.is_empty());
            let kept = kept.unwrap_or_else(|| {
                let (cut, _) = head_and_tail(text.clone(), limits::MAX_TOOL_OUTPUT);
                cut
            });
            self.peers.steers_mut().keep(number, kept);
            self.outbox.push(Effect::Tell {
                worker: process.worker,
                generation: process.generation,
                command: WorkerCommand::Steer {
                    turn,
                    steer: number,
                    text,
                },
            });
        }
    }

    /// An agent said what became of a steer.
    pub(crate) fn steered(&mut self, worker: WorkerId, number: u64, steering: Steering) {
        let Some(pending) = self.peers.steers_mut().settled(number, worker) else {
            return;
        };
        match steering {
            Steering::Taken => {
                let PendingSteer { turn, job, .. } = pending;
                let of = found!(self.jobs.get_mut(turn));
                if let (Told::To(_, text), Some(of)) = (pending.told, of) {
                    of.took(&text);
                    self.note(turn, &Notice::info("steered", text));
                }
                self.answer(pending.conn, pending.id, &Line::Steer { ok: true, job });
            }
            Steering::TooLate => self.refuse(pending.conn, pending.id, ended_first(pending.job)),
            Steering::Refused(failure) => self.refuse(pending.conn, pending.id, failure.into()),
        }
    }

    /// A turn ends: what its agent has not taken by now, it never will.
    pub(crate) fn steers_too_late(&mut self, turn: TurnId) {
        for number in self.peers.steers().of_turn(turn) {
            if let Some(pending) = self.peers.steers_mut().remove(number) {
                self.refuse(pending.conn, pending.id, ended_first(pending.job));
            }
        }
    }

    /// The store knows whether a job that isn't in memory ever was.
    pub(crate) fn steer_elsewhere(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        job: JobId,
        row: Option<&JobRow>,
    ) {
        let rejected = match row {
            Some(_) => idle(&format!("job {job} has ended, or runs in another process")),
            None => Rejected::new(Code::UnknownJob, format!("there is no job `{job}`")),
        };
        self.refuse(conn, id, rejected);
    }
}

fn ended_first(job: JobId) -> Rejected {
    idle(&format!("job {job} ended before its agent took it"))
        .hint("send the text as a turn of its own")
}

fn idle(why: &str) -> Rejected {
    Rejected::new(Code::SessionIdle, format!("nothing can be steered: {why}"))
}
