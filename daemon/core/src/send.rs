//! A send up to its acceptance: every way to refuse one, and the pending job.
//!
//! Owns the choice of agent and the check against the session's facts. Must not know processes
//! beyond "is one free now?".

use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::{self, Decoded, Mode, OnQuestion, Send};
use agentd_protocol::{Code, Id, Request};

use crate::agent::{Found, Sessions};
use crate::event::Facts;
use crate::ids::{ConnId, TurnId};
use crate::job::{Job, Phase, Waiter};
use crate::json;
use crate::limits::{
    COMMITS_OUTSTANDING, DEFAULT_EXPIRES, QUEUED_IN_ALL, QUEUED_PER_SESSION, SENDS_PER_CONNECTION,
};
use crate::request::Parked;
use crate::session::{Session, SessionId};
use crate::state::State;
use crate::store::{NewJob, Query, SessionRow, Write};
use crate::stored::Awaiting;
use crate::timers::Timer;

impl State {
    pub(crate) fn send_requested(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &Facts,
    ) {
        let Request::Send(send) = &decoded.request else {
            return;
        };
        if let Err(rejected) = self.room_for(conn, send, facts) {
            return self.refuse(conn, id, rejected);
        }
        let Some(name) = send.session.clone() else {
            return self.send_in(conn, id, decoded, None);
        };
        if let Some(session) = self.names.get(&name).copied() {
            return self.send_in(conn, id, decoded, Some(session));
        }
        if let Some(known) = self.conns.get_mut(&conn) {
            known.loading = Some(name.clone());
        }
        let parked = Parked {
            conn,
            id,
            decoded,
            facts: facts.clone(),
        };
        if let Some(loading) = self.loading.get_mut(&name) {
            loading.parked.push_back(parked);
            return;
        }
        self.loading
            .entry(name.clone())
            .or_default()
            .parked
            .push_back(parked);
        self.load(Awaiting::Session(name.clone()), Query::Session { name });
    }

    fn room_for(&self, conn: ConnId, send: &Send, facts: &Facts) -> Result<(), Rejected> {
        if self.mode.is_stopping() {
            return Err(self.stopping());
        }
        if facts.cwd_missing {
            let cwd = send
                .cwd
                .as_ref()
                .or(send.cwd_if_new.as_ref())
                .cloned()
                .unwrap_or_default();
            return Err(Rejected::new(
                Code::InvalidRequest,
                format!("`cwd` is `{cwd}`: there is no such directory"),
            ));
        }
        if send.on_question == Some(OnQuestion::Wait) {
            let error =
                "`on_question` is `wait`, but this version can't take answers: expected `deny`";
            return Err(Rejected::new(Code::Unsupported, error));
        }
        let full = |what: String| {
            Err(Rejected::new(Code::QueueFull, what).hint("nothing was run; ask again later"))
        };
        let in_flight = self
            .conns
            .get(&conn)
            .map_or(0, crate::conn::Conn::in_flight);
        if in_flight >= SENDS_PER_CONNECTION {
            return full(format!(
                "this connection has {in_flight} sends in flight, the limit is {SENDS_PER_CONNECTION}"
            ));
        }
        if self.waiting.len() >= QUEUED_IN_ALL {
            return full(format!("{QUEUED_IN_ALL} turns are waiting, the limit"));
        }
        if self.awaiting.len() >= COMMITS_OUTSTANDING {
            return full(format!(
                "{COMMITS_OUTSTANDING} commits are outstanding, the limit: the disk is slow"
            ));
        }
        Ok(())
    }

    /// What the store knows of a session came: the requests on it go on, in order.
    pub(crate) fn session_loaded(&mut self, name: &str, row: Result<Option<SessionRow>, String>) {
        let Some(loading) = self.loading.remove(name) else {
            return;
        };
        for conn in self.conns.values_mut() {
            if conn.loading.as_deref() == Some(name) {
                conn.loading = None;
            }
        }
        match row {
            Ok(Some(row)) => {
                self.adopt_session(row);
            }
            Ok(None) => {}
            Err(why) => {
                for parked in loading.parked {
                    let error = format!("the session `{name}` can't be read: {why}");
                    self.refuse(
                        parked.conn,
                        parked.id,
                        Rejected::new(Code::StoreFailed, error),
                    );
                }
                return;
            }
        }
        for parked in loading.parked {
            let session = self.names.get(name).copied();
            if let Request::Send(send) = &parked.decoded.request {
                // Those before it may have taken the room that was there when it came.
                if let Err(rejected) = self.room_for(parked.conn, send, &parked.facts) {
                    self.refuse(parked.conn, parked.id, rejected);
                    continue;
                }
                self.send_in(parked.conn, parked.id, parked.decoded, session);
            } else {
                self.request(parked.conn, parked.id, parked.decoded, &parked.facts);
            }
        }
        if let Some(session) = self.names.get(name).copied() {
            self.forget_session_if_idle(session);
        }
    }

