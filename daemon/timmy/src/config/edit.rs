//! Changes of `[models]` and `[providers]` in `config.toml`; comments, order and links stay.
//!
//! Owns what each change does to the file. It is kept only if the file then says just what was
//! asked for. Must not know keys: those have a file of their own.

use std::io;
use std::path::{Path, PathBuf};

use agentd_base::alone::Alone;
use agentd_protocol::limits::MAX_FALLBACKS;
use agentd_protocol::nearest::nearest;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::read::ConfigError;
use super::{Config, ProviderConfig};

/// What to change.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Change {
    /// Another default model, or none.
    Default(Option<String>),
    /// A model more to fall back to: at this place, counted from 1, or at the end.
    AddFallback(String, Option<usize>),
    /// One less.
    RemoveFallback(String),
    /// None any more.
    ClearFallbacks,
    /// These first, in this order; the rest behind them as it was.
    Reorder(Vec<String>),
    /// A short name for a model.
    SetAlias(String, String),
    /// One less.
    RemoveAlias(String),
    /// What is said of a provider.
    SetProvider(String, ProviderConfig),
    /// Nothing is said of it any more.
    RemoveProvider(String),
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EditError {
    /// The file as it is can't be read.
    #[error(transparent)]
    Broken(#[from] ConfigError),
    /// The change is wrong.
    #[error("{what}")]
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

/// Changes the file, or leaves it as it is; a missing one is an empty one. Returns what it says
/// then.
///
/// # Errors
/// The file is broken, the change is wrong, or the disk says no.
pub(crate) fn save(file: &Path, change: &Change) -> Result<Config, EditError> {
    let io = |source| EditError::Io {
        file: file.to_owned(),
        source,
    };
    // Two at once would undo each other's change.
    let alone = Alone::with(file).map_err(io)?;
    let text = alone.read().map_err(io)?;
    let (fresh, after) = changed(&text, file, change)?;
    if fresh != text {
        alone.replace(&fresh).map_err(io)?;
    }
    Ok(after)
}

/// The text with the change, and what it says.
pub(super) fn changed(
    text: &str,
    file: &Path,
    change: &Change,
) -> Result<(String, Config), EditError> {
    let before = Config::parse(text, file)?;
    // What it is to say is known before the text is touched, and compared with what it says then.
    let wanted = applied(&before, change)?;
    let by_hand = |why: &str| {
        let what = format!("`{}` can't be changed safely: {why}", file.display());
        refused(what, "change it by hand")
    };
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| by_hand(error.message()))?;
    write_models(&mut document, &before, &wanted).ok_or_else(|| by_hand("`models` is no table"))?;
    write_providers(&mut document, &before, &wanted)
        .ok_or_else(|| by_hand("`providers` is no table"))?;
    let fresh = document.to_string();
    let after = match Config::parse(&fresh, file) {
        Ok(after) => after,
        // Of a line that isn't in the file.
        Err(ConfigError::Wrong { what, hint, .. }) => {
            return Err(refused(
                what,
                hint.unwrap_or_else(|| "change it by hand".to_owned()),
            ));
        }
        Err(error) => return Err(error.into()),
    };
    // Text and meaning are changed by two ways: where they differ nothing is written.
    if after != wanted {
        return Err(by_hand("it would say something else"));
    }
    Ok((fresh, after))
}

/// What the configuration is to say.
fn applied(before: &Config, change: &Change) -> Result<Config, EditError> {
    let mut after = before.clone();
    let models = &mut after.models;
    match change {
        Change::Default(model) => models.default.clone_from(model),
        Change::AddFallback(model, at) => add_fallback(models, model, *at)?,
        Change::RemoveFallback(model) => {
            let at = models.fallbacks.iter().position(|one| one == model);
            let at = at.ok_or_else(|| not_in_chain(model, &models.fallbacks))?;
            models.fallbacks.remove(at);
        }
        Change::ClearFallbacks => models.fallbacks.clear(),
        Change::Reorder(first) => {
            let mut rest = std::mem::take(&mut models.fallbacks);
            for model in first {
                let at = rest.iter().position(|one| one == model);
                let at = at.ok_or_else(|| not_in_chain(model, &before.models.fallbacks))?;
                models.fallbacks.push(rest.remove(at));
            }
            models.fallbacks.extend(rest);
        }
        Change::SetAlias(name, model) => {
            models.aliases.insert(name.clone(), model.clone());
        }
        Change::RemoveAlias(name) => {
            if models.aliases.remove(name).is_none() {
                return Err(absent("short name", name, models.aliases.keys()));
            }
        }
        Change::SetProvider(name, provider) => {
            after.providers.insert(name.clone(), provider.clone());
        }
        Change::RemoveProvider(name) => {
            if after.providers.remove(name).is_none() {
                return Err(absent("provider", name, after.providers.keys()));
            }
        }
    }
    Ok(after)
}

fn add_fallback(
    models: &mut super::Models,
    model: &str,
    at: Option<usize>,
) -> Result<(), EditError> {
    if models.default.as_deref() == Some(model) {
        let what = format!("`{model}` is the default model: what comes after it is something else");
        return Err(refused(what, "`models status` shows the chain"));
    }
    if let Some(at) = models.fallbacks.iter().position(|one| one == model) {
        let what = format!("`{model}` is in the chain already, at place {}", at + 1);
        return Err(refused(
            what,
            "`models fallbacks reorder` changes the order",
        ));
    }
    if models.fallbacks.len() >= MAX_FALLBACKS {
        let what = format!("the chain has {MAX_FALLBACKS} models, the limit");
        return Err(refused(what, "`models fallbacks remove` one first"));
    }
    let end = models.fallbacks.len();
    let at = at.map_or(end, |at| at.saturating_sub(1).min(end));
    models.fallbacks.insert(at, model.to_owned());
    Ok(())
}

fn not_in_chain(model: &str, chain: &[String]) -> EditError {
    absent("fallback", model, chain.iter())
}

fn absent<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a String>) -> EditError {
    let known: Vec<&str> = known.map(String::as_str).collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => format!("there are: {}", known.join(", ")),
    };
    refused(format!("there is no {what} `{name}` in config.toml"), hint)
}

