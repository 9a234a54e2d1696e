//! A send up to its acceptance: every way to refuse one, and the pending job.
//!
//! Owns the choice of agent and the check against the session's facts. Must not know processes
//! beyond "is one free now?".

use std::collections::BTreeSet;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::{Decoded, Ignored, Mode, Send};
use agentd_protocol::routed::AUTO;
use agentd_protocol::{Code, Id, Request, request};

use crate::event::{RequestContext, Routing};
use crate::ids::{ConnId, SessionId};
use crate::jobs::job::Waiter;
use crate::json;
use crate::limits::{
    COMMITS_OUTSTANDING, MAX_WORKERS, QUEUED_IN_ALL, QUEUED_PER_SESSION, SCHEDULED_IN_ALL,
    SENDS_PER_CONNECTION,
};
use crate::outbox::awaiting::Awaiting;
use crate::rules::accept::Placing;
use crate::rules::beginning::may_begin;
use crate::rules::budget::full;
use crate::rules::queries::unknown_session;
use crate::rules::routes::Route;
use crate::rules::sessions::is_leaving;
use crate::sessions::directory;
use crate::sessions::loading::Parked;
use crate::sessions::session::Session;
use crate::state::State;
use crate::store::{Query, SessionRow};

impl State {
    pub(crate) fn send_requested(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &RequestContext,
    ) {
        let Request::Send(send) = &decoded.request else {
            return;
        };
        let name = send.session.clone();
        if let Err(rejected) = self.room_on(conn).and_then(|()| self.room_for(send, facts)) {
            // Nobody can say now whose the key is.
            if self.store_silent {
                return self.refuse(conn, id, rejected);
            }
            // Whatever stands against new work, a key that is known is no new work.
            return self.refuse_or_replay(waiter(conn, id, &decoded.ignored, send), send, rejected);
        }
        let Some(name) = name.filter(|name| !self.sessions.knows(name)) else {
            return self.send_in(conn, id, decoded, facts);
        };
        self.park_until_loaded(name.clone(), vec![name], conn, id, decoded, facts);
    }

    /// Lets a request wait until the store has said what it knows of some sessions.
    pub(crate) fn park_until_loaded(
        &mut self,
        key: String,
        names: Vec<String>,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &RequestContext,
    ) {
        if self.park(&key, &names, conn, id, decoded, facts) {
            self.outbox
                .load(Awaiting::Sessions(key), Query::Sessions { names });
        }
    }

    /// Lets a request wait under a key, or refuses it where there is no room. Is it the first to?
    pub(crate) fn park(
        &mut self,
        key: &str,
        names: &[String],
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &RequestContext,
    ) -> bool {
        if let Err(rejected) = self.room_to_park(&decoded.request) {
            match &decoded.request {
                Request::Send(send) => {
                    self.refuse_or_replay(waiter(conn, id, &decoded.ignored, send), send, rejected);
                }
                _ => self.refuse(conn, id, rejected),
            }
            return false;
        }
        if let Some(known) = self.peers.connected_mut(&conn) {
            known.loading = Some(key.to_owned());
        }
        let parked = Parked {
            conn,
            id,
            decoded,
            facts: facts.clone(),
        };
        self.sessions.park(key, names, parked)
    }

    /// Has the connection room for one more send?
    fn room_on(&self, conn: ConnId) -> Result<(), Rejected> {
        let in_flight = self
            .peers
            .connected(&conn)
            .map_or(0, crate::peers::conn::Conn::in_flight);
        if in_flight < SENDS_PER_CONNECTION {
            return Ok(());
        }
        Err(full(format!(
            "this connection has {in_flight} sends in flight, the limit is {SENDS_PER_CONNECTION}"
        )))
    }

