//! What is said when there is no model to ask, or when several could be meant.
//!
//! Owns the words. Every command in them exists.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use serde_json::{Value, json};

use super::local::Server;
use super::read::Places;
use crate::provider::table::ALL;

/// Variables that are named in the message; `provider list` shows the rest.
const SHOWN: usize = 4;

/// A model that nobody chose and that could answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Whose.
    pub(crate) provider: String,
    /// Which, where one is known.
    pub(crate) model: Option<String>,
    /// By what it was found.
    pub(crate) by: String,
}

/// What was looked for, and what was there.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Looked {
    /// Providers whose key is there.
    pub(crate) has_key: usize,
    /// Who could answer.
    pub(crate) candidates: Vec<Candidate>,
    /// The servers that were asked.
    pub(crate) servers: Vec<Server>,
    /// Providers that only the configuration knows.
    pub(crate) own: Vec<String>,
}

/// How people run the commands that are named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CalledAs {
    /// Through the daemon's command line.
    Agentctl,
    /// By themselves.
    Timmy,
}

impl CalledAs {
    /// The program's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Agentctl => "agentctl",
            Self::Timmy => "timmy",
        }
    }

    /// How a turn is tried without a model, and what else can be done without one.
    const fn without_model(self) -> &'static [(&'static str, &'static str)] {
        const ECHO: &str = "try a turn without a key: the provider `echo` says it back";
        match self {
            Self::Agentctl => &[
                ("agentctl send --provider echo hello", ECHO),
                ("agentctl demo", "try the installation without any model"),
            ],
            Self::Timmy => &[("timmy --provider echo -p hello", ECHO)],
        }
    }
}

/// What to do about it: a command, and what it is for.
type Remedy = (String, &'static str);

impl Looked {
    /// The refusal, for people.
    pub(crate) fn rejected(&self, places: &Places, called: CalledAs) -> Rejected {
        let steps = self.next(called);
        let width = steps.iter().map(|(command, _)| command.len()).max();
        let width = width.unwrap_or(0);
        let mut hint = "do one of:".to_owned();
        for (command, what) in steps {
            hint.push_str(&format!("\n  {command:width$}  {what}"));
        }
        let error = if self.candidates.is_empty() {
            let looked: Vec<String> = self
                .checked(places)
                .into_iter()
                .map(|(what, found)| format!("\n{what}: {found}"))
                .collect();
            format!(
                "No model is configured, so nothing was run. Looked for{}",
                looked.concat()
            )
        } else {
            let all: Vec<String> = self.candidates.iter().map(shown).collect();
            format!(
                "No model is chosen, and several could answer, so nothing was run: {}",
                all.join(", ")
            )
        };
        let error = match &self.candidates[..] {
            [one] => format!(
                "No model is chosen, so nothing was run: there is {}, of which no usual model is known",
                shown(one)
            ),
            _ => error,
        };
        Rejected::new(Code::NoModel, error).hint(hint)
    }

    /// The same for programs.
    pub(crate) fn machine(&self, places: &Places, called: CalledAs) -> Value {
        let checked = self.checked(places).into_iter();
        let checked: Vec<Value> = checked
            .map(|(what, found)| json!({"what": what, "found": found}))
            .collect();
        let steps = self.next(called).into_iter();
        let next: Vec<Value> = steps
            .map(|(command, what)| json!({"command": command, "what": what}))
            .collect();
        let candidates = self
            .candidates
            .iter()
            .map(|one| json!({"provider": one.provider, "model": one.model, "by": one.by}));
        let candidates: Vec<Value> = candidates.collect();
        json!({"checked": checked, "candidates": candidates, "next": next})
    }

    fn checked(&self, places: &Places) -> Vec<(&'static str, String)> {
        let file = places.config.display();
        let found = if places.config.exists() {
            format!("{file} (no `default` under `[models]`)")
        } else {
            format!("{file} (not there)")
        };
        let mut variables: Vec<&str> = Vec::new();
        for row in ALL.iter().filter(|row| !row.local) {
            variables.extend(row.key_variables.first());
        }
        // Houses that share a variable stand beside each other in the table.
        variables.dedup();
        let more = variables.len().saturating_sub(SHOWN);
        let set = match self.has_key {
            0 => "none is set".to_owned(),
            count => format!("{count} set"),
        };
        let keys = format!("{} and {more} more ({set})", variables[..SHOWN].join(", "));
        let servers = self.servers.iter().map(|server| match &server.models {
            Ok(models) if models.is_empty() => format!("{} (no models)", server.at),
            Ok(_) => format!("{} (answers)", server.at),
            Err(_) => format!("{} (no answer)", server.at),
        });
        let servers: Vec<String> = servers.collect();
        let mut checked = vec![("configuration", found), ("keys", keys)];
        if !servers.is_empty() {
            checked.push(("servers on this machine", servers.join(", ")));
        }
        checked
    }

    fn next(&self, called: CalledAs) -> Vec<Remedy> {
        let name = called.name();
        let mut steps: Vec<Remedy> = Vec::new();
        for one in &self.candidates {
            let model = one.model.as_deref().unwrap_or("MODEL");
            let command = format!("{name} models default {}/{model}", one.provider);
            steps.push((command, "choose this one"));
        }
        if self.candidates.is_empty() {
            for provider in &self.own {
                let command = format!("{name} models default {provider}/MODEL");
                steps.push((command, "with a model of the provider that is configured"));
            }
            steps.push((
                format!("{name} provider add gemini"),
                "store a key, which is typed unseen; the name of any provider will do",
            ));
            steps.push((
                format!("{name} models default ollama/MODEL"),
                "with a server of models that runs on this machine",
            ));
        }
        steps.push((
            format!("{name} provider list"),
            "the providers, and whose key is there",
        ));
        if called == CalledAs::Agentctl {
            steps.push((
                "agentctl agents".to_owned(),
                "other agents that could answer",
            ));
        }
        let without = called.without_model().iter();
        steps.extend(without.map(|(command, what)| ((*command).to_owned(), *what)));
        steps
    }
}

fn shown(one: &Candidate) -> String {
    match &one.model {
        Some(model) => format!("{}/{model} ({})", one.provider, one.by),
        None => format!("{} ({})", one.provider, one.by),
    }
}
