//! Sessions of the editor: listed, closed, and what is chosen in them.
//!
//! Owns these requests, and that the client's options are those that there are. Must not know how a
//! session is opened, nor turns.

use std::time::{Duration, Instant};

use agentd_protocol::line::Line;
use agentd_protocol::request::Abort;
use agentd_protocol::work::{Named, SessionList, SessionNew, SessionTitle, SetModel};
use agentd_protocol::{Code, Id};
use serde_json::json;

use super::failure::{self, check_directory, invalid, is_code};
use super::options::{self, Chosen, Setting};
use super::state::{Deletion, How, ListedPage, Opening, Way, What};
use super::wire::{ListSessions, OfSession, SessionInfo, SetTitle, Update};
use super::{Acp, Agents};
use crate::face::Outbox;
use crate::json_rpc::Failure;

/// A deleted session's turns have so long to end …
const DELETION: Duration = Duration::from_secs(15);
/// … and are looked at so often.
const DELETE_AGAIN: Duration = Duration::from_millis(50);
/// Sessions of a list.
const PAGE: usize = agentd_protocol::limits::MAX_PAGE;

impl Acp {
    pub(super) const fn has_agents(&self) -> bool {
        matches!(self.agents, Some(Agents::Known(_)))
    }

    /// Who can be chosen is asked once: an agent that is installed meanwhile is there for the next
    /// editor.
    pub(super) fn look_for_agents(&mut self, out: &mut Outbox) {
        if self.agents.is_none() {
            self.agents = Some(Agents::Asked);
            self.ask("agents", &json!({}), What::Agents, out);
        }
    }

