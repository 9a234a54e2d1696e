//! What a session begins with besides its first prompt.
//!
//! Owns the syntax of a system text and of earlier messages. Must not know what an agent takes.

use serde::{Deserialize, Serialize};

use super::Send;
use crate::envelope::{Rejected, invalid};
use crate::limits::{MAX_HISTORY, MAX_HISTORY_BYTES, MAX_SYSTEM};

/// A message of a conversation that was held elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Earlier {
    /// Whose it is.
    pub role: Speaker,
    /// What was said; not blank.
    pub text: String,
}

/// Who said something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Speaker {
    /// A person, or whoever asked in their place.
    User,
    /// The agent, or the model in its place.
    Assistant,
}

impl Send {
    /// Does it say what a session begins with?
    #[must_use]
    pub const fn begins(&self) -> bool {
        self.system.is_some() || !self.history.is_empty()
    }

    /// Bytes of all that it says.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let system = self.system.as_ref().map_or(0, String::len);
        let history = self.history.iter().map(|earlier| earlier.text.len());
        let servers = self
            .mcp_servers
            .as_ref()
            .and_then(|all| serde_json::to_string(all).ok());
        let servers = servers.map_or(0, |text| text.len());
        self.text.len() + system + history.sum::<usize>() + servers
    }
}

/// Checks a system text.
pub(super) fn check_system(system: Option<&str>) -> Result<(), Rejected> {
    let Some(system) = system else {
        return Ok(());
    };
    if system.trim().is_empty() {
        return Err(invalid(
            "`system` is blank: expected what the agent is told, or no `system`",
        ));
    }
    if system.len() > MAX_SYSTEM {
        let bytes = system.len();
        return Err(invalid(format!(
            "`system` has {bytes} bytes, the limit is {MAX_SYSTEM}"
        )));
    }
    match system.contains('\0') {
        // No argument of a command can have one.
        true => Err(invalid("`system` contains a NUL: expected text")),
        false => Ok(()),
    }
}

pub(super) fn check_history(history: &[Earlier]) -> Result<(), Rejected> {
    if history.len() > MAX_HISTORY {
        let count = history.len();
        return Err(invalid(format!(
            "`history` has {count} entries, the limit is {MAX_HISTORY}"
        )));
    }
    if let Some(at) = history
        .iter()
        .position(|earlier| earlier.text.trim().is_empty())
    {
        return Err(invalid(format!(
            "`history[{at}]` is blank: expected what was said"
        )));
    }
    let bytes: usize = history.iter().map(|earlier| earlier.text.len()).sum();
    if bytes > MAX_HISTORY_BYTES {
        return Err(invalid(format!(
            "`history` has {bytes} bytes of text, the limit is {MAX_HISTORY_BYTES}"
        )));
    }
    Ok(())
}
