//! Webhooks: who may be told, and what became of it.
//!
//! Owns the requests and their pages. Must not print, nor know the command line.

use agentd_protocol::webhook::{Callback, Delivery, DeliveryRow, EndpointRow, Webhooks};
use agentd_protocol::{Line, RequestKind, answered};

use crate::asked::{Reply, RequestError};
use crate::client::Client;
use crate::pages::{PageTaken, Paged, Pages};

/// The endpoints, and a page of deliveries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookPage {
    /// To whom deliveries may go.
    pub endpoints: Vec<EndpointRow>,
    /// Newest first.
    pub deliveries: Vec<DeliveryRow>,
    /// Are there more? These come with this `before`.
    pub next: Option<u64>,
}

/// Deliveries, page by page: all that fit the filter, or so many as its `limit` says, newest first.
pub type DeliveryPages = Pages<Webhooks>;

impl Paged for Webhooks {
    type Page = WebhookPage;
    type Place = u64;

    fn page() -> PageTaken<WebhookPage, u64> {
        (RequestKind::Webhooks, page_of)
    }

    fn go_on(&mut self, from: u64) {
        self.before = Some(from);
    }

    fn limit(&mut self) -> Option<&mut Option<usize>> {
        Some(&mut self.limit)
    }

    fn rows(page: &WebhookPage) -> usize {
        page.deliveries.len()
    }
}

fn page_of(line: Line) -> Option<(WebhookPage, Option<u64>)> {
    let Line::Webhooks {
        endpoints,
        deliveries,
        next,
        ..
    } = line
    else {
        return None;
    };
    let rows = deliveries.into_iter().map(serde_json::from_value);
    let page = WebhookPage {
        endpoints,
        deliveries: rows.collect::<Result<_, _>>().ok()?,
        next,
    };
    Some((page, next))
}

impl DeliveryPages {
    /// Where it goes on, if there are more than the limit.
    #[must_use]
    pub const fn next_before(&self) -> Option<u64> {
        if self.has_more() {
            self.asked.before
        } else {
            None
        }
    }
}

impl Client {
    /// The endpoints, and a page of deliveries.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn webhooks(&mut self, asked: &Webhooks) -> Result<Reply<WebhookPage>, RequestError> {
        let reply = self.answer_of(asked, Webhooks::page()).await?;
        let (value, line) = (reply.value.0, reply.line);
        Ok(Reply { value, line })
    }

    /// Sends a delivery again now.
    ///
    /// # Errors
    /// When there is no such delivery, or no answer.
    pub async fn webhook_replay(&mut self, webhook: &str) -> Result<Reply<String>, RequestError> {
        let webhook = webhook.to_owned();
        let taken = answered!(WebhookReplay { webhook } => webhook);
        let asked = Delivery { webhook };
        self.answer_of(&asked, taken).await
    }

    /// Sends a request that tells nothing; gives its id.
    ///
    /// # Errors
    /// When nobody may be told there, or no answer came.
    pub async fn webhook_test(&mut self, url: &str) -> Result<Reply<String>, RequestError> {
        let url = url.to_owned();
        let taken = answered!(WebhookTest { webhook } => webhook);
        let to = Callback {
            url,
            ..Callback::default()
        };
        self.answer_of(&to, taken).await
    }
}
