//! Turns that end together with many others.
//!
//! Owns those whose end is decided and not yet asked for, and how many ends one event has room for.
//! Must not know why they end.

use std::collections::{BTreeSet, VecDeque};

use crate::ids::{Token, TurnId};
use crate::jobs::job::{Ending, Phase};
use crate::worker::Failure;

/// How a turn is to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// As it was told to.
    Asked(Ending),
    /// With an error.
    Failed(Box<Failure>),
    /// It waited too long.
    Expired,
}

/// Turns that end together with many others.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Slices {
    /// Those that wait for their slice, each with the phase it was in.
    pub(crate) waiting: VecDeque<(TurnId, Phase, Fate)>,
    /// How many commits this event may still end some with: mostly each is one.
    pub(crate) left: usize,
    /// Final lines that the store was asked for and has not answered.
    pub(crate) in_flight: BTreeSet<Token>,
    /// The last commit that was asked for.
    pub(crate) last_commit: Option<Token>,
}
