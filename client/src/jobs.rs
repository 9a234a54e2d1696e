//! Work that outlives its connection: jobs handed in, looked at and collected; words to a running
//! turn; questions and answers.
//!
//! Owns keys, pages and the order of results. Must not print, nor know the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use agentd_protocol::limits::MAX_DISPATCH;
use agentd_protocol::request::{Collect, Send, Wait};
use agentd_protocol::rows::{DispatchedRow, JobRow, QuestionRow};
use agentd_protocol::work::{Answer, Jobs, Questions, Steer};
use agentd_protocol::{JobId, Line, RequestKind, answered};
use serde::Serialize;
use serde_json::Value;

use crate::asked::{Reply, RequestError};
use crate::client::{Client, ClientError};
use crate::key;
use crate::pages::{PageTaken, Paged, Pages};

/// `dispatch` as it is written.
#[derive(Serialize)]
struct DispatchFields<'a> {
    jobs: &'a [Send],
}

/// What became of jobs.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Collected {
    /// Final lines, in the order asked.
    pub results: Vec<Value>,
    /// Not done, in the order asked.
    pub pending: Vec<JobId>,
}

/// Jobs, page by page.
pub type JobPages = Pages<Jobs>;

impl Paged for Jobs {
    type Page = Vec<JobRow>;
    type Place = JobId;

    fn page() -> PageTaken<Self::Page, JobId> {
        answered!(Jobs { jobs, next } => (jobs, next))
    }

    fn go_on(&mut self, from: JobId) {
        self.before = Some(from);
    }

    fn limit(&mut self) -> Option<&mut Option<usize>> {
        Some(&mut self.limit)
    }

    fn rows(page: &Self::Page) -> usize {
        page.len()
    }
}

impl Client {
    /// Hands in several turns, all or none. A send without a key gets one. When the daemon leaves
    /// without an answer, the next one is asked with the same keys.
    ///
    /// # Errors
    /// [`RequestError::Unknown`] when none comes. It has the keys of all of them: asked again with
    /// these, none runs twice.
    pub async fn dispatch(
        &mut self,
        sends: &[Send],
    ) -> Result<Reply<Vec<DispatchedRow>>, RequestError> {
        let completed: std::io::Result<Vec<Send>> = sends
            .iter()
            .map(|send| {
                let completed = key::completed(send)?;
                self.fitting(&completed).map(std::borrow::Cow::into_owned)
            })
            .collect();
        let jobs = completed.map_err(ClientError::NotWritten)?;
        let taken = answered!(Dispatch { jobs } => jobs);
        let fields = DispatchFields { jobs: &jobs };
        let answered = self.answer_again(&fields, taken).await;
        answered.map_err(|error| match error {
            RequestError::Unknown { lost, .. } => {
                let keys = jobs.into_iter().filter_map(|send| send.idempotency_key);
                let keys = keys.collect();
                RequestError::Unknown { lost, keys }
            }
            other => other,
        })
    }

    /// The final lines of jobs, in the order asked, however many lines that takes.
    ///
    /// Without a timeout it waits until all (or one) are done, over restarts of the daemon; with 0
    /// it looks.
    ///
    /// # Errors
    /// An unknown job refuses the whole.
    pub async fn collect(
        &mut self,
        jobs: &[JobId],
        timeout: Option<Duration>,
        wait: Wait,
    ) -> Result<Collected, RequestError> {
        let mut seen = BTreeSet::new();
        let order: Vec<JobId> = jobs
            .iter()
            .copied()
            .filter(|job| seen.insert(*job))
            .collect();
        let until = timeout.map(|timeout| (Instant::now(), timeout));
        // The first of many can't be waited for in parts: then the daemon's own limit holds.
        let part = match wait {
            Wait::All => MAX_DISPATCH,
            Wait::Any => order.len().max(1),
        };
        let mut results = BTreeMap::new();
        // One after the other: all of them are waited for anyhow.
        for part in order.chunks(part) {
            self.collect_part(part, until, wait, &mut results).await?;
        }
        let (done, pending) = order.into_iter().partition(|job| results.contains_key(job));
        let done: Vec<JobId> = done;
        let results = done.iter().filter_map(|job| results.remove(job)).collect();
        Ok(Collected { results, pending })
    }

