//! The one connection of a delivery.
//!
//! Owns which answer belongs to what was asked over it, and what is seen of the daemon meanwhile.
//! Must not know the spool, nor what an answer means for an utterance.

use std::time::Duration;

use agentd_protocol::Line;
use agentd_protocol::request::Status;

use super::Utterance;
use super::spool::DestinationState;
use agentd_client::client::Client;
use agentd_client::connection::LostError;
use agentd_client::wire::Received;

/// For a note nobody waits longer.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// How the daemon is.
pub(super) const STATUS: Status = Status { workers: false };

/// How the daemon is, is asked beside the first utterance: it is
/// for a note, and nothing waits for it.
pub(super) struct Link {
    pub(super) client: Client,
    /// As many were handed in over it; their turns may run for long.
    asked: usize,
    status: SideQuestion,
    pub(super) seen: Option<DestinationState>,
}

/// A question beside the utterances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SideQuestion {
    Not,
    With(u64),
    Answered,
}

impl Link {
    pub(super) const fn new(client: Client) -> Self {
        Self {
            client,
            asked: 0,
            status: SideQuestion::Not,
            seen: None,
        }
    }

    /// How the daemon is, was asked before anybody answered.
    pub(super) fn asked_before(mut self, status: Option<u64>) -> Self {
        self.status = status.map_or(self.status, SideQuestion::With);
        self
    }

    /// A connection has a limit of turns that are not done.
    pub(super) fn takes_more(&self) -> bool {
        self.client.is_alone() || self.asked < self.client.hello.limits.in_flight
    }

    pub(super) async fn ask(&mut self, utterance: &Utterance) -> Result<u64, LostError> {
        let id = self.client.request("send", &utterance.send).await?;
        self.asked += 1;
        Ok(id)
    }

    /// Beside the first utterance.
    pub(super) async fn ask_status(&mut self) -> Result<(), LostError> {
        if self.status == SideQuestion::Not && !self.client.is_alone() {
            self.status = SideQuestion::With(self.client.request("status", &STATUS).await?);
        }
        Ok(())
    }

    /// The first line that answers.
    pub(super) async fn first(&mut self, id: u64) -> Result<Received, LostError> {
        loop {
            let received = self.client.next().await?;
            if received.answers(id) {
                return Ok(received);
            }
            self.look(&received);
        }
    }

    pub(super) async fn last(&mut self, id: u64) -> Result<Received, LostError> {
        loop {
            let received = self.first(id).await?;
            if received.ends_turn() {
                return Ok(received);
            }
        }
    }

    /// An ssh key that may only send isn't told how the daemon is.
    fn look(&mut self, received: &Received) {
        match self.status {
            SideQuestion::With(id) if received.answers(id) => self.status = SideQuestion::Answered,
            SideQuestion::Not | SideQuestion::With(_) | SideQuestion::Answered => return,
        }
        // What serves one turn is another one each time.
        if let Some(Line::Status(status)) = &received.line
            && !self.client.is_alone()
        {
            self.seen = Some(DestinationState {
                pid: status.daemon.pid,
                restarts: status.rpc.restarts,
            });
        }
    }

    /// Waits a moment for what is not known yet.
    pub(super) async fn hear_status(&mut self) {
        if let SideQuestion::With(id) = self.status {
            let heard = async {
                let answer = self.first(id).await.ok();
                answer.inspect(|answer| self.look(answer))
            };
            let _unheard = tokio::time::timeout(HEARD_WITHIN, heard).await;
        }
    }
}
