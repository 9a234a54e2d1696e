//! The daemon as a program sees it that wants agents to work, and needn't know conversations.
//!
//! Owns which conversation carries which turn. Everything said here is said by [`Client`].

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentd_protocol::request::{Send, Wait};
use agentd_protocol::{JobId, Line, serde_json};
use serde::Deserialize as _;

use crate::asked::RequestError;
use crate::client::{Attended, Client, ClientError, Options};
use crate::fallback::Fallback;
use crate::oneshot::Asks;
use crate::ssh::Target;
use crate::turn::{Turn, TurnError, TurnResult};

/// Conversations that are kept for the next turn: as many as usually go on at the same time.
const MOST_KEPT: usize = 8;

/// Where the daemon is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Endpoint {
    /// This user's, wherever it serves: `$AGENTD_SOCKET`, or its usual place.
    #[default]
    Here,
    /// On this socket of this machine.
    Local(PathBuf),
    /// Of another machine, by `ssh`.
    Ssh(Target),
}

/// Agents, by the daemon, or one turn at a time without it.
///
/// Turns of one value may run at the same time; each has a conversation of its own, and a
/// conversation that is over serves the next one.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use agentd_client::Agentd;
///
/// let agentd = Agentd::connect().await?;
/// let (one, two) = tokio::try_join!(
///     agentd.turn("What is in this directory?").cwd("/etc").run(),
///     agentd.turn("Say hello").agent("timmy").run(),
/// )?;
/// println!("{}\n{}", one.text(), two.text());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Agentd {
    options: Options,
    kept: Mutex<Vec<Client>>,
}

/// What became of jobs.
#[derive(Debug)]
pub struct Collection {
    /// Of those that ended, in the order asked.
    pub ended: Vec<JobEnd>,
    /// Those that didn't, in the order asked.
    pub pending: Vec<JobId>,
}

/// How a job ended.
#[derive(Debug)]
pub struct JobEnd {
    /// Which.
    pub job: JobId,
    /// With this, or this is why it failed.
    pub result: Result<TurnResult, TurnError>,
}

impl Agentd {
    /// This user's daemon. Where none runs, each turn runs once without it.
    ///
    /// # Errors
    /// When nobody can serve us.
    pub async fn connect() -> Result<Self, ClientError> {
        Self::connect_to(Endpoint::Here, Fallback::Allowed).await
    }

    /// The daemon there, or a run without it where that is allowed.
    ///
    /// # Errors
    /// When nobody can serve us.
    pub async fn connect_to(endpoint: Endpoint, fallback: Fallback) -> Result<Self, ClientError> {
        let options = Options {
            socket: match endpoint {
                Endpoint::Here => None,
                Endpoint::Local(socket) => Some(socket),
                Endpoint::Ssh(target) => Some(target.as_socket()),
            },
            fallback,
            name: "agentd-client".to_owned(),
            attended: Attended::No,
            asks: Asks::Anything,
        };
        // A run without a daemon, too, has its one turn before it.
        let first = Client::connect_or_oneshot(options.clone()).await?;
        Ok(Self {
            options,
            kept: Mutex::new(vec![first]),
        })
    }

    /// By conversations like these, the first of which is begun when it is needed.
    #[must_use]
    pub const fn of(options: Options) -> Self {
        Self {
            options,
            kept: Mutex::new(Vec::new()),
        }
    }

    /// A turn of this text, to be run, streamed or handed in.
    pub fn turn(&self, text: impl Into<String>) -> Turn<'_> {
        Turn::new(self, text.into())
    }

    /// The session of this name, which is made by its first turn. It is everybody's who names it.
    pub fn session(&self, name: impl Into<String>) -> Session<'_> {
        Session {
            agentd: self,
            name: name.into(),
        }
    }

    /// Hands in turns, all or none; their jobs go on without us, and are there to be collected.
    ///
    /// # Errors
    /// [`RequestError::Unknown`] has the keys to hand them in with again: none runs twice.
    pub async fn dispatch<'a>(
        &self,
        turns: impl IntoIterator<Item = Turn<'a>>,
    ) -> Result<Vec<JobId>, RequestError> {
        let sends: Vec<Send> = turns.into_iter().map(Turn::into_send).collect();
        let mut client = self.client().await?;
        let dispatched = client.dispatch(&sends).await?.value;
        self.keep(client).await;
        Ok(dispatched.into_iter().map(|row| row.job).collect())
    }

    /// How these jobs ended. Waits until all have, over restarts of the daemon, or for so long.
    ///
    /// # Errors
    /// An unknown job refuses the whole.
    pub async fn collect(
        &self,
        jobs: &[JobId],
        timeout: Option<Duration>,
    ) -> Result<Collection, RequestError> {
        let mut client = self.client().await?;
        let collected = client.collect(jobs, timeout, Wait::All).await?;
        self.keep(client).await;
        let ended = |line: serde_json::Value| -> Option<JobEnd> {
            let job = line.get("job")?.as_str()?.parse().ok()?;
            let result = match Line::deserialize(&line) {
                Ok(Line::MessageEnd(end)) => Ok(TurnResult::of(*end)),
                Ok(Line::Error(error)) => Err(TurnError::Failed(error)),
                _ => Err(TurnError::Strange(line.to_string())),
            };
            Some(JobEnd { job, result })
        };
        Ok(Collection {
            ended: collected.results.into_iter().filter_map(ended).collect(),
            pending: collected.pending,
        })
    }

    /// For what has no method here: a conversation of its own.
    ///
    /// # Errors
    /// When nobody can serve us.
    pub async fn client(&self) -> Result<Client, ClientError> {
        while let Some(mut client) = self.kept().pop() {
            // The daemon may have left since.
            if client.is_quiet() {
                return Ok(client);
            }
        }
        Client::connect_or_oneshot(self.options.clone()).await
    }

    /// A conversation in which nothing is outstanding is there for the next turn; a run without a
    /// daemon is over with its one.
    pub(crate) async fn keep(&self, client: Client) {
        if client.is_alone() {
            client.close().await;
            return;
        }
        let mut kept = self.kept();
        if kept.len() < MOST_KEPT {
            kept.push(client);
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One conversation with an agent, by its name.
#[derive(Clone, Debug)]
pub struct Session<'a> {
    agentd: &'a Agentd,
    name: String,
}

impl<'a> Session<'a> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its next turn.
    pub fn turn(&self, text: impl Into<String>) -> Turn<'a> {
        self.agentd.turn(text).session(&self.name)
    }

    /// Ends it: its name is free then.
    ///
    /// # Errors
    /// `session-busy` while a turn of it isn't over.
    pub async fn close(self) -> Result<(), RequestError> {
        let mut client = self.agentd.client().await?;
        client.session_close(&self.name).await?;
        self.agentd.keep(client).await;
        Ok(())
    }
}

/// Runs one turn: [`Agentd::connect`], [`Agentd::turn`] and [`Turn::run`].
///
/// # Errors
/// As these.
pub async fn run_session(text: impl Into<String>) -> Result<TurnResult, TurnError> {
    Agentd::connect().await?.turn(text).run().await
}
