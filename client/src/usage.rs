//! What turns used, and sums of it.
//!
//! Owns pages and the arithmetic. Must not print, nor know the command line.

use std::collections::BTreeMap;
use std::time::Duration;

use agentd_protocol::Line;
use agentd_protocol::line::{Cost, CostStatus};
use agentd_protocol::rows::UsageRow;
use agentd_protocol::work::{JobPhase, Usage};
use serde::Serialize;

use crate::asked::{Asking, Reply, RequestError};
use crate::client::Client;

/// A turn that is said to have cost more didn't.
const MOST_USD: f64 = 1e6;

/// What some turns used together.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
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
    #[serde(skip)]
    pub(crate) durations: Vec<u64>,
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
        match row.local {
            Some(true) if row.others.iter().all(|other| other.local) => self.local += 1,
            Some(_) => self.hosted += 1,
            None => {}
        }
        // What was over before it began took no time and cost nothing.
        if row.duration_ms > 0 || row.state == JobPhase::Completed {
            self.durations.push(row.duration_ms);
            let known = match row.cost.usd {
                Some(usd) => is_usd(usd),
                None => row.cost.status != CostStatus::Unknown,
            };
            self.cost_unknown += u64::from(!known);
        }
    }

    /// Counts what a model used. An agent may have reported anything.
    fn used(&mut self, share: &UsageRow) {
        let used = share.usage.unwrap_or_default();
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

/// Dollars that a turn can have cost.
fn is_usd(usd: f64) -> bool {
    (0.0..MOST_USD).contains(&usd)
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
        last.cost.usd = last.cost.usd.map(|usd| (usd - known).max(0.0));
        shares.push(UsageRow {
            provider: Some(other.provider),
            model: other.model,
            local: Some(other.local),
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

/// All turns together, and by what `name` says of each. Those without a name come under none. A turn
/// of several models counts once, with the last of them; tokens and dollars count where they were
/// used.
#[must_use]
pub fn sums(
    rows: &[UsageRow],
    name: impl Fn(&UsageRow) -> Option<String>,
) -> (Sum, BTreeMap<Option<String>, Sum>) {
    let mut total = Sum::default();
    let mut by: BTreeMap<Option<String>, Sum> = BTreeMap::new();
    for row in rows {
        total.turn(row);
        by.entry(name(row)).or_default().turn(row);
        for share in shares(row) {
            total.used(&share);
            by.entry(name(&share)).or_default().used(&share);
        }
    }
    let by = by.into_iter().map(|(name, sum)| (name, sum.timed()));
    (total.timed(), by.collect())
}

impl Client {
    /// What turns used that were accepted since, newest first.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn usage(&mut self, since: Option<Duration>) -> Result<Vec<UsageRow>, RequestError> {
        let mut asked = Usage {
            since: since.map(|since| since.as_secs_f64()),
            before: None,
        };
        let mut rows = Vec::new();
        loop {
            let take = |line| match line {
                Line::Usage { turns, next, .. } => Some((turns, next)),
                _ => None,
            };
            let reply = self.answer_of("usage", &asked, Asking::Reads, take);
            let Reply { value, line } = reply.await?;
            let (turns, next) = value;
            for turn in turns {
                match serde_json::from_value(turn) {
                    Ok(row) => rows.push(row),
                    Err(_) => return Err(RequestError::Strange(line)),
                }
            }
            if next.is_none() {
                return Ok(rows);
            }
            asked.before = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use agentd_protocol::line::Usage as AllUsage;
    use agentd_protocol::rows::UsagePart;

    use super::*;
    use crate::scripted::Scripted;

    fn row(job: u64, provider: &str, local: &str, cost: &str, ms: u64) -> String {
        format!(
            r#"{{"job":"j{job}","accepted_at":"2026-11-22T10:00:00Z","agent":"a","provider":{provider},"model":null,"local":{local},"state":"completed","usage":{{"input_tokens":10,"cache_read_tokens":5,"output_tokens":2}},"cost":{cost},"queued_ms":0,"duration_ms":{ms}}}"#
        )
    }

    fn parsed(text: &str) -> UsageRow {
        serde_json::from_str(text).unwrap()
    }

    #[tokio::test]
    async fn pages_are_added_up_with_what_nobody_knows_apart() {
        let first = [
            row(
                4,
                "\"ollama\"",
                "true",
                r#"{"usd":0.0,"status":"actual"}"#,
                10,
            ),
            row(3, "null", "null", r#"{"usd":null,"status":"unknown"}"#, 30),
        ];
        let second = row(
            2,
            "\"groq\"",
            "false",
            r#"{"usd":0.5,"status":"estimated"}"#,
            20,
        );
        let page = |turns: &str, next: &str| {
            format!(r#"{{"type":"usage","ok":true,"turns":[{turns}]{next}}}"#)
        };
        let (first, second) = (page(&first.join(","), r#","next":"j3""#), page(&second, ""));
        let (mut client, asked) = Scripted::new(&[&first, &second]).connect().await;
        let rows = client.usage(None).await.unwrap();
        drop(client);
        assert_eq!(asked.await.unwrap()[1]["before"], "j3");
        let (total, by) = sums(&rows, |row| row.provider.clone());
        assert_eq!((total.turns, total.local, total.hosted), (3, 1, 1));
        assert_eq!((total.input_tokens, total.output_tokens), (30, 6));
        assert_eq!((total.local_tokens, total.cost_unknown), (12, 1));
        assert_eq!((total.mean_ms, total.p95_ms), (20, 30));
        assert!((total.usd - 0.5).abs() < 1e-9);
        assert_eq!(by.len(), 3);
        assert_eq!(by[&None].turns, 1);
    }

    #[test]
    fn what_several_models_used_is_counted_where_it_was_used() {
        let mut mixed = parsed(&row(
            1,
            "\"ollama\"",
            "true",
            r#"{"usd":0.4,"status":"estimated"}"#,
            9,
        ));
        mixed.others = vec![UsagePart {
            provider: "anthropic".to_owned(),
            model: None,
            local: false,
            usage: AllUsage {
                input_tokens: 9,
                output_tokens: 1,
                ..AllUsage::default()
            },
            usd: Some(0.4),
        }];
        let (total, by) = sums(&[mixed], |row| row.provider.clone());
        assert_eq!((total.turns, total.local, total.hosted), (1, 0, 1));
        assert_eq!((total.input_tokens, total.output_tokens), (10, 2));
        assert_eq!((total.local_tokens, total.hosted_tokens), (2, 10));
        let of = |name: &str| &by[&Some(name.to_owned())];
        let (ollama, anthropic) = (of("ollama"), of("anthropic"));
        assert_eq!((ollama.turns, ollama.input_tokens), (1, 1));
        assert_eq!((anthropic.turns, anthropic.input_tokens), (0, 9));
        assert!((ollama.usd, anthropic.usd) == (0.0, 0.4), "{by:?}");
    }

    #[test]
    fn nothing_that_an_agent_reports_breaks_the_sums() {
        let mut rows = Vec::new();
        for usd in [1e300, -3.0, 1.5] {
            let cost = format!(r#"{{"usd":{usd:?},"status":"actual"}}"#);
            let mut wrong = parsed(&row(1, "null", "true", &cost, u64::MAX));
            wrong.usage = Some(AllUsage {
                input_tokens: u64::MAX,
                output_tokens: u64::MAX,
                ..AllUsage::default()
            });
            rows.push(wrong);
        }
        let (total, _) = sums(&rows, |_| None);
        assert_eq!(
            (total.input_tokens, total.local_tokens),
            (u64::MAX, u64::MAX)
        );
        assert_eq!((total.usd, total.cost_unknown), (1.5, 2));
        assert_eq!(total.p95_ms, u64::MAX);
    }

    #[test]
    fn what_never_began_has_no_part_in_the_times() {
        let mut early = parsed(&row(
            1,
            "null",
            "null",
            r#"{"usd":null,"status":"unknown"}"#,
            0,
        ));
        early.state = JobPhase::Cancelled;
        let mut late = early.clone();
        (late.state, late.duration_ms) = (JobPhase::Failed, 40);
        let (total, _) = sums(&[early.clone(), late, early], |_| None);
        assert_eq!((total.turns, total.mean_ms, total.p95_ms), (3, 40, 40));
        assert_eq!(total.cost_unknown, 1);
    }
}
