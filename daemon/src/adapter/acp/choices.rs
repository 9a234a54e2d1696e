//! What a session offers to choose from: models, thinking levels and modes.
//!
//! Owns both ways of ACP to offer them: `models` with `session/set_model`, `modes` with
//! `session/set_mode`, and the newer `configOptions` with `session/set_config_option`. Must not know when one is set.

use agentd_core::store::Pins;
use agentd_protocol::models::{ModeRow, ModelRow};
use serde_json::Value;

use super::wire;
use crate::adapter::object::Object;

/// Values of one choice that are looked at.
const VALUES: usize = 10_000;
/// Values that are listed for a person.
const SHOWN: usize = 12;
/// Longer lists of models are not passed on, in bytes: each process has one.
const MODELS: usize = 64 * 1024;
/// Longest name of a value, in bytes.
const NAME: usize = 256;

/// One thing to choose.
#[derive(Debug, Default)]
struct Choice {
    /// The option's id, unless it is set by `session/set_model` or `session/set_mode`.
    option: Option<String>,
    current: Option<String>,
    values: Vec<String>,
    /// What people call each of them, where that is something else.
    labels: Vec<Option<String>>,
}

/// All that is offered.
#[derive(Debug, Default)]
pub(super) struct Offer {
    model: Option<Choice>,
    thinking: Option<Choice>,
    mode: Option<Choice>,
    /// The modes as people read them.
    modes: Vec<ModeRow>,
}

/// What can be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Model,
    Thinking,
    Mode,
}

/// Why something can't be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unoffered {
    /// Nothing of the kind can be chosen.
    Choice,
    /// These can.
    Value(String),
}

/// One value to be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Setting {
    option: Option<String>,
    pub(super) value: String,
    what: What,
}

impl Setting {
    /// Is it this one?
    pub(super) fn is(&self, what: What, value: Option<&str>) -> bool {
        self.what == what && Some(self.value.as_str()) == value
    }

    pub(super) fn request(&self, session: &str) -> (&'static str, Value) {
        match (&self.option, self.what) {
            (Some(option), _) => (
                "session/set_config_option",
                wire::set_config_option(session, option, &self.value),
            ),
            (None, What::Mode) => ("session/set_mode", wire::set_mode(session, &self.value)),
            (None, What::Model | What::Thinking) => {
                ("session/set_model", wire::set_model(session, &self.value))
            }
        }
    }
}

/// A name of reasonable length.
fn named(object: &Object<'_>, field: &str) -> Option<String> {
    object.string(field).filter(|name| name.len() <= NAME)
}

