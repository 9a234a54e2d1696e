//! Callbacks: who may ask for one, and the requests about deliveries.
//!
//! Owns the refusals. What is delivered when is the store's and the shell's: the core says only
//! that a job's end is to be told. Must not know HTTP, addresses or secrets.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::webhook::{Callback, EndpointRow, Webhooks};
use agentd_protocol::{Code, Id};

use crate::event::RequestContext;
use crate::ids::ConnId;
use crate::json;
use crate::outbox::awaiting::{Awaiting, Delivering};
use crate::peers::lookup::Asked;
use crate::rules::queries::PAGE;
use crate::settings::Served;
use crate::state::State;
use crate::store::{Query, Stored, Write, Written};

impl State {
    /// May whoever asks have somebody told of the end?
    pub(crate) fn may_call_back(
        &self,
        callback: Option<&Callback>,
        facts: &RequestContext,
    ) -> Result<(), Rejected> {
        let Some(callback) = callback else {
            return Ok(());
        };
        // Deliveries are tried for a day, and it lives as long as one turn.
        if self.settings.served != Served::Daemon {
            let error = "a run without the daemon ends with its turn: it can't call back";
            return Err(self.settings.served.needs_daemon(error));
        }
        // What an agent was talked into must not send requests.
        if self.is_worker(&facts.descent) {
            let error = "`callback`: an agent can't have somebody called from inside its worker";
            return Err(Rejected::new(Code::Forbidden, error));
        }
        match facts.callbacks.get(&callback.url) {
            Some(refused) => Err(refused.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn webhooks(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        webhooks: Webhooks,
        facts: &RequestContext,
    ) {
        let endpoints = match &facts.endpoints {
            Some(Ok(endpoints)) => endpoints.clone(),
            Some(Err(why)) => {
                let rejected = Rejected::new(Code::InvalidRequest, why.clone());
                return self.refuse(conn, id, rejected);
            }
            None => Vec::new(),
        };
        let query = Query::Webhooks {
            state: webhooks.state,
            webhook: webhooks.webhook,
            before: webhooks.before,
            limit: webhooks.limit.unwrap_or(PAGE),
        };
        self.look_up(conn, id, Asked::Webhooks(endpoints), query);
    }

    pub(crate) fn replay_webhook(&mut self, conn: ConnId, id: Option<Id>, webhook: String) {
        let of = Delivering::Replay {
            webhook: webhook.clone(),
        };
        self.send_delivery(conn, id, of, Write::Replay { webhook });
    }

    pub(crate) fn test_webhook(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        callback: Callback,
        facts: &RequestContext,
    ) {
        match self.may_call_back(Some(&callback), facts) {
            Ok(()) => {
                let write = Write::TestCallback { url: callback.url };
                self.send_delivery(conn, id, Delivering::Test, write);
            }
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    fn send_delivery(&mut self, conn: ConnId, id: Option<Id>, of: Delivering, write: Write) {
        if self.settings.served != Served::Daemon {
            let error = "a run without the daemon delivers nothing";
            return self.refuse(conn, id, self.settings.served.needs_daemon(error));
        }
        self.outbox
            .commit(Awaiting::Delivery { conn, id, of }, vec![write]);
    }

    pub(crate) fn delivery_stored(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        of: Delivering,
        stored: Stored,
    ) {
        let written = match stored {
            Stored::Committed(written) => written.into_iter().next(),
            Stored::Failed { code, why } => {
                let error = format!("the store can't take it: {why}");
                return self.refuse(conn, id, Rejected::new(code, error));
            }
            _ => None,
        };
        let found = match written {
            Some(Written::Webhook { id }) => id,
            _ => None,
        };
        let line = match (of, found) {
            (Delivering::Replay { .. }, Some(webhook)) => Line::WebhookReplay { ok: true, webhook },
            (Delivering::Test, Some(webhook)) => Line::WebhookTest { ok: true, webhook },
            (Delivering::Replay { webhook }, None) => {
                // It is somebody else's text, and may be long.
                let shown: String = webhook.chars().take(64).collect();
                let error = format!("there is no delivery `{shown}`");
                let rejected =
                    Rejected::new(Code::UnknownWebhook, error).hint("`webhooks` shows them");
                return self.refuse(conn, id, rejected);
            }
            (Delivering::Test, None) => {
                let error = "the store gave no answer to a test";
                return self.refuse(conn, id, Rejected::new(Code::Internal, error));
            }
        };
        self.answer(conn, id, &line);
    }
}

/// The answer to `webhooks`.
pub(crate) fn listed(
    endpoints: Vec<EndpointRow>,
    deliveries: &[String],
    next: Option<u64>,
) -> Line {
    Line::Webhooks {
        ok: true,
        endpoints,
        deliveries: deliveries.iter().map(|row| json::value(row)).collect(),
        next,
    }
}
