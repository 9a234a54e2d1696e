//! One turn: what is asked, its lines as they come, and what it gave.
//!
//! Owns going on with a turn over conversations that break, so that each line is told once. Must not
//! know whose conversations these are (`agentd`), nor how a line looks to people.

use std::path::Path;
use std::time::Duration;

use agentd_protocol::line::{ErrorLine, MessageEnd, Stop, TurnFacts};
use agentd_protocol::request::{Abort, Earlier, McpServer, Retry, Send};
use agentd_protocol::{JobId, Line};

use crate::again::{Heard, MOST_LOSSES, PAUSE_AFTER_A_LOSS};
use crate::agentd::Agentd;
use crate::client::{Client, ClientError};
use crate::connection::LostError;
use crate::key;
use crate::wire::Received;

/// A turn that has not begun.
#[derive(Clone, Debug)]
#[must_use = "a turn does nothing before it is run, streamed or dispatched"]
pub struct Turn<'a> {
    agentd: &'a Agentd,
    send: Send,
}

/// What a turn gave.
#[derive(Clone, PartialEq, Debug)]
pub struct TurnResult {
    /// Why it ended.
    pub stop: Stop,
    /// Everything else: its text, tools, use and cost.
    pub facts: TurnFacts,
}

/// Why a turn gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// Nobody took it: nothing happened.
    #[error("{}", .0.error)]
    Refused(Box<ErrorLine>),
    /// It was taken, and failed or was ended. What it had said and done is in `turn`.
    #[error("{}", .0.error)]
    Failed(Box<ErrorLine>),
    /// The conversation was lost, and no other one came. The same key attaches to the same turn, and
    /// never runs it twice.
    #[error("{lost}, after the turn was sent: its outcome is unknown")]
    Unknown {
        /// How it was lost.
        #[source]
        lost: LostError,
        /// The turn's idempotency key.
        key: String,
    },
    /// It ended with a line that this version doesn't know.
    #[error("the turn ended with a line that this version does not know")]
    Strange(String),
    /// Nobody could be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl TurnResult {
    pub(crate) fn of(end: MessageEnd) -> Self {
        Self {
            stop: end.stop,
            facts: end.turn,
        }
    }

    /// What the agent said.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.facts.text
    }
}

impl TurnError {
    /// Of a final line.
    fn of(error: Box<ErrorLine>) -> Self {
        if error.turn.as_ref().is_some_and(|turn| turn.job.is_some()) {
            Self::Failed(error)
        } else {
            Self::Refused(error)
        }
    }

    fn of_client(error: ClientError, send: &Send) -> Self {
        match error {
            ClientError::Unknown(lost) => {
                let key = send.idempotency_key.clone().unwrap_or_default();
                Self::Unknown { lost, key }
            }
            other => other.into(),
        }
    }
}

impl<'a> Turn<'a> {
    pub(crate) fn new(agentd: &'a Agentd, text: String) -> Self {
        let send = Send {
            text,
            ..Send::default()
        };
        Self { agentd, send }
    }

    /// Who answers; else the default agent.
    pub fn agent(self, name: impl Into<String>) -> Self {
        self.set(|send| send.agent = Some(name.into()))
    }

    /// In which session; else in one of its own.
    pub fn session(self, name: impl Into<String>) -> Self {
        self.set(|send| send.session = Some(name.into()))
    }

    /// Of which provider the model is.
    pub fn provider(self, name: impl Into<String>) -> Self {
        self.set(|send| send.provider = Some(name.into()))
    }

    /// Which model answers.
    pub fn model(self, name: impl Into<String>) -> Self {
        self.set(|send| send.model = Some(name.into()))
    }

    /// What is asked when the model fails, in this order.
    pub fn fallback_chain<T: Into<String>>(self, models: impl IntoIterator<Item = T>) -> Self {
        let models = models.into_iter().map(Into::into).collect();
        self.set(|send| send.fallback_chain = Some(models))
    }

