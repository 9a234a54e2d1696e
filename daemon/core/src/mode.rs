//! Does the daemon start turns, and how far is a stop?
//!
//! Owns the data; in which order things end is in `rules/stop.rs`.

use std::time::Duration;

use agentd_protocol::Id;

use crate::effect::Announcement;
use crate::ids::ConnId;

/// Does the daemon start turns?
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Yes.
    Ready,
    /// No, but it accepts them.
    Draining(Draining),
    /// No, and it refuses everything new.
    Stopping(Hurry),
}

/// Who keeps turns from starting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Draining {
    /// They wait until nothing runs.
    pub(crate) asking: Vec<(ConnId, Option<Id>)>,
    /// It ends with this connection; without one somebody has to end it.
    pub(crate) holder: Option<ConnId>,
}

/// A stop that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leave {
    pub(crate) within: Duration,
    pub(crate) announcement: Announcement,
    pub(crate) asked: Option<(ConnId, Option<Id>)>,
}

/// How far a stop is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hurry {
    /// Running turns may end by themselves.
    Waiting,
    /// Running turns are being ended.
    Ending,
    /// Processes are killed.
    Killing,
    /// `Exit` was said.
    Gone,
}

impl Mode {
    pub(crate) const fn starts_turns(&self) -> bool {
        matches!(self, Self::Ready)
    }

    pub(crate) const fn is_draining(&self) -> bool {
        matches!(self, Self::Draining(_))
    }

    pub(crate) const fn is_stopping(&self) -> bool {
        matches!(self, Self::Stopping(_))
    }
}
