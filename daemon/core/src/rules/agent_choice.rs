//! Who answers: the choice of an agent, and whether it can be used at all.
//!
//! Owns the rule for sends that name none. Must not know sessions or processes.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::Send;
use agentd_protocol::routed::AUTO;

use crate::agent::{Agent, Providers, Sessions};
use crate::answerers::{choices, ready, waiting};
use crate::attached::AttachmentSupport;
use crate::ids::SessionId;
use crate::pins;
use crate::rules::pins::offered;
use crate::rules::servers::servers_fit;
use crate::state::State;
use crate::store::Pins;

impl State {
    /// The agent that answers when nobody is named: PROTOCOL.md part 4, `agent`. A provider or a
    /// model that is asked for leaves those who have it.
    pub(crate) fn default_agent(
        &self,
        provider: Option<&String>,
        model: Option<&String>,
    ) -> Result<String, Rejected> {
        let default = self.settings.default_agent.as_ref();
        if let Some(default) = default.filter(|default| *default != AUTO) {
            return Ok(default.clone());
        }
        let agents = self.settings.agents.values();
        let usable: Vec<&Agent> = agents.filter(|agent| agent.usable.is_ok()).collect();
        let able = match (provider, model) {
            (None, None) => usable,
            _ => self.those_who_have(usable, provider, model),
        };
        match ready(&able).as_slice() {
            [] => Err(self.no_agent()),
            [one] => Ok(one.name.clone()),
            all if all.iter().all(|agent| agent.to_do().is_some()) => Err(none_is_ready(&able)),
            _several => {
                let several = choices(&able);
                let names: Vec<&str> = several.iter().map(|agent| agent.name.as_str()).collect();
                let error = format!(
                    "several agents could answer and none is the default: {}",
                    names.join(", ")
                );
                let hint = "name one with `agent`, or set `default_agent` in config.toml";
                let names = names.into_iter().map(str::to_owned).collect();
                let rejected = Rejected::new(Code::Ambiguous, error).hint(hint);
                Err(rejected.choices(names))
            }
        }
    }

