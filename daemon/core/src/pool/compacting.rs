//! A session that its agent is shortening, and who hears of it.
//!
//! Owns the data. When one is asked for, and what its answer means, is in `rules/model.rs`.

use agentd_protocol::Id;

use crate::ids::ConnId;

/// A session that its agent is shortening.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Compacting {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) session: String,
}
