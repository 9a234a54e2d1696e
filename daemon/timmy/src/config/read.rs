//! Where `config.toml` is, and what is wrong in it.
//!
//! Owns the look-up, the lines of errors, and what the tables can't say by their types. Must not
//! know the daemon's tables, nor whether a key is there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use agentd_base::configuration;
use agentd_base::env_file::is_variable;
use agentd_base::settings;
use agentd_base::trusted::{self, Untrusted};
use agentd_protocol::limits::MAX_FALLBACKS;
use agentd_protocol::nearest::nearest;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{Config, McpServer, ProviderConfig, Timmy};
use crate::ECHO;
use crate::provider::Wire;
use crate::provider::table::{self, Unusable};
use crate::tool::toolset::Toolset;

/// Longest name of a provider or an alias.
const NAME: usize = 64;
/// How keys begin; a variable's name doesn't.
const LIKE_KEYS: &[&str] = &["sk-", "sk_", "AIza", "gsk_", "xai-"];

/// Where the files are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Places {
    /// `config.toml`.
    pub(crate) config: PathBuf,
    /// The directory of what timmy remembers.
    pub(crate) state: PathBuf,
}

impl Places {
    /// Those of this process.
    ///
    /// # Errors
    /// What has to be set.
    pub(crate) fn here() -> Result<Self, String> {
        let state = agentd_client::places::Environment::of_process().state_dir();
        Self::of(&|name| std::env::var_os(name), state)
    }

    fn of(
        variable: &dyn Fn(&str) -> Option<OsString>,
        state: Option<PathBuf>,
    ) -> Result<Self, String> {
        match (configuration::file(variable), state) {
            (Some(config), Some(state)) => Ok(Self { config, state }),
            _ => Err(
                "`HOME` is not set; hint: set it, or set `AGENTD_CONFIG` and `AGENTD_STATE_DIR`"
                    .to_owned(),
            ),
        }
    }

    /// The directory of `config.toml`, of the file `env`, and of SOUL.md.
    pub(crate) fn dir(&self) -> &Path {
        self.config.parent().unwrap_or(Path::new("."))
    }

    /// The file of keys.
    pub(crate) fn env_file(&self) -> PathBuf {
        self.config.with_file_name("env")
    }
}

/// Why the configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file can't be read.
    #[error("can't read `{}`: {source}{}", file.display(), settings::unreadable(file, source))]
    Io {
        /// Which.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Others can change what it says.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
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
}

/// What is wrong with a value, and where it stands: a dotted path, as its keys.
struct Fault {
    at: Vec<String>,
    what: String,
    hint: Option<String>,
}

