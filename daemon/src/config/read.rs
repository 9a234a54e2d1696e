//! From TOML to values, each known by its line.
//!
//! Owns the names and types of the keys, and the sentences about wrong ones.
//! Must not look at the file system except for a program's place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentd_base::duration;
use agentd_core::agent::Warm;
use agentd_protocol::nearest::nearest;
use agentd_protocol::routed::AUTO;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{
    AgentConfig, ClientStart, Config, ConfigError, HostEnv, discover, presets, routes, warnings,
};
use crate::adapter::Kind;
use crate::adapter::exec::Output;

const TOP: &[&str] = &[
    "default_agent",
    "alias",
    "agents",
    "client",
    "models",
    "pool",
    "providers",
    "retention",
    "route",
    "timmy",
];
const AGENT: &[&str] = &[
    "kind",
    "command",
    "output",
    "env",
    "pass_env",
    "warm",
    "idle_timeout",
    "provider",
    "model",
    "thinking",
    "mode",
];
const CLIENT: &[&str] = &["start"];
const RETENTION: &[&str] = &["days", "size"];
const POOL: &[&str] = &["memory"];
/// A hundred years; a number of days is no time since 1970.
const MOST_DAYS: i64 = 36_500;
/// Less doesn't hold a day's work.
const LEAST_SIZE: u64 = 16 << 20;
/// More spares than slots for processes make no sense.
const MOST_WARM: i64 = 16;

pub(super) type Key<'i> = Spanned<DeString<'i>>;
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// Reads a configuration.
pub(super) fn read(text: &str, file: &Path, look: &HostEnv) -> Result<Config, ConfigError> {
    let mut reader = Reader {
        text,
        file,
        look,
        given: BTreeMap::new(),
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.wrong(at, error.message().to_owned(), None)
    })?;
    let mut config = Config::default();
    for (key, value) in table.get_ref() {
        match reader.key(key, TOP, "")? {
            "default_agent" => config.default_agent = Some(reader.string("default_agent", value)?),
            "alias" => config.alias = reader.alias(value)?,
            "agents" => {
                for (name, value) in reader.table("agents", value)? {
                    let agent = reader.agent(name, value)?;
                    config.agents.insert(name.get_ref().to_string(), agent);
                }
            }
            "client" => {
                for (key, value) in reader.table("client", value)? {
                    let _start = reader.key(key, CLIENT, "client.")?;
                    config.start = Some(reader.start(value)?);
                }
            }
            "retention" => {
                for (key, value) in reader.table("retention", value)? {
                    match reader.key(key, RETENTION, "retention.")? {
                        "days" => config.retention.days = reader.days(value)?,
                        _size => config.retention.size = reader.size(value)?,
                    }
                }
            }
            "pool" => {
                for (key, value) in reader.table("pool", value)? {
                    let _memory = reader.key(key, POOL, "pool.")?;
                    config.spare_memory = Some(reader.bytes("pool.memory", value)?);
                }
            }
            "route" => routes::read(&mut reader, value, &mut config)?,
            // What these say is for the built-in agent to judge: it reads them for itself.
            of_timmy => {
                let table = reader.table(of_timmy, value)?;
                if of_timmy == "providers" {
                    config.provider_keys = table.iter().filter_map(key_variable).collect();
                }
                for (key, value) in table {
                    let key_of = format!("{of_timmy}.{}", key.get_ref());
                    reader.opaque(key_of, key.span().start, value, &mut config.of_timmy);
                }
            }
        }
    }
    config.given = reader.given;
    Ok(config)
}

/// The variable that holds the key of a provider, if it may pass to a process: only what is called
/// a secret does, and not `PATH` or `LD_PRELOAD`.
fn key_variable((name, table): (&Key<'_>, &Value<'_>)) -> Option<String> {
    let named = table
        .get_ref()
        .get("key_env")
        .and_then(|key| key.get_ref().as_str());
    let variable = match named {
        Some(variable) => variable.to_owned(),
        // As the built-in agent would call it.
        None => {
            let letter = |c: char| match c.is_ascii_alphanumeric() {
                true => c.to_ascii_uppercase(),
                false => '_',
            };
            let name: String = name.get_ref().chars().map(letter).collect();
            format!("{name}_API_KEY")
        }
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits =
        variable.bytes().all(is_plain) && !variable.starts_with(|c: char| c.is_ascii_digit());
    (fits && warnings::names_secret(&variable)).then_some(variable)
}

pub(super) struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
    pub(super) look: &'a HostEnv,
    given: BTreeMap<String, String>,
}

