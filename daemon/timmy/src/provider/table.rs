//! The providers that timmy knows by name, and how the user's own are added to them.
//!
//! Owns the table: addresses, wires, variables. Must not read files or the environment: whoever
//! asks hands in what a variable says.

use super::keys::{self, Lookup};
use super::{Provider, Wire};
use crate::ECHO;
use crate::config::{Config, ProviderConfig};

/// A key of Kimi's coding plan begins so; other keys are Moonshot's.
const KIMI_PLAN: &str = "sk-kimi-";
/// Where keys of the plan are good.
pub(crate) const KIMI_PLAN_URL: &str = "https://api.kimi.com/coding/v1";
/// Where Moonshot's keys are good.
pub(crate) const MOONSHOT_URL: &str = "https://api.moonshot.ai/v1";
/// A name that differs in more than this many letters wasn't meant.
const NEAR: usize = 3;

/// A provider that needs no configuration but a key.
pub(crate) struct BuiltInProvider {
    /// Its name.
    pub(crate) id: &'static str,
    /// Other names for it.
    pub(crate) aliases: &'static [&'static str],
    /// Where it is.
    pub(crate) base_url: &'static str,
    /// The variable that says that it is elsewhere.
    pub(crate) base_variable: Option<&'static str>,
    /// What it speaks.
    pub(crate) wire: Wire,
    /// Variables that may hold its key, best first.
    pub(crate) key_variables: &'static [&'static str],
    /// Does it run on this machine?
    pub(crate) local: bool,
}

impl BuiltInProvider {
    const fn hosted(
        id: &'static str,
        base_url: &'static str,
        wire: Wire,
        key_variables: &'static [&'static str],
    ) -> Self {
        Self {
            id,
            aliases: &[],
            base_url,
            base_variable: None,
            wire,
            key_variables,
            local: false,
        }
    }

    const fn called(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn at(mut self, variable: &'static str) -> Self {
        self.base_variable = Some(variable);
        self
    }

    const fn here(mut self) -> Self {
        self.local = true;
        self
    }
}

/// The table, in the order in which it is shown.
pub(crate) const ALL: &[BuiltInProvider] = &[
    BuiltInProvider::hosted(
        "kimi-coding",
        KIMI_PLAN_URL,
        Wire::Kimi,
        &["KIMI_API_KEY", "KIMI_CODING_API_KEY"],
    )
    .called(&["kimi-code", "kimi-for-coding"]),
    BuiltInProvider::hosted(
        "moonshot",
        MOONSHOT_URL,
        Wire::Kimi,
        &["MOONSHOT_API_KEY", "KIMI_API_KEY"],
    )
    .called(&["kimi", "moonshotai"]),
    BuiltInProvider::hosted(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        Wire::Gemini,
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
    )
    .called(&["google"]),
    BuiltInProvider::hosted(
        "groq",
        "https://api.groq.com/openai/v1",
        Wire::Groq,
        &["GROQ_API_KEY"],
    ),
    BuiltInProvider::hosted("grok", "https://api.x.ai/v1", Wire::Xai, &["XAI_API_KEY"])
        .called(&["xai", "x-ai"]),
    BuiltInProvider::hosted(
        "openrouter",
        "https://openrouter.ai/api/v1",
        Wire::OpenRouter,
        &["OPENROUTER_API_KEY"],
    )
    .called(&["open-router"]),
    BuiltInProvider::hosted("openai", super::OPENAI, Wire::OpenAi, &["OPENAI_API_KEY"])
        .at("OPENAI_BASE_URL"),
    BuiltInProvider::hosted(
        "anthropic",
        "https://api.anthropic.com",
        Wire::Anthropic,
        &["ANTHROPIC_API_KEY", keys::ANTHROPIC_TOKEN],
    ),
    BuiltInProvider::hosted(
        "deepseek",
        "https://api.deepseek.com",
        Wire::DeepSeek,
        &["DEEPSEEK_API_KEY"],
    ),
    BuiltInProvider::hosted(
        "mistral",
        "https://api.mistral.ai/v1",
        Wire::Mistral,
        &["MISTRAL_API_KEY"],
    ),
    BuiltInProvider::hosted(
        "zai",
        "https://api.z.ai/api/paas/v4",
        Wire::Zai,
        &["ZAI_API_KEY", "GLM_API_KEY", "Z_AI_API_KEY"],
    )
    .called(&["z.ai", "z-ai", "glm"]),
    BuiltInProvider::hosted(
        "zai-coding",
        "https://api.z.ai/api/coding/paas/v4",
        Wire::Zai,
        &["ZAI_API_KEY", "GLM_API_KEY", "Z_AI_API_KEY"],
    )
    .called(&["glm-coding"]),
    BuiltInProvider::hosted(
        "ollama",
        "http://127.0.0.1:11434",
        Wire::Ollama,
        &["OLLAMA_API_KEY"],
    )
    .at("OLLAMA_HOST")
    .here(),
    BuiltInProvider::hosted(
        "lmstudio",
        "http://127.0.0.1:1234/v1",
        Wire::OpenAi,
        &["LM_API_KEY"],
    )
    .called(&["lm-studio"])
    .at("LM_BASE_URL")
    .here(),
    BuiltInProvider::hosted(
        "llamacpp",
        "http://127.0.0.1:8080/v1",
        Wire::OpenAi,
        &["LLAMA_API_KEY"],
    )
    .called(&["llama.cpp", "llama-cpp"])
    .at("LLAMA_BASE_URL")
    .here(),
];

