//! Responses that are read again, which their jobs are, told anew; cancelled, or deleted.
//!
//! Owns which of them can be read. Must not know how one is made.

use std::sync::Arc;
use std::time::Duration;

use agentd_faces::openai::failure::Failure;
use agentd_faces::openai::format;
use agentd_faces::openai::response::ResponseHead;
use agentd_faces::openai::response_turn::{ResponseTurn, Told, kept};
use agentd_faces::openai::{self as face, Named as Id};
use agentd_protocol::rows::{JobRow, TurnRow};
use agentd_protocol::{JobId, Line};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::plan::Source;
use super::responses::Telling;
use super::turn::Taken;
use super::{OnLeave, Refusal, answer, at, jobs};
use crate::app::{self, App};
use crate::body;
use crate::jobs::Named;

/// The job of a response that can be read.
pub(super) async fn stored(app: &App, job: JobId) -> Result<Option<JobRow>, Refusal> {
    let Some(row) = jobs::one(app, job).await? else {
        return Ok(None);
    };
    let is_hidden = row
        .labels
        .get(face::STORE)
        .is_some_and(|store| store == "false");
    let is_deleted = app.openai.deleted.has(&jobs::epoch(app).await?, job);
    Ok(Some(row).filter(|_| !is_hidden && !is_deleted))
}

pub(super) fn id_of(named: Named) -> String {
    named.map_or_else(|_| char::REPLACEMENT_CHARACTER.into(), |id| id.0)
}

fn no_response(id: &str) -> Refusal {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    let why = format!("there is no response `{shown}`");
    Failure::not_found("response_not_found", why)
        .about("response_id")
        .into()
}

/// The job of the response that a path names.
async fn named(app: &App, id: Named) -> Result<JobRow, Refusal> {
    let id = id_of(id);
    let row = match Id::Response.job(&id) {
        Some(job) => stored(app, job).await?,
        None => None,
    };
    row.ok_or_else(|| no_response(&id))
}

/// Seconds since 1970.
pub(super) fn seconds(time: &str) -> u64 {
    at(time).as_secs()
}

/// What a response is read again from.
async fn kept_turn(app: &App, row: &JobRow) -> Result<(ResponseHead, TurnRow), Refusal> {
    let Some(mut turn) = jobs::history(app, row).await? else {
        return Err(no_response(&Id::Response.id(row.job)));
    };
    // A history has the beginnings of what is long.
    if let Some(said) = turn.messages.last_mut().filter(|said| said.truncated)
        && let Some(Line::MessageEnd(end)) = jobs::last_line(app, row.job, Duration::ZERO).await?
    {
        said.text = end.turn.text;
    }
    let mut head = ResponseHead::of_row(row, seconds(&row.accepted_at));
    let begun = turn.request.as_ref().and_then(|sent| sent.get("system"));
    let system = begun.and_then(Value::as_str).unwrap_or_default();
    let said = format::without(system);
    head.instructions = (!said.is_empty()).then(|| said.to_owned());
    Ok((head, turn))
}

async fn object(app: &App, row: &JobRow) -> Result<Json<Value>, Refusal> {
    let (head, turn) = kept_turn(app, row).await?;
    Ok(Json(kept(head, &turn)))
}

/// How it is to be read.
#[derive(Deserialize)]
struct Reading {
    #[serde(default)]
    stream: bool,
    starting_after: Option<String>,
}

pub(super) async fn one(
    State(app): State<Arc<App>>,
    id: Named,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let reading: Reading = app::query(&uri)?;
    let row = named(&app, id).await?;
    if !reading.stream {
        return Ok(object(&app, &row).await?.into_response());
    }
    if reading.starting_after.is_some() {
        let why = "`starting_after`: a turn's text is kept, not the pieces in which it was told: \
                   expected none, which gives the events from the beginning";
        return Err(Failure::invalid("starting_after", why).into());
    }
    let (head, _) = kept_turn(&app, &row).await?;
    let teller = move |_: &Taken| Telling(ResponseTurn::new(head, Told::Events));
    // Whoever only reads cancels nothing by leaving.
    let source = async { Ok(Source::Job(Box::new(row))) };
    answer::streamed(app, &headers, (source, OnLeave::GoOn, None), &[], teller).await
}

pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    id: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Refusal> {
    // Whatever it says.
    drop(body::read_any(&headers, body, &app.room).await?);
    let row = named(&app, id).await?;
    jobs::abort(&app, row.job).await?;
    let row = jobs::one(&app, row.job).await?.unwrap_or(row);
    object(&app, &row).await
}

pub(super) async fn delete(State(app): State<Arc<App>>, id: Named) -> Result<Json<Value>, Refusal> {
    let row = named(&app, id).await?;
    let epoch = jobs::epoch(&app).await?;
    // What nobody can read any more needn't go on.
    if jobs::last_line(&app, row.job, Duration::ZERO)
        .await?
        .is_none()
    {
        jobs::cancel(&app, row.job).await?;
    }
    app.openai.deleted.add(&epoch, row.job).map_err(|why| {
        let why = format!("that it is deleted can't be written down: {why}");
        Failure::later(503, "store-failed", why)
    })?;
    let id = Id::Response.id(row.job);
    Ok(Json(
        json!({"id": id, "object": "response", "deleted": true}),
    ))
}

pub(super) async fn input_items(
    State(app): State<Arc<App>>,
    id: Named,
) -> Result<Json<Value>, Refusal> {
    let row = named(&app, id).await?;
    let Some(turn) = jobs::history(&app, &row).await? else {
        return Err(no_response(&Id::Response.id(row.job)));
    };
    let whole = turn
        .request
        .as_ref()
        .and_then(|request| request.get("text"));
    let text = whole.and_then(Value::as_str).unwrap_or(&turn.text);
    let mut content = vec![json!({"type": "input_text", "text": text})];
    for attached in &turn.attachments {
        // Their content isn't told again.
        let name = attached.name.as_deref().or(attached.mime.as_deref());
        content.push(json!({"type": "input_file", "filename": name}));
    }
    // Newest first, as OpenAI has them.
    let earlier = turn.request.as_ref().and_then(|sent| sent.get("history"));
    let earlier = earlier
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .rev();
    let mut items = vec![item(&row, 0, "user", &content.into())];
    for one in earlier {
        let role = one["role"].as_str().unwrap_or_default();
        let kind = if role == "assistant" {
            "output_text"
        } else {
            "input_text"
        };
        let content = json!([{"type": kind, "text": one["text"]}]);
        items.push(item(&row, items.len(), role, &content));
    }
    let (first, last) = (items.first(), items.last());
    let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
    Ok(Json(json!({
        "object": "list", "first_id": id(first), "last_id": id(last), "has_more": false,
        "data": items,
    })))
}

/// An item of a response's input.
fn item(row: &JobRow, number: usize, role: &str, content: &Value) -> Value {
    let id = format!("msg_{}_in_{number}", row.job);
    json!({"id": id, "type": "message", "role": role, "status": "completed", "content": content})
}
