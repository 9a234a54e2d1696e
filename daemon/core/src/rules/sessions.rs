//! Sessions by themselves: made without a turn, closed, their held turns released.
//!
//! Owns what each needs of the session and what the commit's answer means. Must not know turns
//! beyond "is there one?".

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Line, SessionChange, SessionChanged};
use agentd_protocol::request::{Decoded, Send};
use agentd_protocol::work::{Named, SessionNew, SessionTitle};
use agentd_protocol::{Code, Id, JobId, Request};

use crate::effect::StopStage;
use crate::event::RequestContext;
use crate::ids::{ConnId, SessionId};
use crate::jobs::job::Phase;
use crate::json;
use crate::mcp::McpServers;
use crate::outbox::awaiting::{Awaiting, Changed};
use crate::outbox::timers::Timer;
use crate::rare::Rare;
use crate::rules::session_news::{changed, of_model};
use crate::sessions::directory;
use crate::sessions::session::{Repinning, Session};
use crate::state::State;
use crate::store::{NewSession, Pins, Stored, Write, Written};

impl State {
    /// The session of a request, once the store has said what it knows of it: `None` while it is
    /// asked; then the request comes again, unless there is no such session.
    pub(crate) fn known_session(
        &mut self,
        name: &str,
        conn: ConnId,
        id: &Option<Id>,
        request: Request,
        facts: &RequestContext,
    ) -> Option<SessionId> {
        if let Some(session) = self.sessions.named(name) {
            return Some(session);
        }
        let decoded = Decoded {
            request,
            ignored: Vec::new(),
        };
        self.park_until_loaded(
            name.to_owned(),
            vec![name.to_owned()],
            conn,
            id.clone(),
            decoded,
            facts,
        );
        None
    }

