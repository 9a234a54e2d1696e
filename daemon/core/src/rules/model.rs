//! Another model or mode for a session, and a shorter memory: `set_model`, `compact`.
//!
//! Owns what is asked of the agent and what is stored of it. Must not know models.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::models::ModeRow;
use agentd_protocol::request::Decoded;
use agentd_protocol::work::{Compact, SetModel};
use agentd_protocol::{Code, Id, Request};

use crate::agent::{Modes, Resume};
use crate::effect::Effect;
use crate::event::RequestContext;
use crate::ids::{ConnId, SessionId, WorkerId};
use crate::limits::COMPACTS_WITHIN;
use crate::outbox::awaiting::{Awaiting, Changed};
use crate::outbox::timers::Timer;
use crate::pins::{self, is_for_clients};
use crate::pool::compacting::Compacting;
use crate::rules::pins::offered;
use crate::rules::queries::unknown_session;
use crate::rules::session_news::of_model;
use crate::rules::targets::Target;
use crate::sessions::session::{Repinning, Session};
use crate::state::State;
use crate::store::{Pins, Write};
use crate::worker::{Failure, WorkerCommand};

impl State {
    pub(crate) fn compact(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        asked: Compact,
        facts: &RequestContext,
    ) {
        let target = Target::new(None, asked.session.as_deref());
        if let Some(loading) = self.loading_of(conn, target) {
            let request = Request::Compact(asked);
            return self.wait_for_loading(&loading, conn, id, request, facts);
        }
        let session = match &asked.session {
            Some(name) => {
                let again = Request::Compact(asked.clone());
                let Some(session) = self.known_session(name, conn, &id, again, facts) else {
                    return;
                };
                Ok(session)
            }
            None => self.session_meant(conn),
        };
        match session.and_then(|session| self.compactable(session)) {
            Ok((worker, session)) => {
                self.tell_to_compact(worker, session, asked.instructions, (conn, id));
            }
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    /// This connection's last send's session, else that of the user's only live turn.
    fn session_meant(&self, conn: ConnId) -> Result<SessionId, Rejected> {
        let nothing = || {
            let error = "no session is named, and none could be meant";
            Rejected::new(Code::SessionIdle, error).hint("name one with `session`")
        };
        // Not the only live turn: a conversation goes on with what it sent to.
        if let Some(last) = self.peers.steers().last_session(conn) {
            return Some(last)
                .filter(|last| self.sessions.contains(*last))
                .ok_or_else(nothing);
        }
        let turns = self.turns_meant(conn, Target::Own, false)?;
        let job = turns.first().and_then(|turn| self.jobs.get(turn));
        job.map(|job| job.session).ok_or_else(nothing)
    }

    /// The process that can shorten a session now.
    fn compactable(&self, session: SessionId) -> Result<(WorkerId, String), Rejected> {
        let refused = |code, error: String| Err(Rejected::new(code, error));
        let Some(known) = self.sessions.get(&session) else {
            return refused(Code::UnknownSession, "the session is gone".to_owned());
        };
        let name = known.shown();
        let agent = self.settings.agents.get(&known.agent);
        if known.current.is_some() || !known.queue.is_empty() {
            return refused(
                Code::SessionBusy,
                format!("the session `{name}` has a turn in flight"),
            );
        }
        // A process that was only started for the session doesn't hold its earlier turns yet.
        let slot = known.slot.filter(|_| known.open);
        let slot = slot.and_then(|worker| Some((worker, self.pool.get(&worker)?)));
        let can = match slot {
            Some((_, slot)) => slot.compacts,
            None => agent.is_none_or(|agent| agent.describe.compacts),
        };
        match slot {
            _ if !can => refused(
                Code::Unsupported,
                format!("the agent `{}` can't shorten its memory", known.agent),
            ),
            Some((worker, slot)) if slot.is_ready() && slot.takes_turns() => {
                if slot.turns.is_empty() && !self.pool.is_compacting(worker) {
                    return Ok((worker, name));
                }
                let error = format!("the process of the session `{name}` is busy");
                refused(Code::SessionBusy, error)
            }
            _ => Err(Rejected::new(
                Code::SessionIdle,
                format!("the session `{name}` is open in no process"),
            )
            .hint("it is opened by its next turn")),
        }
    }

    fn tell_to_compact(
        &mut self,
        worker: WorkerId,
        session: String,
        instructions: Option<String>,
        (conn, id): (ConnId, Option<Id>),
    ) {
        let slot = expected!(self.pool.get(worker));
        self.outbox.push(Effect::Tell {
            worker,
            generation: slot.generation,
            command: WorkerCommand::Compact {
                session: session.clone(),
                instructions,
            },
        });
        // It works, though it has no turn.
        self.outbox.clear(Timer::Idle(worker));
        let until = self.now.mono + COMPACTS_WITHIN;
        self.outbox.set(Timer::Compact(worker), until);
        let compacting = Compacting { conn, id, session };
        self.pool.compacts(worker, compacting);
    }

    /// An agent has shortened a session, or couldn't.
    pub(crate) fn compacted(&mut self, worker: WorkerId, result: Result<Option<String>, Failure>) {
        let Some(compacting) = self.pool.compacted(worker) else {
            // Nobody waits for it any more, or it was never asked.
            return;
        };
        let Compacting { conn, id, session } = compacting;
        self.outbox.clear(Timer::Compact(worker));
        if let Some(slot) = found!(self.pool.get_mut(worker)) {
            slot.idle_since = self.now.mono;
        }
        self.slot_freed(worker);
        match result {
            Ok(summary) => {
                let most = agentd_protocol::limits::MAX_TEXT;
                let summary = summary.map(|text| crate::text::head_and_tail(text, most).0);
                let line = Line::Compact {
                    ok: true,
                    session,
                    summary,
                };
                self.answer(conn, id, &line);
            }
            Err(failure) => self.refuse(conn, id, failure.into()),
        }
    }

    /// The process that was to shorten a session is gone.
    pub(crate) fn compact_failed(&mut self, worker: WorkerId, why: &str) {
        if self.pool.is_compacting(worker) {
            let error = format!("{why} while it shortened its memory");
            let failure = Failure::new(Code::WorkerExited, error);
            self.outbox.clear(Timer::Compact(worker));
            if let Some(Compacting { conn, id, .. }) = self.pool.compacted(worker) {
                self.refuse(conn, id, failure.into());
            }
        }
    }

    pub(crate) fn compact_timeout(&mut self, worker: WorkerId) {
        if let Some(Compacting { conn, id, session }) = self.pool.compacted(worker) {
            let within = COMPACTS_WITHIN.as_secs() / 60;
            let error = format!("the session `{session}` was not shortened within {within} min");
            self.refuse(conn, id, Rejected::new(Code::Timeout, error));
            // What it would still say can't be told from the answer to another request.
            self.restart_slot(worker, true);
        }
    }

    pub(crate) fn set_model(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        set: SetModel,
        facts: &RequestContext,
    ) {
        let again = Request::SetModel(set.clone());
        if let Some(key) = self.counts_on_pins(&again) {
            let decoded = Decoded {
                request: again,
                ignored: Vec::new(),
            };
            return self.wait_for_pins(key, conn, id, decoded, facts);
        }
        let Some(session) = self.known_session(&set.session, conn, &id, again, facts) else {
            return;
        };
        let known = expected!(self.sessions.get(session));
        if !known.stored {
            return self.refuse(conn, id, unknown_session(&set.session));
        }
        let open = self.not_closing(session);
        match open.and_then(|()| self.pins_for(known, &set)) {
            Ok(pins) => {
                if let Some(known) = found!(self.sessions.get_mut(session)) {
                    known.repinning = Some(Repinning::SetModel);
                }
                let session = set.session;
                let write = Write::Model {
                    session: session.clone(),
                    pins: pins.clone(),
                };
                let changed = Changed::Model { session, pins };
                self.outbox
                    .commit(Awaiting::Changed { conn, id, changed }, vec![write]);
            }
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    /// A process works in another mode by its agent's own doing, as when its user took its plan: the
    /// session's next turns and processes do, too. One that clients can't choose lasts no longer than
    /// its process.
    pub(crate) fn mode_changed(&mut self, worker: WorkerId, mode: ModeRow) {
        let Some(slot) = self.pool.get_mut(&worker) else {
            return self.outbox.dangling(worker);
        };
        let agent = self.settings.agents.get(&slot.agent);
        let is_told = mode.clone().fitting().is_some();
        let Some(agent) = agent.filter(|agent| is_told && is_for_clients(agent, &mode)) else {
            return;
        };
        let mode = mode.id;
        if matches!(agent.describe.modes, Modes::Known(_)) {
            slot.fit.mode = Some(mode.clone());
        }
        let Some(session) = slot.sessions.iter().next().copied() else {
            return;
        };
        let Some(known) = found!(self.sessions.get_mut(session)) else {
            return;
        };
        if known.pins.mode.as_ref() == Some(&mode) {
            return;
        }
        let pins = Pins {
            mode: Some(mode),
            ..(*known.pins).clone()
        };
        known.pins = pins.clone().into();
        let session = known.shown();
        self.session_is(&session, of_model(&pins));
        let write = Write::Model { session, pins };
        self.outbox.commit(Awaiting::Nothing, vec![write]);
    }

    /// What a session's later turns are pinned to, if its agent can change at all.
    fn pins_for(&self, session: &Session, set: &SetModel) -> Result<Pins, Rejected> {
        let Some(agent) = self.settings.agents.get(&session.agent) else {
            return Err(self.unknown_agent(&session.agent));
        };
        let describe = agent.describe;
        let holder = session.slot.and_then(|worker| self.pool.get(&worker));
        // A new process is how it gets another model: what only the old one holds would be lost.
        let forgets = describe.resume == Resume::None || holder.is_some_and(|slot| !slot.resumes);
        if !describe.model_per_turn && forgets && session.turns > 0 {
            let error = format!(
                "the agent `{}` takes its model when it starts and would forget the session `{}`",
                session.agent, set.session
            );
            return Err(Rejected::new(Code::Unsupported, error).hint("begin a new session"));
        }
        // A model's name means something to its provider only: what is in force now is kept with it.
        let provider = set.provider.as_ref().or(session.pins.provider.as_ref());
        let model = set.model.as_ref().or(session.pins.model.as_ref());
        let thinking = set.thinking.as_ref().or(session.pins.thinking.as_ref());
        let mode = set.mode.as_ref().or(session.pins.mode.as_ref());
        let pins = Pins {
            provider: provider.or(agent.provider.as_ref()).cloned(),
            model: model.or(pins::usual_model(agent, provider)).cloned(),
            thinking: thinking.or(agent.thinking.as_ref()).cloned(),
            // Not the configuration's: that is in force as long as it says so.
            mode: mode.cloned(),
        };
        pins::check(agent, &pins)?;
        if let Some(mode) = &set.mode {
            let offered = holder.and_then(|slot| slot.modes.as_ref());
            let offered = offered.and_then(|rows| rows.iter().find(|row| row.id == *mode));
            let named = ModeRow::named(mode.clone());
            pins::may_choose(agent, offered.unwrap_or(&named))?;
        }
        if let Some(slot) = holder {
            offered(slot, &pins)?;
        }
        Ok(pins)
    }
}
