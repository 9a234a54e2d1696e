//! One conversation. Owns its queue and what it is bound to; must not know how turns run.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::health::Health;
use crate::ids::{TurnId, WorkerId};
use crate::mcp::McpServers;
use crate::rare::{Rare, Usual};
use crate::store::{Pins, SessionRow};

/// A session that has unfinished jobs or a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Session {
    pub(crate) name: Option<String>,
    pub(crate) named: bool,
    pub(crate) agent: String,
    pub(crate) cwd: String,
    pub(crate) toolsets: Option<Vec<String>>,
    /// Where `cwd` leads, if somebody has looked: for whoever writes it in another way.
    pub(crate) real_cwd: Option<Box<str>>,
    /// The model set for it, by what the store has accepted.
    pub(crate) pins: Rare<Pins>,
    /// What may change that, and is on its way to the store: what comes behind it waits.
    pub(crate) repinning: Option<Repinning>,
    /// Was a pin taken back meanwhile? The store hears of that when it has answered, as it takes writes
    /// in their order.
    pub(crate) unpins: bool,
    /// What the process of its last turn was started with.
    pub(crate) last: Rare<Pins>,
    /// What its agent is told before the conversation.
    pub(crate) system: Option<Arc<str>>,
    /// What that has besides its own.
    pub(crate) mcp_servers: McpServers,
    /// The agent's own id of it.
    pub(crate) native: Option<String>,
    /// The agent's own id of the session that it begins as a copy of, until it has one of its own.
    pub(crate) forks: Option<Arc<String>>,
    /// Turns that ran.
    pub(crate) turns: u64,
    /// Waiting turns, pending ones included, oldest first.
    pub(crate) queue: VecDeque<TurnId>,
    /// The turn in flight: marked, running or settling.
    pub(crate) current: Option<TurnId>,
    /// Jobs of it that are in memory, whatever they do.
    pub(crate) jobs: usize,
    /// Its process.
    pub(crate) slot: Option<WorkerId>,
    /// With which revision of its agent's configuration that was started.
    pub(crate) revision: Option<u64>,
    /// Is that one still coming up, and any other of its agent as good?
    pub(crate) coming: bool,
    /// Does the store know it? Not before its first turn is accepted.
    pub(crate) stored: bool,
    /// Is it leased to this instance? Before, no process may open it.
    pub(crate) leased: bool,
    /// Does that process hold the session's earlier turns?
    pub(crate) open: bool,
    /// Did it go on without its earlier turns, once? They don't come back.
    pub(crate) lost: bool,
    /// Is it being forgotten, or does it get another name? Then it takes no turns.
    pub(crate) closing: bool,
    /// Dead instances whose processes must be gone before it is opened.
    /// Shared among those that wait for the same.
    pub(crate) gate: Option<Arc<Gate>>,
    /// Deaths after readiness, and during a resume.
    pub(crate) health: Rare<Health>,
}

/// What changes the pins of a session as soon as the store has it. Whether it ever has, nobody knows
/// before: a key may be that of another job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repinning {
    /// A send, or of several in one `dispatch` the last one.
    Send(TurnId),
    /// A `set_model`.
    SetModel,
}

/// Why a session isn't opened.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Gate {
    pub(crate) why: String,
    /// All of them must be gone: one had its process, another one waiting turns.
    pub(crate) instances: BTreeSet<String>,
}

impl Usual for Pins {
    fn usual() -> &'static Self {
        static NOTHING: Pins = Pins {
            provider: None,
            model: None,
            thinking: None,
            mode: None,
        };
        &NOTHING
    }
}

impl Session {
    pub(crate) fn new(
        name: Option<String>,
        agent: String,
        cwd: String,
        toolsets: Option<Vec<String>>,
    ) -> Self {
        Self {
            named: name.is_some(),
            name,
            agent,
            cwd,
            toolsets,
            real_cwd: None,
            pins: Rare::default(),
            repinning: None,
            unpins: false,
            last: Rare::default(),
            system: None,
            mcp_servers: McpServers::default(),
            native: None,
            forks: None,
            turns: 0,
            queue: VecDeque::new(),
            current: None,
            jobs: 0,
            slot: None,
            revision: None,
            coming: false,
            stored: false,
            leased: false,
            open: false,
            lost: false,
            closing: false,
            gate: None,
            health: Rare::default(),
        }
    }

    pub(crate) fn from_row(row: SessionRow) -> Self {
        let toolsets = row.toolsets.as_deref().and_then(crate::json::strings);
        Self {
            named: row.named,
            system: row.system.map(Into::into),
            mcp_servers: row.mcp_servers,
            native: row.native,
            forks: row.forks.map(Into::into),
            pins: row.pins.into(),
            turns: row.turns,
            lost: row.lost,
            real_cwd: row.real_cwd.map(Into::into),
            stored: true,
            ..Self::new(Some(row.name), row.agent, row.cwd, toolsets)
        }
    }

    /// Nothing waits, nothing runs, no process: it need not be in memory.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.current.is_none()
            && self.slot.is_none()
            && self.gate.is_none()
            && !self.closing
            && self.repinning.is_none()
    }

    /// By which id its agent reopens it: its own, or that of the one that it begins as a copy of.
    pub(crate) fn reopened_by(&self) -> Option<&str> {
        let forks = self.forks.as_deref().map(String::as_str);
        self.native.as_deref().or(forks)
    }

    /// Is what its agent reopens another session, of which it gets a copy?
    pub(crate) const fn is_copied(&self) -> bool {
        self.native.is_none() && self.forks.is_some()
    }

    /// It has no process any more, and none that comes up for it.
    pub(crate) const fn has_left(&mut self) {
        self.slot = None;
        self.revision = None;
        self.coming = false;
        self.open = false;
    }

    /// Its name, where one is needed for display.
    pub(crate) fn shown(&self) -> String {
        self.name.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_session_is_small() {
        assert!(size_of::<Session>() <= 320, "{}", size_of::<Session>());
    }
}
