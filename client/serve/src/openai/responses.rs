//! `/v1/responses` and `/v1/conversations`.
//!
//! Owns what a response goes on from, and which can be read again. Must not know its shape.

use std::sync::Arc;
use std::time::Duration;

use agentd_client::key;
use agentd_faces::openai::conversation::{Begins, Sum};
use agentd_faces::openai::failure::Failure;
use agentd_faces::openai::fields::Fields;
use agentd_faces::openai::response::{Failing, Progress, ResponseHead};
use agentd_faces::openai::response_request::{Continues, ResponseRequest};
use agentd_faces::openai::response_turn::{ResponseTurn, Told, kept};
use agentd_faces::openai::{self as face, Named as Id};
use agentd_protocol::line::MessageEnd;
use agentd_protocol::request::Send;
use agentd_protocol::rows::{JobPhase, JobRow};
use agentd_protocol::work::Jobs;
use agentd_protocol::{JobId, Line};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::answer::{self, Teller};
use super::asking::{Asking, Name};
use super::plan::{Plan, Source, asked_before};
use super::turn::Taken;
use super::{OnLeave, Refusal, at, jobs, models, now, session};
use crate::app::App;
use crate::body;
use crate::jobs::Named;

/// A response as it is told.
struct Telling(ResponseTurn);

impl Teller for Telling {
    fn first(&mut self) -> String {
        self.0.first()
    }

    fn line(&mut self, line: &Line) -> String {
        self.0.line(line)
    }

    fn end(&mut self, end: &MessageEnd) -> String {
        self.0.end(end)
    }

    fn failed(&mut self, failure: &Failure) -> String {
        self.0.failed(failure)
    }

    fn whole(&mut self, end: &MessageEnd) -> Value {
        drop(self.0.end(end));
        self.0.object()
    }
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let read = body::read(&headers, body, &app.room).await?;
    let asking = Asking::read(&headers, "/v1/responses", &read.text)?;
    let mut request = ResponseRequest::read(&read.text)?;
    request.model = models::meant(&app, &asking, request.model)?;
    let asking = asking.known(&request.conversation);
    let source = match asked_before(&app, &asking).await? {
        Some(row) => Source::Job(Box::new(row)),
        None => Source::Plan(Box::new(plan(&app, &asking, &request).await?)),
    };
    // Its room is for other bodies while the answer is waited for.
    drop(read);
    let ignored = std::mem::take(&mut request.ignored);
    if request.in_background && !request.streams {
        return in_background(&app, source, &request, &ignored).await;
    }
    let (streams, stays) = (request.streams, request.in_background);
    let told = if streams { Told::Events } else { Told::Output };
    let failing = match asking.codex {
        Some(_) => Failing::AskedAgain,
        None => Failing::Told,
    };
    let teller = move |taken: &Taken| {
        let head = head(&request, taken);
        Telling(ResponseTurn::new(ResponseHead { failing, ..head }, told))
    };
    if streams {
        let on_leave = if stays {
            OnLeave::GoOn
        } else {
            app.openai.on_leave
        };
        answer::streamed(app, &headers, (source, on_leave), &ignored, teller).await
    } else {
        answer::whole(&app, source, &ignored, teller).await
    }
}

fn head(request: &ResponseRequest, taken: &Taken) -> ResponseHead {
    let mut head = ResponseHead::of(request, (taken.job, &taken.agent), now().as_secs());
    match &request.continues {
        Continues::Itself => {}
        Continues::Previous(job) => head.previous = Some(Id::Response.id(*job)),
        Continues::Named(name) => head.conversation = Some(name.clone()),
    }
    head.in_background = request.in_background;
    head
}

async fn in_background(
    app: &App,
    source: Source,
    request: &ResponseRequest,
    ignored: &[String],
) -> Result<Response, Refusal> {
    let row = jobs::handed_in(app, source).await?;
    let taken = Taken::of(&row);
    let progress = match row.state {
        JobPhase::Queued | JobPhase::Held => Progress::Queued,
        _ => Progress::Running,
    };
    let object = head(request, &taken).object(&progress, &[]);
    Ok((answer::headers(&taken, ignored), Json(object)).into_response())
}

/// The send that a request becomes.
async fn plan(app: &App, asking: &Asking, request: &ResponseRequest) -> Result<Plan, Refusal> {
    let mut blank = session::blank(asking, &request.model, request.user.as_deref());
    let labels = &mut blank.labels;
    for (name, value) in &request.metadata {
        session::label(labels, &format!("{}{name}", face::METADATA), Some(value));
    }
    if !request.stored {
        session::label(labels, face::STORE, Some("false"));
    }
    if request.in_background {
        session::label(labels, face::BACKGROUND, Some("true"));
    }
    let instructions = instructions(&request.conversation.system);
    session::label(labels, face::INSTRUCTIONS, instructions.as_deref());
    match &request.continues {
        Continues::Itself => session::plan(app, asking, &request.conversation, blank).await,
        Continues::Previous(job) => {
            session::label(labels, face::PREVIOUS, Some(&Id::Response.id(*job)));
            let row = previous(app, *job).await?;
            blank.session = Some(row.session.clone());
            Ok(goes_on(&row, request, blank))
        }
        Continues::Named(name) => {
            let name = Name::of(name);
            session::label(labels, face::SESSION, name.word.as_deref());
            blank.session = Some(name.session.clone());
            let filter = Jobs {
                session: Some(name.session.clone()),
                limit: Some(1),
                ..Jobs::default()
            };
            let last = match jobs::session(app, &name.session).await? {
                Some(_) => jobs::newest(app, filter).await?.pop(),
                None => None,
            };
            match last {
                Some(row) => Ok(goes_on(&row, request, blank)),
                None => {
                    request.conversation.put_into(&mut blank, Begins::Yes);
                    Ok(Plan::only(blank))
                }
            }
        }
    }
}

