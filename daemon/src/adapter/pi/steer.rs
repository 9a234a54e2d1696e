//! What is said to pi beside prompts: steers to its run, answers to its dialogs, `compact`.
//!
//! Owns pi's steering queue as far as its reports tell: a steer is taken when it has left that
//! queue for the run, and what is left at the run's end is removed before anything else. Must not
//! know when a turn is over.

use agentd_core::worker::{Reply, Steering, WorkerEvent};
use serde_json::{Value, json};

use super::Pi;
use super::turn::failure;
use crate::adapter::driver::Out;
use crate::adapter::object::Object;

/// What is known of pi's own queue.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Queue {
    /// Its length, as last reported.
    length: usize,
    /// The `clear_queue` that is out.
    clearing: Option<String>,
}

impl Pi {
    /// Must a turn's end and the next prompt wait for an answer of pi's?
    pub(super) const fn is_held_up(&self) -> bool {
        self.queue.clearing.is_some() || self.driver.compaction.is_some()
    }

    /// Is a response one to a steer, to `clear_queue` or to `compact`? Then it is dealt with.
    pub(super) fn steer_answered(
        &mut self,
        id: &str,
        bytes: &[u8],
        record: &Object<'_>,
        out: &mut Out<'_>,
    ) -> bool {
        let success = record.is_true("success");
        let error = record.string("error").unwrap_or_default();
        if self.queue.clearing.as_deref() == Some(id) {
            self.queue = Queue::default();
            if !success {
                out.log(bytes);
                out.push(spoilt());
            }
            self.finish(None, out);
            return true;
        }
        if self.driver.compaction.as_deref() == Some(id) {
            self.driver.compaction = None;
            self.activity.compacts_no_more();
            let data = record.object("data");
            let summary = data.and_then(|data| data.string("summary"));
            let result = if success {
                Ok(summary)
            } else {
                Err(failure(&error))
            };
            out.push(WorkerEvent::Compacted { result });
            return true;
        }
        if !self.driver.steers.has(id) {
            return false;
        }
        let data = record.object("data");
        let disposition = data.and_then(|data| data.string("disposition"));
        let steering = match success {
            false => Steering::Refused(failure(&error)),
            true if disposition.as_deref() == Some("handled") => Steering::Taken,
            // It is in the queue, whether that was reported before or comes after.
            true => return true,
        };
        self.driver.steers.close(id, steering, out);
        true
    }

    /// pi told how its queue stands: what it had before and hasn't now, its run has taken.
    pub(super) fn queue_changed(&mut self, record: &Object<'_>, out: &mut Out<'_>) {
        let steering: Option<Vec<Value>> = record.get("steering");
        let length = steering.map_or(0, |steering| steering.len());
        let before = std::mem::replace(&mut self.queue.length, length);
        let steers = &mut self.driver.steers;
        steers.entered(length.saturating_sub(before));
        steers.left(before.saturating_sub(length), out);
    }

    /// The run is over: what it has not taken is too late. Returns whether the turn must stay open
    /// until pi's queue is empty.
    pub(super) fn run_over(&mut self, out: &mut Out<'_>) -> bool {
        let left = self.queue.length > 0 || self.driver.steers.sent().next().is_some();
        self.driver.steers.close_all(out);
        if !left {
            return false;
        }
        if self.settles() {
            self.queue.clearing = Some(self.request("clear_queue", json!({}), out));
            return true;
        }
        // The old dialect can't: the next prompt would bring the steer along.
        self.queue.length = 0;
        out.push(spoilt());
        false
    }
}

/// What became of a dialog.
pub(super) fn put_reply(question: &str, reply: &Reply, out: &mut Out<'_>) {
    let mut line = json!({"type": "extension_ui_response", "id": question});
    let (name, value) = match reply {
        Reply::Approved | Reply::ApprovedFor(_) => ("confirmed", json!(true)),
        Reply::Denied | Reply::Unanswered(_) => ("confirmed", json!(false)),
        Reply::Chosen(option) => ("value", json!(option)),
        Reply::Text(text) => ("value", json!(text)),
        Reply::Cancelled => ("cancelled", json!(true)),
    };
    line[name] = value;
    out.put(&line);
}

const fn spoilt() -> WorkerEvent {
    WorkerEvent::Spoilt {
        why: "pi kept a steer that came too late and would give it to the next turn",
    }
}