    /// The tools that it may use; without any, none.
    pub fn toolsets<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.set(|send| send.toolsets = Some(names))
    }

    /// What the agent is told before the conversation: only of a turn that begins a session.
    pub fn system(self, text: impl Into<String>) -> Self {
        self.set(|send| send.system = Some(text.into()))
    }

    /// What was said before elsewhere, oldest first: likewise.
    pub fn history(self, said: impl IntoIterator<Item = Earlier>) -> Self {
        let said = said.into_iter().collect();
        self.set(|send| send.history = said)
    }

    /// MCP servers that the session's agent has besides its own, from this turn on; without any, none.
    pub fn mcp_servers(self, servers: impl IntoIterator<Item = McpServer>) -> Self {
        let servers = servers.into_iter().collect();
        self.set(|send| send.mcp_servers = Some(servers))
    }

    /// Where it works: an absolute path that is there.
    pub fn cwd(self, dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref().to_string_lossy().into_owned();
        self.set(|send| send.cwd = Some(dir))
    }

    /// How long it may run; 1 h else.
    pub fn timeout(self, longest: Duration) -> Self {
        self.set(|send| send.timeout = Some(longest.as_secs_f64()))
    }

    /// How long it may wait for its beginning; 1 h else.
    pub fn expires(self, longest: Duration) -> Self {
        self.set(|send| send.expires = Some(longest.as_secs_f64()))
    }

    /// The same key twice is the same turn; else it gets a random one.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        self.set(|send| send.idempotency_key = Some(key.into()))
    }

    /// Runs it again should its agent's process die of it, which may do twice what it had done.
    pub fn retry(self) -> Self {
        self.set(|send| send.retry = Retry::Auto)
    }

    /// Anything else that a send can say.
    pub fn set(mut self, change: impl FnOnce(&mut Send)) -> Self {
        change(&mut self.send);
        self
    }

    pub(crate) fn into_send(self) -> Send {
        self.send
    }

    /// Runs it, and gives its end.
    ///
    /// # Errors
    /// When it isn't taken, fails, or its outcome isn't known.
    pub async fn run(self) -> Result<TurnResult, TurnError> {
        // All lines but the last would be thrown away.
        let turn = self.set(|send| send.stream = Some(false));
        turn.stream().await?.result().await
    }

    /// Sends it, and gives its lines as they come, from when it is accepted.
    ///
    /// # Errors
    /// When nobody can be asked. That it isn't taken its first line says.
    pub async fn stream(self) -> Result<TurnStream<'a>, TurnError> {
        let send = key::completed(&self.send).map_err(ClientError::NotWritten)?;
        let send = send.into_owned();
        let mut client = self.agentd.client().await?;
        let (id, first) = match client.send(&send).await {
            Ok(answered) => answered,
            Err(error) => return Err(TurnError::of_client(error, &send)),
        };
        Ok(TurnStream {
            agentd: self.agentd,
            client: Some(client),
            send,
            state: SendState::Open {
                id,
                first: Some(first),
            },
            heard: Heard::default(),
            job: None,
            losses: 0,
        })
    }
}

/// A turn's lines. Dropped before its end, the turn goes on without us.
#[derive(Debug)]
pub struct TurnStream<'a> {
    agentd: &'a Agentd,
    /// Until its end.
    client: Option<Client>,
    send: Send,
    state: SendState,
    heard: Heard,
    job: Option<JobId>,
    losses: u32,
}

/// How the send stands with the conversation.
#[derive(Debug)]
enum SendState {
    /// Its lines come under this `id`.
    Open {
        id: u64,
        /// Came already.
        first: Option<Received>,
    },
    /// The conversation broke. Asked for again twice, it is one turn by its key.
    Lost(LostError),
    /// Its last line came, and hasn't been given yet.
    Over(Option<Received>),
}

