//! What agents say of themselves when they are asked, and of their context.
//!
//! Owns these values, as they were said. Must not know who asks.

use agentd_protocol::commands::CommandRow;
use agentd_protocol::models::{ModeRow, ModelRow};

/// The models of an agent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ModelList {
    /// In the agent's order; not yet held to any limit.
    pub rows: Vec<ModelRow>,
    /// Its modes, likewise.
    pub modes: Vec<ModeRow>,
    /// The mode of a session for which none was set.
    pub mode: Option<String>,
    /// What is not as one may think.
    pub note: Option<String>,
}

/// The slash commands of an agent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CommandList {
    /// In the agent's order; not yet held to any limit.
    pub rows: Vec<CommandRow>,
    /// What is not as one may think.
    pub note: Option<String>,
}

/// How full the context of a session is, as its agent counts it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ContextUse {
    /// Tokens of the conversation with its last answer.
    pub tokens: Option<u64>,
    /// Tokens that fit.
    pub window: Option<u64>,
}

impl ContextUse {
    /// What is told of it: agents say 0 of what they don't know.
    #[must_use]
    pub fn known(tokens: Option<u64>, window: Option<u64>) -> Self {
        Self {
            tokens: tokens.filter(|tokens| *tokens > 0),
            window: window.filter(|window| *window > 0),
        }
    }
}
