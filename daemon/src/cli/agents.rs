//! `agentd agents`: the words that `agentctl agents add`, `remove` and `default` pass on.
//!
//! Owns their arguments and what is said when it is done. Must not know how the file is changed.

use std::collections::BTreeMap;
use std::io::Write as _;

use clap::{Args, Subcommand};
use serde_json::json;

use super::tell;
use crate::config::{Change, Config, ConfigError, EditError, HostEnv, NewAgent, save};
use crate::platform::paths::Paths;
use crate::server::plain_send::PlainSend;

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
    /// Though it can't be used as things are; where only nobody is logged in, it needs no force
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
            None => return show_default(paths, json),
        },
    };
    // One that can't be read is told by who changes it.
    let before = plain_send(paths).ok();
    let unusable = save(&paths.config, &HostEnv::here(), &change)?;
    let answers = plain_send(paths).ok();
    let file = paths.config.display();
    let named = name.as_deref().unwrap_or_default();
    let said = match (json, done) {
        (true, done) => {
            let file = file.to_string();
            let mut told = json!({"done": done, "agent": name, "file": file, "why_not": unusable});
            add_answers(&mut told, answers.as_ref());
            told.to_string()
        }
        (false, "default") => default_is(name.as_deref(), answers.as_ref(), &file),
        (false, "removed") => format!("removed `{named}` from {file}"),
        (false, _) => format!("added `{named}` to {file}"),
    };
    if done == "default"
        && unusable.is_none()
        && let Some(lacks) = lacks(named, paths)
    {
        tell(&lacks);
    }
    if let Some(why) = unusable {
        tell(&format!("`{named}` can't be used as things are: {why}"));
    }
    if done != "default"
        && !json
        && let (Some(before), Some(answers)) = (before, answers)
        && before != answers
    {
        tell(&changed_to(&before, &answers));
    }
    // It is done, whoever reads it.
    let _closed = writeln!(std::io::stdout(), "{said}");
    Ok(())
}

/// With the configuration as it is written.
fn plain_send(paths: &Paths) -> Result<PlainSend, ConfigError> {
    let config = Config::load(&paths.config, &paths.env_file, &HostEnv::here())?;
    Ok(PlainSend::of(&config, &paths.state))
}

fn lacks(name: &str, paths: &Paths) -> Option<String> {
    let config = Config::load(&paths.config, &paths.env_file, &HostEnv::here());
    PlainSend::lacks(name, &config.ok()?, &paths.state)
}

fn add_answers(told: &mut serde_json::Value, answers: Option<&PlainSend>) {
    told["answers"] = json!(answers.and_then(PlainSend::answerer));
    told["choices"] = json!(answers.map_or(&[][..], PlainSend::choices));
}

/// What a change of the agents means for who names none.
fn changed_to(before: &PlainSend, answers: &PlainSend) -> String {
    match answers {
        PlainSend::Configured(name) | PlainSend::Only(name) => match before.answerer() {
            Some(before) if before != name => format!(
                "`send` without `--agent` goes to `{name}` now, and no more to `{before}`; \
                 `agentctl agents default NAME` says who answers, whatever is added"
            ),
            Some(_) | None => format!("`send` without `--agent` goes to `{name}` now"),
        },
        PlainSend::Several(names) => format!(
            "`send` without `--agent` goes to nobody now, as several could answer: {}; `agentctl \
             agents default NAME` chooses one",
            names.join(", ")
        ),
        PlainSend::Nobody => "no agent can be used now".to_owned(),
    }
}

fn default_is(
    name: Option<&str>,
    answers: Option<&PlainSend>,
    file: &impl std::fmt::Display,
) -> String {
    match (name, answers) {
        (Some(name), _) => format!("`{name}` is the default in {file}"),
        (None, Some(PlainSend::Configured(name) | PlainSend::Only(name))) => format!(
            "`{name}` is the default for now, as no other agent comes before it; {file} names none"
        ),
        (None, Some(PlainSend::Several(names))) => format!(
            "no default in {file}: a send names its agent, as several could answer: {}",
            names.join(", ")
        ),
        (None, Some(PlainSend::Nobody)) => {
            format!("no default in {file}, and no agent can be used")
        }
        (None, None) => {
            format!("no default in {file}: a send names its agent, or the only usable one answers")
        }
    }
}

/// Says who answers, and whether the file says so.
fn show_default(paths: &Paths, json: bool) -> Result<(), EditError> {
    let config = Config::load(&paths.config, &paths.env_file, &HostEnv::here())?;
    let answers = PlainSend::of(&config, &paths.state);
    let (name, file) = (config.default_agent.as_deref(), paths.config.display());
    let said = match json {
        true => {
            let mut told = json!({"agent": name, "file": file.to_string()});
            add_answers(&mut told, Some(&answers));
            told.to_string()
        }
        false => default_is(name, Some(&answers), &file),
    };
    writeln!(std::io::stdout(), "{said}").map_err(|source| EditError::Io {
        file: "standard output".into(),
        source,
    })
}
