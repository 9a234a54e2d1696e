//! What a client sets: the model of a session, how hard it thinks, and what is on its screen.
//!
//! Owns the keys of `config.get` and `config.set`, and which model is meant by a word. Must not know how
//! the client shows them.

use agentd_protocol::Id;
use agentd_protocol::line::Line;
use agentd_protocol::models::{ModelRow, full_name};
use agentd_protocol::request::work::SetModel;
use serde_json::{Value, json};

use super::commands::How;
use super::methods::scalar;
use super::turns::invalid;
use super::{BAD_VALUE, Begun, Call, Gateway, NO_SESSION, What, wire};
use crate::face::Outbox;
use crate::json_rpc::{Failure, params};

/// What is on the client's screen: kept while it is connected.
const SCREEN: &[&str] = &[
    "busy",
    "compact",
    "details_mode",
    "indicator",
    "mouse",
    "skin",
    "statusbar",
    "thinking_mode",
    "verbose",
];
/// Words to `reasoning` that are about the screen, too.
const SHOWN: &[&str] = &["show", "hide", "on", "off", "full", "clamp"];

/// What is to be set.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) session: String,
    key: &'static str,
    /// The model or level, as it was said.
    value: String,
    /// A provider that was named beside it.
    provider: Option<String>,
    how: How,
}

impl Choice {
    /// A model as people write it, with the flags of the TUI's own picker behind it.
    pub(super) fn model(session: &str, said: &str, how: How) -> Self {
        let mut words = said.split_whitespace();
        let (mut value, mut provider) = (String::new(), None);
        while let Some(word) = words.next() {
            match word {
                "--provider" => provider = words.next().map(str::to_owned),
                flag if flag.starts_with("--") => {}
                word if value.is_empty() => value = word.to_owned(),
                _ => {}
            }
        }
        Self {
            session: session.to_owned(),
            key: "model",
            value,
            provider,
            how,
        }
    }

    fn is(&self, row: &ModelRow) -> bool {
        let provider = row.provider.as_deref();
        if let Some(wanted) = self.provider.as_deref()
            && provider.is_some_and(|provider| provider != wanted)
        {
            return false;
        }
        let with_colon = || provider.map(|provider| format!("{provider}:{}", row.model));
        self.value == row.model
            || self.value == row.full_name()
            || Some(&self.value) == with_colon().as_ref()
    }

    /// What to set, among the models that the agent says it has, or as it was said.
    fn wanted(&self, rows: &[ModelRow]) -> SetModel {
        let (provider, model) = match rows.iter().find(|row| self.is(row)) {
            Some(row) => (row.provider.clone(), row.model.clone()),
            None => match (&self.provider, self.value.split_once('/')) {
                (None, Some((provider, model))) => (Some(provider.to_owned()), model.to_owned()),
                (provider, _) => (provider.clone(), self.value.clone()),
            },
        };
        SetModel {
            session: self.session.clone(),
            provider,
            model: Some(model),
            thinking: None,
            mode: None,
        }
    }
}

impl Gateway {
    pub(super) fn config(&self, given: &Value) -> Begun {
        let get: wire::ConfigGet = params(given.clone())?;
        let of: wire::OfSession = params(given.clone())?;
        let session = of.session_id.and_then(|name| self.sessions.get(&name));
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let value = match get.key.as_str() {
            "full" => json!({"config": {}}),
            "mtime" => json!({"mtime": 0}),
            "model" | "provider" => {
                let model = session.and_then(|one| one.model.as_deref());
                let provider = session.and_then(|one| one.provider.as_deref());
                let value = if get.key == "model" { model } else { provider };
                json!({"value": text(value), "model": text(model), "provider": text(provider),
                    "providers": []})
            }
            "reasoning" => {
                let level = session.and_then(|one| one.thinking.as_deref());
                json!({"value": text(level), "display": "show"})
            }
            "cwd" | "project" => {
                json!({"cwd": text(session.map(|one| &*one.cwd)), "branch": ""})
            }
            "profile" => json!({"home": "", "display": "agentd"}),
            "prompt" => json!({"prompt": ""}),
            key => {
                let kept = self.kept.get(key).cloned();
                json!({"value": kept.unwrap_or_else(|| json!(""))})
            }
        };
        Ok(Some(value))
    }

