//! Changes of `config.toml`: an agent more, an agent less, another default.
//!
//! Owns where in the text a change goes, so that comments and order stay. A change is kept only
//! if the text that comes of it reads as the old configuration with just that change. Never
//! writes a secret: those have a file of their own.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use agentd_base::alone::Alone;
use agentd_base::{settings, trusted};
use agentd_core::pins;
use agentd_core::store::Pins;
use agentd_protocol::nearest::nearest;
use agentd_protocol::routed::AUTO;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};

use super::warnings::Warning;
use super::{Config, ConfigError, HostEnv, NO_ROUTES, agents, discover, kinds};

/// The key of the default.
const DEFAULT: &str = "default_agent";

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
    /// The same, though it can't be used as things are.
    DefaultAnyway(String),
    /// No default.
    NoDefault,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file as it is can't be read.
    #[error(transparent)]
    Broken(#[from] ConfigError),
    /// The change is wrong.
    #[error("{what}; nothing was changed; hint: {hint}")]
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

impl EditError {
    fn unwritten(file: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::Io {
            file: file.to_owned(),
            source,
        }
    }
}

pub(super) fn refused(what: impl Into<String>, hint: impl Into<String>) -> EditError {
    EditError::Refused {
        what: what.into(),
        hint: hint.into(),
    }
}

/// Changes the file, or leaves it as it is; a missing one is an empty one. Says why the agent that
/// was added, or made the default anyway, can't be used as things are.
///
/// # Errors
/// When the file is broken, the change is wrong, or the disk says no.
pub fn save(file: &Path, look: &HostEnv, change: &Change) -> Result<Option<String>, EditError> {
    check_ours(file)?;
    let unwritten = EditError::unwritten(file);
    // Two at once would undo each other's change.
    let alone = Alone::with(file).map_err(&unwritten)?;
    let text = settings::read(file).map_err(|source| ConfigError::Io {
        file: file.to_owned(),
        source,
    })?;
    let (fresh, config) = changed(&text, file, look, change)?;
    let unusable = match change {
        Change::Add(name, _) | Change::Default(name) | Change::DefaultAnyway(name) => {
            let mut known = agents(&config, look).into_iter();
            known.find_map(|(agent, _)| agent.usable.err().filter(|_| agent.name == *name))
        }
        Change::Remove(_) | Change::NoDefault => None,
    };
    if let (Change::Default(name), Some(why)) = (change, &unusable) {
        let what = format!("`{name}` can't be used as things are: {why}");
        let hint = "`agentctl agents` lists what can be; `--force` makes it the default anyway";
        return Err(refused(what, hint));
    }
    alone.replace(&fresh).map_err(&unwritten)?;
    Ok(unusable)
}

/// Changes the text of a file of ours, or leaves it as it is, alone among all who do so.
///
/// # Errors
/// Those of `change`, and when the disk says no.
pub(super) fn rewrite(
    file: &Path,
    change: impl FnOnce() -> Result<String, EditError>,
) -> Result<(), EditError> {
    check_ours(file)?;
    let unwritten = EditError::unwritten(file);
    // Two at once would undo each other's change.
    let alone = Alone::with(file).map_err(&unwritten)?;
    alone.replace(&change()?).map_err(&unwritten)
}

/// May it be written? What is written is ours from then on, and trusted: nothing is taken over from
/// somebody else, and no directory is made in the home of another.
///
/// # Errors
/// As a reader says it.
pub fn check_ours(file: &Path) -> Result<(), ConfigError> {
    Ok(trusted::check(file)?)
}

/// The text with the change, and what it says.
pub(super) fn changed(
    text: &str,
    file: &Path,
    look: &HostEnv,
    change: &Change,
) -> Result<(String, Config), EditError> {
    let before = Config::parse(text, file, look)?;
    check(change, &before, file, look)?;
    let mut document: DocumentMut = match text.parse() {
        Ok(document) => document,
        // The same parser has just read it.
        Err(error) => return Err(refused(error.to_string(), "change it by hand")),
    };
    let fresh = match change {
        Change::Add(name, new) => add(&mut document, name, new),
        Change::Remove(name) => remove(&mut document, name) + &document.to_string(),
        Change::Default(name) | Change::DefaultAnyway(name) => {
            set_top(&mut document, DEFAULT, name.into())
        }
        Change::NoDefault => clear_default(&mut document) + &document.to_string(),
    };
    let after = match Config::parse(&fresh, file, look) {
        Ok(after) => after,
        // Of a line that isn't in the file.
        Err(ConfigError::Wrong { what, hint, .. }) => {
            let hint = hint.unwrap_or_else(|| "`agentctl agents add --help` has examples".into());
            return Err(refused(what, hint));
        }
        Err(error) => return Err(error.into()),
    };
    if let Change::Add(name, _) = change
        && let Some(Warning { what, hint }) =
            after.agents.get(name).and_then(|a| a.warnings.first())
    {
        return Err(refused(what, hint));
    }
    if let Change::Add(name, new) = change {
        heeds(name, new, &after, look)?;
    }
    if !is_just(change, before, after.clone()) {
        let what = format!(
            "`{}` is written in a way that can't be changed safely",
            file.display()
        );
        return Err(refused(what, "change it by hand"));
    }
    Ok((fresh, after))
}

/// Is there what the change is about?
fn check(change: &Change, before: &Config, file: &Path, look: &HostEnv) -> Result<(), EditError> {
    match change {
        Change::Add(name, new) if before.agents.contains_key(name) => {
            let at = line_of(before, name);
            let what = format!("there is an agent `{name}` already{at}");
            Err(refused(what, instead_of_adding(name, new)))
        }
        Change::Add(name, new) => complete(name, new, look),
        Change::Remove(name) if before.default_agent.as_ref() == Some(name) => {
            let what = format!("`{name}` is the default agent");
            let hint = "`agentctl agents default OTHER` or `agentctl agents default --clear` first";
            Err(refused(what, hint))
        }
        Change::Remove(name) if !before.agents.contains_key(name) => {
            let what = format!("there is no agent `{name}` in `{}`", file.display());
            let names: Vec<&str> = before.agents.keys().map(String::as_str).collect();
            let hint = match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if names.is_empty() => "none is configured".to_owned(),
                None => format!("configured: {}", names.join(", ")),
            };
            Err(refused(what, hint))
        }
        Change::Default(name) | Change::DefaultAnyway(name) if name == AUTO => {
            match before.routes.is_empty() {
                false => Ok(()),
                true => Err(refused("there is no route".to_owned(), NO_ROUTES)),
            }
        }
        Change::Default(name) | Change::DefaultAnyway(name) => {
            let known = agents(before, look);
            let names = || known.iter().map(|(agent, _)| agent.name.as_str());
            if names().any(|known| known == name) {
                return Ok(());
            }
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known agents: {}", names().collect::<Vec<_>>().join(", ")),
            };
            Err(refused(format!("there is no agent `{name}`"), hint))
        }
        Change::Remove(_) | Change::NoDefault => Ok(()),
    }
}

