//! What a client names as its model: an agent, and maybe one of its models.
//!
//! Owns that name and how agents are listed as models. Must not know which agents there are.

use agentd_protocol::models::ModelRow;
use agentd_protocol::request::Send;
use agentd_protocol::rows::AgentRow;
use serde_json::{Value, json};

use super::failure::Failure;

/// The name of the agent that answers when none is named.
pub const DEFAULT: &str = "agentd";

/// Who is to answer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ModelName {
    /// As the client wrote it.
    pub word: Option<String>,
    /// The agent; the default one when absent.
    pub agent: Option<String>,
    /// The model's provider.
    pub provider: Option<String>,
    /// The model; the agent's own when absent.
    pub model: Option<String>,
}

impl ModelName {
    /// Reads `agent`, `agent/model` or `agent/provider/model`.
    ///
    /// # Errors
    /// When a part of it is empty.
    pub fn read(word: Option<String>) -> Result<Self, Failure> {
        let Some(text) = word.as_deref().filter(|word| !word.is_empty()) else {
            return Ok(Self::default());
        };
        let (agent, rest) = match text.split_once('/') {
            Some((agent, rest)) => (agent, Some(rest)),
            None => (text, None),
        };
        let (provider, model) = match rest.map(|rest| rest.split_once('/')) {
            None => (None, None),
            Some(None) => (None, rest),
            Some(Some((provider, model))) => (Some(provider), Some(model)),
        };
        let parts = [Some(agent), provider, model];
        if parts.into_iter().flatten().any(str::is_empty) || text.chars().any(char::is_control) {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(128).collect();
            let why = format!(
                "there is no model `{shown}`: expected an agent, `agent/model` or `agent/provider/model`"
            );
            return Err(Failure::not_found("model_not_found", why).about("model"));
        }
        let owned = |part: Option<&str>| part.map(str::to_owned);
        Ok(Self {
            agent: owned(Some(agent).filter(|agent| *agent != DEFAULT)),
            provider: owned(provider),
            model: owned(model),
            word,
        })
    }

    /// Names them in a send.
    pub fn put_into(&self, send: &mut Send) {
        send.agent.clone_from(&self.agent);
        send.provider.clone_from(&self.provider);
        send.model.clone_from(&self.model);
    }

    /// As the answer names it: as it was asked for, else the agent that answers.
    #[must_use]
    pub fn told(&self, agent: &str) -> String {
        self.word.clone().unwrap_or_else(|| agent.to_owned())
    }

    /// Is it one of these models of its agent?
    #[must_use]
    pub fn is_among(&self, models: &[ModelRow]) -> bool {
        let Some(model) = &self.model else {
            return true;
        };
        let whole = self
            .provider
            .as_ref()
            .map(|provider| format!("{provider}/{model}"));
        models.iter().any(|row| {
            let provider = self.provider.is_none() || row.provider == self.provider;
            // A name with a slash in it, of an agent that has no providers.
            row.model == *model && provider
                || row.provider.is_none() && Some(&row.model) == whole.as_ref()
        })
    }
}

/// A model of the list.
#[must_use]
pub fn object(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 0, "owned_by": "agentd"})
}

/// Those that can answer as they are: nobody has to log in before.
fn ready(agents: &[AgentRow]) -> impl Iterator<Item = &AgentRow> {
    let ready = |row: &&AgentRow| row.usable && row.to_do().is_none();
    agents.iter().filter(ready)
}

/// All agents that can answer, the default one first.
#[must_use]
pub fn list(agents: &[AgentRow]) -> Value {
    let (first, rest) = (
        ready(agents).filter(|row| row.default),
        ready(agents).filter(|row| !row.default),
    );
    let data: Vec<Value> = first.chain(rest).map(|row| object(&row.name)).collect();
    json!({"object": "list", "data": data})
}

/// What is said of an agent that isn't there, with those that are.
#[must_use]
pub fn unknown(mut failure: Failure, agents: &[AgentRow]) -> Failure {
    let names: Vec<&str> = ready(agents).map(|row| row.name.as_str()).collect();
    if !names.is_empty() {
        let names = names.join("`, `");
        failure.message = format!("{}; the models here are `{names}`", failure.message);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_an_agent_and_maybe_its_model() {
        let parts = |word: &str| {
            let name = ModelName::read(Some(word.to_owned())).unwrap();
            let parts = [name.agent, name.provider, name.model];
            parts.map(Option::unwrap_or_default).join(" ")
        };
        assert_eq!(parts("pi"), "pi  ");
        assert_eq!(parts("agentd"), "  ");
        assert_eq!(parts("agentd/large"), "  large");
        assert_eq!(parts("claude/opus"), "claude  opus");
        assert_eq!(parts("timmy/openrouter/x/y"), "timmy openrouter x/y");
        assert_eq!(ModelName::read(None).unwrap(), ModelName::default());
        for wrong in ["/", "a/", "/a", "a//b", "a/b/", "a\nb"] {
            let failure = ModelName::read(Some(wrong.to_owned())).unwrap_err();
            assert_eq!(failure.code, "model_not_found", "{wrong:?}");
        }
    }

    #[test]
    fn model_is_found_among_its_agents_own() {
        let name = |word: &str| ModelName::read(Some(word.to_owned())).unwrap();
        let row = |provider: Option<&str>, model: &str| ModelRow {
            provider: provider.map(str::to_owned),
            ..ModelRow::named(model)
        };
        let rows = [row(Some("x"), "m"), row(None, "y/z")];
        assert!(name("a").is_among(&rows) && name("a/m").is_among(&rows));
        assert!(name("a/x/m").is_among(&rows) && name("a/y/z").is_among(&rows));
        assert!(!name("a/w/m").is_among(&rows) && !name("a/z").is_among(&rows));
    }
}