    pub(crate) fn session_new(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        new: SessionNew,
        facts: &RequestContext,
    ) {
        if let Some(loading) = (new.session.as_ref()).and_then(|name| self.sessions.asked_for(name))
        {
            // Whoever asked first may make it.
            return self.wait_for_loading(&loading, conn, id, Request::SessionNew(new), facts);
        }
        match self.new_session(&new, facts) {
            Ok(made) => {
                let changed = Changed::New {
                    agent: made.agent.clone(),
                    cwd: made.cwd.clone(),
                };
                self.outbox.commit(
                    Awaiting::Changed { conn, id, changed },
                    vec![Write::Open(Box::new(made))],
                );
            }
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    fn new_session(
        &mut self,
        new: &SessionNew,
        facts: &RequestContext,
    ) -> Result<NewSession, Rejected> {
        if self.mode.is_stopping() {
            return Err(self.stopping());
        }
        directory::is_there("cwd", new.cwd.as_ref(), facts)?;
        if let Some(name) = new
            .session
            .as_ref()
            .filter(|name| self.sessions.knows(name))
        {
            return Err(exists(name));
        }
        let agent = match &new.agent {
            Some(agent) => agent.clone(),
            None => self.default_agent(None, None)?,
        };
        let like = Send {
            toolsets: new.toolsets.clone(),
            mcp_servers: new.mcp_servers.clone(),
            ..Send::default()
        };
        self.may_bring_servers(&like, facts)?;
        self.usable(&agent, None, &like)?;
        let cwd = new.cwd.as_ref().unwrap_or(&self.settings.home).clone();
        Ok(NewSession {
            name: new.session.clone(),
            agent,
            real_cwd: directory::real(&cwd, facts),
            cwd,
            toolsets: new.toolsets.as_ref().map(json::text),
            system: new.system.clone(),
            mcp_servers: McpServers::of(new.mcp_servers.as_deref().unwrap_or_default()),
            fork: None,
            at: self.now.wall_ms,
        })
    }

    pub(crate) fn session_close(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        named: Named,
        facts: &RequestContext,
    ) {
        let again = Request::SessionClose(named.clone());
        let Some(session) = self.known_session(&named.session, conn, &id, again, facts) else {
            return;
        };
        if let Err(rejected) = self.not_closing(session) {
            return self.refuse(conn, id, rejected);
        }
        let unfinished = self.sessions.get(&session).map_or(0, |known| known.jobs);
        // What is forgotten with a session must have been told to its end.
        if unfinished > 0 {
            let error = format!(
                "the session `{}` has {}",
                named.session,
                unfinished_turns(unfinished)
            );
            let rejected = Rejected::new(Code::SessionBusy, error)
                .hint("abort them first: `abort` with `session` and `queued`");
            return self.refuse(conn, id, rejected);
        }
        if let Some(known) = found!(self.sessions.get_mut(session)) {
            // It takes no turns, and stays in memory, until the store has answered.
            known.closing = true;
        }
        let close = Write::Close {
            session: named.session.clone(),
        };
        let changed = Changed::Closed {
            session: named.session,
        };
        self.outbox
            .commit(Awaiting::Changed { conn, id, changed }, vec![close]);
    }

    /// What can be said against changing a session that is being forgotten.
    pub(crate) fn not_closing(&self, session: SessionId) -> Result<(), Rejected> {
        let closing = self.sessions.get(&session).filter(|known| known.closing);
        closing.map_or(Ok(()), |known| Err(is_leaving(known)))
    }

    /// A session that was to be forgotten, or to get another name, keeps both.
    pub(crate) fn takes_turns_again(&mut self, session: SessionId) {
        if let Some(known) = found!(self.sessions.get_mut(session)) {
            known.closing = false;
        }
        self.forget_session_if_idle(session);
    }

    pub(crate) fn session_title(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        named: SessionTitle,
        facts: &RequestContext,
    ) {
        let again = Request::SessionTitle(named.clone());
        let Some(session) = self.known_session(&named.session, conn, &id, again, facts) else {
            return;
        };
        // Only the store knows titles.
        self.forget_session_if_idle(session);
        let SessionTitle { session, title } = named;
        let write = Write::Title {
            session: session.clone(),
            title: title.clone(),
        };
        let changed = Changed::Titled { session, title };
        self.outbox
            .commit(Awaiting::Changed { conn, id, changed }, vec![write]);
    }

    pub(crate) fn session_resume(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        named: Named,
        facts: &RequestContext,
    ) {
        let again = Request::SessionResume(named.clone());
        let Some(known) = self.known_session(&named.session, conn, &id, again, facts) else {
            return;
        };
        let queue = self.sessions.get(&known).map(|session| &session.queue);
        let held = queue.into_iter().flatten().filter_map(|turn| {
            let job = self.jobs.get(turn)?;
            job.number.filter(|_| job.phase == Phase::Held)
        });
        let jobs: Vec<JobId> = held.collect();
        let release = |job: &JobId| Write::Hold {
            job: *job,
            held: false,
        };
        let writes: Vec<Write> = jobs.iter().map(release).collect();
        let session = named.session;
        if writes.is_empty() {
            let line = Line::SessionResume {
                ok: true,
                session,
                jobs,
            };
            self.answer(conn, id, &line);
            // It was only looked at.
            return self.forget_session_if_idle(known);
        }
        let changed = Changed::Resumed { session, jobs };
        self.outbox
            .commit(Awaiting::Changed { conn, id, changed }, writes);
    }

    pub(crate) fn session_changed(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        changed: Changed,
        stored: Stored,
    ) {
        if let Changed::Model { session, .. } = &changed
            && let Some(session) = self.sessions.named(session)
        {
            self.sessions.settles(session, Repinning::SetModel);
        }
        let written = match stored {
            Stored::Committed(written) => written,
            refused => return self.change_refused(conn, id, &changed, refused),
        };
        let line = match changed {
            Changed::New { agent, cwd } => Line::SessionNew {
                ok: true,
                session: opened(written.first()).unwrap_or_default(),
                agent,
                cwd,
            },
            Changed::Forked { from, agent, cwd } => Line::SessionFork {
                ok: true,
                session: opened(written.first()).unwrap_or_default(),
                from,
                agent,
                cwd,
            },
            Changed::Renamed { session, was } => {
                return self.has_other_name((conn, id), session, was, written);
            }
            Changed::Closed { session } => {
                self.forget_closed(&session);
                Line::SessionClose {
                    ok: true,
                    session,
                    closed_as: opened(written.first()),
                }
            }
            Changed::Resumed { session, jobs } => {
                for job in &jobs {
                    self.release(*job);
                }
                Line::SessionResume {
                    ok: true,
                    session,
                    jobs,
                }
            }
            // It was closed meanwhile, or never accepted.
            Changed::Titled { session, .. } if opened(written.first()).is_none() => {
                return self.refuse(conn, id, crate::rules::queries::unknown_session(&session));
            }
            Changed::Titled { session, title } => Line::SessionTitle {
                ok: true,
                session,
                title,
            },
            Changed::Model { session, pins } => {
                // It may have left memory: whoever loads it finds them in the store.
                if let Some(session) = self.sessions.named(&session) {
                    if let Some(known) = found!(self.sessions.get_mut(session)) {
                        known.pins = pins.clone().into();
                        // With the old ones it may have been broken.
                        known.health = Rare::default();
                    }
                    self.forget_session_if_idle(session);
                }
                Line::SetModel {
                    ok: true,
                    session,
                    provider: pins.provider,
                    model: pins.model,
                    thinking: pins.thinking,
                    mode: pins.mode,
                }
            }
        };
        self.tell_changed(&line);
        self.answer(conn, id, &line);
    }

    /// What the answer to a change says to who asked, others hear as well, and before.
    pub(crate) fn tell_changed(&mut self, line: &Line) {
        let made = |agent: &String, cwd: &String| SessionChanged {
            agent: Some(agent.clone()),
            cwd: Some(cwd.clone()),
            ..changed(SessionChange::Made)
        };
        let (session, change) = match line {
            Line::SessionNew {
                session,
                agent,
                cwd,
                ..
            } => (session, made(agent, cwd)),
            Line::SessionFork {
                session,
                from,
                agent,
                cwd,
                ..
            } => {
                let from = Some(from.clone());
                (
                    session,
                    SessionChanged {
                        from,
                        ..made(agent, cwd)
                    },
                )
            }
            Line::SessionTitle { session, title, .. } => {
                let title = title.clone();
                (
                    session,
                    SessionChanged {
                        title,
                        ..changed(SessionChange::Titled)
                    },
                )
            }
            Line::SessionRename { session, was, .. } => {
                let was = Some(was.clone());
                (
                    session,
                    SessionChanged {
                        was,
                        ..changed(SessionChange::Renamed)
                    },
                )
            }
            Line::SessionClose { session, .. } => (session, changed(SessionChange::Closed)),
            Line::SetModel {
                session,
                provider,
                model,
                thinking,
                mode,
                ..
            } => {
                let pins = Pins {
                    provider: provider.clone(),
                    model: model.clone(),
                    thinking: thinking.clone(),
                    mode: mode.clone(),
                };
                (session, of_model(&pins))
            }
            _ => return,
        };
        self.session_is(session, change);
    }

    fn change_refused(&mut self, conn: ConnId, id: Option<Id>, changed: &Changed, refused: Stored) {
        let rejected = match (refused, changed) {
            (
                Stored::Taken,
                Changed::New { .. } | Changed::Forked { .. } | Changed::Renamed { .. },
            ) => {
                Rejected::new(Code::SessionConflict, "a session of this name exists").hint(ANOTHER)
            }
            (Stored::Taken, _) => {
                Rejected::new(Code::SessionBusy, "the session has unfinished turns")
            }
            (Stored::Leased { pid, .. }, _) => Rejected::new(
                Code::SessionBusy,
                format!("the session is open in another agentd process (pid {pid})"),
            ),
            (Stored::Failed { code, why }, _) => {
                Rejected::new(code, format!("the store can't take it: {why}"))
            }
            _ => Rejected::new(Code::StoreFailed, "the store can't take it now; ask again"),
        };
        let kept = match changed {
            Changed::Closed { session } => self.sessions.named(session),
            Changed::Renamed { session, .. } => Some(*session),
            Changed::Model { session, .. } => {
                if let Some(session) = self.sessions.named(session) {
                    self.forget_session_if_idle(session);
                }
                None
            }
            Changed::New { .. }
            | Changed::Forked { .. }
            | Changed::Titled { .. }
            | Changed::Resumed { .. } => None,
        };
        if let Some(session) = kept {
            // The store kept it, so it goes on as before.
            self.takes_turns_again(session);
        }
        self.refuse(conn, id, rejected);
    }

    /// A turn that was held waits like others.
    fn release(&mut self, job: JobId) {
        // It may have ended while the store was asked.
        let turn = self.jobs.numbered(job);
        if let Some(job) = turn.and_then(|turn| self.jobs.get_mut(&turn))
            && job.phase == Phase::Held
        {
            job.phase = Phase::Queued;
        }
    }

    /// A closed session leaves memory, and its process ends.
    fn forget_closed(&mut self, name: &str) {
        // One that is being closed doesn't leave memory before.
        let Some(session) = self.sessions.named(name) else {
            return;
        };
        self.outbox.clear(Timer::Unused(session));
        let slot = self.sessions.remove(session).and_then(|known| known.slot);
        let Some(worker) = slot else { return };
        let slot = expected!(self.pool.get_mut(worker));
        slot.lets_go(session);
        if slot.one_session && slot.turns.is_empty() {
            // It serves that session alone, and nobody can name it any more.
            slot.retiring = true;
            self.stop_slot(worker, StopStage::Ask);
        }
    }
}

/// The refusal of what comes while a session is being closed or renamed.
pub(crate) fn is_leaving(session: &Session) -> Rejected {
    let name = session.shown();
    let error = format!("the session `{name}` is being closed or renamed");
    Rejected::new(Code::SessionBusy, error)
}

/// The name that the store says a session has.
fn opened(written: Option<&Written>) -> Option<String> {
    match written {
        Some(Written::Opened { session }) => Some(session.clone()),
        _ => None,
    }
}

/// So many turns, for people.
pub(crate) fn unfinished_turns(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} unfinished turn{plural}")
}

const ANOTHER: &str = "send to it, or choose another name";

pub(crate) fn exists(name: &str) -> Rejected {
    let error = format!("the session `{name}` exists");
    Rejected::new(Code::SessionConflict, error).hint(ANOTHER)
}
