//! Requests that come from inside a worker: an agent asks for something.
//!
//! Owns what agents may not ask for, and whose children their jobs are. Must not know how a process's
//! ancestors are found.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::{Code, JobId, Request};

use crate::event::Descent;
use crate::limits::DELEGATION_DEPTH;
use crate::slot::Slot;
use crate::state::State;

/// What it means for a request that it comes from inside a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Nothing: whose it is need not be known.
    Same,
    /// It has a parent, or may not say all that others may.
    Child,
    /// It is refused.
    Forbidden,
}

/// What holds for a request from inside a worker. There is no rule for the rest: whoever adds a
/// request says what an agent may do with it.
#[must_use]
pub const fn rule(request: &Request) -> Rule {
    match request {
        Request::Hello(_)
        | Request::Ping
        | Request::Status(_)
        | Request::Agents
        | Request::Jobs(_)
        | Request::Usage(_)
        | Request::Steer(_)
        | Request::Questions(_)
        | Request::Compact(_)
        | Request::SessionList(_)
        | Request::SessionNew(_)
        | Request::SessionClose(_)
        | Request::SessionResume(_)
        | Request::SessionHistory(_)
        | Request::Backup(_)
        | Request::Export(_)
        | Request::Abort(_)
        | Request::Subscribe(_)
        | Request::Unsubscribe
        | Request::Shutdown => Rule::Same,
        Request::Send(_) | Request::Dispatch(_) | Request::Collect(_) => Rule::Child,
        Request::Answer(_)
        | Request::SetModel(_)
        | Request::RestartWorker(_)
        | Request::Drain(_)
        | Request::Undrain
        | Request::DaemonStop(_)
        | Request::LogLevel(_)
        // The URLs of others may hold secrets.
        | Request::Webhooks(_)
        | Request::WebhookReplay(_)
        | Request::WebhookTest(_) => Rule::Forbidden,
    }
}

impl State {
    /// The job from inside whose worker a request comes: what it says is checked, not believed.
    pub(crate) fn parent_of(
        &self,
        named: Option<JobId>,
        descent: &Descent,
    ) -> Result<Option<JobId>, Rejected> {
        let inside = self.slots.values().find(|slot| {
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
            (None, [only]) => Some(*only),
            (None, _) => None,
        };
        if parent.is_some_and(|parent| self.depth(parent) >= DELEGATION_DEPTH) {
            let error = format!("jobs of jobs of jobs: {DELEGATION_DEPTH} levels are the limit");
            return Err(Rejected::new(Code::Forbidden, error));
        }
        Ok(parent)
    }

    pub(crate) fn is_worker(&self, descent: &Descent) -> bool {
        let mut pids = self.slots.values().filter_map(Slot::pid);
        descent.marked || pids.any(|pid| descent.ancestry.contains(&pid))
    }
}
