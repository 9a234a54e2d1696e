//! Webhooks: who may be told, and what became of it.
//!
//! Owns the requests. Must not print, nor know the command line.

use agentd_protocol::Line;
use agentd_protocol::webhook::{Callback, Delivery, DeliveryRow, EndpointRow, Webhooks};

use crate::asked::{Asking, Reply, RequestError};
use crate::client::Client;

/// The endpoints, and a page of deliveries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// To whom deliveries may go.
    pub endpoints: Vec<EndpointRow>,
    /// Newest first.
    pub deliveries: Vec<DeliveryRow>,
    /// Are there more?
    pub next: Option<u64>,
}

impl Client {
    /// The endpoints, and a page of deliveries.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn webhooks(&mut self, asked: &Webhooks) -> Result<Reply<Told>, RequestError> {
        let take = |line| match line {
            Line::Webhooks {
                endpoints,
                deliveries,
                next,
                ..
            } => Some((endpoints, deliveries, next)),
            _ => None,
        };
        let reply = self.answer_of("webhooks", asked, Asking::Reads, take);
        let Reply { value, line } = reply.await?;
        let (endpoints, rows, next) = value;
        let rows = rows.into_iter().map(serde_json::from_value);
        match rows.collect() {
            Ok(deliveries) => {
                let value = Told {
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
        let take = |line| match line {
            Line::WebhookReplay { webhook, .. } => Some(webhook),
            _ => None,
        };
        let asked = Delivery { webhook };
        self.answer_of("webhook.replay", &asked, Asking::Changes, take)
            .await
    }

    /// Sends a request that tells nothing; gives its id.
    ///
    /// # Errors
    /// When nobody may be told there, or no answer came.
    pub async fn webhook_test(&mut self, url: &str) -> Result<Reply<String>, RequestError> {
        let url = url.to_owned();
        let take = |line| match line {
            Line::WebhookTest { webhook, .. } => Some(webhook),
            _ => None,
        };
        self.answer_of("webhook.test", &Callback { url }, Asking::Changes, take)
            .await
    }
}
