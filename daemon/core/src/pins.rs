//! What an agent can be told of its model: provider, model, thinking level.
//!
//! Owns the refusal of what it can't: a pin that nobody heeds is never accepted. Which models there
//! are, only the agent knows.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;

use crate::agent::{Agent, Levels, Providers};
use crate::store::Pins;

/// Can this agent heed these pins, as far as is known before it runs?
///
/// # Errors
/// `unsupported`, with what it can.
pub fn check(agent: &Agent, pins: &Pins) -> Result<(), Rejected> {
    let can = agent.describe;
    let refused = |pin: &str, given: &str, why: String| {
        let error = format!("`{pin}` is `{given}`, but the agent `{}` {why}", agent.name);
        let hint = "leave it out, here and in config.toml";
        Err(Rejected::new(Code::Unsupported, error).hint(hint))
    };
    if let Some(model) = pins.model.as_deref().filter(|_| !can.models) {
        let why = "has no `{model}` in its command".to_owned();
        return refused("model", model, why);
    }
    if let Some(provider) = pins.provider.as_deref() {
        match can.providers {
            Providers::Any => {}
            Providers::Known(known) if known.contains(&provider) => {}
            Providers::OfModel if pins.model.is_some() => {}
            Providers::Known(known) => {
                return refused("provider", provider, format!("knows {}", listed(known)));
            }
            Providers::OfModel => {
                let why = "takes a provider as part of a model's name only: name the `model`, too";
                return refused("provider", provider, why.to_owned());
            }
            Providers::None => {
                let why = "can't be told which provider to use".to_owned();
                return refused("provider", provider, why);
            }
        }
    }
    if let Some(level) = pins.thinking.as_deref() {
        match can.thinking {
            Levels::Any => {}
            Levels::Known(known) if known.contains(&level) => {}
            Levels::Known(known) => {
                return refused("thinking", level, format!("knows {}", listed(known)));
            }
            Levels::None => {
                let why = "can't be told how hard to think".to_owned();
                return refused("thinking", level, why);
            }
        }
    }
    Ok(())
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
