//! `session.rename`: another name for a session that has nothing to do.
//!
//! Owns when it may have one, and what it waits for: its process knows it by its old name, and ends
//! first. In memory no name changes: the session leaves it with the commit, and is loaded under its
//! new name. Must not know names beyond whether they are taken.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::work::SessionRename;
use agentd_protocol::{Code, Id, Request};

use crate::effect::StopStage;
use crate::event::RequestContext;
use crate::ids::{ConnId, SessionId};
use crate::outbox::awaiting::{Awaiting, Changed};
use crate::outbox::timers::Timer;
use crate::rules::queries::unknown_session;
use crate::rules::sessions::{exists, unfinished_turns};
use crate::sessions::Renaming;
use crate::state::State;
use crate::store::{Write, Written};

/// Of a name that is taken.
const FREE_NAME: &str = "choose a name that no session has";

impl State {
    pub(crate) fn session_rename(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        rename: SessionRename,
        facts: &RequestContext,
    ) {
        let again = Request::SessionRename(rename.clone());
        let Some(session) = self.known_session(&rename.session, conn, &id, again, facts) else {
            return;
        };
        if let Err(rejected) = self.can_rename(session, &rename) {
            self.refuse(conn, id, rejected);
            // It was only looked at.
            return self.forget_session_if_idle(session);
        }
        if let Some(known) = found!(self.sessions.get_mut(session)) {
            known.closing = true;
        }
        let to = rename.to;
        self.sessions
            .rename_later(session, Renaming { conn, id, to });
        self.leave_process(session);
        // The rest follows when nothing has it any more: `go_on_renaming`.
    }

    fn can_rename(&self, session: SessionId, rename: &SessionRename) -> Result<(), Rejected> {
        self.not_closing(session)?;
        if self.mode.is_stopping() {
            return Err(self.stopping());
        }
        if self.sessions.knows(&rename.to) {
            return Err(exists(&rename.to).hint(FREE_NAME));
        }
        let Some(known) = self.sessions.get(&session) else {
            return Err(unknown_session(&rename.session));
        };
        let name = &rename.session;
        if known.jobs > 0 {
            let error = format!("the session `{name}` has {}", unfinished_turns(known.jobs));
            let hint = "rename it when they have ended, or abort them: \
                        `abort` with `session` and `queued`";
            return Err(Rejected::new(Code::SessionBusy, error).hint(hint));
        }
        if known
            .slot
            .is_some_and(|worker| self.pool.is_compacting(worker))
        {
            let error = format!("the session `{name}` is being compacted");
            return Err(Rejected::new(Code::SessionBusy, error));
        }
        if known.open && known.reopened_by().is_none() && known.turns > 0 {
            let error = format!(
                "the agent `{}` remembers the session `{name}` in its process alone, which would have \
                 to end for that",
                known.agent
            );
            let hint = "`restart_worker` with the agent ends that process, and what it remembers is lost; \
                        then the session can be renamed";
            return Err(Rejected::new(Code::Unsupported, error).hint(hint));
        }
        Ok(())
    }

    /// The process of a session that is to be renamed ends, if it serves that one alone.
    fn leave_process(&mut self, session: SessionId) {
        self.outbox.clear(Timer::Unused(session));
        let slot = self.sessions.get(&session).and_then(|known| known.slot);
        let Some(worker) = slot else { return };
        let slot = expected!(self.pool.get_mut(worker));
        if slot.one_session {
            slot.retiring = true;
            self.stop_slot(worker, StopStage::Ask);
        } else {
            self.unbind(worker, session);
        }
    }

    /// Sessions that no process has any more get their new names.
    pub(crate) fn go_on_renaming(&mut self) {
        let free = self.sessions.renaming().filter(|(session, renaming)| {
            let known = self.sessions.get(session);
            // Whether there is one of the new name is being asked: that may become one.
            known.is_none_or(|known| known.slot.is_none())
                && self.sessions.asked_for(&renaming.to).is_none()
        });
        let free: Vec<SessionId> = free.map(|(session, _)| session).collect();
        for session in free {
            self.rename_now(session);
        }
    }

    fn rename_now(&mut self, session: SessionId) {
        let Some(Renaming { conn, id, to }) = self.sessions.renames_now(session) else {
            return;
        };
        let known = self.sessions.get(&session);
        let Some(was) = known.and_then(|known| known.name.clone()) else {
            return self.outbox.dangling(session);
        };
        if self.sessions.knows(&to) {
            // It was made meanwhile.
            self.refuse(conn, id, exists(&to).hint(FREE_NAME));
            return self.takes_turns_again(session);
        }
        let write = Write::Rename {
            session: was.clone(),
            to,
        };
        let changed = Changed::Renamed { session, was };
        self.outbox
            .commit(Awaiting::Changed { conn, id, changed }, vec![write]);
    }

    /// The store has the new name, or has no such session.
    pub(crate) fn has_other_name(
        &mut self,
        (conn, id): (ConnId, Option<Id>),
        session: SessionId,
        was: String,
        written: Vec<Written>,
    ) {
        let opened = written.into_iter().find_map(|written| match written {
            Written::Opened { session } => Some(session),
            _ => None,
        });
        // Whoever needs it next finds it in the store, under the name that it has there.
        self.outbox.clear(Timer::Unused(session));
        if self.sessions.remove(session).is_none() {
            self.outbox.dangling(session);
        }
        match opened {
            Some(session) => {
                let line = Line::SessionRename {
                    ok: true,
                    session,
                    was,
                };
                self.tell_changed(&line);
                self.answer(conn, id, &line);
            }
            None => self.refuse(conn, id, unknown_session(&was)),
        }
    }
}
