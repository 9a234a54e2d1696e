//! A session on its way to being open: made, loaded or resumed.
//!
//! Owns what is asked of the daemon for it, in which order it is told, and that turns in flight go on
//! here. Must not know what can be done in an open session.

use std::time::Instant;

use agentd_client::wire::Received;
use agentd_protocol::commands::Commands;
use agentd_protocol::line::Line;
use agentd_protocol::models::{ModelRow, Models};
use agentd_protocol::request::McpServer;
use agentd_protocol::rows::{JobPhase, SessionPhase, TurnRow};
use agentd_protocol::work::{Jobs, SessionFork, SessionHistory, SessionList, SessionNew};
use agentd_protocol::{Code, Id, JobId};
use serde_json::Value;

use super::Acp;
use super::failure::{self, check_directory, invalid, is_code};
use super::history::{History, Needed, Piece, is_over};
use super::question::Question;
use super::state::{How, Opening, Session, Way, What};
use super::turn::Turn;
use super::wire::{Command, OpenSession, Update};
use crate::face::Outbox;
use crate::json_rpc::Failure;

/// Turns of a session that are looked through for those in flight.
const PAGE: usize = agentd_protocol::limits::MAX_PAGE;

/// The part of an opening that comes after it was answered.
#[derive(Default)]
struct TakenUp {
    updates: Vec<Update>,
    questions: Vec<(JobId, Received)>,
}

impl Acp {
    pub(super) fn new_session(
        &mut self,
        id: &Id,
        new: OpenSession,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let mcp_servers = check_place(&new)?;
        let name = self.name();
        let chosen = new.meta.pointer("/agentd/agent").and_then(Value::as_str);
        let agent = chosen.map(str::to_owned).or_else(|| self.agent.clone());
        let session = Session {
            cwd: new.cwd.clone(),
            opening: Some(Opening::new(id.clone(), How::New, now)),
            spent: Some(0.0),
            mcp_servers: mcp_servers.clone(),
            ..Session::default()
        };
        self.sessions.insert(name.clone(), session);
        let wanted = SessionNew {
            session: Some(name.clone()),
            agent,
            cwd: Some(new.cwd),
            mcp_servers,
            ..SessionNew::default()
        };
        self.ask("session.new", &wanted, What::Made(name), out);
        self.look_for_agents(out);
        Ok(())
    }

    /// Another session, which begins with what the agent remembers of this one.
    pub(super) fn fork_session(
        &mut self,
        id: &Id,
        open: OpenSession,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let mcp_servers = check_place(&open)?;
        let from = named(&open)?;
        let name = self.name();
        let session = Session {
            opening: Some(Opening::new(id.clone(), How::Fork, now)),
            // As the other one has it.
            begun: true,
            titled: true,
            mcp_servers,
            ..Session::default()
        };
        self.sessions.insert(name.clone(), session);
        let wanted = SessionFork {
            session: from,
            to: Some(name.clone()),
        };
        self.ask("session.fork", &wanted, What::Forked(name), out);
        self.look_for_agents(out);
        Ok(())
    }

    /// Loads or resumes.
    pub(super) fn open_session(
        &mut self,
        id: &Id,
        open: OpenSession,
        how: How,
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        let mcp_servers = check_place(&open)?;
        let name = named(&open)?;
        let session = self.sessions.entry(name.clone()).or_default();
        if session.opening.is_some() {
            return Err(invalid(format!(
                "the session `{name}` is being opened already"
            )));
        }
        session.opening = Some(Opening::new(id.clone(), how, now));
        session.mcp_servers = mcp_servers.or(session.mcp_servers.take());
        self.look(&name, What::Looked(name.clone()), out);
        self.look_for_agents(out);
        Ok(())
    }

    pub(super) fn look(&mut self, session: &str, what: What, out: &mut Outbox) {
        let one = SessionList {
            session: Some(session.to_owned()),
            ..SessionList::default()
        };
        self.ask("session.list", &one, what, out);
    }

