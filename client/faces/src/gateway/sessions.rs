//! Sessions: made, listed, shown, left.
//!
//! Owns what each of their methods asks of the daemon. Must not know the lines of a turn.

use agentd_protocol::Id;
use agentd_protocol::line::Line;
use agentd_protocol::request::check_session;
use agentd_protocol::request::work::{
    Compact, Named, SessionFork, SessionList, SessionNew, SessionTitle, SetModel,
};
use agentd_protocol::rows::{SessionPhase, SessionRow};
use serde_json::{Value, json};

use super::row::{self, Lists, usage};
use super::turns::invalid;
use super::{Begun, Call, Gateway, MISSING, NOT_STORED, Session, What, event, no_session, wire};
use crate::face::Outbox;
use crate::json_rpc::Failure;

/// Sessions that are looked at for a list or a title: those used last.
const MOST: usize = 200;
/// As many as a page has.
const PAGE: usize = 500;

impl Gateway {
    pub(super) fn create(&mut self, id: &Id, create: wire::Create, out: &mut Outbox) -> Begun {
        if create.messages.as_ref().is_some_and(|all| !all.is_empty()) {
            let why = "`messages` can't begin a session here: agents keep their own past. session.branch makes a copy of one";
            return Err(invalid(why));
        }
        let name = self.name();
        let cwd = create.cwd.clone().or_else(|| self.settings.here.clone());
        let new = SessionNew {
            session: Some(name.clone()),
            agent: self.settings.agent.clone(),
            cwd,
            ..SessionNew::default()
        };
        let what = What::Made(id.clone(), Box::new(create), name);
        self.ask("session.new", &new, what, out);
        Ok(None)
    }

    /// It is there; what it was to be made with is set.
    pub(super) fn made(
        &mut self,
        (reply, create, name): (Id, Box<wire::Create>, String),
        again: bool,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let (agent, cwd) = match result {
            Ok(Line::SessionNew { agent, cwd, .. }) => (agent, cwd),
            // It was made before the connection was lost: nobody else makes that name.
            Err(_) if again => {
                let known = &self.settings;
                let cwd = create.cwd.clone().or_else(|| known.here.clone());
                (
                    known.agent.clone().unwrap_or_default(),
                    cwd.unwrap_or_default(),
                )
            }
            Ok(_) => return,
            Err(failure) => return out.refuse(&reply, &failure),
        };
        let session = Session {
            agent,
            cwd,
            is_empty: true,
            ..Session::default()
        };
        self.sessions.insert(name.clone(), session);
        let set = SetModel {
            session: name.clone(),
            provider: create.provider.clone(),
            model: create.model.clone(),
            thinking: create.reasoning_effort.clone(),
            mode: None,
        };
        if set.provider.is_some() || set.model.is_some() || set.thinking.is_some() {
            return self.ask("set_model", &set, What::MadeSet(reply, create, name), out);
        }
        self.say_made(&reply, *create, &name, out);
    }

    pub(super) fn made_set(
        &mut self,
        (reply, create, name): (Id, Box<wire::Create>, String),
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        match result {
            Ok(line) => {
                self.has_set(&name, line);
                self.say_made(&reply, *create, &name, out);
            }
            Err(failure) => {
                self.forget(&name, out);
                out.refuse(&reply, &failure);
            }
        }
    }

    fn say_made(&mut self, reply: &Id, create: wire::Create, name: &str, out: &mut Outbox) {
        if let Some(title) = create.title.filter(|title| !title.trim().is_empty()) {
            let titled = SessionTitle {
                session: name.to_owned(),
                title: Some(title),
            };
            self.ask("session.title", &titled, What::Nobody, out);
        }
        let made = json!({"session_id": name, "stored_session_id": name, "message_count": 0,
            "messages": [], "info": self.info(name)});
        out.answer(reply, &made);
        self.tell_info(name, out);
        self.learn(name, out);
    }

    /// What is shown of an agent that only it can say.
    pub(super) fn learn(&mut self, name: &str, out: &mut Outbox) {
        let whose = json!({"session": name});
        if self
            .sessions
            .get(name)
            .is_some_and(|one| one.model.is_none())
        {
            self.ask("models", &whose, What::Models(name.to_owned()), out);
        }
        self.ask("commands", &whose, What::Commands(name.to_owned()), out);
    }

