//! What the pool remembers of single processes beside their slots, and of the last look for agents.
//!
//! Owns the data. When one makes way is in `rules/room.rs`, when a look is asked for in
//! `rules/found.rs`.

use std::time::Duration;

use agentd_protocol::Id;

use crate::ids::{ConnId, WorkerId};

/// The process that takes no new turns, so that an older one of another agent gets its room.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Way {
    /// The one that does, or did last.
    pub(crate) worker: Option<WorkerId>,
    /// It does until then.
    pub(crate) until: Option<Duration>,
}

/// The last look at which agents there are; the first one was at the start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Look {
    pub(crate) at: Duration,
    pub(crate) outstanding: bool,
}

/// A session that its agent is shortening.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Compacting {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) session: String,
}