    pub(super) fn made(
        &mut self,
        session: &str,
        again: bool,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        match result {
            Ok(Line::SessionNew { agent, cwd, .. } | Line::SessionFork { agent, cwd, .. }) => {
                self.is_there(session, agent, cwd, out)
            }
            // Nobody else makes such a name: it was made before the connection was lost.
            Err(failure) if again && is_code(&failure, Code::SessionConflict) => {
                self.look(session, What::Looked(session.to_owned()), out);
            }
            Ok(_) => self.opening_failed(session, &failure::unknown_session(session), out),
            Err(failure) => self.opening_failed(session, &failure, out),
        }
    }

    /// A session is there, with this agent.
    fn is_there(&mut self, session: &str, agent: String, cwd: String, out: &mut Outbox) {
        if let Some(known) = self.sessions.get_mut(session) {
            known.cwd = cwd;
            known.offer.of_agent(agent);
            if let Some(opening) = &mut known.opening {
                opening.is_there = true;
            }
        }
        self.offer_agents(session);
        self.look_for_models(session, Vec::new(), None, out);
    }

    fn look_for_models(
        &mut self,
        session: &str,
        rows: Vec<ModelRow>,
        after: Option<u64>,
        out: &mut Outbox,
    ) {
        let wanted = Models {
            agent: None,
            session: Some(session.to_owned()),
            after,
        };
        let session = session.to_owned();
        self.ask("models", &wanted, What::Models { session, rows }, out);
    }

    pub(super) fn have_models(
        &mut self,
        session: &str,
        mut rows: Vec<ModelRow>,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        if let Ok(Line::Models {
            models,
            next,
            modes,
            mode,
            ..
        }) = result
        {
            if let Some(known) = self.sessions.get_mut(session).filter(|_| rows.is_empty()) {
                known.offer.learn_modes(modes, mode);
            }
            rows.extend(models);
            if next.is_some() {
                return self.look_for_models(session, rows, next, out);
            }
        }
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        // Of an agent that doesn't say it nothing can be chosen.
        known.offer.learn(rows);
        let how = known.opening.as_ref().map(|opening| opening.how);
        // Made again, under another agent or under the one before, if that one can't start.
        if matches!(how, None | Some(How::Agent(_))) && self.set_again(session, out) {
            return;
        }
        self.has_all_models(session, out);
    }

    /// What can be chosen is known.
    pub(super) fn has_all_models(&mut self, session: &str, out: &mut Outbox) {
        let known = self.sessions.get_mut(session);
        match known.and_then(|known| known.opening.as_mut()) {
            Some(opening) => opening.has_models = true,
            None => self.tell_options(session, out),
        }
    }

    pub(super) fn look_for_commands(&mut self, session: &str, out: &mut Outbox) {
        let wanted = Commands {
            agent: None,
            session: Some(session.to_owned()),
        };
        self.ask("commands", &wanted, What::Commands(session.to_owned()), out);
    }

    /// Slash commands are told when they are others than before; an agent that can't say has none.
    pub(super) fn have_commands(
        &mut self,
        session: &str,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let (Ok(Line::Commands { commands, .. }), Some(known)) =
            (result, self.sessions.get_mut(session))
        else {
            return;
        };
        let available_commands: Vec<Command> = commands.into_iter().map(Command::from).collect();
        if known.commands != available_commands {
            known.commands.clone_from(&available_commands);
            let update = Update::AvailableCommandsUpdate { available_commands };
            self.tell(session, &[update], out);
        }
    }

    /// Forgets a session that could not be opened; one that is open already stays so.
    pub(super) fn opening_failed(&mut self, session: &str, failure: &Failure, out: &mut Outbox) {
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        if let Some(opening) = known.opening.take() {
            out.refuse(&opening.reply, failure);
        }
        let waiting = std::mem::take(&mut known.waiting);
        if known.offer.agent.is_none() {
            self.sessions.remove(session);
        }
        for prompt in waiting {
            out.refuse(&prompt.reply, failure);
        }
    }

