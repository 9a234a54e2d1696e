//! `session.fork`: another session that begins with what the agent remembers of one.
//!
//! Owns when there can be one. The agent makes the copy when the new session's first turn begins: by
//! the id of the old one, which is left as it is. Must not know how an agent copies.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::Decoded;
use agentd_protocol::work::SessionFork;
use agentd_protocol::{Code, Id, Request};

use crate::event::RequestContext;
use crate::ids::{ConnId, SessionId};
use crate::json;
use crate::outbox::awaiting::{Awaiting, Changed};
use crate::rules::queries::unknown_session;
use crate::rules::sessions::{exists, unfinished_turns};
use crate::state::State;
use crate::store::{Fork, NewSession, Write};

impl State {
    pub(crate) fn session_fork(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        fork: SessionFork,
        facts: &RequestContext,
    ) {
        let again = Request::SessionFork(fork.clone());
        if let Some(key) = self.counts_on_pins(&again) {
            let decoded = Decoded {
                request: again,
                ignored: Vec::new(),
            };
            return self.wait_for_pins(key, conn, id, decoded, facts);
        }
        let Some(session) = self.known_session(&fork.session, conn, &id, again, facts) else {
            return;
        };
        if let Some(loading) = (fork.to.as_ref()).and_then(|to| self.sessions.asked_for(to)) {
            // Whoever asked first may make it.
            return self.wait_for_loading(&loading, conn, id, Request::SessionFork(fork), facts);
        }
        match self.forked(session, &fork) {
            Ok(made) => {
                let changed = Changed::Forked {
                    from: fork.session,
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
        // It was only looked at.
        self.forget_session_if_idle(session);
    }

    fn forked(&self, session: SessionId, fork: &SessionFork) -> Result<NewSession, Rejected> {
        self.not_closing(session)?;
        if self.mode.is_stopping() {
            return Err(self.stopping());
        }
        if let Some(to) = fork.to.as_ref().filter(|to| self.sessions.knows(to)) {
            return Err(exists(to));
        }
        let name = &fork.session;
        let known = self.sessions.get(&session);
        let known = known.ok_or_else(|| unknown_session(name))?;
        let agent = &known.agent;
        let unsupported = |error: String| Err(Rejected::new(Code::Unsupported, error));
        let can = self.settings.agents.get(agent);
        let mut processes = self.pool.slots();
        if !can.is_some_and(|can| can.describe.forks)
            || processes.any(|slot| slot.agent == *agent && slot.is_ready() && !slot.forks)
        {
            return unsupported(format!("the agent `{agent}` can't fork a session"));
        }
        if known.jobs > 0 {
            let error = format!("the session `{name}` has {}", unfinished_turns(known.jobs));
            let hint = "fork it when they have ended";
            return Err(Rejected::new(Code::SessionBusy, error).hint(hint));
        }
        if known.turns == 0 {
            let error = format!("the session `{name}` has had no turn: there is nothing to fork");
            return Err(
                Rejected::new(Code::InvalidRequest, error).hint("`session.new` makes another one")
            );
        }
        let Some(native) = known.reopened_by() else {
            return unsupported(format!(
                "the agent `{agent}` has no id by which it could open the session `{name}` again"
            ));
        };
        Ok(NewSession {
            name: fork.to.clone(),
            agent: agent.clone(),
            cwd: known.cwd.clone(),
            real_cwd: known.real_cwd.as_deref().map(str::to_owned),
            toolsets: known.toolsets.as_ref().map(json::text),
            system: known.system.as_deref().map(str::to_owned),
            mcp_servers: known.mcp_servers.clone(),
            fork: Some(Box::new(Fork {
                from: name.clone(),
                native: native.to_owned(),
                turns: known.turns,
                pins: (*known.pins).clone(),
            })),
            at: self.now.wall_ms,
        })
    }
}
