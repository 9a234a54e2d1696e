//! Steers: texts for running turns that their agents have not taken yet.
//!
//! Owns them, and which session each connection sent to last. Must not know wires.

use std::collections::BTreeMap;

use agentd_protocol::{Id, JobId};

use crate::ids::{ConnId, Process, SessionId, TurnId, WorkerId};

/// One on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PendingSteer {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) turn: TurnId,
    pub(crate) job: JobId,
    pub(crate) told: Told,
}

/// Has its agent got it?
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Not before the turn's first byte.
    Not(String),
    /// This process has, and said nothing of it so far. With what the turn's messages keep of it.
    To(Process, String),
}

/// All of them, and which session each connection sent to last.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct PendingSteers {
    waiting: BTreeMap<u64, PendingSteer>,
    sent_to: BTreeMap<ConnId, SessionId>,
}

impl PendingSteers {
    pub(crate) fn sent_to(&mut self, conn: ConnId, session: SessionId) {
        self.sent_to.insert(conn, session);
    }

    pub(crate) fn last_session(&self, conn: ConnId) -> Option<SessionId> {
        self.sent_to.get(&conn).copied()
    }

    pub(crate) fn push(&mut self, number: u64, pending: PendingSteer) {
        self.waiting.insert(number, pending);
    }

    /// The text of one, if its agent was not told it: this process is, from now on.
    pub(crate) fn tell(&mut self, number: u64, process: Process) -> Option<String> {
        match &mut self.waiting.get_mut(&number)?.told {
            told @ Told::Not(_) => {
                match std::mem::replace(told, Told::To(process, String::new())) {
                    Told::Not(text) => Some(text),
                    Told::To(..) => None,
                }
            }
            Told::To(..) => None,
        }
    }

    /// What is kept of one that was told.
    pub(crate) fn keep(&mut self, number: u64, kept: String) {
        let told = self.waiting.get_mut(&number);
        if let Some(Told::To(_, text)) = told.map(|pending| &mut pending.told) {
            *text = kept;
        }
    }

    /// One of which a process says what became of it: it waits no more. A process may speak of
    /// one that it was never told, or that waits no more.
    pub(crate) fn settled(&mut self, number: u64, worker: WorkerId) -> Option<PendingSteer> {
        let pending = self.waiting.get(&number)?;
        // The process is compared, as a worker may name any number.
        let its = matches!(pending.told, Told::To(process, _) if process.worker == worker);
        its.then(|| self.waiting.remove(&number)).flatten()
    }

    /// One that waits no more.
    pub(crate) fn remove(&mut self, number: u64) -> Option<PendingSteer> {
        self.waiting.remove(&number)
    }

    pub(crate) fn forget_conn(&mut self, conn: ConnId) {
        self.sent_to.remove(&conn);
        // What is said is said; nobody hears what became of it.
        self.waiting.retain(|_, pending| pending.conn != conn);
    }

    pub(crate) fn of_turn(&self, turn: TurnId) -> Vec<u64> {
        let of_turn = self
            .waiting
            .iter()
            .filter(|(_, pending)| pending.turn == turn);
        of_turn.map(|(number, _)| *number).collect()
    }
}
