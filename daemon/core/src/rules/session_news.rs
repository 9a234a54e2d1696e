//! What becomes of sessions, for subscribers who asked for that.
//!
//! Owns what they were told of each. It costs no commit: a reader that was behind isn't told again, but
//! that it missed something. Must not know why a session changes.

use agentd_protocol::line::{Line, SessionChange, SessionChanged, Telling};
use agentd_protocol::rows::SessionPhase;

use crate::effect::Progress;
use crate::ids::{ConnId, SessionId};
use crate::peers::conn::{Place, Stage};
use crate::state::State;
use crate::store::Pins;

impl State {
    /// A session was made, or is otherwise than it was: who wants to hear it does.
    pub(crate) fn session_is(&mut self, session: &str, change: SessionChanged) {
        if !self.peers.hear_of_sessions() {
            return;
        }
        let changed = SessionChanged {
            session: Some(session.to_owned()),
            ..change
        };
        let body = Line::SessionChanged(Box::new(changed)).body();
        // A copy: a subscription may end while its lines are told.
        for conn in self.peers.subscribers().clone() {
            let known = self.peers.connected_mut(&conn);
            let Some(subscription) = known.and_then(|known| known.subscription.as_mut()) else {
                continue;
            };
            let wanted = subscription.session.as_deref();
            if !subscription.sessions || wanted.is_some_and(|wanted| wanted != session) {
                continue;
            }
            if subscription.place != Place::Live || subscription.stage != Stage::Answered {
                subscription.missed = true;
                continue;
            }
            let id = subscription.id.clone();
            self.send(conn, &body, id, None, Telling::First, Progress::More);
            self.check_window(conn);
        }
    }

    /// What a session does may be something else now.
    pub(crate) fn tell_state(&mut self, id: SessionId) {
        if !self.peers.hear_of_sessions() {
            self.peers.heard().clear();
            return;
        }
        let known = self.sessions.get(&id);
        if known.is_some_and(|known| !known.stored) {
            // It may come to nothing.
            return;
        }
        let named = known.and_then(|known| known.name.clone());
        let phase = known.map_or(SessionPhase::Idle, |known| self.phase_of_session(known));
        let heard = self.peers.heard();
        let before = heard.get(&id).cloned();
        let Some(name) = named.or_else(|| before.as_ref().map(|(name, _)| name.clone())) else {
            // Nobody can name it yet.
            return;
        };
        if before.map_or(SessionPhase::Idle, |(_, phase)| phase) == phase {
            return;
        }
        match phase {
            SessionPhase::Idle => heard.remove(&id),
            _ => heard.insert(id, (name.clone(), phase)),
        };
        self.session_is(&name, state(phase));
    }

    /// A subscriber is up to date from now on: it hears which sessions do something.
    pub(crate) fn tell_states(&mut self, conn: ConnId) {
        let known = self.peers.connected_mut(&conn);
        let Some(subscription) = known.and_then(|known| known.subscription.as_mut()) else {
            return;
        };
        if !subscription.sessions {
            return;
        }
        let (id, wanted) = (subscription.id.clone(), subscription.session.clone());
        let missed = std::mem::take(&mut subscription.missed);
        let busy = self.sessions.iter().filter_map(|(id, known)| {
            let phase = self.phase_of_session(known);
            let name = known.name.clone()?;
            (phase != SessionPhase::Idle).then_some((id, (name, phase)))
        });
        let busy: Vec<_> = busy.collect();
        let mut lines = Vec::new();
        if missed {
            lines.push(SessionChanged::default());
        }
        for (id, (name, phase)) in busy {
            self.peers.heard().insert(id, (name.clone(), phase));
            if wanted.as_ref().is_none_or(|wanted| *wanted == name) {
                lines.push(SessionChanged {
                    session: Some(name),
                    ..state(phase)
                });
            }
        }
        for line in lines {
            let body = Line::SessionChanged(Box::new(line)).body();
            let (first, more) = (Telling::First, Progress::More);
            self.send(conn, &body, id.clone(), None, first, more);
        }
        self.check_window(conn);
    }
}

fn state(phase: SessionPhase) -> SessionChanged {
    SessionChanged {
        state: Some(phase),
        ..changed(SessionChange::State)
    }
}

/// One that says nothing else yet.
pub(crate) fn changed(change: SessionChange) -> SessionChanged {
    SessionChanged {
        change,
        ..SessionChanged::default()
    }
}

/// Other pins for its turns.
pub(crate) fn of_model(pins: &Pins) -> SessionChanged {
    SessionChanged {
        provider: pins.provider.clone(),
        model: pins.model.clone(),
        thinking: pins.thinking.clone(),
        mode: pins.mode.clone(),
        ..changed(SessionChange::Model)
    }
}