    pub(super) fn looked(
        &mut self,
        session: &str,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let row = match result {
            Ok(Line::SessionList { sessions, .. }) => {
                let mut rows = sessions.into_iter();
                rows.find(|row| row.session == session && row.state != SessionPhase::Closed)
            }
            Ok(_) => None,
            Err(failure) => return self.opening_failed(session, &failure, out),
        };
        let Some(row) = row else {
            return self.opening_failed(session, &failure::unknown_session(session), out);
        };
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        known.begun |= row.turns > 0;
        known.titled = !row.title.is_empty();
        known.spent = (row.turns == 0).then_some(0.0);
        if let Some(opening) = &mut known.opening {
            opening.context = (row.context_tokens, row.context_window);
        }
        let how = known.opening.as_ref().map(|opening| opening.how);
        match (how, &mut known.opening) {
            (Some(How::Load), Some(opening)) => {
                opening.history = Some(History::default());
                self.look_into_history(session, None, out);
            }
            (Some(How::Resume), Some(opening)) => {
                opening.looks = 1;
                let turns = Jobs {
                    session: Some(session.to_owned()),
                    limit: Some(PAGE),
                    ..Jobs::default()
                };
                self.ask("jobs", &turns, What::Turns(session.to_owned()), out);
            }
            (Some(How::New | How::Fork | How::Agent(_)) | None, _) | (_, None) => {}
        }
        self.is_there(session, row.agent, row.cwd, out);
    }

    fn look_into_history(&mut self, session: &str, after: Option<u64>, out: &mut Outbox) {
        let page = SessionHistory {
            session: session.to_owned(),
            job: None,
            message: None,
            after,
            limit: None,
            events: true,
        };
        self.ask(
            "session.history",
            &page,
            What::History(session.to_owned()),
            out,
        );
    }

    /// A page of what was said, or a piece of one message.
    pub(super) fn have_history(
        &mut self,
        session: &str,
        piece: Option<Piece>,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let (turns, next) = match result {
            Ok(Line::SessionHistory { turns, next, .. }) => (turns, next),
            Ok(_) => (Vec::new(), None),
            Err(failure) => return self.opening_failed(session, &failure, out),
        };
        let known = self.sessions.get_mut(session);
        let opening = known.and_then(|known| known.opening.as_mut());
        let Some(history) = opening.and_then(|opening| opening.history.as_mut()) else {
            return;
        };
        match piece {
            Some(piece) => history.piece(piece, turns, next),
            None => history.page(turns, next),
        }
        let mut updates = Vec::new();
        let needed = history.tell(&mut updates);
        self.tell(session, &updates, out);
        match needed {
            Needed::Page(after) => self.look_into_history(session, Some(after), out),
            Needed::Piece(piece) => {
                let rest = SessionHistory {
                    session: session.to_owned(),
                    job: Some(piece.job),
                    message: Some(piece.message),
                    after: Some(piece.after),
                    limit: None,
                    events: false,
                };
                let session = session.to_owned();
                self.ask(
                    "session.history",
                    &rest,
                    What::Piece { session, piece },
                    out,
                );
            }
            Needed::Nothing => self.history_told(session),
        }
    }

    fn history_told(&mut self, session: &str) {
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        let Some(opening) = &mut known.opening else {
            return;
        };
        if let Some(history) = opening.history.take() {
            opening.unfinished = history.unfinished;
            known.spent = Some(history.spent);
            known.offer.thinking = history.thinking;
        }
    }

    /// Which turns of a session that is resumed may be in flight.
    pub(super) fn have_turns(
        &mut self,
        session: &str,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let jobs = match result {
            Ok(Line::Jobs { jobs, .. }) => jobs,
            Ok(_) => Vec::new(),
            Err(failure) => return self.opening_failed(session, &failure, out),
        };
        // Newest first.
        let in_flight = jobs.into_iter().rev().filter(|row| !is_over(row.state));
        let in_flight: Vec<_> = in_flight.map(|row| row.job).collect();
        let known = self.sessions.get_mut(session);
        if let Some(opening) = known.and_then(|known| known.opening.as_mut()) {
            opening.looks = in_flight.len();
        }
        for job in in_flight {
            let one = SessionHistory {
                session: session.to_owned(),
                job: Some(job),
                message: None,
                after: None,
                limit: None,
                events: true,
            };
            self.ask(
                "session.history",
                &one,
                What::InFlight(session.to_owned()),
                out,
            );
        }
    }

