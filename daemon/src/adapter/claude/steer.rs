//! What becomes of words to Claude Code's run.
//!
//! Owns its queue as far as `command_lifecycle` tells. A word that a run did not take begins another
//! run by itself as soon as the first is over, so the turn stays open for it. Must not know prompts.

use agentd_core::worker::{Steering, WorkerEvent};
use serde_json::json;

use super::Claude;

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
    /// Are words on their way that no run has taken? One that was never written isn't.
    pub(super) fn has_steers_out(&self) -> bool {
        self.driver.steers.out().next().is_some()
    }

    /// The agent told where a message is. Returns whether it was a word of ours.
    pub(super) fn steer_moved(
        &mut self,
        id: &str,
        state: &str,
        events: &mut Vec<WorkerEvent>,
    ) -> bool {
        let is_word = self.driver.steers.has(id);
        let steering = match state {
            "started" | "completed" => Steering::Taken,
            "cancelled" | "discarded" | "refused" => Steering::TooLate,
            _ => return is_word,
        };
        self.driver.steers.close(id, steering, events);
        is_word
    }

    /// Takes back what no run has taken.
    pub(super) fn take_back_steers(&mut self, events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>) {
        let out: Vec<String> = self.driver.steers.out().map(str::to_owned).collect();
        for id in out {
            let request = json!({"message_uuid": id});
            self.request(request, "cancel_async_message", write);
        }
        self.driver.steers.close_all(events);
    }

    /// The turn is over: a word that is still out may be given to a later one.
    pub(super) fn lose_steers(&mut self, events: &mut Vec<WorkerEvent>) {
        if self.has_steers_out() {
            let why = "Claude Code may give a word that came too late to the next turn";
            events.push(WorkerEvent::Spoilt { why });
        }
        self.driver.steers.close_all(events);
    }
}
