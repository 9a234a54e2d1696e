//! What turns used, and sums of it.
//!
//! Owns the request and its pages. Must not print, nor know the command line.

use std::time::Duration;

use agentd_protocol::answered;
use agentd_protocol::rows::UsageRow;
pub use agentd_protocol::sums::{By, NamedSum, Sum, Sums, UNKNOWN, sums};
use agentd_protocol::work::Usage;

use crate::asked::{Reply, RequestError};
use crate::client::Client;

impl Client {
    /// What turns used that were accepted since, newest first.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn usage(&mut self, since: Option<Duration>) -> Result<Vec<UsageRow>, RequestError> {
        let mut rows = Vec::new();
        let asked = asked(since, None);
        self.usage_pages(asked, |row| rows.push(row)).await?;
        Ok(rows)
    }

    /// The same added up: all together, and by a name, or by several at once (`2026-11-28, timmy`).
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn usage_sums(
        &mut self,
        since: Option<Duration>,
        by: &[By],
    ) -> Result<(Sum, Vec<NamedSum>), RequestError> {
        let mut sums = Sums::default();
        // The daemon adds up by one thing.
        let (asked, single) = match by {
            [by] => (asked(since, Some(*by)), Some(*by)),
            _ => (asked(since, None), None),
        };
        let pages = self.usage_pages(asked, |row| match single {
            Some(by) => sums.add(&row, by),
            None => sums.add_by_each(&row, by),
        });
        if let Some(added_up) = pages.await? {
            return Ok(added_up);
        }
        let (total, by) = sums.ended();
        let by = by.into_iter().map(|(name, sum)| NamedSum { name, sum });
        Ok((total, by.collect()))
    }

    /// What the turns of a session used together.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn usage_of_session(&mut self, session: &str) -> Result<Sum, RequestError> {
        let mut sums = Sums::default();
        let asked = Usage {
            session: Some(session.to_owned()),
            ..asked(None, Some(By::Model))
        };
        let pages = self.usage_pages(asked, |row| sums.add(&row, By::Model));
        Ok(match pages.await? {
            Some((total, _)) => total,
            None => sums.ended().0,
        })
    }

    /// Takes in all turns, unless the daemon has added them up itself.
    async fn usage_pages(
        &mut self,
        mut asked: Usage,
        mut take_in: impl FnMut(UsageRow),
    ) -> Result<Option<(Sum, Vec<NamedSum>)>, RequestError> {
        loop {
            let taken = answered!(
                Usage { turns, next, total, sums } => (turns, next, total.zip(sums))
            );
            let reply = self.answer_of(&asked, taken);
            let Reply { value, line } = reply.await?;
            let (turns, next, added_up) = value;
            if added_up.is_some() {
                return Ok(added_up.map(|(total, sums)| (*total, sums)));
            }
            for turn in turns {
                match serde_json::from_value(turn) {
                    Ok(row) => take_in(row),
                    Err(_) => return Err(RequestError::Strange(line)),
                }
            }
            if next.is_none() {
                return Ok(None);
            }
            asked.before = next;
            // This one adds nothing up; should a newer daemon follow it, its sums would lack what
            // came so far.
            asked.by = None;
        }
    }
}

fn asked(since: Option<Duration>, by: Option<By>) -> Usage {
    Usage {
        since: since.map(|since| since.as_secs_f64()),
        before: None,
        by,
        session: None,
    }
}

#[cfg(test)]
mod tests {
    use agentd_protocol::line::Usage as AllUsage;
    use agentd_protocol::rows::UsagePart;
    use agentd_protocol::work::JobPhase;

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
    async fn usage_pages_are_added_up_with_unknowns_apart() {
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
        let (total, by) = sums(&rows, By::Provider);
        assert_eq!((total.turns, total.local, total.hosted), (3, 1, 1));
        assert_eq!((total.input_tokens, total.output_tokens), (30, 6));
        assert_eq!((total.local_tokens, total.cost_unknown), (12, 1));
        assert_eq!((total.mean_ms, total.p95_ms), (20, 30));
        assert!((total.usd - 0.5).abs() < 1e-9);
        assert_eq!(by.len(), 3);
        assert_eq!(by[&None].turns, 1);
    }

    #[test]
    fn usage_of_several_models_counts_where_used() {
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
            local: Some(false),
            usage: AllUsage {
                input_tokens: 9,
                output_tokens: 1,
                ..AllUsage::default()
            },
            usd: Some(0.4),
        }];
        let (total, by) = sums(&[mixed], By::Provider);
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
        let (total, _) = sums(&rows, By::Model);
        assert_eq!((total.input_tokens, total.local_tokens), (0, 0));
        assert_eq!((total.usd, total.cost_unknown), (1.5, 2));
        assert_eq!(total.p95_ms, u64::MAX);
    }

    /// One of which nothing is known.
    fn unpriced() -> UsageRow {
        let cost = r#"{"usd":null,"status":"unknown"}"#;
        parsed(&row(1, "null", "null", cost, 0))
    }

    #[test]
    fn usage_times_leave_out_what_never_began() {
        let mut early = unpriced();
        early.state = JobPhase::Cancelled;
        let mut late = early.clone();
        (late.state, late.duration_ms) = (JobPhase::Failed, 40);
        let (total, _) = sums(&[early.clone(), late, early], By::Model);
        assert_eq!((total.turns, total.mean_ms, total.p95_ms), (3, 40, 40));
        assert_eq!(total.cost_unknown, 1);
    }

    #[test]
    fn what_a_death_interrupted_has_an_unknown_cost() {
        let mut lost = unpriced();
        lost.state = JobPhase::Interrupted;
        let (total, _) = sums(&[lost], By::Model);
        assert_eq!((total.turns, total.cost_unknown, total.mean_ms), (1, 1, 0));
    }
}
