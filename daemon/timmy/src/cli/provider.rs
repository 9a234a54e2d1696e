//! `timmy provider`: keys stored and forgotten, servers added, one real request to try.
//!
//! Owns how a key comes in: typed unseen, or piped. Never by an argument.

use std::io::{IsTerminal as _, Read as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd_base::env_file::is_variable;
use agentd_terminal::output;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Exit, Failed, Form, Setting, show};
use crate::ECHO;
use crate::config::ProviderConfig;
use crate::config::chain::{self, ModelRequest, Unchosen};
use crate::config::edit::{self, Change};
use crate::config::read::is_name;
use crate::config::secrets::{self, Before};
use crate::failover::class;
use crate::message::Message;
use crate::model::genai::HttpModels;
use crate::model::{ModelClient as _, Request};
use crate::provider::keys;
use crate::provider::table::{self, ALL, Unusable};
use crate::provider::{Provider, Wire};
use crate::session::store::{Store, wall_ms};

/// A key that is longer was not meant to be piped here.
const MOST_INPUT: u64 = 64 * 1024;
/// A model that thinks before one word is still faster.
const TRY_WITHIN: Duration = Duration::from_secs(60);
/// Answered by any model in a word.
const QUESTION: &str = "This is a test of the connection. Answer with one word: ready";
/// Pieces of a reply nobody looks at.
const PIECES: usize = 64;

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Which providers there are, where each is, and whether its key is there
    #[command(after_help = "Examples:\n  agentctl provider list\n  agentctl provider list --json")]
    List(Form),
    /// Store a provider's key, or add a server of your own
    #[command(after_help = "\
Examples:
  agentctl provider add gemini
  pass show openrouter | agentctl provider add openrouter
  agentctl provider add own --base-url http://127.0.0.1:8000/v1
  agentctl provider add work --base-url https://llm.example.com/v1 --wire openai --key-env WORK_KEY

The key is typed unseen, or comes from standard input; an argument could be read by everybody
with `ps`. It is kept in the file `env` beside config.toml, mode 0600.")]
    Add(Add),
    /// Forget a provider's stored key, and what config.toml says of it
    #[command(after_help = "Examples:\n  agentctl provider remove gemini")]
    Remove(ProviderArgs),
    /// Send one real request, and say what came of it
    #[command(after_help = "\
Examples:
  agentctl provider test gemini
  agentctl provider test ollama qwen3:8b

Exit codes: 0 it answered, 1 it didn't, 78 there is no key")]
    Test(Test),
}

#[derive(Args, Debug)]
pub(super) struct Add {
    /// A known provider, or a name for your own
    #[arg(value_name = "NAME")]
    name: String,
    /// Where it is, for one that isn't known, or is elsewhere
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// What it speaks: openai, responses, anthropic, gemini or ollama
    #[arg(long, value_name = "WIRE")]
    wire: Option<String>,
    /// The variable that holds its key
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,
    /// Allow a key to travel over the network unencrypted
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    form: Form,
}

#[derive(Args, Debug)]
pub(super) struct ProviderArgs {
    /// Which
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    form: Form,
}

#[derive(Args, Debug)]
pub(super) struct Test {
    /// Which
    #[arg(value_name = "NAME")]
    name: String,
    /// Which of its models; the configured one, else a usual one
    #[arg(value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    form: Form,
}

pub(super) async fn run(setting: Setting, command: Command) -> Result<Exit, Failed> {
    match command {
        Command::List(form) => list(&setting, form),
        Command::Add(add) => added(&setting, add),
        Command::Remove(named) => removed(&setting, &named),
        Command::Test(test) => tested(&setting, test).await,
    }
}

fn unusable(why: &Unusable) -> Failed {
    let exit = match why {
        Unusable::Variable { .. } => Exit::Config,
        Unusable::Unknown { .. }
        | Unusable::Echo
        | Unusable::Wrong { .. }
        | Unusable::NotAModel(_) => Exit::Usage,
    };
    Failed::new(exit, why.to_string())
}

fn resolve(setting: &Setting, name: &str) -> Result<Provider, Failed> {
    table::resolve(name, &setting.config, &|name| setting.lookup(name))
        .map_err(|why| unusable(&why))
}

/// Which variable holds the key now.
fn holder<'p>(setting: &Setting, provider: &'p Provider) -> Option<&'p String> {
    let set = |name: &&String| {
        let value = setting.lookup(name);
        value.is_some_and(|value| !value.trim().is_empty())
    };
    provider.key_variables.iter().find(set)
}