    pub(super) fn have_agents(&mut self, result: Result<Line, Failure>, out: &mut Outbox) {
        let Ok(Line::Agents { agents, .. }) = result else {
            // Whoever opens the next session asks again.
            self.agents = None;
            for known in self.sessions.values_mut() {
                known
                    .opening
                    .iter_mut()
                    .for_each(|one| one.agents_late = true);
            }
            return;
        };
        let usable = agents.into_iter().filter(|row| row.usable);
        let known = usable.map(|row| row.name).collect();
        self.agents = Some(Agents::Known(known));
        for name in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.offer_agents(&name);
            self.tell_options(&name, out);
        }
    }

    /// Another agent can be chosen until a session has begun.
    pub(super) fn offer_agents(&mut self, session: &str) {
        let known = match &self.agents {
            Some(Agents::Known(known)) => known.clone(),
            Some(Agents::Asked) | None => Vec::new(),
        };
        if let Some(session) = self.sessions.get_mut(session) {
            session.offer.agents = if session.begun { Vec::new() } else { known };
        }
    }

    /// All options as they are now, to a client that knows the session as open.
    pub(super) fn tell_options(&self, session: &str, out: &mut Outbox) {
        let open = self
            .sessions
            .get(session)
            .filter(|one| one.opening.is_none());
        if let Some(open) = open {
            let config_options = open.offer.options();
            self.tell(
                session,
                &[Update::ConfigOptionUpdate { config_options }],
                out,
            );
        }
    }

    /// The session has its first turn: its agent stays.
    pub(super) fn begins(&mut self, session: &str, out: &mut Outbox) {
        let known = self.sessions.get_mut(session);
        if known.is_some_and(|one| !std::mem::replace(&mut one.begun, true)) {
            self.offer_agents(session);
            self.tell_options(session, out);
        }
    }

    pub(super) fn list_sessions(
        &mut self,
        id: &Id,
        list: ListSessions,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let after = match &list.cursor {
            None => None,
            Some(cursor) => Some(cursor.parse::<u64>().map_err(|_| {
                let shown: String = cursor.chars().take(100).collect();
                invalid(format!(
                    "`cursor` is `{shown}`, expected the `nextCursor` of a list"
                ))
            })?),
        };
        if let Some(cwd) = &list.cwd {
            check_directory("cwd", cwd)?;
        }
        let wanted = SessionList {
            cwd: list.cwd,
            newest: after.is_none(),
            limit: Some(PAGE),
            after,
            ..SessionList::default()
        };
        let page = match after {
            None => ListedPage::Newest,
            Some(_) => ListedPage::Older,
        };
        self.ask("session.list", &wanted, What::Listed(id.clone(), page), out);
        Ok(())
    }

    pub(super) fn listed(
        &mut self,
        reply: &Id,
        page: ListedPage,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let (mut rows, next) = match result {
            Ok(Line::SessionList { sessions, next, .. }) => (sessions, next),
            Ok(_) => (Vec::new(), None),
            Err(failure) => return out.refuse(reply, &failure),
        };
        let next = match page {
            ListedPage::Newest => {
                self.listed = rows.iter().map(|row| row.session.clone()).collect();
                // The newest are one page, and the others begin with the first that was made.
                (rows.len() >= PAGE).then_some(0)
            }
            ListedPage::Older => {
                rows.retain(|row| !self.listed.contains(&row.session));
                next
            }
        };
        // Of one that nobody ever spoke in nothing can be gone on with.
        let shown = rows
            .into_iter()
            .filter(|row| row.turns > 0 || self.sessions.contains_key(&row.session));
        let sessions: Vec<SessionInfo> = shown
            .map(|row| SessionInfo {
                session_id: row.session,
                cwd: row.cwd,
                title: Some(row.title).filter(|title| !title.is_empty()),
                updated_at: row.last_active_at,
            })
            .collect();
        let mut result = json!({"sessions": sessions});
        if let Some(next) = next {
            result["nextCursor"] = json!(next.to_string());
        }
        out.answer(reply, &result);
    }

    /// The work is ended, and the session can be opened again: its process leaves when it has been idle.
    pub(super) fn close_session(
        &mut self,
        id: &Id,
        of: &OfSession,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let session = &of.session_id;
        if !self.sessions.contains_key(session) {
            if agentd_protocol::request::check_session(session).is_err() {
                return Err(failure::unknown_session(session));
            }
            let (reply, session) = (id.clone(), session.clone());
            self.look(&session.clone(), What::Closing { reply, session }, out);
            return Ok(());
        }
        self.cancel(session, None, out);
        if let Some(opening) = self
            .sessions
            .remove(session)
            .and_then(|known| known.opening)
        {
            out.refuse(&opening.reply, &invalid("the session was closed meanwhile"));
        }
        out.answer(id, &json!({}));
        Ok(())
    }

    /// One that isn't open here: nothing has to be done for it, if there is one.
    pub(super) fn closing(
        reply: &Id,
        session: &str,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let failure = match result {
            Ok(Line::SessionList { sessions, .. }) if !sessions.is_empty() => {
                return out.answer(reply, &json!({}));
            }
            Ok(_) => failure::unknown_session(session),
            Err(failure) => failure,
        };
        out.refuse(reply, &failure);
    }

    /// It leaves the list, and its turns end, whoever sent them; what was said in it stays with the daemon.
    pub(super) fn delete_session(
        &mut self,
        id: &Id,
        of: OfSession,
        now: Instant,
        out: &mut Outbox,
    ) {
        let session = of.session_id;
        self.cancel(&session, None, out);
        let abort = Abort {
            session: Some(session.clone()),
            queued: true,
            ..Abort::default()
        };
        self.ask("abort", &abort, What::Nobody, out);
        let deletion = Deletion {
            reply: id.clone(),
            session,
            until: now + DELETION,
        };
        self.close_deleted(deletion, out);
    }

    fn close_deleted(&mut self, deletion: Deletion, out: &mut Outbox) {
        let named = Named {
            session: deletion.session.clone(),
        };
        self.ask("session.close", &named, What::Deleted(deletion), out);
    }

    /// A turn takes a moment to end: until then its session can't be closed.
    pub(super) fn deleted(
        &mut self,
        deletion: Deletion,
        result: Result<Line, Failure>,
        now: Instant,
        out: &mut Outbox,
    ) {
        match result {
            Err(failure) if is_code(&failure, Code::SessionBusy) && now < deletion.until => {
                self.deletions.push((now + DELETE_AGAIN, deletion));
            }
            Err(failure) => out.refuse(&deletion.reply, &failure),
            Ok(_) => {
                self.sessions.remove(&deletion.session);
                out.answer(&deletion.reply, &json!({}));
            }
        }
    }

    /// Sessions whose turns may have ended by now.
    pub(super) fn delete_again(&mut self, now: Instant, out: &mut Outbox) {
        let due = self.deletions.extract_if(.., |(at, _)| *at <= now);
        for (_, deletion) in due.collect::<Vec<_>>() {
            self.close_deleted(deletion, out);
        }
    }

    /// What people call it, in every list.
    pub(super) fn title_session(
        &mut self,
        id: &Id,
        set: SetTitle,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let session = set.session_id;
        if agentd_protocol::request::check_session(&session).is_err() {
            return Err(failure::unknown_session(&session));
        }
        let title = SessionTitle {
            session,
            title: Some(set.title),
        };
        self.ask("session.title", &title, What::Done(id.clone()), out);
        Ok(())
    }

    /// A client chooses a value of an option.
    pub(super) fn choose(
        &mut self,
        id: &Id,
        session: &str,
        (option, wanted): (&str, &str),
        way: Way,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let known = self.sessions.get_mut(session);
        let known = known.ok_or_else(|| failure::unknown_session(session))?;
        if known.opening.is_some() {
            return Err(invalid(format!("the session `{session}` is being opened")));
        }
        let current = known.offer.agent.clone();
        if let (options::AGENT, true, Some(current)) = (option, known.begun, &current)
            && current != wanted
        {
            return Err(invalid(format!(
                "the session was begun with the agent `{current}`: another one needs a new session"
            )));
        }
        match known.offer.choose(option, wanted)? {
            Chosen::Same => self.say_chosen(session, id, way, out),
            Chosen::Agent(agent) => {
                known.opening = Some(Opening::new(id.clone(), How::Agent(way), now));
                let session = session.to_owned();
                let named = Named {
                    session: session.clone(),
                };
                // Its name is free when the answer comes, and not before.
                self.ask(
                    "session.close",
                    &named,
                    What::Unmade { session, agent },
                    out,
                );
            }
            Chosen::Setting(setting) => {
                let set = set_model(session, setting);
                let what = What::Set {
                    session: session.to_owned(),
                    reply: id.clone(),
                    way,
                };
                self.ask("set_model", &set, what, out);
            }
        }
        Ok(())
    }

    pub(super) fn unmade(
        &mut self,
        session: &str,
        agent: String,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let Some(known) = self.sessions.get(session) else {
            return;
        };
        match result {
            Err(failure) if !is_code(&failure, Code::UnknownSession) => {
                self.opening_failed(session, &failure, out);
            }
            // Also one that was closed already, before the connection was lost.
            Ok(_) | Err(_) => {
                let (cwd, before) = (known.cwd.clone(), known.offer.agent.clone());
                self.make_again(session.to_owned(), agent, Some(cwd), before, out);
            }
        }
    }

    fn make_again(
        &mut self,
        session: String,
        agent: String,
        cwd: Option<String>,
        before: Option<String>,
        out: &mut Outbox,
    ) {
        let known = self.sessions.get(&session);
        let mcp_servers = known.and_then(|known| known.mcp_servers.clone());
        let wanted = SessionNew {
            session: Some(session.clone()),
            agent: Some(agent),
            cwd,
            mcp_servers,
            ..SessionNew::default()
        };
        self.ask(
            "session.new",
            &wanted,
            What::Remade { session, before },
            out,
        );
    }

    /// A session without a turn was made again, with another agent.
    pub(super) fn remade(
        &mut self,
        session: &str,
        before: Option<String>,
        again: bool,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let failure = match result {
            Ok(_) => return self.made(session, again, result, out),
            Err(failure) if again && is_code(&failure, Code::SessionConflict) => {
                return self.made(session, again, Err(failure), out);
            }
            Err(failure) => failure,
        };
        self.opening_failed(session, &failure, out);
        let cwd = self.sessions.get(session).map(|known| known.cwd.clone());
        if let (Some(agent), Some(_)) = (before, &cwd) {
            // It was closed for that: the id stays good.
            self.make_again(session.to_owned(), agent, cwd, None, out);
        }
    }

    /// A setting counts, unless it was refused.
    fn takes_setting(
        &mut self,
        session: &str,
        result: Result<Line, Failure>,
    ) -> Result<(), Failure> {
        if let (
            Line::SetModel {
                provider,
                model,
                thinking,
                mode,
                ..
            },
            Some(known),
        ) = (result?, self.sessions.get_mut(session))
        {
            let setting = Setting {
                provider,
                model,
                thinking,
                mode,
            };
            known.chosen.change(&setting);
            known.offer.set(setting);
        }
        Ok(())
    }

    pub(super) fn set(
        &mut self,
        session: &str,
        reply: &Id,
        way: Way,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let done = self.takes_setting(session, result);
        // Also where it was refused: what the client shows is put right.
        self.tell_options(session, out);
        match done {
            Ok(()) => self.say_chosen(session, reply, way, out),
            Err(failure) => out.refuse(reply, &failure),
        }
    }

    /// Sets again what the client had chosen, where the session that has it now offers it.
    pub(super) fn set_again(&mut self, session: &str, out: &mut Outbox) -> bool {
        let known = self.sessions.get(session);
        let Some(setting) = known.and_then(|known| known.offer.again(&known.chosen)) else {
            return false;
        };
        let what = What::SetAgain(session.to_owned());
        self.ask("set_model", &set_model(session, setting), what, out);
        true
    }

    pub(super) fn has_set_again(
        &mut self,
        session: &str,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        // Refused, the agent's own stays, which is what is shown then.
        let _refused = self.takes_setting(session, result);
        self.has_all_models(session, out);
    }

    /// The agent works in another of its modes, by its own doing.
    pub(super) fn changes_mode(&mut self, session: &str, mode: String, out: &mut Outbox) {
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        known.offer.works_in(mode);
        if let Some(current_mode_id) = known.offer.current_mode() {
            self.tell(
                session,
                &[Update::CurrentModeUpdate { current_mode_id }],
                out,
            );
        }
        self.tell_options(session, out);
    }

    pub(super) fn say_chosen(&self, session: &str, reply: &Id, way: Way, out: &mut Outbox) {
        let answer = match (way, self.sessions.get(session)) {
            (Way::Option, Some(known)) => json!({"configOptions": known.offer.options()}),
            (Way::Option | Way::Older, _) => json!({}),
        };
        out.answer(reply, &answer);
    }

    /// What a session is called, which its first prompt says.
    pub(super) fn look_for_title(&mut self, session: &str, out: &mut Outbox) {
        let known = self.sessions.get_mut(session);
        if known.is_some_and(|one| !std::mem::replace(&mut one.titled, true)) {
            self.look(session, What::Titled(session.to_owned()), out);
        }
    }

    pub(super) fn titled(&self, session: &str, result: Result<Line, Failure>, out: &mut Outbox) {
        let Ok(Line::SessionList { sessions, .. }) = result else {
            return;
        };
        for row in sessions.into_iter().filter(|row| !row.title.is_empty()) {
            let info = Update::SessionInfoUpdate {
                title: row.title,
                updated_at: row.last_active_at,
            };
            self.tell(session, &[info], out);
        }
    }
}

fn set_model(session: &str, setting: Setting) -> SetModel {
    SetModel {
        session: session.to_owned(),
        provider: setting.provider,
        model: setting.model,
        thinking: setting.thinking,
        mode: setting.mode,
    }
}
