//! Which agents there are: configured, on PATH, in a usual place, or built in.
//!
//! Owns what is said about each. Never runs anything: a look at directories is all. What is known
//! of each program is in `presets`.

use std::path::{Path, PathBuf};

use agentd_core::agent::{Agent, Capabilities, Found};

use super::presets::{self, PRESETS, Preset};
use super::{AgentConfig, Config, HostEnv};
use crate::adapter::{Kind, exec};
use crate::platform::files::Files;

/// The name of the built-in agent.
pub const TIMMY: &str = "timmy";

/// Every agent known or looked for, with how it is run if it can be.
///
/// Configured ones come first, in the order of their names; a configured name hides the one that
/// would have been found.
#[must_use]
pub fn agents(config: &Config, look: &HostEnv) -> Vec<(Agent, Option<AgentConfig>)> {
    agents_as(config, look, &Kind::describe)
}

/// The kind that an agent's mere name says.
pub(super) fn kind_of_name(name: &str) -> Option<Kind> {
    match name {
        TIMMY => Some(Kind::Jsonl),
        _ => presets::named(name).map(|preset| preset.kind),
    }
}

/// Is an agent of this name looked for by it? The built-in one is beside this program.
pub(super) fn is_looked_for(name: &str) -> bool {
    presets::named(name).is_some()
}

/// What an agent's mere name says besides its kind: `exec` asks for the exec form.
pub(super) fn default_of_name(
    name: &str,
    kind: Kind,
    look: &HostEnv,
    provider: Option<&str>,
) -> Option<(Vec<String>, exec::Output)> {
    if name == TIMMY {
        return Some((timmy(look, provider), exec::Output::Text));
    }
    let preset = presets::named(name)?;
    let arguments = if kind == preset.kind {
        preset.arguments
    } else if kind == Kind::Exec {
        preset.exec_arguments
    } else {
        return None;
    };
    let found = look.find(name).map(|(path, _)| path);
    Some((command(found, name, arguments), preset.output))
}

/// Why this can't be run, if something is there.
pub(super) fn why_no_program(file: &Path, files: &Files) -> Option<String> {
    let shown = file.display();
    let why = match files.at(file) {
        Err(absent) if !absent.is_gone() => {
            format!("`{shown}` can't be looked at: {}", absent.error)
        }
        Err(absent) => {
            let to = absent.link?;
            format!(
                "`{shown}` is a link to `{}`, which is not there",
                to.display()
            )
        }
        Ok(found) if found.is_dir() => format!("`{shown}` is a directory"),
        Ok(found) if !found.is_file() => format!("`{shown}` is no file"),
        Ok(found) if !found.is_program() => {
            format!("`{shown}` may not be executed (`chmod +x` makes it a program)")
        }
        Ok(_) => return None,
    };
    Some(why)
}

/// Why a program that was there can't be run now.
#[must_use]
pub fn why_not_there(program: &Path, files: &Files) -> Option<String> {
    let runs = !program.is_absolute() || files.is_program(program);
    let why = || why_no_program(program, files).unwrap_or_else(|| gone(program));
    (!runs).then(why)
}

fn gone(program: &Path) -> String {
    format!("`{}` is not there", program.display())
}

/// The first line of a script names its interpreter within these bytes, or the kernel cuts it.
const FIRST_LINE: usize = 256;

/// The interpreter that a script names and that isn't there.
fn lost_interpreter(program: &Path, files: &Files) -> Option<PathBuf> {
    let script = files.look(program, FIRST_LINE).ok()?;
    let line = script
        .head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = std::str::from_utf8(line).ok()?;
    let interpreter = PathBuf::from(line.split_ascii_whitespace().next()?);
    let is_lost = || files.at(&interpreter).is_err_and(|absent| absent.is_gone());
    (interpreter.is_absolute() && is_lost()).then_some(interpreter)
}

fn command(found: Option<PathBuf>, name: &str, arguments: &[&str]) -> Vec<String> {
    let program = match found {
        Some(path) => path.to_string_lossy().into_owned(),
        None => name.to_owned(),
    };
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    std::iter::once(program).chain(arguments).collect()
}

