//! What is known of the machine: what it runs on, and how much memory is left.
//!
//! Owns the facts, and when they forbid processes that nobody asked for. Must not know how they are
//! found out.

use std::collections::BTreeMap;

use crate::limits::{SPARE_LEAVES, SPARE_SHARE, SPARE_STALLS, SPARE_UNMEASURED};

/// One look at the machine.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Machine {
    /// What it runs on.
    pub power: Power,
    /// Where that can be seen.
    pub memory: Option<Memory>,
    /// What the processes take that were asked about, in bytes, each with all that it started.
    pub processes: BTreeMap<u32, u64>,
}

/// What a machine runs on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Power {
    /// The mains, or it is not known.
    #[default]
    Mains,
    /// Its battery.
    Battery,
}

/// The machine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// In bytes.
    pub total: u64,
    /// What programs could still have without others being swapped out, in bytes.
    pub available: u64,
    /// For how many percent of the last seconds something waited for memory.
    pub stalled: u32,
}

impl Machine {
    /// Why it has nothing left for spares, if that is so.
    pub(crate) fn forbids(&self) -> Option<&'static str> {
        if self.power == Power::Battery {
            return Some("the machine runs on its battery");
        }
        let memory = self.memory?;
        let low = memory.available < memory.total / SPARE_LEAVES || memory.stalled >= SPARE_STALLS;
        low.then_some("the machine is short of memory")
    }

    /// Could a process of this size be there, too?
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        self.memory.is_none_or(|memory| {
            memory.available.saturating_sub(bytes) >= memory.total / SPARE_LEAVES
        })
    }

    /// What spares may take together where nobody said it.
    pub(crate) fn share(&self) -> u64 {
        let total = self.memory.map(|memory| memory.total / SPARE_SHARE);
        total.unwrap_or(4 * SPARE_UNMEASURED)
    }
}
