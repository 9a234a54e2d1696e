//! Lists that somebody asked for.
//!
//! Owns which there are. Must not know rows.

use agentd_protocol::webhook::EndpointRow;
use agentd_protocol::{Id, JobId};

use crate::store::Query;

/// Which list was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// One whose answer the store's says by itself.
    List,
    Webhooks(Vec<EndpointRow>),
    Sessions(States),
    History {
        session: String,
    },
    Message {
        session: String,
        job: JobId,
    },
    Backup,
    /// Schedules or their runs, whose answer the store's says, too.
    Schedules,
    /// Whether a question was asked that somebody answers.
    Question(String),
}

/// Which states of sessions are asked for: only memory knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum States {
    Any,
    Idle,
}

/// One that waits until its reader has taken those before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lookup {
    pub(crate) id: Option<Id>,
    pub(crate) asked: Asked,
    pub(crate) query: Query,
}
