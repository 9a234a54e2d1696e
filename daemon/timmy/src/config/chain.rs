//! Whom a turn asks: what the send pins, else what is configured, else the only one there is.
//!
//! Owns the order, and that nothing is guessed where two could be meant. Must not know how a model
//! is asked.

use std::sync::Arc;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::nearest::nearest;

use super::Config;
use super::local::{self, Server};
use super::no_model::{Candidate, Looked};
use crate::provider::keys;
use crate::provider::table::{self, ALL, BuiltInProvider, Unusable};
use crate::provider::{Provider, Target};

/// A model of each provider, for whoever has a key and chose none: good with tools, and cheap.
const USUAL: &[(&str, &str)] = &[
    ("anthropic", "claude-haiku-4-5"),
    ("deepseek", "deepseek-chat"),
    ("gemini", "gemini-2.5-flash"),
    ("grok", "grok-4.3"),
    ("groq", "openai/gpt-oss-120b"),
    ("kimi-coding", "kimi-for-coding"),
    ("mistral", "mistral-medium-latest"),
    ("moonshot", "kimi-k2.6"),
    ("openai", "gpt-5.4-mini"),
    ("openrouter", "openai/gpt-5.4-mini"),
    ("zai", "glm-4.6"),
    ("zai-coding", "glm-4.6"),
];

/// Names for whatever server of models runs on this machine.
const LOCAL: &[&str] = &["local", "local-llm"];

/// What a variable says, asked from wherever a turn is.
pub(crate) type Ask<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// What a send says about models.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ModelRequest<'a> {
    /// The provider that is pinned.
    pub(crate) provider: Option<&'a str>,
    /// The model that is pinned: a short name, `provider/model`, or one of the provider's.
    pub(crate) model: Option<&'a str>,
    /// The provider that is configured for whoever pins none.
    pub(crate) usual_provider: Option<&'a str>,
    /// What comes behind, each `provider/model` or a name without a slash.
    pub(crate) fallback_chain: Option<&'a [String]>,
}

/// Whom to ask, in this order.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chosen {
    /// At least one; who needs a key and has none is in it, too, without one.
    pub(crate) chain: Vec<Target>,
    /// What a person would want to know: that nobody chose it.
    pub(crate) announced: Option<String>,
}

/// Why nobody can be asked.
#[derive(Debug)]
pub(crate) enum Unchosen {
    /// What the send names is wrong.
    Wrong(Rejected),
    /// There is nothing to ask, or too much: what was looked for.
    Nothing(Box<Looked>),
}

impl From<Unusable> for Unchosen {
    fn from(unusable: Unusable) -> Self {
        Self::Wrong(Rejected::new(Code::InvalidRequest, unusable.to_string()))
    }
}

/// Chooses whom to ask. Servers of this machine are looked for only when nothing else is there.
///
/// # Errors
/// Nobody can be asked, or what the send names makes no sense.
pub(crate) async fn choose(
    config: &Config,
    lookup: Ask<'_>,
    asked: &ModelRequest<'_>,
) -> Result<Chosen, Unchosen> {
    let chooser = Chooser { config, lookup };
    let pinned = chooser.pinned(asked)?;
    let env = pinned.as_ref().map(|pinned| pinned.provider.id.clone());
    let (mut chain, mut announced) = match (pinned, &config.models.default) {
        (Some(pinned), _) => (vec![pinned], None),
        (None, Some(default)) => (vec![chooser.named(default)?], None),
        (None, None) => {
            let (only, why) = chooser.only_one().await.map_err(Unchosen::Nothing)?;
            (vec![only], Some(why))
        }
    };
    let is_pinned = asked.provider.is_some() || asked.model.is_some();
    let behind = match asked.fallback_chain {
        Some(chain) => chain,
        // Who pins a model wants that one, or to hear why not.
        None if is_pinned => &[],
        None => &config.models.fallbacks,
    };
    for name in behind {
        let Some(next) = chooser.behind(name, env.as_deref()).await? else {
            let note = format!("`{name}` is left out: no server of models runs on this machine");
            announced = Some(announced.map_or(note.clone(), |first| format!("{first}; {note}")));
            continue;
        };
        let is_there =
            |one: &Target| one.provider.id == next.provider.id && one.model == next.model;
        if !chain.iter().any(is_there) {
            chain.push(next);
        }
    }
    Ok(Chosen { chain, announced })
}

