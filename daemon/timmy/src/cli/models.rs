//! `timmy models`: the default, what comes behind it, short names, and what providers have.
//!
//! Owns these commands but for `status`. Names are checked before they are written.

use std::time::Duration;

use agentd_protocol::nearest::nearest;
use agentd_terminal::output;
use clap::{Args, Subcommand};
use futures_util::future::join_all;
use serde_json::json;

use super::{Exit, Failed, Form, Setting, show, status};
use crate::config::Config;
use crate::config::chain;
use crate::config::edit::{self, Change};
use crate::config::offered;
use crate::model::catalog;
use crate::provider::table;
use crate::provider::{Provider, keys};

/// A list that takes longer is left out, and said to be.
const LISTS_WITHIN: Duration = Duration::from_secs(10);

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Which models a provider has; of all that can be asked when none is named
    #[command(
        after_help = "Examples:\n  agentctl models list\n  agentctl models list ollama --json\n  \
                      agentctl models list --agent pi\n\nWith `--agent` or `--session`, agentctl \
                      asks any agent which models it has"
    )]
    List(List),
    /// The models that are asked, in order: keys, windows, prices, and what is left alone for now
    #[command(after_help = "\
Examples:
  agentctl models status
  agentctl models status --json

Exit codes: 0 somebody can be asked, 78 nobody can")]
    Status(Form),
    /// Which model is asked first; without MODEL, say which
    #[command(after_help = "\
Examples:
  agentctl models default
  agentctl models default gemini/gemini-2.5-pro
  agentctl models default --unset")]
    Default(SetDefault),
    /// Which models are asked when the one before fails
    Fallbacks {
        #[command(subcommand)]
        command: Fallbacks,
    },
    /// Short names for models
    Aliases {
        #[command(subcommand)]
        command: Aliases,
    },
}

#[derive(Args, Debug)]
pub(super) struct List {
    /// Whose
    #[arg(value_name = "PROVIDER")]
    provider: Option<String>,
    /// With agentctl: the models of this agent, as it says itself
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// With agentctl: those of this session's agent
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Args, Debug)]
pub(super) struct SetDefault {
    /// `provider/model`, split at the first slash, or a short name
    #[arg(value_name = "MODEL", conflicts_with = "unset")]
    model: Option<String>,
    /// Have none
    #[arg(long, alias = "clear")]
    unset: bool,
    #[command(flatten)]
    form: Form,
}

#[derive(Subcommand, Debug)]
pub(super) enum Fallbacks {
    /// Show them, in order
    #[command(after_help = "Examples:\n  agentctl models fallbacks list")]
    List(Form),
    /// Add one at the end, or at a place
    #[command(after_help = "\
Examples:
  agentctl models fallbacks add openrouter/openai/gpt-4.1-mini
  agentctl models fallbacks add groq/llama-3.3-70b-versatile --at 1")]
    Add(AddFallback),
    /// Take one away
    #[command(after_help = "Examples:\n  agentctl models fallbacks remove gemini/gemini-2.5-flash")]
    Remove(Model),
    /// Take all away
    #[command(after_help = "Examples:\n  agentctl models fallbacks clear")]
    Clear(Form),
    /// These first, in this order; the rest stays behind them
    #[command(after_help = "\
Examples:
  agentctl models fallbacks reorder groq/llama-3.3-70b-versatile gemini/gemini-2.5-flash")]
    Reorder(Reorder),
}

#[derive(Args, Debug)]
pub(super) struct AddFallback {
    /// `provider/model`, split at the first slash, or a short name
    #[arg(value_name = "MODEL")]
    model: String,
    /// At this place, counted from 1
    #[arg(long, value_name = "PLACE", value_parser = clap::value_parser!(u8).range(1..=16))]
    at: Option<u8>,
    #[command(flatten)]
    form: Form,
}

#[derive(Args, Debug)]
pub(super) struct Model {
    /// As it is written in the list
    #[arg(value_name = "MODEL")]
    model: String,
    #[command(flatten)]
    form: Form,
}

#[derive(Args, Debug)]
pub(super) struct Reorder {
    /// As they are written in the list
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Subcommand, Debug)]
pub(super) enum Aliases {
    /// Show them
    #[command(after_help = "Examples:\n  agentctl models aliases list")]
    List(Form),
    /// Add one, or let it mean another model
    #[command(after_help = "Examples:\n  agentctl models aliases add fast gemini/gemini-2.5-flash")]
    Add(AddAlias),
    /// Take one away
    #[command(after_help = "Examples:\n  agentctl models aliases remove fast")]
    Remove(Model),
}

#[derive(Args, Debug)]
pub(super) struct AddAlias {
    /// Letters, digits and ._-
    #[arg(value_name = "NAME")]
    name: String,
    /// `provider/model`, split at the first slash
    #[arg(value_name = "MODEL")]
    model: String,
    #[command(flatten)]
    form: Form,
}