/// How prompts are said back without any model.
pub(crate) const ECHO_INSTEAD: &str = "it says prompts back; `agentctl send --provider echo` has it \
                                       do so once, `agentctl config set agents.timmy.provider echo` \
                                       until that is unset";

/// Why a provider or a model can't be asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// Nobody has this name.
    #[error("there is no provider `{name}`{}", meant(.nearest))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// The one that asks nobody.
    #[error("the provider `{ECHO}` has no models: {ECHO_INSTEAD}")]
    Echo,
    /// `[providers.NAME]` doesn't say what it has to.
    #[error("[providers.{name}] in config.toml: {what}")]
    Wrong {
        /// Whose table.
        name: String,
        /// What is wrong, and what it should be.
        what: String,
    },
    /// A variable of the environment doesn't say what it has to.
    #[error("the variable {variable}: {what}")]
    Variable {
        /// Which.
        variable: String,
        /// What is wrong, and what it should be.
        what: String,
    },
    /// Not of the form `provider/model`.
    #[error(
        "`{0}` is not a model: it is written `provider/model`, such as `openrouter/openai/gpt-4.1-mini`"
    )]
    NotAModel(String),
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(
        || "; `agentctl provider list` shows those there are".to_owned(),
        |name| format!("; did you mean `{name}`?"),
    )
}

/// The table's row for a name, or for another name of it.
pub(crate) fn known(name: &str) -> Option<&'static BuiltInProvider> {
    let name = name.to_ascii_lowercase();
    ALL.iter()
        .find(|row| row.id == name || row.aliases.contains(&name.as_str()))
}

/// `provider/model`, split at the first slash: the rest of them belong to the model.
///
/// # Errors
/// It isn't of this form.
pub(crate) fn split(model: &str) -> Result<(&str, &str), Unusable> {
    model
        .split_once('/')
        .filter(|(provider, model)| !provider.trim().is_empty() && !model.trim().is_empty())
        .ok_or_else(|| Unusable::NotAModel(model.to_owned()))
}

/// A provider by its name: the user's, the table's, or the table's with the user's changes.
///
/// # Errors
/// There is none, or it is configured wrong.
pub(crate) fn resolve(
    name: &str,
    config: &Config,
    lookup: Lookup<'_>,
) -> Result<Provider, Unusable> {
    let row = known(name);
    let own = config
        .providers
        .get(name)
        // A table under the name proper counts for its other names, too.
        .or_else(|| config.providers.get(row?.id));
    match (row, own) {
        (None, None) if name == ECHO => Err(Unusable::Echo),
        (None, None) => Err(Unusable::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, config),
        }),
        (None, Some(own)) => users(name, own),
        (Some(row), own) => from_table(row, own, lookup),
    }
}

fn from_table(
    row: &BuiltInProvider,
    own: Option<&ProviderConfig>,
    lookup: Lookup<'_>,
) -> Result<Provider, Unusable> {
    let mut key_variables: Vec<String> = own
        .and_then(|own| own.key_env.clone())
        .into_iter()
        .collect();
    key_variables.extend(row.key_variables.iter().map(|name| (*name).to_owned()));
    let configured = own.and_then(|own| own.base_url.as_deref());
    let said = || {
        let variable = row.base_variable?;
        let value = lookup(variable).filter(|value| !value.trim().is_empty())?;
        Some((variable, value))
    };
    let base_url = match (configured, said()) {
        (Some(url), _) => checked(row.id, url)?,
        (None, Some((variable, value))) => {
            let url = if row.id == "ollama" {
                ollama_host(&value)
            } else {
                value
            };
            address(&url).map_err(|what| Unusable::Variable {
                variable: variable.to_owned(),
                what,
            })?
        }
        (None, None) if row.wire == Wire::Kimi => kimi(row, &key_variables, lookup).to_owned(),
        (None, None) => row.base_url.to_owned(),
    };
    Ok(Provider {
        id: row.id.to_owned(),
        wire: match own.and_then(|own| own.wire.as_deref()) {
            Some(wire) => named_wire(row.id, wire)?,
            None => row.wire,
        },
        // Its address may be moved out of the house, and then it costs and wants a key.
        local: row.local && is_private(&base_url),
        base_url,
        key_variables,
        window: own.and_then(|own| own.context_window),
        price: own.and_then(|own| own.price),
    })
}

