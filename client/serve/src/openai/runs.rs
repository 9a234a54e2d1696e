//! `/v1/runs` and `/v1/capabilities`, as clients of Hermes' API server know them.
//!
//! Owns the routes. Must not know the shapes of runs.

use std::sync::Arc;
use std::time::Duration;

use agentd_faces::openai::failure::Failure;
use agentd_faces::openai::fields::Fields;
use agentd_faces::openai::run::{self, Run, RunRequest};
use agentd_faces::openai::{self as face, Named as Id};
use agentd_protocol::Code;
use agentd_protocol::request::OnQuestion;
use agentd_protocol::rows::{JobPhase, JobRow};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::asking::{Asking, Name};
use super::plan::{Plan, Source};
use super::{Refusal, answer, at, jobs, models, responses, session};
use crate::app::App;
use crate::body::{self, BodyText};
use crate::jobs::Named;

pub(super) async fn start(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let BodyText { text, room } = super::read(&app, &headers, body).await?;
    let mut asking = Asking::read(&headers, "/v1/runs", &text)?;
    let mut request = RunRequest::read(&text)?;
    drop(text);
    request.model = models::meant(&app, &asking, request.model)?;
    let ignored = std::mem::take(&mut request.ignored);
    let of = Arc::clone(&app);
    let (attempt, asker) = app.openai.attempts.begin(&mut asking, room).await;
    let source =
        async move { Source::of(&of, &asking, attempt, plan(&of, &asking, &request)).await };
    let taken = jobs::handed_in(&app, source, &asker).await?.taken;
    let started = json!({"run_id": Id::Run.id(taken.job), "status": "started"});
    let headers = answer::headers(&taken, &ignored);
    Ok((StatusCode::ACCEPTED, headers, Json(started)).into_response())
}

async fn plan(app: &App, asking: &Asking, request: &RunRequest) -> Result<Plan, Refusal> {
    let mut blank = session::blank(asking, &request.model, None);
    blank.on_question = Some(OnQuestion::Wait);
    let conversation = &request.conversation;
    if let Some(job) = request.previous {
        session::label(
            &mut blank.labels,
            face::PREVIOUS,
            Some(&Id::Response.id(job)),
        );
        let (row, alone) = responses::previous(app, job).await?;
        let plan = session::named(app, &Name::of(&row.session), conversation, blank).await?;
        return Ok(plan.alone(alone));
    }
    match &request.session {
        Some(name) => {
            let name = Name::of(name);
            let alone = app.openai.attempts.alone_in(&name.session).await;
            let plan = session::named(app, &name, conversation, blank).await?;
            Ok(plan.alone(alone))
        }
        None => session::plan(app, asking, None, conversation, blank).await,
    }
}

/// The job of the run that a path names.
pub(super) async fn named(app: &App, id: Named) -> Result<JobRow, Refusal> {
    let id = id.map_or_else(|_| char::REPLACEMENT_CHARACTER.into(), |id| id.0);
    let row = match Id::Run.job(&id) {
        Some(job) => jobs::one(app, job).await?,
        None => None,
    };
    row.ok_or_else(|| {
        let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
        Failure::not_found("run_not_found", format!("there is no run `{shown}`")).into()
    })
}

/// Seconds since 1970.
fn seconds(time: &str) -> f64 {
    at(time).as_secs_f64()
}

pub(super) async fn one(State(app): State<Arc<App>>, id: Named) -> Result<Json<Value>, Refusal> {
    let row = named(&app, id).await?;
    let last = jobs::last_line(&app, row.job, Duration::ZERO).await?;
    let asks = match row.state {
        JobPhase::Running => !jobs::questions(&app, &row).await?.is_empty(),
        _ => false,
    };
    let changed = row.finished_at.as_ref().or(row.started_at.as_ref());
    let created = seconds(&row.accepted_at);
    let run = Run {
        row: &row,
        last: last.as_ref(),
        asks,
        times: (created, changed.map_or(created, |time| seconds(time))),
    };
    Ok(Json(run.object()))
}

