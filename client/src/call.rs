//! The beginning of a conversation with another machine.
//!
//! Owns what may be asked before it is known who answers there. Must not know how the machine is
//! called.

use serde::Serialize;

use crate::client::{Client, ClientError, Options, Server, greeting};
use crate::connection::{Greeting, LostError};
use crate::remote::Remote;
use crate::ssh::Target;

/// A conversation with another machine that has not begun. Whether there is a daemon is seen, and
/// decided on, there.
#[derive(Debug)]
pub struct Call {
    remote: Remote,
    greeting: Greeting,
    options: Options,
}

impl Call {
    /// Calls the machine, and writes `hello`.
    ///
    /// # Errors
    /// When it can't be called; nothing has happened then.
    pub async fn begin(target: &Target, options: Options) -> Result<Self, ClientError> {
        let called = Remote::call(target, &greeting(&options), options.fallback).await;
        let (remote, greeting) = called.map_err(ClientError::of_remote)?;
        Ok(Self {
            remote,
            greeting,
            options,
        })
    }

    /// Asks without waiting for the answer to `hello`, which saves a way there and back. Should
    /// none come, the outcome isn't known: only for what may be asked again.
    ///
    /// # Errors
    /// When it can't be written; part of it may have left.
    pub async fn request(&mut self, kind: &str, fields: &impl Serialize) -> Result<u64, LostError> {
        self.greeting.request(kind, fields).await
    }

    /// Waits for the answer to `hello`.
    ///
    /// # Errors
    /// When nobody serves there.
    pub async fn answered(self) -> Result<Client, ClientError> {
        let answered = self.remote.answered(self.greeting).await;
        let (remote, connection, hello) = answered.map_err(ClientError::of_remote)?;
        Ok(Client {
            connection,
            server: Server::Remote(remote),
            hello,
            options: self.options,
        })
    }
}