    pub(super) fn configure(&mut self, call: &Call, out: &mut Outbox) -> Begun {
        let set: wire::ConfigSet = params(call.params.clone())?;
        let of: wire::OfSession = params(call.params.clone())?;
        let value = set.value.unwrap_or_else(|| json!(""));
        let Some(said) = scalar(&value) else {
            return Err(invalid("`value` is neither a string, a number nor a bool"));
        };
        let key = set.key.as_str();
        let screen = key.split('.').next().unwrap_or(key);
        let is_level = key == "reasoning" && !SHOWN.contains(&said.as_str());
        if key == "model" || is_level {
            let session = of.session_id.unwrap_or_default();
            if !self.sessions.contains_key(&session) {
                if session.is_empty() {
                    let why = format!("`{key}` is a session's: `session_id` is needed");
                    return Err(Failure::new(NO_SESSION, why));
                }
                return self.look(call.clone(), &session, out);
            }
            if !value.is_string() {
                return Err(invalid(format!("`value` of `{key}` is not a string")));
            }
            if is_level {
                return self.think(&call.id, &session, &said, out);
            }
            let choice = Choice::model(&session, &said, How::Method);
            return self.choose(&call.id, choice, out);
        }
        match key {
            "yolo" | "approvals" | "approvals.mode" => Err(refused(
                "what an agent may do unasked is for its own configuration: `agentctl config` has it",
            )),
            "personality" | "prompt" => {
                Err(refused("who an agent is, is for its own configuration"))
            }
            "fast" => Err(refused(
                "agents have no such mode: /model takes a faster model",
            )),
            "cwd" | "project" => Err(refused("a session keeps its directory")),
            "provider" => Err(refused("set `model` to PROVIDER/MODEL")),
            _ if SCREEN.contains(&screen) || key == "reasoning" => {
                self.kept.insert(key.to_owned(), value.clone());
                Ok(Some(json!({"key": key, "value": value})))
            }
            _ => {
                let shown: String = key.chars().take(100).collect();
                Err(refused(&format!("unknown config key: {shown}")))
            }
        }
    }

    fn think(&mut self, id: &Id, session: &str, said: &str, out: &mut Outbox) -> Begun {
        let level = said.split_whitespace().find(|word| !word.starts_with("--"));
        let Some(level) = level else {
            return Err(refused("`value` is empty: expected a thinking level"));
        };
        let set = SetModel {
            session: session.to_owned(),
            provider: None,
            model: None,
            thinking: Some(level.to_owned()),
            mode: None,
        };
        let choice = Choice {
            session: session.to_owned(),
            key: "reasoning",
            value: level.to_owned(),
            provider: None,
            how: How::Method,
        };
        self.ask("set_model", &set, What::Set(id.clone(), choice), out);
        Ok(None)
    }

    /// A model is looked for among those of the agent: only they say which word is the provider's.
    pub(super) fn choose(&mut self, id: &Id, choice: Choice, out: &mut Outbox) -> Begun {
        if choice.value.is_empty() {
            return Err(refused(
                "`value` is empty: expected a model, or PROVIDER/MODEL",
            ));
        }
        let whose = json!({"session": choice.session});
        let what = What::Choosing(id.clone(), choice, Vec::new());
        self.ask("models", &whose, what, out);
        Ok(None)
    }

    pub(super) fn choosing(
        &mut self,
        (reply, choice, mut rows): (Id, Choice, Vec<ModelRow>),
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        // An agent that can't say what it has may still take it.
        if let Ok(Line::Models { models, next, .. }) = result {
            rows.extend(models);
            if let Some(after) = next {
                let whose = json!({"session": choice.session, "after": after});
                let what = What::Choosing(reply, choice, rows);
                return self.ask("models", &whose, what, out);
            }
        }
        let set = choice.wanted(&rows);
        self.ask("set_model", &set, What::Set(reply, choice), out);
    }