/// How an agent that is there gets what was to be added.
fn instead_of_adding(name: &str, new: &NewAgent) -> String {
    let variables = new.env.keys().map(|variable| format!("env.{variable}"));
    let others = [
        ("provider", new.provider.is_some()),
        ("model", new.model.is_some()),
        ("pass_env", !new.pass_env.is_empty()),
    ];
    let others = others.into_iter().filter(|(_, given)| *given);
    let keys = variables.chain(others.map(|(key, _)| key.to_owned()));
    let set: Vec<String> = keys
        .map(|key| format!("`agentctl config set agents.{name}.{key} VALUE`"))
        .collect();
    match set.is_empty() {
        true => format!(
            "`agentctl config set agents.{name}.KEY VALUE` changes it, `agentctl agents remove \
             {name}` takes it out"
        ),
        false => format!("{} changes it", set.join(", ")),
    }
}

/// Does the command line say all that isn't known by the name? The file's own words for it would
/// be about the file.
fn complete(name: &str, new: &NewAgent, look: &HostEnv) -> Result<(), EditError> {
    if !super::read::can_name(name) {
        let what = format!("`{name}` can't name an agent, expected up to 64 of A-Z a-z 0-9 . _ -");
        return Err(refused(what, "choose another name, such as `my-agent`"));
    }
    let known = discover::kind_of_name(name);
    if known.is_none() && new.kind.is_none() {
        let what = format!("agent `{name}` has no kind, expected one of {}", kinds());
        let hint = "say which protocol it speaks with `--kind`; `--kind exec` is for any command";
        return Err(refused(what, hint));
    }
    let usual = known.is_some_and(|known| {
        let kind = new.kind.as_deref().unwrap_or(known.name());
        // A kind that is none is told by the file's reader.
        super::Kind::named(kind)
            .is_none_or(|kind| discover::default_of_name(name, kind, look, None).is_some())
    });
    if new.command.is_empty() && !usual {
        let what = format!("agent `{name}` has no `command`");
        return Err(refused(what, "put it last, as `-- PROGRAM ARGUMENT…`"));
    }
    Ok(())
}

