//! timmy's own household: this machine's providers, prices, tools and settings.
//!
//! Owns how the parts find each other. Settings are read anew for each send, so that a change
//! counts from the next turn on; whoever only has the prompt said back reads none.

use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use agentd_client::places::{Environment, System};
use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;

use crate::config::Config;
use crate::failover::{Class, class};
use crate::model::genai::HttpModels;
use crate::model::{Boxed, Failure, ModelClient, Thinking, Usage, known};
use crate::price::{self, Cost};
use crate::provider::keys::{self, Keys};
use crate::provider::{Target, table};
use crate::send::{Household, Wish};
use crate::session::skill::ReadSkill;
use crate::tool::places::Rules;
use crate::tool::toolset::{self, Toolset};
use crate::tool::{Tool, sandbox};
use crate::turn::{House, Plan, REQUESTS};

/// This machine.
#[derive(Debug)]
pub(crate) struct Machine {
    models: HttpModels,
    /// `config.toml`.
    file: PathBuf,
    /// The directory `timmy` beside it.
    own: PathBuf,
}

impl Machine {
    /// This one, without reading anything yet; none without a home.
    pub(crate) fn of_process() -> Option<Self> {
        config_file().map(Self::with)
    }

    /// The one whose `config.toml` is this.
    pub(crate) fn with(file: PathBuf) -> Self {
        Self {
            models: HttpModels::default(),
            own: file.with_file_name("timmy"),
            file,
        }
    }

    fn config(&self) -> Result<Config, Rejected> {
        let wrong = |why: String| {
            let error = format!("`{}` can't be used: {why}", self.file.display());
            Rejected::new(Code::InvalidRequest, error)
        };
        match std::fs::read_to_string(&self.file) {
            Ok(text) => toml::from_str(&text).map_err(|why| wrong(why.to_string())),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
            Err(why) => Err(wrong(why.to_string())),
        }
    }

    fn plan_now(&self, wish: &Wish) -> Result<Plan, Rejected> {
        let config = self.config()?;
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        let keys =
            Keys::read(directory).map_err(|why| Rejected::new(Code::AgentAuth, why.to_string()))?;
        let names = names(&config, wish)?;
        let lookup = |name: &str| keys.get(name);
        let chain = names.iter().map(|(provider, model)| {
            let provider = table::resolve(provider, &config, &lookup)?;
            Ok(Target {
                key: keys::find(&provider.key_variables, &lookup),
                provider: Arc::new(provider),
                model: model.clone(),
            })
        });
        let chain = chain.collect::<Result<Vec<_>, table::Unusable>>();
        let chain = chain.map_err(|why| Rejected::new(Code::InvalidRequest, why.to_string()))?;
        Ok(Plan {
            chain,
            on_refusal: config.models.on_refusal,
            thinking: wish.thinking.as_deref().map(thinking).transpose()?,
            requests: config.timmy.max_requests.unwrap_or(REQUESTS),
            deadline: wish.timeout,
        })
    }
}

impl Machine {
    fn tools_now(&self, toolsets: Option<&[String]>) -> Result<Vec<Arc<dyn Tool>>, Rejected> {
        let config = self.config()?;
        let invalid = |why: String| Rejected::new(Code::InvalidRequest, why);
        let sets = match toolsets.or(config.timmy.toolsets.as_deref()) {
            Some(names) => Toolset::named(names).map_err(|why| invalid(why.to_string()))?,
            None => Toolset::USUAL.iter().copied().collect(),
        };
        let rules = Rules::of_process(&config.timmy)
            .map_err(|why| Rejected::new(Code::Internal, why.to_string()))?;
        let mut tools = toolset::tools(&sets, &Arc::new(rules));
        if let Some(skill) = ReadSkill::new(&self.own) {
            tools.push(Arc::new(skill));
        }
        Ok(tools)
    }
}

/// Which models a wish means, in order: a pin, and what was said to come behind it; or those of the
/// configuration.
fn names(config: &Config, wish: &Wish) -> Result<Vec<(String, String)>, Rejected> {
    let models = &config.models;
    let split = |name: &str| {
        let name = models.aliases.get(name).map_or(name, String::as_str);
        let (provider, model) = table::split(name)
            .map_err(|why| Rejected::new(Code::InvalidRequest, why.to_string()))?;
        Ok((provider.to_owned(), model.to_owned()))
    };
    let pinned = match (&wish.provider, &wish.model) {
        (Some(provider), Some(model)) => {
            let prefix = format!("{provider}/");
            let model = model.strip_prefix(&prefix).unwrap_or(model);
            Some((provider.clone(), model.to_owned()))
        }
        (None, Some(model)) => Some(split(model)?),
        (Some(provider), None) => {
            let all = models.default.iter().chain(&models.fallbacks);
            let of_it = all
                .filter_map(|name| split(name).ok())
                .find(|(own, _)| own == provider);
            let missing = || {
                let error = format!("no model of provider `{provider}` was named");
                let hint = format!("name one, as `--model {provider}/MODEL`");
                Rejected::new(Code::InvalidRequest, error).hint(hint)
            };
            Some(of_it.ok_or_else(missing)?)
        }
        (None, None) => None,
    };
    let fallbacks = match (&pinned, &wish.fallback_chain) {
        (_, Some(chain)) => chain.as_slice(),
        (Some(_), None) => &[],
        (None, None) => &models.fallbacks,
    };
    let first = match (pinned, &models.default) {
        (Some(first), _) => first,
        (None, Some(default)) => split(default)?,
        (None, None) => {
            let error = "no model is configured, so nothing was run";
            let hint = "set `default = \"provider/model\"` under `[models]` in config.toml, or name a model";
            return Err(Rejected::new(Code::NoAgent, error).hint(hint));
        }
    };
    let mut all = vec![first];
    for name in fallbacks {
        all.push(split(name)?);
    }
    Ok(all)
}

