//! `POST /v1/chat/completions`.
//!
//! Owns the route. Must not know its fields, nor sessions.

use std::sync::Arc;

use agentd_faces::openai::chat::ChatRequest;
use agentd_faces::openai::chat_reply::ChatReply;
use agentd_faces::openai::failure::Failure;
use agentd_protocol::Line;
use agentd_protocol::line::MessageEnd;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

use super::answer::{self, Teller};
use super::asking::Asking;
use super::plan::Source;
use super::turn::Taken;
use super::{Refusal, models, now, session};
use crate::app::App;
use crate::body::BodyText;

/// A chat completion as it is told.
struct Chat {
    reply: ChatReply,
    tells_usage: bool,
}

impl Teller for Chat {
    fn first(&mut self) -> String {
        self.reply.first()
    }

    fn line(&mut self, line: &Line) -> String {
        self.reply.line(line)
    }

    fn end(&mut self, end: &MessageEnd) -> String {
        self.reply.end(end, self.tells_usage)
    }

    fn failed(&mut self, failure: &Failure) -> String {
        ChatReply::failed(failure)
    }

    fn whole(&mut self, end: &MessageEnd) -> Value {
        self.reply.whole(end)
    }
}

pub(super) async fn chat(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let BodyText { text, room } = super::read(&app, &headers, body).await?;
    let mut asking = Asking::read(&headers, "/v1/chat/completions", &text)?;
    let mut request = ChatRequest::read(&text)?;
    drop(text);
    request.model = models::meant(&app, &asking, request.model)?;
    let ChatRequest {
        model,
        conversation,
        streams,
        tells_usage,
        user,
        ignored,
    } = request;
    let (of, named) = (Arc::clone(&app), model.clone());
    let (attempt, asker) = app.openai.attempts.begin(&mut asking, room).await;
    let again = asking.again();
    let source = async move {
        let blank = session::blank(&asking, &named, user.as_deref());
        let plan = session::plan(&of, &asking, user.as_deref(), &conversation, blank);
        Source::of(&of, &asking, attempt, plan).await
    };
    let teller = move |taken: &Taken| Chat {
        reply: ChatReply::new(taken.job, model.told(&taken.agent), now().as_secs()),
        tells_usage,
    };
    if streams {
        let from = (source, app.openai.on_leave, Some(asker));
        answer::streamed(app, &headers, from, &ignored, teller).await
    } else {
        answer::whole(app, (source, again, asker), &ignored, teller).await
    }
}
