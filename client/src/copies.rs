//! Copies of what the daemon keeps: `backup` and `export`.
//!
//! Owns the pages. Must not know files: a backup is written by the daemon, and what becomes of
//! exported rows is the caller's choice.

use agentd_protocol::answered;
use agentd_protocol::work::{Backup, Export};
use serde_json::Value;

use crate::asked::{Reply, RequestError};
use crate::client::Client;
use crate::pages::{PageTaken, Paged, Pages};

/// A backup that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Where it is.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
}

/// Everything stored, page by page.
pub type ExportPages = Pages<Export>;

impl Paged for Export {
    type Page = Vec<Value>;
    type Place = u64;

    fn page() -> PageTaken<Self::Page, Self::Place> {
        answered!(Export { rows, next } => (rows, next))
    }

    fn go_on(&mut self, from: Self::Place) {
        self.after = Some(from);
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
        let pages = ExportPages::default().rest(self).await?;
        Ok(pages.into_iter().flatten().collect())
    }
}
