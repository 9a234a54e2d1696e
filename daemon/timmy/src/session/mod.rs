//! A conversation: what was said, what it is said on the ground of, and where it is kept.
//!
//! Owns the history of one session in memory. Must not know models' wires, nor how it is stored.

pub(crate) mod compaction;
pub(crate) mod context;
pub(crate) mod files;
pub(crate) mod history;
mod lock;
pub(crate) mod rows;
mod schema;
pub(crate) mod skill;
pub(crate) mod store;

use crate::message::Message;
use history::History;
use store::{Kept, StoreError};

use crate::tool::anchor::Led;

/// A session that is open here, and nowhere else.
pub(crate) struct Session {
    /// Where it is kept; one that isn't ends with its process.
    kept: Option<Kept>,
    /// What was said.
    history: History,
    /// What a model is told before anything else.
    basis: Basis,
}

/// What a session was begun with: it stays the same while the session lives.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Basis {
    /// The system prompt; empty as long as no model was asked.
    pub(crate) system: String,
    /// Of `SOUL.md`, if there was one: SHA-256 in hexadecimal digits.
    pub(crate) soul_sha256: Option<String>,
    /// Where the names of its directories led.
    pub(crate) led: Led,
}

impl Session {
    /// One that is kept.
    pub(crate) const fn kept(kept: Kept, history: History, basis: Basis) -> Self {
        Self {
            kept: Some(kept),
            history,
            basis,
        }
    }

    /// One that is not.
    pub(crate) fn passing(basis: Basis) -> Self {
        Self {
            kept: None,
            history: History::default(),
            basis,
        }
    }

    /// What it is called by whoever keeps its name.
    pub(crate) fn native(&self) -> Option<&str> {
        self.kept.as_ref().map(Kept::native)
    }

    pub(crate) const fn history(&self) -> &History {
        &self.history
    }

    pub(crate) const fn basis(&self) -> &Basis {
        &self.basis
    }

    /// Begins it with a model, which none had before; where its directories led stays.
    ///
    /// # Errors
    /// It isn't begun.
    pub(crate) async fn begin(&mut self, basis: Basis) -> Result<(), StoreError> {
        if let Some(kept) = &self.kept {
            kept.begin(&basis).await?;
        }
        let led = std::mem::take(&mut self.basis.led);
        self.basis = Basis { led, ..basis };
        Ok(())
    }

    /// Remembers where names of directories lead that the session didn't have before.
    ///
    /// # Errors
    /// It is not remembered.
    pub(crate) async fn remember(&mut self, led: Led) -> Result<(), StoreError> {
        if led != self.basis.led {
            if let Some(kept) = &self.kept {
                kept.remember(&led).await?;
            }
            self.basis.led = led;
        }
        Ok(())
    }

    /// Adds messages; when this returns they are on the disk.
    ///
    /// # Errors
    /// Nothing was added, here or there.
    pub(crate) async fn append(&mut self, messages: Vec<Message>) -> Result<(), StoreError> {
        if let Some(kept) = &self.kept {
            // On the disk first: what memory has and the disk lacks would be answered now, and be
            // gone for the next turn.
            kept.append(self.history.next(), &messages).await?;
        }
        self.history.append(messages);
        Ok(())
    }

    /// Adds what a model said, and how many tokens the conversation has with it.
    ///
    /// # Errors
    /// Nothing was added, here or there.
    pub(crate) async fn append_counted(
        &mut self,
        message: Message,
        tokens: Option<u64>,
    ) -> Result<(), StoreError> {
        self.append(vec![message]).await?;
        if let Some(tokens) = tokens {
            self.history.count(tokens);
        }
        Ok(())
    }

    /// Puts a summary in the place of the first `cut` messages.
    ///
    /// # Errors
    /// Nothing was changed, here or there.
    pub(crate) async fn compact(&mut self, summary: String, cut: usize) -> Result<(), StoreError> {
        if let Some(kept) = &self.kept {
            kept.compact(&summary, self.history.position(cut)).await?;
        }
        self.history.compact(summary, cut);
        Ok(())
    }
}
