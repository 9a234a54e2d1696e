//! Turns that an earlier client left: their client is back.
//!
//! Owns which of them is told, and that what was missed of it comes first. Must not know how a turn's
//! lines become events.

use agentd_protocol::rows::JobPhase;
use serde_json::json;

use super::message::Past;
use super::queue::{Left, Words};
use super::turn::Turn;
use super::{Pi, What};
use crate::face::Outbox;

/// So many jobs one subscription tells of.
const MOST: usize = 256;

impl Pi {
    /// What is known of the session that is gone on in; the turns that have no end are told from
    /// their beginning, one after the other.
    pub(super) fn goes_on_after(&mut self, past: &Past, out: &mut Outbox) {
        let (named, thinking) = past.last();
        if !self.is_pinned {
            self.named = named;
        }
        if self.thinking.is_none() {
            self.thinking = thinking;
        }
        let open: Vec<Left> = past
            .open()
            .take(MOST)
            .map(|turn| Left {
                job: turn.job,
                text: turn.text.clone(),
            })
            .collect();
        // The one that runs counts its own.
        let runs = past.open().any(|turn| turn.state == JobPhase::Running);
        self.count = past.entries().len() - usize::from(runs);
        if open.is_empty() {
            return;
        }
        let jobs: Vec<_> = open.iter().map(|left| left.job).collect();
        self.ask(
            "subscribe",
            &json!({"jobs": jobs, "after": 0}),
            What::Turn,
            out,
        );
        self.queue.left = open.into();
        if let Some(left) = self.queue.left.pop_front() {
            self.turn = Some(Turn::left(left, self.named.clone(), true));
        }
    }

    /// Begins to tell of a turn that was left, once the command that led to it is answered.
    pub(super) fn tells_on(&mut self, out: &mut Outbox) {
        let is_accepted = self.turn.as_ref().is_some_and(Turn::is_accepted);
        if is_accepted && self.run.is_none() {
            self.accepted(out);
        }
    }

    /// The next of them, if there is one.
    pub(super) fn next_left(&mut self) -> bool {
        let next = self.queue.left.pop_front();
        let there_is = next.is_some();
        if let Some(left) = next {
            self.turn = Some(Turn::left(left, self.named.clone(), false));
        }
        there_is
    }

    /// What waits with the daemon waits here: nothing begins by itself after an abort.
    pub(super) fn recall(&mut self, out: &mut Outbox) {
        let left = std::mem::take(&mut self.queue.left);
        if left.is_empty() {
            return;
        }
        for (at, Left { job, text }) in left.into_iter().enumerate() {
            out.ask("abort", &json!({"job": job}));
            self.queue.follow_up.insert(at, Words::of(text));
        }
        out.say(&self.queue.event());
    }

    /// The turn is over, and the next one is asked for anew.
    pub(super) fn is_told_no_more(&mut self, out: &mut Outbox) {
        let subscribed = self.asked.values().any(|asked| asked.kind == "subscribe");
        self.asked
            .retain(|_, asked| !matches!(asked.what, What::Turn));
        if subscribed {
            out.ask("unsubscribe", &json!({}));
        }
    }
}