    /// Has the daemon room for one more turn, and can it be run at all?
    pub(crate) fn room_for(&self, send: &Send, facts: &RequestContext) -> Result<(), Rejected> {
        if self.mode.is_stopping() {
            return Err(self.stopping());
        }
        directory::is_there("cwd", send.cwd.as_ref(), facts)?;
        self.may_call_back(send.callback.as_ref(), facts)?;
        self.may_bring_servers(send, facts)?;
        if self.is_for_later(send) {
            if self.jobs.scheduled() >= SCHEDULED_IN_ALL {
                return Err(full(format!(
                    "{SCHEDULED_IN_ALL} jobs wait for their `start_at`, the limit"
                )));
            }
        // Those that have a process are not waiting.
        } else if self.jobs.len() - self.jobs.scheduled() >= QUEUED_IN_ALL + MAX_WORKERS {
            return Err(full(format!(
                "{QUEUED_IN_ALL} turns are waiting, the limit"
            )));
        }
        self.room_in_memory(send)?;
        let room = self.room_in_store();
        room.map_err(|rejected| match &send.idempotency_key {
            // It may be that of a send which the store was told of.
            Some(_) if self.store_silent => Rejected {
                code: Code::OutcomeUnknown,
                error: format!(
                    "whether it was accepted before isn't known; {}",
                    rejected.error
                ),
                ..rejected
            },
            _ => rejected,
        })
    }

    /// Has the store room for one more request that may as well be refused?
    pub(crate) fn room_in_store(&self) -> Result<(), Rejected> {
        if let (true, Some(wrong)) = (self.store_silent, self.wrong_with_the_store()) {
            let error = format!("the store can't take it: {wrong}");
            let hint = "ask again when it answers, with the same key if there is one";
            return Err(Rejected::new(Code::StoreFailed, error).hint(hint));
        }
        if self.outbox.store_is_behind() {
            return Err(full(format!(
                "{COMMITS_OUTSTANDING} commits are outstanding, the limit: the disk is slow"
            )));
        }
        Ok(())
    }

    fn is_for_later(&self, send: &Send) -> bool {
        let start = send.start_at.as_deref().and_then(request::unix_ms);
        start.is_some_and(|start| start > self.now.wall_ms)
    }

    /// What the store knows of sessions came: the requests on them go on, in order.
    pub(crate) fn sessions_loaded(&mut self, key: &str, rows: Result<Vec<SessionRow>, String>) {
        let Some(loading) = self.sessions.unpark(key) else {
            return;
        };
        // Before they go on: what they ask may wait under another key.
        for parked in &loading.parked {
            let conn = self.peers.connected_mut(&parked.conn);
            if let Some(conn) = conn.filter(|conn| conn.loading.as_deref() == Some(key)) {
                conn.loading = None;
            }
        }
        let rows = match rows {
            Ok(rows) => rows,
            Err(why) => {
                for parked in loading.parked {
                    let error = format!("the session can't be read: {why}");
                    let rejected = Rejected::new(Code::StoreFailed, error);
                    self.refuse(parked.conn, parked.id, rejected);
                }
                return;
            }
        };
        // All of them before the first request goes on, as one may name several.
        let adopted: Vec<SessionId> = rows
            .into_iter()
            .map(|row| self.adopt_session(row))
            .collect();
        let here = |name: &String| self.sessions.knows(name);
        let absent = loading.names.into_iter().filter(|name| !here(name));
        let absent: BTreeSet<String> = absent.collect();
        for parked in loading.parked {
            if self.must_wait_again(key, &parked, &absent) {
                self.wait_again(key, parked);
            } else {
                self.unparked(parked);
            }
        }
        for session in adopted {
            // Those that the requests left as they were are in the store as well.
            self.forget_session_if_idle(session);
        }
    }

    /// Was a request parked behind others without a look at its own sessions, did one of these
    /// leave memory meanwhile, or is one before it waiting again?
    fn must_wait_again(&self, key: &str, parked: &Parked, absent: &BTreeSet<String>) -> bool {
        let request = &parked.decoded.request;
        let unknown = |name: &&str| !self.sessions.knows(name) && !absent.contains(*name);
        request.sessions().iter().any(unknown)
            || is_in_order(key) && self.waits_behind(parked.conn, request).is_some()
    }

    fn wait_again(&mut self, key: &str, parked: Parked) {
        let Parked {
            conn,
            id,
            decoded,
            facts,
        } = parked;
        if is_in_order(key) {
            self.request(conn, id, decoded, &facts);
        } else {
            self.request_loaded(conn, id, decoded, &facts);
        }
    }