    pub(super) fn set(
        &mut self,
        reply: &Id,
        choice: &Choice,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let line = match result {
            Ok(line) => line,
            Err(failure) => return out.refuse(reply, &failure),
        };
        self.has_set(&choice.session, line);
        let known = self.sessions.get(&choice.session);
        let model = known.and_then(|known| {
            let model = known.model.as_deref()?;
            Some(full_name(known.provider.as_deref(), model))
        });
        let value = match choice.key {
            "model" => model.unwrap_or_else(|| choice.value.clone()),
            _ => choice.value.clone(),
        };
        let said = match choice.how {
            How::Method => json!({"key": choice.key, "value": value, "warning": "",
                "confirm_required": false, "confirm_message": "", "scope": "session"}),
            How::Command => json!({"type": "exec", "output": format!("model: {value}")}),
        };
        out.answer(reply, &said);
        self.tell_info(&choice.session, out);
    }

    /// What the daemon says that a session has now.
    pub(super) fn has_set(&mut self, session: &str, line: Line) {
        if let (
            Some(known),
            Line::SetModel {
                provider,
                model,
                thinking,
                ..
            },
        ) = (self.sessions.get_mut(session), line)
        {
            (known.provider, known.model) = (provider, model);
            known.thinking = thinking;
        }
    }

    /// All models that the session's agent has, by provider.
    pub(super) fn options(&mut self, id: &Id, given: Value, out: &mut Outbox) -> Begun {
        let of: wire::OfSession = params(given)?;
        let session = of
            .session_id
            .filter(|name| self.sessions.contains_key(name));
        self.ask_options(id.clone(), session, (Vec::new(), None), out);
        Ok(None)
    }

    fn ask_options(
        &mut self,
        id: Id,
        session: Option<String>,
        (rows, after): (Vec<ModelRow>, Option<u64>),
        out: &mut Outbox,
    ) {
        let mut whose = match (&session, &self.settings.agent) {
            (Some(session), _) => json!({"session": session}),
            (None, Some(agent)) => json!({"agent": agent}),
            (None, None) => json!({}),
        };
        if let Some(after) = after {
            whose["after"] = json!(after);
        }
        self.ask("models", &whose, What::Options(id, session, rows), out);
    }

    pub(super) fn have_options(
        &mut self,
        (reply, session, mut rows): (Id, Option<String>, Vec<ModelRow>),
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let agent = match result {
            Ok(Line::Models {
                models,
                next,
                agent,
                ..
            }) => {
                rows.extend(models);
                if next.is_some() {
                    return self.ask_options(reply, session, (rows, next), out);
                }
                agent
            }
            Ok(_) => return,
            Err(failure) => return out.refuse(&reply, &failure),
        };
        let known = session.and_then(|name| self.sessions.get(&name));
        let default = rows.iter().find(|row| row.default);
        let current = known.and_then(|known| known.model.clone());
        let current = current.or_else(|| default.map(|row| row.model.clone()));
        let mut providers: Vec<(String, Vec<&ModelRow>)> = Vec::new();
        for row in &rows {
            let name = row.provider.as_ref().unwrap_or(&agent);
            match providers.iter_mut().find(|(known, _)| known == name) {
                Some((_, models)) => models.push(row),
                None => providers.push((name.clone(), vec![row])),
            }
        }
        let providers = providers.iter().map(|(name, models)| {
            let names: Vec<&str> = models.iter().map(|row| row.model.as_str()).collect();
            let is_current = names.iter().any(|model| Some(*model) == current.as_deref());
            json!({"slug": name, "name": name, "models": names, "total_models": names.len(),
                "is_current": is_current, "authenticated": true})
        });
        let options = json!({"model": current.as_deref().unwrap_or_default(),
            "provider": known.and_then(|known| known.provider.clone()),
            "providers": providers.collect::<Vec<_>>()});
        out.answer(&reply, &options);
    }

    /// What the agent takes that was told no model.
    pub(super) fn have_models(&mut self, name: &str, line: Line, out: &mut Outbox) {
        let (Line::Models { models, .. }, Some(known)) = (line, self.sessions.get_mut(name)) else {
            return;
        };
        if let Some(row) = models.into_iter().find(|row| row.default)
            && known.model.is_none()
        {
            (known.provider, known.model) = (row.provider, Some(row.model));
            self.tell_info(name, out);
        }
    }
}

fn refused(why: &str) -> Failure {
    Failure::new(BAD_VALUE, why)
}