    /// Of these, those who have a model or a provider for sure; else those who may have it; else all,
    /// so that whoever is asked says why not.
    fn those_who_have<'a>(
        &self,
        agents: Vec<&'a Agent>,
        provider: Option<&String>,
        model: Option<&String>,
    ) -> Vec<&'a Agent> {
        let surely = |agent: &&Agent| {
            let known = match agent.describe.providers {
                Providers::Known(known) => known,
                Providers::Any | Providers::OfModel | Providers::None => &[],
            };
            let has_provider = |name: &String| {
                known.contains(&name.as_str())
                    || agent.has.contains(name)
                    || agent.provider.as_ref() == Some(name)
            };
            let has_model = |name: &String| {
                let mut slots = self.pool.slots().filter(|slot| slot.agent == agent.name);
                agent.model.as_ref() == Some(name)
                    || slots.any(|slot| slot.models.as_ref().is_some_and(|of| of.contains(name)))
            };
            match provider {
                Some(provider) => has_provider(provider),
                None => model.is_some_and(has_model),
            }
        };
        let perhaps = |agent: &&Agent| {
            let pins = Pins {
                provider: provider.or(agent.provider.as_ref()).cloned(),
                model: model.or(pins::usual_model(agent, provider)).cloned(),
                thinking: None,
                mode: None,
            };
            pins::check(agent, &pins).is_ok()
        };
        let able: Vec<&Agent> = agents.iter().copied().filter(perhaps).collect();
        let sure: Vec<&Agent> = able.iter().copied().filter(surely).collect();
        match (sure.is_empty(), able.is_empty()) {
            (false, _) => sure,
            (true, false) => able,
            (true, true) => agents,
        }
    }

    fn no_agent(&self) -> Rejected {
        let error = format!(
            "No agent is there, so nothing was run.\n{}",
            self.settings.looked_for
        );
        let hint = "`agents` lists what was looked for; `[agents.NAME]` in config.toml adds one";
        Rejected::new(Code::NoAgent, error).hint(hint)
    }

    pub(crate) fn unknown_agent(&self, name: &str) -> Rejected {
        let known: Vec<&str> = self.settings.agents.keys().map(String::as_str).collect();
        let rejected = Rejected::new(Code::UnknownAgent, format!("there is no agent `{name}`"));
        if name == AUTO {
            return rejected.hint("`auto` is for turns: the routes choose by what is asked");
        }
        if name.contains(',') {
            return rejected.hint("one agent answers a turn: name each in a turn of its own");
        }
        match agentd_protocol::nearest::nearest(name, known.iter().copied()) {
            Some(near) => rejected.hint(format!("did you mean `{near}`?")),
            None => rejected.hint(format!("known agents: {}", self.those_there().join(", "))),
        }
    }

    /// Those that can be used; where none can, all.
    fn those_there(&self) -> Vec<&str> {
        let agents = self.settings.agents.iter();
        let there = agents.filter(|(_, agent)| agent.usable.is_ok());
        let there: Vec<&str> = there.map(|(name, _)| name.as_str()).collect();
        match there.is_empty() {
            true => self.settings.agents.keys().map(String::as_str).collect(),
            false => there,
        }
    }

    /// Can this agent do what a send asks for, in this session if there is one?
    pub(crate) fn usable(
        &mut self,
        name: &str,
        session: Option<SessionId>,
        send: &Send,
    ) -> Result<(), Rejected> {
        let Some(agent) = self.settings.agents.get(name) else {
            // It may have been installed since: whoever asks again finds it.
            self.look_for_agents();
            let mut rejected = self.unknown_agent(name);
            if session.is_some() && send.agent.is_none() {
                rejected.error.push_str(", whose session this is");
            }
            return Err(rejected);
        };
        if let Err(why) = agent.usable.clone() {
            self.look_for_agents();
            let error = format!("the agent `{name}` can't be used: {why}");
            return Err(Rejected::new(Code::NoAgent, error).hint("`agents` lists what is there"));
        }
        let pin = |given: &Option<String>, usual: &Option<String>| {
            given.as_ref().or(usual.as_ref()).cloned()
        };
        let pins = Pins {
            provider: pin(&send.provider, &agent.provider),
            model: pin(&send.model, &agent.model),
            thinking: pin(&send.thinking, &agent.thinking),
            mode: agent.mode.clone(),
        };
        pins::check(agent, &pins)?;
        let holder = session.and_then(|session| self.sessions.get(&session)?.slot);
        if let Some(slot) = holder.and_then(|worker| self.pool.get(&worker))
            // What its session is pinned to was checked when it was set.
            && send.model.is_some()
        {
            offered(slot, &pins)?;
        }
        // One that was made before its names were known has what it was made with.
        let of_session = session.and_then(|session| self.sessions.get(&session)?.toolsets.as_ref());
        if let Some(toolsets) = send.toolsets.as_ref().or(of_session) {
            agent.describe.toolsets.check(name, toolsets)?;
        }
        if send.fallback_chain.is_some() && !agent.describe.fallback_chain {
            let error = format!("`fallback_chain` was given, but the agent `{name}` takes none");
            return Err(Rejected::new(Code::Unsupported, error));
        }
        let of_session = session.and_then(|session| self.sessions.get(&session));
        servers_fit(agent, of_session, send)?;
        if let Some(error) = self
            .takes(name, agent.describe.attachments)
            .refuses(name, &send.attachments)
        {
            let rejected = Rejected::new(Code::Unsupported, error);
            return Err(rejected.hint(SAY_ITS_PATH));
        }
        // Where a process is there, none need be started.
        if self.has_process_for(name, session) {
            return Ok(());
        }
        match self.broken_agent(name) {
            Some(failure) => {
                self.look_for_agents();
                Err(failure.into())
            }
            None => Ok(()),
        }
    }
}

/// What to do with a file that can't be attached.
pub(crate) const SAY_ITS_PATH: &str =
    "say in the text where the file is: most agents can read files by themselves";

impl State {
    /// What an agent takes besides text: as a living process of it said, else as its kind does.
    fn takes(&self, agent: &str, usual: AttachmentSupport) -> AttachmentSupport {
        let mut slots = self.pool.slots();
        let told = slots.find(|slot| slot.agent == agent && slot.is_ready());
        told.map_or(usual, |slot| slot.takes)
    }
}

/// Is a process of this agent given the prompt at its spawn?
pub(crate) fn per_turn(agent: &Agent) -> bool {
    agent.describe.sessions == Sessions::PerTurn
}

/// Whoever were chosen of these would only say so of itself.
fn none_is_ready(able: &[&Agent]) -> Rejected {
    let error = format!("no agent is ready to answer: {}", waiting(able));
    let hint = "named with `agent`, each says what it needs; `agents` lists them";
    Rejected::new(Code::NoAgent, error).hint(hint)
}
