//! `/v1/responses` and `/v1/conversations`.
//!
//! Owns what a response goes on from. Must not know its shape, nor how it is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentd_client::key;
use agentd_faces::openai::conversation::{Begins, Conversation};
use agentd_faces::openai::failure::Failure;
use agentd_faces::openai::fields::Fields;
use agentd_faces::openai::response::{Failing, Progress, ResponseHead};
use agentd_faces::openai::response_request::{Continues, ResponseRequest};
use agentd_faces::openai::response_turn::{ResponseTurn, Told};
use agentd_faces::openai::{self as face, Named as Id};
use agentd_protocol::line::MessageEnd;
use agentd_protocol::request::Send;
use agentd_protocol::rows::{JobPhase, JobRow};
use agentd_protocol::{JobId, Line};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::answer::{self, IGNORED, Teller};
use super::asking::{Asking, Name};
use super::attempts::{Asker, Held};
use super::jobs::HandedIn;
use super::plan::{Plan, Source};
use super::read_again::{id_of, seconds, stored};
use super::turn::Taken;
use super::{OnLeave, Refusal, jobs, models, now, session};
use crate::app::App;
use crate::body::{self, BodyText};
use crate::jobs::Named;

/// A response as it is told.
pub(super) struct Telling(pub(super) ResponseTurn);

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
    let BodyText { text, room } = super::read(&app, &headers, body).await?;
    let asking = Asking::read(&headers, "/v1/responses", &text)?;
    let mut request = ResponseRequest::read(&text)?;
    drop(text);
    request.model = models::meant(&app, &asking, request.model)?;
    let mut asking = asking.known(&request.conversation);
    let failing = match asking.codex {
        Some(_) => Failing::AskedAgain,
        None => Failing::Told,
    };
    let ignored = std::mem::take(&mut request.ignored);
    // It is as large as the request.
    let conversation = std::mem::take(&mut request.conversation);
    let request = Arc::new(request);
    let (of, asked) = (Arc::clone(&app), Arc::clone(&request));
    let (attempt, asker) = app.openai.attempts.begin(&mut asking, room).await;
    let again = asking.again();
    let source = async move {
        let plan = plan(&of, &asking, &asked, &conversation);
        Source::of(&of, &asking, attempt, plan).await
    };
    if request.in_background && !request.streams {
        return in_background(&app, (source, asker), &request, &ignored).await;
    }
    let (streams, stays) = (request.streams, request.in_background);
    let told = if streams { Told::Events } else { Told::Output };
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
        let from = (source, on_leave, Some(asker));
        answer::streamed(app, &headers, from, &ignored, teller).await
    } else {
        answer::whole(app, (source, again, asker), &ignored, teller).await
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
    app: &Arc<App>,
    (source, asker): (
        impl Future<Output = Result<Source, Refusal>> + std::marker::Send + 'static,
        Asker,
    ),
    request: &ResponseRequest,
    ignored: &[String],
) -> Result<Response, Refusal> {
    let HandedIn { taken, phase } = jobs::handed_in(app, source, &asker).await?;
    let progress = match phase {
        JobPhase::Queued | JobPhase::Held => Progress::Queued,
        _ => Progress::Running,
    };
    let object = head(request, &taken).object(&progress, &[]);
    Ok((answer::headers(&taken, ignored), Json(object)).into_response())
}

/// The send that a request becomes.
async fn plan(
    app: &App,
    asking: &Asking,
    request: &ResponseRequest,
    conversation: &Conversation,
) -> Result<Plan, Refusal> {
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
    let instructions = session::instructions(&conversation.system);
    session::label(labels, face::INSTRUCTIONS, instructions.as_deref());
    match &request.continues {
        Continues::Itself => {
            let user = request.user.as_deref();
            session::plan(app, asking, user, conversation, blank).await
        }
        Continues::Previous(job) => {
            session::label(labels, face::PREVIOUS, Some(&Id::Response.id(*job)));
            let (row, alone) = previous(app, *job).await?;
            blank.session = Some(row.session.clone());
            Ok(goes_on(&row, conversation, blank).alone(alone))
        }
        Continues::Named(name) => {
            let name = Name::of(name);
            session::label(labels, face::SESSION, name.word.as_deref());
            blank.session = Some(name.session.clone());
            let alone = app.openai.attempts.alone_in(&name.session).await;
            let last = match jobs::session(app, &name.session).await? {
                Some(_) => jobs::last(app, &name.session).await?,
                None => None,
            };
            let plan = match last {
                Some(row) => goes_on(&row, conversation, blank),
                None => {
                    conversation.put_into(&mut blank, Begins::Yes);
                    Plan::only(blank)
                }
            };
            Ok(plan.alone(alone))
        }
    }
}

/// A turn behind this one, in its session: all that the request says is new, but for instructions
/// that the agent had then.
fn goes_on(last: &JobRow, conversation: &Conversation, mut send: Send) -> Plan {
    let mut conversation = conversation.clone();
    let had = last.labels.get(face::INSTRUCTIONS);
    if had == send.labels.get(face::INSTRUCTIONS) {
        conversation.system.clear();
    }
    conversation.put_into(&mut send, Begins::WithNews);
    Plan::only(send)
}

/// The job of the response that a request goes on from, while nobody else goes on in its session.
pub(super) async fn previous(app: &App, job: JobId) -> Result<(JobRow, Held), Refusal> {
    let id = Id::Response.id(job);
    let not_found = |why: String| {
        let failure = Failure::not_found("previous_response_not_found", why);
        Err(failure.about("previous_response_id").into())
    };
    let Some(row) = stored(app, job).await? else {
        return not_found(format!("there is no response `{id}`"));
    };
    let alone = app.openai.attempts.alone_in(&row.session).await;
    if jobs::session(app, &row.session).await?.is_none() {
        return not_found(format!(
            "the session of `{id}` was closed since: say what is to go on from in `input`"
        ));
    }
    if !jobs::is_last_answered(app, &row).await? {
        let why = format!(
            "the session of `{id}` has gone on since: expected its last answered response, as an agent can't go back"
        );
        let failure = Failure::new(400, "previous_response_not_last", why);
        return Err(failure.about("previous_response_id").into());
    }
    Ok((row, alone))
}

/// A conversation is a session, which its first response makes.
pub(super) async fn make_conversation(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Refusal> {
    let read = body::read_any(&headers, body, &app.room).await?;
    let mut ignored = HeaderMap::new();
    if let Some(read) = read {
        let mut fields = Fields::of(&read.text)?;
        let metadata = fields.take::<BTreeMap<String, String>>("metadata")?;
        if metadata.is_some_and(|metadata| !metadata.is_empty()) {
            // A session has no labels.
            ignored.insert(IGNORED, HeaderValue::from_static("metadata"));
        }
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
    Ok((ignored, Json(conversation(&id, created))))
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
