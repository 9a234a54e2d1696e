//! How this server is, how the daemon is, and both for Prometheus.
//!
//! Owns what is told without a token: nothing but that somebody is here.

use std::sync::Arc;

use agentd_client::{health, metrics};
use agentd_protocol::line::DaemonState;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::daemon::NAME;
use crate::problem::Problem;

/// This server answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    /// Always `ok`.
    status: &'static str,
}

/// How the daemon is: what its `status` says.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Detailed {
    /// `ready`, `degraded` or `draining`.
    status: &'static str,
    /// `details`, `daemon`, `rpc`, `store`, `workers` and `questions`, as in the protocol.
    #[serde(flatten)]
    answer: Map<String, Value>,
}

pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

pub(crate) async fn detailed(State(app): State<Arc<App>>) -> Result<Json<Detailed>, Problem> {
    let looked = health::look(&app.daemon.endpoint(), NAME).await;
    let healthy = looked.map_err(|unwell| {
        let mut problem = Problem::no_daemon(unwell.to_string(), unwell.hint());
        problem.code = unwell.name();
        problem
    })?;
    let mut answer: Map<String, Value> = serde_json::from_str(&healthy.line).unwrap_or_default();
    for member in ["type", "id", "ok", "state"] {
        answer.shift_remove(member);
    }
    let status = match healthy.answer.state {
        DaemonState::Ready => "ready",
        DaemonState::Degraded => "degraded",
        DaemonState::Draining => "draining",
    };
    Ok(Json(Detailed { status, answer }))
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = match health::look(&app.daemon.endpoint(), NAME).await {
        Ok(healthy) => metrics::text(&healthy.answer),
        // Who scrapes wants to see that, not to fail.
        Err(_) => metrics::down(),
    };
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (StatusCode::OK, kind, text).into_response()
}
