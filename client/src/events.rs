//! What happens, as it happens: the lines of jobs that others sent.
//!
//! Owns telling a refusal from an event. Must not know what the lines are used for.

use agentd_protocol::Line;
use agentd_protocol::request::Subscribe;

use crate::asked::RequestError;
use crate::client::Client;
use crate::wire::Received;

/// A subscription: past lines first when there was a cursor, then `live`, then lines as they come.
#[derive(Debug)]
pub struct Events {
    client: Client,
    id: u64,
    answered: bool,
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
    async fn the_end_of_a_failed_job_is_an_event_and_a_bad_cursor_a_refusal() {
        let failed = r#"{"type":"error","job":"j1","code":"timeout","error":"too long"}"#;
        assert_eq!(first(failed).await.unwrap(), "error");
        let refused = r#"{"type":"error","code":"cursor-expired","error":"pruned"}"#;
        assert!(matches!(
            first(refused).await,
            Err(RequestError::Refused(_))
        ));
    }
}
