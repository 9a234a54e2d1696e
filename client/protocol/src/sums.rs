//! What turns used, added up.
//!
//! Owns the arithmetic, which is the same wherever it is done. Must not know where turns come from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::rows::{JobPhase, UsageRow};
use crate::usage::{Cost, CostStatus, Usage, is_usd};

/// What some turns used together.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sum {
    /// Turns that ended.
    pub turns: u64,
    /// That failed, or were interrupted.
    pub failed: u64,
    /// That were cancelled.
    pub cancelled: u64,
    /// Answered by models on the user's own machines, and by no other.
    pub local: u64,
    /// Answered elsewhere, if only in part. The rest had no model's answer, or nobody knows whose.
    pub hosted: u64,
    /// Of all kinds of input, what was cached too.
    pub input_tokens: u64,
    /// Reasoning included where the agent counts it so.
    pub output_tokens: u64,
    /// Both, of local models.
    pub local_tokens: u64,
    /// Both, of other ones.
    pub hosted_tokens: u64,
    /// US dollars, as far as known.
    pub usd: f64,
    /// Turns whose cost nobody knows.
    pub cost_unknown: u64,
    /// Milliseconds that a turn took once it had begun, in the mean.
    pub mean_ms: u64,
    /// Most took no longer.
    pub p95_ms: u64,
    /// Of each turn, until both are known.
    #[serde(skip)]
    pub durations: Vec<u64>,
}

impl Sum {
    /// Counts a turn, not what it used.
    fn turn(&mut self, row: &UsageRow) {
        self.turns += 1;
        match row.state {
            JobPhase::Failed | JobPhase::Interrupted => self.failed += 1,
            JobPhase::Cancelled => self.cancelled += 1,
            _ => {}
        }
        // Local is what never left the user's own machines.
        let parts = row.others.iter().map(|other| other.local);
        let all = || parts.clone().chain([row.local]);
        if all().any(|part| part == Some(false)) {
            self.hosted += 1;
        } else if all().all(|part| part == Some(true)) {
            self.local += 1;
        }
        // What was over before it began took no time and cost nothing. One that its daemon's death
        // interrupted had begun, though nobody knows how long it took.
        let timed = row.duration_ms > 0 || row.state == JobPhase::Completed;
        if timed {
            self.durations.push(row.duration_ms);
        }
        if timed || row.state == JobPhase::Interrupted {
            let known = match row.cost.usd {
                Some(usd) => is_usd(usd),
                None => row.cost.status != CostStatus::Unknown,
            };
            self.cost_unknown += u64::from(!known);
        }
    }

    /// Counts what a model used. An agent may have reported anything.
    fn used(&mut self, share: &UsageRow) {
        let used = share.usage.filter(Usage::is_credible).unwrap_or_default();
        let both = used.input_tokens.saturating_add(used.output_tokens);
        let more = |sum: &mut u64, count| *sum = sum.saturating_add(count);
        more(&mut self.input_tokens, used.input_tokens);
        more(&mut self.output_tokens, used.output_tokens);
        match share.local {
            Some(true) => more(&mut self.local_tokens, both),
            Some(false) => more(&mut self.hosted_tokens, both),
            None => {}
        }
        self.usd += share
            .cost
            .usd
            .filter(|usd| is_usd(*usd))
            .unwrap_or_default();
    }

    /// Puts the times in order, once all are there.
    fn timed(mut self) -> Self {
        self.durations.sort_unstable();
        let count = self.durations.len();
        let all: u64 = (self.durations.iter()).fold(0, |all, ms| all.saturating_add(*ms));
        let turns = u64::try_from(count).unwrap_or(u64::MAX);
        self.mean_ms = all.checked_div(turns).unwrap_or_default();
        let place = (count * 95).div_ceil(100).saturating_sub(1);
        self.p95_ms = self.durations.get(place).copied().unwrap_or_default();
        self
    }
}

