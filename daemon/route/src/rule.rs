//! A rule, and what it says of a turn.
//!
//! Owns that each rule says something of every turn, and that all of a rule's conditions must hold.

use std::sync::Arc;

use agentd_protocol::routed::{RouteUse, Weighed};

use crate::condition::Condition;
use crate::facts::Facts;

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What it is called: its name, or its place as `#2`.
    pub name: String,
    /// All of them must hold; the cheap ones first.
    pub when: Vec<Condition>,
    /// What is used then.
    pub uses: Arc<RouteUse>,
}

impl Rule {
    /// With the conditions in the order in which they are looked at.
    #[must_use]
    pub fn new(name: String, mut when: Vec<Condition>, uses: RouteUse) -> Self {
        when.sort_by_key(Condition::cost);
        let uses = Arc::new(uses);
        Self { name, when, uses }
    }

    fn weigh(&self, facts: &Facts<'_>) -> Weighed {
        let failed = self.when.iter().find(|condition| !condition.holds(facts));
        let because = match failed {
            Some(failed) => failed.why_not(facts),
            None if self.when.is_empty() => "it holds for every turn".to_owned(),
            None => {
                let all: Vec<String> = self.when.iter().map(|one| one.why(facts)).collect();
                all.join(", ")
            }
        };
        Weighed {
            rule: self.name.clone(),
            because,
            uses: failed.is_none().then(|| Arc::clone(&self.uses)),
        }
    }
}

/// What each rule says of a turn, in their order: the first that holds, and whose agent can be used,
/// decides.
#[must_use]
pub fn weigh(rules: &[Rule], facts: &Facts<'_>) -> Vec<Weighed> {
    rules.iter().map(|rule| rule.weigh(facts)).collect()
}
