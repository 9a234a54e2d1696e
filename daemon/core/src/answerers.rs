//! Who answers a send that names no agent, as far as the agents themselves say.
//!
//! Owns that order. Must not know the configured default, nor what a send asks for.

use crate::agent::{Agent, Found};

/// Among whom somebody chooses where several are [`ready`]: those, and then the others that would
/// answer as things are, the built-in agent, too.
#[must_use]
pub fn choices<'a>(able: &[&'a Agent]) -> Vec<&'a Agent> {
    let mut all = ready(able);
    let rest = able
        .iter()
        .copied()
        .filter(|agent| agent.logged_in != Some(false));
    for agent in rest {
        if !all.iter().any(|chosen| chosen.name == agent.name) {
            all.push(agent);
        }
    }
    all
}

/// Those that wouldn't answer as things are, and what each needs first: `claude (log in), …`.
#[must_use]
pub fn waiting(agents: &[&Agent]) -> String {
    let waits = |agent: &&Agent| Some(format!("{} ({})", agent.name, agent.to_do()?));
    let waiting: Vec<String> = agents.iter().filter_map(waits).collect();
    waiting.join(", ")
}

/// Who of these answers a send that names nobody: what the user installed goes before the built-in
/// agent, which is always there; but nobody is logged out while another is ready.
#[must_use]
pub fn ready<'a>(able: &[&'a Agent]) -> Vec<&'a Agent> {
    let of = |wanted: &dyn Fn(&Agent) -> bool| -> Vec<&'a Agent> {
        let found = able.iter().copied();
        found.filter(|agent| wanted(agent)).collect()
    };
    let is_installed = |agent: &Agent| agent.found != Found::BuiltIn;
    let steps: [&dyn Fn(&Agent) -> bool; 4] = [
        &|agent| is_installed(agent) && agent.logged_in != Some(false),
        &|agent| !is_installed(agent) && agent.logged_in == Some(true),
        // One that is logged out says what to do about it.
        &is_installed,
        &|_| true,
    ];
    let found = steps.into_iter().map(of);
    found
        .into_iter()
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}