impl Fault {
    fn new(at: &[&str], what: impl Into<String>) -> Self {
        Self {
            at: at.iter().map(|key| (*key).to_owned()).collect(),
            what: what.into(),
            hint: None,
        }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Config {
    /// Reads the file; a missing one is an empty one.
    ///
    /// # Errors
    /// Others could change it, it can't be read, or something in it is wrong: which line, and what
    /// to do.
    pub(crate) fn load(file: &Path) -> Result<Self, ConfigError> {
        trusted::check(file)?;
        let text = settings::read(file).map_err(|source| ConfigError::Io {
            file: file.to_owned(),
            source,
        })?;
        Self::parse(&text, file)
    }

    /// Reads the text of `file`.
    pub(crate) fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let wrong = |line: usize, what: String, hint: Option<String>| ConfigError::Wrong {
            file: file.to_owned(),
            line,
            what,
            hint,
        };
        let config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let (what, hint) = in_our_words(error.message());
            let what = match key_at(text, at) {
                Some(key) if hint.is_none() => format!("`{key}`: {what}"),
                _ => what,
            };
            wrong(line_at(text, at), what, hint)
        })?;
        match config.fault() {
            None => Ok(config),
            Some(fault) => {
                // The types have no places any more: the text is read once more, only when
                // something is wrong.
                let at = span_of(text, &fault.at).unwrap_or(0);
                Err(wrong(line_at(text, at), fault.what, fault.hint))
            }
        }
    }

    /// The first thing that the types allow and the meaning doesn't.
    fn fault(&self) -> Option<Fault> {
        let models = &self.models;
        let aliases = models.aliases.iter();
        aliases
            .filter_map(|(name, model)| alias_fault(name, model, self))
            .chain(self.providers.iter().filter_map(provider_fault))
            .chain(timmy_fault(&self.timmy))
            .chain(self.timmy.mcp.iter().filter_map(server_fault))
            .chain(
                models
                    .default
                    .iter()
                    .filter_map(|model| self.entry_fault(&["models", "default"], model)),
            )
            .chain((models.fallbacks.len() > MAX_FALLBACKS).then(|| {
                let count = models.fallbacks.len();
                let what =
                    format!("`models.fallbacks` has {count} entries, the limit is {MAX_FALLBACKS}");
                Fault::new(&["models", "fallbacks"], what)
            }))
            .chain(
                models
                    .fallbacks
                    .iter()
                    .filter_map(|model| self.entry_fault(&["models", "fallbacks"], model)),
            )
            .next()
    }

    /// What is wrong with a model of the chain: a short name, or `provider/model` of a provider
    /// that there is.
    fn entry_fault(&self, at: &[&str], model: &str) -> Option<Fault> {
        let wrong = self.check_model(model).err()?;
        let fault = Fault::new(at, format!("`{}`: {}", at.join("."), wrong.0));
        Some(Fault {
            hint: wrong.1,
            ..fault
        })
    }

    /// Is it a short name, or `provider/model` of a provider that there is? The error says what is
    /// wrong and what may help.
    pub(crate) fn check_model(&self, model: &str) -> Result<(), (String, Option<String>)> {
        if self.models.aliases.contains_key(model) {
            return Ok(());
        }
        let Ok((provider, _)) = table::split(model) else {
            let what = format!("`{model}` is neither `provider/model` nor a short name");
            let near = nearest(model, self.models.aliases.keys().map(String::as_str));
            let usual = || "write it as `gemini/gemini-2.5-flash`".to_owned();
            let hint = near.map_or_else(usual, |near| format!("did you mean `{near}`?"));
            return Err((what, Some(hint)));
        };
        // Without the environment: what a file says is right or wrong whatever is set.
        match table::resolve(provider, self, &|_| None) {
            Err(Unusable::Unknown { name, nearest }) => {
                let hint = match nearest {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "`agentctl provider list` names those there are".to_owned(),
                };
                Err((format!("there is no provider `{name}`"), Some(hint)))
            }
            Err(Unusable::Echo) => Err((
                format!("the provider `{ECHO}` has no models"),
                Some(table::ECHO_INSTEAD.to_owned()),
            )),
            // Of its own table more is said where that stands.
            _there => Ok(()),
        }
    }
}

/// May a provider or an alias be called so?
pub(crate) fn is_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(fine)
}

fn alias_fault(name: &str, model: &str, config: &Config) -> Option<Fault> {
    let at = ["models", "aliases", name];
    if !is_name(name) {
        let what = format!("`{name}` can't be a short name: it has letters, digits and ._- only");
        return Some(Fault::new(&at, what));
    }
    // One step only, so that there is no circle to look for.
    if config.models.aliases.contains_key(model) {
        let what = format!("`{name}` is a short name for `{model}`, which is one itself");
        return Some(Fault::new(&at, what).hint("write `provider/model`"));
    }
    config.entry_fault(&at, model)
}

