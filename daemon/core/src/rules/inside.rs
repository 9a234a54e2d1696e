//! Requests that come from inside a worker: an agent asks for something.
//!
//! Owns who is inside, and whose children their jobs are; what they may not ask for, the protocol's
//! table of requests says. Must not know how a process's ancestors are found.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::{Code, JobId};

use crate::event::Descent;
use crate::ids::SessionId;
use crate::limits::DELEGATION_DEPTH;
use crate::pool::slot::Slot;
use crate::state::State;

impl State {
    /// The job from inside whose worker a request comes: what it says is checked, not believed.
    pub(crate) fn parent_of(
        &self,
        named: Option<JobId>,
        descent: &Descent,
    ) -> Result<Option<JobId>, Rejected> {
        let inside = self.pool.slots().find(|slot| {
            slot.pid()
                .is_some_and(|pid| descent.ancestry.contains(&pid))
        });
        let turns = inside.map(|slot| &slot.turns);
        let numbers: Vec<JobId> = turns
            .into_iter()
            .flatten()
            .filter_map(|turn| self.jobs.get(turn)?.number)
            .collect();
        let parent = match (named, numbers.as_slice()) {
            (Some(named), numbers) if numbers.contains(&named) => Some(named),
            (Some(named), _) => {
                let error = format!(
                    "`parent` is {named}, but the request doesn't come from inside its worker"
                );
                return Err(Rejected::new(Code::Forbidden, error)
                    .hint("leave it out: it is found by itself"));
            }
            // A process of several turns doesn't say for which one it asks: a wrong parent would be
            // worse than none.
            (None, [only]) => Some(*only),
            (None, _) => None,
        };
        // An agent that is asked to delegate, and asks another one the same, would never end.
        let depth = parent.map_or(0, |parent| self.depth(parent));
        if depth + self.settings.around >= DELEGATION_DEPTH {
            let error = format!("jobs of jobs of jobs: {DELEGATION_DEPTH} levels are the limit");
            let refused = Rejected::new(Code::Forbidden, error);
            // Nobody asked an agent for that: its program asks agentd for what it is asked.
            let is_itself = parent.is_none().then_some(
                "is the agent's program a script that runs `agentctl`? `agentctl agents --json` shows each one's",
            );
            return Err(match is_itself {
                Some(hint) => refused.hint(hint),
                None => refused,
            });
        }
        Ok(parent)
    }

    /// Refuses a send whose answer is waited for behind the very turn that waits for it: an agent asks
    /// into the session it answers in, itself or through others.
    pub(crate) fn refuse_waiting_for_itself(
        &self,
        parent: Option<JobId>,
        session: Option<SessionId>,
    ) -> Result<(), Rejected> {
        let above = |job: &JobId| self.jobs.by_number(*job)?.terms.parent;
        let held_by = session.and_then(|session| {
            let waits = |job: &JobId| Some(*job) == parent || self.waits_for_children(*job);
            let holds = |job: &JobId| {
                let job = self.jobs.by_number(*job);
                job.is_some_and(|job| job.session == session)
            };
            std::iter::successors(parent, above)
                .take_while(waits)
                .find(holds)
        });
        let Some(job) = held_by else {
            return Ok(());
        };
        let error = format!(
            "the session is busy with {job}, which this request comes from: both would wait for each other"
        );
        Err(Rejected::new(Code::Forbidden, error)
            .hint("`dispatch` it, and it runs behind that turn; or ask in another session"))
    }

    pub(crate) fn is_worker(&self, descent: &Descent) -> bool {
        let mut pids = self.pool.slots().filter_map(Slot::pid);
        // Its ancestors may have gone on purpose; the mark stays. Whoever can't be looked at is
        // taken for one.
        descent.marked || descent.unseen || pids.any(|pid| descent.ancestry.contains(&pid))
    }
}
