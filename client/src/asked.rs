//! A request and its one answer, typed.
//!
//! Owns how long an answer may take and what a missing one means. Must not know the members of any
//! request.

use std::time::Duration;

use agentd_protocol::line::ErrorLine;
use agentd_protocol::request_table::RequestEffect;
use agentd_protocol::{Line, RequestKind};
use serde::Serialize;

use crate::again::{MOST_LOSSES, PAUSE_AFTER_A_LOSS};
use crate::client::{Client, ClientError};
use crate::connection::LostError;
use crate::wire::Received;

/// Longest wait for what the daemon answers from memory, or reads.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Longest wait for what runs other programs; without a daemon that takes up to 12 s.
const AFTER_PROGRAMS: Duration = Duration::from_secs(30);
/// Longest wait for what needs a commit.
const AFTER_COMMIT: Duration = Duration::from_secs(60);

/// Longest wait for the answer to a request.
const fn deadline(kind: RequestKind) -> Option<Duration> {
    match kind.rules().effect {
        RequestEffect::Reads => Some(AT_ONCE),
        RequestEffect::Looks => Some(AFTER_PROGRAMS),
        RequestEffect::Changes => Some(AFTER_COMMIT),
        RequestEffect::ReadsLong | RequestEffect::ChangesLong => None,
    }
}

/// What it means that no answer came to one that was written.
pub(crate) const fn lost_of(kind: RequestKind, lost: LostError) -> RequestError {
    if kind.rules().effect.changes() {
        let keys = Vec::new();
        RequestError::Unknown { lost, keys }
    } else {
        RequestError::NoAnswer(lost)
    }
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The daemon said no: nothing happened.
    #[error("{}", .0.error)]
    Refused(Box<ErrorLine>),
    /// The answer is of a kind that this version doesn't know. It is the line.
    #[error("the daemon answered with a line that this version does not know")]
    Strange(String),
    /// No answer came to a request that changes nothing.
    #[error("{0}")]
    NoAnswer(#[source] LostError),
    /// The request left and its outcome isn't known.
    #[error("{lost}, after the request was written: its outcome is unknown")]
    Unknown {
        /// How the connection was lost.
        #[source]
        lost: LostError,
        /// Idempotency keys to ask again with: they make nothing happen twice.
        keys: Vec<String>,
    },
    /// Nobody could be asked, or the request can't be written down.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// An answer and the line it came on, for whoever passes it on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply<T> {
    /// What was answered.
    pub value: T,
    /// As it came, without its newline.
    pub line: String,
}

impl Client {
    /// Asks, and gives the one answer that isn't an error.
    ///
    /// # Errors
    /// Says whether something may have happened.
    pub async fn answer(
        &mut self,
        kind: RequestKind,
        fields: &impl Serialize,
    ) -> Result<Received, RequestError> {
        let received = match self.ask(kind.name(), fields, deadline(kind)).await {
            Ok(received) => received,
            Err(ClientError::Unknown(lost)) => return Err(lost_of(kind, lost)),
            Err(other) => return Err(other.into()),
        };
        match received.line {
            Some(Line::Error(error)) => Err(RequestError::Refused(error)),
            _ => Ok(received),
        }
    }

    /// The same for what may be asked twice, as it changes nothing or has keys: when the daemon
    /// leaves without an answer, the next one is asked.
    ///
    /// # Errors
    /// As [`Client::answer`], when none comes.
    pub async fn answer_over_restarts(
        &mut self,
        kind: RequestKind,
        fields: &impl Serialize,
    ) -> Result<Received, RequestError> {
        let mut losses = 0;
        loop {
            let error = match self.answer(kind, fields).await {
                Ok(received) => return Ok(received),
                Err(error) => error,
            };
            let lost = match error {
                // It is there, and says nothing.
                RequestError::NoAnswer(LostError::Late(_))
                | RequestError::Unknown {
                    lost: LostError::Late(_),
                    ..
                } => return Err(error),
                RequestError::NoAnswer(lost) | RequestError::Unknown { lost, .. } => lost,
                RequestError::Refused(line) if self.is_lost_there(line.code) => LostError::Ended,
                // What stands against it now may be what the first daemon accepted of it.
                RequestError::Refused(_) if losses > 0 && kind.rules().effect.changes() => {
                    return Err(lost_of(kind, LostError::Ended));
                }
                error => return Err(error),
            };
            losses += 1;
            if losses > MOST_LOSSES {
                return Err(lost_of(kind, lost));
            }
            tokio::time::sleep(PAUSE_AFTER_A_LOSS * losses).await;
            match self.reconnect(lost).await {
                Ok(()) => {}
                Err(ClientError::Unknown(lost)) => return Err(lost_of(kind, lost)),
                Err(other) => return Err(other.into()),
            }
        }
    }

    /// The next line, as long as an answer to such a request is waited for.
    pub(crate) async fn next_within(
        &mut self,
        kind: RequestKind,
    ) -> Result<Received, RequestError> {
        let next = match deadline(kind) {
            None => self.next().await,
            Some(within) => match tokio::time::timeout(within, self.next()).await {
                Ok(next) => next,
                Err(_) => Err(LostError::Late(within)),
            },
        };
        next.map_err(|lost| lost_of(kind, lost))
    }

    /// The same, and takes what is wanted out of the answer.
    pub(crate) async fn answer_again<T>(
        &mut self,
        fields: &impl Serialize,
        (kind, take): (RequestKind, impl FnOnce(Line) -> Option<T>),
    ) -> Result<Reply<T>, RequestError> {
        let received = self.answer_over_restarts(kind, fields).await?;
        taken(received, take)
    }

    /// Asks, and takes what is wanted out of the answer.
    pub(crate) async fn answer_of<T>(
        &mut self,
        fields: &impl Serialize,
        (kind, take): (RequestKind, impl FnOnce(Line) -> Option<T>),
    ) -> Result<Reply<T>, RequestError> {
        let received = self.answer(kind, fields).await?;
        taken(received, take)
    }
}

fn taken<T>(
    received: Received,
    take: impl FnOnce(Line) -> Option<T>,
) -> Result<Reply<T>, RequestError> {
    let line = received.text;
    match received.line.and_then(take) {
        Some(value) => Ok(Reply { value, line }),
        None => Err(RequestError::Strange(line)),
    }
}