/// The providers with a key that nobody chose, each with what it was found by: one for each key,
/// whatever the number of variables and houses that take it.
pub(crate) fn with_keys(config: &Config, lookup: Ask<'_>) -> Vec<Candidate> {
    let mut taken: Vec<String> = Vec::new();
    let mut candidates: Vec<Candidate> = Vec::new();
    let own = config.providers.keys().map(String::as_str);
    let all = ALL.iter().map(|row: &BuiltInProvider| row.id);
    let own = own.filter(|name| table::known(name).is_none());
    for id in all.chain(own) {
        let Ok(provider) = table::resolve(id, config, lookup) else {
            continue;
        };
        let set = |name: &&String| lookup(name).is_some_and(|value| !value.trim().is_empty());
        let variables: Vec<&String> = provider.key_variables.iter().filter(set).collect();
        // `KIMI_API_KEY` is a variable of two houses: the first that takes it has it.
        let fresh = variables.iter().any(|name| !taken.contains(*name));
        if provider.local || !fresh {
            continue;
        }
        let variable = variables[0].clone();
        taken.extend(variables.into_iter().cloned());
        candidates.push(Candidate {
            model: usual(&provider).map(str::to_owned),
            provider: provider.id,
            by: format!("key {variable}"),
        });
    }
    candidates
}

/// The model that is asked of a provider when none is named. Of Kimi's two houses each has its own
/// models, and it is the key that says which of them is asked.
pub(crate) fn usual(provider: &Provider) -> Option<&'static str> {
    let id = match provider.base_url.as_str() {
        table::KIMI_PLAN_URL => "kimi-coding",
        table::MOONSHOT_URL => "moonshot",
        _ => provider.id.as_str(),
    };
    let found = USUAL.iter().find(|(known, _)| *known == id);
    found.map(|(_, model)| *model)
}

/// A short name spelt out.
fn spelt<'n>(config: &'n Config, name: &'n str) -> &'n str {
    let aliases = &config.models.aliases;
    aliases.get(name).map_or(name, String::as_str)
}

/// A provider's model that is configured, if only as a fallback, else its usual one.
pub(crate) fn usual_model<'a>(config: &'a Config, provider: &Provider) -> Option<&'a str> {
    let all = config.models.default.iter();
    let all = all.chain(&config.models.fallbacks);
    let mut targets = all.filter_map(|name| table::split(spelt(config, name)).ok());
    let of_it = targets.find(|(name, _)| id(name) == provider.id);
    of_it.map(|(_, model)| model).or_else(|| usual(provider))
}

struct Chooser<'a> {
    config: &'a Config,
    lookup: Ask<'a>,
}