fn timmy(look: &HostEnv, provider: Option<&str>) -> Vec<String> {
    let sibling = look.exe_dir.as_ref().map(|dir| dir.join(TIMMY));
    // One that can't be looked at may be there: why, is said of it.
    let found = sibling.filter(|file| match look.files.at(file) {
        Ok(found) => found.is_program(),
        Err(absent) => !absent.is_gone(),
    });
    let found = found.or_else(|| look.find(TIMMY).map(|(path, _)| path));
    let mut command = command(found, TIMMY, &["--rpc"]);
    if let Some(provider) = provider {
        command.extend(["--provider".to_owned(), provider.to_owned()]);
    }
    command
}

/// As [`agents`], with what a kind can do from `describe`.
pub(super) fn agents_as(
    config: &Config,
    look: &HostEnv,
    describe: &dyn Fn(Kind, &[String]) -> Capabilities,
) -> Vec<(Agent, Option<AgentConfig>)> {
    let mut agents = Vec::new();
    for (name, agent) in &config.agents {
        let mut agent = looked_up(agent, look);
        if name == TIMMY {
            agent.warnings.extend(config.unread.clone());
        }
        let (agent, another) = as_it_is(agent, look);
        let (mut agent, run) = known(name, agent, Found::Configured, look, describe);
        if let Some(why) = another {
            agent.usable = Err(why);
        }
        agents.push((agent, run));
    }
    for preset in PRESETS {
        if !config.agents.contains_key(preset.name) {
            agents.push(found(preset, look, describe));
        }
    }
    if !config.agents.contains_key(TIMMY) {
        let mut agent = AgentConfig::new(Kind::Jsonl, timmy(look, None));
        agent.warnings.extend(config.unread.clone());
        agents.push(known(TIMMY, agent, Found::BuiltIn, look, describe));
    }
    agents
}

/// A configured agent with its program where it is now, if the configuration says no path.
fn looked_up(agent: &AgentConfig, look: &HostEnv) -> AgentConfig {
    let mut agent = agent.clone();
    let found = agent.bare.as_deref().and_then(|bare| look.find(bare));
    if let (Some((path, _)), Some(program)) = (found, agent.command.first_mut()) {
        *program = path.to_string_lossy().into_owned();
    }
    agent
}

/// An agent that nobody configured, as it is or isn't there.
fn found(
    preset: &'static Preset,
    look: &HostEnv,
    describe: &dyn Fn(Kind, &[String]) -> Capabilities,
) -> (Agent, Option<AgentConfig>) {
    let place = look.find(preset.name);
    let how = place.as_ref().map_or(Found::Missing, |(_, how)| *how);
    let path = place.map(|(path, _)| path);
    let mut agent = AgentConfig::new(preset.kind, command(path, preset.name, preset.arguments));
    agent.output = preset.output;
    let (agent, another) = as_it_is(agent, look);
    let (mut agent, run) = known(preset.name, agent, how, look, describe);
    if how == Found::Missing {
        agent.command.clear();
    } else if let Some(why) = another {
        agent.usable = Err(why);
    } else if agent.usable.is_ok() && presets::chooses_for_itself(preset, look) {
        agent.usable = Err(format!(
            "it would send prompts to a hosted model that nobody chose; log in to it, or add \
             `[agents.{0}]` with a `model` to config.toml",
            preset.name
        ));
    }
    (agent, run)
}

/// An agent that would be run in the way of its preset, as its program is: a version that has only
/// the exec form is run in that, and of another program that has its name it is said.
fn as_it_is(agent: AgentConfig, look: &HostEnv) -> (AgentConfig, Option<String>) {
    let program = agent.command.first().map(PathBuf::from);
    let Some(path) = program.filter(|_| preset_of(&agent).is_some()) else {
        return (agent, None);
    };
    let words = look.others.get(&path);
    let another = words.and_then(|words| presets::why_another(&agent, words));
    let lacks = look.exec_only.contains(&path);
    let form = exec_form(&agent).filter(|_| lacks);
    (form.unwrap_or(agent), another)
}

/// The preset in whose way an agent is run. Only of `acp` the arguments say in which way: the other
/// kinds add what they need.
fn preset_of(agent: &AgentConfig) -> Option<&'static Preset> {
    let (program, arguments) = agent.command.split_first()?;
    let added = arguments.is_empty() && agent.kind != Kind::Acp;
    presets::of_program(program)
        .filter(|preset| preset.kind == agent.kind && (added || preset.arguments == arguments))
}