fn provider_fault((name, own): (&String, &ProviderConfig)) -> Option<Fault> {
    let at = |key: &'static str| ["providers", name.as_str(), key];
    if !is_name(name) {
        let what = format!("`{name}` can't name a provider: it has letters, digits and ._- only");
        return Some(Fault::new(&["providers", name], what));
    }
    if own.base_url.is_none() && table::known(name).is_none() {
        let what = format!("`providers.{name}` has no `base_url`, and it is none of those known");
        let fault = Fault::new(&["providers", name], what);
        let ids = table::ALL.iter().map(|row| row.id);
        return Some(match nearest(name, ids) {
            Some(near) => fault.hint(format!("add one, or did you mean `{near}`?")),
            None => fault.hint("add `base_url = \"https://…\"`"),
        });
    }
    if let Some(Err(what)) = own.base_url.as_deref().map(table::address) {
        let what = format!("`providers.{name}.base_url`: {what}");
        return Some(Fault::new(&at("base_url"), what));
    }
    if let Some(wire) = &own.wire
        && !Wire::ALL.iter().any(|(known, _)| known == wire)
    {
        let names = || Wire::ALL.iter().map(|(known, _)| *known);
        let what = format!("`providers.{name}.wire` is `{wire}`");
        let hint = match nearest(wire, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("one of {}", names().collect::<Vec<_>>().join(", ")),
        };
        return Some(Fault::new(&at("wire"), what).hint(hint));
    }
    if own.context_window == Some(0) {
        let what = format!("`providers.{name}.context_window` is 0, expected tokens from 1");
        return Some(Fault::new(&at("context_window"), what));
    }
    if let Some(variable) = &own.key_env
        && (!is_variable(variable) || LIKE_KEYS.iter().any(|begin| variable.starts_with(begin)))
    {
        // The value is in no message: it may be a key.
        let what = format!("`providers.{name}.key_env` is not the name of a variable");
        let hint =
            format!("a key itself goes where nobody else reads: `agentctl provider add {name}`");
        return Some(Fault::new(&at("key_env"), what).hint(hint));
    }
    None
}

fn timmy_fault(timmy: &Timmy) -> Option<Fault> {
    if let Some(names) = &timmy.toolsets
        && let Err(why) = Toolset::named(names)
    {
        let what = format!("`timmy.toolsets`: {why}");
        return Some(Fault::new(&["timmy", "toolsets"], what));
    }
    if timmy.max_requests == Some(0) {
        let what = "`timmy.max_requests` is 0, expected a number from 1";
        return Some(Fault::new(&["timmy", "max_requests"], what));
    }
    let paths = [
        ("writable", &timmy.writable),
        ("unreadable", &timmy.unreadable),
    ];
    paths.into_iter().find_map(|(key, paths)| {
        let relative = paths.iter().find(|path| !path.is_absolute())?;
        let what = format!(
            "`timmy.{key}` has `{}`, expected absolute paths",
            relative.display()
        );
        let fault = Fault::new(&["timmy", key], what);
        Some(fault.hint("write it from `/` on; `~` is not expanded"))
    })
}

fn server_fault((name, server): (&String, &McpServer)) -> Option<Fault> {
    let at = ["timmy", "mcp", name];
    match (server.command.is_empty(), &server.url) {
        (false, None) | (true, Some(_)) => None,
        (true, None) => Some(Fault::new(
            &at,
            format!("`timmy.mcp.{name}` has neither `command` nor `url`"),
        )),
        (false, Some(_)) => Some(Fault::new(
            &at,
            format!("`timmy.mcp.{name}` has both `command` and `url`, expected one of them"),
        )),
    }
}

fn line_at(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// The key of a line that sets one: what the reader of TOML says doesn't name it.
fn key_at(text: &str, at: usize) -> Option<&str> {
    let line = text.get(..at)?.rsplit('\n').next()?;
    let key = line.split_once('=')?.0.trim();
    (!key.is_empty()).then_some(key)
}

/// Where the last key of a path stands, or as much of it as is there.
fn span_of(text: &str, path: &[String]) -> Option<usize> {
    fn inside(table: &DeTable<'_>, path: &[String]) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let entry: Option<(&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)> = table
            .iter()
            .find(|(key, _)| key.get_ref() == first.as_str());
        let (key, value) = entry?;
        let deeper = value.get_ref().as_table();
        let deeper = deeper.and_then(|table| inside(table, rest));
        Some(deeper.unwrap_or(key.span().start))
    }
    inside(DeTable::parse(text).ok()?.get_ref(), path)
}

/// What the reader of TOML says, in the words of the rest; an unknown key with the nearest one.
fn in_our_words(message: &str) -> (String, Option<String>) {
    let message = message.trim();
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return (message.to_owned(), None);
    };
    let mut names = rest.split('`').step_by(2);
    let unknown = names.next().unwrap_or_default();
    let known: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let hint = match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", known.join(", ")),
    };
    (format!("unknown key `{unknown}`"), Some(hint))
}

#[cfg(test)]
mod tests;
