//! What a process has to be started with for a turn.
//!
//! Owns that comparison. Must not know which processes there are.

use std::sync::Arc;

use crate::agent::{Agent, Modes, SystemText};
use crate::jobs::job::Job;
use crate::mcp::{McpServers, McpServing};
use crate::pins;
use crate::sessions::session::Session;
use crate::store::Pins;

/// What a process was started with: it serves only what fits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fit {
    pub(crate) cwd: String,
    pub(crate) toolsets: Option<Vec<String>>,
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) thinking: Option<String>,
    pub(crate) mode: Option<String>,
    /// What its session's agent is told, where its process is started with that.
    pub(crate) system: Option<Arc<str>>,
    /// MCP servers of its session, likewise.
    pub(crate) mcp_servers: McpServers,
    /// Of its agent's configuration.
    pub(crate) revision: u64,
}

impl Fit {
    /// What a turn needs.
    pub(crate) fn of(agent: &Agent, session: &Session, job: &Job) -> Self {
        Self::with(agent, session, job.terms.pins())
    }

    /// What a turn with these pins needs. Those that go with each turn don't bind the process; a
    /// turn that names none goes on with those of the session's last one.
    pub(crate) fn with(agent: &Agent, session: &Session, named: Pins) -> Self {
        let last = &session.last;
        // A model's name means something to its provider only.
        let (provider, model) = match (named.provider, named.model) {
            (None, None) => (last.provider.clone(), last.model.clone()),
            own => own,
        };
        let thinking = named.thinking.or_else(|| last.thinking.clone());
        Self {
            cwd: session.cwd.clone(),
            toolsets: session.toolsets.clone(),
            provider: provider.filter(|_| !agent.describe.model_per_turn),
            model: model.filter(|_| !agent.describe.model_per_turn),
            thinking: thinking.filter(|_| !agent.describe.thinking_per_turn),
            mode: at_start(agent, pins::mode(agent, &session.pins)),
            system: (session.system.clone())
                .filter(|_| agent.describe.system == SystemText::AtStart),
            mcp_servers: match agent.describe.mcp {
                McpServing::AtStart => session.mcp_servers.clone(),
                McpServing::Never | McpServing::WithTurn => McpServers::default(),
            },
            // The process that holds it may be older than the configuration.
            revision: session.revision.unwrap_or(agent.revision),
        }
    }

    /// What an unpinned turn in the default directory needs.
    pub(crate) fn usual(agent: &Agent, home: &str) -> Self {
        let pin = |value: &Option<String>, per_turn: bool| value.clone().filter(|_| !per_turn);
        let (model, thinking) = (
            agent.describe.model_per_turn,
            agent.describe.thinking_per_turn,
        );
        Self {
            cwd: home.to_owned(),
            toolsets: None,
            provider: pin(&agent.provider, model),
            model: pin(&agent.model, model),
            thinking: pin(&agent.thinking, thinking),
            mode: at_start(agent, agent.mode.clone()),
            system: None,
            mcp_servers: McpServers::default(),
            revision: agent.revision,
        }
    }

    /// Of its pins, those that its process has.
    pub(crate) fn pins(&self) -> Pins {
        Pins {
            provider: self.provider.clone(),
            model: self.model.clone(),
            thinking: self.thinking.clone(),
            mode: self.mode.clone(),
        }
    }
}

/// A mode that its process is started with.
fn at_start(agent: &Agent, mode: Option<String>) -> Option<String> {
    mode.filter(|_| matches!(agent.describe.modes, Modes::Known(_)))
}

/// What the processes of an agent take: turns that any of them could take wait in one lane, so it is
/// what all that live have said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reach {
    /// Its directory with each turn, rather than at its start.
    pub(crate) cwd: bool,
    /// Its tools, likewise.
    pub(crate) toolsets: bool,
    /// One session only; as the last one said.
    pub(crate) one_session: bool,
    /// So many turns at once; as the last one said.
    pub(crate) turns: u32,
}

impl Reach {
    /// What is left of a fit that a process has to be started with.
    pub(crate) fn rest(self, mut fit: Fit) -> Fit {
        if self.cwd {
            fit.cwd = String::new();
        }
        if self.toolsets {
            fit.toolsets = None;
        }
        fit
    }
}