pub(super) async fn approve(
    State(app): State<Arc<App>>,
    id: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Refusal> {
    let row = named(&app, id).await?;
    let read = body::read(&headers, body, &app.room).await?;
    let mut fields = Fields::of(&read.text)?;
    let choice = fields.take::<String>("choice")?.ok_or_else(|| {
        let why = "`choice` is missing: expected one of those that the run's question has";
        Failure::invalid("choice", why)
    })?;
    let question = fields.take::<String>("question_id")?;
    let all: Option<bool> = fields.take("all")?.or(fields.take("resolve_all")?);
    let mut asked = jobs::questions(&app, &row).await?;
    if let Some(question) = question {
        asked.retain(|one| one.question_id == question);
    } else if !all.unwrap_or_default() {
        asked.truncate(1);
    }
    if asked.is_empty() {
        return Err(not_pending(&row));
    }
    let answers: Result<Vec<_>, Failure> = asked
        .iter()
        .map(|question| run::answer(&choice, question))
        .collect();
    let mut resolved = 0;
    for answer in answers? {
        match jobs::answer(&app, &answer).await {
            Ok(()) => resolved += 1,
            // Somebody was faster.
            Err(refusal) if refusal.failure.code == Code::AlreadyAnswered.name() => {}
            Err(refusal) => return Err(refusal),
        }
    }
    if resolved == 0 {
        return Err(not_pending(&row));
    }
    Ok(Json(json!({
        "object": "hermes.run.approval_response", "run_id": Id::Run.id(row.job),
        "choice": choice, "resolved": resolved,
    })))
}

fn not_pending(row: &JobRow) -> Refusal {
    let why = format!("the run `{}` waits for no answer", Id::Run.id(row.job));
    Failure::new(409, "approval_not_pending", why).into()
}

pub(super) async fn stop(
    State(app): State<Arc<App>>,
    id: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Refusal> {
    // Whatever it says.
    drop(body::read_any(&headers, body, &app.room).await?);
    let row = named(&app, id).await?;
    jobs::cancel(&app, row.job).await?;
    let status = match row.state {
        JobPhase::Queued | JobPhase::Held | JobPhase::Running => "stopping",
        JobPhase::Completed => "completed",
        JobPhase::Cancelled => "cancelled",
        JobPhase::Failed | JobPhase::Interrupted => "failed",
    };
    Ok(Json(
        json!({"run_id": Id::Run.id(row.job), "status": status}),
    ))
}

/// What is there, for clients that look.
pub(super) async fn capabilities(State(app): State<Arc<App>>) -> Json<Value> {
    let route = |method: &str, path: &str| json!({"method": method, "path": path});
    Json(json!({
        "object": "hermes.api_server.capabilities", "platform": "agentd",
        "model": agentd_faces::openai::model::DEFAULT,
        "auth": {"type": "bearer", "required": true},
        "runtime": {
            "mode": "server_agent", "tool_execution": "server", "split_runtime": false,
            "description": "Agents run their tools themselves, where agentd runs.",
        },
        "features": {
            "chat_completions": true, "chat_completions_streaming": true, "responses_api": true,
            "responses_streaming": true, "run_submission": true, "run_status": true,
            "run_events_sse": true, "run_stop": true, "run_approval_response": true,
            "tool_progress_events": true, "approval_events": true, "session_resources": false,
            "session_chat": false, "session_chat_streaming": false, "session_fork": false,
            "admin_config_rw": false, "jobs_admin": false, "memory_write_api": false,
            "skills_api": false, "audio_api": false, "realtime_voice": false,
            "session_continuity_header": "X-Hermes-Session-Id", "session_key_header": null,
            "cors": app.guard.lets_pages_ask(),
        },
        "endpoints": {
            "health": route("GET", "/health"),
            "health_detailed": route("GET", "/health/detailed"),
            "models": route("GET", "/v1/models"),
            "chat_completions": route("POST", "/v1/chat/completions"),
            "responses": route("POST", "/v1/responses"),
            "runs": route("POST", "/v1/runs"),
            "run_status": route("GET", "/v1/runs/{run_id}"),
            "run_events": route("GET", "/v1/runs/{run_id}/events"),
            "run_approval": route("POST", "/v1/runs/{run_id}/approval"),
            "run_stop": route("POST", "/v1/runs/{run_id}/stop"),
        },
    }))
}