    /// What doesn't fit into one line stays pending and is asked for again, as long as that gives
    /// results.
    async fn collect_part(
        &mut self,
        part: &[JobId],
        until: Option<(Instant, Duration)>,
        wait: Wait,
        found: &mut BTreeMap<JobId, Value>,
    ) -> Result<(), RequestError> {
        let mut timeout = until.map(|(begun, timeout)| timeout.saturating_sub(begun.elapsed()));
        let mut jobs = part.to_vec();
        loop {
            let fields = Collect {
                jobs,
                timeout: timeout.map(|timeout| timeout.as_secs_f64()),
                wait,
            };
            let reply = self.answer_again(&fields, (RequestKind::Collect, collected));
            let (results, pending) = reply.await?.value;
            if pending.is_empty() || results.is_empty() {
                found.extend(results);
                return Ok(());
            }
            found.extend(results);
            jobs = pending;
            timeout = match (wait, until) {
                // There is one: now only what else is done.
                (Wait::Any, _) => Some(Duration::ZERO),
                (Wait::All, Some((begun, longest))) => {
                    Some(longest.saturating_sub(begun.elapsed()))
                }
                (Wait::All, None) => None,
            };
        }
    }

    /// All jobs that fit the filter, or so many as its `limit` says, newest first.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn jobs(&mut self, filter: Jobs) -> Result<Vec<JobRow>, RequestError> {
        let pages = JobPages::new(filter).rest(self).await?;
        Ok(pages.into_iter().flatten().collect())
    }

    /// One job; none if there is no such.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn job(&mut self, job: JobId) -> Result<Option<JobRow>, RequestError> {
        // It is the newest one of those that aren't newer.
        let filter = Jobs {
            before: Some(JobId(job.0.saturating_add(1))),
            limit: Some(1),
            ..Jobs::default()
        };
        let found = self.jobs(filter).await?.into_iter().next();
        Ok(found.filter(|row| row.job == job))
    }

    /// Says something to a running turn; gives the job whose agent took it.
    ///
    /// # Errors
    /// `session-idle` when the turn ended first.
    pub async fn steer(&mut self, steer: &Steer) -> Result<Reply<JobId>, RequestError> {
        let taken = answered!(Steer { job } => job);
        self.answer_of(steer, taken).await
    }

    /// What agents ask and nobody answered yet.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn questions(
        &mut self,
        session: Option<&str>,
    ) -> Result<Reply<Vec<QuestionRow>>, RequestError> {
        let fields = Questions {
            session: session.map(str::to_owned),
        };
        let taken = answered!(Questions { questions } => questions);
        self.answer_of(&fields, taken).await
    }

    /// Answers a question; gives its name.
    ///
    /// # Errors
    /// `already-answered` when somebody was faster.
    pub async fn answer_question(
        &mut self,
        answer: &Answer,
    ) -> Result<Reply<String>, RequestError> {
        let taken = answered!(Answer { question_id } => question_id);
        self.answer_of(answer, taken).await
    }
}

/// The results of a page with their jobs, and what is pending.
type CollectedPage = (Vec<(JobId, Value)>, Vec<JobId>);