    fn unparked(&mut self, parked: Parked) {
        let Parked {
            conn,
            id,
            decoded,
            facts,
        } = parked;
        // The session is known only now, and with it the agent.
        if self.needs_a_look(&decoded.request, &facts) {
            return self.park_until_looked(conn, id, decoded, &facts);
        }
        let unknown = |session: &&str| !self.sessions.knows(session);
        if let Request::Send(send) = &decoded.request {
            // Those before it may have taken the room that was there when it came.
            let room = self
                .room_on(conn)
                .and_then(|()| self.room_for(send, &facts));
            match room {
                Ok(()) => self.send_in(conn, id, decoded, &facts),
                Err(rejected) => {
                    let waiter = waiter(conn, id, &decoded.ignored, send);
                    self.refuse_or_replay(waiter, send, rejected);
                }
            }
        } else if let Request::Dispatch(_) = &decoded.request {
            self.dispatch_in(conn, id, decoded, &facts);
        } else if let Request::Route(send) = &decoded.request {
            self.explain_route(conn, id, send, &facts);
        } else if let Some(session) = decoded.request.session().filter(unknown) {
            let rejected = unknown_session(session);
            self.refuse(conn, id, rejected);
        } else {
            self.request_loaded(conn, id, decoded, &facts);
        }
    }

    pub(crate) fn adopt_session(&mut self, row: SessionRow) -> SessionId {
        if let Some(known) = self.sessions.named(&row.name) {
            return known;
        }
        let session = SessionId(self.outbox.number());
        self.sessions.insert(session, Session::from_row(row));
        session
    }

    fn send_in(&mut self, conn: ConnId, id: Option<Id>, decoded: Decoded, facts: &RequestContext) {
        if let Some(key) = self.counts_on_pins(&decoded.request) {
            return self.wait_for_pins(key, conn, id, decoded, facts);
        }
        let Request::Send(send) = decoded.request else {
            return;
        };
        let waiter = waiter(conn, id, &decoded.ignored, &send);
        let known = send
            .session
            .as_ref()
            .and_then(|name| self.sessions.named(name));
        let placed = self
            .parent_of(send.parent, &facts.descent)
            .and_then(|parent| {
                self.refuse_waiting_for_itself(parent, known)?;
                let routing = facts.routing.first();
                Ok((self.session_for(&send, known, routing, facts)?, parent))
            });
        match placed {
            Ok(((session, route), parent)) => {
                let contents = facts.contents.first().cloned().unwrap_or_default();
                let placing = Placing {
                    route,
                    ..Placing::of_send(session, parent, contents)
                };
                self.accept(waiter, *send, &placing);
            }
            Err(rejected) => self.refuse_or_replay(waiter, &send, rejected),
        }
    }

    /// Finds or makes the session of a send and checks that the send fits it.
    pub(crate) fn session_for(
        &mut self,
        send: &Send,
        known: Option<SessionId>,
        routing: Option<&Routing>,
        facts: &RequestContext,
    ) -> Result<(SessionId, Option<Box<Route>>), Rejected> {
        let there = known.map(|known| (known, self.sessions.get_mut(&known)));
        if let Some(session) = there.and_then(|(known, there)| self.outbox.expected(known, there)) {
            directory::learn(session, send.cwd.as_ref(), facts);
        }
        if let Some(session) = known.and_then(|known| self.sessions.get(&known)) {
            fits(session, send, facts)?;
            may_begin(session, send)?;
            self.remembers(session, send)?;
            self.may_change_servers(session, send)?;
            self.usable(&session.agent.clone(), known, send)?;
            self.session_takes(known, send)?;
            let gone = || Rejected::new(Code::Internal, "the session is gone");
            let route = self.routed(send, known, routing)?;
            return Ok((known.ok_or_else(gone)?, route));
        }
        if self.settings.nested
            && let Some(native) = &send.native
        {
            // Made anew, it would pass for the one that the other agentd remembers.
            let error = format!("there is no session `{native}` any more");
            return Err(Rejected::new(Code::ContextLost, error));
        }
        let route = self.routed(send, None, routing)?;
        let agent = match (&route, &send.agent) {
            (Some(route), _) => route.agent.clone(),
            (None, Some(agent)) => agent.clone(),
            (None, None) => self.default_agent(send.provider.as_ref(), send.model.as_ref())?,
        };
        let by_rule = route.as_ref().filter(|route| route.routed.rule.is_some());
        // What a rule says was tried with it.
        if by_rule.is_none() {
            self.usable(&agent, None, send)?;
        }
        let toolsets = send.toolsets.as_ref();
        let toolsets = toolsets
            .or_else(|| by_rule?.uses.toolsets.as_ref())
            .cloned();
        let if_new = send.cwd_if_new.as_ref().filter(|_| send.cwd.is_none());
        directory::is_there("cwd_if_new", if_new, facts)?;
        let given = send.cwd.as_ref().or(if_new);
        let cwd = given.unwrap_or(&self.settings.home).clone();
        let mut session = Session::new(send.session.clone(), agent, cwd, toolsets);
        directory::learn(&mut session, given, facts);
        session.named = send.session.is_some();
        let session_id = SessionId(self.outbox.number());
        self.sessions.insert(session_id, session);
        Ok((session_id, route))
    }

