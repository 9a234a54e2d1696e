//! What an agent says or asks that this version doesn't know: a newer one may have more to say.
//!
//! Owns that each kind is told once in a process, of how many, and that what comes between turns is
//! told to the next one. Must not know any wire.

use std::collections::BTreeSet;

use agentd_core::ids::TurnId;
use agentd_core::worker::WorkerEvent;
use agentd_protocol::line::Level;

/// Kinds that are told.
const KINDS: usize = 32;
/// Longest name of one, in characters.
const NAME: usize = 64;

/// Kinds that were told, or will be.
#[derive(Default, Debug)]
pub(super) struct Unknown {
    kinds: BTreeSet<String>,
    /// What came while there was no turn that could be told.
    early: Vec<String>,
}

impl Unknown {
    /// Notes of what came before this turn: it begins now.
    pub(super) fn begins(&mut self, turn: TurnId) -> impl Iterator<Item = WorkerEvent> + use<> {
        let early = std::mem::take(&mut self.early);
        early.into_iter().map(move |text| note(turn, text))
    }

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
        // This bounds what waits for a turn, too.
        if self.kinds.len() >= KINDS || !self.kinds.insert(kind) {
            return None;
        }
        match turn {
            Some(turn) => Some(note(turn, text)),
            None => {
                self.early.push(text);
                None
            }
        }
    }
}

fn note(turn: TurnId, text: String) -> WorkerEvent {
    WorkerEvent::Noted {
        turn: Some(turn),
        level: Level::Info,
        code: "worker",
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_news_between_turns_is_told_once() {
        let mut unknown = Unknown::default();
        assert_eq!(unknown.said("it", "early", None), None);
        assert_eq!(unknown.said("it", "early", Some(TurnId(1))), None);
        let told: Vec<WorkerEvent> = unknown.begins(TurnId(2)).collect();
        let text = "it said `early`, which this version does not know";
        assert_eq!(told, [note(TurnId(2), text.into())]);
        assert_eq!(unknown.begins(TurnId(3)).count(), 0);
    }
}
