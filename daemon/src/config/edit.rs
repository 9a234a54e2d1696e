//! Changes of `config.toml`: an agent more, an agent less, another default.
//!
//! Owns where in the text a change goes, so that comments and order stay. A change is kept only
//! if the text that comes of it reads as the old configuration with just that change. Never
//! writes a secret: those have a file of their own.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use agentd_protocol::nearest::nearest;
use toml::de::DeTable;

use super::{Config, ConfigError, Look, agents};

/// Nobody else has to read which programs are run how.
const MODE: u32 = 0o600;
/// Parts of names that people give to secrets.
const SECRET: &[&str] = &[
    "APIKEY",
    "KEY",
    "KEYS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
];
/// Beginnings of keys of well-known services.
const KEYS: &[&str] = &["sk-", "sk_", "ghp_", "github_pat_", "xoxb-", "AIza"];

/// An agent as the command line gives it; what is unset is known by the name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NewAgent {
    /// Its wire.
    pub kind: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Default model provider.
    pub provider: Option<String>,
    /// Default model.
    pub model: Option<String>,
    /// Variables set for it.
    pub env: BTreeMap<String, String>,
    /// Variables passed through.
    pub pass_env: Vec<String>,
}

/// What to change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// An agent more.
    Add(String, NewAgent),
    /// An agent less.
    Remove(String),
    /// Another default.
    Default(String),
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file as it is can't be read.
    #[error(transparent)]
    Broken(#[from] ConfigError),
    /// The change is wrong.
    #[error("{what}; hint: {hint}")]
    Refused {
        /// What was found, and what was expected.
        what: String,
        /// What to do.
        hint: String,
    },
    /// It can't be written.
    #[error("can't write `{}`: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn refused(what: impl Into<String>, hint: impl Into<String>) -> EditError {
    EditError::Refused {
        what: what.into(),
        hint: hint.into(),
    }
}

/// Changes the file, or leaves it as it is; a missing one is an empty one.
///
/// # Errors
/// When the file is broken, the change is wrong, or the disk says no.
pub fn save(file: &Path, env_file: &Path, look: &Look, change: &Change) -> Result<(), EditError> {
    let io = |source| EditError::Io {
        file: file.to_owned(),
        source,
    };
    let target = target(file).map_err(io)?;
    // Two at once would undo each other's change.
    let _alone = lock(&target).map_err(io)?;
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => {
            let file = file.to_owned();
            return Err(ConfigError::Io { file, source }.into());
        }
    };
    if let Change::Add(_, new) = change {
        no_secrets(new, env_file)?;
    }
    let changed = changed(&text, file, look, change)?;
    write(&target, &changed).map_err(io)
}

