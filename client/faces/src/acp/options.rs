//! What can be chosen in a session: the agent, its model, how hard it thinks, its mode.
//!
//! Owns the four options, what older clients have in their place, and which values there are. Must
//! not know how a choice is made to count.

use agentd_protocol::models::{ModeRow, ModelRow, full_name};

use super::failure::invalid;
use super::wire::{Choice, ConfigOption, Mode, Model, Models, Modes, Opened};
use crate::json_rpc::Failure;

pub(super) const AGENT: &str = "agent";
pub(super) const MODEL: &str = "model";
pub(super) const THINKING: &str = "thinking";
pub(super) const MODE: &str = "mode";
/// The level or mode of a session for which nobody chose one.
const UNCHOSEN: &str = "default";
/// Values that an error lists.
const SHOWN: usize = 12;

/// What a session offers.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Offer {
    /// Who can be chosen: nobody else once it has begun.
    pub(super) agents: Vec<String>,
    pub(super) agent: Option<String>,
    /// Empty where the agent doesn't say.
    pub(super) models: Vec<ModelRow>,
    /// What the next turn takes, as its value.
    model: Option<String>,
    pub(super) thinking: Option<String>,
    /// The agent's own; empty where it has none.
    modes: Vec<ModeRow>,
    mode: Option<String>,
}

/// A model, a level and a mode as `set_model` takes them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Setting {
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) mode: Option<String>,
}

/// What a choice asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Chosen {
    /// What is so already.
    Same,
    Agent(String),
    Setting(Setting),
}

impl Setting {
    /// Something of it is chosen anew.
    pub(super) fn change(&mut self, to: &Self) {
        if to.model.is_some() {
            (self.provider, self.model) = (to.provider.clone(), to.model.clone());
        }
        self.thinking.clone_from(&to.thinking);
        self.mode = to.mode.clone().or(self.mode.take());
    }
}

impl Offer {
    /// What the agent says it has; the default is what the session's next turn takes.
    pub(super) fn learn(&mut self, models: Vec<ModelRow>) {
        let default = models.iter().find(|row| row.default);
        self.model = default.map(ModelRow::full_name);
        self.models = models;
    }

    /// Its modes, and the one in force.
    pub(super) fn learn_modes(&mut self, modes: Vec<ModeRow>, mode: Option<String>) {
        (self.modes, self.mode) = (modes, mode);
    }

    /// The agent works in this mode from now on.
    pub(super) fn works_in(&mut self, mode: String) {
        self.mode = Some(mode);
    }

    /// As clients from before options know it: the mode, or the agent of one that has no modes.
    pub(super) fn current_mode(&self) -> Option<String> {
        match self.modes.is_empty() {
            true => self.agent.clone(),
            false => Some(self.mode.clone().unwrap_or_else(|| UNCHOSEN.to_owned())),
        }
    }