fn collected(line: Line) -> Option<CollectedPage> {
    let Line::Collect {
        results, pending, ..
    } = line
    else {
        return None;
    };
    let named = |result: Value| {
        let job = result.get("job")?.as_str()?.parse().ok()?;
        Some((job, result))
    };
    let results: Option<Vec<_>> = results.into_iter().map(named).collect();
    Some((results?, pending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::Scripted;

    fn jobs(numbers: &[u64]) -> Vec<JobId> {
        numbers.iter().copied().map(JobId).collect()
    }

    fn text(results: &[Value]) -> String {
        let jobs = results.iter().filter_map(|result| result["job"].as_str());
        jobs.collect::<Vec<_>>().join(" ")
    }

    #[tokio::test]
    async fn collect_asks_again_in_order_beyond_a_page() {
        let script = Scripted::new(&[
            r#"{"type":"collect","ok":true,"results":[{"job":"j3"},{"job":"j1"}],"pending":["j2"]}"#,
            r#"{"type":"collect","ok":true,"results":[{"job":"j2"}],"pending":[]}"#,
        ]);
        let (mut client, asked) = script.connect().await;
        let collected = client.collect(&jobs(&[3, 2, 1, 3]), None, Wait::All).await;
        let collected = collected.unwrap();
        assert_eq!(text(&collected.results), "j3 j2 j1");
        assert!(collected.pending.is_empty());
        drop(client);
        let asked = asked.await.unwrap();
        assert_eq!(asked[0]["jobs"], serde_json::json!(["j3", "j2", "j1"]));
        assert_eq!(asked[1]["jobs"], serde_json::json!(["j2"]));
    }

    #[tokio::test]
    async fn collect_late_fetches_what_is_done() {
        let script = Scripted::new(&[
            r#"{"type":"collect","ok":true,"results":[{"job":"j1"}],"pending":["j2","j3"]}"#,
            r#"{"type":"collect","ok":true,"results":[],"pending":["j2","j3"]}"#,
        ]);
        let (mut client, asked) = script.connect().await;
        let none = Some(Duration::ZERO);
        let collected = client.collect(&jobs(&[1, 2, 3]), none, Wait::All).await;
        let collected = collected.unwrap();
        assert_eq!(text(&collected.results), "j1");
        assert_eq!(collected.pending, jobs(&[2, 3]));
        drop(client);
        assert_eq!(asked.await.unwrap()[1]["timeout"], 0.0);
    }

    #[tokio::test]
    async fn collect_any_waits_for_no_second_one() {
        let script = Scripted::new(&[
            r#"{"type":"collect","ok":true,"results":[{"job":"j2"}],"pending":["j1"]}"#,
            r#"{"type":"collect","ok":true,"results":[],"pending":["j1"]}"#,
        ]);
        let (mut client, asked) = script.connect().await;
        let collected = client.collect(&jobs(&[1, 2]), None, Wait::Any).await;
        assert_eq!(text(&collected.unwrap().results), "j2");
        drop(client);
        let asked = asked.await.unwrap();
        assert!(asked[0].get("timeout").is_none(), "{asked:?}");
        assert_eq!(asked[1]["timeout"], 0.0);
    }

    #[tokio::test]
    async fn jobs_are_paged_up_to_the_limit() {
        let row = |job| {
            format!(
                r#"{{"job":"j{job}","session":"s","agent":"a","state":"completed","attempt":1,"preview":"","accepted_at":"2026-11-21T19:00:00Z"}}"#
            )
        };
        let first = format!(
            r#"{{"type":"jobs","ok":true,"jobs":[{},{}],"next":"j4"}}"#,
            row(5),
            row(4)
        );
        let second = format!(
            r#"{{"type":"jobs","ok":true,"jobs":[{}],"next":"j3"}}"#,
            row(3)
        );
        let (mut client, asked) = Scripted::new(&[&first, &second]).connect().await;
        let filter = Jobs {
            limit: Some(3),
            ..Jobs::default()
        };
        let found = client.jobs(filter).await.unwrap();
        let found: Vec<JobId> = found.iter().map(|row| row.job).collect();
        assert_eq!(found, jobs(&[5, 4, 3]));
        drop(client);
        let asked = asked.await.unwrap();
        assert_eq!(
            (&asked[0]["limit"], &asked[1]["limit"], &asked[1]["before"]),
            (&3.into(), &1.into(), &"j4".into())
        );
        assert_eq!(asked.len(), 2);
    }

    #[tokio::test]
    async fn dispatch_without_an_answer_gives_its_keys() {
        let (mut client, asked) = Scripted::new(&[]).connect().await;
        let keyed = Send {
            text: "a".to_owned(),
            idempotency_key: Some("mine".to_owned()),
            ..Send::default()
        };
        let bare = Send {
            text: "b".to_owned(),
            toolsets: Some(Vec::new()),
            ..Send::default()
        };
        let lost = client.dispatch(&[keyed, bare]).await.unwrap_err();
        let RequestError::Unknown { keys, .. } = lost else {
            panic!("{lost}");
        };
        let asked = asked.await.unwrap();
        let sent = &asked[0]["jobs"];
        assert_eq!(keys[0], "mine");
        assert_eq!(sent[1]["idempotency_key"], keys[1].as_str());
        assert_eq!(sent[1]["must"], serde_json::json!(["toolsets"]));
    }

    #[tokio::test]
    async fn a_refusal_is_not_an_unknown_outcome() {
        let refused = r#"{"type":"error","code":"unknown-job","error":"there is no job `j9`"}"#;
        let (mut client, _asked) = Scripted::new(&[refused]).connect().await;
        let collected = client.collect(&jobs(&[9]), None, Wait::All).await;
        let error = collected.unwrap_err();
        assert!(matches!(error, RequestError::Refused(_)));
        assert_eq!(error.to_string(), "there is no job `j9`");
    }
}
