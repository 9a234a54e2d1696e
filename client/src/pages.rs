//! Answers that come page by page.
//!
//! Owns how many rows are asked for, where the next page begins and when there is none. Must not know
//! what is in a page.

use agentd_protocol::limits::MAX_PAGE;
use agentd_protocol::{Line, RequestKind};
use serde::Serialize;

use crate::asked::{Reply, RequestError};
use crate::client::Client;

/// A request that is answered by pages.
pub trait Paged: Serialize {
    /// What a page has.
    type Page;
    /// Where one begins.
    type Place;

    /// The request, and what an answer has.
    fn page() -> PageTaken<Self::Page, Self::Place>;

    /// It asks for the page that begins there.
    fn go_on(&mut self, from: Self::Place);

    /// How many rows are wanted in all, where that can be said, and asked for at once.
    fn limit(&mut self) -> Option<&mut Option<usize>> {
        None
    }

    /// How many of them a page has.
    fn rows(_page: &Self::Page) -> usize {
        0
    }
}

/// A request, and how its page and the place of the next one are taken out of the answer.
pub type PageTaken<P, N> = (RequestKind, fn(Line) -> Option<(P, Option<N>)>);

/// The answers, page by page.
#[derive(Clone, Default, Debug)]
pub struct Pages<Q> {
    pub(crate) asked: Q,
    begun: Begun,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    left: usize,
    over: bool,
}

impl Default for Begun {
    fn default() -> Self {
        Self {
            left: usize::MAX,
            over: false,
        }
    }
}

impl<Q: Paged> Pages<Q> {
    /// All that fit, or so many as its limit says.
    #[must_use]
    pub fn new(mut asked: Q) -> Self {
        let mut begun = Begun::default();
        if let Some(Some(limit)) = asked.limit() {
            begun.left = *limit;
        }
        Self { asked, begun }
    }

    /// Are there more than the limit, or may there be?
    #[must_use]
    pub const fn has_more(&self) -> bool {
        !self.begun.over
    }

    /// The next page, which may have nothing in it; none after the last, or when there are as many
    /// rows as wanted.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn next(
        &mut self,
        client: &mut Client,
    ) -> Result<Option<Reply<Q::Page>>, RequestError> {
        if self.begun.over || self.begun.left == 0 {
            return Ok(None);
        }
        if let Some(limit) = self.asked.limit() {
            *limit = Some(self.begun.left.min(MAX_PAGE));
        }
        let reply = client.answer_of(&self.asked, Q::page());
        let Reply { value, line } = reply.await?;
        let (value, next) = value;
        self.begun.left = self.begun.left.saturating_sub(Q::rows(&value));
        match next {
            Some(next) => self.asked.go_on(next),
            None => self.begun.over = true,
        }
        Ok(Some(Reply { value, line }))
    }

    /// So many of the rows that are wanted. The others don't count: pages are asked for until there
    /// are as many, or none is left.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn wanted<R>(
        &mut self,
        client: &mut Client,
        limit: usize,
        is_wanted: impl Fn(&R) -> bool,
    ) -> Result<Vec<R>, RequestError>
    where
        Q: Paged<Page = Vec<R>>,
    {
        let mut found = Vec::new();
        while found.len() < limit {
            self.begun.left = limit - found.len();
            let Some(page) = self.next(client).await? else {
                break;
            };
            found.extend(page.value.into_iter().filter(&is_wanted));
        }
        Ok(found)
    }

    /// All pages that are left.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn rest(mut self, client: &mut Client) -> Result<Vec<Q::Page>, RequestError> {
        let mut pages = Vec::new();
        while let Some(page) = self.next(client).await? {
            pages.push(page.value);
        }
        Ok(pages)
    }
}
