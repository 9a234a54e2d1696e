//! What an agent can be told of its model and of how it works: provider, model, thinking level, mode.
//!
//! Owns the refusal of what it can't: a pin that nobody heeds is never accepted. And which modes are
//! not for clients. Which models there are, only the agent knows.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;

use crate::agent::{Agent, Consent, Levels, Mode, Modes, Providers};
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
    if let Some(mode) = pins.mode.as_deref() {
        match can.modes {
            Modes::Offered => {}
            Modes::Known(known) if known.iter().any(|it| it.id == mode) => {}
            Modes::Known(known) => {
                let clients = known.iter().filter(|it| it.consent == Consent::Asked);
                let ids: Vec<&str> = clients.map(|it| it.id).collect();
                return refused("mode", mode, format!("knows {}", listed(&ids)));
            }
            Modes::None => {
                let why = "can't be told in which mode to work".to_owned();
                return refused("mode", mode, why);
            }
        }
    }
    Ok(())
}

/// The mode in which a session works, where one was set for it or for its agent.
pub(crate) fn mode(agent: &Agent, of_session: &Pins) -> Option<String> {
    // The configuration may have allowed it when it was set.
    let set = of_session.mode.as_ref();
    let set = set.filter(|mode| is_for_clients(agent, mode));
    set.or(agent.mode.as_ref()).cloned()
}

/// The same, where a turn may set it: others begin in theirs.
pub(crate) fn mode_of_turn(agent: &Agent, of_session: &Pins) -> Option<String> {
    let is_offered = agent.describe.modes == Modes::Offered;
    is_offered.then(|| mode(agent, of_session))?
}

/// Words in the ids of modes in which agents that tell their own modes ask for nothing.
const ASK_NOTHING: &[&str] = &[
    "allowall",
    "alwaysapprove",
    "approveall",
    "autoapprove",
    "bypass",
    "dangerous",
    "fullaccess",
    "skippermission",
    "unrestricted",
    "yolo",
];

/// May a client choose this mode? Not one in which nobody is asked any more, unless it is the
/// configuration's.
pub(crate) fn is_for_clients(agent: &Agent, mode: &str) -> bool {
    let asks = match agent.describe.modes {
        Modes::Known(known) => {
            let asks = |it: &Mode| it.id == mode && it.consent == Consent::Asked;
            known.iter().any(asks)
        }
        Modes::Offered | Modes::None => {
            let letters = mode.chars().filter(char::is_ascii_alphanumeric);
            let bare = letters.collect::<String>().to_ascii_lowercase();
            !ASK_NOTHING.iter().any(|word| bare.contains(word))
        }
    };
    asks || agent.mode.as_deref() == Some(mode)
}

/// A client wants a session to work in this mode.
///
/// # Errors
/// `forbidden`, where that is the configuration's to say.
pub(crate) fn may_choose(agent: &Agent, mode: &str) -> Result<(), Rejected> {
    if is_for_clients(agent, mode) {
        return Ok(());
    }
    let name = &agent.name;
    let error = format!("in its mode `{mode}` the agent `{name}` asks for nothing it does");
    let hint = format!("only `mode` under `[agents.{name}]` in config.toml chooses it");
    Err(Rejected::new(Code::Forbidden, error).hint(hint))
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
