//! Which agents there are: configured, on PATH, or built in.
//!
//! Owns the names that are looked for. Never runs anything: a look at PATH is all.

use std::path::PathBuf;

use agentd_core::agent::{Agent, Describe, Found, Resume, Sessions};

use super::{AgentConfig, Config, Look, is_program};
use crate::adapter::Kind;

const PI: &str = "pi";
const TIMMY: &str = "timmy";
/// The scripted provider of the built-in agent: it needs neither key nor network.
const ECHO: &str = "echo";
/// Agents that people have, and that this version can't drive by itself.
const NOT_YET: &[&str] = &[
    "claude", "codex", "gemini", "opencode", "hermes", "openclaw", "goose",
];

/// Every agent known or looked for, with how it is run if it can be.
///
/// Configured ones come first, in the order of their names; a configured name hides the one that
/// would have been found.
#[must_use]
pub fn agents(config: &Config, look: &Look) -> Vec<(Agent, Option<AgentConfig>)> {
    agents_as(config, look, &Kind::describe)
}

/// The kind that an agent's mere name says.
pub(super) fn kind_of_name(name: &str) -> Option<Kind> {
    match name {
        PI => Some(Kind::Pi),
        TIMMY => Some(Kind::Jsonl),
        _ => None,
    }
}

/// The command that an agent's mere name says.
pub(super) fn default_command(
    name: &str,
    look: &Look,
    provider: Option<&str>,
) -> Option<Vec<String>> {
    let place = |found: Option<PathBuf>, name: &str| match found {
        Some(path) => path.to_string_lossy().into_owned(),
        None => name.to_owned(),
    };
    match name {
        PI => Some(vec![
            place(look.find(PI), PI),
            "--mode".into(),
            "rpc".into(),
        ]),
        TIMMY => {
            let sibling = look.exe_dir.as_ref().map(|dir| dir.join(TIMMY));
            let found = sibling.filter(|file| is_program(file));
            let found = found.or_else(|| look.find(TIMMY));
            let mut command = vec![place(found, TIMMY), "--rpc".to_owned()];
            if let Some(provider) = provider {
                command.extend(["--provider".to_owned(), provider.to_owned()]);
            }
            Some(command)
        }
        _ => None,
    }
}

/// As [`agents`], with what a kind can do from `describe`.
pub(super) fn agents_as(
    config: &Config,
    look: &Look,
    describe: &dyn Fn(Kind, &[String]) -> Describe,
) -> Vec<(Agent, Option<AgentConfig>)> {
    let mut agents = Vec::new();
    for (name, agent) in &config.agents {
        agents.push(known(
            name,
            agent.clone(),
            Found::Configured,
            look,
            describe,
        ));
    }
    if !config.agents.contains_key(PI) {
        match look.find(PI) {
            Some(_) => {
                let command = default_command(PI, look, None).unwrap_or_default();
                let agent = AgentConfig::new(Kind::Pi, command);
                agents.push(known(PI, agent, Found::OnPath, look, describe));
            }
            None => agents.push((unknown(PI, None), None)),
        }
    }
    for name in NOT_YET {
        if !config.agents.contains_key(*name) {
            agents.push((unknown(name, look.find(name)), None));
        }
    }
    if !config.agents.contains_key(TIMMY) {
        let command = default_command(TIMMY, look, None).unwrap_or_default();
        let agent = AgentConfig::new(Kind::Jsonl, command);
        agents.push(known(TIMMY, agent, Found::BuiltIn, look, describe));
    }
    agents
}

fn known(
    name: &str,
    config: AgentConfig,
    found: Found,
    look: &Look,
    describe: &dyn Fn(Kind, &[String]) -> Describe,
) -> (Agent, Option<AgentConfig>) {
    let program = config.command.first().cloned().unwrap_or_default();
    let runs = is_program(program.as_ref());
    let built_in = default_command(name, look, config.provider.as_deref());
    let is_timmy = name == TIMMY && built_in.as_ref() == Some(&config.command);
    let usable = if !runs && !program.contains('/') {
        Err(format!("its program `{program}` is not on PATH"))
    } else if !runs {
        Err(format!("`{program}` is not there, or can't be run"))
    } else if is_timmy && config.provider.as_deref() != Some(ECHO) {
        Err(
            "no model provider is configured for timmy; this version offers only the scripted \
             provider `echo`, which must be named"
                .to_owned(),
        )
    } else {
        Ok(())
    };
    let agent = Agent {
        name: name.to_owned(),
        kind: config.kind.name(),
        command: config.command.clone(),
        found,
        version: None,
        usable,
        describe: describe(config.kind, &config.command),
        warm: config.warm,
        idle_timeout: config.idle_timeout,
        provider: config.provider.clone(),
        model: config.model.clone(),
        thinking: config.thinking.clone(),
    };
    (agent, runs.then_some(config))
}

/// An agent that can't be run, whether it is there or not.
fn unknown(name: &'static str, found: Option<PathBuf>) -> Agent {
    let place = found.map(|path| path.to_string_lossy().into_owned());
    let why = match &place {
        Some(path) => format!(
            "found at `{path}`, but this version can't drive it yet; add it as an agent of kind \
             `exec` or `jsonl`"
        ),
        None => format!("`{name}` is not on PATH"),
    };
    Agent {
        name: name.to_owned(),
        kind: name,
        found: match &place {
            Some(_) => Found::OnPath,
            None => Found::Missing,
        },
        command: place.into_iter().collect(),
        version: None,
        usable: Err(why),
        // Nothing is claimed for what can't be driven.
        describe: Describe {
            sessions: Sessions::One,
            resume: Resume::None,
            cancels: false,
            recycles: false,
            model_per_turn: false,
            toolsets: false,
            steers: false,
            compacts: false,
            concurrent_sends: 1,
            ready_within: std::time::Duration::from_secs(30),
        },
        warm: 0,
        idle_timeout: super::DEFAULT_IDLE_TIMEOUT,
        provider: None,
        model: None,
        thinking: None,
    }
}

/// What was looked for and what came of it, for the message when no agent can answer.
#[must_use]
pub fn looked_for(config: &Config, agents: &[(Agent, Option<AgentConfig>)]) -> String {
    let configured = match config.agents.keys().cloned().collect::<Vec<_>>() {
        names if names.is_empty() => "none".to_owned(),
        names => names.join(", "),
    };
    let on_path: Vec<&str> = agents
        .iter()
        .filter(|(agent, _)| matches!(agent.found, Found::OnPath | Found::Missing))
        .map(|(agent, _)| agent.name.as_str())
        .collect();
    let found: Vec<&str> = agents
        .iter()
        .filter(|(agent, _)| {
            agent.found == Found::OnPath
                || agent
                    .usable
                    .as_ref()
                    .is_err_and(|why| why.contains("found at"))
        })
        .map(|(agent, _)| agent.name.as_str())
        .collect();
    let found = match found.is_empty() {
        true => "none".to_owned(),
        false => format!(
            "{}, which this version can't drive by itself",
            found.join(", ")
        ),
    };
    format!(
        "Looked for: agents in the configuration ({configured}); on PATH: {} ({found}); \
         built in: timmy (no model provider configured)",
        on_path.join(", ")
    )
}