/// Where the key is: it is never shown.
fn place(setting: &Setting, provider: &Provider) -> String {
    match holder(setting, provider) {
        Some(name) if std::env::var(name).is_ok_and(|value| !value.trim().is_empty()) => {
            format!("{name}, in the environment")
        }
        Some(name) => format!("{name}, in the file env"),
        None if provider.local => "none needed".to_owned(),
        None => format!("none ({})", provider.key_variables.join(", ")),
    }
}

fn list(setting: &Setting, form: Form) -> Result<Exit, Failed> {
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for name in names(setting) {
        let provider = match resolve(setting, name) {
            Ok(provider) => provider,
            Err(why) => {
                values.push(json!({"provider": name, "error": why.error}));
                rows.push(vec![
                    name.to_owned(),
                    String::new(),
                    output::safe(&why.error).into_owned(),
                ]);
                continue;
            }
        };
        let has_key = holder(setting, &provider).is_some();
        values.push(json!({
            "provider": provider.id,
            "base_url": provider.base_url,
            "wire": wire(provider.wire),
            "local": provider.local,
            "key": has_key,
            "key_variables": provider.key_variables,
        }));
        rows.push(vec![
            provider.id.clone(),
            place(setting, &provider),
            provider.base_url.clone(),
        ]);
    }
    // No model answers there: it tries the way to one.
    values.push(json!({
        "provider": ECHO,
        "base_url": null,
        "wire": null,
        "local": true,
        "key": false,
        "key_variables": [],
    }));
    rows.push(vec![
        ECHO.to_owned(),
        "none needed".to_owned(),
        "built in: says back what it is told".to_owned(),
    ]);
    if form.json {
        show::json(&json!({"providers": values}))?;
    } else {
        show::fitted(&["PROVIDER", "KEY", "ADDRESS"], &rows)?;
    }
    Ok(Exit::Done)
}

fn wire(wire: Wire) -> &'static str {
    let found = Wire::ALL.iter().find(|(_, known)| *known == wire);
    found.map_or("openai", |(name, _)| name)
}

fn added(setting: &Setting, add: Add) -> Result<Exit, Failed> {
    let known = table::known(&add.name);
    let name = known.map_or(add.name.as_str(), |row| row.id).to_owned();
    let before = setting.config.providers.get(&name);
    if !is_name(&name) {
        let error = format!("`{name}` can't name a provider: it has letters, digits and ._- only");
        return Err(Failed::new(Exit::Usage, error));
    }
    if let Some(variable) = add.key_env.as_deref().filter(|name| !is_variable(name)) {
        // It may be a key.
        let _unshown = variable;
        let error = "--key-env names a variable, such as MY_LLM_KEY; the key itself is asked for";
        return Err(Failed::new(Exit::Usage, error));
    }
    let says = add.base_url.is_some() || add.wire.is_some() || add.key_env.is_some();
    let config = if says {
        let mut own = before.cloned().unwrap_or_default();
        own.base_url = add.base_url.clone().or(own.base_url);
        own.wire = add.wire.clone().or(own.wire);
        own.key_env = add.key_env.clone().or(own.key_env);
        // Before it is written: a key that comes later goes where this says.
        safe_address(&own, add.insecure)?;
        edit::save(
            &setting.places.config,
            &Change::SetProvider(name.clone(), own),
        )?
    } else {
        // Unknown without an address: the nearest name is said.
        resolve(setting, &name)?;
        setting.config.clone()
    };
    // Of what is written now, as the variable for the key may be another.
    let provider = table::resolve(&name, &config, &|name| setting.lookup(name))
        .map_err(|why| unusable(&why))?;
    let key = if provider.local && !says && std::io::stdin().is_terminal() {
        // A server of this machine wants none; who has one pipes it.
        None
    } else {
        read_key(&provider)?
    };
    let stored = match &key {
        None => None,
        Some(key) => {
            let variable = &provider.key_variables[0];
            let was = secrets::store(&setting.places.env_file(), variable, key)?;
            Some((variable.clone(), was))
        }
    };
    tell_added(setting, &provider, stored.as_ref(), add.form)
}