/// What whoever made the client says, as a label.
fn instructions(system: &str) -> Option<String> {
    let mut sum = Sum::default();
    sum.add(system);
    (!system.is_empty()).then(|| sum.hex())
}

/// A turn behind this one, in its session: all that the request says is new, but for instructions
/// that the agent had then.
fn goes_on(last: &JobRow, request: &ResponseRequest, mut send: Send) -> Plan {
    let mut conversation = request.conversation.clone();
    let had = last.labels.get(face::INSTRUCTIONS);
    if had == send.labels.get(face::INSTRUCTIONS) {
        conversation.system.clear();
    }
    conversation.put_into(&mut send, Begins::Yes);
    Plan::only(send)
}

/// The job of the response that a request goes on from.
pub(super) async fn previous(app: &App, job: JobId) -> Result<JobRow, Refusal> {
    let param = "previous_response_id";
    let id = Id::Response.id(job);
    let Some(row) = stored(app, job).await? else {
        let why = format!("there is no response `{id}`");
        let failure = Failure::not_found("previous_response_not_found", why);
        return Err(failure.about(param).into());
    };
    if !jobs::is_last(app, &row).await? {
        let why = format!(
            "the session of `{id}` has gone on since: expected its last response, as an agent can't go back"
        );
        let failure = Failure::new(400, "previous_response_not_last", why);
        return Err(failure.about(param).into());
    }
    Ok(row)
}

/// The job of a response that can be read.
async fn stored(app: &App, job: JobId) -> Result<Option<JobRow>, Refusal> {
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

fn id_of(named: Named) -> String {
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
fn seconds(time: &str) -> u64 {
    at(time).as_secs()
}

async fn object(app: &App, row: &JobRow) -> Result<Json<Value>, Refusal> {
    let Some(turn) = jobs::history(app, row).await? else {
        return Err(no_response(&Id::Response.id(row.job)));
    };
    let created = seconds(&row.accepted_at);
    let head = ResponseHead::of_row(row, created);
    Ok(Json(kept(head, &turn)))
}

pub(super) async fn one(State(app): State<Arc<App>>, id: Named) -> Result<Json<Value>, Refusal> {
    let row = named(&app, id).await?;
    object(&app, &row).await
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
    let id = format!("msg_{}_in", row.job);
    let item = json!({"id": id, "type": "message", "role": "user", "status": "completed", "content": content});
    Ok(Json(json!({
        "object": "list", "data": [item], "first_id": id, "last_id": id, "has_more": false,
    })))
}

/// A conversation is a session, which its first response makes.
pub(super) async fn make_conversation(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Refusal> {
    let read = body::read_any(&headers, body, &app.room).await?;
    if let Some(read) = read {
        let mut fields = Fields::of(&read.text)?;
        let items = fields.take::<Vec<Value>>("items")?;
        if items.is_some_and(|items| !items.is_empty()) {
            let why =
                "`items`: a conversation begins with its first response: put them into its `input`";
            return Err(Failure::invalid("items", why).into());
        }
    }
    let random = key::random().map_err(|why| Failure::new(500, "internal", why.to_string()))?;
    let created = now().as_secs();
    let rest = random.get(..24).unwrap_or_default();
    let id = format!("conv_{created:08x}{rest}");
    Ok(Json(conversation(&id, created)))
}

/// When a name was made here, which it says itself: nothing else is kept of it.
fn made(id: &str) -> Option<u64> {
    let digits = id.strip_prefix("conv_").filter(|rest| rest.len() == 32)?;
    u64::from_str_radix(digits.get(..8)?, 16).ok()
}

fn conversation(id: &str, created: u64) -> Value {
    json!({"id": id, "object": "conversation", "created_at": created, "metadata": {}})
}

pub(super) async fn one_conversation(
    State(app): State<Arc<App>>,
    id: Named,
) -> Result<Json<Value>, Refusal> {
    let id = id_of(id);
    let name = Name::of(&id);
    let row = jobs::session(&app, &name.session).await?;
    let created = row.map(|row| seconds(&row.created_at));
    match created.or_else(|| made(&id)) {
        Some(created) => Ok(Json(conversation(&id, created))),
        None => {
            let why = "there is no conversation of this name";
            Err(Failure::not_found("conversation_not_found", why).into())
        }
    }
}
