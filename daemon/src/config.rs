//! What the user configured. Plain data and its reader; owns the keys of `config.toml`.
//!
//! Must not run anything, nor know sockets, sessions or the store.

mod discover;
mod edit;
mod endpoints;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod presets;
mod read;
mod routes;
mod secrets;
mod set;
mod show;
#[cfg(test)]
mod tests;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use discover::{TIMMY, agents, exec_form, looked_for, one_shot, why_not_there};
pub use edit::{Change, EditError, NewAgent, check_ours, save};
pub use endpoints::{
    Endpoint, EndpointChange, Endpoints, Secret, literal, refused as refused_callbacks, within,
};
pub use presets::{
    is_built_in, is_its_own, logged_in, long_lived_word, passes, tells_version, why_another,
};
use read::kinds;
pub use set::{Edit, Judge, edit};
pub use show::{Shown, seen_json};
pub use warnings::Warning;

use agentd_base::settings;
use agentd_base::trusted::{self, Untrusted, typed};
use agentd_core::agent::{Found, Warm};
use agentd_protocol::nearest::nearest;
use agentd_protocol::routed::AUTO;
use agentd_route::Rule;

use crate::adapter::{Kind, exec};
use crate::platform::files::Files;

/// Where scripts find the daemon without knowing anything, unless the user says otherwise.
pub const DEFAULT_ALIAS: &str = "/tmp/timmy.sock";
/// A process idle this long is stopped, unless the user says otherwise.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// What `agentctl` does where no daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientStart {
    /// Asks whoever sits there, once.
    Ask,
    /// Starts one.
    Always,
    /// Runs each turn by itself.
    Never,
}

impl ClientStart {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Ask, Self::Always, Self::Never];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// For how long ended jobs are kept, and how much of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Days since their end.
    pub days: u32,
    /// Bytes of the store.
    pub size: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            days: 30,
            size: 1 << 30,
        }
    }
}

/// One agent as it is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// Its wire.
    pub kind: Kind,
    /// Program and arguments. The program is an absolute path; a bare name is one that was not
    /// found on PATH, and such an agent is not usable.
    pub command: Vec<String>,
    /// The bare name that its program was looked up by: it may be elsewhere by now.
    pub bare: Option<String>,
    /// What its output is, for the kind `exec`.
    pub output: exec::Output,
    /// Variables set for it.
    pub env: BTreeMap<String, String>,
    /// Variables passed through from the daemon's environment or the `env` file.
    pub pass_env: Vec<String>,
    /// Spare processes to keep.
    pub warm: Warm,
    /// An idle process is stopped after this time.
    pub idle_timeout: Duration,
    /// Default model provider.
    pub provider: Option<String>,
    /// Default model.
    pub model: Option<String>,
    /// Default thinking level.
    pub thinking: Option<String>,
    /// Default mode.
    pub mode: Option<String>,
    /// It is run in its exec form because its program's help has no such word.
    pub lacks: Option<&'static str>,
    /// What was most likely not meant, for people to be told.
    pub warnings: Vec<Warning>,
}

impl AgentConfig {
    /// An agent with nothing but a command.
    #[must_use]
    pub fn new(kind: Kind, command: Vec<String>) -> Self {
        Self {
            kind,
            command,
            bare: None,
            output: exec::Output::Text,
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            warm: Warm::WhenUsed,
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            provider: None,
            model: None,
            thinking: None,
            mode: None,
            lacks: None,
            warnings: Vec::new(),
        }
    }
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
    /// What `[models]`, `[providers]` and `[timmy]` say to the built-in agent, by dotted key, as it
    /// is written.
    pub of_timmy: BTreeMap<String, String>,
    /// What the built-in agent can't read of that; `None` until it was asked.
    pub unread: Option<Warning>,
    /// Variables that hold keys of providers that `[providers]` names: the built-in agent gets them.
    pub provider_keys: Vec<String>,
    /// The file that all this is from, for the agent that reads it, too.
    pub file: PathBuf,
    /// Which agent answers what is left to them, in their order.
    pub routes: Vec<Rule>,
    /// The same by dotted key, as it is written.
    pub of_routes: BTreeMap<String, String>,
    /// What `agentctl` does where no daemon runs: it reads this for itself.
    pub start: Option<ClientStart>,
    /// What the store forgets.
    pub retention: Retention,
    /// What spares that nobody configured may take together, in bytes.
    pub spare_memory: Option<u64>,
    /// Where each value was given, by its dotted key; what isn't in it is a default.
    pub given: BTreeMap<String, String>,
}

/// What the configuration is read in front of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostEnv {
    /// The directories of PATH; relative ones are never looked into.
    pub path: Vec<PathBuf>,
    /// Where programs are though PATH doesn't say so: see `presets`.
    pub places: Vec<PathBuf>,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// Variables that move what agents keep.
    pub variables: BTreeMap<String, PathBuf>,
    /// Programs that are known to lack their long-lived form.
    pub exec_only: BTreeSet<PathBuf>,
    /// Programs that are known to be something else than their name says, with their own words.
    pub others: BTreeMap<PathBuf, String>,
    /// Where this program's siblings are.
    pub exe_dir: Option<PathBuf>,
    /// The value of `AGENTD_ALIAS`.
    pub alias: Option<String>,
    /// How files are looked at.
    pub files: Files,
}