fn tell_added(
    setting: &Setting,
    provider: &Provider,
    stored: Option<&(String, Before)>,
    form: Form,
) -> Result<Exit, Failed> {
    let file = setting.places.env_file();
    let name = &provider.id;
    if form.json {
        let stored = stored.map(|(variable, was)| {
            json!({"variable": variable, "file": file, "replaced": *was == Before::There})
        });
        show::json(&json!({"ok": true, "provider": name, "stored": stored}))?;
        return Ok(Exit::Done);
    }
    match stored {
        Some((variable, was)) => {
            let what = match was {
                Before::There => "replaced",
                Before::Absent => "stored",
            };
            show::line(&format!("{name}: {variable} {what} in {}", file.display()))?;
            if std::env::var(variable).is_ok_and(|value| !value.trim().is_empty()) {
                output::note(&format!(
                    "{variable} is set in the environment, too, and counts before the file"
                ));
            }
        }
        None => show::line(&format!(
            "{name}: {} (key: {})",
            provider.base_url,
            place(setting, provider)
        ))?,
    }
    let model = match chain::usual_model(&setting.config, provider) {
        Some(_) => "",
        None => " MODEL",
    };
    let next = setting.command(&format!("provider test {name}{model}"));
    show::line(&format!("try it: {next}"))?;
    Ok(Exit::Done)
}

/// A key travels to whoever is on the way, unless it is encrypted or stays on this machine.
fn safe_address(own: &ProviderConfig, insecure: bool) -> Result<(), Failed> {
    let Some(url) = &own.base_url else {
        return Ok(());
    };
    table::address(url).map_err(|why| Failed::new(Exit::Usage, why))?;
    let is_plain = !url.trim_start().to_ascii_lowercase().starts_with("https:");
    if is_plain && !table::is_loopback(url) && !insecure {
        let error = format!("`{url}` is not encrypted: everybody on the way could read the key");
        let hint = "use https://, or say --insecure if nobody else is on that network";
        return Err(Failed::new(Exit::Usage, error).hint(hint));
    }
    Ok(())
}

/// A key, typed unseen or from standard input. A server that needs none may get an empty one.
fn read_key(provider: &Provider) -> Result<Option<String>, Failed> {
    let typed = if std::io::stdin().is_terminal() {
        let variable = &provider.key_variables[0];
        let prompt = format!("key for {} ({variable}), typed unseen: ", provider.id);
        rpassword::prompt_password(prompt)?
    } else {
        let mut piped = String::new();
        let mut input = std::io::stdin().lock().take(MOST_INPUT);
        input.read_to_string(&mut piped).map_err(|why| {
            let error = format!("the key can't be read from standard input: {why}");
            Failed::new(Exit::Usage, error)
        })?;
        piped
    };
    if provider.local && typed.trim().is_empty() {
        return Ok(None);
    }
    Ok(Some(secrets::key_of(&typed)?.to_owned()))
}

fn removed(setting: &Setting, named: &ProviderArgs) -> Result<Exit, Failed> {
    let provider = resolve(setting, &named.name)?;
    let name = &provider.id;
    let mut gone = Vec::new();
    if setting.config.providers.contains_key(name) {
        edit::save(
            &setting.places.config,
            &Change::RemoveProvider(name.clone()),
        )?;
        let file = setting.places.config.display();
        gone.push(format!("its table in {file}"));
    }
    let file = setting.places.env_file();
    for (place, variable) in provider.key_variables.iter().enumerate() {
        if !setting.keys.names().any(|known| known == variable) {
            continue;
        }
        // A variable of this very house goes with it, though others take it as their second choice.
        let is_own = place == 0 && table::known(name).is_some();
        if let Some(other) = user_of(setting, variable, name)
            && !is_own
        {
            output::note(&format!("{variable} is kept: `{other}` uses it, too"));
        } else if secrets::forget(&file, variable)? == Before::There {
            gone.push(format!("{variable} in {}", file.display()));
        }
    }
    if named.form.json {
        show::json(&json!({"ok": !gone.is_empty(), "provider": name, "removed": gone}))?;
    } else if gone.is_empty() {
        let error = format!("nothing is stored of `{name}`");
        return Err(Failed::new(Exit::Failed, error));
    } else {
        show::line(&format!("{name}: removed {}", gone.join(", ")))?;
    }
    let still = provider.key_variables.iter();
    for variable in still.filter(|name| std::env::var_os(name.as_str()).is_some()) {
        output::note(&format!("{variable} is set in the environment"));
    }
    Ok(Exit::Done)
}

/// Another provider that takes its key from this variable.
fn user_of(setting: &Setting, variable: &str, not: &str) -> Option<String> {
    let others = names(setting).into_iter().filter(|name| *name != not);
    let mut others = others.filter_map(|name| resolve(setting, name).ok());
    let user = others.find(|other| other.key_variables.iter().any(|known| known == variable));
    Some(user?.id)
}

/// The names of all providers: the table's, and the user's own.
fn names(setting: &Setting) -> Vec<&str> {
    let own = setting.config.providers.keys().map(String::as_str);
    let own = own.filter(|name| table::known(name).is_none());
    ALL.iter().map(|row| row.id).chain(own).collect()
}

