//! MCP servers of a session, as they are kept and handed on.
//!
//! Owns them as one value that no log shows. Must not know how an agent takes them.

use std::sync::Arc;

use agentd_protocol::request::McpServer;

use crate::json;

/// How an agent takes servers that its session brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum McpServing {
    /// It takes none.
    Never,
    /// When its process starts, or opens its session: another list is another process.
    AtStart,
    /// With each turn, if its handshake says so.
    WithTurn,
}

/// The servers of a session, by their names. They may hold secrets: `Debug` says how many bytes. Most
/// sessions have none, and it is one word in them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct McpServers(Option<Arc<String>>);

impl std::fmt::Debug for McpServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "McpServers({} bytes)", self.bytes())
    }
}

impl McpServers {
    /// These, in whatever order they were given.
    #[must_use]
    pub fn of(servers: &[McpServer]) -> Self {
        let mut servers: Vec<&McpServer> = servers.iter().collect();
        servers.sort_by_key(|server| server.name());
        Self((!servers.is_empty()).then(|| json::text(&servers).into()))
    }

    /// As the store has them.
    #[must_use]
    pub fn stored(text: Option<String>) -> Self {
        Self(text.map(Into::into))
    }

    /// For the store.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref().map(String::as_str)
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Each of them.
    #[must_use]
    pub fn list(&self) -> Vec<McpServer> {
        self.text().and_then(json::servers).unwrap_or_default()
    }

    /// What they are called: all that is told of them.
    #[must_use]
    pub fn named(&self) -> Option<Vec<String>> {
        let named = |list: Vec<McpServer>| list.iter().map(|one| one.name().to_owned()).collect();
        (!self.is_empty()).then(|| named(self.list()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text().map_or(0, str::len)
    }
}

/// A session's servers become others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserving {
    /// What they were, should it come to nothing.
    pub from: McpServers,
    /// What they are from now on.
    pub to: McpServers,
}
