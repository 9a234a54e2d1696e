//! Why a turn that was accepted doesn't run: asked now and then, while somebody looks.
//!
//! Owns the two requests and when they are asked. Must not know what their answers mean
//! (`activity`).

use std::time::Duration;

use agentd_protocol::line::StatusAnswer;
use agentd_protocol::request::Status;
use agentd_protocol::rows::JobRow;
use agentd_protocol::work::Jobs;
use agentd_protocol::{JobId, Line};
use tokio::time::Instant;

use agentd_client::client::Client;
use agentd_client::wire::Received;

/// Whoever looks sees a change within this time.
const PAUSE: Duration = Duration::from_secs(1);
/// Jobs of its session that are looked at: more before it are not counted.
const ROWS: usize = 100;

/// What was asked, and answered so far.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    session: Option<String>,
    asked: Option<Instant>,
    jobs: Option<u64>,
    status: Option<u64>,
    rows: Option<Vec<JobRow>>,
    answer: Option<StatusAnswer>,
}

impl Waiting {
    /// Asks, unless it has just done so.
    pub(super) async fn ask(&mut self, client: &mut Client, job: JobId, now: Instant) {
        let soon = self.asked.is_some_and(|asked| now - asked < PAUSE);
        let Some(session) = self.session.clone().filter(|_| !soon) else {
            return;
        };
        self.asked = Some(now);
        (self.rows, self.answer) = (None, None);
        let jobs = Jobs {
            session: Some(session),
            before: Some(JobId(job.0.saturating_add(1))),
            limit: Some(ROWS),
            ..Jobs::default()
        };
        // A connection that is gone shows when it is read next.
        self.jobs = client.request("jobs", &jobs).await.ok();
        self.status = client
            .request("status", &Status { workers: true })
            .await
            .ok();
    }

    /// Takes a line; gives what was asked when it is complete.
    pub(super) fn line(&mut self, received: &Received) -> Option<(Vec<JobRow>, StatusAnswer)> {
        let answers = |id: Option<u64>| id.is_some_and(|id| received.answers(id));
        match &received.line {
            Some(Line::Accepted(accepted)) => self.session = Some(accepted.session.clone()),
            Some(Line::Jobs { jobs, .. }) if answers(self.jobs) => self.rows = Some(jobs.clone()),
            Some(Line::Status(status)) if answers(self.status) => {
                self.answer = Some((**status).clone());
            }
            _ => return None,
        }
        let rows = self.rows.take_if(|_| self.answer.is_some())?;
        Some((rows, self.answer.take()?))
    }
}