async fn tested(setting: &Setting, test: Test) -> Result<Exit, Failed> {
    let lookup = |name: &str| setting.lookup(name);
    let asked = ModelRequest {
        provider: Some(&test.name),
        model: test.model.as_deref(),
        ..ModelRequest::default()
    };
    let chosen = chain::choose(&setting.config, &lookup, &asked).await;
    let target = match chosen {
        Ok(mut chosen) => chosen.chain.remove(0),
        Err(Unchosen::Wrong(rejected)) => {
            let failed = Failed::new(Exit::Usage, rejected.error);
            // A turn names its model by an option, this command behind the provider.
            let hint = rejected.hint.map(|hint| match hint.contains("--model") {
                true => {
                    let words = format!("provider test {} MODEL", test.name);
                    format!("name one, as {}", setting.command(&words))
                }
                false => hint,
            });
            return Err(Failed { hint, ..failed });
        }
        // What is pinned is there, or wrong.
        Err(Unchosen::Nothing(_)) => return Err(Failed::new(Exit::Failed, "nothing to ask")),
    };
    if keys::find(&target.provider.key_variables, &lookup).is_none() && !target.provider.local {
        let hint = setting.command(&format!("provider add {}", target.provider.id));
        let error = format!(
            "there is no key for `{}`: none of {} is set",
            target.provider.id,
            target.provider.key_variables.join(", ")
        );
        return Err(Failed::new(Exit::Config, error).hint(format!("{hint} stores one")));
    }
    let name = format!("{}/{}", target.provider.id, target.model);
    let request = Request {
        target,
        system: Arc::from("You answer in one word."),
        messages: vec![Message::user(QUESTION)],
        tools: Arc::from([]),
        thinking: None,
    };
    let (pieces, mut unread) = mpsc::channel(PIECES);
    let models = HttpModels::default();
    let (begun, asked) = (Instant::now(), wall_ms());
    let ask = async {
        // Moved in here, so that it is dropped with the answer and the other half ends.
        let pieces = pieces;
        tokio::time::timeout(TRY_WITHIN, models.ask(&request, &pieces)).await
    };
    // Somebody has to take the pieces: a full channel would hold the answer up.
    let drain = async { while unread.recv().await.is_some() {} };
    let (answered, ()) = tokio::join!(ask, drain);
    let took = begun.elapsed();
    let (ok, said): (bool, Value) = match &answered {
        Ok(Ok(reply)) => (
            true,
            json!({"text": reply.message.text, "usage": reply.usage}),
        ),
        Ok(Err(failure)) => (
            false,
            json!({
                "class": class::classify(&request.target.provider, failure),
                "code": failure.code,
                "error": failure.text,
            }),
        ),
        Err(_) => {
            let error = format!("no answer within {} s", TRY_WITHIN.as_secs());
            (false, json!({"class": "timeout", "error": error}))
        }
    };
    if ok {
        forgive(setting, &request, asked).await;
    }
    tell_tested(&name, ok, &said, took, test.form)?;
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

/// It answered: no turn has to leave it alone any longer. Where no turn was, nothing is held
/// against anybody.
async fn forgive(setting: &Setting, request: &Request, asked: u64) {
    let (provider, model) = (&request.target.provider.id, &request.target.model);
    let directory = setting.places.state.join("timmy");
    // To try a provider makes no store.
    if directory.join("timmy.db").is_file() {
        let store = Arc::new(Store::new(directory));
        let _ends_by_itself = store.warm(provider.clone(), model.clone(), asked).await;
    }
}

fn tell_tested(
    name: &str,
    ok: bool,
    said: &Value,
    took: Duration,
    form: Form,
) -> Result<(), Failed> {
    let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if form.json {
        let mut line = json!({"model": name, "ok": ok, "took_ms": took_ms});
        for (field, value) in said.as_object().into_iter().flatten() {
            line[field] = value.clone();
        }
        show::json(&line)?;
        return Ok(());
    }
    let word = |field: &str| output::safe(said[field].as_str().unwrap_or_default());
    let seconds = took.as_secs_f64();
    if ok {
        let text = word("text");
        show::line(&format!(
            "{name} answered in {seconds:.1} s: {}",
            text.trim()
        ))?;
        return Ok(());
    }
    let class = word("class").replace('_', " ");
    Err(Failed::new(
        Exit::Failed,
        format!(
            "{name} did not answer ({class}, {seconds:.1} s): {}",
            word("error")
        ),
    ))
}