/// Can the new agent be told what it is to be told each time?
fn heeds(name: &str, new: &NewAgent, after: &Config, look: &HostEnv) -> Result<(), EditError> {
    let pins = Pins {
        provider: new.provider.clone(),
        model: new.model.clone(),
        ..Pins::default()
    };
    let known = agents(after, look).into_iter().map(|(agent, _)| agent);
    let mut added = known.filter(|agent| agent.name == name);
    let Some(Err(why)) = added.next().map(|agent| pins::check(&agent, &pins)) else {
        return Ok(());
    };
    let hint = "leave it out, or say in the command where it goes";
    Err(refused(why.error, hint))
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
        Change::Default(name) | Change::DefaultAnyway(name) => {
            before.default_agent = Some(name.clone());
        }
        Change::NoDefault => before.default_agent = None,
    }
    before == after
}

/// Where an agent is given, for a message.
fn line_of(config: &Config, name: &str) -> String {
    let prefix = format!("agents.{name}.");
    let mut given = config.given.range(prefix.clone()..);
    let found = given.next().filter(|(key, _)| key.starts_with(&prefix));
    found.map_or_else(String::new, |(_, place)| format!(", at {place}"))
}

fn add(document: &mut DocumentMut, name: &str, new: &NewAgent) -> String {
    let mut table = Table::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            table.insert(key, Item::Value(value));
        }
    };
    let list = |items: &[String]| {
        let list = || items.iter().collect::<Array>().into();
        (!items.is_empty()).then(list)
    };
    set("kind", new.kind.as_deref().map(Value::from));
    set("command", list(&new.command));
    set("provider", new.provider.as_deref().map(Value::from));
    set("model", new.model.as_deref().map(Value::from));
    set("pass_env", list(&new.pass_env));
    let env = || new.env.iter().collect::<InlineTable>().into();
    set("env", (!new.env.is_empty()).then(env));
    if let Some(agents) = document
        .get_mut("agents")
        .and_then(Item::as_inline_table_mut)
    {
        agents.insert(name, table.into_inline_table().into());
        return document.to_string();
    }
    // Below everything; the words at the end of the file are about what is above them.
    let end = trailing(document).trim_end().to_owned();
    let above = match (end.is_empty(), document.is_empty()) {
        (true, true) => String::new(),
        (true, false) => "\n".to_owned(),
        (false, _) => format!("{end}\n\n"),
    };
    document.set_trailing("");
    table.decor_mut().set_prefix(above);
    table.set_position(Some(isize::MAX));
    let agents = document.entry("agents").or_insert_with(|| {
        let mut agents = Table::new();
        agents.set_implicit(true);
        Item::Table(agents)
    });
    if let Some(agents) = agents.as_table_like_mut() {
        agents.insert(name, Item::Table(table));
    }
    document.to_string()
}

