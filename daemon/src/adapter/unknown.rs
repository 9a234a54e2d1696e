//! What an agent says or asks that this version doesn't know: a newer one may have more to say.
//!
//! Owns that each kind is told once in a process, and of how many. Must not know any wire, nor who
//! hears what is said between turns: the core does.

use std::collections::BTreeSet;

use agentd_core::ids::TurnId;
use agentd_core::worker::WorkerEvent;
use agentd_protocol::line::Level;

/// Kinds that are told.
const KINDS: usize = 32;
/// Longest name of one, in characters.
const NAME: usize = 64;

/// Kinds that were told.
#[derive(Default, Debug)]
pub(super) struct Unknown {
    kinds: BTreeSet<String>,
}

impl Unknown {
    /// A note about this kind, unless there was one.
    pub(super) fn said(
        &mut self,
        agent: &str,
        kind: &str,
        turn: Option<TurnId>,
    ) -> Option<WorkerEvent> {
        self.noted(kind, turn, |kind| {
            format!("{agent} said `{kind}`, which this version does not know")
        })
    }

    /// A note about a request of this kind, which was refused, unless there was one.
    pub(super) fn asked(
        &mut self,
        agent: &str,
        kind: &str,
        turn: Option<TurnId>,
    ) -> Option<WorkerEvent> {
        self.noted(kind, turn, |kind| {
            format!("{agent} asked for `{kind}`, which this version does not offer: it was refused")
        })
    }

    fn noted(
        &mut self,
        kind: &str,
        turn: Option<TurnId>,
        text: impl FnOnce(&str) -> String,
    ) -> Option<WorkerEvent> {
        let kind: String = kind.chars().take(NAME).collect();
        let text = text(&kind);
        if self.kinds.len() >= KINDS || !self.kinds.insert(kind) {
            return None;
        }
        Some(WorkerEvent::Noted {
            turn,
            level: Level::Info,
            code: "worker",
            text,
        })
    }
}