/// The table of that name in another one, made where it isn't there.
fn table<'t>(within: &'t mut Item, name: &str) -> Option<&'t mut Item> {
    let fresh = match within {
        // The writer can't have another one in there: it panics where a comma stands at its end.
        Item::Value(_) => Item::Value(Value::InlineTable(InlineTable::new())),
        _ => Item::Table(Table::new()),
    };
    let within = within.as_table_like_mut()?;
    Some(within.entry(name).or_insert(fresh))
}

fn write_models(document: &mut DocumentMut, before: &Config, wanted: &Config) -> Option<()> {
    let (old, new) = (&before.models, &wanted.models);
    if old == new {
        return Some(());
    }
    let item = table(document.as_item_mut(), "models")?;
    let models = item.as_table_like_mut()?;
    if old.default != new.default {
        set(models, "default", new.default.as_deref().map(Value::from));
    }
    if old.fallbacks != new.fallbacks {
        let items = models.get_mut("fallbacks").and_then(Item::as_array_mut);
        match items {
            Some(items) => rearrange(items, &new.fallbacks),
            None => {
                let all: Array = new.fallbacks.iter().collect();
                models.insert("fallbacks", Item::Value(Value::Array(all)));
            }
        }
    }
    if old.aliases != new.aliases {
        let aliases = table(item, "aliases")?.as_table_like_mut()?;
        for name in old
            .aliases
            .keys()
            .filter(|name| !new.aliases.contains_key(*name))
        {
            aliases.remove(name);
        }
        for (name, model) in &new.aliases {
            if old.aliases.get(name) != Some(model) {
                set(aliases, name, Some(Value::from(model)));
            }
        }
    }
    Some(())
}

/// Each entry keeps the comments and blanks around it.
fn rearrange(items: &mut Array, wanted: &[String]) {
    let mut old: Vec<Value> = items.iter().cloned().collect();
    items.clear();
    for model in wanted {
        let at = old.iter().position(|item| item.as_str() == Some(model));
        match at {
            Some(at) => items.push_formatted(old.remove(at)),
            None => items.push(model),
        }
    }
    let several_lines = items.iter().any(|item| {
        let before = item.decor().prefix().and_then(|raw| raw.as_str());
        before.is_some_and(|before| before.contains('\n'))
    });
    if !several_lines {
        // What was first has no blank before it, and what was not has one.
        items.fmt();
    }
}

/// Sets a value, or takes it away; what stands around an old one stays.
fn set(within: &mut dyn TableLike, name: &str, value: Option<Value>) {
    let Some(mut value) = value else {
        within.remove(name);
        return;
    };
    // Comments and blanks belong to the old value in `toml_edit`, and would go with it.
    match within.get_mut(name).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => {
            within.insert(name, Item::Value(value));
        }
    }
}

fn write_providers(document: &mut DocumentMut, before: &Config, wanted: &Config) -> Option<()> {
    if before.providers == wanted.providers {
        return Some(());
    }
    let top = document.as_table_mut();
    if !top.contains_key("providers") {
        // `[providers.NAME]` says it by itself.
        let mut implicit = Table::new();
        implicit.set_implicit(true);
        top.insert("providers", Item::Table(implicit));
    }
    let item = table(document.as_item_mut(), "providers")?;
    let providers = item.as_table_like_mut()?;
    let gone = before.providers.keys();
    for name in gone.filter(|name| !wanted.providers.contains_key(*name)) {
        providers.remove(name);
    }
    for (name, new) in &wanted.providers {
        let old = before.providers.get(name);
        if old == Some(new) {
            continue;
        }
        let provider = table(item, name)?.as_table_like_mut()?;
        let words = [
            ("base_url", &new.base_url),
            ("wire", &new.wire),
            ("key_env", &new.key_env),
        ];
        for (key, word) in words {
            set(provider, key, word.as_deref().map(Value::from));
        }
        let window = new
            .context_window
            .and_then(|window| i64::try_from(window).ok());
        set(provider, "context_window", window.map(Value::from));
    }
    Some(())
}

#[cfg(test)]
mod tests;