/// The file itself: it may be a link into a collection of such files, which is to stay one.
fn target(file: &Path) -> io::Result<PathBuf> {
    let not_a_file = |what: &str| io::Error::other(format!("it is {what}, expected a file"));
    match fs::symlink_metadata(file) {
        Ok(found) if found.is_symlink() => match fs::canonicalize(file) {
            Ok(target) if target.is_file() => Ok(target),
            Ok(_) => Err(not_a_file("a link to something else")),
            Err(_) => Err(not_a_file("a link that leads nowhere")),
        },
        Ok(found) if found.is_file() => std::path::absolute(file),
        Ok(_) => Err(not_a_file("something else")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(file),
        Err(error) => Err(error),
    }
}

fn no_secrets(new: &NewAgent, env_file: &Path) -> Result<(), EditError> {
    let is_key = |word: &str| KEYS.iter().any(|begin| word.starts_with(begin));
    // `--api-key=sk-…`, too.
    let in_word = |word: &String| word.split('=').any(is_key);
    if new.command.iter().any(in_word) {
        let what = "the command holds what looks like a key: config.toml must not hold one, and \
                    command lines are seen by others"
            .to_owned();
        let hint = format!(
            "put it into `{}` (mode 0600) as `NAME=…`, and pass it with `--pass-env NAME`",
            env_file.display()
        );
        return Err(refused(what, hint));
    }
    for (name, value) in &new.env {
        let upper = name.to_ascii_uppercase();
        let named = upper.split('_').any(|part| SECRET.contains(&part));
        if named || is_key(value) {
            // The value is in no message: it may be one.
            let what = format!("`{name}` looks like a secret, which config.toml must not hold");
            let hint = format!(
                "put it into `{}` (mode 0600) as `{name}=…`, and pass it with `--pass-env {name}`",
                env_file.display()
            );
            return Err(refused(what, hint));
        }
    }
    Ok(())
}

/// The text with the change.
pub(super) fn changed(
    text: &str,
    file: &Path,
    look: &Look,
    change: &Change,
) -> Result<String, EditError> {
    let before = Config::parse(text, file, look)?;
    let fresh = match change {
        Change::Add(name, new) => add(text, &before, name, new)?,
        Change::Remove(name) => remove(text, file, &before, name)?,
        Change::Default(name) => set_default(text, &before, look, name)?,
    };
    let after = match Config::parse(&fresh, file, look) {
        Ok(after) => after,
        // Of a line that isn't in the file.
        Err(ConfigError::Wrong { what, hint, .. }) => {
            let hint = hint.unwrap_or_else(|| format!("add it to `{}` by hand", file.display()));
            return Err(refused(what, hint));
        }
        Err(error) => return Err(error.into()),
    };
    if !is_just(change, before, after) {
        let what = format!(
            "`{}` is written in a way that can't be changed safely",
            file.display()
        );
        return Err(refused(what, "change it by hand"));
    }
    Ok(fresh)
}

/// Did nothing else change?
fn is_just(change: &Change, mut before: Config, mut after: Config) -> bool {
    before.given.clear();
    after.given.clear();
    match change {
        Change::Add(name, _) => {
            if after.agents.remove(name).is_none() {
                return false;
            }
        }
        Change::Remove(name) => {
            before.agents.remove(name);
        }
        Change::Default(name) => before.default_agent = Some(name.clone()),
    }
    before == after
}

fn add(text: &str, before: &Config, name: &str, new: &NewAgent) -> Result<String, EditError> {
    if before.agents.contains_key(name) {
        let at = line_of(before, name);
        let what = format!("there is an agent `{name}` already{at}");
        return Err(refused(
            what,
            format!("`agentctl agents remove {name}` first"),
        ));
    }
    let mut fresh = text.to_owned();
    if !fresh.is_empty() && !fresh.ends_with('\n') {
        fresh.push('\n');
    }
    if !fresh.is_empty() {
        fresh.push('\n');
    }
    let _ = writeln!(fresh, "[agents.{}]", key(name));
    let mut set = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(fresh, "{key} = {value}");
        }
    };
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
        (!items.is_empty()).then(|| format!("[{}]", items.join(", ")))
    };
    set("kind", new.kind.as_deref().map(quoted));
    set("command", list(&new.command));
    set("provider", new.provider.as_deref().map(quoted));
    set("model", new.model.as_deref().map(quoted));
    set("pass_env", list(&new.pass_env));
    let pairs = new.env.iter();
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{} = {}", key(name), quoted(value)))
        .collect();
    let env = (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")));
    set("env", env);
    Ok(fresh)
}

/// Where an agent is given, for a message.
fn line_of(config: &Config, name: &str) -> String {
    let prefix = format!("agents.{name}.");
    let mut given = config.given.range(prefix.clone()..);
    let found = given.next().filter(|(key, _)| key.starts_with(&prefix));
    found.map_or_else(String::new, |(_, place)| format!(", at {place}"))
}

