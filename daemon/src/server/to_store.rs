//! Commands on their way to the store.
//!
//! Owns the order of commits while the store's queue is full: none is refused, none overtakes
//! another. Questions that don't wait for them don't stand behind them, and may be refused. Must not
//! know what they say. How many there can be is for the core to bound.

use std::collections::VecDeque;

use agentd_core::ids::Token;

use crate::store::{Store, StoreCommand};

/// Is there somebody to hand commands to?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriterState {
    /// Yes.
    There,
    /// The store's thread has ended.
    Gone,
}

/// What the store is to be told.
#[derive(Debug, Default)]
pub(super) struct ToStore {
    held: VecDeque<StoreCommand>,
    /// They go beside the writer.
    questions: Vec<StoreCommand>,
    /// Questions for which there was no room.
    refused: Vec<Token>,
}

impl ToStore {
    /// One more, behind the others.
    pub(super) fn push(&mut self, command: StoreCommand) {
        match &command {
            StoreCommand::Load { query, .. } if !query.waits_for_writes() => {
                self.questions.push(command)
            }
            _ => self.held.push_back(command),
        }
    }

    /// Hands over as many as the store's queue has room for. The rest stays: a full queue is
    /// answered from, and each answer is a reason to try again.
    pub(super) fn hand_over(&mut self, store: &Store) -> WriterState {
        for question in self.questions.drain(..) {
            let StoreCommand::Load { token, .. } = question else {
                continue;
            };
            if store.submit(question).is_err() {
                self.refused.push(token);
            }
        }
        if store.submit_together(&mut self.held).is_err() {
            return WriterState::Gone;
        }
        WriterState::There
    }

    /// Questions that nobody will answer.
    pub(super) fn take_refused(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.refused)
    }

    /// Those that have not been handed over.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use agentd_core::Event;
    use agentd_core::ids::Token;
    use agentd_core::store::{Stored, Urgency, Write};
    use agentd_protocol::JobId;

    use super::*;
    use crate::store::{self, COMMANDS, Liveness, Opener, Role};

    #[test]
    fn store_full_queue_keeps_orders_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let opener = Opener {
            instance: "a",
            role: Role::Daemon,
            boot: None,
            boot_ms: || 0,
            give_way: || (),
            answers: |_| true,
            keep: None,
        };
        // Nobody takes an answer, so the writer stands still, and its queue gets full.
        let (answer, answers) = sync_channel(0);
        let answer = move |some| answer.send(some).unwrap();
        let alive = Box::new(|_: &str| Liveness::Dead);
        let opened = store::open(dir.path(), opener, alive, Box::new(answer)).unwrap();
        let mut to_store = ToStore::default();
        let all = 3 * COMMANDS as u64;
        for token in 1..=all {
            to_store.push(StoreCommand::Commit {
                token: Token(token),
                writes: vec![Write::Cancel { job: JobId(token) }],
                urgency: Urgency::Waited,
            });
            assert_eq!(to_store.hand_over(&opened.store), WriterState::There);
        }
        assert!(to_store.len() > 0, "the queue never was full");
        let mut next = 1;
        while next <= all {
            let some = answers.recv().unwrap();
            for event in some.events {
                let Event::Stored { token, stored } = event else {
                    continue;
                };
                assert_eq!(token, Token(next), "one was overtaken");
                assert!(matches!(stored, Stored::Committed(_)), "{stored:?}");
                next += 1;
            }
            assert_eq!(to_store.hand_over(&opened.store), WriterState::There);
        }
        assert_eq!(to_store.len(), 0);
        opened.store.close(opened.writer);
    }
}