    pub(crate) fn adopt_session(&mut self, row: SessionRow) -> SessionId {
        if let Some(known) = self.names.get(&row.name) {
            return *known;
        }
        let session = SessionId(self.number());
        self.names.insert(row.name.clone(), session);
        self.sessions.insert(session, Session::from_row(row));
        session
    }

    fn send_in(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        known: Option<SessionId>,
    ) {
        let Request::Send(send) = decoded.request else {
            return;
        };
        // It may have waited for its session to be loaded.
        if self.mode.is_stopping() {
            return self.refuse_stopping(conn, id);
        }
        let session = match self.session_for(&send, known) {
            Ok(session) => session,
            Err(rejected) => return self.refuse(conn, id, rejected),
        };
        let waiter = Waiter {
            conn,
            id,
            stream: send.stream == Some(true),
            ignored: decoded.ignored,
        };
        self.accept(waiter, *send, session);
    }

    /// Finds or makes the session of a send and checks that the send fits it.
    fn session_for(
        &mut self,
        send: &Send,
        known: Option<SessionId>,
    ) -> Result<SessionId, Rejected> {
        if let Some(session) = known.and_then(|known| self.sessions.get(&known)) {
            fits(session, send)?;
            self.usable(&session.agent.clone(), send)?;
            self.session_takes(known, send)?;
            return known.ok_or_else(|| Rejected::new(Code::Internal, "the session is gone"));
        }
        let agent = match &send.agent {
            Some(agent) => agent.clone(),
            None => self.default_agent()?,
        };
        self.usable(&agent, send)?;
        let cwd = send
            .cwd
            .as_ref()
            .or(send.cwd_if_new.as_ref())
            .unwrap_or(&self.settings.home)
            .clone();
        let mut session = Session::new(send.session.clone(), agent, cwd, send.toolsets.clone());
        session.named = send.session.is_some();
        let session_id = SessionId(self.number());
        if let Some(name) = &session.name {
            self.names.insert(name.clone(), session_id);
        }
        self.sessions.insert(session_id, session);
        Ok(session_id)
    }