impl TurnStream<'_> {
    /// Its job, once it was accepted.
    #[must_use]
    pub const fn job(&self) -> Option<JobId> {
        self.job
    }

    /// The next line: `accepted`, pieces of text, tools, and at last `message_end`; nothing after it.
    /// A daemon that goes away is followed by the next one, which tells what wasn't told yet. Safe to
    /// cancel.
    ///
    /// # Errors
    /// When it isn't taken, fails, or its outcome isn't known. Nothing comes after it.
    pub async fn next(&mut self) -> Result<Option<Line>, TurnError> {
        loop {
            if let SendState::Over(_) = self.state {
                return self.last().await;
            }
            let Some((id, received)) = self.received().await? else {
                return Ok(None);
            };
            if !received.answers(id) {
                continue;
            }
            let client = self.client.as_ref();
            if client.is_some_and(|client| self.heard.is_about_asking(client, &received)) {
                self.state = SendState::Lost(LostError::Ended);
                continue;
            }
            let is_over = received.ends_turn();
            let Some(fresh) = self.heard.fresh(received) else {
                continue;
            };
            if is_over {
                self.state = SendState::Over(Some(fresh));
                continue;
            }
            if let Some(Line::Accepted(accepted)) = &fresh.line {
                self.job = Some(accepted.job);
            }
            // What this version doesn't know, a newer daemon says besides.
            if let Some(line) = fresh.line {
                return Ok(Some(line));
            }
        }
    }

    /// The last line, once; its conversation is free before.
    async fn last(&mut self) -> Result<Option<Line>, TurnError> {
        if let Some(client) = self.client.take() {
            self.agentd.keep(client).await;
        }
        let SendState::Over(last) = &mut self.state else {
            return Ok(None);
        };
        match last.take().map(|last| (last.line, last.text)) {
            None => Ok(None),
            Some((Some(Line::Error(error)), _)) => Err(TurnError::of(error)),
            Some((Some(line), _)) => Ok(Some(line)),
            Some((None, text)) => Err(TurnError::Strange(text)),
        }
    }

    /// What came next, and the `id` of the send; nothing after a failure.
    async fn received(&mut self) -> Result<Option<(u64, Received)>, TurnError> {
        loop {
            let Some(client) = &mut self.client else {
                return Ok(None);
            };
            let again = match &mut self.state {
                SendState::Open { id, first } => {
                    let next = match first.take() {
                        Some(first) => Ok(first),
                        None => client.next().await,
                    };
                    match next {
                        Ok(received) => return Ok(Some((*id, received))),
                        Err(lost) => self.state = SendState::Lost(lost),
                    }
                    continue;
                }
                SendState::Over(_) => return Ok(None),
                SendState::Lost(lost) => {
                    self.losses += 1;
                    self.heard.told_again();
                    tokio::time::sleep(PAUSE_AFTER_A_LOSS * self.losses).await;
                    let lost = std::mem::replace(lost, LostError::Ended);
                    if self.losses > MOST_LOSSES {
                        Err(ClientError::Unknown(lost))
                    } else {
                        client.again(&self.send, lost).await
                    }
                }
            };
            match again {
                Ok((id, first)) => {
                    let first = Some(first);
                    self.state = SendState::Open { id, first };
                }
                Err(error) => {
                    self.client = None;
                    return Err(TurnError::of_client(error, &self.send));
                }
            }
        }
    }

    /// The next piece of what the agent says; nothing after its end.
    ///
    /// # Errors
    /// As [`TurnStream::next`].
    pub async fn text(&mut self) -> Result<Option<String>, TurnError> {
        while let Some(line) = self.next().await? {
            if let Line::MessageDelta { text, .. } = line {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Reads to its end, and gives that.
    ///
    /// # Errors
    /// As [`TurnStream::next`]; [`TurnError::Strange`] when the end was read already.
    pub async fn result(mut self) -> Result<TurnResult, TurnError> {
        while let Some(line) = self.next().await? {
            if let Line::MessageEnd(end) = line {
                return Ok(TurnResult::of(*end));
            }
        }
        Err(TurnError::Strange(String::new()))
    }

    /// Its job, when the answer that tells it came and nobody has read it yet.
    fn accepted_as(&self) -> Option<JobId> {
        let SendState::Open { first, .. } = &self.state else {
            return None;
        };
        match first.as_ref()?.line.as_ref()? {
            Line::Accepted(accepted) => Some(accepted.job),
            _ => None,
        }
    }

    /// Asks for its end, which comes as its last line.
    ///
    /// # Errors
    /// When it can't be asked for.
    pub async fn abort(&mut self) -> Result<(), TurnError> {
        let abort = Abort {
            job: self.job.or_else(|| self.accepted_as()),
            ..Abort::default()
        };
        let (Some(_), Some(client)) = (abort.job, &mut self.client) else {
            return Ok(());
        };
        match client.request("abort", &abort).await {
            Ok(_) => Ok(()),
            Err(lost) => Err(TurnError::of_client(ClientError::Unknown(lost), &self.send)),
        }
    }
}
