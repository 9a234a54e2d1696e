//! Webhooks: who may be told, and what became of it.
//!
//! Owns the requests and their pages. Must not print, nor know the command line.

use agentd_protocol::answered;
use agentd_protocol::limits::MAX_PAGE;
use agentd_protocol::webhook::{Callback, Delivery, DeliveryRow, EndpointRow, Webhooks};

use crate::asked::{Reply, RequestError};
use crate::client::Client;

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

/// Deliveries, page by page.
#[derive(Clone, Debug)]
pub struct DeliveryPages {
    asked: Webhooks,
    left: usize,
    over: bool,
}

impl DeliveryPages {
    /// All that fit the filter, or so many as its `limit` says, newest first.
    #[must_use]
    pub fn new(filter: Webhooks) -> Self {
        Self {
            left: filter.limit.unwrap_or(usize::MAX),
            asked: filter,
            over: false,
        }
    }

    /// Where it goes on, if there are more than the limit.
    #[must_use]
    pub const fn next_before(&self) -> Option<u64> {
        if self.over { None } else { self.asked.before }
    }

    /// The next page; none after the last, or when there are as many as wanted.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn next(
        &mut self,
        client: &mut Client,
    ) -> Result<Option<Reply<WebhookPage>>, RequestError> {
        if self.over || self.left == 0 {
            return Ok(None);
        }
        self.asked.limit = Some(self.left.min(MAX_PAGE));
        let reply = client.webhooks(&self.asked).await?;
        self.left = self.left.saturating_sub(reply.value.deliveries.len());
        self.over = reply.value.next.is_none();
        self.asked.before = reply.value.next;
        Ok(Some(reply))
    }
}

impl Client {
    /// The endpoints, and a page of deliveries.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn webhooks(&mut self, asked: &Webhooks) -> Result<Reply<WebhookPage>, RequestError> {
        let taken = answered!(
            Webhooks { endpoints, deliveries, next } => (endpoints, deliveries, next)
        );
        let reply = self.answer_of(asked, taken);
        let Reply { value, line } = reply.await?;
        let (endpoints, rows, next) = value;
        let rows = rows.into_iter().map(serde_json::from_value);
        match rows.collect() {
            Ok(deliveries) => {
                let value = WebhookPage {
                    endpoints,
                    deliveries,
                    next,
                };
                Ok(Reply { value, line })
            }
            Err(_) => Err(RequestError::Strange(line)),
        }
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
