//! What was asked on a connection and is not answered yet.
//!
//! Owns which ids are taken. Must not know what a request means.

use std::collections::BTreeMap;

use agentd_core::effect::Progress;
use agentd_protocol::Id;

#[derive(Default, Debug)]
pub(super) struct Ledger {
    unanswered: usize,
    /// How many requests are open under each: an `abort` may be under the id of its send.
    ids: BTreeMap<Id, usize>,
    subscription: Option<Option<Id>>,
}

impl Ledger {
    /// A request went to the owner.
    pub(super) fn asked(&mut self, id: Option<Id>) {
        self.unanswered += 1;
        if let Some(id) = id {
            *self.ids.entry(id).or_default() += 1;
        }
    }

    /// A line came back.
    pub(super) fn told(&mut self, id: Option<Id>, progress: Progress) {
        match progress {
            Progress::More => {}
            Progress::Answered => self.answered(id.as_ref()),
            Progress::Subscribed => {
                // Its id stays taken: live lines carry it.
                self.unanswered = self.unanswered.saturating_sub(1);
                self.unsubscribe();
                self.subscription = Some(id);
            }
            Progress::Unsubscribed => {
                self.answered(id.as_ref());
                self.unsubscribe();
            }
        }
    }

    fn answered(&mut self, id: Option<&Id>) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if let Some(id) = id {
            self.close(id);
        }
    }

    fn close(&mut self, id: &Id) {
        if let Some(open) = self.ids.get_mut(id) {
            *open -= 1;
            if *open == 0 {
                self.ids.remove(id);
            }
        }
    }

    fn unsubscribe(&mut self) {
        if let Some(Some(id)) = self.subscription.take() {
            self.close(&id);
        }
    }

    /// Is a request with this id unanswered, or a subscription open under it?
    pub(super) fn is_open(&self, id: &Id) -> bool {
        self.ids.contains_key(id)
    }

    pub(super) const fn unanswered(&self) -> usize {
        self.unanswered
    }

    pub(super) const fn subscribed(&self) -> bool {
        self.subscription.is_some()
    }
}