/// Takes the agent out; what has to stand at the beginning of the file then.
fn remove(document: &mut DocumentMut, name: &str) -> String {
    let agents = document.get_mut("agents");
    let Some(agents) = agents.and_then(Item::as_table_like_mut) else {
        return String::new();
    };
    let key = agents.key(name).cloned();
    let mut removed = agents.remove(name).unwrap_or_default();
    let mut header = None;
    if let Some(table) = removed.as_table_mut() {
        each_header(table, &mut |table| {
            let above = prefix(table.decor()).to_owned();
            header.get_or_insert((table.position(), above));
        });
    }
    // One in a line of its own, by a dotted key or as an inline table.
    let of_line = || {
        let values = removed.as_table().map(Table::get_values);
        let dotted = values.and_then(|values| values.first()?.0.last().copied().cloned());
        dotted
            .or(key)
            .map(|key| prefix(key.leaf_decor()).to_owned())
    };
    let (below, above) = match header {
        Some((below, above)) => (below, above),
        None => (None, of_line().unwrap_or_default()),
    };
    // The comment right above it was its own; what is above an empty line was not.
    let words = above.rfind("\n\n").map_or("", |end| &above[..=end]);
    if below.is_none() || words.is_empty() {
        return words.to_owned();
    }
    put_above_next(document, below, words);
    String::new()
}

/// Puts words above the table that follows, else at the end of the file.
fn put_above_next(document: &mut DocumentMut, below: Option<isize>, words: &str) {
    let put = |above: &str| match above.is_empty() || above.starts_with('\n') {
        true => format!("{words}{above}"),
        false => format!("{words}\n{above}"),
    };
    let mut next: Option<isize> = None;
    each_header(document, &mut |table| {
        let here = table.position().filter(|_| table.position() > below);
        next = [next, here].into_iter().flatten().min();
    });
    if next.is_none() {
        let end = put(trailing(document));
        document.set_trailing(end);
    }
    each_header(document, &mut |table| {
        if next.is_some() && table.position() == next {
            let above = put(prefix(table.decor()));
            table.decor_mut().set_prefix(above);
        }
    });
}

/// Every table in here that has a line of its own.
fn each_header(table: &mut Table, see: &mut dyn FnMut(&mut Table)) {
    if table.position().is_some() && !table.is_implicit() && !table.is_dotted() {
        see(table);
    }
    for (_, item) in table.iter_mut() {
        if let Some(table) = item.as_table_mut() {
            each_header(table, see);
        }
    }
}

/// The comments and empty lines above something.
fn prefix(decor: &toml_edit::Decor) -> &str {
    let prefix = decor.prefix().and_then(toml_edit::RawString::as_str);
    prefix.unwrap_or_default()
}

/// The comments and empty lines at the end of the file.
pub(super) fn trailing(document: &DocumentMut) -> &str {
    document.trailing().as_str().unwrap_or_default()
}

/// Gives a value that stands above all tables, and the text with it.
pub(super) fn set_top(document: &mut DocumentMut, key: &str, value: Value) -> String {
    if let Some(old) = document.get_mut(key).and_then(Item::as_value_mut) {
        put(old, value);
        return document.to_string();
    }
    // Below the words that open the file, above everything else.
    let text = document.to_string();
    let lines = text.split_inclusive('\n');
    let opening = lines.take_while(|line| line.starts_with('#'));
    let opening: usize = opening.map(str::len).sum();
    let at = if text[opening..].starts_with('\n') {
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
    format!("{above}{key} = {value}\n{space}{below}")
}

/// Puts a value in the place of another; the words around that one stay.
pub(super) fn put(old: &mut Value, new: Value) {
    let decor = old.decor().clone();
    *old = new;
    *old.decor_mut() = decor;
}

/// Takes the default out; the words above it stay.
fn clear_default(document: &mut DocumentMut) -> String {
    let removed = document.remove_entry(DEFAULT);
    let above = removed.map(|(key, _)| prefix(key.leaf_decor()).trim_end().to_owned());
    let above = above.filter(|above| !above.is_empty());
    above.map_or_else(String::new, |above| format!("{above}\n"))
}