    /// Which option such a client means by a mode.
    pub(super) fn option_of_mode(&self, wanted: &str) -> &'static str {
        let is_mode = self.modes_offered().iter().any(|row| row.id == wanted);
        if is_mode { MODE } else { AGENT }
    }

    /// Nothing is known of the models of another agent.
    pub(super) fn of_agent(&mut self, agent: String) {
        *self = Self {
            agents: std::mem::take(&mut self.agents),
            agent: Some(agent),
            ..Self::default()
        };
    }

    /// A setting counts from now on.
    pub(super) fn set(&mut self, setting: Setting) {
        self.mode = setting.mode.or(self.mode.take());
        if let Some(model) = setting.model {
            self.model = Some(full_name(setting.provider.as_deref(), &model));
        }
        self.thinking = setting.thinking;
    }

    /// What can be chosen here of what was chosen before, with another agent or in another session.
    pub(super) fn again(&self, before: &Setting) -> Option<Setting> {
        let mut again = Setting::default();
        let named = before.model.as_deref();
        let named = named.map(|model| full_name(before.provider.as_deref(), model));
        let is_it = |row: &&ModelRow| Some(row.full_name()) == named;
        if let Some(row) = self.models.iter().find(is_it) {
            (again.provider, again.model) = (row.provider.clone(), Some(row.model.clone()));
            let levels = row.thinking.as_deref().unwrap_or_default();
            let level = before.thinking.clone();
            again.thinking = level.filter(|level| levels.contains(level));
        }
        let is_mode = |mode: &String| self.modes.iter().any(|row| row.id == *mode);
        again.mode = before.mode.clone().filter(is_mode);
        (again != Setting::default()).then_some(again)
    }

    fn row(&self) -> Option<&ModelRow> {
        let model = self.model.as_ref()?;
        self.models.iter().find(|row| row.full_name() == *model)
    }

    /// The levels of the model in force.
    fn levels(&self) -> Vec<String> {
        let levels = self.row().and_then(|row| row.thinking.clone());
        let mut levels = levels.unwrap_or_default();
        if levels.is_empty() {
            return levels;
        }
        match &self.thinking {
            // It can't be taken back: another one takes its place.
            Some(level) if levels.contains(level) => {}
            Some(level) => levels.insert(0, level.clone()),
            None if levels.iter().any(|level| level == UNCHOSEN) => {}
            None => levels.insert(0, UNCHOSEN.to_owned()),
        }
        levels
    }

    /// The options, each with all of its values.
    pub(super) fn options(&self) -> Vec<ConfigOption> {
        let option = |id, name, category, current_value, options| ConfigOption {
            id,
            name,
            category,
            kind: "select",
            current_value,
            options,
        };
        let plain = |value: String| Choice {
            name: value.clone(),
            value,
        };
        let mut all = Vec::new();
        if let Some(agent) = &self.agent {
            let agents = self.agents_offered().into_iter().map(plain).collect();
            // Not `mode`, which is the agent's own.
            all.push(option(AGENT, "Agent", "_agent", agent.clone(), agents));
        }
        if let Some(model) = &self.model {
            let models = self.models.iter().map(|row| Choice {
                value: row.full_name(),
                name: row.label.clone().unwrap_or_else(|| row.full_name()),
            });
            all.push(option(
                MODEL,
                "Model",
                "model",
                model.clone(),
                models.collect(),
            ));
        }
        let levels = self.levels();
        if !levels.is_empty() {
            let current = self.thinking.clone().unwrap_or_else(|| UNCHOSEN.to_owned());
            let levels = levels.into_iter().map(plain).collect();
            all.push(option(
                THINKING,
                "Thinking",
                "thought_level",
                current,
                levels,
            ));
        }
        let modes = self.modes_offered();
        if let Some(current) = self.current_mode().filter(|_| !modes.is_empty()) {
            let modes = modes.into_iter().map(|row| Choice {
                name: row.label.unwrap_or_else(|| row.id.clone()),
                value: row.id,
            });
            all.push(option(MODE, "Mode", "mode", current, modes.collect()));
        }
        all
    }

    /// With the one in force, which may be one that can't be chosen.
    fn modes_offered(&self) -> Vec<ModeRow> {
        let mut modes = self.modes.clone();
        let current = self.current_mode().filter(|_| !modes.is_empty());
        if let Some(current) = current.filter(|it| !modes.iter().any(|row| row.id == *it)) {
            modes.insert(0, ModeRow::named(current));
        }
        modes
    }

    fn agents_offered(&self) -> Vec<String> {
        let mut agents = self.agents.clone();
        if let Some(agent) = self.agent.as_ref().filter(|agent| !agents.contains(agent)) {
            agents.insert(0, agent.clone());
        }
        agents
    }

    /// All of it, for clients of any age.
    pub(super) fn opened(&self) -> Opened {
        let models = self.model.as_ref().map(|current| Models {
            available_models: (self.models.iter())
                .map(|row| Model {
                    model_id: row.full_name(),
                    name: row.label.clone().unwrap_or_else(|| row.full_name()),
                })
                .collect(),
            current_model_id: current.clone(),
        });
        let mut rows = self.modes_offered();
        if rows.is_empty() {
            rows = (self.agents_offered().into_iter())
                .map(ModeRow::named)
                .collect();
        }
        let modes = self.current_mode().map(|current_mode_id| Modes {
            available_modes: (rows.into_iter())
                .map(|row| Mode {
                    name: row.label.unwrap_or_else(|| row.id.clone()),
                    id: row.id,
                    description: row.description,
                })
                .collect(),
            current_mode_id,
        });
        Opened {
            session_id: None,
            config_options: Some(self.options()),
            models,
            modes,
        }
    }

    /// What a choice asks for; of one that isn't offered, an error that says what is.
    pub(super) fn choose(&self, option: &str, wanted: &str) -> Result<Chosen, Failure> {
        match option {
            AGENT => self.choose_agent(wanted),
            MODEL => self.choose_model(wanted),
            THINKING => self.choose_thinking(wanted),
            MODE => self.choose_mode(wanted),
            _ => Err(invalid(format!(
                "there is no option `{option}`: expected {AGENT}, {MODEL}, {THINKING} or {MODE}"
            ))),
        }
    }

    fn choose_agent(&self, wanted: &str) -> Result<Chosen, Failure> {
        if self.agent.as_deref() == Some(wanted) {
            return Ok(Chosen::Same);
        }
        match self.agents.iter().any(|agent| agent == wanted) {
            true => Ok(Chosen::Agent(wanted.to_owned())),
            false => Err(unoffered("agent", wanted, self.agents_offered())),
        }
    }

    fn choose_model(&self, wanted: &str) -> Result<Chosen, Failure> {
        if self.model.as_deref() == Some(wanted) {
            return Ok(Chosen::Same);
        }
        let whole = self.models.iter().find(|row| row.full_name() == wanted);
        // Who types it may leave the provider out.
        let mut bare = self.models.iter().filter(|row| row.model == wanted);
        let bare = bare.next().filter(|_| bare.next().is_none());
        let Some(row) = whole.or(bare) else {
            let values = self.models.iter().map(ModelRow::full_name).collect();
            return Err(unoffered("model", wanted, values));
        };
        if Some(row.full_name()) == self.model {
            return Ok(Chosen::Same);
        }
        Ok(Chosen::Setting(Setting {
            provider: row.provider.clone(),
            model: Some(row.model.clone()),
            ..Setting::default()
        }))
    }

    fn choose_thinking(&self, wanted: &str) -> Result<Chosen, Failure> {
        let current = self.thinking.as_deref().unwrap_or(UNCHOSEN);
        let levels = self.levels();
        match self.row() {
            Some(_) if current == wanted && !levels.is_empty() => Ok(Chosen::Same),
            Some(row) if levels.iter().any(|level| level == wanted) => {
                Ok(Chosen::Setting(Setting {
                    provider: row.provider.clone(),
                    model: Some(row.model.clone()),
                    thinking: Some(wanted.to_owned()),
                    mode: None,
                }))
            }
            Some(_) | None => Err(unoffered("thinking level", wanted, levels)),
        }
    }

    fn choose_mode(&self, wanted: &str) -> Result<Chosen, Failure> {
        let offered = self.modes_offered();
        let is_offered = offered.iter().any(|row| row.id == wanted);
        if is_offered && self.current_mode().as_deref() == Some(wanted) {
            return Ok(Chosen::Same);
        }
        if !is_offered {
            let ids = offered.into_iter().map(|row| row.id).collect();
            return Err(unoffered("mode", wanted, ids));
        }
        Ok(Chosen::Setting(Setting {
            mode: Some(wanted.to_owned()),
            ..Setting::default()
        }))
    }
}