fn option(options: &[Object<'_>], category: &str) -> Option<Choice> {
    let found = options.iter().find(|option| {
        option.string("category").as_deref() == Some(category) && option.raw("options").is_some()
    })?;
    let (values, labels) = values(found).into_iter().unzip();
    Some(Choice {
        option: Some(named(found, "id")?),
        current: named(found, "currentValue"),
        values,
        labels,
    })
}

/// The modes of the older kind.
fn modes(result: &Object<'_>) -> Option<(Choice, Vec<ModeRow>)> {
    let modes = result.object("modes")?;
    let offered = modes.objects("availableModes");
    let current = named(&modes, "currentModeId");
    Some(mode(None, current, &offered, "id"))
}

/// The option that is the modes.
fn mode_option(options: &[Object<'_>]) -> Option<(Choice, Vec<ModeRow>)> {
    let found = options
        .iter()
        .find(|option| option.string("category").as_deref() == Some("mode"))?;
    let offered = found.objects("options");
    let current = named(found, "currentValue");
    Some(mode(Some(named(found, "id")?), current, &offered, "value"))
}

fn mode(
    option: Option<String>,
    current: Option<String>,
    offered: &[Object<'_>],
    id: &str,
) -> (Choice, Vec<ModeRow>) {
    let row = |one: &Object<'_>| {
        let id = named(one, id)?;
        let row = ModeRow {
            label: named(one, "name").filter(|label| *label != id),
            description: one.string("description"),
            id,
        };
        row.fitting()
    };
    let rows: Vec<ModeRow> = offered.iter().filter_map(row).take(ModeRow::MOST).collect();
    let choice = Choice {
        option,
        current,
        values: rows.iter().map(|row| row.id.clone()).collect(),
        labels: Vec::new(),
    };
    (choice, rows)
}

fn models(result: &Object<'_>) -> Option<Choice> {
    let models = result.object("models")?;
    let offered = models.objects("availableModels").into_iter().take(VALUES);
    let offered = offered.filter_map(|model| labelled(&model, named(&model, "modelId")?));
    let (values, labels) = offered.unzip();
    Some(Choice {
        option: None,
        current: named(&models, "currentModelId"),
        values,
        labels,
    })
}

/// Options come plain or in groups.
fn values(option: &Object<'_>) -> Vec<(String, Option<String>)> {
    let all = option.objects("options").into_iter().flat_map(|one| {
        let grouped = one.objects("options");
        if grouped.is_empty() {
            vec![one]
        } else {
            grouped
        }
    });
    all.filter_map(|one| labelled(&one, one.string("value")?))
        .take(VALUES)
        .collect()
}

/// A value with what people call it.
fn labelled(one: &Object<'_>, value: String) -> Option<(String, Option<String>)> {
    let label = named(one, "name").filter(|label| *label != value);
    Some((value, label))
}

impl Choice {
    /// Are these all? An agent that names each model with its provider, as opencode does, lists what
    /// it is configured for. Others list a few: Gemini CLI takes names that it doesn't list.
    fn is_complete(&self) -> bool {
        !self.values.is_empty() && self.values.iter().all(|value| value.contains('/'))
    }
}

impl Offer {
    /// Reads the answer to `session/new`, `session/load` or `session/set_config_option`, or an
    /// update of the options or of the mode: what it doesn't speak of stays.
    pub(super) fn learn(&mut self, result: &Object<'_>) {
        // Who has options says there all that can be chosen.
        let has_options = result.raw("configOptions").is_some();
        if let Some((choice, rows)) = modes(result).filter(|_| !has_options) {
            (self.mode, self.modes) = (Some(choice), rows);
        }
        if let (Some(mode), Some(choice)) = (named(result, "currentModeId"), &mut self.mode) {
            choice.current = Some(mode);
        }
        if has_options {
            let options = result.objects("configOptions");
            // All options come each time, so one that isn't among them is gone: another model may
            // have no levels.
            self.thinking = option(&options, "thought_level");
            let (mode, modes) = mode_option(&options).unzip();
            (self.mode, self.modes) = (mode, modes.unwrap_or_default());
            if let Some(model) = option(&options, "model") {
                self.model = Some(model);
                return;
            }
        }
        if let Some(models) = models(result) {
            self.model = Some(models);
        }
    }

    /// The agent took a value.
    pub(super) fn set(&mut self, setting: &Setting) {
        let choice = match setting.what {
            What::Model => &mut self.model,
            What::Thinking => &mut self.thinking,
            What::Mode => &mut self.mode,
        };
        if let Some(choice) = choice {
            choice.current = Some(setting.value.clone());
        }
    }

    pub(super) fn model(&self) -> Option<String> {
        self.model.as_ref()?.current.clone()
    }

    pub(super) fn thinking(&self) -> Option<String> {
        self.thinking.as_ref()?.current.clone()
    }

    pub(super) fn mode(&self) -> Option<String> {
        self.mode.as_ref()?.current.clone()
    }

    /// Its modes as people read them.
    pub(super) fn modes(&self) -> Vec<ModeRow> {
        self.modes.clone()
    }

    /// What it says of one of them.
    pub(super) fn mode_row(&self, mode: &str) -> Option<&ModeRow> {
        self.modes.iter().find(|row| row.id == mode)
    }

    /// All models, where all are listed.
    pub(super) fn models(&self) -> Option<Vec<String>> {
        let choice = self.model.as_ref().filter(|choice| choice.is_complete())?;
        let bytes: usize = choice.values.iter().map(String::len).sum();
        // All or nothing: a list that is cut would make models refused that there are.
        (bytes <= MODELS).then(|| choice.values.clone())
    }

    /// What a pinned model is called here.
    pub(super) fn named(&self, pins: &Pins) -> Option<String> {
        let model = pins.model.as_ref()?;
        match &pins.provider {
            Some(provider) => self.model.as_ref()?.under(provider, model),
            None => Some(self.called(model)),
        }
    }

    /// The value behind a name without a provider. An agent may put one in front of it by itself, as
    /// Hermes does, which builds its session anew, without its MCP servers, to set what it has.
    fn called(&self, model: &str) -> String {
        let current = self.model.as_ref().and_then(|choice| {
            let current = choice.current.as_ref()?;
            let bare = current.split_once(':').map(|(_, bare)| bare);
            (bare == Some(model) && !choice.values.iter().any(|value| value == model))
                .then_some(current)
        });
        current.map_or(model, String::as_str).to_owned()
    }

    /// The models as they can be asked for, with the one that turns have which name none. The levels
    /// offered are those of the model in force.
    pub(super) fn rows(&self, usual: Option<&str>) -> Option<Vec<ModelRow>> {
        let choice = self.model.as_ref()?;
        let whole = choice.is_complete();
        let levels = self.thinking.as_ref().map(|levels| levels.values.clone());
        let row = |(value, label): (&String, &Option<String>)| {
            let split = value.split_once('/').filter(|_| whole);
            ModelRow {
                provider: split.map(|(provider, _)| provider.to_owned()),
                model: split.map_or(value.as_str(), |(_, model)| model).to_owned(),
                label: label.clone(),
                thinking: levels
                    .clone()
                    .filter(|_| choice.current.as_ref() == Some(value)),
                default: usual == Some(value),
                ..ModelRow::default()
            }
        };
        let mut rows: Vec<ModelRow> = choice.values.iter().zip(&choice.labels).map(row).collect();
        // Gemini CLI has models that it doesn't list.
        if let Some(usual) = usual.filter(|usual| !choice.values.iter().any(|it| it == usual)) {
            let usual = ModelRow {
                default: true,
                ..ModelRow::named(usual)
            };
            rows.insert(0, usual);
        }
        Some(rows)
    }

    /// How this model is set: nothing if it is the current one. Where all models are listed it is one
    /// of them: such an agent takes any name, and fails each turn then.
    pub(super) fn choose_model(
        &self,
        provider: Option<&str>,
        model: &str,
    ) -> Result<Option<Setting>, Unoffered> {
        let choice = self.model.as_ref().ok_or(Unoffered::Choice)?;
        let value = match provider {
            Some(provider) => choice.under(provider, model),
            None => Some(self.called(model)),
        };
        let listed = |value: &String| !choice.is_complete() || choice.values.contains(value);
        let value = value.filter(listed).ok_or_else(|| choice.without())?;
        Ok(choice.setting(value, What::Model))
    }

    /// Are models named by this provider?
    pub(super) fn names(&self, provider: &str) -> bool {
        let model = self.model.as_ref();
        model.is_some_and(|choice| choice.under(provider, "").is_some())
    }

    /// How the model that was there at first is set again.
    pub(super) fn usual_model(&self, model: &str) -> Option<Setting> {
        self.model.as_ref()?.setting(model.to_owned(), What::Model)
    }

    /// How this thinking level is set.
    pub(super) fn choose_thinking(&self, level: &str) -> Result<Option<Setting>, Unoffered> {
        let choice = self.thinking.as_ref().ok_or(Unoffered::Choice)?;
        choice.choose(level, What::Thinking)
    }

    /// How this mode is set.
    pub(super) fn choose_mode(&self, mode: &str) -> Result<Option<Setting>, Unoffered> {
        let choice = self.mode.as_ref().ok_or(Unoffered::Choice)?;
        choice.choose(mode, What::Mode)
    }
}

impl Choice {
    /// A provider's model, as models are named here: `provider/model` or `provider:model`.
    fn under(&self, provider: &str, model: &str) -> Option<String> {
        let prefixes = ["/", ":"].map(|separator| format!("{provider}{separator}"));
        let named = |prefix: &&String| self.values.iter().any(|value| value.starts_with(*prefix));
        let prefix = prefixes.iter().find(named)?;
        // The name may have it already.
        let whole = model.starts_with(prefix.as_str());
        let value = if whole { "" } else { prefix };
        Some(format!("{value}{model}"))
    }

    fn without(&self) -> Unoffered {
        let shown = self.values.iter().take(SHOWN).map(String::as_str);
        Unoffered::Value(shown.collect::<Vec<_>>().join(", "))
    }

    /// How one of its values is set, and no other.
    fn choose(&self, wanted: &str, what: What) -> Result<Option<Setting>, Unoffered> {
        let value = self.values.iter().find(|value| *value == wanted);
        let value = value.ok_or_else(|| self.without())?;
        Ok(self.setting(value.clone(), what))
    }

    fn setting(&self, value: String, what: What) -> Option<Setting> {
        (self.current.as_ref() != Some(&value)).then(|| Setting {
            option: self.option.clone(),
            value,
            what,
        })
    }
}
