//! Copies of what the daemon keeps: `backup` and `export`.
//!
//! Owns the pages. Must not know files: a backup is written by the daemon, and what becomes of
//! exported rows is the caller's choice.

use agentd_protocol::answered;
use agentd_protocol::work::{Backup, Export};
use serde_json::Value;

use crate::asked::{Reply, RequestError};
use crate::client::Client;

/// A backup that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Where it is.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
}

/// Everything stored, page by page.
#[derive(Clone, Default, Debug)]
pub struct ExportPages {
    asked: Export,
    over: bool,
}

impl ExportPages {
    /// The next page; none after the last.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn next(&mut self, client: &mut Client) -> Result<Option<Vec<Value>>, RequestError> {
        if self.over {
            return Ok(None);
        }
        let taken = answered!(Export { rows, next } => (rows, next));
        let reply = client.answer_of(&self.asked, taken);
        let (rows, next) = reply.await?.value;
        self.over = next.is_none();
        self.asked.after = next;
        Ok(Some(rows))
    }
}

impl Client {
    /// Writes a copy of the store that is whole by itself, where `backup` says.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn backup(&mut self, backup: &Backup) -> Result<Reply<Copied>, RequestError> {
        let taken = answered!(Backup { path, bytes } => Copied { path, bytes });
        self.answer_of(backup, taken).await
    }

    /// Everything stored. [`ExportPages`] gives the same without holding all of it.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn export(&mut self) -> Result<Vec<Value>, RequestError> {
        let mut pages = ExportPages::default();
        let mut rows = Vec::new();
        while let Some(page) = pages.next(self).await? {
            rows.extend(page);
        }
        Ok(rows)
    }
}
