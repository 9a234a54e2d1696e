//! Why a turn has its agent: what the routes of the configuration decided.
//!
//! Owns what is told of a decision, and how much of it is kept. Must not know the rules.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// In place of an agent's name: the routes choose.
pub const AUTO: &str = "auto";
/// So many bytes of a decision are kept with its job, as JSON: lists read no more of a request than
/// its beginning, where this and the prompt's begin are.
const MAX_KEPT: usize = 1024;
/// Bytes of a sentence that is kept.
const MAX_SENTENCE: usize = 240;

/// The decision about one turn.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Routed {
    /// The rule that decided, by its name, or as `#2` by its place; absent where none did.
    pub rule: Option<String>,
    /// Why, in a sentence.
    pub because: String,
    /// The rules before it, and why each was passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub considered: Vec<Considered>,
    /// What kind of task the prompt is, where a rule asked for it.
    pub class: Option<String>,
    /// How hard it seems, likewise.
    pub difficulty: Option<String>,
}

/// A rule that was passed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Considered {
    /// Which, as in `rule`.
    pub rule: String,
    /// Why.
    pub because: String,
}

/// What a rule uses, where the send doesn't say it itself.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteUse {
    /// Who answers.
    pub agent: Option<String>,
    /// The model provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// How hard to think, in the agent's words.
    pub thinking: Option<String>,
    /// Restricts the agent's tools.
    pub toolsets: Option<Vec<String>>,
    /// Seconds that the turn may run.
    pub timeout: Option<u64>,
    /// What to ask when the model fails.
    pub fallback_chain: Option<Vec<String>>,
}

/// `route`: what the routes would make of a send, of which nothing was run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RouteAnswer {
    /// Always.
    pub ok: bool,
    /// Who would answer.
    pub agent: String,
    /// Which rule, why, and what was passed over.
    pub routed: Routed,
    /// What the rule says.
    #[serde(rename = "use", default)]
    pub uses: RouteUse,
}

/// What a rule says of a turn. Within the daemon; no line has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weighed {
    /// Which rule.
    pub rule: String,
    /// Why it holds, or which condition doesn't.
    pub because: String,
    /// What it uses; `None` when it doesn't hold.
    pub uses: Option<Arc<RouteUse>>,
}

impl Routed {
    /// As much of it as is kept: of many rules that didn't match, the first.
    #[must_use]
    pub fn kept(mut self) -> Self {
        shorten(&mut self.because);
        for passed in &mut self.considered {
            shorten(&mut passed.because);
        }
        let bytes = |routed: &Self| serde_json::to_string(routed).map_or(0, |json| json.len());
        while bytes(&self) > MAX_KEPT && self.considered.pop().is_some() {}
        self
    }

    /// Bytes that it takes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let considered = self.considered.iter();
        let considered = considered
            .map(|passed| size_of::<Considered>() + passed.rule.len() + passed.because.len());
        size_of::<Self>() + self.because.len() + considered.sum::<usize>()
    }
}

fn shorten(sentence: &mut String) {
    if sentence.len() > MAX_SENTENCE {
        sentence.truncate(sentence.floor_char_boundary(MAX_SENTENCE - '…'.len_utf8()));
        sentence.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_that_is_kept_stays_short() {
        let passed = |number: usize| Considered {
            rule: format!("#{number}"),
            because: "\"".repeat(300),
        };
        let long = Routed {
            rule: Some("last".to_owned()),
            because: "ö".repeat(300),
            considered: (1..=100).map(passed).collect(),
            ..Routed::default()
        };
        let kept = long.kept();
        assert!(serde_json::to_string(&kept).unwrap().len() <= MAX_KEPT);
        assert!(kept.because.ends_with("ö…"), "{}", kept.because);
        assert_eq!(kept.considered[0].rule, "#1");
    }
}
