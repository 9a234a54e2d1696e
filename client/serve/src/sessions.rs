//! Titles and forks of sessions.
//!
//! Owns their shapes in HTTP. Must not know what a session is.

use std::sync::Arc;

use agentd_protocol::{Code, answered, work};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::body;
use crate::jobs::{Named, ask, name_of};
use crate::problem::Problem;

/// What a session is called in lists.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Title {
    /// `null` or none: how its first prompt begins.
    title: Option<String>,
}

/// What it is called now.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Titled {
    session: String,
    title: Option<String>,
}

/// Another session that begins with what the agent remembers of one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fork {
    /// What the new one is called; a name is made when absent.
    to: Option<String>,
}

/// The new session.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Forked {
    session: String,
    /// The one that it begins with.
    from: String,
    agent: String,
    cwd: String,
}

pub(crate) async fn title(
    State(app): State<Arc<App>>,
    session: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Titled>, Problem> {
    let session = name_of(session, "session", Code::UnknownSession)?;
    let read = body::read(&headers, body, &app.room).await?;
    let Title { title } = body::parse(&read.text)?;
    let fields = work::SessionTitle { session, title };
    let taken = answered!(SessionTitle { session, title } => Json(Titled { session, title }));
    ask(&app, &fields, taken).await
}

pub(crate) async fn fork(
    State(app): State<Arc<App>>,
    session: Named,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Forked>, Problem> {
    let session = name_of(session, "session", Code::UnknownSession)?;
    let read = body::read(&headers, body, &app.room).await?;
    let Fork { to } = body::parse(&read.text)?;
    let fields = work::SessionFork { session, to };
    let taken = answered!(
        SessionFork { session, from, agent, cwd }
            => Json(Forked { session, from, agent, cwd })
    );
    ask(&app, &fields, taken).await
}