/// Two houses take the same variable: which of them a key is for can be seen.
fn kimi(row: &BuiltInProvider, variables: &[String], lookup: Lookup<'_>) -> &'static str {
    match keys::find(variables, lookup) {
        Some(key) if key.secret().starts_with(KIMI_PLAN) => KIMI_PLAN_URL,
        Some(_) => MOONSHOT_URL,
        None => row.base_url,
    }
}

fn users(name: &str, own: &ProviderConfig) -> Result<Provider, Unusable> {
    let wrong = |what: &str| Unusable::Wrong {
        name: name.to_owned(),
        what: what.to_owned(),
    };
    if name.contains('/') || name.trim().is_empty() {
        return Err(wrong(
            "a provider's name has no slash in it, and isn't empty",
        ));
    }
    let base_url = own.base_url.as_deref().ok_or_else(|| {
        wrong("`base_url` is missing; only providers of timmy's own list have one")
    })?;
    let base_url = checked(name, base_url)?;
    let variable = own.key_env.clone().unwrap_or_else(|| variable(name));
    Ok(Provider {
        id: name.to_owned(),
        wire: named_wire(name, own.wire.as_deref().unwrap_or("openai"))?,
        local: is_loopback(&base_url),
        base_url,
        key_variables: vec![variable],
        window: own.context_window,
        price: own.price,
    })
}

/// The variable for the key of a provider that names none: `my-llm` has `MY_LLM_API_KEY`.
pub(crate) fn variable(provider: &str) -> String {
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    let name: String = provider.chars().map(letter).collect();
    format!("{name}_API_KEY")
}

fn named_wire(provider: &str, wire: &str) -> Result<Wire, Unusable> {
    let found = Wire::ALL.iter().find(|(name, _)| *name == wire);
    found.map(|(_, wire)| *wire).ok_or_else(|| {
        let names: Vec<&str> = Wire::ALL.iter().map(|(name, _)| *name).collect();
        Unusable::Wrong {
            name: provider.to_owned(),
            what: format!("`wire` is one of {}, not `{wire}`", names.join(", ")),
        }
    })
}

fn checked(provider: &str, url: &str) -> Result<String, Unusable> {
    address(url).map_err(|what| Unusable::Wrong {
        name: provider.to_owned(),
        what,
    })
}

/// An address without its last slash, or what is wrong with it.
pub(crate) fn address(url: &str) -> Result<String, String> {
    let parsed = reqwest::Url::parse(url.trim());
    let is_one =
        |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if !parsed.as_ref().is_ok_and(is_one) {
        let why = match parsed {
            Err(error) if url.contains("://") => format!(": {error}"),
            _ => String::new(),
        };
        return Err(format!(
            "`{url}` is not a base URL{why}; it begins with http:// or https://"
        ));
    }
    // Addresses are shown, to clients of others too; and paths are put behind this one.
    let has_more = |url: &reqwest::Url| {
        let secret = !url.username().is_empty() || url.password().is_some();
        secret || url.query().is_some() || url.fragment().is_some()
    };
    if parsed.as_ref().is_ok_and(has_more) {
        let what = "a base URL holds no name, no password and nothing behind `?` or `#`; a key belongs into the variable that `key_env` names";
        return Err(what.to_owned());
    }
    Ok(url.trim().trim_end_matches('/').to_owned())
}

/// `OLLAMA_HOST` is what its server listens on: often without a scheme or a port, or everywhere.
fn ollama_host(value: &str) -> String {
    let value = value.trim().trim_end_matches('/');
    let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, Some(port)),
        _ => (rest, None),
    };
    let host = match host {
        // To listen everywhere is no address to connect to.
        "" | "0.0.0.0" | "[::]" => "127.0.0.1",
        other => other,
    };
    match (port, scheme) {
        (Some(port), _) => format!("{scheme}://{host}:{port}"),
        (None, "https") => format!("{scheme}://{host}"),
        (None, _) => format!("{scheme}://{host}:11434"),
    }
}

fn host(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?;
    Some(host.trim_matches(['[', ']']).to_ascii_lowercase())
}

/// Is it on this very machine?
pub(crate) fn is_loopback(url: &str) -> bool {
    host(url).is_some_and(|host| {
        host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    })
}

/// Is it in this house? A model server of the user's own costs nothing wherever it stands.
pub(crate) fn is_private(url: &str) -> bool {
    is_loopback(url)
        || host(url).is_some_and(|host| match host.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(address)) => address.is_private() || address.is_link_local(),
            Ok(std::net::IpAddr::V6(address)) => address.is_unique_local(),
            Err(_) => !host.contains('.') || host.ends_with(".local") || host.ends_with(".lan"),
        })
}

fn nearest(name: &str, config: &Config) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let table = ALL
        .iter()
        .flat_map(|row| std::iter::once(&row.id).chain(row.aliases).copied());
    let all = table.chain(config.providers.keys().map(String::as_str));
    let near = all.map(|known| (strsim::damerau_levenshtein(&name, known), known));
    // Of a short name half of the letters would be nearly any other one.
    let near = near.filter(|(distance, known)| *distance <= NEAR.min(known.len() / 2));
    near.min().map(|(_, known)| known.to_owned())
}

#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
