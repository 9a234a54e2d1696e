//! Lists that are told page by page, newest first, up to as many rows as somebody wants.
//!
//! Owns how many are asked for, and where the next page begins. Must not know what is in a row.

use agentd_protocol::limits::MAX_PAGE;
use agentd_protocol::{JobId, Line, RequestKind};
use serde::Serialize;

use crate::asked::{Reply, RequestError};
use crate::client::Client;

/// A request that a page answers: its rows, and where the next one begins.
pub trait Paged: Serialize {
    /// What a page has.
    type Row;
    /// Its `limit` and its `before`.
    fn place(&mut self) -> (&mut Option<usize>, &mut Option<JobId>);
    /// The request, and what the answer has.
    fn page() -> PageTaken<Self::Row>;
}

/// A request, and how its rows and the place of the next page are taken out of the answer.
pub type PageTaken<R> = (RequestKind, fn(Line) -> Option<(Vec<R>, Option<JobId>)>);

/// The answers, page by page.
#[derive(Clone, Debug)]
pub struct Pages<Q> {
    asked: Q,
    left: usize,
    over: bool,
}

impl<Q: Paged> Pages<Q> {
    /// All that fit, or so many as its `limit` says.
    #[must_use]
    pub fn new(mut asked: Q) -> Self {
        Self {
            left: asked.place().0.unwrap_or(usize::MAX),
            asked,
            over: false,
        }
    }

    /// Are there more than the limit, or may there be?
    #[must_use]
    pub const fn has_more(&self) -> bool {
        !self.over
    }

    /// The next page, which may have nothing in it; none after the last, or when there are as many
    /// as wanted.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn next(
        &mut self,
        client: &mut Client,
    ) -> Result<Option<Reply<Vec<Q::Row>>>, RequestError> {
        if self.over || self.left == 0 {
            return Ok(None);
        }
        *self.asked.place().0 = Some(self.left.min(MAX_PAGE));
        let reply = client.answer_of(&self.asked, Q::page());
        let Reply { value, line } = reply.await?;
        let (value, next) = value;
        self.left = self.left.saturating_sub(value.len());
        self.over = next.is_none();
        *self.asked.place().1 = next;
        Ok(Some(Reply { value, line }))
    }
}
