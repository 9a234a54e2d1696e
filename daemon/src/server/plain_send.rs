//! Whom a send goes to that names no agent, as things are on this host.
//!
//! Owns that look for who changes the configuration or examines it. The daemon's core decides by the
//! same rule. Must not know what is said of it.

use std::path::Path;

use agentd_core::agent::Agent;
use agentd_core::answerers::{choices, ready};

use super::runtime;
use crate::config::{self, Config};
use crate::platform::files::Files;

/// Whom it goes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlainSend {
    /// The one that the configuration names.
    Configured(String),
    /// The only one that is ready.
    Only(String),
    /// Any of these could answer, so none does.
    Several(Vec<String>),
    /// No agent can be used.
    Nobody,
}

impl PlainSend {
    /// With this configuration.
    #[must_use]
    pub fn of(config: &Config, state_dir: &Path) -> Self {
        if let Some(name) = &config.default_agent {
            return Self::Configured(name.clone());
        }
        let seen = runtime::look(config, state_dir)(&Files::default());
        let agents = seen.agents.iter().map(|(agent, _)| agent);
        let mut usable: Vec<&Agent> = agents.filter(|agent| agent.usable.is_ok()).collect();
        usable.sort_by(|one, other| one.name.cmp(&other.name));
        match ready(&usable).as_slice() {
            [] => Self::Nobody,
            [one] => Self::Only(one.name.clone()),
            _several => {
                let several = choices(&usable);
                Self::Several(several.iter().map(|agent| agent.name.clone()).collect())
            }
        }
    }

    /// What an agent that is there lacks, as far as files and variables say, and what to do.
    #[must_use]
    pub fn lacks(name: &str, config: &Config, state_dir: &Path) -> Option<String> {
        let seen = runtime::look(config, state_dir)(&Files::default());
        let (agent, run) = seen.agents.iter().find(|(agent, _)| agent.name == name)?;
        match (agent.logged_in, run) {
            (Some(false), _) => Some(format!(
                "nobody is logged in to `{name}`, as far as can be seen; `agentctl agents test \
                 {name}` tries it"
            )),
            (None, Some(run)) if config::is_built_in(run) => Some(format!(
                "`{name}` has neither a key nor a model, as far as can be seen: `agentctl provider \
                 add NAME` stores a key, `agentctl models default PROVIDER/MODEL` chooses a model, \
                 also of a server on this machine; `agentctl config set agents.{name}.provider echo` \
                 has it say prompts back"
            )),
            _ => None,
        }
    }

    /// Who answers it.
    #[must_use]
    pub fn answerer(&self) -> Option<&str> {
        match self {
            Self::Configured(name) | Self::Only(name) => Some(name),
            Self::Several(_) | Self::Nobody => None,
        }
    }

    /// Who could answer it, where nobody is chosen.
    #[must_use]
    pub fn choices(&self) -> &[String] {
        match self {
            Self::Several(names) => names,
            Self::Configured(_) | Self::Only(_) | Self::Nobody => &[],
        }
    }
}
