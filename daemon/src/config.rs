//! What the user configured. Plain data and its reader; owns the keys of `config.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::adapter::Kind;

/// One agent as it is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// Its wire.
    pub kind: Kind,
    /// Program (absolute path) and arguments.
    pub command: Vec<String>,
    /// Variables set for it.
    pub env: BTreeMap<String, String>,
    /// Variables passed through from the daemon's environment or the `env` file.
    pub pass_env: Vec<String>,
    /// Spare processes to keep.
    pub warm: u32,
    /// An idle process is stopped after this time.
    pub idle_timeout: Duration,
    /// Default model provider.
    pub provider: Option<String>,
    /// Default model.
    pub model: Option<String>,
    /// Default thinking level.
    pub thinking: Option<String>,
}

/// The whole configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Who answers when nobody is named.
    pub default_agent: Option<String>,
    /// The configured agents by name.
    pub agents: BTreeMap<String, AgentConfig>,
    /// Where the alias of the socket is; `None` when there is to be none.
    pub alias: Option<PathBuf>,
    /// Key-value pairs of the 0600 `env` file, available to `pass_env`.
    pub secrets: BTreeMap<String, String>,
}
