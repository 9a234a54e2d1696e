//! The request of a connection of which something is being read: directories, attachments.
//!
//! Owns that there is one at a time: those after it wait, so that requests take effect in the order
//! sent. Must not know what is read.

use std::pin::Pin;
use std::sync::Arc;

use agentd_core::event::{Event, RequestContext};
use agentd_core::ids::ConnId;
use agentd_protocol::Id;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::Decoded;

use super::Known;
use crate::server::attach;
use crate::server::routes::Routes;

/// How far it is.
pub(super) enum Reading {
    Nothing,
    Begun(Pin<Box<dyn Future<Output = Option<Event>> + Send>>),
    Done(Box<Event>),
}

impl Reading {
    /// Has a request attachments, or turns that are left to the routes?
    pub(super) fn is_needed(decoded: &Decoded, routes: &Routes) -> bool {
        attach::has_any(&decoded.request) || routes.are_asked(&decoded.request)
    }

    /// Reads beside the connection and the owner: a file may be slow.
    pub(super) fn begin(
        (conn, id): (ConnId, Option<Id>),
        decoded: Decoded,
        known: Known,
        routes: &Arc<Routes>,
    ) -> Self {
        let routes = Arc::clone(routes);
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
            let facts = match known {
                Ok(facts) => facts,
                Err(rejected) => return refused(rejected),
            };
            let (decoded, facts) = match attach::has_any(&decoded.request) {
                false => (decoded, facts),
                true => match attached(decoded, facts).await? {
                    Ok(read) => read,
                    Err(rejected) => return refused(rejected),
                },
            };
            // By now the types of what is attached are known, and the newest rules.
            let Decoded { request, ignored } = decoded;
            let (request, facts) = routes.weigh(request, facts).await;
            Some(Event::Requested {
                conn,
                id,
                request: Ok(Decoded { request, ignored }),
                facts,
            })
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

/// A request with what it attaches; `None` when the thread that read it is gone.
type Attached = Option<Result<(Decoded, Box<RequestContext>), Rejected>>;

async fn attached(mut decoded: Decoded, mut facts: Box<RequestContext>) -> Attached {
    let place = match attach::place().await {
        Ok(place) => place,
        Err(rejected) => return Some(Err(rejected)),
    };
    let reading = tokio::task::spawn_blocking(move || {
        // The thread's, as long as it takes: whoever waits may have left.
        let _place = place;
        facts.contents = attach::read(&mut decoded)?;
        Ok((decoded, facts))
    });
    reading.await.ok()
}
