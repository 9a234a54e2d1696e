//! What the writer does when its files are not those any more that their names lead to: somebody
//! took them away, or put others there.
//!
//! Owns the copy that is made of what is still open. Must not know how that is told.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use agentd_core::Event;
use agentd_protocol::Code;

use crate::store::loss::{EPOCH, Loss, RESCUED};
use crate::store::{Role, backup, losses, schema};

use super::Writer;

/// The copy of a store whose file is another one's now.
#[derive(Default)]
pub(super) struct Rescue {
    /// Where it is, once there was a need for it.
    copy: Option<PathBuf>,
    /// Is everything in it?
    is_whole: bool,
    /// What the next start is told, should the files not come back.
    noted: Option<Loss>,
}

impl Rescue {
    /// More was written.
    pub(super) const fn lacks_some(&mut self) {
        self.is_whole = false;
    }
}

impl Writer {
    /// Something has changed where the files are.
    pub(super) fn look(&mut self) {
        if self.trouble.is_none() && self.is_displaced() {
            self.rescue();
        }
        if let (Role::Daemon, Some(conn), None) = (self.config.role, &mut self.conn, &self.trouble)
        {
            losses::settle(conn, &self.config.path);
        }
        match losses::of(&self.config.path) {
            Ok(losses) if losses != self.losses => {
                self.losses.clone_from(&losses);
                (self.config.answer)(Event::StoreLosses { losses }.into());
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "what was lost of the store can't be read"),
        }
    }

    /// Are the files others? Then new work is refused, and what must be written goes on into those
    /// that are open, of which a copy is kept beside them.
    pub(super) fn is_displaced(&mut self) -> bool {
        // A one-shot has the files for one turn, and a copy would cost it more than that.
        if self.config.role != Role::Daemon {
            return false;
        }
        let Err(displaced) = self.guard.look(self.conn.is_some()) else {
            // From now on more is written than is in a copy that was made before.
            self.rescue.lacks_some();
            if let Some(back) = self.rescue.noted.take() {
                losses::forget(&self.config.path, &back);
            }
            return false;
        };
        let kept = self.rescue.copy.as_ref().filter(|_| self.rescue.is_whole);
        let why = match kept {
            Some(copy) => format!("{displaced}; what it held is in `{}`", copy.display()),
            None => displaced.to_string(),
        };
        self.note(Code::StoreFailed, why);
        self.refuse_new_work();
        true
    }

    /// Whatever is found there the next time, it isn't what was here.
    fn note_the_copy(&mut self) {
        let (Some(conn), Some(copy)) = (&self.conn, &self.rescue.copy) else {
            return;
        };
        let epoch = conn.query_row(EPOCH, [], |row| row.get(0));
        let loss = Loss::Gone {
            epoch: epoch.unwrap_or_default(),
            rescued: Some(copy.clone()),
        };
        losses::note(&self.config.path, &loss);
        self.rescue.noted = Some(loss);
    }

    /// Copies what is in the files that are open, if that has changed.
    pub(super) fn rescue(&mut self) {
        let (Some(conn), false) = (&self.conn, self.rescue.is_whole) else {
            return;
        };
        let path = &self.config.path;
        let new = || schema::free_name(path, RESCUED);
        let copy = self.rescue.copy.get_or_insert_with(new);
        let made = room_for(copy).and_then(|()| {
            // Under another name until it is whole: half a copy must not look like one.
            let partial = schema::beside(copy, ".new");
            backup::write_same(conn, &partial)?;
            fs::rename(&partial, &*copy).map_err(|error| error.to_string())
        });
        let copy = copy.display();
        match made {
            Ok(()) => {
                tracing::warn!(%copy, "what the store held is copied");
                self.rescue.is_whole = true;
                self.note_the_copy();
            }
            Err(why) => tracing::error!(%copy, why, "what the store holds can't be copied"),
        }
    }
}

/// The directory may have been taken away with the files.
fn room_for(copy: &Path) -> Result<(), String> {
    let Some(dir) = copy.parent() else {
        return Ok(());
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| error.to_string())
}