/// The exec form of an agent that is run in the way of its preset, in case its program lacks
/// the long-lived one; `None` for any other.
#[must_use]
pub fn exec_form(agent: &AgentConfig) -> Option<AgentConfig> {
    let preset = preset_of(agent)?;
    let word = preset.word?;
    let path = agent.command.first().map(PathBuf::from);
    Some(AgentConfig {
        kind: Kind::Exec,
        command: command(path, preset.name, preset.exec_arguments),
        output: preset.output,
        lacks: Some(word),
        ..agent.clone()
    })
}

/// How one turn of an agent is run without agentd, if it has a form for that: the words of the kind
/// `exec`, with the model in its place.
#[must_use]
pub fn one_shot(agent: &AgentConfig) -> Option<Vec<String>> {
    let words = match agent.kind {
        Kind::Exec => agent.command.clone(),
        // It takes the same options in both forms.
        _ if presets::is_built_in(agent) => {
            let serves = agent.command.iter().position(|word| word == "--rpc")?;
            let mut words = agent.command.clone();
            let told = words.iter().any(|word| word.starts_with("--provider"));
            let provider = agent.provider.as_ref().filter(|_| !told);
            let provider = provider.map(|provider| format!("--provider={provider}"));
            let form = ["--model={model}", "--prompt={prompt}"].map(str::to_owned);
            words.splice(serves..=serves, provider.into_iter().chain(form));
            words
        }
        _ => {
            let preset = preset_of(agent)?;
            let path = agent.command.first().map(PathBuf::from);
            command(path, preset.name, preset.exec_arguments)
        }
    };
    let model = agent.model.as_deref();
    let filled = words.into_iter().filter_map(|word| match model {
        Some(model) => Some(word.replace("{model}", model)),
        // An option for it is left out, as ever.
        None => (!word.contains("{model}")).then_some(word),
    });
    Some(filled.collect())
}

fn known(
    name: &str,
    config: AgentConfig,
    found: Found,
    look: &HostEnv,
    describe: &dyn Fn(Kind, &[String]) -> Capabilities,
) -> (Agent, Option<AgentConfig>) {
    let program = config.command.first().cloned().unwrap_or_default();
    // A name alone would be looked for in the current directory.
    let runs = program.contains('/') && look.files.is_program(program.as_ref());
    let stumbled = |name: &str| match look.stumbled_over(name) {
        Some(what) => format!(": {what}"),
        None => String::new(),
    };
    let usable = if found == Found::Missing {
        Err(format!(
            "`{name}` is not on PATH, nor where it is usually installed{}",
            stumbled(name)
        ))
    } else if !runs && !program.contains('/') {
        Err(format!(
            "its program `{program}` is not on PATH{}",
            stumbled(&program)
        ))
    } else if !runs {
        let why = why_no_program(program.as_ref(), &look.files);
        Err(why.unwrap_or_else(|| gone(program.as_ref())))
    } else if let Some(interpreter) = lost_interpreter(program.as_ref(), &look.files) {
        Err(format!(
            "`{program}` is a script for `{}`, which is not there",
            interpreter.display()
        ))
    } else {
        Ok(())
    };
    let agent = Agent {
        name: name.to_owned(),
        kind: config.kind.name(),
        command: config.command.clone(),
        found,
        version: (found == Found::BuiltIn).then(|| env!("CARGO_PKG_VERSION").to_owned()),
        usable,
        describe: describe(config.kind, &config.command),
        warm: config.warm,
        idle_timeout: config.idle_timeout,
        provider: config.provider.clone(),
        model: config.model.clone(),
        thinking: config.thinking.clone(),
        mode: config.mode.clone(),
        has: Vec::new(),
        // The environment of an agent is not this one's: whoever runs it says.
        logged_in: None,
        revision: 0,
    };
    (agent, runs.then_some(config))
}

/// What was looked for and what came of it, for the message when no agent can answer.
#[must_use]
pub fn looked_for(config: &Config, agents: &[(Agent, Option<AgentConfig>)]) -> String {
    let list = |names: Vec<&str>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    let presets = || agents.iter().map(|(agent, _)| agent).filter(is_preset);
    let found = presets().filter(|agent| agent.found != Found::Missing);
    format!(
        "Looked for: agents in the configuration ({}); on PATH and in the usual places: {} \
         (found: {}); built in: timmy (its program is not beside this one)",
        list(config.agents.keys().map(String::as_str).collect()),
        list(presets().map(|agent| agent.name.as_str()).collect()),
        list(found.map(|agent| agent.name.as_str()).collect()),
    )
}

fn is_preset(agent: &&Agent) -> bool {
    matches!(agent.found, Found::OnPath | Found::InPlace | Found::Missing)
}