impl Chooser<'_> {
    /// What the send pins.
    fn pinned(&self, asked: &ModelRequest<'_>) -> Result<Option<Target>, Unchosen> {
        Ok(Some(match (asked.provider, asked.model) {
            (None, None) => return Ok(None),
            (None, Some(model)) => self.named(model)?,
            (Some(provider), Some(model)) => {
                let of_it = self.of_provider(provider, model);
                let target = self.target(provider, &of_it)?;
                if self.is_of_another(&target, model) {
                    let rejected =
                        no_model_of(provider, spelt(self.config, model), asked.usual_provider);
                    return Err(Unchosen::Wrong(rejected));
                }
                target
            }
            (Some(provider), None) => self.usual_of(provider)?,
        }))
    }

    fn usual_of(&self, provider: &str) -> Result<Target, Unchosen> {
        let resolved = table::resolve(provider, self.config, self.lookup)?;
        let Some(model) = usual_model(self.config, &resolved).map(str::to_owned) else {
            let error = format!("no model of provider `{provider}` was named");
            let hint = format!("name one, as `--model {provider}/MODEL`");
            return Err(Unchosen::Wrong(
                Rejected::new(Code::InvalidRequest, error).hint(hint),
            ));
        };
        self.target(provider, &model)
    }

    /// An entry of a chain. Without a slash, in this order: a short name, a provider, a server of
    /// this machine (none if none runs), a model of the provider that is pinned.
    async fn behind(&self, name: &str, env: Option<&str>) -> Result<Option<Target>, Unchosen> {
        let is_provider = table::known(name).is_some() || self.config.providers.contains_key(name);
        if spelt(self.config, name).contains('/') {
            return self.named(name).map(Some);
        }
        if is_provider {
            return self.usual_of(name).map(Some);
        }
        if LOCAL.contains(&name) {
            let servers = local::servers(self.config, self.lookup).await;
            let found = servers.iter().find_map(Server::candidate);
            let model = found.and_then(|found| Some((found.provider, found.model?)));
            return model
                .map(|(provider, model)| self.target(&provider, &model))
                .transpose();
        }
        match env {
            Some(env) => self.target(env, name).map(Some),
            None => self.named(name).map(Some),
        }
    }

    /// A model beside its provider: said with the provider once more, or by a short name of ours.
    fn of_provider(&self, provider: &str, model: &str) -> String {
        let spelt = spelt(self.config, model);
        match spelt.split_once('/') {
            // OpenRouter has models of its own name.
            Some((before, rest))
                if id(before) == id(provider) && (spelt != model || before != "openrouter") =>
            {
                rest.to_owned()
            }
            _ => model.to_owned(),
        }
    }

    /// Does a name say that a model is another provider's? Some have models of such names themselves.
    fn is_of_another(&self, target: &Target, name: &str) -> bool {
        let Ok((before, _)) = table::split(spelt(self.config, name)) else {
            return false;
        };
        let is_short = spelt(self.config, name) != name;
        let at = &target.provider;
        // A provider of the table, where the table has it, whose models have no slash.
        let has_plain_names = || {
            usual(at).is_some_and(|model| !model.contains('/'))
                && table::known(&at.id).is_some_and(|row| row.base_url == at.base_url)
        };
        id(before) != at.id && (is_short || table::known(before).is_some() && has_plain_names())
    }

    /// `provider/model` or a short name.
    fn named(&self, name: &str) -> Result<Target, Unchosen> {
        let spelt = spelt(self.config, name);
        if let Ok((provider, model)) = table::split(spelt) {
            return self.target(provider, model);
        }
        let error = format!("`{name}` is neither `provider/model` nor a short name of config.toml");
        let names = self.config.models.aliases.keys().map(String::as_str);
        let hint = match nearest(name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "write it as `gemini/gemini-2.5-flash`".to_owned(),
        };
        Err(Unchosen::Wrong(
            Rejected::new(Code::InvalidRequest, error).hint(hint),
        ))
    }

    fn target(&self, provider: &str, model: &str) -> Result<Target, Unchosen> {
        let provider = table::resolve(provider, self.config, self.lookup)?;
        Ok(self.at(provider, model))
    }

    fn at(&self, provider: Provider, model: &str) -> Target {
        Target {
            key: keys::find(&provider.key_variables, self.lookup),
            provider: Arc::new(provider),
            model: model.to_owned(),
        }
    }

    /// The only model there is, and the note that says so.
    async fn only_one(&self) -> Result<(Target, String), Box<Looked>> {
        let candidates = with_keys(self.config, self.lookup);
        let is_own = |name: &&String| !ALL.iter().any(|row| row.id == name.as_str());
        let own = self.config.providers.keys().filter(is_own);
        let mut looked = Looked {
            has_key: candidates.len(),
            candidates,
            servers: Vec::new(),
            own: own.cloned().collect(),
        };
        // Only then, as one that listens is waited for.
        if looked.candidates.is_empty() {
            let servers = local::servers(self.config, self.lookup).await;
            let with_models = servers.iter().filter_map(Server::candidate);
            looked.candidates = with_models.collect();
            looked.servers = servers;
        }
        if let [only] = &looked.candidates[..]
            && let Some(model) = &only.model
            && let Ok(provider) = table::resolve(&only.provider, self.config, self.lookup)
        {
            let name = format!("{}/{model}", only.provider);
            let note = format!(
                "no model is chosen, so the only one there is answers: {name} ({}); \
                 `agentctl models default {name}` chooses it",
                only.by
            );
            return Ok((self.at(provider, model), note));
        }
        Err(Box::new(looked))
    }
}

/// What is said of a provider and a model of another one; `usual` is the provider that is
/// configured.
pub(crate) fn no_model_of(provider: &str, model: &str, usual: Option<&str>) -> Rejected {
    let whose = match usual == Some(provider) {
        true => "the provider is the one configured for this agent, the model was named",
        false => "they were named together",
    };
    let (of, name) = table::split(model).unwrap_or(("PROVIDER", model));
    let error = format!("provider `{provider}` has no model `{model}`: {whose}");
    let hint = format!("name both, as `--provider {of} --model {name}`");
    Rejected::new(Code::InvalidRequest, error).hint(hint)
}

/// The name that the table has for a provider.
fn id(name: &str) -> &str {
    table::known(name).map_or(name, |row| row.id)
}

#[cfg(test)]
mod tests;
