//! What an agent can be told of its model and of how it works: provider, model, thinking level, mode.
//!
//! Owns the refusal of what it can't: a pin that nobody heeds is never accepted. And which modes are
//! not for clients. Which models there are, only the agent knows.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::models::ModeRow;

use crate::agent::{Agent, Consent, Levels, Mode, Modes, Providers};
use crate::store::Pins;

/// The mode that a turn needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModePin {
    /// As the agent calls it.
    pub id: String,
    /// Whom the agent has to ask in it; nobody where the configuration names the mode.
    pub consent: Consent,
}

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

/// The configured model. It means something to its own provider only, so not where another is asked for.
pub(crate) fn usual_model<'a>(agent: &'a Agent, asked: Option<&String>) -> Option<&'a String> {
    let model = agent.model.as_ref()?;
    let whose = match &agent.provider {
        Some(provider) => Some(provider.as_str()),
        // Without a slash it doesn't say whose it is.
        None => model.split_once('/').map(|(provider, _)| provider),
    };
    let is_of_other = asked.is_some_and(|asked| whose.is_some_and(|whose| whose != asked));
    (!is_of_other).then_some(model)
}

/// The mode in which a session works, where one was set for it or for its agent.
pub(crate) fn mode(agent: &Agent, of_session: &Pins) -> Option<String> {
    // The configuration may have allowed it when it was set.
    let set = of_session.mode.as_ref();
    let set = set.filter(|mode| is_for_clients(agent, &ModeRow::named(*mode)));
    set.or(agent.mode.as_ref()).cloned()
}

/// The same, where a turn may set it: others begin in theirs.
pub(crate) fn mode_of_turn(agent: &Agent, of_session: &Pins) -> Option<ModePin> {
    let is_offered = agent.describe.modes == Modes::Offered;
    let id = is_offered.then(|| mode(agent, of_session))??;
    let consent = match agent.mode.as_ref() == Some(&id) {
        true => Consent::Skipped,
        false => Consent::Asked,
    };
    Some(ModePin { id, consent })
}

/// Words in what agents call their modes, and say of them, where nobody is asked. A moderate one whose
/// words are too big only costs a line in config.toml.
const ASK_NOTHING: &[&str] = &[
    "allowall",
    "alwaysapprove",
    "approveall",
    "autoapprove",
    "automaticallyapprove",
    "bypass",
    "fullaccess",
    "neverask",
    "noapproval",
    "noconfirmation",
    "skippermission",
    "unrestricted",
    "withoutapproval",
    "withoutasking",
    "withoutconfirmation",
    "yolo",
];

/// The same in a name; what is said of a mode may be that it asks before dangerous operations.
const DANGEROUS: &str = "dangerous";

/// What may be approved by itself, as by Gemini CLI's `autoEdit`: commands are asked for still.
const EDITS: &[&str] = &[
    "edit",
    "edits",
    "editoperations",
    "edittools",
    "fileedits",
    "fileeditoperations",
];

/// Does an agent that tells its modes itself ask in this one, by its words?
fn consent(mode: &ModeRow) -> Consent {
    let is_said = |text: &str| {
        let letters = text.chars().filter(char::is_ascii_alphanumeric);
        let bare = letters.collect::<String>().to_ascii_lowercase();
        let edits = ["autoapprove", "automaticallyapprove"]
            .into_iter()
            .find_map(|word| bare.strip_prefix(word))
            .map(|rest| rest.strip_prefix('s').unwrap_or(rest))
            .map(|rest| rest.strip_suffix("only").unwrap_or(rest));
        let is_of_edits = edits.is_some_and(|rest| EDITS.contains(&rest));
        let nothing = ASK_NOTHING.iter().any(|word| bare.contains(word));
        (nothing && !is_of_edits, bare.contains(DANGEROUS))
    };
    let names = [Some(&mode.id), mode.label.as_ref()];
    let mut names = names.into_iter().flatten().map(|name| is_said(name));
    let is_skipped = names.any(|(nothing, dangerous)| nothing || dangerous)
        || mode
            .description
            .as_deref()
            .is_some_and(|text| is_said(text).0);
    if is_skipped {
        Consent::Skipped
    } else {
        Consent::Asked
    }
}

/// May a client choose this mode? Not one in which nobody is asked any more, unless it is the
/// configuration's.
pub(crate) fn is_for_clients(agent: &Agent, mode: &ModeRow) -> bool {
    let asks = match agent.describe.modes {
        Modes::Known(known) => {
            let asks = |it: &Mode| it.id == mode.id && it.consent == Consent::Asked;
            known.iter().any(asks)
        }
        Modes::Offered | Modes::None => consent(mode) == Consent::Asked,
    };
    asks || agent.mode.as_ref() == Some(&mode.id)
}

/// A client wants a session to work in this mode.
///
/// # Errors
/// `forbidden`, where that is the configuration's to say.
pub(crate) fn may_choose(agent: &Agent, mode: &ModeRow) -> Result<(), Rejected> {
    if is_for_clients(agent, mode) {
        return Ok(());
    }
    Err(forbidden(&agent.name, &mode.id))
}

/// The mode that a turn needs, as its agent offers it.
///
/// # Errors
/// `forbidden`, where that is the configuration's to say.
pub fn may_run_in(agent: &str, wanted: &ModePin, offered: &ModeRow) -> Result<(), Rejected> {
    if wanted.consent == Consent::Skipped || consent(offered) == Consent::Asked {
        return Ok(());
    }
    Err(forbidden(agent, &wanted.id))
}

fn forbidden(agent: &str, mode: &str) -> Rejected {
    let error = format!("in its mode `{mode}` the agent `{agent}` asks for nothing it does");
    let hint = format!("only `mode` under `[agents.{agent}]` in config.toml chooses it");
    Rejected::new(Code::Forbidden, error).hint(hint)
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As agents say them.
    #[test]
    fn mode_asks_by_what_agents_say() {
        let row = |said: &[&str]| ModeRow {
            label: said.get(1).map(|&label| label.to_owned()),
            description: said.get(2).map(|&text| text.to_owned()),
            ..ModeRow::named(said[0])
        };
        for asks in [
            &["default", "Default", "Prompts for approval"][..],
            &["autoEdit", "Auto Edit", "Auto-approves edit tools"],
            &["auto-edit", "Auto Edit", "Automatically approve file edits"],
            &["accept-edits", "Edits", "Auto-approves file edits only"],
            &["default", "Default", "prompts for dangerous operations"],
            &["dontAsk", "Don't Ask", "deny if not pre-approved"],
            &[
                "build",
                "build",
                "Executes tools based on configured permissions.",
            ],
            &["agent", "Agent", "Full agent capabilities with tool access"],
        ] {
            assert_eq!(consent(&row(asks)), Consent::Asked, "{asks:?}");
        }
        for nobody in [
            &["yolo"][..],
            &["bypass_permissions"],
            &["dangerous"],
            &["1", "Dangerously Skip Permissions"],
            &["1", "YOLO"],
            &["1", "Full Access", "Exercise caution"],
            &["1", "One", "Auto-approves all tools"],
            &["auto", "auto", "Automatically approve tool calls"],
            &["1", "One", "Auto-approves edit tools and commands"],
            &["1", "One", "Runs everything without asking"],
        ] {
            assert_eq!(consent(&row(nobody)), Consent::Skipped, "{nobody:?}");
        }
    }
}