/// A turn as one row for each model that answered it, the last one first.
fn shares(row: &UsageRow) -> Vec<UsageRow> {
    let mut last = row.clone();
    let mut shares = Vec::new();
    for other in std::mem::take(&mut last.others) {
        if let Some(rest) = &mut last.usage {
            rest.input_tokens = rest.input_tokens.saturating_sub(other.usage.input_tokens);
            rest.output_tokens = (rest.output_tokens).saturating_sub(other.usage.output_tokens);
        }
        let known = other.usd.filter(|usd| is_usd(*usd)).unwrap_or_default();
        // Parts that were rounded may be more than the whole.
        last.cost.usd = last.cost.usd.map(|usd| (usd - known).max(0.0));
        shares.push(UsageRow {
            provider: Some(other.provider),
            model: other.model,
            local: other.local,
            usage: Some(other.usage),
            cost: Cost {
                usd: other.usd,
                ..row.cost.clone()
            },
            ..last.clone()
        });
    }
    shares.insert(0, last);
    shares
}

/// What is said for a name that nobody told.
pub const UNKNOWN: &str = "(not told)";

/// Sums that grow by turns: of all, and by a name. Those without a name come under none. A turn of
/// several models counts once, with the last of them; tokens and dollars count where they were used.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Sums {
    total: Sum,
    by: BTreeMap<Option<String>, Sum>,
}

impl Sums {
    /// Adds a turn.
    pub fn add(&mut self, row: &UsageRow, by: By) {
        self.add_under(row, |row| by.name(row));
    }

    /// Adds a turn by several things at once: `2026-11-28, timmy`.
    pub fn add_by_each(&mut self, row: &UsageRow, by: &[By]) {
        self.add_under(row, |row| {
            let names = by.iter().map(|by| by.name(row));
            let names = names.map(|name| name.unwrap_or_else(|| UNKNOWN.to_owned()));
            Some(names.collect::<Vec<_>>().join(", "))
        });
    }

    fn add_under(&mut self, row: &UsageRow, name: impl Fn(&UsageRow) -> Option<String>) {
        self.total.turn(row);
        let sum = self.by.entry(name(row)).or_default();
        sum.turn(row);
        if row.others.is_empty() {
            // Most are of one model.
            self.total.used(row);
            return sum.used(row);
        }
        for share in shares(row) {
            self.total.used(&share);
            self.by.entry(name(&share)).or_default().used(&share);
        }
    }

    /// How many names there are.
    #[must_use]
    pub fn names(&self) -> usize {
        self.by.len()
    }

    /// All turns together, and those of each name.
    #[must_use]
    pub fn ended(self) -> (Sum, BTreeMap<Option<String>, Sum>) {
        let by = self.by.into_iter().map(|(name, sum)| (name, sum.timed()));
        (self.total.timed(), by.collect())
    }
}

/// A sum with its name, as it is told.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct NamedSum {
    pub name: Option<String>,
    pub sum: Sum,
}

/// By what turns are added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum By {
    Agent,
    Provider,
    /// With its provider, where both are known.
    Model,
    /// On which it was accepted.
    Day,
    /// A closed one under the name that it had.
    Session,
}

impl By {
    /// What a turn, or a model's part of one, is added up under.
    #[must_use]
    pub fn name(self, row: &UsageRow) -> Option<String> {
        match self {
            Self::Agent => Some(row.agent.clone()),
            Self::Provider => row.provider.clone(),
            Self::Model => match (&row.provider, &row.model) {
                (Some(provider), Some(model)) => Some(format!("{provider}/{model}")),
                (_, model) => model.clone(),
            },
            // An RFC 3339 time begins with its date.
            Self::Day => row.accepted_at.get(..10).map(str::to_owned),
            Self::Session => row.session.clone(),
        }
    }
}

/// All turns together, and by a name.
#[must_use]
pub fn sums(rows: &[UsageRow], by: By) -> (Sum, BTreeMap<Option<String>, Sum>) {
    let mut sums = Sums::default();
    for row in rows {
        sums.add(row, by);
    }
    sums.ended()
}
