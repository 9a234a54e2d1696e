//! What happens, as it happens: the lines of jobs that others sent.
//!
//! Owns telling a refusal from an event. Must not know what the lines are used for.

use std::collections::BTreeMap;

use agentd_protocol::request::Subscribe;
use agentd_protocol::{JobId, Line};

use crate::again::{self, Heard, MOST_LOSSES, PAUSE_AFTER_A_LOSS};
use crate::asked::RequestError;
use crate::client::{Client, ClientError};
use crate::connection::LostError;
use crate::wire::Received;

/// A subscription: past lines first when there was a cursor, then `live`, then lines as they come.
#[derive(Debug)]
pub struct Events {
    client: Client,
    id: u64,
    answered: bool,
    asked: Subscribe,
    /// The number up to which everything was told.
    seq: Option<u64>,
    /// What of the text of turns in flight was told: on the next conversation it comes again.
    texts: BTreeMap<JobId, Heard>,
    losses: u32,
    /// Is it another conversation than the first?
    resumed: bool,
}

impl Client {
    /// Turns the conversation into a stream of lines.
    ///
    /// # Errors
    /// When it can't be asked for.
    pub async fn subscribe(mut self, subscribe: &Subscribe) -> Result<Events, RequestError> {
        let asked = self.request("subscribe", subscribe).await;
        let id = asked.map_err(RequestError::NoAnswer)?;
        Ok(Events {
            client: self,
            id,
            answered: false,
            asked: subscribe.clone(),
            seq: None,
            texts: BTreeMap::new(),
            losses: 0,
            resumed: false,
        })
    }
}

impl Events {
    /// The next line. Safe to cancel.
    ///
    /// # Errors
    /// [`RequestError::Refused`] instead of the first line: `cursor-expired`, `cursor-invalid`.
    /// [`RequestError::NoAnswer`] when the conversation ended.
    pub async fn next(&mut self) -> Result<Received, RequestError> {
        loop {
            let received = self.client.next().await.map_err(RequestError::NoAnswer)?;
            if !received.answers(self.id) {
                continue;
            }
            if let (false, Some(Line::Error(error))) = (self.answered, &received.line)
                && received.line.as_ref().is_some_and(|line| !line.ends_job())
            {
                return Err(RequestError::Refused(error.clone()));
            }
            self.answered = true;
            return Ok(received);
        }
    }

    /// The next line, over restarts of the daemon: the next one goes on behind the last line, and
    /// text is told once. Not safe to cancel.
    ///
    /// # Errors
    /// As [`Events::next`]; [`RequestError::NoAnswer`] when no daemon comes in time.
    pub async fn next_over_restarts(&mut self) -> Result<Received, RequestError> {
        loop {
            let received = match self.next().await {
                Ok(received) => received,
                Err(RequestError::NoAnswer(lost)) => {
                    self.again(lost).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // It gets on: it isn't a request of which each daemon dies.
            self.losses = 0;
            if let Some(fresh) = self.fresh(received) {
                return Ok(fresh);
            }
        }
    }

    async fn again(&mut self, lost: LostError) -> Result<(), RequestError> {
        // Before anything was numbered nobody knows where to go on.
        let Some(seq) = self.seq.filter(|_| self.losses < MOST_LOSSES) else {
            return Err(RequestError::NoAnswer(lost));
        };
        tokio::time::sleep(PAUSE_AFTER_A_LOSS * self.losses).await;
        self.losses += 1;
        self.client
            .reconnect(lost)
            .await
            .map_err(|error| match error {
                ClientError::Unknown(lost) => RequestError::NoAnswer(lost),
                error => error.into(),
            })?;
        self.asked.after = Some(seq);
        self.asked.epoch = Some(self.client.hello.epoch.clone());
        (self.answered, self.resumed) = (false, true);
        let asked = self.client.request("subscribe", &self.asked).await;
        self.id = asked.map_err(RequestError::NoAnswer)?;
        Ok(())
    }

    /// What of a line wasn't told before.
    fn fresh(&mut self, received: Received) -> Option<Received> {
        if let Some(Line::Live { seq, .. }) = &received.line {
            self.seq = self.seq.max(Some(*seq));
            // For whoever listens the stream never broke: it is live once.
            return (!self.resumed).then_some(received);
        }
        let seq = again::seq_of(&received);
        if seq.is_some() && seq <= self.seq {
            return None;
        }
        self.seq = self.seq.max(seq);
        let Some(job) = job_of(&received) else {
            return Some(received);
        };
        if received.line.as_ref().is_some_and(Line::ends_job) {
            self.texts.remove(&job);
            return Some(received);
        }
        let heard = self.texts.entry(job).or_default();
        if self.resumed {
            heard.told_again();
        }
        heard.fresh(received)
    }
}

fn job_of(received: &Received) -> Option<JobId> {
    #[derive(serde::Deserialize)]
    struct Named {
        job: Option<JobId>,
    }
    let named: Option<Named> = serde_json::from_str(&received.text).ok();
    named.and_then(|line| line.job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::Scripted;

    async fn first(line: &str) -> Result<String, RequestError> {
        let (client, _asked) = Scripted::new(&[line]).connect().await;
        let mut events = client.subscribe(&Subscribe::default()).await?;
        events.next().await.map(|received| received.kind)
    }

    #[tokio::test]
    async fn events_tell_failed_ends_and_refuse_bad_cursors() {
        let failed = r#"{"type":"error","job":"j1","code":"timeout","error":"too long"}"#;
        assert_eq!(first(failed).await.unwrap(), "error");
        let refused = r#"{"type":"error","code":"cursor-expired","error":"pruned"}"#;
        assert!(matches!(
            first(refused).await,
            Err(RequestError::Refused(_))
        ));
    }
}
