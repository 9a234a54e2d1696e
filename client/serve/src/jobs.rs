//! Jobs looked at and ended, questions answered, agents listed.
//!
//! Owns their shapes in HTTP. Must not know what any of it means.

use std::sync::Arc;
use std::time::Duration;

use agentd_client::asked::RequestError;
use agentd_client::jobs::Collected;
use agentd_client::wire::Nothing;
use agentd_protocol::request::Abort;
use agentd_protocol::rows::{AgentRow, JobRow};
use agentd_protocol::work::{self, JobPhase, Private};
use agentd_protocol::{Code, JobId, Line, RequestKind, answered};
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::app::{App, query};
use crate::body;
use crate::dispatch::Waiting;
use crate::problem::Problem;
use crate::result::Final;

/// A year, in seconds.
const LONGEST_SINCE: f64 = 31_536_000.0;

/// What stands for `{id}` in a path; what isn't UTF-8 names nothing.
pub(crate) type Named = Result<Path<String>, PathRejection>;

/// Which jobs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    /// Of one session.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9._:@/-]+$"))]
    session: Option<String>,
    /// Of one agent.
    agent: Option<String>,
    /// How far they are.
    state: Option<JobPhase>,
    /// With this label: `key` or `key=value`.
    label: Option<String>,
    /// Sent from inside this job's worker.
    parent: Option<JobId>,
    /// Accepted no longer ago than so many seconds.
    #[schemars(range(min = 0, max = 31_536_000))]
    since: Option<f64>,
    /// At most so many; 50 when absent.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
    /// Older than this one: the `next` of the page before.
    before: Option<JobId>,
}

/// Jobs, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Page {
    jobs: Vec<JobRow>,
    /// There are more: the next page is `before` this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<JobId>,
}

/// A job, and its result if it is done.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct One {
    #[serde(flatten)]
    row: JobRow,
    /// Null until it is done.
    #[schemars(with = "Option<Final>")]
    result: Option<Value>,
}

/// What is being cancelled.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Aborted {
    /// The job, or nothing if it had ended.
    jobs: Vec<JobId>,
}

/// The answer to a question: just one of these, and with a yes how far it goes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 2))]
pub(crate) struct Answer {
    /// To an `approval`.
    approve: Option<bool>,
    /// With `approve:true`: how far the yes goes, one of the question's `scopes`.
    scope: Option<work::Scope>,
    /// To a `choice`: one of its options.
    choice: Option<String>,
    /// To a `text` or a `secret`.
    #[schemars(with = "Option<String>")]
    text: Option<Private>,
    /// To any: there will be no answer.
    #[serde(default)]
    cancel: bool,
}

/// Another model or mode for a session; what isn't named stays, and something has to be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// The model.
    model: Option<String>,
    /// Its provider.
    provider: Option<String>,
    /// How hard to think, in the agent's words.
    thinking: Option<String>,
    /// In which of the agent's own modes to work.
    mode: Option<String>,
}

/// What is in force for a session.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InForce {
    session: String,
    provider: Option<String>,
    model: Option<String>,
    thinking: Option<String>,
    /// Where one was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
}

/// The question that was answered.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Answered {
    question_id: String,
}

/// Every agent known or looked for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentList {
    agents: Vec<AgentRow>,
}

/// Asks the daemon, and gives what was wanted of the answer. Its conversation is given back if it can
/// be used again: not when the answer may still come.
pub(crate) async fn ask<T>(
    app: &App,
    fields: &impl Serialize,
    (kind, take): (RequestKind, impl FnOnce(Line) -> Option<T>),
) -> Result<T, Problem> {
    let mut client = app.daemon.lease().await?;
    match client.answer(kind, fields).await {
        Ok(received) => {
            client.done();
            let text = received.text;
            let found = received.line.and_then(take);
            found.ok_or_else(|| RequestError::Strange(text).into())
        }
        Err(error) => {
            if matches!(error, RequestError::Refused(_)) {
                client.done();
            }
            Err(error.into())
        }
    }
}

/// What a path names. What can't be a name, isn't there.
pub(crate) fn name_of(named: Named, what: &str, code: Code) -> Result<String, Problem> {
    let Path(name) = named.map_err(|_| {
        let why = format!("there is no {what} of this name: it is not UTF-8");
        Problem::of(code, why)
    })?;
    Ok(name)
}

/// The job of a path. What can't be one, isn't there.
pub(crate) fn job_of(named: Named) -> Result<JobId, Problem> {
    let text = named.map_or_else(|_| char::REPLACEMENT_CHARACTER.into(), |Path(text)| text);
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        Problem::of(Code::UnknownJob, format!("there is no job `{shown}`"))
            .hint("a job is `j` and a number, as in `j41`")
    })
}

