//! What is known for the spare processes of one agent.
//!
//! Owns where it was used last. When one is started is in `rules/spare.rs`.

use std::time::Duration;

use crate::pool::fit::Fit;

/// What is known for the spares of one agent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Spares {
    /// Since when there are fewer than there should be.
    pub(crate) missing: Option<Duration>,
    /// What the process had that served a turn last: it got ready, so spares with it will.
    pub(crate) last: Option<Fit>,
    /// None are started before: the default directory was not there.
    pub(crate) not_before: Option<Duration>,
}