fn thinking(name: &str) -> Result<Thinking, Rejected> {
    let found = Thinking::ALL.iter().find(|(known, _)| *known == name);
    let names = || {
        let names: Vec<&str> = Thinking::ALL.iter().map(|(name, _)| *name).collect();
        let error = format!("there is no thinking level `{name}`");
        let hint = format!("it is one of {}", names.join(", "));
        Rejected::new(Code::InvalidRequest, error).hint(hint)
    };
    found.map(|(_, level)| *level).ok_or_else(names)
}

/// Where `config.toml` is, as the daemon has it.
fn config_file() -> Option<PathBuf> {
    let said = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    if let Some(file) = said("AGENTD_CONFIG") {
        return Some(file);
    }
    let places = Environment::of_process();
    let home = places.home?;
    let directory = match places.system {
        System::MacOs => home.join("Library/Application Support/agentd"),
        System::Linux => said("XDG_CONFIG_HOME")
            .filter(|dir| dir.is_absolute())
            .unwrap_or_else(|| home.join(".config"))
            .join("agentd"),
    };
    Some(directory.join("config.toml"))
}

impl House for Machine {
    fn client(&self) -> &dyn ModelClient {
        &self.models
    }

    fn classify(&self, _target: &Target, failure: &Failure) -> Class {
        class::classify(failure)
    }

    fn window(&self, target: &Target) -> Option<u64> {
        let config = self.config().ok();
        let own = config.and_then(|config| {
            let provider = config.providers.get(&target.provider.id)?;
            provider.context_window
        });
        own.or_else(|| known::window(&target.provider.id, &target.model))
    }

    fn cost(&self, target: &Target, usage: &Usage, reported: Option<f64>) -> Cost {
        let config = self.config().unwrap_or_default();
        price::cost(&config, &target.provider, &target.model, usage, reported)
    }

    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
    }

    fn chance(&self) -> f64 {
        let drawn = std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish();
        f64::from(u32::try_from(drawn >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

impl Household for Machine {
    fn plan<'a>(&'a self, wish: &'a Wish) -> Boxed<'a, Result<Plan, Rejected>> {
        Box::pin(async move { self.plan_now(wish) })
    }

    fn tools<'a>(
        &'a self,
        toolsets: Option<&'a [String]>,
        _cwd: &'a Path,
    ) -> Boxed<'a, Result<Vec<Arc<dyn Tool>>, Rejected>> {
        Box::pin(async move { self.tools_now(toolsets) })
    }

    fn own(&self) -> &Path {
        &self.own
    }

    fn confinement(&self) -> String {
        match sandbox::available() {
            Ok(()) => "Commands run in a sandbox: they write in the working directory only, and \
                       have no network without leave."
                .to_owned(),
            Err(why) => format!("Commands are not sandboxed here: {why}."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let text = "[models]\ndefault = \"a/m\"\nfallbacks = [\"b/m\", \"fast\"]\n\
            [models.aliases]\nfast = \"openrouter/openai/gpt\"\n";
        toml::from_str(text).unwrap()
    }

    fn chain(provider: Option<&str>, model: Option<&str>, chain: Option<&[&str]>) -> String {
        let owned = |name: &str| name.to_owned();
        let wish = Wish {
            provider: provider.map(owned),
            model: model.map(owned),
            fallback_chain: chain.map(|chain| chain.iter().map(|name| owned(name)).collect()),
            ..Wish::default()
        };
        match names(&config(), &wish) {
            Ok(names) => {
                let shown: Vec<_> = names.iter().map(|(p, m)| format!("{p}|{m}")).collect();
                shown.join(" ")
            }
            Err(rejected) => rejected.code.to_string(),
        }
    }

    #[test]
    fn a_pin_stands_alone_unless_a_chain_comes_with_it() {
        for (provider, model, with, expected) in [
            (None, None, None, "a|m b|m openrouter|openai/gpt"),
            (None, Some("c/n"), None, "c|n"),
            (Some("c"), Some("n"), None, "c|n"),
            (Some("c"), Some("c/n"), None, "c|n"),
            (
                Some("openrouter"),
                Some("openai/gpt"),
                None,
                "openrouter|openai/gpt",
            ),
            (Some("b"), None, None, "b|m"),
            (Some("c"), None, None, "invalid-request"),
            (None, Some("fast"), None, "openrouter|openai/gpt"),
            (None, Some("nonsense"), None, "invalid-request"),
            (Some("c"), Some("n"), Some(&["b/m"][..]), "c|n b|m"),
            (None, None, Some(&["c/n"][..]), "a|m c|n"),
            (None, None, Some(&[][..]), "a|m"),
        ] {
            let found = chain(provider, model, with);
            assert_eq!(found, expected, "{provider:?} {model:?} {with:?}");
        }
    }

    #[test]
    fn without_a_model_nothing_is_guessed() {
        let rejected = names(&Config::default(), &Wish::default()).unwrap_err();
        assert_eq!(rejected.code, Code::NoAgent);
    }
}
