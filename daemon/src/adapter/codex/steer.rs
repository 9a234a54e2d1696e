//! What becomes of steers to Codex's turn, and of `thread/compact/start`.
//!
//! Owns how Codex tells it: a steer is taken when it comes back as a user's message of the turn, and
//! what hasn't by the turn's end is too late (Codex drops it, as was seen); a compaction is a turn of
//! Codex's own. Must not know when a turn is over.

use agentd_core::worker::{Failure, Steering, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::Stop;

use super::Codex;
use super::turn::failure;
use crate::adapter::driver::Out;
use crate::adapter::object::Object;
use crate::adapter::steer_queue::SteerQueue;

/// The one compaction.
#[derive(Debug)]
pub(in crate::adapter) struct Compaction {
    /// Codex's turn that does it, once that has begun.
    pub(super) turn: Option<String>,
}

/// What a steer is called on the wire.
pub(super) fn name(steer: u64) -> String {
    format!("w{steer}")
}

/// A user's message of the turn: is it a steer?
pub(super) fn message_seen(item: &Object<'_>, steers: &mut SteerQueue, out: &mut Out<'_>) {
    let client = item.string("clientId").unwrap_or_default();
    steers.close(&client, Steering::Taken, out);
}

impl Codex {
    /// The answer to `turn/steer`: a steer that was received is not taken yet.
    pub(super) fn steer_answered(&mut self, steer: u64, error: Option<&str>, out: &mut Out<'_>) {
        if let Some(error) = error {
            let steering = if error.contains("no active turn") {
                Steering::TooLate
            } else {
                Steering::Refused(failure(error, None))
            };
            self.driver.steers.close(&name(steer), steering, out);
        }
    }

    /// A turn began that isn't the prompt's: is it the compaction's?
    pub(super) fn compaction_began(&mut self, native: &str) -> bool {
        match &mut self.driver.compaction {
            Some(Compaction { turn: turn @ None }) => {
                *turn = Some(native.to_owned());
                true
            }
            _ => false,
        }
    }

    /// A turn ended that isn't the prompt's: is it the compaction's?
    pub(super) fn compacted(
        &mut self,
        native: &str,
        result: Result<Stop, Failure>,
        out: &mut Out<'_>,
    ) -> bool {
        let mine = |compaction: &mut Compaction| compaction.turn.as_deref() == Some(native);
        if self.driver.compaction.take_if(mine).is_none() {
            return false;
        }
        let result = match result {
            Ok(Stop::Cancelled) => Err(Failure::new(
                Code::AgentFailed,
                "codex: the compaction was interrupted",
            )),
            Ok(_) => Ok(None),
            Err(failure) => Err(failure),
        };
        out.push(WorkerEvent::Compacted { result });
        true
    }

    /// `thread/compact/start` was refused.
    pub(super) fn compact_refused(&mut self, error: &str, out: &mut Out<'_>) {
        if self.driver.compaction.take().is_some() {
            let result = Err(failure(error, None));
            out.push(WorkerEvent::Compacted { result });
        }
    }
}