impl Reader<'_> {
    pub(super) fn wrong(&self, at: usize, what: String, hint: Option<String>) -> ConfigError {
        let before = self.text.as_bytes().iter().take(at);
        ConfigError::Wrong {
            file: self.file.to_owned(),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
            what,
            hint,
        }
    }

    /// The known name of a key, which is also noted as given here.
    pub(super) fn key<'k>(
        &mut self,
        key: &Key<'_>,
        known: &[&'k str],
        prefix: &str,
    ) -> Result<&'k str, ConfigError> {
        let name: &str = key.get_ref();
        let at = key.span().start;
        let Some(found) = known.iter().find(|one| **one == name) else {
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            return Err(self.wrong(at, format!("unknown key `{prefix}{name}`"), Some(hint)));
        };
        self.note(format!("{prefix}{name}"), at);
        Ok(found)
    }

    fn note(&mut self, key: String, at: usize) {
        let line = 1 + self
            .text
            .bytes()
            .take(at)
            .filter(|byte| *byte == b'\n')
            .count();
        self.given
            .insert(key, format!("{}:{line}", self.file.display()));
    }

    /// A value of which only the text matters here, and a table value by value.
    pub(super) fn opaque(
        &mut self,
        key: String,
        at: usize,
        value: &Value<'_>,
        values: &mut BTreeMap<String, String>,
    ) {
        let Some(table) = value.get_ref().as_table() else {
            let written = self.text.get(value.span()).unwrap_or_default();
            self.note(key.clone(), at);
            values.insert(key, written.to_owned());
            return;
        };
        for (name, value) in table {
            let key = format!("{key}.{}", name.get_ref());
            self.opaque(key, name.span().start, value, values);
        }
    }

    pub(super) fn mistyped(&self, key: &str, value: &Value<'_>, expected: &str) -> ConfigError {
        let found = value.get_ref().type_str();
        let what = format!("`{key}` is a value of type {found}, expected {expected}");
        self.wrong(value.span().start, what, None)
    }

    pub(super) fn string(&self, key: &str, value: &Value<'_>) -> Result<String, ConfigError> {
        match value.get_ref().as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(self.mistyped(key, value, "a string")),
        }
    }

    pub(super) fn strings(&self, key: &str, value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
        let expected = "an array of strings";
        let Some(items) = value.get_ref().as_array() else {
            return Err(self.mistyped(key, value, expected));
        };
        let text = |item: &Value<'_>| match item.get_ref().as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(self.mistyped(key, item, "a string in the array")),
        };
        items.iter().map(text).collect()
    }

    pub(super) fn table<'v, 'i>(
        &self,
        key: &str,
        value: &'v Value<'i>,
    ) -> Result<&'v DeTable<'i>, ConfigError> {
        match value.get_ref().as_table() {
            Some(table) => Ok(table),
            None => Err(self.mistyped(key, value, "a table")),
        }
    }

    fn map(&self, key: &str, value: &Value<'_>) -> Result<BTreeMap<String, String>, ConfigError> {
        let table = self.table(key, value)?;
        let entry = |(name, value): (&Key<'_>, &Value<'_>)| {
            let text = self.string(&format!("{key}.{}", name.get_ref()), value)?;
            Ok((name.get_ref().to_string(), text))
        };
        table.iter().map(entry).collect()
    }

    fn alias(&self, value: &Value<'_>) -> Result<Option<PathBuf>, ConfigError> {
        match value.get_ref() {
            DeValue::Boolean(false) => Ok(None),
            DeValue::String(path) if Path::new(path.as_ref()).is_absolute() => {
                Ok(Some(PathBuf::from(path.as_ref())))
            }
            _ => Err(self.mistyped("alias", value, "an absolute path or `false`")),
        }
    }

    fn start(&self, value: &Value<'_>) -> Result<ClientStart, ConfigError> {
        let expected = "\"ask\", \"always\" or \"never\"";
        let word = value.get_ref().as_str();
        let start = word.and_then(|word| ClientStart::ALL.iter().find(|one| one.name() == word));
        match (start, word) {
            (Some(start), _) => Ok(*start),
            (None, Some(word)) => {
                let what = format!("`client.start` is `{word}`, expected {expected}");
                Err(self.wrong(value.span().start, what, None))
            }
            (None, None) => Err(self.mistyped("client.start", value, expected)),
        }
    }

    fn agent(&mut self, name: &Key<'_>, value: &Value<'_>) -> Result<AgentConfig, ConfigError> {
        let at = name.span().start;
        let name = self.agent_name(name)?;
        let prefix = format!("agents.{name}.");
        let mut kind = discover::kind_of_name(name);
        let (mut command, mut bare, mut output) = (None, None, None);
        let mut agent = AgentConfig::new(Kind::Jsonl, Vec::new());
        for (key, value) in self.table(&format!("agents.{name}"), value)? {
            let known = self.key(key, AGENT, &prefix)?;
            let full = format!("{prefix}{known}");
            match known {
                "kind" => kind = Some(self.kind(&full, value)?),
                "command" => {
                    command = Some(self.command(&full, value)?);
                    let written = self.strings(&full, value)?.into_iter().next();
                    bare = written.filter(|program| !program.contains('/'));
                }
                "output" => output = Some((key.span().start, self.output(&full, value)?)),
                "env" => {
                    agent.env = self.map(&full, value)?;
                    self.variables(&full, value, agent.env.keys())?;
                }
                "pass_env" => {
                    agent.pass_env = self.strings(&full, value)?;
                    self.variables(&full, value, agent.pass_env.iter())?;
                }
                "warm" => agent.warm = Warm::Always(self.warm(&full, value)?),
                "idle_timeout" => agent.idle_timeout = self.duration(&full, value)?,
                "provider" => agent.provider = Some(self.string(&full, value)?),
                "model" => agent.model = Some(self.string(&full, value)?),
                "thinking" => agent.thinking = Some(self.string(&full, value)?),
                _mode => agent.mode = Some(self.string(&full, value)?),
            }
        }
        let Some(kind) = kind else {
            let what = format!("agent `{name}` has no `kind`, expected one of {}", kinds());
            return Err(self.wrong(
                at,
                what,
                Some("add `kind = \"exec\"` for any command".into()),
            ));
        };
        if let Some((at, _)) = output.filter(|_| kind != Kind::Exec) {
            let what = format!("`{prefix}output` is for the kind `exec`, and this is another");
            return Err(self.wrong(at, what, None));
        }
        let provider = agent.provider.as_deref();
        if command.is_none() {
            self.changed_command(name, kind, provider);
        }
        let default = || discover::default_of_name(name, kind, self.look, provider);
        let Some((command, usual)) = command.map(|own| (own, None)).or_else(|| {
            let (command, output) = default()?;
            bare = discover::is_looked_for(name).then(|| name.to_owned());
            Some((command, Some(output)))
        }) else {
            let what = format!("agent `{name}` has no `command`");
            let hint = r#"add `command = ["program", "argument"]`"#.to_owned();
            return Err(self.wrong(at, what, Some(hint)));
        };
        agent.output = output
            .map(|(_, output)| output)
            .or(usual)
            .or_else(|| presets::output_of(kind, &command))
            .unwrap_or_default();
        agent = AgentConfig {
            kind,
            command,
            bare,
            ..agent
        };
        agent.warnings = warnings::of(name, &agent);
        Ok(agent)
    }

    fn agent_name<'k>(&self, key: &'k Key<'_>) -> Result<&'k str, ConfigError> {
        let (at, name): (_, &str) = (key.span().start, key.get_ref());
        let what = match name {
            AUTO => "`auto` can't name an agent: it means that the routes choose".to_owned(),
            name if can_name(name) => return Ok(name),
            _ => format!("`{name}` can't name an agent, expected up to 64 of A-Z a-z 0-9 . _ -"),
        };
        Err(self.wrong(at, what, None))
    }

    /// A default command that another value of the agent has changed is given where that is.
    fn changed_command(&mut self, name: &str, kind: Kind, provider: Option<&str>) {
        let of = |kind, provider| {
            let default = discover::default_of_name(name, kind, self.look, provider);
            default.map(|(command, _)| command)
        };
        let (usual, command) = (discover::kind_of_name(name), of(kind, provider));
        let by = if command != of(kind, None) {
            "provider"
        } else if usual.is_some_and(|usual| command != of(usual, provider)) {
            "kind"
        } else {
            return;
        };
        if let Some(place) = self.given.get(&format!("agents.{name}.{by}")).cloned() {
            self.given.insert(format!("agents.{name}.command"), place);
        }
    }

    /// A name that no variable can have would make each start of the agent fail, or be ignored.
    fn variables<'n>(
        &self,
        key: &str,
        value: &Value<'_>,
        mut names: impl Iterator<Item = &'n String>,
    ) -> Result<(), ConfigError> {
        let bad = |c: char| c == '=' || c.is_whitespace() || c.is_control();
        let Some(name) = names.find(|name| name.is_empty() || name.contains(bad)) else {
            return Ok(());
        };
        let what = format!("`{}` in `{key}` can't name a variable", name.escape_debug());
        let hint = match name.split_once('=') {
            Some((name, _)) => format!("to set a variable, write `env = {{ {name} = \"…\" }}`"),
            None => "name each variable by itself, such as `[\"HTTPS_PROXY\", \"TZ\"]`".to_owned(),
        };
        Err(self.wrong(value.span().start, what, Some(hint)))
    }

    fn kind(&self, key: &str, value: &Value<'_>) -> Result<Kind, ConfigError> {
        let name = self.string(key, value)?;
        if let Some(kind) = Kind::named(&name) {
            return Ok(kind);
        }
        let what = format!("`{key}` is `{name}`, expected one of {}", kinds());
        let near = nearest(&name, Kind::ALL.iter().map(|kind| kind.name()));
        let hint = near.map(|near| format!("did you mean `{near}`?"));
        Err(self.wrong(value.span().start, what, hint))
    }

    fn output(&self, key: &str, value: &Value<'_>) -> Result<Output, ConfigError> {
        let name = self.string(key, value)?;
        if let Some(output) = Output::ALL.iter().find(|output| output.name() == name) {
            return Ok(*output);
        }
        let names: Vec<&str> = Output::ALL.iter().map(|output| output.name()).collect();
        let what = format!(
            "`{key}` is `{name}`, expected one of `{}`",
            names.join("`, `")
        );
        Err(self.wrong(value.span().start, what, None))
    }

    /// A path is taken as it is, a bare name is looked up; anything between depends on where the
    /// daemon happens to run.
    fn command(&self, key: &str, value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
        let at = value.span().start;
        let mut command = self.strings(key, value)?;
        let Some(program) = command.first_mut().filter(|program| !program.is_empty()) else {
            let what = format!("`{key}` is empty, expected a program and its arguments");
            return Err(self.wrong(at, what, None));
        };
        if !program.contains('/') {
            if let Some((found, _)) = self.look.find(program) {
                *program = found.to_string_lossy().into_owned();
            }
        } else if !program.starts_with('/') {
            let what = format!("the program `{program}` of `{key}` is a relative path");
            let hint = "write an absolute path, or a bare name that is on PATH".to_owned();
            return Err(self.wrong(at, what, Some(hint)));
        }
        Ok(command)
    }

    fn warm(&self, key: &str, value: &Value<'_>) -> Result<u32, ConfigError> {
        integer(value)
            .filter(|warm| *warm <= MOST_WARM)
            .and_then(|warm| u32::try_from(warm).ok())
            .ok_or_else(|| self.mistyped(key, value, "a whole number from 0 to 16"))
    }

    fn days(&self, value: &Value<'_>) -> Result<u32, ConfigError> {
        if integer(value) == Some(0) {
            let what = "`retention.days` is 0, which would delete each result as soon as it is there: \
                        expected 1 to 36500";
            let hint = "1 keeps them a day, 36500 a hundred years; left out, it is 30";
            return Err(self.wrong(value.span().start, what.to_owned(), Some(hint.to_owned())));
        }
        integer(value)
            .filter(|days| (1..=MOST_DAYS).contains(days))
            .and_then(|days| u32::try_from(days).ok())
            .ok_or_else(|| {
                let expected = "a whole number from 1 to 36500";
                self.mistyped("retention.days", value, expected)
            })
    }

    /// A size, of which 0 is one, too.
    fn bytes(&self, key: &str, value: &Value<'_>) -> Result<u64, ConfigError> {
        let expected = "a size such as \"1GiB\", or 0";
        written_size(value).ok_or_else(|| self.mistyped(key, value, expected))
    }

    fn size(&self, value: &Value<'_>) -> Result<u64, ConfigError> {
        let found = written_size(value);
        let expected = "a size of at least \"16MiB\", such as \"1GiB\"";
        found
            .filter(|bytes| *bytes >= LEAST_SIZE)
            .ok_or_else(|| self.mistyped("retention.size", value, expected))
    }

    pub(super) fn duration(&self, key: &str, value: &Value<'_>) -> Result<Duration, ConfigError> {
        let found = match value.get_ref() {
            DeValue::String(text) => duration::parse(text),
            _ => integer(value)
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map(Duration::from_secs),
        };
        found.ok_or_else(|| self.mistyped(key, value, duration::EXPECTED))
    }
}

fn integer(value: &Value<'_>) -> Option<i64> {
    let number = value.get_ref().as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn written_size(value: &Value<'_>) -> Option<u64> {
    match value.get_ref() {
        DeValue::String(text) => size(text),
        _ => integer(value).and_then(|bytes| u64::try_from(bytes).ok()),
    }
}

/// `512MiB`, `1GiB`.
fn size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let each = match unit.trim_start() {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1_u64 << 40,
        _ => return None,
    };
    number.checked_mul(each)
}

/// Can an agent have this name?
pub(super) fn can_name(name: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && name.len() <= 64 && name.bytes().all(letters)
}

/// The kinds, for a message.
pub(super) fn kinds() -> String {
    let names: Vec<String> = Kind::ALL
        .iter()
        .map(|kind| format!("`{}`", kind.name()))
        .collect();
    names.join(", ")
}
