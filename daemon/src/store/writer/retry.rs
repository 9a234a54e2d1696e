//! What the writer does while nothing can be written: it refuses new work, answers what is only
//! read, and tries again.
//!
//! Owns what that is called. Must not know who put it right.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use agentd_core::Event;
use agentd_core::store::{Loaded, Query};
use agentd_protocol::Code;
use rusqlite::ErrorCode;

use crate::store::queue::{can_do_without, changes, refusal};
use crate::store::{Moment, StoreCommand, schema, trouble};

use super::{RETRY_WAITS, Trouble, Writer};

/// How often a store in trouble is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// What the probe of a store in trouble writes: more than fits into pages that are there already.
const PROBE_BYTES: i64 = 16 * 1024;

impl Writer {
    /// What is asked for is read although nothing can be written, unless that would change it.
    pub(super) fn look_up_in(
        &self,
        trouble: &Trouble,
        command: &StoreCommand,
        earlier: &VecDeque<StoreCommand>,
    ) -> Option<Event> {
        let StoreCommand::Load { token, query } = command else {
            return None;
        };
        let is_copy = matches!(query, Query::Backup { .. });
        if is_copy || earlier.iter().any(|earlier| changes(earlier, query)) {
            return None;
        }
        let loaded = match (&self.conn, &self.doubt) {
            (Some(conn), None) => self.config.verify.load(conn, query, &*self.config.alive),
            // The file can't be trusted until it was opened anew; who can do without an answer is
            // told so.
            _ if can_do_without(query) => Loaded::Failed(trouble.why.clone()),
            _ => return None,
        };
        let token = *token;
        Some(Event::Loaded { token, loaded })
    }

    /// Nothing was written: new jobs are refused, the rest is kept for the next try.
    pub(super) fn fail(&mut self, error: &rusqlite::Error) {
        self.note_trouble(error);
        self.refuse_new_work();
    }

    pub(super) fn refuse_new_work(&mut self) {
        let Some(trouble) = &self.trouble else { return };
        // The commands in doubt have their answers already, whichever way it goes.
        let doubtful = self.doubt.as_ref().map_or(0, |doubt| doubt.commands);
        let mut kept = VecDeque::with_capacity(self.queue.len());
        let mut answers = Vec::new();
        for (place, command) in std::mem::take(&mut self.queue).into_iter().enumerate() {
            let answer = if place < doubtful {
                None
            } else {
                let refused = refusal(&command, trouble.code, &trouble.why);
                refused.or_else(|| self.look_up_in(trouble, &command, &kept))
            };
            match answer {
                Some(answer) => answers.push(answer),
                None => kept.push_back(command),
            }
        }
        self.queue = kept;
        for answer in answers {
            (self.config.answer)(answer.into());
        }
    }

    pub(super) fn note_trouble(&mut self, error: &rusqlite::Error) {
        let code = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Code::DiskFull,
            _ => Code::StoreFailed,
        };
        let damage = self.config.verify.suspect(error);
        let words = damage.unwrap_or_else(|| trouble::words(&self.config.path, error));
        self.note(code, words);
    }

    pub(super) fn note(&mut self, code: Code, why: String) {
        // It is tried each second: only what has changed is news.
        if self.trouble.as_ref().is_none_or(|now| now.why != why) {
            tracing::error!(why, "the store can't be written");
            let trouble = Some(why.clone());
            (self.config.answer)(Event::StoreHealth { trouble }.into());
        }
        self.wait_for_others(RETRY_WAITS);
        self.trouble = Some(Trouble {
            code,
            why,
            again: Instant::now() + RETRY,
        });
    }

    pub(super) fn recover(&mut self) {
        if self.trouble.is_some() && !self.has_reserve() {
            // What room there is belongs to what was accepted before.
            if let Some(trouble) = &mut self.trouble {
                trouble.again = Instant::now() + RETRY;
            }
            return;
        }
        if self.trouble.take().is_some() {
            tracing::info!("the store can be written again");
            self.wait_for_others(schema::BUSY);
            (self.config.answer)(Event::StoreHealth { trouble: None }.into());
        }
    }

    /// Whoever has the file locked is waited for so long from now on.
    pub(super) fn wait_for_others(&self, time: Duration) {
        let set = self.conn.as_ref().map(|conn| conn.busy_timeout(time));
        if let Some(Err(error)) = set {
            tracing::warn!(%error, "how long others are waited for can't be set");
        }
    }

    /// Tries whether there is room again, when there is nothing else to try with.
    pub(super) fn probe(&mut self) -> rusqlite::Result<()> {
        let Some(conn) = &self.conn else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        (self.config.fault)(Moment::BeforeBegin, conn)?;
        let probe = conn.unchecked_transaction()?;
        probe.execute(
            "INSERT OR REPLACE INTO meta VALUES ('probe', hex(zeroblob(?1 / 2)))",
            [PROBE_BYTES],
        )?;
        // In the same transaction, so that it takes pages and leaves nothing.
        probe.execute("DELETE FROM meta WHERE key = 'probe'", [])?;
        probe.commit()
    }
}