pub(super) async fn run(setting: Setting, command: Command) -> Result<Exit, Failed> {
    match command {
        Command::List(list) => lists(&setting, list).await,
        Command::Status(form) => status::run(&setting, form).await,
        Command::Default(SetDefault {
            model: None,
            unset: false,
            form,
        }) => default_is(&setting, form),
        Command::Default(SetDefault { model, form, .. }) => {
            if let Some(model) = &model {
                checked(&setting, model).await?;
            }
            let config = save(&setting, &Change::Default(model))?;
            chain_is(&config, form)
        }
        Command::Fallbacks { command } => fallbacks(&setting, command).await,
        Command::Aliases { command } => aliases(&setting, command).await,
    }
}

fn save(setting: &Setting, change: &Change) -> Result<Config, Failed> {
    Ok(edit::save(&setting.places.config, change)?)
}

async fn fallbacks(setting: &Setting, command: Fallbacks) -> Result<Exit, Failed> {
    let (change, form) = match command {
        Fallbacks::List(form) => return listed(&setting.config, form),
        Fallbacks::Add(add) => {
            checked(setting, &add.model).await?;
            let at = add.at.map(usize::from);
            (Change::AddFallback(add.model, at), add.form)
        }
        Fallbacks::Remove(one) => (Change::RemoveFallback(one.model), one.form),
        Fallbacks::Clear(form) => (Change::ClearFallbacks, form),
        Fallbacks::Reorder(order) => (Change::Reorder(order.models), order.form),
    };
    let config = save(setting, &change)?;
    chain_is(&config, form)
}

async fn aliases(setting: &Setting, command: Aliases) -> Result<Exit, Failed> {
    let (config, form) = match command {
        Aliases::List(form) => (setting.config.clone(), form),
        Aliases::Add(add) => {
            checked(setting, &add.model).await?;
            let change = Change::SetAlias(add.name, add.model);
            (save(setting, &change)?, add.form)
        }
        Aliases::Remove(one) => (save(setting, &Change::RemoveAlias(one.model))?, one.form),
    };
    if form.json {
        show::json(&json!({"aliases": config.models.aliases}))?;
    } else {
        let rows = config.models.aliases.iter();
        let rows: Vec<Vec<String>> = rows
            .map(|(name, model)| vec![name.clone(), model.clone()])
            .collect();
        show::table(&["NAME", "MODEL"], &rows)?;
    }
    Ok(Exit::Done)
}

fn default_is(setting: &Setting, form: Form) -> Result<Exit, Failed> {
    let default = setting.config.models.default.as_deref();
    if form.json {
        show::json(&json!({"default": default}))?;
    } else {
        match default {
            Some(model) => show::line(model)?,
            None => {
                let hint = setting.command("models status");
                let failed = Failed::new(Exit::Config, "no default model is chosen");
                return Err(failed.hint(format!("{hint} says what would be asked")));
            }
        }
    }
    Ok(Exit::Done)
}

fn listed(config: &Config, form: Form) -> Result<Exit, Failed> {
    if form.json {
        show::json(&json!({"fallbacks": config.models.fallbacks}))?;
    } else {
        for model in &config.models.fallbacks {
            show::line(model)?;
        }
    }
    Ok(Exit::Done)
}

/// The chain as it is after a change.
fn chain_is(config: &Config, form: Form) -> Result<Exit, Failed> {
    let models = &config.models;
    if form.json {
        let (default, fallbacks) = (&models.default, &models.fallbacks);
        show::json(&json!({"ok": true, "default": default, "fallbacks": fallbacks}))?;
        return Ok(Exit::Done);
    }
    show::line(&format!(
        "default    {}",
        models.default.as_deref().unwrap_or("(none)")
    ))?;
    for (place, model) in models.fallbacks.iter().enumerate() {
        show::line(&format!("fallback {} {model}", place + 1))?;
    }
    Ok(Exit::Done)
}

