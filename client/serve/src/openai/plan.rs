//! What is sent for a request: one send, or another one where the first is refused for one reason, or
//! can't go on from where it was to.
//!
//! Owns that choice, and whether the request was made before. Must not know what a send says.

use agentd_faces::openai as face;
use agentd_protocol::Code;
use agentd_protocol::request::Send;
use agentd_protocol::rows::JobRow;
use agentd_protocol::work::Jobs;

use super::asking::Asking;
use super::{Refusal, jobs};
use crate::app::App;

/// What is to be sent.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) send: Send,
    /// Where the first is refused so.
    pub(super) otherwise: Option<(Code, Send)>,
    /// Where the agent of the first has lost what was said before.
    pub(super) anew: Option<Send>,
}

/// Where a request's lines come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A turn that is sent now.
    Plan(Box<Plan>),
    /// The turn that was sent when this was asked first.
    Job(Box<JobRow>),
}

impl Plan {
    pub(super) const fn only(send: Send) -> Self {
        Self {
            send,
            otherwise: None,
            anew: None,
        }
    }

    pub(super) const fn either(send: Send, code: Code, other: Send) -> Self {
        Self {
            send,
            otherwise: Some((code, other)),
            anew: None,
        }
    }

    /// The other send, if this refusal asks for it.
    pub(super) fn after(&mut self, refusal: &Refusal) -> Option<Send> {
        // Refused without a job: its agent never has it.
        if refusal.failure.code == Code::ContextLost.name() {
            return self.anew.take();
        }
        let (code, send) = self.otherwise.take()?;
        (refusal.failure.code == code.name()).then_some(send)
    }
}

/// The job of the same request, if that was made before.
pub(super) async fn asked_before(app: &App, asking: &Asking) -> Result<Option<JobRow>, Refusal> {
    let Some(before) = asking.before else {
        return Ok(None);
    };
    let filter = Jobs {
        label: Some(format!("{}={}", face::REQUEST, asking.request)),
        since: Some(before.as_secs_f64()),
        limit: Some(1),
        ..Jobs::default()
    };
    Ok(jobs::newest(app, filter).await?.into_iter().next())
}