    pub(super) fn list(&mut self, id: &Id, lists: Lists, limit: usize, out: &mut Outbox) -> Begun {
        let wanted = SessionList {
            newest: true,
            limit: Some(limit.clamp(1, PAGE)),
            ..SessionList::default()
        };
        self.ask(
            "session.list",
            &wanted,
            What::Listed(id.clone(), lists),
            out,
        );
        Ok(None)
    }

    pub(super) fn most(limit: Option<usize>) -> usize {
        limit.unwrap_or(MOST)
    }

    /// Looks for a session that this connection doesn't know, or for its row; then the request goes on.
    pub(super) fn look(&mut self, call: Call, session: &str, out: &mut Outbox) -> Begun {
        if check_session(session).is_err() {
            return match call.method.as_str() {
                "session.resume" => self.look_by_title(call, session, out),
                _ => Err(no_session(session)),
            };
        }
        let wanted = SessionList {
            session: Some(session.to_owned()),
            ..SessionList::default()
        };
        let what = What::Look(call, session.to_owned());
        self.ask("session.list", &wanted, what, out);
        Ok(None)
    }

    fn look_by_title(&mut self, call: Call, title: &str, out: &mut Outbox) -> Begun {
        let wanted = SessionList {
            newest: true,
            limit: Some(PAGE),
            ..SessionList::default()
        };
        let what = What::ByTitle(call, title.to_owned());
        self.ask("session.list", &wanted, what, out);
        Ok(None)
    }

    /// The request that waited for this row.
    pub(super) fn looked(
        &mut self,
        call: Call,
        wanted: &str,
        by_title: bool,
        rows: Vec<SessionRow>,
        out: &mut Outbox,
    ) {
        let is_it = |row: &SessionRow| {
            let name = if by_title { &row.title } else { &row.session };
            name == wanted && row.state != SessionPhase::Closed
        };
        let reply = call.id.clone();
        let found = rows.into_iter().find(is_it);
        let begun = match (found, call.method.as_str()) {
            (Some(row), "session.activate") => self.show(call.id, row, false, out),
            (Some(row), "session.resume") => self.show(call.id, row, true, out),
            (Some(row), "session.status") => Ok(Some(json!({"output": row::prose(&row)}))),
            (Some(row), _) => {
                let name = row.session.clone();
                self.sessions
                    .entry(name.clone())
                    .or_insert_with(|| Session::of(&row));
                self.learn(&name, out);
                return self.call(call, out);
            }
            (None, "session.resume") if !by_title => self.look_by_title(call, wanted, out),
            (None, "session.resume") => Err(Failure {
                code: NOT_STORED,
                ..no_session(wanted)
            }),
            (None, "session.close") => Ok(Some(json!({"closed": false}))),
            (None, _) => Err(no_session(wanted)),
        };
        match begun {
            Ok(Some(result)) => out.answer(&reply, &result),
            Ok(None) => {}
            Err(failure) => out.refuse(&reply, &failure),
        }
    }

    /// What it is called, or is to be.
    pub(super) fn title(
        &mut self,
        id: &Id,
        session: &str,
        title: Option<String>,
        out: &mut Outbox,
    ) -> Begun {
        let Some(title) = title else {
            let wanted = SessionList {
                session: Some(session.to_owned()),
                ..SessionList::default()
            };
            let what = What::Title(id.clone(), session.to_owned());
            self.ask("session.list", &wanted, what, out);
            return Ok(None);
        };
        if title.trim().is_empty() {
            let why = "`title` is empty: expected what to call the session";
            return Err(Failure::new(4021, why));
        }
        let titled = SessionTitle {
            session: session.to_owned(),
            title: Some(title.clone()),
        };
        self.ask(
            "session.title",
            &titled,
            What::Titled(id.clone(), title),
            out,
        );
        Ok(None)
    }

    pub(super) fn branch(
        &mut self,
        id: &Id,
        session: &str,
        name: Option<String>,
        out: &mut Outbox,
    ) -> Begun {
        let to = self.name();
        let fork = SessionFork {
            session: session.to_owned(),
            to: Some(to),
        };
        let name = name.filter(|name| !name.trim().is_empty());
        let what = What::Branched(id.clone(), session.to_owned(), name);
        self.ask("session.fork", &fork, what, out);
        Ok(None)
    }

