//! The request of a connection whose attachments are being read.
//!
//! Owns that there is one at a time: those after it wait, so that requests take effect in the order
//! sent. Must not know what is read.

use agentd_core::event::{Event, Facts};
use agentd_core::ids::ConnId;
use agentd_protocol::Id;
use agentd_protocol::request::Decoded;
use tokio::task::JoinHandle;

use crate::server::attach;

/// How far it is.
pub(super) enum Reading {
    Nothing,
    Begun(JoinHandle<Event>),
    Done(Box<Event>),
}

impl Reading {
    /// Has a request something to be read?
    pub(super) fn is_needed(decoded: &Decoded) -> bool {
        attach::has_any(&decoded.request)
    }

    /// Reads beside the connection and the owner: a file may be slow.
    pub(super) fn begin(
        conn: ConnId,
        id: Option<Id>,
        mut decoded: Decoded,
        mut facts: Box<Facts>,
    ) -> Self {
        Self::Begun(tokio::task::spawn_blocking(move || {
            let request = attach::read(&mut decoded).map(|contents| {
                facts.contents = contents;
                decoded
            });
            Event::Requested {
                conn,
                id,
                request,
                facts,
            }
        }))
    }

    /// Waits for what was begun, for ever if nothing was; `None` when there is no answer.
    pub(super) async fn done(&mut self) -> Option<Box<Event>> {
        match self {
            Self::Begun(read) => read.await.ok().map(Box::new),
            Self::Nothing | Self::Done(_) => std::future::pending().await,
        }
    }
}
