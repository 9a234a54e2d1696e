//! `models`: what an agent can be asked with.
//!
//! Owns the request, its rows and how long they may be. Must not know any agent.

use serde::{Deserialize, Serialize};

use crate::check::{check_session, check_words};
use crate::envelope::{Checked, Rejected, invalid};

/// `models`: which models an agent has, or that of a session.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Models {
    /// Whose; without, and without a session, the one that a send would go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// That of this session; the default is what its next turn takes then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

impl Checked for Models {
    fn check(&self) -> Result<(), Rejected> {
        self.session.as_deref().map_or(Ok(()), check_session)?;
        check_words(&[("agent", &self.agent)])?;
        if self.agent.is_some() && self.session.is_some() {
            let error = "`agent` and `session` are given: expected one of them, or neither";
            return Err(invalid(error));
        }
        Ok(())
    }
}

/// A model as its agent tells it. `provider` and `model` are what a `send` takes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct ModelRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    #[serde(default)]
    pub default: bool,
}

/// A model as people write it: `PROVIDER/MODEL`, or its name alone.
#[must_use]
pub fn full_name(provider: Option<&str>, model: &str) -> String {
    match provider {
        Some(provider) => format!("{provider}/{model}"),
        None => model.to_owned(),
    }
}

impl ModelRow {
    /// Longest name of a model or a provider in bytes, as of a send's.
    pub const LONGEST_NAME: usize = 256;
    /// Levels or kinds of input that are listed: those of any agent are fewer.
    pub const MOST_WORDS: usize = 32;

    /// With its provider, where it has one.
    #[must_use]
    pub fn full_name(&self) -> String {
        full_name(self.provider.as_deref(), &self.model)
    }

    /// A model of which nothing else is known.
    #[must_use]
    pub fn named(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            ..Self::default()
        }
    }

    /// As it can be told and sent, whatever its agent said; nothing if its name isn't one that a send
    /// takes. What people only read is cut.
    #[must_use]
    pub fn fitting(mut self) -> Option<Self> {
        let names = [
            ("model", &Some(self.model.clone())),
            ("provider", &self.provider),
        ];
        check_words(&names).ok()?;
        let label = self.label.filter(|label| !label.trim().is_empty());
        self.label = label.map(|mut label| {
            label.truncate(label.floor_char_boundary(Self::LONGEST_NAME));
            label
        });
        for words in [&mut self.thinking, &mut self.input].into_iter().flatten() {
            words.retain(|word| check_words(&[("thinking", &Some(word.clone()))]).is_ok());
            words.truncate(Self::MOST_WORDS);
        }
        Some(self)
    }
}

/// A mode of an agent, its own way of working. `id` is what `set_model` takes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct ModeRow {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl ModeRow {
    /// Modes that are told; no agent has as many.
    pub const MOST: usize = 64;

    /// A mode of which nothing else is known.
    #[must_use]
    pub fn named(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            ..Self::default()
        }
    }

    /// As it can be told and set, whatever its agent said; nothing if its id isn't one that
    /// `set_model` takes. What people only read is cut.
    #[must_use]
    pub fn fitting(mut self) -> Option<Self> {
        check_words(&[("mode", &Some(self.id.clone()))]).ok()?;
        for text in [&mut self.label, &mut self.description] {
            *text = text.take().filter(|text| !text.trim().is_empty());
            if let Some(text) = text {
                text.truncate(text.floor_char_boundary(ModelRow::LONGEST_NAME));
            }
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, Request};

    #[test]
    fn models_row_is_what_a_send_takes() {
        for name in ["", " ", "-x", "a\nb", &"x".repeat(257)] {
            assert_eq!(ModelRow::named(name).fitting(), None, "{name:?}");
            let provider = Some(name.to_owned());
            let row = ModelRow {
                provider,
                ..ModelRow::named("m")
            };
            assert_eq!(row.fitting(), None, "{name:?}");
        }
        let row = ModelRow {
            label: Some("ö".repeat(1_000)),
            thinking: Some(vec!["low".to_owned(), "-".to_owned(), "x".repeat(999)]),
            input: Some(vec!["text".to_owned(); 99]),
            ..ModelRow::named("a/b:c")
        };
        let row = row.fitting().unwrap();
        assert_eq!(row.label.unwrap().len(), ModelRow::LONGEST_NAME);
        assert_eq!(row.thinking.unwrap(), ["low"]);
        assert_eq!(row.input.unwrap().len(), ModelRow::MOST_WORDS);
    }

    #[test]
    fn models_of_agent_and_session_are_refused() {
        let line = br#"{"type":"models","agent":"a","session":"s"}"#;
        let envelope = Envelope::parse(line).unwrap();
        let refused = Request::decode(&envelope).unwrap_err();
        assert!(refused.error.contains("one of them"), "{}", refused.error);
    }
}