/// Nothing is known of it yet.
pub(crate) fn one_of(job: JobId) -> Collected {
    Collected {
        results: Vec::new(),
        pending: vec![job],
    }
}

impl Filter {
    /// As the protocol has it.
    pub(crate) fn into_fields(self) -> Result<work::Jobs, Problem> {
        if let Some(since) = self.since
            && !(0.0..=LONGEST_SINCE).contains(&since)
        {
            let why = format!("`since` is {since}: expected 0 to {LONGEST_SINCE} seconds");
            return Err(Problem::of(Code::InvalidRequest, why));
        }
        Ok(work::Jobs {
            session: self.session,
            agent: self.agent,
            state: self.state,
            label: self.label,
            parent: self.parent,
            since: self.since,
            limit: self.limit,
            before: self.before,
        })
    }
}

impl Answer {
    /// As the protocol has it.
    pub(crate) fn into_fields(self, question_id: String) -> work::Answer {
        work::Answer {
            question_id,
            approve: self.approve,
            scope: self.scope,
            choice: self.choice,
            text: self.text,
            cancel: self.cancel,
            by: None,
        }
    }
}

impl Model {
    /// As the protocol has it.
    pub(crate) fn into_fields(self, session: String) -> work::SetModel {
        work::SetModel {
            session,
            provider: self.provider,
            model: self.model,
            thinking: self.thinking,
            mode: self.mode,
        }
    }
}

pub(crate) async fn list(State(app): State<Arc<App>>, uri: Uri) -> Result<Json<Page>, Problem> {
    let fields = query::<Filter>(&uri)?.into_fields()?;
    let taken = answered!(Jobs { jobs, next } => Json(Page { jobs, next }));
    ask(&app, &fields, taken).await
}

pub(crate) async fn one(
    State(app): State<Arc<App>>,
    job: Named,
    uri: Uri,
) -> Result<Json<One>, Problem> {
    let wait = query::<Waiting>(&uri)?.limit()?;
    let job = job_of(job)?;
    let mut found = one_of(job);
    let client = app.daemon.lease().await?;
    let wait = wait.unwrap_or_default();
    app.results(client, &mut found, wait).await?;
    let row = app.row(job).await?;
    if found.results.is_empty() && row.finished_at.is_some() {
        // It ended between the two questions.
        let client = app.daemon.lease().await?;
        app.results(client, &mut found, Duration::ZERO).await?;
    }
    let result = found.results.pop();
    Ok(Json(One { row, result }))
}

impl App {
    /// The row of one job: the first of those before the next number.
    async fn row(&self, job: JobId) -> Result<JobRow, Problem> {
        let fields = work::Jobs {
            limit: Some(1),
            before: Some(JobId(job.0.saturating_add(1))),
            ..work::Jobs::default()
        };
        let taken = answered!(Jobs { jobs } => jobs);
        let rows = ask(self, &fields, taken).await?;
        let row = rows.into_iter().find(|row| row.job == job);
        row.ok_or_else(|| Problem::of(Code::UnknownJob, format!("there is no job `{job}`")))
    }
}

pub(crate) async fn abort(
    State(app): State<Arc<App>>,
    job: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Aborted>, Problem> {
    let job = job_of(job)?;
    body::nothing(&headers, body, &app.room).await?;
    // The daemon cancels what is there; whether it is, this says.
    let client = app.daemon.lease().await?;
    app.results(client, &mut one_of(job), Duration::ZERO)
        .await?;
    let fields = Abort {
        job: Some(job),
        ..Abort::default()
    };
    let taken = answered!(Abort { jobs } => Json(Aborted { jobs }));
    ask(&app, &fields, taken).await
}

pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    question: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Answered>, Problem> {
    let question_id = name_of(question, "question", Code::UnknownQuestion)?;
    let read = body::read(&headers, body, &app.room).await?;
    let fields = body::parse::<Answer>(&read.text)?.into_fields(question_id);
    let taken = answered!(Answer { question_id } => Json(Answered { question_id }));
    ask(&app, &fields, taken).await
}

pub(crate) async fn model(
    State(app): State<Arc<App>>,
    session: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<InForce>, Problem> {
    let session = name_of(session, "session", Code::UnknownSession)?;
    let read = body::read(&headers, body, &app.room).await?;
    let fields = body::parse::<Model>(&read.text)?.into_fields(session);
    let taken = answered!(
        SetModel { session, provider, model, thinking, mode }
            => Json(InForce { session, provider, model, thinking, mode })
    );
    ask(&app, &fields, taken).await
}

pub(crate) async fn agents(State(app): State<Arc<App>>) -> Result<Json<AgentList>, Problem> {
    let taken = answered!(Agents { agents } => Json(AgentList { agents }));
    ask(&app, &Nothing {}, taken).await
}
