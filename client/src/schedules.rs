//! Schedules: what is sent by itself, and what became of it.
//!
//! Owns the requests and their pages. Must not print, nor know the command line.

use agentd_protocol::schedule::{
    CronEdit, CronList, CronNamed, CronRuns, RunRow, ScheduleRow, ScheduleSpec,
};
use agentd_protocol::{JobId, Line, RequestKind, answered};
use serde_json::{Map, Value};

use crate::asked::{Reply, RequestError};
use crate::client::Client;
use crate::pages::{PageTaken, Paged, Pages};

/// Schedules, page by page, as they were made.
pub type SchedulePages = Pages<CronList>;
/// Runs of a schedule, page by page, newest first: all, or so many as its `limit` says.
pub type RunPages = Pages<CronRuns>;

impl Paged for CronList {
    type Page = Vec<ScheduleRow>;
    type Place = u64;

    fn page() -> PageTaken<Self::Page, u64> {
        (RequestKind::CronList, |line| match line {
            Line::CronList {
                schedules, next, ..
            } => Some((rows(schedules)?, next)),
            _ => None,
        })
    }

    fn go_on(&mut self, from: u64) {
        self.after = Some(from);
    }

    fn limit(&mut self) -> Option<&mut Option<usize>> {
        Some(&mut self.limit)
    }

    fn rows(page: &Self::Page) -> usize {
        page.len()
    }
}

impl Paged for CronRuns {
    type Page = Vec<RunRow>;
    type Place = u64;

    fn page() -> PageTaken<Self::Page, u64> {
        (RequestKind::CronRuns, |line| match line {
            Line::CronRuns { runs, next, .. } => Some((rows(runs)?, next)),
            _ => None,
        })
    }

    fn go_on(&mut self, from: u64) {
        self.before = Some(from);
    }

    fn limit(&mut self) -> Option<&mut Option<usize>> {
        Some(&mut self.limit)
    }

    fn rows(page: &Self::Page) -> usize {
        page.len()
    }
}

fn rows<T: serde::de::DeserializeOwned>(rows: Vec<Value>) -> Option<Vec<T>> {
    let rows = rows.into_iter().map(serde_json::from_value);
    rows.collect::<Result<_, _>>().ok()
}

/// The schedule of an answer.
fn row(line: Line) -> Option<ScheduleRow> {
    match line {
        Line::CronAdd { schedule, .. }
        | Line::CronEdit { schedule, .. }
        | Line::CronPause { schedule, .. }
        | Line::CronRemove { schedule, .. }
        | Line::CronResume { schedule, .. } => serde_json::from_value(*schedule).ok(),
        _ => None,
    }
}

/// A job that somebody asked a schedule for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedRun {
    /// Of which schedule.
    pub schedule: String,
    /// The job.
    pub job: JobId,
    /// Its session.
    pub session: String,
}

impl Client {
    /// Adds a schedule.
    ///
    /// # Errors
    /// When it can't be, or no answer came.
    pub async fn cron_add(
        &mut self,
        spec: &ScheduleSpec,
    ) -> Result<Reply<ScheduleRow>, RequestError> {
        self.answer_of(spec, (RequestKind::CronAdd, row)).await
    }

    /// Has a schedule say something else: these fields take the place of those that it has.
    ///
    /// # Errors
    /// When there is none, it can't be, or no answer came.
    pub async fn cron_edit(
        &mut self,
        schedule: &str,
        set: Map<String, Value>,
    ) -> Result<Reply<ScheduleRow>, RequestError> {
        let schedule = schedule.to_owned();
        let edit = CronEdit { schedule, set };
        self.answer_of(&edit, (RequestKind::CronEdit, row)).await
    }

    /// Pauses a schedule.
    ///
    /// # Errors
    /// When there is none, or no answer came.
    pub async fn cron_pause(&mut self, schedule: &str) -> Result<Reply<ScheduleRow>, RequestError> {
        self.of_schedule(RequestKind::CronPause, schedule).await
    }

    /// Has a schedule go on.
    ///
    /// # Errors
    /// When there is none, or no answer came.
    pub async fn cron_resume(
        &mut self,
        schedule: &str,
    ) -> Result<Reply<ScheduleRow>, RequestError> {
        self.of_schedule(RequestKind::CronResume, schedule).await
    }

    /// Forgets a schedule; its jobs stay.
    ///
    /// # Errors
    /// When there is none, or no answer came.
    pub async fn cron_remove(
        &mut self,
        schedule: &str,
    ) -> Result<Reply<ScheduleRow>, RequestError> {
        self.of_schedule(RequestKind::CronRemove, schedule).await
    }

    /// Runs a schedule once now, besides.
    ///
    /// # Errors
    /// When there is none, its send is refused, or no answer came.
    pub async fn cron_run(&mut self, schedule: &str) -> Result<Reply<AskedRun>, RequestError> {
        let taken = answered!(CronRun { schedule, job, session } => AskedRun {
            schedule,
            job,
            session,
        });
        self.answer_of(&named(schedule), taken).await
    }

    async fn of_schedule(
        &mut self,
        kind: RequestKind,
        schedule: &str,
    ) -> Result<Reply<ScheduleRow>, RequestError> {
        self.answer_of(&named(schedule), (kind, row)).await
    }
}

fn named(schedule: &str) -> CronNamed {
    CronNamed {
        schedule: schedule.to_owned(),
    }
}
