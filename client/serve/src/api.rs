//! The operations: what can be asked, under which method and path.
//!
//! Owns that list; the routes and the document are both made of it. Must not know how a request is
//! answered. What OpenAI's clients ask has a list of its own (`openai`).

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::app::App;
use crate::problem::Problem;
use crate::{dispatch, document, events, gateway, health, jobs, mcp, models, openai, sessions};

/// What can be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Dispatch,
    Jobs,
    Job,
    Events,
    Abort,
    Answer,
    Model,
    Title,
    Fork,
    SessionModels,
    SessionCommands,
    Agents,
    AgentModels,
    AgentCommands,
    Health,
    Detailed,
    Metrics,
    Document,
}

impl Operation {
    pub(crate) const ALL: [Self; 18] = [
        Self::Dispatch,
        Self::Jobs,
        Self::Job,
        Self::Events,
        Self::Abort,
        Self::Answer,
        Self::Model,
        Self::Title,
        Self::Fork,
        Self::SessionModels,
        Self::SessionCommands,
        Self::Agents,
        Self::AgentModels,
        Self::AgentCommands,
        Self::Health,
        Self::Detailed,
        Self::Metrics,
        Self::Document,
    ];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Dispatch => "/v1/dispatch",
            Self::Jobs => "/v1/jobs",
            Self::Job => "/v1/jobs/{id}",
            Self::Events => "/v1/jobs/{id}/events",
            Self::Abort => "/v1/jobs/{id}/abort",
            Self::Answer => "/v1/questions/{id}",
            Self::Model => "/v1/sessions/{id}/model",
            Self::Title => "/v1/sessions/{id}/title",
            Self::Fork => "/v1/sessions/{id}/fork",
            Self::SessionModels => "/v1/sessions/{id}/models",
            Self::SessionCommands => "/v1/sessions/{id}/commands",
            Self::Agents => "/v1/agents",
            Self::AgentModels => "/v1/agents/{id}/models",
            Self::AgentCommands => "/v1/agents/{id}/commands",
            Self::Health => "/health",
            Self::Detailed => "/health/detailed",
            Self::Metrics => "/metrics",
            Self::Document => "/openapi.json",
        }
    }

    pub(crate) const fn method(self) -> Method {
        match self {
            Self::Dispatch
            | Self::Abort
            | Self::Answer
            | Self::Model
            | Self::Title
            | Self::Fork => Method::POST,
            _ => Method::GET,
        }
    }

    fn handler(self) -> MethodRouter<Arc<App>> {
        let method = match self.method() {
            Method::POST => MethodFilter::POST,
            _ => MethodFilter::GET,
        };
        match self {
            Self::Dispatch => on(method, dispatch::dispatch),
            Self::Jobs => on(method, jobs::list),
            Self::Job => on(method, jobs::one),
            Self::Events => on(method, events::events),
            Self::Abort => on(method, jobs::abort),
            Self::Answer => on(method, jobs::answer),
            Self::Model => on(method, jobs::model),
            Self::Title => on(method, sessions::title),
            Self::Fork => on(method, sessions::fork),
            Self::SessionModels => on(method, models::of_session),
            Self::SessionCommands => on(method, models::commands_of_session),
            Self::Agents => on(method, jobs::agents),
            Self::AgentModels => on(method, models::of_agent),
            Self::AgentCommands => on(method, models::commands_of_agent),
            Self::Health => on(method, health::health),
            Self::Detailed => on(method, health::detailed),
            Self::Metrics => on(method, health::metrics),
            Self::Document => on(method, document),
        }
    }
}

/// Everything that is answered.
pub(crate) fn router(app: Arc<App>) -> Router {
    let routes = Operation::ALL.into_iter();
    routes
        .fold(Router::new(), |router, operation| {
            router.route(operation.path(), operation.handler())
        })
        .merge(openai::router())
        .merge(mcp::router())
        .merge(gateway::router())
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .with_state(app)
}

async fn document(State(app): State<Arc<App>>) -> Response {
    document::response(app.document.clone())
}

async fn nowhere(uri: Uri) -> Response {
    let why = "there is nothing at this path";
    let problem = Problem::new(StatusCode::NOT_FOUND, "unknown-path", why)
        .hint("`/openapi.json` says what there is");
    openai::shaped(uri.path(), problem)
}

async fn not_so(uri: Uri) -> Response {
    let why = "this path is not asked by this method";
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "unknown-method", why)
        .hint("`Allow` says by which; `/openapi.json` says what there is");
    openai::shaped(uri.path(), problem)
}