    fn session_takes(&mut self, session: Option<SessionId>, send: &Send) -> Result<(), Rejected> {
        let now = self.now.mono;
        let Some(session) = session.and_then(|session| self.sessions.get_mut(&session)) else {
            return Ok(());
        };
        if send.mode == Mode::Reject && (session.current.is_some() || !session.queue.is_empty()) {
            let error = format!("the session `{}` has a turn in flight", session.shown());
            return Err(Rejected::new(Code::SessionBusy, error));
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
        match session.health.broken(now) {
            Some(broken) => Err(broken.failure(&shown).into()),
            None => Ok(()),
        }
    }

    /// The agent that answers when nobody is named: PROTOCOL.md part 4, `agent`.
    pub(crate) fn default_agent(&self) -> Result<String, Rejected> {
        if let Some(default) = &self.settings.default_agent {
            return Ok(default.clone());
        }
        let usable = |third_party: bool| {
            self.settings.agents.values().filter(move |agent| {
                agent.usable.is_ok() && (agent.found != Found::BuiltIn) == third_party
            })
        };
        let candidates: Vec<&str> = usable(true).map(|agent| agent.name.as_str()).collect();
        match candidates.as_slice() {
            [one] => return Ok((*one).to_owned()),
            [] => {}
            several => {
                let error = format!(
                    "several agents could answer and none is the default: {}",
                    several.join(", ")
                );
                let hint = "name one with `agent`, or set `default_agent` in config.toml";
                return Err(Rejected::new(Code::Ambiguous, error).hint(hint));
            }
        }
        usable(false)
            .next()
            .map(|agent| agent.name.clone())
            .ok_or_else(|| self.no_agent())
    }

    fn no_agent(&self) -> Rejected {
        let error = format!(
            "No agent is there, so nothing was run.\n{}",
            self.settings.looked_for
        );
        let hint = "`agentctl agents` lists what was looked for; `[agents.NAME]` in config.toml adds one; \
                    `agentctl demo` checks the installation without any model";
        Rejected::new(Code::NoAgent, error).hint(hint)
    }

    pub(crate) fn unknown_agent(&self, name: &str) -> Rejected {
        let known: Vec<&str> = self.settings.agents.keys().map(String::as_str).collect();
        let rejected = Rejected::new(Code::UnknownAgent, format!("there is no agent `{name}`"));
        match agentd_protocol::nearest::nearest(name, known.iter().copied()) {
            Some(near) => rejected.hint(format!("did you mean `{near}`?")),
            None => rejected.hint(format!("known agents: {}", known.join(", "))),
        }
    }

    fn usable(&mut self, name: &str, send: &Send) -> Result<(), Rejected> {
        let Some(agent) = self.settings.agents.get(name) else {
            return Err(self.unknown_agent(name));
        };
        // The scripted provider needs nothing but to be named.
        let scripted = agent.found == Found::BuiltIn && send.provider.as_deref() == Some("echo");
        if let Err(why) = &agent.usable
            && !scripted
        {
            let error = format!("the agent `{name}` can't be used: {why}");
            return Err(
                Rejected::new(Code::NoAgent, error).hint("`agentctl agents` lists what is there")
            );
        }
        if send.toolsets.is_some() && !agent.describe.toolsets {
            let error =
                format!("`toolsets` was given, but the agent `{name}` can't restrict its tools");
            return Err(Rejected::new(Code::Unsupported, error));
        }
        let now = self.now.mono;
        match self
            .health
            .get_mut(name)
            .and_then(|health| health.broken(now))
        {
            Some(broken) => Err(broken.failure(&format!("agent `{name}`")).into()),
            None => Ok(()),
        }
    }

    /// Makes the pending job and asks for its commit.
    fn accept(&mut self, waiter: Waiter, given: Send, session_id: SessionId) {
        let turn = TurnId(self.number());
        let hashed = request::hashed(&given);
        let Some(session) = self.sessions.get_mut(&session_id) else {
            return;
        };
        let Some(agent) = self.settings.agents.get(&session.agent) else {
            return;
        };
        let mut send = given;
        send.provider = send.provider.or_else(|| agent.provider.clone());
        send.model = send.model.or_else(|| agent.model.clone());
        send.thinking = send.thinking.or_else(|| agent.thinking.clone());
        let expires = send
            .expires
            .map_or(DEFAULT_EXPIRES, std::time::Duration::from_secs_f64);
        let expires_at = self
            .now
            .wall_ms
            .saturating_add(i64::try_from(expires.as_millis()).unwrap_or(i64::MAX));
        let new = NewJob {
            session: session.name.clone(),
            agent: session.agent.clone(),
            cwd: session.cwd.clone(),
            toolsets: session.toolsets.as_ref().map(json::text),
            request: json::text(&send),
            key: send.idempotency_key.clone(),
            hashed,
            expires_at,
            running: None,
            at: self.now.wall_ms,
        };
        session.queue.push_back(turn);
        let conn = waiter.conn;
        let job = Job {
            phase: Phase::Pending {
                placed: None,
                cancelled: false,
            },
            accept: Some(Box::new(new)),
            sender: Some(waiter),
            ..Job::new(
                session_id,
                session.agent.clone(),
                send,
                self.now.mono,
                expires_at,
            )
        };
        self.jobs.insert(turn, job);
        self.waiting.insert(turn);
        self.timers
            .set(Timer::Expiry(turn), self.now.mono + expires);
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.pending.insert(turn);
            conn.last_send = Some(turn);
        }
        self.counters.sends += 1;
        self.ask_to_accept(turn);
    }

    /// Asks the store for a pending job, with its *running* mark if a process is free.
    pub(crate) fn ask_to_accept(&mut self, turn: TurnId) {
        let placed = self.place_at_once(turn);
        let Some(new) = self.jobs.get(&turn).and_then(|job| job.accept.clone()) else {
            return;
        };
        let running = placed.map(|process| (process.worker, process.generation));
        let new = NewJob { running, ..*new };
        self.commit(Awaiting::Accept(turn), vec![Write::Accept(Box::new(new))]);
    }
}

/// Does a send name what its session has?
fn fits(session: &Session, send: &Send) -> Result<(), Rejected> {
    let conflict = |field: &str, given: &str, in_force: &str| {
        let error = format!(
            "`{field}` is `{given}`, but the session `{}` was made with `{in_force}`",
            session.shown()
        );
        Err(Rejected::new(Code::SessionConflict, error)
            .hint("leave the field out, or use another session"))
    };
    if let Some(agent) = send.agent.as_ref().filter(|agent| **agent != session.agent) {
        return conflict("agent", agent, &session.agent);
    }
    if let Some(cwd) = send.cwd.as_ref().filter(|cwd| **cwd != session.cwd) {
        return conflict("cwd", cwd, &session.cwd);
    }
    if send.toolsets.is_some() && send.toolsets != session.toolsets {
        return conflict(
            "toolsets",
            &json::text(&send.toolsets),
            &json::text(&session.toolsets),
        );
    }
    Ok(())
}

/// Is a process of this agent given the prompt at its spawn?
pub(crate) fn per_turn(agent: &crate::agent::Agent) -> bool {
    agent.describe.sessions == Sessions::PerTurn
}
