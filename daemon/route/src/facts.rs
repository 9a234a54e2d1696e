//! What is known of a turn before it has an agent.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::classify::{Class, Difficulty, classify};

/// Who asked for the routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The send itself, by `agent:"auto"`.
    ByName,
    /// The configuration, by `default_agent = "auto"`.
    ByDefault,
}

/// A turn as the rules see it.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Who asked for them.
    pub asked: Asked,
    /// The prompt.
    pub text: &'a str,
    /// The types of its attachments.
    pub attachments: Vec<&'a str>,
    /// Its directory: as it was named, and where that leads.
    pub directories: Vec<&'a str>,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Minutes since midnight on the clock of this place.
    pub minute: u16,
    /// What its prompt is, once somebody asked.
    pub classified: OnceCell<(Class, Difficulty)>,
}

impl Facts<'_> {
    /// What its prompt is. Looked at once, and only if a rule asks.
    pub fn classified(&self) -> (Class, Difficulty) {
        *self.classified.get_or_init(|| classify(self.text))
    }
}
