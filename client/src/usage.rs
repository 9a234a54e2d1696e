//! What turns used, and sums of it.
//!
//! Owns pages and the arithmetic. Must not print, nor know the command line.

use std::collections::BTreeMap;
use std::time::Duration;

use agentd_protocol::Line;
use agentd_protocol::rows::UsageRow;
use agentd_protocol::work::{JobPhase, Usage};
use serde::Serialize;

use crate::asked::{Asking, Reply, RequestError};
use crate::client::Client;

/// What some turns used together.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Sum {
    /// Turns that ended.
    pub turns: u64,
    /// That failed, or were interrupted.
    pub failed: u64,
    /// That were cancelled.
    pub cancelled: u64,
    /// Answered by models on the user's own machines.
    pub local: u64,
    /// Answered elsewhere; of what is neither, nobody knows.
    pub hosted: u64,
    /// Of all kinds of input, what was cached too.
    pub input_tokens: u64,
    /// Reasoning included where the agent counts it so.
    pub output_tokens: u64,
    /// Both, of local models.
    pub local_tokens: u64,
    /// US dollars, as far as known.
    pub usd: f64,
    /// Turns whose cost nobody knows.
    pub cost_unknown: u64,
    /// Milliseconds from their first byte to their last, in the mean.
    pub mean_ms: u64,
    /// Most took no longer.
    pub p95_ms: u64,
    #[serde(skip)]
    pub(crate) durations: Vec<u64>,
}

impl Sum {
    /// Adds a turn.
    pub fn add(&mut self, row: &UsageRow) {
        self.turns += 1;
        match row.state {
            JobPhase::Failed | JobPhase::Interrupted => self.failed += 1,
            JobPhase::Cancelled => self.cancelled += 1,
            _ => {}
        }
        let used = row.usage.unwrap_or_default();
        let input = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens;
        self.input_tokens += input;
        self.output_tokens += used.output_tokens;
        match row.local {
            Some(true) => {
                self.local += 1;
                self.local_tokens += input + used.output_tokens;
            }
            Some(false) => self.hosted += 1,
            None => {}
        }
        match row.cost.usd {
            Some(usd) => self.usd += usd,
            None if row.cost.status == agentd_protocol::line::CostStatus::Unknown => {
                self.cost_unknown += 1;
            }
            None => {}
        }
        self.durations.push(row.duration_ms);
    }

    /// Puts the times in order, once all are there.
    fn timed(mut self) -> Self {
        self.durations.sort_unstable();
        let count = self.durations.len();
        let all: u64 = self.durations.iter().sum();
        self.mean_ms = all.checked_div(self.turns).unwrap_or_default();
        let place = (count * 95).div_ceil(100).saturating_sub(1);
        self.p95_ms = self.durations.get(place).copied().unwrap_or_default();
        self
    }

    /// Tokens of either kind.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }
}

/// All turns together, and by what `name` says of each. Those without a name come under none.
#[must_use]
pub fn sums(
    rows: &[UsageRow],
    name: impl Fn(&UsageRow) -> Option<String>,
) -> (Sum, BTreeMap<Option<String>, Sum>) {
    let mut total = Sum::default();
    let mut by: BTreeMap<Option<String>, Sum> = BTreeMap::new();
    for row in rows {
        total.add(row);
        by.entry(name(row)).or_default().add(row);
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
    use super::*;
    use crate::scripted::Scripted;

    fn row(job: u64, provider: &str, local: &str, cost: &str, ms: u64) -> String {
        format!(
            r#"{{"job":"j{job}","accepted_at":"2026-11-22T10:00:00Z","agent":"a","provider":{provider},"model":null,"local":{local},"state":"completed","usage":{{"input_tokens":10,"cache_read_tokens":5,"output_tokens":2}},"cost":{cost},"queued_ms":0,"duration_ms":{ms}}}"#
        )
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
        assert_eq!((total.input_tokens, total.output_tokens), (45, 6));
        assert_eq!((total.local_tokens, total.cost_unknown), (17, 1));
        assert_eq!((total.mean_ms, total.p95_ms), (20, 30));
        assert!((total.usd - 0.5).abs() < 1e-9);
        assert_eq!(by.len(), 3);
        assert_eq!(by[&None].turns, 1);
    }
}
