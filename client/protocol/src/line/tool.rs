//! What a tool call does, in `tool_start`, in `tool_end` and in the trace of tools.
//!
//! Owns the words. Must not know which agent said them.

use serde::{Deserialize, Serialize};

/// What a tool does, in the words of the Agent Client Protocol.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    /// None of these, or a word that this version doesn't know.
    #[default]
    #[serde(other)]
    Other,
}

impl ToolKind {
    /// Its word on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
            Self::Delete => "delete",
            Self::Move => "move",
            Self::Search => "search",
            Self::Execute => "execute",
            Self::Think => "think",
            Self::Fetch => "fetch",
            Self::Other => "other",
        }
    }
}

/// A file that a tool call is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolLocation {
    /// As the agent names it.
    pub path: String,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// What a tool call changed in one file.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileChange {
    /// As the agent names it.
    pub path: String,
    /// The text that was replaced: a passage or the whole file. None where the agent doesn't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// What is there instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// In place of both, where the agent tells it so: a unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

impl FileChange {
    /// Bytes of its texts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = [&self.old, &self.new, &self.diff];
        let texts = texts.into_iter().flatten().map(String::len);
        self.path.len() + texts.sum::<usize>()
    }
}