/// The default agent is none.
#[derive(Debug, thiserror::Error)]
#[error("{}: `default_agent` is `{default}`, which is no agent; hint: {hint}", file.display())]
pub struct NoSuchDefault {
    file: PathBuf,
    default: String,
    hint: String,
}

/// Why the configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("can't read `{}`: {source}{}", file.display(), settings::unreadable(file, source))]
    Io {
        /// Which.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The user has to change something.
    #[error("{}:{line}: {what}{}", file.display(), hint.as_ref().map(|hint| format!("; hint: {hint}")).unwrap_or_default())]
    Wrong {
        /// Where.
        file: PathBuf,
        /// In which line, counted from 1.
        line: usize,
        /// What was found, and what was expected.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// Others can read the secrets.
    #[error("`{}` has mode {mode:04o}, expected 0600, as it holds secrets; hint: chmod 600 {}", file.display(), typed(file))]
    Readable {
        /// Which file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Others can change what it says.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
}

/// Is it a key of a table that the built-in agent reads for itself?
#[must_use]
pub fn is_of_timmy(key: &str) -> bool {
    let table = key.split_once('.').map_or(key, |(table, _)| table);
    matches!(table, "models" | "providers" | "timmy")
}

/// What `auto` needs.
const NO_ROUTES: &str =
    "`auto` needs a `[[route]]` in config.toml that says which agent answers what";

/// Is the default agent one that there is?
///
/// # Errors
/// Says which there are.
pub fn check_default(config: &Config, file: &Path, look: &HostEnv) -> Result<(), NoSuchDefault> {
    let Some(default) = &config.default_agent else {
        return Ok(());
    };
    if default == AUTO {
        return match config.routes.is_empty() {
            false => Ok(()),
            true => Err(NoSuchDefault {
                file: file.to_owned(),
                default: default.clone(),
                hint: NO_ROUTES.to_owned(),
            }),
        };
    }
    // Only a name that isn't configured has to be looked for.
    if config.agents.contains_key(default) {
        return Ok(());
    }
    let agents = agents(config, look);
    let names = || agents.iter().map(|(agent, _)| agent.name.as_str());
    if names().any(|name| name == default) {
        return Ok(());
    }
    let known: Vec<&str> = names().collect();
    let hint = match nearest(default, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known agents: {}", known.join(", ")),
    };
    Err(NoSuchDefault {
        file: file.to_owned(),
        default: default.clone(),
        hint,
    })
}

impl HostEnv {
    /// What this process sees.
    #[must_use]
    pub fn here() -> Self {
        Self::with(Files::default())
    }

    /// The same, with the files looked at in another way.
    #[must_use]
    pub fn with(files: Files) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Self {
            path: std::env::split_paths(&path).collect(),
            places: presets::places(home.as_deref(), &files),
            home,
            variables: presets::MOVE
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), std::env::var_os(name)?.into())))
                .collect(),
            exec_only: BTreeSet::new(),
            others: BTreeMap::new(),
            exe_dir: std::env::current_exe()
                .ok()
                .and_then(|exe| Some(exe.parent()?.to_owned())),
            alias: std::env::var("AGENTD_ALIAS").ok(),
            files,
        }
    }

    /// Finds a program by its bare name: on PATH, else where installers put it. Neither an empty
    /// nor a relative entry of PATH counts: they mean the current directory, which is anybody's.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<(PathBuf, Found)> {
        let mut candidates = self.candidates(name);
        candidates.find(|(file, _)| self.files.is_program(file))
    }

    /// What has this name where programs are looked for, and why it can't be run.
    #[must_use]
    pub fn stumbled_over(&self, name: &str) -> Option<String> {
        self.candidates(name)
            .find_map(|(file, _)| discover::why_no_program(&file, &self.files))
    }

    fn candidates(&self, name: &str) -> impl Iterator<Item = (PathBuf, Found)> {
        let on_path = self.path.iter().map(|dir| (dir, Found::OnPath));
        let in_place = self.places.iter().map(|dir| (dir, Found::InPlace));
        on_path
            .chain(in_place)
            .filter(|(dir, _)| dir.is_absolute())
            .map(move |(dir, found)| (dir.join(name), found))
    }
}

impl Config {
    /// Reads both files; a missing one is an empty one.
    pub fn load(file: &Path, env_file: &Path, look: &HostEnv) -> Result<Self, ConfigError> {
        trusted::check(file)?;
        let text = settings::read(file).map_err(|source| ConfigError::Io {
            file: file.to_owned(),
            source,
        })?;
        let mut config = Self::parse(&text, file, look)?;
        config.secrets = secrets::load(env_file)?;
        for name in config.secrets.keys() {
            let source = env_file.display().to_string();
            config.given.insert(format!("env.{name}"), source);
        }
        Ok(config)
    }

    /// Reads the text of `file`.
    pub fn parse(text: &str, file: &Path, look: &HostEnv) -> Result<Self, ConfigError> {
        let mut config = read::read(text, file, look)?;
        config.file = file.to_owned();
        if !config.given.contains_key("alias") {
            config.alias = Some(PathBuf::from(DEFAULT_ALIAS));
        }
        if let Some(alias) = look.alias.as_deref().filter(|alias| !alias.is_empty()) {
            config.alias = (alias != "false").then(|| PathBuf::from(alias));
            let source = "AGENTD_ALIAS".to_owned();
            config.given.insert("alias".to_owned(), source);
        }
        Ok(config)
    }
}