fn remove(text: &str, file: &Path, before: &Config, name: &str) -> Result<String, EditError> {
    if !before.agents.contains_key(name) {
        let what = format!("there is no agent `{name}` in `{}`", file.display());
        let names: Vec<&str> = before.agents.keys().map(String::as_str).collect();
        let hint = match nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => "none is configured".to_owned(),
            None => format!("configured: {}", names.join(", ")),
        };
        return Err(refused(what, hint));
    }
    if before.default_agent.as_deref() == Some(name) {
        let what = format!("`{name}` is the default agent");
        return Err(refused(what, "`agentctl agents default OTHER` first"));
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    // A table begins with the comment right above it.
    let mut starts: Vec<usize> = Vec::new();
    for at in (0..lines.len()).filter(|at| header(lines[*at]).is_some()) {
        let above = lines[..at].iter().rev();
        starts.push(at - above.take_while(|line| is_comment(line)).count());
    }
    let first = starts.first().copied().unwrap_or(lines.len());
    let mut kept: String = lines[..first].concat();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(lines.len());
        let block = &lines[*start..end];
        let path = block.iter().find_map(|line| header(line));
        let is_ours =
            path.is_some_and(|path| path.starts_with(&["agents".to_owned(), name.to_owned()]));
        if is_ours {
            // Comments below its last value, with a line between, are about something else.
            let last = block
                .iter()
                .rposition(|line| !is_comment(line) && !line.trim().is_empty());
            let rest = &block[last.map_or(0, |last| last + 1)..];
            if rest.iter().any(|line| is_comment(line)) {
                kept.extend(
                    rest.iter()
                        .skip_while(|line| line.trim().is_empty())
                        .copied(),
                );
            }
        } else {
            kept.extend(block.iter().copied());
        }
    }
    Ok(kept)
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The path of a table's first line.
fn header(line: &str) -> Option<Vec<String>> {
    if !line.trim_start().starts_with('[') {
        return None;
    }
    let table = DeTable::parse(line).ok()?;
    let mut path = Vec::new();
    let mut inside = table.get_ref();
    while let Some((key, value)) = inside.iter().next() {
        path.push(key.get_ref().to_string());
        inside = value.get_ref().as_table()?;
    }
    Some(path)
}

fn set_default(text: &str, before: &Config, look: &Look, name: &str) -> Result<String, EditError> {
    let known = agents(before, look);
    let names = || known.iter().map(|(agent, _)| agent.name.as_str());
    if !names().any(|known| known == name) {
        let hint = match nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known agents: {}", names().collect::<Vec<_>>().join(", ")),
        };
        return Err(refused(format!("there is no agent `{name}`"), hint));
    }
    let value = quoted(name);
    if let Ok(table) = DeTable::parse(text)
        && let Some(old) = table.get_ref().get("default_agent")
    {
        let mut fresh = text.to_owned();
        fresh.replace_range(old.span(), &value);
        return Ok(fresh);
    }
    // Below the words that open the file, above its first table.
    let opening = text
        .split_inclusive('\n')
        .take_while(|line| is_comment(line));
    let opening: usize = opening.map(str::len).sum();
    let at = if text[opening..].trim_start_matches(' ').starts_with('\n') {
        opening
    } else {
        0
    };
    let (above, below) = text.split_at(at);
    let space = if below.is_empty() || below.starts_with('\n') {
        ""
    } else {
        "\n"
    };
    Ok(format!("{above}default_agent = {value}\n{space}{below}"))
}

fn key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !name.is_empty() && name.bytes().all(bare) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 2);
    shown.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => shown.extend(['\\', c]),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(shown, "\\u{:04X}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    shown.push('"');
    shown
}

/// The file's directory, which is made if it isn't there, locked until it is dropped.
fn lock(file: &Path) -> io::Result<File> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)?;
    let dir = File::open(dir)?;
    dir.lock()?;
    Ok(dir)
}

/// All or nothing: a reader, and a power cut, find the old text or the new one.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    let mode = match fs::metadata(file) {
        Ok(found) => found.permissions().mode() & 0o777,
        Err(_) => MODE,
    };
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let written = (|| {
        let mut out = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(MODE)
            .open(&fresh)?;
        out.write_all(text.as_bytes())?;
        out.set_permissions(fs::Permissions::from_mode(mode))?;
        out.sync_all()?;
        fs::rename(&fresh, file)?;
        File::open(dir)?.sync_all()
    })();
    if written.is_err() {
        // It may never have been there.
        let _gone = fs::remove_file(&fresh);
    }
    written
}
