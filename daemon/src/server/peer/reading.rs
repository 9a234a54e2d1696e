//! The request of a connection of which something is being read: directories, attachments.
//!
//! Owns that there is one at a time: those after it wait, so that requests take effect in the order
//! sent. Must not know what is read.

use std::pin::Pin;

use agentd_core::event::Event;
use agentd_core::ids::ConnId;
use agentd_protocol::Id;
use agentd_protocol::request::Decoded;

use super::Known;
use crate::server::attach;

/// How far it is.
pub(super) enum Reading {
    Nothing,
    Begun(Pin<Box<dyn Future<Output = Option<Event>> + Send>>),
    Done(Box<Event>),
}

impl Reading {
    /// Has a request attachments?
    pub(super) fn is_needed(decoded: &Decoded) -> bool {
        attach::has_any(&decoded.request)
    }

    /// Reads beside the connection and the owner: a file may be slow.
    pub(super) fn begin(conn: ConnId, id: Option<Id>, mut decoded: Decoded, known: Known) -> Self {
        Self::Begun(Box::pin(async move {
            let refused = |rejected| {
                Some(Event::Requested {
                    conn,
                    id: id.clone(),
                    request: Err(rejected),
                    facts: Box::default(),
                })
            };
            let known = match known {
                Known::Now(facts) => Ok(facts),
                Known::Soon(facts) => facts.await,
            };
            let mut facts = match known {
                Ok(facts) => facts,
                Err(rejected) => return refused(rejected),
            };
            if !Self::is_needed(&decoded) {
                return Some(Event::Requested {
                    conn,
                    id,
                    request: Ok(decoded),
                    facts,
                });
            }
            let place = match attach::place().await {
                Ok(place) => place,
                Err(rejected) => return refused(rejected),
            };
            let reading = tokio::task::spawn_blocking(move || {
                // The thread's, as long as it takes: whoever waits may have left.
                let _place = place;
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
            });
            reading.await.ok()
        }))
    }

    /// Waits for what was begun, for ever if nothing was; `None` when there is no answer.
    pub(super) async fn done(&mut self) -> Option<Box<Event>> {
        match self {
            Self::Begun(read) => read.await.map(Box::new),
            Self::Nothing | Self::Done(_) => std::future::pending().await,
        }
    }
}