/// Is there such a provider? Whether it has the model, it is asked itself where that costs nothing:
/// what it doesn't list may be there all the same.
async fn checked(setting: &Setting, model: &str) -> Result<(), Failed> {
    if let Err((what, hint)) = setting.config.check_model(model) {
        let failed = Failed::new(Exit::Usage, what);
        return Err(Failed { hint, ..failed });
    }
    let Ok((name, model)) = table::split(model) else {
        return Ok(());
    };
    let lookup = |name: &str| setting.lookup(name);
    let Ok(provider) = table::resolve(name, &setting.config, &lookup) else {
        return Ok(());
    };
    let key = keys::find(&provider.key_variables, &lookup);
    if key.is_none() && !provider.local {
        let add = setting.command(&format!("provider add {name}"));
        output::note(&format!(
            "there is no key for `{name}` yet: {add} stores one"
        ));
        return Ok(());
    }
    match catalog::of(&provider, key.as_ref(), LISTS_WITHIN).await {
        Ok(models) if !models.iter().any(|known| is_it(known, model)) => {
            let near = nearest(model, models.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            output::note(&format!("`{name}` does not list a model `{model}`{near}"));
        }
        Ok(_) => {}
        Err(why) => output::note(&format!(
            "`{name}` could not be asked for its models: {why}"
        )),
    }
    Ok(())
}

/// Ollama leaves `:latest` out.
fn is_it(known: &str, model: &str) -> bool {
    known == model || known.strip_suffix(":latest") == Some(model)
}

async fn lists(setting: &Setting, list: List) -> Result<Exit, Failed> {
    if list.agent.is_some() || list.session.is_some() {
        let error = "timmy knows no other agents";
        let hint = "`agentctl models list --agent NAME` asks one";
        return Err(Failed::new(Exit::Usage, error).hint(hint));
    }
    let lookup = |name: &str| setting.lookup(name);
    // Who can't be asked is asked only by name.
    let (providers, problems) = match &list.provider {
        Some(name) => {
            let provider = table::resolve(name, &setting.config, &lookup)
                .map_err(|why| Failed::new(Exit::Usage, why.to_string()))?;
            let key = keys::find(&provider.key_variables, &lookup);
            (vec![(provider, key)], Vec::new())
        }
        None => offered::to_ask(&setting.config, &lookup),
    };
    for problem in problems {
        output::note(&problem);
    }
    let asked = providers.iter().map(|(provider, key)| async move {
        let models = catalog::of(provider, key.as_ref(), LISTS_WITHIN).await;
        (provider, models)
    });
    // At once: each of them may take all of its time.
    let answers = join_all(asked).await;
    let answered = answers.iter().any(|(_, models)| models.is_ok());
    if list.form.json {
        let rows: Vec<_> = answers
            .iter()
            .map(|(provider, models)| {
                json!({
                    "provider": provider.id,
                    "models": models.as_ref().ok(),
                    "error": models.as_ref().err(),
                })
            })
            .collect();
        show::json(&json!({"providers": rows}))?;
        return Ok(if answered { Exit::Done } else { Exit::Failed });
    }
    if let (Some(_), [(provider, Err(why))]) = (&list.provider, answers.as_slice()) {
        without_key(setting, provider, why)?;
    }
    let mut told = false;
    for (provider, models) in &answers {
        match models {
            Ok(models) => {
                for model in models {
                    show::line(&output::safe(&format!("{}/{model}", provider.id)))?;
                }
            }
            // Nobody said that a server runs here.
            Err(_) if provider.local && list.provider.is_none() => {}
            Err(why) => {
                told = true;
                output::note(&format!("{}: {why}", provider.id));
            }
        }
    }
    if answered {
        return Ok(Exit::Done);
    }
    if told {
        return Ok(Exit::Failed);
    }
    let error =
        "there is nobody to ask: no provider has a key, and no server of models answers here";
    Err(Failed::new(Exit::Failed, error).hint(there_would_be(setting)))
}

/// The model of each provider that most use, and what has to be set for it.
fn there_would_be(setting: &Setting) -> String {
    let lookup = |name: &str| setting.lookup(name);
    let resolved =
        (table::ALL.iter()).filter_map(|row| table::resolve(row.id, &setting.config, &lookup).ok());
    let (local, hosted): (Vec<_>, Vec<_>) = resolved.partition(|provider| provider.local);
    let rows: Vec<(String, String)> = (hosted.iter())
        .map(|provider| {
            let model = chain::usual(provider).unwrap_or("...");
            let keys = provider.key_variables.join(" or ");
            (format!("{}/{model}", provider.id), keys)
        })
        .collect();
    let width = rows.iter().map(|(model, _)| model.len()).max().unwrap_or(0);
    let add = setting.command("provider add NAME");
    let mut hint = format!("with a key there would be, among others (set it, or {add} stores it):");
    for (model, keys) in rows {
        hint.push_str(&format!("\n  {model:width$}  {keys}"));
    }
    let servers: Vec<String> = (local.iter())
        .map(|provider| format!("{} at {}", provider.id, provider.base_url))
        .collect();
    hint.push_str(&format!(
        "\nand without one what a server on this machine has: {}",
        servers.join(", ")
    ));
    hint
}

/// One that was named and lists nothing, as there is no key for it.
fn without_key(
    setting: &Setting,
    provider: &Provider,
    why: &impl std::fmt::Display,
) -> Result<(), Failed> {
    let lookup = |name: &str| setting.lookup(name);
    if provider.local || keys::find(&provider.key_variables, &lookup).is_some() {
        return Ok(());
    }
    let name = &provider.id;
    let error =
        format!("`{name}` could not be asked for its models, and there is no key for it: {why}");
    let failed = Failed::new(Exit::Failed, error);
    Err(failed.hint(setting.how_to_store_a_key(provider)))
}