    pub(super) fn branched(
        &mut self,
        reply: &Id,
        (parent, title): (String, Option<String>),
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let (name, agent, cwd) = match result {
            Ok(Line::SessionFork {
                session,
                agent,
                cwd,
                ..
            }) => (session, agent, cwd),
            Ok(_) => return,
            Err(failure) => return out.refuse(reply, &failure),
        };
        let before = self.sessions.get(&parent);
        let of = |field: fn(&Session) -> Option<String>| before.and_then(field);
        let mut session = Session {
            agent,
            cwd,
            provider: of(|one| one.provider.clone()),
            model: of(|one| one.model.clone()),
            thinking: of(|one| one.thinking.clone()),
            title: of(|one| Some(one.title.clone())).unwrap_or_default(),
            // Its past is another's: it isn't thrown away.
            is_empty: false,
            ..Session::default()
        };
        if let Some(title) = title {
            session.title.clone_from(&title);
            let titled = SessionTitle {
                session: name.clone(),
                title: Some(title),
            };
            self.ask("session.title", &titled, What::Nobody, out);
        }
        let branched = json!({"session_id": name, "title": session.title, "parent": parent});
        self.sessions.insert(name.clone(), session);
        out.answer(reply, &branched);
        self.tell_info(&name, out);
        self.learn(&name, out);
    }

    pub(super) fn compress(
        &mut self,
        id: &Id,
        session: &str,
        topic: Option<String>,
        out: &mut Outbox,
    ) -> Begun {
        let compact = Compact {
            session: Some(session.to_owned()),
            instructions: topic,
        };
        let note = json!({"kind": "compressing", "text": "the agent shortens what it remembers …"});
        event("status.update", Some(session), Some(&note), out);
        let what = What::Compressed(id.clone(), session.to_owned());
        self.ask("compact", &compact, what, out);
        Ok(None)
    }

    pub(super) fn compressed(
        &self,
        reply: &Id,
        session: &str,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let ready = json!({"kind": "status", "text": "ready"});
        event("status.update", Some(session), Some(&ready), out);
        match result {
            Ok(Line::Compact { summary, .. }) => {
                let headline = "the agent has shortened what it remembers";
                let mut done = json!({"status": "compressed", "removed": 0, "info": self.info(session),
                    "summary": {"headline": headline, "note": summary, "noop": false}});
                if let Some(known) = self.sessions.get(session) {
                    done["usage"] = usage(known);
                }
                out.answer(reply, &done);
            }
            Ok(_) => {}
            Err(failure) => out.refuse(reply, &failure),
        }
    }

    /// The client shows it no more: what it asked for in it ends, and what was said stays, to be
    /// resumed.
    pub(super) fn close(&mut self, session: &str, out: &mut Outbox) -> Value {
        self.abort_own(session, out);
        self.forget(session, out);
        json!({"closed": true})
    }

    /// One that nobody spoke in is no session to come back to.
    fn forget(&mut self, name: &str, out: &mut Outbox) {
        let is_asked = self
            .asked
            .values()
            .any(|asked| matches!(&asked.what, What::Prompt(_, session, _) if session == name));
        let known = self.sessions.remove(name);
        if known.is_some_and(|known| known.is_empty) && !is_asked {
            let named = Named {
                session: name.to_owned(),
            };
            self.ask("session.close", &named, What::Nobody, out);
        }
    }

    /// The client is gone.
    pub(super) fn leave(&mut self, out: &mut Outbox) {
        for name in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.forget(&name, out);
        }
    }

    pub(super) fn delete(&mut self, id: &Id, session: Option<String>, out: &mut Outbox) -> Begun {
        let Some(session) = session.filter(|name| !name.is_empty()) else {
            return Err(Failure::new(MISSING, "`session_id` is needed"));
        };
        if check_session(&session).is_err() {
            return Err(Failure {
                code: NOT_STORED,
                ..no_session(&session)
            });
        }
        let named = Named {
            session: session.clone(),
        };
        self.ask(
            "session.close",
            &named,
            What::Deleted(id.clone(), session),
            out,
        );
        Ok(None)
    }
}
