//! `agentd agents`: the words that `agentctl agents add`, `remove` and `default` pass on.
//!
//! Owns their arguments and what is said when it is done. Must not know how the file is changed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use agentd_base::settings;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::config::{Change, Config, ConfigError, EditError, HostEnv, NewAgent, save};
use crate::platform::paths::Paths;

/// What to change in `config.toml`.
#[derive(Subcommand, Debug)]
pub(super) enum AgentsCommand {
    /// Add an agent to the configuration
    Add(AddArgs),
    /// Take an agent out of the configuration
    Remove(NameArgs),
    /// Say who answers when nobody is named, or show who that is
    Default(DefaultArgs),
}

#[derive(Args, Debug)]
pub(super) struct DefaultArgs {
    name: Option<String>,
    /// Nobody
    #[arg(long, alias = "unset", conflicts_with = "name")]
    clear: bool,
    /// Though it can't be used as things are
    #[arg(long, requires = "name")]
    force: bool,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct NameArgs {
    name: String,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    #[arg(long)]
    name: String,
    #[arg(long)]
    kind: Option<String>,
    #[arg(long)]
    provider: Option<String>,
    #[arg(long)]
    model: Option<String>,
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// As one JSON object
    #[arg(long)]
    json: bool,
    #[arg(last = true)]
    command: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        // It may be a value that nobody is to see.
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// Changes the configuration and says so.
pub(super) fn run(command: AgentsCommand, paths: &Paths) -> Result<(), EditError> {
    let (name, json, done, change) = match command {
        AgentsCommand::Add(args) => {
            let name = args.name.clone();
            let new = NewAgent {
                kind: args.kind,
                command: args.command,
                provider: args.provider,
                model: args.model,
                env: args.env.into_iter().collect::<BTreeMap<_, _>>(),
                pass_env: args.pass_env,
            };
            let change = Change::Add(name.clone(), new);
            (Some(name), args.json, "added", change)
        }
        AgentsCommand::Remove(NameArgs { name, json }) => {
            (Some(name.clone()), json, "removed", Change::Remove(name))
        }
        AgentsCommand::Default(DefaultArgs {
            name,
            json,
            force,
            clear,
        }) => match name {
            Some(name) if force => {
                let change = Change::DefaultAnyway(name.clone());
                (Some(name), json, "default", change)
            }
            Some(name) => (Some(name.clone()), json, "default", Change::Default(name)),
            None if clear => (None, json, "default", Change::NoDefault),
            None => return show_default(&paths.config, json),
        },
    };
    let unusable = save(&paths.config, &HostEnv::here(), &change)?;
    let file = paths.config.display();
    let named = name.as_deref().unwrap_or_default();
    let said = match (json, done) {
        (true, done) => {
            let file = file.to_string();
            json!({"done": done, "agent": name, "file": file, "why_not": unusable}).to_string()
        }
        (false, "default") => default_is(name.as_deref(), &file),
        (false, "removed") => format!("removed `{named}` from {file}"),
        (false, _) => format!("added `{named}` to {file}"),
    };
    if let Some(why) = unusable {
        let note = format!("note: `{named}` can't be used as things are: {why}");
        let _closed = writeln!(std::io::stderr(), "{note}");
    }
    // It is done, whoever reads it.
    let _closed = writeln!(std::io::stdout(), "{said}");
    Ok(())
}

fn default_is(name: Option<&str>, file: &impl std::fmt::Display) -> String {
    match name {
        Some(name) => format!("`{name}` is the default in {file}"),
        None => {
            format!("no default in {file}: a send names its agent, or the only usable one answers")
        }
    }
}

/// Says what the file says.
fn show_default(file: &Path, json: bool) -> Result<(), EditError> {
    let text = settings::read(file).map_err(|source| ConfigError::Io {
        file: file.to_owned(),
        source,
    })?;
    let name = Config::parse(&text, file, &HostEnv::here())?.default_agent;
    let said = match json {
        true => json!({"agent": name, "file": file.display().to_string()}).to_string(),
        false => default_is(name.as_deref(), &file.display()),
    };
    writeln!(std::io::stdout(), "{said}").map_err(|source| EditError::Io {
        file: "standard output".into(),
        source,
    })
}
