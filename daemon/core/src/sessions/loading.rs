//! Requests that wait until their sessions are known.
//!
//! Owns the data, and what such a request weighs.

use std::collections::VecDeque;

use agentd_protocol::request::{Decoded, Send};
use agentd_protocol::{Id, Request};

use crate::event::RequestContext;
use crate::ids::ConnId;

/// Requests that wait until a session is known.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Loading {
    /// The sessions that the store was asked for.
    pub(crate) names: Vec<String>,
    pub(crate) parked: VecDeque<Parked>,
}

/// One of them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Parked {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) decoded: Decoded,
    pub(crate) facts: RequestContext,
}

impl Parked {
    /// Has a send of it this idempotency key?
    pub(crate) fn has_key(&self, key: &str) -> bool {
        let has_it = |send: &Send| send.idempotency_key.as_deref() == Some(key);
        match &self.decoded.request {
            Request::Send(send) => has_it(send),
            Request::Dispatch(dispatch) => dispatch.jobs.iter().any(|job| has_it(&job.send)),
            _ => false,
        }
    }
}

/// What a request weighs that is kept as it came.
pub(crate) fn of_parked(request: &Request) -> usize {
    let of_send = |send: &Send| {
        let labels = send
            .labels
            .iter()
            .map(|(key, value)| key.len() + value.len());
        size_of::<Send>() + send.bytes() + labels.sum::<usize>()
    };
    size_of::<Parked>()
        + match request {
            Request::Send(send) | Request::Route(send) => of_send(send),
            Request::Dispatch(dispatch) => dispatch.jobs.iter().map(|job| of_send(&job.send)).sum(),
            Request::Steer(steer) => steer.text.len(),
            _ => 0,
        }
}
