//! Conversations with the daemon: one for each request that is under way, kept for the next one.
//!
//! Owns how many stay open. Must not know what is said in them. There is no fallback behind HTTP: a
//! run without the daemon would be this server's child, and end with it.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use agentd_client::Agentd;
use agentd_client::client::{Attended, Client, ClientError, Options};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::Fallback;
use agentd_client::oneshot::Asks;
use agentd_client::places::Environment;

/// What the daemon's log and `status` call us.
pub(crate) const NAME: &str = "agentd-http";
/// Conversations that wait for a request: as many as usually ask at once.
const IDLE: usize = 64;

/// The daemon of this machine.
pub(crate) struct Daemon {
    /// For turns, over restarts of it.
    pub(crate) agentd: Agentd,
    options: Options,
    idle: Mutex<Vec<Client>>,
}

/// A conversation, given back with [`Lease::done`] when it can be used again.
pub(crate) struct Lease<'a> {
    daemon: &'a Daemon,
    client: Client,
}

impl Daemon {
    pub(crate) fn new(socket: Option<PathBuf>) -> Self {
        let options = Options {
            socket,
            fallback: Fallback::Forbidden,
            name: NAME.to_owned(),
            attended: Attended::No,
            asks: Asks::Anything,
        };
        Self {
            agentd: Agentd::of(options.clone()),
            options,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Where it is now.
    pub(crate) fn endpoint(&self) -> LocalEndpoint {
        LocalEndpoint::find(self.options.socket.as_deref(), &Environment::of_process())
    }

    /// A conversation that nobody else uses.
    pub(crate) async fn lease(&self) -> Result<Lease<'_>, ClientError> {
        let client = match self.waiting() {
            Some(client) => client,
            None => self.connect().await?,
        };
        let daemon = self;
        Ok(Lease { daemon, client })
    }

    /// A new conversation.
    pub(crate) async fn connect(&self) -> Result<Client, ClientError> {
        Client::connect_or_oneshot(self.options.clone()).await
    }

    fn waiting(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(mut client) = idle.pop() {
            // The daemon may have left since.
            if client.is_quiet() {
                return Some(client);
            }
        }
        None
    }
}

impl Lease<'_> {
    /// Everything asked was answered.
    pub(crate) fn done(self) {
        let Self { daemon, client } = self;
        let mut idle = daemon.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(client);
        }
    }
}

impl Deref for Lease<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}