    pub(super) fn have_in_flight(&mut self, session: &str, result: Result<Line, Failure>) {
        let known = self.sessions.get_mut(session);
        let Some(opening) = known.and_then(|known| known.opening.as_mut()) else {
            return;
        };
        opening.looks = opening.looks.saturating_sub(1);
        if let Ok(Line::SessionHistory { turns, .. }) = result {
            let in_flight = turns.into_iter().filter(|row| !is_over(row.state));
            opening.unfinished.extend(in_flight);
        }
    }

    /// Answers what waited for nothing else.
    pub(super) fn settle_all(&mut self, now: Instant, out: &mut Outbox) {
        let has_agents = self.has_agents();
        let ends = self.ends_at.is_some();
        let mut done = Vec::new();
        for (name, session) in &mut self.sessions {
            if let Some(opening) = &mut session.opening {
                opening.give_up_waiting(now, ends);
                if opening.is_done(has_agents) {
                    done.push(name.clone());
                }
            }
        }
        for name in done {
            self.opened(&name, now, out);
        }
    }

    fn opened(&mut self, session: &str, now: Instant, out: &mut Outbox) {
        let Some(known) = self.sessions.get_mut(session) else {
            return;
        };
        let Some(opening) = known.opening.take() else {
            return;
        };
        let kept = std::mem::take(&mut known.kept);
        let waiting = std::mem::take(&mut known.waiting);
        let taken = self.take_up(session, opening.how, opening.unfinished);
        self.tell(session, &taken.updates, out);
        let (used, size) = opening.context;
        self.tell_use(session, used, size, out);
        let Some(known) = self.sessions.get(session) else {
            return;
        };
        let mut opened = known.offer.opened();
        match opening.how {
            How::New | How::Fork => {
                opened.session_id = Some(session.to_owned());
                out.answer(&opening.reply, &opened);
            }
            How::Load | How::Resume => out.answer(&opening.reply, &opened),
            How::Agent(way) => {
                let mode = known.offer.current_mode();
                self.tell_options(session, out);
                if let (Way::Older, Some(current_mode_id)) = (way, mode) {
                    self.tell(
                        session,
                        &[Update::CurrentModeUpdate { current_mode_id }],
                        out,
                    );
                }
                self.say_chosen(session, &opening.reply, way, out);
            }
        }
        self.look_for_commands(session, out);
        self.follow(out);
        for (job, line) in kept.into_iter().chain(taken.questions) {
            self.feed(job, line, now, out);
        }
        for prompt in waiting {
            self.send(session, prompt, out);
        }
    }

    /// Turns in flight go on here, whoever sent them.
    fn take_up(&mut self, session: &str, how: How, unfinished: Vec<TurnRow>) -> TakenUp {
        let mut taken = TakenUp::default();
        for row in unfinished {
            let job = row.job;
            if let Some(own) = self.turns.get_mut(&job) {
                // It goes on by itself.
                if how == How::Load {
                    own.told_anew(row, &mut taken.updates);
                }
                continue;
            }
            let mut turn = Turn::of_others(session, job, row.text);
            if row.state == JobPhase::Running {
                turn.shown_prompt(&mut taken.updates);
            }
            turn.happened(row.events, &mut taken.updates);
            let open = row.questions.into_iter().map(Question::line);
            let open = open.filter_map(|line| serde_json::to_vec(&line).ok());
            let lines = open.map(|line| (job, Received::parse(&line)));
            taken.questions.extend(lines);
            self.turns.insert(job, turn);
        }
        taken
    }
}

/// The session that is meant.
fn named(open: &OpenSession) -> Result<String, Failure> {
    let name = open.session_id.clone();
    let name = name.ok_or_else(|| invalid("invalid params: missing field `sessionId`"))?;
    match agentd_protocol::request::check_session(&name) {
        Ok(()) => Ok(name),
        Err(_) => Err(failure::unknown_session(&name)),
    }
}

/// What a session can be opened with; returns the MCP servers that it brings, if it brings any.
fn check_place(open: &OpenSession) -> Result<Option<Vec<McpServer>>, Failure> {
    check_directory("cwd", &open.cwd)?;
    match open.additional_directories.iter().flatten().next() {
        Some(_) => Err(invalid(
            "`additionalDirectories` is not offered: expected none",
        )),
        None => super::servers::brought(open.mcp_servers.as_deref().unwrap_or_default()),
    }
}
