//! What becomes of steers to Claude Code's run.
//!
//! Owns its queue as far as `command_lifecycle` tells. A steer that a run did not take begins another
//! run by itself as soon as the first is over, so the turn stays open for it. Must not know prompts.

use agentd_core::worker::{Steering, WorkerEvent};
use serde_json::json;

use super::Claude;
use crate::adapter::driver::Out;

/// A `/compact` that is out.
#[derive(Default, Debug)]
pub(in crate::adapter) struct Compaction {
    /// What went wrong.
    pub(super) error: Option<String>,
    /// Did the agent say that it has compacted?
    pub(super) done: bool,
    pub(super) summary: Option<String>,
}

impl Claude {
    /// Are steers on their way that no run has taken? One that was never written isn't.
    pub(super) fn has_steers_out(&self) -> bool {
        self.driver.steers.sent().next().is_some()
    }

    /// The agent told where a message is. Returns whether it was a steer of ours.
    pub(super) fn steer_moved(&mut self, id: &str, state: &str, out: &mut Out<'_>) -> bool {
        let is_word = self.driver.steers.has(id);
        let steering = match state {
            "started" | "completed" => Steering::Taken,
            "cancelled" | "discarded" | "refused" => Steering::TooLate,
            _ => return is_word,
        };
        self.driver.steers.close(id, steering, out);
        is_word
    }

    /// Takes back what no run has taken.
    pub(super) fn take_back_steers(&mut self, out: &mut Out<'_>) {
        let names: Vec<String> = self.driver.steers.sent().map(str::to_owned).collect();
        for id in names {
            let request = json!({"message_uuid": id});
            // Otherwise the run that it begins would follow the one that was just aborted.
            self.request(request, "cancel_async_message", out);
        }
        self.driver.steers.close_all(out);
    }

    /// The turn is over: a steer that is still out may be given to a later one.
    pub(super) fn lose_steers(&mut self, out: &mut Out<'_>) {
        if self.has_steers_out() {
            let why = "Claude Code may give a steer that came too late to the next turn";
            out.push(WorkerEvent::Spoilt { why });
        }
        self.driver.steers.close_all(out);
    }
}
