//! Which MCP servers a session's agent has besides its own.
//!
//! Owns who may bring some, when they may change, and which agent takes them. Must not know how.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::Send;

use crate::agent::{Agent, Resume};
use crate::event::RequestContext;
use crate::mcp::{McpServers, McpServing, Reserving};
use crate::rules::sessions::unfinished_turns;
use crate::sessions::session::Session;
use crate::state::State;

/// What a session has from a send on: what that brings, or what it had.
fn from_now_on(session: Option<&Session>, send: &Send) -> McpServers {
    match (&send.mcp_servers, session) {
        (Some(servers), _) => McpServers::of(servers),
        (None, Some(session)) => session.mcp_servers.clone(),
        (None, None) => McpServers::default(),
    }
}

/// Does an agent take what its session has?
pub(crate) fn servers_fit(
    agent: &Agent,
    session: Option<&Session>,
    send: &Send,
) -> Result<(), Rejected> {
    if agent.describe.mcp != McpServing::Never || from_now_on(session, send).is_empty() {
        return Ok(());
    }
    let error = format!(
        "`mcp_servers` was given, but the agent `{}` takes none with a session",
        agent.name
    );
    let hint = "leave it out, and configure them in the agent itself, or ask another agent";
    Err(Rejected::new(Code::Unsupported, error).hint(hint))
}

/// Takes what a send brings out of it: kept with the session alone, nobody reads it where requests are
/// read. Of the process that is looked for before this one is stored, too.
pub(crate) fn brought(session: &mut Session, send: &mut Send) -> Option<Box<Reserving>> {
    let to = McpServers::of(&send.mcp_servers.take()?);
    if to == session.mcp_servers {
        return None;
    }
    let from = std::mem::replace(&mut session.mcp_servers, to.clone());
    Some(Box::new(Reserving { from, to }))
}

impl State {
    /// May whoever asks have programs started, and strangers asked?
    pub(crate) fn may_bring_servers(
        &self,
        send: &Send,
        facts: &RequestContext,
    ) -> Result<(), Rejected> {
        let brings = send.mcp_servers.as_ref();
        // What runs one is outside of what an agent is confined to.
        if brings.is_some_and(|all| !all.is_empty()) && self.is_worker(&facts.descent) {
            let error = "`mcp_servers`: an agent can't bring any from inside its worker";
            return Err(Rejected::new(Code::Forbidden, error));
        }
        Ok(())
    }

    /// May a send bring others than its session has?
    pub(crate) fn may_change_servers(
        &self,
        session: &Session,
        send: &Send,
    ) -> Result<(), Rejected> {
        if from_now_on(Some(session), send) == session.mcp_servers {
            return Ok(());
        }
        let shown = session.shown();
        if session.jobs > 0 {
            let error = format!(
                "`mcp_servers` are others than those of the session `{shown}`, which has {}",
                unfinished_turns(session.jobs)
            );
            let hint = "leave the field out, or bring them when these have ended";
            return Err(Rejected::new(Code::SessionBusy, error).hint(hint));
        }
        let Some(agent) = self.settings.agents.get(&session.agent) else {
            return Ok(());
        };
        let holder = session.slot.and_then(|worker| self.pool.get(&worker));
        // A new process is how it gets others: what only the old one holds would be lost.
        let forgets =
            agent.describe.resume == Resume::None || holder.is_some_and(|slot| !slot.resumes);
        if agent.describe.mcp == McpServing::AtStart && forgets && session.turns > 0 {
            let error = format!(
                "the agent `{}` takes its MCP servers when it starts and would forget the session \
                 `{shown}`",
                session.agent
            );
            return Err(Rejected::new(Code::Unsupported, error).hint("begin a new session"));
        }
        Ok(())
    }
}