fn unoffered(what: &str, wanted: &str, offered: Vec<String>) -> Failure {
    let wanted: String = wanted.chars().take(200).collect();
    if offered.is_empty() {
        return invalid(format!("there is no choice of a {what}: found `{wanted}`"));
    }
    let more = offered.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = offered.into_iter().take(SHOWN).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    invalid(format!(
        "there is no {what} `{wanted}`: expected one of {}",
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn offer() -> Offer {
        let models = json!([
            {"provider": "p", "model": "one", "label": "One", "thinking": ["low", "high"], "context_window": 100, "default": true},
            {"provider": "p", "model": "two", "default": false},
            {"model": "three", "default": false},
        ]);
        let mut offer = Offer {
            agents: vec!["pi".to_owned(), "timmy".to_owned()],
            agent: Some("pi".to_owned()),
            ..Offer::default()
        };
        offer.learn(serde_json::from_value(models).unwrap());
        offer
    }

    /// What is empty isn't set.
    fn setting(provider: &str, model: &str, thinking: &str) -> Setting {
        let word = |word: &str| Some(word.to_owned()).filter(|word| !word.is_empty());
        Setting {
            provider: word(provider),
            model: word(model),
            thinking: word(thinking),
            mode: None,
        }
    }

    /// Of what was chosen under another agent this one keeps what it offers itself.
    #[test]
    fn acp_choice_is_kept_where_it_is_offered() {
        let mut offer = offer();
        let rows = json!([{"id": "plan"}]);
        offer.learn_modes(serde_json::from_value(rows).unwrap(), None);
        let mut chosen = setting("p", "one", "high");
        chosen.mode = Some("plan".to_owned());
        assert_eq!(offer.again(&chosen), Some(chosen));
        let no_level = Some(setting("p", "two", ""));
        assert_eq!(offer.again(&setting("p", "two", "high")), no_level);
        assert_eq!(offer.again(&setting("q", "one", "high")), None);
        assert_eq!(offer.again(&Setting::default()), None);
    }

    fn current(offer: &Offer) -> Vec<(&'static str, String)> {
        let options = offer.options().into_iter();
        options
            .map(|option| (option.id, option.current_value))
            .collect()
    }

    #[test]
    fn acp_options_have_a_value_that_is_offered() {
        let mut offer = offer();
        let at_first = [
            ("agent", "pi".to_owned()),
            ("model", "p/one".to_owned()),
            ("thinking", "default".to_owned()),
        ];
        assert_eq!(current(&offer), at_first);
        offer.set(setting("p", "one", "high"));
        assert_eq!(current(&offer)[2], ("thinking", "high".to_owned()));
        for option in offer.options() {
            let values: Vec<&String> = option.options.iter().map(|one| &one.value).collect();
            assert!(values.contains(&&option.current_value), "{option:?}");
            assert!(!values.contains(&&"default".to_owned()), "{option:?}");
        }
        // A level that counted elsewhere is shown until another one is chosen.
        offer.set(setting("p", "one", "max"));
        let levels = offer.options().remove(2);
        assert!(
            levels
                .options
                .iter()
                .any(|one| one.value == levels.current_value)
        );
        // That model has no levels.
        offer.set(setting("", "three", "high"));
        assert_eq!(current(&offer).len(), 2);
    }

    #[test]
    fn acp_options_have_the_agents_own_modes() {
        let mut offer = offer();
        let rows = json!([{"id": "ask", "label": "Ask"}, {"id": "plan", "description": "Plans"}]);
        offer.learn_modes(
            serde_json::from_value(rows).unwrap(),
            Some("ask".to_owned()),
        );
        let mode = offer.options().pop().unwrap();
        assert_eq!(
            (mode.id, mode.category, &*mode.current_value),
            ("mode", "mode", "ask")
        );
        let categories = offer.options().into_iter().map(|option| option.category);
        assert_eq!(categories.filter(|category| *category == "mode").count(), 1);
        let modes = offer.opened().modes.unwrap();
        assert_eq!(
            (&*modes.current_mode_id, modes.available_modes.len()),
            ("ask", 2)
        );
        assert_eq!(offer.option_of_mode("plan"), MODE);
        assert_eq!(offer.option_of_mode("timmy"), AGENT);
        assert_eq!(offer.choose(MODE, "ask").unwrap(), Chosen::Same);
        let plan = Setting {
            mode: Some("plan".to_owned()),
            ..Setting::default()
        };
        assert_eq!(offer.choose(MODE, "plan").unwrap(), Chosen::Setting(plan));
        let why = offer.choose(MODE, "yolo").unwrap_err().message;
        assert!(why.contains("expected one of ask, plan"), "{why}");
        // One that only its owner chose is shown.
        offer.works_in("yolo".to_owned());
        let mode = offer.options().pop().unwrap();
        assert_eq!((&*mode.current_value, mode.options.len()), ("yolo", 3));
    }

    #[test]
    fn acp_options_of_an_older_kind_agree() {
        let opened = offer().opened();
        let (models, modes) = (opened.models.unwrap(), opened.modes.unwrap());
        assert_eq!(models.current_model_id, "p/one");
        assert_eq!(models.available_models[0].name, "One");
        assert_eq!(models.available_models[2].model_id, "three");
        assert_eq!(modes.current_mode_id, "pi");
    }

    #[test]
    fn acp_options_take_what_they_offer() {
        let offer = offer();
        let setting = |provider: &str, model: &str, thinking: &str| {
            Ok(Chosen::Setting(setting(provider, model, thinking)))
        };
        for (option, wanted, expected) in [
            ("agent", "pi", Ok(Chosen::Same)),
            ("agent", "timmy", Ok(Chosen::Agent("timmy".to_owned()))),
            ("agent", "x", Err("expected one of pi, timmy")),
            ("model", "p/one", Ok(Chosen::Same)),
            ("model", "one", Ok(Chosen::Same)),
            ("model", "p/two", setting("p", "two", "")),
            ("model", "three", setting("", "three", "")),
            ("model", "four", Err("expected one of p/one, p/two, three")),
            ("thinking", "default", Ok(Chosen::Same)),
            ("thinking", "low", setting("p", "one", "low")),
            ("thinking", "max", Err("expected one of default, low, high")),
            ("colour", "red", Err("no option `colour`")),
        ] {
            match (offer.choose(option, wanted), expected) {
                (Err(failure), Err(why)) => {
                    assert!(failure.message.contains(why), "{failure:?}");
                    assert_eq!(failure.code, -32602);
                }
                (found, expected) => assert_eq!(
                    found.map_err(|why| why.message),
                    expected.map_err(str::to_owned)
                ),
            }
        }
        let nothing = Offer::default().choose("model", "x").unwrap_err();
        assert!(
            nothing.message.contains("no choice of a model"),
            "{nothing:?}"
        );
    }
}