    fn session_takes(&mut self, session: Option<SessionId>, send: &Send) -> Result<(), Rejected> {
        let now = self.now.mono;
        let known = session.and_then(|session| self.sessions.get(&session));
        // One who sends without the pin that broke it is served.
        let others = known.is_some_and(|session| self.failed_with_others(session, send));
        let Some(session) = session.and_then(|session| self.sessions.get_mut(&session)) else {
            return Ok(());
        };
        if send.mode == Mode::Reject && (session.current.is_some() || !session.queue.is_empty()) {
            let error = format!("the session `{}` has a turn in flight", session.shown());
            return Err(Rejected::new(Code::SessionBusy, error));
        }
        if session.closing {
            return Err(is_leaving(session));
        }
        if session.queue.len() >= QUEUED_PER_SESSION {
            let error = format!(
                "{QUEUED_PER_SESSION} turns wait in the session `{}`, the limit",
                session.shown()
            );
            return Err(
                Rejected::new(Code::QueueFull, error).hint("nothing was run; ask again later")
            );
        }
        let shown = format!("session `{}`", session.shown());
        match session.health.other().and_then(|health| health.broken(now)) {
            Some(broken) if !others => Err(broken.failure(&shown).into()),
            _ => Ok(()),
        }
    }
}

/// Do the requests parked under a key take effect in the order sent? A session can't be named so.
pub(crate) fn is_in_order(key: &str) -> bool {
    key.contains('#')
}

pub(crate) fn waiter(conn: ConnId, id: Option<Id>, ignored: &[Ignored], send: &Send) -> Waiter {
    Waiter {
        conn,
        id,
        stream: send.stream == Some(true),
        ignored: ignored.to_vec(),
    }
}

/// Does a send name what its session has?
fn fits(session: &Session, send: &Send, facts: &RequestContext) -> Result<(), Rejected> {
    let conflict = |field: &str, given: &str, in_force: &str| {
        let error = format!(
            "`{field}` is `{given}`, but the session `{}` was made with `{in_force}`",
            session.shown()
        );
        Err(Rejected::new(Code::SessionConflict, error)
            .hint("leave it out, or use another session"))
    };
    let other = |agent: &&String| **agent != session.agent && *agent != AUTO;
    if let Some(agent) = send.agent.as_ref().filter(other) {
        return conflict("agent", agent, &session.agent);
    }
    let elsewhere = |cwd: &&String| !directory::is_of(session, cwd, facts);
    if let Some(cwd) = send.cwd.as_ref().filter(elsewhere) {
        return conflict("cwd", cwd, &session.cwd);
    }
    // A set: neither order nor repetitions mean anything.
    let set = |toolsets: &Option<Vec<String>>| {
        let names = toolsets.as_ref().map(|names| names.iter().cloned());
        names.map(BTreeSet::from_iter)
    };
    if send.toolsets.is_some() && set(&send.toolsets) != set(&session.toolsets) {
        return conflict(
            "toolsets",
            &json::text(&send.toolsets),
            &json::text(&session.toolsets),
        );
    }
    Ok(())
}
