//! `commands`: what an agent understands when a prompt begins with `/` and its name.
//!
//! Owns the request, its rows and how long they may be. Must not know any agent.

use serde::{Deserialize, Serialize};

use crate::envelope::{Checked, Rejected};
use crate::models::Models;

/// `commands`: which slash commands an agent has, or that of a session.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Commands {
    /// Whose; without, and without a session, the one that a send would go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// That of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl Commands {
    /// Of whom, as `models` asks it.
    #[must_use]
    pub fn asked(self) -> Models {
        Models {
            agent: self.agent,
            session: self.session,
            after: None,
        }
    }
}

impl Checked for Commands {
    fn check(&self) -> Result<(), Rejected> {
        self.clone().asked().check()
    }
}

/// A command as its agent tells it. A prompt that begins with `/` and the name is one.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct CommandRow {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl CommandRow {
    /// Longest name in bytes.
    pub const LONGEST_NAME: usize = 128;
    /// Longest description or hint in bytes.
    pub const LONGEST_TEXT: usize = 1024;

    /// As it can be told, whatever its agent said; nothing if its name can't be typed. What people
    /// only read is cut.
    #[must_use]
    pub fn fitting(mut self) -> Option<Self> {
        if let Some(bare) = self.name.strip_prefix('/') {
            self.name = bare.to_owned();
        }
        let name = &self.name;
        let typed = |name: &str| !name.contains(char::is_control) && name.trim() == name;
        if name.is_empty() || name.len() > Self::LONGEST_NAME || !typed(name) {
            return None;
        }
        for text in [&mut self.description, &mut self.hint] {
            *text = text.take().filter(|text| !text.trim().is_empty());
            if let Some(text) = text {
                text.truncate(text.floor_char_boundary(Self::LONGEST_TEXT));
            }
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_as_they_are_typed() {
        let row = |name: &str| CommandRow {
            name: name.to_owned(),
            description: Some("ü".repeat(600)),
            hint: Some(" ".to_owned()),
        };
        for name in ["", "/", " a", "a\nb", &"x".repeat(129)] {
            assert_eq!(row(name).fitting(), None, "{name:?}");
        }
        let fitting = row("/memory show").fitting().unwrap();
        assert_eq!((fitting.name.as_str(), fitting.hint), ("memory show", None));
        assert_eq!(fitting.description.unwrap().len(), 1024);
    }
}
